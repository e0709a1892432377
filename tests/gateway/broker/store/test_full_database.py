"""A disk of the database without room, and what gives room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest

from gateway.broker.store.interface import (
    Batch,
    Row,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
)
from gateway.broker.store.postgresql.connecting import Database
from tests.gateway.broker.store.databases import (
    create_tables,
    database_at,
    end_sessions,
    looking,
    postgresql_store,
    session_of_others,
)
from tests.gateway.broker.store.harness import QueueReactor, batch_of, insert, row
from tests.gateway.broker.store.processes import FullDisk
from tests.gateway.broker.store.test_postgresql import size
from tests.postgresql import Cluster

pytestmark = pytest.mark.process

MIB: Final = 1 << 20
RESERVE: Final = 8 * MIB
BODY: Final = bytes(20_000)
#: Messages for which there is room once it is said that there is: less than the reserve's.
MANY: Final = RESERVE // len(BODY) - 50


@pytest.fixture
def small(postgresql_cluster: Cluster) -> Database:
    """The tables of a broker on a disk of 64 MiB, which has the tables only."""
    FullDisk(postgresql_cluster).limit(64 * MIB)
    database = database_at(postgresql_cluster.database())
    create_tables(database)
    return database


def last_commit(database: Database) -> int:
    with looking(database) as session:
        ((number,),) = session.execute("SELECT max(number) FROM commits_0").fetchall()
    return int(number)


def fill(store: Store, reactor: QueueReactor, first: int) -> int:
    """Insert until there is no room. Returns the last seq that has found some."""
    for start in range(first, first + 10_000, 10):
        batch = insert(Batch(1), *(row(seq, body=BODY) for seq in range(start, start + 10)))
        error = reactor.commit(store, batch)
        if error is not None:
            assert isinstance(error, StoreFull), error
            return start - 1
    raise AssertionError("the disk has more room than it should")


@pytest.mark.parametrize("shift", [5, 16])
def test_what_is_consumed_gives_room(shift: int, small: Database, reactor: QueueReactor) -> None:
    """A segment of the smaller ones is dropped, the only one is emptied."""
    store = postgresql_store(
        small, reactor.reactor, shift=shift, reserve_octets=RESERVE, beat_seconds=0.01
    )
    store.open()
    reactor.close_later(store)
    told: list[bool] = []
    store.on_full = told.append
    last = 0
    for times in range(1, 4):
        first, last = last + 1, fill(store, reactor, last + 1)
        assert last > first + MANY
        assert told == [True, False] * (times - 1) + [True]
        # It is the owner, and shows it, for longer than a page of these signs lasts.
        since = last_commit(small)
        signs: list[float] = []
        store.on_owned = signs.append
        reactor.until(lambda: len(signs) > 200)  # noqa: B023
        store.on_owned = None
        assert last_commit(small) > since + 150
        for start in range(first, last + 1, 10):
            batch = batch_of(1, deletes=range(start, min(start + 10, last + 1)))
            assert reactor.commit(store, batch) is None
        reactor.until(lambda: told == [True, False] * times)  # noqa: B023
        # That is told of the first room. What is filled next is to find all of it.
        reactor.until(lambda: size(small) < 16 * MIB)
    reactor.close(store)


def test_what_is_consumed_in_part_gives_room(small: Database, reactor: QueueReactor) -> None:
    """Some messages stay in the only segment, which cannot be emptied."""
    store = postgresql_store(small, reactor.reactor, shift=16, reserve_octets=RESERVE)
    store.open()
    reactor.close_later(store)
    told: list[bool] = []
    store.on_full = told.append
    last = fill(store, reactor, 1)
    assert reactor.commit(store, batch_of(1, deletes=range(101, last + 1))) is None
    reactor.until(lambda: told == [True, False])
    assert fill(store, reactor, last + 1) > last + MANY
    assert len(reactor.fetch(store, range(1, last + 1))) == 100  # type: ignore[arg-type]
    reactor.close(store)


def test_the_oldest_are_consumed_and_the_newest_stay(
    small: Database, reactor: QueueReactor
) -> None:
    """The only segment keeps its size: what is free is inside."""
    store = postgresql_store(small, reactor.reactor, shift=16, reserve_octets=RESERVE)
    store.open()
    reactor.close_later(store)
    told: list[bool] = []
    store.on_full = told.append
    last = 0
    for times in range(1, 4):
        first, last = last + 1, fill(store, reactor, last + 1)
        assert last > first + MANY
        assert told == [True, False] * (times - 1) + [True]
        oldest = range(max(1, first - 100), last - 99)
        assert reactor.commit(store, batch_of(1, deletes=oldest)) is None
        reactor.until(lambda: told == [True, False] * times)  # noqa: B023
        assert [each.seq for each in fetched(store, reactor, last)] == list(
            range(last - 99, last + 1)
        )
    reactor.close(store)


def fetched(store: Store, reactor: QueueReactor, last: int) -> list[Row]:
    rows = reactor.fetch(store, range(1, last + 1))
    assert not isinstance(rows, StoreError)
    return list(rows)


def test_the_reserve_is_not_for_inserts_that_were_on_their_way(
    small: Database, reactor: QueueReactor
) -> None:
    store = postgresql_store(small, reactor.reactor, shift=16, reserve_octets=RESERVE)
    store.open()
    reactor.close_later(store)
    told: list[bool] = []
    store.on_full = told.append
    answers: list[StoreError | None] = []
    for seq in range(1, 3001):
        store.submit(insert(Batch(seq), row(seq, body=BODY)), answers.append)
    reactor.until(lambda: len(answers) == 3000)
    stored = answers.index(next(error for error in answers if error is not None))
    assert 500 < stored < 2900
    assert all(isinstance(error, StoreFull) for error in answers[stored:])
    assert told == [True]
    # Others on the same disk do not get all of it.
    with filled(small):
        for seq in range(1, 401):
            assert reactor.commit(store, batch_of(1, deletes=[seq])) is None
    reactor.until(lambda: told == [True, False])
    reactor.close(store)


@contextmanager
def filled(database: Database) -> Iterator[None]:
    """Have others take what is left of the disk, to the last page."""
    with looking(database) as session:
        session.execute("CREATE TABLE public.filler (octets bytea)")
        session.execute("ALTER TABLE public.filler ALTER COLUMN octets SET STORAGE EXTERNAL")
        for octets in (1 << 20, 1 << 16, 1 << 12, 1 << 8):
            try:
                while True:
                    session.execute(
                        "INSERT INTO public.filler VALUES (convert_to(repeat('x', %s::int4), 'UTF8'))",
                        (octets,),
                    )
            except psycopg.errors.DiskFull:
                pass
        try:
            yield
        finally:
            session.execute("DROP TABLE public.filler")


def test_one_is_opened_although_the_first_rows_find_no_page(
    small: Database, reactor: QueueReactor
) -> None:
    store = postgresql_store(small, reactor.reactor, shift=16, reserve_octets=RESERVE)
    store.open()
    assert reactor.commit(store, insert(Batch(1), *(row(seq) for seq in range(1, 11)))) is None
    reactor.close(store)
    with looking(small) as session:
        session.execute("TRUNCATE commits_0, commits_1")
    told: list[bool] = []
    store.on_full = told.append
    with filled(small):
        assert "has no room" in store.open().full
        for seq in range(1, 6):
            assert reactor.commit(store, batch_of(1, deletes=[seq])) is None
    reactor.until(lambda: told == [False])
    assert [each.seq for each in fetched(store, reactor, 10)] == [6, 7, 8, 9, 10]
    reactor.close(store)


def test_a_session_is_lost_while_there_is_no_room(small: Database, reactor: QueueReactor) -> None:
    """Make it anew, although not even a sign of life finds a page."""
    store = postgresql_store(
        small, reactor.reactor, reserve_octets=0, reconnect_seconds=3, beat_seconds=3600
    )
    store.open()
    reactor.close_later(store)
    told: list[bool] = []
    failed: list[StoreFailed] = []
    reachable: list[bool] = []
    store.on_full, store.on_failed, store.on_reachable = (
        told.append,
        failed.append,
        reachable.append,
    )
    assert reactor.commit(store, insert(Batch(1), row(1, body=BODY))) is None
    with filled(small):
        while (error := reactor.commit(store, Batch(2))) is None:
            pass
        assert isinstance(error, StoreFull)
        end_sessions(small)
        assert isinstance(reactor.commit(store, Batch(2)), StoreFull)
        assert (reachable, failed) == ([False, True], [])
    reactor.until(lambda: told == [True, False])
    assert reactor.commit(store, insert(Batch(2), row(2, body=BODY))) is None
    assert len(fetched(store, reactor, 2)) == 2
    reactor.close(store)


def test_one_that_is_opened_without_room_says_so(small: Database, reactor: QueueReactor) -> None:
    store = postgresql_store(small, reactor.reactor, shift=16, reserve_octets=RESERVE)
    store.open()
    last = fill(store, reactor, 1)
    reactor.close(store)
    assert store.open().full
    told: list[bool] = []
    store.on_full = told.append
    assert reactor.commit(store, batch_of(1, deletes=range(1, last + 1))) is None
    reactor.until(lambda: told == [False])
    reactor.close(store)
    assert not store.open().full
    store.fetch([], lambda found: None)
    reactor.close(store)


@pytest.mark.parametrize("held", [False, True])
def test_large_messages_that_pass_through_leave_nothing(
    held: bool, database: Database, reactor: QueueReactor
) -> None:
    """All are of one segment, of which ten wait at a time.

    Half of the space is that of others. Another session perhaps holds a snapshot.
    """
    other = session_of_others(database, held=held)
    store = postgresql_store(database, reactor.reactor, shift=16)
    store.open()
    reactor.close_later(store)
    body = bytes(MIB)
    largest = 0
    for seq in range(1, 801):
        batch = insert(Batch(seq), row(seq, body=body))
        if seq > 10:
            batch.deletes[seq - 10] = None
        assert reactor.commit(store, batch) is None
        if seq % 50 == 0:
            largest = max(largest, size(database))
    other.close()
    assert largest < 450 * MIB
    waiting = list(range(791, 801))
    assert [each.seq for each in fetched(store, reactor, 800)] == waiting
    reactor.close(store)
    store.open()
    assert [each.seq for block in store.scan() for each in block] == waiting
    assert [each.seq for each in fetched(store, reactor, 800)] == waiting
    assert reactor.commit(store, batch_of(1, deletes=waiting)) is None
    assert fetched(store, reactor, 800) == []
    reactor.close(store)
