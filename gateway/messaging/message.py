"""Messages as every provider of the seam exchanges them.

A message is cut in two, because producers repeat themselves. :class:`Headers` is what the client
said about it (destination, properties, type and so on): an immutable value that any number of
messages share, and that remembers how it was last encoded. :class:`Message` is the rest: identity,
times and body. Where a producer repeats some headers and varies others, each message has
:class:`VariedHeaders` of its own: the headers that are repeated, shared, and the lines of the others
as they came, which are read when somebody asks for a property.

Owns the representation only; what a header means to a protocol or a broker is theirs to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from gateway.messaging.destination import Destination
from gateway.messaging.header_lines import CORRELATION_ID, read_lines
from gateway.messaging.scheduled import asks
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Value

DEFAULT_PRIORITY: Final = 4

#: Bytes that a message takes in memory beside its body and its headers' text: the object, its
#: identifier and its numbers.
OVERHEAD: Final = 512
#: Bytes that one property, or another header that is kept, takes beside its text: two strings, and
#: their places in a dict and in encoded blocks.
EACH: Final = 160

#: The properties that name a message's group, and number it there (JMS 1.1, section 3.5.9).
GROUP_ID: Final = "JMSXGroupID"
GROUP_SEQUENCE: Final = "JMSXGroupSeq"
#: The property by which clients of Artemis give the key of a message.
LAST_VALUE: Final = "_AMQ_LVQ_NAME"
#: Of a delivery: it is the first of its group for this consumer, as ActiveMQ says it.
FIRST_FOR_CONSUMER: Final = "JMSXGroupFirstForConsumer"
_NEGATIVE_SEQUENCE: Final = b"JMSXGroupSeq:-"

# Keys of Headers.memo, one per encoder; values are that encoder's own and derive from the headers
# alone.
MEMO_STORED: Final = 0
MEMO_STOMP_10: Final = 1
MEMO_STOMP_11: Final = 2
MEMO_STOMP_12: Final = 3
MEMO_DIGEST: Final = 4
MEMO_ENVELOPED: Final = 5
#: No encoder's: of headers that are repeated. All lines beside them have the same names, so those of
#: one message say which names those of the others have.
MEMO_SAME_NAMES: Final = 6


class BodyType(IntEnum):
    """The message types of JMS (JMS 1.1, section 3.11.1).

    The numbers are those of store and envelope.
    """

    MESSAGE = 0
    TEXT = 1
    BYTES = 2
    MAP = 3
    STREAM = 4
    OBJECT = 5


def text_of_body(body: bytes) -> str | None:
    """Return the text that a body is.

    None where it is not UTF-8, as what Java writes of half a surrogate.
    """
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


class DeliveryMode(IntEnum):
    """JMSDeliveryMode, with the numbers of ``javax.jms.DeliveryMode``."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


class Headers:
    """What a producer says about a message.

    Never changed once made, so it may be shared.

    :param destination: where the message is sent.
    :param persistent: JMSDeliveryMode PERSISTENT.
    :param priority: JMSPriority, 0 to 9.
    :param reply_to: JMSReplyTo.
    :param properties: JMS properties by name, with their types (:mod:`gateway.messaging.values`).
    :param extras: headers whose names are not JMS property names, in the order they came. They
        travel with the message; selectors see those with a hyphen by a prefix only.
    :param null_text: the text of a TEXT message is null, as JMS allows, and its body empty; of
        another type it means nothing.
    :param octets: roughly what names and values take, where the caller knows; else they are
        counted.
    """

    __slots__ = (
        "_correlation_id",
        "_extras",
        "_properties",
        "body_type",
        "destination",
        "group",
        "lines",
        "memo",
        "null_text",
        "octets",
        "persistent",
        "priority",
        "repeated",
        "reply_to",
        "scheduled",
        "type",
        "weight",
    )

    def __init__(
        self,
        destination: Destination,
        *,
        body_type: BodyType = BodyType.TEXT,
        persistent: bool = True,
        priority: int = DEFAULT_PRIORITY,
        reply_to: Destination | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
        properties: Mapping[str, Value] | None = None,
        extras: tuple[tuple[str, str], ...] = (),
        null_text: bool = False,
        octets: int = -1,
    ) -> None:
        self.destination = destination
        self.body_type = body_type
        self.persistent = persistent
        self.priority = priority
        self.reply_to = reply_to
        self._correlation_id = correlation_id
        self.type = type
        self._properties: Mapping[str, Value] = {} if properties is None else properties
        self._extras = extras
        self.null_text = null_text and body_type is BodyType.TEXT
        #: They ask for delivery at a later time, see :mod:`gateway.messaging.scheduled`.
        self.scheduled = asks(self._properties)
        #: JMSXGroupID, the name of the message's group; "" for none.
        self.group = _group_of(self._properties)
        #: What encoders remember of these, by their ``MEMO_`` number.
        self.memo: dict[int, object] = {}
        #: Those that other messages of the producer share, and the others, see
        #: :class:`VariedHeaders`. None: there are no others.
        self.repeated: Headers | None = None
        self.lines = b""
        #: Roughly the octets that names and values take, for limits.
        self.octets = octets if octets >= 0 else self._count()
        #: Bytes that a message with these takes in memory beside its body. Each counts them,
        #: whether or not others share them: any of them may be the last. What names and values take
        #: is counted three times: for themselves, and for the blocks in :attr:`memo` for the store
        #: and for consumers.
        self.weight = (
            OVERHEAD + 3 * self.octets + EACH * (len(self._properties) + len(self._extras))
        )

    @property
    def correlation_id(self) -> str | None:
        """JMSCorrelationID."""
        return self._correlation_id

    @property
    def properties(self) -> Mapping[str, Value]:
        """JMS properties by name."""
        return self._properties

    @property
    def extras(self) -> tuple[tuple[str, str], ...]:
        """Other headers."""
        return self._extras

    @property
    def ends_group(self) -> bool:
        """Whether a negative JMSXGroupSeq says that the group ends here."""
        value = self.properties.get(GROUP_SEQUENCE)
        if isinstance(value, str):
            return value.startswith("-") and value[1:].isdecimal()
        return isinstance(value, int) and value < 0

    def _count(self) -> int:
        # An encoder says of a value that is not one of JMS's where it is; compiled, Mapping[str,
        # Value] would be refused here, without that.
        given: Mapping[str, object] = self._properties
        properties = [
            len(name) + (len(value) if isinstance(value, (str, bytes)) else 8)
            for name, value in given.items()
        ]
        extras = [len(name) + len(value) for name, value in self._extras]
        return (
            len(self.destination.name)
            + (len(self.reply_to.name) if self.reply_to else 0)
            + len(self._correlation_id or "")
            + len(self.type or "")
            + sum(properties)
            + sum(extras)
        )

    def replace(self, **changes: object) -> Headers:
        """Return a copy with some fields changed.

        The arguments are those of the constructor.
        """
        fields = self._fields()
        unknown = changes.keys() - fields.keys()
        if unknown:
            raise TypeError(f"message headers have no {', '.join(sorted(unknown))}")
        fields.update(changes)
        return Headers(**fields)  # type: ignore[arg-type]

    def _fields(self) -> dict[str, object]:
        """What was said, by the names of the constructor's arguments."""
        return {
            "destination": self.destination,
            "body_type": self.body_type,
            "persistent": self.persistent,
            "priority": self.priority,
            "reply_to": self.reply_to,
            "correlation_id": self.correlation_id,
            "type": self.type,
            "properties": self.properties,
            "extras": self.extras,
            "null_text": self.null_text,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Headers):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Headers({self.destination}, {self.body_type.name}, persistent={self.persistent}, priority={self.priority}, "
            f"reply_to={self.reply_to}, correlation_id={self.correlation_id!r}, type={self.type!r}, "
            f"properties={dict(self.properties)!r}, extras={self.extras!r}{', null_text=True' if self.null_text else ''})"
        )


def _group_of(properties: Mapping[str, Value]) -> str:
    value = properties.get(GROUP_ID) if properties else None
    return value if isinstance(value, str) else ""


class VariedHeaders(Headers):
    """Headers of which some are the message's own and came as lines.

    They are equal to :class:`Headers` that say the same. Properties and other headers stand behind
    those of ``repeated``.

    :param repeated: all but what is in the lines.
    :param lines: header lines, see :mod:`gateway.messaging.header_lines`, of names that ``repeated``
        has not: the correlation id, and properties and other headers with a text as value that no
        provider asks for, as it does for :data:`gateway.messaging.provider.DUPLICATE_ID`,
        :data:`GROUP_ID` and those of :mod:`gateway.messaging.scheduled`.
    :param count: how many lines.
    :param octets: as for :class:`Headers`.
    """

    __slots__ = ("_unread",)

    def __init__(self, repeated: Headers, lines: bytes, count: int, octets: int) -> None:
        self.destination = repeated.destination
        self.body_type = repeated.body_type
        self.persistent = repeated.persistent
        self.priority = repeated.priority
        self.reply_to = repeated.reply_to
        self._correlation_id = repeated._correlation_id
        self.type = repeated.type
        self._properties = repeated._properties
        self._extras = repeated._extras
        self.null_text = repeated.null_text
        self.scheduled = repeated.scheduled
        self.group = repeated.group
        self.memo = {}
        self.octets = octets
        self.weight = repeated.weight + 3 * (octets - repeated.octets) + EACH * count
        self.repeated = repeated
        self.lines = lines
        self._unread = True

    @property
    def correlation_id(self) -> str | None:
        """JMSCorrelationID."""
        if self._unread:
            self._read()
        return self._correlation_id

    @property
    def properties(self) -> Mapping[str, Value]:
        """JMS properties by name."""
        if self._unread:
            self._read()
        return self._properties

    @property
    def extras(self) -> tuple[tuple[str, str], ...]:
        """Other headers."""
        if self._unread:
            self._read()
        return self._extras

    @property
    def ends_group(self) -> bool:
        """Whether the message is the last of its group."""
        repeated = self.repeated
        assert repeated is not None
        if _NEGATIVE_SEQUENCE in self.lines:
            return super().ends_group
        return repeated.ends_group

    def _read(self) -> None:
        # Two threads may do this at once, as a link's takes digests; each begins with what no
        # thread changes.
        repeated = self.repeated
        assert repeated is not None
        properties = dict(repeated._properties)
        extras = list(repeated._extras)
        for name, value in read_lines(self.lines):
            if name == CORRELATION_ID:
                self._correlation_id = value
            elif is_property_name(name):
                properties[name] = value
            else:
                extras.append((name, value))
        self._properties = properties
        self._extras = tuple(extras)
        self._unread = False


class AddressedHeaders(Headers):
    """Headers of a message to one queue of an address of several queues.

    It is for that queue also where an address has its name. Where the queue does not exist, it is
    made as one of the address. They are equal to :class:`Headers` that say the same, and are stored
    as these.
    """

    __slots__ = ("address",)

    #: The name of the address. Set when they are made.
    address: str


class ChosenHeaders(AddressedHeaders):
    """Headers for the queue that was chosen, of a message to its address."""

    __slots__ = ()


def for_queue(headers: Headers, queue: Destination) -> ChosenHeaders:
    """Return a message's headers for the queue that was chosen for it."""
    fields = headers._fields()
    fields["destination"] = queue
    made = ChosenHeaders(**fields)  # type: ignore[arg-type]
    made.address = headers.destination.name
    return made


class Message:
    """One message.

    :param headers: what its producer said about it.
    :param body: TEXT in UTF-8, BYTES and OBJECT as they are (an object is never deserialised), MAP
        and STREAM in the encoding of :mod:`gateway.messaging.values`, empty for MESSAGE.
    :param expires: JMSExpiration in absolute epoch milliseconds; 0 is never.
    :param timestamp: JMSTimestamp in epoch milliseconds; a provider sets it on send.
    :param message_id: JMSMessageID; a provider sets it on send, stable over redelivery.
    :param seq: the embedded broker's number for it, rising with each message; 0 before it has one.

    How often it was delivered is not here: a topic's subscribers share the object.
    """

    __slots__ = (
        "body",
        "expires",
        "headers",
        "message_id",
        "origin",
        "out",
        "seq",
        "size",
        "stored",
        "timestamp",
        "user",
        "weight",
    )

    def __init__(
        self,
        headers: Headers,
        body: bytes = b"",
        *,
        expires: int = 0,
        timestamp: int = 0,
        message_id: str = "",
        seq: int = 0,
    ) -> None:
        self.headers = headers
        self.body = body
        self.expires = expires
        self.timestamp = timestamp
        self.message_id = message_id
        self.seq = seq
        #: Bytes that it takes in memory, for the memory budget. It never changes, so what was added
        #: for it is what is subtracted.
        self.weight: Final = len(body) + headers.weight
        #: Octets it counts for, in limits and windows; the broker sets it.
        self.size = 0
        #: 1 when the embedded broker's store has a row for it.
        self.stored = 0
        #: How many consumers of the embedded broker have it and have not settled it.
        self.out = 0
        #: The embedded broker's number for the connection that sent it; 0 when unknown.
        self.origin = 0
        #: JMSXUserID: who sent it, as the provider authenticated them; "" when unknown.
        self.user = ""

    def replaced(self, headers: Headers, body: bytes | None = None) -> Message:
        """Return the message with other headers, and all else as it is.

        What a broker counts and numbers by is not carried over.

        :param body: the other body, too; None keeps it.
        """
        made = Message(
            headers,
            self.body if body is None else body,
            expires=self.expires,
            timestamp=self.timestamp,
            message_id=self.message_id,
        )
        made.user = self.user
        return made

    @property
    def text(self) -> str:
        """The body of a TEXT message."""
        return self.body.decode()

    def __repr__(self) -> str:
        return f"Message({self.message_id!r}, seq={self.seq}, {self.headers!r}, {len(self.body)} octets, expires={self.expires})"


class Unreadable(Message):
    """A message that its provider has and cannot read.

    It is delivered in place of the whole one, and must not be sent on as if it were that.

    :param known: what could be read of it. Its body is the octets that the provider's client shows,
        in no form that is known here, or empty.
    :param reason: what reading it has failed with, for people.
    :param public: what clients are told of the reason; None for all of it.
    """

    __slots__ = ("public", "reason")

    def __init__(self, known: Message, reason: str, public: str | None = None) -> None:
        super().__init__(
            known.headers,
            known.body,
            expires=known.expires,
            timestamp=known.timestamp,
            message_id=known.message_id,
        )
        self.user = known.user
        self.reason = reason
        self.public = reason if public is None else public
