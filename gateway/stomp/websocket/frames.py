"""Frames of WebSocket (RFC 6455, section 5), read and written by a server.

Owns the framing and its rules. Knows neither sockets nor STOMP: what messages carry is one stream of
octets here, since a STOMP frame may span messages and share one. So nothing is gathered, however
long a message is: its octets are given on as they come.
"""

from __future__ import annotations

import codecs
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from gateway.stomp.websocket.codes import Code, WebSocketError


class Opcode(IntEnum):
    """What a frame is (section 5.2)."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Control(NamedTuple):
    """A control frame that has come: ``CLOSE``, ``PING`` or ``PONG``."""

    opcode: Opcode
    payload: bytes


#: Most octets of a control frame (section 5.5).
CONTROL_LIMIT: Final = 125
_FIN: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_CONTROL: Final = 0x8
#: The first octet of a message that is one frame.
_WHOLE_TEXT: Final = _FIN | Opcode.TEXT
_WHOLE: Final = (_WHOLE_TEXT, _FIN | Opcode.BINARY)
#: Octets of the head of a short frame: two, and the mask.
_SHORT_HEAD: Final = 6
#: From this number of octets on a mask is taken off by tables, which costs less for each.
_MANY: Final = 512
#: Control frames that may come at once.
MOST_CONTROLS: Final = 200
#: Frames of messages that carry nothing, that one read may have.
_MOST_IDLE: Final = 1000
#: Whole messages that a call reads; what else has come waits for the next call.
MOST_AT_ONCE: Final = 500
#: The number of whole messages that take as long as a fragment.
FRAGMENT_WEIGHT: Final = 5
#: More than any frame can carry.
_ANY: Final = (1 << 62) - 1
#: What an octet becomes by each octet of a mask.
_TABLES: Final = tuple(bytes(octet ^ mask for octet in range(256)) for mask in range(256))
#: In place of a length up to 125: the length follows, in two or eight octets.
_TWO_OCTETS: Final = 126
_EIGHT_OCTETS: Final = 127
_SHORT: Final = struct.Struct("!BBH")
_LONG: Final = struct.Struct("!BBQ")
_KNOWN: Final = frozenset(Opcode)
#: Codes that may come in a Close frame; from 3000 on they belong to libraries and applications.
_CODES: Final = frozenset((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014))
_OWN_CODES: Final = range(3000, 5000)


class FrameReader:
    """Reads what a client sends.

    After a Close frame nothing more is read; after an error it is used no more.

    :param most_octets: that a frame may carry; 0 for any number.
    :ivar controls: control frames that have come and were not taken yet, in order.
    :ivar more: whether octets wait for the next call, which may bring none.
    :ivar allowed: how many control frames may still come. Each costs as much as one that carries
        something, and is answered; the caller allows more as time goes by.
    """

    __slots__ = (
        "_control",
        "_decoder",
        "_fin",
        "_head",
        "_in_message",
        "_left",
        "_mask",
        "_most",
        "_opcode",
        "_text",
        "allowed",
        "closed",
        "controls",
        "more",
    )

    def __init__(self, most_octets: int = 0) -> None:
        self._most: Final = most_octets or _ANY
        self.controls: list[Control] = []
        self.allowed = MOST_CONTROLS
        #: A Close frame has come.
        self.closed = False
        self.more = False
        #: The begun head of a frame, or all that waits.
        self._head = b""
        #: Of the frame whose head is whole: payload octets that have not come, the mask for the
        #: next of them, and what kind it is.
        self._left = 0
        self._mask = b""
        self._opcode = Opcode.CONTINUATION
        self._fin = False
        #: The payload of a control frame so far; None between frames, and in others.
        self._control: bytes | None = None
        #: Fragments of a message follow, and whether it is a text.
        self._in_message = False
        self._text = False
        self._decoder: Final = codecs.getincrementaldecoder("utf-8")()

    def receive(self, octets: bytes) -> bytes:
        """Return what messages carry, of what has come with these octets.

        That is of :data:`MOST_AT_ONCE` messages, or of a fifth as many fragments; then more wait.
        Control frames among them are added to :attr:`controls`.

        :raises WebSocketError: they break a rule; what came before is lost.
        """
        self.more = False
        if self.closed:
            return b""
        if self._head:
            octets, self._head = self._head + octets, b""
        parts: list[bytes] = []
        at, end = 0, len(octets)
        idle = 0
        most = MOST_AT_ONCE
        while at < end:
            if not self._left:
                if len(parts) >= most:
                    self._head, self.more = octets[at:], True
                    break
                if self.allowed < 0:
                    raise WebSocketError(
                        Code.POLICY,
                        f"too many pings come, which carry nothing: {MOST_CONTROLS} at once is the limit",
                    )
                if idle > _MOST_IDLE:
                    raise WebSocketError(
                        Code.POLICY,
                        f"more than {_MOST_IDLE} frames come at once that carry nothing",
                    )
                # Most messages are one frame that is not long, and have come whole.
                if at + _SHORT_HEAD <= end and not self._in_message:
                    first, length, start = octets[at], octets[at + 1] - _MASKED, at + _SHORT_HEAD
                    if length == _TWO_OCTETS:
                        length = octets[at + 2] << 8 | octets[at + 3]
                        start += 2
                    elif length > _TWO_OCTETS:
                        length = end
                    stop = start + length
                    if first in _WHOLE and 0 <= length <= self._most and stop <= end:
                        payload = unmasked(octets[start:stop], octets[start - 4 : start])
                        if first == _WHOLE_TEXT and not payload.isascii():
                            self._check(payload, final=True)
                        if payload:
                            parts.append(payload)
                        else:
                            idle += 1
                        at = stop
                        continue
                begun = self._begin(octets, at, end)
                if not begun:
                    self._head = octets[at:]
                    break
                at += begun
                if self._control is None:
                    most -= FRAGMENT_WEIGHT - 1
            taken = min(self._left, end - at)
            payload = self._next(octets[at : at + taken])
            at += taken
            if self._control is None:
                if payload:
                    parts.append(payload)
                else:
                    idle += 1
            elif not self._left:
                self.allowed -= 1
                self._end_of_control()
                if self.closed:
                    break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next(self, octets: bytes) -> bytes:
        """Return what octets of the frame's payload say, which are next."""
        payload = unmasked(octets, self._mask)
        if odd := len(octets) & 3:
            # What follows goes on with the next octet of the mask.
            self._mask = self._mask[odd:] + self._mask[:odd]
        self._left -= len(octets)
        if self._control is not None:
            self._control += payload
        else:
            final = not self._left and self._fin
            if self._text:
                self._check(payload, final=final)
            if final:
                self._in_message = self._text = False
        return payload

    def _begin(self, octets: bytes, at: int, end: int) -> int:
        """Read the head of a frame.

        :returns: its octets; 0 if it is not whole.
        """
        if end - at < 2:
            return 0
        first, second = octets[at], octets[at + 1]
        self._check_first(first)
        if not second & _MASKED:
            raise WebSocketError(Code.PROTOCOL_ERROR, "a client's frame is not masked")
        length = second & 0x7F
        if first & _CONTROL:
            if length > CONTROL_LIMIT:
                raise WebSocketError(
                    Code.PROTOCOL_ERROR,
                    f"a control frame has more than {CONTROL_LIMIT} octets",
                )
            size = 6
        elif length < _TWO_OCTETS:
            size = 6
        else:
            size = 8 if length == _TWO_OCTETS else 14
        if end - at < size:
            return 0
        if size > 6:
            length = int.from_bytes(octets[at + 2 : at + size - 4], "big")
            if length >> 63:
                raise WebSocketError(
                    Code.PROTOCOL_ERROR, "the length of a frame has its first bit set"
                )
        if length > self._most:
            raise WebSocketError(
                Code.TOO_BIG,
                f"a frame carries {length} octets, and {self._most} is the limit here (webSocketMaxFramePayloadLength)",
            )
        self._mask = octets[at + size - 4 : at + size]
        self._left = length
        self._fin = bool(first & _FIN)
        self._opcode = Opcode(first & 0xF)
        if first & _CONTROL:
            self._control = b""
        elif self._opcode is not Opcode.CONTINUATION:
            self._text = self._opcode is Opcode.TEXT
            self._in_message = True
        return size

    def _check_first(self, first: int) -> None:
        """Check the first octet of a frame.

        :raises WebSocketError: it may not come now.
        """
        opcode = first & 0xF
        if first & _RESERVED:
            raise WebSocketError(
                Code.PROTOCOL_ERROR,
                "a frame has a reserved bit set, and no extension was agreed upon",
            )
        if opcode not in _KNOWN:
            raise WebSocketError(Code.PROTOCOL_ERROR, f"a frame has the unknown opcode {opcode}")
        if opcode & _CONTROL:
            if not first & _FIN:
                raise WebSocketError(Code.PROTOCOL_ERROR, "a control frame is fragmented")
        elif (opcode == Opcode.CONTINUATION) is not self._in_message:
            raise WebSocketError(
                Code.PROTOCOL_ERROR,
                "a message begins within another one"
                if self._in_message
                else "a message goes on that has not begun",
            )

    def _end_of_control(self) -> None:
        payload = self._control
        assert payload is not None
        self._control = None
        if self._opcode is Opcode.CLOSE:
            check_close(payload)
            self.closed = True
        self.controls.append(Control(self._opcode, payload))

    def _check(self, payload: bytes, *, final: bool) -> None:
        """Check that a text is UTF-8 so far."""
        decoder = self._decoder
        if payload.isascii() and not decoder.getstate()[0]:
            return
        try:
            decoder.decode(payload, final)
        except UnicodeDecodeError:
            raise WebSocketError(Code.INVALID_TEXT, "a text message is not UTF-8") from None


def unmasked(octets: bytes, mask: bytes) -> bytes:
    """Return octets as they were meant (section 5.3).

    :param mask: four octets, of which the first is the first one's.
    """
    count = len(octets)
    if count >= _MANY:
        found = bytearray(octets)
        for place in range(4):
            found[place::4] = found[place::4].translate(_TABLES[mask[place]])
        return bytes(found)
    words = (count + 3) >> 2
    key = int.from_bytes(mask * words, "little")
    return (int.from_bytes(octets, "little") ^ key).to_bytes(words << 2, "little")[:count]


def check_close(payload: bytes) -> None:
    """Check what a Close frame says (section 5.5.1).

    :raises WebSocketError: it has half a code, one that may not be sent, or a reason that is not
        UTF-8.
    """
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or (code not in _CODES and code not in _OWN_CODES):
        raise WebSocketError(Code.PROTOCOL_ERROR, "a Close frame has no valid code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise WebSocketError(
            Code.INVALID_TEXT, "the reason of a Close frame is not UTF-8"
        ) from None


def head(opcode: Opcode, length: int) -> bytes:
    """Return the head of a frame from a server.

    It is a message of its own, or a control frame.

    :param length: octets of the payload, which follows.
    """
    first = _FIN | opcode
    if length < _TWO_OCTETS:
        return bytes((first, length))
    if length < 1 << 16:
        return _SHORT.pack(first, _TWO_OCTETS, length)
    return _LONG.pack(first, _EIGHT_OCTETS, length)


def close(code: Code, reason: str) -> bytes:
    """Return a Close frame.

    :param reason: a sentence, of which what has room is sent.
    """
    # What is cut within a character is left out.
    text = reason.encode()[: CONTROL_LIMIT - 2].decode(errors="ignore").encode()
    return head(Opcode.CLOSE, 2 + len(text)) + code.to_bytes(2, "big") + text


def answer(control: Control) -> bytes:
    """Return what a control frame is answered by; nothing for a Pong.

    A Ping's octets come back, and so does the code of a Close.
    """
    if control.opcode is Opcode.PONG:
        return b""
    if control.opcode is Opcode.PING:
        return head(Opcode.PONG, len(control.payload)) + control.payload
    return head(Opcode.CLOSE, len(control.payload[:2])) + control.payload[:2]
