"""Which messages are traced, and what their context is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.tracer import Context
from gateway.messaging.destination import Queue
from gateway.messaging.message import MEMO_SAME_NAMES, Headers, Message, VariedHeaders
from gateway.reactor.rates import TokenBucket
from gateway.tracing.contexts import contexts, parsed, span_id
from gateway.tracing.otlp import rejected_by, request_of
from gateway.tracing.spans import Span

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (f"00-{TRACE}-{PARENT}-01", (TRACE, PARENT, True)),
        (f"00-{TRACE}-{PARENT}-00", (TRACE, PARENT, False)),
        (f"00-{TRACE}-{PARENT}-03", (TRACE, PARENT, True)),
        (f"cc-{TRACE}-{PARENT}-01-more", (TRACE, PARENT, True)),
        (f"cc-{TRACE}-{PARENT}-01", (TRACE, PARENT, True)),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"cc-{TRACE}-{PARENT}-01.more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}-1", None),
        (f"00-{TRACE}-{PARENT}-01\n", None),
        ("", None),
        (7, None),
    ],
)
def test_what_a_valid_context_is(value: object, found: object) -> None:
    assert parsed(value) == found


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    assert parsed(text) is None or len(text) >= 55


def sent(seq: int, **properties: str) -> Message:
    return Message(Headers(Queue("q"), properties=properties), message_id=f"ID-{seq}", seq=seq)


def test_the_sender_decides_for_its_messages_and_one_in_so_many_of_the_others_is_traced() -> None:
    shared = Headers(Queue("q"), properties={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    messages = [
        sent(1, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=b"),
        sent(2, traceparent=f"00-{TRACE}-{PARENT}-00"),
        *(Message(shared, message_id=f"ID-{seq}", seq=seq) for seq in (3, 4)),
        *(sent(seq, traceparent="nonsense") for seq in range(5, 8)),
        *(sent(seq) for seq in range(8, 11)),
    ]
    found = contexts(messages, 5)
    assert found["ID-1"] == Context(TRACE, PARENT, "a=b")
    assert found["ID-3"] == found["ID-4"] == Context(TRACE, PARENT)
    assert set(found) == {"ID-1", "ID-3", "ID-4", "ID-5", "ID-10"}
    assert found["ID-10"].parent_id == ""
    assert found["ID-10"].trace_id != found["ID-5"].trace_id
    assert set(contexts(messages, 0)) == {"ID-1", "ID-3", "ID-4"}
    assert contexts(messages, 5) == found, "the same message is always of the same trace"


def test_no_more_traces_begin_in_a_second_than_may() -> None:
    now = [100.0]
    rate = TokenBucket(lambda: now[0], 2, 1.0)
    plain = [sent(seq) for seq in range(1, 101)]
    asked = sent(101, traceparent=f"00-{TRACE}-{PARENT}-01")
    assert len(contexts(plain, 5, rate)) == 1
    assert set(contexts([*plain, asked], 5, rate)) == {"ID-101"}, "those that ask are traced"
    now[0] += 0.5
    assert len(contexts(plain, 5, rate)) == 1
    now[0] += 60.0
    assert 2 <= len(contexts(plain, 5, rate)) <= 3, "not all that was saved in a minute"


def test_lines_of_messages_that_are_not_traced_are_not_read() -> None:
    shared = Headers(Queue("q"))
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    lines = (b"number:1\n", f"traceparent:{trace}\n".encode(), b"xtraceparent:1\n")
    messages = [
        Message(VariedHeaders(shared, each, 1, 10), b"", message_id=str(each)) for each in lines
    ]
    assert contexts(messages, 0) == {str(lines[1]): Context("a" * 32, "b" * 16)}
    assert [message.headers._unread for message in messages] == [True, False, False]  # type: ignore[attr-defined]


_GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_PLAIN = Headers(Queue("q"))
_TRACED = Headers(Queue("q"), properties={"traceparent": _GIVEN})
#: As a session has them: all that repeat these have lines of the same names.
_SHAPED, _SHAPED_TRACED, _SHAPED_BESIDE = (Headers(Queue("q")) for _ in range(3))
for _each in (_SHAPED, _SHAPED_TRACED, _SHAPED_BESIDE):
    _each.memo[MEMO_SAME_NAMES] = True
_KINDS = (
    _PLAIN,
    VariedHeaders(_SHAPED, b"a:1\n", 1, 3),
    VariedHeaders(_SHAPED, b"a:2\n", 1, 3),
    VariedHeaders(_SHAPED_TRACED, f"traceparent:{_GIVEN}\n".encode(), 1, 70),
    VariedHeaders(_SHAPED_TRACED, b"traceparent:none\n", 1, 70),
    VariedHeaders(_SHAPED_BESIDE, f"xtraceparent:{_GIVEN}\n".encode(), 1, 70),
    _TRACED,
    VariedHeaders(_PLAIN, b"a:1\n", 1, 3),
    VariedHeaders(_PLAIN, f"a:1\ntraceparent:{_GIVEN}\n".encode(), 2, 70),
    VariedHeaders(_PLAIN, f"xtraceparent:{_GIVEN}\n".encode(), 1, 70),
    VariedHeaders(_TRACED, b"a:1\n", 1, 70),
)


@given(st.lists(st.sampled_from(_KINDS), max_size=8))
def test_each_message_that_is_sampled_is_found_among_any_others(kinds: list[Headers]) -> None:
    messages = [
        Message(headers, b"", message_id=str(number)) for number, headers in enumerate(kinds)
    ]
    expected = [
        each.message_id for each in messages if each.headers.properties.get("traceparent") == _GIVEN
    ]
    assert sorted(contexts(messages, 0)) == sorted(expected)


def test_a_request_is_otlp_in_json() -> None:
    context = Context(TRACE, PARENT, "a=b")
    span = Span(context, span_id("x"), PARENT, "publish q", 4, 7, 5, {"n": 1, "t": "ü"}, "why")
    [resource] = json.loads(request_of([span], "here"))["resourceSpans"]
    [made] = resource["scopeSpans"][0]["spans"]
    assert made == {
        "traceId": TRACE,
        "spanId": span_id("x"),
        "parentSpanId": PARENT,
        "traceState": "a=b",
        "flags": 1,
        "name": "publish q",
        "kind": 4,
        "startTimeUnixNano": "7000",
        "endTimeUnixNano": "7000",
        "attributes": [
            {"key": "n", "value": {"intValue": "1"}},
            {"key": "t", "value": {"stringValue": "ü"}},
        ],
        "status": {"code": 2, "message": "why"},
    }
    assert {"key": "service.instance.id", "value": {"stringValue": "here"}} in resource["resource"][
        "attributes"
    ]


@pytest.mark.parametrize(
    ("answer", "rejected"),
    [
        (b"{}", 0),
        (b"", 0),
        (b'{"partialSuccess":{"rejectedSpans":"3"}}', 3),
        (b'{"partialSuccess":{"rejectedSpans":-3}}', 0),
        (b'{"partialSuccess":[]}', 0),
        (b"\xff", 0),
    ],
)
def test_a_collector_may_take_a_part(answer: bytes, rejected: int) -> None:
    assert rejected_by(answer) == rejected
