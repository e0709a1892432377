"""The service on real sockets of the loopback: TCP, TLS, draining, mismatches, and what an operator
does.
"""

from __future__ import annotations

import datetime
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet import reactor, ssl
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    connectProtocol,
    wrapClientTLS,
)
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from gateway.messaging.provider import Connection
from gateway.reactor.turn import Turn
from gateway.stomp.service import NoListener, ServiceState, StompService, WrongState
from gateway.stomp.settings import SessionOptions, StompOptions, TransportOptions
from gateway.stomp.wire import Frame, FrameParser, Limits, Version
from tests.gateway.stomp.recording import RecordingProvider, message
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

clock: Any = reactor
CONNECT = b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:secret\n\n\0"


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    while not condition():
        await deferLater(clock, 0.005, lambda: None)


class SocketClient(Protocol):
    """A client on a socket."""

    def __init__(self) -> None:
        self.parser = FrameParser(Limits(), Version.V1_2)
        self.frames: list[Frame] = []
        self.octets = b""
        self.lost: Deferred[None] = Deferred()
        self.is_lost = False

    def dataReceived(self, data: bytes) -> None:
        self.octets = (self.octets + data)[:16] if len(self.octets) < 16 else self.octets
        self.parser.receive(data)
        while frames := self.parser.frames(100):
            self.frames += frames

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.is_lost = True
        self.lost.callback(None)

    def say(self, *octets: bytes) -> None:
        assert self.transport is not None
        self.transport.write(b"".join(octets))

    async def heard(self, count: int) -> list[Frame]:
        await until(lambda: len(self.frames) >= count or self.is_lost)
        return self.frames


class Certificates:
    """A self-signed certificate for the loopback, which clients trust and may show, too."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "staff"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "shop"),
            ]
        )
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        pem += key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.own = ssl.PrivateCertificate.loadPEM(pem)  # type: ignore[no-untyped-call]
        self.authority = ssl.Certificate.loadPEM(
            certificate.public_bytes(serialization.Encoding.PEM)
        )

    def server(self, client_auth: bool = False) -> Any:
        return self.own.options(self.authority) if client_auth else self.own.options()

    def client(self, shows: bool = False) -> Any:
        return ssl.optionsForClientTLS("localhost", self.authority, self.own if shows else None)


CERTIFICATES = Certificates()


class Bridge:
    """A started service and its provider."""

    def __init__(
        self,
        tls: bool = False,
        session: SessionOptions | None = None,
        transport: TransportOptions | None = None,
        client_auth: bool = False,
        **options: Any,
    ) -> None:
        self.turn = Turn(clock)
        self.provider = RecordingProvider(self.turn)
        self.registered: dict[str, int] = {}
        self.options = StompOptions(
            hostname="127.0.0.1",
            **{
                "tcp_port": 0,
                "tls_port": 0,
                "tls_enabled": tls,
                "tls_client_auth": client_auth,
                **options,
            },
            session=session or SessionOptions(),
            transport=transport or TransportOptions(),
        )
        self.service = StompService(
            clock,
            self.turn,
            self.provider,
            self.options,
            (lambda listener: CERTIFICATES.server(listener.client_auth)) if tls else None,
            register_port=self._register,
        )

    def state(self) -> ServiceState:
        return self.service.state

    def _register(self, name: str, protocol: str, type: str, port: int) -> Callable[[], None]:
        self.registered[f"{name} {protocol} {type}"] = port

        def remove() -> None:
            del self.registered[f"{name} {protocol} {type}"]

        return remove

    async def client(self, tls: bool = False, shows: bool = False) -> SocketClient:
        endpoint: Any
        if tls:
            endpoint = HostnameEndpoint(clock, "127.0.0.1", self.service.ports["tls"])
            endpoint = wrapClientTLS(CERTIFICATES.client(shows), endpoint)
        else:
            endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", self.service.ports["tcp"])
        client: SocketClient = await connectProtocol(endpoint, SocketClient())  # type: ignore[no-untyped-call]
        return client

    async def connected(self, tls: bool = False, shows: bool = False) -> SocketClient:
        client = await self.client(tls, shows)
        client.say(CONNECT)
        [answer] = await client.heard(1)
        assert answer.head.command == "CONNECTED"
        client.frames.clear()
        return client


Starting = Callable[..., Awaitable[Bridge]]


@pytest_twisted.async_yield_fixture
async def started() -> AsyncIterator[Starting]:
    """Starts a :class:`Bridge` with these options; the test's end stops it."""
    bridges: list[Bridge] = []

    async def start(**options: Any) -> Bridge:
        bridge = Bridge(**options)
        await bridge.service.start()
        bridges.append(bridge)
        return bridge

    yield start
    for bridge in bridges:
        await bridge.service.stop()


@on_reactor
async def test_a_bridge_starts_announces_its_ports_and_stops() -> None:
    bridge = Bridge(tls=True)
    assert bridge.state() is ServiceState.STOPPED
    await bridge.service.start()
    assert bridge.state() is ServiceState.STARTED
    assert bridge.registered == {
        "stomp[bridge] stomp[TCP] stomp[bridge]": bridge.service.ports["tcp"],
        "sslstomp[bridge] stomp[SSL/TLS] stomp[bridge]": bridge.service.ports["tls"],
    }
    with pytest.raises(WrongState):
        await bridge.service.start()
    await bridge.service.stop()
    assert bridge.state() is ServiceState.STOPPED
    assert bridge.registered == {}
    await bridge.service.start()
    await bridge.connected()
    await bridge.service.stop()
    await bridge.service.stop()


@on_reactor
async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    bridge = Bridge(tls=True, tls_port=taken.getsockname()[1])
    with pytest.raises(CannotListenError):
        await bridge.service.start()
    assert bridge.state() is ServiceState.STOPPED
    assert bridge.registered == {}
    taken.close()


@on_reactor
async def test_without_a_protocol_there_is_nothing_to_start() -> None:
    bridge = Bridge(tcp_enabled=False)
    with pytest.raises(NoListener, match=r"imq\.bridge\.stomp\.tcp\.enabled"):
        await bridge.service.start()


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_stopping_tells_each_client_and_closes(tls: bool, started: Starting) -> None:
    bridge = await started(tls=True)
    clients = [await bridge.connected(tls) for _ in range(3)]
    waiting = await bridge.client(tls)
    await until(lambda: bridge.service.counters.connections == 4)
    await bridge.service.stop("the STOMP bridge was stopped for maintenance")
    for client in [*clients, waiting]:
        await client.lost
        assert client.frames[-1].head.command == "ERROR"
        assert "maintenance" in client.frames[-1].head.headers["message"]
    assert all(connection.closed for connection in bridge.provider.connections)
    assert bridge.service.counters.connections == 0


@on_reactor
async def test_pausing_accepts_nobody_and_resuming_does_again(started: Starting) -> None:
    bridge = await started()
    client = await bridge.connected()
    client.say(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:r\n\n\0")
    await client.heard(1)
    await bridge.service.pause()
    assert bridge.state() is ServiceState.PAUSED
    assert not bridge.provider.connection.consumers[0].running
    with pytest.raises(Exception, match="refused"):
        await bridge.client()
    client.say(b"SEND\ndestination:/queue/a\nreceipt:still\n\nx\0")
    assert (await client.heard(2))[1].head.headers["receipt-id"] == "still"
    await bridge.service.resume()
    assert bridge.provider.connection.consumers[0].running
    await bridge.connected()
    await bridge.service.pause()
    await bridge.service.start()
    assert bridge.state() is ServiceState.STARTED


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_auto_deliveries_are_acknowledged_once_in_the_kernel_and_not_before(
    tls: bool, started: Starting
) -> None:
    bridge = await started(tls=True, session=SessionOptions(output_window=64 * 1024 * 1024))
    client = await bridge.connected(tls)
    client.say(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:r\n\n\0")
    await client.heard(1)
    consumer = bridge.provider.connection.consumers[0]
    consumer.push(message(b"small"))
    await until(lambda: bridge.provider.calls("acknowledge through"))
    assert (await client.heard(2))[1].body == b"small"
    assert client.transport is not None
    client.transport.pauseProducing()  # type: ignore[attr-defined]
    # More than both sockets' buffers hold, to a client that does not read.
    consumer.push(message(b"x" * 32 * 1024 * 1024))
    for _ in range(20):
        await deferLater(clock, 0.005, lambda: None)
    assert len(bridge.provider.calls("acknowledge through")) == 1
    client.transport.resumeProducing()  # type: ignore[attr-defined]
    await until(lambda: len(bridge.provider.calls("acknowledge through")) == 2)
    assert len((await client.heard(3))[2].body) == 32 * 1024 * 1024


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_what_the_kernel_takes_is_acknowledged_before_the_turn_goes_to_the_store(
    tls: bool, started: Starting
) -> None:
    bridge = await started(tls=True)
    client = await bridge.connected(tls)
    client.say(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:r\n\n\0")
    await client.heard(1)
    acknowledged: list[int] = []
    bridge.turn.begin()
    bridge.provider.connection.consumers[0].push(message(b"small"))
    bridge.turn.store(
        lambda: acknowledged.append(len(bridge.provider.calls("acknowledge through")))
    )
    bridge.turn.end()
    assert acknowledged == [1]
    assert (await client.heard(2))[1].body == b"small"


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("trailing", [b"", b"\r\n"])
@on_reactor
async def test_a_client_that_goes_while_its_passcode_waits_is_seen_to_go(
    trailing: bytes, tls: bool, started: Starting
) -> None:
    bridge = await started(tls=True, transport=TransportOptions(connect_timeout_s=3600))
    waiting: list[Deferred[Connection]] = []
    bridge.provider.undecided = waiting
    client = await bridge.client(tls)
    client.say(CONNECT, trailing)
    await until(lambda: waiting)
    assert client.transport is not None
    client.transport.loseConnection()
    await until(lambda: waiting[0].called)
    await until(lambda: not bridge.service._admission.connections)


@on_reactor
async def test_what_a_client_says_before_it_goes_is_carried_out_though_its_passcode_waits(
    started: Starting,
) -> None:
    bridge = await started()
    waiting: list[Deferred[Connection]] = []
    bridge.provider.undecided = waiting
    client = await bridge.client()
    client.say(CONNECT)
    await until(lambda: waiting)
    client.say(b"SEND\ndestination:/queue/a\n\nx\0")
    assert client.transport is not None
    client.transport.loseConnection()
    await client.lost
    waiting[0].callback(bridge.provider.connection)
    await until(lambda: bridge.provider.sent)


@on_reactor
async def test_what_is_given_to_tls_after_the_client_has_ended_it_is_not_acknowledged(
    started: Starting,
) -> None:
    bridge = await started(tls=True, session=SessionOptions(output_window=64 * 1024 * 1024))
    client = await bridge.connected(tls=True)
    client.say(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:r\n\n\0")
    await client.heard(1)
    consumer = bridge.provider.connection.consumers[0]
    assert client.transport is not None
    client.transport.pauseProducing()  # type: ignore[attr-defined]
    # More than both sockets' buffers hold, so that the gateway's end of the socket stays open for
    # what waits in it.
    consumer.push(message(b"x" * 32 * 1024 * 1024))
    client.transport.loseConnection()
    [connection] = bridge.service._admission.connections
    await until(lambda: connection._raw.disconnecting)
    consumer.push(message(b"after the end"))
    client.transport.resumeProducing()  # type: ignore[attr-defined]
    await client.lost
    await until(lambda: connection.is_gone)
    assert all(call[2] < 2 for call in bridge.provider.calls("acknowledge through"))
    assert all(frame.body != b"after the end" for frame in client.frames)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("sizes", [(70_000,), (1, 100), (5_000, 4_000, 300_000, 0)])
@on_reactor
async def test_a_client_that_reads_now_and_then_gets_every_octet_once_and_in_order(
    sizes: tuple[int, ...], tls: bool, started: Starting
) -> None:
    bridge = await started(tls=True, session=SessionOptions(output_window=64 * 1024 * 1024))
    client = await bridge.connected(tls)
    client.say(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nreceipt:r\n\n\0")
    await client.heard(1)
    bodies = [
        b"%d " % number + b"x" * sizes[number % len(sizes)]
        for number in range(6_000_000 // (sum(sizes) // len(sizes) + 2_000))
    ]
    assert client.transport is not None
    sent = 0
    bodies = bodies[: len(bodies) // 36 * 36]
    while sent < len(bodies):
        client.transport.pauseProducing()  # type: ignore[attr-defined]
        for _ in range(3):
            some = bodies[sent : sent + len(bodies) // 12]
            sent += len(some)
            bridge.turn.begin()
            bridge.provider.connection.consumers[0].push(*[message(body) for body in some])
            bridge.turn.end()
            await deferLater(clock, 0, lambda: None)
        client.transport.resumeProducing()  # type: ignore[attr-defined]
        await client.heard(1 + sent // 2)
    frames = await client.heard(1 + len(bodies))
    assert [frame.body for frame in frames[1:]] == bodies
    await until(lambda: bridge.provider.calls("acknowledge through")[-1][2] == len(bodies))


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_an_error_arrives_even_at_a_client_that_goes_on_sending(
    tls: bool, started: Starting
) -> None:
    bridge = await started(tls=True)
    client = await bridge.connected(tls)
    client.say(b"NONSENSE\nreceipt:r\n\n\0", b"SEND\ndestination:/queue/a\n\nx\0" * 50_000)
    await client.lost
    assert [frame.head.command for frame in client.frames] == ["ERROR"]
    assert (client.frames[0].head.headers["receipt-id"], bridge.provider.sent) == ("r", [])


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_disconnect_answers_last_and_closes(tls: bool, started: Starting) -> None:
    bridge = await started(tls=True)
    client = await bridge.connected(tls)
    client.say(b"SEND\ndestination:/queue/a\nreceipt:1\n\nx\0DISCONNECT\nreceipt:2\n\n\0")
    await client.lost
    assert [frame.head.headers["receipt-id"] for frame in client.frames] == ["1", "2"]
    assert bridge.provider.connection.closed


@on_reactor
async def test_a_plain_client_on_the_tls_port_is_told_so(started: Starting) -> None:
    bridge = await started(tls=True)
    endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports["tls"])
    client: SocketClient = await connectProtocol(endpoint, SocketClient())  # type: ignore[no-untyped-call]
    client.say(CONNECT)
    await client.lost
    assert "TLS" in client.frames[0].head.headers["message"]


@on_reactor
async def test_a_tls_client_on_the_plain_port_gets_an_alert(started: Starting) -> None:
    bridge = await started()
    client = await bridge.client()
    client.say(b"\x16\x03\x01\x02\x00\x01")
    await client.lost
    assert (client.octets[:1], bridge.provider.log) == (b"\x15", [])


@on_reactor
async def test_a_client_certificate_stands_in_for_login_where_allowed(started: Starting) -> None:
    bridge = await started(
        tls=True,
        client_auth=True,
        session=SessionOptions(certificate_login=True, certificate_groups=True),
    )
    client = await bridge.client(tls=True, shows=True)
    client.say(b"CONNECT\naccept-version:1.2\n\n\0")
    assert (await client.heard(1))[0].head.command == "CONNECTED"
    assert bridge.provider.credentials.certificate == "alice"
    assert bridge.provider.credentials.certificate_groups == frozenset(("staff", "shop"))
    without = await bridge.client(tls=True)
    without.say(b"CONNECT\naccept-version:1.2\n\n\0")
    await without.lost
    assert without.frames == []


@on_reactor
async def test_a_client_whose_certificate_is_revoked_is_told_and_closed_and_no_other_is(
    started: Starting,
) -> None:
    bridge = await started(tls=True, client_auth=True)
    shown = await bridge.connected(tls=True, shows=True)
    plain = await bridge.connected()
    asked: list[str] = []

    def is_revoked(certificate: x509.Certificate) -> bool:
        asked.append(certificate.subject.rfc4514_string())
        return len(asked) > 1

    bridge.service.end_revoked(is_revoked)
    shown.say(b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
    assert (await shown.heard(1))[0].head.headers["receipt-id"] == "r"
    bridge.service.end_revoked(is_revoked)
    await shown.lost
    assert shown.frames[-1].head.command == "ERROR"
    assert "revoked" in shown.frames[-1].head.headers["message"]
    plain.say(b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
    assert (await plain.heard(1))[0].head.headers["receipt-id"] == "r"
    assert asked == ["OU=shop,OU=staff,CN=alice"] * 2, "who shows no certificate is not asked about"


@on_reactor
@pytest.mark.parametrize("octets", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_a_handshake_that_does_not_end_in_time_is_closed_at_once(
    octets: bytes, started: Starting
) -> None:
    bridge = await started(tls=True, transport=TransportOptions(connect_timeout_s=1))
    endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports["tls"])
    client: SocketClient = await connectProtocol(endpoint, SocketClient())  # type: ignore[no-untyped-call]
    began = clock.seconds()
    client.say(octets)
    await client.lost
    # Without its own limit the test would be ended after a minute.
    assert clock.seconds() - began > 0.9
    assert (client.octets, bridge.service.counters.dropped) == (b"", 1)


@on_reactor
async def test_limits_count_over_both_listeners(started: Starting) -> None:
    bridge = await started(tls=True, transport=TransportOptions(max_connections=2))
    await bridge.connected()
    await bridge.connected(tls=True)
    for tls in (False, True):
        third = await bridge.client(tls)
        await third.lost
        assert "2 is the limit" in third.frames[0].head.headers["message"]


@on_reactor
async def test_a_producer_that_never_stops_is_read_in_slices(started: Starting) -> None:
    bridge = await started()
    client = await bridge.connected()
    client.say(
        b"SEND\ndestination:/queue/a\n\nx\0" * 20_000,
        b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0",
    )
    await client.heard(1)
    assert len(bridge.provider.sent) == 20_001
    assert len(bridge.provider.calls("send")) > 4
