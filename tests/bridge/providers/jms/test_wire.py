"""Frames to and from Java, and what comes in batches of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.providers.jms import batches, wire
from bridge.providers.jms.batches import XACall, XADone, XAOutcome, xa_call
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
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.envelope import encode_head
from gateway.messaging.message import BodyType, Headers, Message, Unreadable
from gateway.messaging.provider import ConsumerSpec, Xid

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


# --- batches of deliveries


def sized(text: str) -> bytes:
    octets = text.encode()
    return struct.pack(">I", len(octets)) + octets


def test_questions() -> None:
    assert batches.send([(b"head", b"body!"), (b"h", b"")]) == (
        struct.pack(">BII", 1, 2, 26)
        + struct.pack(">II", 4, 5)
        + b"headbody!"
        + struct.pack(">II", 1, 0)
        + b"h"
    )
    assert batches.open_consumer(3, ConsumerSpec(Queue("q"), browse=True)) == (
        struct.pack(">BIBBB", 2, 3, 0, 0, 2) + sized("q") + sized("") + sized("")
    )
    assert batches.open_consumer(4, ConsumerSpec(Topic("t"), "a = 1", True, "d")) == (
        struct.pack(">BIBBB", 2, 4, 1, 0, 1) + sized("t") + sized("a = 1") + sized("d")
    )
    assert (
        batches.open_consumer(5, ConsumerSpec(Destination(Kind.TOPIC, "t", True)))[5:8] == b"\1\1\0"
    )
    assert batches.credit(1, -2, 3) == struct.pack(">BIqq", 3, 1, -2, 3)
    assert batches.switch(1, True) == b"\4\0\0\0\1\1"
    assert batches.settle(1, [5, 2**40]) == struct.pack(">BIIqq", 5, 1, 2, 5, 2**40)
    assert [batches.sync(9), batches.commit(9), batches.rollback(9)] == [
        struct.pack(">BI", code, 9) for code in (6, 7, 8)
    ]
    assert batches.shut(1, False) == b"\x0a\0\0\0\1\0"
    xid = Xid(7, b"global", b"b")
    assert (
        xa_call(9, XACall.COMMIT, xid, 1)
        == struct.pack(">BIBi", 12, 9, 3, 1) + b"\0\0\0\7\6global\1b"
    )
    assert xa_call(9, XACall.RECOVER, None) == struct.pack(">BIBi", 12, 9, 5, 0)


def received(message: Message, reason: str | None) -> Message:
    """:param reason: why it cannot be read; None where it can."""
    return message if reason is None else Unreadable(message, reason)


answers = st.one_of(
    st.builds(
        batches.Sent, st.lists(st.tuples(st.text(max_size=20), st.integers(0, 2**62)), max_size=3)
    ),
    st.builds(batches.Dropped, st.integers(0, 2**31)),
    st.builds(
        batches.Finished,
        st.integers(0, 2**31),
        st.integers(-1, 20),
        st.integers(-1, 2**30),
        st.text(max_size=20),
    ),
    st.builds(
        batches.Ended,
        st.integers(0, 2**31),
        st.integers(0, 20),
        st.text(max_size=20),
        st.booleans(),
    ),
    st.builds(batches.Voided),
    st.builds(batches.Note, st.text(max_size=20)),
    st.builds(batches.Shown, st.integers(0, 2**31)),
    st.builds(
        XADone,
        st.integers(0, 2**31),
        st.sampled_from(XAOutcome),
        st.integers(-10, 110),
        st.text(max_size=20),
        st.lists(
            st.builds(
                Xid,
                st.integers(-1, 2**31 - 1),
                st.binary(min_size=1, max_size=64),
                st.binary(max_size=64),
            ),
            max_size=3,
        ),
    ),
    st.builds(
        batches.Arrived,
        st.integers(0, 2**31),
        st.integers(1, 2**62),
        st.integers(1, 2**31),
        st.builds(
            lambda name, body, message_id, reason: received(
                Message(
                    Headers(Queue(name), body_type=BodyType.BYTES), body, message_id=message_id
                ),
                reason,
            ),
            st.text(max_size=5),
            st.binary(max_size=20),
            st.text(max_size=9),
            st.none() | st.text(max_size=9),
        ),
    ),
)


def as_java_writes(answer: batches.Answer) -> bytes:
    match answer:
        case batches.Sent(identities):
            parts = [
                struct.pack(">H", len(one.encode())) + one.encode() + struct.pack(">q", at)
                for one, at in identities
            ]
            return struct.pack(">BI", 1, len(identities)) + b"".join(parts)
        case batches.Dropped(number):
            return struct.pack(">BI", 2, number)
        case batches.Finished(tag, kind, place, reason):
            return struct.pack(">BIii", 3, tag, kind, place) + sized(reason)
        case batches.Arrived(consumer, key, attempts, message):
            head = encode_head(message)
            code, why = (10, sized(message.reason)) if isinstance(message, Unreadable) else (4, b"")
            lengths = struct.pack(
                ">BIqIII", code, consumer, key, attempts, len(head), len(message.body)
            )
            return lengths + head + message.body + why
        case batches.Ended(consumer, kind, reason, refused):
            return struct.pack(">BIi", 11 if refused else 5, consumer, kind) + sized(reason)
        case batches.Voided():
            return b"\6"
        case batches.Note(text):
            return b"\7" + sized(text)
        case batches.Shown(consumer):
            return struct.pack(">BI", 8, consumer)
        case XADone(tag, how, value, reason, xids):
            head = (
                struct.pack(">BIBi", 9, tag, how, value)
                + sized(reason)
                + struct.pack(">I", len(xids))
            )
            return head + b"".join(as_octets(xid) for xid in xids)


def as_octets(xid: Xid) -> bytes:
    return b"".join(
        (
            struct.pack(">iB", xid.format_id, len(xid.gtrid)),
            xid.gtrid,
            struct.pack(">B", len(xid.bqual)),
            xid.bqual,
        )
    )


def plain(answer: batches.Answer) -> object:
    if isinstance(answer, batches.Arrived):
        message = answer.message
        reason = message.reason if isinstance(message, Unreadable) else None
        return answer[:3], message.headers, message.body, message.message_id, reason
    return type(answer), tuple(answer)


@given(st.lists(answers, max_size=6))
def test_answers_come_back_as_java_writes_them(given: list[batches.Answer]) -> None:
    octets = b"".join(map(as_java_writes, given))
    assert [plain(answer) for answer in batches.answers(octets)] == [
        plain(answer) for answer in given
    ]


def test_an_unknown_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="answer 12 at octet 1 is unknown"):
        list(batches.answers(b"\6\x0c"))
