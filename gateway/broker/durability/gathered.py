"""A batch of changes, and those who wait for it or must undo something if it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from gateway.broker.store.interface import Batch, Row, StoreError
from gateway.messaging.envelope import encode_head
from gateway.messaging.message import Message

#: Told once when its batch is durable (None) or has failed.
Waiter: TypeAlias = Callable[[StoreError | None], None]


class Gathered:
    """What one commit is made of."""

    __slots__ = ("after", "batch", "messages", "undo", "waiters")

    def __init__(self, number: int) -> None:
        self.batch = Batch(number)
        self.waiters: list[Waiter] = []
        #: The whole messages behind ``batch.inserts``, until they can be read from the store.
        self.messages: dict[int, Message] = {}
        #: Called with the batch if it fails, the last first, before its waiters are told.
        self.undo: list[Callable[[Batch, StoreError], None]] = []
        #: Called when what was asked in it is durable, before its waiters are told; after a full
        #: disk with the batch that it is tried again in.
        self.after: list[Callable[[], None]] = []

    def insert(self, message: Message, destination: int, persistent: bool) -> int:
        """Store a message, which has a seq. :returns: the octets of its row."""
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

    def take_back(self, seq: int) -> int:
        """A message is gone whose insert may be here: nothing is said of it any more. :returns: the
        octets of its row; -1 when it is not here.
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

    def take_out(self, messages: Iterable[Message]) -> None:
        """These never came: nothing is said of them any more."""
        batch = self.batch
        seqs = {message.seq for message in messages}
        for seq in seqs:
            batch.inserts.pop(seq, None)
            self.messages.pop(seq, None)
        for kind in (batch.owed, batch.settled, batch.redeliveries):
            for key in [key for key in kind if key[1] in seqs]:
                del kind[key]


def try_again(failed: Batch, waiting: Sequence[Batch]) -> None:
    """After a full disk: put what was asked in the failed batch beside messages into the one that
    follows.

    :param waiting: the batches behind it, at least one, the next first. The store never had the
        failed batch's messages, so what these batches say of them is about nothing, and is taken
        out.
    """
    inserts = failed.inserts
    for batch in waiting:
        for seq in inserts.keys() & batch.deletes.keys():
            del batch.deletes[seq]
        for kind in (batch.owed, batch.settled, batch.redeliveries):
            for key in [key for key in kind if key[1] in inserts]:
                del kind[key]
    batch = waiting[0]
    for pair, row in failed.redeliveries.items():
        if pair[1] not in inserts and pair not in batch.settled:
            batch.redeliveries.setdefault(pair, row)
    for number, destination in failed.destinations.items():
        batch.destinations.setdefault(number, destination)
    for number, subscription in failed.subscriptions.items():
        batch.subscriptions.setdefault(number, subscription)
    batch.deletes.update(failed.deletes)
    batch.settled.update(failed.settled)
    batch.removed_destinations.update(failed.removed_destinations)
    batch.removed_subscriptions.update(failed.removed_subscriptions)
    # Both may name a seq: it is remembered first, then forgotten.
    batch.duplicates = failed.duplicates | batch.duplicates
    batch.forgotten.update(failed.forgotten)
    # Owed without an insert is what a prepared branch has sent, and is committed now.
    for pair in failed.owed:
        if pair[1] not in inserts and pair not in batch.settled:
            batch.owed[pair] = None
    # What was to be prepared is rolled back; what an operator has decided is still so.
    for id, branch in failed.branches.items():
        if branch.state:
            batch.branches.setdefault(id, branch)
    batch.removed_branches.update(failed.removed_branches)
    batch.reserved = max(batch.reserved, failed.reserved)
    batch.operations += failed.operations - len(inserts)
