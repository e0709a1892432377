"""A small STOMP 1.2 client on a blocking socket, for tests that must know to the octet what they
sent and what came back.

Owns one connection. Nothing is retried, nothing is gathered behind the caller's back: frames leave
when they are given.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

HOST: Final = "127.0.0.1"

#: How long one frame may take to come before the test fails, in seconds.
PATIENCE: Final = 120.0


class Gone(Exception):
    """The other side closed the connection."""


class Refused(Exception):
    """An ERROR frame came. :param frame: that frame."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(
            f"{frame.headers.get('message')} ({frame.body.decode(errors='replace').strip()})"
        )
        self.frame = frame


class Frame(NamedTuple):
    """A frame as it came."""

    command: str
    headers: dict[str, str]
    body: bytes


def encode(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A frame's octets; header values are taken to need no escaping."""
    lines = [command, *(f"{name}:{value}" for name, value in headers.items())]
    if body:
        lines.append(f"content-length:{len(body)}")
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0"


class Client:
    """A connection, made and CONNECTED unless told otherwise.

    :param tls: speak TLS with this context.
    :param headers: more headers for CONNECT.
    :param connect: whether to send CONNECT and wait for CONNECTED.
    :param receive_buffer: octets of the kernel's buffer, None for its own choice.
    """

    #: What is done about headers that are no UTF-8, as :meth:`bytes.decode` has it.
    undecodable = "strict"

    def __init__(
        self,
        port: int,
        *,
        login: str = "guest",
        passcode: str = "guest",
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        connect: bool = True,
        receive_buffer: int | None = None,
    ) -> None:
        plain = socket.socket()
        if receive_buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(PATIENCE)
        try:
            plain.connect((HOST, port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket: socket.socket = (
                plain if tls is None else tls.wrap_socket(plain, server_hostname=HOST)
            )
        except BaseException:
            plain.close()
            raise
        self._buffer = bytearray()
        self._receipts = 0
        if connect:
            try:
                given = {
                    "accept-version": "1.2",
                    "host": HOST,
                    "login": login,
                    "passcode": passcode,
                    **(headers or {}),
                }
                self.write(encode("CONNECT", given))
                answer = self.frame()
                if answer.command != "CONNECTED":
                    raise Refused(answer)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def write(self, octets: bytes) -> None:
        """Send octets as they are. :raises Gone: the other side has closed."""
        try:
            self.socket.sendall(octets)
        except (ConnectionError, ssl.SSLError) as error:
            raise Gone(str(error)) from error

    def frame(self) -> Frame:
        """The next frame.

        :raises Gone: the connection has ended.
        :raises TimeoutError: none came within the patience.
        """
        while True:
            found = self._parse()
            if found is not None:
                return found
            self._receive()

    def rest(self) -> Iterator[Frame]:
        while True:
            try:
                yield self.frame()
            except Gone:
                return

    def error(self) -> Frame:
        """The ERROR that comes next, after which the other side closes.

        :raises AssertionError: it is something else.
        """
        frame = self.frame()
        assert frame.command == "ERROR", frame
        assert frame.headers["message"]
        left = list(self.rest())
        assert not left, left
        return frame

    def send(self, destination: str, body: bytes, **headers: str) -> None:
        self.write(
            encode("SEND", {"destination": destination, "persistent": "true", **headers}, body)
        )

    def ask(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> list[Frame]:
        """A frame with a receipt.

        :returns: the frames that came before the RECEIPT.
        :raises Refused: an ERROR came instead.
        """
        self._receipts += 1
        receipt = f"r{self._receipts}"
        self.write(encode(command, {**headers, "receipt": receipt}, body))
        before: list[Frame] = []
        while True:
            frame = self.frame()
            if frame.command == "ERROR":
                raise Refused(frame)
            if frame.command == "RECEIPT" and frame.headers["receipt-id"] == receipt:
                return before
            before.append(frame)

    def store(self, destination: str, body: bytes, **headers: str) -> list[Frame]:
        """SEND, persistent, and wait for its RECEIPT; else as :meth:`ask`."""
        return self.ask("SEND", {"destination": destination, "persistent": "true", **headers}, body)

    def message(self) -> Frame:
        frame = self.frame()
        if frame.command == "ERROR":
            raise Refused(frame)
        assert frame.command == "MESSAGE", frame
        return frame

    def _receive(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except (ConnectionError, ssl.SSLError) as error:
            raise Gone(str(error)) from error
        if not data:
            raise Gone("closed")
        self._buffer += data

    def _parse(self) -> Frame | None:
        buffer = self._buffer
        start = 0
        while start < len(buffer) and buffer[start] in b"\r\n":
            start += 1
        if start:
            del buffer[:start]
        end = buffer.find(b"\n\n")
        if end < 0:
            return None
        command, *lines = buffer[:end].decode(errors=self.undecodable).split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(
                name, value.replace("\\c", ":").replace("\\n", "\n").replace("\\\\", "\\")
            )
        length = headers.get("content-length")
        stop = buffer.find(b"\0", end + 2) if length is None else end + 2 + int(length)
        if stop < 0 or stop >= len(buffer):
            return None
        body = bytes(buffer[end + 2 : stop])
        del buffer[: stop + 1]
        return Frame(command, headers, body)
