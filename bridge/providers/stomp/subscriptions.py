"""Subscriptions on the wire: what a consumer has SUBSCRIBEd to, and how many messages the broker
may send for it.

Owns the SUBSCRIBE, UNSUBSCRIBE, ACK and NACK frames of one subscription, and what becomes of
messages that arrive when it is over.

STOMP cannot raise the prefetch of a subscription. So a consumer of a queue has one *slice* for the
credit it began with, and another for each time that it wants more at once; together they are as
much as it may have. All are of one connection, which keeps their messages in order.

RabbitMQ keeps what was delivered with the connection after UNSUBSCRIBE, and takes no ACK or NACK
for a subscription that is over. There the identifier is subscribed again, to a topic that nobody
sends to, until all is settled: the slice is *parked*.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from bridge.providers.stomp.dialect import RABBITMQ, Dialect
from bridge.providers.stomp.mapping import pattern
from bridge.providers.stomp.refusals import Asked, Operation
from bridge.providers.stomp.wire import Answer, Pairs, Wire
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Subscription

if TYPE_CHECKING:
    from bridge.providers.stomp.consumer import StompConsumer


# Strings and names first, so that no number is found inside of them.
_TOKEN: Final = re.compile(
    r"(?s)'(?:[^']|'')*'|[^\W\d][\w$.]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[lLfFdD]?|."
)
#: Above this a double does not tell neighbours apart.
_EXACT: Final = 1 << 53

_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9-]")


class Line(Protocol):
    """Where frames of a session go, in order."""

    @property
    def dialect(self) -> Dialect: ...

    def put(self, command: str, headers: Pairs) -> None: ...

    def ask(self, command: str, headers: Pairs, asked: Asked, answer: Answer) -> None: ...


class Delivery:
    """A message that the broker sent for a subscription, until it is settled.

    :ivar name: what ACK calls it. :ivar attempts: how often it is being delivered, from 1.
    :ivar again: it was delivered to the user before and waits to be so again. :ivar size: the
        octets of memory that it takes, about.
    """

    __slots__ = ("again", "attempts", "message", "name", "size", "slice")

    def __init__(self, slice: Slice, name: str, message: Message, attempts: int, size: int) -> None:
        self.slice: Final = slice
        self.name: Final = name
        self.message: Final = message
        self.attempts = attempts
        self.size: Final = size
        self.again = False


class Slice:
    """One subscription on the wire.

    :param id: its identifier, unique in the connection. :param prefetch: messages that the broker
        may send unsettled; 0 leaves it to the broker.
    """

    def __init__(self, consumer: StompConsumer, line: Line, id: str, prefetch: int) -> None:
        self.consumer: Final = consumer
        self.id: Final = id
        self.prefetch: Final = prefetch
        self._line: Final = line
        self._dialect: Final = line.dialect
        #: It was UNSUBSCRIBEd, and nothing that arrives is for the consumer any more.
        self.over = False
        self._parked = False
        self._ending = False
        #: What arrives no more, since the broker has confirmed UNSUBSCRIBE.
        self.quiet = False

    def subscribe(
        self, asked: Asked, spec: Subscription, transaction: str | None, answer: Answer
    ) -> None:
        """Have the broker send.

        :param transaction: for brokers whose transacted subscriptions are born in one. :param
            answer: told the outcome.
        """
        dialect = self._dialect
        destination = spec.destination
        queue = destination.kind is Kind.QUEUE
        headers = [("id", self.id), ("destination", pattern(dialect, destination))]
        headers.append(
            (
                "ack",
                "auto"
                if spec.browse
                else "client"
                if transaction is not None
                else "client-individual",
            )
        )
        if queue:
            headers += dialect.queue_headers
        if not dialect.prefixes:
            headers.append(("subscription-type", "ANYCAST" if queue else "MULTICAST"))
        if dialect.prefetch and self.prefetch:
            headers.append((dialect.prefetch, str(self.prefetch)))
        if spec.selector is not None:
            headers.append(
                ("selector", with_decimals(spec.selector) if dialect.decimals else spec.selector)
            )
        if spec.no_local and dialect.no_local:
            headers.append((dialect.no_local, "true"))
        if spec.browse:
            headers.append(("browser", "true"))
        if asked.durable_name is not None:
            headers += durable_headers(dialect, asked.client_id or "", asked.durable_name)
        if transaction is not None:
            headers.append(("transaction", transaction))
        self._line.ask("SUBSCRIBE", headers, asked, answer)

    def acknowledge(self, delivery: Delivery, transaction: str | None = None) -> None:
        """ACK it."""
        self._line.put("ACK", self._settling(delivery.name, transaction))

    def bury(self, delivery: Delivery, transaction: str | None = None) -> None:
        """NACK it for good."""
        self._line.put(
            "NACK", [*self._settling(delivery.name, transaction), *self._dialect.dead_headers]
        )

    def _settling(self, name: str, transaction: str | None) -> Pairs:
        headers = [("id", name), ("message-id", name), ("subscription", self.id)]
        if transaction is not None:
            headers.append(("transaction", transaction))
        return headers

    def park(self) -> None:
        """Have the broker send no more, and keep what it has sent; possible where UNSUBSCRIBE gives
        nothing back.
        """
        if not self._parked:
            self._parked = self.over = True
            self._line.ask(
                "UNSUBSCRIBE", [("id", self.id)], Asked(Operation.UNSUBSCRIBE), self._unsubscribed
            )
            self._line.put("SUBSCRIBE", parking(self.id))

    def release(self, outstanding: list[Delivery]) -> None:
        """Have the broker send no more, and give these and what is on its way back to the
        destination.
        """
        self.over = True
        if self._dialect.gives_back:
            self._line.ask(
                "UNSUBSCRIBE", [("id", self.id)], Asked(Operation.UNSUBSCRIBE), self._fell_quiet
            )
            if self._dialect.gives_back_late:
                self._hurry()
            return
        self.park()
        self._ending = True
        for delivery in outstanding:
            self.give_back(delivery.name)
        if self.quiet:
            self._leave()

    def _hurry(self) -> None:
        """Subscribe once more, for nothing, which ends the time that the broker leaves for belated
        ACKs.
        """
        destination = self.consumer.spec.destination
        if destination.kind is Kind.QUEUE:
            id = f"{self.id}-"
            headers = [
                ("id", id),
                ("destination", pattern(self._dialect, destination)),
                ("ack", "client"),
                ("selector", "1 = 0"),
            ]
            self._line.put("SUBSCRIBE", headers)
            self._line.put("UNSUBSCRIBE", [("id", id)])

    def give_back(self, name: str) -> None:
        """Return a message to the destination, as one that was delivered."""
        self._line.put("NACK", [*self._settling(name, None), ("requeue", "true")])

    def _unsubscribed(self, error: MessagingError | None) -> None:
        """RabbitMQ has confirmed UNSUBSCRIBE before it passed on what was on its way; that comes
        before its next answer.
        """
        if error is None:
            name = f"{self.id}-quiet"
            self._line.ask(
                "BEGIN", [("transaction", name)], Asked(Operation.UNSUBSCRIBE), self._fell_quiet
            )
            self._line.put("ABORT", [("transaction", name)])

    def _fell_quiet(self, error: MessagingError | None) -> None:
        self.quiet = True
        if error is None and self._dialect.gives_back:
            self.consumer.gone(self)
        elif error is None and self._ending:
            self._leave()

    def _leave(self) -> None:
        self._line.put("UNSUBSCRIBE", [("id", self.id)])
        self.consumer.gone(self)

    def arrived_late(self, name: str) -> None:
        """A message came after all was over."""
        if not self._dialect.gives_back:
            self.give_back(name)


def parking(id: str) -> Pairs:
    """The headers of a SUBSCRIBE to where no message comes.

    It has to follow UNSUBSCRIBE at once: RabbitMQ answers with an ERROR when it finds, after an
    UNSUBSCRIBE, messages that were on their way.
    """
    return [
        ("id", id),
        ("destination", f"/topic/parked.{uuid4().hex}"),
        ("ack", "client-individual"),
    ]


def durable_headers(dialect: Dialect, client_id: str, name: str) -> Pairs:
    """The headers of SUBSCRIBE and UNSUBSCRIBE that name a durable subscription."""
    if dialect.durable != "x-queue-name":
        return [(dialect.durable, name)]
    # RabbitMQ knows no client identifiers: the subscription is a queue, and its name has to tell
    # whose it is. Everything but letters, digits and hyphens is spelt, because RabbitMQ reads queue
    # names in some places as they are, and in others unquotes them.
    queue = ".".join(("durable", *[_NOT_PLAIN.sub(_spelt, part) for part in (client_id, name)]))
    return [("durable", "true"), ("auto-delete", "false"), (dialect.durable, queue)]


def _spelt(found: re.Match[str]) -> str:
    return "".join(f"_{octet:02x}" for octet in found[0].encode("utf-8", "surrogatepass"))


async def remove_durable(
    open: Callable[[], Awaitable[Wire]], username: str, client_id: str, name: str
) -> None:
    """Remove it; durable when this returns.

    :param open: opens a connection to the broker, of the same user.
    :raises UnknownSubscription: there is none. :raises MessagingError: the broker cannot be
        reached, or refuses.
    """
    asked = Asked(Operation.UNSUBSCRIBE, username, None, None, client_id, name)
    durable = durable_headers(RABBITMQ, client_id, name)
    queue = dict(durable)[RABBITMQ.durable]
    wire = await open()
    try:
        one = ("prefetch-count", "1")
        looking: Pairs = [
            ("id", "look"),
            ("destination", f"/amq/queue/{queue}"),
            ("ack", "client-individual"),
            one,
        ]
        await wire.request("SUBSCRIBE", looking, asked)
        # Which topic the queue is bound to is all one to the removal, and the binding goes with the
        # queue.
        wire.write("SUBSCRIBE", [*parking("remove"), one, *durable])
        removed = wire.request("UNSUBSCRIBE", [("id", "remove"), *durable], asked)
        wire.write("SUBSCRIBE", parking("remove"))
        await removed
    finally:
        await wire.close()


def with_decimals(selector: str) -> str:
    """The same selector with its whole numbers written as decimals. One that divides is left as it
    is, since a quotient would change.
    """
    tokens = _TOKEN.findall(selector)
    if "/" in tokens:
        return selector
    return "".join(
        f"{token}.0" if token.isdecimal() and int(token) <= _EXACT else token for token in tokens
    )
