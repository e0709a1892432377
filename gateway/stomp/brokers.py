"""The table of STOMP brokers: header names, abilities, guarantees.

Owns the table of brokers, how a broker is recognised by the ``server`` header of CONNECTED, and the
header names that clients written for other brokers use. A leaf for the gateway, the bridge and the
pipeline: it knows neither sockets nor messages.

What a broker can do is known of its dialect, not of STOMP. RabbitMQ buffers a transaction and
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

#: SUBSCRIBE: the name of a durable subscription.
DURABLE_NAMES: Final = (
    "durable-subscriber-name",
    "durable-subscription-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",  # so misspelled by ActiveMQ before 5.7
)
#: SUBSCRIBE: how many messages may be unacknowledged; ``credit`` is Apollo's.
PREFETCHES: Final = ("prefetch-count", "activemq.prefetchSize", "credit")
#: SUBSCRIBE: do not deliver what the same connection sent.
NO_LOCALS: Final = ("no-local", "activemq.noLocal")
#: SUBSCRIBE: have the queue for oneself, while no earlier consumer has; RabbitMQ's is an argument of
#: the queue.
EXCLUSIVES: Final = ("exclusive-consumer", "activemq.exclusive", "x-single-active-consumer")
#: SEND: the time to live in milliseconds.
RELATIVE_EXPIRIES: Final = ("ttl", "expiration")
#: SEND: ActiveMQ's delivery at a later time, and Artemis's.
SCHEDULES: Final = frozenset(
    (
        *(f"AMQ_SCHEDULED_{word}" for word in ("DELAY", "PERIOD", "CRON", "REPEAT", "TIME")),
        "_AMQ_SCHED_DELIVERY",
    )
)


_SLASH: Final = "%2F"


class Vouching(Enum):
    """Which SENDs the RECEIPT of a SEND confirms besides its own."""

    #: None.
    ONE = "one"
    #: Earlier ones that are not persistent. The RECEIPT of a COMMIT confirms all ACKs before it, too.
    COMMIT = "commit"
    #: All earlier ones of the connection.
    ALL = "all"


class Schedules(Enum):
    """What a SEND with some of :data:`SCHEDULES` asks is done."""

    #: Nothing of it.
    NONE = "none"
    #: A delay is, by AMQ_SCHEDULED_DELAY.
    DELAY = "delay"
    #: All that ActiveMQ knows is, where its scheduler is on.
    ACTIVEMQ = "activemq"
    #: All is.
    ALL = "all"


class Wildcards(Enum):
    """The wildcards of topics."""

    #: ``*`` is one level, ``>`` the rest, as everywhere in this project.
    JMS = "jms"
    #: ``*`` is one level, ``#`` none or more levels.
    HASH = "hash"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of broker.

    :param name: in configuration files, options and errors.
    :param marks: parts of ``server``, in small letters, that tell it; the first dialect of
        :data:`BROKERS` that has one wins.

    What it can do:

    :param transacted: transactions are atomic over SENDs and ACKs.
    :param transacted_sends: BEGIN and COMMIT make the SENDs between them durable together or not at
        all.
    :param joined: an ACK of any subscription may be made in a transaction of its connection.
    :param durable: durable subscriptions.
    :param selectors: JMS selectors.
    :param browse: SUBSCRIBE may have ``browser:true``, and a MESSAGE with ``browser:end`` tells the
        end.
    :param individual: messages may be acknowledged and rejected one by one.
    :param delivery_count: MESSAGE tells the delivery attempt, not only that it is not the first.
    :param duplicate_ids: a message sent twice with one duplicate id is kept once.
    :param stable_ids: ``message-id`` has the message's own id, which is the same at each delivery.
    :param envelopes: SUBSCRIBE may have ``envelope:true``; then each MESSAGE has the whole message
        as its body.

    What can be relied on:

    :param queue_patterns: SUBSCRIBE to a queue with wildcards is to all queues that they cover.
    :param vouching: which RECEIPTs are needed to know that all SENDs are safe.
    :param survives_errors: an ERROR that answers a frame with ``receipt`` leaves the connection
        open.
    :param ends_at_error: nothing that was sent after a refused frame is carried out.
    :param gives_back: UNSUBSCRIBE returns what was not acknowledged. If not, it stays with the
        connection until it is acknowledged.
    :param gives_back_late: it does so after a while, or when the same connection subscribes to the
        same queue again.
    :param acknowledges_after_unsubscribe: UNSUBSCRIBE ends the delivery, and what was delivered
        before can be acknowledged after it.
    :param acknowledges_within: an ACK of an ordinary subscription may have a ``transaction``. If
        not, SUBSCRIBE must have one, the transaction must be open for messages to come, and there
        is one at a time.
    :param syncs_acks_together: it syncs once for all that an ACK in a transaction acknowledges;
        else once for each message, if it is to confirm that.
    :param keeps_dead: dead messages are kept somewhere, whatever the destination.
    :param ordered_subscriptions: two subscriptions of a connection to one queue get its messages in order,
        outside of transactions.
    :param prefetch_limit: the largest useful value of the header ``prefetch``.
    :param keeps_window: it sends as many as ``prefetch`` says before any is settled; else it may
        fall silent sooner.

    Headers and texts:

    :param prefixes: ``destination`` has ``/queue/`` or ``/topic/`` before the name. If not,
        ``destination-type`` and ``subscription-type`` tell the kind.
    :param escapes_names: names are written by :func:`with_slashes_escaped`, and ``destination`` of
        MESSAGE has more than that percent-encoded.
    :param wildcards: of topics.
    :param temporary: the prefixes of a temporary queue and topic that another connection made.
    :param prefetch: the header of SUBSCRIBE for the messages that may be unsettled, "" for none.
    :param durable_name: the header of SUBSCRIBE for the name of a durable subscription.
    :param no_local: the header of SUBSCRIBE for no-local, "" for none.
    :param subscribe_headers: of each SUBSCRIBE of the pipeline's.
    :param queue_headers: of each SUBSCRIBE and SEND to a queue.
    :param has_exchanges: its clients know exchanges, see :mod:`gateway.messaging.exchanges`, and
        declare the queues of their subscriptions.
    :param persistence_declares: ``persistent`` of SEND says whether its queue is durable, too. So it
        is left out where a message is not persistent, which a SEND without it is not.
    :param dead_headers: of a NACK that declares a message dead.
    :param text_type: the header that tells text from bytes and its two values; None where bytes
        have a ``content-length`` and text has none.
    :param types_told: MESSAGE has a ``content-length`` for bytes only.
    :param own_ids: the header in which the broker keeps a message id of the sender's; "" where it
        makes its own.
    :param id_after: what precedes the message's own id in ``message-id``, "" for nothing.
    :param duplicate_id: the header of SEND for a duplicate id, "" where there is no such header or a
        duplicate fails the transaction.
    :param decimals: selectors compare a String with a whole number only if it is one, too.
    :param exclusive: the header of SUBSCRIBE to have a queue for oneself, "" for none.
    :param groups: messages with one JMSXGroupID go to one consumer, by rules of its own.
    :param schedules: which of a client's requests for delivery at a later time it does.
    :param encodes_schedules: a link passes :data:`SCHEDULES` on encoded, as their message has had
        its time.
    :param relative_expiry: the header for a time to live in milliseconds, besides ``expires``; ""
        for none.
    """

    name: str
    marks: tuple[str, ...] = ()
    transacted: bool = False
    transacted_sends: bool = False
    joined: bool = False
    durable: bool = False
    selectors: bool = False
    browse: bool = False
    individual: bool = False
    delivery_count: bool = False
    duplicate_ids: bool = False
    stable_ids: bool = False
    queue_patterns: bool = False
    envelopes: bool = False
    vouching: Vouching = Vouching.ONE
    survives_errors: bool = False
    ends_at_error: bool = False
    gives_back: bool = True
    gives_back_late: bool = False
    acknowledges_after_unsubscribe: bool = False
    acknowledges_within: bool = True
    syncs_acks_together: bool = False
    keeps_dead: bool = False
    ordered_subscriptions: bool = False
    prefetch_limit: int = 1_000_000
    keeps_window: bool = False
    prefixes: bool = True
    escapes_names: bool = False
    wildcards: Wildcards = Wildcards.JMS
    temporary: tuple[str, str] = ("/temp-queue/", "/temp-topic/")
    prefetch: str = ""
    durable_name: str = "durable-subscriber-name"
    no_local: str = "no-local"
    subscribe_headers: tuple[tuple[str, str], ...] = ()
    queue_headers: tuple[tuple[str, str], ...] = ()
    has_exchanges: bool = False
    persistence_declares: bool = False
    dead_headers: tuple[tuple[str, str], ...] = ()
    text_type: tuple[str, str, str] | None = None
    types_told: bool = True
    own_ids: str = ""
    id_after: str = ""
    duplicate_id: str = ""
    decimals: bool = False
    exclusive: str = ""
    groups: bool = True
    schedules: Schedules = Schedules.NONE
    encodes_schedules: bool = False
    relative_expiry: str = ""

    def message_id(self, header: str) -> str:
        """Return the message's own id from a ``message-id``."""
        return header.rpartition(self.id_after)[2] if self.id_after else header


ACTIVEMQ: Final = Dialect(
    "activemq",
    ("activemq/",),
    transacted=True,
    transacted_sends=True,
    joined=True,
    durable=True,
    selectors=True,
    browse=True,
    individual=True,
    stable_ids=True,
    queue_patterns=True,
    # A thread of its own writes the messages of queues. One that is acknowledged before it is
    # written is never written, and its RECEIPT comes at once, while earlier ones are in memory
    # only. So do their ACKs. A COMMIT is written behind everything of its connection.
    vouching=Vouching.COMMIT,
    survives_errors=True,
    syncs_acks_together=True,
    keeps_dead=True,
    # A commit frees a subscription and fills another at the same time, and then they overtake each
    # other.
    ordered_subscriptions=True,
    # It pages no more in after some hundreds that are not acknowledged, however many it may send.
    # Few are to go back when a task of the pipeline's has enough.
    prefetch_limit=1000,
    temporary=("/remote-temp-queue/", "/remote-temp-topic/"),
    prefetch="activemq.prefetchSize",
    durable_name="activemq.subscriptionName",
    no_local="activemq.noLocal",
    text_type=("amq-msg-type", "text", "bytes"),
    decimals=True,
    exclusive="activemq.exclusive",
    schedules=Schedules.ACTIVEMQ,
)

ARTEMIS: Final = Dialect(
    "artemis",
    ("activemq-artemis", "artemis"),
    transacted_sends=True,
    durable=True,
    selectors=True,
    duplicate_ids=True,
    stable_ids=True,
    vouching=Vouching.ALL,
    prefixes=False,
    wildcards=Wildcards.HASH,
    durable_name="durable-subscription-name",
    # Bytes that may be unsettled; 10 KiB unless told. It understands ActiveMQ's header, a number of
    # messages, as bytes.
    subscribe_headers=(("consumer-window-size", str(1 << 20)),),
    # CONSUMER,MESSAGE from 2.33 on, and MESSAGE before.
    id_after=",",
    schedules=Schedules.DELAY,
)

RABBITMQ: Final = Dialect(
    "rabbitmq",
    ("rabbitmq",),
    durable=True,
    individual=True,
    # The RECEIPT of a SEND is the confirmation of that one message; confirmations of different
    # queues overtake each other.
    vouching=Vouching.ONE,
    gives_back=False,
    acknowledges_after_unsubscribe=True,
    ordered_subscriptions=True,
    prefetch_limit=65_535,
    keeps_window=True,
    escapes_names=True,
    wildcards=Wildcards.HASH,
    temporary=("/reply-queue/", "/reply-queue/"),
    prefetch="prefetch-count",
    durable_name="x-queue-name",
    no_local="",
    # Else its queues are exclusive to a connection, or gone with the last consumer.
    queue_headers=(("durable", "true"), ("auto-delete", "false"), ("exclusive", "false")),
    has_exchanges=True,
    persistence_declares=True,
    dead_headers=(("requeue", "false"),),
    types_told=False,
    own_ids="amqp-message-id",
    groups=False,
    relative_expiry="expiration",
)

_GENERATED_TEMPORARIES: Final = (
    "/temp-queue/temporary_destination://queue/",
    "/temp-topic/temporary_destination://topic/",
)

GATEWAY: Final = Dialect(
    "gateway",
    ("stomp-gateway/",),
    transacted=True,
    transacted_sends=True,
    durable=True,
    selectors=True,
    browse=True,
    individual=True,
    delivery_count=True,
    duplicate_ids=True,
    stable_ids=True,
    queue_patterns=True,
    envelopes=True,
    vouching=Vouching.ALL,
    ends_at_error=True,
    gives_back_late=True,
    acknowledges_after_unsubscribe=True,
    acknowledges_within=False,
    keeps_dead=True,
    keeps_window=True,
    temporary=_GENERATED_TEMPORARIES,
    prefetch="prefetch-count",
    dead_headers=(("requeue", "false"),),
    types_told=False,
    duplicate_id="_AMQ_DUPL_ID",
    exclusive="exclusive-consumer",
    schedules=Schedules.ALL,
    encodes_schedules=True,
)

OPEN_MQ: Final = Dialect(
    "openmq",
    ("open message queue", "openmq"),
    transacted=True,
    transacted_sends=True,
    durable=True,
    selectors=True,
    stable_ids=True,
    vouching=Vouching.ALL,
    acknowledges_within=False,
    temporary=_GENERATED_TEMPORARIES,
)

#: A broker that is not recognised: it sends, receives and acknowledges, and nothing besides is
#: relied on.
GENERIC: Final = Dialect("generic")

#: Those that are recognised, by name, the more particular marks first: Artemis calls itself
#: ``ActiveMQ-Artemis/``, and ActiveMQ ``ActiveMQ/``.
BROKERS: Final = {
    dialect.name: dialect for dialect in (GATEWAY, ARTEMIS, ACTIVEMQ, RABBITMQ, OPEN_MQ)
}


def with_slashes_escaped(name: str) -> str:
    """Return a name as RabbitMQ reads it.

    ``/`` is ``%2F``, and everything else stands for itself.

    :raises ValueError: ``%2F`` is in the name, which would be read as ``/``.
    """
    if _SLASH in name:
        raise ValueError(f"the broker takes {_SLASH} in a name for a slash")
    return name.replace("/", _SLASH)


def with_slashes(text: str) -> str:
    """The inverse of :func:`with_slashes_escaped`."""
    return text.replace(_SLASH, "/")


def recognise(server: str) -> Dialect:
    """Return the dialect of a broker, :data:`GENERIC` for an unknown one.

    :param server: the ``server`` header of CONNECTED, "" without one.
    """
    small = server.lower()
    for dialect in BROKERS.values():
        if any(mark in small for mark in dialect.marks):
            return dialect
    return GENERIC


def product(server: str) -> str:
    """Return what a broker calls itself, without version and comment.

    STOMP's form is ``NAME/VERSION COMMENT``.

    :param server: the ``server`` header of CONNECTED.
    :returns: "" where that says nothing.
    """
    name, slash, version = server.partition("/")
    return (name if slash and version[:1].strip() else server).strip()
