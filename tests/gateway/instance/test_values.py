"""How values are written: what each type reads, what it refuses, and what it says it expected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.instance.setting_types import (
    Boolean,
    Choice,
    Decimal,
    Duration,
    Integer,
    Octets,
    Port,
    Text,
    ValueType,
    Words,
)

LEVEL = Choice("SEVERE", "INFO", aliases={"ERROR": "SEVERE"})
ALL_TYPES: list[ValueType[Any]] = [
    Boolean(),
    Integer(),
    Integer(-3, 3),
    Port(),
    Octets(),
    Octets(unlimited=False, minimum=1),
    Duration("milliseconds"),
    Decimal(),
    Text(),
    Text(verbatim=True),
    Words(),
    LEVEL,
]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Boolean(), "true", True),
        (Boolean(), " False ", False),
        (Integer(), "-12", -12),
        (Integer(), "+7", 7),
        (Integer(0, 9), "9", 9),
        (Port(), "0", 0),
        (Port(), "65535", 65535),
        (Octets(), "100", 100),
        (Octets(), "100b", 100),
        (Octets(), "10k", 10 * 1024),
        (Octets(), "10K", 10 * 1024),
        (Octets(), "70m", 70 * 1024**2),
        (Octets(), "10g", 10 * 1024**3),
        (Octets(), "-1", -1),
        (Octets(), "0", 0),
        (Duration("seconds"), "120", 120),
        (Duration("seconds", -1), "-1", -1),
        (Decimal(), "2", 2.0),
        (Decimal(), "1.5", 1.5),
        (Decimal(), ".5", 0.5),
        (Text(), "  host ", "host"),
        (Text(verbatim=True), " pass word ", " pass word "),
        (Words(), " a, b ,,a,c ", ("a", "b", "c")),
        (Words(), "", ()),
        (LEVEL, "severe", "SEVERE"),
        (LEVEL, "Error", "SEVERE"),
    ],
)
def test_reads(kind: ValueType[Any], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Boolean(), ""),
        (Boolean(), "yes"),
        (Boolean(), "1"),
        (Integer(), ""),
        (Integer(), "1_000"),
        (Integer(), "٣"),
        (Integer(), "1.0"),
        (Integer(), "0x10"),
        (Integer(), "9" * 5000),
        (Integer(0), "-1"),
        (Integer(maximum=5), "6"),
        (Port(), "65536"),
        (Port(), "-1"),
        (Port(), "http"),
        (Octets(), "10 k"),
        (Octets(), "-2"),
        (Octets(), "10t"),
        (Octets(), "k"),
        (Octets(), "1.5m"),
        (Octets(), "9" * 18 + "g"),
        (Octets(unlimited=False), "-1"),
        (Octets(minimum=1024), "1023"),
        (Duration("seconds"), "-1"),
        (Duration("seconds"), "5s"),
        (Duration("seconds", maximum=10), "11"),
        (Decimal(), "nan"),
        (Decimal(), "inf"),
        (Decimal(), "1e3"),
        (Decimal(), "."),
        (Decimal(1.0), "0.9"),
        (LEVEL, "loud"),
    ],
)
def test_refuses_and_says_what_it_expected(kind: ValueType[Any], text: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared below
        kind.parse(text)
    assert str(refused.value) == kind.expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Boolean(), "true or false"),
        (Integer(1), "a whole number of at least 1"),
        (Integer(maximum=9), "a whole number of at most 9"),
        (Integer(1, 9), "a whole number from 1 to 9"),
        (Duration("seconds", 1), "a whole number of seconds of at least 1"),
        (
            Octets(unlimited=False, minimum=1024),
            "a size of at least 1k: a whole number of octets, or one followed by b, k, m or g",
        ),
        (Choice("A", "B", "C"), "A, B or C"),
        (Choice("A"), "A"),
    ],
)
def test_says_bounds(kind: ValueType[Any], expected: str) -> None:
    assert kind.expected == expected


@given(st.sampled_from(ALL_TYPES), st.text(max_size=30))
def test_never_raises_anything_else_and_shows_what_it_reads(
    kind: ValueType[Any], text: str
) -> None:
    try:
        value = kind.parse(text)
    except ValueError:
        return
    assert kind.parse(kind.show(value)) == value


@given(st.integers(-1, 2**63 - 1))
def test_octets_survive_being_shown(value: int) -> None:
    assert Octets().parse(Octets().show(value)) == value


@given(st.decimals(-10_000, 10_000, places=6).map(float))
def test_decimals_survive_being_shown(value: float) -> None:
    assert Decimal().parse(Decimal().show(value)) == value


def test_units() -> None:
    assert (Octets().unit, Duration("milliseconds").unit) == ("octets", "milliseconds")
    assert Integer().unit == ""
