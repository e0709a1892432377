"""What a consumer receives from: a queue, a subscription, a browser.

Owns the words between a consumer, its source and what hands out for that, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Subscription
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy
from gateway.messaging.selector.selector import Selector


class Receiver(Protocol):
    """A consumer, as its source knows it."""

    spec: Subscription
    #: It was started, and not stopped or closed.
    running: bool
    #: Messages that may still be handed to it; and bytes, None when they are not counted.
    credit: int
    octets: int | None
    selector: Selector | None

    def ready(self) -> bool:
        """Whether something can be handed to it."""

    def wants(self, message: Message) -> bool:
        """Whether its selector matches."""

    def hand(self, run: list[Message], attempts: list[int] | None) -> None:
        """Deliver a run. Its length is within the credit."""

    def end_of_browse(self) -> None:
        """There is nothing more to browse."""

    def fail(self, error: MessagingError) -> None:
        """Its source is gone."""

    def stop_for_good(self, error: MessagingError) -> None:
        """Its source gives nothing more."""

    def give_back(self) -> None:
        """Everything outstanding goes back."""

    @property
    def outstanding(self) -> int:
        """Deliveries not settled."""


class Source(Protocol):
    """What a consumer receives from."""

    def mark(self) -> None:
        """Look at the end of the turn whether anything can be handed out."""

    def settle(self, messages: Sequence[Message]) -> None:
        """These were taken for good."""

    def release(self, messages: Sequence[Message]) -> None:
        """Delete the rows of these in the batch that gathers now.

        The first half of :meth:`settle`.
        """

    def settled(self, messages: Sequence[Message]) -> None:
        """These, which were released, are taken. The second half."""

    def give_up(self, messages: Sequence[Message]) -> None:
        """Give up outstanding messages of a source that no longer exists.

        They go to the dead message queue where :attr:`Place.burial` says so.
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

    def leave(self, consumer: Receiver) -> None:
        """The consumer receives no more."""


class Place(Source, Protocol):
    """Where messages wait: a queue, or a subscription of a topic."""

    #: It is being destroyed and what it has goes to the dead message queue, with this comment;
    #: None: nothing goes there.
    burial: str | None

    @property
    def owner(self) -> int:
        """Owner in the store's redelivery rows: 0 for a queue."""

    @property
    def gone(self) -> bool:
        """Whether it was removed.

        Nothing waits here any more, and what comes back is settled.
        """

    def use_policy(self) -> RedeliveryPolicy:
        """The redelivery policy of the destination."""

    def tries(self, seq: int) -> int:
        """How often the message came back."""

    def keeps_count(self, message: Message) -> bool:
        """Whether the store is told how often the message was tried."""

    def examine(self, run: list[Message]) -> list[Message]:
        """Those of a run that are still to be handed out, just before they are."""

    def return_to_backlog(self, messages: Sequence[Message]) -> None:
        """These wait again."""

    def release_stored(self, seqs: Sequence[int]) -> None:
        """Release messages that are in the store only.

        Like :meth:`release`, but by seq; quick for seqs in order.
        """

    def bury(self, messages: Sequence[Message], reason: DeadReason, comment: str) -> None:
        """Send dead messages to the dead message queue, and settle them here.

        They wait no longer and are not outstanding.
        """

    def lost(self, count: int, octets: int) -> None:
        """The store has lost messages that waited here: they no longer count."""
