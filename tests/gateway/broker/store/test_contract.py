"""The sentences of ``gateway.broker.store.interface``, on every store, with the real reactor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

from gateway.broker.core.scheduled import SCHEDULED
from gateway.broker.store.interface import (
    Batch,
    DestinationRow,
    DuplicateRow,
    IndexRow,
    RedeliveryRow,
    Row,
    Store,
    StoreError,
    StoreFailed,
    SubscriptionRow,
)
from gateway.broker.store.memory import MemoryStore
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.databases import postgresql_store
from tests.gateway.broker.store.harness import batch_of, insert, row

if TYPE_CHECKING:
    # The plugin has no types of its own.
    def ensureDeferred(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]: ...
    def blockon(deferred: Deferred[None]) -> None: ...
else:
    from pytest_twisted import blockon, ensureDeferred

Make = Callable[[], Store]


POSTGRESQL: Final = pytest.param("postgresql", marks=pytest.mark.process)
KEEPING: Final = ["sqlite", POSTGRESQL]


@pytest.fixture(params=["sqlite", "memory", POSTGRESQL])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A store of each kind, each time over the same data, except in memory."""
    if request.param == "postgresql":
        database = request.getfixturevalue("database")
        return lambda: postgresql_store(database, cast(IReactorFromThreads, installed))
    if request.param == "memory":
        return lambda: MemoryStore(cast(IReactorTime, installed))
    return lambda: SqliteStore(
        str(tmp_path / "messages.db"), cast(IReactorFromThreads, installed), reserve_octets=1 << 16
    )


def opened(make: Make) -> Store:
    store = make()
    store.open()
    return store


@pytest.fixture
def store(make: Make) -> Iterator[Store]:
    store = opened(make)
    yield store
    blockon(close(store))


class Told:
    """What a callback was given.

    An error is a value here, and a Deferred would take it for its own failure.
    """

    def __init__(self, error: StoreError | None, rows: Sequence[Row] = ()) -> None:
        self.error = error
        self.rows = rows


async def commit(store: Store, batch: Batch) -> StoreError | None:
    done: Deferred[Told] = Deferred()
    store.submit(batch, lambda error: done.callback(Told(error)))
    return (await done).error


async def fetch(store: Store, seqs: Sequence[int]) -> Sequence[Row] | StoreError:
    done: Deferred[Told] = Deferred()
    store.fetch(
        seqs,
        lambda found: done.callback(
            Told(found) if isinstance(found, StoreError) else Told(None, found)
        ),
    )
    told = await done
    return told.rows if told.error is None else told.error


def close(store: Store) -> Deferred[None]:
    done: Deferred[None] = Deferred()
    store.close(lambda: done.callback(None))
    return done


async def reopened(make: Make, store: Store) -> Store:
    await close(store)
    return opened(make)


@ensureDeferred
async def test_a_new_store_is_empty_and_has_an_id(make: Make) -> None:
    store = make()
    recovered = store.open()
    assert recovered.next_seq == 1
    assert recovered.clean
    assert (list(recovered.destinations), list(recovered.subscriptions), list(recovered.notes)) == (
        [],
        [],
        [],
    )
    assert len(recovered.store_id) == 16
    assert ":" not in recovered.store_id
    assert [
        *store.scan(),
        *store.scan_owed(),
        *store.scan_redeliveries(),
        *store.scan_duplicates(),
    ] == []
    await close(store)


@ensureDeferred
async def test_what_was_inserted_is_fetched_in_the_order_asked(store: Store) -> None:
    rows = [row(seq, head=b"head %d" % seq, body=bytes([seq]) * seq) for seq in (1, 2, 3, 7, 9)]
    assert await commit(store, insert(Batch(1), *rows)) is None
    assert await fetch(store, [9, 1, 3]) == [rows[4], rows[0], rows[2]]
    assert await fetch(store, [1, 2, 3]) == rows[:3]
    assert await fetch(store, []) == []


@ensureDeferred
async def test_messages_that_are_gone_are_left_out(store: Store) -> None:
    await commit(store, insert(Batch(1), *(row(seq) for seq in range(1, 11))))
    batch = batch_of(2, deletes=[2, 5, 6, 4711])
    assert await commit(store, batch) is None
    found = await fetch(store, [6, 10, 5, 2, 1, 4711])
    assert found == [row(10), row(1)]
    contiguous = batch_of(3, deletes=[8, 7, 9])
    assert await commit(store, contiguous) is None
    assert [each.seq for each in cast(Sequence[Row], await fetch(store, range(1, 11)))] == [
        1,
        3,
        4,
        10,
    ]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 300_000])
@ensureDeferred
async def test_bodies_of_any_size_and_octets_come_back(store: Store, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    rows = [
        row(1, body=body),
        row(2, head=b""),
        row(3, body=body[::-1]),
        row(4, head=body, body=b""),
    ]
    await commit(store, insert(Batch(1), *rows))
    assert await fetch(store, [4, 3, 2, 1]) == rows[::-1]


@ensureDeferred
async def test_more_rows_than_a_statement_takes(store: Store) -> None:
    rows = [row(seq, body=b"%d" % seq) for seq in range(1, 2500)]
    await commit(store, insert(Batch(1), *rows))
    assert await fetch(store, range(2499, 0, -1)) == rows[::-1]
    batch = batch_of(2, deletes=range(1, 2500, 2))
    await commit(store, batch)
    assert await fetch(store, range(1, 2500)) == rows[1::2]


@ensureDeferred
async def test_a_fetch_sees_what_was_submitted_before_it(store: Store) -> None:
    told: list[StoreError | None] = []
    store.submit(insert(Batch(1), row(1)), told.append)
    assert await fetch(store, [1]) == [row(1)]
    assert told == [None]


@ensureDeferred
async def test_callbacks_come_in_order_on_the_reactors_thread_never_from_inside_the_call(
    store: Store,
) -> None:
    home = threading.get_ident()
    seen: list[tuple[object, int]] = []
    last: Deferred[None] = Deferred()

    def submit(number: int) -> None:
        def committed(error: StoreError | None) -> None:
            assert not inside
            assert error is None
            seen.append((number, threading.get_ident()))

        store.submit(insert(Batch(number), row(number)), committed)

    inside = True
    for number in range(1, 51):
        submit(number)

    def fetched(rows: object) -> None:
        seen.append(("fetched", threading.get_ident()))
        last.callback(None)

    store.fetch([1], fetched)
    assert seen == []
    inside = False
    await last
    assert seen == [(number, home) for number in range(1, 51)] + [("fetched", home)]


@ensureDeferred
async def test_a_callback_may_submit_again(store: Store) -> None:
    done: Deferred[None] = Deferred()
    numbers: list[int] = []

    def next_one(error: StoreError | None) -> None:
        numbers.append(len(numbers))
        if len(numbers) == 20:
            done.callback(None)
        else:
            store.submit(insert(Batch(len(numbers)), row(len(numbers))), next_one)

    store.submit(insert(Batch(100), row(100)), next_one)
    await done
    assert numbers == list(range(20))


@ensureDeferred
async def test_close_waits_for_what_was_submitted_and_refuses_what_comes_after(make: Make) -> None:
    store = opened(make)
    order: list[object] = []
    for number in range(1, 11):
        store.submit(
            insert(Batch(number), row(number)),
            lambda error, number=number: order.append(number),  # type: ignore[misc]
        )
    closed = close(store)
    with pytest.raises(StoreError):
        store.submit(Batch(11), order.append)
    with pytest.raises(StoreError):
        store.fetch([1], order.append)
    await closed
    assert order == list(range(1, 11))
    with pytest.raises(StoreError):
        store.close(lambda: None)


def test_a_store_that_is_not_open_refuses(make: Make) -> None:
    store = make()
    with pytest.raises(StoreError):
        store.submit(Batch(1), lambda error: None)
    with pytest.raises(StoreError):
        store.fetch([1], lambda rows: None)
    with pytest.raises(StoreError):
        store.close(lambda: None)


@ensureDeferred
async def test_a_seq_used_twice_is_final(store: Store) -> None:
    await commit(store, insert(Batch(1), row(1), row(2)))
    assert isinstance(
        await commit(store, insert(Batch(2), row(2, body=b"another"), row(3))), StoreFailed
    )
    assert isinstance(await commit(store, insert(Batch(3), row(4))), StoreFailed)
    assert isinstance(await fetch(store, [1]), StoreFailed)


@pytest.mark.parametrize("make", KEEPING, indirect=True)
@ensureDeferred
async def test_everything_is_there_after_reopening(make: Make) -> None:
    store = make()
    first = store.open()
    batch = batch_of(
        1,
        *(row(seq) for seq in range(1, 1202)),
        row(2000, persistent=0),
        destinations=[
            DestinationRow(7, 0, "orders", "a=b\n"),
            DestinationRow(8, 1, "prices.*", ""),
        ],
        subscriptions=[SubscriptionRow(3, 8, "client", "dürable", "price > 5", 1)],
        owed=[(3, 1), (4, 1), (3, 2), (3, 2000)],
        redeliveries=[
            RedeliveryRow(0, 5, 2, 17),
            RedeliveryRow(3, 1, 1, 0),
            RedeliveryRow(SCHEDULED, 3, 0, 1 << 44),
            RedeliveryRow(SCHEDULED, 2000, 0, 1 << 44),
        ],
        reserved=100_000,
    )
    await commit(store, batch)
    change = batch_of(
        2,
        destinations=[DestinationRow(7, 0, "orders", "a=c\n")],
        settled=[(4, 1)],
        redeliveries=[RedeliveryRow(0, 5, 3, 18)],
    )
    await commit(store, change)
    await close(store)

    store = make()
    again = store.open()
    assert (again.store_id, again.next_seq) == (first.store_id, 100_000)
    assert again.clean
    assert list(again.destinations) == [
        DestinationRow(7, 0, "orders", "a=c\n"),
        DestinationRow(8, 1, "prices.*", ""),
    ]
    assert list(again.subscriptions) == [SubscriptionRow(3, 8, "client", "dürable", "price > 5", 1)]
    blocks = list(store.scan())
    assert [len(block) for block in blocks] == [500, 500, 201]
    assert [each for block in blocks for each in block] == [
        IndexRow(*row(seq)[:5]) for seq in range(1, 1202)
    ]
    assert [pair for block in store.scan_owed() for pair in block] == [(3, 1), (3, 2)]
    assert [each for block in store.scan_redeliveries() for each in block] == [
        RedeliveryRow(3, 1, 1, 0),
        RedeliveryRow(SCHEDULED, 3, 0, 1 << 44),
        RedeliveryRow(0, 5, 3, 18),
    ]
    await close(store)


@pytest.mark.parametrize("make", KEEPING, indirect=True)
@ensureDeferred
async def test_redelivery_counts_go_with_what_is_deleted_or_settled(make: Make) -> None:
    store = opened(make)
    batch = batch_of(
        1,
        row(1),
        row(2),
        row(3),
        owed=[(9, 3), (8, 3)],
        redeliveries=[RedeliveryRow(*key, 1, 0) for key in [(0, 1), (0, 2), (9, 3), (8, 3)]],
    )
    await commit(store, batch)
    change = batch_of(2, deletes=[1], redeliveries=[RedeliveryRow(9, 3, 2, 0)], settled=[(9, 3)])
    await commit(store, change)
    store = await reopened(make, store)
    found = {(each.owner, each.seq) for block in store.scan_redeliveries() for each in block}
    assert found == {(0, 2), (8, 3)}
    await close(store)


@pytest.mark.parametrize("make", KEEPING, indirect=True)
@ensureDeferred
async def test_duplicate_ids_stay_until_they_are_forgotten_whatever_becomes_of_their_messages(
    make: Make,
) -> None:
    store = opened(make)
    remembered = {
        seq: DuplicateRow(seq, 1 + seq % 3, seq * 1000, b"id \0\xff %d" % seq)
        for seq in range(1, 1302)
    }
    batch = insert(Batch(1), row(1), row(2, persistent=0))
    batch.duplicates.update(remembered)
    assert await commit(store, batch) is None
    change = batch_of(2, deletes=[1], duplicates=[DuplicateRow(5000, 1, 7, b"")])
    # What is remembered and forgotten in one batch is forgotten; so is what never was.
    change.duplicates[5001] = DuplicateRow(5001, 1, 7, b"x")
    change.forgotten.update(dict.fromkeys((2, 3, 1300, 5001, 9999)))
    assert await commit(store, change) is None
    store = await reopened(make, store)
    found = [each for block in store.scan_duplicates() for each in block]
    await close(store)
    assert found == [row for seq, row in remembered.items() if seq not in (2, 3, 1300)] + [
        DuplicateRow(5000, 1, 7, b"")
    ]


@ensureDeferred
async def test_an_id_may_be_removed_while_its_name_comes_back(make: Make) -> None:
    store = opened(make)
    batch = batch_of(
        1,
        destinations=[DestinationRow(1, 0, "orders", "")],
        subscriptions=[SubscriptionRow(1, 1, "client", "durable", "", 0)],
    )
    await commit(store, batch)
    change = batch_of(
        2,
        destinations=[DestinationRow(2, 0, "orders", "")],
        subscriptions=[SubscriptionRow(2, 2, "client", "durable", "x = 1", 0)],
        removed_destinations=[1],
        removed_subscriptions=[1],
    )
    assert await commit(store, change) is None
    await close(store)
    if not isinstance(store, MemoryStore):
        again = make()
        recovered = again.open()
        assert list(recovered.destinations) == [change.destinations[2]]
        assert list(recovered.subscriptions) == [change.subscriptions[2]]
        await close(again)


@pytest.mark.parametrize("make", ["memory"], indirect=True)
@ensureDeferred
async def test_the_memory_store_keeps_nothing(make: Make) -> None:
    store = make()
    first = store.open()
    batch = batch_of(1, row(1), row(2), owed=[(1, 2)])
    await commit(store, batch)
    await close(store)
    second = store.open()
    assert second.store_id != first.store_id
    assert [*store.scan(), *store.scan_owed(), await fetch(store, [1, 2])] == [[]]
    await close(store)


@pytest.mark.parametrize("make", ["memory"], indirect=True)
@ensureDeferred
async def test_a_callback_that_raises_does_not_stop_the_others(make: Make) -> None:
    store = opened(make)

    def defective(error: StoreError | None) -> None:
        raise ZeroDivisionError

    store.submit(insert(Batch(1), row(1)), defective)
    assert await commit(store, insert(Batch(2), row(2))) is None
    await close(store)
