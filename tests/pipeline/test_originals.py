"""What is restored of a dead message is what was sent, to the type of each property; and what
another broker cannot be given is said.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging import dead
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.envelope import CONTENT_TYPE, decode, encode
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.values import Byte, Float, Int, Short, Value, encode_map
from pipeline.datasource import declared
from pipeline.originals import (
    RESERVED,
    NotRestorable,
    destination_of,
    enveloped,
    original_of,
    spelled_out,
)

NOW = 1_700_000_000_000
TYPED: dict[str, Value] = {
    "small": Byte(3),
    "short": Short(4),
    "count": Int(5),
    "long": 6,
    "real": Float(0.5),
    "double": 0.25,
    "flag": True,
    "word": "w",
}


def row(**columns: Any) -> dict[str, Any]:
    """A row of messages as the data source reads it, with its times in milliseconds."""
    empty = dict.fromkeys(
        (
            "body",
            "text",
            "body_type",
            "message_id",
            "destination",
            "timestamp",
            "expires",
            "priority",
            "persistent",
            "type",
            "correlation_id",
            "reply_to",
            "envelope",
        )
    )
    return {**empty, "headers": {}, "destination": "queue:orders", **columns}


def message(properties: dict[str, Value] | None = None, **more: Any) -> Message:
    headers = Headers(
        Queue("orders"), properties=TYPED if properties is None else properties, **more
    )
    made = Message(headers, b"body", timestamp=NOW - 1000, message_id="ID:there:1", expires=NOW + 5)
    made.user = "guest"
    return made


numbers = st.one_of(
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, width=32).map(Float),
    st.floats(allow_nan=False),
)
values = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=20))


@given(
    st.sampled_from(BodyType),
    st.binary(max_size=50),
    st.dictionaries(st.text(min_size=1, max_size=10), values, max_size=5),
    st.integers(0, 9),
    st.booleans(),
    st.none() | st.text(max_size=10),
)
def test_an_envelope_gives_back_the_message_and_goes_out_with_it(
    kind: BodyType,
    body: bytes,
    properties: dict[str, Value],
    priority: int,
    persistent: bool,
    text: str | None,
) -> None:
    headers = Headers(
        Topic("a.b"),
        body_type=kind,
        properties=properties,
        priority=priority,
        persistent=persistent,
        type=text,
        correlation_id=text,
    )
    sent = Message(headers, body, message_id="ID:1", timestamp=NOW)
    told = {"content-type": CONTENT_TYPE, dead.BRIDGE_REASON: "SEND_FAILURE"}
    restored = original_of(row(envelope=encode(sent), body=encode(sent), headers=told))
    again = decode(enveloped(restored, NOW, False).body)
    kept = {name: value for name, value in properties.items() if name != DUPLICATE_ID}
    assert (again.body, again.message_id, again.timestamp) == (body, "ID:1", NOW)
    assert again.headers == headers.replace(properties=kept)
    assert {name: type(value) for name, value in again.headers.properties.items()} == {
        name: type(value) for name, value in kept.items()
    }


def whole(found: Message, **columns: Any) -> dict[str, Any]:
    """A row of a message that was read in an envelope."""
    headers = {
        **{name: str(value) for name, value in found.headers.properties.items()},
        **dict(found.headers.extras),
    }
    return row(envelope=encode(found), body=found.body, headers=headers, **columns)


@pytest.mark.parametrize("kind", BodyType)
def test_of_the_brokers_own_queue_an_envelope_gives_back_every_type(kind: BodyType) -> None:
    added: dict[str, Value] = {
        dead.UNDELIVERED_REASON: "EXPIRED",
        dead.UNDELIVERED_TIMESTAMP: NOW,
        dead.DELIVERY_COUNT: Int(6),
        dead.BODY_TRUNCATED: False,
    }
    body = encode_map({"n": Short(1)})
    headers = Headers(
        Queue("mq.sys.dmq"),
        body_type=kind,
        properties={**TYPED, **added},
        extras=(("content-type", "text/x"),),
    )
    restored = original_of(
        whole(Message(headers, body, timestamp=5, message_id="ID:7"), destination="queue:orders")
    )
    assert restored.headers == headers.replace(destination=Queue("orders"), properties=TYPED)
    assert [type(value) for value in restored.headers.properties.values()] == [
        type(value) for value in TYPED.values()
    ]
    assert (restored.body, restored.timestamp, restored.message_id) == (body, 5, "ID:7")


@pytest.mark.parametrize("buried", [False, True])
def test_an_envelope_in_an_envelope_is_an_original_if_a_bridge_has_put_it_there(
    buried: bool,
) -> None:
    within = encode(message(body_type=BodyType.MAP))
    properties: dict[str, Value] = {dead.BRIDGE_REASON: "SEND_FAILURE"} if buried else {}
    headers = Headers(
        Queue("orders"),
        body_type=BodyType.BYTES,
        properties=properties,
        extras=(("content-type", CONTENT_TYPE),),
    )
    restored = original_of(whole(Message(headers, within)))
    assert encode(restored) == (within if buried else encode(Message(headers, within)))


def test_what_a_bridge_could_put_into_no_envelope_is_not_restored_from_that_of_its_dead_message() -> (
    None
):
    headers = Headers(Queue("imq.bridge.jms.dmq"), properties={dead.BRIDGE_REASON: "SEND_FAILURE"})
    with pytest.raises(NotRestorable, match="its body is no envelope"):
        original_of(whole(Message(headers, b"as text")))


def test_a_message_of_the_brokers_own_queue_is_restored_without_what_its_death_added() -> None:
    headers = {
        **{
            "destination": "/queue/mq.sys.dmq",
            "message-id": "ID:7",
            "subscription": "1",
            "persistent": "true",
            "priority": "4",
        },
        **{
            dead.UNDELIVERED_REASON: "EXPIRED",
            dead.BODY_TRUNCATED: "false",
            "JMS_SUN_DMQ_DESTINATION": "queue:orders",
        },
        **{
            "colour": "red",
            "x-extra": "e",
            dead.PRESERVE_UNDELIVERED: "true",
            "JMSXGroupID": "g",
            "JMSXUserID": "guest",
        },
    }
    found = original_of(
        row(
            body=b"x",
            body_type="TEXT",
            message_id="ID:7",
            persistent=True,
            priority=4,
            timestamp=5,
            type="order",
            headers=[*headers.items()],
        )
    )
    assert found.headers == Headers(
        Queue("orders"),
        type="order",
        properties={"colour": "red", dead.PRESERVE_UNDELIVERED: True, "JMSXGroupID": "g"},
        extras=(("x-extra", "e"),),
    )
    assert (found.body, found.message_id, found.timestamp) == (b"x", "ID:7", 5)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"headers": {dead.BODY_TRUNCATED: "true"}}, "cut off"),
        ({"headers": {dead.BRIDGE_BODY_TRUNCATED: "true", dead.BRIDGE_REASON: "X"}}, "text only"),
        ({"headers": {dead.BRIDGE_REASON: "X"}, "body": b"x"}, "no envelope"),
        ({"envelope": encode(message())[:-1]}, "damaged or cut short"),
        ({"destination": None}, "where it was"),
    ],
)
def test_what_is_not_whole_is_not_restored(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(NotRestorable, match=why):
        original_of(row(**columns))


def test_what_has_expired_lives_for_ever_and_what_has_not_keeps_its_time() -> None:
    assert decode(enveloped(message(), NOW, False).body).expires == NOW + 5
    assert decode(enveloped(message(), NOW + 5, False).body).expires == 0
    assert spelled_out(message({}), NOW + 5).expires == 0


def test_a_new_id_is_the_brokers_to_give() -> None:
    again = decode(enveloped(message({DUPLICATE_ID: "d", "a": "b"}), NOW, True).body)
    assert (again.message_id, again.timestamp, again.headers.properties) == ("", 0, {"a": "b"})


def test_to_another_broker_each_thing_lost_is_named() -> None:
    sent = message(
        {**TYPED, "receipt": "r", DUPLICATE_ID: "d", "nothing": None},
        reply_to=Destination(Kind.QUEUE, "t", True),
        extras=(("x-extra", "e"),),
    )
    made = spelled_out(sent, NOW)
    assert made.headers == {
        **{
            "small": "3",
            "short": "4",
            "count": "5",
            "long": "6",
            "real": "0.5",
            "double": "0.25",
            "flag": "true",
            "word": "w",
        },
        **{"nothing": "", "x-extra": "e"},
    }
    assert made.reply_to is None
    assert made.lost == (
        *(
            f"property {name} becomes text: it is of type {kind}"
            for name, kind in (("small", "byte"), ("short", "short"), ("count", "int"))
        ),
        *(
            f"property {name} becomes text: it is of type {kind}"
            for name, kind in (("long", "long"), ("real", "float"), ("double", "double"))
        ),
        "property flag becomes text: it is of type boolean",
        "property receipt: to STOMP that is another header",
        "property nothing becomes text: it is of type null",
        "JMSReplyTo: it is temporary",
    )


def test_what_the_data_source_would_leave_out_is_named_too() -> None:
    assert declared.RESERVED <= RESERVED
    properties: dict[str, Value] = {
        "session": "s",
        "selector": "x",
        "durable": "true",
        "id": "i",
        "kept": "k",
    }
    extras = (
        ("x-queue-name", "q"),
        ("x-extra", "first"),
        ("x-extra", "second"),
        ("destination-type", "ANYCAST"),
    )
    made = spelled_out(message(properties, extras=extras), NOW)
    assert made.headers == {"kept": "k", "x-extra": "first"}
    assert made.lost == (
        *[
            f"property {name}: to STOMP that is another header"
            for name in ("session", "selector", "durable", "id")
        ],
        *[
            f"header {name}: to STOMP, or to a broker, that is something else"
            for name in ("x-queue-name", "destination-type")
        ],
    )


def test_text_and_times_that_no_other_broker_can_be_given_are_named() -> None:
    sent = Message(Headers(Queue("a")), b"half \xed\xa0\x80", expires=2**63 - 1)
    made = spelled_out(sent, NOW)
    assert made.expires == 0
    assert made.lost == (
        "the body: it is text that is not UTF-8, and goes as octets",
        "JMSExpiration: it is after the year 9999, and becomes never",
    )
    assert decode(enveloped(sent, NOW, False).body).expires == 2**63 - 1


def test_a_map_goes_to_no_other_broker() -> None:
    sent = Message(Headers(Queue("a"), body_type=BodyType.MAP), encode_map({"a": 1}))
    with pytest.raises(NotRestorable, match="body of type MAP"):
        spelled_out(sent, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue:a", Queue("a")),
        ("topic:a.b", Topic("a.b")),
        ("/queue/a/b", Queue("a/b")),
        ("/topic/a", Topic("a")),
        ("/temp-queue/x", Destination(Kind.QUEUE, "x", True)),
        ("queue:", None),
        ("orders", None),
        ("", None),
    ],
)
def test_destinations_are_spelled_in_two_ways(text: str, expected: object) -> None:
    assert destination_of(text) == expected
