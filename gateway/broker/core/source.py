"""What a consumer receives from: a queue, a subscription, or the walk of a browser.

Owns the words between a consumer and its source, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.sessions.consumer import EmbeddedConsumer
    from gateway.messaging.redelivery import RedeliveryChanges


class Source(Protocol):
    """What a consumer receives from."""

    def mark(self) -> None:
        """Something changed: look at the end of the turn whether anything can be handed out."""

    def settle(self, messages: Sequence[Message]) -> None:
        """These were taken for good."""

    def release(self, messages: Sequence[Message]) -> None:
        """These are being taken: their rows go in the batch that gathers now. The first half of
        :meth:`settle`.
        """

    def settled(self, messages: Sequence[Message]) -> None:
        """These, which were released, are taken. The second half."""

    def give_up(self, messages: Sequence[Message]) -> None:
        """The source is gone, and these were outstanding: they are given up, to the dead message
        queue where :attr:`Distribution.burial` says so.
        """

    def give_back(self, messages: Sequence[Message]) -> None:
        """These were not taken: deliver them again, in order."""

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None:
        """A consumer could not take these."""

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """The consumer receives no more."""
