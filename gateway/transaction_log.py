"""The place of a bridge's decision log: a file, or the store's database.

Owns how a log goes on elsewhere after the store was exchanged for another. Part of the composition: it joins :mod:`bridge.xa`, which knows no database, and the store, which
knows no transactions of links.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from bridge.xa.coordinator import Coordinator
from bridge.xa.errors import LogFailed
from bridge.xa.log.contents import LogCopy
from bridge.xa.log.file import FileStorage, LogFile, SyncFailed
from bridge.xa.log.log import ask, log_thread
from bridge.xa.log.opening import (
    TransactionProperties,
    coordinator_of,
    open_coordinator,
    open_file,
    tell_opened,
)
from bridge.xa.log.records import read_header
from gateway.broker.store.interface import StoreError, StoreFull
from gateway.instance.layout import TRANSACTION_LOG, Layout, make_directory, sync_directory
from gateway.reactor.deferreds import deferred

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.decisions import DecisionRows

#: What a log's file is called after its log has gone on in the database, behind its name.
IN_DATABASE: Final = ".in-database"


class DatabaseStorage:
    """The octets of a log in the store's database.

    Implements :class:`~bridge.xa.log.file.Storage`.

    :param rows: not used by others.
    """

    whole: Final = True

    def __init__(self, rows: DecisionRows) -> None:
        self._rows: Final = rows

    @property
    def name(self) -> str:
        return self._rows.name

    def read(self) -> bytes | None:
        with _as_of_a_disk():
            return self._rows.read()

    def replace(self, data: bytes) -> None:
        with _as_of_a_disk():
            self._rows.replace(data)

    def append(self, data: bytes) -> None:
        with _as_of_a_disk():
            self._rows.append(data)

    def truncate(self, length: int) -> None:
        """Nothing is ever half appended."""

    def sync(self) -> None:
        """What was appended is durable."""

    def hurry(self) -> None:
        self._rows.hurry()

    def close(self) -> None:
        self._rows.close()


@contextmanager
def _as_of_a_disk() -> Iterator[None]:
    try:
        yield
    except StoreFull as full:
        raise OSError(errno.ENOSPC, str(full)) from full
    except StoreError as failed:
        # Whether it was done is not known.
        raise SyncFailed(errno.EIO, str(failed)) from failed


@dataclass(frozen=True)
class DatabaseLog:
    """The decision log of a bridge in the store's database.

    A log that an earlier run left in a file goes on in the database.

    :param rows: makes the rows of the log.
    :param whose: the id of the broker, or of its cluster, of which the coordinator has its name.
    """

    #: Whether each decision is synced, whatever the properties say.
    synced: ClassVar[bool] = True

    rows: Callable[[], DecisionRows]
    layout: Layout
    whose: str
    bridge: str

    @property
    def _file(self) -> Path:
        return self.layout.transaction_log(self.bridge)

    def exists(self, reactor: Any) -> Deferred[bool]:
        """Whether an earlier run has left a log, here or in a file.

        :param reactor: Twisted's.
        :returns: fails with LogFailed if the database cannot be asked.
        """
        if self._file.exists():
            return succeed(True)
        put = log_thread(self._file.name)
        asked = ask(reactor, put, self._is_there)
        put(None)
        return asked

    def _is_there(self) -> bool:
        rows = self.rows()
        try:
            return rows.exists()
        except StoreError as error:
            raise LogFailed(rows.name, f"it cannot be looked for: {error}") from error
        finally:
            rows.close()

    @deferred
    async def open(
        self,
        reactor: Any,
        properties: TransactionProperties,
        log: Logger,
        randomness: Callable[[int], bytes],
    ) -> Coordinator:
        """Open the coordinator, with what it decided before.

        :param reactor: Twisted's.
        :param log: for operators.
        :param randomness: returns that many random bytes.
        :raises LogDamaged: with the place; the log is unchanged.
        :raises LogFailed: it cannot be read or written; or there is a file that has a log of its own.
        """
        put = log_thread(self._file.name)
        told: list[Callable[[], None]] = []
        opened: list[LogFile] = []

        def open_it() -> LogFile:
            opened.append(self._opened(properties, log, told, randomness))
            return opened[0]

        def close_it() -> None:
            for file in opened:
                file.close()

        try:
            file = await ask(reactor, put, open_it)
        except BaseException:
            # Where this was cancelled, the log is open later nevertheless.
            put(close_it)
            put(None)
            raise
        for tell in told:
            tell()
        return coordinator_of(reactor, file, self.bridge, log, put)

    def _opened(
        self,
        properties: TransactionProperties,
        log: Logger,
        told: list[Callable[[], None]],
        randomness: Callable[[int], bytes],
    ) -> LogFile:
        """Open the log. Blocks while it does.

        :param told: gets what is to be told to operators.
        """
        rows = self.rows()
        storage = DatabaseStorage(rows)
        name = f"{self.whose}:{self.bridge}"
        try:
            try:
                place, there = _digest(rows.place()), rows.exists()
            except StoreError as error:
                raise LogFailed(rows.name, f"it cannot be opened: {error}") from error
            if self._file.exists() and (not there or self._has_gone_on(storage)):
                told.append(
                    partial(
                        tell_opened, self._move(name, properties, storage, place, randomness), log
                    )
                )
            file = LogFile(
                storage, name, properties.log_size, properties.log_sync, randomness, place
            )
            aside = self._set_aside(file)
        except BaseException:
            rows.close()
            raise
        if aside is not None:
            told.append(
                partial(
                    log.info,
                    "{file} goes on in the database, and is called {aside} now",
                    file=str(self._file),
                    aside=aside,
                )
            )
        rows.waits = True
        return file

    def _has_gone_on(self, storage: DatabaseStorage) -> bool:
        """Whether the log of the database went on in the file only.

        :raises LogDamaged: either is damaged.
        :raises LogFailed: either cannot be read.
        """
        there, here = storage.read(), _copy(self._file)
        return there is not None and here.continues(LogCopy(there, storage.name, storage.whole))

    def _move(
        self,
        name: str,
        properties: TransactionProperties,
        storage: DatabaseStorage,
        place: str,
        randomness: Callable[[int], bytes],
    ) -> LogFile:
        """Have the log of the file go on in the database. Returns that, closed."""
        file = open_file(self._file.parent, self.bridge, name, properties, randomness)
        try:
            file.copy_to(storage, place)
        except OSError as error:
            raise LogFailed(
                storage.name, f"{self._file} cannot go on there: {error.strerror}"
            ) from error
        finally:
            file.close()
        return file

    def _set_aside(self, log_file: LogFile) -> Path | None:
        """Rename the file, if any, of a log that has gone on here.

        :raises LogFailed: there is a file of another log, which would be forgotten.
        """
        old = FileStorage(self._file)
        try:
            data = old.read()
            if data is None:
                return None
            identity = read_header(data, old.name)[0].identity
            if identity not in {run.identity for run in log_file.header.earlier}:
                raise LogFailed(
                    old.name,
                    f"the log {log_file.path} is in use, and this file has a log of its own, of which each may have decided what the other does not know. "
                    "To go on with the one in the database, move the file away; to go on with the file, remove the other: "
                    f"'imqdbmgr remove jmsbridge -n {self.bridge}'",
                )
            return set_aside(self._file)
        except OSError as error:
            raise LogFailed(old.name, f"it cannot be set aside: {error}") from error
        finally:
            old.close()


@dataclass(frozen=True)
class PlainLog:
    """The decision log of a bridge in a file.

    One that ``imqdbmgr backup`` has left beside the messages goes on in its place.
    """

    synced: ClassVar[bool] = False

    layout: Layout
    bridge: str

    @property
    def _file(self) -> Path:
        return self.layout.transaction_log(self.bridge)

    @property
    def _beside(self) -> Path:
        return self.layout.store / self._file.name

    def exists(self, reactor: Any) -> bool:
        """Whether an earlier run has left a log.

        :param reactor: Twisted's.
        """
        return bool(self.files())

    def files(self) -> list[Path]:
        """Return the files of the log that exist."""
        return [path for path in (self._file, self._beside) if path.exists()]

    def open(
        self,
        reactor: Any,
        properties: TransactionProperties,
        log: Logger,
        randomness: Callable[[int], bytes],
    ) -> Coordinator:
        """Open the coordinator, with what it decided before. Blocks while it does.

        :param reactor: Twisted's.
        :param log: for operators.
        :param randomness: returns that many random bytes.
        :raises LogDamaged: with file and offset; the log is unchanged.
        :raises LogFailed: it cannot be read or written; or there are two logs.
        """
        if self._beside.exists():
            self._put_in_place(log)
        folder, instance = self._file.parent, self.layout.instance
        return open_coordinator(reactor, folder, self.bridge, instance, properties, log, randomness)

    def _put_in_place(self, log: Logger) -> None:
        """:raises LogFailed: there is another log in its place."""
        if self._file.exists():
            if _copy(self._file).continues(_copy(self._beside)):
                # It was copied there by hand, and went on.
                return
            raise LogFailed(
                str(self._file),
                f"there is another log of this bridge, {self._beside}, and each may have decided what the other does not know; move away the one that "
                "is not to go on",
            )
        try:
            make_directory(self._file.parent)
            self._beside.rename(self._file)
            sync_directory(self._file.parent)
            sync_directory(self._beside.parent)
        except OSError as error:
            raise LogFailed(
                str(self._beside), f"it cannot be moved to {self._file}: {error.strerror}"
            ) from error
        log.info("{beside} goes on as {file}", beside=str(self._beside), file=str(self._file))


def own_logs(layout: Layout) -> dict[str, Path]:
    """Return the files of an instance's decision logs by bridge."""
    found = {}
    for folder in sorted(layout.bridges.glob("*")):
        if (folder / f"{TRANSACTION_LOG}{folder.name}").exists():
            found[folder.name] = layout.transaction_log(folder.name)
    return found


def set_aside(path: Path) -> Path:
    """Rename the file of a log that goes on in the database.

    :returns: the new name.
    :raises OSError: it cannot be renamed.
    """
    aside = path.with_name(f"{path.name}{IN_DATABASE}")
    path.replace(aside)
    sync_directory(aside.parent)
    return aside


def _copy(path: Path) -> LogCopy:
    """Read the log in a file.

    :raises LogDamaged: with file and offset.
    :raises LogFailed: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LogFailed(str(path), f"it cannot be read: {error.strerror}") from error
    return LogCopy(data, str(path), False)


def _digest(place: str) -> str:
    return sha256(place.encode()).hexdigest()[:32] if place else ""
