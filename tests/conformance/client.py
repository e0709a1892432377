"""A synchronous STOMP client that is strict about the server's frames.

Of our own for these tests, on a raw socket.

Owns one socket and the frames read from it. Written from the specifications; uses nothing of the
gateway. It can send any octets, it never sleeps, and whatever the server sends against the version
spoken is an AssertionError: an undefined escape, a raw colon where 1.1 and 1.2 want it escaped, a
MESSAGE or ERROR without ``content-length``, anything else than end-of-lines between frames.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tests.gateway_process import HOST

#: Seconds after which what must come is taken to be missing. A busy machine may need many of them,
#: so nothing is concluded from what came within.
PATIENCE: Final = 60.0

_ESCAPES: Final = {
    "1.0": {},
    "1.1": {"n": "\n", "c": ":", "\\": "\\"},
    "1.2": {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}


class Closed(Exception):
    """The server closed the connection instead of sending what was waited for."""


@dataclass(frozen=True)
class Frame:
    """One frame of the server.

    :param lines: all headers in their order, unescaped, repeated ones included.
    :param came: when it was complete, in monotonic seconds.
    """

    command: str
    lines: tuple[tuple[str, str], ...]
    body: bytes
    came: float

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers by name; the first of repeated ones.

        STOMP 1.2, "Repeated Header Entries".
        """
        return dict(reversed(self.lines))

    def __getitem__(self, name: str) -> str:
        assert name in self.headers, f"{self.command} has no {name}: {self.headers} {self.body!r}"
        return self.headers[name]

    def __contains__(self, name: str) -> bool:
        return name in self.headers

    @property
    def text(self) -> str:
        return self.body.decode()


def escape(text: str, version: str) -> str:
    if version == "1.0":
        return text
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")
    return text.replace("\r", "\\r") if version == "1.2" else text


def unescape(text: str, version: str) -> str:
    """The inverse of :func:`escape`; asserts that nothing undefined is in it."""
    if version == "1.0":
        return text
    assert ":" not in text, f"a raw colon in a header of STOMP {version}: {text!r}"
    known = _ESCAPES[version]

    def plain(found: re.Match[str]) -> str:
        assert found[1] in known, f"STOMP {version} has no escape {found[0]!r}: {text!r}"
        return known[found[1]]

    return re.sub(r"\\(.?)", plain, text, flags=re.DOTALL)


def encode(command: str, headers: Mapping[str, str], body: bytes, version: str) -> bytes:
    """Return a frame as a client of ``version`` sends it.

    CONNECT and STOMP are not escaped.
    """
    spoken = "1.0" if command in ("CONNECT", "STOMP") else version
    lines = "".join(
        f"{escape(name, spoken)}:{escape(value, spoken)}\n" for name, value in headers.items()
    )
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def upgrade(*more: str) -> bytes:
    """Return the request for a WebSocket. :param more: lines of its head."""
    lines = (
        "GET /stomp HTTP/1.1",
        f"Host: {HOST}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==",
        *more,
    )
    return "\r\n".join([*lines, "", ""]).encode()


class Client:
    """One connection.

    :param port: of the server.
    :param tls: connect with TLS, as this says.
    :param host: where to.
    """

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, host: str = HOST) -> None:
        self.version = "1.0"
        #: MESSAGE must have a ``content-length``.
        self.counted = True
        self._port = port
        self._socket: socket.socket = socket.create_connection((host, port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._buffer = b""
        #: The line end that comes next may be that of the last frame.
        self._after_frame = False
        self._receipts = 0
        #: When end-of-lines that belong to no frame came, in monotonic seconds: one behind a frame
        #: is the frame's.
        self.beats: list[float] = []
        #: The CONNECTED frame, once there is one.
        self.connected: Frame | None = None

    # Sending.

    def write(self, octets: bytes) -> None:
        self._socket.sendall(octets)

    def send(
        self,
        command: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        /,
        **more: str,
    ) -> None:
        """Send a frame, escaped as the version spoken wants it.

        :param more: more headers; in lower case names ``_`` stands for ``-``.
        """
        named = {
            name.replace("_", "-") if name.islower() else name: value
            for name, value in more.items()
        }
        octets = body.encode() if isinstance(body, str) else body
        self.write(encode(command, {**(headers or {}), **named}, octets, self.version))

    def connect(
        self, version: str | None = "1.2", command: str = "CONNECT", **headers: str
    ) -> Frame:
        """Send CONNECT with what the gateway wants, and wait for CONNECTED.

        :param version: for ``accept-version``; None sends none.
        """
        given = {"login": "guest", "passcode": "guest", "host": "localhost"}
        if version is not None:
            given["accept-version"] = version
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.send(command, given)
        connected = self.expect("CONNECTED")
        self.version = connected.headers.get("version", "1.0")
        self.connected = connected
        return connected

    # Receiving.

    def frame(self, patience: float = PATIENCE) -> Frame:
        """The next frame.

        :raises TimeoutError: it did not come within ``patience`` seconds.
        :raises Closed: the connection was closed first.
        """
        until = time.monotonic() + patience
        while True:
            frame = self._parse()
            if frame is not None:
                return frame
            self._read(until)

    def expect(self, command: str, patience: float = PATIENCE) -> Frame:
        frame = self.frame(patience)
        assert frame.command == command, f"expected {command}, not {frame}"
        return frame

    def message(self) -> Frame:
        return self.expect("MESSAGE")

    def messages(self, count: int) -> list[Frame]:
        return [self.message() for _ in range(count)]

    def error(self, *words: str, **headers: str) -> Frame:
        """Return the next frame, an ERROR, behind which the connection ends.

        :param words: parts of its message.
        :param headers: what it must have; in names ``_`` stands for ``-``.
        """
        error = self.expect("ERROR")
        assert error["message"]
        assert [word for word in words if word not in error["message"]] == [], error
        for name, value in headers.items():
            assert error[name.replace("_", "-")] == value
        assert self.rest() == []
        return error

    def rest(self) -> list[Frame]:
        frames = []
        try:
            while True:
                frames.append(self.frame())
        except Closed:
            return frames

    def wait_for_beats(self, count: int) -> list[float]:
        """Wait for this number of heart-beats, and no frame.

        :returns: when they came.
        """
        until = time.monotonic() + PATIENCE
        while len(self.beats) < count:
            assert self._parse() is None, "a frame, where only heart-beats were expected"
            self._read(until)
        return self.beats[:count]

    # What most tests do.

    def ask(
        self,
        command: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | str = b"",
        /,
        **more: str,
    ) -> list[Frame]:
        """Send a frame with a receipt of its own, and wait for it.

        :returns: what came before the RECEIPT.
        """
        self._receipts += 1
        receipt = f"receipt-{self._receipts}"
        self.send(command, headers, body, **more, receipt=receipt)
        before: list[Frame] = []
        while True:
            frame = self.frame()
            assert frame.command != "ERROR", frame
            if frame.command == "RECEIPT":
                assert frame.headers == {"receipt-id": receipt}, frame
                assert frame.body == b""
                return before
            before.append(frame)

    def put(self, destination: str, *bodies: str, **headers: str) -> None:
        """Send texts to a destination, and wait until the gateway has them.

        Nothing else may come meanwhile.
        """
        for body in bodies[:-1]:
            self.send("SEND", {"destination": destination}, body, **headers)
        assert self.ask("SEND", {"destination": destination}, bodies[-1], **headers) == []

    def subscribe(self, destination: str, id: str = "s", **headers: str) -> None:
        """Subscribe, and wait for the RECEIPT.

        It comes before the first MESSAGE.
        """
        assert self.ask("SUBSCRIBE", {"destination": destination, "id": id}, **headers) == []

    def hold(self, queue: str, *bodies: str, **headers: str) -> list[Frame]:
        """Put texts into a queue, and subscribe to receive them.

        :param headers: of the SUBSCRIBE; its transaction is begun.
        """
        self.put(queue, *bodies)
        if "transaction" in headers:
            self.send("BEGIN", transaction=headers["transaction"])
        self.subscribe(queue, **headers)
        return self.messages(len(bodies))

    def left(self, queue: str) -> list[str]:
        """Disconnect, and have another client take the texts that are left in a queue."""
        self.disconnect()
        with closing(Client(self._port)) as other:
            other.counted = self.counted
            other.connect(self.version)
            other.put(queue, "marker")
            other.subscribe(queue)
            texts: list[str] = []
            while (text := other.message().text) != "marker":
                texts.append(text)
            return texts

    def settle(self, command: str, message: Frame, **headers: str) -> None:
        """Send ACK or NACK as the version spoken has it, without a receipt."""
        if self.version == "1.2":
            self.send(command, {"id": message["ack"]}, **headers)
        else:
            self.send(
                command,
                {"message-id": message["message-id"], "subscription": message["subscription"]},
                **headers,
            )

    def ack(self, message: Frame, **headers: str) -> None:
        self.settle("ACK", message, **headers)

    def nack(self, message: Frame, **headers: str) -> None:
        self.settle("NACK", message, **headers)

    def sync(self) -> list[Frame]:
        """Have the gateway answer after all that was sent before.

        :returns: what came before that answer.
        """
        return self.ask("SEND", {"destination": "/topic/nobody.listens"})

    def disconnect(self) -> list[Frame]:
        """Disconnect in an orderly way.

        :returns: what came before the RECEIPT; behind it the connection is closed.
        """
        before = self.ask("DISCONNECT")
        assert self.rest() == []
        return before

    def close(self) -> None:
        self._socket.close()

    # The octets.

    def _read(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no frame came; {self._buffer[:200]!r} is read so far")
        self._socket.settimeout(left)
        try:
            octets = self._socket.recv(65536)
        except TimeoutError:
            raise TimeoutError(f"no frame came; {self._buffer[:200]!r} is read so far") from None
        except ConnectionResetError:
            octets = b""
        if not octets:
            assert self._buffer == b"", f"closed within a frame: {self._buffer!r}"
            raise Closed("the server closed the connection")
        self._buffer += octets

    def _parse(self) -> Frame | None:
        while self._buffer[:1] in (b"\n", b"\r"):
            if self._buffer[:1] == b"\n":
                if not self._after_frame:
                    self.beats.append(time.monotonic())
                self._after_frame = False
            self._buffer = self._buffer[1:]
        head, blank, rest = self._buffer.partition(b"\n\n")
        if not blank:
            return None
        command, *lines = head.decode().split("\n")
        version = "1.0" if command == "CONNECTED" else self.version
        pairs = []
        for line in lines:
            name, colon, value = line.partition(":")
            assert colon, f"a header line without colon: {head!r}"
            pairs.append((unescape(name, version), unescape(value, version)))
        headers = dict(reversed(pairs))
        if "content-length" in headers:
            end = int(headers["content-length"])
            if len(rest) <= end:
                return None
        else:
            assert command not in (("MESSAGE", "ERROR") if self.counted else ()), (
                f"{command} without content-length: {head!r}"
            )
            end = rest.find(b"\0")
            if end < 0:
                return None
        assert rest[end : end + 1] == b"\0", f"no NUL after the body: {rest[end : end + 20]!r}"
        self._buffer = rest[end + 1 :]
        self._after_frame = True
        return Frame(command, tuple(pairs), rest[:end], time.monotonic())
