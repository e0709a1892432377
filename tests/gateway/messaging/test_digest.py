"""The hashes of bodies and headers: as they are documented, whatever the order, and another for any
change.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.config.model import BRIDGE_NAME_PROPERTY, HOPS, MESSAGE_IDS
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.digest import ADDED, digest_of_body, digest_of_headers
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.values import Byte, Char, Float, Int, Short, Value, encode_map, encode_value

NAMES = st.text(
    st.characters(categories=["L", "N"], include_characters="_"), min_size=1, max_size=5
).filter(lambda name: not name.startswith("JMSX") and name not in ADDED)
LONGS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False)
PROPERTIES: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    LONGS,
    st.floats(width=32, allow_nan=False).map(Float),
    DOUBLES,
    st.text(max_size=4),
)
ENTRIES = st.one_of(
    PROPERTIES,
    st.binary(max_size=4),
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]).map(Char),
)
SAID = st.fixed_dictionaries(
    {
        "persistent": st.booleans(),
        "priority": st.integers(0, 9),
        "correlation_id": st.none() | st.text(max_size=3),
        "type": st.none() | st.text(max_size=3),
        "properties": st.dictionaries(NAMES, PROPERTIES, max_size=4),
    }
)


def of_headers(**said: Any) -> str:
    return digest_of_headers(Headers(Queue("q"), **said))


def of_body(kind: BodyType, body: bytes) -> str:
    return digest_of_body(kind, body)


def exactly(value: Value) -> bytes:
    """Equal of values that are the same, also in their type and in the sign of a zero."""
    return encode_value(value)


def test_they_are_of_the_octets_that_the_documentation_has() -> None:
    assert of_body(BodyType.TEXT, b"ab") == blake2b(b"\x01ab", digest_size=16).hexdigest()
    assert of_body(BodyType.BYTES, b"ab") == blake2b(b"\x02ab", digest_size=16).hexdigest()
    assert of_body(BodyType.MESSAGE, b"") == blake2b(b"\x00", digest_size=16).hexdigest()
    kept = bytes.fromhex(
        "01 01 07 08 00000001 63 00 00000002 00000001 61 05 0000000000000001 00000001 62 08 00000000"
    )
    found = of_headers(
        persistent=False, priority=7, correlation_id="c", properties={"b": "", "a": 1}
    )
    assert found == blake2b(kept, digest_size=16).hexdigest()


@given(SAID, st.randoms())
def test_the_order_of_properties_does_not_matter(said: dict[str, Any], chance: Any) -> None:
    items = list(said["properties"].items())
    chance.shuffle(items)
    assert of_headers(**said) == of_headers(**{**said, "properties": dict(items)})


@given(st.dictionaries(NAMES, ENTRIES, max_size=5), st.randoms())
def test_the_order_of_a_maps_entries_does_not_matter(
    entries: dict[str, Value], chance: Any
) -> None:
    items = list(entries.items())
    chance.shuffle(items)
    assert of_body(BodyType.MAP, encode_map(entries)) == of_body(
        BodyType.MAP, encode_map(dict(items))
    )


@given(SAID, SAID)
def test_two_that_differ_in_anything_have_two_hashes(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    alike = {
        **one,
        "properties": {name: exactly(value) for name, value in one["properties"].items()},
    } == {
        **other,
        "properties": {name: exactly(value) for name, value in other["properties"].items()},
    }
    assert (of_headers(**one) == of_headers(**other)) is alike


@given(st.dictionaries(NAMES, PROPERTIES, min_size=1, max_size=4), st.data())
def test_any_change_of_a_property_or_its_type_makes_another(
    properties: dict[str, Value], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(properties)))
    value = data.draw(PROPERTIES)
    assume(exactly(value) != exactly(properties[name]))
    assert of_headers(properties=properties) != of_headers(properties={**properties, name: value})
    assert of_headers(properties=properties) != of_headers(
        properties={k: v for k, v in properties.items() if k != name}
    )


@given(st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=4), st.data())
def test_any_change_of_an_entry_or_its_type_makes_another(
    entries: dict[str, Value], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(entries)))
    value = data.draw(ENTRIES)
    assume(exactly(value) != exactly(entries[name]))
    changed = encode_map({**entries, name: value})
    assert of_body(BodyType.MAP, encode_map(entries)) != of_body(BodyType.MAP, changed)


@given(
    st.sampled_from(BodyType),
    st.binary(max_size=40),
    st.sampled_from(BodyType),
    st.binary(max_size=40),
)
def test_any_change_of_a_body_or_its_type_makes_another(
    kind: BodyType, body: bytes, other: BodyType, changed: bytes
) -> None:
    assert (of_body(kind, body) == of_body(other, changed)) is ((kind, body) == (other, changed))


def test_what_a_link_does_not_keep_is_not_in_it() -> None:
    plain = Message(Headers(Queue("q"), properties={"a": 1}))
    others = Headers(
        Topic("t"),
        reply_to=Queue("r"),
        body_type=BodyType.BYTES,
        properties={
            "JMSXUserID": "u",
            "JMSXGroupSeq": Int(1),
            "a": 1,
            BRIDGE_NAME_PROPERTY: "b",
            MESSAGE_IDS: "i",
            HOPS: "h",
            DUPLICATE_ID: "d",
        },
        extras=(("x-y", "z"),),
    )
    other = Message(others, b"else", expires=1, timestamp=2, message_id="m")
    assert digest_of_headers(other.headers) == digest_of_headers(plain.headers)
    assert {BRIDGE_NAME_PROPERTY, MESSAGE_IDS, HOPS, DUPLICATE_ID} == ADDED


def test_headers_that_are_shared_are_hashed_once() -> None:
    headers = Headers(Queue("q"), properties={"a": 1})
    assert digest_of_headers(headers) is digest_of_headers(headers)


@given(SAID, SAID, st.data())
def test_it_is_the_same_beside_headers_that_are_alike(
    said: dict[str, Any], other: dict[str, Any], data: st.DataObject
) -> None:
    changed = {name: data.draw(st.sampled_from([said[name], other[name]])) for name in said}
    names = sorted({*said["properties"], *other["properties"]})
    both = {**other["properties"], **said["properties"]}
    if names:
        changed["properties"] = {
            name: both[name] for name in data.draw(st.lists(st.sampled_from(names), unique=True))
        }
    changed["properties"] |= data.draw(
        st.dictionaries(st.sampled_from(sorted(ADDED)), st.text(max_size=3))
    )
    like = Headers(Queue("q"), **said)
    assert digest_of_headers(Headers(Topic("t"), **changed), like) == of_headers(**changed)


def test_a_property_without_a_value_is_not_one_that_is_missing() -> None:
    like = Headers(Queue("q"), properties={"b": 1})
    assert digest_of_headers(Headers(Queue("q"), properties={"a": None}), like) == of_headers(
        properties={"a": None}
    )
