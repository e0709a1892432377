"""Remove expired messages and unused destinations as time passes.

Owns when; how a message is given up or a destination removed is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.limit_reports import UseReports
from gateway.broker.durability.rows import Destined
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.destination import Destination
from gateway.reactor.turn import Turn

#: Destinations and subscriptions that are looked at for expired messages in one turn.
SWEPT: Final = 200


class Housekeeping:
    """Of one broker, on its schedule.

    :param wild: the subscriptions with wildcards.
    :param remove: removes a destination that is not used.
    """

    def __init__(
        self,
        turn: Turn,
        schedule: Schedule,
        options: BrokerOptions,
        destinations: Mapping[Destination, PhysicalQueue | PhysicalTopic],
        wild: Mapping[TopicSubscription, None],
        use_reports: UseReports,
        remove: Callable[[PhysicalQueue | PhysicalTopic], None],
    ) -> None:
        self._turn: Final = turn
        self._schedule: Final = schedule
        self._interval_ms: Final = options.expiration_interval * 1000
        self._reap_time_ms: Final = options.reap_time * 1000
        self._destinations: Final = destinations
        self._wild: Final = wild
        self._use_reports: Final = use_reports
        self._remove: Final = remove
        self._reaping: set[Destination] = set()
        if self._interval_ms:
            self._sweep_later()

    # --- expired messages

    def _sweep_later(self) -> None:
        self._schedule.after(
            self._interval_ms, lambda: self._schedule.one_step_a_turn(self._sweep())
        )

    def _sweep(self) -> Iterator[None]:
        looked = 0
        for physical in list(self._destinations.values()):
            for place in [physical] if isinstance(physical, PhysicalQueue) else [*physical.named]:
                place.sweep(self._turn.now_ms)
                looked += 1
                if looked % SWEPT == 0:
                    yield
        for subscription in list(self._wild):
            subscription.sweep(self._turn.now_ms)
            looked += 1
            if looked % SWEPT == 0:
                yield
        self._sweep_later()

    # --- unused destinations

    def reap_later(self, physical: Destined) -> None:
        """Remove the destination if it is not used for the reap time."""
        if physical.destination not in self._reaping and self._reap_time_ms:
            self._reaping.add(physical.destination)
            self._reap_at(physical.destination, physical.idle_since + self._reap_time_ms)

    def _reap_at(self, destination: Destination, when_ms: int) -> None:
        # Where many are due at once, the schedule does a part of them in each turn.
        self._schedule.at(when_ms, partial(self._reap, destination, when_ms))

    def _reap(self, destination: Destination, when_ms: int) -> None:
        self._reaping.discard(destination)
        there = self._destinations.get(destination)
        if (
            there is None
            or not there.auto_created
            or there.removed
            or there.busy
            or there.arrivals
            or there.prepared
        ):
            return
        due = there.idle_since + self._reap_time_ms
        if due <= when_ms:
            self._use_reports.removed(destination)
            self._remove(there)
        else:
            # It was used meanwhile.
            self._reaping.add(destination)
            self._reap_at(destination, due)
