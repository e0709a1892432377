"""Maps messages by the AMQP JMS mapping (version 1.0, working draft 9).

Owns what each section of an AMQP message means to JMS (section 3.2). Addresses are the peer's
business, and the bytes of values :mod:`bridge.providers.amqp.encoding`'s.

Names of application properties are free in AMQP. So headers that are no JMS properties travel there
too, as text, except ``content-type`` and ``content-encoding``, which AMQP has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from bridge.providers.amqp.encoding import (
    Described,
    MalformedAmqp,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)
from bridge.providers.amqp.peers import KINDS, Peer
from bridge.providers.exchanges import declares_nothing
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import (
    DEFAULT_PRIORITY,
    BodyType,
    Headers,
    Message,
    Unreadable,
    text_of_body,
)
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import (
    Byte,
    Char,
    Int,
    Short,
    Value,
    decode_map,
    decode_stream,
    encode_map,
    encode_stream,
    text_of,
)

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78
#: Sections whose content is a list, and those whose content is a map.
_LISTS: Final = (HEADER, PROPERTIES, SEQUENCE)
_MAPS: Final = (DELIVERY_ANNOTATIONS, ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)

MESSAGE_TYPE: Final = Symbol("x-opt-jms-msg-type")
DESTINATION_KIND: Final = Symbol("x-opt-jms-dest")
REPLY_TO_KIND: Final = Symbol("x-opt-jms-reply-to")
#: The connection that sent the message, for no-local; ours.
ORIGIN: Final = Symbol("x-opt-stomp-gateway-origin")
#: The values of :data:`MESSAGE_TYPE`.
_TYPES: Final = {
    BodyType.MESSAGE: 0,
    BodyType.OBJECT: 1,
    BodyType.MAP: 2,
    BodyType.BYTES: 3,
    BodyType.STREAM: 4,
    BodyType.TEXT: 5,
}
_BODY_TYPES: Final = {number: body_type for body_type, number in _TYPES.items()}
_JAVA: Final = "application/x-java-serialized-object"
_CONTENT_TYPE: Final = "content-type"
_CONTENT_ENCODING: Final = "content-encoding"
_GROUP: Final = "JMSXGroupID"
_GROUP_SEQUENCE: Final = "JMSXGroupSeq"
#: What a delivery tells by other means, never a property.
_TOLD: Final = frozenset(("JMSXDeliveryCount", "JMSXUserID"))
_MOST_TTL: Final = 0xFFFF_FFFF
_MOST_LONG: Final = 0x7FFF_FFFF_FFFF_FFFF

# Identifiers that are no strings (section 3.2.1.1), by the prefix that says what they are.
_UUID_ID: Final = "ID:AMQP_UUID:"
_ULONG_ID: Final = "ID:AMQP_ULONG:"
_BINARY_ID: Final = "ID:AMQP_BINARY:"


class Received(NamedTuple):
    """A message that has arrived.

    :param message: an :class:`Unreadable` if it could not be read.
    :param attempts: the delivery attempt by the broker's count, from 1; 2 where the broker knows
        only that the message was delivered before.
    :param origin: the connection that sent it, where it says so.
    """

    message: Message
    attempts: int
    origin: str


def to_bytes(message: Message, peer: Peer, now_ms: int, origin: str = "", due_ms: int = 0) -> bytes:
    """Return the sections of a message.

    :param now_ms: epoch milliseconds, for the time to live.
    :param origin: the connection that sends it; "" for brokers that know.
    :param due_ms: when the broker is to deliver it, epoch milliseconds; 0 for at once.
    :raises ValueError: AMQP cannot carry a part of the message; the text says which.
    :raises ~gateway.messaging.values.MalformedValues: its body is damaged.
    """
    headers = message.headers
    header: list[Any] = [headers.persistent, UByte(headers.priority)]
    if message.expires:
        header.append(UInt(min(max(0, message.expires - now_ms), _MOST_TTL)))
    annotations: dict[Symbol, Byte | Timestamp | int | str] = {
        MESSAGE_TYPE: Byte(_TYPES[headers.body_type]),
        DESTINATION_KIND: Byte(_kind_of(headers.destination)),
    }
    if headers.reply_to is not None:
        annotations[REPLY_TO_KIND] = Byte(_kind_of(headers.reply_to))
    if origin:
        annotations[ORIGIN] = origin
    if due_ms:
        due = Timestamp(due_ms) if peer.delivery_timestamp else due_ms
        annotations[Symbol(peer.delivery_time)] = due
    parts = [_section(HEADER, header), _section(ANNOTATIONS, annotations)]
    application = {
        name: value
        for name, value in (*reversed(headers.extras), *headers.properties.items())
        if name not in (_CONTENT_TYPE, _CONTENT_ENCODING) and not declares_nothing((name, value))
    }
    parts.append(_section(PROPERTIES, _properties(message, peer, application)))
    if application:
        parts.append(_section(APPLICATION_PROPERTIES, application))
    parts.append(_body(message))
    return b"".join(parts)


def _section(code: int, value: object) -> bytes:
    return bytes((0, 0x53, code)) + encode(value)


def _kind_of(destination: Destination) -> int:
    return KINDS.index((destination.kind, destination.temporary))


def _properties(message: Message, peer: Peer, application: dict[str, Value]) -> list[Any]:
    """Return the properties.

    Application properties that AMQP has a place for are taken out.
    """
    headers = message.headers
    extras = dict(reversed(headers.extras))
    content_type = extras.get(_CONTENT_TYPE)
    if content_type is None and headers.body_type is BodyType.OBJECT:
        content_type = _JAVA
    content_encoding = extras.get(_CONTENT_ENCODING)
    group = application.get(_GROUP)
    if isinstance(group, str):
        del application[_GROUP]
    sequence = application.get(_GROUP_SEQUENCE)
    if isinstance(sequence, Int) and sequence >= 0:
        del application[_GROUP_SEQUENCE]
    return [
        to_identifier(message.message_id) if message.message_id else None,
        None,
        peer.address(headers.destination),
        headers.type,
        None if headers.reply_to is None else peer.address(headers.reply_to),
        None if headers.correlation_id is None else to_identifier(headers.correlation_id),
        None if content_type is None else _symbol(_CONTENT_TYPE, content_type),
        None if content_encoding is None else _symbol(_CONTENT_ENCODING, content_encoding),
        Timestamp(message.expires) if message.expires else None,
        Timestamp(message.timestamp) if message.timestamp else None,
        group if isinstance(group, str) else None,
        UInt(sequence) if isinstance(sequence, Int) and sequence >= 0 else None,
    ]


def _symbol(name: str, text: str) -> Symbol:
    if not text.isascii():
        raise ValueError(f"header {name} is not ASCII, as AMQP wants it")
    return Symbol(text)


def _body(message: Message) -> bytes:
    headers, body = message.headers, message.body
    body_type = headers.body_type
    if body_type is BodyType.TEXT and not headers.null_text:
        if text_of_body(body) is None:
            raise ValueError("the body of a TEXT message is not UTF-8")
        return b"\x00\x53\x77" + _lengthened(0xA1, body)
    if body_type in (BodyType.BYTES, BodyType.OBJECT):
        return b"\x00\x53\x75" + _lengthened(0xA0, body)
    if body_type is BodyType.MAP:
        return _section(VALUE, decode_map(body))
    if body_type is BodyType.STREAM:
        return _section(SEQUENCE, decode_stream(body))
    return _section(VALUE, None)


def _lengthened(code: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((code, len(data))) + data
    return struct.pack(">BI", code + 0x10, len(data)) + data


def to_identifier(text: str) -> str | UUID | ULong | bytes:
    """Return the identifier of AMQP that a JMS identifier stands for."""
    try:
        if text.startswith(_UUID_ID):
            found = UUID(text[len(_UUID_ID) :])
            return found if str(found) == text[len(_UUID_ID) :] else text
        if text.startswith(_ULONG_ID):
            number = text[len(_ULONG_ID) :]
            plain = number.isascii() and number.isdecimal() and str(int(number)) == number
            return ULong(number) if plain and int(number) < 1 << 64 else text
        if text.startswith(_BINARY_ID):
            octets = bytes.fromhex(text[len(_BINARY_ID) :])
            return octets if octets.hex().upper() == text[len(_BINARY_ID) :] else text
    except ValueError:
        pass
    return text


def from_identifier(value: object) -> str | None:
    """Return the JMS identifier of an identifier, None for null."""
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, UUID):
        return f"{_UUID_ID}{value}"
    if isinstance(value, bytes):
        return _BINARY_ID + value.hex().upper()
    return f"{_ULONG_ID}{value}"


class _Parts:
    """The sections of a message, as far as they were read."""

    def __init__(self) -> None:
        self.header: Sequence[Any] = ()
        self.annotations: Mapping[Any, Any] = {}
        self.properties: Sequence[Any] = ()
        self.application: Mapping[Any, Any] = {}
        self.data: list[bytes] = []
        self.items: list[Any] | None = None
        self.value: Any = None
        self.has_value = False

    def read(self, data: bytes) -> None:
        """Read all sections (section 3.2).

        :raises MalformedAmqp: they are not a message.
        """
        position = 0
        while position < len(data):
            section, end = decode(data, position)
            code = section.descriptor if isinstance(section, Described) else None
            if isinstance(code, Symbol):
                code = _NAMES.get(code)
            if not isinstance(code, int) or not isinstance(section, Described):
                raise MalformedAmqp(position, "a section of a message is missing")
            value = section.value
            expected = list if code in _LISTS else dict if code in _MAPS else object
            if code == DATA:
                expected = bytes
            if not isinstance(value, expected):
                raise MalformedAmqp(position, "the content of a section is of another type")
            self._take(code, value, position)
            position = end

    def _take(self, code: int, value: Any, position: int) -> None:
        if code == HEADER:
            self.header = value
        elif code == ANNOTATIONS:
            self.annotations = value
        elif code == PROPERTIES:
            self.properties = value
        elif code == APPLICATION_PROPERTIES:
            self.application = value
        elif code == DATA:
            self.data.append(value)
        elif code == SEQUENCE:
            self.items = [*(self.items or ()), *value]
        elif code == VALUE:
            self.value, self.has_value = value, True
        elif code not in (DELIVERY_ANNOTATIONS, FOOTER):
            raise MalformedAmqp(position, f"0x{code:02x} is no section of a message")

    def in_header(self, index: int, kind: type[Any], default: Any) -> Any:
        return _at(self.header, index, kind, default)

    def property(self, index: int, kind: type[Any], default: Any = None) -> Any:
        return _at(self.properties, index, kind, default)

    def annotated(self, name: Symbol) -> int | None:
        value = self.annotations.get(name)
        return int(value) if isinstance(value, int) else None


_NAMES: Final = {
    Symbol("amqp:header:list"): HEADER,
    Symbol("amqp:delivery-annotations:map"): DELIVERY_ANNOTATIONS,
    Symbol("amqp:message-annotations:map"): ANNOTATIONS,
    Symbol("amqp:properties:list"): PROPERTIES,
    Symbol("amqp:application-properties:map"): APPLICATION_PROPERTIES,
    Symbol("amqp:data:binary"): DATA,
    Symbol("amqp:amqp-sequence:list"): SEQUENCE,
    Symbol("amqp:amqp-value:*"): VALUE,
    Symbol("amqp:footer:map"): FOOTER,
}


def _at(values: Sequence[Any], index: int, kind: type[Any], default: Any) -> Any:
    value = values[index] if index < len(values) else None
    return value if isinstance(value, kind) else default


def from_bytes(data: bytes, peer: Peer, subscribed: Destination) -> Received:
    """Return the message that these sections are.

    :param subscribed: where it was received, for a message that does not say where it was sent.
    """
    parts = _Parts()
    reason = ""
    try:
        parts.read(data)
    except MalformedAmqp as error:
        reason = str(error)
    body_type, null_text, body = BodyType.BYTES, False, b""
    if not reason:
        try:
            body_type, null_text, body = _read_body(parts)
        except (ValueError, TypeError) as error:
            reason, body = str(error), b"".join(parts.data)
    message = _message(parts, peer, subscribed, body_type, null_text, body)
    count = max(0, parts.in_header(4, int, 0))
    attempts = min(count, 0x7FFF_FFFE) + 1
    if peer.tells_redelivery and parts.in_header(3, bool, True) is False:
        attempts = max(attempts, 2)
    origin = parts.annotations.get(ORIGIN)
    return Received(
        Unreadable(message, reason) if reason else message,
        attempts,
        origin if isinstance(origin, str) else "",
    )


def too_large(size: int, limit: int, subscribed: Destination) -> Message:
    """Return what is delivered in place of a message above the limit."""
    known = Message(Headers(subscribed, body_type=BodyType.BYTES))
    return Unreadable(known, f"it is of {size} bytes or more, and amqp.max-message is {limit}")


def _message(
    parts: _Parts,
    peer: Peer,
    subscribed: Destination,
    body_type: BodyType,
    null_text: bool,
    body: bytes,
) -> Message:
    address = parts.property(2, str)
    destination = subscribed
    if address:
        said = parts.annotated(DESTINATION_KIND)
        destination = peer.destination(address, said, subscribed.kind)
    reply_address = parts.property(4, str)
    reply_to = None
    if reply_address:
        reply_to = peer.destination(reply_address, parts.annotated(REPLY_TO_KIND), Kind.QUEUE)
    properties, extras = _read_properties(parts, body_type)
    headers = Headers(
        destination,
        body_type=body_type,
        persistent=parts.in_header(0, bool, False),
        priority=min(max(0, parts.in_header(1, int, DEFAULT_PRIORITY)), 9),
        reply_to=reply_to,
        correlation_id=from_identifier(parts.property(5, object)),
        type=parts.property(3, str),
        properties=properties,
        extras=extras,
        null_text=null_text,
    )
    message = Message(
        headers,
        body,
        expires=max(0, int(parts.property(8, int, 0))),
        timestamp=max(0, int(parts.property(9, int, 0))),
        message_id=from_identifier(parts.property(0, object)) or "",
    )
    user = parts.property(1, object)
    if isinstance(user, bytes):
        message.user = user.decode("utf-8", "replace")
    return message


def _read_properties(
    parts: _Parts, body_type: BodyType
) -> tuple[dict[str, Value], tuple[tuple[str, str], ...]]:
    properties: dict[str, Value] = {}
    extras: list[tuple[str, str]] = []
    content_type = parts.property(6, str)
    java = body_type is BodyType.OBJECT and content_type == _JAVA
    if content_type is not None and not java:
        extras.append((_CONTENT_TYPE, str(content_type)))
    content_encoding = parts.property(7, str)
    if content_encoding is not None:
        extras.append((_CONTENT_ENCODING, str(content_encoding)))
    group, sequence = parts.property(10, str), parts.property(11, int)
    if group is not None:
        properties[_GROUP] = str(group)
    if sequence is not None and sequence <= 0x7FFF_FFFF:
        properties[_GROUP_SEQUENCE] = Int(sequence)
    for name, given in parts.application.items():
        if not isinstance(name, str) or name in _TOLD:
            continue
        try:
            value = to_value(given)
        except ValueError:
            value = str(given)
        if isinstance(value, Char):
            value = str(value)
        if is_property_name(name) and not isinstance(value, bytes):
            properties[str(name)] = value
        else:
            extras.append((str(name), text_of(value)))
    return properties, tuple(extras)


def to_value(value: Any) -> Value:
    """Return the JMS value of a value of AMQP.

    Types that JMS has not become the nearest that hold them: a ``ubyte`` is a short, a symbol a
    String.

    :raises ValueError: it is a compound value, which JMS does not have.
    """
    convert = _CONVERSIONS.get(type(value))
    if convert is not None:
        return convert(value)
    if isinstance(value, Described):
        return to_value(value.value)
    if isinstance(value, list | dict):
        kind = "list" if isinstance(value, list) else "map"
        raise ValueError(f"it holds a {kind} within another, which JMS does not have")
    found: Value = value
    return found


_CONVERSIONS: Final[dict[type, Callable[[Any], Value]]] = {
    UByte: Short,
    UShort: Int,
    UInt: int,
    ULong: lambda value: int(value) if value <= _MOST_LONG else str(int(value)),
    Timestamp: int,
    Symbol: str,
    UUID: str,
}


def _read_body(parts: _Parts) -> tuple[BodyType, bool, bytes]:
    """Return the type of the body, whether it is a null text, and the body.

    :raises ValueError: JMS has no such body.
    """
    number = parts.annotated(MESSAGE_TYPE)
    said = None if number is None else _BODY_TYPES.get(number)
    if parts.items is not None:
        return BodyType.STREAM, False, encode_stream([to_value(item) for item in parts.items])
    if not parts.has_value:
        return _data_type(parts, said), False, b"".join(parts.data)
    value = parts.value
    while isinstance(value, Described):
        value = value.value
    if value is None:
        text = said is BodyType.TEXT
        return (BodyType.TEXT if text else BodyType.MESSAGE), text, b""
    if isinstance(value, str):
        return BodyType.TEXT, False, value.encode()
    if isinstance(value, bytes):
        return (said if said is BodyType.OBJECT else BodyType.BYTES), False, value
    if isinstance(value, dict):
        entries = {_named(name): to_value(entry) for name, entry in value.items()}
        return BodyType.MAP, False, encode_map(entries)
    if isinstance(value, list):
        return BodyType.STREAM, False, encode_stream([to_value(item) for item in value])
    raise ValueError(f"its body is one value of type {type(value).__name__}, which JMS has not")


def _named(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError("a key of its map is no text, as JMS wants it")
    return str(name)


def _data_type(parts: _Parts, said: BodyType | None) -> BodyType:
    """The type of a message with sections of data, or without a body."""
    if said in (BodyType.OBJECT, BodyType.BYTES):
        return said
    body = b"".join(parts.data)
    content = str(parts.property(6, str, "")).partition(";")[0].strip().lower()
    if content == _JAVA:
        return BodyType.OBJECT
    text = content.startswith("text/") or content.endswith(("json", "xml"))
    if (text or said is BodyType.TEXT) and text_of_body(body) is not None:
        return BodyType.TEXT
    return BodyType.BYTES if parts.data else said or BodyType.MESSAGE


def duplicate_id(message: Message) -> str | None:
    """Return the id by which a broker finds a repeated message, if it has one."""
    value = message.headers.properties.get(DUPLICATE_ID)
    return value if isinstance(value, str) else None
