"""An exact encoding of names and values that STOMP headers cannot hold.

Owns this encoding only; which header names a broker reserves is an argument.

The encoding
============

A property becomes a header of its own name, its value as text, as STOMP clients write it and
selectors compare it. Further headers carry what the text alone does not tell. They are left out
where they are not needed:

``JMS_STOMP_TYPES``
    Properties that are not plain Strings: ``NAME=TYPE`` divided by commas, where NAME is
    percent-encoded UTF-8 and TYPE is ``null``, ``boolean``, ``byte``, ``short``, ``int``, ``long``,
    ``float``, ``double``, ``char``, or ``encoded`` for a String whose text is percent-encoded
    because it holds a NUL or half a surrogate pair. A text that does not fit its type is read as a
    String.

``JMS_STOMP_P_HEX``, ``JMS_STOMP_E_HEX``
    In place of the name of a property (P), or of a header that is not a property (E), if STOMP or
    the broker uses that name itself or it cannot be a header name. HEX is the name's UTF-8 in
    hexadecimal digits. A reader ignores the encoding of a name that needs none.

``JMS_STOMP_BODY``
    The type of the body, where the broker does not distinguish text from bytes, and for types that
    STOMP does not have: ``text``, ``bytes``, ``message``, ``map``, ``stream``, ``object``;
    ``text-null`` for a text that is null. The bodies of maps and streams are in the encoding of
    ``gateway.messaging.values``.

``JMS_STOMP_ORIGIN``
    Of a message to a topic of a broker without no-local: names the connection that sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final
from urllib.parse import quote, unquote

from gateway.messaging.message import BodyType
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Byte, Char, Float, Int, Short, Value

PREFIX: Final = "JMS_STOMP_"
TYPES: Final = PREFIX + "TYPES"
BODY: Final = PREFIX + "BODY"
ORIGIN: Final = PREFIX + "ORIGIN"
_PROPERTY: Final = PREFIX + "P_"
_EXTRA: Final = PREFIX + "E_"
_ENCODED: Final = "encoded"

_NAMES: Final[dict[type, str]] = {
    bool: "boolean",
    Byte: "byte",
    Short: "short",
    Int: "int",
    int: "long",
    Float: "float",
    float: "double",
    Char: "char",
}


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _integer(bits: int, kind: Callable[[int], Value]) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        number = int(text)
        if not -(1 << bits) <= number < 1 << bits:
            raise ValueError(text)
        return kind(number)

    return read


def _encoded(text: str) -> str:
    return unquote(text, errors="surrogatepass")


_READERS: Final[dict[str, Callable[[str], Value]]] = {
    "null": lambda text: None,
    "boolean": _boolean,
    "byte": _integer(7, Byte),
    "short": _integer(15, Short),
    "int": _integer(31, Int),
    "long": _integer(63, int),
    "float": Float,
    "double": float,
    "char": Char,
    _ENCODED: _encoded,
}

BODY_TYPES: Final = {body_type.name.lower(): body_type for body_type in BodyType}
#: In place of one of these: a TEXT message whose text is null.
NULL_TEXT: Final = "text-null"


def encode_headers(
    properties: Mapping[str, Value], extras: tuple[tuple[str, str], ...], reserved: Container[str]
) -> list[tuple[str, str]]:
    """Return the headers that carry these properties and extras.

    :param reserved: names that STOMP or the broker uses itself.
    :raises ValueError: a value is not of a type that JMS properties have, such as ``bytes``.
    """
    pairs: list[tuple[str, str]] = []
    types: list[str] = []
    for name, value in properties.items():
        text, kind = _text(name, value)
        pairs.append((name if _usable(name, reserved) else _PROPERTY + _hex(name), text))
        if kind:
            types.append(f"{quote(name, safe='', errors='surrogatepass')}={kind}")
    for name, value in extras:
        if name in properties:
            continue
        text, kind = _text(name, value)
        # An extra has no type; its name marks a value that a header cannot hold.
        usable = not kind and _usable(name, reserved)
        pairs.append(
            (name, text)
            if usable
            else (_EXTRA + _hex(name), quote(value, safe="", errors="surrogatepass"))
        )
    if types:
        pairs.append((TYPES, ",".join(types)))
    return pairs


def decode_headers(
    pairs: Mapping[str, str], spent: Container[str], reserved: Container[str]
) -> tuple[dict[str, Value], tuple[tuple[str, str], ...]]:
    """Return the properties and extras that these headers carry.

    :param pairs: the headers of a MESSAGE.
    :param spent: names that are neither.
    :param reserved: as for `encode_headers`.
    """
    entries = [entry.partition("=") for entry in pairs.get(TYPES, "").split(",")]
    types = {_encoded(name): kind for name, equals, kind in entries if equals}
    properties: dict[str, Value] = {}
    extras: list[tuple[str, str]] = []
    for name, text in pairs.items():
        if name in spent:
            continue
        if name.startswith(PREFIX):
            if (
                name.startswith(_PROPERTY)
                and (original := _unhex(name[len(_PROPERTY) :])) is not None
            ):
                if not _usable(original, reserved):
                    properties[original] = _value(text, types.get(original))
            elif name.startswith(_EXTRA) and (original := _unhex(name[len(_EXTRA) :])) is not None:
                value = _encoded(text)
                if not _usable(original, reserved) or _text(original, value)[1]:
                    extras.append((original, value))
        elif _is_property(name):
            properties[name] = _value(text, types.get(name))
        else:
            extras.append((name, text))
    return properties, tuple(extras)


def _text(name: str, value: Value) -> tuple[str, str]:
    """A value's text and type; "" is the type of a plain String."""
    if type(value) is str:
        if "\0" in value or not _is_unicode(value):
            return quote(value, safe="", errors="surrogatepass"), _ENCODED
        return value, ""
    if value is None:
        return "", "null"
    for kind in type(value).__mro__:
        if kind in _NAMES:
            if kind is bool:
                return ("true" if value else "false"), "boolean"
            text = (
                str(value)
                if kind is Char
                else repr(float(value))
                if issubclass(kind, float)
                else str(int(value))
            )
            if kind is Char and ("\0" in text or not _is_unicode(text)):
                raise ValueError(
                    f"property '{name}' is the character {text!r}, which no header can hold"
                )
            return text, _NAMES[kind]
    raise ValueError(
        f"property '{name}' is of the type {type(value).__name__}, which no JMS property has"
    )


def _value(text: str, kind: str | None) -> Value:
    if kind is None or kind not in _READERS:
        return text
    try:
        return _READERS[kind](text)
    except ValueError:
        return text


def _usable(name: str, reserved: Container[str]) -> bool:
    return (
        bool(name)
        and name not in reserved
        and not name.startswith(PREFIX)
        and name == name.strip()
        and name.isprintable()
    )


def _is_property(name: str) -> bool:
    return is_property_name(name) and (
        not name.startswith("JMS") or name.startswith(("JMSX", "JMS_"))
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hex(name: str) -> str:
    return name.encode("utf-8", "surrogatepass").hex()


def _unhex(digits: str) -> str | None:
    try:
        return bytes.fromhex(digits).decode("utf-8", "surrogatepass")
    except ValueError:
        return None
