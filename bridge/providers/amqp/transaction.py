"""Local transactions: what was sent and settled in one (part 4).

Owns the steps from *declare* to *discharge*. They are taken when the user commits, so the broker has
nothing of a transaction before, and a rollback only forgets:

1. Have the coordinator declare a transaction (section 4.5.1).
2. Send the messages and the outcomes of deliveries, each with its id (sections 4.5.3 and 4.5.4).
3. Wait until the broker has answered each message. It answers with a provisional outcome.
4. Discharge the transaction (section 4.5.2): with ``fail`` if a message was refused. Only what
   comes of this is the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from bridge.providers.amqp.encoding import Described, Symbol, encode
from bridge.providers.amqp.mapping import VALUE
from bridge.providers.amqp.receiver import ReceiverLink
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message

#: The codes of outcomes (section 3.4).
_ACCEPTED: Final = 0x24
_REJECTED: Final = 0x25


@dataclass(slots=True, eq=False)
class Delivery:
    """A message that a consumer has, and its state.

    :ivar engine: the engine's delivery.
    :ivar size: bytes of memory, estimated.
    :ivar attempts: the delivery attempt, from 1.
    :ivar again: its user had it, and did not settle it.
    """

    engine: Any
    link: ReceiverLink
    message: Message
    size: int
    attempts: int
    again: bool = False


class Outgoing(NamedTuple):
    """A message to be sent.

    :param place: its index, for MessageRejected.
    :param number: of the answer that completions wait for.
    """

    destination: Destination
    data: bytes
    place: int
    number: int


class SettlingConsumer(Protocol):
    """A consumer whose deliveries are settled in transactions."""

    @property
    def session(self) -> object: ...

    def rejected(
        self, deliveries: Sequence[Delivery], delay_ms: int | None, dead: DeadReason | None
    ) -> None:
        """Carry a rejection out."""

    def settled(self, count: int) -> None:
        """So many settlements in a transaction are no longer pending."""

    def restore(self, deliveries: Sequence[tuple[int, Delivery]]) -> None:
        """Make these outstanding again.

        Their settlements in another session's transaction were undone.
        """

    def given_up(self, deliveries: Sequence[tuple[int, Delivery]]) -> None:
        """Redeliver these and everything outstanding.

        The transaction of the consumer's session was undone.
        """


class Settlement(NamedTuple):
    """Deliveries acknowledged, or rejected as by ``Consumer.reject``."""

    consumer: SettlingConsumer
    deliveries: list[tuple[int, Delivery]]
    rejected: bool = False
    delay_ms: int | None = None
    dead: DeadReason | None = None


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one session, until its outcome.

    :ivar unanswered: messages that the broker has not answered.
    :ivar refused: why one was refused.
    :ivar discharging: the broker was asked for the outcome.
    """

    sends: list[Outgoing] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    unanswered: int = 0
    refused: MessagingError | None = None
    discharging: bool = False

    @property
    def empty(self) -> bool:
        return not self.sends and not self.settlements

    def settle(self, transaction: bytes) -> bool:
        """Tell the broker the outcomes of the deliveries.

        Those that are to be delivered again are the consumer's business, after the commit.

        :returns: whether all links are there that they came by.
        """
        for settlement in self.settlements:
            if settlement.rejected and settlement.dead is None:
                continue
            state = _REJECTED if settlement.rejected else _ACCEPTED
            for _, delivery in settlement.deliveries:
                if not delivery.link.alive:
                    return False
                delivery.link.settle_within(delivery.engine, transaction, state)
        return True

    def committed(self) -> None:
        """The broker has carried it out."""
        for settlement in self.settlements:
            deliveries = [delivery for _, delivery in settlement.deliveries]
            if settlement.rejected and settlement.dead is None:
                settlement.consumer.rejected(deliveries, settlement.delay_ms, None)
            else:
                for delivery in deliveries:
                    delivery.link.forget(delivery.engine)
            settlement.consumer.settled(len(deliveries))

    def undo(self, session: object, consumers: Iterable[SettlingConsumer]) -> None:
        """Forget it.

        The session's own consumers redeliver what was settled and everything outstanding; to other
        consumers it is outstanding again.

        :param consumers: of the session.
        """
        own: dict[SettlingConsumer, list[tuple[int, Delivery]]] = {each: [] for each in consumers}
        undone, self.sends, self.settlements = self.settlements, [], []
        for consumer, deliveries, *_ in undone:
            if consumer.session is session:
                own.setdefault(consumer, []).extend(deliveries)
            else:
                consumer.restore(deliveries)
        for consumer, given_up in own.items():
            given_up.sort(key=lambda each: each[0])
            consumer.given_up(given_up)


def declare() -> bytes:
    """The message that asks for a transaction."""
    return _request(Symbol("amqp:declare:list"), [None])


def discharge(transaction: bytes, fail: bool) -> bytes:
    """The message that asks for the outcome of a transaction.

    :param fail: it is rolled back.
    """
    return _request(Symbol("amqp:discharge:list"), [transaction, fail])


def _request(descriptor: Symbol, fields: list[Any]) -> bytes:
    return bytes((0, 0x53, VALUE)) + encode(Described(descriptor, fields))
