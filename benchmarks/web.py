"""Steady load over WebSocket, beside the same over TCP.

Declares the servers that take it, and their cell. Clients send each frame of STOMP as a message of
its own, as stompjs does. Their mask is zero: the server takes it off like any other, and the load
generator has less to do.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import load
from benchmarks.cell import Cell, Row, Timing
from benchmarks.goals import AtLeast, NoneLost, Reaches
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.peers import Gateway, Peer, PureGateway, RabbitMQ, free_port
from benchmarks.steady_cells import title
from benchmarks.tally import Outcome

# How often over each, in turn.
_TURNS = 2
_KEY = "AAECAwQFBgcICQoLDA0ODw=="
# The first octet of a text message that is one frame; behind its length comes the mask.
_WHOLE_TEXT = 0x81
_MASK = bytes(4)


class WebSocketed:
    """A socket whose octets go through a WebSocket.

    It is for a load: it has no limits and no checks.

    :param plain: is connected.
    :raises OSError: the server does not agree.
    """

    def __init__(self, plain: socket.socket, path: str) -> None:
        self._plain = plain
        self._unsent = b""
        #: How many octets :meth:`send` was given last, if not all of them are sent.
        self._begun = 0
        self._unread = b""
        #: Octets that the message still has.
        self._left = 0
        request = [
            f"GET {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {_KEY}",
            "Sec-WebSocket-Protocol: v12.stomp",
        ]
        plain.sendall("\r\n".join([*request, "", ""]).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = plain.recv(4096)
            if not more:
                raise OSError(f"no WebSocket: {answer[:300]!r}")
            answer += more
        head, _, self._unread = answer.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise OSError(f"no WebSocket: {head[:300]!r}")

    def __getattr__(self, name: str) -> Any:
        # Timeouts, options and the end are those of the socket.
        return getattr(self._plain, name)

    def sendall(self, octets: bytes) -> None:
        """As a socket's.

        The octets begin with those that would have blocked, if any.
        """
        self._plain.sendall(self._unsent + _messages(octets[self._begun :]))
        self._unsent, self._begun = b"", 0

    def send(self, octets: memoryview | bytes) -> int:
        """As a socket's, but all or nothing.

        What would block must be given again, unchanged.
        """
        if not self._begun:
            self._unsent, self._begun = _messages(bytes(octets)), len(octets)
        sent = self._plain.send(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            raise BlockingIOError
        self._begun = 0
        return len(octets)

    def recv(self, size: int) -> bytes:
        """As a socket's: what messages carry."""
        while True:
            data = self._plain.recv(size)
            if not data:
                return b""
            carried = self._carried(self._unread + data)
            if carried:
                return carried

    def _carried(self, octets: bytes) -> bytes:
        at, end, parts = 0, len(octets), []
        while at < end:
            if not self._left:
                if end - at < 2:
                    break
                length, size = octets[at + 1], 2
                if length > 125:
                    size = 4 if length == 126 else 10
                    if end - at < size:
                        break
                    length = int.from_bytes(octets[at + 2 : at + size], "big")
                at += size
                self._left = length
            part = octets[at : at + self._left]
            parts.append(part)
            at += len(part)
            self._left -= len(part)
        self._unread = octets[at:]
        return b"".join(parts)


def _messages(octets: bytes) -> bytes:
    """Return messages, one for each frame of STOMP."""
    parts = []
    for frame in octets.split(b"\0"):
        length = len(frame) + 1
        if length < 126:
            head = bytes((_WHOLE_TEXT, 0x80 | length))
        elif length < 1 << 16:
            head = bytes((_WHOLE_TEXT, 0xFE)) + length.to_bytes(2, "big")
        else:
            head = bytes((_WHOLE_TEXT, 0xFF)) + length.to_bytes(8, "big")
        parts += [head, _MASK, frame, b"\0"]
    # Behind the last NUL is nothing.
    return b"".join(parts[:-4])


class OverWebSocket(Peer):
    """A server whose clients come over WebSocket, or over TCP.

    :cvar web_path: of the WebSocket.
    """

    web_path: str
    over_websocket = True

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self.web_port = free_port()

    def connect(self, seconds: float) -> socket.socket:
        if not self.over_websocket:
            return super().connect(seconds)
        plain = socket.create_connection(("127.0.0.1", self.web_port), timeout=seconds)
        made: Any = WebSocketed(plain, self.web_path)
        connection: socket.socket = made
        return connection


class WebGateway(OverWebSocket, Gateway):
    """With a listener for it."""

    web_path = "/stomp"

    def settings(self) -> dict[str, str]:
        listener = "imq.bridge.stomp.listener.web"
        return {
            **super().settings(),
            f"{listener}.port": str(self.web_port),
            f"{listener}.ws": "true",
        }


class WebPureGateway(WebGateway, PureGateway):
    """The same in pure Python."""

    name = PureGateway.name
    path = PureGateway.path


class WebRabbitMQ(OverWebSocket, RabbitMQ):
    """With its Web STOMP plugin."""

    web_path = "/ws"
    # It closes the WebSocket instead.
    dialect = replace(RabbitMQ.dialect, says_goodbye=False)
    plugins = (*RabbitMQ.plugins, "rabbitmq_web_stomp")

    def configuration(self) -> list[str]:
        listener = "web_stomp.tcp"
        return [
            *super().configuration(),
            f"{listener}.ip = 127.0.0.1",
            f"{listener}.port = {self.web_port}",
        ]


@dataclass(frozen=True)
class Web:
    """A load over WebSocket, and its share of the same over TCP, in turn."""

    load: Load
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        assert isinstance(peer, OverWebSocket)
        runs: dict[bool, list[Measurement]] = {True: [], False: []}
        try:
            for turn in range(_TURNS):
                for over_websocket in runs:
                    peer.over_websocket = over_websocket
                    queue = f"{name}.{turn}{'web' if over_websocket else 'tcp'}"
                    runs[over_websocket].append(
                        load.run(peer, self.load, queue, timing.warm_up, timing.seconds)
                    )
        finally:
            peer.over_websocket = True
        web, tcp = (
            replace(
                each[-1],
                value=mean([one.value for one in each if one.value is not None]),
                outcome=sum((one.outcome for one in each), Outcome()),
                messages=sum(one.messages for one in each),
            )
            for each in runs.values()
        )
        assert web.value is not None
        assert tcp.value is not None
        share = replace(web, value=100 * web.value / tcp.value, extra={"tcp msg/s": tcp.value})
        return [web, share]


_SERVERS: Mapping[str, type[Peer]] = {
    peer.name: peer for peer in (WebGateway, WebPureGateway, WebRabbitMQ)
}


def readme() -> list[Cell]:
    """The cells of the tables in ``README.rst``."""
    declared = Load(varying=True)
    said = f"WebSocket, one message each: {title(declared)}"
    rows = (
        Row(said, "msg/s", True, (NoneLost(), AtLeast(3.0, "RabbitMQ"))),
        Row("the same, of what it is over TCP", "%", True, (Reaches(60, "%"),)),
    )
    return [Cell("websocket-queue-100B-transient-1to1-auto", Web(declared), rows, _SERVERS)]
