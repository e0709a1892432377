"""MapMessages as the texts that clients of ActiveMQ write and read.

Owns both forms. An entry is its name and a typed value: in XML ``<entry><string>name</string>
<int>5</int></entry>`` within ``<map>``, in JSON ``{"map": {"entry": [{"string": "name", "int": 5}]}}``.
What an element means is its name; where name and value are both texts JSON has them as a list.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape

from gateway.messaging.values import Byte, Char, Float, Int, Short, Value, text_of

#: By the value of the ``transformation`` header, what it asks for; of SEND, and
FORMS: Final = {"jms-map-xml": "xml", "jms-map-json": "json"}
#: of SUBSCRIBE, and those that a MESSAGE keeps from its SEND.
WANTED_FORMS: Final = {**FORMS, "jms-xml": "xml", "jms-json": "json"}
#: Others that a SEND may ask for, and that cannot be done.
REFUSED: Final = frozenset(
    (
        "jms-xml",
        "jms-json",
        "jms-advisory-xml",
        "jms-advisory-json",
    )
)
#: Characters of a map that is read. No other client is served meanwhile.
MOST: Final = 1 << 20
#: The elements of a map, of an entry, and the text of an element: XML has no more levels.
_DEEPEST: Final = 3
#: Every character that XML 1.0 cannot have, and those that its readers would change.
_UNWRITABLE: Final = {
    **{code: "?" for code in range(32) if code not in (9, 10, 13)},
    0xFFFE: "?",
    0xFFFF: "?",
    13: "&#xd;",
}


def read_map(text: str, form: str) -> dict[str, Value]:
    """Return the entries of a map.

    :param form: ``xml`` or ``json``.
    :raises ValueError: the text is no map, with the reason.
    """
    if len(text) > MOST:
        raise ValueError(f"the map has {len(text)} characters, and {MOST} are read")
    pairs = _read_xml(text) if form == "xml" else _read_json(text)
    entries: dict[str, Value] = {}
    for elements in pairs:
        if len(elements) != 2 or elements[0][0] != "string":
            raise ValueError("an entry of the map is not a name and a value")
        (_, name), (kind, value) = elements
        entries[name] = _value_of(kind, value)
    return entries


def write_map(entries: Mapping[str, Value], form: str) -> str:
    """Return the text of a map.

    :param form: ``xml`` or ``json``.
    """
    pairs = [(("string", name), _element_of(value)) for name, value in entries.items()]
    return _write_xml(pairs) if form == "xml" else _write_json(pairs)


_Element = tuple[str, str]

_READERS: Final[dict[str, Callable[[str], Value]]] = {
    "string": str,
    "byte": Byte,
    "short": Short,
    "int": Int,
    "long": int,
    "float": Float,
    "double": float,
    "char": Char,
    "byte-array": lambda text: base64.b64decode(text, validate=False),
    "null": lambda text: None,
}
_BITS: Final = {"byte": 8, "short": 16, "int": 32, "long": 64}


def _value_of(kind: str, text: str) -> Value:
    if kind == "boolean":
        if text not in ("true", "false"):
            raise ValueError(f"'{text[:40]}' in the map is neither true nor false")
        return text == "true"
    reader = _READERS.get(kind)
    if reader is None:
        raise ValueError(f"a value of the map is of the type '{kind[:40]}', which maps cannot have")
    if kind == "char" and (len(text) != 1 or ord(text) > 0xFFFF):
        raise ValueError(f"'{text[:40]}' in the map is not one character")
    try:
        value = reader(text)
    except ValueError:
        raise ValueError(f"'{text[:40]}' in the map is no {kind}") from None
    bits = _BITS.get(kind)
    if bits is not None and isinstance(value, int) and not -1 << bits - 1 <= value < 1 << bits - 1:
        raise ValueError(f"{text[:40]} in the map is beyond a {kind}")
    return value


_KINDS: Final[dict[type, str]] = {
    str: "string",
    Byte: "byte",
    Short: "short",
    Int: "int",
    int: "long",
    Float: "float",
    float: "double",
    Char: "char",
    bool: "boolean",
}


def _element_of(value: Value) -> _Element:
    if value is None:
        return "null", ""
    if isinstance(value, bytes):
        return "byte-array", base64.b64encode(value).decode()
    return _KINDS[type(value)], text_of(value)


# XML


def _read_xml(text: str) -> list[list[_Element]]:
    """The elements of each entry."""
    found: list[list[_Element]] = []
    open_names: list[str] = []
    letters: list[str] = []

    def start(name: str, attributes: object) -> None:
        open_names.append(name)
        if len(open_names) > _DEEPEST or (
            open_names[:2] != ["map", "entry"] and open_names != ["map"]
        ):
            raise ValueError(f"'{name[:40]}' cannot be where it is in a map")
        if len(open_names) == 2:
            found.append([])
        letters.clear()

    def end(name: str) -> None:
        if len(open_names) == _DEEPEST:
            found[-1].append((name, "".join(letters)))
        open_names.pop()

    def refuse(*_: object) -> None:
        raise ValueError("a map has no document type")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = letters.append
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(f"the body is no XML: {error}") from None
    return found


def _write_xml(pairs: list[tuple[_Element, _Element]]) -> str:
    lines = ["<map>"]
    for pair in pairs:
        lines.append("  <entry>")
        for kind, text in pair:
            shown = escape(text).translate(_UNWRITABLE)
            lines.append(f"    <{kind}>{shown}</{kind}>" if kind != "null" else "    <null/>")
        lines.append("  </entry>")
    lines.append("</map>")
    return "\n".join(lines)


# JSON


def _read_json(text: str) -> list[list[_Element]]:
    """The elements of each entry."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is no JSON: {error}") from None
    inner = whole.get("map") if isinstance(whole, dict) and len(whole) == 1 else None
    if inner == "":
        return []
    entries = inner.get("entry") if isinstance(inner, dict) and len(inner) == 1 else None
    if isinstance(entries, dict):
        entries = [entries]
    if not isinstance(entries, list):
        raise ValueError('the body is no map: expected {"map": {"entry": [...]}}')
    return [_elements(entry) for entry in entries]


def _elements(entry: object) -> list[_Element]:
    if not isinstance(entry, dict):
        raise ValueError("an entry of the map is no object")
    return [
        (kind, _plain(each))
        for kind, value in entry.items()
        for each in (value if isinstance(value, list) else [value])
    ]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError("a value of the map is neither text nor number")


def _write_json(pairs: list[tuple[_Element, _Element]]) -> str:
    entries: list[dict[str, object]] = []
    for (_, name), (kind, text) in pairs:
        if kind == "string":
            entries.append({"string": [name, text]})
        else:
            entries.append({"string": name, kind: _number(kind, text)})
    inner: object = ""
    if entries:
        inner = {"entry": entries if len(entries) > 1 else entries[0]}
    return json.dumps({"map": inner}, ensure_ascii=False, separators=(",", ":"))


def _number(kind: str, text: str) -> object:
    """What JSON has for a value: its numbers are those that all readers have."""
    if kind in _BITS:
        return int(text)
    if kind in ("float", "double") and math.isfinite(number := float(text)):
        return number
    if kind == "boolean":
        return text == "true"
    return text
