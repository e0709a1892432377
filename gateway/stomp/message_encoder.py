"""Messages to MESSAGE frames (Open MQ's Table 12-11, STOMP JMS bindings).

Owns which headers a consumer sees. What messages of one producer share is encoded once, and kept in
``Headers.memo``; the lines that vary go out as they came.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.destination import Destination
from gateway.messaging.envelope import CONTENT_TYPE, EnvelopeError, encode
from gateway.messaging.message import (
    MEMO_ENVELOPED,
    MEMO_STOMP_10,
    MEMO_STOMP_11,
    MEMO_STOMP_12,
    BodyType,
    Headers,
    Message,
)
from gateway.messaging.values import text_of
from gateway.reactor.turn import Turn
from gateway.stomp import destinations
from gateway.stomp.client_headers import ENVELOPE
from gateway.stomp.header_roles import shown_as
from gateway.stomp.wire import Version, escape_header, header_lines

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


_PRIORITIES: Final = tuple(str(priority) for priority in range(10))


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
        lines = headers.lines
        repeated = headers.repeated
        if repeated is not None:
            if 92 not in lines or self._passes(lines):
                headers = repeated
            else:
                lines = b""
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
        return b"message-id:%s\ntimestamp:%d\nexpires:%d\ncontent-length:%d\n%s%s\n%s\0\n" % (
            identifier.encode(),
            message.timestamp,
            message.expires,
            len(body),
            block,
            lines,
            body,
        )

    def _passes(self, lines: bytes) -> bool:
        """Whether escaped header lines of 1.2 are the same in this version."""
        if self.version is Version.V1_2:
            return True
        return self.version is Version.V1_1 and b"\\r" not in lines

    def user_of(self, message: Message) -> str:
        """Return who sent a message; "" where that is not shown."""
        return message.user if self._tell_user else ""

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
        return message.replaced(around, encode(inner))

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
        shown = shown_as(name)
        if shown:
            pairs.append((shown, value if isinstance(value, str) else text_of(value)))
    for name, text in headers.extras:
        shown = shown_as(name)
        if shown and name not in headers.properties:
            pairs.append((shown, text))
    return pairs
