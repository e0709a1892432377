"""Producers that repeat the names of their headers, in each profile."""

from __future__ import annotations

from tests.conformance.profiles.conftest import Join

#: So many that the gateway has learnt what the producer repeats.
MANY = 20


def test_artemis_routes_each_message_by_its_type(join: Join, name: str) -> None:
    client = join("artemis")
    client.ask("SUBSCRIBE", {"destination": name, "id": "topic", "subscription-type": "MULTICAST"})
    for number in range(MANY):
        client.send(
            "SEND", {"destination": name, "destination-type": "MULTICAST", "n": str(number)}, "x"
        )
    assert [each["n"] for each in client.messages(MANY)] == [str(each) for each in range(MANY)]


def test_activemq_types_each_message(join: Join, name: str) -> None:
    client = join("activemq")
    client.subscribe(f"/queue/{name}")
    for number in range(MANY):
        kind = "bytes" if number % 2 else "text"
        sent = {"destination": f"/queue/{name}", "amq-msg-type": kind, "n": str(number)}
        client.send("SEND", sent, "x")
    counted = ["content-length" in each for each in client.messages(MANY)]
    assert counted == [False, True] * (MANY // 2)


def test_rabbitmq_refuses_each_message_id(join: Join, name: str) -> None:
    client = join("rabbitmq")
    for number in range(MANY):
        sent = {"destination": f"/queue/{name}", "message-id": "m", "n": str(number)}
        client.send("SEND", {**sent, "receipt": str(number)}, "x")
    refused = [client.expect("ERROR")["receipt-id"] for _ in range(MANY)]
    assert refused == [str(each) for each in range(MANY)]
