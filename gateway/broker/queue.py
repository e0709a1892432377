"""A physical queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker.distribution import Distribution
from gateway.broker.limits import DestinationProperties
from gateway.broker.physical import Arrival, Physical
from gateway.broker.store.interface import Batch
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import TooManyConsumers
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.consumer import EmbeddedConsumer
    from gateway.messaging.redelivery import RedeliveryPolicy


class PhysicalQueue(Physical, Distribution):
    """Each message goes to one consumer.

    Owns its messages from acceptance to settlement: their number and octets, and the store's rows of those that have any.
    """

    def __init__(self, broker: Broker, destination: Destination, number: int, properties: DestinationProperties) -> None:
        Physical.__init__(self, broker, destination, number, properties)
        Distribution.__init__(self, broker)

    def keep(self, run: Sequence[Message]) -> Arrival:
        if not self.destination.temporary:
            for message in run:
                if message.headers.persistent:
                    message.stored = 1
                    self.broker.store_row(self, message, persistent=True)
        return partial(self._place, run)

    def _place(self, run: Sequence[Message]) -> None:
        self.count += len(run)
        size = 0
        for message in run:
            size += message.size
        self.octets += size
        for message in self.backlog.put(run):
            if not message.stored:
                # Memory is full: what would only live there goes to the store too, until it is read back.
                message.stored = 1
                self.broker.store_row(self, message, persistent=False)
        if not self._marked:
            self.mark()

    def settle(self, messages: Sequence[Message]) -> None:
        delete = self.broker.commits.delete
        for message in messages:
            if message.stored:
                message.stored = 0
                delete(message.seq)
        self.settled(messages)

    def release(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.stored:
                self.broker.commits.delete(message.seq)

    def settled(self, messages: Sequence[Message]) -> None:
        self.count -= len(messages)
        size = 0
        for message in messages:
            size += message.size
        self.octets -= size
        if self.tried:
            self.forget_tries(messages)
        if self.waiting_senders:
            self.let_senders_go()
        if not self.count:
            self.emptied()

    def unrelease(self, messages: Sequence[Message], batch: Batch) -> None:
        for message in messages:
            batch.deletes.pop(message.seq, None)

    def use_policy(self) -> RedeliveryPolicy:
        return self.properties.redelivery

    def bury(self, messages: Sequence[Message], reason: DeadReason, comment: str) -> None:
        self.broker.commits.begin()
        try:
            for message in messages:
                self.broker.dead_letters.bury(self, message, reason, comment, self.tried.get(message.seq, 0))
            self.settle(messages)
        finally:
            self.broker.commits.end()

    def join(self, consumer: EmbeddedConsumer) -> None:
        most = self.properties.max_num_active_consumers
        if 0 <= most <= len(self.consumers):
            raise TooManyConsumers(self.destination, most)
        Distribution.join(self, consumer)

    def leave(self, consumer: EmbeddedConsumer) -> None:
        Distribution.leave(self, consumer)
        if not self.count:
            self.emptied()

    @property
    def busy(self) -> bool:
        """Whether it holds messages or has consumers."""
        return bool(self.count or self.consumers)

    def evict(self, lowest_priority: bool) -> bool:
        """Give up one waiting message to make room. :returns: False when none is at hand."""
        victim = self.backlog.least() if lowest_priority else self.backlog.oldest()
        if victim is None:
            return False
        self.backlog.pluck({victim.seq})
        reason = DeadReason.LOW_PRIORITY if lowest_priority else DeadReason.OLDEST
        self.broker.evicting(self, reason)
        self.bury([victim], reason, f"{self.destination} was at its limit")
        return True

    def purge(self) -> int:
        """Remove every waiting message. :returns: how many."""
        seqs = self.backlog.stored_only()
        waiting = self.backlog.waiting
        octets = self.backlog.octets
        for message in self.backlog.clear():
            if message.stored:
                message.stored = 0
                self.broker.commits.delete(message.seq)
        for seq in seqs:
            self.broker.commits.delete(seq)
        self.count -= waiting
        self.octets -= octets
        delayed = list(self.delayed.values())
        self.delayed.clear()
        self.settle(delayed)
        self.tried.clear()
        return waiting + len(delayed)

    def undo(self, message: Message) -> None:
        """The store could not keep a message that has arrived: if no consumer has it, it never came."""
        message.stored = 0
        taken = bool(self.backlog.pluck({message.seq})) or self.backlog.pluck_tail(
            message.headers.priority, message.seq, message.size, message.expires
        )
        if taken or self.delayed.pop(message.seq, None) is not None:
            self.count -= 1
            self.octets -= message.size

    def __str__(self) -> str:
        return str(self.destination)
