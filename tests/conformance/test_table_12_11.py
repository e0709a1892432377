"""Table 12-11 of the administration guide: a section for each row.

"STOMP Bridge Handling of Selected Command/Header Combinations".

What a row says is quoted or restated above its tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client, Frame
from tests.conformance.conftest import Connect


def bodies(messages: list[Frame]) -> list[str]:
    return [message.text for message in messages]


# CONNECT: login, passcode. "The STOMP bridge requires these headers to be specified; otherwise, it
# returns an ERROR frame."


@pytest.mark.parametrize("missing", ["login", "passcode"])
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_connect_requires_login_and_passcode(
    dial: Callable[..., Client], version: str, command: str, missing: str
) -> None:
    client = dial()
    headers = {"accept-version": version, "host": "h", "login": "guest", "passcode": "guest"}
    del headers[missing]
    client.send(command, headers)
    client.error(missing)


# SEND, SUBSCRIBE, UNSUBSCRIBE, MESSAGE: destination.


@pytest.mark.parametrize("prefix", ["/queue/", "/topic/"])
def test_destination_prefixes_name_queues_and_topics(
    connect: Connect, queue: str, version: str, prefix: str
) -> None:
    destination = prefix + queue.removeprefix("/queue/")
    sender, receiver = connect(version), connect(version)
    receiver.subscribe(destination)
    sender.put(destination, "1")
    message = receiver.message()
    assert message["destination"] == destination


def test_destination_a_queue_and_a_topic_of_one_name_are_two(connect: Connect, queue: str) -> None:
    client = connect()
    topic = queue.replace("/queue/", "/topic/")
    client.subscribe(topic)
    client.put(queue, "for the queue")
    client.send("SEND", {"destination": topic}, "for the topic")
    assert client.message().text == "for the topic"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destination_temp_prefixes_name_temporary_destinations_of_the_connection(
    connect: Connect, version: str, kind: str
) -> None:
    """``/temp-queue/NAME``: NAME is this connection's own; another connection's NAME is another
    destination.
    """
    first, second = connect(version), connect(version)
    name = f"/temp-{kind}/answers"
    for client in (first, second):
        client.subscribe(name)
    for client, body in ((first, "1"), (second, "2"), (first, "3")):
        client.send("SEND", {"destination": name}, body)
    assert bodies(first.messages(2)) == ["1", "3"]
    assert second.message().text == "2"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destination_of_a_message_from_a_temporary_one_has_the_reserved_prefix(
    connect: Connect, version: str, kind: str
) -> None:
    client = connect(version)
    client.subscribe(f"/temp-{kind}/answers")
    client.send("SEND", {"destination": f"/temp-{kind}/answers"}, "1")
    assert client.message()["destination"].startswith(
        f"/temp-{kind}/temporary_destination://{kind}/"
    )


def test_destination_a_temporary_queue_and_a_temporary_topic_of_one_name_are_two(
    connect: Connect,
) -> None:
    client = connect()
    client.subscribe("/temp-topic/x")
    client.put("/temp-queue/x", "for the queue")
    client.send("SEND", {"destination": "/temp-topic/x"}, "for the topic")
    assert client.message().text == "for the topic"


def test_destination_a_temporary_queue_takes_any_ack_mode_and_is_unsubscribed_from(
    connect: Connect, version: str
) -> None:
    client = connect(version)
    client.subscribe("/temp-queue/x", ack="client")
    client.send("SEND", {"destination": "/temp-queue/x"}, "1")
    client.message()
    assert client.ask("UNSUBSCRIBE", id="s") == []
    client.subscribe("/temp-queue/x", "again")
    assert client.message()["redelivered"] == "true"


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize(
    "destination",
    [
        "",
        "name",
        "/name",
        "queue/name",
        "/Queue/name",
        "/queue/",
        "/temp-queue/",
        "/dsub/name",
        "/exchange/x/y",
    ],
)
def test_destination_with_another_prefix_is_an_error(
    connect: Connect, command: str, destination: str
) -> None:
    client = connect()
    client.send(command, {"destination": destination}, id="1")
    client.error("destination")


# The same row: "/temp-queue/temporary_destination://queue/" and the like are for replies to a
# MESSAGE.


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destination_only_the_creator_subscribes_to_a_reserved_name(
    connect: Connect, queue: str, kind: str
) -> None:
    owner, other = connect(), connect()
    owner.put(queue, "request", **{"reply-to": f"/temp-{kind}/answers"})
    other.subscribe(queue)
    reserved = other.message()["reply-to"]
    other.send("SUBSCRIBE", destination=reserved, id="theft")
    other.error("temporary")
    owner.subscribe(reserved)
    owner.send("SEND", {"destination": f"/temp-{kind}/answers"}, "1")
    assert owner.message().text == "1"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_destination_a_reserved_name_that_never_was_is_an_error(
    connect: Connect, kind: str
) -> None:
    client = connect()
    client.send(
        "SEND",
        {"destination": f"/temp-{kind}/temporary_destination://{kind}/{'0' * 32}"},
        "1",
        receipt="1",
    )
    client.error(receipt_id="1")


def test_destination_temporary_ones_end_with_their_connection(connect: Connect, queue: str) -> None:
    owner, other = connect(), connect()
    owner.put(queue, "request", **{"reply-to": "/temp-queue/answers"})
    other.subscribe(queue)
    reserved = other.message()["reply-to"]
    owner.disconnect()
    other.send("SEND", {"destination": reserved}, "too late", receipt="1")
    other.error(receipt_id="1")


# SEND: expires, priority, persistent. Absent, they are as for a Message Queue Java client: never,
# 4, persistent.


def test_send_without_expires_priority_persistent_has_jms_defaults(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue})
    message = client.message()
    assert (message["expires"], message["priority"], message["persistent"]) == ("0", "4", "true")


# SEND: user specific headers. They become String properties.


def test_send_user_specific_headers_are_string_properties(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.put(queue, "1", colour="red", **{"$x1": "1"})
    client.put(queue, "2", colour="red", **{"$x1": "2"})
    client.subscribe(queue, selector="colour = 'red' AND $x1 = '2'")
    message = client.message()
    assert (message.text, message["colour"], message["$x1"]) == ("2", "red", "2")


# SUBSCRIBE: selector. "Supported as described in the STOMP JMS Bindings": SQL-92.


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("colour = 'red'", ["1"]),
        ("colour <> 'red'", ["2"]),
        ("colour IS NULL", ["3"]),
        ("colour IN ('red', 'blue') AND NOT colour LIKE 'b%'", ["1"]),
        ("size > 10", ["2"]),
        ("size BETWEEN 1 AND 5", ["1"]),
        ("size * 2 = 40", ["2"]),
        ("JMSPriority > 7", ["3"]),
        ("JMSType = 'odd'", ["2"]),
        ("JMSCorrelationID = 'c1' OR size = 20", ["1", "2"]),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", ["3"]),
    ],
)
def test_subscribe_selector_chooses(
    connect: Connect, queue: str, version: str, selector: str, selected: list[str]
) -> None:
    client = connect(version)
    client.put(queue, "1", **{"colour": "red", "size": "5", "correlation-id": "c1"})
    client.put(queue, "2", colour="blue", size="20", type="odd")
    client.put(queue, "3", priority="9", persistent="false")
    client.subscribe(queue, selector=selector, ack="client")
    assert bodies(client.messages(len(selected))) == selected
    assert client.sync() == []


def test_subscribe_selector_leaves_the_rest_to_others(connect: Connect, queue: str) -> None:
    picky, other = connect(), connect()
    picky.subscribe(queue, selector="colour = 'red'")
    picky.put(queue, "1", colour="blue")
    other.subscribe(queue)
    assert other.message().text == "1"


def test_subscribe_selector_works_on_topics(connect: Connect, topic: str) -> None:
    client = connect()
    client.subscribe(topic, selector="colour = 'red'")
    client.put(topic, "1", colour="blue")
    client.send("SEND", {"destination": topic, "colour": "red"}, "2")
    assert client.message().text == "2"


@pytest.mark.parametrize(
    "selector", ["colour =", "= 'red'", "colour = 'red' AND", "colour LIKE 5", "(((", "1 + 1"]
)
def test_subscribe_selector_that_is_none_is_an_error(
    connect: Connect, queue: str, version: str, selector: str
) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", destination=queue, id="1", selector=selector, receipt="r")
    client.error("selector", receipt_id="r")


# SUBSCRIBE: id. The default is "/subscription-to/" and the destination, which UNSUBSCRIBE and ACK
# take and MESSAGE does not tell: no 1.0 client knows an id that it never gave. An id is unique
# within the connection.


@pytest.mark.parametrize("destination", ["/queue/a.%s", "/topic/a.%s"])
def test_subscribe_id_defaults_to_subscription_to_destination(
    connect: Connect, queue: str, destination: str
) -> None:
    destination %= queue.removeprefix("/queue/")
    client = connect("1.0")
    assert client.ask("SUBSCRIBE", destination=destination) == []
    client.send("SEND", {"destination": destination}, "1")
    assert "subscription" not in client.message()
    assert client.ask("UNSUBSCRIBE", id=f"/subscription-to/{destination}") == []
    assert client.ask("SUBSCRIBE", destination=destination, ack="client-individual") == []
    for body in ("2", "3"):
        client.send("SEND", {"destination": destination}, body)
    first, second = client.messages(2)
    assert (
        client.ask(
            "ACK",
            {"message-id": first["message-id"], "subscription": f"/subscription-to/{destination}"},
        )
        == []
    )
    assert client.ask("ACK", {"message-id": second["message-id"]}) == []
    assert client.ask("UNSUBSCRIBE", destination=destination) == []


def test_subscribe_id_of_the_form_of_the_default_is_told_if_it_was_given(
    connect: Connect, queue: str
) -> None:
    client = connect("1.0")
    client.subscribe(queue, f"/subscription-to/{queue}")
    client.send("SEND", {"destination": queue}, "1")
    assert client.message()["subscription"] == f"/subscription-to/{queue}"


def test_subscribe_without_id_has_a_browser_told_of_no_id_either(
    connect: Connect, queue: str
) -> None:
    client = connect("1.0")
    client.put(queue, "1")
    assert client.ask("SUBSCRIBE", destination=queue, browser="true") == []
    assert ["subscription" in message for message in client.messages(2)] == [False, False]


def test_subscribe_id_default_is_unique_too(connect: Connect, queue: str) -> None:
    client = connect("1.0")
    client.send("SUBSCRIBE", destination=queue)
    client.send("SUBSCRIBE", destination=queue)
    client.error("/subscription-to/")


# SUBSCRIBE: transaction.


def test_subscribe_transaction_must_be_started(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", destination=queue, id="1", transaction="t", receipt="r")
    client.error("transaction", receipt_id="r")


def test_subscribe_transaction_must_be_the_one_that_is_started(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.send("BEGIN", transaction="other")
    client.send("SUBSCRIBE", destination=queue, id="1", transaction="t")
    client.error("transaction")


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_subscribe_transaction_delivery_pauses_until_the_next_begin(
    connect: Connect, queue: str, version: str, end: str
) -> None:
    client = connect(version)
    client.send("BEGIN", transaction="t1")
    client.subscribe(queue, transaction="t1")
    client.send("SEND", {"destination": queue}, "1")
    client.ack(client.message())
    assert client.ask(end, transaction="t1") == []
    client.put(queue, "2")
    assert client.sync() == []
    client.send("BEGIN", transaction="t2")
    expected = ["2"] if end == "COMMIT" else ["1", "2"]
    assert bodies(client.messages(len(expected))) == expected


def test_subscribe_transaction_pauses_all_transacted_subscriptions_and_no_other(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.send("BEGIN", transaction="t1")
    for name in ("a", "b"):
        client.subscribe(f"{queue}.{name}", name, transaction="t1")
    client.subscribe(f"{queue}.plain", "plain")
    client.send("COMMIT", transaction="t1")
    for name in ("a", "b", "plain"):
        client.send("SEND", {"destination": f"{queue}.{name}"}, name)
    assert client.message()["subscription"] == "plain"
    assert client.sync() == []
    client.send("BEGIN", transaction="t2")
    assert {message["subscription"] for message in client.messages(2)} == {"a", "b"}


# ABORT: transaction. All transacted subscriptions stop; the next BEGIN delivers everything again
# that was not consumed.


def test_abort_redelivers_what_was_not_consumed_at_the_next_begin(
    connect: Connect, queue: str, version: str
) -> None:
    """Acknowledged in the aborted transaction or not acknowledged at all: both come again, in
    order, marked.
    """
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", transaction="t1")
    client.ack(held[1])
    assert client.ask("ABORT", transaction="t1") == []
    assert client.sync() == []
    client.send("BEGIN", transaction="t2")
    again = client.messages(3)
    assert bodies(again) == ["1", "2", "3"]
    assert [message["redelivered"] for message in again] == ["true"] * 3
    assert [message["message-id"] for message in again] == [
        message["message-id"] for message in held
    ]


def test_abort_covers_all_transacted_subscriptions_of_the_connection(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    names = ("a", "b")
    for name in names:
        client.put(f"{queue}.{name}", name)
    client.send("BEGIN", transaction="t1")
    for name in names:
        client.send("SUBSCRIBE", destination=f"{queue}.{name}", id=name, transaction="t1")
    held = client.messages(2)
    client.ack(held[0])
    client.send("ABORT", transaction="t1")
    client.send("BEGIN", transaction="t2")
    again = client.messages(2)
    assert sorted(bodies(again)) == ["a", "b"]
    assert {message["redelivered"] for message in again} == {"true"}


def test_abort_leaves_what_earlier_commits_consumed(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", transaction="t1")
    client.ack(held[0])
    client.send("COMMIT", transaction="t1")
    client.send("BEGIN", transaction="t2")
    client.ack(held[1])
    client.send("ABORT", transaction="t2")
    client.send("BEGIN", transaction="t3")
    assert bodies(client.messages(2)) == ["2", "3"]
    assert client.sync() == []


def test_abort_again_and_again_redelivers_again_and_again(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.put(queue, "1", "2")
    client.send("BEGIN", transaction="t")
    client.subscribe(queue, transaction="t")
    for attempt in range(1, 21):
        held = client.messages(2)
        assert bodies(held) == ["1", "2"]
        assert [message.headers.get("JMSXDeliveryCount", "1") for message in held] == [
            str(attempt)
        ] * 2
        client.ack(held[1])
        client.send("ABORT", transaction="t")
        client.send("BEGIN", transaction="t")


def test_abort_forgets_what_was_sent(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    [held] = client.hold(queue, "in", transaction="t")
    client.ack(held)
    client.send("SEND", {"destination": f"{queue}.out", "transaction": "t"}, "never")
    assert client.ask("ABORT", transaction="t") == []
    client.put(f"{queue}.out", "marker")
    client.subscribe(f"{queue}.out", "out")
    assert client.message().text == "marker"


# SUBSCRIBE: ack. "For STOMP ack:auto (the default), a subscribed message is considered acknowledged
# as soon as it is sent".


@pytest.mark.parametrize("headers", [{}, {"ack": "auto"}])
def test_subscribe_ack_auto_is_acknowledged_when_sent(
    connect: Connect, queue: str, version: str, headers: dict[str, str]
) -> None:
    client = connect(version)
    client.put(queue, *map(str, range(100)))
    client.subscribe(queue, **headers)
    client.messages(100)
    assert client.sync() == []
    client.close()
    other = connect(version)
    other.put(queue, "marker")
    other.subscribe(queue)
    assert other.message().text == "marker"


# UNSUBSCRIBE: durable-subscriber-name.


def test_unsubscribe_durable_removes_the_subscription(
    connect: Connect, topic: str, version: str
) -> None:
    durable = {"durable-subscriber-name": "d"}
    client = connect(version, client_id=topic)
    client.subscribe(topic, **durable)
    assert client.ask("UNSUBSCRIBE", id="s") == []
    client.put(topic, "kept")
    assert client.ask("UNSUBSCRIBE", durable) == []
    client.put(topic, "for nobody")
    client.subscribe(topic, **durable)
    client.send("SEND", {"destination": topic}, "after")
    assert client.message().text == "after"


def test_unsubscribe_durable_ignores_destination_and_id(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version, client_id=topic)
    client.subscribe(topic, "d", **{"durable-subscriber-name": "d"})
    client.subscribe(topic, "other")
    headers = {"durable-subscriber-name": "d", "id": "other", "destination": "/queue/unrelated"}
    assert client.ask("UNSUBSCRIBE", headers) == []
    client.send("SEND", {"destination": topic}, "1")
    assert client.message()["subscription"] == "other"
    assert client.sync() == []


def test_unsubscribe_durable_needs_a_client_id(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("UNSUBSCRIBE", {"durable-subscriber-name": "d"}, receipt="r")
    client.error("client-id", receipt_id="r")


def test_unsubscribe_durable_closes_its_active_subscriber_first(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version, client_id=topic)
    client.subscribe(topic, **{"durable-subscriber-name": "d"})
    assert client.ask("UNSUBSCRIBE", {"durable-subscriber-name": "d"}) == []
    client.put(topic, "for nobody")
    assert client.sync() == []
    client.subscribe(topic, "s")  # its id is free again


def test_unsubscribe_durable_that_is_unknown_is_an_error(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version, client_id=topic)
    client.send("UNSUBSCRIBE", {"durable-subscriber-name": "none"}, receipt="r")
    start = time.monotonic()
    error = client.error()
    assert time.monotonic() - start < 4, "it waited for the time limit of endings"
    assert "none" in error["message"]
    assert error["receipt-id"] == "r"


# BEGIN: transaction. "Nested transactions are not supported. On attempts to start a nested
# transaction, an ERROR frame is returned."


@pytest.mark.parametrize("second", ["t", "another"])
def test_begin_within_a_transaction_is_an_error(
    connect: Connect, version: str, second: str
) -> None:
    client = connect(version)
    client.send("BEGIN", transaction="t")
    client.send("BEGIN", transaction=second, receipt="r")
    client.error("nested", receipt_id="r")


# ACK: subscription.


def test_ack_without_subscription_finds_the_default_one_first(connect: Connect, topic: str) -> None:
    """One message held twice by one connection: the subscription with the default id is meant."""
    client = connect("1.0")
    durable = {"ack": "client"}
    client.subscribe(topic, "named", **durable)
    assert client.ask("SUBSCRIBE", {"destination": topic, **durable}) == []
    client.send("SEND", {"destination": topic}, "1")
    message, other = client.messages(2)
    assert message["message-id"] == other["message-id"]
    assert client.ask("ACK", {"message-id": message["message-id"]}) == []
    assert client.ask("ACK", {"message-id": message["message-id"], "subscription": "named"}) == []
    client.send("ACK", {"message-id": message["message-id"]})
    client.error()


def test_ack_with_subscription_means_that_one(connect: Connect, topic: str) -> None:
    client = connect("1.0")
    client.subscribe(topic, "named", ack="client")
    assert client.ask("SUBSCRIBE", {"destination": topic, "ack": "client"}) == []
    client.send("SEND", {"destination": topic}, "1")
    message, _ = client.messages(2)
    assert client.ask("ACK", {"message-id": message["message-id"], "subscription": "named"}) == []
    client.send("ACK", {"message-id": message["message-id"], "subscription": "named"}, receipt="r")
    client.error(receipt_id="r")


def test_ack_with_transaction_for_a_subscription_that_is_not_transacted_is_an_error(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    [held] = client.hold(queue, "1", ack="client")
    client.send("BEGIN", transaction="t")
    client.ack(held, transaction="t", receipt="r")
    error = client.error()
    assert error["receipt-id"] == "r"
    assert "imq.bridge.stomp.ack.transaction=join" in error.text


def test_ack_acknowledges_all_earlier_messages_of_the_subscription(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", "4", "5", ack="client")
    client.ack(held[3])
    assert client.left(queue) == ["5"]


# ACK: transaction.


def test_ack_in_a_transacted_subscription_is_cumulative_and_counts_at_commit(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", transaction="t")
    assert client.ask("ACK", _named(client, held[1]), transaction="t") == []
    assert client.ask("COMMIT", transaction="t") == []
    assert client.left(queue) == ["3"]


def _named(client: Client, message: Frame) -> dict[str, str]:
    if client.version == "1.2":
        return {"id": message["ack"]}
    return {"message-id": message["message-id"], "subscription": message["subscription"]}


def test_ack_in_a_transaction_is_cumulative_whatever_the_ack_mode(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.put(queue, "1", "2")
    client.send("BEGIN", transaction="t")
    client.subscribe(queue, transaction="t", ack="client-individual")
    client.ack(client.messages(2)[1], transaction="t")
    assert client.ask("COMMIT", transaction="t") == []
    assert client.left(queue) == []


@pytest.mark.parametrize("orderly", [True, False])
def test_ack_in_a_transaction_without_commit_consumes_nothing(
    connect: Connect, queue: str, version: str, orderly: bool
) -> None:
    client = connect(version)
    client.put(queue, "1")
    client.send("BEGIN", transaction="t")
    client.subscribe(queue, transaction="t")
    assert client.ask("ACK", _named(client, client.message()), transaction="t") == []
    if orderly:
        client.disconnect()
    else:
        client.close()
    other = connect(version)
    other.subscribe(queue)
    again = other.message()
    assert (again.text, again["redelivered"]) == ("1", "true")


def test_ack_without_transaction_joins_the_current_one(
    connect: Connect, queue: str, version: str
) -> None:
    """ "If the transaction header is not specified but the subscription header is [...] in the
    current transaction".
    """
    client = connect(version)
    held = client.hold(queue, "1", "2", transaction="t1")
    client.ack(held[0])
    client.send("ABORT", transaction="t1")
    client.send("BEGIN", transaction="t2")
    held = client.messages(2)
    client.ack(held[0])
    assert client.ask("COMMIT", transaction="t2") == []
    assert client.left(queue) == ["2"]


def test_ack_of_a_transacted_subscription_without_a_current_transaction_is_an_error(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    [held] = client.hold(queue, "1", transaction="t")
    client.send("COMMIT", transaction="t")
    client.ack(held, receipt="r")
    client.error("transaction", receipt_id="r")


def test_ack_in_another_transaction_than_the_current_one_is_an_error(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    [held] = client.hold(queue, "1", transaction="t")
    client.ack(held, transaction="other")
    client.error("transaction")


def test_ack_may_come_in_a_later_transaction_than_the_delivery(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", transaction="t1")
    client.ack(held[0], transaction="t1")
    client.send("COMMIT", transaction="t1")
    client.send("BEGIN", transaction="t2")
    client.ack(held[2], transaction="t2")
    assert client.ask("COMMIT", transaction="t2") == []
    assert client.left(queue) == []


def test_ack_and_sends_of_a_transaction_are_one(connect: Connect, queue: str, version: str) -> None:
    """A consumer that passes messages on: what it consumed and what it sent count together."""
    client, watcher = connect(version), connect(version)
    client.put(queue, "1", "2")
    watcher.subscribe(f"{queue}.out")
    client.send("BEGIN", transaction="t")
    client.subscribe(queue, transaction="t")
    for end in ("ABORT", "COMMIT"):
        held = client.messages(2)
        for message in held:
            client.ack(message, transaction="t")
            client.send(
                "SEND", {"destination": f"{queue}.out", "transaction": "t"}, f"{message.text} {end}"
            )
        assert client.ask(end, transaction="t") == []
        if end == "ABORT":
            client.send("BEGIN", transaction="t")
    assert bodies(watcher.messages(2)) == ["1 COMMIT", "2 COMMIT"]
    client.disconnect()
    watcher.put(queue, "marker")
    watcher.subscribe(queue, "in")
    assert watcher.message().text == "marker"


# MESSAGE, ERROR: content-length. Always set.


def test_message_and_error_always_have_content_length(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(queue)
    for body in ("", "text", "größer"):
        client.send("SEND", {"destination": queue}, body)
        assert client.message()["content-length"] == str(len(body.encode()))
    client.send("ABORT", transaction="none")
    error = client.error()
    assert error["content-length"] == str(len(error.body))


# SEND, MESSAGE: reply-to.


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_reply_to_in_the_same_session_by_its_own_name(
    connect: Connect, queue: str, version: str, kind: str
) -> None:
    """ "use the same temporary destination string that is used in the SEND's reply-to header"."""
    client = connect(version)
    answers = f"/temp-{kind}/answers"
    client.subscribe(answers, "answers")
    client.subscribe(queue, "requests")
    client.send("SEND", {"destination": queue, "reply-to": answers}, "request")
    assert client.message()["subscription"] == "requests"
    client.send("SEND", {"destination": answers}, "answer")
    answer = client.message()
    assert (answer["subscription"], answer.text) == ("answers", "answer")


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_reply_to_in_the_same_session_by_the_string_of_the_message(
    connect: Connect, queue: str, version: str, kind: str
) -> None:
    """ "This technique can also be used for sending the reply message when in the same CONNECT
    session".
    """
    client = connect(version)
    client.subscribe(f"/temp-{kind}/answers", "answers")
    client.subscribe(queue, "requests")
    client.send("SEND", {"destination": queue, "reply-to": f"/temp-{kind}/answers"}, "request")
    client.send("SEND", {"destination": client.message()["reply-to"]}, "answer")
    answer = client.message()
    assert (answer["subscription"], answer.text) == ("answers", "answer")


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_reply_to_in_another_session_by_the_string_of_the_message(
    connect: Connect, queue: str, version: str, kind: str
) -> None:
    requester, responder = connect(version), connect(version)
    responder.subscribe(queue)
    requester.subscribe(f"/temp-{kind}/answers", "answers")
    requester.send(
        "SEND",
        {"destination": queue, "reply-to": f"/temp-{kind}/answers", "correlation-id": "c"},
        "request",
    )
    request = responder.message()
    assert request["reply-to"].startswith(f"/temp-{kind}/temporary_destination://{kind}/")
    responder.send(
        "SEND",
        {"destination": request["reply-to"], "correlation-id": request["correlation-id"]},
        "answer",
    )
    answer = requester.message()
    assert (answer["subscription"], answer.text, answer["correlation-id"]) == (
        "answers",
        "answer",
        "c",
    )


def test_reply_to_before_the_requester_subscribes(
    connect: Connect, queue: str, version: str
) -> None:
    """The temporary queue is there from its first use, so an answer that is quick waits in it."""
    requester, responder = connect(version), connect(version)
    responder.subscribe(queue)
    requester.put(queue, "request", **{"reply-to": "/temp-queue/answers"})
    responder.put(responder.message()["reply-to"], "answer")
    requester.subscribe("/temp-queue/answers")
    assert requester.message().text == "answer"


@pytest.mark.parametrize("destination", ["/queue/answers", "/topic/answers"])
def test_reply_to_a_destination_that_is_not_temporary(
    connect: Connect, queue: str, version: str, destination: str
) -> None:
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "reply-to": destination})
    assert client.message()["reply-to"] == destination


def test_reply_to_that_is_no_destination_is_an_error(connect: Connect, queue: str) -> None:
    client = connect()
    client.send("SEND", {"destination": queue, "reply-to": "answers"})
    client.error("reply-to")
