"""What the broker does because time has passed: expired messages go, and unused destinations go.

Owns when; how a message is given up or a destination removed is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.broker.core.queue import PhysicalQueue
from gateway.messaging.destination import Destination

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.core.changes import AnyDestination

#: Destinations and subscriptions that are looked at for expired messages in one turn.
SWEPT: Final = 200


class Housekeeping:
    """Of one broker, on its schedule."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reaping: set[Destination] = set()
        if broker.options.expiration_interval:
            self._sweep_later()

    # --- expired messages

    def _sweep_later(self) -> None:
        self._broker.schedule.after(self._broker.options.expiration_interval * 1000, self._sweep)

    def _sweep(self) -> None:
        self._broker.schedule.in_slices(self._sweep_slowly())

    def _sweep_slowly(self) -> Iterator[None]:
        looked = 0
        for physical in list(self._broker.destinations.values()):
            for place in [physical] if isinstance(physical, PhysicalQueue) else [*physical.named]:
                place.sweep(self._broker.turn.now_ms)
                looked += 1
                if looked % SWEPT == 0:
                    yield
        for subscription in list(self._broker.wild):
            subscription.sweep(self._broker.turn.now_ms)
            looked += 1
            if looked % SWEPT == 0:
                yield
        self._sweep_later()

    # --- unused destinations

    def reap_later(self, physical: AnyDestination) -> None:
        """Remove the destination if nobody uses it for the reap time."""
        if physical.destination not in self._reaping and self._broker.options.reap_time:
            self._reaping.add(physical.destination)
            self._reap_at(
                physical.destination, physical.idle_since + self._broker.options.reap_time * 1000
            )

    def _reap_at(self, destination: Destination, when_ms: int) -> None:
        # Where many are due at once, the schedule does a part of them in each turn.
        self._broker.schedule.at(when_ms, partial(self._reap, destination, when_ms))

    def _reap(self, destination: Destination, when_ms: int) -> None:
        self._reaping.discard(destination)
        there = self._broker.destinations.get(destination)
        if (
            there is None
            or not there.auto_created
            or there.removed
            or there.busy
            or there.arrivals
            or there.held
        ):
            return
        due = there.idle_since + self._broker.options.reap_time * 1000
        if due <= when_ms:
            self._broker.use_reports.removed(destination)
            self._broker.remove(there, keeps_ids=True)
        else:
            # It was used meanwhile.
            self._reaping.add(destination)
            self._reap_at(destination, due)
