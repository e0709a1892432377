"""What comes whole from the gateway is, as a row, what came plain before, and what only the
envelope can say besides.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.envelope import CONTENT_TYPE, decode, encode
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.values import Byte, Float, Int, Value, encode_map
from gateway.reactor.turn import Turn
from gateway.stomp.brokers import ACTIVEMQ, BROKERS, GATEWAY
from gateway.stomp.message_encoder import MessageEncoder
from gateway.stomp.wire import Frame, FrameParser, Head, Limits, Version
from pipeline.datasource.errors import BrokerError
from pipeline.datasource.options import Options
from pipeline.datasource.rows import SCHEMA, record_batch, with_text, without_text

ENCODER = MessageEncoder(Version.V1_2, Turn(Clock()))
#: What the exact type says, and a frame can only guess.
GUESSED = {"body_type", "text", "envelope"}


def message(body: bytes, kind: BodyType = BodyType.TEXT, **headers: Any) -> Message:
    return Message(
        Headers(Queue("a"), body_type=kind, **headers),
        body,
        timestamp=1_700_000_000_123,
        message_id="ID:1",
    )


def frames(octets: list[bytes]) -> list[Frame]:
    """The MESSAGEs with these tails, as the client reads them."""
    parser = FrameParser(Limits(), Version.V1_2)
    parser.receive(
        b"".join(
            [b"MESSAGE\nsubscription:1\nredelivered:false\nack:1-1\n" + tail for tail in octets]
        )
    )
    found: list[Frame] = []
    while run := parser.frames(100):
        found += run
    return found


def whole(*messages: Message) -> list[dict[str, Any]]:
    batch = record_batch(
        frames([ENCODER.enveloped(each) for each in messages]), GATEWAY, enveloped=True
    )
    assert batch.schema.equals(SCHEMA)
    assert with_text(without_text(batch)).equals(batch)
    return [{**row, "headers": dict(row["headers"])} for row in batch.to_pylist()]


def plain(*messages: Message) -> list[dict[str, Any]]:
    rows = record_batch(frames([ENCODER.tail(each) for each in messages]), GATEWAY).to_pylist()
    return [{**row, "headers": dict(row["headers"])} for row in rows]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = st.one_of(st.sampled_from(["envelope", "JMS_STOMP_BODY", "n"]), TEXTS.filter(bool))
VALUES = st.one_of(
    TEXTS, st.none(), st.booleans(), st.integers(-128, 127).map(Byte), st.floats(allow_nan=False)
)
EXTRAS = st.lists(
    st.tuples(st.sampled_from(["content-type", "x-extra"]), TEXTS),
    unique_by=lambda pair: pair[0],
    max_size=2,
)


@given(
    st.lists(
        st.builds(
            message,
            st.binary(max_size=30) | TEXTS.map(str.encode),
            st.sampled_from((BodyType.TEXT, BodyType.BYTES)),
            properties=st.dictionaries(
                NAMES.filter(lambda name: name != "content-type"), VALUES, max_size=3
            ),
            extras=EXTRAS.map(tuple),
            reply_to=st.sampled_from((None, Topic("r"))),
            type=st.none() | TEXTS,
        ),
        max_size=5,
    )
)
def test_all_else_is_as_it_came_plain(messages: list[Message]) -> None:
    found = whole(*messages)
    for row, other, sent in zip(found, plain(*messages), messages, strict=True):
        assert {name: row[name] for name in row.keys() - GUESSED} == {
            name: other[name] for name in other.keys() - GUESSED
        }
        restored = decode(row["envelope"])
        assert (restored.headers, restored.body) == (sent.headers, sent.body)


@pytest.mark.parametrize("kind", BodyType)
def test_a_body_of_any_type_has_its_type(kind: BodyType) -> None:
    body = (
        encode_map({"n": Int(1)})
        if kind is BodyType.MAP
        else b""
        if kind is BodyType.MESSAGE
        else b"octets"
    )
    properties: dict[str, Value] = {"real": Float(0.5)}
    [row] = whole(message(body, kind, properties=properties))
    text = "octets" if kind is BodyType.TEXT else None
    assert (row["body_type"], row["body"], row["text"], row["headers"]["real"]) == (
        kind.name,
        body,
        text,
        "0.5",
    )
    restored = decode(row["envelope"])
    assert (restored.headers.body_type, type(restored.headers.properties["real"])) == (kind, Float)


def test_a_text_that_is_half_a_character_is_no_text_and_is_kept() -> None:
    half = "\ud800".encode("utf-8", "surrogatepass")
    found = whole(message(half), message(b"text"))
    assert [(row["body_type"], row["text"], row["body"]) for row in found] == [
        ("TEXT", None, half),
        ("TEXT", "text", b"text"),
    ]


def test_an_envelope_within_is_the_body() -> None:
    inner = encode(message(b"x", BodyType.STREAM))
    [row] = whole(message(inner, BodyType.BYTES, extras=(("content-type", CONTENT_TYPE),)))
    assert (row["body"], row["headers"]["content-type"]) == (inner, CONTENT_TYPE)
    assert decode(row["envelope"]).body == inner


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({}, b"plain", "as it is"),
        (
            {"envelope": "true", "content-type": CONTENT_TYPE},
            b"none",
            "cannot be read: not an envelope",
        ),
    ],
)
def test_what_is_in_none_is_an_error(headers: dict[str, str], body: bytes, said: str) -> None:
    with pytest.raises(BrokerError, match=said):
        record_batch([Frame(Head("MESSAGE", headers), body)], GATEWAY, enveloped=True)


def test_only_the_gateway_is_asked_and_only_where_it_is_wanted() -> None:
    from pipeline.datasource.client import Client

    for wanted in (False, True):
        client = Client(Options(envelope=wanted))
        asked = []
        for client.dialect in BROKERS.values():
            if client.enveloped:
                asked.append(client.dialect)
        assert asked == ([GATEWAY] if wanted else [])
    assert not ACTIVEMQ.envelopes
