"""Copy all that a store's file holds out of it, and make a file of a copy.

Owns the reading of a file that stays as it is, and the making of a new one, completely or not at
all. The other end of a copy is :class:`~gateway.broker.store.contents.Contents`, whatever keeps it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from gateway.broker.store import failures, reading
from gateway.broker.store.checksums import (
    branch_crc,
    destination_crc,
    duplicate_crc,
    message_crcs,
    subscription_crc,
)
from gateway.broker.store.contents import Contents, seqs_in_blocks
from gateway.broker.store.integrity import checks, opening
from gateway.broker.store.integrity.inspection import Work
from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    Row,
    StoreDamaged,
    StoreError,
    SubscriptionRow,
)
from gateway.instance import crashpoints

#: A store up to this size that was not closed in order is checked page by page.
_CHECK_OCTETS: Final = 256 << 20
#: Bytes of SQLite's log after which it is copied back, and of SQLite's memory for pages.
_LOG_OCTETS: Final = 64 << 20
_CACHE_KIB: Final = 32 << 10

_Block = TypeVar("_Block")


class FileContents:
    """The contents of an open file.

    Implements :class:`~gateway.broker.store.contents.Contents`.
    """

    def __init__(self, opened: opening.Opened, path: str) -> None:
        self.store_id = opened.store_id
        self.next_seq = opened.next_seq
        self._connection = opened.connection
        self._path = path

    def destinations(self) -> Sequence[DestinationRow]:
        return reading.destinations(self._connection)

    def subscriptions(self) -> Sequence[SubscriptionRow]:
        return reading.subscriptions(self._connection)

    def messages(self) -> Iterator[Sequence[Row]]:
        seqs = seqs_in_blocks(reading.scan(self._connection))
        return self._read(reading.fetch(self._connection, self._path, some) for some in seqs)

    def owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        return self._read(reading.scan_owed(self._connection))

    def redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        return self._read(reading.scan_redeliveries(self._connection))

    def duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        return self._read(reading.scan_duplicates(self._connection, self._path))

    def branches(self) -> Iterator[Sequence[BranchRow]]:
        return self._read(reading.scan_branches(self._connection, self._path))

    def _read(self, blocks: Iterator[_Block]) -> Iterator[_Block]:
        while True:
            try:
                block = next(blocks)
            except StopIteration:
                return
            except failures.AT_READING as error:
                raise failures.at_reading(self._path, error) from error
            yield block


@contextmanager
def read(path: str, work: Work) -> Iterator[FileContents]:
    """Open the store at ``path`` for a copy.

    Within the block it is this process's.

    A store of an earlier version is read as one of this version.

    :param work: reads branches, whose encoding is the broker's.
    :raises StoreDamaged: a row, or what rows say of each other, is not what a store writes.
    :raises StoreError: it is no store, of another version, or held by another process.
    """
    try:
        opened = opening.open_existing(path, _CHECK_OCTETS)
    except (OSError, *failures.AT_READING) as error:
        raise failures.at_opening(path, error) from error
    connection = opened.connection
    contents = FileContents(opened, path)
    try:
        try:
            # What an earlier version lacks is added, and what is not copied is left out; this is
            # undone at the end.
            connection.execute("BEGIN IMMEDIATE")
            opening.upgrade(connection)
            opening.forget_passing(connection)
            _check(connection, path, contents, work)
        except (OSError, *failures.AT_READING) as error:
            raise failures.at_opening(path, error) from error
        yield contents
    finally:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        opening.close_untouched(connection)


def _check(connection: sqlite3.Connection, path: str, contents: FileContents, work: Work) -> None:
    sent: set[int] = set()
    taken: set[tuple[int, int]] = set()
    for block in contents.branches():
        for row in block:
            sends, takes = work(row)
            sent.update(sends)
            taken.update(takes)
    for place, what in checks.orphans(connection, sent, taken):
        raise StoreDamaged(path, place, what)


def write(path: str, contents: Contents) -> int:
    """Make a store at ``path``, completely or not at all.

    It is as one that was closed in order.

    :returns: how many messages it has.
    :raises StoreError: there is a file, or it cannot be written; and whatever ``contents`` raises.
    """
    folder = os.path.dirname(path) or "."
    with alone(folder):
        check_free(path)
        unfinished = f"{path}.part"
        remove(unfinished)
        try:
            opening.create(unfinished, contents.store_id)
            count = _fill(unfinished, contents)
            opening.sync(unfinished)
            crashpoints.hit("store.before-rename")
            os.rename(unfinished, path)
            opening.sync(folder)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be made: {error}") from error
        finally:
            remove(unfinished)
    return count


def check_free(path: str) -> None:
    """Check that there is no store at ``path``.

    :raises StoreError: there is one, or a part of one.
    """
    for name in (path, f"{path}-wal"):
        if os.path.exists(name):
            raise StoreError(f"{name} is there already: move it away, or give another folder")


def remove(path: str) -> None:
    """Remove the files of a store at ``path``, as far as there are any."""
    for name in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
        with suppress(FileNotFoundError):
            os.unlink(name)


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Keep other copies out of the folder.

    :raises StoreError: another process makes one there, or there is no such folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{folder} cannot be opened: {error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"{folder} is in use: another process makes a store there") from error
        yield
    finally:
        os.close(descriptor)


def _fill(path: str, contents: Contents) -> int:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in (
            "locking_mode = EXCLUSIVE",
            # It is synced as a whole at the end, before it has its name.
            "synchronous = OFF",
            "wal_autocheckpoint = 0",
            f"cache_size = {-_CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        count = _Filling(connection, f"{path}-wal").run(contents)
        connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'clean'", (checks.seal(connection),)
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()
    return count


class _Filling:
    """Writes rows into an empty store, and copies the log back now and then."""

    def __init__(self, connection: sqlite3.Connection, log: str) -> None:
        self._connection = connection
        self._log = log

    def run(self, contents: Contents) -> int:
        """:returns: how many messages were written."""
        destinations, subscriptions = contents.destinations(), contents.subscriptions()
        self._insert(
            "destination(id, kind, name, properties, administered, crc)",
            [[(*row, destination_crc(row)) for row in destinations]],
        )
        self._insert(
            "subscription(id, destination, client_id, name, selector, no_local, crc)",
            [[(*row, subscription_crc(row)) for row in subscriptions]],
        )
        count = self._insert_messages(contents.messages())
        self._insert("owed(subscription, seq)", contents.owed())
        self._insert("redelivery(owner, seq, attempts, not_before)", contents.redeliveries())
        self._insert(
            "duplicate(seq, destination, at, id, crc)",
            _with_sums(contents.duplicates(), duplicate_crc),
        )
        self._insert(
            "branch(id, format, gtrid, bqual, state, since, user, work, crc)",
            _with_sums(contents.branches(), branch_crc),
        )
        for key, value in (
            ("next_seq", contents.next_seq),
            ("destinations", sum(map(destination_crc, destinations))),
            ("subscriptions", sum(map(subscription_crc, subscriptions))),
        ):
            self._connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
        return count

    def _insert_messages(self, blocks: Iterable[Sequence[Row]]) -> int:
        count = 0
        for rows in blocks:
            seqs, destinations, priorities, expiries, sizes, persistent, heads, bodies = zip(
                *rows, strict=True
            )
            narrow = (seqs, destinations, priorities, expiries, sizes, persistent)
            sums = message_crcs(*narrow, heads, bodies)
            crashpoints.hit("store.mid-batch")
            self._write(
                ("message VALUES (?, ?, ?, ?, ?, ?, ?)", zip(*narrow, sums, strict=True)),
                ("content VALUES (?, ?, ?)", zip(seqs, heads, bodies, strict=True)),
            )
            count += len(rows)
        return count

    def _insert(self, table: str, blocks: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        values = ", ".join("?" * (table.count(",") + 1))
        for rows in blocks:
            self._write((f"{table} VALUES ({values})", rows))

    def _write(self, *parts: tuple[str, Iterable[tuple[Any, ...]]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for text, rows in parts:
            self._connection.executemany(f"INSERT INTO {text}", rows)
        self._connection.execute("COMMIT")
        if os.path.getsize(self._log) >= _LOG_OCTETS:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _with_sums(
    blocks: Iterable[Sequence[Any]], sum_of: Callable[[Any], int]
) -> Iterator[Sequence[tuple[Any, ...]]]:
    for rows in blocks:
        yield [(*row, sum_of(row)) for row in rows]
