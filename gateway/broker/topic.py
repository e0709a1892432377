"""A physical topic."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from gateway.broker.limits import DestinationProperties
from gateway.broker.physical import Kept, Physical
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationStopped
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.subscription import TopicSubscription


class PhysicalTopic(Physical):
    """Each message goes to every subscription; with none it is gone.

    Its count is the sum over its subscriptions of what each has yet to take.
    """

    def __init__(self, broker: Broker, destination: Destination, number: int, properties: DestinationProperties) -> None:
        super().__init__(broker, destination, number, properties)
        #: Subscriptions whose name or pattern covers this topic.
        self.subscriptions: list[TopicSubscription] = []

    def keep(self, run: Sequence[Message]) -> Kept:
        places: list[tuple[TopicSubscription, Sequence[Message], int]] = []
        for subscription in self.subscriptions:
            accepted, examined = subscription.wanted(run)
            if accepted:
                subscription.keep(self, accepted)
                places.append((subscription, accepted, examined))
        return places

    def place(self, kept: Kept) -> None:
        for subscription, accepted, examined in kept:
            if self.drops_arrivals:
                subscription.release(accepted)
            else:
                subscription.arrive(self, accepted, examined)

    def keep_held(self, run: Sequence[Message]) -> Kept:
        """To those who have subscribed by now. The branch held the rows, which are theirs from now on, or nobody's."""
        kept = [] if self.drops_arrivals else self.keep(run)
        owed = {message.seq for subscription, accepted, _ in kept if subscription.durable for message in accepted}
        for message in run:
            if message.stored:
                self.broker.rows.release(message.seq)
                message.stored = 1 if message.seq in owed else 0
        return kept

    def place_held(self, kept: Kept) -> None:
        for subscription, accepted, examined in kept:
            if self.drops_arrivals:
                subscription.release(accepted)
            else:
                subscription.arrive_held(self, accepted, examined)

    def without(self, kept: Kept, seqs: Container[int]) -> Kept:
        return [
            (subscription, [message for message in run if message.seq not in seqs], examined)
            for subscription, run, examined in kept
        ]

    def undo(self, seqs: Container[int], run: Sequence[Message]) -> None:
        for subscription in self.subscriptions:
            subscription.undo(self, seqs, run)

    def evict(self, lowest_priority: bool) -> bool:
        """Give up a message of this topic, of the subscription that has the most waiting and has one at hand."""
        longest = sorted(self.subscriptions, key=lambda subscription: subscription.backlog.waiting, reverse=True)
        return any(subscription.evict(self, lowest_priority) for subscription in longest)

    def stop(self, error: DestinationStopped) -> None:
        self.damaged = True
        for subscription in list(self.subscriptions):
            subscription.halt(error)

    @property
    def busy(self) -> bool:
        """Whether it has subscriptions, or messages they have not settled."""
        return bool(self.count or self.subscriptions or self.clearing)

    def taken(self) -> None:
        """Messages of it were settled."""
        if self.waiting_senders or self.holds_back:
            self.let_senders_go()
        if not self.count:
            self.emptied()

    def __str__(self) -> str:
        return str(self.destination)
