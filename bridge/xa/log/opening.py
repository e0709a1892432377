"""Open the coordinator of a bridge: its properties and transaction log.

The properties are ``imq.bridge.tm.props`` and ``imq.bridge.NAME.tm.props``. Keys of the original
that need nothing here are ignored with a warning; any other problem is an error of that bridge's
start. Opening blocks while it reads the log and writes it anew; call it when a bridge starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from bridge.config.settings import BRIDGE_TM_PROPS, TM_PROPS
from bridge.xa.coordinator import Coordinator
from bridge.xa.log.file import FileStorage, LogFile
from bridge.xa.log.log import FileDecisionLog, Put, log_thread
from bridge.xa.xids import Xids
from gateway.instance.layout import make_directory
from gateway.instance.setting_types import nearest
from gateway.instance.settings import (
    Boolean,
    Octets,
    Problem,
    Settings,
    SettingsError,
    Severity,
    ValueType,
)

SIZE: Final = "txlogSize"
SYNC: Final = "txlogSync"

_TYPES: Final[Mapping[str, ValueType[Any]]] = {
    SIZE: Octets(unlimited=False, minimum=1024),
    SYNC: Boolean(),
}

#: The original's other keys, each with why it has no effect.
IGNORED: Final[Mapping[str, str]] = {
    "txlogMmap": "the log is written, not mapped",
    "txlogMaxBranches": "a record has room for all the branches of its transaction",
    "txlogReapLimit": "a transaction leaves the log as soon as it is complete",
    "txlogReapInterval": "a transaction leaves the log as soon as it is complete",
    "txlogType": "the log is where the store of messages is: in its database, or in files",
    "txlogClass": "the log has this gateway's own form",
    "txSameXAResourceSameRM": "which resource managers are the same is what their providers say",
    "tmname": "it is the instance's and the bridge's name",
    "txlogDir": "the log is in the bridge's folder",
    "txlogSuffix": "the log is called by the bridge's name",
    "jmsbridge": "it is the bridge's name",
}


@dataclass(frozen=True, slots=True)
class TransactionProperties:
    """How a coordinator keeps its log.

    :param log_size: bytes that the log may have before it is written anew without completed
        transactions. It may grow above that where the others need the room.
    :param log_sync: whether a decision is on the disk before any branch is committed. Without, a
        crash of the machine may lose or double a message.
    """

    log_size: int = 1_024_000
    log_sync: bool = True

    @staticmethod
    def read(
        settings: Settings, bridge: str, synced: bool = False
    ) -> tuple[TransactionProperties, tuple[Problem, ...]]:
        """Return the properties of the bridge of that name, and warnings.

        :param synced: the log syncs each decision, whatever they say.
        :raises SettingsError: with all malformed pairs, unknown keys and bad values.
        """
        values: dict[str, Any] = {}
        wrong: list[Problem] = []
        warnings: list[Problem] = []
        for setting, name in ((TM_PROPS, ""), (BRIDGE_TM_PROPS, bridge)):
            text = settings.named(setting, name) if name else settings[setting]
            for pair in filter(None, map(str.strip, text.split(","))):
                key, said = _judged(pair, values)
                if said:
                    severity = Severity.WARNING if key in IGNORED else Severity.BRIDGE
                    problems = warnings if key in IGNORED else wrong
                    problems.append(
                        settings.problem(setting, said, name, severity=severity, value=pair)
                    )
        if wrong:
            raise SettingsError(wrong)
        if not values.get(SYNC, True) and not synced:
            setting, name = (
                (BRIDGE_TM_PROPS, bridge)
                if SYNC in settings.named(BRIDGE_TM_PROPS, bridge)
                else (TM_PROPS, "")
            )
            expected = "txlogSync=true: without it a crash of the machine may lose or double what is moved exactly once"
            warnings.append(
                settings.problem(
                    setting, expected, name, severity=Severity.WARNING, value=f"{SYNC}=false"
                )
            )
        defaults = TransactionProperties()
        return TransactionProperties(
            values.get(SIZE, defaults.log_size), values.get(SYNC, defaults.log_sync)
        ), tuple(warnings)


def _judged(pair: str, values: dict[str, Any]) -> tuple[str, str]:
    """Read one pair.

    :returns: its key, and what was expected where it is refused.
    """
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not equals or not key:
        return "", "KEY=VALUE pairs separated by commas"
    if key in IGNORED:
        return key, f"nothing, as it has no effect in this gateway: {IGNORED[key]}"
    kind = _TYPES.get(key)
    if kind is None:
        near = nearest(key, [*_TYPES, *IGNORED])
        return (
            key,
            f"one of the keys {', '.join([*_TYPES, *IGNORED])}{f'; the nearest is {near}' if near else ''}",
        )
    try:
        values[key] = kind.parse(value)
    except ValueError as refused:
        return key, f"for {key} {refused}"
    return key, ""


_MACHINE: Final = Path("/etc/machine-id")


def open_coordinator(
    reactor: Any,
    folder: Path,
    bridge: str,
    instance: str,
    properties: TransactionProperties,
    log: Logger,
    randomness: Callable[[int], bytes],
) -> Coordinator:
    """Open the coordinator of a bridge, with what it decided before.

    :param reactor: Twisted's.
    :param folder: the bridge's; created if missing. The log is ``txlog.<bridge>`` in it.
    :param log: for operators.
    :param randomness: returns that many random bytes.
    :raises LogDamaged: with file and offset; the log is unchanged.
    :raises LogFailed: it cannot be read or written.
    """
    file = open_file(folder, bridge, f"{instance}:{bridge}", properties, randomness)
    return coordinator_of(reactor, file, bridge, log)


def open_file(
    folder: Path,
    bridge: str,
    name: str,
    properties: TransactionProperties,
    randomness: Callable[[int], bytes],
) -> LogFile:
    """Open a bridge's log in its file, ``txlog.<bridge>``.

    :param folder: the bridge's; created if missing.
    :param name: the coordinator's.
    :param randomness: returns that many random bytes.
    :raises LogDamaged: with file and offset; the log is unchanged.
    :raises LogFailed: it cannot be read or written.
    """
    make_directory(folder)
    return LogFile(
        FileStorage(folder / f"txlog.{bridge}"),
        name,
        properties.log_size,
        properties.log_sync,
        randomness,
        place_of(folder),
    )


def coordinator_of(
    reactor: Any, file: LogFile, bridge: str, log: Logger, put: Put | None = None
) -> Coordinator:
    """Return the coordinator of a bridge whose log is open.

    :param reactor: Twisted's.
    :param file: a thread's alone from now on.
    :param log: for operators.
    :param put: gives that thread a job; without it there is a new one.
    """
    tell_opened(file, log)
    of = file.header
    coordinator = Coordinator(
        reactor,
        of.name,
        FileDecisionLog(reactor, file, put or log_thread(f"txlog.{bridge}")),
        Xids(of.name, of.identity, of.generation, of.earlier, of.former),
        log,
    )
    for ref_name, count in coordinator.waits_for().items():
        log.warn(
            "{count} transactions of an earlier run wait for '{ref_name}'",
            count=count,
            ref_name=ref_name,
        )
    return coordinator


def tell_opened(file: LogFile, log: Logger) -> None:
    """Tell operators what is special about a log that was opened."""
    if file.cut:
        log.info(
            "{file}: {octets} octets at its end had not been synced, and are cut",
            file=file.path,
            octets=file.cut,
        )
    if file.moved:
        log.warn(
            "{file} was written on another machine, or in another folder: as the original may be in use there, what was prepared and not decided is left "
            "alone, and what was decided is committed",
            file=file.path,
        )


def place_of(folder: Path) -> str:
    """Return a log's place, by which a copy is recognized: machine and path.

    Inodes and devices may change with a reboot.
    """
    try:
        machine = _MACHINE.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        machine = ""
    return sha256(f"{machine}:{folder.resolve()}".encode()).hexdigest()[:32]
