"""Frames between the gateway and Java, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.providers.jms import wire
from bridge.providers.jms.wire import (
    LONGEST,
    LONGEST_PAYLOAD,
    Alive,
    Frame,
    Frames,
    Payload,
    Ready,
    Type,
    Verb,
    WireError,
)

NUMBERS: Final = st.integers(0, 2**32 - 1)
#: Lone surrogates among them: Java's strings have them.
TEXTS: Final = st.text(max_size=20)
FRAMES: Final = st.lists(
    st.tuples(st.sampled_from(Type), NUMBERS, st.binary(max_size=300)), max_size=8
)

READS: Final[tuple[Callable[[Payload], object], ...]] = (
    Payload.number,
    Payload.kind,
    Payload.flag,
    Payload.text,
    Payload.optional,
    Payload.ready,
    Payload.alive,
    lambda payload: payload.rest(7),
    Payload.rest,
)


def read(octets: bytes) -> list[Frame]:
    return list(Frames().feed(octets))


@given(FRAMES, st.lists(st.integers(0, 3000), max_size=12))
def test_however_bytes_are_split_the_frames_are_the_same(
    sent: list[tuple[Type, int, bytes]], cuts: list[int]
) -> None:
    octets = b"".join([wire.frame(*one) for one in sent])
    places = [0, *sorted(min(cut, len(octets)) for cut in cuts), len(octets)]
    frames, found = Frames(), list[Frame]()
    for start, end in pairwise(places):
        found += frames.feed(octets[start:end])
    assert found == [Frame(*one) for one in sent]


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_of_any_bytes_nothing_is_raised_but_wire_error(pieces: list[bytes]) -> None:
    frames = Frames()
    with suppress(WireError):
        for piece in pieces:
            for frame in frames.feed(piece):
                assert len(frame.payload) <= LONGEST_PAYLOAD


#: A text whose length is right and whose bytes are any is not found by chance.
PAYLOADS: Final = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda octets, rest: wire.number(len(octets)) + octets + rest,
        st.binary(max_size=8),
        st.binary(max_size=60),
    ),
)


@example(wire.number(1) + b"\xff", [Payload.text])
@example(wire.flag(True) + wire.number(2) + b"\xc3(", [Payload.optional])
@given(PAYLOADS, st.lists(st.sampled_from(READS), max_size=5))
def test_reading_any_payload_raises_nothing_but_wire_error(
    octets: bytes, reads: list[Callable[[Payload], object]]
) -> None:
    payload = Payload(octets)
    with suppress(WireError):
        for one in reads:
            one(payload)


@pytest.mark.parametrize("length", [0, 4, LONGEST + 1, 2**32 - 1])
def test_a_length_out_of_range_is_told_at_once(length: int) -> None:
    with pytest.raises(WireError, match=f"a frame of {length} bytes: expected 5 to {LONGEST}"):
        read(struct.pack(">IBI", length, Type.ANSWER, 1))


def test_frames_before_one_that_is_broken_are_given() -> None:
    frames = Frames().feed(wire.frame(Type.ENDED, 3) + b"\xff" * 9)
    assert next(frames) == Frame(Type.ENDED, 3, b"")
    with pytest.raises(WireError):
        next(frames)


SIZES: Final = st.one_of(
    st.integers(0, 1000),
    st.builds(
        lambda times, more: max(0, times * LONGEST_PAYLOAD + more),
        st.integers(0, 4),
        st.integers(-2, 2),
    ),
)


@given(NUMBERS, SIZES)
def test_questions_of_any_size_come_back_from_their_pieces(channel: int, size: int) -> None:
    questions = (b"%016d" * (size // 16 + 1) % tuple(range(size // 16 + 1)))[:size]
    pieces = list(wire.pieces(channel, questions))
    found = read(b"".join(pieces))
    assert b"".join([frame.payload for frame in found]) == questions
    assert [frame.type for frame in found] == [Type.PART] * (len(found) - 1) + [Type.ASK]
    assert {frame.channel for frame in found} == {channel}
    assert max(map(len, pieces)) <= 4 + LONGEST
    assert sum(map(wire.size, pieces)) == size


def test_a_frame_that_is_too_long_is_refused() -> None:
    assert len(wire.frame(Type.ASK, 1, bytes(LONGEST_PAYLOAD))) == 4 + LONGEST
    with pytest.raises(
        WireError, match=f"CALL of {LONGEST_PAYLOAD + 1} bytes: expected at most {LONGEST_PAYLOAD}"
    ):
        wire.frame(Type.CALL, 1, bytes(LONGEST_PAYLOAD + 1))


def test_layouts() -> None:
    """Each as the module's table says it, and as ``Wire.java`` and ``Calls.java`` read it."""
    hello = "0000001a 01 00000000 0001 00000001 00000001 61 00000006 76c3a9e282ac"
    assert wire.hello({"a": "v\u00e9\u20ac"}) == bytes.fromhex(hello)
    call = "00000010 02 00000007 00000001 06 00000009 7878"
    assert wire.call(7, 1, Verb.CLOSE, 9, b"xx") == bytes.fromhex(call)
    assert wire.opening(7, 9, 3, -1) == bytes.fromhex("0000000e 03 00000007 00000009 03 ffffffff")
    assert list(wire.pieces(7, b"q")) == [bytes.fromhex("00000006 05 00000007 71")]
    assert list(wire.pieces(7, b"")) == [bytes.fromhex("00000005 05 00000007")]
    assert wire.window(7, 65536) == bytes.fromhex("00000009 06 00000007 00010000")
    for kind, number in ((Type.END, "07"), (Type.ABANDON, "08"), (Type.BEAT, "09")):
        assert wire.frame(kind, 7) == bytes.fromhex(f"00000005 {number} 00000007")
    assert wire.optional(None) == bytes.fromhex("00 00000000")
    assert wire.optional("") == bytes.fromhex("01 00000000")
    assert wire.optional("x") == bytes.fromhex("01 00000001 78")


@given(TEXTS, TEXTS, st.none() | TEXTS, NUMBERS, st.booleans(), st.binary(max_size=5))
def test_what_is_written_is_read(
    one: str, other: str, maybe: str | None, number: int, flag: bool, rest: bytes
) -> None:
    octets = (
        wire.text(one)
        + wire.optional(maybe)
        + wire.number(number)
        + wire.flag(flag)
        + wire.text(other)
        + rest
    )
    payload = Payload(octets)
    assert (payload.text(), payload.optional(), payload.number(), payload.flag()) == (
        one,
        maybe,
        number,
        flag,
    )
    assert (payload.text(), payload.rest()) == (other, rest)


def test_half_of_a_pair_of_surrogates_survives() -> None:
    assert Payload(wire.text("\ud83d")).text() == "\ud83d"


def test_what_java_says_of_itself() -> None:
    ready = (
        struct.pack(">H", wire.VERSION)
        + wire.text("made of")
        + wire.text("17.0.1")
        + struct.pack(">q", 1 << 30)
    )
    assert Payload(ready).ready() == Ready("made of", "17.0.1", 1 << 30)
    assert Payload(struct.pack(">qqI", 5, 1 << 40, 7)).alive() == Alive(5, 1 << 40, 7)


def test_another_version_is_refused_before_anything_else_is_read() -> None:
    with pytest.raises(
        WireError, match=f"the classes in Java speak version 9: expected {wire.VERSION}"
    ):
        Payload(struct.pack(">H", 9)).ready()
