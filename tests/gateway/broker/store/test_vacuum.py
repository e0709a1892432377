"""The space of dead messages is freed while the owner goes on.

The database vacuums slowly, as one does that is busy, or has much to vacuum.
"""

from __future__ import annotations

from typing import Final

import pytest
from psycopg.conninfo import make_conninfo

from gateway.broker.store.interface import Batch
from gateway.broker.store.postgresql.connecting import Database, Session
from gateway.broker.store.postgresql.store import PostgresqlStore
from tests.crash.waiting import until
from tests.gateway.broker.store.databases import database_at, looking, postgresql_store
from tests.gateway.broker.store.harness import QueueReactor, batch_of, insert, row
from tests.postgresql import Cluster

pytestmark = pytest.mark.process

MIB: Final = 1 << 20
#: A thread of a busy machine of tests may be kept waiting for some seconds.
LEASE: Final = 8.0
BEAT: Final = 0.1
#: The processes that vacuum for this user: not those of the server's own, which it may not end.
VACUUMS: Final = (
    "SELECT pid FROM pg_stat_progress_vacuum JOIN pg_stat_activity USING (pid)"
    " WHERE usename = current_user"
)
#: Milliseconds that the vacuum pauses for each page.
SLOW: Final = "-c vacuum_cost_delay=100 -c vacuum_cost_limit=1"


@pytest.fixture
def slow(postgresql_database: str, database: Database) -> Database:
    """A database with tables, over whose sessions a vacuum takes minutes."""
    return database_at(make_conninfo(postgresql_database, options=SLOW))


def vacuums(session: Session) -> bool:
    """Whether a session of the owner vacuums."""
    return bool(
        session.execute(
            "SELECT 1 FROM pg_stat_progress_vacuum JOIN pg_stat_activity USING (pid), owner"
            " WHERE application_name = owner.session"
        ).fetchall()
    )


def wasting(database: Database, reactor: QueueReactor) -> PostgresqlStore:
    """An open store for which a vacuum is due; ten messages wait."""
    store = postgresql_store(
        database, reactor.reactor, shift=16, beat_seconds=BEAT, lease_seconds=LEASE
    )
    store.open()
    reactor.close_later(store)
    for seq in range(1, 81):
        batch = insert(Batch(seq), row(seq, body=bytes(MIB)))
        if seq > 10:
            batch.deletes[seq - 10] = None
        assert reactor.commit(store, batch) is None
    return store


def vacuuming(database: Database, reactor: QueueReactor, session: Session) -> PostgresqlStore:
    """The same when a vacuum has begun."""
    store = wasting(database, reactor)
    until(lambda: vacuums(session), "no vacuum has begun")
    return store


def test_the_owner_commits_and_gives_signs_of_life(slow: Database, reactor: QueueReactor) -> None:
    with looking(slow) as session:
        store = vacuuming(slow, reactor, session)
        signs: list[float] = []
        store.on_owned = signs.append
        reactor.until(lambda: len(signs) > 1.25 * LEASE / BEAT)
        assert min(signs) > 0, "it was not sure of itself"
        assert reactor.commit(store, batch_of(81, row(81), deletes=[71])) is None
        assert len(reactor.fetch(store, range(1, 82))) == 10  # type: ignore[arg-type]
        assert vacuums(session)


def test_a_vacuum_ends_with_its_owner(slow: Database, reactor: QueueReactor) -> None:
    with looking(slow) as session:
        store = vacuuming(slow, reactor, session)
        reactor.close(store)
        until(lambda: not vacuums(session), "the vacuum goes on")


def test_a_vacuum_that_is_ended_is_no_fault_of_the_owner(
    slow: Database, reactor: QueueReactor
) -> None:
    with looking(slow) as session:
        store = vacuuming(slow, reactor, session)
        reachable: list[bool] = []
        store.on_reachable = reachable.append
        session.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({VACUUMS}) AS ours")
        signs: list[float] = []
        store.on_owned = signs.append
        reactor.until(lambda: len(signs) > 10)
        assert reactor.commit(store, batch_of(81, row(81))) is None
        assert reachable == []


def test_an_owner_that_has_lost_its_sessions_has_one_vacuum_at_most(
    slow: Database, reactor: QueueReactor
) -> None:
    with looking(slow) as session:
        store = vacuuming(slow, reactor, session)
        before = session.execute(VACUUMS).fetchall()
        session.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity, owner"
            f" WHERE application_name = owner.session AND pid NOT IN ({VACUUMS})"
        )
        assert reactor.commit(store, batch_of(81, row(81))) is None
        # Another one may have begun since.
        after = session.execute(VACUUMS).fetchall()
        assert len(after) <= 1
        assert not set(before) & set(after)


def test_a_database_that_allows_no_further_session_is_no_fault_of_the_owner(
    postgresql: Cluster, postgresql_database: str, database: Database, reactor: QueueReactor
) -> None:
    name = postgresql_database.rpartition("/")[2]
    # The session that made the tables ends a moment after it was told to.
    until(
        lambda: not postgresql.execute(f"SELECT FROM pg_stat_activity WHERE datname = '{name}'"),
        "somebody stays",
    )
    postgresql.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
    store = wasting(database, reactor)
    reachable: list[bool] = []
    store.on_reachable = reachable.append
    refused = f'too many connections for database "{name}"'
    until(lambda: refused in postgresql.log, "no vacuum was tried")
    assert reactor.commit(store, batch_of(81, row(81))) is None
    assert reachable == []
