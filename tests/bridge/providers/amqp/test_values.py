"""What has no socket: addresses, options, AMQP values, messages, refusals."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.providers.amqp.encoding import (
    Described,
    MalformedAmqp,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)
from bridge.providers.amqp.mapping import (
    from_bytes,
    from_identifier,
    to_bytes,
    to_identifier,
)
from bridge.providers.amqp.options import DECLARABLE, AmqpAddress, AmqpOptions
from bridge.providers.amqp.peers import (
    ACTIVEMQ,
    ARTEMIS,
    GENERIC,
    PEERS,
    RABBITMQ,
    RABBITMQ_3,
    SERVICE_BUS,
    Peer,
)
from bridge.providers.amqp.refusals import Refusal, refusal
from bridge.providers.asked import Asked, Operation
from bridge.providers.connection_options import InvalidAddress, InvalidOption
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import (
    DestinationFull,
    DurableInUse,
    InvalidDestination,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.message import BodyType, Headers, Message, Unreadable
from gateway.messaging.selector.names import is_property_name
from gateway.messaging.values import (
    Byte,
    Char,
    Float,
    Int,
    Short,
    Value,
    decode_map,
    decode_stream,
    encode_map,
    encode_stream,
)

# --- addresses and options


def test_an_address_has_a_port_and_a_virtual_host() -> None:
    assert AmqpAddress.parse("amqp://h") == AmqpAddress("h", 5672)
    assert AmqpAddress.parse("amqps://h") == AmqpAddress("h", 5671, True)
    assert AmqpAddress.parse("amqp://[::1]:99/a%2Fb") == AmqpAddress("::1", 99, False, "a/b")
    assert str(AmqpAddress.parse("amqps://[::1]:99/v")) == "amqps://[::1]:99"


@pytest.mark.parametrize("text", ["amqp:", "amqp+tls://h", "amqp://h:0", "amqp://h/v?x=1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress, match="expected amqp://HOST:PORT or amqps://HOST:PORT"):
        AmqpAddress.parse(text)


def test_a_passcode_in_an_address_is_not_shown() -> None:
    with pytest.raises(InvalidAddress) as refused:
        AmqpAddress.parse("amqp://guest:sesame@h")
    assert "sesame" not in str(refused.value)


def test_options_are_properties() -> None:
    options = AmqpOptions.from_properties(
        {
            "amqp.peer": "artemis",
            "amqp.idle-timeout": "0",
            "amqp.max-message": "1000",
            "amqp.ca": "/ca.pem",
            "client-id": "x",
        }
    )
    assert options == AmqpOptions("artemis", idle_timeout=0, max_message=1000, ca=Path("/ca.pem"))
    assert options.declared is ARTEMIS
    assert AmqpOptions(peer="generic").declared is GENERIC


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amqp.peer", "openmq"),
        ("amqp.max-message", "0"),
        ("amqp.connect-timeout", "0"),
        ("amqp.idle-timeout", "-1"),
        ("amqp.key", "/key.pem"),
        ("amqp.tls", "true"),
    ],
)
def test_a_bad_option_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(f"property '{name}' of an AMQP 1.0")):
        AmqpOptions.from_properties({name: value})


# --- peers


@given(
    peer=st.sampled_from([*PEERS.values(), GENERIC]),
    name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    kind=st.sampled_from(Kind),
    temporary=st.booleans(),
)
def test_a_destination_comes_back_from_its_address(
    peer: Peer, name: str, kind: Kind, temporary: bool
) -> None:
    assume("%2F" not in name or not peer.reads_octets)
    destination = Destination(kind, name, temporary)
    said = (2 if temporary else 0) + kind
    assert peer.destination(peer.address(destination), said, Kind.QUEUE) == destination


def test_addresses_are_those_of_the_product() -> None:
    assert RABBITMQ.address(Queue("a b/c")) == "/queues/a%20b%2Fc"
    assert RABBITMQ_3.address(Topic("a.b")) == "/topic/a.b"
    assert RABBITMQ_3.address(Queue("ä b/c%")) == "/queue/ä b%2Fc%"
    assert RABBITMQ_3.node(Queue("ä/c")).encode("latin-1").decode() == "/queue/ä%2Fc"
    with pytest.raises(InvalidDestination, match="takes %2F in a name for a slash"):
        RABBITMQ_3.address(Queue("a%2Fb"))
    assert ARTEMIS.address(Topic("a.b")) == "a.b"
    assert RABBITMQ_3.destination("/queue/a%2Fb", None, Kind.TOPIC) == Queue("a/b")
    assert set(DECLARABLE) == {*PEERS, "generic"}


# --- values

_numbers = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-128, 127).map(Byte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(Short),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.booleans(),
)
_texts = st.text(st.characters(exclude_categories=["Cs"]))
_chars = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]).map(Char)
_amqp = st.recursive(
    st.one_of(
        _numbers,
        _texts,
        _chars,
        st.binary(max_size=300),
        st.none(),
        st.integers(0, 255).map(UByte),
        st.integers(0, 65535).map(UShort),
        st.integers(0, (1 << 32) - 1).map(UInt),
        st.integers(0, (1 << 64) - 1).map(ULong),
        st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp),
        st.uuids(),
        st.text(st.characters(max_codepoint=127)).map(Symbol),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(_texts, inner, max_size=5),
        st.tuples(st.integers(0, 300).map(ULong), inner).map(lambda pair: Described(*pair)),
    ),
    max_leaves=20,
)


def _exact(value: object) -> object:
    """A value with the classes of all its parts."""
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if isinstance(value, dict):
        return {_exact(name): _exact(each) for name, each in value.items()}
    if isinstance(value, Described):
        return "described", _exact(value.descriptor), _exact(value.value)
    return type(value), value


@given(_amqp)
def test_a_value_comes_back_with_its_type(value: object) -> None:
    data = encode(value)
    found, end = decode(data)
    assert (_exact(found), end) == (_exact(value), len(data))


@given(st.binary(max_size=200))
def test_what_is_no_value_is_refused_with_its_place(data: bytes) -> None:
    try:
        end = decode(data)[1]
    except MalformedAmqp as error:
        end = error.offset
    assert 0 <= end <= len(data)


@given(_amqp, st.data())
def test_a_value_that_is_cut_short_is_refused(value: object, data: st.DataObject) -> None:
    octets = encode(value)
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(MalformedAmqp):
        decode(octets[:cut])


@pytest.mark.parametrize(
    "octets",
    [
        b"\x00" * 5000,
        b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40",
        b"\xc1\x03\x01\x40",
        b"\xd1\x00\x00\x00\x06\x00\x00\x00\x02\x45\x40",
        b"\xa1\x01\xff",
        b"\x99",
    ],
)
def test_hostile_values_are_refused(octets: bytes) -> None:
    with pytest.raises(MalformedAmqp):
        decode(octets)


# --- messages

_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(is_property_name)
_property = st.one_of(_numbers, _texts, st.none())
_extra_names = st.from_regex(r"[a-z]{1,5}-[a-z]{1,5}", fullmatch=True).filter(
    lambda name: name != "content-encoding"
)
_ascii = st.text(st.characters(min_codepoint=32, max_codepoint=126))
_item = st.one_of(_numbers, _texts, st.binary(), _chars, st.none())


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    body_type = draw(st.sampled_from(BodyType))
    null_text = body_type is BodyType.TEXT and draw(st.booleans())
    bodies = {
        BodyType.MESSAGE: st.just(b""),
        BodyType.TEXT: st.just(b"") if null_text else _texts.map(str.encode),
        BodyType.BYTES: st.binary(max_size=400),
        BodyType.OBJECT: st.binary(max_size=400),
        BodyType.MAP: st.dictionaries(_texts, _item, max_size=4).map(encode_map),
        BodyType.STREAM: st.lists(_item, max_size=4).map(encode_stream),
    }
    destinations = st.builds(Destination, st.sampled_from(Kind), _texts.filter(bool), st.booleans())
    extras = draw(st.dictionaries(_extra_names, _ascii, max_size=3))
    headers = Headers(
        draw(destinations),
        body_type=body_type,
        persistent=draw(st.booleans()),
        priority=draw(st.integers(0, 9)),
        reply_to=draw(st.none() | destinations),
        correlation_id=draw(st.none() | _texts),
        type=draw(st.none() | _texts),
        properties=draw(st.dictionaries(_names, _property, max_size=4)),
        extras=tuple(extras.items()),
        null_text=null_text,
    )
    return Message(
        headers,
        draw(bodies[body_type]),
        expires=draw(st.integers(0, 1 << 50)),
        timestamp=draw(st.integers(0, 1 << 50)),
        message_id=draw(_texts.filter(bool)),
    )


@given(_messages(), st.sampled_from([*PEERS.values(), GENERIC]))
def test_a_message_comes_back_with_all_that_it_carries(message: Message, peer: Peer) -> None:
    headers = message.headers
    assume(dict(headers.extras).get("content-type") != "application/x-java-serialized-object")
    received = from_bytes(to_bytes(message, peer, 0), peer, Queue("elsewhere"))
    found = received.message
    assert not isinstance(found, Unreadable)
    assert sorted(found.headers.extras) == sorted(headers.extras)
    assert found.headers.replace(extras=()) == headers.replace(extras=())
    properties = found.headers.properties
    assert {name: type(value) for name, value in properties.items()} == {
        name: type(value) for name, value in headers.properties.items()
    }
    assert found.body == message.body
    assert (found.expires, found.timestamp, found.message_id, received.attempts) == (
        message.expires,
        message.timestamp,
        message.message_id,
        1,
    )


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_are_unreadable(data: bytes) -> None:
    from_bytes(data, ARTEMIS, Queue("q"))


@given(_messages(), st.data())
def test_a_damaged_message_never_raises(message: Message, data: st.DataObject) -> None:
    octets = bytearray(to_bytes(message, ARTEMIS, 0))
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    from_bytes(bytes(octets), ARTEMIS, Queue("q"))


def _section(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))


@pytest.mark.parametrize(
    ("sections", "body_type", "body"),
    [
        (_section(0x75, b"abc") + _section(0x75, b"def"), BodyType.BYTES, b"abcdef"),
        (_section(0x77, "text"), BodyType.TEXT, b"text"),
        (_section(0x77, b"bytes"), BodyType.BYTES, b"bytes"),
        (_section(0x77, None), BodyType.MESSAGE, b""),
        (b"", BodyType.MESSAGE, b""),
        (_section(0x77, {"a": UInt(7)}), BodyType.MAP, encode_map({"a": 7})),
        (_section(0x77, [Symbol("s")]), BodyType.STREAM, encode_stream(["s"])),
        (
            _section(0x76, [UByte(200)]) + _section(0x76, [Timestamp(5)]),
            BodyType.STREAM,
            encode_stream([Short(200), 5]),
        ),
        (
            _section(0x73, [None] * 6 + [Symbol("text/plain; charset=utf-8")])
            + _section(0x75, b"hi"),
            BodyType.TEXT,
            b"hi",
        ),
        (
            _section(0x73, [None] * 6 + [Symbol("application/x-java-serialized-object")])
            + _section(0x75, b"\xac"),
            BodyType.OBJECT,
            b"\xac",
        ),
    ],
)
def test_messages_of_other_clients_are_read(
    sections: bytes, body_type: BodyType, body: bytes
) -> None:
    message = from_bytes(sections, GENERIC, Queue("q")).message
    assert not isinstance(message, Unreadable)
    assert (message.headers.body_type, message.body) == (body_type, body)
    assert message.headers.destination == Queue("q")
    assert (message.headers.persistent, message.headers.priority) == (False, 4)


@pytest.mark.parametrize("value", [7, True, UUID(int=1), {"a": [1]}, [[1]], {1: "a"}])
def test_a_body_that_jms_has_not_is_unreadable(value: object) -> None:
    sections = _section(0x73, ["id"]) + _section(0x77, value)
    message = from_bytes(sections, GENERIC, Queue("q")).message
    assert isinstance(message, Unreadable)
    assert message.message_id == "id"


def test_properties_that_jms_has_not_become_the_nearest() -> None:
    given_ = {
        "a": ULong((1 << 64) - 1),
        "b": UShort(65535),
        "c": b"\x01",
        "d": [1],
        "not a name": 1,
        "JMSXDeliveryCount": 3,
    }
    headers = from_bytes(_section(0x74, given_), GENERIC, Queue("q")).message.headers
    expected: dict[str, Value] = {"a": str((1 << 64) - 1), "b": Int(65535), "d": "[1]"}
    assert headers.properties == expected
    assert headers.extras == (("c", "01"), ("not a name", "1"))


def test_the_delivery_count_and_the_first_acquirer_tell_attempts() -> None:
    header = _section(0x70, [True, None, None, False, UInt(3)])
    assert from_bytes(header, ARTEMIS, Queue("q")).attempts == 4
    again = _section(0x70, [True, None, None, False])
    assert from_bytes(again, RABBITMQ_3, Queue("q")).attempts == 2
    assert from_bytes(again, ARTEMIS, Queue("q")).attempts == 1


@pytest.mark.parametrize(
    "value",
    [UUID(int=5), ULong(7), b"\x01\xff", "plain", "ID:AMQP_UUID:not one", "ID:AMQP_ULONG:x"],
)
def test_identifiers_keep_their_type(value: object) -> None:
    text = from_identifier(value)
    assert text is not None
    assert to_identifier(text) == value


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"type": "\ud800"}, b""),
        ({"properties": {"a": "\ud800"}}, b""),
        ({"extras": (("content-type", "\xe4"),)}, b""),
        ({}, b"\xff"),
    ],
)
def test_what_amqp_cannot_carry_is_refused(headers: dict[str, object], body: bytes) -> None:
    message = Message(Headers(Queue("q"), **headers), body)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"surrogate|ASCII|UTF-8"):
        to_bytes(message, ARTEMIS, 0)


def test_maps_and_streams_keep_types_on_the_wire() -> None:
    entries: dict[str, Value] = {"b": Byte(1), "f": Float(0.5), "c": Char("x"), "o": b"\x00"}
    message = Message(Headers(Queue("q"), body_type=BodyType.MAP), encode_map(entries))
    found = from_bytes(to_bytes(message, SERVICE_BUS, 0), SERVICE_BUS, Queue("q")).message
    assert {name: type(value) for name, value in decode_map(found.body).items()} == {
        name: type(value) for name, value in entries.items()
    }
    assert decode_stream(encode_stream([1])) == [1]


# --- refusals


@pytest.mark.parametrize(
    ("asked", "told", "error"),
    [
        (
            Asked(Operation.SEND, "u", Queue("q")),
            Refusal("amqp:resource-limit-exceeded", "full"),
            DestinationFull,
        ),
        (
            Asked(Operation.SUBSCRIBE, "u", Topic("t"), None, "me", "d"),
            Refusal("amqp:resource-locked", "x"),
            DurableInUse,
        ),
        (Asked(Operation.TRANSACT), Refusal("amqp:not-implemented", "x"), NotSupported),
        (Asked(Operation.CONNECT, "u"), Refusal("amqp:connection:forced"), ProviderUnavailable),
    ],
)
def test_a_condition_and_the_request_make_an_error(
    asked: Asked, told: Refusal, error: type[MessagingError]
) -> None:
    assert type(refusal(asked, told)) is error


def test_what_the_broker_says_is_one_short_line() -> None:
    told = Refusal("amqp:not-found", "a\nb\x00" + "x" * 1000)
    assert str(told).startswith("a b xxx")
    assert len(str(told)) <= 300
    assert str(Refusal()) == "no reason given"


def test_when_a_message_is_delivered_is_an_annotation() -> None:
    message = Message(Headers(Queue("q")), b"")
    for peer, due in ((ARTEMIS, 5), (ACTIVEMQ, 5), (SERVICE_BUS, Timestamp(5))):
        sections = to_bytes(message, peer, 0, due_ms=5)
        annotation = encode({Symbol(peer.delivery_time): due})[9:]
        assert annotation in sections
        assert annotation not in to_bytes(message, peer, 0)
