"""A broker that does what a test tells it to, on a real socket of the loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stompest.protocol import StompFrame, StompParser
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from bridge.providers.stomp.options import StompAddress, StompOptions
from bridge.providers.stomp.provider import StompProvider
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, Consumer, Credentials, Done

clock: Any = reactor
QUEUE = Queue("q")
WELL = object()


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; the test's own time limit ends it."""
    while not condition():
        await deferLater(clock, 0.002)


class _Served(Protocol):
    """One connection to the peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.parser = StompParser("1.2")

    def connectionMade(self) -> None:
        self.peer.sockets.append(self)

    def dataReceived(self, data: bytes) -> None:
        if self.peer.deaf:
            return
        if data.strip(b"\n") == b"":
            self.peer.beats += len(data)
        self.parser.add(data)
        while self.parser.canRead():
            frame = self.parser.get()
            if frame:
                self.peer.received(self, frame)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.peer.lost += 1


class Peer:
    """A broker on a free port.

    :param server: what CONNECTED calls it; None leaves CONNECT unanswered.
    :param beat: its ``heart-beat``.
    :param receipts: whether it answers ``receipt`` at once.
    """

    def __init__(
        self, server: str | None = "ActiveMQ/5.17", *, beat: str = "0,0", receipts: bool = True
    ) -> None:
        self.server = server
        self.beat = beat
        self.receipts = receipts
        self.frames: list[StompFrame] = []
        self.sockets: list[_Served] = []
        self.beats = self.lost = 0
        #: What comes may be no STOMP at all, and is not looked at.
        self.deaf = False
        #: Called with each frame in place of the usual answer, by its command.
        self.on: dict[str, Callable[[StompFrame], None]] = {}
        factory = Factory.forProtocol(Protocol)
        factory.buildProtocol = lambda addr: _Served(self)  # type: ignore[method-assign]
        self._listener: Any = clock.listenTCP(0, factory, interface="127.0.0.1")

    @property
    def address(self) -> StompAddress:
        at: IPv4Address = self._listener.getHost()
        return StompAddress("127.0.0.1", at.port)

    def received(self, socket: _Served, frame: StompFrame) -> None:
        self.frames.append(frame)
        if frame.command in self.on:
            self.on[frame.command](frame)
        elif frame.command == "CONNECT":
            if self.server is not None:
                self.say("CONNECTED", version="1.2", server=self.server, heart_beat=self.beat)
        elif self.receipts:
            self.receipt(frame)

    def receipt(self, frame: StompFrame) -> None:
        if "receipt" in frame.headers:
            self.say("RECEIPT", **{"receipt-id": frame.headers["receipt"]})

    def refuse(self, frame: StompFrame, message: str) -> None:
        headers = {"receipt-id": frame.headers["receipt"]} if "receipt" in frame.headers else {}
        self.say("ERROR", message=message, **headers)

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        pairs = {name.replace("_", "-"): value for name, value in headers.items()}
        self.octets(bytes(StompFrame(command, pairs, body, version="1.2")))

    def octets(self, octets: bytes) -> None:
        transport: Any = self.sockets[-1].transport
        transport.write(octets)

    def message(self, number: int, body: bytes = b"x", **headers: str) -> None:
        """A MESSAGE for the subscription that came last."""
        subscription = self.of("SUBSCRIBE")[-1].headers["id"]
        told = {
            "destination": "/queue/q",
            "message_id": f"m{number}",
            "ack": f"a{number}",
            "subscription": subscription,
        }
        self.say("MESSAGE", body, **(told | headers))

    def drop(self) -> None:
        for socket in self.sockets:
            transport: Any = socket.transport
            transport.abortConnection()

    def of(self, command: str) -> list[StompFrame]:
        return [frame for frame in self.frames if frame.command == command]

    def commands(self) -> list[str]:
        return [frame.command for frame in self.frames]

    async def heard(self, command: str, count: int = 1) -> list[StompFrame]:
        """Wait until so many frames of a kind have come."""
        await until(lambda: len(self.of(command)) >= count)
        return self.of(command)

    async def close(self) -> None:
        self.drop()
        await self._listener.stopListening()


class Client:
    """A connection to a peer, and what it was told."""

    def __init__(self, peer: Peer, **options: Any) -> None:
        self.provider = StompProvider(peer.address, StompOptions(**options), clock)
        self.losses: list[MessagingError] = []
        self.told: list[object] = []
        self.runs: list[tuple[int, list[str], list[int] | None]] = []
        self.failures: list[MessagingError] = []

    def connecting(self, client_id: str | None = None) -> Deferred[Connection]:
        return self.provider.connect(Credentials("guest", "secret"), client_id, self.losses.append)

    async def connect(self, client_id: str | None = None) -> Connection:
        return await self.connecting(client_id)

    def done(self, error: MessagingError | None) -> None:
        """A Done; what is well is told as WELL."""
        self.told.append(WELL if error is None else error)

    async def answered(self, ask: Callable[[Done], None]) -> None:
        """Ask, and wait until that is answered."""
        count = len(self.told)
        ask(self.done)
        await until(lambda: len(self.told) > count)

    def deliver(self, consumer: Consumer, first: int, messages: Any, attempts: Any, /) -> None:
        self.runs.append((first, [message.text for message in messages], attempts))


#: Makes a peer and a client of it, from the arguments of both.
Meet = Callable[..., tuple[Peer, Client]]


def text(body: str, destination: Destination = QUEUE, **headers: Any) -> Message:
    return Message(Headers(destination, **headers), body.encode())
