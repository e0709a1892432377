"""A dead or archived message's original, and the SEND that restores it.

Owns how the original is restored from a row, and what of it a broker other than the gateway cannot
be given. Needs no Spark: it runs in Spark's Python workers, and a test calls it as it is. Knows
neither where a message is sent nor whether it should be.

An envelope has everything, to the type of each property. A message without one was read as a frame:
its properties are text, except those that the broker itself reads as booleans. Of either, what the
broker has added at its death is taken away. A bridge's dead message holds its original in an
envelope of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.messaging import dead
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import CONTENT_TYPE, EnvelopeError, decode, encode
from gateway.messaging.message import DEFAULT_PRIORITY, BodyType, Headers, Message, text_of_body
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Byte, Char, Float, Int, Short, Value, text_of
from pipeline.columns import LATEST

#: Headers of a MESSAGE that are the broker's, or that columns of their own hold.
FRAME_HEADERS: Final = frozenset(
    (
        *(
            "destination",
            "content-length",
            "message-id",
            "subscription",
            "ack",
            "redelivered",
            "timestamp",
            "expires",
            "priority",
        ),
        *(
            "persistent",
            "type",
            "correlation-id",
            "reply-to",
            "receipt",
            "receipt-id",
            "transaction",
            "browser",
            "heart-beat",
        ),
        *("ttl", "expiration", "JMSXDeliveryCount", "JMSXUserID"),
    )
)
#: These, and what else to STOMP or to one of the brokers is not the message's own: no SEND of a
#: plain message has a property or header of its under these names.
RESERVED: Final = FRAME_HEADERS | frozenset(
    (
        *(
            "id",
            "session",
            "server",
            "amq-msg-type",
            "destination-type",
            "subscription-type",
            "original-destination",
            "selector",
        ),
        *("x-queue-name", "durable", "auto-delete", "exclusive", "amqp-message-id", DUPLICATE_ID),
    )
)
#: What the embedded broker adds to a message that it gives up.
DEAD_PROPERTIES: Final = frozenset(
    (
        *(
            dead.UNDELIVERED_TIMESTAMP,
            dead.UNDELIVERED_REASON,
            dead.UNDELIVERED_EXCEPTION,
            dead.UNDELIVERED_COMMENT,
        ),
        *(
            dead.DELIVERY_COUNT,
            dead.BODY_TRUNCATED,
            dead.PRODUCING_BROKER,
            dead.DEAD_BROKER,
            "JMS_SUN_DMQ_DESTINATION",
            dead.ORIGINAL_ADDRESS,
            dead.ORIGINAL_EXPIRATION,
        ),
    )
)
_BOOLEANS: Final = frozenset(
    (dead.PRESERVE_UNDELIVERED, dead.LOG_DEAD_MESSAGES, dead.TRUNCATE_MSG_BODY)
)
_TYPES: Final[dict[type, str]] = {
    **{
        bool: "boolean",
        Byte: "byte",
        Short: "short",
        Int: "int",
        int: "long",
        Float: "float",
        float: "double",
    },
    **{bytes: "octets", type(None): "null", Char: "char"},
}
#: Bodies that STOMP has a form for.
_PLAIN: Final = frozenset((BodyType.TEXT, BodyType.BYTES))

Row = Mapping[str, Any]


class NotRestorable(Exception):
    """The original cannot be restored from this row.

    ``str`` says why; it is the same for all rows with that trouble.
    """


@dataclass(frozen=True, slots=True)
class Send:
    """A SEND, in the columns that the data source writes.

    :param body_type: TEXT or BYTES.
    :param expires: epoch milliseconds; 0 is never.
    :param headers: the other headers.
    :param lost: what of the message this does not carry; each text is the same for all messages
        that lose it.
    """

    body: bytes
    body_type: str
    headers: dict[str, str]
    persistent: bool | None = None
    priority: int | None = None
    expires: int = 0
    type: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    lost: tuple[str, ...] = ()


def original_of(row: Row) -> Message:
    """The message that a row holds, as it was before it died.

    :param row: the columns of :data:`pipeline.columns.MESSAGES`, but ``timestamp`` and ``expires``
        in epoch milliseconds, and ``headers`` a mapping or pairs.
    :raises NotRestorable: it holds none, or not the whole of it.
    """
    headers: dict[str, str] = dict(row["headers"] or ())
    if headers.get(dead.BRIDGE_BODY_TRUNCATED, "").lower() == "true":
        raise NotRestorable("it holds its original as text only")
    if headers.get(dead.BODY_TRUNCATED, "").lower() == "true":
        raise NotRestorable("its body was cut off when it died")
    if row["envelope"] is not None:
        envelope, body = bytes(row["envelope"]), bytes(row["body"] or b"")
        found = _opened(envelope)
        # A body that is the envelope came as a frame. Else the envelope is of the message that was
        # read, and longer than its body.
        if envelope == body:
            return found
        if dead.BRIDGE_REASON not in headers:
            return _before_death(found, row)
        if dict(found.headers.extras).get("content-type") == CONTENT_TYPE:
            return _opened(found.body)
    if dead.BRIDGE_REASON in headers:
        raise NotRestorable("its body is no envelope")
    return _of_frame(row, headers)


def _opened(envelope: bytes) -> Message:
    try:
        return decode(envelope)
    except EnvelopeError as error:
        raise NotRestorable(f"its envelope cannot be read: {error}") from None


def _before_death(message: Message, row: Row) -> Message:
    """Return the message without what the broker added when it died."""
    headers = message.headers
    message.headers = headers.replace(
        destination=destination_of(row["destination"] or "") or headers.destination,
        properties={
            name: value for name, value in headers.properties.items() if name not in DEAD_PROPERTIES
        },
    )
    return message


def _of_frame(row: Row, headers: Mapping[str, str]) -> Message:
    destination = destination_of(row["destination"] or "")
    if destination is None:
        raise NotRestorable("it does not say where it was")
    properties: dict[str, Value] = {}
    extras: list[tuple[str, str]] = []
    for name, value in headers.items():
        if name in FRAME_HEADERS or name in DEAD_PROPERTIES:
            continue
        if name in _BOOLEANS:
            properties[name] = value.strip().lower() == "true"
        elif is_property_name(name):
            properties[name] = value
        else:
            extras.append((name, value))
    restored = Headers(
        destination,
        body_type=BodyType[row["body_type"]]
        if row["body_type"] in BodyType.__members__
        else BodyType.BYTES,
        persistent=bool(row["persistent"]),
        priority=DEFAULT_PRIORITY if row["priority"] is None else row["priority"],
        reply_to=destination_of(row["reply_to"] or ""),
        correlation_id=row["correlation_id"],
        type=row["type"],
        properties=properties,
        extras=tuple(extras),
    )
    return Message(
        restored,
        b"" if row["body"] is None else bytes(row["body"]),
        expires=row["expires"] or 0,
        timestamp=row["timestamp"] or 0,
        message_id=row["message_id"] or "",
    )


def destination_of(text: str) -> Destination | None:
    """Return the destination of such a text; None for another text.

    ``queue:NAME``, ``topic:NAME``, ``/queue/NAME``, ``/topic/NAME`` or ``/temp-queue/NAME``.
    """
    for kind, word in ((Kind.QUEUE, "queue"), (Kind.TOPIC, "topic")):
        for prefix, temporary in (
            (f"{word}:", False),
            (f"/{word}/", False),
            (f"/temp-{word}/", True),
        ):
            if text.startswith(prefix) and len(text) > len(prefix):
                return Destination(kind, text[len(prefix) :], temporary)
    return None


def enveloped(message: Message, now_ms: int, new_id: bool) -> Send:
    """The SEND by which a gateway restores the message: nothing is lost.

    One that has expired is sent to live for ever. Its duplicate id is not in it.

    :param now_ms: epoch milliseconds now.
    :param new_id: have the broker give it an id and a timestamp of its own.
    """
    again = Message(
        _without_duplicate_id(message.headers),
        message.body,
        expires=_alive(message.expires, now_ms),
        timestamp=0 if new_id else message.timestamp,
        message_id="" if new_id else message.message_id,
    )
    return Send(encode(again), BodyType.BYTES.name, {"content-type": CONTENT_TYPE})


def spelled_out(message: Message, now_ms: int) -> Send:
    """The SEND by which any broker gets what STOMP can say of the message.

    :param now_ms: epoch milliseconds now.
    :raises NotRestorable: its body is of a type that STOMP has no form for.
    """
    headers = message.headers
    if headers.body_type not in _PLAIN:
        raise NotRestorable(f"STOMP has no form for a body of type {headers.body_type.name}")
    given: dict[str, str] = {}
    lost: list[str] = []
    for name, value in headers.properties.items():
        if name == DUPLICATE_ID:
            continue
        if name in RESERVED:
            lost.append(f"property {name}: to STOMP that is another header")
            continue
        if type(value) is not str:
            lost.append(
                f"property {name} becomes text: it is of type {_TYPES.get(type(value), type(value).__name__)}"
            )
        given[name] = text_of(value)
    for name, value in headers.extras:
        if name in RESERVED:
            lost.append(f"header {name}: to STOMP, or to a broker, that is something else")
        else:
            given.setdefault(name, value)
    if headers.reply_to is not None and headers.reply_to.temporary:
        lost.append("JMSReplyTo: it is temporary")
    if headers.body_type is BodyType.TEXT and text_of_body(message.body) is None:
        lost.append("the body: it is text that is not UTF-8, and goes as octets")
    expires = _alive(message.expires, now_ms)
    if expires > LATEST:
        lost.append("JMSExpiration: it is after the year 9999, and becomes never")
        expires = 0
    return Send(
        message.body,
        headers.body_type.name,
        given,
        persistent=headers.persistent,
        priority=headers.priority,
        expires=expires,
        type=headers.type,
        correlation_id=headers.correlation_id,
        reply_to=None
        if headers.reply_to is None or headers.reply_to.temporary
        else str(headers.reply_to),
        lost=tuple(lost),
    )


def _without_duplicate_id(headers: Headers) -> Headers:
    # It is remembered where it was, which must not drop what an operator sends again.
    if DUPLICATE_ID not in headers.properties:
        return headers
    return headers.replace(
        properties={
            name: value for name, value in headers.properties.items() if name != DUPLICATE_ID
        }
    )


def _alive(expires: int, now_ms: int) -> int:
    return expires if expires > now_ms else 0
