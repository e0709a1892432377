"""Destinations that an administrator has paused.

A destination that is paused for consumers keeps taking messages and delivers none. What consumers
have and have not settled stays theirs, and what comes back waits. Browsers and operators still see
what waits, and messages expire as ever. Of a topic this holds for its subscriptions; those with
wildcards go on delivering what other topics send.

A destination that is paused for producers takes nothing from sessions: they hold their messages,
and with them everything that must not overtake these. What transactions and branches had sent
before is committed, and what the broker itself puts there, such as dead messages, still comes.

Owns which destinations are paused. That a pause is stored is
:class:`~gateway.broker.durability.rows.Rows`' business.
"""

from __future__ import annotations

from typing import Final

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.properties.pause import Pause


class Pauses:
    """The paused destinations of one broker."""

    def __init__(self) -> None:
        #: Those that hold senders back.
        self.producers: Final[dict[PhysicalDestination, None]] = {}
        #: Topics whose messages are not delivered.
        self._topics: Final[dict[PhysicalTopic, None]] = {}

    def set(self, physical: PhysicalQueue | PhysicalTopic, pause: Pause) -> None:
        """Pause a destination anew; :attr:`Pause.NONE` resumes it."""
        before, physical.pause = physical.pause, pause
        if before & Pause.CONSUMERS != pause & Pause.CONSUMERS:
            self._hold_deliveries(physical, bool(pause & Pause.CONSUMERS))
        if pause & Pause.PRODUCERS:
            self.producers[physical] = None
        else:
            self.producers.pop(physical, None)
            physical.let_senders_go()
        physical.emptied()

    def forget(self, physical: PhysicalQueue | PhysicalTopic) -> None:
        """The destination is removed."""
        if physical.pause:
            self.producers.pop(physical, None)
            if isinstance(physical, PhysicalTopic):
                # What wildcard subscriptions have of it is delivered to the end.
                self._hold_deliveries(physical, False)
            physical.pause = Pause.NONE

    def subscribed(self, subscription: TopicSubscription) -> None:
        """A subscription is new: nothing of a paused topic is delivered to it."""
        for topic in self._topics:
            if subscription.matches(topic.destination.name):
                subscription.hold(topic.destination, True)

    def _hold_deliveries(self, physical: PhysicalQueue | PhysicalTopic, held: bool) -> None:
        if isinstance(physical, PhysicalQueue):
            physical.hold_deliveries(held)
            return
        if held:
            self._topics[physical] = None
        else:
            self._topics.pop(physical, None)
        for subscription in physical.subscriptions:
            subscription.hold(physical.destination, held)
