"""Apply the rules of a target to messages.

Owns what a rule makes of a message. Which rules there may be is for :mod:`bridge.config.rules`;
where a message goes at last, and what became of it, for :mod:`bridge.link.transfer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bridge.config.model import Destination, Rule, SetHeader
from bridge.config.rules import (
    ANY,
    CORRELATION_ID,
    DELIVERY_MODE,
    PERSISTENT,
    PRIORITY,
    TYPE,
    value_of,
)
from gateway.messaging.message import Message
from gateway.messaging.selector.fields import value_reader
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.selector.nodes import Identifier
from gateway.messaging.selector.selector import Selector, parse
from gateway.messaging.values import Value, text_of

_FIELDS: Final = {CORRELATION_ID: "correlation_id", TYPE: "type"}


class Ruled(NamedTuple):
    """What rules made of a message.

    :param message: to go on with; the one given, if nothing was changed.
    :param destination: where it goes instead of the target's; None is there.
    :param dropped: it is to be consumed, and sent nowhere.
    """

    message: Message
    destination: Destination | None = None
    dropped: bool = False


class Rules:
    """The rules of one target, in their order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules: Final = [_Applied(rule) for rule in rules]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._rules)

    def apply(self, message: Message) -> Ruled:
        """Apply the rules to a message, each to what those before it made.

        The message given is never changed.
        """
        destination: Destination | None = None
        for rule in self._rules:
            if rule.when is not None and not rule.when.matches(message):
                continue
            if rule.drops:
                return Ruled(message, dropped=True)
            message = rule.changed(message)
            destination = rule.destination or destination
            if rule.last:
                break
        return Ruled(message, destination)


class _Applied:
    """A rule, ready for use."""

    def __init__(self, rule: Rule) -> None:
        self.when: Final[Selector | None] = None if rule.when is None else parse(rule.when)
        self.drops: Final = rule.drop
        self.destination: Final = rule.destination
        self.last: Final = rule.last
        self._removes: Final = rule.removes
        self._renames: Final = rule.renames
        self._sets: Final = [(one.name, _reader(one)) for one in rule.sets]

    def changed(self, message: Message) -> Message:
        """The message with its headers as the rule wants them."""
        if not (self._removes or self._renames or self._sets):
            return message
        values = [(name, read(message)) for name, read in self._sets]
        headers = _Headers(message)
        for name in self._removes:
            headers.remove(name)
        for old, new in self._renames:
            headers.rename(old, new)
        for name, value in values:
            if value is not None:
                headers.set(name, value)
        return headers.message()


class _Headers:
    """The headers of a message, while a rule changes them."""

    def __init__(self, message: Message) -> None:
        self._of: Final = message
        headers = message.headers
        self._properties: Final = dict(headers.properties)
        self._extras = list(headers.extras)
        self._fields: Final[dict[str, object]] = {}

    def remove(self, name: str) -> None:
        if name.endswith(ANY):
            begin = name.removesuffix(ANY)
            for known in [one for one in self._properties if one.startswith(begin)]:
                del self._properties[known]
            self._extras = [one for one in self._extras if not one[0].startswith(begin)]
        elif name in _FIELDS:
            self._fields[_FIELDS[name]] = None
        else:
            self._properties.pop(name, None)
            self._extras = [one for one in self._extras if one[0] != name]

    def rename(self, old: str, new: str) -> None:
        value = self._value(old)
        if value is not None:
            self.remove(old)
            self.set(new, value)

    def set(self, name: str, value: Value) -> None:
        if name in _FIELDS:
            self._fields[_FIELDS[name]] = text_of(value)
        elif name == PRIORITY:
            self._fields["priority"] = int(text_of(value))
        elif name == DELIVERY_MODE:
            self._fields["persistent"] = value == PERSISTENT
        elif is_property_name(name):
            self._properties[name] = value
        else:
            self._extras = [one for one in self._extras if one[0] != name]
            self._extras.append((name, text_of(value)))

    def message(self) -> Message:
        headers = self._of.headers.replace(
            **self._fields, properties=self._properties, extras=tuple(self._extras)
        )
        return self._of.replaced(headers)

    def _value(self, name: str) -> Value:
        """The value of a header, with what was changed; None without one."""
        if name in _FIELDS:
            field = _FIELDS[name]
            found = self._fields.get(field, getattr(self._of.headers, field))
            return found if isinstance(found, str) else None
        if name in self._properties:
            return self._properties[name]
        return next((value for known, value in self._extras if known == name), None)


def _reader(setting: SetHeader) -> Callable[[Message], Value]:
    """Return what reads the value to set from a message.

    None leaves the header as it is.
    """
    if setting.value is not None:
        value = value_of(setting.type, setting.value)
        return lambda message: value
    name = setting.source or ""
    if name == "JMSDestination":
        return lambda message: message.headers.destination.name
    if is_property_name(name):
        # What a selector sees under that name.
        read = value_reader(Identifier(name))
        return lambda message: read(message.headers.properties, message)
    return lambda message: next(
        (value for known, value in message.headers.extras if known == name), None
    )
