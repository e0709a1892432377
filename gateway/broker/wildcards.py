"""Subscriptions with wildcards, and the topics that they cover.

Owns the list of these subscriptions, and that topics hear of those that have ended. A topic asks
for new ones when it needs them: see :class:`gateway.broker.core.topic.PhysicalTopic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.broker.core.names import Pattern
from gateway.broker.core.subscription import TopicSubscription
from gateway.broker.core.topic import PhysicalTopic
from gateway.broker.schedule import Schedule
from gateway.messaging.destination import Destination

#: When some have ended, what is looked at in one turn: entries in the lists of topics, a topic
#: itself counts as some.
LOOKED_AT: Final = 50_000
A_TOPIC: Final = 25


class WildSubscriptions:
    """Those of one broker.

    :param topics: the topics of all destinations.
    """

    def __init__(self, schedule: Schedule, topics: Mapping[Destination, PhysicalTopic]) -> None:
        self._schedule: Final = schedule
        self._topics: Final = topics
        #: In the order in which they were made.
        self.subscriptions: Final[dict[TopicSubscription, None]] = {}
        #: How many were made, and have ended, since the start. One that is looked at again counts
        #: as both.
        self.wild_made = 0
        self.wild_ended = 0
        #: Topics are being told that some have ended; and how many had ended when that began.
        self._telling = False
        self._told_of = 0

    def add(self, subscription: TopicSubscription) -> None:
        """Messages for the topics its pattern covers come to it from now on."""
        self.wild_made += 1
        subscription.ordinal = self.wild_made
        subscription.matches = Pattern(subscription.pattern.name).matches
        self.subscriptions[subscription] = None

    def wild_since(self, ordinal: int, topic: Destination) -> list[TopicSubscription]:
        """Later subscriptions with patterns that cover the topic.

        They were made after ``ordinal``, their users may read the topic, and they come in the order
        in which they were made.
        """
        found: list[TopicSubscription] = []
        name = topic.name
        for subscription in reversed(self.subscriptions):
            if subscription.ordinal <= ordinal:
                break
            if subscription.matches(name) and subscription.covers(topic):
                found.append(subscription)
        found.reverse()
        return found

    def look_again(self, subscription: TopicSubscription) -> None:
        """The topics its pattern covers ask again whether its user may read them."""
        if subscription in self.subscriptions:
            del self.subscriptions[subscription]
            self.wild_made += 1
            subscription.ordinal = self.wild_made
            self.subscriptions[subscription] = None
            self._forget_one()

    def remove(self, subscription: TopicSubscription) -> None:
        """It has ended. Idempotent."""
        if subscription in self.subscriptions:
            del self.subscriptions[subscription]
            self._forget_one()

    def _forget_one(self) -> None:
        self.wild_ended += 1
        if not self._telling:
            self._telling = True
            self._schedule.after(0, lambda: self._schedule.in_slices(self._tell_topics()))

    def _tell_topics(self) -> Iterator[None]:
        """Let topics forget subscriptions that have ended.

        Topics that have no other use are reaped after a while.
        """
        looked_at = 0
        try:
            while self._told_of != self.wild_ended:
                self._told_of = self.wild_ended
                for topic in list(self._topics.values()):
                    looked_at += A_TOPIC + topic.covered
                    topic.look()
                    if topic.some_left:
                        topic.some_left = False
                        topic.emptied()
                    if looked_at >= LOOKED_AT:
                        looked_at = 0
                        yield
        finally:
            self._telling = False
