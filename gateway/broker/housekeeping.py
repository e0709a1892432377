"""What the broker does because time has passed: expired messages go, and unused destinations go.

Owns when; how a message is given up or a destination removed is theirs.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

from gateway.broker.queue import PhysicalQueue
from gateway.broker.subscription import TopicSubscription
from gateway.messaging.destination import Destination

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.physical import Physical

#: Destinations that have gone before their memory is asked for: some 50 MiB.
_COLLECTED: Final = 4000


def _collect() -> None:
    gc.collect()


class Housekeeping:
    """Of one broker, on its schedule."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reaping: set[Destination] = set()
        self._gone = 0
        if broker.options.expiration_interval:
            self._sweep_later()

    # --- expired messages

    def _sweep_later(self) -> None:
        self._broker.schedule.after(self._broker.options.expiration_interval * 1000, self._sweep)

    def _sweep(self) -> None:
        now_ms = self._broker.turn.now_ms
        subscriptions: dict[int, TopicSubscription] = {}
        for physical in list(self._broker.destinations.values()):
            if isinstance(physical, PhysicalQueue):
                physical.sweep(now_ms)
            else:
                for subscription in physical.subscriptions:
                    subscriptions[id(subscription)] = subscription
        for subscription in subscriptions.values():
            subscription.sweep(now_ms)
        self._sweep_later()

    # --- unused destinations

    def reap_later(self, physical: Physical) -> None:
        """Remove the destination if nobody uses it for the reap time."""
        if physical.destination not in self._reaping and self._broker.options.reap_time:
            self._reaping.add(physical.destination)
            self._reap_at(physical.destination, physical.idle_since + self._broker.options.reap_time * 1000)

    def gone(self, count: int) -> None:
        """So many destinations have gone, whatever was the reason."""
        self._gone += count
        if self._gone >= _COLLECTED:
            # What they were and who used them refer to each other, and are too old for Python to look at them again soon.
            self._gone = 0
            self._broker.schedule.after(0, _collect)

    def _reap_at(self, destination: Destination, when_ms: int) -> None:
        def reap() -> None:
            self._reaping.discard(destination)
            there = self._broker.destinations.get(destination)
            if there is None or not there.auto_created or there.removed or there.busy or there.arrivals or there.held:
                return
            due = there.idle_since + self._broker.options.reap_time * 1000
            if due <= when_ms:
                self._broker.log.info(
                    "{destination} is removed: nobody has used it for {seconds} seconds",
                    destination=str(destination),
                    seconds=self._broker.options.reap_time,
                )
                self._broker.remove(there, keeps_ids=True)
                self.gone(1)
            else:
                # It was used meanwhile.
                self._reaping.add(destination)
                self._reap_at(destination, due)

        self._broker.schedule.at(when_ms, reap)
