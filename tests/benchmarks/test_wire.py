"""What the load generator sends is STOMP with the right numbers, and what it cuts out of a stream
is what went in.
"""

from __future__ import annotations

import re
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.wire import (
    SPAN,
    Block,
    Confirm,
    Cutter,
    Shape,
    ack_id,
    acks,
    command,
    frame,
    header,
    numbers,
)


def frames_of(octets: bytes | memoryview) -> list[bytes]:
    frames = bytes(octets).split(b"\0")
    assert frames.pop() == b""
    return frames


@pytest.mark.parametrize("producer", [0, 7, 99])
@pytest.mark.parametrize("messages", [1, 100])
@pytest.mark.parametrize("varying", [False, True])
def test_a_block_counts_on(producer: int, messages: int, varying: bool) -> None:
    block = Block(Shape("/queue/a", producer, 100, persistent=True, varying=varying), messages)
    for number in (0, 1, 31_415):
        frames = frames_of(block.fill(number))
        expected = [producer * SPAN + number * messages + index for index in range(messages)]
        assert numbers(frames) == expected
        for octets, count in zip(frames, expected, strict=True):
            head, body = octets.split(b"\n\n")
            assert command(octets) == b"SEND"
            assert header(octets, b"destination") == b"/queue/a"
            assert header(octets, b"persistent") == b"true"
            assert header(octets, b"content-length") == b"100"
            assert len(body) == 100
            assert (header(octets, b"correlation-id") == b"order-%012d" % count) == varying
            assert not set(b"@#$") & set(head)


@pytest.mark.parametrize("messages", [1, 100])
@pytest.mark.parametrize("confirm", [Confirm.NONE, Confirm.EACH_100])
def test_varying_headers_differ_in_every_message(messages: int, confirm: Confirm) -> None:
    block = Block(Shape("/queue/a", 1, confirm=confirm, varying=True), messages)
    frames = [octets for number in range(1000) for octets in frames_of(block.fill(number))]
    for name, pattern in (
        (b"correlation-id", rb"order-[0-9]{12}"),
        (b"created", rb"[0-9]{13}"),
        (b"trace", rb"[0-9a-f]{32}"),
    ):
        values = [header(octets, name) or b"" for octets in frames]
        assert len(set(values)) == len(frames)
        assert all(re.fullmatch(pattern, value) for value in values)


def test_a_receipt_each_100_is_asked_for_by_the_last_frame_only() -> None:
    frames = frames_of(Block(Shape("/queue/a", 3, confirm=Confirm.EACH_100)).fill(12))
    assert [header(octets, b"receipt") for octets in frames] == [None] * 99 + [b"03-00000012-r"]


def test_a_receipt_each_needs_blocks_of_one() -> None:
    assert (
        header(frames_of(Block(Shape("/queue/a", confirm=Confirm.EACH), 1).fill(5))[0], b"receipt")
        == b"00-0000000005-r"
    )
    with pytest.raises(ValueError, match="one message"):
        Block(Shape("/queue/a", confirm=Confirm.EACH), 100)


def test_a_transaction_is_begun_used_and_committed_with_a_receipt() -> None:
    frames = frames_of(Block(Shape("/queue/a", confirm=Confirm.TRANSACTIONS_OF_100)).fill(7))
    assert [command(octets) for octets in frames] == [b"BEGIN", *[b"SEND"] * 100, b"COMMIT"]
    assert {header(octets, b"transaction") for octets in frames} == {b"00-00000007"}
    assert [octets for octets in frames if header(octets, b"receipt") is not None] == [frames[-1]]
    assert numbers(frames[1:-1]) == list(range(700, 800))


def test_neither_receipts_nor_errors_pass_for_numbers() -> None:
    for octets in (
        b"RECEIPT\nreceipt-id:00-0000000005-r\n\n",
        b"ERROR\nmessage:no\n\n",
        b"\nERROR\nmessage:no\n\nsorry",
    ):
        with pytest.raises(ValueError, match="invalid literal"):
            numbers([octets])


def test_acks_repeat_the_octets_of_the_ack_header() -> None:
    message = b"\nMESSAGE\nsubscription:0\nack:ID\\cone-1\r\nmessage-id:5\r\n\r\nack:body"
    assert ack_id(message) == b"ID\\cone-1"
    assert frames_of(acks([b"a\\c1", b"b"])) == [b"ACK\nid:a\\c1\n\n", b"ACK\nid:b\n\n"]
    with pytest.raises(ValueError, match="without an ack header"):
        ack_id(b"MESSAGE\nmessage-id:5\n\n")


lengths = st.lists(st.one_of(st.integers(0, 200), st.integers(0, 40_000)), max_size=6)


@given(lengths, st.lists(st.integers(64, 60_000), min_size=1, max_size=5), st.booleans())
def test_a_stream_cut_anywhere_gives_the_same_frames(
    contents: list[int], steps: list[int], end_of_line: bool
) -> None:
    sent = [
        frame(
            "MESSAGE",
            {"ack": str(number), "destination": "/queue/a"},
            b"x" * body + b"%012d" % number,
        )
        + b"\n" * end_of_line
        for number, body in enumerate(contents)
    ]
    stream, cutter, received, at = b"".join(sent), Cutter(), list[bytes](), 0
    for step in cycle(steps):
        received += cutter.cut(stream[at : at + step])
        at += step
        if at >= len(stream):
            break
    assert cutter.rest.strip(b"\n") == b""
    assert numbers(received) == list(range(len(contents)))
    assert [command(octets) for octets in received] == [b"MESSAGE"] * len(contents)
    assert [ack_id(octets) for octets in received] == [
        b"%d" % number for number in range(len(contents))
    ]
    for got, body, octets in zip(received, contents, sent, strict=True):
        if body < 2000:
            assert got.lstrip(b"\n") + b"\0" == octets.rstrip(b"\n")


def test_the_middle_of_a_long_frame_is_not_kept() -> None:
    cutter = Cutter()
    octets = frame("MESSAGE", {"ack": "a"}, b"x" * 1_000_000 + b"%012d" % 5)
    for at in range(0, len(octets) - 1, 50_000):
        assert cutter.cut(octets[at : min(at + 50_000, len(octets) - 1)]) == []
        assert len(cutter.rest) < 10_000
    (got,) = cutter.cut(octets[-1:])
    assert numbers([got]) == [5]
    assert ack_id(got) == b"a"
