"""Objects as the texts that clients of ActiveMQ write and read.

Owns the way from XML to JSON and back. ActiveMQ has XStream write an object, as XML or by Jettison
as JSON, and needs its class for both. Here no class is known: what an element of XML is in JSON
follows from how both are written. ``<pojo><name>Ada</name></pojo>`` is ``{"pojo": {"name": "Ada"}}``;
elements of one name are a list, an attribute is ``@name``, the text beside attributes is ``$``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

#: By the value of the ``transformation`` header of SEND, how the object is written.
OBJECT_FORMS: Final = {"jms-object-xml": "xml", "jms-object-json": "json"}
#: By that of a message, also where the broker has made it.
TOLD_OBJECT_FORMS: Final = {**OBJECT_FORMS, "jms-advisory-json": "json"}
#: By that of SUBSCRIBE, how it is wanted.
WANTED_OBJECT_FORMS: Final = {
    **OBJECT_FORMS,
    "jms-xml": "xml",
    "jms-json": "json",
    "jms-map-xml": "xml",
    "jms-map-json": "json",
    "jms-advisory-xml": "xml",
    "jms-advisory-json": "json",
}
#: Characters of an object that is read. No other client is served meanwhile.
MOST: Final = 1 << 20
#: Elements within each other.
_DEEPEST: Final = 64
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
#: Numbers that JSON's readers give back as they were; all else stays a text.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,14}")
#: Every character that XML 1.0 cannot have.
_UNWRITABLE: Final = {
    **{code: "?" for code in range(32) if code not in (9, 10, 13)},
    0xFFFE: "?",
    0xFFFF: "?",
    13: "&#xd;",
}


@dataclass(slots=True)
class _Element:
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    inner: list[_Element] = field(default_factory=list)


def check_object(text: str, form: str) -> None:
    """Check that a text is an object.

    :param form: ``xml`` or ``json``.
    :raises ValueError: it is not, with the reason.
    """
    _read(text, form)


def convert_object(text: str, form: str, wanted: str) -> str:
    """Return an object in another form.

    :param form: that of the text, ``xml`` or ``json``, and
    :param wanted: that of the result.
    :raises ValueError: the text is no object, or has a name that XML cannot have.
    """
    if form == wanted:
        return text
    root = _read(text, form)
    if wanted == "xml":
        return "\n".join(_xml_of(root, ""))
    return json.dumps(
        {root.name: _value_of(root)}, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def _read(text: str, form: str) -> _Element:
    if len(text) > MOST:
        raise ValueError(f"the object has {len(text)} characters, and {MOST} are read")
    return _read_xml(text) if form == "xml" else _read_json(text)


# XML


def _read_xml(text: str) -> _Element:
    around = _Element("")
    path = [around]
    letters: list[list[str]] = [[]]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(path) > _DEEPEST:
            raise ValueError(f"the object has more than {_DEEPEST} elements within each other")
        element = _Element(name, attributes)
        path[-1].inner.append(element)
        path.append(element)
        letters.append([])

    def end(name: str) -> None:
        element, said = path.pop(), "".join(letters.pop())
        # The lines between elements are how it is printed.
        element.text = said.strip() if element.inner else said

    def say(data: str) -> None:
        letters[-1].append(data)

    def refuse(*_: object) -> None:
        raise ValueError("an object has no document type")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = say
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(f"the body is no XML: {error}") from None
    return around.inner[0]


def _xml_of(element: _Element, margin: str) -> list[str]:
    """Return the lines of an element, as XStream prints it."""
    given = "".join(
        [f" {name}={_shown(quoteattr(value))}" for name, value in element.attributes.items()]
    )
    said = _shown(escape(element.text))
    if not element.inner:
        if not said:
            return [f"{margin}<{element.name}{given}/>"]
        return [f"{margin}<{element.name}{given}>{said}</{element.name}>"]
    lines = [f"{margin}<{element.name}{given}>{said}"]
    for each in element.inner:
        lines += _xml_of(each, f"{margin}  ")
    lines.append(f"{margin}</{element.name}>")
    return lines


def _shown(text: str) -> str:
    return text.translate(_UNWRITABLE)


# JSON


def _read_json(text: str) -> _Element:
    try:
        whole = json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is no JSON: {error}") from None
    if not isinstance(whole, dict) or len(whole) != 1:
        raise ValueError('the body is no object: expected {"NAME": {...}}')
    ((name, value),) = whole.items()
    if isinstance(value, list):
        raise ValueError(f"'{name[:40]}' is a list, where one object is expected")
    return _element_of(name, value, 1)


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def _element_of(name: str, value: object, depth: int) -> _Element:
    if depth > _DEEPEST:
        raise ValueError(f"the object has more than {_DEEPEST} elements within each other")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"'{name[:40]}' is no name of an element")
    element = _Element(name)
    if not isinstance(value, dict):
        element.text = _plain(value)
        return element
    for key, each in value.items():
        if key == "$":
            element.text = _plain(each)
        elif key.startswith("@"):
            if _NAME.fullmatch(key[1:]) is None:
                raise ValueError(f"'{key[:40]}' is no name of an attribute")
            element.attributes[key[1:]] = _plain(each)
        else:
            several = each if isinstance(each, list) else [each]
            element.inner += [_element_of(key, one, depth + 1) for one in several]
    return element


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        # NaN and infinities, which have no other way to be read.
        return str(value)
    raise ValueError("a list is within a list")


def _value_of(element: _Element) -> object:
    """Return what JSON has for an element's contents."""
    if not element.inner and not element.attributes:
        return _typed(element.text)
    found: dict[str, object] = {f"@{name}": text for name, text in element.attributes.items()}
    if element.text:
        found["$"] = _typed(element.text)
    repeated: dict[str, list[object]] = {}
    for each in element.inner:
        repeated.setdefault(each.name, []).append(_value_of(each))
    for name, values in repeated.items():
        found[name] = values if len(values) > 1 else values[0]
    return found


def _typed(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _INTEGER.fullmatch(text) else text
