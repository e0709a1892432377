"""Owners of a broker in PostgreSQL: signs of life, and those who stand by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest

from gateway.broker.store.interface import Batch, DestinationRow, StoreFailed, StoreHeld
from gateway.broker.store.postgresql import ownership
from gateway.broker.store.postgresql.connecting import NAME, Database
from gateway.broker.store.postgresql.ownership import Backend, Owner
from gateway.broker.store.postgresql.reading import BLOCK
from gateway.broker.store.postgresql.standby import Standby
from gateway.broker.store.postgresql.store import PostgresqlStore
from tests.gateway.broker.store.databases import (
    create_tables,
    database_at,
    end_sessions,
    looking,
    postgresql_store,
)
from tests.gateway.broker.store.harness import QueueReactor, insert, row
from tests.postgresql import Cluster

BEAT: Final = 0.1
#: A thread of a busy machine of tests may be kept waiting for a second.
LEASE: Final = 4.0


@pytest.fixture
def owner(database: Database, reactor: QueueReactor) -> PostgresqlStore:
    """The store of an owner that gives signs of life."""
    store = made(database, reactor, "first")
    start(store)
    reactor.close_later(store)
    return store


def made(
    database: Database, reactor: QueueReactor, node: str, *, beat_seconds: float = BEAT
) -> PostgresqlStore:
    return postgresql_store(
        database,
        reactor.reactor,
        node,
        reconnect_seconds=20,
        beat_seconds=beat_seconds,
        lease_seconds=LEASE,
        taking_seconds=0.0,
    )


def start(store: PostgresqlStore) -> None:
    store.open()
    store.fetch([], lambda found: None)


class Watching:
    """A standby, and what it has said."""

    def __init__(
        self, database: Database, reactor: QueueReactor, node: str, lease_seconds: float
    ) -> None:
        self.free = False
        self.told: list[Owner | None] = []
        self.why = ""
        self.standby = Standby(
            database, node, reactor.reactor, lease_seconds, self._is_free, self._is_told
        )

    def _is_free(self) -> None:
        self.free = True

    def _is_told(self, owner: Owner | None, why: str) -> None:
        self.told.append(owner)
        self.why = why


@contextmanager
def watching(
    database: Database,
    reactor: QueueReactor,
    node: str = "second",
    lease_seconds: float = LEASE,
) -> Iterator[Watching]:
    watching = Watching(database, reactor, node, lease_seconds)
    watching.standby.watch()
    try:
        reactor.until(lambda: bool(watching.told))
        yield watching
    finally:
        watching.standby.stop()


def batch() -> Batch:
    made = Batch(1)
    made.destinations[1] = DestinationRow(1, 0, "q", "", 0)
    return made


def owned(reactor: QueueReactor, store: PostgresqlStore, count: int) -> list[float]:
    """What the next signs of life were worth."""
    told: list[float] = []
    store.on_owned = told.append
    reactor.until(lambda: len(told) >= count)
    return told


# --- signs of life


def test_an_idle_owner_is_sure_of_itself_for_most_of_a_lease(
    owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    assert all(0 < seconds <= LEASE * 0.75 for seconds in owned(reactor, owner, 5))


def test_a_commit_is_a_sign_of_life_of_when_it_was_begun(
    owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    told: list[float] = []
    owner.on_owned = told.append
    assert reactor.commit(owner, batch()) is None
    assert told, "it is told before the commit is"
    assert told[-1] <= LEASE * 0.75


def test_an_owner_that_reads_only_gives_signs_of_life(
    owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    told: list[float] = []
    owner.on_owned = told.append
    asked = 0

    def again(found: object) -> None:
        nonlocal asked
        asked += 1
        if len(told) < 3:
            owner.fetch([1], again)
            owner.fetch([1], lambda found: None)

    owner.fetch([1], again)
    reactor.until(lambda: len(told) >= 3)
    assert asked > 3


def test_signs_of_life_are_given_while_an_opened_store_is_scanned(
    database: Database, reactor: QueueReactor
) -> None:
    store = made(database, reactor, "first")
    start(store)
    rows = [row(seq) for seq in range(1, 2 * BLOCK + 1)]
    assert reactor.commit(store, insert(Batch(1), *rows)) is None
    reactor.close(store)
    store = made(database, reactor, "first", beat_seconds=1e-9)
    store.open()
    session = database.connect("the test")
    signs = {ownership.look(session).sign for _ in store.scan()}
    session.close()
    assert len(signs) == 2, "one after each block"
    store.fetch([], lambda found: None)
    reactor.close(store)


# --- standing by


def test_one_that_is_alive_is_left_alone(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    with pytest.raises(StoreHeld, match=r"first owns this broker since"):
        made(database, reactor, "second").open()
    with watching(database, reactor) as second:
        (told,) = second.told
        assert told is not None
        assert (told.node, told.released, told.locked) == ("first", False, True)
        # Signs of life for more than a lease, after which it would have been replaced.
        owned(reactor, owner, round(1.5 * LEASE / BEAT))
        assert not second.free


def test_one_that_gives_up_is_replaced_at_once(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    # Not by its silence: that lease would not end before the test.
    with watching(database, reactor, lease_seconds=3600) as second:
        reactor.close(owner)
        reactor.until(lambda: second.free)
        store = made(database, reactor, "second")
        start(store)
        reactor.close(store)


def test_one_that_is_asked_is_told_and_gives_up(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    wanted: list[str] = []
    owner.on_wanted = wanted.append
    with (
        watching(database, reactor) as second,
        watching(database, reactor, "third") as third,
    ):
        third.standby.ask()
        reactor.until(lambda: bool(wanted))
        reactor.close(owner)
        reactor.until(lambda: third.free)
        assert (wanted, second.free) == (["third"], False), "it is left to the one that asked"


def test_one_that_is_busy_is_told_that_it_is_asked(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    wanted: list[str] = []
    owner.on_wanted = wanted.append
    with watching(database, reactor) as second:
        second.standby.ask()
        for number in range(1, 10_000):
            batch = Batch(number)
            batch.destinations[1] = DestinationRow(1, 0, "q", str(number), 0)
            assert reactor.commit(owner, batch) is None
            if wanted:
                break
    assert wanted == ["second"]


def test_one_whose_process_was_killed_is_replaced_before_its_lease_ends(
    database: Database, reactor: QueueReactor
) -> None:
    # Nothing of it is left but its row: it was never closed, and its sessions are gone.
    store = made(database, reactor, "first")
    store.open()
    with watching(database, reactor, lease_seconds=3600) as second:
        end_sessions(database)
        reactor.until(lambda: second.free)


def test_one_that_is_silent_is_ended_and_cannot_come_back(
    database: Database, reactor: QueueReactor
) -> None:
    # It is open, and its thread does not run: as a process that was stopped, or whose machine is
    # cut off. Its sessions are there.
    silent = made(database, reactor, "first")
    silent.open()
    with watching(database, reactor) as second:
        reactor.until(lambda: second.free)
    store = made(database, reactor, "second")
    start(store)
    reactor.close_later(store)
    failed: list[StoreFailed] = []
    silent.on_failed = failed.append
    error = reactor.commit(silent, batch())
    assert isinstance(error, StoreFailed)
    assert "second owns this broker" in str(error)
    reactor.until(lambda: bool(failed))
    assert reactor.commit(store, batch()) is None


def test_a_process_of_another_server_with_the_same_number_is_left_alone(database: Database) -> None:
    """After a failover lost sessions are looked for on another server."""
    with looking(database) as session:
        other = database.connect("the owner")
        found = ownership.backend(other)
        ownership.end(session, "the owner", Backend(found.pid, "1500000000.000000"))
        assert ownership.backend(other) == found
        ownership.end(session, "the owner", found)
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")
        other.close()


def test_one_that_lost_its_session_and_comes_back_is_not_replaced(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    with watching(database, reactor) as second:
        for _ in range(3):
            end_sessions(database)
            assert reactor.commit(owner, batch()) is None
            owned(reactor, owner, 3)
        assert not second.free


def test_of_several_one_becomes_the_owner(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    with watching(database, reactor) as second, watching(database, reactor, "third") as third:
        reactor.close(owner)
        reactor.until(lambda: second.free and third.free)
        store = made(database, reactor, "second")
        start(store)
        with pytest.raises(StoreHeld):
            made(database, reactor, "third").open()
        reactor.close(store)


def test_one_that_stands_by_waits_for_the_tables_and_for_the_database(
    postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    database = database_at(postgresql_cluster.database())
    with watching(database, reactor) as second:
        assert (second.told, "imqdbmgr create tbl" in second.why) == ([None], True)
        postgresql_cluster.kill()
        told_more(reactor, second, lambda: "the database the test's: " in second.why)
        postgresql_cluster.start()
        create_tables(database)
        reactor.until(lambda: second.free)


def told_more(reactor: QueueReactor, watching: Watching, done: Callable[[], bool]) -> None:
    reactor.until(done)
    assert watching.told[-1] is None


def test_what_an_owner_is_called_where_sessions_are_listed(
    database: Database, owner: PostgresqlStore, reactor: QueueReactor
) -> None:
    session = database.connect("the test")
    found = session.execute(
        "SELECT application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchall()
    assert [name.startswith(f"{NAME} ") for (name,) in found] == [True]
    session.close()
