"""How many statements a batch costs: as many as it has kinds of change, whatever it holds of
each.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.store import batch_writer, reading
from gateway.broker.store.batch_writer import SIZES, KeysStatement, RowsStatement
from gateway.broker.store.interface import Batch, DestinationRow, RedeliveryRow, SubscriptionRow
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.harness import QueueReactor, batch_of, insert, row


class Traced:
    """An open store whose statements are listed as they begin."""

    def __init__(self, path: Path) -> None:
        self.reactor = QueueReactor()
        self.store = SqliteStore(
            str(path), self.reactor.reactor, reserve_octets=0, idle_seconds=600
        )
        self.store.open()
        self.statements: list[str] = []
        connection = self.store._connection
        assert connection is not None
        connection.set_trace_callback(
            lambda text: self.statements.append(re.split(" VALUES| WHERE| \\+ ", text)[0])
        )

    def cost(self, batch: Batch) -> list[str]:
        self.statements.clear()
        assert self.reactor.commit(self.store, batch) is None
        return list(self.statements)


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    traced = Traced(tmp_path / "messages.db")
    yield traced
    traced.reactor.close(traced.store)


def inserts(count: int) -> Batch:
    return insert(Batch(1), *(row(seq) for seq in range(1, count + 1)))


def deletes(count: int) -> Batch:
    batch = batch_of(2, deletes=range(1, 2 * count, 2))
    return batch


def everything(count: int) -> Batch:
    batch = inserts(count)
    for number in range(1, count + 1):
        batch.owed[number % 7, number] = None
        batch.settled[number % 7, number] = None
        batch.redeliveries[0, number] = RedeliveryRow(0, number, 1, 0)
        batch.destinations[number] = DestinationRow(number, 0, "q", "")
        batch.subscriptions[number] = SubscriptionRow(number, 1, "c", "n", "", 0)
        batch.removed_destinations[number * 2] = None
        batch.removed_subscriptions[number * 2] = None
        batch.deletes[10_000 + number * 2] = None
    batch.reserved = 100
    return batch


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (inserts, 4),
        (deletes, 4),
        # Six of these keep the sums of the checksums of destinations and subscriptions.
        (everything, 23),
    ],
)
def test_statements_do_not_grow_with_rows(
    traced: Traced, tmp_path: Path, make: Callable[[int], Batch], expected: int
) -> None:
    few, many = Traced(tmp_path / "few.db"), traced
    small, large = few.cost(make(1)), many.cost(make(1000))
    few.reactor.close(few.store)
    assert small == large
    assert len(large) == expected, large
    assert (large[0], large[-1]) == ("BEGIN IMMEDIATE", "COMMIT")


def test_a_batch_of_the_most_operations_takes_one_more_for_each_thousand(traced: Traced) -> None:
    assert len(traced.cost(inserts(2000))) == 2 + 2 * 2


def test_deletes_of_neighbours_are_a_range(traced: Traced) -> None:
    assert KeysStatement("DELETE FROM t WHERE seq").condition([7, 5, 6]) == (
        "DELETE FROM t WHERE seq BETWEEN ? AND ?",
        (5, 7),
    )
    text, parameters = KeysStatement("DELETE FROM t WHERE seq").condition([7, 5])
    assert text == "DELETE FROM t WHERE seq IN (SELECT value FROM json_each(?))"
    assert parameters == ("[7,5]",)


def test_deletes_look_for_redeliveries_only_while_there_are_some(traced: Traced) -> None:
    counted = inserts(3)
    counted.redeliveries[0, 3] = RedeliveryRow(0, 3, 1, 0)
    traced.cost(counted)
    batch = batch_of(2, deletes=[3])
    assert "DELETE FROM redelivery" in traced.cost(batch)


def test_a_read_of_many_rows_is_one_step(traced: Traced) -> None:
    traced.cost(inserts(reading.BLOCK))
    connection = traced.store._connection
    assert connection is not None
    steps: list[int] = []
    text, parameters = reading._ROWS.condition(range(1, reading.BLOCK + 1))
    steps.append(len(connection.execute(text, parameters).fetchall()))
    assert steps == [1]
    traced.statements.clear()
    found = traced.reactor.fetch(traced.store, range(1, reading.BLOCK + 1))
    assert (found, len(traced.statements)) == (list(inserts(reading.BLOCK).inserts.values()), 1)


def test_keys_lead_to_rows_without_a_scan(traced: Traced) -> None:
    connection = traced.store._connection
    assert connection is not None
    padded = (batch_writer._SETTLED, batch_writer._SETTLED_REDELIVERIES)
    keyed = (
        batch_writer._DELETED_MESSAGES,
        batch_writer._DELETED_CONTENTS,
        batch_writer._DELETED_REDELIVERIES,
        reading._ROWS,
        reading._LARGE_ROWS,
    )
    statements: list[tuple[str, Sequence[object]]] = [
        *(
            (rows._texts[place], [None] * (SIZES[place] * 2))
            for rows in padded
            for place in (0, -1)
        ),
        *(keys.condition(seqs) for keys in keyed for seqs in ([1, 2], [1, 3])),
        (
            "SELECT subscription, seq FROM owed WHERE (seq, subscription) > (?, ?) ORDER BY seq, subscription LIMIT 500",
            (1, 2),
        ),
    ]
    for statement, parameters in statements:
        plan = [
            detail
            for *_, detail in connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            ).fetchall()
        ]
        named = [
            detail
            for detail in plan
            if set(detail.split()) & {"owed", "redelivery", "message", "content", "m", "c"}
        ]
        assert named, plan
        assert all(detail.startswith("SEARCH") for detail in named), plan


@given(st.integers(0, 2 * SIZES[-1] + 50))
def test_any_number_of_rows_is_written_once_each(count: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b NOT NULL)")
    rows = RowsStatement("INSERT OR IGNORE INTO t(a, b) VALUES", 2)
    assert (
        rows.run(connection, [value for number in range(count) for value in (number, -number)])
        == count
    )
    assert connection.execute("SELECT a, b FROM t ORDER BY a").fetchall() == [
        (number, -number) for number in range(count)
    ]
    gone = RowsStatement(
        "DELETE FROM t WHERE (a, b) IN (SELECT column1, column2 FROM (VALUES", 2, "))"
    )
    assert gone.run(
        connection, [value for number in range(0, count, 2) for value in (number, -number)]
    ) == len(range(0, count, 2))
    assert connection.execute("SELECT a FROM t ORDER BY a").fetchall() == [
        (number,) for number in range(1, count, 2)
    ]
    connection.close()
