"""A process is killed while it writes to PostgreSQL.

What it reported durable is there, whole; of the rest every batch is there or not. The next process
is the owner within the time that is allowed for that.
"""

from __future__ import annotations

import random
import signal
from contextlib import AbstractContextManager
from typing import Any

import pytest

from gateway.broker.store.interface import StoreHeld
from gateway.broker.store.postgresql.connecting import Database
from tests.gateway.broker.store.databases import end_sessions, looking, postgresql_store
from tests.gateway.broker.store.harness import QueueReactor
from tests.gateway.broker.store.processes import Process
from tests.gateway.broker.store.test_kill import batches_there

pytestmark = pytest.mark.process


def child(
    url: str, kill: tuple[str, int] | None = None, **options: Any
) -> AbstractContextManager[Process]:
    """A process with a store whose tables are made, moved and dropped all the time."""
    if kill is not None:
        options["kill"] = list(kill)
    return Process(url, **{"idle_seconds": 0.001, **options})


def check(database: Database, seed: int, reported: int) -> int:
    reactor = QueueReactor()
    return batches_there(reactor, postgresql_store(database, reactor.reactor), seed, reported)


@pytest.mark.parametrize(
    "kill",
    [
        (point, times)
        for point in (
            "broker.before-submit",
            "store.mid-batch",
            "store.before-commit",
            "store.after-commit",
            "broker.before-receipts",
            "broker.after-receipts",
        )
        # The first commit is that of becoming the owner.
        for times in (1 + (point == "store.before-commit"), 30)
    ],
    ids=lambda kill: f"{kill[0]}-{kill[1]}",
)
def test_killed_at(kill: tuple[str, int], postgresql_database: str, database: Database) -> None:
    point, times = kill
    with child(postgresql_database, kill) as process:
        assert process.ask("open")["next_seq"] == 1
        process.say("stream", seed=times)
        reported = process.numbers()
        assert process.status == -signal.SIGKILL
    there = check(database, times, reported)
    if point == "store.after-commit":
        assert there >= times
    if point == "store.mid-batch":
        # A batch over several segments passes it several times.
        assert there < times
    if point in ("broker.before-receipts", "broker.after-receipts"):
        assert there >= times
        assert reported == times - (point == "broker.before-receipts")


@pytest.mark.parametrize("point", ["store.before-commit", "broker.opened"])
def test_killed_when_it_becomes_the_owner(
    point: str, postgresql_database: str, database: Database
) -> None:
    with child(postgresql_database, (point, 1)) as process:
        process.say("open")
        assert process.status == -signal.SIGKILL
    assert check(database, 0, 0) == 0


@pytest.mark.parametrize("point", ["broker.before-close", "broker.after-close"])
def test_killed_when_it_ends_in_order(
    point: str, postgresql_database: str, database: Database
) -> None:
    with child(postgresql_database, (point, 1)) as process:
        process.ask("open")
        assert process.ask("insert", seqs=[1, 2], octets=100)["error"] is None
        process.say("close")
        assert process.status == -signal.SIGKILL
    reactor = QueueReactor()
    store = postgresql_store(database, reactor.reactor)
    assert store.open().clean == (point == "broker.after-close")
    assert [row.seq for block in store.scan() for row in block] == [1, 2]
    assert len(reactor.fetch(store, [1, 2])) == 2  # type: ignore[arg-type]
    reactor.close(store)


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment(seed: int, postgresql_database: str, database: Database) -> None:
    """The moment is that of some report: the store is at anything."""
    with child(postgresql_database) as process:
        process.ask("open")
        process.say("stream", seed=seed)
        reported = process.numbers(random.Random(seed).randrange(1, 80))
        reported = max(reported, process.kill())
    assert check(database, seed, reported) >= reported


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_killed_at_any_moment_again_and_again(
    seed: int, postgresql_database: str, database: Database
) -> None:
    test_killed_at_any_moment(seed, postgresql_database, database)


def test_another_process_is_refused_while_the_first_lives(
    postgresql_database: str, database: Database
) -> None:
    with (
        child(postgresql_database) as first,
        child(postgresql_database, taking_seconds=0.2) as second,
    ):
        first.ask("open")
        refused = second.ask("open")
        assert refused["error"] == StoreHeld.__name__
        assert "owns this broker since" in refused["text"]
        assert first.ask("insert", seqs=[1], octets=10)["error"] is None
        first.ask("close")
        assert second.ask("open")["full"] == ""
        assert second.ask("fetch", seqs=[1])["seqs"] == [1]


def test_an_owner_that_was_replaced_cannot_commit(
    postgresql_database: str, database: Database
) -> None:
    """It was stopped, and replaced, before it goes on."""
    with (
        child(postgresql_database) as first,
        child(postgresql_database, node="second") as second,
    ):
        first.ask("open")
        assert first.ask("insert", seqs=[1], octets=10)["error"] is None
        first.signal(signal.SIGSTOP)
        end_sessions(database)
        second.ask("open")
        first.signal(signal.SIGCONT)
        for seqs in ([2], [3]):
            refused = first.ask("insert", seqs=seqs, octets=10)
            assert refused["error"] == "StoreFailed"
            assert "second owns this broker since" in refused["text"]
        assert first.ask("fetch", seqs=[1])["error"] == "StoreFailed"
        assert second.ask("fetch", seqs=[1, 2, 3])["seqs"] == [1]
        assert second.ask("insert", seqs=[2], octets=10)["error"] is None


def test_an_owner_with_a_living_session_cannot_commit_in_another_s_epoch(
    postgresql_database: str, database: Database
) -> None:
    with child(postgresql_database) as process:
        process.ask("open")
        assert process.ask("insert", seqs=[1], octets=10)["error"] is None
        with looking(database) as session:
            session.execute("UPDATE owner SET epoch = epoch + 1, node = 'another'")
        refused = process.ask("insert", seqs=[2], octets=10)
        assert refused["error"] == "StoreFailed"
        assert "another owns this broker since" in refused["text"]
        with looking(database) as session:
            assert session.execute("SELECT seq FROM message_0").fetchall() == [(1,)]
