"""When rejected deliveries are delivered again.

Owns the redelivery policy of one consumer and the deliveries that wait for their time. What becomes
of the dead is the consumer's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bridge.providers.stomp.subscriptions import Delivery
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy

#: Milliseconds between tries of what the policy would have dead, and the broker would lose; the
#: policy's longest pause, if that is longer.
_SHORTEST: Final = 1000


class Redelivery:
    """The rejected deliveries of one consumer.

    :param changes: what the consumer wants other than the policy that all have.
    :param keeps_dead: the broker keeps dead messages. Where it throws them away unless somebody has
        told it elsewhere where to put them, no policy decides that a message is dead; only the user
        does.
    :param again: is given those whose time has come.
    """

    def __init__(
        self,
        clock: IReactorTime,
        changes: RedeliveryChanges | None,
        keeps_dead: bool,
        again: Callable[[Sequence[Delivery]], None],
    ) -> None:
        policy = RedeliveryPolicy()
        self._clock = clock
        self._policy = policy if changes is None else changes.over(policy)
        self._keeps_dead = keeps_dead
        self._again = again
        self._waiting: dict[IDelayedCall, list[Delivery]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def sort(
        self, deliveries: Sequence[Delivery], delay_ms: int | None
    ) -> tuple[dict[int, list[Delivery]], list[Delivery]]:
        """Which of these are to wait, by how many milliseconds, and which are dead.

        :param delay_ms: of ``Consumer.reject``.
        """
        pauses: dict[int, list[Delivery]] = {}
        dead: list[Delivery] = []
        for delivery in deliveries:
            pause = self._policy.delay(delivery.attempts) if delay_ms is None else delay_ms
            if pause is None and not self._keeps_dead:
                pause = max(self._policy.maximum_redelivery_delay, _SHORTEST)
            if pause is None:
                dead.append(delivery)
            else:
                pauses.setdefault(pause, []).append(delivery)
        return pauses, dead

    def delay(self, pause: int, deliveries: list[Delivery]) -> None:
        """Have these wait for so many milliseconds."""

        def due() -> None:
            self._waiting.pop(call, None)
            self._again(deliveries)

        call = self._clock.callLater(pause / 1000, due)
        self._waiting[call] = deliveries

    def take(self) -> list[Delivery]:
        """Those that wait; they wait no longer."""
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.cancel()
        return [delivery for deliveries in waiting.values() for delivery in deliveries]
