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


def test_artemis_sends_to_what_there_is_each_time(join: Join, name: str) -> None:
    """A name alone is a topic, until somebody makes a queue of that name."""
    client, other = join("artemis"), join("openmq")
    other.subscribe(f"/topic/{name}", id="topic")
    for number in range(MANY):
        client.send("SEND", {"destination": name}, str(number))
    assert [each.text for each in other.messages(MANY)] == [str(each) for each in range(MANY)]
    other.subscribe(f"/queue/{name}", id="queue")
    for number in range(MANY):
        client.send("SEND", {"destination": name}, str(number))
    messages = other.messages(MANY)
    assert {each["subscription"] for each in messages} == {"queue"}
    assert [each.text for each in messages] == [str(each) for each in range(MANY)]


def test_artemis_finds_the_queue_that_was_made_just_before(join: Join, name: str) -> None:
    """All frames come at once, also one that leaves no doubt about the topic."""
    client = join("artemis")
    frames = [
        b"SEND\ndestination:%b\ndestination-type:%b\n\n%d\0"
        % (name.encode() + b".%d" % number, kind, turn)
        for number in range(MANY)
        for turn, kind in enumerate((b"ANYCAST", b"MULTICAST", b"none"))
    ]
    client.write(b"".join(frames))
    client.sync()
    for number in range(MANY):
        client.subscribe(f"/queue/{name}.{number}", id=str(number))
        assert [each.text for each in client.messages(2)] == ["0", "2"]


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
