"""The settings of the instance itself and those of every bridge.

There is one declaration each, from which the reference is made.

Owns these declarations. The settings of STOMP, of links and of the broker are declared beside their
code.
"""

from __future__ import annotations

import re
from typing import Any

from twisted.internet.interfaces import IReactorTime

from gateway.instance.levels import ALIASES, LEVELS
from gateway.instance.memory import host_memory
from gateway.instance.memory.budget import MemoryBudget, State
from gateway.instance.setting_types import RESERVED_BRIDGE_NAMES, words_of
from gateway.instance.settings import (
    Boolean,
    Choice,
    Duration,
    Integer,
    Octets,
    Port,
    Problem,
    Setting,
    Settings,
    SettingsError,
    Severity,
    Text,
    ValueType,
)

STOMP = "stomp"
"""The name of the one bridge of type STOMP, and no other's."""

_BRIDGE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")


def BridgeNames() -> ValueType[tuple[str, ...]]:
    """Names that bridges can have, separated by commas.

    ``stomp`` in any case is ``stomp``.
    """

    def read(text: str) -> tuple[str, ...]:
        names = [STOMP if word.lower() == STOMP else word for word in words_of(text)]
        if not all(name == STOMP or is_bridge_name(name) for name in names):
            raise ValueError
        return tuple(dict.fromkeys(names))

    expected = (
        "names of bridges separated by commas, each of at most 100 letters, digits, '_' and '-', not beginning with '-', "
        f"and none of the reserved {', '.join(sorted(RESERVED_BRIDGE_NAMES))}"
    )
    return ValueType("List", expected, read, ",".join)


def is_bridge_name(text: str) -> bool:
    """Whether a bridge of another type than STOMP may have this name.

    Its name is that of a directory, too.
    """
    return _BRIDGE_NAME.fullmatch(text) is not None and text.lower() not in (
        *RESERVED_BRIDGE_NAMES,
        STOMP,
    )


HOSTNAME = Setting(
    "imq.hostname",
    Text(),
    "",
    "Host name or address on which everything listens; none is all addresses, of IPv4 and IPv6.",
)

PORTMAPPER_PORT = Setting("imq.portmapper.port", Port(), 7676, "Port of the port mapper.")
PORTMAPPER_HOSTNAME = Setting(
    "imq.portmapper.hostname",
    Text(),
    "",
    "Host name or address on which the port mapper listens; none is that of imq.hostname.",
)
PORTMAPPER_BACKLOG = Setting(
    "imq.portmapper.backlog",
    Integer(1, 65535),
    50,
    "How many clients of the port mapper may be connected at once.",
    unit="clients",
)
PORTMAPPER_SOTIMEOUT = Setting(
    "imq.portmapper.sotimeout",
    Duration("milliseconds", 1, 3_600_000),
    500,
    "How long the port mapper waits for a client's request before it answers without.",
)
PORTMAPPER_LEAST_INFO = Setting(
    "imq.portmapper.leastInfo",
    Boolean(),
    False,
    "Whether the port mapper leaves out where the instance's directories are.",
)

HEALTH_PORT = Setting(
    "imq.health.port",
    Integer(-1, 65535),
    -1,
    "Port of the health service, which answers GET /live and GET /ready over HTTP to anybody; 0 is any free one, -1 is no health service.",
)
HEALTH_HOSTNAME = Setting(
    "imq.health.hostname",
    Text(),
    "",
    "Host name or address on which the health service listens; none is that of imq.hostname.",
)

KEYSTORE_PASSWORD = Setting(
    "imq.keystore.password",
    Text(verbatim=True),
    "",
    "Password of the private keys of TLS; belongs in the passfile.",
    secret=True,
)
TLS_WATCH = Setting(
    "imq.tls.watch",
    Duration("seconds", 0, 86_400),
    60,
    "How often the files of certificates, keys and revocation lists are looked at, to be read again when they have changed; 0 is only at SIGHUP.",
)
PASSFILE_ENABLED = Setting(
    "imq.passfile.enabled",
    Boolean(),
    False,
    "Whether passwords are read from a passfile. The gateway.properties of a new instance has true.",
)
PASSFILE_DIRPATH = Setting(
    "imq.passfile.dirpath",
    Text(),
    "",
    "Directory of the passfile; none is the instance's etc directory.",
)
PASSFILE_NAME = Setting(
    "imq.passfile.name", Text(), "passfile", "Name of the passfile in that directory."
)

LOG_LEVEL = Setting(
    "imq.log.level",
    Choice(*LEVELS, aliases=ALIASES),
    "INFO",
    "Level of the instance's log.",
    reloadable=True,
)
LOG_FORMAT = Setting(
    "imq.log.format",
    Choice("text", "json"),
    "text",
    "Form of the lines of all logs, those of bridges and what is printed included: text, or a JSON object a line.",
)
LOG_FILE_ROLLOVERBYTES = Setting(
    "imq.log.file.rolloverbytes",
    Octets(),
    -1,
    "Size at which the instance's log is rotated; 0 and -1 are no limit.",
)
LOG_FILE_COUNT = Setting(
    "imq.log.file.count",
    Integer(1, 1000),
    10,
    "How many files the instance's log has at most, the one being written included.",
)

MEMORY_BUDGET = Setting(
    "imq.memory.budget",
    Octets(unlimited=False),
    0,
    "Memory that clients may make the gateway hold: frames that come in, open transactions, output that is not read, and messages that wait or are not "
    "acknowledged. "
    "0 is 40 % of the machine's memory, or of its control group's limit; more than 60 % is taken as 60 %.",
)
MEMORY_RECEIVING = Setting(
    "imq.memory.receiving",
    Integer(1, 100),
    75,
    "Part of the budget for frames that come in and are not carried out yet.",
    unit="percent",
)
MEMORY_TRANSACTIONS = Setting(
    "imq.memory.transactions",
    Integer(1, 100),
    75,
    "Part of the budget for what open transactions have sent and acknowledged.",
    unit="percent",
)
MEMORY_OUTPUT = Setting(
    "imq.memory.output",
    Integer(1, 100),
    75,
    "Part of the budget for output that clients have not read.",
    unit="percent",
)
MEMORY_WAITING = Setting(
    "imq.memory.waiting",
    Integer(1, 100),
    75,
    "Part of the budget for messages that wait for consumers or for the disk; beyond it their senders are held back. Destinations, subscriptions and "
    "consumers count here, too; clients may make them up to half of this part.",
    unit="percent",
)
MEMORY_UNACKNOWLEDGED = Setting(
    "imq.memory.unacknowledged",
    Integer(1, 100),
    75,
    "Part of the budget for messages that consumers have and have not acknowledged. A consumer gets more while it has less than what is left of this part, "
    "and always one.",
    unit="percent",
)
MEMORY_PATIENCE = Setting(
    "imq.memory.patience",
    Duration("seconds", 1),
    10,
    "How long clients wait for memory in vain before the connection that holds most of it is ended.",
)

CLUSTER_URL = Setting(
    "imq.cluster.url",
    Text(),
    "",
    "Where the settings are that the brokers of a cluster have in common, a .properties file: a path, which may be relative to the instance's etc directory, "
    "or a URL. What gateway.properties has counts more.",
    own=True,
)
BRIDGE_ENABLED = Setting(
    "imq.bridge.enabled",
    Boolean(),
    False,
    "Whether bridges run, STOMP among them. The gateway.properties of a new instance has true.",
    shared=True,
)
BRIDGE_ACTIVELIST = Setting(
    "imq.bridge.activelist",
    BridgeNames(),
    (),
    "Names of the bridges that are loaded at start. The gateway.properties of a new instance has stomp.",
    own=True,
)
BRIDGE_STANDBYLIST = Setting(
    "imq.bridge.standbylist",
    BridgeNames(),
    (),
    "Names of the JMS bridges of the cluster that this broker takes when their broker has been dead for imq.bridge.takeover.after.",
    own=True,
)
BRIDGE_TAKEOVER_AFTER = Setting(
    "imq.bridge.takeover.after",
    Duration("seconds", 0, 86_400),
    0,
    "How long nothing must have been seen of a broker before its bridges in imq.bridge.standbylist are taken; 0 is never.",
)
BRIDGE_ADMIN_USER = Setting(
    "imq.bridge.admin.user",
    Text(),
    "",
    "User as whom JMS bridges use this broker where they name no other; none of them starts without one.",
)
BRIDGE_ADMIN_PASSWORD = Setting(
    "imq.bridge.admin.password",
    Text(verbatim=True),
    "",
    "Password of imq.bridge.admin.user; belongs in the passfile.",
    secret=True,
)

BRIDGE_TYPE = Setting(
    "imq.bridge.NAME.type",
    Choice("JMS", "STOMP"),
    "",
    "Type of the bridge; STOMP is that of the bridge named stomp, and only of it.",
    shared=True,
)
BRIDGE_AUTOSTART = Setting(
    "imq.bridge.NAME.autostart",
    Boolean(),
    True,
    "Whether the bridge is started when the instance is; imqbridgemgr can start it later.",
    shared=True,
)
BRIDGE_LEVEL = Setting(
    "imq.bridge.NAME.level",
    Choice(*LEVELS, aliases=ALIASES),
    "INFO",
    "Level of the bridge's log.",
    reloadable=True,
)
BRIDGE_LOGFILE_LIMIT = Setting(
    "imq.bridge.NAME.logfile.limit",
    Octets(unlimited=False),
    0,
    "Approximate size at which the bridge's log file is rotated; 0 is no limit.",
)
BRIDGE_LOGFILE_COUNT = Setting(
    "imq.bridge.NAME.logfile.count",
    Integer(1, 1000),
    1,
    "How many log files the bridge cycles through.",
)

SETTINGS: tuple[Setting[Any], ...] = (
    HOSTNAME,
    PORTMAPPER_PORT,
    PORTMAPPER_HOSTNAME,
    PORTMAPPER_BACKLOG,
    PORTMAPPER_SOTIMEOUT,
    PORTMAPPER_LEAST_INFO,
    HEALTH_PORT,
    HEALTH_HOSTNAME,
    KEYSTORE_PASSWORD,
    TLS_WATCH,
    PASSFILE_ENABLED,
    PASSFILE_DIRPATH,
    PASSFILE_NAME,
    LOG_LEVEL,
    LOG_FORMAT,
    LOG_FILE_ROLLOVERBYTES,
    LOG_FILE_COUNT,
    MEMORY_BUDGET,
    MEMORY_RECEIVING,
    MEMORY_TRANSACTIONS,
    MEMORY_OUTPUT,
    MEMORY_WAITING,
    MEMORY_UNACKNOWLEDGED,
    MEMORY_PATIENCE,
    CLUSTER_URL,
    BRIDGE_ENABLED,
    BRIDGE_ACTIVELIST,
    BRIDGE_STANDBYLIST,
    BRIDGE_TAKEOVER_AFTER,
    BRIDGE_ADMIN_USER,
    BRIDGE_ADMIN_PASSWORD,
    BRIDGE_TYPE,
    BRIDGE_AUTOSTART,
    BRIDGE_LEVEL,
    BRIDGE_LOGFILE_LIMIT,
    BRIDGE_LOGFILE_COUNT,
)


def memory_budget(settings: Settings, machine_memory: int) -> int:
    """The bytes of the memory budget.

    :param machine_memory: as :func:`gateway.instance.memory.host_memory.memory` tells it.
    """
    return min(
        settings[MEMORY_BUDGET] or host_memory.default_budget(machine_memory),
        host_memory.share(machine_memory),
    )


def memory_warnings(settings: Settings, machine_memory: int) -> list[Problem]:
    """A warning where the budget that is set is more than may be taken."""
    most = host_memory.share(machine_memory)
    if settings[MEMORY_BUDGET] <= most:
        return []
    expected = f"at most {most}, {host_memory.SHARE_PERCENT} % of the {machine_memory} bytes that this machine has; that much is taken"
    return [settings.problem(MEMORY_BUDGET, expected, severity=Severity.WARNING)]


def make_memory_budget(
    settings: Settings, machine_memory: int, clock: IReactorTime
) -> MemoryBudget:
    """The memory budget that the settings ask for. :param clock: the reactor."""
    percent = {
        State.RECEIVING: settings[MEMORY_RECEIVING],
        State.TRANSACTIONS: settings[MEMORY_TRANSACTIONS],
        State.OUTPUT: settings[MEMORY_OUTPUT],
        State.WAITING: settings[MEMORY_WAITING],
        State.UNACKNOWLEDGED: settings[MEMORY_UNACKNOWLEDGED],
    }
    return MemoryBudget(
        clock, memory_budget(settings, machine_memory), percent, settings[MEMORY_PATIENCE]
    )


def bridge_type(settings: Settings, name: str) -> str:
    """Return the type of a bridge: ``JMS`` or ``STOMP``.

    That of ``stomp`` need not be given.

    :raises SettingsError: it is not given, or is not one that a bridge of this name can have; that
        bridge must not start.
    """
    given = settings.named(BRIDGE_TYPE, name)
    wanted = "STOMP" if name == STOMP else "JMS"
    if given == wanted or (name == STOMP and not given):
        return wanted
    reason = f"{wanted}, which alone a bridge called {name} can be"
    raise SettingsError([settings.problem(BRIDGE_TYPE, reason, name, severity=Severity.BRIDGE)])
