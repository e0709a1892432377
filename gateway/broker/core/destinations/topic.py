"""Physical topics, and subscriptions with wildcards that cover them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from gateway.broker.core.changes import Changes
from gateway.broker.core.destinations.addresses import ForSubscription
from gateway.broker.core.destinations.subscription import SHARED_BY, TopicSubscription
from gateway.broker.core.physical import Accepted, PhysicalDestination
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.names import matcher
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationStopped
from gateway.messaging.message import Message

#: When some have ended, what is looked at in one turn: entries in the lists of topics, a topic
#: itself counts as some.
LOOKED_AT = 50_000
A_TOPIC: Final = 25


class PhysicalTopic(PhysicalDestination):
    """Each message goes to every subscription; with none it is gone.

    Its count is the sum over its subscriptions of what each has yet to take.

    Subscriptions with wildcards may be many, and each may cover many topics. So a topic looks for
    those that cover it only when it needs them, and those that have ended stay in its list until it
    looks again: making and ending one costs nothing for each topic.
    """

    def __init__(
        self,
        changes: Changes,
        all_wild: WildSubscriptions,
        destination: Destination,
        number: int,
        properties: DestinationProperties,
    ) -> None:
        super().__init__(changes, destination, number, properties)
        self._all_wild = all_wild
        #: Subscriptions to this topic by its name.
        self.named: dict[TopicSubscription, None] = {}
        #: Those whose pattern covers it, as far as it has looked.
        self._wild: list[TopicSubscription] = []
        #: The last subscription with wildcards that it has looked at, and how many of them had
        #: ended then.
        self._looked_at = 0
        self._ended_before = 0
        #: Some have ended, and it was not considered since whether it is in use.
        self.some_left = False

    @property
    def subscriptions(self) -> list[TopicSubscription]:
        """Those whose name or pattern covers this topic."""
        return [*self.named, *self.refresh_wild()]

    @property
    def subscribed(self) -> bool:
        """Whether its messages go anywhere: to subscriptions, or to queues."""
        return bool(self.named or self.refresh_wild() or self.copied_to)

    @property
    def covered(self) -> int:
        """How many subscriptions with wildcards are in its list.

        Those that have ended since it looked are included.
        """
        return len(self._wild)

    def refresh_wild(self) -> Sequence[TopicSubscription]:
        """Update the list of subscriptions with wildcards.

        :returns: those that cover this topic.
        """
        wild = self._all_wild
        if self._ended_before != wild.wild_ended:
            self._ended_before = wild.wild_ended
            kept = [
                subscription
                for subscription in self._wild
                if not subscription.ended and subscription.ordinal <= self._looked_at
            ]
            self.some_left = self.some_left or len(kept) < len(self._wild)
            self._wild = kept
        if self._looked_at != wild.wild_made and not self.removed:
            # While an administrator destroys it no new subscription gets its messages; that may
            # fail, and then they do.
            if not self.destination.temporary:
                self._wild += wild.wild_since(self._looked_at, self.destination)
            self._looked_at = wild.wild_made
        return self._wild

    def shared_as(self, name: str) -> list[TopicSubscription]:
        """The durable subscriptions that consumers share by that name.

        There may be one for each user.
        """
        return [
            each
            for each in self.named
            if each.name == name and each.durable and each.client_id.startswith(SHARED_BY)
        ]

    def _accept_for(self, run: ForSubscription) -> Accepted:
        """As :meth:`accept`, for subscriptions of one name."""
        places: list[tuple[TopicSubscription, Sequence[Message], int]] = []
        for message in run:
            message.headers = message.headers.replace(destination=self.destination)
        for subscription in self.shared_as(run.name):
            accepted, examined = subscription.wanted(run)
            if accepted:
                subscription.accept(self, accepted)
                places.append((subscription, accepted, examined))
        return places

    def accept(self, run: Sequence[Message]) -> Accepted:
        if isinstance(run, ForSubscription):
            return self._accept_for(run)
        places: list[tuple[TopicSubscription | None, Sequence[Message], int]] = []
        if self.changes.schedules:
            rest = self.changes.store_scheduled(self, run)
            if len(rest) < len(run):
                # They come to those who have subscribed when their time has come.
                places.append((None, [message for message in run if message.headers.scheduled], 0))
                run = rest
                if not run:
                    return places
        wild = self.refresh_wild()
        for subscription in chain(self.named, wild) if wild else self.named:
            accepted, examined = subscription.wanted(run)
            if accepted:
                subscription.accept(self, accepted)
                places.append((subscription, accepted, examined))
        if not places and not wild and not self.named and not self.copied_to:
            self.unheard += len(run)
        return places

    def enqueue(self, kept: Accepted, held: bool = False) -> None:
        for subscription, accepted, examined in kept:
            if subscription is None:
                if self.changes.hold_scheduled(self, accepted, self.drops_arrivals):
                    self.changes.delete_rows(accepted)
            elif self.drops_arrivals:
                subscription.release(accepted)
            else:
                subscription.arrive(self, accepted, examined, held)

    def accept_prepared(self, run: Sequence[Message]) -> Accepted:
        """Keep what a branch has sent, for those who have subscribed by now.

        The branch held the rows. They belong to the durable subscriptions now, or are released.
        """
        kept = [] if self.drops_arrivals else self.accept(run)
        owed = {
            message.seq
            for subscription, accepted, _ in kept
            if subscription is not None and subscription.durable
            for message in accepted
        }
        if any(subscription is None for subscription, _, _ in kept):
            run = [message for message in run if not message.headers.scheduled]
        stored = [message for message in run if message.stored]
        for message in stored:
            message.stored = 1 if message.seq in owed else 0
        self.changes.release_for_branch([message.seq for message in stored])
        return kept

    def evict(self, lowest_priority: bool) -> bool:
        """Give up a message of this topic, to make room.

        Takes it from the subscription that has the most waiting and has one in memory.
        """
        longest = sorted(
            self.subscriptions,
            key=lambda subscription: subscription.dispatch.backlog.waiting,
            reverse=True,
        )
        return any(subscription.evict(self, lowest_priority) for subscription in longest)

    def stop(self, error: DestinationStopped) -> None:
        self.damaged = True
        for subscription in self.subscriptions:
            subscription.dispatch.halt(error)

    @property
    def busy(self) -> bool:
        """Whether it is subscribed to, has messages that count, or is paused."""
        return bool(self.count or self.clearing or self.pause or self.subscribed)


class WildSubscriptions:
    """The subscriptions with wildcards of one broker.

    Owns their list, and that topics hear of those that have ended.

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
        subscription.matches = matcher(subscription.pattern.name, subscription.none_or_more)
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
        """Topics ask its pattern again, and whether its user may read them."""
        if subscription in self.subscriptions:
            subscription.matches = matcher(subscription.pattern.name, subscription.none_or_more)
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
            self._schedule.after(0, lambda: self._schedule.one_step_a_turn(self._tell_topics()))

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
                    topic.refresh_wild()
                    if topic.some_left:
                        topic.some_left = False
                        topic.emptied()
                    if looked_at >= LOOKED_AT:
                        looked_at = 0
                        yield
        finally:
            self._telling = False
