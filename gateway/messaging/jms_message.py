"""The message as a transformer's author sees it.

It is what ``jakarta.jms.Message`` and its subtypes are in Java.

One class for all types of body, with accessors that refuse what the type does not have. Owns the
conversion from and to :class:`~gateway.messaging.message.Message`, what JMS allows in properties,
maps and streams (JMS 1.1, sections 3.5 and 3.11.3), and the promise that a read-only message cannot
be changed. Values have the types of :mod:`gateway.messaging.values`. The Java names stand beside
the Python ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from typing import overload

from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import (
    Char,
    Value,
    decode_map,
    decode_stream,
    encode_map,
    encode_stream,
    encode_value,
)


class MessageNotWriteable(MessagingError):
    """A change to a read-only message (``MessageNotWriteableException``).

    :param what: the part of it, in words.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} of a read-only message cannot be changed; change a copy() of it")
        self.what = what


class MessageFormatInvalid(MessagingError):
    """A wrong name, value or type of body (``MessageFormatException``).

    :param reason: what is wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Entries(MutableMapping[str, Value]):
    """Properties, or a MapMessage's body: a dictionary that checks.

    Setting raises :class:`MessageNotWriteable`, or :class:`MessageFormatInvalid` for what JMS does
    not allow: a property whose name is not a Java identifier or is a word of selectors, an empty
    name, a value that is not of :mod:`gateway.messaging.values` or out of its range, ``bytes`` or
    a ``Char`` as a property.
    """

    __slots__ = ("_properties", "_values", "_write")

    def __init__(
        self, values: dict[str, Value], write: Callable[[str], None], *, properties: bool
    ) -> None:
        """Wrap these values.

        :param write: called with the name of what is about to change, and raises if it must not.
        :param properties: they are properties.
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
    """The body of a StreamMessage: a list that checks what is put into it.

    Raises as :class:`Entries` does.
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


#: The bodies of maps and streams with nothing in them.
_EMPTY = {BodyType.MAP: encode_map({}), BodyType.STREAM: encode_stream([])}


def class_name(value: object) -> str:
    """The name of a value's class, for a sentence."""
    return type(value).__name__


class JMSMessage:
    """A message that can be read and, unless it is read-only, changed.

    Made by the bridge, by :meth:`copy`, or by ``MessageTransformer.create_message``. What the
    bridge decides (destination, delivery mode, priority, expiration, id, timestamp, user) can only
    be read; on a message that a transformer created it is not known yet, and the bridge takes it
    from the message it passed to the transformer.
    """

    __slots__ = (
        "_body",
        "_body_type",
        "_changed",
        "_correlation_id",
        "_entries",
        "_extras",
        "_items",
        "_null_text",
        "_original",
        "_properties",
        "_read_only",
        "_reply_to",
        "_type",
    )

    def __init__(self, body_type: BodyType) -> None:
        """Make an empty message, to be written.

        :param body_type: the type of its body; it stays.
        """
        self._original: Message | None = None
        self._read_only = False
        self._changed = True
        self._body_type = body_type
        self._body = _EMPTY.get(body_type, b"")
        self._null_text = False
        #: The body of a map or a stream, once it was asked for.
        self._entries: Entries | None = None
        self._items: Items | None = None
        self._correlation_id: str | None = None
        self._type: str | None = None
        self._reply_to: Destination | None = None
        self._properties = Entries({}, self._write, properties=True)
        self._extras: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, message: Message, *, read_only: bool) -> JMSMessage:
        """Make a view of this message.

        Changes are made to the view alone, and :meth:`to_message` gives the outcome.
        """
        view = cls(message.headers.body_type)
        view._say(message.headers)
        view._original = message
        view._read_only = read_only
        view._changed = False
        view._body = message.body
        return view

    def copy(self) -> JMSMessage:
        """Make a message with the same content that can be changed.

        Whether or not this one can.
        """
        other = JMSMessage(self._body_type)
        other._say(self)
        other._original = self._original
        other._changed = self._changed
        other._body = self._encoded()
        return other

    def _say(self, said: Headers | JMSMessage) -> None:
        """Say what others say, before it is known whether this can be changed."""
        self._null_text = said.null_text
        self._correlation_id = said.correlation_id
        self._type = said.type
        self._reply_to = said.reply_to
        self._properties = Entries(dict(said.properties), self._write, properties=True)
        self._extras = said.extras

    def to_message(self, original: Message) -> Message:
        """The message for a provider.

        :param original: the one given to the transformer, whose destination, delivery mode,
            priority, expiration, id, timestamp and user it gets. If this is a view of it and
            unchanged, it is returned itself.
        """
        if self._original is original and not self._changed:
            return original
        headers = Headers(
            original.headers.destination,
            body_type=self._body_type,
            persistent=original.headers.persistent,
            priority=original.headers.priority,
            reply_to=self._reply_to,
            correlation_id=self._correlation_id,
            type=self._type,
            properties=dict(self._properties),
            extras=self._extras,
            null_text=self._null_text,
        )
        return original.replaced(headers, self._encoded())

    # What the bridge decides.

    @property
    def read_only(self) -> bool:
        """Whether every change raises :class:`MessageNotWriteable`."""
        return self._read_only

    @property
    def destination(self) -> Destination | None:
        """JMSDestination (``getJMSDestination``); None on a new message.

        ``MessageTransformer.branch_to`` sends a message elsewhere.
        """
        return self._original.headers.destination if self._original else None

    @property
    def persistent(self) -> bool | None:
        """Whether JMSDeliveryMode is PERSISTENT (``getJMSDeliveryMode``).

        None on a new message.
        """
        return self._original.headers.persistent if self._original else None

    @property
    def priority(self) -> int | None:
        """JMSPriority, 0 to 9 (``getJMSPriority``); None on a new message."""
        return self._original.headers.priority if self._original else None

    @property
    def expires(self) -> int | None:
        """JMSExpiration in epoch milliseconds (``getJMSExpiration``).

        0 for never; None on a new message.
        """
        return self._original.expires if self._original else None

    @property
    def timestamp(self) -> int | None:
        """JMSTimestamp in epoch milliseconds (``getJMSTimestamp``).

        0 before it was sent; None on a new message.
        """
        return self._original.timestamp if self._original else None

    @property
    def message_id(self) -> str | None:
        """JMSMessageID (``getJMSMessageID``).

        "" before it was sent; None on a new message.
        """
        return self._original.message_id if self._original else None

    @property
    def user(self) -> str | None:
        """JMSXUserID, "" when unknown; None on a new message."""
        return self._original.user if self._original else None

    # What a transformer may change.

    @property
    def reply_to(self) -> Destination | None:
        """JMSReplyTo (``getJMSReplyTo``, ``setJMSReplyTo``)."""
        return self._reply_to

    @reply_to.setter
    def reply_to(self, destination: Destination | None) -> None:
        self._write("JMSReplyTo")
        if destination is not None and not isinstance(destination, Destination):
            raise MessageFormatInvalid(
                f"JMSReplyTo must be a destination, not {class_name(destination)}"
            )
        self._reply_to = destination

    @property
    def correlation_id(self) -> str | None:
        """JMSCorrelationID (``getJMSCorrelationID``, ``setJMSCorrelationID``)."""
        return self._correlation_id

    @correlation_id.setter
    def correlation_id(self, correlation_id: str | None) -> None:
        self._write("JMSCorrelationID")
        self._correlation_id = _text_or_none("JMSCorrelationID", correlation_id)

    @property
    def type(self) -> str | None:
        """JMSType (``getJMSType``, ``setJMSType``).

        The type of the body is :attr:`body_type`.
        """
        return self._type

    @type.setter
    def type(self, type: str | None) -> None:
        self._write("JMSType")
        self._type = _text_or_none("JMSType", type)

    @property
    def properties(self) -> Entries:
        """The properties with their types, as a dictionary.

        ``getObjectProperty``, ``setObjectProperty``, ``getPropertyNames``, ``clearProperties``.
        """
        return self._properties

    @property
    def extras(self) -> tuple[tuple[str, str], ...]:
        """Headers whose names are not JMS property names, in order.

        Such as ``content-type``; they go where the message goes.
        """
        return self._extras

    @extras.setter
    def extras(self, extras: Iterable[tuple[str, str]]) -> None:
        self._write("the headers")
        pairs = tuple([(name, value) for name, value in extras])
        for name, value in pairs:
            if not isinstance(name, str) or not isinstance(value, str):
                raise MessageFormatInvalid(f"header {name!r} and its value must be strings")
        self._extras = pairs

    # The body.

    @property
    def body_type(self) -> BodyType:
        """The type of the body, which in Java is the message's class."""
        return self._body_type

    @property
    def text(self) -> str:
        """The body of a TextMessage (``getText``, ``setText``).

        Java's null text is "", and :attr:`null_text` tells it from an empty one; None sets it.

        :raises MessageFormatInvalid: of a message of another type; or the body is not UTF-8.
        """
        self._is(BodyType.TEXT)
        try:
            return self._body.decode()
        except UnicodeDecodeError as error:
            raise MessageFormatInvalid(
                f"the body of a TextMessage is not UTF-8: {error.reason} at octet {error.start}"
            ) from error

    @text.setter
    def text(self, text: str | None) -> None:
        self._is(BodyType.TEXT)
        self._write("the body")
        try:
            self._body = b"" if text is None else text.encode()
        except UnicodeEncodeError as error:
            raise MessageFormatInvalid(
                f"the text cannot be written in UTF-8: {error.reason} at character {error.start}"
            ) from error
        except AttributeError:
            raise MessageFormatInvalid(
                f"the body of a TextMessage must be a str or None, not {class_name(text)}"
            ) from None
        self._null_text = text is None

    @property
    def null_text(self) -> bool:
        """Whether this is a TextMessage whose text is Java's null."""
        return self._null_text

    @property
    def octets(self) -> bytes:
        """The body of a BytesMessage (``readBytes``, ``writeBytes``).

        For an ObjectMessage it is the serialised object, which is never unpacked here.

        :raises MessageFormatInvalid: of a message of another type.
        """
        self._is(BodyType.BYTES, BodyType.OBJECT)
        return self._body

    @octets.setter
    def octets(self, octets: bytes | bytearray | memoryview) -> None:
        self._is(BodyType.BYTES, BodyType.OBJECT)
        self._write("the body")
        if not isinstance(octets, bytes | bytearray | memoryview):
            raise MessageFormatInvalid(
                f"the body of a {self._body_type.name} message must be bytes, not {class_name(octets)}"
            )
        self._body = bytes(octets)

    @property
    def entries(self) -> Entries:
        """The body of a MapMessage, as a dictionary.

        ``getObject``, ``setObject``, ``getMapNames``, ``itemExists``.

        :raises MessageFormatInvalid: of a message of another type.
        :raises ~gateway.messaging.values.MalformedValues: the body is damaged.
        """
        self._is(BodyType.MAP)
        if self._entries is None:
            self._entries = Entries(decode_map(self._body), self._write, properties=False)
        return self._entries

    @property
    def items(self) -> Items:
        """The body of a StreamMessage, as a list.

        ``readObject``, ``writeObject``, ``reset``.

        :raises MessageFormatInvalid: of a message of another type.
        :raises ~gateway.messaging.values.MalformedValues: the body is damaged.
        """
        self._is(BodyType.STREAM)
        if self._items is None:
            self._items = Items(decode_stream(self._body), self._write)
        return self._items

    def __repr__(self) -> str:
        return (
            f"JMSMessage({self._body_type.name}, destination={self.destination}, message_id={self.message_id!r}, "
            f"properties={dict(self._properties)!r}, read_only={self._read_only})"
        )

    def _is(self, *types: BodyType) -> None:
        if self._body_type not in types:
            raise MessageFormatInvalid(
                f"the message is of type {self._body_type.name}, not {' or '.join([type.name for type in types])}"
            )

    def _write(self, what: str) -> None:
        """To be called before any change."""
        if self._read_only:
            raise MessageNotWriteable(what)
        self._changed = True

    def _encoded(self) -> bytes:
        if self._entries is not None:
            return encode_map(self._entries)
        if self._items is not None:
            return encode_stream(self._items)
        return self._body


def _text_or_none(what: str, text: object) -> str | None:
    if text is not None and not isinstance(text, str):
        raise MessageFormatInvalid(f"{what} must be a str, not {class_name(text)}")
    return text
