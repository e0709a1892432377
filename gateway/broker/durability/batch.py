"""A batch of changes that is not durable yet, and its callbacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from twisted.logger import Logger

from gateway.broker.store.interface import Batch, Row, StoreError
from gateway.messaging.envelope import encode_head
from gateway.messaging.message import Message

_log: Final = Logger(namespace="gateway.broker")

#: Told once when its batch is durable (None) or the store has failed for good.
Waiter: TypeAlias = Callable[[StoreError | None], None]

#: What ``administered`` is in the row of a destination that was removed.
REMOVED: Final = 2


class PendingBatch:
    """What one commit is made of.

    :param number: its commit number.
    """

    __slots__ = (
        "after",
        "batch",
        "bound",
        "bound_branches",
        "bound_pairs",
        "first",
        "last",
        "messages",
        "since",
        "waiters",
    )

    def __init__(self, number: int) -> None:
        self.batch = Batch(number)
        #: It has the inserts of the batches with these numbers, which are several if it has waited
        #: for room on the disk.
        self.first = number
        self.last = number
        #: All else that was asked for while batches from this number on gathered is here. Less than
        #: its own number where those before it found no room and are in it.
        self.since = number
        #: Whom to tell, and whether they wait for inserts.
        self.waiters: list[tuple[Waiter, bool]] = []
        #: The whole messages behind ``batch.inserts``, until they can be read from the store.
        self.messages: dict[int, Message] = {}
        #: Called when the batch is durable, before its waiters are told.
        self.after: list[Callable[[], None]] = []
        #: Seqs of messages that are deleted or settled together with inserts, as in a transaction;
        #: which pairs are settled so, and which branches stored.
        self.bound: set[int] = set()
        self.bound_pairs: set[tuple[int, int]] = set()
        self.bound_branches: set[int] = set()

    def insert(self, message: Message, destination: int, persistent: bool) -> int:
        """Store a message, which has a seq. :returns: the bytes of its row."""
        head = encode_head(message)
        body = message.body
        octets = len(head) + len(body)
        headers = message.headers
        batch = self.batch
        batch.inserts[message.seq] = Row(
            message.seq,
            destination,
            headers.priority,
            message.expires,
            message.size,
            1 if persistent else 0,
            head,
            body,
        )
        self.messages[message.seq] = message
        batch.octets += octets
        return octets

    def elide(self, seq: int) -> int:
        """Leave out the insert of a message that is gone.

        :returns: the bytes of its row; -1 when the insert is not here.
        """
        batch = self.batch
        row = batch.inserts.pop(seq, None)
        if row is None:
            return -1
        self.messages.pop(seq, None)
        octets = len(row.head) + len(row.body)
        batch.octets -= octets
        if batch.redeliveries:
            for key in [key for key in batch.redeliveries if key[1] == seq]:
                del batch.redeliveries[key]
        return octets

    @property
    def empty(self) -> bool:
        """Whether it changes nothing, and no caller waits for it."""
        return not (self.batch or self.waiters or self.after)

    @property
    def removes_places(self) -> bool:
        """Whether destinations or subscriptions are removed."""
        return bool(self.batch.removed_destinations or self.batch.removed_subscriptions)

    def holds_back_removals(self) -> bool:
        """Whether removals of destinations or subscriptions must wait.

        It changes something that needs their rows, so the removal must not be durable before it.
        """
        batch = self.batch
        return bool(batch.deletes or batch.settled or batch.owed)

    def divide(self, kept: PendingBatch, ahead: PendingBatch, whole: bool) -> int:
        """On a full disk, move what needs room to ``kept``, the rest to ``ahead``.

        What belongs with an insert goes to ``kept``, too, behind what is there.

        :param kept: of this and earlier batches.
        :param whole: all of this belongs to ``kept``.
        :returns: the bytes of inserts that ``kept`` no longer has, because this deletes them.
        """
        batch = self.batch
        kept.bound |= self.bound
        kept.bound_pairs |= self.bound_pairs
        kept.bound_branches |= self.bound_branches
        bound = kept.bound
        later = kept if whole else ahead
        octets = 0
        kept.batch.inserts.update(batch.inserts)
        kept.messages.update(self.messages)
        kept.batch.octets += batch.octets
        inserts = kept.batch.inserts
        for pair in batch.owed:
            (kept if pair[1] in inserts else later).batch.owed[pair] = None
        for pair, count in batch.redeliveries.items():
            (kept if pair[1] in inserts else ahead).batch.redeliveries[pair] = count
        # An insert is never deleted by its own batch, so these are of earlier ones.
        for seq in batch.deletes:
            elided = kept.elide(seq)
            if elided >= 0:
                octets += elided
            else:
                (kept if seq in bound else later).batch.deletes[seq] = None
        for pair in batch.settled:
            if pair in kept.batch.owed:
                del kept.batch.owed[pair]
                kept.batch.redeliveries.pop(pair, None)
            else:
                (kept if pair in kept.bound_pairs else later).batch.settled[pair] = None
        self._divide_places(kept, ahead)
        kept.batch.duplicates.update(batch.duplicates)
        for seq in batch.forgotten:
            if kept.batch.duplicates.pop(seq, None) is None:
                later.batch.forgotten[seq] = None
        for id, branch in batch.branches.items():
            (kept if id in self.bound_branches else later).batch.branches[id] = branch
        later.batch.removed_branches.update(batch.removed_branches)
        ahead.batch.reserved = max(ahead.batch.reserved, batch.reserved)
        for waiter, inserted in self.waiters:
            (kept if inserted else later).waiters.append((waiter, inserted))
        (kept if batch.inserts or self.bound else later).after.extend(self.after)
        ahead.batch.operations += batch.operations
        return octets

    def _divide_places(self, kept: PendingBatch, ahead: PendingBatch) -> None:
        """Divide the rows of destinations and subscriptions.

        They go ahead of the messages that need them; their removal waits for messages that may need
        them.
        """
        batch = self.batch
        waits = kept.holds_back_removals()
        for number, destination in batch.destinations.items():
            removed = waits and destination.administered == REMOVED
            (kept if removed else ahead).batch.destinations[number] = destination
        ahead.batch.subscriptions.update(batch.subscriptions)
        removing = (kept if waits else ahead).batch
        removing.removed_destinations.update(batch.removed_destinations)
        removing.removed_subscriptions.update(batch.removed_subscriptions)


def divide(
    parts: Sequence[PendingBatch], kept: PendingBatch | None
) -> tuple[PendingBatch, PendingBatch, int]:
    """Divide the changes that are not durable, in their order.

    Inserts, with what belongs to them, wait for room on the disk; the rest goes ahead.

    :param parts: at least one; the last is the one that gathers.
    :param kept: the one among them that waits already.
    :returns: what waits, what goes ahead and gathers, and the bytes of inserts that neither has,
        because they are deleted.
    """
    number = parts[-1].batch.number
    waits, ahead = PendingBatch(number), PendingBatch(number)
    waits.first, waits.last = min([part.first for part in parts]), sys.maxsize
    ahead.since = min([part.since for part in parts if part is not kept])
    return waits, ahead, sum([part.divide(waits, ahead, part is kept) for part in parts])


def guard(call: Callable[..., None], *arguments: object) -> None:
    """Report a commit to one callback.

    An error there is logged, and does not keep others from being told.
    """
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001
        _log.failure("what followed a commit failed: {call}", call=call)
