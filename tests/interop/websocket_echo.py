"""A server that echoes the messages of WebSockets.

Fuzzing clients expect that. It has the gateway's reader of frames. The gateway itself takes nothing but STOMP, and what it reads is one
stream: so this keeps where messages end and what kind each is, by the heads of their frames.

Run it with a port of the loopback.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol

from gateway.stomp.websocket import frames
from gateway.stomp.websocket.codes import Code, WebSocketError
from gateway.stomp.websocket.endpoint import WebSocket
from gateway.stomp.websocket.frames import Opcode
from gateway.stomp.websocket.upgrade import ANY_ORIGIN, Rules, UpgradeRefused

clock: Any = reactor
_NONE: Final = b""


class Heads:
    """Cuts octets behind each frame, and tells what the frame ends."""

    def __init__(self) -> None:
        self._begun = _NONE
        self._left = 0
        self._fin = False
        self._opcode = 0
        self._kind = Opcode.TEXT

    def cut(self, octets: bytes) -> list[tuple[bytes, Opcode | None]]:
        """Return pieces, each with the kind of the message that it ends."""
        pieces: list[tuple[bytes, Opcode | None]] = []
        while octets:
            if not self._left:
                octets, self._begun = self._begun + octets, _NONE
                size = self._size(octets)
                if len(octets) < size:
                    self._begun = octets
                    break
                self._read(octets, size)
                # The head goes with the payload, of which there may be none.
                self._left += size
            piece, octets = octets[: self._left], octets[self._left :]
            self._left -= len(piece)
            ended = not self._left and self._fin and self._opcode < Opcode.CLOSE
            pieces.append((piece, self._kind if ended else None))
        return pieces

    def _size(self, octets: bytes) -> int:
        if len(octets) < 2:
            return 2
        return {126: 4, 127: 10}.get(octets[1] & 0x7F, 2) + 4 * (octets[1] >> 7)

    def _read(self, octets: bytes, size: int) -> None:
        self._fin, self._opcode = bool(octets[0] & 0x80), octets[0] & 0xF
        if self._opcode in (Opcode.TEXT, Opcode.BINARY):
            self._kind = Opcode(self._opcode)
        short = octets[1] & 0x7F
        width = {126: 2, 127: 8}.get(short, 0)
        self._left = int.from_bytes(octets[2 : 2 + width], "big") if width else short


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


class Echo(Protocol):
    """One client."""

    def __init__(self) -> None:
        self._websocket = WebSocket(Rules("/stomp", frozenset((ANY_ORIGIN,))))
        self._heads = Heads()
        self._message: list[bytes] = []
        self._over = False

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        if self._over:
            return
        try:
            if self._websocket.agreed is None:
                # A client waits for the answer before it sends frames.
                self._websocket.receive(data, _now_ms())
                transport.writeSequence(self._websocket.sent(()))
                return
            for piece, ended in self._heads.cut(data):
                self._message.append(self._websocket.receive(piece, _now_ms()))
                transport.writeSequence(self._websocket.sent(()))
                if self._websocket.closed_by_client:
                    self._end(Code.NORMAL, "")
                    return
                if ended is not None:
                    message, self._message = _NONE.join(self._message), []
                    transport.writeSequence((frames.head(ended, len(message)), message))
        except UpgradeRefused as refused:
            self._end(Code.POLICY, str(refused))
        except WebSocketError as error:
            self._end(error.code, str(error))

    def _end(self, code: Code, reason: str) -> None:
        transport: Any = self.transport
        self._over = True
        self._websocket.close(code, reason)
        transport.writeSequence(self._websocket.sent(()))
        transport.loseConnection()


def main(port: int) -> None:
    """Serve until the process ends."""
    clock.listenTCP(port, Factory.forProtocol(Echo), interface="127.0.0.1")
    clock.callWhenRunning(print, "ready", flush=True)
    clock.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
