"""The batch under way on a link, and how far each message has come.

Owns these values and what follows from them. What is done with a message is
:mod:`bridge.link.transfer`'s to say, in which order :mod:`bridge.link.pump`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from bridge.dead.chain import DeadMessage
from bridge.link.arrivals import Received
from bridge.link.source import LinkSource
from bridge.link.transfer import Dead, Outcome, Sides, ToSend
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

#: Why a batch is given back: reasons in the journal.
SOURCE_LOST: Final = "source lost"
STOPPED: Final = "stopped"


@dataclass(slots=True)
class Item:
    """A message of the batch, and what is still to be done about it.

    :param outcome: what the sequence made of it. :param place: in the batch, from 0.
    """

    received: Received
    outcome: Outcome
    place: int = 0
    #: The message that was handed to the target last; it is the provider's, so each attempt has one
    #: of its own.
    outgoing: Message | None = None
    #: The target may or may not have it.
    doubtful: bool = False
    #: That the target has it, for good.
    sent: bool = False
    #: Given up; None once a dead message queue has it.
    dead: DeadMessage | None = None

    @property
    def to_be_sent(self) -> bool:
        """Whether the target is to have it, and has it not."""
        return not self.sent and isinstance(self.outcome, ToSend)

    @property
    def current(self) -> Destination | None:
        """Return where it goes, after AS_SOURCE or ``branch_to``; None if unknown."""
        return (
            self.outcome.message.headers.destination if isinstance(self.outcome, ToSend) else None
        )

    def again(self, message: Message) -> Message:
        """Return a message to hand to the target: itself at first, then a copy."""
        self.outgoing = (
            message
            if self.outgoing is None
            else Message(message.headers, message.body, expires=message.expires)
        )
        return self.outgoing

    def give_up(self, link: str, dead: Dead, sides: Sides) -> None:
        """It is dead; :attr:`dead` has it until a dead message queue has."""
        message = self.received.message
        self.outcome = dead
        self.dead = DeadMessage(
            message=message,
            reason=dead.reason,
            exception=dead.exception,
            link=link,
            source_destination=message.headers.destination,
            source_provider=sides.source,
            target_destination=sides.destination,
            target_provider=sides.target,
            current_destination=_other(dead.current, sides.destination),
            source_resource=sides.source_resource,
        )


class BatchObserver(Protocol):
    """Observes the steps of one batch, such as the journal.

    None of it waits or fails.
    """

    def judged(self, items: Sequence[Item]) -> None:
        """Note that the sequence had these, in the order of the batch.

        Called again with more items where it was interrupted.
        """

    def sent(self, items: Sequence[Item], messages: Sequence[Message]) -> None:
        """These are handed to the target, which does not have them yet.

        :param messages: as sent, one for each item.
        """

    def arrived(self, items: Sequence[Item], messages: Sequence[Message], remembered: bool) -> None:
        """Note messages that the target has.

        :param messages: as sent.
        :param remembered: it keeps only one message with the same duplicate id.
        """

    def settled(self) -> None:
        """The source has forgotten the batch."""

    def committed(self, items: Sequence[Item]) -> None:
        """Note a committed transaction: the source has forgotten the batch."""

    def rolled_back(self, items: Iterable[Item] | None, error: BaseException, comment: str) -> None:
        """What was handed over of these never took effect, because of ``error``.

        :param items: None for the whole batch.
        """

    def given_back(self, items: Sequence[Item], reason: str) -> None:
        """Note that the source delivers the batch again.

        Of ``items``, those that may have arrived are not reported.

        :param reason: :data:`SOURCE_LOST` or :data:`STOPPED`.
        """

    def buried(self, buried: Sequence[tuple[Item, DeadMessage]]) -> None:
        """A dead message queue has these."""

    def expired(self, item: Item) -> None:
        """It has expired, and no dead message queue has it."""

    def written(self) -> Deferred[None] | None:
        """Fire when what was received and sent is recorded, even after a crash.

        None where it is already.
        """


class LinkObserver(Protocol):
    """Is told of the batches of one link."""

    def received(self, received: Sequence[Received]) -> BatchObserver:
        """A batch was taken from the source."""


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that were received together and are settled together.

    :param source: the connection they came by. When it ends the batch is void, as the provider
        delivers the messages again.
    :param observer: is told each step.
    """

    source: LinkSource[Any]
    received: Sequence[Received]
    observer: BatchObserver
    items: list[Item] = field(default_factory=list)
    #: That the source has acknowledged it, or never will.
    acknowledged: bool = False
    #: That one message of it was refused, it is unknown which, and others may have arrived: each is
    #: sent by itself.
    singly: bool = False

    @property
    def doubtful(self) -> int:
        """How many of it the target has, while the source may give them out again."""
        return 0 if self.acknowledged else sum(item.sent for item in self.items)


def _other(current: Destination | None, configured: Destination | None) -> Destination | None:
    return current if current != configured else None
