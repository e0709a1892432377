"""What a check finds in the tables of a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    SubscriptionRow,
)
from gateway.broker.store.postgresql import administration, inspection
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.postgresql.store import PostgresqlStore
from tests.gateway.broker.store.harness import QueueReactor, batch_of, row
from tests.postgresql import Cluster

pytestmark = pytest.mark.process

SHIFT: Final = 4


@pytest.fixture(scope="module")
def url(postgresql: Cluster) -> Iterator[str]:
    """A database for this file."""
    url = postgresql.database()
    yield url
    postgresql.drop(url)


@pytest.fixture
def database(url: str, reactor: QueueReactor) -> Iterator[Database]:
    """The tables of a broker with rows of every kind, and an owner."""
    keywords = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    database = Database(keywords, "the test's", "mq")
    administration.create(database)
    store = PostgresqlStore(database, "node 1", reactor.reactor, shift=SHIFT)
    store.open()
    reactor.close_later(store)
    batch = batch_of(
        1,
        *[row(seq, destination=1 + seq % 2) for seq in range(1, 101)],
        row(101, persistent=0),
        destinations=[DestinationRow(1, 0, "q", "", 0), DestinationRow(2, 1, "t", "", 0)],
        subscriptions=[SubscriptionRow(1, 2, "c", "d", "", 0)],
        owed=[(1, seq) for seq in range(1, 101, 2)] + [(9, 99)],
        redeliveries=[RedeliveryRow(0, 2, 1, 0)],
        duplicates=[DuplicateRow(7, 1, 1, b"id")],
        branches=[BranchRow(3, 1, b"g", b"b", 0, 1, "u", b"w")],
        reserved=200,
    )
    assert reactor.commit(store, batch) is None
    yield database
    reactor.close_all()
    with administration.held(database) as held:
        held.delete()


def work(row: BranchRow) -> tuple[list[int], list[tuple[int, int]]]:
    """The branch has sent message 2, and taken message 99.

    The subscription that it was taken from was removed.
    """
    return [2], [(9, 99)]


def test_sound_tables_that_are_in_use(database: Database) -> None:
    report, _ = inspection.inspect(database, work, SHIFT)
    assert (report.problems, report.messages, report.clean) == ([], 100, False)


@pytest.mark.parametrize(
    ("damage", "found", "total"),
    [
        (
            "UPDATE message_0 SET priority = 5 WHERE seq IN (3, 5)",
            ["message 3: its checksum is wrong", "message 5: its checksum is wrong"],
            2,
        ),
        (
            "UPDATE message_6 SET head = 'other' WHERE seq = 98",
            ["message 98: its checksum is wrong"],
            1,
        ),
        ("UPDATE duplicate_0 SET at = 5", ["duplicate id 7: its checksum is wrong"], 1),
        (
            "UPDATE branch SET work = 'x'",
            [
                "branch 3: its checksum is wrong",
                "owed row of message 99: its subscription, row 9, is missing",
            ],
            2,
        ),
        ("UPDATE subscription SET selector = 'x'", ["subscription 1: its checksum is wrong"], 1),
        (
            "UPDATE destination SET name = 'x' WHERE id = 1",
            ["destination 1: its checksum is wrong"],
            1,
        ),
        (
            "UPDATE destination SET kind = 0 WHERE id = 2",
            [
                "destination 2: its checksum is wrong",
                "subscription 1: its destination, row 2, is a queue; a topic was expected",
                "owed row of message 1: subscription 1 is owed it, and its destination, row 2, is a queue",
            ],
            53,
        ),
        (
            "DELETE FROM destination WHERE id = 2",
            [
                "subscription 1: its destination, row 2, is missing",
                "message 51: its destination, row 2, is missing",
            ],
            51,
        ),
        (
            "DELETE FROM subscription",
            ["owed row of message 1: its subscription, row 1, is missing"],
            50,
        ),
        (
            "DELETE FROM message_2 WHERE seq = 33",
            ["owed row of message 33: the message is missing, and subscription 1 is owed it"],
            1,
        ),
        (
            "DELETE FROM message_0 WHERE seq = 2",
            ["message 2: it is missing, and a prepared branch has sent it"],
            1,
        ),
        (
            "UPDATE meta SET value = '50' WHERE key = 'next_seq'",
            ["table meta: its next_seq is 50, and there is message 101"],
            1,
        ),
    ],
)
def test_damage_is_listed(database: Database, damage: str, found: list[str], total: int) -> None:
    with database.connect("the test") as session:
        session.execute(damage)
    report, _ = inspection.inspect(database, work, SHIFT)
    said = [
        problem.removeprefix("the database the test's, schema mq is damaged at ")
        for problem in report.problems
    ]
    assert set(found) <= set(said)
    assert len(said) == total
    assert report.messages in (99, 100)
