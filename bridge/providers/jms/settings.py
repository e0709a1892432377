"""The settings of the Java processes of JMS bridges, beside the class path in
:mod:`bridge.settings`.

Owns their names, defaults and meaning; what a connection factory needs is in the bridge's own file.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.providers.jms.command import JavaOptions
from bridge.settings import JMS_CLASSPATH
from gateway.instance import machine
from gateway.instance.settings import Setting, Settings, Text
from gateway.instance.settings_general import memory_budget

JVM: Final = Setting(
    "imq.jms.jvm",
    Text(),
    "",
    "The Java that JMS providers run in: path of a java command, of a Java home or of libjvm.so; empty finds one by JAVA_HOME or on the PATH",
)
JVM_OPTIONS: Final = Setting(
    "imq.jms.jvmOptions",
    Text(),
    "",
    "Options of Java processes, separated by blanks, such as -Xmx2g; without -Xmx the heap is sized from the machine, at most 1 GiB for each",
)

#: Every one of them, in the order of the reference.
SETTINGS: Final[tuple[Setting[Any], ...]] = (JVM, JVM_OPTIONS)


def java_options(settings: Settings) -> JavaOptions:
    """How Java processes are started."""
    memory = machine.memory()
    heaps = machine.java_heaps(memory, memory_budget(settings, memory))
    return JavaOptions(
        settings[JMS_CLASSPATH], settings[JVM], tuple(settings[JVM_OPTIONS].split()), heaps
    )
