"""The octets of typed values: every type comes back as it went, and what is no encoding is refused
with its place.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    encode_value,
    text_of,
)

ALL: list[Value] = [
    None,
    True,
    False,
    Byte(-128),
    Byte(127),
    Short(-32768),
    Int(2**31 - 1),
    -(2**63),
    2**63 - 1,
    Float(0.5),
    0.1,
    float("inf"),
    "",
    "Grüße 😀",
    b"",
    b"\x00\xff",
    Char("x"),
    Char("\ud800"),
    "half \udc00",
]


@pytest.mark.parametrize("value", ALL, ids=repr)
def test_a_value_comes_back_with_its_exact_type(value: Value) -> None:
    (back,) = decode_stream(encode_stream([value]))
    assert back == value
    assert type(back) is type(value)
    assert decode_map(encode_map({"name": value})) == {"name": value}
    assert type(decode_properties(encode_properties({"name": value}))["name"]) is type(value)


def test_order_and_names_are_kept() -> None:
    properties: dict[str, Value] = {"b": "1", "a": 2, "": "empty", "ü": None, "\ud800": "half"}
    assert list(decode_properties(encode_properties(properties)).items()) == list(
        properties.items()
    )


def test_the_octets_are_those_of_the_documentation() -> None:
    assert encode_properties({"a": "bc", "n": Int(-2)}) == bytes.fromhex(
        "00000002"  # two entries
        "00000001 61 08 00000002 6263"  # a: string bc
        "00000001 6e 04 fffffffe"  # n: int -2
    )
    items: list[Value] = [None, True, Byte(1), Short(2), 5, Float(1), 1.0, b"\xaa", Char("é")]
    assert encode_stream(items) == bytes.fromhex(
        "00000009 00 0101 0201 030002 050000000000000005 063f800000 073ff0000000000000 0900000001aa 0a00e9"
    )


@pytest.mark.parametrize(
    "value",
    [
        Byte(128),
        Byte(-129),
        Short(2**15),
        Int(2**31),
        2**63,
        -(2**63) - 1,
        Float(1e39),
        Char(""),
        Char("ab"),
        Char("😀"),
    ],
    ids=repr,
)
def test_a_value_out_of_the_range_of_its_type_is_refused(value: Value) -> None:
    with pytest.raises(ValueError, match="Java"):
        encode_value(value)


@pytest.mark.parametrize(
    "value", [[], pytest.param(object(), id="object"), 1j, bytearray(b"x")], ids=repr
)
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="none of the types"):
        encode_value(value)  # type: ignore[arg-type]


def test_a_name_that_is_no_text_is_refused() -> None:
    for value in ("x", 1):
        with pytest.raises(TypeError, match="name must be a str"):
            encode_properties({7: value})  # type: ignore[dict-item]


def test_a_subclass_travels_as_the_value_it_extends() -> None:
    class Colour(str):
        __slots__ = ()

    assert decode_stream(encode_stream([Colour("red")])) == ["red"]
    assert type(decode_stream(encode_stream([Colour("red")]))[0]) is str


@pytest.mark.parametrize(
    ("octets", "offset", "reason"),
    [
        ("", 0, "needs 4 octets"),
        ("000000", 0, "needs 4 octets"),
        ("00000001", 0, "cannot be in 0 octets"),
        ("ffffffff 00000000", 0, "cannot be in 4 octets"),
        ("00000000 00", 4, "1 octets follow"),
        ("00000001 0000", 4, "length of a name is cut short"),
        ("00000001 00000005 61", 4, "a name of 5 octets is cut short"),
        ("00000001 00000001 61", 9, "a value is missing"),
        ("00000001 00000001 61 0b", 9, "11 is no type"),
        ("00000001 00000001 61 08 0000", 10, "length of a string is cut short"),
        ("00000001 00000001 61 08 00000002 61", 10, "cut short"),
        ("00000001 00000001 61 08 00000001 ff", 14, "not UTF-8"),
        ("00000001 00000001 ff 08 00000001 61", 8, "not UTF-8"),
        ("00000001 00000001 61 01 02", 9, "followed by 0 or 1"),
        ("00000001 00000001 61 05 00", 9, "long is cut short"),
        ("00000001 00000001 61 0a 00", 9, "char is cut short"),
        ("00000002 00000001 61 00 00000001 61 00", 10, "comes twice"),
        ("00000001 00000001 61 08 ffffffff 61", 10, "cut short"),
    ],
)
def test_octets_that_are_no_properties_are_refused_with_the_place(
    octets: str, offset: int, reason: str
) -> None:
    with pytest.raises(MalformedValues, match=reason) as caught:
        decode_properties(bytes.fromhex(octets))
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2.1, "2.1"),
        (6.0, "6.0"),
        (0.1, "0.1"),
        (16777216.0, "16777216.0"),
        (1e39, "1e+39"),
        (float("-inf"), "-inf"),
    ],
)
def test_a_float_is_shown_by_the_digits_that_tell_it_from_others(number: float, text: str) -> None:
    assert text_of(Float(number)) == text
    if abs(number) < 3.4e38:
        [back] = decode_stream(encode_stream([Float(number)]))
        assert text_of(back) == text
        assert encode_stream([Float(text)]) == encode_stream([Float(number)])


@given(st.floats(width=32, allow_nan=False))
def test_each_float_is_shown_as_no_other(number: float) -> None:
    assert encode_stream([Float(text_of(Float(number)))]) == encode_stream([Float(number)])


def test_every_truncation_is_refused() -> None:
    whole = encode_properties({f"n{index}": value for index, value in enumerate(ALL)})
    stream = encode_stream(ALL)
    for length in range(len(whole)):
        with pytest.raises(MalformedValues):
            decode_properties(whole[:length])
    for length in range(len(stream)):
        with pytest.raises(MalformedValues):
            decode_stream(stream[:length])
