"""A subscription of a topic: the messages that one subscriber has yet to take.

Owns which messages it accepts, and which rows of the store it still needs. A durable subscription outlives its consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gateway.broker.distribution import BLOCK, Distribution
from gateway.broker.store.interface import Batch
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.consumer import EmbeddedConsumer
    from gateway.broker.topic import PhysicalTopic
    from gateway.messaging.redelivery import RedeliveryPolicy
    from gateway.messaging.selector import Selector


class TopicSubscription(Distribution):
    """What one subscriber is owed.

    :param pattern: the topic, or a name with wildcards.
    :param number: its id in the store; 0 when it is not durable.
    :param origin: with ``no_local``, the connection whose messages it does not want.
    """

    def __init__(
        self,
        broker: Broker,
        pattern: Destination,
        selector: Selector | None,
        *,
        no_local: bool = False,
        origin: int = 0,
        number: int = 0,
        client_id: str = "",
        name: str = "",
    ) -> None:
        super().__init__(broker)
        self.pattern = pattern
        self.selector = selector
        self.no_local = no_local
        self.origin = origin
        self.number = self.owner = number
        self.client_id = client_id
        self.name = name
        #: It was removed: nothing waits here any more.
        self.ended = False
        #: Whether its user may read a topic that the pattern covers.
        self.covers: Callable[[Destination], bool] = _everything
        #: Messages whose row is in the store for this subscription's sake though they are not owed durably.
        self._spilled: set[int] = set()

    @property
    def durable(self) -> bool:
        return self.number != 0

    # --- arrivals

    def accepts(self, message: Message) -> bool:
        """Whether it wants the message."""
        if self.no_local and message.origin == self.origin and message.origin:
            return False
        return self.selector is None or self.selector.matches(message)

    def wanted(self, run: Sequence[Message]) -> Sequence[Message]:
        """Those of a run that it accepts."""
        if self.selector is None and not self.no_local:
            return run
        return [message for message in run if self.accepts(message)]

    def keep(self, topic: PhysicalTopic, run: Sequence[Message]) -> None:
        """What was accepted is coming: durable subscriptions have what is persistent stored."""
        if self.number:
            for message in run:
                if message.headers.persistent:
                    self.broker.hold_row(topic, message, persistent=True)
                    self.broker.commits.owe(self.number, message.seq)

    def arrive(self, topic: PhysicalTopic, run: Sequence[Message]) -> None:
        """What was kept arrives, with rising seqs."""
        if self.ended:
            self.release(run)
            return
        size = 0
        for message in run:
            size += message.size
        topic.count += len(run)
        topic.octets += size
        for message in self.backlog.put(run):
            if not (self.number and message.headers.persistent):
                self.broker.hold_row(topic, message, persistent=False)
                self._spilled.add(message.seq)
        if not self._marked:
            self.mark()

    # --- departures

    def settle(self, messages: Sequence[Message]) -> None:
        self.release(messages)
        self.settled(messages)

    def release(self, messages: Sequence[Message]) -> None:
        if not self.number and not self._spilled:
            return
        for message in messages:
            if self.number and message.headers.persistent:
                self.broker.commits.settle(self.number, message.seq)
                self.broker.release_row(message.seq)
            elif message.seq in self._spilled:
                self._spilled.discard(message.seq)
                self.broker.release_row(message.seq)

    def settled(self, messages: Sequence[Message]) -> None:
        topic: PhysicalTopic | None = None
        for message in messages:
            if topic is None or topic.destination != message.headers.destination:
                topic = self.broker.topic(message.headers.destination)
            topic.count -= 1
            topic.octets -= message.size
            if topic.waiting_senders:
                topic.let_senders_go()
        if self.tried:
            self.forget_tries(messages)

    def unrelease(self, messages: Sequence[Message], batch: Batch) -> None:
        for message in messages:
            if self.number and message.headers.persistent:
                batch.settled.pop((self.number, message.seq), None)
                if batch.deletes.pop(message.seq, self) is self:
                    self.broker.share_row(message.seq)

    def use_policy(self) -> RedeliveryPolicy:
        return self.broker.properties_for(self.pattern).redelivery

    def bury(self, messages: Sequence[Message], reason: DeadReason, comment: str) -> None:
        self.broker.commits.begin()
        try:
            for message in messages:
                topic = self.broker.topic(message.headers.destination)
                self.broker.dead_letters.bury(topic, message, reason, comment, self.tried.get(message.seq, 0))
            self.settle(messages)
        finally:
            self.broker.commits.end()

    def evict(self, lowest_priority: bool) -> bool:
        """Give up one waiting message to make room. :returns: False when none is at hand."""
        victim = self.backlog.least() if lowest_priority else self.backlog.oldest()
        if victim is None:
            return False
        self.backlog.pluck({victim.seq})
        reason = DeadReason.LOW_PRIORITY if lowest_priority else DeadReason.OLDEST
        self.broker.evicting(self.broker.topic(victim.headers.destination), reason)
        self.bury([victim], reason, f"{self} was at the limit of its topic")
        return True

    def undo(self, message: Message) -> None:
        """The store could not keep a message that has arrived: if the subscriber has it not, it never came."""
        self._spilled.discard(message.seq)
        taken = bool(self.backlog.pluck({message.seq})) or self.backlog.pluck_tail(
            message.headers.priority, message.seq, message.size, message.expires
        )
        if taken or self.delayed.pop(message.seq, None) is not None:
            topic = self.broker.topic(message.headers.destination)
            topic.count -= 1
            topic.octets -= message.size

    def _wait_again(self, messages: Sequence[Message]) -> None:
        if self.ended:
            self.settle(messages)
        else:
            super()._wait_again(messages)

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """The consumer receives no more; a subscription that is not durable ends with it."""
        super().leave(consumer)
        if not self.durable and not self.consumers:
            self.broker.end_subscription(self)

    def discard(self, comment: str | None, done: Callable[[], None]) -> None:
        """Give up everything that waits, block by block, to the dead message queue if there is a comment; then call ``done``."""
        waiting = [*self.backlog.waiting_in_memory(), *self.delayed.values()]
        self.delayed.clear()
        stored = self.backlog.stored_only()
        self.backlog.clear()
        self._give_up(waiting, comment)
        blocks = [stored[start : start + BLOCK] for start in range(0, len(stored), BLOCK)]
        blocks.reverse()

        def next_block(messages: Sequence[Message] = ()) -> None:
            self._give_up(messages, comment)
            if blocks:
                self.broker.read_back(blocks.pop(), next_block)
            else:
                done()

        next_block()

    def _give_up(self, messages: Sequence[Message], comment: str | None) -> None:
        if messages and comment is not None:
            self.bury(messages, DeadReason.ERROR, comment)
        elif messages:
            self.settle(messages)

    def __str__(self) -> str:
        if self.durable:
            return f"durable subscription '{self.name}' of client-id '{self.client_id}' on {self.pattern}"
        return f"subscription on {self.pattern}"


def _everything(topic: Destination) -> bool:
    return True
