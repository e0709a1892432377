"""The port mapper's text protocol, over real sockets on the loopback interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import pytest
from twisted.internet import reactor as global_reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint
from twisted.internet.error import CannotListenError, ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IHalfCloseableProtocol,
    IStreamServerEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.instance.portmapper import Entry, PortMapper

pytestmark = pytest.mark.process

P = ParamSpec("P")

if TYPE_CHECKING:

    def ensureDeferred(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]: ...
else:
    from pytest_twisted import ensureDeferred

reactor = cast(Any, global_reactor)


class Client(Protocol):
    """Sends what it is told on connecting, and keeps what it gets until the connection ends,
    cleanly or not.
    """

    transport: ITCPTransport

    def __init__(self, request: bytes = b"", close: bool = False) -> None:
        self._request = request
        self._close = close
        self.received = b""
        self.lost: Deferred[bool] = Deferred()

    def connectionMade(self) -> None:
        if self._request:
            self.transport.write(self._request)
        if self._close:
            self.transport.loseWriteConnection()

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(isinstance(reason.value, ConnectionDone))


@implementer(IHalfCloseableProtocol)
class HalfClosed(Client):
    """A client that does not close its side when the server does."""

    def __init__(self, request: bytes) -> None:
        super().__init__(request)
        self.ended: Deferred[None] = Deferred()

    def readConnectionLost(self) -> None:
        self.ended.callback(None)

    def writeConnectionLost(self) -> None:
        """Ours stays open."""

    def keep_writing(self) -> None:
        """That the server is gone shows only to one who writes."""
        if not self.lost.called:
            self.transport.write(b"x")
            reactor.callLater(0, self.keep_writing)


class Once(Factory):
    def __init__(self, client: Client) -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> Client:
        return self._client


def loopback(port: int) -> IStreamServerEndpoint:
    return TCP4ServerEndpoint(reactor, port, interface="127.0.0.1")  # type: ignore[no-untyped-call]


def mapped(clock: Any = None, **options: Any) -> PortMapper:
    """A port mapper whose time stands still but where a test moves its clock; its sockets are
    real.
    """
    return PortMapper(clock or Clock(), "imqbroker", "6.6.0", **options)


async def until(condition: Callable[[], object]) -> None:
    """Let the reactor turn until the condition holds."""
    while not condition():
        await deferLater(reactor, 0)


@asynccontextmanager
async def listening(mapper: PortMapper) -> AsyncIterator[int]:
    port = await mapper.listen(loopback(0))
    try:
        yield cast(IPv4Address, port.getHost()).port
    finally:
        await maybeDeferred(port.stopListening)
        mapper.close_connections()


async def connected(port: int, client: Client) -> Client:
    await TCP4ClientEndpoint(reactor, "127.0.0.1", port).connect(Once(client))
    return client


async def answer(port: int, request: bytes = b"101\n", close: bool = False) -> str:
    client = await connected(port, Client(request, close))
    assert await client.lost, "reset"
    return client.received.decode("ascii")


STOMP_TCP = ("stomp[bridge]", "stomp[TCP]", "stomp[bridge]", 7672)
STOMP_TLS = ("sslstomp[bridge]", "stomp[SSL/TLS]", "stomp[bridge]", 7673)


@ensureDeferred
async def test_the_table_is_the_originals() -> None:
    mapper = mapped(
        properties={"imqvarhome": "/var/imq", "imqhome": "/opt/imq", "sessionid": "123"}
    )
    mapper.register(*STOMP_TCP)
    mapper.register(*STOMP_TLS)
    mapper.register("admin", "http", "ADMIN", 7674, {"url": "http://localhost:7674/"})
    async with listening(mapper) as port:
        assert await answer(port) == (
            "101 imqbroker 6.6.0\n"
            f"portmapper tcp PORTMAPPER {port} [imqvarhome=/var/imq,imqhome=/opt/imq,sessionid=123]\n"
            "stomp[bridge] stomp[TCP] stomp[bridge] 7672\n"
            "sslstomp[bridge] stomp[SSL/TLS] stomp[bridge] 7673\n"
            "admin http ADMIN 7674 [url=http://localhost:7674/]\n"
            ".\n"
        )


@ensureDeferred
async def test_entries_vanish_when_they_are_removed() -> None:
    mapper = mapped()
    remove_tcp = mapper.register(*STOMP_TCP)
    remove_tls = mapper.register(*STOMP_TLS)
    async with listening(mapper) as port:
        remove_tcp()
        assert "7672" not in await answer(port)
        assert "7673" in await answer(port)
        remove_tls()
        assert await answer(port) == f"101 imqbroker 6.6.0\nportmapper tcp PORTMAPPER {port}\n.\n"


def test_removing_twice_leaves_a_successor_alone() -> None:
    mapper = mapped()
    remove = mapper.register("a", "tcp", "X", 1)
    remove()
    mapper.register("a", "tcp", "X", 2)
    remove()
    assert "a tcp X 2\n" in mapper.table()


@pytest.mark.parametrize("name", ["portmapper", "a"])
def test_a_name_is_there_once(name: str) -> None:
    mapper = mapped()
    mapper.register("a", "tcp", "X", 1)
    with pytest.raises(ValueError, match=f"has an entry {name}"):
        mapper.register(name, "tcp", "X", 2)


@pytest.mark.parametrize(
    "request_", [b"101\n", b"101\r\n", b"102\n", b"\n", b"GET / HTTP/1.0\r\n\r\n"]
)
@ensureDeferred
async def test_any_line_is_answered_at_once(request_: bytes) -> None:
    async with listening(mapped()) as port:
        assert (await answer(port, request_)).startswith("101 imqbroker")


@pytest.mark.parametrize("request_", [b"", b"101"])
@ensureDeferred
async def test_without_a_whole_line_the_answer_comes_after_the_timeout(
    request_: bytes, clock: Clock
) -> None:
    async with listening(mapped(clock, timeout=500)) as port:
        client = await connected(port, Client(request_))
        await until(clock.getDelayedCalls)
        clock.advance(0.499)
        assert len(clock.getDelayedCalls()) == 1
        clock.advance(0.001)
        assert await client.lost
        assert client.received.endswith(b".\n")


@pytest.mark.parametrize("request_", [b"", b"101", b"101\n"])
@ensureDeferred
async def test_a_client_that_closes_its_side_gets_the_answer(request_: bytes) -> None:
    async with listening(mapped()) as port:
        assert (await answer(port, request_, close=True)).endswith(".\n")


@ensureDeferred
async def test_a_long_request_is_not_answered() -> None:
    async with listening(mapped()) as port:
        client = await connected(port, Client(b"1" * 129))
        await client.lost
        assert client.received == b""
        assert (await answer(port, b"1" * 127 + b"\n")).endswith(".\n")


@ensureDeferred
async def test_a_client_that_does_not_close_is_dropped_after_the_timeout(clock: Clock) -> None:
    mapper = mapped(clock, timeout=500)
    async with listening(mapper) as port:
        client = HalfClosed(b"101\n")
        await connected(port, client)
        await client.ended
        assert client.received.endswith(b".\n")
        clock.advance(0.499)
        assert mapper.connected == 1
        clock.advance(0.001)
        await until(lambda: not mapper.connected)
        client.keep_writing()
        assert not await client.lost
        assert not clock.getDelayedCalls()


@ensureDeferred
async def test_connections_are_bounded_and_come_free_again() -> None:
    mapper = mapped(connections=1)
    async with listening(mapper) as port:
        waiting = await connected(port, Client())
        refused = await connected(port, Client(b"101\n"))
        await refused.lost
        assert refused.received == b""
        waiting.transport.write(b"101\n")
        await waiting.lost
        assert waiting.received.endswith(b".\n")
        await until(lambda: not mapper.connected)
        assert (await answer(port)).endswith(".\n")


@ensureDeferred
async def test_stopping_drops_those_who_wait() -> None:
    mapper = mapped()
    async with listening(mapper) as port:
        first = await connected(port, Client())
        # The second has been answered, so the first has been accepted.
        await answer(port)
        mapper.close_connections()
        await first.lost
        assert first.received == b""


@ensureDeferred
async def test_a_taken_port_is_told() -> None:
    async with listening(mapped()) as port:
        with pytest.raises(CannotListenError):
            await mapped().listen(loopback(port))


@pytest.mark.parametrize(
    "entry",
    [
        ("", "tcp", "X", 1),
        ("a b", "tcp", "X", 1),
        ("a\n.", "tcp", "X", 1),
        ("é", "tcp", "X", 1),
        ("a", "t p", "X", 1),
        ("a", "tcp", "", 1),
        ("a", "tcp", "X", -1),
        ("a", "tcp", "X", 65536),
        ("a", "tcp", "X", 1, {"k": "a,b"}),
        ("a", "tcp", "X", 1, {"k": "a]"}),
        ("a", "tcp", "X", 1, {"k": "a\nb"}),
        ("a", "tcp", "X", 1, {"k=": "v"}),
        ("a", "tcp", "X", 1, {"": "v"}),
    ],
)
def test_what_the_table_cannot_hold_is_refused(entry: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Entry(*entry)


def test_an_instance_whose_name_is_no_word_is_refused() -> None:
    with pytest.raises(ValueError, match="expected printable"):
        PortMapper(Clock(), "a b", "1")
