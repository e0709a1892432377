"""SEND: conversion, batches, receipts, refusals and flow control."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import DestinationFull, StorageFailed
from gateway.messaging.message import BodyType
from gateway.messaging.provider import Mode
from gateway.stomp.profiles import ACTIVEMQ, OPENMQ, Profile
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.wire.shapes import CROWDED, MOST_KEPT
from tests.gateway.stomp.client import START, Client, Server

NOW = START * 1000

#: Frames of which the last are recognised by their shape.
ENOUGH = 8


def test_without_content_length_it_is_text_and_with_it_bytes(
    server: Server, client: Client
) -> None:
    client.say(
        "SEND\ndestination:/queue/a\n\nt\u00e9xt",
        b"SEND\ndestination:/topic/b\ncontent-length:3\n\n\0\xff\0",
    )
    text, octets = server.provider.sent
    assert text.headers.destination == Queue("a")
    assert (text.headers.body_type, text.text) == (BodyType.TEXT, "t\u00e9xt")
    assert octets.headers.destination == Topic("b")
    assert (octets.headers.body_type, octets.body) == (BodyType.BYTES, b"\0\xff\0")


def test_the_limit_of_a_header_block_is_a_setting() -> None:
    server = Server(transport=TransportOptions(header_block=4096))
    rest = 4096 - len("SEND\ndestination:/queue/a\n\n\n")
    for more, refused in ((0, False), (1, True)):
        client = server.connected()
        client.say("SEND\ndestination:/queue/a\n" + "x" * (rest - 10 + more) + ":012345678\n\n")
        if refused:
            assert "4096" in client.error().head.headers["message"]
        else:
            assert client.heard() == []
    assert len(server.provider.sent) == 1


def test_as_many_headers_are_taken_as_the_setting_says() -> None:
    server = Server(transport=TransportOptions(header_count=3000, header_block=1024 * 1024))
    client = server.connected()
    assert (
        client.answers(
            "SEND\ndestination:/queue/a\n"
            + "".join(f"h{number}:v\n" for number in range(2999))
            + "\n"
        )
        == []
    )
    [message] = server.provider.sent
    assert len(message.headers.properties) == 2999


def test_properties_of_jms_providers_are_kept_of_administrators(
    server: Server, client: Client
) -> None:
    """A link from another gateway sends by SEND, as a user in the group ``admin``. The right may be
    lost while the connection is open.
    """
    send = "SEND\ndestination:/queue/a\nJMS_SUN_DMQ_X:1\nJMSMessageID:2\ncolour:red\n\n"
    for administers in (False, True, False):
        server.provider.connection.administers = administers
        client.say(*[send] * 4)
    assert [set(message.headers.properties) for message in server.provider.sent] == [
        *[{"colour"}] * 4,
        *[{"colour", "JMS_SUN_DMQ_X"}] * 4,
        *[{"colour"}] * 4,
    ]


def test_a_text_body_that_is_not_utf_8_is_an_error(server: Server, client: Client) -> None:
    client.say(
        b"SEND\ndestination:/queue/a\n\nok", b"SEND\ndestination:/queue/a\nreceipt:r\n\n\xff\xfe"
    )
    error = client.error()
    assert "UTF-8" in error.head.headers["message"]
    assert error.head.headers["receipt-id"] == "r"
    assert [message.body for message in server.provider.sent] == [b"ok"]


def test_a_repeated_text_head_still_has_its_bodies_checked(server: Server, client: Client) -> None:
    assert "UTF-8" in client.refusal(
        *[b"SEND\ndestination:/queue/a\n\nok"] * 5, b"SEND\ndestination:/queue/a\n\n\xff"
    )
    assert len(server.provider.sent) == 5


def test_the_defaults_are_those_of_jms(server: Server) -> None:
    server.connected().say(*["SEND\ndestination:/queue/a\n\n"] * ENOUGH)
    for sent in server.provider.sent:
        assert sent.headers.persistent
        assert (sent.headers.priority, sent.expires) == (4, 0)


def test_the_jms_bindings_are_bound(server: Server) -> None:
    frame = (
        "SEND\ndestination:/queue/a\npersistent:False\npriority:9\ncorrelation-id:c\ntype:t\nreply-to:/topic/r\ncolour:red\n"
        "content-type:text/plain\nx-foo:bar\nNULL:n\n\n"
    )
    server.connected().say(*[frame] * ENOUGH)
    for sent in server.provider.sent:
        headers = sent.headers
        assert (headers.persistent, headers.priority) == (False, 9)
        assert (headers.correlation_id, headers.type, headers.reply_to) == ("c", "t", Topic("r"))
        assert headers.properties == {"colour": "red"}
        assert headers.extras == (("content-type", "text/plain"), ("x-foo", "bar"), ("NULL", "n"))


@pytest.mark.parametrize(
    ("headers", "expires"),
    [
        ("expires:0", 0),
        ("expires:5000", NOW + 5000),
        ("expires:99999999999", NOW + 99_999_999_999),
        ("expires:100000000000", 100_000_000_000),
        (f"expires:{NOW + 7}", NOW + 7),
        ("ttl:250", NOW + 250),
        ("expiration:60000", NOW + 60_000),
        ("expires:0\nttl:250", 0),
    ],
)
def test_expires_is_absolute_or_relative(headers: str, expires: int, server: Server) -> None:
    server.connected().say(*[f"SEND\ndestination:/queue/a\n{headers}\n\n"] * ENOUGH)
    assert [message.expires for message in server.provider.sent] == [expires] * ENOUGH


def test_each_frame_has_its_own_expiry_receipt_and_transaction(
    server: Server, client: Client
) -> None:
    for number in range(ENOUGH):
        client.say(
            f"BEGIN\ntransaction:t{number}\n\n",
            f"SEND\ndestination:/queue/a\nexpires:{NOW + number}\ncolour:{number}\ntransaction:t{number}\nreceipt:r{number}\n\n",
            f"COMMIT\ntransaction:t{number}\n\n",
        )
    assert [
        (message.expires - NOW, message.headers.properties) for message in server.provider.sent
    ] == [(number, {"colour": str(number)}) for number in range(ENOUGH)]
    assert [frame.head.headers["receipt-id"] for frame in client.heard()] == [
        f"r{number}" for number in range(ENOUGH)
    ]
    refused = "SEND\ndestination:/queue/a\nexpires:soon\ncolour:9\ntransaction:t\nreceipt:r\n\n"
    assert "'soon' is no number" in client.refusal("BEGIN\ntransaction:t\n\n", refused)


def test_where_each_frame_has_its_expires_nobody_reads_ttl(server: Server, client: Client) -> None:
    send = "SEND\ndestination:/queue/a\nexpires:%d\nttl:soon\n\n"
    assert client.answers(*[send % (5000 + number) for number in range(9)]) == []
    assert [message.expires - NOW for message in server.provider.sent] == [*range(5000, 5009)]


def test_relative_expiry_is_counted_for_each_message_of_a_repeated_head(
    server: Server, client: Client
) -> None:
    for _ in range(4):
        client.say("SEND\ndestination:/queue/a\nttl:1000\n\n")
        server.clock.advance(1)
    assert [message.expires - NOW for message in server.provider.sent] == [1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    "name",
    [
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "receipt-id",
        "timestamp",
        "JMSXUserID",
        "JMSXDeliveryCount",
    ],
)
def test_forged_headers_go_nowhere(name: str, server: Server) -> None:
    server.connected().say(
        *[f"SEND\ndestination:/queue/a\n{name}:forged-{number}\n\n" for number in range(ENOUGH)]
    )
    for number, sent in enumerate(server.provider.sent, 1):
        assert not sent.headers.properties
        assert (sent.headers.extras, sent.message_id) == ((), f"ID-{number}")


def test_a_read_is_one_run_that_shares_its_headers(server: Server, client: Client) -> None:
    client.say(*["SEND\ndestination:/queue/a\ncolour:red\n\nx"] * 10)
    [call] = server.provider.calls("send")
    assert call[1] is Mode.AUTO
    messages = call[2]
    assert len(messages) == 10
    assert messages[-1].headers is messages[-2].headers
    assert (len({id(message) for message in messages}), server.counters.messages_in) == (10, 10)


def test_receipts_come_in_order_once_durable(server: Server, client: Client) -> None:
    server.provider.holds_completions = True
    client.say(*[f"SEND\ndestination:/queue/a\nreceipt:{number}\n\nx" for number in range(3)])
    assert [call[0] for call in server.provider.log[-2:]] == ["send", "completion"]
    assert client.heard() == []
    server.provider.complete()
    server.clock.advance(0)
    assert [frame.head.headers["receipt-id"] for frame in client.heard()] == ["0", "1", "2"]


@pytest.mark.parametrize("for_the_disk", [True, False])
def test_no_more_is_read_while_long_receipts_wait(
    server: Server, client: Client, for_the_disk: bool
) -> None:
    """For the disk, or for a client that does not read them."""
    server.provider.holds_completions = for_the_disk
    asked = 0
    while client.transport.producerState != "paused":
        client.say(f"SEND\ndestination:/queue/a\nreceipt:{asked}-{'r' * 9000}\n\n")
        asked += 1
        assert asked < 200, "a client may have receipts of some megabyte wait, and no more"
    assert asked > 50
    if for_the_disk:
        server.provider.complete()
        server.clock.advance(0)
        assert client.transport.producerState == "paused", "the receipts are sent, and not read yet"
    assert len(client.read()) == asked
    assert client.transport.producerState == "producing"


def test_acks_are_read_while_a_full_destination_holds_receipts_back_however_many_those_are() -> (
    None
):
    from tests.gateway.stomp.recording import message

    server = Server()
    client = server.connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client-individual\n\n")
    client.consumer().push(*[message(identifier=f"ID-{number}") for number in range(300)])
    plain = server.provider.connection.sessions[0]
    plain.is_writable = False
    server.provider.holds_completions = True
    client.say("SEND\ndestination:/queue/a\nreceipt:s\n\n0")
    for number in range(1, 301):
        client.say(f"ACK\nid:1-{number}\nreceipt:{'r' * 9000}\n\n")
    assert client.transport.producerState == "producing"
    assert sum(len(call[2]) for call in server.provider.calls("acknowledge")) == 300


def test_a_refused_message_fails_alone_after_those_before_it(
    server: Server, client: Client
) -> None:
    server.provider.connection.sessions[0].refuses[2] = DestinationFull(Queue("a"), "maxNumMsgs", 2)
    client.say(
        *[f"SEND\ndestination:/queue/a\nreceipt:{number}\n\n{number}" for number in range(5)]
    )
    frames = client.heard()
    assert [(frame.head.command, frame.head.headers["receipt-id"]) for frame in frames] == [
        ("RECEIPT", "0"),
        ("RECEIPT", "1"),
        ("ERROR", "2"),
    ]
    assert "maxNumMsgs is 2" in frames[-1].head.headers["message"]
    assert [message.body for message in server.provider.sent] == [b"0", b"1"]
    client.drain()
    assert client.transport.is_closed


def test_a_failed_commit_of_the_store_is_an_error_and_no_receipt(
    server: Server, client: Client
) -> None:
    server.provider.connection.sessions[0].failures = [StorageFailed("disk I/O error")]
    assert client.answers("SEND\ndestination:/queue/a\nreceipt:r\n\nx") == ["ERROR"]
    client.drain()
    assert client.transport.is_closed


def test_where_there_is_no_room_sends_wait_and_acks_do_not() -> None:
    from tests.gateway.stomp.recording import message

    server = Server(SessionOptions(input_hold=2000))
    client = server.connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client-individual\n\n")
    client.consumer().push(message(), message(identifier="ID-x"))
    plain = server.provider.connection.sessions[0]
    plain.is_writable = False
    client.say("SEND\ndestination:/queue/a\n\n0")
    client.say(
        "SEND\ndestination:/queue/a\n\n1",
        "SEND\ndestination:/queue/a\nreceipt:r\n\n2",
        "ACK\nid:1-2\n\n",
        "BEGIN\ntransaction:t\n\n",
    )
    assert [each.body for each in server.provider.sent] == [b"0"]
    assert server.provider.calls("acknowledge") == [("acknowledge", 1, [2], False)]
    client.say(*["SEND\ndestination:/queue/a\n\nmore"] * 7)
    assert client.transport.producerState == "paused"
    server.provider.log.clear()
    plain.drain()
    server.clock.advance(0)
    assert [each.body for each in server.provider.sent] == [b"1", b"2"] + [b"more"] * 7
    assert client.transport.producerState == "producing"
    assert client.commands()[-1] == "RECEIPT"
    assert client.answers("COMMIT\ntransaction:t\nreceipt:c\n\n") == ["RECEIPT"]


def test_a_destination_that_fills_again_holds_the_rest(server: Server, client: Client) -> None:
    plain = server.provider.connection.sessions[0]
    plain.is_writable = False
    client.say("SEND\ndestination:/queue/a\n\n0")
    client.say("SEND\ndestination:/queue/a\n\n1", "SEND\ndestination:/queue/a\n\n2")
    resume = plain.resume
    assert resume is not None
    plain.resume = None
    resume()
    assert [each.body for each in server.provider.sent] == [b"0", b"1"]
    plain.drain()
    assert [each.body for each in server.provider.sent] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("profile", [OPENMQ, ACTIVEMQ], ids=lambda profile: profile.name)
def test_an_acknowledgement_refused_among_what_waits_loses_nothing(profile: Profile) -> None:
    server = Server(SessionOptions(profile=profile))
    client = server.connected()
    plain = server.provider.connection.sessions[0]
    plain.is_writable = False
    client.say("SEND\ndestination:/queue/a\n\n0")
    client.say(
        "BEGIN\ntransaction:t\n\n",
        "SEND\ndestination:/queue/a\n\n1",
        "ACK\nid:9-9\nreceipt:bad\n\n",
        "SEND\ndestination:/queue/a\ntransaction:t\n\n2",
        "COMMIT\ntransaction:t\nreceipt:c\n\n",
    )
    resume, plain.resume = plain.resume, None
    assert resume is not None
    # It takes one, and no more.
    resume()
    server.clock.advance(0)
    if not profile.survives:
        assert client.commands()[-1] == "ERROR"
        return
    plain.drain()
    server.clock.advance(0)
    assert client.commands()[-2:] == ["ERROR", "RECEIPT"]
    assert [each.body for each in server.provider.sent] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("shapes", [1, 16])
def test_what_is_kept_of_sends_to_several_destinations_is_bounded(
    shapes: int, server: Server, client: Client
) -> None:
    """Each of the destinations has headers of its own. More are named than there is room for, and
    fewer than make all be forgotten.
    """
    texts = [f"/topic/{number:02}" for number in range(94)]

    def send(first: int) -> None:
        for shape in range(shapes):
            destination = ",".join(texts[first + shape :] + texts[: first + shape])
            client.say(f"SEND\ndestination:{destination}\na{shape}:{first}\n\n")
        server.provider.log.clear()

    for _ in range(8):
        send(0)
    assert 40 * shapes < CROWDED
    gc.collect()
    tracemalloc.start()
    try:
        for first in range(40):
            send(first)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MOST_KEPT
