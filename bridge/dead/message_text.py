"""A message as text for people: its headers and properties on one line for the log, or the whole of
it in the body of a dead message.

Owns the form, which is to be read and not to be parsed; what can be parsed is
:mod:`gateway.messaging.envelope`. Whatever is in a message, even what JMS does not allow, comes out
as something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.messaging.errors import MessagingError
from gateway.messaging.message import BodyType, DeliveryMode, Message, Unreadable
from gateway.messaging.values import decode_map, decode_stream


def headers_line(message: Message) -> str:
    """The JMS headers that it has, and those that are no JMS properties, separated by commas."""
    return ", ".join(
        [f"{name}={value if name in _BARE else repr(value)}" for name, value in _headers(message)]
    )


def properties_line(properties: Mapping[str, object]) -> str:
    """The properties, separated by commas, texts in quotes; ``none`` for none."""
    return ", ".join([f"{name}={value!r}" for name, value in properties.items()]) or "none"


def whole(message: Message) -> bytes:
    """Headers, properties and body, a line each, in UTF-8.

    Octets are in hexadecimal. Half a surrogate pair, which UTF-8 does not have, is written as
    ``\\udXXX``.
    """
    lines = [f"{name}: {value}" for name, value in _headers(message)]
    lines += [
        f"{name} ({type(value).__name__}): {value.hex() if isinstance(value, bytes) else value}"
        for name, value in message.headers.properties.items()
    ]
    lines.append("")
    lines += _body(message)
    return "\n".join(lines).encode("utf-8", "backslashreplace")


#: Headers whose values need no quotes.
_BARE = frozenset(
    (
        "JMSDestination",
        "JMSDeliveryMode",
        "JMSPriority",
        "JMSTimestamp",
        "JMSExpiration",
        "JMSReplyTo",
        "body type",
        "body octets",
    )
)


def _headers(message: Message) -> Iterator[tuple[str, object]]:
    headers = message.headers
    yield "JMSMessageID", message.message_id
    yield "JMSDestination", headers.destination
    yield (
        "JMSDeliveryMode",
        (DeliveryMode.PERSISTENT if headers.persistent else DeliveryMode.NON_PERSISTENT).name,
    )
    yield "JMSPriority", headers.priority
    yield "JMSTimestamp", message.timestamp
    yield "JMSExpiration", message.expires
    if headers.correlation_id is not None:
        yield "JMSCorrelationID", headers.correlation_id
    if headers.type is not None:
        yield "JMSType", headers.type
    if headers.reply_to is not None:
        yield "JMSReplyTo", headers.reply_to
    if message.user:
        yield "JMSXUserID", message.user
    yield "body type", headers.body_type.name
    yield "body octets", len(message.body)
    yield from headers.extras


def _body(message: Message) -> list[str]:
    body_type, body = message.headers.body_type, message.body
    if isinstance(message, Unreadable):
        return [
            f"(incomplete, as it cannot be read: {message.reason})",
            *([f"octets: {body.hex()}"] if body else []),
        ]
    try:
        if body_type is BodyType.TEXT and message.headers.null_text:
            return ["(the text is null)"]
        if body_type is BodyType.TEXT:
            return [body.decode("utf-8", "surrogatepass")]
        if body_type is BodyType.MAP:
            return [
                f"{name} ({type(value).__name__}): {value!r}"
                for name, value in decode_map(body).items()
            ]
        if body_type is BodyType.STREAM:
            return [f"{type(value).__name__}: {value!r}" for value in decode_stream(body)]
    except (UnicodeDecodeError, MessagingError) as error:
        return [f"(damaged: {error})", body.hex()]
    return [body.hex()]
