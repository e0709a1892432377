"""Read the rules of a target, which change messages without code.

Owns which headers a rule may change, and the values that they may get. Knows no message;
:mod:`bridge.link.rules` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from bridge.config.document import Element, Report
from bridge.config.model import (
    BRIDGE_NAME_PROPERTY,
    HOPS,
    MESSAGE_IDS,
    Destination,
    Rule,
    SetHeader,
)
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.selector.selector import parse as parse_selector
from gateway.messaging.values import Byte, Float, Int, Short, Value

ANY: Final = "*"
"""At the end of a name to remove: whatever follows."""
CORRELATION_ID: Final = "JMSCorrelationID"
TYPE: Final = "JMSType"
PRIORITY: Final = "JMSPriority"
DELIVERY_MODE: Final = "JMSDeliveryMode"
PERSISTENT: Final = "PERSISTENT"

_TEXTS: Final = (CORRELATION_ID, TYPE)
#: The header fields that a rule can set to one of these values.
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    PRIORITY: tuple("0123456789"),
    DELIVERY_MODE: (PERSISTENT, "NON_PERSISTENT"),
}
#: Those that can be read, besides.
_READABLE: Final = ("JMSMessageID", "JMSTimestamp", "JMSDestination", "JMSXUserID")
#: What the link itself or the target's provider says, after all rules.
_OTHERS: Final = (
    BRIDGE_NAME_PROPERTY,
    MESSAGE_IDS,
    HOPS,
    DUPLICATE_ID,
    "JMSXDeliveryCount",
    "JMSXUserID",
)
#: What these are called in STOMP, where a rule changes a property of that name.
_IN_STOMP: Final = {
    "priority": PRIORITY,
    "persistent": DELIVERY_MODE,
    "correlation-id": CORRELATION_ID,
    "type": TYPE,
}
_STRING: Final = "string"
_BOOLEANS: Final = {"true": True, "false": False}
_INTEGERS: Final[Mapping[str, tuple[type[int], int]]] = {
    "byte": (Byte, 8),
    "short": (Short, 16),
    "int": (Int, 32),
    "long": (int, 64),
}
_LARGEST_FLOAT: Final = 3.4028234663852886e38


def value_of(type: str, text: str) -> Value:
    """The value of a JMS property.

    :param type: in Java's word: ``string``, ``boolean``, ``byte``, ``short``, ``int``, ``long``,
        ``float`` or ``double``.
    :raises ValueError: the text is not of that type; says what was expected.
    """
    if type == _STRING:
        return text
    if type == "boolean":
        if text not in _BOOLEANS:
            raise ValueError("true or false")
        return _BOOLEANS[text]
    if type in _INTEGERS:
        made, bits = _INTEGERS[type]
        most = 2 ** (bits - 1)
        expected = f"a whole number from {-most} to {most - 1}, because the type is {type}"
        try:
            number = int(text)
        except ValueError:
            raise ValueError(expected) from None
        if not -most <= number < most:
            raise ValueError(expected)
        return made(number)
    expected = f"a number, because the type is {type}"
    try:
        real = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if type == "float":
        if math.isfinite(real) and abs(real) > _LARGEST_FLOAT:
            raise ValueError(f"{expected}, and no larger than {_LARGEST_FLOAT}")
        return Float(real)
    return real


def rules(
    target: Element, report: Report, referred: Callable[[Element], Destination | None]
) -> tuple[Rule, ...]:
    """Return the rules of a target, in their order.

    :param report: collects what is wrong with them.
    :param referred: finds the destination of an element's ``destination-ref``, and reports one that
        there is not.
    """
    found: list[Rule] = []
    ends = 0
    for element in target.all("rule"):
        rule = _rule(element, report, referred)
        if ends:
            report.warn(
                element,
                "",
                f"a rule that some message comes to: that of line {ends} is the last for all of them",
            )
        elif rule.when is None and (rule.drop or rule.last) and "when" not in element.attributes:
            ends = element.line
        found.append(rule)
    return tuple(found)


def _rule(
    element: Element, report: Report, referred: Callable[[Element], Destination | None]
) -> Rule:
    given = element.attributes
    description = element.first("description")
    rule = Rule(
        when=_when(element, report),
        removes=tuple(_name(one, "name", report) for one in element.all("remove")),
        renames=tuple(
            (_name(one, "name", report), _name(one, "to", report)) for one in element.all("rename")
        ),
        sets=tuple(_setting(one, report) for one in element.all("set")),
        drop=given.get("drop") == "true",
        destination=referred(element) if "destination-ref" in given else None,
        last=given.get("last") == "true",
        description="" if description is None else description.text,
    )
    changes = [child for child in element.children if child.tag != "description"]
    if rule.drop:
        if "destination-ref" in given:
            report.add(
                element, "destination-ref", 'no destination, because drop="true" sends it nowhere'
            )
        if changes:
            report.add(element, "", 'no changes in it, because drop="true" sends nothing')
    elif not (changes or rule.last or "destination-ref" in given):
        report.add(
            element,
            "",
            'something to do: remove, rename or set in it, drop="true", last="true" or a destination-ref',
        )
    return rule


def _when(element: Element, report: Report) -> str | None:
    text = element.attributes.get("when")
    if text is None:
        return None
    try:
        parse_selector(text)
    except InvalidSelector as refused:
        report.add(
            element, "when", f"a message selector, or no attribute for all messages; {refused}"
        )
        return None
    return text


def _setting(element: Element, report: Report) -> SetHeader:
    name, given = _name(element, "name", report), element.attributes
    value, source, type = given.get("value"), given.get("from"), given.get("type", _STRING)
    if (value is None) == (source is None):
        report.add(element, "value" if source is None else "from", "one of value and from")
    elif value is not None:
        _check_value(element, name, value, type, report)
    elif name in _CHOICES:
        report.add(element, "from", f"a value instead, which is one of {', '.join(_CHOICES[name])}")
    elif "type" in given:
        report.add(element, "type", "no type, because from has one")
    else:
        _check_readable(element, report)
    return SetHeader(name, value, type, source)


def _check_value(element: Element, name: str, value: str, type: str, report: Report) -> None:
    if type != _STRING and (name in _TEXTS or name in _CHOICES or not is_property_name(name)):
        report.add(element, "type", f"no type, because {name} is no property of JMS")
    elif name in _CHOICES:
        if value not in _CHOICES[name]:
            report.add(element, "value", f"one of {', '.join(_CHOICES[name])}")
    elif type in (_STRING, "boolean", "float", "double", *_INTEGERS):
        try:
            value_of(type, value)
        except ValueError as expected:
            report.add(element, "value", str(expected))


def _check_readable(element: Element, report: Report) -> None:
    source = element.attributes["from"]
    if _is_field(source) and source not in (*_TEXTS, *_CHOICES, *_READABLE):
        known = ", ".join((*_TEXTS, *_CHOICES, *_READABLE))
        report.add(element, "from", f"a header that a rule can read; of JMS these: {known}")
    elif not _is_header(source):
        report.add(element, "from", _HEADER)


_HEADER: Final = "the name of a header: characters that can be printed, without blanks around them"


def _name(element: Element, attribute: str, report: Report) -> str:
    """Return the name of a header that a rule changes.

    It is reported if a rule must not change it.
    """
    name = element.attributes.get(attribute, "")
    removed = element.tag == "remove"
    whole = name.removesuffix(ANY) if removed else name
    settable = _TEXTS if element.tag != "set" else (*_TEXTS, *_CHOICES)
    if attribute not in element.attributes:
        return name
    if name in _OTHERS:
        report.add(element, attribute, f"another name: {name} is not for rules to change")
    elif _is_field(name) and name not in settable:
        report.add(
            element,
            attribute,
            f"a header that {element.tag} can change; of JMS these: {', '.join(settable)}",
        )
    elif not _is_header(whole) and not (removed and name == ANY):
        report.add(element, attribute, _HEADER)
    elif _IN_STOMP.get(name) in settable:
        report.warn(
            element, attribute, f"{_IN_STOMP[name]}, unless another header called {name} is meant"
        )
    return name


def _is_field(name: str) -> bool:
    """Return whether it is a header field of JMS, rather than a property."""
    return name.startswith("JMS") and not name.startswith(("JMSX", "JMS_"))


def _is_header(name: str) -> bool:
    return bool(name) and name.isprintable() and name == name.strip()
