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

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bridge.providers.amqp.encoding import Described, Symbol, encode
from bridge.providers.amqp.mapping import VALUE
from bridge.providers.amqp.receiver import ReceiverLink
from bridge.providers.local_transactions import LocalTransaction
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
    :param unnamed: it mentions a temporary destination that the broker had not named. Then
        ``data`` are about its bytes.
    """

    destination: Destination
    data: bytes
    place: int
    number: int
    unnamed: Message | None = None


class Transaction(LocalTransaction[Delivery, Outgoing]):
    """One transaction of one session, until its outcome.

    :ivar unanswered: messages that the broker has not answered.
    :ivar refused: why one was refused.
    :ivar discharging: the broker was asked for the outcome.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unanswered = 0
        self.refused: MessagingError | None = None
        self.discharging = False

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
