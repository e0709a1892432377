"""Decision logs of bridges in a database, as an operator sees them.

Owns which of two logs of a bridge goes on. What their octets mean is the bridges': a reader is
given.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gateway.broker.operator.log_states import LogCopy, LogState, state_of
from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql import decision_tables
from gateway.broker.store.postgresql.decision_tables import StoredLog
from gateway.instance.layout import (
    TRANSACTION_LOG,
    replace,
    sync_directory,
    transaction_log_name,
)

#: Reads the octets of a log.
#:
#: Takes its name for errors, and whether a torn tail is damage; raises StoreError when it is
#: damaged.
Read: TypeAlias = Callable[[bytes, str, bool], LogCopy]


@dataclass(frozen=True)
class FoundLog:
    """A log in a file.

    :param ended: its run is over, and decides nothing any more.
    """

    bridge: str
    path: Path
    copy: LogCopy
    ended: bool

    @property
    def stored(self) -> StoredLog:
        """The log as the database is to have it."""
        octets = self.copy.encoded(True) if self.ended else self.copy.octets
        return StoredLog(self.bridge, [(0, octets)])


class TransactionLogs:
    """The logs of one broker.

    :param described: where they are.
    """

    def __init__(self, read: Read, described: str) -> None:
        self._read = read
        self._described = described

    def state(self, log: StoredLog) -> LogState:
        """Read a log that may be damaged."""
        return state_of(log.bridge, lambda: self._copy(log))

    def states(self, logs: Sequence[StoredLog]) -> list[LogState]:
        """Read logs that may be damaged."""
        return [self.state(log) for log in logs]

    @contextmanager
    def written(self, folder: Path, logs: Sequence[StoredLog], ended: bool) -> Iterator[None]:
        """Copy logs to files in ``folder``.

        They are removed again if the block raises.

        :param ended: see :meth:`LogCopy.encoded`.
        :raises StoreError: a log is damaged, or there is such a file.
        :raises OSError: a file cannot be made.
        """
        copies = {
            folder / transaction_log_name(log.bridge): self._copy(log).encoded(ended)
            for log in logs
        }
        made: list[Path] = []
        try:
            for path, octets in copies.items():
                _make(path, octets)
                made.append(path)
            yield
        except BaseException:
            for path in made:
                path.unlink(missing_ok=True)
            raise

    def read(self, folder: Path, own: Mapping[str, Path]) -> list[FoundLog]:
        """Read the files of logs in ``folder``, and others.

        :param own: by bridge, files of an instance that is stopped.
        :raises InvalidName: a file is called as the log of a bridge that cannot exist.
        :raises StoreError: one is damaged; or two of a bridge may both have gone on.
        :raises OSError: one cannot be read.
        """
        found: dict[str, FoundLog] = {}
        for path in sorted(folder.glob(f"{TRANSACTION_LOG}*")):
            bridge = path.name.removeprefix(TRANSACTION_LOG)
            transaction_log_name(bridge)
            found[bridge] = FoundLog(bridge, path, self._file(path), False)
        for bridge, path in own.items():
            log, other = FoundLog(bridge, path, self._file(path), True), found.get(bridge)
            if other is not None and not log.copy.continues(other.copy):
                raise StoreError(
                    f"bridge {bridge} has two transaction logs, and each may have decided what the other does not know: {path} and {other.path}. "
                    "Move the one away that is not to go on"
                )
            found[bridge] = log
        return sorted(found.values(), key=lambda log: log.bridge)

    def _file(self, path: Path) -> LogCopy:
        return self._read(path.read_bytes(), str(path), False)

    def kept(self, stored: Sequence[StoredLog], found: Sequence[FoundLog]) -> list[StoredLog]:
        """Return those of the database's logs that no file goes on from.

        :raises StoreError: a log and the file of the same bridge may both have gone on.
        """
        files = {log.bridge: log for log in found}
        kept = []
        for log in stored:
            file = files.get(log.bridge)
            if file is None:
                kept.append(log)
                continue
            here = self._copy(log)
            if here.is_copy_of(file.copy):
                kept.append(log)
            elif not file.copy.continues(here):
                raise StoreError(
                    f"bridge {log.bridge} has two transaction logs, and each may have decided what the other does not know: {file.path}, and that in "
                    f"{self._described}. To go on with the one in the database, move the file away; to go on with the file, "
                    f"remove the other: 'imqdbmgr remove jmsbridge -n {log.bridge}'"
                )
        return kept

    def _copy(self, log: StoredLog) -> LogCopy:
        name = f"of {log.bridge} in {self._described}"
        return self._read(decision_tables.joined(log.parts, name), name, True)


def _make(path: Path, octets: bytes) -> None:
    """Make a file in one step.

    :raises StoreError: there is one of that name.
    :raises OSError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    replace(beside, octets)
    try:
        os.link(beside, path)
    except FileExistsError as there:
        raise StoreError(
            f"{path} is there already: move it away, or give another folder"
        ) from there
    finally:
        beside.unlink()
    sync_directory(path.parent)
