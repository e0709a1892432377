"""Frames that are wrong, endless or unfinished, from clients that mean harm or are unlucky.

Each gets an ERROR that says what was wrong, and a close; or is dropped at its limit. Meanwhile a
bystander's messages come and go.
"""

from __future__ import annotations

import pytest

from tests.crash.client import HOST, Client, Frame, Gone, encode
from tests.gateway_process import GatewayProcess
from tests.hostile.bystander import Bystander
from tests.hostile.memory import MIB, resident

KIB = 1024


pytestmark = pytest.mark.usefixtures("bystander")


def refused(gateway: GatewayProcess, octets: bytes, *, connected: bool = True) -> Frame:
    """Send octets. :returns: the ERROR that answers them."""
    with Client(gateway.port, connect=connected) as client:
        client.write(octets)
        return client.error()


SEND = b"SEND\ndestination:/queue/hostile\n"

BAD = [
    (SEND + b"content-length:-1\n\nx\0", "content-length"),
    (SEND + b"content-length:1e3\n\nx\0", "content-length"),
    (SEND + b"content-length:\n\nx\0", "content-length"),
    (SEND + b"content-length: 1\n\nx\0", "content-length"),
    (SEND + b"content-length:0x10\n\nx\0", "content-length"),
    (SEND + "content-length:٣\n\nx\0".encode(), "content-length"),
    (SEND + b"content-length:99999999999999999999999999\n\n", "limit"),
    (SEND + b"content-length:" + b"9" * 9000 + b"\n\n", "limit"),
    (SEND + b"content-length:2097152\n\n", "may have 1048576"),
    (SEND + b"content-length:3\n\nabcdef\0", "NUL"),
    (SEND + b"\n\xff\xfe\x80 is no text\0", "UTF-8"),
    (SEND + b"note:\xff\xfe\n\nx\0", "UTF-8"),
    (SEND + b"note:a\\qb\n\nx\0", "escape"),
    (SEND + b"note:a\\\n\nx\0", "escape"),
    (SEND + b"no colon here\n\nx\0", "colon"),
    (SEND + b"note:" + b"x" * 11 * KIB + b"\n\nx\0", "longer than 10240"),
    (
        SEND + b"".join(b"h%d:x\n" % number for number in range(1001)) + b"\nx\0",
        "more than 1000 header",
    ),
    (b"S" * 500 + b"\n\n\0", "command"),
    (b"S" * 500, "command"),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\0", "command"),
    (b"\x01\x02\x03\x04\n\n\0", "command"),
    (b"send\ndestination:/queue/hostile\n\nx\0", "command"),
    (b"MESSAGE\n\n\0", "command"),
    (b"SEND\n\nx\0", "destination"),
    (b"SEND\ndestination:\n\nx\0", "destination"),
    (b"SEND\ndestination:nowhere\n\nx\0", "destination"),
    (b"ACK\nid:1-1\n\n\0", "ACK"),
    (b"ACK\nid:999999999999999999999999-1\n\n\0", "ACK"),
    (b"SUBSCRIBE\ndestination:/queue/hostile\nid:1\nselector:((((\n\n\0", "selector"),
    (
        b"SUBSCRIBE\ndestination:/queue/hostile\nid:1\nselector:"
        + b"(" * 5000
        + b"1=1"
        + b")" * 5000
        + b"\n\n\0",
        "",
    ),
    (b"SUBSCRIBE\ndestination:/queue/hostile\nid:1\nprefetch-count:many\n\n\0", "prefetch-count"),
    (b"CONNECT\nlogin:guest\npasscode:guest\n\n\0", "connected"),
    (b"COMMIT\ntransaction:none\n\n\0", "transaction"),
]


@pytest.mark.parametrize(
    ("octets", "word"), BAD, ids=[repr(octets[:60].decode("ascii", "replace")) for octets, _ in BAD]
)
def test_a_bad_frame_is_answered(octets: bytes, word: str, gateway: GatewayProcess) -> None:
    error = refused(gateway, octets)
    text = error.headers["message"] + error.body.decode()
    assert word.lower() in text.lower(), text
    assert "internal error" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("octets", "word"),
    [
        (b"SEND\ndestination:/queue/hostile\n\nx\0", "CONNECT"),
        (b"CONNECT\nlogin:guest\npasscode:guess\n\n\0", ""),
        (b"CONNECT\nlogin:\\\npasscode:guest\n\n\0", ""),
        (b"CONNECT\n\n\0", "login"),
        (b"CONNECT\naccept-version:9.9\nlogin:guest\npasscode:guest\n\n\0", "version"),
        (b"CONNECT\nheart-beat:x\nlogin:guest\npasscode:guest\n\n\0", "heart-beat"),
        (b"CONNECT\nlogin:guest\npasscode:guest\ncontent-length:70000\n\n", "may have 65536"),
        (
            b"CONNECT\n" + b"".join(b"h%d:%s\n" % (number, b"x" * 1000) for number in range(70)),
            "longer than 65536",
        ),
        (b"CONNECT\nlogin:guest\npasscode:guest\n\n" + b"x" * 70_000, "longer than 65536"),
    ],
)
def test_before_connected_little_is_taken(
    octets: bytes, word: str, gateway: GatewayProcess
) -> None:
    error = refused(gateway, octets, connected=False)
    assert word.lower() in (error.headers["message"] + error.body.decode()).lower()


def test_one_more_octet_than_the_limit_and_not_one_less(gateway: GatewayProcess) -> None:
    with Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/hostile.limit", "id": "1"})
        client.write(encode("SEND", {"destination": "/queue/hostile.limit"}, b"x" * MIB))
        assert len(client.message().body) == MIB
        # Without a length the limit is met while the body is read.
        client.write(b"SEND\ndestination:/queue/hostile.limit\n\n" + b"x" * MIB + b"\0")
        assert len(client.message().body) == MIB
        client.write(b"SEND\ndestination:/queue/hostile.limit\n\n" + b"x" * (MIB + 1))
        assert "longer than 1048576" in client.error().headers["message"]


@pytest.mark.parametrize(
    ("head", "octets"),
    [
        (b"SEND\ndestination:/queue/hostile\n\n", b"x" * MIB),
        (b"SEND\ndestination:/queue/hostile\ncontent-length:900000000\n\n", b"x" * MIB),
        (b"SEND\nnote:", b"x" * MIB),
        (b"SEND\n", b"name:value\n" * 90_000),
        (b"SEND\nnote:", b"\\n" * (MIB // 2)),
        (b"", b"SEND" * (MIB // 4)),
    ],
    ids=["body", "body of known length", "header line", "headers", "escapes", "command"],
)
@pytest.mark.parametrize("connected", [True, False])
def test_what_never_ends_takes_no_memory(
    head: bytes, octets: bytes, connected: bool, gateway: GatewayProcess
) -> None:
    """Limits are checked while octets come; those that come after the ERROR are read for a moment
    and dropped, so that it arrives.
    """
    before = resident(gateway.pid)
    with Client(gateway.port, connect=connected) as client:
        try:
            client.write(head)
            for _ in range(200):
                client.write(octets)
        except Gone:
            return
        finally:
            assert resident(gateway.pid) - before < 32 * MIB
        client.error()


def test_endless_newlines_are_heart_beats(gateway: GatewayProcess, bystander: Bystander) -> None:
    with Client(gateway.port) as client:
        for _ in range(20):
            client.write(b"\n" * MIB)
        client.store("/queue/hostile.newlines", b"still here")
        client.ask("SUBSCRIBE", {"destination": "/queue/hostile.newlines", "id": "1"})
        assert client.message().body == b"still here"


def test_a_frame_octet_by_octet(gateway: GatewayProcess, bystander: Bystander) -> None:
    octets = encode(
        "CONNECT", {"accept-version": "1.2", "host": HOST, "login": "guest", "passcode": "guest"}
    )
    octets += encode("SUBSCRIBE", {"destination": "/queue/hostile.slow", "id": "1"})
    octets += encode("SEND", {"destination": "/queue/hostile.slow"}, b"one by one\0and so on")
    with Client(gateway.port, connect=False) as client:
        for index in range(len(octets)):
            client.write(octets[index : index + 1])
        assert client.frame().command == "CONNECTED"
        assert client.message().body == b"one by one\0and so on"


@pytest.mark.parametrize(
    "octets",
    [b"SEND", b"SEND\ndest", b"SEND\ndestination:/queue/hostile.half\n\nha", b"\n\n\n", b"\0", b""],
)
def test_half_a_frame_and_gone(octets: bytes, gateway: GatewayProcess) -> None:
    for _ in range(20):
        with Client(gateway.port) as client:
            client.write(octets)
    with Client(gateway.port) as client:
        client.store("/queue/hostile.half", b"whole")
        client.ask("SUBSCRIBE", {"destination": "/queue/hostile.half", "id": "1"})
        assert client.message().body == b"whole"


def test_who_says_nothing_is_told_and_dropped(gateway: GatewayProcess) -> None:
    with Client(gateway.port, connect=False) as silent, Client(gateway.port, connect=False) as half:
        half.write(b"CONNECT\nlogin:gue")
        for client in (silent, half):
            assert "not CONNECTED within 3 seconds" in client.error().headers["message"]


def test_who_dribbles_is_dropped_all_the_same(
    gateway: GatewayProcess, bystander: Bystander
) -> None:
    """Octets that come do not prolong the time to be CONNECTED."""
    with Client(gateway.port, connect=False) as client:
        client.write(b"CONNECT\nnote:")
        client.socket.settimeout(0.05)
        for _ in range(2000):
            try:
                client.write(b"x")
                frame = client.frame()
            except TimeoutError:
                continue
            assert "not CONNECTED" in frame.headers["message"]
            return
        pytest.fail("it was never dropped")


def test_what_comes_with_the_error_changes_nothing(gateway: GatewayProcess) -> None:
    """Frames behind a bad one are not carried out, those before it are."""
    good = encode("SEND", {"destination": "/queue/hostile.after", "persistent": "true"}, b"before")
    late = encode("SEND", {"destination": "/queue/hostile.after", "persistent": "true"}, b"after")
    refused(gateway, good + b"NONSENSE\n\n\0" + late * 10)
    with Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/hostile.after", "id": "1"})
        assert client.message().body == b"before"
        client.send("/queue/hostile.after", b"end")
        assert client.message().body == b"end"


def test_the_error_has_the_receipt_of_the_frame(gateway: GatewayProcess) -> None:
    assert refused(gateway, b"SEND\nreceipt:here\n\nx\0").headers["receipt-id"] == "here"
    assert refused(gateway, SEND + b"receipt:there\nnote:\\q\n\nx\0").headers.get("receipt-id") in (
        None,
        "there",
    )
