"""What the rules of a target make of messages."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.model import Destination as Configured
from bridge.config.model import Rule, SetHeader
from bridge.link.rules import Rules
from gateway.messaging.destination import Kind, Queue
from gateway.messaging.message import Headers, Message
from gateway.messaging.values import Int, Value

ELSEWHERE = Configured("elsewhere", "elsewhere", Kind.QUEUE)
NOWHERE = Configured("nowhere", "nowhere", Kind.QUEUE)


def message(properties: dict[str, Value] | None = None, **headers: Any) -> Message:
    return Message(
        Headers(Queue("orders"), properties=properties or {}, **headers),
        b"body",
        expires=7,
        timestamp=5,
        message_id="ID-1",
    )


def applied(given: Message, *rules: Rule) -> Message:
    """The message as the rules leave it. That given is as it was."""
    before = given.headers.replace()
    ruled = Rules(rules).apply(given)
    assert not ruled.dropped
    assert given.headers == before
    made = ruled.message
    assert (made.body, made.expires, made.timestamp, made.message_id) == (b"body", 7, 5, "ID-1")
    return made


def test_what_matches_is_changed() -> None:
    rule = Rule("country = 'DE'", sets=(SetHeader("region", "eu"),))
    assert applied(message({"country": "DE"}), rule).headers.properties == {
        "country": "DE",
        "region": "eu",
    }
    assert applied(message({"country": "US"}), rule).headers.properties == {"country": "US"}
    # Unknown is not true.
    assert applied(message(), rule).headers.properties == {}


def test_removed_renamed_and_set_in_this_order() -> None:
    made = applied(
        message(
            {"a": 1, "b": Int(2), "old": 3}, extras=(("x-one", "1"), ("x-two", "2"), ("y", "3"))
        ),
        Rule(
            removes=("a", "x-*", "absent"),
            renames=(("b", "c"), ("absent", "d"), ("y", "y-y")),
            sets=(SetHeader("was", source="old"), SetHeader("old", "9", "long")),
        ),
    )
    assert made.headers.properties == {"c": 2, "old": 9, "was": 3}
    assert type(made.headers.properties["c"]) is Int
    assert made.headers.extras == (("y-y", "3"),)


def test_what_is_copied_is_read_before_the_rule_changes_it() -> None:
    rule = Rule(removes=("a",), sets=(SetHeader("b", source="a"),))
    assert applied(message({"a": "1"}), rule).headers.properties == {"b": "1"}
    assert applied(message({"b": "2"}), rule).headers.properties == {"b": "2"}


def test_header_fields() -> None:
    made = applied(
        message({"order": 7}, type="t", priority=4),
        Rule(
            renames=(("JMSType", "kind"),),
            sets=(
                SetHeader("JMSCorrelationID", source="order"),
                SetHeader("JMSPriority", "9"),
                SetHeader("JMSDeliveryMode", "NON_PERSISTENT"),
                SetHeader("id", source="JMSMessageID"),
                SetHeader("from", source="JMSDestination"),
                SetHeader("content-type", "text/plain"),
                SetHeader("at", source="JMSTimestamp"),
            ),
        ),
    ).headers
    assert (made.correlation_id, made.type, made.priority, made.persistent) == ("7", None, 9, False)
    assert made.properties == {
        "order": 7,
        "kind": "t",
        "id": "ID-1",
        "from": "orders",
        "at": 5,
    }
    assert made.extras == (("content-type", "text/plain"),)


def test_each_rule_sees_what_those_before_made() -> None:
    first = Rule(sets=(SetHeader("stage", "1"),))
    second = Rule("stage = '1'", sets=(SetHeader("seen", "true", "boolean"),))
    assert applied(message(), first, second).headers.properties == {"stage": "1", "seen": True}
    assert applied(message(), second, first).headers.properties == {"stage": "1"}


def test_last() -> None:
    rules = (
        Rule("a = 1", last=True),
        Rule(sets=(SetHeader("b", "2"),)),
    )
    assert applied(message({"a": 1}), *rules).headers.properties == {"a": 1}
    assert applied(message({"a": 2}), *rules).headers.properties == {"a": 2, "b": "2"}


@pytest.mark.parametrize(
    ("colour", "destination", "dropped"),
    [("red", None, True), ("blue", ELSEWHERE, False), ("green", NOWHERE, False), ("", None, False)],
)
def test_where_to(colour: str, destination: Configured | None, dropped: bool) -> None:
    rules = Rules(
        [
            Rule("colour IN ('blue', 'green', 'red')", destination=ELSEWHERE),
            Rule("colour = 'green'", destination=NOWHERE),
            Rule("colour = 'red'", drop=True),
        ]
    )
    ruled = rules.apply(message({"colour": colour} if colour else {}))
    assert ruled.dropped is dropped
    assert dropped or ruled.destination is destination
