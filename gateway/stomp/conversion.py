"""Frames to messages and back (Open MQ's Table 12-11, STOMP JMS bindings).

Owns what each header means to JMS and which headers a consumer sees. What depends on the headers
alone is worked out once for all messages that share them: a :class:`SendPlan` for each header block
that a producer repeats, an encoded block in ``Headers.memo`` for those that consumers receive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.messaging.dead import LOG_DEAD_MESSAGES, PRESERVE_UNDELIVERED, TRUNCATE_MSG_BODY
from gateway.messaging.destination import Destination
from gateway.messaging.envelope import CONTENT_TYPE, EnvelopeError, decode, encode
from gateway.messaging.message import (
    DEFAULT_PRIORITY,
    MEMO_ENVELOPED,
    MEMO_STOMP_10,
    MEMO_STOMP_11,
    MEMO_STOMP_12,
    BodyType,
    Headers,
    Message,
)
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import Value
from gateway.reactor.turn import Turn
from gateway.stomp import client_headers, destinations
from gateway.stomp.brokers import RELATIVE_EXPIRIES, SCHEDULES
from gateway.stomp.client_headers import ENVELOPE
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.wire import (
    Head,
    Version,
    bare_name,
    escape_header,
    header_lines,
    without_edge_blanks,
)

#: From the text of a header and the header's name to the destination it means; raises
#: CommandRefused.
Resolve = Callable[[str, str], Destination]

#: Headers of SEND that are not the message's own properties: bound to JMS, spent on the way, or
#: forged.
_SPENT: Final = frozenset(
    (
        "destination",
        "content-length",
        "transaction",
        "receipt",
        "persistent",
        "priority",
        "expires",
        "ttl",
        "expiration",
        "correlation-id",
        "type",
        "reply-to",
        # A client that sets these would pass for the gateway.
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "receipt-id",
        "timestamp",
        "browser",
        "transformation-error",
        "heart-beat",
    )
)
#: What a producer may set of JMSX (JMS 1.1, section 3.5.9); the others are the provider's.
_GROUPS: Final = frozenset(("JMSXGroupID", "JMSXGroupSeq"))
#: What links to STOMP brokers add begins so. It says nothing of the gateway's.
_LINKS: Final = "JMS_STOMP_"
#: These are booleans to the broker, and STOMP has text only.
_BOOLEANS: Final = frozenset((PRESERVE_UNDELIVERED, LOG_DEAD_MESSAGES, TRUNCATE_MSG_BODY))

_MEMOS: Final = {
    Version.V1_0: MEMO_STOMP_10,
    Version.V1_1: MEMO_STOMP_11,
    Version.V1_2: MEMO_STOMP_12,
}
#: In the memo of headers whose body STOMP cannot carry.
_UNSENDABLE: Final = b""


class UnsendableBody(Exception):
    """A message of a JMS type other than text and bytes: STOMP has no frame."""

    def __init__(self, body_type: BodyType, destination: Destination) -> None:
        super().__init__(
            f"a {body_type.name} message of {destinations.spell(destination)} cannot be sent to STOMP without a message transformer"
        )
        self.body_type = body_type


class SendPlan:
    """What SEND frames with one header block have in common.

    :ivar expires: JMSExpiration where the client gave a point in time, else 0.
    :ivar ttl: milliseconds to live where it gave a duration, else 0.
    :ivar text: the body must be UTF-8.
    :ivar expiring: there is a header about the time to live, even if it says that it is unlimited.
    :ivar envelope: the body claims to be a message in an envelope.
    :ivar copies: the headers for the other destinations, where SEND names several.
    :ivar personal: what it is depends on who sends it, so it holds for one frame only.
    :ivar plain: one destination, and neither transaction nor expiry nor envelope: nothing to do but
        to make the message and send it, if no receipt is asked for.
    """

    __slots__ = (
        "copies",
        "envelope",
        "expires",
        "expiring",
        "headers",
        "personal",
        "plain",
        "text",
        "transaction",
        "ttl",
    )

    def __init__(
        self,
        headers: Headers,
        copies: tuple[Headers, ...],
        expires: int,
        ttl: int,
        expiring: bool,
        envelope: bool,
        transaction: str | None,
        personal: bool,
    ) -> None:
        self.headers: Final = headers
        self.copies: Final = copies
        self.expires: Final = expires
        self.ttl: Final = ttl
        self.expiring: Final = expiring
        self.envelope: Final = envelope
        self.transaction: Final = transaction
        self.personal: Final = personal
        self.text: Final = headers.body_type is BodyType.TEXT
        self.plain: Final = (
            not copies and not expires and not ttl and not envelope and transaction is None
        )


def plan_send(head: Head, resolve: Resolve, administers: bool) -> SendPlan:
    """Work out what a SEND's headers mean.

    :param resolve: finds destinations, making a temporary one that the client names for the first
        time.
    :param administers: an administrator sends it, as a link from another gateway may: its ``JMS_``
        properties are kept.
    :raises CommandRefused: a header is missing or cannot be understood.
    """
    given = head.headers
    destination = given.get("destination")
    if destination is None:
        raise CommandRefused("SEND without destination")
    properties: dict[str, Value] = {}
    extras: list[tuple[str, str]] = []
    expiring = personal = False
    octets = 0
    for name, value in given.items():
        octets += len(name) + len(value)
        role = _roles.get(name)
        if role is None:
            role = _learn_role(name)
        if role == _PROPERTY:
            properties[name] = value
        elif role == _EXTRA:
            extras.append((name, value))
        elif role == _BOOLEAN:
            properties[name] = client_headers.boolean(value)
        elif role == _EXPIRY:
            expiring = True
        elif role == _TRUSTED:
            personal = True
            if administers:
                properties[name] = value
        elif role == _REFUSED:
            raise CommandRefused(
                f"{name.strip()} on SEND: delivery at a later time is not supported, and the message was not sent"
            )
    expires, ttl = client_headers.expiry(given) if expiring else (0, 0)
    persistent = given.get("persistent")
    reply_to = given.get("reply-to")
    priority = given.get("priority")
    texts: list[str] = []
    if "," in destination:
        texts = destinations.split(destination)
        destination = texts[0]
    headers = Headers(
        resolve(destination, "destination"),
        body_type=BodyType.TEXT if head.content_length < 0 else BodyType.BYTES,
        persistent=persistent is None or client_headers.boolean(persistent),
        priority=DEFAULT_PRIORITY if priority is None else _priority(priority),
        reply_to=None if reply_to is None else resolve(reply_to, "reply-to"),
        correlation_id=given.get("correlation-id"),
        type=given.get("type"),
        properties=properties,
        extras=tuple(extras),
        octets=octets,
    )
    content_type = given.get("content-type")
    # Nearly every other one is shorter, and this is done for each message of a producer whose
    # headers vary.
    envelope = (
        content_type is not None
        and len(content_type) >= _SHORTEST_ENVELOPE
        and _is_envelope(content_type)
    )
    copies = _copies(headers, texts, resolve) if len(texts) > 1 else ()
    return SendPlan(
        headers, copies, expires, ttl, expiring, envelope, given.get("transaction"), personal
    )


def _copies(headers: Headers, texts: list[str], resolve: Resolve) -> tuple[Headers, ...]:
    """The headers of a message for its other destinations, each of them once."""
    others = dict.fromkeys([resolve(text, "destination") for text in texts[1:]])
    return tuple(
        [headers.replace(destination=other) for other in others if other != headers.destination]
    )


_SHORTEST_ENVELOPE: Final = len(CONTENT_TYPE)


def _is_envelope(content_type: str) -> bool:
    """Return whether this is the media type of envelopes.

    Case and parameters do not matter (RFC 9110, section 8.3.1).
    """
    return content_type.partition(";")[0].strip().lower() == CONTENT_TYPE


def restore(plan: SendPlan, headers: Headers, body: bytes, expires: int) -> Message:
    """Return the message in an envelope, for a destination of its SEND.

    Identity, times, headers, properties and body are as they were.

    Only its duplicate id is gone: there it may have come before it died, and who sends it again
    means it. That of the SEND takes its place.

    :param headers: those of the plan for that destination.
    :param expires: JMSExpiration by the SEND; used only where that says anything about it.
    :raises CommandRefused: the body is no envelope, or a damaged one.
    """
    try:
        message = decode(body)
    except EnvelopeError as error:
        raise CommandRefused(
            f"the body is to be restored, as content-type is {CONTENT_TYPE}, and cannot be: {error}"
        ) from None
    properties = {
        name: value for name, value in message.headers.properties.items() if name != DUPLICATE_ID
    }
    if DUPLICATE_ID in plan.headers.properties:
        properties[DUPLICATE_ID] = plan.headers.properties[DUPLICATE_ID]
    restored = Message(
        message.headers.replace(destination=headers.destination, properties=properties),
        message.body,
        expires=expires if plan.expiring else message.expires,
        timestamp=message.timestamp,
        message_id=message.message_id,
    )
    restored.user = message.user
    return restored


# What a header of SEND is to the message, by its name.
_PROPERTY: Final = 1
_EXTRA: Final = 2
_BOOLEAN: Final = 3
_EXPIRY: Final = 4
_NOTHING: Final = 5
#: A property of an administrator's message, and nothing in anybody else's.
_TRUSTED: Final = 6
#: What cannot be done, and must not be forgotten.
_REFUSED: Final = 7

#: The roles of names that were seen; clients use few.
_roles: Final[dict[str, int]] = {}
_MOST_ROLES: Final = 4096


def _learn_role(name: str) -> int:
    if name == "expires" or name in RELATIVE_EXPIRIES:
        role = _EXPIRY
    elif name in _BOOLEANS:
        role = _BOOLEAN
    else:
        # Some consumer trims the name: to that one " ack" is "ack".
        bare = bare_name(name)
        if bare in _SPENT:
            role = _NOTHING
        elif bare in SCHEDULES:
            role = _REFUSED
        elif bare.startswith("JMS") and bare not in _GROUPS and not bare.startswith(_LINKS):
            # JMS keeps these names for itself and its providers (JMS 1.1, sections 3.5.1, 3.5.9 and
            # 3.5.10).
            role = _TRUSTED if bare.startswith("JMS_") and is_property_name(name) else _NOTHING
        else:
            role = _PROPERTY if is_property_name(name) else _EXTRA
    if len(_roles) < _MOST_ROLES:
        _roles[name] = role
    return role


def _priority(text: str) -> int:
    text = text.strip()
    if len(text) != 1 or text not in "0123456789":
        raise CommandRefused(f"priority '{text[:40]}' is none: expected 0 to 9")
    return int(text)


def check_text(body: bytes) -> None:
    """Check that a body without ``content-length`` is UTF-8.

    It becomes a TextMessage.

    :raises CommandRefused: it is not.
    """
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        raise CommandRefused(
            f"the body is not UTF-8 at octet {wrong.start}: give content-length to send octets as they are"
        ) from None


_PRIORITIES: Final = tuple(str(priority) for priority in range(10))

#: Headers of MESSAGE that are the gateway's; a property of that name is not shown.
_OWN: Final = _SPENT | {"JMSXDeliveryCount", "JMSXUserID"}


def text_of(value: Value) -> str:
    """The string form of a property (JMS 1.1, section 3.5.4); null is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


class MessageEncoder:
    """Messages as the part of a MESSAGE frame that all receivers share.

    One for each version, for all connections.

    :param tell_user: whether ``JMSXUserID`` is shown.
    """

    #: More messages than this are not remembered in one turn.
    _MOST: Final = 4096

    def __init__(self, version: Version, turn: Turn, tell_user: bool = False) -> None:
        self.version: Final = version
        self._memo: Final = _MEMOS[version]
        self._turn: Final = turn
        self._tell_user: Final = tell_user
        self._fanned: dict[Message, bytes] = {}
        self._enveloped: dict[Message, Message] = {}
        self._clear_asked = False

    def tail(self, message: Message) -> bytes:
        """Return all that follows the headers of the subscription.

        That is the message's headers, blank line, body, NUL, and a line end. PHP's client loses
        frames that arrive together without it.

        :raises UnsendableBody: it is neither text nor bytes.
        """
        headers = message.headers
        block = headers.memo.get(self._memo)
        if block is None:
            block = self._block(headers)
            headers.memo[self._memo] = block
        if block is _UNSENDABLE:
            raise UnsendableBody(headers.body_type, headers.destination)
        identifier = message.message_id
        if ":" in identifier or "\\" in identifier or not identifier.isprintable():
            identifier = escape_header(identifier, self.version)
        body = message.body
        if self._tell_user and message.user:
            block = b"JMSXUserID:%s\n%s" % (
                escape_header(message.user, self.version).encode(),
                block,
            )
        # First what is the gateway's: some clients take the first of repeated headers.
        return b"message-id:%s\ntimestamp:%d\nexpires:%d\ncontent-length:%d\n%s\n%s\0\n" % (
            identifier.encode(),
            message.timestamp,
            message.expires,
            len(body),
            block,
            body,
        )

    def fanned(self, message: Message) -> bytes:
        """Return :meth:`tail`, and remember it until the end of the turn.

        Use it for messages that other subscriptions will get, too.
        """
        tail = self._fanned.get(message)
        if tail is None:
            tail = self.tail(message)
            if len(self._fanned) < self._MOST:
                self._fanned[message] = tail
                if not self._clear_asked:
                    self._clear_asked = True
                    self._turn.write(self._clear)
        return tail

    def enveloped(self, message: Message) -> bytes:
        """Return :meth:`tail` for a subscription with ``envelope:true``.

        The body is the whole message in an envelope, of whatever type it is.

        :raises EnvelopeError: it does not fit into one.
        """
        return self.tail(self._in_envelope(message))

    def fanned_enveloped(self, message: Message) -> bytes:
        """As :meth:`enveloped`, remembered until the end of the turn."""
        outer = self._enveloped.get(message)
        if outer is None:
            outer = self._in_envelope(message)
            if len(self._enveloped) < self._MOST:
                self._enveloped[message] = outer
        # It has asked to have both forgotten, now or before.
        return self.fanned(outer)

    def browsed(self, message: Message) -> bytes:
        """Return :meth:`tail` for a browser, which no single message ends.

        One that STOMP cannot carry is shown in an envelope.
        """
        try:
            return self.tail(message)
        except UnsendableBody as error:
            text = f"a {error.body_type.name} message: STOMP cannot carry it as it is, so the body is its envelope"
            return self._because(text, self.browsed_enveloped(message))

    def browsed_enveloped(self, message: Message) -> bytes:
        """Return :meth:`enveloped` for a browser.

        One that does not fit into an envelope is shown without a body.
        """
        try:
            return self.enveloped(message)
        except EnvelopeError as error:
            return self.without_contents(message, str(error))

    def without_contents(self, message: Message, reason: str) -> bytes:
        """Return what a browser shows of a message that it cannot show.

        That is where it is, which one it is, and why the rest is missing.
        """
        headers = message.headers.replace(
            body_type=BodyType.BYTES,
            reply_to=None,
            correlation_id=None,
            type=None,
            properties={},
            extras=(),
        )
        shown = Message(
            headers,
            b"",
            expires=message.expires,
            timestamp=message.timestamp,
            message_id=message.message_id,
        )
        return self._because(reason, self.tail(shown))

    def _because(self, reason: str, tail: bytes) -> bytes:
        return b"transformation-error:%s\n%s" % (
            escape_header(reason, self.version).encode("utf-8", "replace"),
            tail,
        )

    def _in_envelope(self, message: Message) -> Message:
        """Return a BytesMessage around the message, to be sent as any other.

        What is remembered of its headers is beside that of the message's own.
        """
        known = message.headers.memo.get(MEMO_ENVELOPED)
        if isinstance(known, Headers):
            around = known
        else:
            around = message.headers.memo[MEMO_ENVELOPED] = _headers_around(message.headers)
        inner = message
        if message.user and not self._tell_user:
            inner = Message(
                message.headers,
                message.body,
                expires=message.expires,
                timestamp=message.timestamp,
                message_id=message.message_id,
            )
        outer = Message(
            around,
            encode(inner),
            expires=message.expires,
            timestamp=message.timestamp,
            message_id=message.message_id,
        )
        outer.user = message.user
        return outer

    def _clear(self) -> None:
        self._clear_asked = False
        self._fanned = {}
        self._enveloped = {}

    def _block(self, headers: Headers) -> bytes:
        if headers.body_type is not BodyType.TEXT and headers.body_type is not BodyType.BYTES:
            return _UNSENDABLE
        pairs = _message_headers(headers)
        text = "".join([f"{name}:{value}\n" for name, value in pairs])
        odd = "\\" in text or "\r" in text or "\0" in text
        if not odd and text.count(":") == len(pairs) == text.count("\n"):
            # Nothing to escape in any version, which is found out faster for all lines at once.
            return text.encode("utf-8", "replace")
        return header_lines(pairs, self.version)


def _headers_around(headers: Headers) -> Headers:
    """Return the headers of a MESSAGE whose body is an envelope."""
    marks = (("content-type", CONTENT_TYPE), (ENVELOPE, "true"))
    names = ("content-type", ENVELOPE)
    return headers.replace(
        body_type=BodyType.BYTES,
        properties={name: value for name, value in headers.properties.items() if name not in names},
        extras=(*marks, *[pair for pair in headers.extras if pair[0] not in names]),
    )


def _message_headers(headers: Headers) -> list[tuple[str, str]]:
    pairs = [("destination", destinations.spell(headers.destination))]
    if headers.reply_to is not None:
        pairs.append(("reply-to", destinations.spell(headers.reply_to)))
    if headers.correlation_id is not None:
        pairs.append(("correlation-id", headers.correlation_id))
    if headers.persistent:
        pairs.append(("persistent", "true"))
    pairs.append(("priority", _PRIORITIES[headers.priority]))
    if headers.type is not None:
        pairs.append(("type", headers.type))
    for name, value in headers.properties.items():
        shown = _shown.get(name)
        if shown is None:
            shown = _learn_shown(name)
        if shown:
            pairs.append((shown, value if isinstance(value, str) else text_of(value)))
    for name, text in headers.extras:
        shown = _shown.get(name)
        if shown is None:
            shown = _learn_shown(name)
        if shown and name not in headers.properties:
            pairs.append((shown, text))
    return pairs


#: As what names of properties and other headers are shown, "" for not at all; of those that were
#: seen.
_shown: Final[dict[str, str]] = {}


def _learn_shown(name: str) -> str:
    # Whatever a link or an envelope has brought: a reader that trims it must not take it for the
    # gateway's.
    shown = "" if bare_name(name) in _OWN else without_edge_blanks(name)
    if len(_shown) < _MOST_ROLES:
        _shown[name] = shown
    return shown
