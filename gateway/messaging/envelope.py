"""A whole message as bytes, for any language and later versions.

Dead messages, archive, replay and the store use it.

Owns the two formats, the *head* (a message without its body, as the embedded broker stores it
beside the body) and the *envelope* (a whole message, checked and self-contained). Knows nothing of
why a message is put into one.

Numbers are big-endian and texts UTF-8; *text*, *value* and *properties* are those of
:mod:`gateway.messaging.values`. A *field* is one octet for its tag, four for the length of what it
holds, and that many octets. Fields stand in the order of their tags, none twice. A reader must
refuse a field with an unknown tag below 128, and must skip one with an unknown tag from 128 on:
later versions may add those without a new version number.

The head, version 1
===================

======  ========================================================================================================
Octets  What
======  ========================================================================================================
1       version of the head, 1
8       JMSTimestamp, epoch milliseconds
8       JMSExpiration, epoch milliseconds, 0 for never
2       length of the JMSMessageID, not negative if read as 16 bits without a sign
2       length of the JMSXUserID, likewise; 0 when unknown
…       JMSMessageID, UTF-8
…       JMSXUserID, UTF-8
1       type of the body: 0 Message, 1 TextMessage, 2 BytesMessage, 3 MapMessage, 4 StreamMessage, 5 ObjectMessage
1       JMSDeliveryMode: 1 NON_PERSISTENT, 2 PERSISTENT
1       JMSPriority, 0 to 9
…       fields, to the end of the head
======  ========================================================================================================

=====  ========================  ================================================================================
Tag    Field                     Holds
=====  ========================  ================================================================================
1      JMSDestination, always    one octet, 0 for a queue or 1 for a topic; one octet, 1 if temporary, else 0; the name, UTF-8
2      JMSReplyTo                the same
3      JMSCorrelationID          UTF-8
4      JMSType                   UTF-8
5      properties                properties; the field is left out when it would be empty
6      other headers             four octets, their number; for each two texts, name and value, in the order they came, but those last that
                                 a producer varies
128    null text                 nothing. Only of a TextMessage whose text is null and whose body therefore is empty; a reader that skips
                                 the field has an empty text
=====  ========================  ================================================================================

Version 2 of the head is the embedded broker's alone, for what its store has: rows are written as
messages came. Header lines stay lines (:mod:`gateway.messaging.header_lines`); the fields have the
other headers, and are equal in all messages that a producer's headers are repeated in.

======  ========================================================================================================
Octets  What
======  ========================================================================================================
21      as in version 1; the version is 2
4       length of the header lines
…       JMSMessageID and JMSXUserID, as in version 1
…       header lines
…       all else as in version 1, from the type of the body on
======  ========================================================================================================

The envelope, version 1
=======================

======  ========================================================================================================
Octets  What
======  ========================================================================================================
4       AB 53 47 45: the first has its high bit set, so that a transfer as text is noticed; the others are ``SGE``
2       version of the envelope, 1
4       CRC-32 (``java.util.zip.CRC32``) of all other octets of the envelope: the 6 before it, then all behind it
4       length of the head, not negative
4       length of the body, not negative
…       the head
…       the body: a TextMessage's in UTF-8, a BytesMessage's and a serialised ObjectMessage's as they are, a MapMessage's and a
        StreamMessage's as :mod:`gateway.messaging.values` has them, empty for a Message
…       fields, to the end of the envelope; version 1 has none with a tag below 128
======  ========================================================================================================

The embedded broker's own number for a message and its counts are in neither: they mean nothing
elsewhere.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.header_lines import count_lines
from gateway.messaging.message import (
    MEMO_STORED,
    BodyType,
    DeliveryMode,
    Headers,
    Message,
    VariedHeaders,
)
from gateway.messaging.values import MalformedValues, decode_properties, encode_properties

#: The media type of an envelope, for a header beside it.
CONTENT_TYPE: Final = "application/vnd.stomp-gateway.envelope"

_MAGIC: Final = b"\xabSGE"
_ENVELOPE_VERSION: Final = 1
_HEAD_VERSION: Final = 1
_ROW_VERSION: Final = 2

_PREFIX: Final = struct.Struct(">4sH")
_LENGTHS: Final = struct.Struct(">II")
_FIXED: Final = struct.Struct(">BqqHH")
_FIELD: Final = struct.Struct(">BI")
_LENGTH: Final = struct.Struct(">I")
_FIXED_ROW: Final = struct.Struct(">BqqHHI")
_pack_fixed: Final = _FIXED.pack
_pack_row: Final = _FIXED_ROW.pack
_unpack_fixed: Final = _FIXED.unpack_from
_unpack_field: Final = _FIELD.unpack_from

# Looking a number up takes a tenth of what making the enumeration's member from it does.
_BODY_TYPES: Final = {int(kind): kind for kind in BodyType}
_KINDS: Final = {int(kind): kind for kind in Kind}
_PERSISTENT: Final = int(DeliveryMode.PERSISTENT)
_NON_PERSISTENT: Final = int(DeliveryMode.NON_PERSISTENT)
_MODES: Final = (_NON_PERSISTENT, _PERSISTENT)

#: From this tag on a reader skips fields it does not know.
_OPTIONAL: Final = 128

_DESTINATION: Final = 1
_REPLY_TO: Final = 2
_CORRELATION_ID: Final = 3
_TYPE: Final = 4
_PROPERTIES: Final = 5
_EXTRAS: Final = 6
_NULL_TEXT: Final = 128

#: Headers that decoding gives again for equal octets: as many blocks, as many octets in all, and
#: none longer than this.
_KNOWN_BLOCKS: Final = 4096
_KNOWN_OCTETS: Final = 4 << 20
_KNOWN_LONGEST: Final = 16 << 10


class EnvelopeError(MessagingError):
    """Bytes that are no known envelope, or a message that does not fit in one.

    :param reason: what is wrong, and where.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def encode_head(message: Message) -> bytes:
    """Everything of the message but its body, in version 1.

    What comes from ``message.headers`` is encoded once and kept in their ``memo``.

    :raises EnvelopeError: a field is outside of what the format holds: a property that is no JMS
        value or a number outside of its Java type, a priority that is not 0 to 9, a time outside of
        64 bits, a message or user id above 65535 octets.
    """
    headers = message.headers
    block = _block_of(headers)
    try:
        message_id = message.message_id.encode()
        user = message.user.encode()
        fixed = _pack_fixed(
            _HEAD_VERSION, message.timestamp, message.expires, len(message_id), len(user)
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise _no_head(message, error) from error
    return fixed + message_id + user + block


def encode_row(message: Message) -> bytes:
    """As :func:`encode_head`, for the embedded broker's store.

    In version 2 where there are header lines.
    """
    headers = message.headers
    repeated = headers.repeated
    if repeated is None:
        return encode_head(message)
    lines = headers.lines
    block = _block_of(repeated)
    try:
        message_id = message.message_id.encode()
        user = message.user.encode()
        fixed = _pack_row(
            _ROW_VERSION,
            message.timestamp,
            message.expires,
            len(message_id),
            len(user),
            len(lines),
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise _no_head(message, error) from error
    return b"%s%s%s%s%s" % (fixed, message_id, user, lines, block)


def _no_head(message: Message, error: Exception) -> EnvelopeError:
    return EnvelopeError(f"message {message.message_id[:100]!r} does not fit into a head: {error}")


def _block_of(headers: Headers) -> bytes:
    block = headers.memo.get(MEMO_STORED)
    if block is None:
        block = headers.memo[MEMO_STORED] = _encode_headers(headers)
    assert isinstance(block, bytes)
    return block


def decode_head(head: bytes, body: bytes) -> Message:
    """The message of this head of version 1 and this body.

    Messages whose octets for the headers are equal share one
    :class:`~gateway.messaging.message.Headers`.

    Called on one thread only.

    :raises EnvelopeError: the head is damaged or of an unknown version.
    """
    return _decode(head, body, 21, 0)


def decode_row(head: bytes, body: bytes) -> Message:
    """As :func:`decode_head`, for a head from the embedded broker's store."""
    if head[:1] != b"\2":
        return _decode(head, body, 21, 0)
    try:
        lines = _LENGTH.unpack_from(head, 21)[0]
    except struct.error as error:
        raise EnvelopeError(f"the head of a message is damaged: {error}") from error
    return _decode(head, body, 25, lines)


def _decode(head: bytes, body: bytes, start: int, length: int) -> Message:
    """Return the message of a head.

    :param start: octets before the JMSMessageID.
    :param length: octets of header lines.
    """
    try:
        version, timestamp, expires, id_length, user_length = _unpack_fixed(head)
        if version != (_HEAD_VERSION if start == 21 else _ROW_VERSION):
            raise EnvelopeError(
                f"the head of a message has version {version}; this program reads version {_HEAD_VERSION}"
            )
        user_start = start + id_length
        lines_start = user_start + user_length
        block_start = lines_start + length
        block = head[block_start:]
        headers = _known.get(block) or _headers_of(block)
        if length:
            lines = head[lines_start:block_start]
            count = count_lines(lines)
            octets = headers.octets + len(lines) - 2 * count
            headers = VariedHeaders(headers, lines, count, octets)
        message = Message(
            headers,
            body,
            expires=expires,
            timestamp=timestamp,
            message_id=head[start:user_start].decode(),
        )
        if user_length:
            message.user = head[user_start:lines_start].decode()
    except (struct.error, ValueError) as error:
        raise EnvelopeError(f"the head of a message is damaged: {error}") from error
    return message


def encode(message: Message) -> bytes:
    """The message as an envelope.

    :raises EnvelopeError: as :func:`encode_head` does, or the body is 2 GiB or longer.
    """
    head = encode_head(message)
    if len(message.body) > 0x7FFF_FFFF:
        raise EnvelopeError(f"a body of {len(message.body)} octets does not fit into an envelope")
    prefix = _PREFIX.pack(_MAGIC, _ENVELOPE_VERSION)
    rest = b"".join((_LENGTHS.pack(len(head), len(message.body)), head, message.body))
    return b"".join((prefix, _LENGTH.pack(crc32(rest, crc32(prefix))), rest))


def decode(envelope: bytes) -> Message:
    """The message in an envelope.

    :raises EnvelopeError: it is not one, is damaged, or is of an unknown version.
    """
    if envelope[:4] != _MAGIC:
        raise EnvelopeError(
            f"not an envelope: it begins with {envelope[:4].hex(' ') or 'nothing'}, not with {_MAGIC.hex(' ')}"
        )
    if len(envelope) < 18:
        raise EnvelopeError(f"the envelope is cut short: {len(envelope)} octets, of 18 at least")
    version = _PREFIX.unpack_from(envelope)[1]
    if version != _ENVELOPE_VERSION:
        raise EnvelopeError(
            f"the envelope has version {version}; this program reads version {_ENVELOPE_VERSION}"
        )
    (expected,) = _LENGTH.unpack_from(envelope, 6)
    found = crc32(memoryview(envelope)[10:], crc32(envelope[:6]))
    if found != expected:
        raise EnvelopeError(
            f"the envelope is damaged or cut short: its checksum is {found:08x}, and it says {expected:08x}"
        )
    head_length, body_length = _LENGTHS.unpack_from(envelope, 10)
    body_start = 18 + head_length
    end = body_start + body_length
    if end > len(envelope):
        raise EnvelopeError(
            f"the envelope is too short: {len(envelope)} octets, of {end} that it announces"
        )
    for tag, _ in _fields(envelope, end, "envelope"):
        if tag < _OPTIONAL:
            raise EnvelopeError(
                f"the envelope has a field {tag}, which version {_ENVELOPE_VERSION} does not have"
            )
    return decode_head(envelope[18:body_start], envelope[body_start:end])


def _field(tag: int, octets: bytes) -> bytes:
    return _FIELD.pack(tag, len(octets)) + octets


def _encode_headers(headers: Headers) -> bytes:
    """The part of a head that depends on the headers alone."""
    if not 0 <= headers.priority <= 9:
        raise EnvelopeError(f"priority {headers.priority} is not one of 0 to 9")
    mode = _PERSISTENT if headers.persistent else _NON_PERSISTENT
    try:
        parts = [
            bytes((headers.body_type, mode, headers.priority)),
            _field(_DESTINATION, _encode_destination(headers.destination)),
        ]
        if headers.reply_to is not None:
            parts.append(_field(_REPLY_TO, _encode_destination(headers.reply_to)))
        if headers.correlation_id is not None:
            parts.append(_field(_CORRELATION_ID, _encode_text(headers.correlation_id)))
        if headers.type is not None:
            parts.append(_field(_TYPE, _encode_text(headers.type)))
        if headers.properties:
            parts.append(_field(_PROPERTIES, encode_properties(headers.properties)))
        if headers.extras:
            texts = [_encode_text(text) for pair in headers.extras for text in pair]
            extras = _LENGTH.pack(len(headers.extras)) + b"".join(
                [_LENGTH.pack(len(text)) + text for text in texts]
            )
            parts.append(_field(_EXTRAS, extras))
        if headers.null_text:
            parts.append(_field(_NULL_TEXT, b""))
    except (ValueError, TypeError, struct.error) as error:
        raise EnvelopeError(
            f"the headers of a message to {headers.destination} cannot be encoded: {error}"
        ) from error
    return b"".join(parts)


def _encode_destination(destination: Destination) -> bytes:
    return bytes((destination.kind, destination.temporary)) + _encode_text(destination.name)


def _encode_text(text: str) -> bytes:
    # Half surrogates come from Java; strings of STOMP have none.
    return text.encode("utf-8", "surrogatepass")


# Headers by the octets they were decoded from, so that a million stored messages of one producer do
# not need a million of them.
_known: Final[dict[bytes, Headers]] = {}
_known_octets = 0


def _headers_of(block: bytes) -> Headers:
    global _known_octets
    headers = _decode_headers(block)
    headers.memo[MEMO_STORED] = block
    if len(block) <= _KNOWN_LONGEST:
        if len(_known) >= _KNOWN_BLOCKS or _known_octets + len(block) > _KNOWN_OCTETS:
            # Dropping all at once costs nothing per message, and those in use are soon known again.
            _known.clear()
            _known_octets = 0
        _known[block] = headers
        _known_octets += len(block)
    return headers


def _decode_headers(block: bytes) -> Headers:
    if len(block) < 3:
        raise EnvelopeError("the head of a message is cut short before its fields")
    kind, mode, priority = block[:3]
    body_type = _BODY_TYPES.get(kind)
    if body_type is None or mode not in _MODES or priority > 9:
        raise EnvelopeError(
            f"the head of a message is damaged: body type {kind}, delivery mode {mode}, priority {priority}"
        )
    destination = reply_to = correlation_id = type_ = properties = None
    extras: tuple[tuple[str, str], ...] = ()
    null_text = False
    try:
        for tag, octets in _fields(block, 3, "head"):
            if tag == _DESTINATION:
                destination = _decode_destination(octets)
            elif tag == _PROPERTIES:
                properties = decode_properties(octets)
            elif tag == _EXTRAS:
                extras = _decode_extras(octets)
            elif tag == _CORRELATION_ID:
                correlation_id = _decode_text(octets)
            elif tag == _TYPE:
                type_ = _decode_text(octets)
            elif tag == _REPLY_TO:
                reply_to = _decode_destination(octets)
            elif tag == _NULL_TEXT:
                null_text = True
            elif tag < _OPTIONAL:
                raise EnvelopeError(
                    f"the head of a message has a field {tag}, which version {_HEAD_VERSION} does not have"
                )
    except (MalformedValues, UnicodeDecodeError) as error:
        raise EnvelopeError(f"the head of a message is damaged: {error}") from error
    if destination is None:
        raise EnvelopeError("the head of a message has no destination")
    return Headers(
        destination,
        body_type=body_type,
        persistent=mode == _PERSISTENT,
        priority=priority,
        reply_to=reply_to,
        correlation_id=correlation_id,
        type=type_,
        properties=properties,
        extras=extras,
        null_text=null_text,
    )


def _fields(octets: bytes, position: int, where: str) -> list[tuple[int, bytes]]:
    """The fields in these octets from ``position`` on, tag and content."""
    fields: list[tuple[int, bytes]] = []
    size = len(octets)
    before = -1
    while position < size:
        start = position + 5
        if start > size:
            raise EnvelopeError(f"a field of the {where} is cut short")
        tag, length = _unpack_field(octets, position)
        if tag <= before:
            raise EnvelopeError(f"field {tag} of the {where} is out of order")
        position = start + length
        if position > size:
            raise EnvelopeError(
                f"field {tag} of the {where} is cut short: {size - start} octets of {length}"
            )
        before = tag
        fields.append((tag, octets[start:position]))
    return fields


def _decode_text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogatepass")


def _decode_destination(octets: bytes) -> Destination:
    if len(octets) < 2 or octets[0] not in _KINDS or octets[1] > 1:
        raise EnvelopeError(
            f"the head of a message has a destination that is none: {octets[:16].hex(' ')}"
        )
    return Destination(_KINDS[octets[0]], _decode_text(octets[2:]), octets[1] == 1)


def _decode_extras(octets: bytes) -> tuple[tuple[str, str], ...]:
    texts: list[str] = []
    position = 4
    while position < len(octets):
        start = position + 4
        position = start + int.from_bytes(octets[position:start], "big")
        if position > len(octets):
            raise EnvelopeError("the head of a message has a header that is cut short")
        texts.append(_decode_text(octets[start:position]))
    if len(texts) != 2 * int.from_bytes(octets[:4], "big"):
        raise EnvelopeError(
            f"the head of a message has {len(texts)} texts for {int.from_bytes(octets[:4], 'big')} other headers"
        )
    return tuple(zip(texts[::2], texts[1::2], strict=True))
