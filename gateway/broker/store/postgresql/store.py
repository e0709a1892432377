"""The store in PostgreSQL, written by a thread of its own.

Owns what happens to a batch from :meth:`PostgresqlStore.submit` to its callback: the order, the
commit, and what is done when the database cannot be reached. Knows nothing of what a row means, and
leaves statements, tables and ownership to its neighbours.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Final, TypeVar

import psycopg
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    Committed,
    DuplicateRow,
    IndexRow,
    Recovered,
    RedeliveryRow,
    Row,
    StoreError,
    StoreFailed,
    StoreFull,
)
from gateway.broker.store.postgresql import meta, ownership
from gateway.broker.store.postgresql.checking import Check
from gateway.broker.store.postgresql.connecting import (
    NAME,
    Database,
    Meaning,
    Session,
    meaning,
    words,
)
from gateway.broker.store.postgresql.decisions import OwnerIdentity
from gateway.broker.store.postgresql.reading import Reader
from gateway.broker.store.postgresql.reports import Reports
from gateway.broker.store.postgresql.reserve import RESERVE_OCTETS, Reserve, with_reserve
from gateway.broker.store.postgresql.segments import SHIFT, Tables
from gateway.broker.store.postgresql.upkeep import Upkeep
from gateway.broker.store.postgresql.vacuum import Vacuum
from gateway.broker.store.postgresql.writer import BatchWriter, Transactions, delete_passing
from gateway.broker.store.thread import JobThread
from gateway.instance import crashpoints

#: Octets that a value of PostgreSQL may have; less would be no use to a body of a message.
_LARGEST: Final = (1 << 30) - (1 << 20)
#: While the database's disk is full: seconds between two looks for room.
_FULL_SECONDS: Final = 1.0
#: Seconds between two attempts to reach the database: at first, and at most.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
#: Seconds for which the session of an owner that has just been killed may go on.
_TAKING_SECONDS: Final = 3.0
#: The same when the process is to end.
_CLOSING_SECONDS: Final = 10.0
#: Seconds for which a statement before the reactor runs may work.
_OPENING_SECONDS: Final = 600.0
#: How much of a lease may pass before nothing is answered any more. What is left is for an answer
#: that is on its way, and for clocks that differ.
_ANSWERING: Final = 0.75
#: Seconds between two looks whether another process wants to be the owner, while nothing is written.
_ASKED_SECONDS: Final = 0.2
#: Seconds between two steps of the check of messages while there are commits.
_CHECK_SECONDS: Final = 0.05

_Result = TypeVar("_Result")
_Block = TypeVar("_Block")


class _Sessions:
    """A session of the owner, and all that works over it."""

    def __init__(
        self,
        session: Session,
        transactions: Transactions,
        tables: Tables,
        described: str,
        upkeep: Upkeep,
        reserve: Reserve,
    ) -> None:
        self.session = session
        self.transactions = transactions
        self.writer = BatchWriter(transactions, tables)
        self.reader = Reader(session, tables, described)
        self.upkeep = upkeep
        self.reserve = reserve


class PostgresqlStore(Reports):
    """Keeps rows in a schema of a PostgreSQL database.

    Implements :class:`~gateway.broker.store.interface.Store`.

    What was committed survives the end of the process and of the machine; and of the database's
    machine, if that has a synchronous standby.

    **The database cannot be reached** when it restarts, fails over, or the network is cut. Then
    ``on_reachable`` says so, nothing is answered, and it is tried again. When it is reached, this
    process goes on if it is still the owner and nothing that was confirmed is gone; a commit whose
    answer was lost is looked up. If that takes longer than ``reconnect_seconds``, the store has
    failed.

    **The database's disk is full**: a batch that found no room is answered with StoreFull, as by
    the other store; a reserve is given up for what is done without inserts, and that there is room
    again is looked for every second.

    **Another process wants to be the owner**: ``on_wanted`` says so, once. To give it up is to close
    the store.

    :param database: where.
    :param node: what others are told of the owner: the machine's name, or the process's.
    :param reactor: where the callbacks are called.
    :param reconnect_seconds: for so long at most the database may be out of reach.
    :param idle_seconds: without work for so long, the thread maintains the tables.
    :param beat_seconds: an owner without work commits nothing so often, as a sign of life.
    :param lease_seconds: no other process becomes the owner within this time after a sign of life;
        ``on_owned`` is told of three quarters of it.
    :param taking_seconds: for so long :meth:`open` waits for the session of an owner that has just
        been killed.
    :param random_bytes: where the name of the sessions comes from.
    :param shift: seqs of a segment, as bits.
    :param reserve_octets: bytes that are kept for commits while the disk is full; 0 for none.
    """

    largest: Final = _LARGEST

    def __init__(
        self,
        database: Database,
        node: str,
        reactor: IReactorFromThreads,
        *,
        reconnect_seconds: float = 60.0,
        idle_seconds: float = 0.1,
        beat_seconds: float = 1.0,
        lease_seconds: float = 6.0,
        taking_seconds: float = _TAKING_SECONDS,
        random_bytes: Callable[[int], bytes] = os.urandom,
        shift: int = SHIFT,
        reserve_octets: int = RESERVE_OCTETS,
    ) -> None:
        super().__init__(database.described, lease_seconds * _ANSWERING)
        self._database = database
        self._node = node
        self._reactor = reactor
        self._reconnect_seconds = reconnect_seconds
        self._idle_seconds = idle_seconds
        self._beat_seconds = beat_seconds
        self._taking_seconds = taking_seconds
        self._shift = shift
        self._reserve_octets = reserve_octets
        self._name = f"{NAME} {random_bytes(8).hex()}"
        self._tables = Tables(shift)
        self._vacuum = Vacuum(database, self._name)
        self._open: _Sessions | None = None
        self._thread: JobThread | None = None
        self._closing = False
        # From here on the thread's own, once it runs.
        self._failure: StoreFailed | None = None
        self._failure_told = False
        self._full, self._full_why = False, ""
        self._looked = 0.0
        #: The check of what was stored before; None when it is done.
        self._check: Check | None = None
        self._checked_at = 0.0
        #: Something failed since the tables were loaded.
        self._stale = False
        #: When it was looked last whether another node wants to be the owner; and that it was told.
        self._asked_at = 0.0
        self._wanted_told = False
        #: Since when the database has been out of reach; None while it is not. And the seconds
        #: until it is tried again.
        self._lost_at: float | None = None
        self._pause = 0.0
        #: Set when the store is to be closed.
        self._hurry = threading.Event()

    # Before the reactor runs.

    def measure(self) -> int:
        return self.largest

    def open(self) -> Recovered:
        """Become the owner of the broker, and read what is small.

        Messages that are not persistent are gone, with the rows that say to whom they are owed and
        how often they were tried.

        :raises StoreError: the database cannot be used, has no tables of this broker, or another
            process owns it.
        :raises StoreDamaged: a row is not what was written.
        """
        if self._open is not None:
            raise StoreError("the store is open already")
        try:
            session = self._database.connect(self._name)
        except psycopg.Error as error:
            raise self._database.unusable(error) from error
        try:
            session.answer_seconds = _OPENING_SECONDS
            ownership.check_version(self._database, session)
            epoch = with_reserve(
                session,
                lambda: ownership.take(
                    self._database, session, self._node, self._name, self._taking_seconds
                ),
            )
            self._tables.load(session)
            transactions = Transactions(session, epoch)
            opened = self._over(session, transactions)
            known = meta.read(session, self._tables, self._database.described)
            with_reserve(session, lambda: transactions.run(self._begin))
            destinations = opened.reader.destinations()
            subscriptions = opened.reader.subscriptions()
            full = opened.reserve.lacks_room()
        except psycopg.Error as error:
            session.close()
            raise self._database.unusable(error) from error
        except BaseException:
            session.close()
            raise
        self._open = opened
        self._failure = None
        self._failure_told = self._closing = self._wanted_told = False
        self._full, self._full_why = bool(full), full
        self._stale = False
        self._lost_at = None
        self._check = Check(self._tables, known.next_seq)
        self._hurry.clear()
        crashpoints.hit("broker.opened")
        return Recovered(
            store_id=known.store_id,
            next_seq=known.next_seq,
            clean=known.clean,
            destinations=destinations,
            subscriptions=subscriptions,
            notes=[
                f"the table meta of the database: {known.wrong}; the next message is number {known.next_seq}"
            ]
            if known.wrong
            else [],
            path=self._database.described,
            full=full and f"the database {self._database.described} has no room ({full})",
            log="the database has all that was confirmed",
        )

    def _begin(self, session: Session) -> None:
        """Delete what was not persistent, and mark the store as in use."""
        session.execute("UPDATE meta SET value = '0' WHERE key = 'clean'")
        delete_passing(session, self._tables)

    def scan(self) -> Iterator[Sequence[IndexRow]]:
        return self._scanned(lambda reader: map(reader.sound, reader.scan()))

    def scan_owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        return self._scanned(lambda reader: reader.scan_owed())

    def scan_redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        return self._scanned(lambda reader: reader.scan_redeliveries())

    def scan_duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        return self._scanned(lambda reader: reader.scan_duplicates())

    def scan_branches(self) -> Iterator[Sequence[BranchRow]]:
        return self._scanned(lambda reader: reader.scan_branches())

    def _scanned(self, read: Callable[[Reader], Iterator[_Block]]) -> Iterator[_Block]:
        if self._open is None or self._thread is not None:
            raise StoreError("the store is scanned between opening and the first batch only")
        transactions = self._open.transactions
        try:
            for block in read(self._open.reader):
                yield block
                if monotonic() - transactions.owned_at >= self._beat_seconds:
                    transactions.beat()
        except psycopg.Error as error:
            raise self._database.unusable(error) from error

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

    @property
    def identity(self) -> OwnerIdentity:
        """By what the database knows this owner. The store is open."""
        return OwnerIdentity(self._database, self._used.transactions.epoch, self._name)

    def close(self, closed: Callable[[], None]) -> None:
        """Finish what was submitted, mark the store clean, give up the ownership.

        Then call ``closed`` on the reactor thread.

        :raises StoreError: the store is not open.
        """
        crashpoints.hit("broker.before-close")
        thread = self._running()
        self._closing = True
        self._hurry.set()
        thread.finish(partial(self._close, closed))

    def _running(self) -> JobThread:
        if self._open is None or self._closing:
            raise StoreError("the store is not open")
        if self._thread is None:
            # Only now: until the first job the session is the caller's, who may be scanning.
            self._used.session.answer_seconds = self._database.answer_seconds
            self._thread = JobThread("store", self._idle, self._idle_seconds, self._broken)
            self._thread.start()
        return self._thread

    # On the store's thread.

    def _commit(self, batch: Batch, committed: Committed) -> None:
        error = self._failure or self._write(batch)
        while isinstance(error, StoreFull) and not batch.inserts and self._give_reserve():
            error = self._failure or self._write(batch)
        owned_at = self._used.transactions.owned_at
        self._reactor.callFromThread(self._committed, committed, error, owned_at)
        # The callback has left; what follows keeps only the next batch waiting.
        if error is None and not self._full:
            self._guarded(lambda opened: opened.upkeep.busy())
        if monotonic() - self._checked_at >= _CHECK_SECONDS:
            self._check_some()
        self._look_for_room()
        self._tell_failure()

    def _write(self, batch: Batch) -> StoreError | None:
        if self._full and batch.inserts:
            # It was submitted before that was known. What is left of the reserve is not for it.
            return self._no_room(self._full_why)
        try:
            self._persisted(lambda opened: opened.writer.write(batch))
        except StoreError as error:
            return error
        self._tell_wanted()
        crashpoints.hit("store.after-commit")
        return None

    def _give_reserve(self) -> bool:
        return bool(self._guarded(lambda opened: opened.reserve.give()))

    def _no_room(self, why: str) -> StoreFull:
        return StoreFull(f"the database {self._database.described} has no room: {why}")

    def _fetch(
        self, seqs: list[int], fetched: Callable[[Sequence[Row] | StoreError], None]
    ) -> None:
        found: Sequence[Row] | StoreError
        try:
            found = self._failure or self._persisted(lambda opened: opened.reader.fetch(seqs))
        except StoreError as error:
            found = error
        self._reactor.callFromThread(fetched, found)
        if (
            self._failure is None
            and monotonic() - self._used.transactions.owned_at >= self._beat_seconds
        ):
            # The thread is not idle while there are others to do.
            self._beat()
        self._tell_failure()

    def _persisted(self, act: Callable[[_Sessions], _Result]) -> _Result:
        """Do something in the database, however often it goes away meanwhile.

        :raises StoreFull: there is no room; nothing was done.
        :raises StoreDamaged: what was read is not what was written.
        :raises StoreFailed: for good.
        """
        while True:
            opened = self._used
            try:
                if self._stale:
                    self._tables.load(opened.session)
                    self._stale = False
                result = act(opened)
            except psycopg.Error as error:
                self._stale = True
                what = meaning(error)
                if what is Meaning.FULL:
                    if not self._full:
                        self._set_full(True, words(error))
                        self._give_reserve()
                    raise self._no_room(words(error)) from error
                if what is not Meaning.LOST:
                    raise self._fail(
                        ownership.final(self._database, self._used.session, error)
                    ) from error
                if self._reach_again(error):
                    # It was committed. Nothing that writes gives a result.
                    self._is_reached()
                    return None  # type: ignore[return-value]
            else:
                self._is_reached()
                return result

    def _reach_again(self, error: psycopg.Error) -> bool:
        """Make a new session, and find out about the last transaction.

        :returns: whether the one whose answer was lost is durable.
        :raises StoreFailed: it took too long, or this process is the owner no longer.
        """
        if self._lost_at is None:
            self._lost_at, self._pause = monotonic(), 0.0
            self._reactor.callFromThread(self._lost, words(error), self._reconnect_seconds)
        transactions = self._used.transactions
        durable, lost = transactions.durable, transactions.begun
        self._used.session.close()
        self._vacuum.leave()
        while True:
            self._hurry.wait(self._pause)
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            away = monotonic() - self._lost_at
            if away >= self._reconnect_seconds or (
                self._hurry.is_set() and away >= _CLOSING_SECONDS
            ):
                raise self._fail(
                    StoreFailed(
                        f"the database {self._database.described} could not be reached for {away:.0f} seconds: {words(error)}"
                    )
                )
            try:
                session = self._database.connect(self._name)
            except psycopg.Error as second:
                error = second
                continue
            try:
                has = ownership.take_again(self._database, session, transactions, self._name, lost)
                transactions.session = session
                self._open = self._over(session, transactions)
                # It comes behind the lost one: when it is durable, on a standby if it has one, so
                # is that. And others see that this owner lives.
                try:
                    transactions.beat()
                except psycopg.errors.DiskFull as full:
                    transactions.confirm()
                    transactions.durable = lost if has else durable
                    self._set_full(True, words(full))
                    self._open.reserve.give()
                return has and lost > durable
            except psycopg.Error as second:
                error = second
                session.close()
            except StoreFailed as final:
                session.close()
                raise self._fail(final) from None

    def _is_reached(self) -> None:
        if self._lost_at is not None:
            seconds, self._lost_at = monotonic() - self._lost_at, None
            self._reactor.callFromThread(self._reached, seconds)

    def _over(self, session: Session, transactions: Transactions) -> _Sessions:
        tables, vacuum = self._tables, self._vacuum
        reserve = Reserve(session, transactions, tables, vacuum, self._reserve_octets)
        upkeep = Upkeep(session, transactions, tables, vacuum, reserve, self._shift)
        return _Sessions(session, transactions, tables, self._database.described, upkeep, reserve)

    def _guarded(self, act: Callable[[_Sessions], _Result]) -> _Result | None:
        """Do something that no caller waits for; what went wrong is known then."""
        try:
            return self._persisted(act)
        except StoreError:
            return None

    def _close(self, closed: Callable[[], None]) -> None:
        try:
            if self._failure is None:
                self._guarded(lambda opened: self._vacuum.end(opened.session))
                self._guarded(lambda opened: opened.transactions.run(ownership.give_up))
            self._used.session.close()
        finally:
            self._vacuum.leave()
            self._tell_failure()
            self._reactor.callFromThread(self._closed, closed)

    def _idle(self) -> float | None:
        if self._failure is not None:
            return None
        more = False
        if not self._full:
            more = bool(self._guarded(lambda opened: opened.upkeep.step()))
        more = self._check_some() or more
        if monotonic() - self._used.transactions.owned_at >= self._beat_seconds:
            self._beat()
        elif monotonic() - self._asked_at >= _ASKED_SECONDS:
            self._asked_at = monotonic()
            self._guarded(_look_who_wants)
        self._tell_wanted()
        self._look_for_room()
        self._tell_failure()
        return 0.0 if more else min(_ASKED_SECONDS, self._beat_seconds / 4)

    def _beat(self) -> None:
        try:
            self._persisted(lambda opened: opened.transactions.beat())
        except StoreFull:
            self._give_reserve()
        except StoreError:
            return
        self._reactor.callFromThread(self._owned, self._used.transactions.owned_at)

    def _tell_wanted(self) -> None:
        wanted = self._used.transactions.wanted
        if wanted and not self._wanted_told:
            self._wanted_told = True
            self._reactor.callFromThread(self._is_wanted, wanted)

    def _check_some(self) -> bool:
        """Check some messages. Returns whether there may be more."""
        check = self._check
        if check is None or self._failure is not None:
            return False
        self._checked_at = monotonic()
        try:
            found = self._persisted(lambda opened: check.step(opened.reader))
        except StoreError:
            return False
        if found is None:
            self._check = None
            return False
        for error in found:
            self._reactor.callFromThread(self._is_damaged, error)
        return True

    def _look_for_room(self) -> None:
        if self._full and monotonic() - self._looked >= _FULL_SECONDS:
            self._looked = monotonic()
            self._guarded(lambda opened: opened.upkeep.free())
            if self._guarded(lambda opened: opened.reserve.has_room()):
                self._set_full(False)

    def _broken(self, error: Exception) -> None:
        """A defect of this module: nothing is known any more."""
        self._reactor.callFromThread(self._log.failure, "the store's thread failed", Failure(error))  # type: ignore[no-untyped-call]
        self._fail(StoreFailed(f"the store's thread failed: {type(error).__name__}: {error}"))
        self._tell_failure()

    def _fail(self, failure: StoreFailed) -> StoreFailed:
        if self._failure is None:
            self._failure = failure
            self._reactor.callFromThread(self._log.critical, "{failure}", failure=str(failure))
        return failure

    def _tell_failure(self) -> None:
        """Report the failure, after the failed batch has had its answer."""
        if self._failure is not None and not self._failure_told:
            self._failure_told = True
            self._reactor.callFromThread(self._failed, self._failure)

    def _set_full(self, full: bool, why: str = "") -> None:
        if full != self._full:
            self._full, self._full_why, self._looked = full, why, monotonic()
            self._reactor.callFromThread(self._full_changed, full, why)

    @property
    def _used(self) -> _Sessions:
        assert self._open is not None, "the thread ends before the session is let go"
        return self._open

    # Back on the reactor's thread.

    def _committed(self, committed: Committed, error: StoreError | None, owned_at: float) -> None:
        crashpoints.hit("broker.before-receipts")
        self._owned(owned_at)
        committed(error)
        crashpoints.hit("broker.after-receipts")

    def _closed(self, closed: Callable[[], None]) -> None:
        self._open = self._thread = None
        crashpoints.hit("broker.after-close")
        closed()


def _look_who_wants(opened: _Sessions) -> None:
    opened.transactions.wanted = ownership.wanted(opened.session)
