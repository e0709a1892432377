"""What a connection that goes on after an ERROR has not lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.client import Client
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


def test_a_missing_exchange_ends_the_connection_and_its_transaction(join: Join, name: str) -> None:
    client = join("rabbitmq")
    client.send("BEGIN", transaction="t")
    client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t"}, "before")
    client.send("SEND", {"destination": "/exchange/missing/key", "transaction": "t"}, "x")
    assert client.expect("ERROR")["message"] == "not_found"
    assert client.rest() == []
    assert join("rabbitmq").left(f"/queue/{name}") == []


def full(profile: str, version: str = "1.2") -> str:
    """The destination of a queue that takes one message."""
    return f"/queue/profiles.full.{profile}{version.replace('.', '')}"


@pytest.mark.parametrize("profile", SURVIVING)
def test_what_follows_a_send_that_the_broker_refuses_is_sent(
    join: Join, name: str, profile: str
) -> None:
    client = join(profile)
    good = f"/queue/{name}"
    for number, destination in enumerate((good, full(profile), good, full(profile), good, good)):
        client.send("SEND", {"destination": destination, "receipt": str(number)}, str(number))
    answers = [client.frame() for _ in range(6)]
    assert [frame["receipt-id"] for frame in answers] == list("012345")
    commands = [frame.command for frame in answers]
    assert commands == ["RECEIPT", "RECEIPT", "RECEIPT", "ERROR", "RECEIPT", "RECEIPT"]
    client.subscribe(good)
    assert [each.text for each in client.messages(4)] == list("0245")
    client.subscribe(full(profile), id="full")
    assert client.message().text == "1"


def test_many_refusals_in_a_row(join: Join, name: str) -> None:
    client = join("activemq", "1.1")
    client.put(full("activemq", "1.3"), "1")
    count = 3000
    for number in range(count):
        destination = f"/queue/{name}" if number % 3 == 0 else full("activemq", "1.3")
        client.send("SEND", {"destination": destination, "receipt": str(number)}, "x")
    answers = [client.frame() for _ in range(count)]
    assert [each["receipt-id"] for each in answers] == [str(each) for each in range(count)]
    wanted = ["RECEIPT" if number % 3 == 0 else "ERROR" for number in range(count)]
    assert [each.command for each in answers] == wanted


def test_all_or_none_of_the_destinations_get_what_is_refused(join: Join, name: str) -> None:
    client = join("activemq")
    client.put(full("activemq"), "only")
    both = f"/queue/{name},{full('activemq')}"
    for number, destination in enumerate((both, f"/queue/{name}", both, f"/queue/{name}")):
        client.send("SEND", {"destination": destination, "receipt": str(number)}, str(number))
    answers = [client.frame() for _ in range(4)]
    assert [(frame.command, frame["receipt-id"]) for frame in answers] == [
        ("ERROR", "0"),
        ("RECEIPT", "1"),
        ("ERROR", "2"),
        ("RECEIPT", "3"),
    ]
    client.subscribe(f"/queue/{name}")
    assert [each.text for each in client.messages(2)] == ["1", "3"]
    client.subscribe(full("activemq"), id="full")
    assert client.message().text == "only"


@pytest.mark.parametrize("profile", ["activemq", "artemis"])
def test_unsubscribe_in_vain_is_answered_in_its_place(join: Join, name: str, profile: str) -> None:
    client = join(profile, "1.1", client_id=name)
    for number in range(3):
        client.send("SEND", {"destination": f"/queue/{name}", "receipt": f"s{number}"}, "x")
        client.send(
            "UNSUBSCRIBE", {"id": "s", "durable-subscriber-name": "none", "receipt": f"u{number}"}
        )
    frames = [client.frame() for _ in range(6)]
    assert [frame["receipt-id"] for frame in frames] == ["s0", "u0", "s1", "u1", "s2", "u2"]
    assert [frame.command for frame in frames] == ["RECEIPT", "ERROR"] * 3
    assert len(client.left(f"/queue/{name}")) == 3


def test_artemis_acknowledges_without_an_id(join: Join, name: str) -> None:
    client = join("artemis", "1.1")
    client.put(f"/queue/{name}", "1")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "ack": "client"})
    message = client.message()
    assert message["subscription"] == f"subscription//queue/{name}"
    client.ack(message, receipt="a")
    assert client.expect("RECEIPT")["receipt-id"] == "a"
    client.ask("UNSUBSCRIBE", {"id": message["subscription"]})


def test_rabbitmq_sends_nothing_to_patterns(join: Join, name: str) -> None:
    client = join("rabbitmq")
    for each in (f"{name}.#", f"{name}.#.error", f"{name}.*"):
        client.send("SEND", {"destination": f"/topic/{each}", "receipt": "r"}, "x")
        assert client.expect("ERROR")["receipt-id"] == "r"


def test_too_many_reply_queues_are_an_error(join: Join, name: str) -> None:
    client = join("rabbitmq")
    for number in range(1001):
        client.send(
            "SEND", {"destination": f"/queue/{name}", "reply-to": f"/temp-queue/{number}"}, "x"
        )
    assert "too many" in client.expect("ERROR").text


def test_a_dead_letter_tells_where_it_was(join: Join, name: str) -> None:
    client = join("activemq")
    forged = {"original-destination": "/queue/forged"}
    client.put(f"/queue/{name}", name, persistent="true", **forged)
    client.subscribe(f"/queue/{name}", ack="client-individual")
    client.nack(client.message())
    client.subscribe("/queue/ActiveMQ.DLQ", id="dead")
    while (dead := client.message()).text != name:
        pass
    assert dead["original-destination"] == f"/queue/{name}"
    assert dead["destination"] == "/queue/ActiveMQ.DLQ"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_listener_may_have_virtual_hosts(dial: Callable[[str], Client], version: str) -> None:
    for host in ("/", "orders"):
        dial("hosted").connect(version, host=host)
    # In 1.0 no client names any.
    client = dial("hosted")
    client.send("CONNECT", {"login": "guest", "passcode": "guest", "accept-version": version})
    assert client.frame().command == "CONNECTED"
    other = dial("hosted")
    given = {"login": "guest", "passcode": "guest", "accept-version": version}
    other.send("CONNECT", {**given, "host": "//"})
    error = other.expect("ERROR")
    assert error["message"] == "Bad CONNECT"
    assert error.text == "Virtual host '//' access denied"


def test_without_virtual_hosts_any_is_taken(dial: Callable[[str], Client]) -> None:
    for profile in ("openmq", "rabbitmq"):
        dial(profile).connect("1.2", host="any.example.org")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("WRONG\n\n\0", "Unknown STOMP action: WRONG"),
        ("RECEIPT\nreceipt-id:1\n\n\0", "Unknown STOMP action: RECEIPT"),
        ("CONNECT\n\n\0", "Already connected."),
        ("W" * 1025 + "\n\n\0", "The maximum command length was exceeded"),
        (f"SEND\nlong:{'x' * 20_000}\n\n\0", "The maximum header length was exceeded"),
        (
            "SEND\n" + "".join([f"k{number}:v\n" for number in range(1_100)]) + "\n\0",
            "The maximum number of headers was exceeded",
        ),
        (
            f"SEND\ndestination:/queue/a\ncontent-length:{1 << 40}\n\n",
            "The maximum data length was exceeded",
        ),
        (
            "SEND\n" + "".join([f"k{number}:{'v' * 9_000}\n" for number in range(20)]) + "\n\0",
            "The maximum frame size was exceeded",
        ),
    ],
)
def test_activemq_words_refusals_of_frames(join: Join, frame: str, message: str) -> None:
    client = join("activemq")
    client.write(frame.encode())
    error = client.expect("ERROR")
    assert (error["message"], error.text) == (message, f"{message}\n")


def test_no_receipt_of_what_a_commit_has_lost(join: Join, name: str) -> None:
    client, destination = join("rabbitmq"), full("rabbitmq", "1.3")
    client.send("BEGIN", transaction="t")
    for number, each in enumerate((f"/queue/{name}", destination)):
        sent = {"destination": each, "transaction": "t", "receipt": f"sent {number}"}
        client.send("SEND", sent, "lost")
    client.sync()
    join("rabbitmq").put(destination, "it is full now")
    client.send("COMMIT", transaction="t", receipt="committed")
    error = client.expect("ERROR")
    assert error["receipt-id"] == "committed"
    assert client.rest() == []
