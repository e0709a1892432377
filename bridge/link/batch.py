"""The batch under way on a link, and how far each of its messages has come.

Owns these values and what follows from them. What is done with a message is
:mod:`bridge.link.transfer`'s to say, in which order :mod:`bridge.link.pump`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.dead.chain import DeadMessage
from bridge.journal_lines import Transfers
from bridge.link.arrivals import Received
from bridge.link.source import Source
from bridge.link.transfer import Dead, Outcome, Sides, ToSend
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message


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
    #: That the target may have it, and nobody knows.
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
        """Where it is going, after AS_SOURCE or ``branch_to``; None where that is not known."""
        return (
            self.outcome.message.headers.destination if isinstance(self.outcome, ToSend) else None
        )

    def again(self, message: Message) -> Message:
        """A message to hand to the target: ``message`` itself at first, one alike from then on."""
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


@dataclass(slots=True)
class Batch:
    """The messages that are acknowledged together.

    :param source: the connection they came by: with that one they are void, as the provider
        delivers them again.
    :param transfers: what the journal is told of them.
    """

    source: Source
    received: Sequence[Received]
    transfers: Transfers
    items: list[Item] = field(default_factory=list)
    #: That the source has acknowledged it, or never will.
    acknowledged: bool = False
    #: That one of it was refused, nobody knows which, and others may have arrived: each is sent by
    #: itself.
    singly: bool = False
    #: That nothing may be done about it any more: its link was stopped over it.
    void: bool = False

    @property
    def doubtful(self) -> int:
        """How many of it the target has, while the source may give them out again."""
        return 0 if self.acknowledged else sum(item.sent for item in self.items)


def _other(current: Destination | None, configured: Destination | None) -> Destination | None:
    return current if current != configured else None
