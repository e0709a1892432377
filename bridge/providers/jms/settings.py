"""The settings of the process's one JVM, which all JMS bridges share, beside the class path in :mod:`bridge.settings`.

Owns their names, defaults and meaning; what a connection factory needs is in the bridge's own file.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.providers.jms.jvm import JVMOptions
from bridge.settings import JMS_CLASSPATH
from gateway.instance.settings import Setting, Settings, Text

JVM_LIBRARY: Final = Setting(
    "imq.jms.jvm", Text(), "", "Path of the JVM's library, libjvm.so; empty finds it by JAVA_HOME or the java command"
)
JVM_OPTIONS: Final = Setting(
    "imq.jms.jvmOptions", Text(), "-Xmx256m", "Options of the JVM, separated by blanks; it always gets -Xrs"
)

#: Every one of them, in the order of the reference.
SETTINGS: Final[tuple[Setting[Any], ...]] = (JVM_LIBRARY, JVM_OPTIONS)


def jvm_options(settings: Settings) -> JVMOptions:
    """How the JVM is started."""
    return JVMOptions(settings[JMS_CLASSPATH], settings[JVM_LIBRARY], tuple(settings[JVM_OPTIONS].split()))
