"""A store without a disk, whose rows are gone with the process.

It behaves like :mod:`gateway.broker.store.sqlite`.

Owns the rows in dictionaries and the order of the callbacks. Knows nothing of files, threads or of
what a row means.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

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
    SubscriptionRow,
)

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

_BLOCK: Final = 500


class MemoryStore:
    """Keeps rows in memory, for ``imq.persist.store=memory``.

    Implements :class:`~gateway.broker.store.interface.Store`.

    Whether a row is persistent makes no difference here: all are gone with the process.

    :param reactor: calls ``committed``, ``fetched`` and ``closed``, in the order asked, in its next
        turn.
    :param random_bytes: where the store id comes from.
    """

    #: There is no disk to fill.
    largest: Final = sys.maxsize

    def __init__(
        self, reactor: IReactorTime, *, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.on_damaged: Callable[[StoreDamaged], None] | None = None
        self.on_failed: Callable[[StoreFailed], None] | None = None
        self.on_full: Callable[[bool], None] | None = None
        self._reactor = reactor
        self._random_bytes = random_bytes
        self._destinations: dict[int, DestinationRow] = {}
        self._subscriptions: dict[int, SubscriptionRow] = {}
        self._rows: dict[int, Row] = {}
        self._owed: set[tuple[int, int]] = set()
        # By seq, then owner: a deleted message takes all its counts along.
        self._redeliveries: dict[int, dict[int, RedeliveryRow]] = {}
        self._duplicates: dict[int, DuplicateRow] = {}
        self._branches: dict[int, BranchRow] = {}
        self._due: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._failure: StoreFailed | None = None
        self._open = False

    def measure(self) -> int:
        return self.largest

    def open(self) -> Recovered:
        """Open an empty store with an id of its own.

        :raises StoreError: it is already open.
        """
        if self._open:
            raise StoreError("the memory store is open already")
        self._open = True
        return Recovered(
            store_id=self._random_bytes(8).hex(),
            next_seq=1,
            clean=True,
            destinations=[],
            subscriptions=[],
            notes=[],
        )

    def scan(self) -> Iterator[Sequence[IndexRow]]:
        """The narrow part of every message by rising seq.

        Comes in blocks of at most 500.
        """
        rows = iter([IndexRow._make(self._rows[seq][:5]) for seq in sorted(self._rows)])
        while block := list(islice(rows, _BLOCK)):
            yield block

    def scan_owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        """(subscription id, seq) of everything owed, by rising seq.

        Comes in blocks of at most 500.
        """
        pairs = iter(sorted(self._owed, key=lambda pair: (pair[1], pair[0])))
        while block := list(islice(pairs, _BLOCK)):
            yield block

    def scan_redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        """Redelivery counts by rising seq, in blocks of at most 500."""
        rows = iter(
            [
                owners[owner]
                for _, owners in sorted(self._redeliveries.items())
                for owner in sorted(owners)
            ]
        )
        while block := list(islice(rows, _BLOCK)):
            yield block

    def scan_duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        """Remembered duplicate ids by rising seq, in blocks of at most 500."""
        rows = iter(sorted(self._duplicates.values()))
        while block := list(islice(rows, _BLOCK)):
            yield block

    def scan_branches(self) -> Iterator[Sequence[BranchRow]]:
        """Transaction branches by rising id, in blocks of at most 500."""
        rows = iter(sorted(self._branches.values()))
        while block := list(islice(rows, _BLOCK)):
            yield block

    def submit(self, batch: Batch, committed: Committed) -> None:
        """Take the batch; ``committed`` is called in a later turn of the reactor.

        It gets None, or StoreFailed when a message was there already, as with :class:`SqliteStore`:
        final, the caller is at fault.

        :raises StoreError: the store is not open.
        """
        self._check_open()
        if self._failure is None and not self._rows.keys().isdisjoint(batch.inserts):
            twice = min(self._rows.keys() & batch.inserts.keys())
            self._failure = StoreFailed(f"the memory store has a message {twice} already")
        failure = self._failure
        if failure is None:
            self._apply(batch)
        self._later(lambda: committed(failure))

    def fetch(
        self,
        seqs: Sequence[int],
        fetched: Callable[[Sequence[Row] | StoreError], None],
        *,
        in_order: bool = False,
    ) -> None:
        """Read messages in the order asked, as they are now.

        Messages that are gone are left out.

        :raises StoreError: the store is not open.
        """
        self._check_open()
        rows = self._failure or [self._rows[seq] for seq in seqs if seq in self._rows]
        self._later(lambda: fetched(rows))

    def close(self, closed: Callable[[], None]) -> None:
        """Forget everything.

        ``closed`` follows after the callbacks of what was asked before.

        :raises StoreError: it is not open.
        """
        self._check_open()
        self._open = False
        self._failure = None
        for kept in (
            self._destinations,
            self._subscriptions,
            self._rows,
            self._owed,
            self._redeliveries,
            self._duplicates,
            self._branches,
        ):
            kept.clear()
        self._later(closed)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("the memory store is not open")

    def _apply(self, batch: Batch) -> None:
        self._destinations.update(batch.destinations)
        self._subscriptions.update(batch.subscriptions)
        self._rows.update(batch.inserts)
        self._owed.update(batch.owed)
        self._owed.difference_update(batch.settled)
        redeliveries = self._redeliveries
        if redeliveries:
            for subscription, seq in batch.settled:
                owners = redeliveries.get(seq)
                if owners is not None and owners.pop(subscription, None) is not None and not owners:
                    del redeliveries[seq]
        for (owner, seq), redelivery in batch.redeliveries.items():
            redeliveries.setdefault(seq, {})[owner] = redelivery
        for seq in batch.deletes:
            self._rows.pop(seq, None)
            redeliveries.pop(seq, None)
        for subscription in batch.removed_subscriptions:
            self._subscriptions.pop(subscription, None)
        if batch.removed_subscriptions:
            self._owed = {pair for pair in self._owed if pair[0] not in batch.removed_subscriptions}
        for destination in batch.removed_destinations:
            self._destinations.pop(destination, None)
        self._duplicates.update(batch.duplicates)
        for seq in batch.forgotten:
            self._duplicates.pop(seq, None)
        self._branches.update(batch.branches)
        for branch in batch.removed_branches:
            self._branches.pop(branch, None)

    def _later(self, call: Callable[[], None]) -> None:
        self._due.append(call)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._reactor.callLater(0, self._call_due)

    def _call_due(self) -> None:
        self._scheduled = False
        # Calls that these calls ask for wait for the next turn, so that the reactor gets its own.
        for _ in range(len(self._due)):
            call = self._due.popleft()
            try:
                call()
            except BaseException:
                # The reactor logs it; what is left comes in the next turn.
                if self._due and not self._scheduled:
                    self._schedule()
                raise
