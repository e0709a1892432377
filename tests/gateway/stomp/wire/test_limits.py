"""Each limit: exactly it is accepted, one more is refused, and refused while the octets gather."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest

from gateway.stomp.wire import FrameParser, Limits, ProtocolError, Version
from tests.gateway.stomp.wire.reading import error_of, read, read_alike

#: Small, so that each can be reached alone.
SMALL = Limits(
    command_length=11,
    header_line=100,
    header_count=4,
    header_lines=6,
    header_block=200,
    body=300,
    frame=1000,
)


def headers(count: int, *, same: bool = False) -> bytes:
    return b"".join([b"a:1\n" if same else b"a%d:1\n" % number for number in range(count)])


def block(size: int) -> bytes:
    """A header block of `size` octets, blank line included."""
    front = b"SEND\na:" + b"x" * 80 + b"\nb:" + b"x" * 50 + b"\nc:"
    return front + b"x" * (size - len(front) - 2) + b"\n\n"


# The limit, octets that have `size` of it, what is said above it, and how many octets it takes to
# know.
Case = tuple[str, int, Callable[[int], bytes], str]
CASES: list[Case] = [
    ("command_length", 9, lambda size: b"SUBSCRIBE"[:size] + b"X" * (size - 9) + b"\n\n\0", "the command line is longer than 9 octets"),
    ("header_line", 100, lambda size: b"SEND\na:" + b"x" * (size - 2) + b"\n\n\0", "header line 1 is longer than 100 octets"),
    ("header_line", 100, lambda size: b"SEND\r\nb:1\r\na:" + b"x" * (size - 2) + b"\r\n\r\n\0", "header line 2 is longer than 100 octets"),
    ("header_count", 4, lambda size: b"SEND\n" + headers(size) + b"\n\0", "the frame has more than 4 headers"),
    ("header_lines", 6, lambda size: b"SEND\n" + headers(size, same=True) + b"\n\0", "the frame has more than 6 header lines"),
    ("header_block", 200, lambda size: block(size) + b"\0", "the headers are longer than 200 octets"),
    ("body", 300, lambda size: b"SEND\n\n" + b"x" * size + b"\0", "the body is longer than 300 octets"),
    ("body", 300, lambda size: b"SEND\ncontent-length:%d\n\n" % size + b"x" * size + b"\0", "content-length is 301, and a body may have 300"),
    ("frame", 250, lambda size: b"SEND\n\n" + b"x" * (size - 7) + b"\0", "the frame is longer than 250 octets"),
    ("frame", 250, lambda size: b"SEND\ncontent-length:%d\n\n" % (size - 26) + b"x" * (size - 26) + b"\0", "and a frame may have 250 octets"),
    ("frame", 170, lambda size: block(size - 1) + b"\0", "the frame is longer than 170 octets"),
    ("frame", 40, lambda size: b"ACK\nid:" + b"1" * (size - 10) + b"\n\n\0", "the frame is longer than 40 octets"),
    ("frame", 40, lambda size: b"ACK\nid:" + b"1" * (size - 27) + b"\ncontent-length:0\n\n\0", "the frame is longer than 40 octets"),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "value", "octets", "says"), CASES)
@pytest.mark.parametrize("version", list(Version))
def test_within_and_over(
    limit: str, value: int, octets: Callable[[int], bytes], says: str, version: Version
) -> None:
    limits = replace(SMALL, **{limit: value})
    good = octets(value)
    found, error = read_alike(good + good, version, limits)
    assert error is None
    assert len(found) == 2
    assert says in error_of(octets(value + 1), version, limits).message
    # Nor does it pass behind frames that the parser has come to know.
    found, error = read_alike(good * 3 + octets(value + 1), version, limits)
    assert len(found) == 3
    assert error is not None
    assert says in error.message


@pytest.mark.parametrize(("limit", "value", "octets", "says"), CASES)
def test_over_is_known_before_the_frame_is_whole(
    limit: str, value: int, octets: Callable[[int], bytes], says: str
) -> None:
    parser = FrameParser(replace(SMALL, **{limit: value}), Version.V1_2)
    bad = octets(value + 50)[:-3]
    said = None
    for at in range(len(bad)):
        parser.receive(bad[at : at + 1])
        try:
            assert parser.next() is None
        except ProtocolError as error:
            said = error.message
            break
    assert said is not None
    assert says.replace("is 301", "is 350") in said
    assert parser.buffered == 0


def test_an_announced_body_is_refused_before_it_comes() -> None:
    parser = FrameParser(Limits(), Version.V1_2)
    parser.receive(b"SEND\ncontent-length:%d\n\n" % (70 * 1024 * 1024 + 1))
    with pytest.raises(ProtocolError, match="content-length is 73400321"):
        parser.next()


def test_the_default_limits_accept_what_they_say() -> None:
    lines = [b"a%d:" % number + b"x" * (10 * 1024 - 3) for number in range(6)]
    octets = b"SEND\n" + b"\n".join(lines) + b"\n\n\0"
    found, error = read([octets])
    assert error is None
    assert len(found[0][1]) == 6


def test_before_connect_a_frame_is_at_most_64_kib() -> None:
    for octets in (
        b"CONNECT\n\n" + b"x" * 65536,
        b"CONNECT\n" + b"a:b\n" * 20000,
        b"SEND\n" + (b"a:" + b"x" * 10000 + b"\n") * 7,
    ):
        parser = FrameParser(Limits(header_block=65536, body=65536, frame=65536))
        parser.receive(octets)
        with pytest.raises(ProtocolError):
            parser.next()
    parser = FrameParser(Limits(header_block=65536, body=65536, frame=65536))
    parser.receive(b"CONNECT\n\n" + b"x" * (65536 - 10) + b"\0")
    frame = parser.next()
    assert frame is not None
    assert len(frame.body) == 65526


def test_repeated_headers_cost_no_memory() -> None:
    limits = Limits(header_count=1, header_lines=6000, header_block=6_100_000)
    octets = b"SEND\n" + (b"a:" + b"x" * 1000 + b"\n") * 6000 + b"\n\0"
    parser = FrameParser(limits, Version.V1_2)
    tracemalloc.start()
    try:
        for at in range(0, len(octets) - 2, 4096):
            parser.receive(octets[at : min(at + 4096, len(octets) - 2)])
            assert parser.next() is None
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # The octets themselves, and what a growing buffer has to spare.
    assert held < len(octets) * 1.3
    parser.receive(octets[-2:])
    frame = parser.next()
    assert frame is not None
    assert frame.head.headers == {"a": "x" * 1000}


def test_padded_repeats_are_repeats_in_1_0() -> None:
    found, error = read_alike(b"SEND\na:1\n a :2\n\n\0", Version.V1_0, Limits(header_count=1))
    assert (found, error) == ([("SEND", (("a", "1"),), b"")], None)
    assert (
        "more than 1 headers"
        in error_of(b"SEND\na:1\n a :2\n\n\0", Version.V1_2, Limits(header_count=1)).message
    )


def test_a_large_body_exists_at_most_twice() -> None:
    size = 16 * 1024 * 1024
    piece = bytes(65536)
    for head in (b"SEND\ncontent-length:%d\n\n" % size, b"SEND\n\n"):
        piece = (b"\0" if b"length" in head else b"x") * 65536
        parser = FrameParser(Limits(), Version.V1_2)
        tracemalloc.start()
        try:
            parser.receive(head)
            for _ in range(size // len(piece)):
                parser.receive(piece)
                assert parser.next() is None
            parser.receive(b"\0BEGIN\n\n\0")
            frame = parser.next()
            peak = tracemalloc.get_traced_memory()[1]
            assert frame is not None
            assert (len(frame.body), parser.buffered) == (size, 8)
            assert tracemalloc.get_traced_memory()[0] < size * 1.1
        finally:
            tracemalloc.stop()
        # Twice, and an eighth that a growing buffer has to spare.
        assert peak < size * 2.3


def test_limits_are_values() -> None:
    assert Limits() == Limits()
    with pytest.raises(FrozenInstanceError):
        Limits().body = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="limit frame is 0, expected at least 1"):
        Limits(frame=0)
    with pytest.raises(ValueError, match="limit body is -1, expected at least 0"):
        Limits(body=-1)
