"""A disk of the database without room, and what gives room."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.broker.store.interface import Batch, Store, StoreFull
from gateway.broker.store.postgresql.connecting import Database
from tests.gateway.broker.store.databases import (
    create_tables,
    database_at,
    looking,
    postgresql_store,
)
from tests.gateway.broker.store.harness import QueueReactor, batch_of, insert, row
from tests.gateway.broker.store.processes import FullDisk
from tests.gateway.broker.store.test_postgresql import size
from tests.postgresql import Cluster

pytestmark = pytest.mark.process

MIB: Final = 1 << 20
RESERVE: Final = 8 * MIB
BODY: Final = bytes(20_000)


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
        assert last > first + 500
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
    assert fill(store, reactor, last + 1) > last + 500
    assert len(reactor.fetch(store, range(1, last + 1))) == 100  # type: ignore[arg-type]
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


def test_large_messages_that_pass_through_leave_nothing(
    database: Database, reactor: QueueReactor
) -> None:
    """All are of one segment, of which ten wait at a time. Half of the space is that of others."""
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
    assert largest < 400 * MIB
    assert len(reactor.fetch(store, range(1, 801))) == 10  # type: ignore[arg-type]
    reactor.close(store)
