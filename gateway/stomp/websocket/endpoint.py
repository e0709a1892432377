"""The server's side of one WebSocket, between its octets and STOMP's.

Owns its order: a request, messages, a Close from each side. Knows no sockets: what is to be sent
besides STOMP's octets waits until those are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.stomp.websocket import frames
from gateway.stomp.websocket.codes import Code
from gateway.stomp.websocket.frames import MOST_CONTROLS, FrameReader, Opcode
from gateway.stomp.websocket.upgrade import Agreed, Rules, Upgrade, UpgradeRefused

_CLOSE: Final = Opcode.CLOSE
#: Octets of answers to pings that may wait. What comes then is answered in their place: the newest
#: ping's answer is enough (RFC 6455, section 5.5.3).
_ANSWERS: Final = 1024
#: Control frames that a client may send in a second, for long.
#: Browsers send none, and libraries one in some seconds.
_CONTROL_RATE: Final = 50


class WebSocket:
    """One connection.

    :param rules: which requests are agreed to.
    :ivar agreed: the request, once it was agreed to.
    """

    def __init__(self, rules: Rules) -> None:
        self._upgrade: Final = Upgrade(rules)
        self._reader: Final = FrameReader(rules.most_octets)
        #: Until when control frames have been allowed again.
        self._allowed_ms = 0
        self.agreed: Agreed | None = None
        #: What is sent before the next message: the answer to the request, and those to pings.
        self._due = b""
        self._pongs = b""
        #: Octets of STOMP were among those that were sent last.
        self.has_spoken = False
        #: What is sent behind it, as the last: a Close frame, or an answer that there will be no
        #: WebSocket; None: nothing is known of an end.
        self._goodbye: bytes | None = None
        self._ended = False
        #: What the client's Close frame is answered by.
        self._answer = b""

    @property
    def has_due(self) -> bool:
        """Whether something is to be sent, be there a message or not."""
        return bool(self._due or self._pongs) or (self._goodbye is not None and not self._ended)

    @property
    def can_wait(self) -> bool:
        """Whether nothing is due but answers to pings."""
        return not self._due and self._goodbye is None

    @property
    def closed_by_client(self) -> bool:
        """Whether the client has sent its Close frame, its last one."""
        return self._reader.closed

    @property
    def has_more(self) -> bool:
        """Whether frames have come that :meth:`receive` has not read yet."""
        return self._reader.more

    def receive(self, octets: bytes, now_ms: int) -> bytes:
        """Return what messages carry.

        :param octets: from the client; none where more had come.
        :param now_ms: the time, by a clock that never goes back.
        :raises UpgradeRefused: the request is not agreed to, and the answer is due.
        :raises WebSocketError: a frame breaks a rule.
        """
        if self.agreed is None:
            if self._goodbye is not None:
                return b""
            try:
                agreed = self._upgrade.receive(octets)
            except UpgradeRefused as refused:
                self._goodbye = refused.answer
                raise
            if agreed is None:
                return b""
            self.agreed = agreed
            self._due += agreed.answer
            octets = agreed.rest
        if self._reader.allowed < MOST_CONTROLS:
            self._allow(now_ms)
        else:
            self._allowed_ms = now_ms
        carried = self._reader.receive(octets)
        if self._reader.controls:
            for control in self._reader.controls:
                answer = frames.answer(control)
                if control.opcode is _CLOSE:
                    # For when all that the client is owed was sent.
                    self._answer = answer
                elif answer and self._goodbye is None:
                    few = len(self._pongs) < _ANSWERS
                    self._pongs = self._pongs + answer if few else answer
            self._reader.controls.clear()
        return carried

    def _allow(self, now_ms: int) -> None:
        """Allow more control frames, as time has gone by."""
        more = (now_ms - self._allowed_ms) * _CONTROL_RATE // 1000
        if more > 0:
            self._reader.allowed = min(self._reader.allowed + more, MOST_CONTROLS)
            self._allowed_ms = now_ms

    def sent(self, parts: Sequence[bytes]) -> list[bytes]:
        """Return what goes to the client for octets of STOMP, and what is due.

        They become one message: a text if they are UTF-8, else a binary one. Before the request was
        agreed to, and after the Close frame, they are dropped.

        :param parts: whole frames of STOMP, or heart-beats.
        """
        due, self._due, self._pongs = self._due + self._pongs, b"", b""
        payload = b"".join(parts) if self.agreed is not None and not self._ended else b""
        self.has_spoken = bool(payload)
        if payload:
            opcode = Opcode.TEXT if _is_text(payload) else Opcode.BINARY
            octets = [due + frames.head(opcode, len(payload)), payload]
        else:
            octets = [due]
        if self._goodbye is not None and not self._ended:
            self._ended = True
            octets.append(self._goodbye)
        return octets

    def close(self, code: Code, reason: str) -> None:
        """Say goodbye, once.

        By a Close frame, or by an answer of HTTP before there is a WebSocket. It goes behind what
        is sent next. The client's own Close frame is answered by its code (RFC 6455, section
        5.5.1).

        :param reason: a sentence for the client.
        """
        if self._goodbye is None:
            if self.agreed is None:
                self._goodbye = self._upgrade.refuse(reason)
            else:
                self._goodbye = self._answer or frames.close(code, reason)


def _is_text(octets: bytes) -> bool:
    if octets.isascii():
        return True
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
