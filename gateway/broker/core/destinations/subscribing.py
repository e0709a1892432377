"""What the subscriptions of one broker receive from.

Owns which topics find a subscription, and the rows of those that are durable.

A subscription that consumers share may have several topics, and patterns of topics. One more makes
one pattern of them all, so it is found and stored as any pattern is, and a message that several of
them cover comes once. None is taken back while the subscription lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gateway.broker.core.destinations.pauses import Pauses
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic, WildSubscriptions
from gateway.broker.core.waiting.memory import Memory, of_subscription
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.durability.rows import Rows
from gateway.broker.properties.names import ADVISORY, is_wild, joined, names_of
from gateway.broker.store.interface import SubscriptionRow
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination

#: Topics that one subscription may have. Each topic that comes asks for all of them.
MOST_TOPICS: Final = 256


class Subscribing:
    """See above.

    :param topics: those there are.
    :param topic: finds a topic, or makes it.
    :param new_number: for a pattern's row.
    :param durables: those that have rows, also of those that are going.
    """

    def __init__(
        self,
        wild: WildSubscriptions,
        topics: Mapping[Destination, PhysicalTopic],
        topic: Callable[[Destination], PhysicalTopic],
        pauses: Pauses,
        memory: Memory,
        commits: GroupCommit,
        rows: Rows,
        new_number: Callable[[], int],
        durables: Callable[[], Iterable[TopicSubscription]],
    ) -> None:
        self._wild: Final = wild
        self._topics: Final = topics
        self._topic: Final = topic
        self._pauses: Final = pauses
        self._memory: Final = memory
        self._commits: Final = commits
        self._rows: Final = rows
        self._new_number: Final = new_number
        self._durables: Final = durables

    def begin(self, subscription: TopicSubscription) -> None:
        """Deliver messages to the subscription from now on.

        They come from its topic, or from the topics that its pattern covers.
        """
        pattern = subscription.pattern
        self._memory.count_object(octets_of(subscription))
        if is_wild(pattern.name):
            for name in names_of(pattern.name):
                if not is_wild(name):
                    # As after one by its name: there is a topic to send to.
                    self._topic(Destination(Kind.TOPIC, name))
            self._wild.add(subscription)
        else:
            self._topic(pattern).named[subscription] = None
        self._pauses.subscribed(subscription)

    def end(self, subscription: TopicSubscription) -> PhysicalTopic | None:
        """Deliver nothing more to it. Idempotent.

        :returns: the topic that it has left, if it was to one by its name.
        """
        if not subscription.ended:
            self._memory.count_object(-octets_of(subscription))
        subscription.ended = True
        topic = self._topics.get(subscription.pattern)
        if subscription.ordinal:
            self._wild.remove(subscription)
        if topic is None or subscription not in topic.named:
            return None
        del topic.named[subscription]
        return topic

    def store(self, subscription: TopicSubscription) -> None:
        """Write the rows of a durable subscription and of what it names."""
        pattern, selector = subscription.pattern, subscription.selector
        if is_wild(pattern.name):
            meant = (pattern, subscription.none_or_more)
            number = self._rows.number_of_pattern(meant, self._new_number)
        else:
            topic = self._topic(pattern)
            number = topic.number
            if not topic.stored:
                self._rows.store_destination(topic)
        self._commits.subscription(
            SubscriptionRow(
                subscription.number,
                number,
                subscription.client_id,
                subscription.name,
                "" if selector is None else selector.text,
                int(subscription.no_local),
            )
        )

    def widen(self, subscription: TopicSubscription) -> None:
        """Have ``a.>`` of a durable subscription cover ``a``, too."""
        subscription.none_or_more = True
        self._wild.look_again(subscription)
        self._pauses.subscribed(subscription)
        self.store(subscription)
        self.forget(subscription.pattern, False)

    def has(self, subscription: TopicSubscription, topic: Destination, none_or_more: bool) -> bool:
        """Whether a topic or pattern is one of the subscription's.

        :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
        """
        return topic.name in names_of(subscription.pattern.name) and (
            subscription.none_or_more or not none_or_more or ">" not in topic.name
        )

    def check_more(self, subscription: TopicSubscription, topic: Destination) -> None:
        """Check that a subscription may have one more topic or pattern.

        :raises InvalidDestination: it may not.
        """
        names = names_of(subscription.pattern.name)
        if len(names) >= MOST_TOPICS:
            raise InvalidDestination(
                topic,
                f"subscription '{subscription.name}' has {MOST_TOPICS} topics, and may have no more",
            )
        for name in (*names, topic.name):
            if name.startswith(ADVISORY):
                raise InvalidDestination(
                    topic, "a subscription to advisories has no other topics; use another name"
                )

    def add(self, subscription: TopicSubscription, topic: Destination, none_or_more: bool) -> None:
        """Add a topic or a pattern to those of a subscription."""
        before, before_none = subscription.pattern, subscription.none_or_more
        self._memory.count_object(-octets_of(subscription))
        if not subscription.ordinal:
            if subscription.dispatch.paused:
                # From now on that is of one topic among others.
                subscription.hold(before, False)
            named = self._topics.get(before)
            if named is not None:
                named.named.pop(subscription, None)
        known = topic.name in names_of(before.name)
        if not known:
            subscription.pattern = before._replace(name=joined(before.name, topic.name))
        subscription.none_or_more = before_none or none_or_more
        subscription.dispatch.examines = True
        if subscription.ordinal:
            self._wild.look_again(subscription)
        else:
            self._wild.add(subscription)
        self._memory.count_object(octets_of(subscription))
        self._pauses.subscribed(subscription)
        if subscription.durable:
            self.store(subscription)
            if is_wild(before.name):
                self.forget(before, before_none)

    def forget(self, pattern: Destination, none_or_more: bool) -> None:
        """Remove the row of a pattern that no durable subscription has."""
        if (pattern, none_or_more) not in [
            (each.pattern, each.none_or_more) for each in self._durables()
        ]:
            self._rows.forget_pattern((pattern, none_or_more))


def octets_of(subscription: TopicSubscription) -> int:
    """The octets of memory that a subscription takes."""
    pattern, selector = subscription.pattern.name, subscription.selector
    return of_subscription(
        "" if selector is None else selector.text,
        pattern if len(names_of(pattern)) > 1 else "",
    )
