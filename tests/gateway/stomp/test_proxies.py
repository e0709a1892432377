"""Who the client is, as proxies tell it: headers, and connections by them."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, wrapClientTLS
from wsproto.events import BytesMessage

from gateway.stomp.listeners import Listener
from gateway.stomp.proxies import UNKNOWN, BadProxyHeader, Proxies, Told, read_header
from gateway.stomp.settings import TransportOptions
from gateway.stomp.websocket.upgrade import Rules
from tests.gateway.stomp.test_service import (
    CERTIFICATES,
    CONNECT,
    Bridge,
    SocketClient,
    clock,
    until,
)
from tests.gateway.stomp.websocket.test_connection import Browser
from tests.logged import logged_lines
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_HERE = Proxies(["127.0.0.1", "10.0.0.0/8", "fd00::/8"])

_addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))
_ports = st.integers(0, 65_535)


def _version_1(source: Any, target: Any, port: int) -> bytes:
    return f"PROXY TCP{source.version} {source} {target} {port} 443\r\n".encode()


def _version_2(
    source: Any, target: Any, port: int, more: bytes = b"", command: int = 0x21
) -> bytes:
    rest: bytes = source.packed + target.packed + struct.pack("!HH", port, 443) + more
    kind = 0x11 if source.version == 4 else 0x21
    return _SIGNATURE + struct.pack("!BBH", command, kind, len(rest)) + rest


@given(st.sampled_from((4, 6)), st.data(), _ports, st.binary(max_size=40), st.binary(max_size=300))
def test_a_header_is_read_from_its_last_octet_on_and_not_before(
    version: int, data: st.DataObject, port: int, after: bytes, more: bytes
) -> None:
    source, target = (data.draw(st.ip_addresses(v=4 if version == 4 else 6)) for _ in range(2))
    for header in (_version_1(source, target, port), _version_2(source, target, port, more)):
        for cut in range(len(header)):
            assert read_header(header[:cut]) is None
        told = read_header(header + after)
        assert told is not None
        assert told.size == len(header)
        client: Any = told.client
        assert isinstance(client, IPv4Address if version == 4 else IPv6Address)
        assert ipaddress.ip_address(client.host) == source
        assert client.port == port


@pytest.mark.parametrize(
    "octets", [b"CONNECT\n", b"STOMP\n\n\0", b"\n", b"\r\nSTOMP", b"\x16\x03\x01", b"GET /stomp"]
)
def test_what_is_no_header_is_left_alone(octets: bytes) -> None:
    told = read_header(octets)
    # A line feed alone may be a heart-beat; a carriage return may also be the begin of a header.
    assert told == Told(None, 0)


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (b"PROXY UNKNOWN\r\n", 15),
        (b"PROXY UNKNOWN ff::1 what ever\r\n", 31),
        # A family that has no addresses of IP.
        (_SIGNATURE + b"\x21\x31\x00\x02ab", 18),
    ],
)
def test_a_header_may_say_nothing_of_a_client(header: bytes, size: int) -> None:
    assert read_header(header + b"rest") == Told(None, size)


def test_a_proxy_may_ask_for_itself() -> None:
    assert read_header(_SIGNATURE + b"\x20\x00\x00\x00rest") == Told(None, 16, own=True)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY \r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 x\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        b"PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP5 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 \xff 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 " + b"1" * 120,
        _SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12),
        _SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11),
        _SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(BadProxyHeader, match="header of version"):
        read_header(header)


@given(st.binary(max_size=250))
def test_whatever_comes_is_a_header_or_none_or_refused(octets: bytes) -> None:
    for begin in (b"", b"PROXY ", _SIGNATURE):
        try:
            told = read_header(begin + octets)
        except BadProxyHeader:
            continue
        assert told is None or told.size <= len(begin + octets)


@pytest.mark.parametrize(
    ("forwarded", "peer", "client"),
    [
        # The client of a proxy on this machine, which does not name it, may not do what others here may.
        ("", "127.0.0.1", UNKNOWN),
        ("127.0.0.1", "127.0.0.1", UNKNOWN),
        ("127.0.0.2, ::1", "127.0.0.1", UNKNOWN),
        ("203.0.113.7", "127.0.0.1", "203.0.113.7"),
        # What the client has written itself stands before what the proxies add.
        ("1.1.1.1, 203.0.113.7", "127.0.0.1", "203.0.113.7"),
        ("1.1.1.1, 203.0.113.7, 10.2.3.4", "127.0.0.1", "203.0.113.7"),
        ("10.9.9.9, 10.2.3.4", "127.0.0.1", "10.9.9.9"),
        ("203.0.113.7:4711", "127.0.0.1", "203.0.113.7"),
        ("[2001:db8::1]:4711", "127.0.0.1", "2001:db8::1"),
        ("2001:db8::1", "fd00::5", "2001:db8::1"),
        ("::ffff:203.0.113.7", "127.0.0.1", "203.0.113.7"),
        ("unknown", "127.0.0.1", UNKNOWN),
        # Who is on this machine may do more than others.
        ("127.0.0.1", "10.2.3.4", "10.2.3.4"),
        ("::1, 10.7.7.7", "10.2.3.4", "10.2.3.4"),
        ("unknown, 10.2.3.4", "127.0.0.1", "10.2.3.4"),
        ("203.0.113.7", "198.51.100.1", "198.51.100.1"),
    ],
)
def test_the_client_is_the_last_one_that_is_no_proxy(
    forwarded: str, peer: str, client: str
) -> None:
    assert _HERE.client(forwarded, peer) == client


def _bridge(proxies: Proxies, **transport: Any) -> Bridge:
    others = (
        Listener("plain", 0, "127.0.0.1", proxies=proxies),
        Listener("secure", 0, "127.0.0.1", tls=True, proxies=proxies),
        Listener("web", 0, "127.0.0.1", websocket=Rules(), proxies=proxies),
    )
    return Bridge(tls=True, others=others, transport=TransportOptions(**transport))


async def _client(bridge: Bridge, name: str) -> SocketClient:
    endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports[name])
    client: SocketClient = await connectProtocol(endpoint, SocketClient())  # type: ignore[no-untyped-call]
    return client


@pytest.mark.parametrize("header", [_version_1, _version_2])
@on_reactor
async def test_a_header_says_who_the_client_is(header: Any) -> None:
    bridge = _bridge(_HERE)
    await bridge.service.start()
    source = ipaddress.ip_address("203.0.113.7")
    client = await _client(bridge, "plain")
    client.say(header(source, source, 4711), CONNECT)
    await client.heard(1)
    [found] = bridge.service.clients
    assert (found.address, found.port) == ("203.0.113.7", 4711)
    # Without a header a client could write one.
    direct = await _client(bridge, "plain")
    direct.say(CONNECT)
    await direct.lost
    assert not direct.frames
    await bridge.service.stop()


@pytest.mark.parametrize(
    ("header", "address"),
    [
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 443\r\n", UNKNOWN),
        (b"PROXY TCP6 ::1 ::1 4711 443\r\n", UNKNOWN),
        (b"PROXY UNKNOWN\r\n", UNKNOWN),
        # Its own look at the gateway's health.
        (_SIGNATURE + b"\x20\x00\x00\x00", "127.0.0.1"),
    ],
)
@on_reactor
async def test_no_header_puts_a_client_on_this_machine(header: bytes, address: str) -> None:
    bridge = _bridge(_HERE)
    await bridge.service.start()
    client = await _client(bridge, "plain")
    client.say(header, CONNECT)
    await client.heard(1)
    [found] = bridge.service.clients
    assert found.address == address
    await bridge.service.stop()


@on_reactor
async def test_one_that_has_not_said_who_it_is_goes_with_the_listener() -> None:
    bridge = _bridge(_HERE)
    await bridge.service.start()
    client = await _client(bridge, "plain")
    source = ipaddress.ip_address("203.0.113.7")
    client.say(_version_1(source, source, 1)[:9])
    await bridge.service.stop()
    await client.lost


@on_reactor
async def test_a_header_comes_before_tls() -> None:
    bridge = _bridge(_HERE)
    await bridge.service.start()
    source = ipaddress.ip_address("2001:db8::7")
    header = _version_2(source, source, 1)

    class Announcing(TCP4ClientEndpoint):
        def connect(self, factory: Any) -> Any:
            connecting = super().connect(factory)
            build = factory.buildProtocol

            def announced(addr: Any) -> Any:
                protocol = build(addr)
                made = protocol.makeConnection

                def make(transport: Any) -> None:
                    transport.write(header)
                    made(transport)

                protocol.makeConnection = make
                return protocol

            factory.buildProtocol = announced
            return connecting

    endpoint = Announcing(clock, "127.0.0.1", bridge.service.ports["secure"])
    client: SocketClient = await connectProtocol(  # type: ignore[no-untyped-call]
        wrapClientTLS(CERTIFICATES.client(), endpoint), SocketClient()
    )
    client.say(CONNECT)
    await client.heard(1)
    [found] = bridge.service.clients
    assert found.address == "2001:db8::7"
    await bridge.service.stop()


@on_reactor
async def test_only_a_proxys_word_is_taken() -> None:
    bridge = _bridge(Proxies(["198.51.100.0/24"]))
    await bridge.service.start()
    client = await _client(bridge, "plain")
    client.say(b"PROXY TCP4 203.0.113.7 1.1.1.1 1 2\r\n", CONNECT)
    await client.lost
    assert client.frames[0].head.command == "ERROR"
    endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports["web"])
    forwarded = [(b"X-Forwarded-For", b"203.0.113.7")]
    browser: Browser = await connectProtocol(endpoint, Browser(extra_headers=forwarded))  # type: ignore[no-untyped-call]
    await until(lambda: browser.events)
    browser.say(BytesMessage(data=CONNECT))
    await until(lambda: bridge.service.clients)
    assert bridge.service.clients[0].address == "127.0.0.1"
    await bridge.service.stop()


@on_reactor
async def test_clients_behind_a_proxy_are_counted_each_by_its_address() -> None:
    bridge = _bridge(_HERE, max_connections_per_address=1)
    await bridge.service.start()
    endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports["web"])

    async def browser(address: str) -> Browser:
        forwarded = [(b"X-Forwarded-For", address.encode())]
        made: Browser = await connectProtocol(endpoint, Browser(extra_headers=forwarded))  # type: ignore[no-untyped-call]
        await until(lambda: made.events)
        return made

    first, second = [await browser(f"203.0.113.{number}") for number in (7, 8)]
    third = await browser("203.0.113.7")
    await third.lost
    assert "too many connections from 203.0.113.7" in third.frames[0].head.headers["message"]
    assert not first.is_lost
    assert not second.is_lost
    await bridge.service.stop()


@on_reactor
async def test_a_request_that_is_refused_is_logged_with_its_clients_address() -> None:
    bridge = _bridge(_HERE)
    await bridge.service.start()
    endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", bridge.service.ports["web"])
    headers = [(b"X-Forwarded-For", b"203.0.113.7"), (b"Origin", b"https://evil.example.org")]
    with logged_lines() as lines:
        browser: Browser = await connectProtocol(endpoint, Browser(extra_headers=headers))  # type: ignore[no-untyped-call]
        await browser.lost
    [refused] = [line for line in lines if "is refused" in line]
    assert "connection from 203.0.113.7 by 127.0.0.1" in refused
    await bridge.service.stop()


@pytest.mark.parametrize("octets", [b"", b"PROXY TCP4 1.2", b"PROXY nonsense\r\n"])
@on_reactor
async def test_a_proxy_that_sends_no_header_is_closed(octets: bytes) -> None:
    bridge = _bridge(_HERE, connect_timeout_s=1)
    await bridge.service.start()
    client = await _client(bridge, "plain")
    client.say(octets)
    await client.lost
    assert not client.frames
    await bridge.service.stop()
