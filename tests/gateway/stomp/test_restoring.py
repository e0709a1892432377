"""SEND of an envelope: an administrator's is the message in it, anybody else's is octets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.messaging.destination import Queue, Topic
from gateway.messaging.envelope import CONTENT_TYPE, encode
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import DUPLICATE_ID, Mode
from gateway.messaging.transformer import MessageTransformer
from gateway.messaging.values import Byte, Float, Short, Value, encode_map
from tests.gateway.stomp.client import START, Client, Server

NOW = START * 1000
ENTRIES = encode_map({"weight": Short(12), "octets": b"\0\xff", "nothing": None})
#: Of what is sent again; a duplicate id is none of them, or it would be dropped where it had come
#: before it died.
PROPERTIES: Mapping[str, Value] = {
    "small": Byte(3),
    "real": Float(0.5),
    "flag": True,
    "JMSXGroupID": "g",
}


class Marking(MessageTransformer):
    """Marks what it has seen."""

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage:
        message.properties["marked"] = source
        return message


def original(expires: int = 0) -> Message:
    """A message that no SEND could make."""
    headers = Headers(
        Queue("lost"),
        body_type=BodyType.MAP,
        persistent=False,
        priority=7,
        reply_to=Topic("answers"),
        correlation_id="c",
        type="t",
        properties={DUPLICATE_ID: "sent before", **PROPERTIES},
        extras=(("x-extra", "e"), ("content-type", "application/x-map")),
    )
    return Message(headers, ENTRIES, expires=expires, timestamp=NOW - 5000, message_id="ID:there:1")


def send(
    envelope: bytes,
    headers: str = "",
    content_type: str = CONTENT_TYPE,
    destination: str = "/queue/again",
) -> bytes:
    start = f"SEND\ndestination:{destination}\ncontent-type:{content_type}\ncontent-length:{len(envelope)}\n{headers}\n"
    return start.encode() + envelope


def administrator(server: Server) -> Client:
    client = server.connected()
    server.provider.connection.administers = True
    return client


def test_an_administrators_envelope_is_the_message_in_it_with_the_destination_of_the_send(
    server: Server,
) -> None:
    administrator(server).say(
        send(encode(original()), "priority:1\npersistent:true\ncolour:red\nreply-to:/queue/mine\n")
    )
    [sent] = server.provider.sent
    expected = original().headers.replace(destination=Queue("again"), properties=PROPERTIES)
    assert sent.headers == expected
    assert {name: type(value) for name, value in sent.headers.properties.items()} == {
        name: type(value) for name, value in expected.properties.items()
    }
    assert (sent.body, sent.message_id, sent.timestamp, sent.expires) == (
        ENTRIES,
        "ID:there:1",
        NOW - 5000,
        0,
    )


@pytest.mark.parametrize("content_type", [CONTENT_TYPE.upper(), f"{CONTENT_TYPE}; version=1"])
def test_a_media_type_may_be_in_any_case_and_have_parameters(
    content_type: str, server: Server
) -> None:
    administrator(server).say(send(encode(original()), content_type=content_type))
    assert server.provider.sent[0].headers.body_type is BodyType.MAP


@pytest.mark.parametrize(
    "content_type",
    ["application/vnd.stomp-gateway.envelope+json", "application/octet-stream", "text/plain"],
)
def test_of_another_media_type_it_is_octets(content_type: str, server: Server) -> None:
    envelope = encode(original())
    administrator(server).say(send(envelope, content_type=content_type))
    [sent] = server.provider.sent
    assert (sent.headers.body_type, sent.body) == (BodyType.BYTES, envelope)


def test_anybody_elses_stays_octets_whole_or_damaged(server: Server, client: Client) -> None:
    envelope = encode(original())
    assert client.answers(*[send(octets) for octets in (envelope, envelope[:-1])] * 3) == []
    assert [
        (sent.headers.body_type, sent.body, sent.headers.destination)
        for sent in server.provider.sent
    ] == [(BodyType.BYTES, octets, Queue("again")) for octets in (envelope, envelope[:-1])] * 3
    assert server.provider.sent[0].headers.extras == (("content-type", CONTENT_TYPE),)
    assert server.provider.sent[0].headers.properties == {}


def test_each_envelope_of_a_repeated_head_is_restored_as_long_as_the_user_administers(
    server: Server,
) -> None:
    client = administrator(server)
    envelope = encode(original())
    client.say(*[send(envelope)] * 5)
    server.provider.connection.administers = False
    client.say(*[send(envelope)] * 2)
    assert [sent.headers.body_type for sent in server.provider.sent] == [BodyType.MAP] * 5 + [
        BodyType.BYTES
    ] * 2
    assert len({id(sent) for sent in server.provider.sent}) == 7


def test_the_expiration_is_the_messages_own_unless_the_send_says_something(server: Server) -> None:
    client = administrator(server)
    client.say(
        *[
            send(encode(original(expires=NOW - 1)), headers)
            for headers in ("", "expires:0\n", "ttl:500\n", f"expires:{NOW + 9}\n")
        ]
    )
    assert [sent.expires for sent in server.provider.sent] == [NOW - 1, 0, NOW + 500, NOW + 9]


def test_the_duplicate_id_is_that_of_the_send(server: Server) -> None:
    administrator(server).say(
        *[send(encode(original()), headers) for headers in (f"{DUPLICATE_ID}:again\n", "")]
    )
    assert [sent.headers.properties for sent in server.provider.sent] == [
        {**PROPERTIES, DUPLICATE_ID: "again"},
        PROPERTIES,
    ]


def test_in_a_transaction_it_is_sent_with_the_transaction(server: Server) -> None:
    client = administrator(server)
    client.say(
        "BEGIN\ntransaction:t\n\n",
        send(encode(original()), "transaction:t\nreceipt:r\n"),
        "COMMIT\ntransaction:t\n\n",
    )
    [(_, mode, [sent])] = server.provider.calls("send")
    assert (mode, sent.headers.body_type) == (Mode.TRANSACTED, BodyType.MAP)
    assert client.commands() == ["RECEIPT"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not an envelope"),
        (b"plain octets", "not an envelope"),
        (encode(original())[:-1], "damaged or cut short"),
        (encode(original())[:-1] + b"?", "damaged or cut short"),
    ],
)
def test_a_damaged_one_is_an_error_that_says_so(body: bytes, why: str, server: Server) -> None:
    client = administrator(server)
    client.say(send(encode(original())), send(body, "receipt:r\n"))
    error = client.error()
    assert error.head.headers["receipt-id"] == "r"
    assert "to be restored" in error.head.headers["message"]
    assert why.encode() in error.body
    assert len(server.provider.sent) == 1, "the one before it was well"


def test_without_content_length_an_error_asks_for_it(server: Server) -> None:
    client = administrator(server)
    assert "give content-length" in client.refusal(
        b"SEND\ndestination:/queue/a\ncontent-type:"
        + CONTENT_TYPE.encode()
        + b"\n\n"
        + encode(original()).split(b"\0")[0]
    )


def test_a_transformer_has_no_part_in_it() -> None:
    server = Server(transformer=Marking())
    client = administrator(server)
    client.say(send(encode(original())), "SEND\ndestination:/queue/a\n\nx")
    restored, plain = server.provider.sent
    assert restored.headers.properties == PROPERTIES
    assert plain.headers.properties == {"marked": "STOMP"}
