"""A store whose commits happen when a test says so, and whose process a test can crash."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    Committed,
    DestinationRow,
    DuplicateRow,
    IndexRow,
    Recovered,
    RedeliveryRow,
    Row,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    SubscriptionRow,
)


@dataclass
class Disk:
    """What survives."""

    destinations: dict[int, DestinationRow] = field(default_factory=dict)
    subscriptions: dict[int, SubscriptionRow] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    owed: set[tuple[int, int]] = field(default_factory=set)
    redeliveries: dict[tuple[int, int], RedeliveryRow] = field(default_factory=dict)
    duplicates: dict[int, DuplicateRow] = field(default_factory=dict)
    branches: dict[int, BranchRow] = field(default_factory=dict)
    #: Seqs of messages that cannot be read.
    damaged: set[int] = field(default_factory=set)
    next_seq: int = 1


class StepStore:
    """A store over a disk; :meth:`step` does the next thing that was asked."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.largest = sys.maxsize
        self.full = False
        self.on_damaged: Callable[[StoreDamaged], None] | None = None
        self.on_failed: Callable[[StoreFailed], None] | None = None
        self.on_full: Callable[[bool], None] | None = None
        self.on_reachable: Callable[[bool], None] | None = None
        self.on_owned: Callable[[float], None] | None = None
        self.closed = False
        #: Nothing is answered until it is again.
        self.reachable = True
        #: Reads that were asked for.
        self.fetches = 0
        self._asked: list[
            tuple[Batch, Committed]
            | tuple[Sequence[int], Callable[[Sequence[Row] | StoreError], None]]
        ] = []

    # --- the interface

    def open(self) -> Recovered:
        gone = {seq for seq, row in self.disk.rows.items() if not row.persistent}
        self.disk.rows = {seq: row for seq, row in self.disk.rows.items() if seq not in gone}
        self.disk.redeliveries = {
            pair: row for pair, row in self.disk.redeliveries.items() if pair[1] not in gone
        }
        return Recovered(
            "step",
            self.disk.next_seq,
            False,
            list(self.disk.destinations.values()),
            list(self.disk.subscriptions.values()),
            [],
            "the disk",
        )

    def scan(self) -> Iterator[Sequence[IndexRow]]:
        for seq in sorted(self.disk.rows):
            row = self.disk.rows[seq]
            yield [IndexRow(row.seq, row.destination, row.priority, row.expires, row.size)]

    def scan_owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        yield sorted(self.disk.owed, key=lambda pair: pair[1])

    def scan_redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        yield sorted(self.disk.redeliveries.values(), key=lambda row: (row.seq, row.owner))

    def scan_duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        if self.disk.duplicates:
            yield sorted(self.disk.duplicates.values())

    def scan_branches(self) -> Iterator[Sequence[BranchRow]]:
        yield sorted(self.disk.branches.values())

    def measure(self) -> int:
        return self.largest

    def submit(self, batch: Batch, committed: Committed) -> None:
        if self.closed:
            raise StoreError("the test's disk is not open")
        self._asked.append((batch, committed))

    def fetch(
        self,
        seqs: Sequence[int],
        fetched: Callable[[Sequence[Row] | StoreError], None],
        *,
        in_order: bool = False,
    ) -> None:
        self.fetches += 1
        self._asked.append((seqs, fetched))

    def close(self, closed: Callable[[], None]) -> None:
        self.closed = True
        closed()

    # --- the test's side

    @property
    def busy(self) -> bool:
        """Whether there is something to do that can be done now."""
        return self.reachable and bool(self._asked)

    @property
    def asked(self) -> int:
        """How many things are still to do."""
        return len(self._asked)

    def step(self, full: bool = False, no_room: bool = False) -> None:
        """Do the next thing; with ``full`` a batch that holds inserts does not fit, with
        ``no_room`` none does.
        """
        assert self.reachable, "the database is out of reach"
        what, answer = self._asked.pop(0)
        if not isinstance(what, Batch):
            for seq in self.disk.damaged.intersection(what):
                destination = self.disk.rows[seq].destination if len(what) == 1 else None
                error = StoreDamaged(
                    "the disk",
                    f"message {seq}",
                    "its checksum is wrong",
                    seq=seq,
                    destination=destination,
                )
                answer(error)
                return
            answer([self.disk.rows[seq] for seq in what if seq in self.disk.rows])  # type: ignore[arg-type]
        elif no_room or (full and what.inserts):
            self.fill()
            answer(StoreFull("the test's disk is full"))
        else:
            self._apply(what)
            answer(None)  # type: ignore[arg-type]

    def lose_reach(self) -> None:
        """The database cannot be reached."""
        self._set_reachable(False)

    def reach(self) -> None:
        """The database is reached again."""
        self._set_reachable(True)

    def _set_reachable(self, reachable: bool) -> None:
        self.reachable = reachable
        assert self.on_reachable is not None
        self.on_reachable(reachable)

    def fill(self) -> None:
        """The disk is full."""
        self._set_full(True)

    def make_room(self) -> None:
        """The disk has room again."""
        self._set_full(False)

    def _set_full(self, full: bool) -> None:
        if self.full != full:
            self.full = full
            assert self.on_full is not None
            self.on_full(full)

    def fail(self) -> None:
        """The next thing fails for good."""
        self.reachable = True
        _, answer = self._asked.pop(0)
        answer(StoreFailed("the test's disk is broken"))

    def _apply(self, batch: Batch) -> None:
        disk = self.disk
        assert not batch.inserts.keys() & batch.deletes.keys()
        disk.destinations.update(batch.destinations)
        disk.subscriptions.update(batch.subscriptions)
        for seq, row in batch.inserts.items():
            assert seq not in disk.rows, "a seq was used twice"
            assert row.destination in disk.destinations, "a message without its destination"
            disk.rows[seq] = row
        for pair in batch.owed:
            assert pair[1] in disk.rows
            disk.owed.add(pair)
        disk.redeliveries.update(batch.redeliveries)
        for pair in batch.settled:
            disk.owed.discard(pair)
            disk.redeliveries.pop(pair, None)
        for seq in batch.deletes:
            disk.rows.pop(seq, None)
        if batch.deletes:
            disk.redeliveries = {
                pair: row for pair, row in disk.redeliveries.items() if pair[1] not in batch.deletes
            }
        for number in batch.removed_subscriptions:
            disk.subscriptions.pop(number, None)
        disk.owed = {pair for pair in disk.owed if pair[0] not in batch.removed_subscriptions}
        for number in batch.removed_destinations:
            disk.destinations.pop(number, None)
        for seq, duplicate in batch.duplicates.items():
            assert seq not in disk.duplicates, "a duplicate id was stored twice"
            disk.duplicates[seq] = duplicate
        for seq in batch.forgotten:
            disk.duplicates.pop(seq, None)
        disk.branches.update(batch.branches)
        for branch in batch.removed_branches:
            assert branch in disk.branches, "a branch was removed twice"
            del disk.branches[branch]
        disk.next_seq = max(disk.next_seq, batch.reserved)
        self._check_whole()

    def _check_whole(self) -> None:
        """What a start refuses as damage is never written, not even for a moment."""
        disk = self.disk
        for seq, row in disk.rows.items():
            assert not row.persistent or row.destination in disk.destinations, (
                f"message {seq} without its destination"
            )
        for subscription in disk.subscriptions.values():
            assert subscription.destination in disk.destinations, (
                f"subscription {subscription.id} without its destination"
            )
        for number, seq in disk.owed:
            assert seq in disk.rows, f"subscription {number} is owed message {seq}, which is gone"
            assert number in disk.subscriptions, (
                f"message {seq} is owed to subscription {number}, which is gone"
            )
