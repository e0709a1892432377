"""What STOMP brokers do differently, as values: header names, what they can do, and what can be
relied on.

Owns the table and how a broker is recognised by the ``server`` header of CONNECTED. Knows neither
sockets nor messages.

What a provider can do is known of a dialect, not of STOMP. RabbitMQ buffers a transaction and
replays it at COMMIT, frame by frame, and Artemis ignores ACKs in transactions, so neither is
``transacted``. Rejection needs a NACK that puts a message among the dead; Artemis takes NACK for
ACK and Open MQ ends the connection, so neither is ``individual``. Temporary destinations are no
dialect's: their names mean something to the connection that made them only, and others learn
another name from ``reply-to``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.messaging.provider import Capabilities


class Vouching(Enum):
    """For what the RECEIPT of a SEND speaks besides that SEND itself."""

    #: For nothing.
    ONE = "one"
    #: For earlier ones to the same kind of destination with the same delivery mode.
    ALIKE = "alike"
    #: For all earlier ones of the connection.
    ALL = "all"


class Wildcards(Enum):
    """How a topic's wildcards are spelt."""

    #: ``*`` one level, ``>`` the rest, as everywhere in this project.
    JMS = "jms"
    #: ``*`` one level, ``#`` none or more levels.
    HASH = "hash"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of broker.

    :param name: in configuration files and errors.
    :param marks: parts of ``server``, in small letters, that tell it; the first dialect of
        :data:`DIALECTS` that has one wins.
    :param capabilities: what a provider to it can do.
    :param vouching: which RECEIPTs are needed to know that all SENDs are safe.
    :param survives_errors: an ERROR that answers a frame with ``receipt`` leaves the connection
        open.
    :param ends_at_error: nothing that was sent after a refused frame is carried out.
    :param gives_back: UNSUBSCRIBE returns what was not acknowledged. If not, it stays with the
        connection until it is acknowledged.
    :param gives_back_late: it does so after a while, or when the same connection subscribes to the
        same queue again.
    :param acknowledges_within: an ACK of an ordinary subscription may have a ``transaction``. If
        not, SUBSCRIBE must have one, the transaction must be open for messages to come, and there
        is one at a time.
    :param dead_headers: of a NACK that declares a message dead.
    :param keeps_dead: dead messages are kept somewhere, whatever the destination.
    :param prefixes: ``destination`` has ``/queue/`` or ``/topic/`` before the name. If not,
        ``destination-type`` and ``subscription-type`` tell the kind.
    :param escapes_names: ``%`` and ``/`` within names are percent-encoded.
    :param ordered_slices: two subscriptions of a connection to one queue get its messages in order,
        outside of transactions.
    :param wildcards: of topics.
    :param temporary: what stands before the name of a temporary queue and topic that somebody else
        made.
    :param prefetch: the header of SUBSCRIBE for the messages that may be unsettled, "" where there
        is none.
    :param durable: the header of SUBSCRIBE for the name of a durable subscription.
    :param no_local: the header of SUBSCRIBE for no-local, "" where it is done on this side.
    :param queue_headers: of each SUBSCRIBE and SEND to a queue.
    :param text_type: the header that tells text from octets and its two values; None where octets
        have a ``content-length`` and text has none.
    :param types_told: MESSAGE has a ``content-length`` for octets only.
    :param own_ids: the broker keeps a message id that the sender gives, in this header; "" where it
        makes its own.
    :param id_after: what stands in ``message-id`` before the message's own id, "" where it is that
        alone: the rest is of the delivery.
    :param decimals: selectors compare a String with a whole number only if it is one, too.
    :param refuses_schedules: a SEND with ActiveMQ's headers for later delivery is refused.
    :param relative_expiry: the header that takes a time to live in milliseconds, besides
        ``expires``; "" for none.
    """

    name: str
    marks: tuple[str, ...] = ()
    capabilities: Capabilities = Capabilities()  # noqa: RUF009  frozen
    vouching: Vouching = Vouching.ONE
    survives_errors: bool = False
    ends_at_error: bool = False
    gives_back: bool = True
    gives_back_late: bool = False
    acknowledges_within: bool = True
    dead_headers: tuple[tuple[str, str], ...] = ()
    keeps_dead: bool = False
    prefixes: bool = True
    escapes_names: bool = False
    ordered_slices: bool = False
    wildcards: Wildcards = Wildcards.JMS
    temporary: tuple[str, str] = ("/temp-queue/", "/temp-topic/")
    prefetch: str = ""
    durable: str = "durable-subscriber-name"
    no_local: str = "no-local"
    queue_headers: tuple[tuple[str, str], ...] = ()
    text_type: tuple[str, str, str] | None = None
    types_told: bool = True
    own_ids: str = ""
    id_after: str = ""
    decimals: bool = False
    refuses_schedules: bool = False
    relative_expiry: str = ""

    def message_id(self, header: str) -> str:
        """The message's own id in a ``message-id``."""
        return header.rpartition(self.id_after)[2] if self.id_after else header


ACTIVEMQ: Final = Dialect(
    "activemq",
    ("activemq/",),
    Capabilities(
        transacted=True,
        joined=True,
        durable=True,
        selectors=True,
        browse=True,
        individual=True,
        stable_ids=True,
    ),
    # Its store takes persistent messages on a thread of its own, one each for queues and topics, in
    # the order they came.
    vouching=Vouching.ALIKE,
    survives_errors=True,
    keeps_dead=True,
    # A commit frees a subscription and fills another at the same time, and then they overtake each
    # other.
    ordered_slices=True,
    temporary=("/remote-temp-queue/", "/remote-temp-topic/"),
    prefetch="activemq.prefetchSize",
    durable="activemq.subscriptionName",
    no_local="activemq.noLocal",
    text_type=("amq-msg-type", "text", "bytes"),
    decimals=True,
)

ARTEMIS: Final = Dialect(
    "artemis",
    ("activemq-artemis", "artemis"),
    Capabilities(durable=True, selectors=True, duplicate_ids=True, stable_ids=True),
    vouching=Vouching.ALL,
    prefixes=False,
    wildcards=Wildcards.HASH,
    durable="durable-subscription-name",
    # CONSUMER,MESSAGE from 2.33 on, and MESSAGE before.
    id_after=",",
)

RABBITMQ: Final = Dialect(
    "rabbitmq",
    ("rabbitmq",),
    Capabilities(durable=True, individual=True),
    # The RECEIPT of a SEND is the confirmation of that one message; confirmations of different
    # queues overtake each other.
    vouching=Vouching.ONE,
    gives_back=False,
    dead_headers=(("requeue", "false"),),
    escapes_names=True,
    ordered_slices=True,
    wildcards=Wildcards.HASH,
    temporary=("/reply-queue/", "/reply-queue/"),
    prefetch="prefetch-count",
    durable="x-queue-name",
    no_local="",
    # Else its queues are exclusive to a connection, or gone with the last consumer.
    queue_headers=(("durable", "true"), ("auto-delete", "false"), ("exclusive", "false")),
    types_told=False,
    own_ids="amqp-message-id",
    relative_expiry="expiration",
)

GATEWAY: Final = Dialect(
    "gateway",
    ("stomp-gateway/",),
    Capabilities(
        transacted=True,
        durable=True,
        selectors=True,
        browse=True,
        individual=True,
        delivery_count=True,
        duplicate_ids=True,
        stable_ids=True,
    ),
    vouching=Vouching.ALL,
    ends_at_error=True,
    gives_back_late=True,
    acknowledges_within=False,
    dead_headers=(("requeue", "false"),),
    keeps_dead=True,
    temporary=(
        "/temp-queue/temporary_destination://queue/",
        "/temp-topic/temporary_destination://topic/",
    ),
    prefetch="prefetch-count",
    types_told=False,
    refuses_schedules=True,
)

OPEN_MQ: Final = Dialect(
    "openmq",
    ("open message queue", "openmq"),
    Capabilities(transacted=True, durable=True, selectors=True, stable_ids=True),
    vouching=Vouching.ALL,
    acknowledges_within=False,
    temporary=(
        "/temp-queue/temporary_destination://queue/",
        "/temp-topic/temporary_destination://topic/",
    ),
)

#: A broker nobody knows: sends, receives and acknowledges, and nothing besides is relied on.
GENERIC: Final = Dialect("generic")

#: By name, the more particular marks first: Artemis calls itself ``ActiveMQ-Artemis/``, and
#: ActiveMQ ``ActiveMQ/``.
DIALECTS: Final = {
    dialect.name: dialect for dialect in (GATEWAY, ARTEMIS, ACTIVEMQ, RABBITMQ, OPEN_MQ, GENERIC)
}


def recognise(server: str) -> Dialect:
    """The dialect of a broker that calls itself this; :data:`GENERIC` where no other is recognised.

    :param server: the ``server`` header of CONNECTED, "" without one.
    """
    small = server.lower()
    for dialect in DIALECTS.values():
        if any(mark in small for mark in dialect.marks):
            return dialect
    return GENERIC


def product(server: str) -> str:
    """What a broker calls itself, without its version and whatever stands behind that, where it is
    of STOMP's form ``NAME/VERSION COMMENT``.

    :param server: the ``server`` header of CONNECTED. :returns: "" where that says nothing.
    """
    name, slash, version = server.partition("/")
    return (name if slash and version[:1].strip() else server).strip()
