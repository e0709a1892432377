"""STOMP 1.0 "Server Commands"; 1.1 and 1.2 "Server Frames": MESSAGE, RECEIPT, ERROR."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Connect


def test_message_has_destination_message_id_and_subscription(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    client.subscribe(queue, "any text: even this")
    client.send("SEND", {"destination": queue}, "1")
    message = client.message()
    assert message["destination"] == queue
    assert message["message-id"]
    assert message["subscription"] == "any text: even this"


def test_message_has_ack_exactly_where_one_is_wanted(
    connect: Connect, queue: str, topic: str
) -> None:
    """1.2 "MESSAGE": "If the message is received from a subscription that requires explicit
    acknowledgment [...] MUST also contain an ack".
    """
    client = connect("1.2")
    for id, ack in (("a", "auto"), ("c", "client"), ("i", "client-individual")):
        client.subscribe(topic, id, ack=ack)
    client.send("SEND", {"destination": topic})
    messages = {message["subscription"]: message for message in client.messages(3)}
    assert "ack" not in messages["a"]
    assert len({messages["c"]["ack"], messages["i"]["ack"]}) == 2


def test_message_identifiers_are_unique(connect: Connect, queue: str, version: str) -> None:
    sender, client = connect(version), connect(version)
    client.subscribe(queue, ack="client")
    sender.put(queue, *map(str, range(100)))
    messages = client.messages(100)
    assert len({message["message-id"] for message in messages}) == 100
    assert len({message["ack"] for message in messages}) == 100


def test_a_header_stands_once_in_a_message(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.subscribe(queue, ack="client")
    headers = {
        "subscription": "forged",
        "priority": "7",
        "type": "t",
        "correlation-id": "c",
        "reply-to": queue,
        "colour": "red",
    }
    client.send("SEND", {"destination": queue, **headers}, "1")
    names = [name for name, _ in client.message().lines]
    assert len(names) == len(set(names)), names


def test_receipts_come_in_the_order_of_their_frames(
    connect: Connect, queue: str, version: str
) -> None:
    """1.1 and 1.2 "RECEIPT": "a cumulative acknowledgment that all the previous frames have been
    received".
    """
    client = connect(version)
    expected: list[str] = []
    octets = b""
    for number in range(200):
        for frame in (
            f"SEND\ndestination:{queue}\n",
            "BEGIN\ntransaction:t\n",
            f"SEND\ndestination:{queue}\ntransaction:t\n",
            "COMMIT\ntransaction:t\n",
        ):
            expected.append(f"{number}-{len(expected)}")
            octets += f"{frame}receipt:{expected[-1]}\n\n\0".encode()
    client.write(octets)
    assert [client.expect("RECEIPT")["receipt-id"] for _ in expected] == expected


def test_a_receipt_has_nothing_but_its_id(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("BEGIN", transaction="t", receipt="7")
    receipt = client.expect("RECEIPT")
    assert (receipt.lines, receipt.body) == ((("receipt-id", "7"),), b"")


def test_no_receipt_without_asking(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    client.send("SEND", {"destination": queue}, "1")
    client.send("BEGIN", transaction="t")
    client.send("COMMIT", transaction="t")
    client.send("SUBSCRIBE", destination=queue, id="s")
    client.message()
    client.send("UNSUBSCRIBE", id="s")
    assert client.sync() == []


def test_error_has_message_text_and_receipt_id_and_then_the_connection_closes(
    connect: Connect, version: str
) -> None:
    """1.1 and 1.2 "ERROR": "it MUST then close the connection just after"; ``receipt-id`` of the
    frame that failed.
    """
    client = connect(version)
    client.send("SUBSCRIBE", destination="nowhere", id="1", receipt="r:1")
    error = client.error()
    assert "nowhere" in error["message"]
    assert (error["receipt-id"], error["content-length"]) == ("r:1", str(len(error.body)))
    assert "nowhere" in error.text
    assert "Traceback" not in error.text


def test_error_has_no_receipt_id_where_none_was_asked(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("SUBSCRIBE", destination="nowhere", id="1")
    assert "receipt-id" not in client.error()


def test_what_came_before_an_error_is_done_and_what_comes_after_is_not(
    connect: Connect, queue: str, version: str
) -> None:
    client, consumer = connect(version), connect(version)
    good = b"SEND\ndestination:%s\nreceipt:1\n\nbefore\0" % queue.encode()
    client.write(
        good + b"COMMIT\ntransaction:none\nreceipt:2\n\n\0" + good.replace(b"before", b"after")
    )
    assert client.expect("RECEIPT")["receipt-id"] == "1"
    client.error(receipt_id="2")
    consumer.put(queue, "marker")
    consumer.subscribe(queue)
    assert [message.text for message in consumer.messages(2)] == ["before", "marker"]


def test_an_error_reaches_a_client_that_goes_on_sending(
    connect: Connect, queue: str, version: str
) -> None:
    """1.2 "Connection Lingering": the server's last words are not destroyed by octets that it did
    not read.
    """
    client = connect(version)
    client.write(
        b"COMMIT\ntransaction:none\n\n\0"
        + b"SEND\ndestination:%s\n\n%s\0" % (queue.encode(), b"x" * 1000) * 300
    )
    client.error("COMMIT")


@pytest.mark.parametrize(
    "frame",
    [
        "SEND\n\n",
        "SUBSCRIBE\nid:1\n\n",
        "UNSUBSCRIBE\nid:1\n\n",
        "ACK\nid:1\n\n",
        "BEGIN\n\n",
        "COMMIT\ntransaction:t\n\n",
        "NONSENSE\n\n",
    ],
)
def test_an_error_ends_its_own_connection_only(connect: Connect, queue: str, frame: str) -> None:
    other = connect()
    other.subscribe(queue)
    client = connect()
    client.write(frame.encode() + b"\0")
    client.error()
    other.send("SEND", {"destination": queue}, "still here")
    assert other.message().text == "still here"
