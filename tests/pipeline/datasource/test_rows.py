"""Frames become rows: nothing of a message is lost or made up, whatever it holds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from gateway.messaging.envelope import CONTENT_TYPE
from gateway.stomp.brokers import ACTIVEMQ, ARTEMIS, BROKERS, GATEWAY
from gateway.stomp.wire import Frame, FrameParser, Head, Limits, Version, serialize
from pipeline.columns import MESSAGES
from pipeline.datasource.errors import BrokerError
from pipeline.datasource.rows import SCHEMA, record_batch, with_text, without_text

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)
KNOWN = (
    "message-id",
    "destination",
    "timestamp",
    "expires",
    "priority",
    "persistent",
    "type",
    "correlation-id",
    "reply-to",
)
NAMES = st.sampled_from(
    [*KNOWN, "redelivered", "content-type", "content-length", "JMS_STOMP_BODY", "x-other"]
)
HEADS = st.dictionaries(
    NAMES,
    st.one_of(
        TEXT,
        st.sampled_from(
            ["4", "true", "1700000000123", "99999999999999999999", "/queue/a", "text/plain"]
        ),
    ),
)
FRAMES = st.lists(
    st.tuples(HEADS, st.one_of(st.binary(max_size=20), TEXT.map(str.encode))), max_size=12
)


def frame(headers: dict[str, str], body: bytes) -> Frame:
    return Frame(Head("MESSAGE", headers), body)


@given(FRAMES, st.sampled_from(sorted(BROKERS)))
def test_nothing_is_lost(given_frames: list[tuple[dict[str, str], bytes]], name: str) -> None:
    batch = record_batch([frame(headers, body) for headers, body in given_frames], BROKERS[name])
    assert batch.schema.equals(SCHEMA)
    rows = batch.to_pylist()
    assert [(dict(row["headers"]), row["body"]) for row in rows] == given_frames
    for row, (headers, body) in zip(rows, given_frames, strict=True):
        said = headers.get("message-id")
        assert row["message_id"] == (said.split(",")[-1] if said and name == "artemis" else said)
        assert row["correlation_id"] == headers.get("correlation-id")
        assert row["text"] == (body.decode() if row["body_type"] == "TEXT" else None)
        assert 0 <= row["priority"] <= 9
        assert row["envelope"] == (body if headers.get("content-type") == CONTENT_TYPE else None)
    assert with_text(without_text(batch)).equals(batch)


@given(FRAMES, st.data())
def test_what_is_sent_is_what_is_read_however_it_is_cut(
    given_frames: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    """The way through the codec, as the client goes it."""
    plain = [
        ({name: value for name, value in headers.items() if name != "content-length"}, body)
        for headers, body in given_frames
    ]
    octets = b"".join(
        [
            serialize(
                "MESSAGE",
                [*headers.items(), ("content-length", str(len(body)))],
                body,
                Version.V1_2,
            )
            for headers, body in plain
        ]
    )
    parser = FrameParser(Limits(), Version.V1_2)
    found: list[Frame] = []
    while octets:
        size = data.draw(st.integers(1, len(octets)))
        parser.receive(octets[:size])
        octets = octets[size:]
        while run := parser.frames(3):
            found += run
    rows = record_batch(found, GATEWAY).to_pylist()
    expected = [
        ({name: value.replace("\0", " ") for name, value in headers.items()}, body)
        for headers, body in plain
    ]
    assert [
        ({name: value for name, value in row["headers"] if name != "content-length"}, row["body"])
        for row in rows
    ] == expected


def test_columns_of_a_message() -> None:
    headers = {
        **{
            "message-id": "ID-1",
            "destination": "/queue/a.b",
            "timestamp": "1700000000123",
            "expires": "0",
            "priority": "7",
            "persistent": "true",
        },
        **{
            "type": "order",
            "correlation-id": "c",
            "reply-to": "/topic/r",
            "redelivered": "true",
            "shop": "7",
        },
    }
    (row,) = record_batch([frame(headers, "fünf".encode())], GATEWAY).to_pylist()
    assert row == {
        **{
            "body": "fünf".encode(),
            "text": "fünf",
            "body_type": "TEXT",
            "message_id": "ID-1",
            "destination": "queue:a.b",
        },
        **{
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
            "expires": None,
            "priority": 7,
            "persistent": True,
            "type": "order",
        },
        **{
            "correlation_id": "c",
            "reply_to": "topic:r",
            "redelivered": True,
            "headers": list(headers.items()),
            "envelope": None,
        },
    }


def test_text_and_octets_are_told_apart() -> None:
    def kinds(dialect: object, *given: tuple[dict[str, str], bytes]) -> list[str]:
        return [
            row["body_type"]
            for row in record_batch([frame(*one) for one in given], dialect).to_pylist()  # type: ignore[arg-type]
        ]

    assert kinds(ACTIVEMQ, ({}, b"a"), ({"content-length": "1"}, b"a")) == ["TEXT", "BYTES"]
    assert kinds(
        GATEWAY,
        ({}, b"a"),
        ({}, b"\xff"),
        ({}, b"a\0"),
        ({"content-type": "application/octet-stream"}, b"a"),
    ) == [*("TEXT", "BYTES", "BYTES", "BYTES")]
    assert kinds(
        GATEWAY, ({"content-type": "application/json"}, b"{}"), ({"JMS_STOMP_BODY": "map"}, b"\x01")
    ) == ["TEXT", "MAP"]


def test_what_a_gateway_shows_in_place_of_a_message_is_no_row() -> None:
    """A browser is shown an envelope of what STOMP cannot carry.

    Only the gateway may say so; another broker's header is a header.
    """
    shown = frame({"message-id": "m1", "transformation-error": "a MAP message"}, b"its envelope")
    with pytest.raises(
        BrokerError, match="message m1: a MAP message; expected the option envelope"
    ):
        record_batch([shown], GATEWAY)
    assert record_batch([shown], ACTIVEMQ).to_pylist()[0]["body"] == b"its envelope"


def test_spark_has_the_same_columns() -> None:
    # No type of these has a nested comma but the map, so that DDL can be cut by hand, without a
    # session.
    names = [
        part.split()[0]
        for part in " ".join(MESSAGES.split()).replace("map<string,string>", "map").split(",")
    ]
    assert names == SCHEMA.names
    kinds: dict[str, DataType] = {
        "binary": BinaryType(),
        "string": StringType(),
        "timestamp": TimestampType(),
        "int": IntegerType(),
        "boolean": BooleanType(),
    }
    kinds["map"] = MapType(StringType(), StringType())
    types = [
        part.split()[1]
        for part in " ".join(MESSAGES.split()).replace("map<string,string>", "map").split(",")
    ]
    schema = StructType()
    for name, kind in zip(names, types, strict=True):
        schema = schema.add(name, kinds[kind])
    assert to_arrow_schema(schema, timezone="UTC").equals(SCHEMA)


def test_a_message_id_is_the_messages_own_and_not_the_deliverys() -> None:
    """As Artemis has it since 2.33: two consumers that get one message are told two ids."""
    heads: list[dict[str, str]] = [
        {"message-id": "4,2147483700"},
        {"message-id": "9,2147483700"},
        {"message-id": "31"},
        {},
    ]
    batch = record_batch([Frame(Head("MESSAGE", head), b"") for head in heads], ARTEMIS)
    assert batch.column("message_id").to_pylist() == ["2147483700", "2147483700", "31", None]
