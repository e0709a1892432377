"""Dead messages: Open MQ's Table 12-1, the envelope, or text instead."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.dead.message import (
    Burial,
    DeadMessage,
    body_of,
    bridge_properties,
    headers_line,
    headers_of,
    properties_line,
    property_of,
    whole,
)
from gateway.messaging import dead
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.envelope import CONTENT_TYPE, decode
from gateway.messaging.message import BodyType, Headers, Message, Unreadable
from gateway.messaging.values import (
    Byte,
    Char,
    Float,
    Int,
    Short,
    Value,
    encode_map,
    encode_stream,
    encode_value,
)
from tests.bridge.dead_queues import died, original

NOW = 1_700_000_000_000
DMQ = Queue("dmq")


def made(message: DeadMessage) -> Message:
    burial = Burial(message, NOW)
    return Message(headers_of(message, burial.properties, burial.body, DMQ), burial.body.octets)


def typed(properties: Any) -> dict[str, tuple[type, object]]:
    return {name: (type(value), value) for name, value in properties.items()}


def test_it_has_the_properties_of_the_original_and_those_of_table_12_1() -> None:
    assert typed(made(died()).headers.properties) == typed(
        {
            "colour": "red",
            "weight": Short(12),
            "JMS_SUN_JMSBRIDGE_DMQ_REASON": "SEND_FAILURE",
            "JMS_SUN_JMSBRIDGE_DMQ_EXCEPTION": "the target does not take it",
            "JMS_SUN_JMSBRIDGE_DMQ_TIMESTAMP": str(NOW),
            "JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID": "ID:there:1",
            "JMS_SUN_JMSBRIDGE_SOURCE_TIMESTAMP": 1_600_000_000_000,
            "JMS_SUN_JMSBRIDGE_SOURCE_CORRELATIONID": "c-1",
            "JMS_SUN_JMSBRIDGE_SOURCE_JMSTYPE": "order",
            "JMS_SUN_JMSBRIDGE_SOURCE_DESTINATION": "queue:source",
            "JMS_SUN_JMSBRIDGE_SOURCE_PROVIDER": "ActiveMQ",
            "JMS_SUN_JMSBRIDGE_TARGET_DESTINATION": "queue:target",
            "JMS_SUN_JMSBRIDGE_TARGET_PROVIDER": "stomp-gateway",
        }
    )


@pytest.mark.parametrize("reason", list(BridgeDeadReason))
def test_the_reason_is_named(reason: BridgeDeadReason) -> None:
    assert bridge_properties(died(reason=reason), NOW)[dead.BRIDGE_REASON] == reason.value


def test_what_is_not_known_is_left_out() -> None:
    message = Message(Headers(Queue("source")), b"x")
    nothing = died(
        message, exception="", source_destination=None, source_provider="", target_provider=""
    )
    assert bridge_properties(nothing, NOW) == {
        dead.BRIDGE_REASON: "SEND_FAILURE",
        dead.BRIDGE_TIMESTAMP: str(NOW),
        dead.BRIDGE_TARGET_DESTINATION: "queue:target",
    }


def test_where_it_was_really_going_is_told_beside_the_targets_own_destination() -> None:
    properties = bridge_properties(
        died(target_destination=None, current_destination=Topic("a.b")), NOW
    )
    assert properties[dead.BRIDGE_TARGET_DESTINATION] == "AS_SOURCE"
    assert properties[dead.BRIDGE_TARGET_CURRENT_DESTINATION] == "topic:a.b"


def test_its_body_is_the_original_in_an_envelope_and_a_header_says_so() -> None:
    message = original()
    found = made(died(message))
    assert (found.headers.body_type, found.headers.extras) == (
        BodyType.BYTES,
        (("content-type", CONTENT_TYPE),),
    )
    inside = decode(found.body)
    assert inside.headers == message.headers
    assert typed(inside.headers.properties) == typed(message.headers.properties)
    assert (inside.body, inside.message_id, inside.timestamp) == (
        message.body,
        message.message_id,
        message.timestamp,
    )


@pytest.mark.parametrize(("persistent", "priority"), [(True, 0), (False, 9)])
def test_delivery_mode_and_priority_are_the_originals(persistent: bool, priority: int) -> None:
    headers = made(died(original(persistent=persistent, priority=priority))).headers
    assert (headers.persistent, headers.priority) == (persistent, priority)


def test_reply_to_correlation_id_and_type_are_the_originals_and_not_its_own() -> None:
    headers = made(died()).headers
    assert (headers.destination, headers.reply_to, headers.correlation_id, headers.type) == (
        DMQ,
        None,
        None,
        None,
    )


def test_of_one_that_died_before_nothing_is_left_but_the_bridges_name() -> None:
    before = dict.fromkeys(dead.BRIDGE_PROPERTIES, "old") | {
        "JMS_SUN_JMSBRIDGE_NAME": "other",
        "mine": "x",
    }
    message = Message(Headers(Queue("source"), properties=before), b"x")
    found = made(died(message, exception="")).headers.properties
    assert "old" not in found.values()
    assert (found["mine"], found["JMS_SUN_JMSBRIDGE_NAME"]) == ("x", "other")
    assert found[dead.BRIDGE_REASON] == "SEND_FAILURE"
    assert dead.BRIDGE_EXCEPTION not in found
    assert decode(made(died(message)).body).headers.properties == before


def test_nothing_of_the_original_changes() -> None:
    message, twin = original(), original()
    made(died(message))
    assert message.headers == twin.headers
    assert (message.body, message.expires, message.message_id) == (
        twin.body,
        twin.expires,
        twin.message_id,
    )


# Where there can be no envelope.


def unsayable() -> Message:
    """A message with a property of no JMS type."""
    properties: Any = {"price": Decimal("1.50"), "colour": "red"}
    return original(properties=properties)


def test_a_value_of_no_jms_type_makes_the_body_text_and_the_property_too() -> None:
    found = made(died(unsayable()))
    assert found.headers.properties[dead.BRIDGE_BODY_TRUNCATED] == "true"
    assert found.headers.properties["price"] == "1.50"
    assert (found.headers.body_type, found.headers.extras) == (
        BodyType.BYTES,
        (("content-type", "text/plain; charset=utf-8"),),
    )
    lines = found.body.decode().splitlines()
    assert "JMSMessageID: ID:there:1" in lines
    assert "JMSDestination: queue:source" in lines
    assert "x-hop: 1" in lines
    assert "price (Decimal): 1.50" in lines
    assert lines[-2:] == ["", "00ff"]


def test_what_failed_is_told() -> None:
    assert "Decimal" in body_of(unsayable()).failure
    assert body_of(original()).failure == ""


def test_a_priority_that_is_none_is_replaced() -> None:
    found = made(died(original(priority=12)))
    assert found.headers.priority == 4
    assert found.headers.properties[dead.BRIDGE_BODY_TRUNCATED] == "true"


@given(
    st.one_of(
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.booleans(),
        st.none(),
        st.characters(max_codepoint=0xFFFF).map(Char),
        st.integers(-128, 127).map(Byte),
        st.integers().map(Int),
        st.floats(width=32).map(Float),
        st.lists(st.integers()),
        st.decimals(),
    )
)
def test_whatever_it_is_it_can_be_a_property(value: object) -> None:
    found = property_of(value)
    encode_value(found)
    assert not isinstance(found, bytes | Char)
    try:
        encode_value(cast("Value", value))
    except (ValueError, TypeError):
        assert found == str(value)
    else:
        assert isinstance(value, bytes | Char) or found is value


@pytest.mark.parametrize(
    ("body_type", "body", "text"),
    [
        (BodyType.TEXT, "größe\n2".encode(), "größe\n2"),
        (BodyType.TEXT, b"\xff", "(damaged: "),
        (BodyType.BYTES, b"\0\x01", "0001"),
        (BodyType.OBJECT, b"\xac\xed", "aced"),
        (BodyType.MAP, encode_map({"a": Short(1), "b": "x"}), "a (Short): 1\nb (str): 'x'"),
        (BodyType.STREAM, encode_stream([1, None]), "int: 1\nNoneType: None"),
        (BodyType.STREAM, b"\0\0\0\x09", "(damaged: "),
        (BodyType.MESSAGE, b"", ""),
    ],
)
def test_every_body_can_be_told_as_text(body_type: BodyType, body: bytes, text: str) -> None:
    told = whole(Message(Headers(Queue("q"), body_type=body_type), body)).decode()
    assert told.split("\n\n", 1)[1].startswith(text)


def test_a_text_that_is_null_is_told() -> None:
    assert (
        whole(Message(Headers(Queue("q"), null_text=True)))
        .decode()
        .endswith("\n\n(the text is null)")
    )


def test_half_a_surrogate_pair_is_told_in_utf_8() -> None:
    message = Message(Headers(Queue("q"), type="\ud83d"), "\udc00".encode("utf-8", "surrogatepass"))
    told = whole(message).decode()
    assert "JMSType: \\ud83d" in told
    assert told.endswith("\\udc00")


def test_on_one_line_are_all_headers_and_no_body() -> None:
    message = Message(
        Headers(Topic("t"), type="a\nb", extras=(("x-foo", "1"),)),
        b"secret",
        expires=5,
        timestamp=4,
        message_id="ID-1",
    )
    message.user = "guest"
    assert headers_line(message) == (
        "JMSMessageID='ID-1', JMSDestination=topic:t, JMSDeliveryMode=PERSISTENT, JMSPriority=4, JMSTimestamp=4, JMSExpiration=5, "
        "JMSType='a\\nb', JMSXUserID='guest', body type=TEXT, body octets=6, x-foo='1'"
    )
    assert properties_line({"a": 1, "b": "x"}) == "a=1, b='x'"
    assert properties_line({}) == "none"


@pytest.mark.parametrize("content", [None, original()])
def test_what_cannot_be_read_is_in_no_envelope(content: Message | None) -> None:
    damaged = Unreadable(original(body_type=BodyType.MAP), "EOFException: it ends too soon")
    body = body_of(damaged, content)
    assert body.failure == "it cannot be read: EOFException: it ends too soon"
    text = body.octets.decode()
    assert "JMSMessageID: ID:there:1" in text
    assert "colour (str): red" in text
    assert text.endswith(
        "\n(incomplete, as it cannot be read: EOFException: it ends too soon)\noctets: 00ff"
    )
    assert made(died(damaged)).headers.properties["JMS_SUN_JMSBRIDGE_DMQ_BODY_TRUNCATED"] == "true"
