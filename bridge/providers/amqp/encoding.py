"""AMQP types and their bytes (part 1).

Owns the encoding of single values. What the sections of a message mean is the mapping's business.

The protocol engine has a codec of its own. This one keeps the types of JMS apart, as
:mod:`gateway.messaging.values` has them, reads what a peer sends without C code, and says at which
byte reading failed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from gateway.messaging.errors import MessagingError
from gateway.messaging.values import Byte, Char, Float, Int, Short

#: How deep values may be nested; more is refused before Python's own limit is near.
_DEEPEST: Final = 32
#: Most elements of an array of a type without bytes, such as nulls, whose count costs nothing.
_MOST_EMPTY: Final = 65_536


class Symbol(str):
    """An AMQP ``symbol``: ASCII text of a constrained domain."""

    __slots__ = ()


class UByte(int):
    """An AMQP ``ubyte``, 0 to 255."""

    __slots__ = ()


class UShort(int):
    """An AMQP ``ushort``, 16 bits."""

    __slots__ = ()


class UInt(int):
    """An AMQP ``uint``, 32 bits."""

    __slots__ = ()


class ULong(int):
    """An AMQP ``ulong``, 64 bits."""

    __slots__ = ()


class Timestamp(int):
    """An AMQP ``timestamp``, epoch milliseconds."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with the descriptor of its type."""

    descriptor: Any
    value: Any


class MalformedAmqp(MessagingError):
    """The bytes are not AMQP values.

    :param offset: the byte, from 0, at which reading failed.
    :param reason: what is wrong there.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"AMQP values are malformed at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


def encode(value: object) -> bytes:
    """Return the bytes of a value.

    A plain ``int`` is a long and a plain ``float`` a double, as in
    :mod:`gateway.messaging.values`.

    :raises ValueError: a number is out of the range of its type, or a text is no Unicode.
    :raises TypeError: AMQP has no such type.
    """
    for kind in type(value).__mro__:
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(value)
    raise TypeError(f"AMQP has no type for a {type(value).__name__}")


def _packed(code: int, form: str, name: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(f">B{form}").pack

    def encoder(value: Any) -> bytes:
        try:
            return pack(code, value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value!r} is outside of the range of an AMQP {name}") from None

    return encoder


def _sized(small: int, data: bytes) -> bytes:
    """Return bytes behind a code and their length.

    :param small: the code for up to 255 of them; the one for more is 16 above it.
    """
    if len(data) < 256:
        return bytes((small, len(data))) + data
    return struct.pack(">BI", small + 0x10, len(data)) + data


def _text(value: str) -> bytes:
    try:
        return _sized(0xA1, value.encode())
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair, which is no Unicode") from None


def _compound(code: int, count: int, parts: Sequence[bytes]) -> bytes:
    body = b"".join(parts)
    return struct.pack(">BII", code, len(body) + 4, count) + body


def _map(value: Mapping[Any, Any]) -> bytes:
    parts = [encode(part) for pair in value.items() for part in pair]
    return _compound(0xD1, len(parts), parts)


def _list(value: Sequence[Any]) -> bytes:
    return _compound(0xD0, len(value), [encode(part) for part in value]) if value else b"\x45"


def _ulong(value: int) -> bytes:
    return bytes((0x53, value)) if 0 <= value < 256 else _packed_ulong(value)


_packed_ulong: Final = _packed(0x80, "Q", "ulong")

_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: _packed(0x50, "B", "ubyte"),
    UShort: _packed(0x60, "H", "ushort"),
    UInt: _packed(0x70, "I", "uint"),
    ULong: _ulong,
    Byte: _packed(0x51, "b", "byte"),
    Short: _packed(0x61, "h", "short"),
    Int: _packed(0x71, "i", "int"),
    Timestamp: _packed(0x83, "q", "timestamp"),
    int: _packed(0x81, "q", "long"),
    Float: _packed(0x72, "f", "float"),
    float: _packed(0x82, "d", "double"),
    Char: lambda value: struct.pack(">BI", 0x73, ord(value)),
    Symbol: lambda value: _sized(0xA3, value.encode("ascii", "replace")),
    str: _text,
    bytes: lambda value: _sized(0xA0, value),
    UUID: lambda value: b"\x98" + value.bytes,
    Described: lambda value: b"\x00" + encode(value.descriptor) + encode(value.value),
    dict: _map,
    list: _list,
}


def decode(data: bytes, position: int = 0) -> tuple[Any, int]:
    """Return the value at ``position``, and where it ends.

    :raises MalformedAmqp: it is missing or cut short.
    """
    try:
        return _read(data, position, 0)
    except (struct.error, IndexError):
        raise MalformedAmqp(position, "a value is cut short") from None


def _read(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    code = data[position]
    if code == 0:
        if depth > _DEEPEST:
            raise MalformedAmqp(position, f"values are nested deeper than {_DEEPEST}")
        descriptor, position = _read(data, position + 1, depth + 1)
        value, position = _read(data, position, depth + 1)
        return Described(descriptor, value), position
    return _read_code(data, position + 1, code, depth)


def _read_code(data: bytes, position: int, code: int, depth: int) -> tuple[Any, int]:
    """Return a value of which the code was read already."""
    fixed = _FIXED.get(code)
    if fixed is not None:
        form, make = fixed
        return make(form.unpack_from(data, position)[0]), position + form.size
    if code in _CONSTANTS:
        return _CONSTANTS[code](), position
    width = code >> 4
    if width in (0xA, 0xB):
        start, length = _length(data, position, width == 0xB)
        taken = data[start : start + length]
        if len(taken) < length:
            raise MalformedAmqp(position, "a value is cut short")
        return _variable(taken, code & 0xF, start), start + length
    if width in (0xC, 0xD, 0xE, 0xF):
        return _read_compound(data, position, code, depth)
    if code in _DECIMALS:
        size = _DECIMALS[code]
        if position + size > len(data):
            raise MalformedAmqp(position, "a value is cut short")
        return data[position : position + size], position + size
    if code == 0x98:
        if position + 16 > len(data):
            raise MalformedAmqp(position, "a value is cut short")
        return UUID(bytes=bytes(data[position : position + 16])), position + 16
    raise MalformedAmqp(position - 1, f"0x{code:02x} is the code of no type")


def _length(data: bytes, position: int, wide: bool) -> tuple[int, int]:
    if wide:
        return position + 4, int(_WORD.unpack_from(data, position)[0])
    return position + 1, data[position]


def _variable(taken: bytes, kind: int, offset: int) -> Any:
    if kind == 0:
        return bytes(taken)
    try:
        if kind == 1:
            return taken.decode()
        if kind == 3:
            return Symbol(taken.decode("latin-1"))
    except UnicodeDecodeError as error:
        raise MalformedAmqp(offset + error.start, f"not UTF-8: {error.reason}") from None
    raise MalformedAmqp(offset, "the code of no type")


def _read_compound(data: bytes, position: int, code: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise MalformedAmqp(position, f"values are nested deeper than {_DEEPEST}")
    wide = bool(code & 0x10)
    start, size = _length(data, position, wide)
    end = start + size
    if end > len(data):
        raise MalformedAmqp(position, "a value is cut short")
    position, count = _length(data, start, wide)
    if code in (0xE0, 0xF0):
        value: Any = None
        value, position = _read_array(data, position, count, end, depth)
    elif code & 0xF in (0, 1) and count <= end - position:
        items: list[Any] = []
        for _ in range(count):
            item, position = _read(data, position, depth + 1)
            items.append(item)
        value = items if code & 0xF == 0 else _mapped(items, start)
    else:
        raise MalformedAmqp(start, f"0x{code:02x} is the code of no type or its count is wrong")
    if position != end:
        raise MalformedAmqp(position, "the length of a value is not that of its parts")
    return value, end


def _mapped(items: list[Any], offset: int) -> dict[Any, Any]:
    if len(items) % 2:
        raise MalformedAmqp(offset, "a map has a key without a value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise MalformedAmqp(offset, "a map has a compound value as its key") from None


def _read_array(
    data: bytes, position: int, count: int, end: int, depth: int
) -> tuple[list[Any], int]:
    code = data[position]
    descriptor: Any = None
    described = code == 0
    if described:
        descriptor, position = _read(data, position + 1, depth + 1)
        code = data[position]
    position += 1
    if count > max(end - position, _MOST_EMPTY if code in _CONSTANTS else 0):
        raise MalformedAmqp(position, "an array is cut short")
    items: list[Any] = []
    for _ in range(count):
        item, position = _read_code(data, position, code, depth + 1)
        items.append(Described(descriptor, item) if described else item)
    return items, position


_WORD: Final = struct.Struct(">I")


def _char(number: int) -> str:
    # A Java char is one UTF-16 unit; above that it is a text.
    if number <= 0xFFFF:
        return Char(chr(number))
    return chr(number) if number < 0x110000 else "\ufffd"


def _same(value: Any) -> Any:
    return value


#: Values of a fixed width by code: how they are packed, and which class they come back as.
_FIXED: Final[dict[int, tuple[struct.Struct, Callable[[Any], Any]]]] = {
    0x50: (struct.Struct(">B"), UByte),
    0x51: (struct.Struct(">b"), Byte),
    0x52: (struct.Struct(">B"), UInt),
    0x53: (struct.Struct(">B"), ULong),
    0x54: (struct.Struct(">b"), Int),
    0x55: (struct.Struct(">b"), _same),
    0x56: (struct.Struct(">?"), _same),
    0x60: (struct.Struct(">H"), UShort),
    0x61: (struct.Struct(">h"), Short),
    0x70: (_WORD, UInt),
    0x71: (struct.Struct(">i"), Int),
    0x72: (struct.Struct(">f"), Float),
    0x73: (_WORD, _char),
    0x80: (struct.Struct(">Q"), ULong),
    0x81: (struct.Struct(">q"), _same),
    0x82: (struct.Struct(">d"), _same),
    0x83: (struct.Struct(">q"), Timestamp),
}
_CONSTANTS: Final[dict[int, Callable[[], Any]]] = {
    0x40: lambda: None,
    0x41: lambda: True,
    0x42: lambda: False,
    0x43: lambda: UInt(0),
    0x44: lambda: ULong(0),
    0x45: list,
}
#: Decimals, which neither Java's message types nor Python's have so; they come back as bytes.
_DECIMALS: Final = {0x74: 4, 0x84: 8, 0x94: 16}
