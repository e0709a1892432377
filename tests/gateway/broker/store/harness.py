"""What the store's tests share: a reactor of one queue, a model of what is stored, and the reading
of everything there is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Queue
from time import monotonic
from typing import Any, cast

from twisted.internet.interfaces import IReactorFromThreads

from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    DestinationRow,
    DuplicateRow,
    IndexRow,
    Recovered,
    RedeliveryRow,
    Row,
    Store,
    StoreError,
    SubscriptionRow,
)


class QueueReactor:
    """Calls what threads ask for when the test waits for something, on the test's thread."""

    def __init__(self) -> None:
        self._calls: Queue[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = Queue()
        self._home = threading.get_ident()
        self._open: list[Store] = []

    def callFromThread(self, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        self._calls.put((call, args, kwargs))

    def until(self, done: Callable[[], bool]) -> None:
        """Call until it is so; a store that says nothing for a minute hangs.

        One that says other things for three minutes does, too.
        """
        assert threading.get_ident() == self._home
        deadline = monotonic() + 180
        while not done():
            assert monotonic() < deadline, "it is still not so"
            call, args, kwargs = self._calls.get(timeout=60)
            call(*args, **kwargs)

    def turn(self) -> int:
        """Do the calls that are there, without waiting. Returns how many."""
        count = 0
        while not self._calls.empty():
            call, args, kwargs = self._calls.get()
            call(*args, **kwargs)
            count += 1
        return count

    @property
    def reactor(self) -> IReactorFromThreads:
        return cast(IReactorFromThreads, self)

    # A store's callbacks, awaited.

    def commit(self, store: Store, batch: Batch) -> StoreError | None:
        results: list[StoreError | None] = []
        store.submit(batch, results.append)
        self.until(lambda: bool(results))
        return results[0]

    def fetch(self, store: Store, seqs: Sequence[int]) -> Sequence[Row] | StoreError:
        results: list[Sequence[Row] | StoreError] = []
        store.fetch(seqs, results.append)
        self.until(lambda: bool(results))
        return results[0]

    def close(self, store: Store) -> None:
        results: list[None] = []
        store.close(lambda: results.append(None))
        self.until(lambda: bool(results))
        if store in self._open:
            self._open.remove(store)

    def close_later(self, store: Store) -> None:
        """Have :meth:`close_all` close this store unless it is closed before."""
        self._open.append(store)

    def close_all(self) -> None:
        for store in list(self._open):
            self.close(store)


class Model:
    """What a store must hold, as dictionaries."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.owed: set[tuple[int, int]] = set()
        self.redeliveries: dict[tuple[int, int], RedeliveryRow] = {}
        self.destinations: dict[int, DestinationRow] = {}
        self.subscriptions: dict[int, SubscriptionRow] = {}
        self.duplicates: dict[int, DuplicateRow] = {}
        self.branches: dict[int, BranchRow] = {}

    def apply(self, batch: Batch) -> None:
        self.destinations.update(batch.destinations)
        self.subscriptions.update(batch.subscriptions)
        self.rows.update(batch.inserts)
        self.owed.update(batch.owed)
        self.redeliveries.update(batch.redeliveries)
        for pair in batch.settled:
            self.owed.discard(pair)
            self.redeliveries.pop(pair, None)
        for seq in batch.deletes:
            self.rows.pop(seq, None)
            for pair in [pair for pair in self.redeliveries if pair[1] == seq]:
                del self.redeliveries[pair]
        for subscription in batch.removed_subscriptions:
            self.subscriptions.pop(subscription, None)
        self.owed = {pair for pair in self.owed if pair[0] not in batch.removed_subscriptions}
        for destination in batch.removed_destinations:
            self.destinations.pop(destination, None)
        self.duplicates.update(batch.duplicates)
        for seq in batch.forgotten:
            self.duplicates.pop(seq, None)
        self.branches.update(batch.branches)
        for branch in batch.removed_branches:
            self.branches.pop(branch, None)

    def restart(self) -> None:
        """What is not persistent is gone, with all that names it."""
        gone = {seq for seq, row in self.rows.items() if not row.persistent}
        self.rows = {seq: row for seq, row in self.rows.items() if seq not in gone}
        self.owed = {pair for pair in self.owed if pair[1] not in gone}
        self.redeliveries = {
            pair: row for pair, row in self.redeliveries.items() if pair[1] not in gone
        }

    def copy(self) -> Model:
        other = Model()
        other.rows = dict(self.rows)
        other.owed = set(self.owed)
        other.redeliveries = dict(self.redeliveries)
        other.destinations = dict(self.destinations)
        other.subscriptions = dict(self.subscriptions)
        other.duplicates = dict(self.duplicates)
        other.branches = dict(self.branches)
        return other

    def contents(self) -> dict[str, object]:
        return {
            "index": [IndexRow(*row[:5]) for _, row in sorted(self.rows.items())],
            "rows": [row for _, row in sorted(self.rows.items())],
            "owed": sorted(self.owed, key=lambda pair: (pair[1], pair[0])),
            "redeliveries": [
                row
                for _, row in sorted(
                    self.redeliveries.items(), key=lambda item: (item[0][1], item[0][0])
                )
            ],
            "destinations": [row for _, row in sorted(self.destinations.items())],
            "subscriptions": [row for _, row in sorted(self.subscriptions.items())],
            "duplicates": sorted(self.duplicates.values()),
            "branches": sorted(self.branches.values()),
        }


def contents(reactor: QueueReactor, store: Store, recovered: Recovered) -> dict[str, object]:
    """Everything a store that was just opened holds, in the shape of :meth:`Model.contents`."""
    index = [row for block in store.scan() for row in block]
    owed = [pair for block in store.scan_owed() for pair in block]
    redeliveries = [row for block in store.scan_redeliveries() for row in block]
    duplicates = [row for block in store.scan_duplicates() for row in block]
    branches = [row for block in store.scan_branches() for row in block]
    rows = reactor.fetch(store, [row.seq for row in index])
    assert not isinstance(rows, StoreError), rows
    return {
        "index": index,
        "rows": list(rows),
        "owed": owed,
        "redeliveries": redeliveries,
        "destinations": list(recovered.destinations),
        "subscriptions": list(recovered.subscriptions),
        "duplicates": duplicates,
        "branches": branches,
    }


def row(
    seq: int,
    *,
    destination: int = 1,
    persistent: int = 1,
    head: bytes = b"head",
    body: bytes = b"body",
) -> Row:
    return Row(seq, destination, 4, 0, len(head) + len(body), persistent, head, body)


def insert(batch: Batch, *rows: Row) -> Batch:
    """Add rows as the broker does."""
    for each in rows:
        batch.inserts[each.seq] = each
        batch.octets += len(each.head) + len(each.body)
        batch.operations += 1
    return batch


def batch_of(
    number: int,
    *rows: Row,
    destinations: Iterable[DestinationRow] = (),
    subscriptions: Iterable[SubscriptionRow] = (),
    owed: Iterable[tuple[int, int]] = (),
    redeliveries: Iterable[RedeliveryRow] = (),
    settled: Iterable[tuple[int, int]] = (),
    deletes: Iterable[int] = (),
    duplicates: Iterable[DuplicateRow] = (),
    forgotten: Iterable[int] = (),
    branches: Iterable[BranchRow] = (),
    removed_destinations: Iterable[int] = (),
    removed_subscriptions: Iterable[int] = (),
    reserved: int = 0,
) -> Batch:
    """A batch that inserts these rows and has these changes."""
    batch = insert(Batch(number), *rows)
    batch.destinations.update({each.id: each for each in destinations})
    batch.subscriptions.update({each.id: each for each in subscriptions})
    batch.duplicates.update({each.seq: each for each in duplicates})
    batch.branches.update({each.id: each for each in branches})
    batch.redeliveries.update({(each.owner, each.seq): each for each in redeliveries})
    batch.owed.update(dict.fromkeys(owed))
    batch.settled.update(dict.fromkeys(settled))
    for keys, gone in (
        (batch.deletes, deletes),
        (batch.forgotten, forgotten),
        (batch.removed_destinations, removed_destinations),
        (batch.removed_subscriptions, removed_subscriptions),
    ):
        keys.update(dict.fromkeys(gone))
    batch.reserved = reserved
    return batch


class History:
    """An endless, reproducible run of batches: the same seed gives the same batches, in the writing
    process and in the one that checks.

    :attr:`states` has what the store must hold after each batch; ``states[0]`` is the empty store,
    batches count from 1.
    """

    def __init__(self, seed: int, *, largest_body: int = 3000) -> None:
        self._random = random.Random(seed)
        self._largest_body = largest_body
        self._seq = 0
        self.states = [Model()]

    def next(self) -> Batch:
        number = len(self.states)
        state = self.states[-1].copy()
        batch = Batch(number)
        choose = self._random
        if number == 1:
            batch.destinations[1] = DestinationRow(1, 0, "orders", "maxNumMsgs=5\n")
            batch.subscriptions[1] = SubscriptionRow(1, 2, "client", "durable", "a = 'b'", 1)
        old = sorted(state.rows)
        for _ in range(choose.choice((1, 1, 3, 20))):
            self._seq += choose.choice((1, 1, 1, 5))
            body = choose.randbytes(choose.choice((0, 10, 100, self._largest_body)))
            insert(
                batch,
                row(
                    self._seq,
                    persistent=int(choose.random() < 0.9),
                    head=choose.randbytes(20),
                    body=body,
                ),
            )
            if choose.random() < 0.3:
                batch.owed[1, self._seq] = None
        for seq in choose.sample(old, min(len(old), choose.choice((0, 1, 15)))):
            batch.deletes[seq] = None
            if (1, seq) in state.owed:
                batch.settled[1, seq] = None
        for seq in choose.sample(old, min(len(old), choose.choice((0, 0, 2)))):
            if seq not in batch.deletes:
                batch.redeliveries[0, seq] = RedeliveryRow(0, seq, choose.randrange(1, 9), 0)
        for seq in list(batch.inserts):
            if seq % 3 == 0:
                batch.duplicates[seq] = DuplicateRow(seq, 1, number, f"id {seq}".encode())
        if number % 5 == 0:
            batch.forgotten.update(dict.fromkeys(sorted(state.duplicates)[:4]))
        for _ in range(choose.choice((0, 0, 1, 2))):
            id = number * 10 + len(batch.branches)
            # Mostly numbers, as the rows of messages are; the search for those must not take it for
            # one.
            batch.branches[id] = BranchRow(
                id,
                number,
                b"global %d" % id,
                b"branch",
                0,
                number,
                "guest",
                choose.randbytes(self._seq % 300),
            )
        for id in choose.sample(
            sorted(state.branches), min(len(state.branches), choose.choice((0, 1, 2)))
        ):
            if choose.random() < 0.3:
                batch.branches[id] = state.branches[id]._replace(
                    state=choose.choice((6, 7)), work=b""
                )
            else:
                batch.removed_branches[id] = None
        batch.reserved = self._seq + 1
        state.apply(batch)
        self.states.append(state)
        return batch

    def after_restart(self, number: int) -> dict[str, object]:
        state = self.states[number].copy()
        state.restart()
        return state.contents()
