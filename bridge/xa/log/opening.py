"""Opens a bridge's transaction log and makes the coordinator that it is of.

Owns where the log is and what operators are told of it at the start. Blocks while it reads and
writes the log anew; to be called when a bridge starts.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from twisted.logger import Logger

from bridge.xa.coordinator import Coordinator
from bridge.xa.log.file import LogFile
from bridge.xa.log.log import FileDecisionLog, LogThread
from bridge.xa.log.storage import FileStorage
from bridge.xa.properties import TransactionProperties
from bridge.xa.xids import Xids
from gateway.instance.layout import make_directory

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
    """The coordinator of a bridge, with what it decided before.

    :param reactor: Twisted's. :param folder: the bridge's; made if there is none. The log is
        ``txlog.<bridge>`` in it.
    :param log: for operators. :param randomness: gives that many random octets.
    :raises LogDamaged: with file and place; the log is as it was. :raises LogFailed: it cannot be
        read or written.
    """
    name = f"{instance}:{bridge}"
    make_directory(folder)
    file = LogFile(
        FileStorage(folder / f"txlog.{bridge}"),
        name,
        properties.log_size,
        properties.log_sync,
        randomness,
        place_of(folder),
    )
    decisions = FileDecisionLog(reactor, file, LogThread(f"txlog.{bridge}"))
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
    of = file.header
    coordinator = Coordinator(
        reactor,
        name,
        decisions,
        Xids(name, of.identity, of.generation, of.earlier, of.former),
        log,
    )
    for ref_name, count in coordinator.waits_for().items():
        log.warn(
            "{count} transactions of an earlier run wait for '{ref_name}'",
            count=count,
            ref_name=ref_name,
        )
    return coordinator


def place_of(folder: Path) -> str:
    """Says where a log is, so that a copy of it is known: by the machine and the path. Inodes and
    devices are not the same after each start everywhere.
    """
    try:
        machine = _MACHINE.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        machine = ""
    return sha256(f"{machine}:{folder.resolve()}".encode()).hexdigest()[:32]
