"""A commit whose answer was lost is confirmed when it is safe.

That is when the server has it, and a synchronous standby, too.
"""

from __future__ import annotations

from typing import Final

import pytest

from gateway.broker.store.interface import StoreFailed
from gateway.broker.store.postgresql.connecting import Database, Session
from tests.crash.waiting import until
from tests.faults.proxy import Fault, Proxy, Toward, Trigger
from tests.gateway.broker.store.databases import (
    create_tables,
    database_at,
    looking,
    postgresql_store,
)
from tests.gateway.broker.store.harness import QueueReactor
from tests.gateway.broker.store.test_postgresql import Stream, streaming
from tests.postgresql import Cluster, Stop, at

pytestmark = pytest.mark.process

ANSWER_SECONDS: Final = 1.0


def last_commit(session: Session) -> int:
    """The number of the last transaction that others can see."""
    ((number,),) = session.execute("SELECT max(number) FROM commits_0").fetchall()
    return int(number)


def waits(session: Session) -> bool:
    """Whether the owner waits for a standby."""
    return bool(
        session.execute(
            "SELECT 1 FROM pg_stat_activity, owner"
            " WHERE application_name = owner.session AND wait_event = 'SyncRep'"
        ).fetchall()
    )


def test_a_commit_is_confirmed_when_the_standby_has_it(
    postgresql_cluster: Cluster, reactor: QueueReactor
) -> None:
    """The session that waited for the standby is given up, and ended."""
    url = postgresql_cluster.database()
    create_tables(database_at(url))
    standby = postgresql_cluster.standby()
    both = database_at(
        at(url, postgresql_cluster.port, standby.port), answer_seconds=ANSWER_SECONDS
    )
    stream = streaming(both, reactor, 1)
    stream.run(10)
    with looking(database_at(url)) as session:
        before = last_commit(session)
        standby.stop(Stop.IMMEDIATE)
        stream.submit()
        reactor.until(lambda: stream.reachable[-1:] == [False])
        # The end of its session ended its waiting: it is there, on this machine only.
        until(lambda: last_commit(session) > before, "the lost commit is not seen")
        # Another transaction, which comes behind it, waits in its place.
        until(lambda: waits(session) or reactor.turn() > 0, "no later transaction waits")
    assert stream.committed == 10
    postgresql_cluster.kill()
    standby.start()
    standby.promote()
    stream.run(10)
    assert stream.committed == 21
    stream.account(both)


def test_one_that_goes_on_gives_a_sign_of_life(
    postgresql: Cluster, postgresql_database: str, database: Database, reactor: QueueReactor
) -> None:
    """What it was to have written before is an old one, or none."""
    with Proxy(postgresql.port) as proxy, looking(database) as session:
        through = database_at(at(postgresql_database, proxy.port))
        store = postgresql_store(through, reactor.reactor, beat_seconds=3600.0)
        store.open()
        reactor.close_later(store)
        stream = Stream(store, reactor, 2)
        stream.run(3)
        before = last_commit(session)
        lost = proxy.when(Trigger(Toward.CLIENT, rb"COMMIT\0", Fault.DROP, after=False))
        stream.run(1)
        assert lost.fired.is_set()
        assert last_commit(session) == before + 2
        reactor.close(store)


def test_a_server_of_an_earlier_owner_has_lost_commits(
    database: Database, reactor: QueueReactor
) -> None:
    """As after a backup was restored that is from before the owner."""
    stream = streaming(database, reactor, 3)
    failed: list[StoreFailed] = []
    stream.store.on_failed = failed.append
    stream.run(3)
    with looking(database) as session, session.transaction():
        session.execute("UPDATE owner SET epoch = epoch - 1")
        session.execute("TRUNCATE commits_0")
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity, owner"
            " WHERE application_name = owner.session"
        )
    stream.submit()
    reactor.until(lambda: bool(failed))
    assert "has lost commits that it had confirmed" in str(failed[0])
    reactor.close(stream.store)
