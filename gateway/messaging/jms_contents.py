"""Properties, maps and streams that check what is put into them, and refuse it when their message
is read-only.

Owns what JMS allows where (JMS 1.1, sections 3.5 and 3.11.3), and the errors of
:mod:`gateway.messaging.jms_message`, which it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from typing import overload

from gateway.messaging.errors import MessagingError
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Char, Value, encode_value


class MessageNotWriteable(MessagingError):
    """A read-only message was to be changed (``MessageNotWriteableException``).

    :param what: the part of it, in words.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} of a read-only message cannot be changed; change a copy() of it")
        self.what = what


class MessageFormatInvalid(MessagingError):
    """A name or value that a message cannot have, or a body of another type than was asked for
    (``MessageFormatException``).

    :param reason: what is wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Entries(MutableMapping[str, Value]):
    """Properties, or the body of a MapMessage: a dictionary that checks what is put into it.

    Setting raises :class:`MessageNotWriteable`, or :class:`MessageFormatInvalid` for what JMS does
    not allow: a property whose name is not a Java identifier or is a word of selectors, an empty
    name, a value that is none of :mod:`gateway.messaging.values` or out of its range, ``bytes`` or
    a ``Char`` as a property.
    """

    __slots__ = ("_properties", "_values", "_write")

    def __init__(
        self, values: dict[str, Value], write: Callable[[str], None], *, properties: bool
    ) -> None:
        """:param write: called with the name of what is about to change, and raises if it must not.
        :param properties: they are those.
        """
        self._values = values
        self._write = write
        self._properties = properties

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self._write("a property" if self._properties else "the body")
        if self._properties:
            if not isinstance(name, str) or not is_property_name(name):
                raise MessageFormatInvalid(f"{name!r} is not the name of a JMS property")
            if isinstance(value, bytes | Char):
                raise MessageFormatInvalid(f"property {name!r} cannot be {class_name(value)}")
        elif not isinstance(name, str) or not name:
            raise MessageFormatInvalid("the name of a map's entry must be a str, and not empty")
        self._values[name] = _checked(value, repr(name))

    def __delitem__(self, name: str) -> None:
        self._write("a property" if self._properties else "the body")
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class Items(MutableSequence[Value]):
    """The body of a StreamMessage: a list that checks what is put into it. Raises as
    :class:`Entries` does.
    """

    __slots__ = ("_values", "_write")

    def __init__(self, values: list[Value], write: Callable[[str], None]) -> None:
        """:param write: as for :class:`Entries`."""
        self._values = values
        self._write = write

    @overload
    def __getitem__(self, index: int) -> Value: ...

    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...

    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        return self._values[index]

    @overload
    def __setitem__(self, index: int, value: Value) -> None: ...

    @overload
    def __setitem__(self, index: slice, value: Iterable[Value]) -> None: ...

    def __setitem__(self, index: int | slice, value: object) -> None:
        self._write("the body")
        if isinstance(index, slice):
            self._values[index] = [_checked(one, "an item") for one in value]  # type: ignore[attr-defined]
        else:
            self._values[index] = _checked(value, "an item")

    def __delitem__(self, index: int | slice) -> None:
        self._write("the body")
        del self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def insert(self, index: int, value: Value) -> None:
        """Put an item before the one at ``index``."""
        self._write("the body")
        self._values.insert(index, _checked(value, "an item"))

    def __eq__(self, other: object) -> bool:
        return self._values == (other._values if isinstance(other, Items) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._values)


def _checked(value: object, what: str) -> Value:
    try:
        encode_value(value)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise MessageFormatInvalid(f"{what}: {error}") from error
    return value  # type: ignore[return-value]


def class_name(value: object) -> str:
    """The name of a value's class, for a sentence."""
    return type(value).__name__
