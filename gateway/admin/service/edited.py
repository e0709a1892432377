"""A message that is edited before it is sent again.

Owns what can be changed, how the new values are read, and how the difference is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

from gateway.admin.service.requests import Refused
from gateway.messaging.message import BodyType, Message, text_of_body
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Value, encode_properties, text_of

#: Octets of a body that can be edited; a longer one is not shown as a whole.
MOST_EDITED: Final = 32 * 1024
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be different.

    :param text: the new body; None keeps it.
    :param properties: new values by name; None removes the property. Others stay.
    """

    text: str | None
    properties: Mapping[str, str | None]

    def __bool__(self) -> bool:
        return self.text is not None or bool(self.properties)

    def of(self, message: Message) -> Message:
        """Return the message as it is to be, without an id.

        :raises Refused: it cannot be so.
        """
        body = message.body
        if self.text is not None:
            if not is_editable(message):
                raise Refused(
                    f"its body is of type {message.headers.body_type.name} or too long, and cannot be edited as text",
                    "not_editable",
                )
            body = self.text.encode("utf-8", "replace")
        properties = dict(message.headers.properties)
        for name, given in self.properties.items():
            if given is None:
                properties.pop(name, None)
                continue
            if not is_property_name(name):
                raise Refused(f"{name!r} is no name of a property", "bad_request")
            properties[name] = _value(name, given, properties.get(name))
        try:
            encode_properties(properties)
        except ValueError as error:
            raise Refused(f"a property cannot be stored: {error}", "bad_request") from None
        null_text = message.headers.null_text and self.text is None
        return Message(
            message.headers.replace(properties=properties, null_text=null_text),
            body,
            expires=message.expires,
            timestamp=message.timestamp,
        )


def edit_of(text: object, properties: object) -> Edit:
    """Read an edit of JSON. :raises Refused: it has another form."""
    if text is not None and not isinstance(text, str):
        raise Refused(f"text is {text!r}; expected text", "bad_request")
    if properties is None:
        properties = {}
    if not isinstance(properties, dict) or not all(
        value is None or isinstance(value, str) for value in properties.values()
    ):
        raise Refused(
            'properties are no texts by name; expected such as {"color": "red", "size": null}',
            "bad_request",
        )
    return Edit(text, properties)


def is_editable(message: Message) -> bool:
    """Whether the body is a text, and is shown as a whole."""
    return (
        message.headers.body_type in (BodyType.TEXT, BodyType.BYTES)
        and len(message.body) <= MOST_EDITED
        and text_of_body(message.body) is not None
    )


def difference(before: Message, after: Message) -> Sequence[str]:
    """Return the lines that differ, as ``diff -u`` has them."""
    lines = unified_diff(_lines(before), _lines(after), "as it is", "as it is sent", lineterm="")
    return list(lines)


def _lines(message: Message) -> list[str]:
    properties = [
        f"{name} = {text_of(value)}" for name, value in sorted(message.headers.properties.items())
    ]
    text = text_of_body(message.body)
    body = [f"{len(message.body)} bytes"] if text is None else text.split("\n")
    return [f"to {message.headers.destination}", *properties, "", *body]


def _value(name: str, text: str, before: Value) -> Value:
    """Return a property's new value, of the type that it had."""
    try:
        if isinstance(before, bool):
            return _TRUTH[text.lower()]
        if isinstance(before, (int, float)):
            return type(before)(text)
    except (KeyError, ValueError):
        raise Refused(
            f"{name} is '{text}'; expected a value of the type {type(before).__name__}",
            "bad_request",
        ) from None
    return text
