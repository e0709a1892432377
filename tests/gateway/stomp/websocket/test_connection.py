"""STOMP over WebSocket on real sockets: sessions, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    connectProtocol,
    wrapClientTLS,
)
from twisted.internet.protocol import Protocol
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from gateway.messaging.provider import Connection
from gateway.stomp.listeners import Listener
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.websocket.codes import Code
from gateway.stomp.websocket.frames import MOST_AT_ONCE
from gateway.stomp.websocket.upgrade import Rules
from gateway.stomp.wire import Frame, FrameParser, Limits, Version
from tests.gateway.stomp.recording import message
from tests.gateway.stomp.test_service import CERTIFICATES, CONNECT, Bridge, clock, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

_LISTENERS = tuple(
    Listener(name, 0, "127.0.0.1", tls=name == "secure", websocket=Rules())
    for name in ("web", "secure")
)
_SUBSCRIBE = b"SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:r\n\n\0"


class Browser(Protocol):
    """A client of WebSocket; wsproto is its codec."""

    def __init__(self, **request: Any) -> None:
        self._request = Request(
            **{"host": "localhost", "target": "/stomp", "subprotocols": ["v12.stomp"], **request}
        )
        self._codec = WSConnection(ConnectionType.CLIENT)
        self._parser = FrameParser(Limits(), Version.V1_2)
        self.events: list[Event] = []
        self.frames: list[Frame] = []
        self.closes = True
        self.lost: Deferred[None] = Deferred()
        self.is_lost = False

    def connectionMade(self) -> None:
        self.say(self._request)

    def say(self, *events: Event) -> None:
        assert self.transport is not None
        self.transport.write(b"".join(map(self._codec.send, events)))

    def dataReceived(self, data: bytes) -> None:
        self._codec.receive_data(data)
        for event in self._codec.events():
            self.events.append(event)
            if isinstance(event, TextMessage | BytesMessage):
                part = event.data.encode() if isinstance(event, TextMessage) else event.data
                self._parser.receive(bytes(part))
                while frames := self._parser.frames(100):
                    self.frames += frames
            elif isinstance(event, CloseConnection) and self.closes:
                self.say(event.response())

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.is_lost = True
        self.lost.callback(None)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def heard(self, kind: type[Event], count: int = 1) -> list[Any]:
        await until(lambda: len(self.of(kind)) >= count or self.is_lost)
        return self.of(kind)

    async def framed(self, count: int) -> list[Frame]:
        await until(lambda: len(self.frames) >= count or self.is_lost)
        return self.frames


def _binary(octets: bytes) -> BytesMessage:
    return BytesMessage(data=octets)


class Served(Bridge):
    async def browser(self, name: str = "web", shows: bool = False, **request: Any) -> Browser:
        endpoint: Any
        if name == "secure":
            endpoint = HostnameEndpoint(clock, "127.0.0.1", self.service.ports[name])
            endpoint = wrapClientTLS(CERTIFICATES.client(shows), endpoint)
        else:
            endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", self.service.ports[name])
        browser: Browser = await connectProtocol(endpoint, Browser(**request))  # type: ignore[no-untyped-call]
        return browser

    async def opened(self, name: str = "web") -> Browser:
        browser = await self.browser(name)
        await browser.heard(AcceptConnection)
        browser.say(_binary(CONNECT))
        [answer] = await browser.framed(1)
        assert answer.head.command == "CONNECTED"
        browser.frames.clear()
        return browser


Serving = Callable[..., Awaitable[Served]]


@pytest_twisted.async_yield_fixture
async def serving() -> AsyncIterator[Serving]:
    bridges: list[Served] = []

    async def start(**options: Any) -> Served:
        bridge = Served(tls=True, **{"others": _LISTENERS, **options})
        await bridge.service.start()
        bridges.append(bridge)
        return bridge

    yield start
    for bridge in bridges:
        await bridge.service.stop()


@on_reactor
async def test_its_ports_are_announced_and_withdrawn() -> None:
    bridge = Bridge(tls=True, others=_LISTENERS)
    await bridge.service.start()
    ports = bridge.service.ports
    assert bridge.registered == {
        "stomp[bridge] stomp[TCP] stomp[bridge]": ports["tcp"],
        "sslstomp[bridge] stomp[SSL/TLS] stomp[bridge]": ports["tls"],
        "stomp-web[bridge] stomp[WS] stomp[bridge]": ports["web"],
        "stomp-secure[bridge] stomp[WSS] stomp[bridge]": ports["secure"],
    }
    assert bridge.service.listeners.said == [
        f"STOMP over TCP on 127.0.0.1:{ports['tcp']}",
        f"STOMP over TLS on 127.0.0.1:{ports['tls']}",
        f"STOMP over WebSocket on 127.0.0.1:{ports['web']}, listener web",
        f"STOMP over WebSocket over TLS on 127.0.0.1:{ports['secure']}, listener secure",
    ]
    await bridge.service.stop()
    assert bridge.registered == {}


@pytest.mark.parametrize("name", ["web", "secure"])
@on_reactor
async def test_a_session_sends_receives_and_ends(name: str, serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened(name)
    assert browser.of(AcceptConnection)[0].subprotocol == "v12.stomp"
    [client] = bridge.service.clients
    assert (client.service, client.protocol) == (f"stomp-{name}", "STOMP 1.2")
    browser.say(_binary(_SUBSCRIBE))
    assert (await browser.framed(1))[0].head.headers["receipt-id"] == "r"
    bridge.provider.connection.consumers[0].push(message(b"hello"))
    assert (await browser.framed(2))[1].body == b"hello"
    browser.say(TextMessage(data="SEND\ndestination:/queue/a\nreceipt:t\n\n\u20ac\0"))
    assert (await browser.framed(3))[2].head.headers["receipt-id"] == "t"
    browser.say(_binary(b"DISCONNECT\nreceipt:bye\n\n\0"))
    assert (await browser.framed(4))[3].head.headers["receipt-id"] == "bye"
    await browser.lost
    [close] = browser.of(CloseConnection)
    assert (close.code, close.reason) == (Code.NORMAL, "the session has ended")
    await until(lambda: not bridge.service.counters.connections)


@on_reactor
async def test_a_certificate_stands_in_for_login(serving: Serving) -> None:
    asking = Listener("secure", 0, "127.0.0.1", True, True, Rules())
    bridge = await serving(others=(asking,), session=SessionOptions(certificate_login=True))
    browser = await bridge.browser("secure", shows=True)
    await browser.heard(AcceptConnection)
    browser.say(_binary(b"CONNECT\naccept-version:1.2\n\n\0"))
    [answer] = await browser.framed(1)
    assert answer.head.command == "CONNECTED"
    assert bridge.provider.credentials.certificate == "alice"


@on_reactor
async def test_frames_span_messages_and_share_them(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    frames = b"".join(
        b"SEND\ndestination:/queue/a\nreceipt:%d\n\nx\0" % number for number in range(40)
    )
    for at in range(0, len(frames), 37):
        browser.say(_binary(frames[at : at + 37]))
    receipts = [frame.head.headers["receipt-id"] for frame in await browser.framed(40)]
    assert receipts == [str(number) for number in range(40)]


@on_reactor
async def test_a_body_that_is_no_text_comes_in_a_binary_message(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    browser.say(_binary(_SUBSCRIBE))
    await browser.framed(1)
    consumer = bridge.provider.connection.consumers[0]
    assert browser.of(BytesMessage) == []
    texts = len(browser.of(TextMessage))
    consumer.push(message("caf\u00e9".encode()))
    await browser.framed(2)
    assert len(browser.of(TextMessage)) == texts + 1
    consumer.push(message(b"\xff\x00\xfe" * 100_000))
    assert (await browser.framed(3))[2].body == b"\xff\x00\xfe" * 100_000
    assert browser.of(BytesMessage)


@on_reactor
async def test_a_ping_is_answered_in_the_midst_of_a_frame(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    browser.say(
        _binary(b"SEND\ndestination:/queue/a\nreceipt:1\n\nha"),
        Ping(payload=b"there?"),
        Ping(payload=b"and there?"),
        Pong(payload=b"unasked"),
        _binary(b"lf\0"),
    )
    answers = await browser.heard(Pong, 2)
    assert [pong.payload for pong in answers] == [b"there?", b"and there?"]
    await browser.framed(1)


@on_reactor
async def test_pings_are_no_heart_beats(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.browser()
    await browser.heard(AcceptConnection)
    browser.say(_binary(CONNECT.replace(b"\n\n", b"\nheart-beat:0,600\n\n")))
    await browser.framed(1)
    beats = len(browser.of(TextMessage))
    pinging = LoopingCall(lambda: browser.say(Ping(payload=b"x")))
    pinging.clock = clock
    pinging.start(0.05)
    await until(lambda: len(browser.of(TextMessage)) > beats + 2)
    pinging.stop()


@on_reactor
async def test_one_that_closes_while_its_passcode_waits_is_gone(serving: Serving) -> None:
    bridge = await serving()
    waiting: list[Deferred[Connection]] = []
    bridge.provider.undecided = waiting
    browser = await bridge.browser()
    await browser.heard(AcceptConnection)
    browser.say(_binary(CONNECT), CloseConnection(code=1000))
    await until(lambda: waiting)
    await browser.lost
    assert browser.of(CloseConnection)
    assert waiting[0].called, "the broker was not told to give up"
    await until(lambda: not bridge.service.counters.connections)
    assert not bridge.service.clients


@pytest.mark.parametrize("name", ["web", "secure"])
@on_reactor
async def test_a_client_that_closes_gets_what_it_is_owed_and_its_code_back(
    name: str, serving: Serving
) -> None:
    bridge = await serving()
    browser = await bridge.opened(name)
    bridge.provider.holds_completions = True
    browser.say(
        _binary(b"SEND\ndestination:/queue/a\nreceipt:owed\n\nx\0"),
        CloseConnection(code=3333, reason="enough"),
    )
    await until(lambda: bridge.provider.calls("send"))
    assert not browser.of(CloseConnection)
    bridge.provider.complete()
    await browser.lost
    assert [frame.head.headers["receipt-id"] for frame in browser.frames] == ["owed"]
    assert browser.of(CloseConnection)[0].code == 3333


@on_reactor
async def test_all_that_came_before_a_close_is_carried_out(serving: Serving) -> None:
    bridge = await serving()
    count = 30_000
    sends = b"".join(b"SEND\ndestination:/queue/a\nn:%d\n\nx\0" % number for number in range(count))
    browser = await bridge.opened()
    browser.say(_binary(sends), CloseConnection(code=1000))
    await browser.lost
    assert bridge.service.counters.messages_in == count
    # One that does not wait for CONNECTED, either.
    browser = await bridge.browser()
    await browser.heard(AcceptConnection)
    browser.say(_binary(CONNECT + sends), CloseConnection(code=1000))
    await browser.lost
    assert bridge.service.counters.messages_in == 2 * count


@on_reactor
async def test_nothing_is_delivered_to_one_that_has_closed(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    browser.say(_binary(_SUBSCRIBE))
    await browser.framed(1)
    consumer = bridge.provider.connection.consumers[0]
    browser.say(CloseConnection(code=1000))
    await browser.heard(CloseConnection)
    assert bridge.provider.connections[0].closed
    assert not consumer.running or consumer.closed
    await browser.lost
    assert bridge.provider.calls("acknowledge through") == []


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (b"NONSENSE\n\n\0", Code.PROTOCOL_ERROR, "NONSENSE"),
        (b"SUBSCRIBE\nid:s\ndestination:nowhere\n\n\0", Code.POLICY, "nowhere"),
    ],
)
@on_reactor
async def test_an_error_is_told_by_a_frame_and_by_the_close(
    said: bytes, code: Code, words: str, serving: Serving
) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    browser.say(_binary(said))
    await browser.lost
    assert browser.frames[-1].head.command == "ERROR"
    [close] = browser.of(CloseConnection)
    assert words in close.reason
    assert close.code == code


@on_reactor
async def test_a_text_that_is_none_ends_the_connection_with_its_code(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    assert browser.transport is not None
    browser.transport.write(b"\x81\x81\0\0\0\0\xff")
    await browser.lost
    [close] = browser.of(CloseConnection)
    assert (close.code, close.reason) == (
        Code.INVALID_TEXT,
        "WebSocket: a text message is not UTF-8",
    )
    assert browser.frames[-1].head.command == "ERROR"


@on_reactor
async def test_a_stopped_bridge_is_going_away(serving: Serving) -> None:
    bridge = await serving()
    browsers = [await bridge.opened(name) for name in ("web", "secure")]
    await bridge.service.stop("the STOMP bridge was stopped for maintenance")
    for browser in browsers:
        await browser.lost
        [close] = browser.of(CloseConnection)
        assert (close.code, close.reason) == (
            Code.GOING_AWAY,
            "the STOMP bridge was stopped for maintenance",
        )


@on_reactor
async def test_one_too_many_is_answered_by_http(serving: Serving) -> None:
    bridge = await serving(transport=TransportOptions(max_connections=1))
    await bridge.opened()
    browser = await bridge.browser()
    await browser.lost
    [rejected] = browser.of(RejectConnection)
    assert rejected.status_code == 503
    body = b"".join(bytes(each.data) for each in browser.of(RejectData))
    assert body == b"too many connections: 1 is the limit\n"


@on_reactor
async def test_a_request_for_something_else_is_answered_by_http(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.browser(target="/other")
    await browser.lost
    assert browser.of(RejectConnection)[0].status_code == 404
    await until(lambda: not bridge.service.counters.connections)


@on_reactor
async def test_a_client_that_never_asks_is_closed_after_the_time_to_connect(
    serving: Serving,
) -> None:
    bridge = await serving(transport=TransportOptions(connect_timeout_s=1))
    for request in (b"", b"GET /stomp HTTP/1.1\r\nHost: x\r\n"):
        client = await bridge.client()  # over TCP it hears an ERROR
        endpoint: Any = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports["web"])
        silent: Any = await connectProtocol(endpoint, _Silent(request))  # type: ignore[no-untyped-call]
        await silent.lost
        assert silent.octets.startswith(b"HTTP/1.1 503 ")
        assert silent.octets.endswith(b"not CONNECTED within 1 seconds\n")
        await client.lost
        assert "not CONNECTED" in client.frames[0].head.headers["message"]


class _Silent(Protocol):
    def __init__(self, octets: bytes) -> None:
        self._first = octets
        self.octets = b""
        self.lost: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._first)

    def dataReceived(self, data: bytes) -> None:
        self.octets += data

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.lost.callback(None)


@on_reactor
async def test_a_flood_of_pings_ends_the_connection(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    other = await bridge.opened()
    for _ in range(100):
        browser.say(*[Ping(payload=b"x" * 125)] * 100)
    [close] = await browser.heard(CloseConnection)
    assert close.code == 1008
    assert "pings" in close.reason
    other.say(_binary(b"SEND\ndestination:/queue/a\nreceipt:r\n\nlast\0"))
    await until(lambda: bridge.provider.calls("send"))


@on_reactor
async def test_a_client_that_sends_octet_by_octet_holds_up_no_other(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    body = b"x" * 20_000
    octets = b"SEND\ndestination:/queue/a\n\n" + body + b"\0"
    count: list[int] = []
    turns = LoopingCall(count.append, 1)
    turns.clock = clock
    ended = turns.start(0)
    browser.say(*[BytesMessage(data=bytes([octet]), message_finished=False) for octet in octets])
    await until(lambda: bridge.provider.calls("send"))
    turns.stop()
    await ended
    [(_, _, [sent])] = bridge.provider.calls("send")
    assert sent.body == body
    # Others have had their turn between.
    assert len(count) > 5 * len(octets) / MOST_AT_ONCE


@on_reactor
async def test_pings_of_a_client_that_does_not_read_pile_up_nothing(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    browser.say(_binary(_SUBSCRIBE))
    await browser.framed(1)
    transport: Any = browser.transport
    transport.pauseProducing()
    size = 8_000_000
    bridge.provider.connection.consumers[0].push(message(b"x" * size))
    await until(lambda: bridge.service.counters.octets_out > size)
    before = bridge.service.counters.octets_out
    browser.say(*[Ping(payload=b"%d" % number) for number in range(150)])
    browser.say(_binary(b"SEND\ndestination:/queue/a\n\nlast\0"))
    await until(lambda: bridge.provider.calls("send"))
    assert bridge.service.counters.octets_out == before
    transport.resumeProducing()
    # The newest is answered, when it reads.
    await until(lambda: any(pong.payload == b"149" for pong in browser.of(Pong)))


@on_reactor
async def test_a_client_that_does_not_answer_the_close_is_closed(serving: Serving) -> None:
    bridge = await serving()
    browser = await bridge.opened()
    browser.closes = False
    browser.say(_binary(b"DISCONNECT\nreceipt:bye\n\n\0"))
    await browser.heard(CloseConnection)
    await browser.lost
    await until(lambda: not bridge.service.counters.connections)
