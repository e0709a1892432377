"""Subscriptions on the wire: what a consumer has SUBSCRIBEd to.

Owns the SUBSCRIBE, UNSUBSCRIBE, ACK and NACK frames of one subscription, and what becomes of
messages that arrive when it is over. How many subscriptions a consumer has is decided by its
window.

RabbitMQ keeps delivered messages with the connection after UNSUBSCRIBE, and accepts no ACK or NACK
for a subscription that is over. There the id is subscribed again, to a topic without messages,
until everything is settled: the subscription is *parked*.

RabbitMQ has no durable subscriptions either: there one is a queue that is bound to the topic.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

from bridge.providers.asked import Asked, Operation
from bridge.providers.stomp.frames import Received
from bridge.providers.stomp.mapping import pattern
from bridge.providers.stomp.wire import Answer, Pairs, Wire
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.exchanges import QueueDeclaration
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Mode
from gateway.stomp.brokers import RABBITMQ, Dialect, with_slashes_escaped

# Strings and names first, so that no number is found inside of them.
_TOKEN: Final = re.compile(
    r"(?s)'(?:[^']|'')*'|[^\W\d][\w$.]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[lLfFdD]?|."
)
#: Above this a double does not tell neighbours apart.
_EXACT: Final = 1 << 53
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9-]")


class Line(Protocol):
    """The session that subscriptions belong to: where its frames go, in order."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def mode(self) -> Mode: ...

    def wire_transaction(self) -> str | None:
        """The transaction that subscriptions begin in; None where they do not."""

    def put(self, command: str, headers: Pairs) -> None: ...

    def ask(self, command: str, headers: Pairs, asked: Asked, answer: Answer) -> None: ...


class Receiver(Protocol):
    """The consumer that the messages of a subscription are for."""

    @property
    def waiting(self) -> int:
        """Messages that have arrived and were not delivered."""

    def arrived(self, subscription: WireSubscription, frame: Received) -> None:
        """A MESSAGE arrived for one of its subscriptions."""

    def fail(self, error: MessagingError) -> None:
        """The broker refused or ended a subscription."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A message that the broker sent for a subscription, until it is settled.

    :ivar name: what ACK calls it. :ivar attempts: the delivery attempt, counted from 1.
    :ivar again: it was delivered to the user before and waits for its redelivery. :ivar size: bytes
        of memory that it takes, estimated.
    """

    subscription: WireSubscription
    name: str
    message: Message
    attempts: int
    size: int
    again: bool = False

    def acknowledge(self) -> None:
        subscription = self.subscription
        subscription.line.put("ACK", subscription.settling(self.name))

    def bury(self) -> None:
        """NACK it for good: the broker puts it among its dead messages."""
        subscription = self.subscription
        headers = [*subscription.settling(self.name), *subscription.line.dialect.dead_headers]
        subscription.line.put("NACK", headers)

    def settling(self, transaction: str) -> Pairs:
        """The headers of an ACK or NACK of it in a transaction."""
        return [*self.subscription.settling(self.name), ("transaction", transaction)]


class WireSubscription:
    """One subscription of a consumer, from SUBSCRIBE to its last message.

    :param registry: the subscriptions of the connection by id. This one is in it until nothing more
        arrives for it.
    :param id: its identifier, unique in the connection.
    :param prefetch: messages that the broker may send unsettled; 0 leaves it to the broker.
    """

    def __init__(
        self,
        receiver: Receiver,
        spec: ConsumerSpec,
        line: Line,
        registry: dict[str, WireSubscription],
        id: str,
        prefetch: int,
    ) -> None:
        self.receiver: Final = receiver
        self.id: Final = id
        self.prefetch: Final = prefetch
        self.line: Final = line
        self._spec: Final = spec
        self._registry: Final = registry
        #: Nothing that arrives is for the consumer any more.
        self.over = False
        self._parked = False
        self._ending = False
        #: Nothing more arrives: the broker has confirmed UNSUBSCRIBE.
        self._quiet = False
        registry[id] = self

    def subscribe(self, asked: Asked, transaction: str | None, answer: Answer) -> None:
        """Have the broker send.

        :param transaction: for brokers whose transacted subscriptions begin in one.
        :param answer: called with the outcome.
        """
        dialect, spec = self.line.dialect, self._spec
        destination = spec.destination
        queue = destination.kind is Kind.QUEUE
        if spec.browse:
            ack = "auto"
        else:
            ack = "client" if transaction is not None else "client-individual"
        named = pattern(dialect, destination, spec.none_or_more)
        declared = spec.queue if dialect.has_exchanges else None
        if declared is not None and declared.exists:
            named = f"/amq{named}"
        headers = [("id", self.id), ("destination", named), ("ack", ack)]
        if declared is not None:
            headers += declaring(dialect, declared)
        elif queue:
            headers += dialect.queue_headers
        if not dialect.prefixes:
            headers.append(("subscription-type", "ANYCAST" if queue else "MULTICAST"))
        if dialect.prefetch and self.prefetch:
            headers.append((dialect.prefetch, str(self.prefetch)))
        if spec.selector is not None:
            selector = with_decimals(spec.selector) if dialect.decimals else spec.selector
            headers.append(("selector", selector))
        if spec.no_local and dialect.no_local:
            headers.append((dialect.no_local, "true"))
        if spec.browse:
            headers.append(("browser", "true"))
        if spec.exclusive:
            headers.append((dialect.exclusive, "true"))
        if asked.durable_name is not None:
            headers += durable_headers(dialect, asked.client_id or "", asked.durable_name)
        if transaction is not None:
            headers.append(("transaction", transaction))
        self.line.ask("SUBSCRIBE", headers, asked, answer)

    def settling(self, name: str) -> Pairs:
        """The headers of ACK and NACK that name a message, in every version."""
        return [("id", name), ("message-id", name), ("subscription", self.id)]

    def park(self) -> None:
        """Have the broker send no more, and keep what it has sent.

        Idempotent. Possible where UNSUBSCRIBE gives nothing back.
        """
        if not self._parked:
            self._parked = self.over = True
            self._unsubscribe(self._unsubscribed)
            self.line.put("SUBSCRIBE", parking(self.id))

    def release(self, outstanding: Sequence[Delivery]) -> None:
        """Have the broker send no more, and give unsettled messages back.

        These, and those that are on their way, return to the destination.
        """
        self.over = True
        if self.line.dialect.gives_back:
            self._unsubscribe(self._fell_quiet)
            if self.line.dialect.gives_back_late:
                self._hurry()
            return
        self.park()
        self._ending = True
        for delivery in outstanding:
            self._give_back(delivery.name)
        if self._quiet:
            self._leave()

    def arrived_late(self, name: str) -> None:
        """Return a message that arrived when the subscription was over."""
        if not self.line.dialect.gives_back:
            self._give_back(name)

    def _unsubscribe(self, answer: Answer) -> None:
        self.line.ask("UNSUBSCRIBE", [("id", self.id)], Asked(Operation.UNSUBSCRIBE), answer)

    def _hurry(self) -> None:
        """Subscribe once more, to nothing.

        That ends the time that the broker allows for late ACKs.
        """
        destination = self._spec.destination
        if destination.kind is Kind.QUEUE:
            id = f"{self.id}-"
            headers = [
                ("id", id),
                ("destination", pattern(self.line.dialect, destination)),
                ("ack", "client"),
                ("selector", "1 = 0"),
            ]
            self.line.put("SUBSCRIBE", headers)
            self.line.put("UNSUBSCRIBE", [("id", id)])

    def _give_back(self, name: str) -> None:
        """Return a message to the destination, as one that was delivered."""
        self.line.put("NACK", [*self.settling(name), ("requeue", "true")])

    def _unsubscribed(self, error: MessagingError | None) -> None:
        """Wait for the messages that were on their way.

        RabbitMQ sends them after it has confirmed UNSUBSCRIBE and before its next answer.
        """
        if error is None:
            transaction = [("transaction", f"{self.id}-quiet")]
            self.line.ask("BEGIN", transaction, Asked(Operation.UNSUBSCRIBE), self._fell_quiet)
            self.line.put("ABORT", transaction)

    def _fell_quiet(self, error: MessagingError | None) -> None:
        self._quiet = True
        if error is None and self.line.dialect.gives_back:
            self._registry.pop(self.id, None)
        elif error is None and self._ending:
            self._leave()

    def _leave(self) -> None:
        self.line.put("UNSUBSCRIBE", [("id", self.id)])
        self._registry.pop(self.id, None)


def parking(id: str) -> Pairs:
    """The headers of a SUBSCRIBE to where no message comes.

    It must follow UNSUBSCRIBE at once: RabbitMQ answers with an ERROR when it finds, after an
    UNSUBSCRIBE, messages that were on their way.
    """
    return [
        ("id", id),
        ("destination", f"/topic/parked.{uuid4().hex}"),
        ("ack", "client-individual"),
    ]


def declaring(dialect: Dialect, queue: QueueDeclaration) -> Pairs:
    """The headers by which SUBSCRIBE declares the queue of a client's."""
    return [*queue.headers, *([(dialect.durable_name, queue.name)] if queue.name else ())]


def durable_headers(dialect: Dialect, client_id: str, name: str) -> Pairs:
    """The headers by which (UN)SUBSCRIBE names a durable subscription."""
    if dialect.durable_name != "x-queue-name":
        return [(dialect.durable_name, name)]
    # RabbitMQ knows no client identifiers: the subscription is a queue, and its name must tell
    # whose it is. Everything but letters, digits and hyphens is encoded, because RabbitMQ reads
    # queue names in some places as they are, and in others unquotes them.
    queue = ".".join(("durable", *[_NOT_PLAIN.sub(_encoded, part) for part in (client_id, name)]))
    return [("durable", "true"), ("auto-delete", "false"), (dialect.durable_name, queue)]


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"_{octet:02x}" for octet in found[0].encode("utf-8", "surrogatepass"))


async def remove_durable_queue(
    open: Callable[[], Awaitable[Wire]], asked: Asked, durable: Pairs
) -> None:
    """Remove a subscription's queue of RabbitMQ; durable when this returns.

    RabbitMQ removes the queue of a subscription that a connection has, when UNSUBSCRIBE names it.
    It answers a subscription to a queue that does not exist with an ERROR that ends the connection.
    So this is done on a connection of its own.

    :param open: opens a connection to the broker, of the same user.
    :param asked: whose it is.
    :param durable: the headers by which SUBSCRIBE declares it.
    :raises UnknownSubscription: it does not exist.
    :raises MessagingError: the broker cannot be reached, or refuses.
    """
    queue = with_slashes_escaped(dict(durable)[RABBITMQ.durable_name])
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
        # The removal needs no right topic, and the queue's binding goes with the queue.
        wire.write("SUBSCRIBE", [*parking("remove"), one, *durable])
        removed = wire.request("UNSUBSCRIBE", [("id", "remove"), *durable], asked)
        wire.write("SUBSCRIBE", parking("remove"))
        await removed
    finally:
        await wire.close()


def with_decimals(selector: str) -> str:
    """Write the whole numbers of a selector as decimals.

    This is for brokers that see properties as text.

    STOMP has no types, so properties are Strings to a broker. ActiveMQ reads such a String as a
    number of the type that it is compared with, and a comparison with a whole number fails if the
    text has a point. ``2.0`` compares with both as it should. A selector that divides is left
    unchanged, since a quotient would change.
    """
    tokens = _TOKEN.findall(selector)
    if "/" in tokens:
        return selector
    return "".join(
        f"{token}.0" if token.isdecimal() and int(token) <= _EXACT else token for token in tokens
    )
