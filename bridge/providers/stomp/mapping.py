"""Maps messages and destinations by the STOMP JMS bindings.

Owns what each header of SEND and MESSAGE means to JMS, and the names of destinations. Names and
values that no header can hold are encoded by :mod:`bridge.providers.stomp.encoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from bridge.providers.exchanges import PREFIX, declares_nothing, named_by, parts_of, received_from
from bridge.providers.stomp.encoding import (
    BODY,
    BODY_TYPES,
    NULL_TEXT,
    ORIGIN,
    decode_headers,
    encode_headers,
)
from bridge.providers.wildcards import is_wild, with_hash
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.exchanges import DEAD_EXCHANGE, DEAD_KEY
from gateway.messaging.message import DEFAULT_PRIORITY, BodyType, Headers, Message, text_of_body
from gateway.stomp.brokers import (
    SCHEDULES,
    Dialect,
    Wildcards,
    with_slashes,
    with_slashes_escaped,
)

#: Headers of STOMP, of the JMS bindings or of some broker: never the names of properties, in either
#: direction.
RESERVED: Final = frozenset(
    (
        *(
            "accept-version",
            "ack",
            "amq-msg-type",
            "amqp-message-id",
            "auto-delete",
            "browser",
            "cluster-id",
            "content-length",
        ),
        *(
            "correlation-id",
            "destination",
            "destination-type",
            "durable",
            "exclusive",
            "expiration",
            "expires",
            "heart-beat",
        ),
        *(
            "host",
            "id",
            "message-id",
            "original-destination",
            "persistent",
            "priority",
            "receipt",
            "receipt-id",
            "redelivered",
        ),
        *(
            "reply-to",
            "routing-type",
            "selector",
            "session",
            "subscription",
            "subscription-type",
            "timestamp",
            "transaction",
        ),
        *("transformation", "transformation-error", "ttl", "type", "user-id", "x-queue-name"),
        *("JMSXDeliveryCount", "JMSXUserID"),
    )
)
#: The same for brokers to which a link passes headers for later delivery on encoded.
_RESERVED_WITH_SCHEDULES: Final = RESERVED | SCHEDULES
#: The same for a RabbitMQ that has clients' exchanges: a SEND to a queue that says where dead messages
#: go would make it one of them, and so a way around the rules of access.
_RESERVED_WITH_DEAD: Final = RESERVED | {DEAD_EXCHANGE, DEAD_KEY}
#: Names of these that a sender may have encoded.
_RESERVED_IN_ALL: Final = _RESERVED_WITH_SCHEDULES | _RESERVED_WITH_DEAD
#: The body types that STOMP has.
_PLAIN: Final = (BodyType.TEXT, BodyType.BYTES)
_NUMBERS: Final = "0123456789"
#: The longest time to live that RabbitMQ takes, in milliseconds: a hundred years.
_MOST_TTL: Final = 3_153_600_000_000
_PREFIXES: Final = {Kind.QUEUE: "/queue/", Kind.TOPIC: "/topic/"}
_TEMPORARY: Final = (
    ("/remote-temp-queue/", Kind.QUEUE),
    ("/remote-temp-topic/", Kind.TOPIC),
    ("/temp-queue/temporary_destination://queue/", Kind.QUEUE),
    ("/temp-topic/temporary_destination://topic/", Kind.TOPIC),
    ("/temp-queue/", Kind.QUEUE),
    ("/temp-topic/", Kind.TOPIC),
    ("/reply-queue/", Kind.QUEUE),
)


class Received(NamedTuple):
    """A MESSAGE.

    :param attempts: the delivery attempt by the broker's count, from 1; 2 where the broker knows
        only that the message was delivered before.
    :param origin: the connection that sent it, where the headers say so.
    """

    message: Message
    attempts: int
    origin: str


def to_headers(
    message: Message, dialect: Dialect, now_ms: int, origin: str, for_clients: bool = False
) -> list[tuple[str, str]]:
    """Return the headers of the SEND for a message.

    ``content-length`` is one of them if the message needs it.

    :param now_ms: epoch milliseconds, for brokers that want a time to live.
    :param origin: the value of :data:`~bridge.providers.stomp.encoding.ORIGIN`; "" for none.
    :param for_clients: the broker is to deliver it at the time that it asks for.
    :raises InvalidDestination: STOMP cannot express the name.
    :raises ValueError: STOMP cannot carry another part of the message; the text says which.
    """
    headers = message.headers
    kind = headers.destination.kind
    pairs = [("destination", spell(dialect, headers.destination))]
    extras = headers.extras
    if kind is Kind.QUEUE and not headers.destination.temporary:
        if dialect.has_exchanges and any(map(declares_nothing, extras)):
            extras = tuple(each for each in extras if not declares_nothing(each))
            pairs[0] = ("destination", f"/amq{pairs[0][1]}")
        else:
            pairs += dialect.queue_headers
    if not dialect.prefixes:
        pairs.append(("destination-type", "ANYCAST" if kind is Kind.QUEUE else "MULTICAST"))
    if headers.persistent or not dialect.persistence_declares:
        pairs.append(("persistent", "true" if headers.persistent else "false"))
    pairs.append(("priority", str(headers.priority)))
    if message.expires:
        pairs.append(("expires", str(message.expires)))
        left = max(0, message.expires - now_ms)
        if dialect.relative_expiry and left <= _MOST_TTL:
            pairs.append((dialect.relative_expiry, str(left)))
    if headers.correlation_id is not None:
        pairs.append(("correlation-id", _checked("JMSCorrelationID", headers.correlation_id)))
    if headers.type is not None:
        pairs.append(("type", _checked("JMSType", headers.type)))
    if headers.reply_to is not None:
        pairs.append(("reply-to", spell(dialect, headers.reply_to)))
    if dialect.own_ids:
        pairs += (
            (dialect.own_ids, _checked("JMSMessageID", message.message_id)),
            ("timestamp", str(message.timestamp)),
        )
    if origin:
        pairs.append((ORIGIN, origin))
    pairs += _body_headers(message, dialect)
    reserved = _RESERVED_WITH_DEAD if dialect.has_exchanges else RESERVED
    if dialect.encodes_schedules and not for_clients:
        reserved = _RESERVED_WITH_SCHEDULES
    pairs += encode_headers(headers.properties, extras, reserved)
    return pairs


def _body_headers(message: Message, dialect: Dialect) -> list[tuple[str, str]]:
    body_type = message.headers.body_type
    pairs: list[tuple[str, str]] = []
    text = body_type is BodyType.TEXT
    told = False
    if dialect.text_type is not None and body_type in _PLAIN:
        name, as_text, as_octets = dialect.text_type
        pairs.append((name, as_text if text else as_octets))
        # For a text that is empty or holds a NUL, the broker sends a length, too.
        told = not text or (bool(message.body) and b"\0" not in message.body)
    elif body_type is BodyType.BYTES or (text and b"\0" not in message.body):
        told = dialect.types_told
    if message.headers.null_text:
        pairs.append((BODY, NULL_TEXT))
    elif not told:
        pairs.append((BODY, body_type.name.lower()))
    if not text or b"\0" in message.body or dialect.text_type is not None or not dialect.types_told:
        pairs.append(("content-length", str(len(message.body))))
    if text:
        try:
            message.body.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"the body of a TEXT message is not UTF-8 at octet {error.start}"
            ) from None
    return pairs


def _checked(what: str, text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{what} holds a NUL, which no header can carry")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half a surrogate pair, which is no Unicode") from None
    return text


def from_headers(
    given: Mapping[str, str], body: bytes, dialect: Dialect, kind: Kind, subscribed: Destination
) -> Received:
    """Return the message of a MESSAGE frame.

    :param kind: of the subscription.
    :param subscribed: its destination, for a frame without one.
    """
    # The sender may have taken the broker for another dialect.
    properties, extras = decode_headers(given, RESERVED, _RESERVED_IN_ALL)
    reply_text = given.get("reply-to")
    reply_to = None if reply_text is None else parse_reply(dialect, reply_text)
    if reply_text is not None and reply_to is None:
        # A name in a form of the sender's own; it is passed on as it is.
        extras = (*extras, ("reply-to", reply_text))
    headers = Headers(
        parse(dialect, given.get("destination", ""), kind) or subscribed,
        body_type=_body_type(given, body, dialect),
        persistent=given.get("persistent", "").strip().lower() in ("true", "1"),
        priority=_number(given.get("priority"), DEFAULT_PRIORITY, 9),
        reply_to=reply_to,
        correlation_id=given.get("correlation-id"),
        type=given.get("type"),
        properties=properties,
        extras=extras,
        null_text=given.get(BODY) == NULL_TEXT and not body,
    )
    identifier = given.get(dialect.own_ids, "") if dialect.own_ids else ""
    message = Message(
        headers,
        body,
        expires=_number(given.get("expires"), 0),
        timestamp=_number(given.get("timestamp"), 0),
        message_id=identifier or dialect.message_id(given.get("message-id", "")),
    )
    message.user = given.get("JMSXUserID", "")
    attempts = _number(given.get("JMSXDeliveryCount"), 0)
    if attempts < 1:
        attempts = 2 if given.get("redelivered", "").strip().lower() == "true" else 1
    return Received(message, attempts, given.get(ORIGIN, ""))


def _body_type(given: Mapping[str, str], body: bytes, dialect: Dialect) -> BodyType:
    if given.get(BODY) == NULL_TEXT and not body:
        return BodyType.TEXT
    marked = BODY_TYPES.get(given.get(BODY, ""))
    if marked is not None:
        return (
            marked
            if marked is not BodyType.TEXT or text_of_body(body) is not None
            else BodyType.BYTES
        )
    if dialect.types_told:
        return (
            BodyType.BYTES
            if "content-length" in given or text_of_body(body) is None
            else BodyType.TEXT
        )
    # Neither the broker nor the sender says which it is.
    content = given.get("content-type", "text/").strip().lower()
    said = content.startswith("text/") or content.partition(";")[0].endswith(("json", "xml"))
    return (
        BodyType.TEXT
        if said and b"\0" not in body and text_of_body(body) is not None
        else BodyType.BYTES
    )


def _number(text: str | None, default: int, most: int = 0x7FFF_FFFF_FFFF_FFFF) -> int:
    """The number in a header; the default where the text is not one."""
    if text is None:
        return default
    text = text.strip()
    if not text or len(text) > 19 or any(digit not in _NUMBERS for digit in text):
        return default
    return min(int(text), most)


def spell(dialect: Dialect, destination: Destination) -> str:
    """Return the ``destination`` or ``reply-to`` header for a destination.

    :raises InvalidDestination: STOMP cannot express the name.
    """
    name = destination.name
    if not name or "\0" in name:
        raise InvalidDestination(destination, "the name must not be empty or hold a NUL")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidDestination(destination, "the name holds half a surrogate pair") from None
    if destination.temporary:
        return dialect.temporary[destination.kind] + name
    if dialect.escapes_names:
        try:
            name = with_slashes_escaped(name)
        except ValueError as error:
            raise InvalidDestination(destination, str(error)) from None
    if dialect.has_exchanges and destination.kind is Kind.TOPIC:
        parts = parts_of(destination)
        if parts:
            return PREFIX + "/".join(map(with_slashes_escaped, parts))
    return _PREFIXES[destination.kind] + name if dialect.prefixes else name


def pattern(dialect: Dialect, destination: Destination, none_or_more: bool = False) -> str:
    """Return the ``destination`` header of SUBSCRIBE.

    A topic's wildcards have the broker's form.

    :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
    :raises InvalidDestination: as :func:`spell`, or the broker has no such subscription.
    """
    if dialect.has_exchanges and destination.kind is Kind.TOPIC:
        destination = received_from(destination)
    if (
        destination.kind is Kind.TOPIC
        and dialect.wildcards is Wildcards.HASH
        and (none_or_more or is_wild(destination.name))
    ):
        destination = destination._replace(name=with_hash(destination.name, none_or_more))
    return spell(dialect, destination)


def parse(dialect: Dialect, text: str, kind: Kind) -> Destination | None:
    """Return the destination that ``destination`` of MESSAGE names, if any.

    :param kind: of the destination, where the name does not tell a queue from a topic.
    """
    return _parsed(dialect, text, kind, unquote)


def parse_reply(dialect: Dialect, text: str) -> Destination | None:
    """Return the destination that ``reply-to`` of MESSAGE names, if any.

    It is what the sender wrote.
    """
    return _parsed(dialect, text, Kind.QUEUE, with_slashes)


def _parsed(
    dialect: Dialect, text: str, kind: Kind, unescaped: Callable[[str], str]
) -> Destination | None:
    for prefix, temporary_kind in _TEMPORARY:
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(temporary_kind, text[len(prefix) :], True)
    for plain_kind, prefix in _PREFIXES.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            name = text[len(prefix) :]
            return Destination(plain_kind, unescaped(name) if dialect.escapes_names else name)
    if dialect.has_exchanges and text.startswith(PREFIX):
        exchange, _, key = text[len(PREFIX) :].partition("/")
        return named_by(unescaped(exchange), unescaped(key)) if "/" not in key else None
    if dialect.prefixes or not text:
        return None
    return Destination(kind, text)
