"""Dialects, the encoder's corners, transformers, and settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.instance.settings import read
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import AccessDenied, DestinationFull, MessageRejected
from gateway.messaging.jms_message import JMSMessage
from gateway.messaging.message import BodyType
from gateway.messaging.redelivery import RedeliveryChanges
from gateway.messaging.transformer import MessageTransformer
from gateway.stomp import brokers, client_headers
from gateway.stomp.error_frames import describe, error_frame
from gateway.stomp.header_roles import _OWN
from gateway.stomp.message_encoder import UnsendableBody
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.settings import SETTINGS, StompOptions
from gateway.stomp.wire import FrameParser, Limits, Version, bare_name, without_edge_blanks
from tests.gateway.stomp.client import Server
from tests.gateway.stomp.recording import message


@pytest.mark.parametrize("name", brokers.DURABLE_NAMES)
def test_every_name_of_a_durable_subscription(name: str) -> None:
    assert client_headers.durable_name({name: "d"}) == "d"


@pytest.mark.parametrize("name", brokers.PREFETCHES)
def test_every_name_of_the_prefetch(name: str) -> None:
    assert client_headers.prefetch({name: "7"}) == 7
    assert client_headers.prefetch({name: "0"}) is None
    with pytest.raises(CommandRefused, match=name):
        client_headers.prefetch({name: "-1"})


@pytest.mark.parametrize("name", brokers.NO_LOCALS)
def test_every_name_of_no_local_in_any_case(name: str) -> None:
    assert client_headers.no_local({name: "TrUe"})
    assert not client_headers.no_local({name: "no"})


def test_every_redelivery_header() -> None:
    assert client_headers.redelivery({"other": "1"}) is None
    given = {
        "activemq.maximumRedeliveries": "-1",
        "activemq.initialRedeliveryDelay": "1",
        "activemq.redeliveryDelay": "2",
        "activemq.useExponentialBackOff": "FALSE",
        "activemq.backOffMultiplier": "1.5",
        "activemq.maximumRedeliveryDelay": "9",
    }
    assert client_headers.redelivery(given) == RedeliveryChanges(-1, 1, 2, False, 1.5, 9)
    assert client_headers.redelivery({"activemq.redeliveryDelay": "5"}) == RedeliveryChanges(
        redelivery_delay=5
    )
    for name in given:
        if name != "activemq.useExponentialBackOff":
            with pytest.raises(CommandRefused, match=name):
                client_headers.redelivery({name: "x"})


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    st.dictionaries(NAMES, TEXTS, max_size=4),
    st.binary(max_size=40),
    st.sampled_from([Version.V1_1, Version.V1_2]),
)
def test_whatever_a_message_holds_is_one_frame_and_comes_back(
    properties: dict[str, str], body: bytes, version: Version
) -> None:
    server = Server()
    client = server.connected(str(version))
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.read()
    client.parser = FrameParser(Limits(), version)
    client.consumer().push(message(body, body_type=BodyType.BYTES, properties=properties))
    [frame] = client.heard()
    assert frame.body == body
    kept = frame.head.headers
    for name, value in properties.items():
        lost = {"\0"} if version is Version.V1_2 else {"\0", "\r"}
        if (
            not lost & set(name + value)
            and bare_name(name) not in _OWN
            and without_edge_blanks(name) == name
        ):
            assert kept[name] == value
    assert len({bare_name(name) for name in kept}) == len(kept)


EDGES = st.sampled_from(["", " ", "\t", " \t", "\n", "\r", "\0", "\x1f", "\u2003"])
PADDED = st.tuples(EDGES, st.sampled_from([*sorted(_OWN), "colour"]), EDGES).map("".join)


@given(st.dictionaries(PADDED, TEXTS | st.just("0"), max_size=6), st.binary(max_size=40))
def test_no_name_deceives_a_reader_of_1_0_which_trims(
    properties: dict[str, str], body: bytes
) -> None:
    """Whoever brought the message, also a link: by ``content-length`` with a blank the body would
    be read as frames.
    """
    server = Server()
    client = server.connected("1.0")
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.read()
    client.parser = FrameParser(Limits(), Version.V1_0)
    client.consumer().push(
        message(body, identifier="ID-real", body_type=BodyType.BYTES, properties=properties)
    )
    [frame] = client.heard()
    assert (frame.body, frame.head.headers["message-id"], frame.head.headers["subscription"]) == (
        body,
        "ID-real",
        "s",
    )


class Recorder(MessageTransformer):
    """Notes how it is called, and does what the message's ``do`` property says."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def transform(
        self,
        message: JMSMessage,
        read_only: bool,
        charset_name: str | None,
        source: str,
        target: str,
        properties: Mapping[str, str] | None,
    ) -> JMSMessage | None:
        self.calls.append((read_only, charset_name, source, target, properties))
        if message.body_type is BodyType.MAP:
            made = self.create_message(BodyType.TEXT)
            made.text = "a map"
            return made
        if message.properties.get("do") == "null":
            return None
        if message.properties.get("do") == "raise":
            raise RuntimeError("its own secret")
        if not read_only and message.body_type is BodyType.TEXT:
            message.text = message.text.upper() if message.text else message.text
        return message


def test_a_transformer_sees_both_directions_with_all_arguments() -> None:
    transformer = Recorder()
    server = Server(transformer=transformer)
    client = server.connected()
    client.say(
        "SEND\ndestination:/queue/a\nx-foo:bar\ncontent-type:t\ncolour:red\n\nhello",
        "SEND\ndestination:/queue/a\n\n",
    )
    assert transformer.calls == [
        (False, "UTF-8", "STOMP", "SUN_MQ", {"x-foo": "bar", "content-type": "t"}),
        (False, "UTF-8", "STOMP", "SUN_MQ", None),
    ]
    assert server.provider.sent[0].body == b"HELLO"
    assert server.provider.sent[0].headers.destination == Queue("a")
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.consumer().push(message(b"out"))
    assert client.read()[-1].body == b"out"
    assert transformer.calls[-1] == (True, None, "SUN_MQ", "STOMP", None)


def test_a_transformer_can_make_a_body_sendable() -> None:
    client = Server(transformer=Recorder()).connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.consumer().push(message(b"\0\0\0\0", body_type=BodyType.MAP))
    [frame] = client.read()
    assert (frame.body, frame.head.headers["message-id"]) == (b"a map", "ID-1")


@pytest.mark.parametrize("what", ["null", "raise"])
def test_a_transformer_that_fails_fails_the_send(what: str) -> None:
    server = Server(transformer=Recorder())
    client = server.connected()
    client.say(f"SEND\ndestination:/queue/a\ndo:{what}\nreceipt:r\n\nx")
    error = client.error()
    assert "Recorder" in error.head.headers["message"]
    assert b"secret" not in error.body
    assert (error.head.headers["receipt-id"], server.provider.sent) == ("r", [])


@pytest.mark.parametrize("what", ["null", "raise"])
def test_a_transformer_that_fails_on_a_delivery_ends_the_connection(what: str) -> None:
    server = Server(transformer=Recorder())
    client = server.connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n")
    client.consumer().push(message(), message(properties={"do": what}))
    assert client.commands() == ["MESSAGE", "ERROR"]
    client.drain()
    assert client.transport.is_closed


def test_jmsxuserid_is_told_only_where_the_operator_says_so() -> None:
    from gateway.stomp.settings import SessionOptions

    for tell in (False, True):
        client = Server(SessionOptions(tell_user=tell)).connected()
        client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
        sent = message()
        sent.user = "ali:ce"
        client.consumer().push(sent)
        assert client.heard()[0].head.headers.get("JMSXUserID") == ("ali:ce" if tell else None)


def test_the_settings_defaults_are_those_of_the_options() -> None:
    options = StompOptions.read(read(SETTINGS, None)[0], "1.2.3")
    assert options.session.profile.server == "stomp-gateway/1.2.3"
    defaults = StompOptions()
    assert options.transport == defaults.transport
    assert (options.tcp_port, options.tls_port, options.tcp_enabled, options.tls_enabled) == (
        7672,
        7673,
        True,
        False,
    )
    assert options.hostname == ""
    assert StompOptions.read(read(SETTINGS, None)[0], "1", "127.0.0.1").hostname == "127.0.0.1"


def test_each_setting_has_a_name_of_the_bridge_and_is_declared_once() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("imq.bridge.stomp.") for name in names)
    assert all(setting.doc and setting.doc[0].isupper() for setting in SETTINGS)


def test_clients_are_told_of_destinations_as_they_spell_them() -> None:
    full = DestinationFull(Queue("rej"), "maxNumMsgs", 1)
    frame = error_frame(MessageRejected(0, full), Version.V1_2, None, "1")
    assert b"message:/queue/rej is full\\c maxNumMsgs is 1\n" in frame
    denied = AccessDenied("ann", "consume", Topic("news"))
    assert describe(denied, "1") == ("user 'ann' may not consume on /topic/news", True)
    assert "/queue/rej" in str(UnsendableBody(BodyType.MAP, Queue("rej")))
