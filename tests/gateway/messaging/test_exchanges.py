"""Each exchange of RabbitMQ's and each key of it has a topic of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.exchanges import (
    QueueDeclaration,
    exchange_of,
    is_declared,
    topic_of,
    whole_exchange,
)

#: With what could be mistaken for a part of another name.
PARTS = st.lists(
    st.sampled_from(("a", "b", ".", "%", "%2E", "%25", "amq", "direct", "exchange", "*", "#", ">", "none", "/")),
    max_size=6,
).map("".join)  # fmt: skip


@given(PARTS, PARTS)
def test_a_topic_stands_for_one_exchange_and_key(exchange: str, key: str) -> None:
    topic = topic_of(exchange, key)
    if topic is None or exchange == "amq.topic":
        return
    there = exchange_of(topic)
    keyless = (exchange, "none") if exchange.startswith(("amq.f", "amq.h")) else (exchange, "")
    assert there == ((exchange, key) if key else keyless)


@given(PARTS)
def test_whatever_is_no_exchange_is_a_topic(name: str) -> None:
    for topic in (name, f"amq.{name}", f"amq.exchange.{name}"):
        found = exchange_of(topic)
        if found is not None and found[1] not in ("", "none"):
            assert topic_of(*found) == topic
        if topic and found is None:
            assert topic_of("amq.topic", topic) == topic


@pytest.mark.parametrize(
    ("exchange", "key", "topic"),
    [
        ("amq.topic", "a.b", "a.b"),
        ("amq.direct", "a.b", "amq.direct.a.b"),
        ("amq.fanout", "", "amq.fanout.none"),
        ("orders", "created", "amq.exchange.orders.created"),
        ("orders", "", "amq.exchange.orders"),
        ("orders.eu", "created", "amq.exchange.orders%2Eeu.created"),
        ("orders", "eu.created", "amq.exchange.orders.eu.created"),
        ("orders%2Eeu", "created", "amq.exchange.orders%252Eeu.created"),
        ("amq.match", "a", "amq.exchange.amq%2Ematch.a"),
        # A key is missing, or the name would be another exchange's.
        ("amq.topic", "", None),
        ("amq.topic", "amq.direct.a", None),
        ("amq.direct", "", None),
        # By these RabbitMQ tells what others do.
        ("amq.rabbitmq.trace", "publish.orders", None),
        ("amq.rabbitmq.log", "", None),
        ("", "orders", None),
        ("*", "a", None),
        ("#", "a", None),
        (">", "a", None),
    ],
)
def test_names_of_exchanges(exchange: str, key: str, topic: str | None) -> None:
    assert topic_of(exchange, key) == topic


@pytest.mark.parametrize(
    "topic",
    [
        "amq.exchange",
        "amq.exchange.",
        "amq.exchange..a",
        "amq.exchange.orders.",
        "amq.exchange.*.a",
        "amq.exchange.>",
        "amq.exchange.orders%2eeu.a",
        "amq.exchange.amq%2Etopic.a",
        "amq.exchange.amq%2Edirect.a",
        "amq.exchange.amq%2Erabbitmq%2Etrace.a",
    ],
)
def test_an_exchange_has_no_second_name(topic: str) -> None:
    assert exchange_of(topic) is None
    assert not is_declared(topic)


def test_the_keys_of_an_exchange_are_one_pattern() -> None:
    assert whole_exchange("orders.eu") == "amq.exchange.orders%2Eeu.>"
    assert whole_exchange("amq.fanout") == "amq.fanout.>"
    assert whole_exchange("amq.topic") == ">"
    assert whole_exchange("amq.rabbitmq.trace") is None


def test_what_a_queue_is() -> None:
    assert QueueDeclaration(exists=True).is_plain
    assert QueueDeclaration("", (("durable", "true"),)).is_plain
    assert not QueueDeclaration("q").is_plain
    assert not QueueDeclaration("", (("x-max-length", "1"),)).is_plain
    assert QueueDeclaration("q", (("x-queue-type", "stream"),)).is_stream
    assert QueueDeclaration(headers=(("x-stream-offset", "first"),), exists=True).is_stream
    assert not QueueDeclaration("q", (("x-queue-type", "quorum"),)).is_stream
