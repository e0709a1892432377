"""A message that is edited before it is sent again.

Owns what can be changed, how the new values are read, and how the difference is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import unified_diff
from typing import Final

from gateway.admin.service.requests import Refused
from gateway.messaging.message import BodyType, Message, text_of_body
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Value, encode_properties, text_of

#: What an edit may have, by the names in JSON.
EDITED: Final = ("text", "properties", "priority", "type", "expires")
#: Says that a message never expires.
NEVER: Final = "never"
#: The highest priority.
_HIGHEST: Final = 9
#: Octets of a body that can be edited; a longer one is not shown as a whole.
MOST_EDITED: Final = 32 * 1024
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to be different.

    :param text: the new body; None keeps it.
    :param properties: new values by name; None removes the property. Others stay.
    :param priority: 0 to 9; None keeps it.
    :param type: the JMSType, "" for none; None keeps it.
    :param expires: epoch milliseconds, 0 for never; None keeps it.
    """

    text: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    priority: int | None = None
    type: str | None = None
    expires: int | None = None

    def __bool__(self) -> bool:
        return self != Edit()

    def check_several(self, now_ms: int) -> None:
        """Check that several messages can be edited so.

        :param now_ms: epoch milliseconds; an expiry must be later.
        :raises Refused: none, or only one, can be so.
        """
        if self.text is not None:
            raise Refused(
                "only one message can have another body: give its id. Of several the expiry, the priority, the type and properties can be edited, the same for each",
                "bad_request",
            )
        self._check_expiry(now_ms)

    def _check_expiry(self, now_ms: int) -> None:
        if self.expires is not None and 0 < self.expires <= now_ms:
            raise Refused(
                f"expires is {moment_text(self.expires)}, which is in the past: expected a later time, or {NEVER}",
                "bad_request",
            )

    def of(self, message: Message, now_ms: int) -> Message:
        """Return the message as it is to be, without an id.

        :param now_ms: epoch milliseconds; an expiry must be later.
        :raises Refused: it cannot be so.
        """
        self._check_expiry(now_ms)
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
        headers = message.headers
        return Message(
            headers.replace(
                properties=properties,
                null_text=headers.null_text and self.text is None,
                priority=headers.priority if self.priority is None else self.priority,
                type=headers.type if self.type is None else self.type or None,
            ),
            body,
            expires=message.expires if self.expires is None else self.expires,
            timestamp=message.timestamp,
        )


def edit_of(given: Mapping[str, object]) -> Edit:
    """Read an edit of JSON, which may have more fields than :data:`EDITED`.

    :raises Refused: it has another form.
    """
    text, properties, priority, type, expires = (given.get(name) for name in EDITED)
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
    if type is not None and not (isinstance(type, str) and _is_text(type)):
        raise Refused(f"type is {type!r}; expected text", "bad_request")
    return Edit(text, properties, _priority(priority), type, _expiry(expires))


def _is_text(given: str) -> bool:
    """Whether it can be stored: half a surrogate cannot."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def _priority(given: object) -> int | None:
    """:raises Refused: it is no priority."""
    if given is None:
        return None
    text = str(given) if isinstance(given, (int, str)) else ""
    if not (text.isascii() and text.isdigit() and len(text) == 1):
        raise Refused(
            f"priority is {given!r}; expected a number from 0 to {_HIGHEST}", "bad_request"
        )
    return int(text)


def _expiry(given: object) -> int | None:
    """Return epoch milliseconds, 0 for never. :raises Refused: it is no time."""
    if given is None:
        return None
    if given == NEVER:
        return 0
    try:
        moment = datetime.fromisoformat(given if isinstance(given, str) else "")
        when = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # What was before 1970 is in the past, and 0 would be never.
        return max(1, int(when.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Refused(
            f"expires is {given!r}; expected a time such as 2026-01-31T12:00:00Z, or {NEVER}",
            "bad_request",
        ) from None


def moment_text(ms: int) -> str:
    """Return an expiry as an edit takes it.

    :param ms: epoch milliseconds, 0 for never.
    """
    if not ms:
        return NEVER
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        # Far beyond what a calendar has.
        return f"{ms} ms after 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    headers = message.headers
    return [
        f"to {headers.destination}",
        f"priority {headers.priority}",
        f"type {headers.type}" if headers.type else "no type",
        f"expires {moment_text(message.expires)}",
        *properties,
        "",
        *body,
    ]


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
