"""What a connection that goes on after an ERROR has not lost."""

from __future__ import annotations

import pytest

from tests.conformance.profiles.conftest import Join

SURVIVING = ("activemq", "rabbitmq")


@pytest.mark.parametrize("profile", SURVIVING)
def test_an_error_comes_after_the_receipts_of_what_was_before(
    join: Join, name: str, profile: str
) -> None:
    client = join(profile)
    for number in range(3):
        client.send("SEND", {"destination": f"/queue/{name}", "receipt": f"s{number}"}, "x")
    client.send("SEND", {"destination": "/nowhere/at/all", "receipt": "bad"})
    frames = [client.frame() for _ in range(4)]
    assert [frame["receipt-id"] for frame in frames] == ["s0", "s1", "s2", "bad"]


@pytest.mark.parametrize("profile", SURVIVING)
def test_a_transaction_goes_on_after_an_error(join: Join, name: str, profile: str) -> None:
    client = join(profile)
    client.send("BEGIN", transaction="t")
    client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t"}, "before")
    client.send("SEND", {"destination": "/nowhere/at/all", "transaction": "t"}, "bad")
    client.send("ACK", {"id": "9-9", "transaction": "t"})
    client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t"}, "after")
    client.send("COMMIT", transaction="t", receipt="c")
    frames = [client.frame() for _ in range(3)]
    assert [frame.command for frame in frames] == ["ERROR", "ERROR", "RECEIPT"]
    client.subscribe(f"/queue/{name}")
    assert [each.text for each in client.messages(2)] == ["before", "after"]


def test_a_refused_send_has_no_receipt_at_commit(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.send("BEGIN", transaction="t")
    sent = {"destination": f"/queue/{name}", "transaction": "t"}
    for number in range(12):
        client.send("SEND", {**sent, "expires": str(100_000 + number)}, receipt=f"good{number}")
    client.send("SEND", {**sent, "expires": "abc"}, receipt="bad")
    assert client.expect("ERROR")["receipt-id"] == "bad"
    client.send("COMMIT", transaction="t", receipt="c")
    receipts = [client.expect("RECEIPT")["receipt-id"] for _ in range(13)]
    assert receipts == ["c", *[f"good{number}" for number in range(12)]]


def test_artemis_acknowledges_without_an_id(join: Join, name: str) -> None:
    client = join("artemis", "1.1")
    client.put(f"/queue/{name}", "1")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "ack": "client"})
    message = client.message()
    assert message["subscription"] == f"subscription//queue/{name}"
    client.ack(message, receipt="a")
    assert client.expect("RECEIPT")["receipt-id"] == "a"
    client.ask("UNSUBSCRIBE", {"id": message["subscription"]})


def test_rabbitmq_patterns(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.send("SUBSCRIBE", {"destination": f"/topic/{name}.#.error", "id": "s", "receipt": "r"})
    assert client.expect("ERROR")["receipt-id"] == "r"
    client.subscribe(f"/topic/{name}.#", id="t")
    client.send("SEND", {"destination": f"/topic/{name}.a.b"}, "deep")
    assert client.message().text == "deep"


def test_too_many_reply_queues_are_an_error(join: Join, name: str) -> None:
    client = join("rabbitmq")
    for number in range(1001):
        client.send(
            "SEND", {"destination": f"/queue/{name}", "reply-to": f"/temp-queue/{number}"}, "x"
        )
    assert "too many" in client.expect("ERROR").text


def test_a_dead_letter_tells_where_it_was(join: Join, name: str) -> None:
    client = join("activemq")
    client.send(
        "SEND", {"destination": f"/queue/{name}", "original-destination": "/queue/forged"}, name
    )
    client.subscribe(f"/queue/{name}", ack="client-individual")
    client.nack(client.message())
    client.subscribe("/queue/ActiveMQ.DLQ", id="dead")
    while (dead := client.message()).text != name:
        pass
    assert dead["original-destination"] == f"/queue/{name}"
    assert dead["destination"] == "/queue/ActiveMQ.DLQ"
