"""SUBSCRIBE with ``envelope:true``: each MESSAGE has the whole message as its body, whatever its
type, and sent again that is the message once more.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.envelope import CONTENT_TYPE, decode, encode
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.transformer import MessageTransformer
from gateway.messaging.values import Byte, Char, Float, Int, Short, Value, encode_map, encode_stream
from gateway.stomp.settings import SessionOptions
from gateway.stomp.wire import Frame, FrameParser, Limits, Version
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import message
from tests.gateway.stomp.test_restoring import administrator, send

SUBSCRIBE = "SUBSCRIBE\nid:s\ndestination:/queue/a\nenvelope:true\n"
TYPED: Mapping[str, Value] = {
    **{
        "yes": True,
        "byte": Byte(-3),
        "short": Short(300),
        "int": Int(70000),
        "long": 1 << 40,
        "float": Float(0.5),
        "double": 0.1,
    },
    **{
        "text": "fünf:\n\\",
        "nothing": None,
        "char": Char("c"),
        "octets": b"\0\xff",
        "envelope": "its own",
    },
}
BODIES = {
    BodyType.MESSAGE: b"",
    BodyType.TEXT: "fünf Stühle".encode(),
    BodyType.BYTES: b"\0\xff\n",
    BodyType.MAP: encode_map({"n": Short(1), "octets": b"\0"}),
    BodyType.STREAM: encode_stream([Int(1), "a", None]),
    BodyType.OBJECT: b"\xac\xed\0\x05p",
}


def typed(kind: BodyType, user: str = "") -> Message:
    """A message of this type with everything that one can have."""
    headers = Headers(
        Queue("a"),
        body_type=kind,
        persistent=False,
        priority=7,
        reply_to=Topic("answers"),
        correlation_id="c",
        type="t",
        properties=TYPED,
        extras=(("content-type", "text/x-own"), ("x-extra", "e")),
    )
    made = Message(
        headers,
        BODIES[kind],
        expires=1_800_000_000_000,
        timestamp=1_700_000_000_123,
        message_id="ID:1",
    )
    made.user = user
    return made


def null_text() -> Message:
    """The same with a text that is null."""
    made = typed(BodyType.TEXT)
    made.headers = made.headers.replace(null_text=True)
    made.body = b""
    return made


def same(found: Message, expected: Message) -> None:
    """Equal to the type of each property."""
    assert found.headers == expected.headers
    types = [
        {name: type(value) for name, value in each.headers.properties.items()}
        for each in (found, expected)
    ]
    assert types[0] == types[1]
    assert (found.body, found.message_id, found.timestamp, found.expires) == (
        *(expected.body, expected.message_id, expected.timestamp, expected.expires),
    )


class Writing(MessageTransformer):
    """Makes another message of what it has seen."""

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage:
        made = self.create_message(BodyType.TEXT)
        made.text = "seen"
        return made


def subscribed(server: Server, headers: str = "", version: str = "1.2") -> Client:
    client = server.connected(version)
    client.say(f"{SUBSCRIBE}{headers}\n")
    client.parser = FrameParser(Limits(), {str(each): each for each in Version}[version])
    return client


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    "headers", ["browser:true\n", "ack:client\n", "ack:client-individual\n", ""]
)
def test_every_type_of_message_is_delivered_whole(headers: str, version: str) -> None:
    client = subscribed(Server(), headers, version)
    sent = [*[typed(kind) for kind in BodyType], null_text()]
    client.consumer().push(*sent)
    frames = client.read()
    for frame, expected in zip(frames, sent, strict=True):
        same(decode(frame.body), expected)
        told = frame.head.headers
        assert (told["content-type"], told["envelope"]) == (CONTENT_TYPE, "true")
        assert frame.head.content_length == len(frame.body)
        assert ("ack" in told) == headers.startswith("ack")
        assert (
            told["subscription"],
            told["destination"],
            told["message-id"],
            told["redelivered"],
        ) == (*("s", "/queue/a", "ID:1", "false"),)
        assert (told["timestamp"], told["expires"], told["priority"]) == (
            "1700000000123",
            "1800000000000",
            "7",
        )
        assert (told["type"], told["correlation-id"], told["reply-to"], told["x-extra"]) == (
            "t",
            "c",
            "/topic/answers",
            "e",
        )
        assert [told[name] for name in ("yes", "byte", "long", "octets", "nothing")] == [
            *("true", "-3", str(1 << 40), "00ff", "")
        ]
    client.lose()


def test_sent_again_by_an_administrator_it_is_the_message(server: Server) -> None:
    client = subscribed(server)
    sent = [*[typed(kind) for kind in BodyType], null_text()]
    client.consumer().push(*sent)
    frames = client.read()
    administrator(server).say(*[send(frame.body, destination="/queue/a") for frame in frames])
    assert len(server.provider.sent) == len(sent)
    for found, expected in zip(server.provider.sent, sent, strict=True):
        same(found, expected)


def test_a_message_that_is_an_envelope_is_wrapped_as_any_other() -> None:
    client = subscribed(Server())
    inner = encode(typed(BodyType.MAP))
    dead = message(
        inner,
        body_type=BodyType.BYTES,
        extras=(("content-type", CONTENT_TYPE),),
        properties={"reason": "SEND_FAILURE"},
    )
    client.consumer().push(dead)
    [frame] = client.read()
    assert (frame.head.headers["envelope"], frame.head.headers["reason"]) == (
        "true",
        "SEND_FAILURE",
    )
    found = decode(frame.body)
    same(found, dead)
    same(decode(found.body), typed(BodyType.MAP))


@pytest.mark.parametrize("destination", [Queue("a"), Topic("t")])
def test_one_message_goes_in_an_envelope_to_who_wants_it_and_plain_to_others_whoever_is_first(
    destination: Destination, server: Server, client: Client
) -> None:
    topic = destination.kind is Kind.TOPIC
    where = f"destination:/{'topic' if topic else 'queue'}/{destination.name}\n"
    wanted = ("", "envelope:true\n", "envelope:FALSE\n", "envelope: TRUE\n", "", "envelope:true\n")
    client.say(
        *[f"SUBSCRIBE\nid:{number}\n{where}{header}\n" for number, header in enumerate(wanted)]
    )
    sent = message(b"plain", destination, properties={"envelope": "true", "n": Int(1)})
    for _ in range(2):
        server.turn.begin()
        for consumer in server.provider.connection.consumers:
            consumer.push(sent)
        tails = [part for part in client.connection.output.parts if part.startswith(b"message-id:")]
        server.turn.end()
        if topic:
            assert len({id(tail) for tail in tails}) == 2, "each of the two is encoded once for all"
        frames = client.read()
        assert [
            decode(frame.body).body if "TRUE" in header.upper() else frame.body
            for frame, header in zip(frames, wanted, strict=True)
        ] == [b"plain"] * 6
        assert [frame.head.headers.get("content-type") for frame in frames] == [
            CONTENT_TYPE if "TRUE" in header.upper() else None for header in wanted
        ]
        assert {frame.head.headers["n"] for frame in frames} == {"1"}


def test_a_redelivery_and_the_end_of_a_browse_are_told_as_ever() -> None:
    client = subscribed(Server(), "ack:client\n")
    client.consumer().push(typed(BodyType.OBJECT), attempts=[3])
    [frame] = client.read()
    assert (frame.head.headers["redelivered"], frame.head.headers["JMSXDeliveryCount"]) == (
        "true",
        "3",
    )
    client.say("SUBSCRIBE\nid:b\ndestination:/queue/a\nenvelope:true\nbrowser:true\n\n")
    client.consumer().push_end()
    [end] = client.read()
    assert (end.head.headers["browser"], end.body, "envelope" in end.head.headers) == (
        "end",
        b"",
        False,
    )


@pytest.mark.parametrize("value", ["yes", "", "1", "truely"])
def test_another_value_is_an_error_that_names_it(value: str, client: Client) -> None:
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nenvelope:{value}\nreceipt:r\n\n")
    error = client.error()
    assert f"envelope '{value}' is neither true nor false" in error.head.headers["message"]
    assert error.head.headers["receipt-id"] == "r"


def test_who_sent_it_is_told_only_where_the_operator_says_so() -> None:
    for tell in (False, True):
        client = subscribed(Server(SessionOptions(tell_user=tell)))
        client.consumer().push(typed(BodyType.TEXT, user="alice"))
        [frame] = client.read()
        assert frame.head.headers.get("JMSXUserID") == ("alice" if tell else None)
        assert decode(frame.body).user == ("alice" if tell else "")


def test_a_transformer_is_called_but_for_an_administrator() -> None:
    for administers in (False, True):
        server = Server(transformer=Writing())
        client = server.connected()
        server.provider.connection.administers = administers
        client.say(f"{SUBSCRIBE}\n")
        client.consumer().push(message())
        [frame] = client.read()
        assert decode(frame.body).text == ("hello" if administers else "seen")


def test_what_fits_into_no_envelope_is_rejected_and_ends_the_connection(server: Server) -> None:
    client = subscribed(server, "ack:client\n")
    client.consumer().push(typed(BodyType.MAP), message(properties={"much": 1 << 70}))
    frames = client.heard()
    assert [frame.head.command for frame in frames] == ["MESSAGE", "ERROR"]
    assert server.provider.calls("reject") == [("reject", 1, [2], None, False)]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-128, 127).map(Byte),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
    st.binary(max_size=9),
)


@given(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.binary(max_size=40),
    st.sampled_from(BodyType),
    st.sampled_from(Version),
)
@example({"\t": None, " ": True, "\0": "x"}, b"", BodyType.MESSAGE, Version.V1_0)
def test_whatever_a_message_holds_comes_back(
    properties: dict[str, Value], body: bytes, kind: BodyType, version: Version
) -> None:
    client = subscribed(Server(), version=str(version))
    sent = message(body, body_type=kind, properties=properties)
    client.consumer().push(sent)
    found: list[Frame] = client.heard()
    assert len(found) == 1
    same(decode(found[0].body), sent)


@pytest.mark.parametrize("enveloped", ["", "envelope:true\n"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_browser_is_not_ended_by_any_message(
    version: str, enveloped: str, server: Server
) -> None:
    """Each type of body, and one that no envelope takes, with a number that no JMS type holds."""
    client = server.connected(version)
    client.say(f"SUBSCRIBE\nid:s\ndestination:/queue/a\nbrowser:true\n{enveloped}\n")
    client.parser.change_rules(Version[f"V{version.replace('.', '_')}"])
    client.read()
    broken = message(b"x", body_type=BodyType.MAP, properties={"large": 1 << 80})
    client.consumer().push(*[typed(kind) for kind in BodyType], broken, message(b"last"))
    frames = client.read()
    assert [frame.head.command for frame in frames] == ["MESSAGE"] * (len(BodyType) + 2)
    for kind, frame in zip(BodyType, frames, strict=False):
        headers = frame.head.headers
        if kind in (BodyType.TEXT, BodyType.BYTES) and not enveloped:
            assert frame.body == BODIES[kind]
            assert "transformation-error" not in headers
        else:
            assert headers["content-type"] == CONTENT_TYPE
            same(decode(frame.body), typed(kind))
            assert ("transformation-error" in headers) is (not enveloped)
    assert frames[-2].body == b""
    assert "large" not in frames[-2].head.headers
    assert frames[-2].head.headers["transformation-error"]
    client.consumer().push_end()
    assert client.read()[-1].head.headers["browser"] == "end"
    assert not server.provider.calls("reject")
