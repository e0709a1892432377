"""The form of a dead message, and of its text.

Open MQ, "Dead Message Queue (DMQ) Processing". A dead message is a BytesMessage whose body is the original in an envelope, with the original's
properties and those of its Table 12-1. What cannot be put into an envelope is kept as text, which
is for people to read; the log has headers and properties as text, too. Any message has a text, even
one with what JMS does not allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.config.model import AS_SOURCE
from gateway.messaging import dead
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.envelope import CONTENT_TYPE, EnvelopeError, encode
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import (
    DEFAULT_PRIORITY,
    BodyType,
    DeliveryMode,
    Headers,
    Message,
    Unreadable,
)
from gateway.messaging.values import Char, Value, decode_map, decode_stream, encode_value

#: Says, beside a body that is an envelope, that it is one; on every provider.
ENVELOPE: Final = (("content-type", CONTENT_TYPE),)
#: Says that the original could not be put into one.
TEXT: Final = (("content-type", "text/plain; charset=utf-8"),)


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message that a link has given up.

    :param message: as received from the source; it is not changed.
    :param exception: what went wrong, for people; may be "".
    :param link: the link's name, for the log.
    :param source_destination: what the link reads from; None where that is not known.
    :param source_provider: what the source's provider calls itself, else the class of its factory;
        "" where neither is known.
    :param target_destination: the target's own destination; None is ``AS_SOURCE``.
    :param target_provider: as ``source_provider``.
    :param source_resource: the resource manager of the source, where that is the broker of this
        instance; else "".
    :param current_destination: where it was really going, after ``AS_SOURCE`` or a transformer's
        ``branch_to``; None where that is not known.
    """

    message: Message
    reason: BridgeDeadReason
    exception: str
    link: str
    source_destination: Destination | None
    source_provider: str
    target_destination: Destination | None
    target_provider: str
    current_destination: Destination | None = None
    source_resource: str = ""


class Body(NamedTuple):
    """The body of a dead message.

    :param octets: the original in an envelope, or as text.
    :param failure: why it is text; "" where it is an envelope.
    """

    octets: bytes
    failure: str = ""


def bridge_properties(message: DeadMessage, now_ms: int) -> dict[str, Value]:
    """Return the properties of Open MQ's Table 12-1: its reason and origin.

    Unknown ones are left out.

    :param now_ms: epoch milliseconds now.
    """
    original = message.message
    target = message.target_destination
    found: dict[str, Value] = {
        dead.BRIDGE_REASON: message.reason.value,
        dead.BRIDGE_EXCEPTION: message.exception or None,
        dead.BRIDGE_TIMESTAMP: str(now_ms),
        dead.BRIDGE_SOURCE_MESSAGE_ID: original.message_id or None,
        dead.BRIDGE_SOURCE_TIMESTAMP: original.timestamp or None,
        dead.BRIDGE_SOURCE_CORRELATION_ID: original.headers.correlation_id,
        dead.BRIDGE_SOURCE_TYPE: original.headers.type,
        dead.BRIDGE_SOURCE_DESTINATION: _text(message.source_destination),
        dead.BRIDGE_SOURCE_PROVIDER: message.source_provider or None,
        dead.BRIDGE_SOURCE_RESOURCE: message.source_resource or None,
        dead.BRIDGE_TARGET_DESTINATION: AS_SOURCE if target is None else str(target),
        dead.BRIDGE_TARGET_PROVIDER: message.target_provider or None,
        dead.BRIDGE_TARGET_CURRENT_DESTINATION: _text(message.current_destination),
    }
    return {name: value for name, value in found.items() if value is not None}


def body_of(original: Message, content: Message | None = None) -> Body:
    """Return the body of a dead message.

    :param original: as received.
    :param content: what a transformer made of it; None is the original itself.
    """
    if isinstance(original, Unreadable):
        # In an envelope it would look like one that is whole.
        return Body(whole(original), f"it cannot be read: {original.reason}")
    try:
        return Body(encode(original if content is None else content))
    except EnvelopeError as error:
        return Body(whole(original), str(error))


def headers_of(
    message: DeadMessage, properties: dict[str, Value], body: Body, destination: Destination
) -> Headers:
    """Return the headers of the dead message for one queue.

    They are the original's delivery mode, priority and properties, overridden by ``properties``.
    What an earlier death of the message had added to it is removed. The other headers of the
    original are only in its envelope, as they would be wrong of this message.

    :param properties: as :func:`bridge_properties` gives them.
    """
    original = message.message.headers
    copied = {
        name: property_of(value)
        for name, value in original.properties.items()
        if name not in dead.BRIDGE_PROPERTIES
    }
    if body.failure:
        properties = {**properties, dead.BRIDGE_BODY_TRUNCATED: "true"}
    return Headers(
        destination,
        body_type=BodyType.BYTES,
        persistent=original.persistent,
        priority=original.priority if 0 <= original.priority <= 9 else DEFAULT_PRIORITY,
        properties={**copied, **{name: property_of(value) for name, value in properties.items()}},
        extras=TEXT if body.failure else ENVELOPE,
    )


def property_of(value: object) -> Value:
    """Return the value if JMS allows it in a property, else its text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Char):
        return str(value)
    try:
        encode_value(value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return str(value)
    return value  # type: ignore[return-value]


def _text(destination: Destination | None) -> str | None:
    return None if destination is None else str(destination)


class Burial:
    """A dead message, with what is the same for all its queues.

    :param now_ms: epoch milliseconds now.
    """

    def __init__(self, dead: DeadMessage, now_ms: int) -> None:
        self.dead: Final = dead
        self.properties: Final[dict[str, Value]] = bridge_properties(dead, now_ms)
        self._body: Body | None = None

    @property
    def body(self) -> Body:
        """The original as a body; made once."""
        if self._body is None:
            self._body = body_of(self.dead.message)
        return self._body


def headers_line(message: Message) -> str:
    """Return JMS headers and extra headers, separated by commas."""
    return ", ".join(
        [f"{name}={value if name in _BARE else repr(value)}" for name, value in _headers(message)]
    )


def properties_line(properties: Mapping[str, object]) -> str:
    """Return the properties separated by commas, or ``none``."""
    return ", ".join([f"{name}={value!r}" for name, value in properties.items()]) or "none"


def whole(message: Message) -> bytes:
    """Return headers, properties and body as lines of UTF-8.

    Bytes are in hexadecimal. Half a surrogate pair, which UTF-8 does not have, is written as
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
