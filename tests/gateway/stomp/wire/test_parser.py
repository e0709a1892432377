"""Frames out of octets: every case read whole, octet by octet and in pieces."""

from __future__ import annotations

import pytest

from gateway.stomp.wire import FrameParser, Limits, ProtocolError, Version
from tests.gateway.stomp.wire.reading import Plain, error_of, plain, read_alike

ALL = (Version.V1_0, Version.V1_1, Version.V1_2)
LATER = (Version.V1_1, Version.V1_2)

# name, versions, octets, frames
FRAMES: list[tuple[str, tuple[Version, ...], bytes, list[Plain]]] = [
    ("nothing", ALL, b"", []),
    ("heart-beats", ALL, b"\n\r\n\n", []),
    ("stray NULs", ALL, b"\0\n\0BEGIN\n\n\0\0", [("BEGIN", (), b"")]),
    ("no headers", ALL, b"DISCONNECT\n\n\0", [("DISCONNECT", (), b"")]),
    ("body to the NUL", ALL, b"SEND\na:b\n\nbody\0", [("SEND", (("a", "b"),), b"body")]),
    ("body with length", ALL, b"SEND\ncontent-length:3\n\na\0b\0", [("SEND", (("content-length", "3"),), b"a\0b")]),
    ("length 0", ALL, b"ACK\nid:1\ncontent-length:0\n\n\0", [("ACK", (("id", "1"), ("content-length", "0")), b"")]),
    ("leading zeros", ALL, b"SEND\ncontent-length:002\n\nab\0", [("SEND", (("content-length", "002"),), b"ab")]),
    ("blank lines in the body", ALL, b"SEND\n\n\n\na\n\n\0", [("SEND", (), b"\n\na\n\n")]),
    ("CR LF", ALL, b"SEND\r\na:b\r\n\r\nbody\0\r\n", [("SEND", (("a", "b"),), b"body")]),
    ("LF, then a blank CR LF", ALL, b"SEND\na:b\n\r\n\n\nbody\0", [("SEND", (("a", "b"),), b"\n\nbody")]),
    ("CR LF, then a blank LF", ALL, b"SEND\r\na:b\r\n\nbody\0", [("SEND", (("a", "b"),), b"body")]),
    ("CR LF without headers", ALL, b"BEGIN\r\n\r\n\0", [("BEGIN", (), b"")]),
    ("CR in a value", ALL, b"SEND\na:b\rc\r\n\n\0", [("SEND", (("a", "b\rc"),), b"")]),
    ("one CR of two is the line's", ALL, b"SEND\na:b\r\r\n\n\0", [("SEND", (("a", "b\r"),), b"")]),
    ("raw colons", ALL, b"SEND\na:b:c:\n\n\0", [("SEND", (("a", "b:c:"),), b"")]),
    ("empty value", ALL, b"SEND\na:\n\n\0", [("SEND", (("a", ""),), b"")]),
    ("first of repeated", ALL, b"SEND\na:1\nb:2\na:3\n\n\0", [("SEND", (("a", "1"), ("b", "2")), b"")]),
    ("first length of repeated", ALL, b"SEND\ncontent-length:1\ncontent-length:9\n\nx\0", [("SEND", (("content-length", "1"),), b"x")]),
    ("UTF-8", ALL, "SEND\nfenêtre:→\n\n\0".encode(), [("SEND", (("fenêtre", "→"),), b"")]),
    ("several", ALL, b"BEGIN\na:1\n\n\0\nSEND\n\nx\0COMMIT\n\n\0", [("BEGIN", (("a", "1"),), b""), ("SEND", (), b"x"), ("COMMIT", (), b"")]),
    ("padding is text", LATER, b"SEND\n a : b \n\n\0", [("SEND", ((" a ", " b "),), b"")]),
    ("padding is removed", (Version.V1_0,), b"SEND\n a : \tb \n\n\0", [("SEND", (("a", "b"),), b"")]),
    ("padded repeats", (Version.V1_0,), b"SEND\na:1\n a :2\n\n\0", [("SEND", (("a", "1"),), b"")]),
    ("no escapes", (Version.V1_0,), b"SEND\na:\\n\\x\\\n\n\0", [("SEND", (("a", "\\n\\x\\"),), b"")]),
    ("escapes", LATER, b"SEND\n\\ca\\n:\\\\n\\c\n\n\0", [("SEND", ((":a\n", "\\n:"),), b"")]),
    ("escaped CR", (Version.V1_2,), b"SEND\na:\\r\\n\n\n\0", [("SEND", (("a", "\r\n"),), b"")]),
    ("ids of ours", ALL, b"ACK\nid:12-7\n\n\0NACK\nid:12-8\n\n\0", [("ACK", (("id", "12-7"),), b""), ("NACK", (("id", "12-8"),), b"")]),
    ("ids of others", ALL, b"ACK\nid:ID:a@b\n\n\0ACK\nid:\n\n\0", [("ACK", (("id", "ID:a@b"),), b""), ("ACK", (("id", ""),), b"")]),
    ("two ids", ALL, b"ACK\nid:1\nid:2\n\n\0", [("ACK", (("id", "1"),), b"")]),
    ("body where 1.0 allows any", (Version.V1_0,), b"ACK\nid:1\n\nbody\0", [("ACK", (("id", "1"),), b"body")]),
    ("server frames", ALL, b"MESSAGE\nmessage-id:1\n\nx\0RECEIPT\nreceipt-id:1\n\n\0ERROR\n\ny\0",
     [("MESSAGE", (("message-id", "1"),), b"x"), ("RECEIPT", (("receipt-id", "1"),), b""), ("ERROR", (), b"y")]),
    ("CONNECT is not unescaped", LATER, b"CONNECT\npasscode:a\\b:\\c\n\n\0", [("CONNECT", (("passcode", "a\\b:\\c"),), b"")]),
    ("STOMP is not unescaped", LATER, b"STOMP\npasscode:a\\b\n\n\0", [("STOMP", (("passcode", "a\\b"),), b"")]),
    ("CONNECTED is not unescaped", LATER, b"CONNECTED\nsession:a\\b\n\n\0", [("CONNECTED", (("session", "a\\b"),), b"")]),
    ("CONNECT of 1.0 is trimmed", (Version.V1_0,), b"CONNECT\nlogin: a \n\n\0", [("CONNECT", (("login", "a"),), b"")]),
    ("CONNECT offering 1.0 is trimmed", (Version.V1_0,), b"CONNECT\naccept-version:1.0\nlogin: a \n\n\0",
     [("CONNECT", (("accept-version", "1.0"), ("login", "a")), b"")]),
    ("CONNECT offering more is not", (Version.V1_0,), b"CONNECT\npasscode: a \naccept-version:1.0,1.1\n\n\0",
     [("CONNECT", (("passcode", " a "), ("accept-version", "1.0,1.1")), b"")]),
    ("CONNECTED with 1.2 is not", (Version.V1_0,), b"CONNECTED\nsession: a \nversion:1.2\n\n\0",
     [("CONNECTED", (("session", " a "), ("version", "1.2")), b"")]),
]  # fmt: skip

# name, versions, octets, what the message says, receipt
FAULTS: list[tuple[str, tuple[Version, ...], bytes, str, str | None]] = [
    ("unknown command", ALL, b"SENDX\n\n\0", "unknown command 'SENDX'", None),
    ("unknown command with receipt", ALL, b"SENDX\nreceipt:r\n\n\0", "unknown command 'SENDX'", "r"),
    ("lower case", ALL, b"send\n\n\0", "unknown command 'send'", None),
    ("unprintable command", ALL, b"A\x1bB\n\n\0", "unknown command 'A?B'", None),
    ("command not UTF-8", ALL, b"\xff\nreceipt:r\n\n\0", "the command line is not UTF-8", "r"),
    ("command with padding", ALL, b"SEND \n\n\0", "unknown command 'SEND '", None),
    ("header not UTF-8", ALL, b"SEND\nreceipt:r\na:\xc3\n\n\0", "header line 2 is not UTF-8", "r"),
    ("surrogate", ALL, b"SEND\na:\xed\xa0\x80\n\n\0", "header line 1 is not UTF-8", None),
    ("no colon", ALL, b"SEND\nreceipt:r\npasscode\n\n\0", "header line 2 of SEND has no colon", "r"),
    ("no name", ALL, b"SEND\n:x\nreceipt:r\n\n\0", "header line 1 of SEND has no name", "r"),
    ("only padding for a name", (Version.V1_0,), b"SEND\n  :x\n\n\0", "header line 1 of SEND has no name", None),
    ("NUL in the command", ALL, b"BEGIN\0", "the command line has a NUL octet", None),
    ("NUL for the blank line", ALL, b"COMMIT\nreceipt:r\ntransaction:t\n\0BEGIN\n\n\0", "header line 3 has a NUL octet", "r"),
    ("NUL in a value", ALL, b"COMMIT\ntransaction:t\0\n\n\0", "header line 1 has a NUL octet", None),
    ("undefined escape", LATER, b"SEND\nreceipt:a\\cb\nx:\\t\n\n\0", r"header line 2 of SEND has the escape '\t'", "a:b"),
    ("undefined escape in a name", LATER, b"SEND\n\\x:1\n\n\0", r"header line 1 of SEND has the escape '\x'", None),
    ("undefined escape in a repeat", LATER, b"SEND\na:1\na:\\x\n\n\0", r"header line 2 of SEND has the escape '\x'", None),
    ("dangling backslash", LATER, b"SEND\na:b\\\n\n\0", "header line 1 of SEND has the escape '\\'", None),
    ("escape of 1.2", (Version.V1_1,), b"SEND\na:\\r\n\n\0", r"escape '\r', which STOMP 1.1 does not define", None),
    ("length not a number", ALL, b"SEND\nreceipt:r\ncontent-length:abc\n\n\0", "content-length is 'abc'", "r"),
    ("length empty", ALL, b"SEND\ncontent-length:\n\n\0", "content-length is ''", None),
    ("length negative", ALL, b"SEND\ncontent-length:-1\n\n\0", "content-length is '-1'", None),
    ("length signed", ALL, b"SEND\ncontent-length:+1\n\nx\0", "content-length is '+1'", None),
    ("length underscored", ALL, b"SEND\ncontent-length:1_0\n\n\0", "content-length is '1_0'", None),
    ("length in other digits", ALL, "SEND\ncontent-length:٣\n\nabc\0".encode(), "content-length is '٣'", None),
    ("length superscript", ALL, "SEND\ncontent-length:²\n\nab\0".encode(), "content-length is '²'", None),
    ("length padded", LATER, b"SEND\ncontent-length: 1\n\nx\0", "content-length is ' 1'", None),
    ("length huge", ALL, b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n\0", "content-length has 5000 digits", None),
    ("length above the limit", ALL, b"SEND\nreceipt:r\ncontent-length:99999999999\n\n", "content-length is 99999999999, and a body may have", "r"),
    ("no NUL after the length", ALL, b"SEND\nreceipt:r\ncontent-length:2\n\nabc\0", "SEND has no NUL after the 2 octets", "r"),
    ("body with ACK", LATER, b"ACK\nreceipt:r\n\nx\0", "ACK must not have a body", "r"),
    ("body announced with ACK", LATER, b"ACK\ncontent-length:1\n\n", "ACK must not have a body, and its content-length is 1", None),
    ("TLS on the plain port", ALL, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 40, "this is a TLS handshake", None),
    ("HTTP", ALL, b"GET /a/path/that/is/quite/long/enough HTTP/1.1\r\nHost: x\r\n\r\n", "this is an HTTP request", None),
]  # fmt: skip


@pytest.fixture
def parser() -> FrameParser:
    return FrameParser(Limits(), Version.V1_2)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\n" * 16])
@pytest.mark.parametrize("version", ALL)
def test_ends_of_lines_are_no_body(version: Version, ends: str) -> None:
    wire = f"BEGIN\ntransaction:t\n\n{ends}\0SEND\nx:y\n\nz\0".encode()
    frames, fault = read_alike(wire, version)
    assert ([frame[0] for frame in frames], fault) == (["BEGIN", "SEND"], None)


@pytest.mark.parametrize(
    ("version", "octets", "frames"),
    [
        pytest.param(version, octets, frames, id=f"{name}-{version}")
        for name, versions, octets, frames in FRAMES
        for version in versions
    ],
)
def test_frames(version: Version, octets: bytes, frames: list[Plain]) -> None:
    assert read_alike(octets, version) == (frames, None)


@pytest.mark.parametrize(
    ("version", "octets", "frames"),
    [
        pytest.param(version, octets, frames, id=f"{name}-{version}")
        for name, versions, octets, frames in FRAMES
        for version in versions
    ],
)
def test_frames_between_frames(version: Version, octets: bytes, frames: list[Plain]) -> None:
    other: Plain = ("SEND", (("x", "y"),), b"z")
    wire = b"SEND\nx:y\n\nz\0"
    assert read_alike(wire * 3 + octets + wire + octets, version) == (
        [other, other, other, *frames, other, *frames],
        None,
    )


@pytest.mark.parametrize(
    ("version", "octets", "says", "receipt"),
    [
        pytest.param(version, octets, says, receipt, id=f"{name}-{version}")
        for name, versions, octets, says, receipt in FAULTS
        for version in versions
    ],
)
def test_faults(version: Version, octets: bytes, says: str, receipt: str | None) -> None:
    error = error_of(octets, version)
    assert says in error.message
    assert error.message.isprintable()
    assert len(error.message) < 150
    assert error.receipt_id == receipt
    # Good frames before it are given first.
    found, after = read_alike(b"BEGIN\n\n\0" * 2 + octets, version)
    assert found == [("BEGIN", (), b"")] * 2
    assert after is not None
    assert after.message == error.message


def test_an_unknown_command_is_quoted_in_short() -> None:
    error = error_of(b"A" * 500 + b"\n\n\0", limits=Limits(command_length=1000))
    assert error.message == "unknown command '" + "A" * 32 + "...'"


def test_header_values_are_not_quoted() -> None:
    for octets in (
        b"CONNECT\npasscode secret\n\n\0",
        b"SEND\npasscode:secret\\x\n\n\0",
        b"SEND\npasscode:secret\xff\n\n\0",
    ):
        assert "secret" not in error_of(octets).message


def test_nothing_follows_an_error(parser: FrameParser) -> None:
    parser.receive(b"BEGIN\n\n\0BAD\nreceipt:r\n\n\0BEGIN\n\n\0")
    assert [plain(frame) for frame in parser.frames(10)] == [("BEGIN", (), b"")]
    for _ in range(2):
        with pytest.raises(ProtocolError, match="unknown command 'BAD'") as caught:
            parser.frames(10)
        assert caught.value.receipt_id == "r"
        with pytest.raises(ProtocolError, match="unknown command 'BAD'"):
            parser.next()
        parser.receive(b"BEGIN\n\n\0")
        parser.change_rules(Version.V1_1, Limits())
        assert parser.buffered == 0
        assert not parser.wants_data


def test_next_gives_one_frame_at_a_time(parser: FrameParser) -> None:
    assert parser.next() is None
    parser.receive(b"BEGIN\n\n\0COMMIT\n\n\0ABO")
    first, second = parser.next(), parser.next()
    assert first is not None
    assert second is not None
    assert (first.head.command, second.head.command) == ("BEGIN", "COMMIT")
    assert parser.next() is None
    parser.receive(b"RT\n\n\0")
    third = parser.next()
    assert third is not None
    assert third.head.command == "ABORT"


def test_frames_gives_no_more_than_asked(parser: FrameParser) -> None:
    parser.receive(b"SEND\na:b\n\nx\0" * 10)
    assert [len(parser.frames(most)) for most in (0, 3, 1, 4, 5, 5)] == [0, 3, 1, 4, 2, 0]


@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP", b"CONNECTED"])
def test_a_run_ends_where_the_version_is_settled(command: bytes) -> None:
    octets = command + b"\naccept-version:1.2\nversion:1.2\n\n\0SEND\na: \\c\n\n\0"
    for size in (1, len(octets)):
        parser = FrameParser(Limits(header_block=65536, body=65536, frame=65536))
        found = []
        for at in range(0, len(octets), size):
            parser.receive(octets[at : at + size])
            while frames := parser.frames(100):
                found += frames
                if frames[-1].head.command == command.decode():
                    assert len(frames) == 1
                    parser.change_rules(Version.V1_2, Limits())
        assert [frame.head.headers.get("a") for frame in found] == [None, " :"]


def test_version_and_limits_hold_for_what_is_partly_received() -> None:
    parser = FrameParser(Limits(body=4), Version.V1_0)
    parser.receive(b"SEND\na: \\c\n\n12345"[:-1])
    assert parser.next() is None
    parser.change_rules(Version.V1_2, Limits(body=5))
    assert parser.next() is None
    parser.receive(b"5\0")
    frame = parser.next()
    assert frame is not None
    assert plain(frame) == ("SEND", (("a", " :"),), b"12345")


def test_buffered_and_wants_data(parser: FrameParser) -> None:
    assert (parser.buffered, parser.wants_data) == (0, True)
    parser.receive(b"")
    assert (parser.buffered, parser.wants_data) == (0, True)
    parser.receive(b"\nBEGIN\n\n\0")
    parser.receive(b"COMMIT\n")
    assert (parser.buffered, parser.wants_data) == (16, False)
    assert len(parser.frames(1)) == 1
    assert (parser.buffered, parser.wants_data) == (7, False)
    assert parser.frames(1) == []
    assert (parser.buffered, parser.wants_data) == (7, True)
    for octet in b"a:b\n\n":
        parser.receive(bytes([octet]))
        assert not parser.wants_data
        assert parser.frames(1) == []
    assert (parser.buffered, parser.wants_data) == (12, True)
    parser.receive(b"\0\n\n")
    assert len(parser.frames(1)) == 1
    assert parser.frames(1) == []
    assert (parser.buffered, parser.wants_data) == (0, True)


def test_a_head_tells_its_length_and_does_not_show_the_passcode(parser: FrameParser) -> None:
    parser.receive(b"SEND\ncontent-length:2\n\nab\0SEND\n\n\0STOMP\npasscode:secret\n\n\0")
    lengths = []
    while frame := parser.next():
        lengths.append(frame.head.content_length)
        assert "secret" not in repr(frame)
    assert lengths == [2, -1, -1]


@pytest.mark.parametrize("extra", ["", "receipt:r\n", "selector:a\\cb\n"])
def test_a_run_ends_after_subscribe(extra: str, parser: FrameParser) -> None:
    """It may take long to carry out, and somebody looks at the clock between two runs."""
    frames = [f"SUBSCRIBE\nid:{number}\ndestination:/queue/q\n{extra}\n\0" for number in (1, 2, 2)]
    parser.receive("".join([*frames, "BEGIN\ntransaction:t\n\n\0", frames[0]]).encode())
    assert [[frame.head.command for frame in parser.frames(64)] for _ in range(5)] == [
        ["SUBSCRIBE"],
        ["SUBSCRIBE"],
        ["SUBSCRIBE"],
        ["BEGIN", "SUBSCRIBE"],
        [],
    ]
