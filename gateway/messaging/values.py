"""The value types of JMS properties, map entries and stream items.

JMS 1.1, sections 3.5.4 and 3.11.3; and their bytes.

Python has fewer number types than Java, and a bridge must give each back as it came. A plain
``int`` is a Java long, a plain ``float`` a double; the others are subclasses, so that they compute
as numbers and still know what they are.

Owns the types, their form as text, and their encoding. Knows nothing of messages, nor of which
names and types JMS allows where: the maker of a message checks that, and everything that is a
:data:`Value` can be encoded.

The encoding
============

All numbers are big-endian, two's complement or IEEE 754, as ``java.io.DataInputStream`` reads them.
A *value* is one octet for its type and what the type needs:

===== ======= ==================================================================
Type  Name    What follows
===== ======= ==================================================================
0     null    nothing
1     boolean one octet, 0 for false or 1 for true
2     byte    one octet
3     short   two octets
4     int     four octets
5     long    eight octets
6     float   four octets
7     double  eight octets
8     string  a text
9     bytes   four octets, the number of octets (not negative), then those octets
10    char    two octets, the UTF-16 unit
===== ======= ==================================================================

A *text* is four octets, the number of octets that follow (not negative), and then UTF-8. Java's
strings may hold half a surrogate pair, which UTF-8 cannot say; each such half is written as the
three octets its code point would have.

*Properties* and the body of a *map* message are alike: four octets, the number of entries; then for
each a text, its name, and a value. No name comes twice. The body of a *stream* message is four
octets, the number of items, and the values. Nothing follows the last one.

Types from 11 on are not assigned; a reader must refuse them, since it cannot know how many octets
to skip.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from gateway.messaging.errors import MessagingError


class Byte(int):
    """A Java ``byte``, -128 to 127."""

    __slots__ = ()


class Short(int):
    """A Java ``short``, 16 bits."""

    __slots__ = ()


class Int(int):
    """A Java ``int``, 32 bits."""

    __slots__ = ()


class Float(float):
    """A Java ``float``, 32 bits; encoding rounds to the nearest of those."""

    __slots__ = ()


class Char(str):
    """A Java ``char``, one UTF-16 unit; in maps and streams only."""

    __slots__ = ()


#: ``bytes`` and :class:`Char` appear in map and stream bodies only, ``None`` is Java's null.
Value: TypeAlias = bool | int | float | str | bytes | None


def text_of(value: Value) -> str:
    """The string form of a property (JMS 1.1, section 3.5.4); null is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return _shortest(value) if isinstance(value, Float) else str(value)


def _shortest(value: Float) -> str:
    """Return the fewest digits that are this ``float`` and no other."""
    try:
        octets = struct.pack(">f", value)
    except OverflowError:
        return str(value)
    texts = (f"{value:.{digits}g}" for digits in range(6, 9))
    found = (text for text in texts if struct.pack(">f", float(text)) == octets)
    return repr(float(next(found, f"{value:.9g}")))


class MalformedValues(MessagingError):
    """The octets are not an encoding of values.

    :param offset: the octet, from 0, at which reading failed.
    :param reason: what is wrong there.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"encoded values are malformed at octet {offset}: {reason}")
        self.offset = offset
        self.reason = reason


_NULL: Final = 0
_BOOLEAN: Final = 1
_STRING: Final = 8
_BYTES: Final = 9
_CHAR: Final = 10

_LENGTH: Final = struct.Struct(">I")
_CHAR_UNIT: Final = struct.Struct(">BH")
#: The greatest length and count: lengths are not negative in Java, which has no unsigned int.
_MOST: Final = 0x7FFF_FFFF

# The numbers, by type octet: how they are packed, which class they come back as, and what the class
# is called.
_NUMBERS: Final[dict[int, tuple[struct.Struct, type[int] | type[float], str]]] = {
    2: (struct.Struct(">b"), Byte, "byte"),
    3: (struct.Struct(">h"), Short, "short"),
    4: (struct.Struct(">i"), Int, "int"),
    5: (struct.Struct(">q"), int, "long"),
    6: (struct.Struct(">f"), Float, "float"),
    7: (struct.Struct(">d"), float, "double"),
}


def encode_properties(properties: Mapping[str, Value]) -> bytes:
    """The octets of these properties, in the order they have.

    :raises ValueError: a number is outside of its Java type, a :class:`Char` is not one UTF-16
        unit, or a text is 2 GiB or longer.
    :raises TypeError: a value is not of the types of :data:`Value`, or a name is not a ``str``.
    """
    parts = [_LENGTH.pack(len(properties))]
    for name, value in properties.items():
        if type(value) is str:
            # Nearly every property of a STOMP message.
            try:
                octets = name.encode()
                text = value.encode()
                parts += (_LENGTH.pack(len(octets)), octets, b"\x08", _LENGTH.pack(len(text)), text)
            except (UnicodeEncodeError, AttributeError, struct.error):
                parts += (_text(name), b"\x08", _text(value))
        else:
            parts += (_text(name), encode_value(value))
    return b"".join(parts)


def decode_properties(data: bytes) -> dict[str, Value]:
    """Return the properties that :func:`encode_properties` encoded.

    Each with its exact type.

    :raises MalformedValues: it did not.
    """
    count = _count(data)
    properties: dict[str, Value] = {}
    position = 4
    try:
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, position)
            start = position + 4
            end = start + length
            # A name cut short is noticed by reading the type that should follow it.
            kind = data[end]
            name = data[start:end].decode()
            if kind == _STRING:
                start = end + 5
                position = start + _LENGTH.unpack_from(data, end + 1)[0]
                if position > len(data):
                    raise MalformedValues(end + 1, "a string is cut short")
                properties[name] = data[start:position].decode()
            else:
                properties[name], position = _read_value(data, end)
    except (UnicodeDecodeError, struct.error, IndexError):
        # What the quick way cannot read, the thorough one reads or refuses with the reason.
        return _read_entries(data)
    if len(properties) != count:
        return _read_entries(data)
    _at_end(data, position)
    return properties


#: The body of a MAP message with these entries, and the entries of such a body.
encode_map: Final = encode_properties
decode_map: Final = decode_properties


def encode_stream(items: Sequence[Value]) -> bytes:
    """Return the body of a STREAM message with these items.

    :raises ValueError, TypeError: as :func:`encode_properties` does.
    """
    return _LENGTH.pack(len(items)) + b"".join(map(encode_value, items))


def decode_stream(body: bytes) -> list[Value]:
    """Return the items of a STREAM message's body.

    :raises MalformedValues: it is not one.
    """
    items: list[Value] = []
    position = 4
    for _ in range(_count(body)):
        value, position = _read_value(body, position)
        items.append(value)
    _at_end(body, position)
    return items


def encode_value(value: Value) -> bytes:
    """Return one value with its type.

    :raises ValueError, TypeError: as :func:`encode_properties` does.
    """
    encode = _ENCODERS.get(type(value))
    if encode is None:
        encode = _encoder_of(value)
    return encode(value)


def _text(text: str) -> bytes:
    try:
        octets = text.encode()
    except UnicodeEncodeError:
        octets = text.encode("utf-8", "surrogatepass")
    except AttributeError:
        raise TypeError(f"a name must be a str, not {type(text).__name__}") from None
    return _sized(octets, "a text")


def _sized(octets: bytes, what: str) -> bytes:
    if len(octets) > _MOST:
        raise ValueError(f"{what} of {len(octets)} octets is too long: the most is {_MOST}")
    return _LENGTH.pack(len(octets)) + octets


def _number_encoder(kind: int) -> Callable[[Value], bytes]:
    packing, _, name = _NUMBERS[kind]
    pack = struct.Struct(f">B{packing.format[-1]}").pack

    def encode(value: Value) -> bytes:
        try:
            return pack(kind, value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value!r} is outside of the range of a Java {name}") from None

    return encode


def _encode_char(value: Value) -> bytes:
    if not isinstance(value, str) or len(value) != 1 or value > "\uffff":
        raise ValueError(f"{value!r} is not one UTF-16 unit, as a Java char is")
    return _CHAR_UNIT.pack(_CHAR, ord(value))


# Keyed by exact class: bool is an int to isinstance, and so is Byte.
_ENCODERS: Final[dict[type, Callable[..., bytes]]] = {
    type(None): lambda value: b"\x00",
    bool: lambda value: b"\x01\x01" if value else b"\x01\x00",
    Byte: _number_encoder(2),
    Short: _number_encoder(3),
    Int: _number_encoder(4),
    int: _number_encoder(5),
    Float: _number_encoder(6),
    float: _number_encoder(7),
    str: lambda value: b"\x08" + _text(value),
    bytes: lambda value: b"\x09" + _sized(value, "a byte array"),
    Char: _encode_char,
}


def _encoder_of(value: object) -> Callable[..., bytes]:
    """Find the encoder of a subclass, as an IntEnum is one of int.

    It travels as the nearest class that is a value.
    """
    for base in type(value).__mro__:
        encode = _ENCODERS.get(base)
        if encode is not None:
            return encode
    raise TypeError(f"a {type(value).__name__} is none of the types of a JMS value")


def _count(data: bytes) -> int:
    if len(data) < 4:
        raise MalformedValues(0, f"the count needs 4 octets, and there are {len(data)}")
    count: int = _LENGTH.unpack_from(data)[0]
    # Every entry and item is at least one octet, so a count above that is refused before anything
    # is made for it.
    if count > len(data) - 4:
        raise MalformedValues(0, f"{count} values cannot be in {len(data) - 4} octets")
    return count


def _at_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise MalformedValues(position, f"{len(data) - position} octets follow the last value")


def _read_entries(data: bytes) -> dict[str, Value]:
    entries: dict[str, Value] = {}
    position = 4
    for _ in range(_count(data)):
        start = position
        octets, position = _read_sized(data, position, "a name")
        name = _decoded(octets, start + 4)
        if name in entries:
            raise MalformedValues(start, f"the name {name!r} comes twice")
        entries[name], position = _read_value(data, position)
    _at_end(data, position)
    return entries


def _read_sized(data: bytes, position: int, what: str) -> tuple[bytes, int]:
    start = position + 4
    if start > len(data):
        raise MalformedValues(position, f"the length of {what} is cut short")
    end: int = start + _LENGTH.unpack_from(data, position)[0]
    if end > len(data):
        raise MalformedValues(
            position, f"{what} of {end - start} octets is cut short after {len(data) - start}"
        )
    return data[start:end], end


def _decoded(octets: bytes, offset: int) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        try:
            return octets.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise MalformedValues(offset + error.start, f"not UTF-8: {error.reason}") from None


def _read_value(data: bytes, position: int) -> tuple[Value, int]:
    """The value whose type octet is at ``position``, and where it ends."""
    if position >= len(data):
        raise MalformedValues(position, "a value is missing")
    kind = data[position]
    start = position + 1
    if kind == _STRING:
        octets, end = _read_sized(data, start, "a string")
        return _decoded(octets, start + 4), end
    if kind in _NUMBERS:
        packing, number, name = _NUMBERS[kind]
        end = start + packing.size
        if end > len(data):
            raise MalformedValues(position, f"a {name} is cut short")
        value = packing.unpack_from(data, start)[0]
        return (value if number is int or number is float else number(value)), end
    if kind == _BOOLEAN:
        if data[start : start + 1] not in (b"\x00", b"\x01"):
            raise MalformedValues(position, "a boolean must be followed by 0 or 1")
        return data[start] == 1, start + 1
    if kind == _NULL:
        return None, start
    if kind == _BYTES:
        return _read_sized(data, start, "a byte array")
    if kind == _CHAR:
        if start + 2 > len(data):
            raise MalformedValues(position, "a char is cut short")
        return Char(chr(int.from_bytes(data[start : start + 2], "big"))), start + 2
    raise MalformedValues(position, f"{kind} is no type of value")
