"""What is not done as asked is refused, with a remedy.

Nothing is taken and then forgotten.
"""

from __future__ import annotations

import pytest

from tests.conformance.client import Client
from tests.conformance.conftest import Connect

DURABLE_NAMES = (
    "durable-subscriber-name",
    "durable-subscription-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",
)


def refused(client: Client, *words: str) -> None:
    error = client.error()
    assert error["receipt-id"] == "r"
    for word in words:
        assert word in error.text


@pytest.mark.parametrize("name", DURABLE_NAMES)
def test_a_durable_name_on_a_queue_is_an_error(
    connect: Connect, queue: str, version: str, name: str
) -> None:
    client = connect(version, client_id=f"c{queue}")
    client.send("SUBSCRIBE", {"destination": queue, "id": "1", "receipt": "r", name: "d"})
    refused(client, name, "a queue keeps its messages", "without")


def test_a_durable_name_on_a_temporary_queue_is_an_error(connect: Connect) -> None:
    client = connect(client_id="temporary")
    client.send(
        "SUBSCRIBE",
        {"destination": "/temp-queue/a", "id": "1", "receipt": "r", "durable-subscriber-name": "d"},
    )
    refused(client, "durable-subscriber-name")


@pytest.mark.parametrize("name", ["durable", "persistent"])
@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_rabbitmqs_durable_on_a_topic_is_an_error(
    connect: Connect, topic: str, version: str, name: str, value: str
) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", {"destination": topic, "id": "1", "receipt": "r", name: value})
    refused(client, f"{name}:true", "durable-subscriber-name", "client-id")


def test_rabbitmqs_durable_on_a_topic_is_an_error_without_an_id(
    connect: Connect, topic: str
) -> None:
    client = connect("1.0")
    client.send("SUBSCRIBE", {"destination": topic, "durable": "true", "receipt": "r"})
    refused(client, "durable-subscriber-name")


@pytest.mark.parametrize("name", ["durable", "persistent"])
def test_rabbitmqs_durable_is_harmless_on_a_queue_or_where_the_subscription_is_durable(
    connect: Connect, queue: str, topic: str, name: str
) -> None:
    client = connect(client_id=f"c{queue}")
    client.subscribe(queue, "q", **{name: "true", "auto-delete": "false", "exclusive": "false"})
    client.subscribe(topic, "t", **{name: "false"})
    client.subscribe(topic, "d", **{name: "true", "durable-subscriber-name": "d"})
    client.send("SEND", {"destination": queue}, "1")
    client.send("SEND", {"destination": topic}, "2")
    assert sorted((message["subscription"], message.text) for message in client.messages(3)) == [
        ("d", "2"),
        ("q", "1"),
        ("t", "2"),
    ]
    client.ask("UNSUBSCRIBE", {"durable-subscriber-name": "d"})


@pytest.mark.parametrize("selector", ["", " ", "\t \t"])
def test_a_blank_selector_is_an_error(
    connect: Connect, queue: str, topic: str, version: str, selector: str
) -> None:
    for destination in (queue, topic):
        client = connect(version)
        client.send(
            "SUBSCRIBE",
            {"destination": destination, "id": "1", "receipt": "r", "selector": selector},
        )
        refused(client, "selector is blank", "leave the header out")


@pytest.mark.parametrize("word", ["DELAY", "PERIOD", "CRON", "REPEAT", "TIME"])
def test_scheduled_delivery_that_cannot_be_read_is_an_error(
    connect: Connect, queue: str, version: str, word: str
) -> None:
    client = connect(version)
    asked = {"AMQ_SCHEDULED_DELAY": "1", f"AMQ_SCHEDULED_{word}": "soon"}
    client.send("SEND", {"destination": queue, **asked, "receipt": "r"}, "1")
    refused(client, f"AMQ_SCHEDULED_{word}", "soon")
    other = connect()
    other.subscribe(queue)
    other.put("/topic/nobody.listens", "")  # nothing has come of it


def test_scheduled_delivery_in_a_transaction_that_cannot_be_read_has_nothing_of_it_sent(
    connect: Connect, queue: str
) -> None:
    client, other = connect(), connect()
    client.send("BEGIN", transaction="t")
    client.send("SEND", {"destination": queue, "transaction": "t"}, "1")
    client.send(
        "SEND",
        {"destination": queue, "transaction": "t", "AMQ_SCHEDULED_DELAY": "-1", "receipt": "r"},
        "2",
    )
    refused(client, "AMQ_SCHEDULED_DELAY")
    other.subscribe(queue)
    assert other.sync() == []


@pytest.mark.parametrize("receipt", [None, "c1"])
def test_request_id_of_connect_comes_back_with_connected(
    connect: Connect, version: str, receipt: str | None
) -> None:
    """As ActiveMQ does: a client of the first days knows its CONNECTED by it.

    No other frame has a ``response-id``.
    """
    headers = {} if receipt is None else {"receipt": receipt}
    client = connect(version, **headers, **{"request-id": "r1"})
    connected = client.connected
    assert connected is not None
    assert (connected["response-id"], connected["receipt-id"]) == ("r1", receipt or "r1")


def test_request_id_of_other_frames_is_a_header_like_any_other(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    assert client.connected is not None
    assert "response-id" not in client.connected
    client.subscribe(queue, **{"request-id": "r1"})
    client.send("SEND", {"destination": queue, "request-id": "r2"}, "1")
    message = client.message()
    assert message["request-id"] == "r2"
    assert "response-id" not in message
    client.send("SUBSCRIBE", {"destination": "nowhere", "id": "2", "request-id": "r4"})
    assert "response-id" not in client.error()
