"""A batch of changes that is not durable yet, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from twisted.logger import Logger

from gateway.broker.store.interface import Batch, Row, StoreError
from gateway.messaging.envelope import encode_row
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
        "covers_from",
        "inserts_from",
        "inserts_to",
        "messages",
        "tied_branches",
        "tied_deletes",
        "tied_settlements",
        "waiters",
    )

    def __init__(self, number: int) -> None:
        self.batch = Batch(number)
        #: It has the inserts of the batches with these numbers, which are several if it has waited
        #: for room on the disk.
        self.inserts_from = number
        self.inserts_to = number
        #: All else that was asked for while batches from this number on gathered is here. Less than
        #: its own number where those before it found no room and are in it.
        self.covers_from = number
        #: Whom to tell, and whether they wait for inserts.
        self.waiters: list[tuple[Waiter, bool]] = []
        #: The whole messages behind ``batch.inserts``, until they can be read from the store.
        self.messages: dict[int, Message] = {}
        #: Called when the batch is durable, before its waiters are told.
        self.after: list[Callable[[], None]] = []
        #: Seqs of messages that are deleted or settled together with inserts, as in a transaction;
        #: which pairs are settled so, and which branches stored.
        self.tied_deletes: set[int] = set()
        self.tied_settlements: set[tuple[int, int]] = set()
        self.tied_branches: set[int] = set()

    def insert(self, message: Message, destination: int, persistent: bool) -> int:
        """Store a message, which has a seq. :returns: the bytes of its row."""
        head = encode_row(message)
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

    def cancel_insert(self, seq: int) -> int:
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
    def removes_destinations(self) -> bool:
        """Whether destinations or subscriptions are removed."""
        return bool(self.batch.removed_destinations or self.batch.removed_subscriptions)

    def holds_back_removals(self) -> bool:
        """Whether removals of destinations or subscriptions must wait.

        It changes something that needs their rows, so the removal must not be durable before it.
        """
        batch = self.batch
        return bool(batch.deletes or batch.settled or batch.owed)


def guard(call: Callable[..., None], *arguments: object) -> None:
    """Report a commit to one callback.

    An error there is logged, and does not keep others from being told.
    """
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001
        _log.failure("what followed a commit failed: {call}", call=call)
