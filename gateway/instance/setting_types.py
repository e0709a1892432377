"""Declarations of settings, the types of their values, the catalogue.

In the catalogue a setting is found by its name.

Owns names (placeholders, reserved words, the known name nearest to an unknown one) and the spelling
of values: each type reads the text that an operator wrote, or says what it expected. Knows no
files, sources or severities.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

T = TypeVar("T")
N = TypeVar("N", int, float)

PLACEHOLDER = "NAME"
BRIDGES = "imq.bridge."
#: How much of what differs must be alike, from 0 to 1, for one name to be told for another.
_LIKENESS = 0.6
_PLACEHOLDER = re.compile(rf"(?<![^.]){PLACEHOLDER}(?![^.])")

RESERVED_BRIDGE_NAMES = frozenset({"admin", "tm", "jms", "config", "takeover"})
"""Words that stand where a bridge's name stands in ``imq.bridge.*`` and so cannot be one, in any
case. The name ``stomp`` is reserved too: for the bridge of that type.
"""


# Eighteen digits stay inside a signed 64-bit integer, whatever the sign. `int` alone would also
# take "1_000" and "٣".
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_OCTETS = re.compile(r"([0-9]{1,19})([bkmg]?)", re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})")
_SCALES = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ValueType(Generic[T]):
    """How values of one kind are written.

    :param name: what the settings reference calls the type.
    :param expected: what a value must be, to be read after "expected".
    :param read: gives the value that a text spells, or raises ValueError or LookupError.
    :param show: gives a spelling of a value that ``read`` reads back as that value.
    :param unit: the unit of the number, in the plural; empty for no unit.
    :param options: the only values there are, where those are a few words.
    """

    name: str
    expected: str
    read: Callable[[str], T]
    show: Callable[[T], str] = str
    unit: str = ""
    options: tuple[str, ...] = ()

    def parse(self, text: str) -> T:
        """Return the value that ``text`` spells.

        Blanks around it do not count, unless the type says so.

        :raises ValueError: it spells none; the error's text is :attr:`expected`.
        """
        try:
            return self.read(text)
        except (ValueError, LookupError):
            raise ValueError(self.expected) from None


def Boolean() -> ValueType[bool]:
    """``true`` or ``false``, in any case.

    Anything else is refused, where the original took it for false.
    """
    values = {"true": True, "false": False}
    return ValueType(
        "Boolean",
        "true or false",
        lambda text: values[text.strip().lower()],
        lambda value: "true" if value else "false",
    )


def Integer(minimum: int | None = None, maximum: int | None = None, of: str = "") -> ValueType[int]:
    """A whole number.

    :param minimum: the smallest allowed; None is no bound.
    :param maximum: the largest allowed; None is no bound.
    :param of: the unit, in the plural; empty for no unit.
    """

    def read(text: str) -> int:
        if _INTEGER.fullmatch(text.strip()) is None:
            raise ValueError
        return _within(int(text), minimum, maximum)

    expected = f"a whole number{f' of {of}' if of else ''}{_bounds(minimum, maximum)}"
    return ValueType("Integer", expected, read, unit=of)


def Duration(of: str, minimum: int = 0, maximum: int | None = None) -> ValueType[int]:
    """A whole number of the given unit.

    The value is that number, not converted.

    :param of: ``milliseconds``, ``seconds``, ``minutes``, ``hours`` or ``days``.
    :param minimum: the shortest allowed, in that unit.
    :param maximum: the longest allowed, in that unit; None is no bound.
    """
    return Integer(minimum, maximum, of)


def Port() -> ValueType[int]:
    """A TCP port, 0 to 65535; 0 asks the system for any free one."""
    expected = "a port: a whole number from 0 to 65535, 0 for any free one"
    return replace(Integer(0, 65535), expected=expected)


def Octets(unlimited: bool = True, minimum: int = 0) -> ValueType[int]:
    """A size in octets.

    A plain number is octets, and ``b``, ``k`` (1024), ``m`` (1024²) and ``g`` (1024³) may follow,
    in any case.

    :param unlimited: whether ``-1`` is allowed, for no limit.
    :param minimum: the smallest size allowed, in octets.
    """

    def read(text: str) -> int:
        if unlimited and text.strip() == "-1":
            return -1
        found = _OCTETS.fullmatch(text.strip())
        if found is None:
            raise ValueError
        return _within(int(found[1]) * _SCALES[found[2].lower()], minimum, _LARGEST)

    least = f" of at least {_size(minimum)}" if minimum else ""
    without = ", or -1 for no limit" if unlimited else ""
    expected = f"a size{least}: a whole number of octets, or one followed by b, k, m or g{without}"
    return ValueType("Size", expected, read, _size, "octets")


def _size(octets: int) -> str:
    if octets > 0:
        for suffix in "gmk":
            if octets % _SCALES[suffix] == 0:
                return f"{octets // _SCALES[suffix]}{suffix}"
    return str(octets)


def Decimal(minimum: float | None = None, maximum: float | None = None) -> ValueType[float]:
    """A number that may have decimals, with a point.

    :param minimum: the smallest allowed; None is no bound.
    :param maximum: the largest allowed; None is no bound.
    """

    def read(text: str) -> float:
        if _DECIMAL.fullmatch(text.strip()) is None:
            raise ValueError
        return _within(float(text), minimum, maximum)

    def show(value: float) -> str:
        return f"{value:.18f}".rstrip("0").rstrip(".") if "e" in repr(value) else repr(value)

    return ValueType("Decimal", "a number" + _bounds(minimum, maximum), read, show)


def Text(verbatim: bool = False) -> ValueType[str]:
    """Any text; empty is "none".

    :param verbatim: whether blanks around the text belong to it, as in a password.
    """
    return ValueType("String", "a text", str if verbatim else str.strip)


def Words() -> ValueType[tuple[str, ...]]:
    """Words separated by commas.

    Blanks around each are dropped, and so are empty ones and repetitions.
    """
    return ValueType("List", "words separated by commas", words_of, ",".join)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text that separates them by commas, each once."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def Choice(*options: str, aliases: Mapping[str, str] | None = None) -> ValueType[str]:
    """One of a few words, in any case.

    The value is the word as it was declared.

    :param options: the words allowed, in the order in which the reference lists them.
    :param aliases: other words that are taken, each for one of the options.
    """
    words = {**dict(zip(options, options, strict=True)), **(aliases or {})}
    values = {word.lower(): option for word, option in words.items()}
    *others, last = options
    return ValueType(
        "Choice",
        f"{', '.join(others)} or {last}" if others else last,
        lambda text: values[text.strip().lower()],
        options=options,
    )


def _within(value: N, minimum: N | None, maximum: N | None) -> N:
    """Return the value. :raises ValueError: it is out of bounds."""
    if (minimum is None or minimum <= value) and (maximum is None or value <= maximum):
        return value
    raise ValueError


def _bounds(minimum: float | None, maximum: float | None) -> str:
    match minimum, maximum:
        case None, None:
            return ""
        case _, None:
            return f" of at least {minimum}"
        case None, _:
            return f" of at most {maximum}"
    return f" from {minimum} to {maximum}"


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """The one declaration of a setting; the reference page is made from it.

    :param name: its name, the original's where it has one. ``NAME`` between dots (or last) stands
        for a name that the operator chooses: that of a bridge after ``imq.bridge.``, which has no
        dot, or of a destination, which may.
    :param type: how its value is written.
    :param default: what holds where nothing is given.
    :param doc: one line for the reference.
    :param unit: the unit of the value, in the plural, where the type does not say it.
    :param reloadable: whether a change takes effect without a restart, when the file is read again.
    :param secret: whether the value must never be shown.
    :param shared: whether it must be the same at all brokers of a cluster.
    :param own: whether it is each broker's own, and so has no place in central properties.
    """

    name: str
    type: ValueType[T]
    default: T
    doc: str
    unit: str = ""
    reloadable: bool = False
    secret: bool = False
    shared: bool = False
    own: bool = False

    def __post_init__(self) -> None:
        if len(_PLACEHOLDER.findall(self.name)) > 1:
            raise ValueError(f"setting {self.name} has more than one {PLACEHOLDER}")
        if not self.doc.strip() or "\n" in self.doc:
            raise ValueError(f"setting {self.name} needs one line of documentation")

    @property
    def is_named(self) -> bool:
        """Whether the name holds the placeholder."""
        return _PLACEHOLDER.search(self.name) is not None

    def full_name(self, name: str) -> str:
        """The setting's name for the bridge or destination called ``name``."""
        prefix, suffix = self._around()
        return prefix + name + suffix

    def matched(self, full_name: str) -> str | None:
        """Return the name that stands for the placeholder in ``full_name``.

        None where this is not such a setting's name.
        """
        if not self.is_named:
            return None
        prefix, suffix = self._around()
        if not (full_name.startswith(prefix) and full_name.endswith(suffix)) or len(
            full_name
        ) <= len(prefix) + len(suffix):
            return None
        name = full_name[len(prefix) : len(full_name) - len(suffix)]
        if prefix == BRIDGES and ("." in name or name.lower() in RESERVED_BRIDGE_NAMES):
            return None
        return name

    def resembling(self, full_name: str) -> str:
        """Return this setting's name with its placeholder filled.

        It is filled with what stands at that place in ``full_name``; the name is empty where
        nothing does.
        """
        if not self.is_named:
            return self.name
        prefix, suffix = self._around()
        given = full_name.split(".")
        before, after = prefix.count("."), suffix.count(".")
        if len(given) <= before + after:
            return ""
        until = before + 1 if prefix == BRIDGES else len(given) - after
        name = ".".join(given[before:until])
        return self.full_name(name) if name else ""

    def _around(self) -> tuple[str, str]:
        found = _PLACEHOLDER.search(self.name)
        if found is None:
            raise ValueError(f"setting {self.name} has no {PLACEHOLDER} in its name")
        return self.name[: found.start()], self.name[found.end() :]


class Catalogue:
    """All settings there are, and which of them a name means.

    :raises ValueError: two settings have one name, or one with a placeholder has that of another.
    """

    def __init__(self, declared: Iterable[Setting[Any]]) -> None:
        self._plain: dict[str, Setting[Any]] = {}
        self._patterns: list[Setting[Any]] = []
        self._all: set[int] = set()
        seen: dict[str, Setting[Any]] = {}
        for setting in declared:
            if seen.get(setting.name) is setting:
                continue
            if setting.name in seen:
                raise ValueError(f"setting {setting.name} is declared twice")
            seen[setting.name] = setting
            self._all.add(id(setting))
            if setting.is_named:
                self._patterns.append(setting)
            else:
                self._plain[setting.name] = setting
        # The longest one is the most particular.
        self._patterns.sort(key=lambda setting: len(setting.name), reverse=True)
        self._settings = tuple(seen.values())
        for name in self._plain:
            for pattern in self._patterns:
                if pattern.matched(name) is not None:
                    raise ValueError(
                        f"setting {name} is declared twice: {pattern.name} has that name, too"
                    )

    def require(self, setting: Setting[Any]) -> None:
        """Nothing, if ``setting`` is in the catalogue.

        :raises KeyError: it is not.
        """
        if id(setting) not in self._all:
            raise KeyError(f"{setting.name} is not among the declared settings")

    def find(self, full_name: str) -> tuple[Setting[Any], str] | None:
        """The setting, and what stands for its placeholder; empty for one without."""
        if full_name in self._plain:
            return self._plain[full_name], ""
        for setting in self._patterns:
            name = setting.matched(full_name)
            if name is not None:
                return setting, name
        return None

    def secret_names(self) -> list[str]:
        """The names of the settings that are secret."""
        return [setting.name for setting in self._settings if setting.secret]

    def shared(self) -> list[Setting[Any]]:
        """The settings of one name that brokers have in common."""
        return [each for each in self._settings if each.shared and not each.is_named]

    def nearest(self, full_name: str) -> str:
        """The name that resembles ``full_name`` most; empty where none does."""
        return nearest(
            full_name,
            [name for setting in self._settings if (name := setting.resembling(full_name))],
        )


def nearest(wanted: str, known: Iterable[str]) -> str:
    """Return the known name that ``wanted`` may have been meant to be.

    It is empty where none comes near.

    The words that both begin with are no likeness: ``imq.foo`` is not near to ``imq.hostname``.
    """
    best, highest = "", 0.0
    for name in known:
        ours, theirs = wanted.lower().split("."), name.lower().split(".")
        while ours and theirs and ours[0] == theirs[0]:
            del ours[0], theirs[0]
        if ours == theirs:
            return name
        if difflib.SequenceMatcher(None, ".".join(ours), ".".join(theirs)).ratio() < _LIKENESS:
            continue
        likeness = difflib.SequenceMatcher(None, wanted.lower(), name.lower()).ratio()
        if likeness > highest:
            best, highest = name, likeness
    return best


def is_of_a_bridge(full_name: str) -> bool:
    """Whether the name is under ``imq.bridge.NAME.`` for a bridge's name."""
    if not full_name.startswith(BRIDGES):
        return False
    name, separator, _ = full_name[len(BRIDGES) :].partition(".")
    return bool(separator) and name.lower() not in RESERVED_BRIDGE_NAMES


# The names of Open MQ's broker properties, from the alphabetical list of the original's reference and
# the names its instance files hold. They are for the warning that one of them has no effect here. A
# name that some package declares as a setting is found there first.
#
# Below `imq.`; `*` stands for any text, for what the operator names: a service, a database vendor,
# a number. `BRIDGE` is one word that a bridge can be called. What every bridge has and we have too
# is declared elsewhere and left out, so that it is not taken for a name of the original where no
# bridge can be meant.
_BELOW_IMQ = """
accesscontrol.enabled accesscontrol.file.dirpath accesscontrol.file.filename accesscontrol.file.url accesscontrol.type
admincreate.topic.sharedConsumerFlowLimit
audit.bsm.disabled audit.enabled
authentication.basic.user_repository authentication.client.response.timeout authentication.digest.user_repository authentication.type
autocreate.destination.isLocalOnly autocreate.destination.limitBehavior autocreate.destination.maxBytesPerMsg
autocreate.destination.maxNumMsgs autocreate.destination.maxNumProducers autocreate.destination.maxTotalMsgBytes
autocreate.destination.useDMQ autocreate.queue autocreate.queue.consumerFlowLimit autocreate.queue.localDeliveryPreferred
autocreate.queue.maxNumActiveConsumers autocreate.queue.maxNumBackupConsumers autocreate.reaptime autocreate.topic
autocreate.topic.consumerFlowLimit autocreate.topic.sharedConsumerFlowLimit
bridge.activelist bridge.admin.password bridge.admin.user bridge.enabled bridge.managerclass bridge.tm.class bridge.tm.props
bridge.BRIDGE.class bridge.BRIDGE.libhome bridge.BRIDGE.tm.class bridge.BRIDGE.tm.props bridge.BRIDGE.varhome bridge.BRIDGE.xmlurl
broker.adminDefinedRoles.count broker.adminDefinedRoles.name* brokerid
cluster.brokerlist cluster.brokerlist.manual cluster.clusterid cluster.dynamicChangeMasterBrokerEnabled cluster.ha
cluster.ha.takeoverWaitTimeout cluster.heartbeat.* cluster.hostname cluster.locktimeout cluster.masterbroker
cluster.masterbroker.enforce cluster.monitor.interval cluster.monitor.threshold cluster.nomasterbroker cluster.port
cluster.sharecc.persist cluster.sharecc.persistCreate cluster.sharecc.persist.jdbc.* cluster.transport cluster.url
config.class config.version instanceconfig.version
debug.* dump.packet.debug dump.packet.debugall
destination.DMQ.truncateBody destination.logDeadMsgs
embedded.* hostname imqbridgemgr.password imqcmd.password instancename varhome home libhome etchome instanceshome
jmx.connector.activelist jmx.connector.list jmx.connector.*.brokerHostTrusted jmx.connector.*.port jmx.connector.*.urlpath
jmx.connector.*.useSSL jmx.enabled jmx.hostname jmx.rmiregistry.port jmx.rmiregistry.start jmx.rmiregistry.use
jmx.usePlatformMBeanServer
keystore.file.dirpath keystore.file.name keystore.password
log.console.class log.console.output log.console.stream log.destination.* log.file.class log.file.dirpath log.file.filename
log.file.output log.file.rolloverbytes log.file.rolloversecs log.handlers log.jmx.class log.jmx.output log.level log.syslog.*
log.timezone
memory.gcdelta memory.hysteresis memory.levels memory.overhead
message.expiration.interval message.max_size
metrics.enabled metrics.interval metrics.topic.enabled metrics.topic.interval metrics.topic.persist metrics.topic.timetolive
passfile.dirpath passfile.enabled passfile.name
persist.file.destination.file.size persist.file.destination.message.filepool.limit persist.file.message.* persist.file.newTxnLog.enabled
persist.file.sync.all persist.file.sync.enabled persist.file.transaction.memorymappedfile.enabled persist.file.txnLog.*
persist.jdbc.* persist.store
ping.enabled ping.interval
portmapper.backlog portmapper.bind portmapper.hostname portmapper.leastInfo portmapper.max_threads portmapper.min_threads
portmapper.port portmapper.solinger portmapper.sotimeout portmapper.tls.enabled portunif.enabled
primaryowner.contact primaryowner.name
protocol.list protocol.*.inbufsz protocol.*.outbufsz protocol.*.nodelay protocol.*.class protocol.*.propertylist
queue.deliverypolicy queue.rr.messageblock restart.code selectors.limit
green.* yellow.* orange.* red.*
service.activelist service.list service.runtimeAdd service_handler.*.class shared.connectionMonitor_limit
system.max_count system.max_size
transaction.autorollback transaction.consumer.maxNumMsgs transaction.message.maxConsecutiveRollbacks transaction.producer.maxNumMsgs
user_repository.file.dirpath user_repository.file.filename user_repository.file.groupPrincipalClass
user_repository.file.userPrincipalClass user_repository.jaas.* user_repository.ldap.*
jms.* ssljms.* httpjms.* httpsjms.* wsjms.* wssjms.* jmsdirect.* mqdirect.* mqdirect2.* admin.* ssladmin.*
*.accesscontrol.enabled *.accesscontrol.file.filename *.accesscontrol.type *.authentication.type *.max_threads *.min_threads
*.protocoltype *.servicetype *.threadpool_model *.tcp.hostname *.tcp.port *.tls.hostname *.tls.port
"""

# The Java virtual machine's, and those of its logging, which stood in the same file or came by the
# same -D.
_OTHERS = (
    "java.* javax.* jakarta.* sun.* com.sun.* org.glassfish.* handlers .level user.* file.encoding"
)


def _pattern(names: list[str]) -> re.Pattern[str]:
    bridge = rf"(?!(?i:{'|'.join(RESERVED_BRIDGE_NAMES)})\.)[^.]+"
    return re.compile(
        "|".join(re.escape(name).replace(r"\*", ".+").replace("BRIDGE", bridge) for name in names)
    )


_KNOWN = _pattern([f"imq.{name}" for name in _BELOW_IMQ.split()] + _OTHERS.split())


# What is trusted to open or to close the broker, and does not.
_SAID_OF = {
    r"imq\.(.+\.)?accesscontrol\.enabled": "has no effect in this gateway: the rules of etc/accesscontrol.properties always hold here; "
    "those of a new instance allow every user to connect and to use every destination",
    r"imq\.(.+\.)?authentication\.type": "has no effect in this gateway: every client is asked for the name and passcode of a user in etc/users, or, "
    "with imq.bridge.stomp.tls.certificateLogin, for a certificate",
    r"imq\.authentication\.digest\.user_repository": "has no effect in this gateway: the users are those of imq.authentication.basic.user_repository",
    r"imq\.accesscontrol\.(type|file\..+)": "has no effect in this gateway: access rules are those of the instance's etc/accesscontrol.properties",
}


def said_of(name: str) -> str:
    """Return what to say where this property of the original is given.

    It is read after the property.
    """
    for pattern, sentence in _SAID_OF.items():
        if re.fullmatch(pattern, name):
            return sentence
    return "has no effect in this gateway"


def is_of_the_original(name: str) -> bool:
    """Whether Open MQ's broker or its Java virtual machine has this property."""
    return _KNOWN.fullmatch(name) is not None
