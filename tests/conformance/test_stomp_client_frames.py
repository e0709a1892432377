"""STOMP 1.0 "Client Commands"; 1.1 and 1.2 "Client Frames": SEND, SUBSCRIBE, UNSUBSCRIBE, ACK,
NACK, BEGIN, COMMIT, ABORT.
"""

from __future__ import annotations

import pytest

from tests.conformance.client import Client, Frame
from tests.conformance.conftest import Connect

LATER = ["1.1", "1.2"]


def bodies(messages: list[Frame]) -> list[str]:
    return [message.text for message in messages]


# SEND.


def test_send_reaches_a_subscriber(connect: Connect, queue: str, version: str) -> None:
    sender, receiver = connect(version), connect(version)
    receiver.subscribe(queue)
    sender.put(queue, "hello")
    message = receiver.message()
    assert message.text == "hello"
    assert message["destination"] == queue


def test_send_needs_a_destination(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("SEND", receipt="1")
    client.error("destination", receipt_id="1")


def test_headers_of_the_user_go_through(connect: Connect, queue: str, version: str) -> None:
    """All versions: "any header that is not defined here" is passed to the consumer."""
    client = connect(version)
    client.subscribe(queue)
    headers = {
        "colour": "red",
        "x-foo": "bar",
        "content-type": "text/x",
        "empty": "",
        "number": "7",
        "_under$score": "1",
    }
    client.send("SEND", {"destination": queue, **headers})
    assert headers.items() <= client.message().headers.items()


def test_a_message_without_body_is_one(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue})
    client.send("SEND", {"destination": queue, "content-length": "0"})
    assert [(message.body, message["content-length"]) for message in client.messages(2)] == [
        (b"", "0")
    ] * 2


def test_a_queues_message_goes_to_one_and_a_topics_to_all(
    connect: Connect, queue: str, topic: str, version: str
) -> None:
    clients = [connect(version) for _ in range(2)]
    for client in clients:
        client.subscribe(queue, "q")
        client.subscribe(topic, "t")
    clients[0].send("SEND", {"destination": queue}, "one")
    clients[0].send("SEND", {"destination": topic}, "all")
    received = [client.message() for client in clients]
    first = next(message for message in received if message["subscription"] == "q")
    assert first.text == "one"
    both = [message.text for message in received if message is not first] + [
        clients[received.index(first)].message().text
    ]
    assert both == ["all", "all"]


def test_a_topic_keeps_nothing_for_those_who_come_later(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version)
    client.put(topic, "before")
    client.subscribe(topic)
    client.send("SEND", {"destination": topic}, "after")
    assert client.message().text == "after"


def test_a_queue_keeps_what_nobody_consumes(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    assert bodies(client.hold(queue, "1", "2")) == ["1", "2"]


# SUBSCRIBE.


def test_subscribe_needs_a_destination(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", id="1")
    client.error("destination")


@pytest.mark.parametrize("version", LATER)
def test_subscribe_needs_an_id(connect: Connect, queue: str, version: str) -> None:
    """1.1 and 1.2 "SUBSCRIBE id Header"."""
    client = connect(version)
    client.send("SUBSCRIBE", destination=queue)
    client.error("id")


def test_an_id_names_one_subscription_of_a_connection(
    connect: Connect, queue: str, topic: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(queue, "same")
    client.send("SUBSCRIBE", destination=topic, id="same", receipt="r")
    client.error("same", receipt_id="r")


def test_an_id_may_be_used_on_other_connections(connect: Connect, topic: str, version: str) -> None:
    clients = [connect(version) for _ in range(2)]
    for client in clients:
        client.subscribe(topic, "same")
    clients[0].send("SEND", {"destination": topic}, "1")
    assert [client.message()["subscription"] for client in clients] == ["same", "same"]


def test_a_connection_may_subscribe_twice_to_one_destination(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(topic, "a")
    client.subscribe(topic, "b")
    client.send("SEND", {"destination": topic}, "1")
    assert {message["subscription"] for message in client.messages(2)} == {"a", "b"}


@pytest.mark.parametrize("ack", ["", "Auto", "none", "client individual"])
def test_another_ack_mode_is_an_error(connect: Connect, queue: str, version: str, ack: str) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", destination=queue, id="1", ack=ack)
    client.error("ack")


def test_ack_client_is_cumulative_within_its_subscription_only(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    other_queue = f"{queue}.other"
    client.put(queue, "1")
    client.put(other_queue, "2")
    client.subscribe(queue, "a", ack="client")
    first = client.message()
    client.subscribe(other_queue, "b", ack="client")
    second = client.message()
    client.ack(second)
    client.disconnect()
    other = connect(version)
    other.subscribe(queue)
    assert other.message()["message-id"] == first["message-id"]


def test_ack_client_individual_is_one_by_one(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", "4", ack="client-individual")
    client.ack(held[2])
    client.ack(held[0])
    assert client.left(queue) == ["2", "4"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_what_is_not_acknowledged_is_nobody_elses_meanwhile(
    connect: Connect, queue: str, version: str, ack: str
) -> None:
    client, other = connect(version), connect(version)
    [held] = client.hold(queue, "1", ack=ack)
    other.subscribe(queue)
    client.ack(held)
    assert client.ask("UNSUBSCRIBE", id="s") == []
    client.put(queue, "2")
    assert other.message().text == "2"


# UNSUBSCRIBE.


def test_after_unsubscribe_nothing_comes(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue}, "1")
    assert client.message().text == "1"
    assert client.ask("UNSUBSCRIBE", id="s") == []
    client.put(queue, "2")
    assert client.sync() == []
    client.subscribe(queue, "again")
    again = client.message()
    assert (again.text, again["subscription"]) == ("2", "again")


def test_after_unsubscribe_its_id_is_free(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    for round_ in range(3):
        client.subscribe(queue, "same")
        client.send("SEND", {"destination": queue}, str(round_))
        assert client.message().text == str(round_)
        assert client.ask("UNSUBSCRIBE", id="same") == []


def test_unsubscribe_leaves_other_subscriptions_alone(
    connect: Connect, topic: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(topic, "a")
    client.subscribe(topic, "b")
    assert client.ask("UNSUBSCRIBE", id="a") == []
    client.send("SEND", {"destination": topic}, "1")
    assert client.message()["subscription"] == "b"
    assert client.sync() == []


@pytest.mark.parametrize("version", LATER)
def test_unsubscribe_needs_an_id(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.subscribe(queue)
    client.send("UNSUBSCRIBE", destination=queue)
    client.error("id")


def test_in_1_0_unsubscribe_may_name_the_destination(connect: Connect, queue: str) -> None:
    client = connect("1.0")
    assert client.ask("SUBSCRIBE", destination=queue) == []
    client.send("SEND", {"destination": queue}, "1")
    assert client.message().text == "1"
    assert client.ask("UNSUBSCRIBE", destination=queue) == []
    client.put(queue, "2")
    assert client.sync() == []


def test_in_1_0_unsubscribe_needs_one_of_them(connect: Connect) -> None:
    client = connect("1.0")
    client.send("UNSUBSCRIBE")
    client.error()


def test_an_unknown_id_is_an_error(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("UNSUBSCRIBE", id="none")
    client.error("none")


def test_what_was_not_acknowledged_goes_back_when_the_destination_is_subscribed_to_again(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.put(queue, "1", "2")
    client.subscribe(queue, ack="client")
    client.ack(client.messages(2)[0])
    assert client.ask("UNSUBSCRIBE", id="s") == []
    client.subscribe(queue, "again")
    again = client.message()
    assert (again.text, again["redelivered"], again["subscription"]) == ("2", "true", "again")


def test_what_was_not_acknowledged_goes_back_to_others_after_a_grace(
    connect: Connect, queue: str
) -> None:
    client, other = connect(), connect()
    client.put(queue, "1")
    client.subscribe(queue, ack="client")
    client.message()
    assert client.ask("UNSUBSCRIBE", id="s") == []
    other.subscribe(queue)
    assert other.message()["redelivered"] == "true"


def test_an_ack_shortly_after_unsubscribe_still_counts(
    connect: Connect, queue: str, version: str
) -> None:
    """1.2 has no rule against it, and clients do it: the delivery was the subscription's when it
    was made.
    """
    client = connect(version)
    [held] = client.hold(queue, "1", ack="client")
    client.send("UNSUBSCRIBE", id="s")
    client.ack(held, receipt="1")
    assert client.expect("RECEIPT")["receipt-id"] == "1"
    client.put(queue, "marker")
    client.subscribe(queue, "again")
    assert client.message().text == "marker"


# ACK and NACK.


def test_1_2_acknowledges_by_id(connect: Connect, queue: str) -> None:
    """1.2 "ACK": ``id`` matches the ``ack`` header of the MESSAGE."""
    client = connect("1.2")
    client.put(queue, "1")
    client.subscribe(queue, ack="client")
    assert client.ask("ACK", id=client.message()["ack"]) == []


def test_1_1_acknowledges_by_message_id_and_subscription(connect: Connect, queue: str) -> None:
    """1.1 "ACK"."""
    client = connect("1.1")
    client.put(queue, "1")
    client.subscribe(queue, ack="client")
    assert (
        client.ask("ACK", {"message-id": client.message()["message-id"], "subscription": "s"}) == []
    )


def test_1_0_acknowledges_by_message_id(connect: Connect, queue: str) -> None:
    """1.0 "ACK"."""
    client = connect("1.0")
    client.put(queue, "1")
    client.subscribe(queue, ack="client")
    assert client.ask("ACK", {"message-id": client.message()["message-id"]}) == []


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_acknowledgement_must_name_something(
    connect: Connect, version: str, command: str
) -> None:
    client = connect(version)
    client.send(command)
    client.error("id")


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("name", ["id", "message-id"])
def test_what_was_never_delivered_cannot_be_acknowledged(
    connect: Connect, queue: str, version: str, command: str, name: str
) -> None:
    client = connect(version)
    client.subscribe(queue, ack="client")
    client.send(command, {name: "1-1", "subscription": "s"})
    client.error()


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_message_cannot_be_acknowledged_twice(
    connect: Connect, queue: str, version: str, ack: str
) -> None:
    client = connect(version)
    [held] = client.hold(queue, "1", ack=ack)
    client.ack(held)
    client.ack(held)
    client.error()


def test_an_acknowledgement_with_an_unknown_subscription_is_an_error(
    connect: Connect, queue: str
) -> None:
    client = connect("1.1")
    client.put(queue, "1")
    client.subscribe(queue, ack="client")
    client.send("ACK", {"message-id": client.message()["message-id"], "subscription": "other"})
    client.error("other")


def test_one_connection_cannot_acknowledge_for_another(
    connect: Connect, queue: str, version: str
) -> None:
    client, other = connect(version), connect(version)
    [held] = client.hold(queue, "1", ack="client")
    other.subscribe(f"{queue}.other", ack="client")
    other.ack(held)
    other.error()


QUICK = {
    "activemq.initialRedeliveryDelay": "0",
    "activemq.useExponentialBackOff": "false",
    "activemq.redeliveryDelay": "0",
}


@pytest.mark.parametrize("version", LATER)
def test_nack_means_not_consumed(connect: Connect, queue: str, version: str) -> None:
    """1.1 and 1.2 "NACK": the opposite of ACK; here it is delivered again."""
    client = connect(version)
    client.put(queue, "1", "2")
    assert (
        client.ask("SUBSCRIBE", {"destination": queue, **QUICK}, id="s", ack="client-individual")
        == []
    )
    first, second = client.messages(2)
    client.nack(first)
    again = client.message()
    assert (again["message-id"], again["redelivered"]) == (first["message-id"], "true")
    client.ack(second)
    client.ack(again)
    assert client.left(queue) == []


@pytest.mark.parametrize("version", LATER)
def test_nack_of_ack_client_is_cumulative(connect: Connect, queue: str, version: str) -> None:
    """1.1 and 1.2 "NACK": applies "to either one single message [...] or to all messages sent
    before", as ACK does.
    """
    client = connect(version)
    client.put(queue, "1", "2", "3")
    assert client.ask("SUBSCRIBE", {"destination": queue, **QUICK}, id="s", ack="client") == []
    held = client.messages(3)
    client.nack(held[1])
    again = client.messages(2)
    assert bodies(again) == ["1", "2"]
    assert [message["redelivered"] for message in again] == ["true", "true"]


# BEGIN, COMMIT, ABORT.


@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
def test_transaction_is_required(connect: Connect, version: str, command: str) -> None:
    client = connect(version)
    if command != "BEGIN":
        client.send("BEGIN", transaction="t")
    client.send(command)
    client.error("transaction")


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_transaction_that_is_not_open_cannot_end(
    connect: Connect, version: str, command: str, begun: bool
) -> None:
    client = connect(version)
    if begun:
        client.send("BEGIN", transaction="another")
    client.send(command, transaction="t")
    client.error()


def test_a_send_in_a_transaction_that_is_not_open_is_an_error(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.send("SEND", {"destination": queue, "transaction": "t"}, receipt="1")
    client.error(receipt_id="1")


def test_sends_of_a_transaction_arrive_at_its_commit_in_order(
    connect: Connect, queue: str, version: str
) -> None:
    client, consumer = connect(version), connect(version)
    consumer.subscribe(queue)
    client.send("BEGIN", transaction="t")
    for body in ("1", "2", "3"):
        client.send("SEND", {"destination": queue, "transaction": "t"}, body)
    client.put(queue, "outside")
    assert consumer.message().text == "outside"
    assert client.ask("COMMIT", transaction="t") == []
    assert bodies(consumer.messages(3)) == ["1", "2", "3"]


@pytest.mark.parametrize("orderly", [True, False])
def test_a_transaction_ends_with_its_connection(
    connect: Connect, queue: str, version: str, orderly: bool
) -> None:
    """1.1 and 1.2 "BEGIN": "started transactions which have not been committed will be implicitly
    aborted".
    """
    client, consumer = connect(version), connect(version)
    client.send("BEGIN", transaction="t")
    assert client.ask("SEND", {"destination": queue, "transaction": "t"}, "never") == []
    if orderly:
        client.disconnect()
    else:
        client.close()
    consumer.put(queue, "marker")
    consumer.subscribe(queue)
    assert consumer.message().text == "marker"


def test_a_transactions_identifier_may_be_used_again(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    for end in ("COMMIT", "ABORT", "COMMIT"):
        client.send("BEGIN", transaction="t")
        client.send("SEND", {"destination": queue, "transaction": "t"}, end)
        assert client.ask(end, transaction="t") == []
    client.put(queue, "marker")
    client.subscribe(queue)
    assert bodies(client.messages(3)) == ["COMMIT", "COMMIT", "marker"]


def test_an_identifier_belongs_to_its_connection(
    connect: Connect, queue: str, version: str
) -> None:
    clients: list[Client] = [connect(version) for _ in range(2)]
    for number, client in enumerate(clients):
        client.send("BEGIN", transaction="t")
        client.send("SEND", {"destination": queue, "transaction": "t"}, str(number))
    assert clients[0].ask("ABORT", transaction="t") == []
    assert clients[1].ask("COMMIT", transaction="t") == []
    clients[1].put(queue, "marker")
    clients[1].subscribe(queue)
    assert bodies(clients[1].messages(2)) == ["1", "marker"]
