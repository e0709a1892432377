"""What a full disk delays: inserts, and what belongs together with them.

While the disk is full, inserts gather in a batch of their own, with the rest of their transaction,
or with the original of a dead message. When there is room again this batch is written, behind all
that was asked before. Until then a message in it that is settled is left out of it, as always.
Nothing that memory did is undone.

Owns which changes wait for room. When the disk is full, and when batches go to the store, is
:mod:`gateway.broker.durability.commit`'s business.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from gateway.broker.durability.batch import REMOVED, PendingBatch


class DelayedInserts:
    """The inserts that wait for room on the disk, or did."""

    def __init__(self) -> None:
        #: The batch that waits for room; None when nothing does.
        self.waiting: PendingBatch | None = None
        #: That one, and those that have waited and are not durable yet.
        self.batches: list[PendingBatch] = []

    def stored(self, durable: int) -> int:
        """Return the number up to which batches are durable with all inserts.

        :param durable: that up to which they are without those that were delayed.
        """
        return min([durable, *[batch.inserts_from - 1 for batch in self.batches]])

    def has_inserts_of(self, number: int) -> bool:
        """Whether inserts asked for in this batch are here."""
        return any(batch.inserts_from <= number <= batch.inserts_to for batch in self.batches)

    # --- the batch that a change belongs to

    def for_insert(self, number: int) -> PendingBatch:
        """Return the batch for what needs room.

        :param number: of the batch that gathers what needs none.
        """
        waiting = self.waiting
        if waiting is None:
            waiting = self.waiting = PendingBatch(number)
            waiting.inserts_to = sys.maxsize
            self.batches.append(waiting)
        return waiting

    def of(self, seq: int, gathering: PendingBatch) -> PendingBatch:
        """Return the batch for changes of this message: that of its insert."""
        waiting = self.waiting
        if waiting is not None and seq in waiting.batch.inserts:
            return waiting
        return gathering

    def tie(self, seq: int, gathering: PendingBatch) -> PendingBatch:
        """Return the batch for the end of a message to which inserts belong.

        The end must not be durable before they are.
        """
        pending = self.waiting or gathering
        pending.tied_deletes.add(seq)
        return pending

    def of_removal(self, gathering: PendingBatch) -> PendingBatch:
        """Return the batch for the removal of a destination or subscription."""
        waiting = self.waiting
        return waiting if waiting is not None and waiting.holds_back_removals() else gathering

    # --- the disk

    def divide(
        self, failed: PendingBatch | None, sealed: Iterable[PendingBatch], gathering: PendingBatch
    ) -> tuple[PendingBatch, int]:
        """Take the inserts that are not durable, with what belongs to them.

        :param failed: the batch that has found no room, whose inserts come first.
        :returns: the rest, to gather in, and the bytes of inserts that are deleted by it.
        """
        number = gathering.batch.number
        waits, ahead = PendingBatch(number), PendingBatch(number)
        parts = [part for part in (failed, self.waiting, *sealed, gathering) if part is not None]
        waits.inserts_from = min([part.inserts_from for part in parts])
        waits.inserts_to = sys.maxsize
        ahead.covers_from = min([part.covers_from for part in parts if part is not self.waiting])
        octets = sum([_divide(part, waits, ahead, part is self.waiting) for part in parts])
        self.batches = [batch for batch in self.batches if batch not in parts]
        self.waiting = None if waits.empty else waits
        if not waits.empty:
            self.batches.append(waits)
        return ahead, octets

    def release(self, number: int) -> PendingBatch:
        """Return what waits, to be written as the batch of this number."""
        waiting = self.waiting
        assert waiting is not None
        self.waiting = None
        waiting.batch.number = waiting.covers_from = waiting.inserts_to = number
        return waiting

    def is_durable(self, batch: PendingBatch) -> None:
        """It waits no longer, if it did."""
        if batch in self.batches:
            self.batches.remove(batch)


def _divide(part: PendingBatch, waits: PendingBatch, ahead: PendingBatch, whole: bool) -> int:
    """Move what needs room to ``waits``, the rest to ``ahead``.

    What belongs with an insert goes to ``waits``, too, behind what is there.

    :param waits: has this already of earlier batches.
    :param whole: all of the part belongs to ``waits``.
    :returns: the bytes of inserts that ``waits`` no longer has, because the part deletes them.
    """
    batch, waiting = part.batch, waits.batch
    waits.tied_deletes |= part.tied_deletes
    waits.tied_settlements |= part.tied_settlements
    waits.tied_branches |= part.tied_branches
    tied = waits.tied_deletes
    later = waits if whole else ahead
    octets = 0
    waiting.inserts.update(batch.inserts)
    waits.messages.update(part.messages)
    waiting.octets += batch.octets
    inserts = waiting.inserts
    for pair in batch.owed:
        (waits if pair[1] in inserts else later).batch.owed[pair] = None
    for pair, count in batch.redeliveries.items():
        (waits if pair[1] in inserts else ahead).batch.redeliveries[pair] = count
    # An insert is never deleted by its own batch, so these are of earlier ones.
    for seq in batch.deletes:
        cancelled = waits.cancel_insert(seq)
        if cancelled >= 0:
            octets += cancelled
        else:
            (waits if seq in tied else later).batch.deletes[seq] = None
    for pair in batch.settled:
        if pair in waiting.owed:
            del waiting.owed[pair]
            waiting.redeliveries.pop(pair, None)
        else:
            (waits if pair in waits.tied_settlements else later).batch.settled[pair] = None
    _divide_destinations(part, waits, ahead)
    waiting.duplicates.update(batch.duplicates)
    for seq in batch.forgotten:
        if waiting.duplicates.pop(seq, None) is None:
            later.batch.forgotten[seq] = None
    for id, branch in batch.branches.items():
        (waits if id in part.tied_branches else later).batch.branches[id] = branch
    later.batch.removed_branches.update(batch.removed_branches)
    ahead.batch.reserved = max(ahead.batch.reserved, batch.reserved)
    for waiter, inserted in part.waiters:
        (waits if inserted else later).waiters.append((waiter, inserted))
    (waits if batch.inserts or part.tied_deletes else later).after.extend(part.after)
    ahead.batch.operations += batch.operations
    return octets


def _divide_destinations(part: PendingBatch, waits: PendingBatch, ahead: PendingBatch) -> None:
    """Divide the rows of destinations and subscriptions.

    They go ahead of the messages that need them; their removal waits for messages that may need
    them.
    """
    batch = part.batch
    hold_back = waits.holds_back_removals()
    for number, destination in batch.destinations.items():
        removed = hold_back and destination.administered == REMOVED
        (waits if removed else ahead).batch.destinations[number] = destination
    ahead.batch.subscriptions.update(batch.subscriptions)
    removing = (waits if hold_back else ahead).batch
    removing.removed_destinations.update(batch.removed_destinations)
    removing.removed_subscriptions.update(batch.removed_subscriptions)
