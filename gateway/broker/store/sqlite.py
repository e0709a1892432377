"""The store in an SQLite database, written by a thread of its own.

Owns what happens to a batch from :meth:`SqliteStore.submit` to its callback: the order, the commit,
the checkpoints, what a failure means for those that follow. Knows nothing of what a row means, and
leaves statements, files and the log's format to its neighbours.

Files, for ``messages.db``: the database itself; ``messages.db-wal``, SQLite's write-ahead log, in
which a commit is durable; ``messages.reserve``, space kept for the day the disk is full;
``messages.db.tmp`` while a store is being made.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, TypeVar

from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.broker.store import failures, reading
from gateway.broker.store.batch_writer import BatchWriter
from gateway.broker.store.integrity import checks, opening
from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    Committed,
    DuplicateRow,
    IndexRow,
    Recovered,
    RedeliveryRow,
    Row,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
)
from gateway.broker.store.reserve import Reserve
from gateway.broker.store.thread import JobThread
from gateway.broker.store.upkeep import Upkeep
from gateway.instance import crashpoints

_MIB: Final = 1 << 20

#: While the disk is full: seconds between two looks for room.
_FULL_SECONDS: Final = 1.0

_Block = TypeVar("_Block")

# Files open in this process. SQLite's locks do not keep a process from itself, and closing any
# descriptor of the file loses them.
_open_here: Final[set[str]] = set()


class SqliteStore:
    """Keeps rows in an SQLite database.

    Implements :class:`~gateway.broker.store.interface.Store`.

    What was committed survives the end of the process and, if the disk keeps what it acknowledged,
    the loss of power.

    **A full disk.** A reserve file is kept for it. When a batch finds no room, the reserve is given
    up, the log is copied back and shortened, and the batch is written once more; that is told by
    ``on_full``, and inserts are to wait then, so that what is left of the reserve serves batches
    that only delete or settle. It ends by itself, when there is room to make the reserve file again
    and a quarter as much beside it, or twice what found no room last; that is looked for every
    second. A batch that finds no room even so is answered with StoreFull, and nothing of it was
    written.

    **A failed write or fsync** is final. What the disk holds is unknown until the store is opened
    anew, best in a new process.

    :param path: the database, e.g. ``.../store/messages.db``; its folder must exist.
    :param reactor: where the callbacks are called.
    :param reserve_octets: size of the reserve file, 0 for none. As much as ``checkpoint_octets``,
        or the log may not fit into the database when the disk is full, and twice the largest batch,
        which is written to both.
    :param checkpoint_octets: length of the log from which on it is copied back into the database,
        between commits. A log that grows makes each sync write the file's new length, too, which
        one that is written over does not, so it is copied back early.
    :param check_octets: a database up to this size that was not closed in order is checked page by
        page at opening.
    :param idle_seconds: without work for so long, the thread maintains the files.
    :param on_full: called on the reactor's thread with whether the disk is full, when that changes,
        and before the callback of a batch that found no room. It may also be set later, as an
        attribute.
    :param random_bytes: where the store id comes from.
    :param marker: a file that is made once there is a store; where it is and the store is not, that
        is refused. "" for none.
    """

    _log = Logger()

    def __init__(
        self,
        path: str,
        reactor: IReactorFromThreads,
        *,
        reserve_octets: int = 72 * _MIB,
        checkpoint_octets: int = 16 * _MIB,
        check_octets: int = 256 * _MIB,
        idle_seconds: float = 0.5,
        on_full: Callable[[bool], None] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        marker: str = "",
    ) -> None:
        self.path: Final = path
        self.on_full = on_full
        self.on_reachable: Callable[[bool], None] | None = None
        self.on_owned: Callable[[float], None] | None = None
        self.on_damaged: Callable[[StoreDamaged], None] | None = None
        self.on_failed: Callable[[StoreFailed], None] | None = None
        #: See :meth:`measure`.
        self.largest = sys.maxsize
        self._reactor = reactor
        self._reserve = Reserve(f"{os.path.splitext(path)[0]}.reserve", reserve_octets)
        self._checkpoint_octets = checkpoint_octets
        self._check_octets = check_octets
        self._idle_seconds = idle_seconds
        self._random_bytes = random_bytes
        self._marker = marker
        self._connection: sqlite3.Connection | None = None
        self._thread: JobThread | None = None
        self._closing = False
        # From here on the thread's own, once it runs.
        self._changes: BatchWriter
        self._upkeep: Upkeep
        self._failure: StoreFailed | None = None
        self._failure_told = False
        self._full = False
        #: Bytes that must be free beside the reserve before there is room again: more, after a
        #: batch that needed more. And when that was looked for last.
        self._margin = self._reserve.margin
        self._looked = 0.0

    # Before the reactor runs.

    def open(self) -> Recovered:
        """Open the store; make it if it does not exist.

        Messages that are not persistent are gone, with the rows that say to whom they are owed and
        how often they were tried.

        The log is checked always, the pages of the database if it was not closed in order and is
        not large. Files are readable by their owner only.

        :raises StoreDamaged: the database or its log holds what a store never wrote.
        :raises StoreVersionUnknown: another version's schema.
        :raises StoreError: the file is not a store, is held by another process, or cannot be read
            or written.
        """
        real = os.path.realpath(self.path)
        if real in _open_here:
            raise StoreError(f"{self.path} is held by this process already")
        try:
            recovered = self._open_file()
        except (OSError, *failures.AT_READING) as error:
            raise failures.at_opening(self.path, error) from error
        _open_here.add(real)
        crashpoints.hit("broker.opened")
        return recovered

    def scan(self) -> Iterator[Sequence[IndexRow]]:
        return self._scanned(reading.scan)

    def scan_owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        return self._scanned(reading.scan_owed)

    def scan_redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        return self._scanned(reading.scan_redeliveries)

    def scan_duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        return self._scanned(partial(reading.scan_duplicates, path=self.path))

    def scan_branches(self) -> Iterator[Sequence[BranchRow]]:
        return self._scanned(partial(reading.scan_branches, path=self.path))

    def measure(self) -> int:
        # Whatever is wrong with the folder, the next batch says it.
        with suppress(OSError):
            self.largest = self._reserve.largest()
        return self.largest

    # While the reactor runs.

    def submit(self, batch: Batch, committed: Committed) -> None:
        crashpoints.hit("broker.before-submit")
        self._running().put(partial(self._commit, batch, committed))

    def fetch(
        self,
        seqs: Sequence[int],
        fetched: Callable[[Sequence[Row] | StoreError], None],
        *,
        in_order: bool = False,
    ) -> None:
        thread = self._running()
        (thread.put if in_order else thread.put_behind)(partial(self._fetch, list(seqs), fetched))

    def close(self, closed: Callable[[], None]) -> None:
        """Finish what was submitted, mark the store clean, release the files.

        Then call ``closed`` on the reactor thread.

        A store that failed, or whose last change found no room, is closed without the mark. :raises
        StoreError: the store is not open.
        """
        crashpoints.hit("broker.before-close")
        thread = self._running()
        self._closing = True
        thread.finish(partial(self._close, closed))

    # On the caller's thread.

    def _open_file(self) -> Recovered:
        path = self.path
        if not os.path.exists(path):
            log = f"{path}-wal"
            if os.path.exists(log) and os.path.getsize(log):
                raise StoreDamaged(
                    path,
                    "the whole file",
                    f"it is missing, and its log {log} is there; {opening.EMPTY_STORE}",
                )
            if self._marker and os.path.exists(self._marker):
                raise opening.missing(path)
            opening.create(path, self._random_bytes(8).hex())
        opened = opening.open_existing(path, self._check_octets)
        connection = opened.connection
        try:
            self._begin(connection, opened.next_seq)
            if self._marker:
                opening.mark_as_made(self._marker)
            self._changes = BatchWriter(connection)
            destinations, subscriptions = (
                reading.destinations(connection),
                reading.subscriptions(connection),
            )
            self._upkeep = Upkeep(
                path,
                connection,
                self._changes,
                self._reserve,
                self._checkpoint_octets,
                self._waited_for,
                opened.next_seq,
                self._found_damaged,
            )
        except BaseException:
            opening.close_untouched(connection)
            raise
        self._connection = connection
        self._failure = None
        self._failure_told = False
        self._closing = False
        full = self._shortage() if self._full else ""
        self.measure()
        return Recovered(
            opened.store_id,
            opened.next_seq,
            opened.clean,
            destinations,
            subscriptions,
            opened.notes,
            path,
            full,
            opened.log,
        )

    def _shortage(self, why: str = "the disk is full") -> str:
        folder = os.path.dirname(self.path) or "."
        try:
            free = f"{self._reserve.free()} are"
        except OSError as error:
            free = f"how many are cannot be told: {error}"
        needed = self._reserve.size + self._margin
        return (
            f"{why}: persistent messages wait until {folder} has {needed} bytes free ({free}, with what was kept in reserve); "
            "acknowledgements are taken"
        )

    def _begin(self, connection: sqlite3.Connection, next_seq: int) -> None:
        """Delete what was not persistent, and mark the store as in use."""
        self._full = False
        self._margin = self._reserve.margin
        try:
            opening.begin(connection, self.path, next_seq)
        except sqlite3.Error as error:
            if not isinstance(failures.at_writing(self.path, error), StoreFull):
                raise
            self._reserve.release()
            self._full = True
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            opening.begin(connection, self.path, next_seq)
        if not self._full and not self._reserve.hold():
            self._full = True

    def _scanned(self, read: Callable[[sqlite3.Connection], Iterator[_Block]]) -> Iterator[_Block]:
        connection = self._connection
        if connection is None or self._thread is not None:
            raise StoreError(f"{self.path} is scanned between opening and the first batch only")
        try:
            yield from read(connection)
        except failures.AT_READING as error:
            raise failures.at_opening(self.path, error) from error

    def _running(self) -> JobThread:
        if self._connection is None or self._closing:
            raise StoreError(f"{self.path} is not open")
        if self._thread is None:
            # Only now: until the first job the connection is the caller's, who may be scanning.
            self._thread = JobThread("store", self._idle, self._idle_seconds, self._broken)
            self._thread.start()
        return self._thread

    # On the store's thread.

    def _commit(self, batch: Batch, committed: Committed) -> None:
        write = partial(self._write, batch)
        was_full = self._full
        error = self._failure or self._guarded(write)
        if isinstance(error, StoreFull):
            # Once more, now that the reserve was given up, or pages are.
            if was_full:
                self._guarded(self._upkeep.shrink)
            if self._failure is not None or self._has_room_twice(batch):
                error = self._failure or self._guarded(write)
        if isinstance(error, StoreFull) and batch.inserts:
            # No more than there can ever be; it may have the reserve, too.
            with suppress(OSError):
                self._margin = max(self._margin, min(2 * batch.octets, self._reserve.most_margin()))
        if error is None:
            crashpoints.hit("store.after-commit")
        self._reactor.callFromThread(self._committed, committed, error)
        # The callback has left; what follows keeps only the next batch waiting.
        if error is None:
            self._guarded(partial(self._upkeep.committed, batch))
            if not self._full:
                self._guarded(self._upkeep.busy)
        if self._full and monotonic() - self._looked >= _FULL_SECONDS:
            self._guarded(self._make_room)
        self._tell_failure()

    def _has_room_twice(self, batch: Batch) -> bool:
        """Whether a batch fits into both the log and the database.

        A log that could not be copied back would leave no room for deletions, nor for the next
        start.
        """
        try:
            return not batch.inserts or self._reserve.free() >= 2 * batch.octets
        except OSError:
            return False

    def _write(self, batch: Batch) -> None:
        self._upkeep.look()
        self._changes.write(batch)

    def _fetch(
        self, seqs: list[int], fetched: Callable[[Sequence[Row] | StoreError], None]
    ) -> None:
        found: Sequence[Row] | StoreError
        if self._failure is not None:
            found = self._failure
        else:
            try:
                found = reading.fetch(self._used, self.path, seqs)
            except Exception as error:  # noqa: BLE001
                # Whatever it is, who asked is told.
                found = failures.at_reading(self.path, error)
                if len(seqs) == 1:
                    found = reading.about(self._used, self.path, seqs[0], found)
                found.__cause__ = error if found is not error else None
        self._reactor.callFromThread(fetched, found)

    def _close(self, closed: Callable[[], None]) -> None:
        connection = self._used
        try:
            if (
                self._failure is None
                and self._guarded(self._finish) is None
                and self._failure is None
            ):
                opening.close_marked(connection)
            else:
                opening.close_untouched(connection)
            self._upkeep.close()
        finally:
            self._tell_failure()
            self._reactor.callFromThread(self._closed, closed)

    def _finish(self) -> None:
        self._upkeep.check_database_is_there()
        self._used.execute(
            "UPDATE meta SET value = ? WHERE key = 'clean'", (checks.seal(self._used),)
        )
        self._upkeep.checkpoint("TRUNCATE")

    def _idle(self) -> float | None:
        if self._failure is None:
            self._guarded(self._make_room if self._full else self._upkeep.idle)
            self._tell_failure()
        return _FULL_SECONDS if self._full and self._failure is None else None

    def _make_room(self) -> None:
        self._looked = monotonic()
        if self._upkeep.make_room(self._margin):
            self._margin = self._reserve.margin
            self._set_full(False)

    def _waited_for(self) -> bool:
        return self._thread is not None and self._thread.waiting()

    def _found_damaged(self, error: StoreDamaged) -> None:
        self._reactor.callFromThread(self._tell_damaged, error)

    def _guarded(self, write: Callable[[], None]) -> StoreError | None:
        """Do something that writes, and handle its failure.

        On a failure, undo what is open and draw the consequences.

        :returns: the failure.
        """
        try:
            write()
            return None
        except Exception as error:  # noqa: BLE001
            # Whatever it is: a batch that was not written as a whole must be undone, and its sender
            # told.
            failure = failures.at_writing(self.path, error)
            if failure is not error:
                failure.__cause__ = error
            try:
                if self._used.in_transaction:
                    self._used.execute("ROLLBACK")
            except sqlite3.Error as second:
                failure = StoreFailed(f"{self.path}: a batch could not be undone: {second}")
                failure.__cause__ = error
        if not isinstance(failure, StoreFull):
            self._fail(failure)
        elif not self._full:
            self._set_full(True, str(failure))
            # At once, while the space that was kept is there: a log that cannot be copied back
            # would take all that comes after.
            self._guarded(partial(self._upkeep.checkpoint, "TRUNCATE"))
        return failure

    def _broken(self, error: Exception) -> None:
        """A defect of this module: nothing is known any more."""
        self._reactor.callFromThread(self._log.failure, "the store's thread failed", Failure(error))  # type: ignore[no-untyped-call]
        self._fail(
            StoreFailed(f"{self.path}: the store's thread failed: {type(error).__name__}: {error}")
        )
        self._tell_failure()

    def _fail(self, failure: StoreFailed) -> None:
        if self._failure is None:
            self._failure = failure
            self._reactor.callFromThread(self._log.critical, "{failure}", failure=str(failure))

    def _tell_failure(self) -> None:
        """Report the failure, after the failed batch has had its answer.

        A client whose batch failed gets its own ERROR.
        """
        if self._failure is not None and not self._failure_told:
            self._failure_told = True
            self._reactor.callFromThread(self._failed, self._failure)

    def _set_full(self, full: bool, why: str = "") -> None:
        if full and not self._full:
            try:
                self._reserve.release()
            except OSError as error:
                self._reactor.callFromThread(
                    self._log.error, "the reserve was not given up: {error}", error=str(error)
                )
        if full != self._full:
            self._full = full
            self._looked = monotonic()
            self._reactor.callFromThread(self._full_changed, full, why)

    @property
    def _used(self) -> sqlite3.Connection:
        assert self._connection is not None, "the thread ends before the connection is let go"
        return self._connection

    # Back on the reactor's thread.

    def _committed(self, committed: Committed, error: StoreError | None) -> None:
        crashpoints.hit("broker.before-receipts")
        committed(error)
        crashpoints.hit("broker.after-receipts")

    def _full_changed(self, full: bool, why: str) -> None:
        if full:
            self._log.error("{shortage}", shortage=self._shortage(why), event="store.full")
        else:
            self._log.info(
                "the disk has room again: persistent messages are stored", event="store.room"
            )
        if self.on_full is not None:
            self.on_full(full)

    def _tell_damaged(self, error: StoreDamaged) -> None:
        if self.on_damaged is not None:
            self.on_damaged(error)
        else:
            self._log.critical("{error}", error=str(error))

    def _failed(self, failure: StoreFailed) -> None:
        if self.on_failed is not None:
            self.on_failed(failure)

    def _closed(self, closed: Callable[[], None]) -> None:
        self._connection = self._thread = None
        _open_here.discard(os.path.realpath(self.path))
        crashpoints.hit("broker.after-close")
        closed()
