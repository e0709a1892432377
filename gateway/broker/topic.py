"""A physical topic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker.limits import DestinationProperties
from gateway.broker.physical import Arrival, Physical
from gateway.messaging.destination import Destination
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

    def keep(self, run: Sequence[Message]) -> Arrival:
        places: list[tuple[TopicSubscription, Sequence[Message]]] = []
        for subscription in self.subscriptions:
            accepted = subscription.wanted(run)
            if accepted:
                subscription.keep(self, accepted)
                places.append((subscription, accepted))
        return partial(self._place, places)

    def _place(self, places: list[tuple[TopicSubscription, Sequence[Message]]]) -> None:
        for subscription, accepted in places:
            subscription.arrive(self, accepted)

    def evict(self, lowest_priority: bool) -> bool:
        """Give up a message of the subscription that has the most waiting."""
        longest = max(self.subscriptions, key=lambda subscription: subscription.backlog.waiting, default=None)
        return longest is not None and longest.evict(lowest_priority)

    @property
    def busy(self) -> bool:
        """Whether it has subscriptions, or messages they have not settled."""
        return bool(self.count or self.subscriptions)

    def undo(self, message: Message) -> None:
        """The store could not keep a message that has arrived."""
        for subscription in self.subscriptions:
            subscription.undo(message)

    def __str__(self) -> str:
        return str(self.destination)
