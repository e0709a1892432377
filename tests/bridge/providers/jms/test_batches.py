"""The layout of what Java is asked and answers.

That Java has the same is for the tests that talk to it.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.providers.jms import batches
from bridge.providers.jms.batches import XACall, XADone, XAOutcome, xa_call
from gateway.messaging.destination import Queue, TemporaryTopic, Topic
from gateway.messaging.envelope import encode_head
from gateway.messaging.message import BodyType, Headers, Message, Unreadable
from gateway.messaging.provider import Subscription, Xid


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
    assert batches.open_consumer(3, Subscription(Queue("q"), browse=True)) == (
        struct.pack(">BIBBB", 2, 3, 0, 0, 2) + sized("q") + sized("") + sized("")
    )
    assert batches.open_consumer(4, Subscription(Topic("t"), "a = 1", True, "d")) == (
        struct.pack(">BIBBB", 2, 4, 1, 0, 1) + sized("t") + sized("a = 1") + sized("d")
    )
    assert batches.open_consumer(5, Subscription(TemporaryTopic("t")))[5:8] == b"\1\1\0"
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
    st.builds(batches.Ended, st.integers(0, 2**31), st.integers(0, 20), st.text(max_size=20)),
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
        case batches.Ended(consumer, kind, reason):
            return struct.pack(">BIi", 5, consumer, kind) + sized(reason)
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
    with pytest.raises(ValueError, match="answer 11 at octet 1 is unknown"):
        list(batches.answers(b"\6\x0b"))
