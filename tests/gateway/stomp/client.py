"""A client in memory: octets in, frames out, on a clock that stands still."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from gateway.instance.memory.budget import MemoryBudget, State
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.turn import Turn
from gateway.stomp.counters import Counters
from gateway.stomp.profiles import OPENMQ
from gateway.stomp.service import StompFactory
from gateway.stomp.session.transforming import Transforming
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.transport.connection import StompConnection
from gateway.stomp.wire import Frame, FrameParser, Limits, Version
from tests.gateway.stomp.recording import RecordingConsumer, RecordingProvider

START = 1_700_000_000


class Transport(StringTransport):
    """A string transport that can be closed on one side, and whose buffer empties when it is told
    to.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.half_closed = False
        self.aborted = False

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    def abortConnection(self) -> None:
        self.aborted = True
        super().abortConnection()  # type: ignore[no-untyped-call]

    def octets(self) -> bytes:
        """All that was written."""
        written: bytes = self.value()  # type: ignore[no-untyped-call]
        return written

    @property
    def is_closed(self) -> bool:
        return self.half_closed or self.disconnecting


class Server:
    """One gateway without sockets."""

    def __init__(
        self,
        session: SessionOptions | None = None,
        transport: TransportOptions | None = None,
        transformer: MessageTransformer | None = None,
        memory: int = sys.maxsize,
        percent: Mapping[State, int] | None = None,
    ) -> None:
        self.clock = Clock()
        self.clock.rightNow = START
        self.memory = MemoryBudget(self.clock, memory, percent)
        self.turn = Turn(self.clock)
        self.provider = RecordingProvider(self.turn)
        self.counters = Counters()
        self._identifiers = 0
        self.factory = StompFactory(
            self.clock,
            self.turn,
            self.provider,
            session or SessionOptions(profile=replace(OPENMQ, server="stomp-gateway/test")),
            transport or TransportOptions(),
            None if transformer is None else Transforming(transformer),
            self.counters,
            self._random,
            memory=self.memory,
        )

    def _random(self, count: int) -> bytes:
        self._identifiers += 1
        return self._identifiers.to_bytes(count, "big")

    def client(self, address: str = "192.0.2.1") -> Client:
        """A client whose socket is open."""
        return Client(self, address)

    def connected(self, version: str = "1.2", headers: str = "") -> Client:
        """A client that is CONNECTED."""
        client = self.client()
        client.say(f"CONNECT\naccept-version:{version}\nlogin:guest\npasscode:secret\n{headers}\n")
        [answer] = client.heard()
        assert answer.head.command == "CONNECTED", answer
        return client


class Client:
    """One client."""

    def __init__(self, server: Server, address: str = "192.0.2.1") -> None:
        self.server = server
        self.transport = Transport()
        self.connection: StompConnection = server.factory.buildProtocol(
            IPv4Address("TCP", address, 40000)
        )
        self.connection.makeConnection(self.transport)  # type: ignore[no-untyped-call]
        self.parser = FrameParser(Limits(), Version.V1_2)
        self._read = 0

    def say(self, *frames: str | bytes) -> None:
        """Send frames in one read, each with its NUL added."""
        octets = b"".join(
            frame if isinstance(frame, bytes) else frame.encode() for frame in _terminated(frames)
        )
        self.connection.dataReceived(octets)
        self.server.clock.advance(0)

    def heard(self) -> list[Frame]:
        """The frames that came since the last call."""
        octets = self.transport.octets()[self._read :]
        self._read += len(octets)
        self.parser.receive(octets)
        found: list[Frame] = []
        while frames := self.parser.frames(1000):
            found += frames
        return found

    def read(self) -> list[Frame]:
        """As :meth:`heard`, and everything is in the kernel."""
        frames = self.heard()
        self.drain()
        return frames

    def drain(self) -> None:
        """The transport's buffer is empty."""
        producer: Any = self.transport.producer
        if producer is not None:
            producer.resumeProducing()
        self.server.clock.advance(0)

    def commands(self) -> list[str]:
        """The commands of what came."""
        return [frame.head.command for frame in self.heard()]

    def error(self) -> Frame:
        """The ERROR that came last; the connection closes behind it once it is in the kernel."""
        self.server.clock.advance(0)
        frame = self.heard()[-1]
        assert frame.head.command == "ERROR", frame
        assert frame.head.content_length == len(frame.body)
        assert frame.head.headers["message"]
        self.drain()
        assert self.transport.is_closed
        return frame

    def answers(self, *frames: str | bytes) -> list[str]:
        """Send frames in one read, and return the commands of what has come."""
        self.say(*frames)
        return self.commands()

    def refusal(self, *frames: str | bytes) -> str:
        """Send frames of which one is refused, and return the ERROR's message."""
        self.say(*frames)
        return self.error().head.headers["message"]

    def dropped_after(self, seconds: float) -> bool:
        """Let time pass, and return whether the client is dropped by then."""
        self.advance(seconds)
        return self.transport.aborted

    def lose(self) -> None:
        """The client closes its socket."""
        self.connection.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]

    def consumer(self, index: int = -1) -> RecordingConsumer:
        """A consumer of this server's latest connection."""
        return self.server.provider.connection.consumers[index]

    def advance(self, seconds: float) -> None:
        """Time passes, in steps that leave no tick of the wheel out."""
        steps = max(int(seconds / 0.05), 1)
        for _ in range(steps):
            self.server.clock.advance(seconds / steps)


def _terminated(frames: tuple[str | bytes, ...]) -> Iterator[str | bytes]:
    for frame in frames:
        yield frame
        yield b"\0"
