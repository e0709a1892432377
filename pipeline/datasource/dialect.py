"""What STOMP brokers do differently, as far as reading and writing tables goes: what they can do,
header names, spellings of destinations.

Owns the table, and how a broker is recognised by the ``server`` header of CONNECTED. Knows neither
sockets nor rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

from gateway.messaging.destination import Kind

_WORDS: Final = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}


class Place(NamedTuple):
    """A queue or topic by name, or whatever a broker has besides, spelt as it spells it.

    :param own: the broker's own spelling, "" where kind and name say all.
    """

    kind: Kind
    name: str
    own: str = ""

    @classmethod
    def parse(cls, text: str) -> Place:
        """What ``queue:NAME``, ``topic:NAME``, ``/queue/NAME``, ``/topic/NAME`` or another spelling
        with a leading slash means.

        :raises ValueError: it is none of these; the text says what was expected.
        """
        word, colon, name = text.partition(":")
        if "\0" not in text:
            if colon and word in _WORDS and name.strip():
                return cls(_WORDS[word], name)
            for word, kind in _WORDS.items():
                if text.startswith(f"/{word}/") and len(text) > len(word) + 2:
                    return cls(kind, text[len(word) + 2 :])
            if text.startswith("/") and text.count("/") > 1 and not text.endswith("/"):
                return cls(Kind.TOPIC if "topic" in text.split("/")[1] else Kind.QUEUE, text, text)
        raise ValueError(
            "expected queue:NAME, topic:NAME, or the broker's own spelling, which begins with a slash, as /queue/NAME"
        )

    @property
    def wild(self) -> bool:
        """Whether it is a pattern of topics."""
        levels = self.name.split(".")
        return self.kind is Kind.TOPIC and not self.own and ("*" in levels or levels[-1] == ">")

    def __str__(self) -> str:
        return self.own or f"{'queue' if self.kind is Kind.QUEUE else 'topic'}:{self.name}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of broker.

    :param name: in options and errors.
    :param marks: parts of ``server``, in small letters, that tell it; the first dialect of
        :data:`DIALECTS` that has one wins.
    :param browse: a SUBSCRIBE may have ``browser:true``, and a MESSAGE with ``browser:end`` tells
        the end.
    :param stable_ids: ``message-id`` has the message's own, which is the same at each delivery.
    :param id_after: what stands in ``message-id`` before the message's own id, if anything does:
        the rest is of the delivery.
    :param transacted: BEGIN and COMMIT make what is sent between them durable together or not at
        all.
    :param duplicate_ids: the header of SEND by which a message is kept once, "" where there is none
        or where it fails the transaction.
    :param over_first: UNSUBSCRIBE ends the delivery, and what was delivered can be acknowledged
        after it.
    :param prefetch: the header of SUBSCRIBE for the messages that may be unsettled, and :param
        most: what it may say at most.
    :param keeps_window: it sends as many as ``prefetch`` says before any is settled; else it may
        fall silent sooner, whatever else it has.
    :param acks_in_transaction: it syncs once for all that an ACK in a transaction acknowledges, and
        else once for each message, if it is to confirm that.
    :param subscribe_headers: of each SUBSCRIBE.
    :param durable: the headers of SUBSCRIBE that have the name of a durable subscription.
    :param queue_headers: of each SUBSCRIBE and SEND to a queue.
    :param prefixes: ``destination`` has ``/queue/`` or ``/topic/`` before the name; else headers
        tell the kind.
    :param escapes_names: ``%`` and ``/`` within names are percent-encoded.
    :param text_type: the header that tells text from octets and its two values; None where octets
        have a ``content-length`` and text has none.
    :param types_told: MESSAGE has a ``content-length`` for octets only.
    :param envelopes: a SUBSCRIBE may have ``envelope:true``, and then each MESSAGE has the whole
        message as its body.
    """

    name: str
    marks: tuple[str, ...] = ()
    browse: bool = False
    stable_ids: bool = False
    id_after: str = ""
    transacted: bool = False
    duplicate_ids: str = ""
    over_first: bool = False
    prefetch: str = ""
    most: int = 1_000_000
    keeps_window: bool = False
    acks_in_transaction: bool = False
    subscribe_headers: tuple[tuple[str, str], ...] = ()
    durable: str = "durable-subscriber-name"
    queue_headers: tuple[tuple[str, str], ...] = ()
    prefixes: bool = True
    escapes_names: bool = False
    text_type: tuple[str, str, str] | None = None
    types_told: bool = True
    envelopes: bool = False

    def spelled(self, place: Place) -> str:
        """The ``destination`` header for a place."""
        if place.own:
            return place.own
        name = (
            quote(place.name, safe=" !\"#$&'()*+,:;<=>?@[\\]^`{|}~")
            if self.escapes_names
            else place.name
        )
        if not self.prefixes:
            return name
        return f"/{'queue' if place.kind is Kind.QUEUE else 'topic'}/{name}"

    def message_id(self, header: str) -> str:
        """The message's own id in a ``message-id``."""
        return header.rpartition(self.id_after)[2] if self.id_after else header

    def kind_headers(self, place: Place, header: str) -> tuple[tuple[str, str], ...]:
        """What else says where a message goes or comes from.

        :param header: ``destination-type`` of SEND, or ``subscription-type`` of SUBSCRIBE.
        """
        if not self.prefixes and not place.own:
            return ((header, "ANYCAST" if place.kind is Kind.QUEUE else "MULTICAST"),)
        # What the broker spells its own way, as /exchange/..., is not necessarily a queue.
        return self.queue_headers if place.kind is Kind.QUEUE and not place.own else ()


GATEWAY: Final = Dialect(
    "gateway",
    ("stomp-gateway/",),
    browse=True,
    stable_ids=True,
    transacted=True,
    duplicate_ids="_AMQ_DUPL_ID",
    over_first=True,
    prefetch="prefetch-count",
    keeps_window=True,
    types_told=False,
    envelopes=True,
)
ACTIVEMQ: Final = Dialect(
    "activemq",
    ("activemq/",),
    browse=True,
    stable_ids=True,
    transacted=True,
    prefetch="activemq.prefetchSize",
    # After some hundreds that nobody acknowledges it pages no more in, however many it may send.
    # Few are to go back when a task has enough.
    most=1000,
    acks_in_transaction=True,
    durable="activemq.subscriptionName",
    text_type=("amq-msg-type", "text", "bytes"),
)
ARTEMIS: Final = Dialect(
    "artemis",
    ("activemq-artemis", "artemis"),
    stable_ids=True,
    # CONSUMER,MESSAGE from 2.33 on, and MESSAGE before.
    id_after=",",
    transacted=True,
    # Octets that may be unsettled; 10 KiB unless told. ActiveMQ's header counts messages, and is
    # understood as octets.
    subscribe_headers=(("consumer-window-size", str(1 << 20)),),
    durable="durable-subscription-name",
    prefixes=False,
)
#: Its transactions are replayed frame by frame at COMMIT, and each RECEIPT of a SEND confirms that
#: one message.
RABBITMQ: Final = Dialect(
    "rabbitmq",
    ("rabbitmq",),
    over_first=True,
    prefetch="prefetch-count",
    most=65_535,
    keeps_window=True,
    durable="x-queue-name",
    # Else its queues are exclusive to a connection, or gone with the last consumer.
    queue_headers=(("durable", "true"), ("auto-delete", "false"), ("exclusive", "false")),
    escapes_names=True,
    types_told=False,
)
OPEN_MQ: Final = Dialect(
    "openmq", ("open message queue", "openmq"), stable_ids=True, transacted=True
)
#: A broker nobody knows: sends, receives and acknowledges, and nothing besides is relied on.
UNKNOWN: Final = Dialect("unknown")

#: By name, the more particular marks first: Artemis calls itself ``ActiveMQ-Artemis/``, and
#: ActiveMQ ``ActiveMQ/``.
DIALECTS: Final = {
    dialect.name: dialect for dialect in (GATEWAY, ARTEMIS, ACTIVEMQ, RABBITMQ, OPEN_MQ)
}


def recognise(server: str) -> Dialect:
    """The dialect of a broker that calls itself this; :data:`UNKNOWN` where no other is recognised.

    :param server: the ``server`` header of CONNECTED, "" without one.
    """
    small = server.lower()
    for dialect in DIALECTS.values():
        if any(mark in small for mark in dialect.marks):
            return dialect
    return UNKNOWN
