"""The settings of JMS bridges beyond those of every bridge.

Open MQ's Table 12-2, and those that it needed and did not have.

Owns their names, defaults and meaning. Those that every bridge has (``imq.bridge.NAME.type``,
``.autostart``, ``.level``, ``.logfile.*``) are in
:mod:`gateway.instance.settings_general`.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.instance.settings import Boolean, Duration, Setting, Text

XMLURL: Final = Setting(
    "imq.bridge.NAME.xmlurl",
    Text(),
    "",
    "Where the XML configuration of the JMS bridge is: a path, which may be relative to the instance's etc directory, or a URL",
)
XML: Final = Setting(
    "imq.bridge.NAME.xml",
    Text(),
    "",
    "The same as imq.bridge.NAME.xmlurl, by the other name that the original gives it",
)
CONFIG_REMOTE: Final = Setting(
    "imq.bridge.config.remote",
    Boolean(),
    False,
    "Whether the XML configuration of bridges may be read from http: and https: URLs",
)
PASSWORD: Final = Setting(
    "imq.bridge.config.password.NAME",
    Text(verbatim=True),
    "",
    "What ${passfile:NAME} in the XML configuration of a bridge stands for; belongs in the passfile",
    secret=True,
)
JMS_CLASSPATH: Final = Setting(
    "imq.jms.classpath",
    Text(),
    "",
    "Java class path of the client libraries of JMS providers: jar files, directories and DIRECTORY/*, separated by colons",
)
TM_PROPS: Final = Setting(
    "imq.bridge.tm.props",
    Text(),
    "",
    "Properties of the transaction coordinators of all bridges: KEY=VALUE, separated by commas",
    shared=True,
)
BRIDGE_TM_PROPS: Final = Setting(
    "imq.bridge.NAME.tm.props",
    Text(),
    "",
    "Properties of the transaction coordinator of the bridge: KEY=VALUE, separated by commas; they win over those of imq.bridge.tm.props",
    shared=True,
)
STALLED: Final = Setting(
    "imq.bridge.NAME.stalled",
    Duration("seconds", 0),
    60,
    "Time after which a link of the bridge that has something waiting and has moved nothing is STALLED, also where it was connected anew meanwhile; 0 is never. Read when the bridge is started",
)

#: Every one of them, in the order of the reference.
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    XMLURL,
    XML,
    CONFIG_REMOTE,
    PASSWORD,
    JMS_CLASSPATH,
    TM_PROPS,
    BRIDGE_TM_PROPS,
    STALLED,
)
