"""Texts that cannot disturb a page, and quantities."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.text import label, moment, plain, quantity, round_duration


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(1, 100))
def test_a_plain_text_can_be_seen_and_written(text: str, limit: int) -> None:
    found = plain(text, limit)
    found.encode("utf-8")
    assert not {
        letter
        for letter in found
        if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"
    }
    if all(letter.isprintable() for letter in text):
        assert found.startswith(text[:limit])
    assert (found == plain(text, len(text))) or f"({len(text):,} characters)" in found


@given(
    st.none() | st.integers() | st.text(alphabet=st.characters(), max_size=2_000),
    st.integers(3, 80),
)
def test_a_label_is_one_line_and_never_empty(value: object, limit: int) -> None:
    found = label(value, limit)
    assert 0 < len(found) <= max(limit, len("(empty)"))
    assert len(found.splitlines()) == 1


def test_of_a_long_name_both_ends_are_shown() -> None:
    assert label("queue:" + "a" * 500 + ".7", 20) == "queue:aaaaaa…aaaaa.7"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "", "0"),
        (1_234, "", "1,234"),
        (0.125, "", "0.125"),
        (12_340, "messages", "12.3k"),
        (2_500_000, "", "2.5M"),
        (-40_000, "", "-40k"),
        (0, "ms", "0"),
        (0.25, "ms", "250 µs"),
        (12.34, "ms", "12.3 ms"),
        (1_500, "ms", "1.5 s"),
        (90, "seconds", "90 s"),
        (600, "s", "10 min"),
        (10_800, "s", "3 h"),
        (864_000, "s", "10 d"),
        (999, "octets", "999 B"),
        (1_500_000, "octets", "1.5 MB"),
    ],
)
def test_a_quantity_is_short(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


@given(st.floats(1e-7, 1e10))
def test_a_round_duration_is_the_next_one(seconds: float) -> None:
    assert seconds <= round_duration(seconds) <= 4 * seconds
    assert len(quantity(round_duration(seconds), "s").split()[0].replace(",", "")) <= max(
        4, len(str(int(seconds // 86_400))) + 1
    )


@pytest.mark.parametrize(
    ("seconds", "rounded"),
    [
        (0.0003, 0.0005),
        (0.7, 1),
        (3, 5),
        (61, 120),
        (1_000, 1_200),
        (7_000, 7_200),
        (90_000, 172_800),
    ],
)
def test_marks_are_what_people_count_in(seconds: float, rounded: float) -> None:
    assert round_duration(seconds) == pytest.approx(rounded)


def test_a_moment_is_in_utc() -> None:
    assert moment(1_772_344_800.0015, "milliseconds") == "2026-03-01 06:00:00.001"
