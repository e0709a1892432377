"""Segments of the store in PostgreSQL are moved and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from gateway.broker.store.interface import RedeliveryRow
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.postgresql.store import PostgresqlStore
from tests.gateway.broker.store.databases import looking, postgresql_store
from tests.gateway.broker.store.harness import Model, QueueReactor, batch_of, contents, row

pytestmark = pytest.mark.process

#: A segment has 16 seqs, and is sparse with one row.
SHIFT: Final = 4


def opened(database: Database, reactor: QueueReactor) -> PostgresqlStore:
    store = postgresql_store(
        database, reactor.reactor, shift=SHIFT, idle_seconds=0.001, beat_seconds=0.01
    )
    store.open()
    return store


def maintained(store: PostgresqlStore, reactor: QueueReactor) -> None:
    """Wait until there is nothing to maintain."""
    signs: list[float] = []
    store.on_owned = signs.append
    reactor.until(lambda: len(signs) > 2)
    store.on_owned = None


def names(database: Database, kind: str) -> list[str]:
    with looking(database) as session:
        found = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema::regnamespace"
            " AND relkind = 'r' AND starts_with(relname, %s) ORDER BY 1",
            (f"{kind}_",),
        ).fetchall()
    return [name for (name,) in found]


def rows_in(database: Database, table: str) -> Sequence[Any]:
    with looking(database) as session:
        return session.execute(f"SELECT seq FROM {table} ORDER BY 1").fetchall()


def test_what_goes_with_a_message_that_was_moved_goes_at_a_restart(
    database: Database, reactor: QueueReactor
) -> None:
    store, model = opened(database, reactor), Model()
    first = batch_of(
        1,
        row(1, persistent=0),
        *(row(seq) for seq in range(2, 60)),
        owed=[(7, 1), (8, 1), (7, 2), (8, 2)],
        redeliveries=[RedeliveryRow(7, 1, 1, 0), RedeliveryRow(8, 1, 1, 0)],
    )
    second = batch_of(2, deletes=range(2, 16))
    for batch in (first, second):
        assert reactor.commit(store, batch) is None
        model.apply(batch)
    maintained(store, reactor)
    # It was alone in its segment; what it is owed was not.
    assert rows_in(database, "message_old") == [(1,)]
    assert (names(database, "owed"), names(database, "redelivery")) == (
        ["owed_0", "owed_old"],
        ["redelivery_0", "redelivery_old"],
    )
    reactor.close(store)
    model.restart()
    store = postgresql_store(database, reactor.reactor, shift=SHIFT)
    found = contents(reactor, store, store.open())
    reactor.close(store)
    assert found == model.contents()
