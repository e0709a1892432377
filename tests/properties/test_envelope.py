"""Values, heads and envelopes: all come back as they went, and no octets raise anything but their
own errors.
"""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import EnvelopeError, decode, decode_head, encode, encode_head
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.values import (
    Byte,
    Char,
    Float,
    Int,
    MalformedValues,
    Short,
    Value,
    decode_map,
    decode_properties,
    decode_stream,
    encode_map,
    encode_properties,
    encode_stream,
)

# Half surrogates are in Java's strings.
texts = st.text(st.characters(exclude_categories=()), max_size=20)
values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32).map(Float),
    st.floats(),
    texts,
    st.binary(max_size=20),
    st.characters(max_codepoint=0xFFFF, exclude_categories=()).map(Char),
)
properties = st.dictionaries(texts, st.one_of(texts, values), max_size=6)
destinations = st.builds(Destination, st.sampled_from(Kind), texts, st.booleans())
headers = st.builds(
    Headers,
    destinations,
    body_type=st.sampled_from(BodyType),
    persistent=st.booleans(),
    priority=st.integers(0, 9),
    reply_to=st.none() | destinations,
    correlation_id=st.none() | texts,
    type=st.none() | texts,
    properties=properties,
    extras=st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
)
longs = st.integers(-(2**63), 2**63 - 1)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = Message(
        draw(headers),
        draw(st.binary(max_size=50)),
        expires=draw(longs),
        timestamp=draw(longs),
        message_id=draw(st.text(max_size=20)),
    )
    message.user = draw(st.text(max_size=5))
    return message


def exact(value: Value) -> object:
    """Something that is equal only for values of one type and the same content, not-a-number
    included.
    """
    if isinstance(value, float):
        return type(value), struct.pack(">d", value) if not math.isnan(value) else "not a number"
    return type(value), value


@given(properties)
def test_properties_come_back_with_their_types(entries: dict[str, Value]) -> None:
    for back in (decode_properties(encode_properties(entries)), decode_map(encode_map(entries))):
        assert list(back) == list(entries)
        assert [exact(value) for value in back.values()] == [
            exact(value) for value in entries.values()
        ]


@given(st.lists(values, max_size=8))
def test_streams_come_back_with_their_types(items: list[Value]) -> None:
    assert [exact(value) for value in decode_stream(encode_stream(items))] == [
        exact(value) for value in items
    ]


@given(st.binary(max_size=60), properties, st.data())
def test_no_octets_raise_anything_but_malformed_values(
    octets: bytes, entries: dict[str, Value], data: st.DataObject
) -> None:
    encoded = bytearray(encode_properties(entries))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for tried in (octets, bytes(encoded)):
        for decoder in (decode_properties, decode_stream):
            place = 0
            try:
                decoder(tried)
            except MalformedValues as error:
                place = error.offset
            assert 0 <= place <= len(tried)


@given(properties)
def test_what_can_be_read_is_written_the_same(entries: dict[str, Value]) -> None:
    encoded = encode_properties(entries)
    assert encode_properties(decode_properties(encoded)) == encoded


@given(messages())
def test_a_message_comes_back(message: Message) -> None:
    for back in (decode(encode(message)), decode_head(encode_head(message), message.body)):
        assert repr(back.headers) == repr(message.headers)
        assert [exact(value) for value in back.headers.properties.values()] == [
            exact(value) for value in message.headers.properties.values()
        ]
        for name in ("body", "expires", "timestamp", "message_id", "user"):
            assert getattr(back, name) == getattr(message, name)
        assert encode(back) == encode(message)


@given(messages(), st.data())
def test_a_damaged_envelope_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = (
        whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    )
    for tried in (damaged, whole[:place]):
        with pytest.raises(EnvelopeError):
            decode(tried)


@given(st.binary(max_size=80), messages(), st.data())
def test_no_octets_raise_anything_but_envelope_errors(
    octets: bytes, message: Message, data: st.DataObject
) -> None:
    head = bytearray(encode_head(message))
    head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    for tried in (octets, b"\x01" + octets, bytes(head)):
        try:
            back = decode_head(tried, b"")
        except EnvelopeError:
            continue
        assert encode_head(back) == tried


@given(st.binary(max_size=80))
def test_nothing_random_is_an_envelope(octets: bytes) -> None:
    for tried in (octets, b"\xabSGE" + octets, b"\xabSGE\x00\x01" + octets):
        with pytest.raises(EnvelopeError):
            decode(tried)
