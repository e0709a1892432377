"""Artemis' windows, queues of topics, dead messages and addresses."""

from __future__ import annotations

import pytest

from tests.conformance.client import Client
from tests.conformance.profiles.conftest import SHORT, Join

HEADERS = ("consumer-window-size", "activemq.prefetchSize")


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_windows_are_in_bytes_of_frames(join: Join, name: str, header: str, ack: str) -> None:
    client = join("artemis")
    client.put(f"/queue/{name}", *[str(number).ljust(1000) for number in range(9)])
    # A frame has more than 1000 bytes, and less than 1500.
    client.subscribe(f"/queue/{name}", ack=ack, **{header: "3000"})
    came = client.messages(3)
    assert client.sync() == []
    client.ack(came[0])
    came += client.messages(1)
    assert client.sync() == []
    client.ack(came[1])
    if ack == "client":
        client.ack(came[3])
        came += client.messages(3)
    else:
        came += client.messages(1)
    assert client.sync() == []
    assert [each.text.strip() for each in came] == [str(number) for number in range(len(came))]


def test_a_frame_that_is_larger_than_the_window_comes_alone(join: Join, name: str) -> None:
    client = join("artemis")
    client.put(f"/queue/{name}", "1" * 5000, "2" * 5000)
    client.subscribe(f"/queue/{name}", ack="client", **{"consumer-window-size": "1"})
    first = client.message()
    assert client.sync() == []
    client.ack(first)
    assert client.message().text == "2" * 5000


def test_a_window_is_free_again_after_nack_and_abort(join: Join, name: str) -> None:
    client = join("artemis")
    client.put(f"/queue/{name}", "1" * 100, "2" * 100, "3" * 100)
    asked = {"ack": "client-individual", "consumer-window-size": "100"}
    client.subscribe(f"/queue/{name}", **asked)
    client.send("NACK", {"id": client.message()["ack"]})
    second = client.message()
    client.send("BEGIN", {"transaction": "t"})
    client.send("ACK", {"id": second["ack"], "transaction": "t"})
    # Acknowledged within the transaction, it makes room.
    third = client.message()
    client.send("ABORT", {"transaction": "t"})
    client.ack(third)
    client.ack(second)
    client.send("SEND", {"destination": f"/queue/{name}"}, "4")
    assert client.message().text == "4"


@pytest.mark.parametrize("header", HEADERS)
def test_a_window_of_minus_one_has_no_bound(join: Join, name: str, header: str) -> None:
    client = join("artemis")
    client.put(f"/queue/{name}", *["x"] * 1200)
    client.subscribe(f"/queue/{name}", ack="client-individual", **{header: "-1"})
    # More than a subscription may have that asks for nothing.
    assert len(client.messages(1200)) == 1200


@pytest.mark.parametrize("value", ["x", "-2", "4294967296", ""])
def test_a_window_that_is_no_number_is_refused(join: Join, name: str, value: str) -> None:
    client = join("artemis", "1.1")
    headers = {"destination": f"/queue/{name}", "id": "s", "consumer-window-size": value}
    client.send("SUBSCRIBE", {**headers, "receipt": "r"})
    assert "consumer-window-size" in client.expect("ERROR")["message"]


def test_with_ack_auto_a_window_means_nothing(join: Join, name: str) -> None:
    client = join("artemis")
    client.put(f"/queue/{name}", *["x" * 100] * 50)
    client.subscribe(f"/queue/{name}", **{"consumer-window-size": "10"})
    assert len(client.messages(50)) == 50


@pytest.mark.parametrize("typed", ["type", "prefix", "nothing"])
def test_a_queue_of_a_topic_is_a_shared_durable_subscription(
    join: Join, name: str, typed: str
) -> None:
    clients = [join("artemis"), join("artemis"), join("artemis")]
    headers = {"subscription-type": "MULTICAST"} if typed == "type" else {}
    prefix = "/topic/" if typed == "prefix" else ""
    # Then there is a topic of that name.
    clients[2].ask("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "all"})
    for client, queue in zip(clients, ("one", "one", "two"), strict=True):
        named = {"destination": f"{prefix}{name}::{name}.{queue}", "id": "s", "ack": "client"}
        client.ask("SUBSCRIBE", {**named, **headers})
    sender = join("artemis")
    for number in range(10):
        sent = {"destination": name, "destination-type": "MULTICAST"}
        sender.send("SEND", {**sent, "persistent": "true"}, str(number))
    sender.sync()
    assert {each.text for each in clients[2].messages(20)} == set("0123456789")
    halves = [{each.text for each in client.sync()} for client in clients[:2]]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set("0123456789")
    # What none of them has acknowledged waits for the next.
    for client in clients[:2]:
        client.ask("UNSUBSCRIBE", id="s")
        client.close()
    later = join("artemis")
    named = {"destination": f"{name}::{name}.one", "id": "s", "ack": "client"}
    later.ask("SUBSCRIBE", {**named, "subscription-type": "MULTICAST"})
    assert {each.text for each in later.messages(10)} == set("0123456789")


def test_the_queue_of_another_topic_is_refused(join: Join, name: str) -> None:
    client = join("artemis", "1.1")
    named = {"id": "s", "subscription-type": "MULTICAST"}
    client.ask("SUBSCRIBE", {**named, "destination": f"{name}::{name}.q"})
    client.ask("UNSUBSCRIBE", id="s")
    client.send("SUBSCRIBE", {**named, "destination": f"{name}2::{name}.q", "receipt": "r"})
    assert client.expect("ERROR")["receipt-id"] == "r"


def dies(client: Client, name: str, body: str = "dead") -> None:
    """Have a message of a queue die."""
    client.ask("SEND", {"destination": f"/queue/{name}", "persistent": "true", "who": name}, body)
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "d", "ack": "client"})
    client.send("NACK", {"id": client.message()["ack"]})
    client.ask("UNSUBSCRIBE", id="d")


def test_a_dead_message_says_where_it_was(join: Join, name: str) -> None:
    client = join("artemis")
    dies(client, name)
    selector = f"_AMQ_ORIG_ADDRESS = '{name}' AND _AMQ_ORIG_QUEUE = '{name}'"
    client.subscribe("DLQ", selector=selector)
    message = client.message()
    assert message["destination"] == "DLQ"
    assert message["_AMQ_ORIG_ADDRESS"] == message["_AMQ_ORIG_QUEUE"] == name
    assert message["_AMQ_ORIG_MESSAGE_ID"]


def test_only_a_dead_message_says_so(join: Join, name: str) -> None:
    client = join("artemis")
    client.put(f"/queue/{name}", "alive")
    client.subscribe(f"/queue/{name}", selector="_AMQ_ORIG_ADDRESS IS NULL")
    assert not [line for line in client.message().lines if line[0].startswith("_AMQ_ORIG")]


@pytest.mark.parametrize("queue", ["ExpiryQueue", "/queue/ExpiryQueue", "a::ExpiryQueue"])
def test_the_expiry_queue_has_what_has_expired(join: Join, name: str, queue: str) -> None:
    client = join("artemis")
    dies(client, name)
    # In the past.
    sent = {"destination": f"/queue/{name}", "persistent": "true", "who": name}
    client.ask("SEND", {**sent, "expires": "1000000000000"}, "expired")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "d"})
    client.subscribe(queue, selector=f"who = '{name}' OR who = 'none'")
    message = client.message()
    assert (message.text, message["_AMQ_ORIG_ADDRESS"]) == ("expired", name)
    assert client.sync() == []


def test_a_wrong_selector_of_the_expiry_queue_is_told_alone(join: Join) -> None:
    client = join("artemis", "1.1")
    asked = {"destination": "ExpiryQueue", "id": "s", "selector": "a = ", "receipt": "r"}
    client.send("SUBSCRIBE", asked)
    assert "EXPIRED" not in client.expect("ERROR")["message"]


@pytest.mark.parametrize("frame", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("address", ["activemq.notifications", "/queue/activemq.notifications"])
def test_addresses_that_nothing_answers_are_refused(join: Join, frame: str, address: str) -> None:
    client = join("artemis", "1.1")
    client.send(frame, {"destination": address, "id": "s", "receipt": "r"})
    assert "imqcmd events" in client.expect("ERROR")["message"]


@pytest.mark.parametrize("address", ["activemq.notifications", "activemq.management"])
def test_their_names_are_ordinary_in_other_profiles(join: Join, address: str, name: str) -> None:
    other = join("openmq")
    other.put(f"/queue/{address},/queue/{name}", "an ordinary name")
    other.subscribe(f"/queue/{address}")
    assert other.message().text == "an ordinary name"


def test_a_silent_client_is_told_why_it_is_ended(join: Join) -> None:
    client = join(SHORT, "1.0")
    assert client.connected is not None
    assert "server" not in client.connected
    assert "300 ms is the limit" in client.expect("ERROR")["message"]
    # What it has promised goes before that.
    promised = join(SHORT, heart_beat="400,0")
    assert promised.connected is not None
    assert promised.connected["heart-beat"] == "0,500"
