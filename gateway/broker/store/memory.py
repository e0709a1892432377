"""A store without a disk, whose rows are gone with the process.

To the broker it behaves like :mod:`gateway.broker.store.sqlite`.

Owns the rows of messages and the order of the callbacks. Knows nothing of files, threads or of what
a row means.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from twisted.internet.interfaces import IReactorTime

from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    Committed,
    DuplicateRow,
    IndexRow,
    Recovered,
    RedeliveryRow,
    Row,
    StoreDamaged,
    StoreError,
    StoreFailed,
)


class MemoryStore:
    """Keeps rows in memory, for ``imq.persist.store=memory``.

    Implements :class:`~gateway.broker.store.interface.Store`.

    Only messages are kept, to be fetched: everything else is read at the next start, and this store
    is empty then. Whether a row is persistent makes no difference here.

    :param reactor: calls ``committed``, ``fetched`` and ``closed``, in the order asked, in its next
        turn.
    """

    #: There is no disk to fill.
    largest: Final = sys.maxsize

    def __init__(self, reactor: IReactorTime) -> None:
        self.on_damaged: Callable[[StoreDamaged], None] | None = None
        self.on_failed: Callable[[StoreFailed], None] | None = None
        self.on_full: Callable[[bool], None] | None = None
        self.on_reachable: Callable[[bool], None] | None = None
        self.on_owned: Callable[[float], None] | None = None
        self._reactor = reactor
        self._rows: dict[int, Row] = {}
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
            store_id=os.urandom(8).hex(),
            next_seq=1,
            clean=True,
            destinations=[],
            subscriptions=[],
            notes=[],
        )

    def scan(self) -> Iterator[Sequence[IndexRow]]:
        return iter(())

    def scan_owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        return iter(())

    def scan_redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        return iter(())

    def scan_duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        return iter(())

    def scan_branches(self) -> Iterator[Sequence[BranchRow]]:
        return iter(())

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
            self._rows.update(batch.inserts)
            for seq in batch.deletes:
                self._rows.pop(seq, None)
        self._later(lambda: committed(failure))

    def fetch(
        self,
        seqs: Sequence[int],
        fetched: Callable[[Sequence[Row] | StoreError], None],
        *,
        in_order: bool = False,
    ) -> None:
        self._check_open()
        rows = self._failure or [self._rows[seq] for seq in seqs if seq in self._rows]
        self._later(lambda: fetched(rows))

    def close(self, closed: Callable[[], None]) -> None:
        self._check_open()
        self._open = False
        self._failure = None
        self._rows.clear()
        self._later(closed)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("the memory store is not open")

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
