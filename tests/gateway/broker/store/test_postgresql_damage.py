"""Rows of the store in PostgreSQL that are not what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gateway.broker.store.interface import Batch, DuplicateRow, StoreDamaged, StoreError
from tests.gateway.broker.store.databases import SHIFT, postgresql_store
from tests.gateway.broker.store.harness import History, QueueReactor, batch_of, insert, row

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.connecting import Database

pytestmark = pytest.mark.process

SEGMENT: Final = 1 << SHIFT


def damage(database: Database, statement: str) -> None:
    session = database.connect("the test")
    session.execute(statement)
    session.close()


@pytest.mark.parametrize("column", ["body", "head"])
def test_a_message_that_is_damaged_is_told(
    column: str, database: Database, reactor: QueueReactor
) -> None:
    store = postgresql_store(database, reactor.reactor)
    store.open()
    reactor.close_later(store)
    assert reactor.commit(store, insert(Batch(1), row(1), row(2), row(3))) is None
    damage(database, f"UPDATE message_0 SET {column} = 'x' WHERE seq = 2")
    found = reactor.fetch(store, [1, 2, 3])
    assert isinstance(found, StoreDamaged)
    assert (found.seq, found.destination) == (2, 1)
    assert not isinstance(reactor.fetch(store, [1, 3]), StoreError)


def test_a_destination_that_is_damaged_is_told_when_the_store_is_opened(
    database: Database, reactor: QueueReactor
) -> None:
    store = postgresql_store(database, reactor.reactor)
    store.open()
    assert reactor.commit(store, History(1).next()) is None
    reactor.close(store)
    damage(database, "UPDATE destination SET name = 'x'")
    with pytest.raises(StoreDamaged, match="destination 1"):
        postgresql_store(database, reactor.reactor).open()


def test_a_duplicate_id_that_is_damaged_names_its_seq(
    database: Database, reactor: QueueReactor
) -> None:
    store = postgresql_store(database, reactor.reactor)
    store.open()
    batch = batch_of(1, duplicates=[DuplicateRow(seq, 1, 1, b"id") for seq in (7, 8)], reserved=9)
    assert reactor.commit(store, batch) is None
    reactor.close(store)
    damage(database, "UPDATE duplicate_0 SET at = 2 WHERE seq = 8")
    store.open()
    reactor.close_later(store)
    with pytest.raises(StoreDamaged) as error:
        list(store.scan_duplicates())
    assert error.value.seq == 8


@pytest.mark.parametrize(
    "change", ["priority = 10", "priority = -1", "expires = -1", "size = -1", "destination = -2"]
)
def test_a_scan_finds_what_is_never_written(
    change: str, database: Database, reactor: QueueReactor
) -> None:
    store = postgresql_store(database, reactor.reactor)
    store.open()
    assert reactor.commit(store, insert(Batch(1), *map(row, range(1, 11)))) is None
    reactor.close(store)
    damage(database, f"UPDATE message_0 SET {change} WHERE seq = 7")
    store.open()
    reactor.close_later(store)
    with pytest.raises(StoreDamaged, match="message 7: a column has a value") as error:
        list(store.scan())
    assert error.value.seq == 7


# --- what no consumer asks for


def stored(database: Database, reactor: QueueReactor, messages: int) -> None:
    store = postgresql_store(database, reactor.reactor)
    store.open()
    batch = insert(Batch(1), *(row(seq, destination=seq % 3) for seq in range(1, messages + 1)))
    batch.reserved = messages + 1
    assert reactor.commit(store, batch) is None
    reactor.close(store)


@pytest.mark.parametrize("column", ["expires = 5", "body = 'x'"])
def test_damage_is_found_that_no_consumer_asks_for(
    column: str, database: Database, reactor: QueueReactor
) -> None:
    stored(database, reactor, 5 * SEGMENT)
    damaged = [3, SEGMENT + 5, 4 * SEGMENT + 1, 5 * SEGMENT]
    for seq in damaged:
        damage(database, f"UPDATE message_{seq // SEGMENT} SET {column} WHERE seq = {seq}")
    # A message that was moved when its segment was dropped.
    damage(database, "INSERT INTO message_old SELECT * FROM message_1")
    damage(database, "DROP TABLE message_1")
    store = postgresql_store(database, reactor.reactor, idle_seconds=0.01)
    found: list[StoreDamaged] = []
    store.on_damaged = found.append
    store.open()
    reactor.close_later(store)
    # The check begins with the first job.
    assert not isinstance(reactor.fetch(store, [1]), StoreError)
    reactor.until(lambda: len(found) == len(damaged))
    assert sorted((error.seq, error.destination) for error in found) == [
        (seq, seq % 3) for seq in damaged
    ]


def test_the_check_goes_on_while_commits_never_end(
    database: Database, reactor: QueueReactor
) -> None:
    stored(database, reactor, 5 * SEGMENT)
    damage(database, f"UPDATE message_4 SET body = 'x' WHERE seq = {4 * SEGMENT + 1}")
    store = postgresql_store(database, reactor.reactor, idle_seconds=600)
    found: list[StoreDamaged] = []
    store.on_damaged = found.append
    store.open()
    reactor.close_later(store)
    number = 10 * SEGMENT
    while not found:
        number += 1
        assert reactor.commit(store, insert(Batch(number), row(number))) is None
    assert found[0].seq == 4 * SEGMENT + 1


# --- numbers


@pytest.mark.parametrize("written", ["1", str(2 * SEGMENT + 3), str(2 * SEGMENT + 9)])
@pytest.mark.parametrize("consumed", [False, True])
def test_no_seq_is_given_twice_after_an_earlier_number_was_restored(
    written: str, consumed: bool, database: Database, reactor: QueueReactor
) -> None:
    """No row tells which messages came and went since then."""
    last = 2 * SEGMENT + 9
    stored(database, reactor, last)
    store = postgresql_store(database, reactor.reactor)
    store.open()
    if consumed:
        deletes = batch_of(1, deletes=range(SEGMENT, last))
        assert reactor.commit(store, deletes) is None
    store.fetch([], lambda found: None)
    reactor.close(store)
    damage(database, f"UPDATE meta SET value = '{written}' WHERE key = 'next_seq'")
    recovered = store.open()
    store.fetch([], lambda found: None)
    reactor.close(store)
    assert recovered.next_seq == 3 * SEGMENT
    assert f"next_seq is {written}, and there is message {last}" in recovered.notes[0]


def test_the_newest_table_tells_of_messages_that_are_gone(
    database: Database, reactor: QueueReactor
) -> None:
    stored(database, reactor, 2 * SEGMENT + 9)
    store = postgresql_store(database, reactor.reactor)
    store.open()
    assert reactor.commit(store, batch_of(1, deletes=range(1, 2 * SEGMENT + 10))) is None
    reactor.close(store)
    damage(database, f"UPDATE meta SET value = '{2 * SEGMENT}' WHERE key = 'next_seq'")
    recovered = store.open()
    store.fetch([], lambda found: None)
    reactor.close(store)
    assert recovered.next_seq == 3 * SEGMENT
    assert "there is table message_2" in recovered.notes[0]


@pytest.mark.parametrize("value", ["x", "-1", "", "5 "])
def test_a_number_that_is_none_is_damage(
    value: str, database: Database, reactor: QueueReactor
) -> None:
    damage(database, f"UPDATE meta SET value = '{value}' WHERE key = 'next_seq'")
    with pytest.raises(StoreDamaged, match="table meta"):
        postgresql_store(database, reactor.reactor).open()


@pytest.mark.parametrize("key", ["id", "next_seq", "clean"])
def test_a_missing_key_is_damage(key: str, database: Database, reactor: QueueReactor) -> None:
    damage(database, f"DELETE FROM meta WHERE key = '{key}'")
    with pytest.raises(StoreDamaged, match=f"table meta: it has no {key}"):
        postgresql_store(database, reactor.reactor).open()
