"""The store in PostgreSQL over real servers and their faults.

What the stores have in common is in ``test_contract.py``, who owns a broker in ``test_standby.py``, what is left of a killed process
in ``test_postgresql_kill.py``, and damage in ``test_postgresql_damage.py``.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

import pytest

from gateway.broker.store.interface import Batch, Store, StoreError, StoreFailed
from tests.crash.waiting import until
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.gateway.broker.store.child import IN_FLIGHT
from tests.gateway.broker.store.databases import (
    create_tables,
    database_at,
    end_sessions,
    postgresql_store,
    session_of_others,
)
from tests.gateway.broker.store.harness import (
    History,
    QueueReactor,
    batch_of,
    contents,
    insert,
    row,
)
from tests.gateway.broker.store.processes import FullDisk
from tests.postgresql import Cluster, Stop, at

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.connecting import Database

pytestmark = pytest.mark.process

ANSWER_SECONDS: Final = 1.0


class Stream:
    """Batches of a history that are on their way, and their answers."""

    def __init__(self, store: Store, reactor: QueueReactor, seed: int) -> None:
        self.history = History(seed)
        self.store = store
        self.reactor = reactor
        self.submitted = self.committed = 0
        self.errors: list[StoreError] = []
        self.reachable: list[bool] = []
        store.on_reachable = self.reachable.append

    def submit(self) -> None:
        self.submitted += 1
        self.store.submit(self.history.next(), self._answered)

    def _answered(self, error: StoreError | None) -> None:
        if error is not None:
            self.errors.append(error)
            return
        assert not self.reachable or self.reachable[-1], "it is answered while out of reach"
        self.committed += 1

    def run(self, batches: int) -> None:
        """Submit so many, three at a time, and wait for them."""
        for _ in range(batches):
            self.submit()
            self.reactor.until(lambda: self.submitted - self.committed < IN_FLIGHT)
        self.reactor.until(lambda: self.committed == self.submitted)
        assert not self.errors

    def account(self, database: Database) -> None:
        """Close the store, and compare what another one finds."""
        self.reactor.close(self.store)
        store = postgresql_store(database, self.reactor.reactor)
        recovered = store.open()
        assert recovered.clean
        found = contents(self.reactor, store, recovered)
        self.reactor.close(store)
        assert found == self.history.after_restart(self.committed)


def streaming(
    database: Database, reactor: QueueReactor, seed: int, reconnect_seconds: float = 60.0
) -> Stream:
    store = postgresql_store(database, reactor.reactor, reconnect_seconds=reconnect_seconds)
    store.open()
    return Stream(store, reactor, seed)


# --- histories


def run_history(database: Database, reactor: QueueReactor, seed: int, batches: int) -> None:
    """Write a history; sessions are ended and stores opened anew meanwhile."""
    choose = random.Random(seed)
    history = History(seed, largest_body=9000)
    store = postgresql_store(database, reactor.reactor)
    store.open()
    for number in range(1, batches + 1):
        assert reactor.commit(store, history.next()) is None
        chance = choose.random()
        if chance < 0.05:
            reactor.close(store)
            store = postgresql_store(database, reactor.reactor)
            found = contents(reactor, store, store.open())
            history.states[-1].restart()
            assert found == history.states[-1].contents(), number
        elif chance < 0.15:
            end_sessions(database)
    reactor.close(store)
    store = postgresql_store(database, reactor.reactor)
    found = contents(reactor, store, store.open())
    reactor.close(store)
    assert found == history.after_restart(batches)


@pytest.mark.parametrize("seed", range(3))
def test_histories(seed: int, database: Database, reactor: QueueReactor) -> None:
    run_history(database, reactor, seed, 150)


@pytest.mark.parametrize("seed", range(3))
def test_histories_whose_segments_are_begun_anew(
    seed: int, database: Database, reactor: QueueReactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their few rows are moved, as if a snapshot kept vacuums from freeing anything."""
    from gateway.broker.store.postgresql import upkeep
    from gateway.broker.store.postgresql.segments import Segments

    monkeypatch.setattr(Segments, "is_wasted", lambda segments, place, _: place in segments.written)
    monkeypatch.setattr(upkeep, "_UNVACUUMED_OCTETS", 1)
    monkeypatch.setattr(upkeep, "_LOOK_SECONDS", 0.0)
    begun: list[int | None] = []
    anew = Segments.anew

    def noting(segments: Segments, place: int, last: int | None) -> None:
        begun.append(last)
        anew(segments, place, last)

    monkeypatch.setattr(Segments, "anew", noting)
    run_history(database, reactor, seed, 150)
    assert len([last for last in begun if last is not None]) > 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_long_histories(seed: int, database: Database, reactor: QueueReactor) -> None:
    run_history(database, reactor, seed, 1500)


# --- the server goes away


def test_the_server_is_killed_and_starts_again(
    postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    database = database_at(postgresql_cluster.database())
    create_tables(database)
    stream = streaming(database, reactor, 1)
    for _ in range(3):
        stream.run(20)
        postgresql_cluster.kill()
        stream.submit()
        reactor.until(lambda: stream.reachable[-1:] == [False])
        postgresql_cluster.start()
        stream.run(1)
    assert stream.reachable == [False, True] * 3
    stream.account(database)


@pytest.mark.parametrize("how", [Stop.FAST, Stop.IMMEDIATE])
def test_the_server_restarts_in_order(
    how: Stop, postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    database = database_at(postgresql_cluster.database())
    create_tables(database)
    stream = streaming(database, reactor, 2)
    stream.run(20)
    postgresql_cluster.stop(how)
    stream.submit()
    reactor.until(lambda: stream.reachable[-1:] == [False])
    postgresql_cluster.start()
    stream.run(20)
    stream.account(database)


def test_the_server_hangs_and_goes_on(postgresql_cluster: Cluster, reactor: QueueReactor) -> None:
    url = postgresql_cluster.database()
    database = database_at(url, answer_seconds=ANSWER_SECONDS)
    create_tables(database)
    stream = streaming(database, reactor, 3)
    stream.run(20)
    postgresql_cluster.pause()
    stream.submit()
    reactor.until(lambda: stream.reachable[-1:] == [False])
    assert stream.committed == 20
    postgresql_cluster.resume()
    stream.run(20)
    stream.account(database_at(url))


@pytest.mark.parametrize("noticed_by", ["either", "a sign of life"])
def test_a_server_that_stays_away_is_a_failure(
    noticed_by: str, postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    """Answer a batch with the failure, also one that it is not of.

    Such a batch was submitted after the loss was noticed: the failure is told first.
    """
    database = database_at(postgresql_cluster.database())
    create_tables(database)
    stream = streaming(database, reactor, 4, reconnect_seconds=1.0)
    failed: list[StoreFailed] = []
    stream.store.on_failed = failed.append
    stream.run(5)
    began = time.monotonic()
    postgresql_cluster.kill()
    if noticed_by == "a sign of life":
        reactor.until(lambda: stream.reachable[-1:] == [False])
    stream.submit()
    reactor.until(lambda: bool(failed and stream.errors))
    assert time.monotonic() - began >= 1.0
    assert [type(error) for error in stream.errors] == [StoreFailed]
    assert "could not be reached for" in str(failed[0])
    assert isinstance(reactor.commit(stream.store, Batch(99)), StoreFailed)
    assert len(failed) == 1
    reactor.close(stream.store)


# --- the network


@pytest.mark.parametrize("nth", [3, 4, 7, 12])
@pytest.mark.parametrize("fault", [Fault.DROP, Fault.SILENCE])
def test_the_answer_of_a_commit_is_lost(
    nth: int,
    fault: Fault,
    postgresql: Cluster,
    postgresql_database: str,
    database: Database,
    reactor: QueueReactor,
) -> None:
    with Proxy(postgresql.port) as proxy:
        through = database_at(at(postgresql_database, proxy.port), answer_seconds=ANSWER_SECONDS)
        stream = streaming(through, reactor, nth)
        # CommandComplete of COMMIT: it was done, and is not heard of.
        lost = proxy.when(Trigger(Toward.CLIENT, rb"COMMIT\0", fault, nth=nth, after=False))
        stream.run(30)
        assert lost.fired.is_set()
        assert stream.reachable[:2] == [False, True]
        stream.account(database)


@pytest.mark.parametrize("nth", [30, 47, 61, 80])
def test_a_transaction_is_lost_on_its_way(
    nth: int,
    postgresql: Cluster,
    postgresql_database: str,
    database: Database,
    reactor: QueueReactor,
) -> None:
    with Proxy(postgresql.port) as proxy:
        stream = streaming(database_at(at(postgresql_database, proxy.port)), reactor, nth)
        # A Bind: some statement of some transaction, and what follows, does not arrive.
        lost = proxy.when(Trigger(Toward.SERVER, rb"B\0\0\0", Fault.DROP, nth=nth, after=False))
        stream.run(30)
        assert lost.fired.is_set()
        assert stream.reachable == [False, True]
        stream.account(database)


def test_the_network_is_cut_and_heals(
    postgresql: Cluster, postgresql_database: str, database: Database, reactor: QueueReactor
) -> None:
    with Proxy(postgresql.port) as proxy:
        through = database_at(at(postgresql_database, proxy.port), answer_seconds=ANSWER_SECONDS)
        stream = streaming(through, reactor, 5)
        stream.run(10)
        proxy.cut()
        stream.submit()
        reactor.until(lambda: stream.reachable[-1:] == [False])
        proxy.heal()
        stream.run(20)
        stream.account(database)


# --- another server


def test_a_synchronous_standby_is_promoted(
    postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    url = postgresql_cluster.database()
    create_tables(database_at(url))
    standby = postgresql_cluster.standby()
    both = database_at(at(url, postgresql_cluster.port, standby.port))
    stream = streaming(both, reactor, 6)
    stream.run(30)
    postgresql_cluster.kill()
    stream.submit()
    reactor.until(lambda: stream.reachable[-1:] == [False])
    standby.promote()
    stream.run(30)
    stream.account(both)


def test_a_standby_that_lacks_what_was_confirmed_is_refused(
    postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    url = postgresql_cluster.database()
    create_tables(database_at(url))
    standby = postgresql_cluster.standby()
    both = database_at(at(url, postgresql_cluster.port, standby.port))
    stream = streaming(both, reactor, 7)
    failed: list[StoreFailed] = []
    stream.store.on_failed = failed.append
    stream.run(10)
    # From now on no commit waits for it, and it gets nothing more.
    standby.stop(Stop.IMMEDIATE)
    postgresql_cluster.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
    postgresql_cluster.execute("SELECT pg_reload_conf()")
    stream.run(10)
    postgresql_cluster.kill()
    standby.start()
    standby.promote()
    stream.submit()
    reactor.until(lambda: bool(failed))
    assert "has lost commits that it had confirmed" in str(failed[0])
    assert stream.committed == 20
    reactor.close(stream.store)


# --- the database's disk is full


def test_the_disk_of_the_database_is_full(
    postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    url = postgresql_cluster.database()
    disk = FullDisk(postgresql_cluster)
    database = database_at(url)
    create_tables(database)
    store = postgresql_store(database, reactor.reactor)
    store.open()
    told: list[bool] = []
    store.on_full = told.append
    assert reactor.commit(store, insert(Batch(1), row(1, body=bytes(100_000)))) is None
    disk.fill()
    full = reactor.commit(store, insert(Batch(2), row(2, body=bytes(3_000_000))))
    assert "has no room" in str(full)
    assert told == [True]
    # What needs no room is done.
    assert reactor.commit(store, batch_of(3, deletes=[1])) is None
    disk.make_room()
    reactor.until(lambda: told == [True, False])
    assert reactor.commit(store, insert(Batch(4), row(2, body=bytes(3_000_000)))) is None
    reactor.close(store)
    store = postgresql_store(database, reactor.reactor)
    store.open()
    assert [each.seq for block in store.scan() for each in block] == [2]
    store.fetch([], lambda found: None)
    reactor.close(store)


# --- size


def size(database: Database) -> int:
    """Octets of all tables of the schema, with their indexes."""
    session = database.connect("the test")
    ((octets,),) = session.execute(
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
        f" WHERE relnamespace = '{database.schema}'::regnamespace AND relkind = 'r'"
    ).fetchall()
    session.close()
    return int(octets)


def pass_through(
    store: Store, reactor: QueueReactor, messages: int, first: int, waiting: int = 1000
) -> float:
    """Have messages pass through a queue in which some always wait.

    :returns: messages a second.
    """
    began = time.monotonic()
    done = 0

    def committed(error: StoreError | None) -> None:
        nonlocal done
        assert error is None
        done += 1

    blocks = messages // 100
    for block in range(blocks):
        start = first + block * 100
        batch = insert(Batch(1), *(row(seq, body=bytes(100)) for seq in range(start, start + 100)))
        batch.deletes.update(
            dict.fromkeys(range(max(1, start - waiting), max(1, start - waiting + 100)))
        )
        store.submit(batch, committed)
        reactor.until(lambda block=block: block - done < IN_FLIGHT)  # type: ignore[misc]
    reactor.until(lambda: done == blocks)
    return messages / (time.monotonic() - began)


def soak(database: Database, reactor: QueueReactor, messages: int, *, held: bool) -> None:
    """Messages pass through, while another session perhaps holds a snapshot.

    After each fifth of them the tables become as small as three segments (13 MB each) again, and at
    the end as they were at the beginning; the rates are printed.
    """
    other = session_of_others(database, held=held)
    # Segments of the size that they have in earnest: a shift of 16.
    store = postgresql_store(database, reactor.reactor, shift=16)
    store.open()
    reactor.close_later(store)
    part = messages // 5
    sizes, rates = [], []
    for number in range(5):
        rates.append(pass_through(store, reactor, part, 1 + number * part))
        # The segment that is written, the one before it, and one that is about to be dropped.
        until(lambda: size(database) < 42_000_000, lambda: f"{size(database)} octets are left")
        sizes.append(size(database))
    bound = 2 * sizes[0] + 10_000_000
    until(lambda: size(database) < bound, lambda: f"{size(database)} octets are left of {sizes}")
    other.close()
    print(f"sizes {sizes}, rates {[round(rate) for rate in rates]}")


@pytest.mark.parametrize("held", [False, True])
def test_nothing_bloats(held: bool, database: Database, reactor: QueueReactor) -> None:
    soak(database, reactor, 300_000, held=held)


@pytest.mark.long
@pytest.mark.parametrize("held", [False, True])
def test_nothing_bloats_with_five_million_messages(
    held: bool, database: Database, reactor: QueueReactor
) -> None:
    soak(database, reactor, 5_000_000, held=held)
