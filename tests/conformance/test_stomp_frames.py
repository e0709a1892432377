"""STOMP 1.0 "Frames and headers"; 1.1 and 1.2 "STOMP Frames", "Value Encoding", "Body", "Standard
Headers", "Size Limits", "Augmented BNF".
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.client import Client
from tests.conformance.conftest import Connect


@pytest.fixture
def listening(connect: Connect, queue: str, version: str) -> Client:
    """A client of each version that is subscribed to the test's queue."""
    client = connect(version)
    client.subscribe(queue)
    return client


def test_a_frame_is_command_headers_blank_line_body_nul(listening: Client, queue: str) -> None:
    listening.write(b"SEND\ndestination:%s\ncolour:red\n\nthe body\0" % queue.encode())
    message = listening.message()
    assert (message.body, message["colour"]) == (b"the body", "red")


def test_a_line_may_end_in_cr_lf(listening: Client, queue: str) -> None:
    """1.2 "Augmented BNF": EOL = [CR] LF."""
    listening.write(
        b"SEND\r\ndestination:%s\r\ncolour:red\r\n\r\n\r\nthe body\r\n\0" % queue.encode()
    )
    message = listening.message()
    assert (message.body, message["colour"]) == (b"\r\nthe body\r\n", "red")


def test_end_of_lines_may_stand_between_frames(listening: Client, queue: str) -> None:
    """1.1 and 1.2: "the frame may be followed by multiple EOLs"."""
    listening.write(
        b"\n\n\r\nSEND\ndestination:%s\n\n1\0\n\r\n\nSEND\ndestination:%s\n\n2\0\n"
        % (queue.encode(), queue.encode())
    )
    assert [message.body for message in listening.messages(2)] == [b"1", b"2"]


def test_it_does_not_matter_how_the_octets_are_cut(listening: Client, queue: str) -> None:
    frame = (
        b"SEND\ndestination:%s\nplace:gr\xc3\xbcn\ncontent-length:4\n\n\0\n\0\xff\0"
        % queue.encode()
    )
    for octet in frame:
        listening.write(bytes([octet]))
    listening.write(frame * 3)
    messages = listening.messages(4)
    assert {message.body for message in messages} == {b"\0\n\0\xff"}
    assert {message["place"] for message in messages} == {"grün"}


def test_frames_are_carried_out_in_their_order(listening: Client, queue: str) -> None:
    listening.write(
        b"".join(
            b"SEND\ndestination:%s\n\n%d\0" % (queue.encode(), number) for number in range(500)
        )
    )
    assert [int(message.body) for message in listening.messages(500)] == list(range(500))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        pytest.param(b"send\ndestination:/queue/q\n\n", "", id="commands are case-sensitive"),
        pytest.param(b"SENDX\ndestination:/queue/q\n\n", "SENDX", id="an unknown command"),
        pytest.param(b"SEND\nDestination:/queue/q\n\n", "destination", id="so are headers"),
        pytest.param(b"SEND\ndestination:/queue/q\ncolour\n\n", "", id="no colon"),
        pytest.param(b"SEND\ndestination:/queue/q\ncolour:\xff\n\n", "", id="not UTF-8"),
        pytest.param(
            b"SEND\ndestination:/queue/q\ncontent-length:2\n\nabc",
            "",
            id="a body that does not end where content-length says",
        ),
    ],
)
def test_a_malformed_frame_is_an_error(
    connect: Connect, version: str, frame: bytes, words: str
) -> None:
    client = connect(version)
    client.write(frame + b"\0")
    client.error(words)


@pytest.mark.parametrize("command", ["CONNECTED", "MESSAGE", "RECEIPT", "ERROR"])
def test_a_frame_that_only_servers_send_is_an_error(
    connect: Connect, version: str, command: str
) -> None:
    client = connect(version)
    client.write(
        b"%s\nreceipt-id:1\nmessage-id:1\nsubscription:1\ndestination:/queue/q\n\n\0"
        % command.encode()
    )
    client.error()


def test_headers_are_utf_8(listening: Client, queue: str) -> None:
    """1.1 and 1.2 "Value Encoding"."""
    listening.send("SEND", {"destination": queue, "ort": "Größe €𝄞", "größe": "x"})
    message = listening.message()
    assert (message["ort"], message["größe"]) == ("Größe €𝄞", "x")


@pytest.mark.parametrize(
    ("version", "value"),
    [("1.1", "a:b\nc\\d\\n:"), ("1.2", "a:b\nc\\d\\n\r\n:\r"), ("1.1", "\\c"), ("1.2", "\\\\r")],
)
def test_names_and_values_are_escaped_both_ways(
    connect: Connect, queue: str, version: str, value: str
) -> None:
    """1.1 and 1.2 "Value Encoding"; the client here refuses raw colons and undefined escapes."""
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "plain": value, f"name{value}.": "odd"})
    message = client.message()
    assert (message["plain"], message[f"name{value}."]) == (value, "odd")


@pytest.mark.parametrize(
    ("version", "escape"),
    [("1.1", "\\r"), ("1.1", "\\t"), ("1.2", "\\t"), ("1.2", "\\N"), ("1.2", "\\")],
)
def test_an_undefined_escape_is_an_error(connect: Connect, version: str, escape: str) -> None:
    """1.2 "Value Encoding": "MUST be treated as a fatal protocol error"."""
    client = connect(version)
    client.write(b"SEND\ndestination:/queue/q\nreceipt:7\ncolour:re%sd\n\n\0" % escape.encode())
    client.error(receipt_id="7")


def test_1_0_has_no_escapes(connect: Connect, queue: str) -> None:
    client = connect("1.0")
    client.subscribe(queue)
    client.write(b"SEND\ndestination:%s\ncolour:a\\nb\\c:d\\\n\n\0" % queue.encode())
    assert client.message()["colour"] == "a\\nb\\c:d\\"


def test_what_1_2_escapes_reaches_each_version_as_it_can_take_it(
    connect: Connect, topic: str, version: str
) -> None:
    client, sender = connect(version), connect("1.2")
    client.subscribe(topic)
    sender.put(topic, "1", colour="a:b\\c\nd\re")
    expected = {"1.0": "a:b\\c d e", "1.1": "a:b\\c\nd e", "1.2": "a:b\\c\nd\re"}
    assert client.message()["colour"] == expected[version]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_headers_are_never_trimmed(connect: Connect, queue: str, version: str) -> None:
    """1.1 and 1.2: "must never trim or pad headers with spaces".

    Names go out with ``_`` there, because clients trim them.
    """
    client = connect(version)
    client.subscribe(queue)
    client.write(b"SEND\ndestination:%s\ncolour: red \n spaced :\t\n\n\0" % queue.encode())
    message = client.message()
    assert (message["colour"], message["_spaced_"]) == (" red ", "\t")


def test_the_first_of_repeated_headers_counts(listening: Client, queue: str) -> None:
    """1.1 and 1.2 "Repeated Header Entries"."""
    listening.write(
        b"SEND\ndestination:%s\ndestination:/queue/other\ncolour:red\ncolour:blue\n\n\0"
        % queue.encode()
    )
    message = listening.message()
    assert (message["colour"], message["destination"]) == ("red", queue)


def test_with_content_length_the_body_may_have_any_octets(listening: Client, queue: str) -> None:
    body = bytes(range(256)) * 40
    listening.send("SEND", {"destination": queue, "content-length": str(len(body))}, body)
    message = listening.message()
    assert (message.body, message["content-length"]) == (body, str(len(body)))


def test_without_content_length_the_body_ends_at_the_first_nul(
    listening: Client, queue: str
) -> None:
    listening.write(
        b"SEND\ndestination:%s\n\nbefore\0\nSEND\ndestination:%s\n\nafter\0"
        % (queue.encode(), queue.encode())
    )
    assert [message.body for message in listening.messages(2)] == [b"before", b"after"]


@pytest.mark.parametrize("length", ["-1", "+2", "2.0", "two", "0x2", ""])
def test_a_content_length_that_is_no_number_is_an_error(
    connect: Connect, version: str, length: str
) -> None:
    client = connect(version)
    client.write(b"SEND\ndestination:/queue/q\ncontent-length:%s\n\nab\0" % length.encode())
    client.error()


def test_any_frame_may_have_a_content_length(connect: Connect, queue: str, version: str) -> None:
    """1.1 and 1.2 "Header content-length": "all frames MAY include" it."""
    client = connect(version)
    assert client.ask("SUBSCRIBE", {"destination": queue, "id": "s", "content-length": "0"}) == []
    assert client.ask("BEGIN", {"transaction": "t", "content-length": "0"}) == []
    client.send("SEND", {"destination": queue}, "1")
    assert client.message().body == b"1"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    "frame", ["SUBSCRIBE\ndestination:/queue/q\nid:1", "BEGIN\ntransaction:t", "DISCONNECT\nx:y"]
)
def test_a_body_on_another_frame_than_send_is_an_error(
    connect: Connect, version: str, frame: str
) -> None:
    """1.1 and 1.2 "Body": "only the SEND, MESSAGE, and ERROR frames MAY have a body"."""
    client = connect(version)
    client.write(f"{frame}\n\nbody\0".encode())
    client.error()


def test_any_frame_but_connect_may_ask_for_a_receipt(
    connect: Connect, queue: str, version: str
) -> None:
    """All versions, "Header receipt" and "Receipt"."""
    client = connect(version)
    client.put(queue, "1", "2", "3")
    client.send(
        "SUBSCRIBE", {"destination": queue}, id="s", ack="client-individual", receipt="subscribed"
    )
    assert client.expect("RECEIPT")["receipt-id"] == "subscribed"
    first, second, _ = client.messages(3)
    client.ack(first, receipt="acknowledged")
    assert client.expect("RECEIPT")["receipt-id"] == "acknowledged"
    client.nack(second, receipt="refused")
    assert client.expect("RECEIPT")["receipt-id"] == "refused"
    for command in ("BEGIN", "COMMIT", "BEGIN", "ABORT"):
        client.send(command, transaction="t", receipt=command)
        assert client.expect("RECEIPT")["receipt-id"] == command
    client.send("UNSUBSCRIBE", id="s", receipt="unsubscribed")
    assert client.expect("RECEIPT")["receipt-id"] == "unsubscribed"
    client.send("DISCONNECT", receipt="bye")
    assert client.expect("RECEIPT")["receipt-id"] == "bye"


def test_a_receipt_is_any_text(connect: Connect) -> None:
    client = connect("1.2")
    client.send("BEGIN", transaction="t", receipt=" a:b\\c\r\n ö ")
    assert client.expect("RECEIPT").headers == {"receipt-id": " a:b\\c\r\n ö "}


@pytest.mark.parametrize(
    "octets",
    [
        b"SEND\n" + b"".join(b"h%d:v\n" % number for number in range(1001)),
        b"SEND\nh:" + b"v" * (10 * 1024 + 1),
        b"SEND\ndestination:/queue/q\ncontent-length:999999999999\n\n",
        b"X" * 2000,
    ],
    ids=["too many headers", "too long a header", "too long a body", "too long a command"],
)
def test_what_is_too_large_is_an_error_before_it_is_complete(
    connect: Connect, octets: bytes
) -> None:
    """1.2 "Size Limits": the server "SHOULD send the client an ERROR frame and then close the
    connection".
    """
    client = connect("1.2")
    client.write(octets)
    client.error()


def test_a_large_body_goes_through(connect: Connect, queue: str, version: str) -> None:
    client = connect(version)
    body = b"0123456789abcdef" * 200_000
    client.send("SEND", {"destination": queue, "content-length": str(len(body))}, body)
    client.subscribe(queue)
    assert client.message().body == body


def test_headers_up_to_the_limit_are_taken(connect: Connect, queue: str) -> None:
    client = connect("1.2")
    client.subscribe(queue)
    headers = {f"h{number}": "v" * 50 for number in range(900)}
    client.send("SEND", {"destination": queue, **headers})
    assert headers.items() <= client.message().headers.items()


@pytest.mark.parametrize("text", ["text/plain;charset=utf-8", "application/json"])
def test_content_type_is_carried(connect: Connect, queue: str, version: str, text: str) -> None:
    """1.1 and 1.2 "Header content-type"."""
    client = connect(version)
    client.subscribe(queue)
    client.send("SEND", {"destination": queue, "content-type": text}, "{}")
    message = client.message()
    assert (message["content-type"], message.body) == (text, b"{}")


def test_a_client_that_speaks_before_it_is_answered_is_understood(
    dial: Callable[..., Client], queue: str, version: str
) -> None:
    """Frames behind CONNECT are carried out once it is answered, by the rules of the version that
    was agreed.
    """
    client = dial()
    connecting = f"CONNECT\naccept-version:{version}\nlogin:guest\npasscode:guest\n\n\0".encode()
    colour = b"re\\d" if version == "1.0" else b"re\\\\d"
    subscribing = b"SUBSCRIBE\nid:s\ndestination:%s\n\n\0" % queue.encode()
    sending = b"SEND\ndestination:%s\ncolour:%s\n\n1\0" % (queue.encode(), colour)
    client.write(connecting + subscribing + sending)
    assert client.expect("CONNECTED")["version"] == version
    client.version = version
    assert client.message()["colour"] == "re\\d"
