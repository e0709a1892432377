"""Redelivery of rejected messages by a client whose broker does not do it.

Owns the redelivery policy of one consumer and the deliveries that wait for their pause. Burying
dead messages is the consumer's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from twisted.internet.interfaces import IDelayedCall

from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy


class Attempted(Protocol):
    @property
    def attempts(self) -> int:
        """The delivery attempt, counted from 1."""


T = TypeVar("T", bound=Attempted)


class Redelivery(Generic[T]):
    """The rejected deliveries of one consumer.

    :param later: calls something after a number of seconds.
    :param again: called with deliveries whose pause is over.
    :param changes: the consumer's own changes of the default policy.
    :param keeps_dead: the broker keeps dead messages. If it does not, the policy declares none
        dead; only the user does.
    :param shortest_ms: the pause between attempts of messages that the policy would declare dead
        and the broker would lose, unless the policy's longest pause is longer.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], IDelayedCall],
        again: Callable[[Sequence[T]], None],
        changes: RedeliveryChanges | None,
        keeps_dead: bool,
        shortest_ms: int = 0,
    ) -> None:
        policy = RedeliveryPolicy()
        self._later = later
        self._again = again
        self._policy = policy if changes is None else changes.over(policy)
        self._keeps_dead = keeps_dead
        self._shortest_ms = shortest_ms
        self._waiting: dict[IDelayedCall, list[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def sort(
        self, deliveries: Sequence[T], delay_ms: int | None
    ) -> tuple[dict[int, list[T]], list[T]]:
        """Return those that must wait, by pause in milliseconds, and the dead.

        :param delay_ms: of ``Consumer.reject``.
        """
        pauses: dict[int, list[T]] = {}
        dead: list[T] = []
        for delivery in deliveries:
            pause = self._policy.delay(delivery.attempts) if delay_ms is None else delay_ms
            if pause is None and not self._keeps_dead:
                pause = max(self._policy.maximum_redelivery_delay, self._shortest_ms)
            if pause is None:
                dead.append(delivery)
            else:
                pauses.setdefault(pause, []).append(delivery)
        return pauses, dead

    def delay(self, pause_ms: int, deliveries: list[T]) -> None:
        """Deliver these again after their pause."""

        def due() -> None:
            self._waiting.pop(call, None)
            self._again(deliveries)

        call = self._later(pause_ms / 1000, due)
        self._waiting[call] = deliveries

    def take(self) -> list[T]:
        """Take out all that wait, and stop their timers."""
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.cancel()
        return [delivery for deliveries in waiting.values() for delivery in deliveries]
