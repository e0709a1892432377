"""Which requests become WebSocket's, and what those hear that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request

from gateway.stomp.websocket.upgrade import (
    ANY_ORIGIN,
    SUBPROTOCOLS,
    Agreed,
    Rules,
    Upgrade,
    UpgradeRefused,
)

_HEADERS = {
    "Host": "broker.example.org:7674",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Version": "13",
    # RFC 6455, section 1.3.
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def _request(path: str = "/stomp", method: str = "GET", **changed: str | None) -> bytes:
    headers = {**_HEADERS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([*lines, "", ""]).encode()


def _agreed(octets: bytes, rules: Rules | None = None) -> Agreed:
    agreed = Upgrade(rules or Rules()).receive(octets)
    assert agreed is not None
    return agreed


def _refused(octets: bytes, rules: Rules | None = None) -> UpgradeRefused:
    with pytest.raises(UpgradeRefused) as raised:
        Upgrade(rules or Rules()).receive(octets)
    head, _, body = raised.value.answer.partition(b"\r\n\r\n")
    assert body.decode() == f"{raised.value}\n"
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"
    return raised.value


def test_the_answer_is_the_one_of_the_standard() -> None:
    agreed = _agreed(_request(Sec_WebSocket_Protocol="chat, v12.stomp", X_Forwarded_For="1.2.3.4"))
    lines = agreed.answer.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in lines
    assert "Sec-WebSocket-Protocol: v12.stomp" in lines
    assert agreed.headers["x-forwarded-for"] == "1.2.3.4"


@given(st.binary(max_size=50), st.integers(0, 300))
def test_another_implementation_takes_the_answer(rest: bytes, place: int) -> None:
    client = WSConnection(ConnectionType.CLIENT)
    octets = client.send(
        Request(host="localhost", target="/stomp?x=1", subprotocols=[*SUBPROTOCOLS])
    )
    upgrade = Upgrade(Rules())
    whole = octets + rest
    cut = 1 + place % (len(octets) - 1)
    assert upgrade.receive(whole[:cut]) is None
    agreed = upgrade.receive(whole[cut:])
    assert agreed is not None
    assert agreed.rest == rest
    client.receive_data(agreed.answer)
    (accepted,) = client.events()
    assert isinstance(accepted, AcceptConnection)
    assert accepted.subprotocol == "v12.stomp"


def test_who_names_no_subprotocol_gets_none() -> None:
    agreed = _agreed(_request())
    assert agreed.subprotocol == ""
    assert b"Protocol:" not in agreed.answer


@pytest.mark.parametrize(
    ("octets", "status", "text"),
    [
        (_request("/other"), 404, "STOMP is at /stomp"),
        (_request(method="POST"), 405, "begins with GET"),
        (_request(Upgrade=None), 426, "STOMP over WebSocket"),
        (_request(Connection="close"), 426, "STOMP over WebSocket"),
        (_request(Sec_WebSocket_Version="8"), 426, "version of WebSocket is 13"),
        (_request(Sec_WebSocket_Key="c2hvcnQ="), 400, "not 16 octets"),
        (_request(Sec_WebSocket_Key="\u00fc"), 400, "not 16 octets"),
        (_request(Sec_WebSocket_Key=None), 400, "not 16 octets"),
        (_request(Sec_WebSocket_Protocol="mqtt"), 400, "mqtt is spoken here: expected one of v12"),
        (_request(Content_Length="3") + b"abc", 400, "no body"),
        (_request(Host=None), 400, "HTTP/1.1"),
        (
            _request(Host=None, Origin="http://x").replace(b"/1.1", b"/1.0", 1),
            400,
            "needs HTTP/1.1",
        ),
        (b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", 400, "no request of HTTP/1.1"),
        (b"\x16\x03\x01\x02\x00\x01", 400, "no request of HTTP/1.1"),
        (_request(X=("y" * 20_000))[:18_000], 431, "no request of HTTP/1.1"),
    ],
)
def test_what_is_refused_is_told_why(octets: bytes, status: int, text: str) -> None:
    refused = _refused(octets)
    assert refused.answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert text in str(refused)


def test_what_a_client_may_do_to_be_agreed_to_is_in_the_headers() -> None:
    assert b"\r\nAllow: GET\r\n" in _refused(_request(method="POST")).answer
    assert b"\r\nUpgrade: websocket\r\n" in _refused(_request(Upgrade=None)).answer
    answer = _refused(_request(Sec_WebSocket_Version="8")).answer
    assert b"\r\nSec-WebSocket-Version: 13\r\n" in answer


@pytest.mark.parametrize(
    ("origin", "origins", "allowed"),
    [
        (None, (), True),
        # The page is another server's, on the same host.
        ("https://broker.example.org", (), True),
        ("http://BROKER.example.org:8080", (), True),
        ("https://evil.example", (), False),
        ("https://broker.example.org.evil.example", (), False),
        ("null", (), False),
        ("https://[", (), False),
        ("https://evil.example", (ANY_ORIGIN,), True),
        ("null", (ANY_ORIGIN,), True),
        ("https://shop.example.org", ("https://shop.example.org",), True),
        ("http://shop.example.org", ("https://shop.example.org",), False),
    ],
)
def test_a_page_may_connect_from_the_same_host_or_where_its_origin_is_named(
    origin: str | None, origins: tuple[str, ...], allowed: bool
) -> None:
    octets = _request(Origin=origin)
    rules = Rules(origins=origins)
    if allowed:
        _agreed(octets, rules)
    else:
        refused = _refused(octets, rules)
        assert refused.answer.startswith(b"HTTP/1.1 403 ")
        assert str(origin) in str(refused)


def test_a_probe_by_head_gets_no_body() -> None:
    with pytest.raises(UpgradeRefused) as raised:
        Upgrade(Rules()).receive(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert raised.value.answer.startswith(b"HTTP/1.1 404 ")
    assert raised.value.answer.endswith(b"\r\n\r\n")


def test_one_that_cannot_be_served_now_hears_so() -> None:
    answer = Upgrade(Rules()).refuse("too many connections: 10 is the limit")
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert answer.endswith(b"\r\n\r\ntoo many connections: 10 is the limit\n")
