"""LIKE: what patterns match, and that no pattern makes matching slow."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

import pytest

from gateway.messaging.selector import like as module
from gateway.messaging.selector.like import MAX_PATTERN, Matcher, cost, like


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["abcd", "ab", "ABC", ""]),
        ("%", ["", "a", "a\nb"], []),
        ("_", ["a", "\n", "😀", "%"], ["", "ab"]),
        ("12%3", ["123", "12993"], ["1234", "12"]),
        ("l_se", ["lose", "l\nse"], ["loose", "lse"]),
        ("a%", ["a", "abc"], ["", "ba"]),
        ("%a", ["a", "bca"], ["", "ab"]),
        ("%a%", ["a", "bab"], ["", "b"]),
        ("%%", ["", "x"], []),
        ("a%a", ["aa", "aba"], ["a"]),
        ("ab%bc", ["abbc", "abxbc"], ["abc"]),
        ("a_%_b", ["axyb", "a12345b"], ["axb", "ab"]),
        ("%a_c%", ["abc", "xxaxcxx", "aacc"], ["abbc", "ac"]),
        ("%_a_%", ["xax", "aaa", "xxaxx"], ["ax", "xa", "a"]),
        ("%__%", ["ab", "abc"], ["a", ""]),
        ("%a%b%c%", ["abc", "xaxbxcx"], ["acb", "ab"]),
        ("%ab%ab", ["abab", "abxab"], ["ab", "aab"]),
        ("%aab%", ["aaab"], ["aba"]),
        ("%a_ab%", ["aaaab", "axab"], ["aab"]),
        ("a.c[x]*", ["a.c[x]*"], ["abcx", "a.cx"]),
        ("_%", ["a", "ab"], [""]),
        ("%_", ["a", "ab"], [""]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = like(pattern)
    assert [text for text in yes if not matches(text)] == []
    assert [text for text in no if matches(text)] == []


@pytest.mark.parametrize(
    ("pattern", "escape", "yes", "no"),
    [
        ("\\_%", "\\", ["_foo", "_"], ["bar"]),
        ("a!%", "!", ["a%"], ["ab", "a"]),
        ("a!!b", "!", ["a!b"], ["ab"]),
        ("!a", "!", ["a"], ["!a"]),
        ("%%%_", "%", ["%_"], ["%", "ab"]),
        ("___a", "_", ["_a"], ["xa", "x_a"]),
        ("100!%%", "!", ["100%", "100%!"], ["100", "1000"]),
    ],
)
def test_escapes(pattern: str, escape: str, yes: list[str], no: list[str]) -> None:
    matches = like(pattern, escape)
    assert [text for text in yes if not matches(text)] == []
    assert [text for text in no if matches(text)] == []


@pytest.mark.parametrize(("pattern", "escape"), [("a", ""), ("a", "xy"), ("a!", "!"), ("!!!", "!")])
def test_an_escape_that_makes_no_sense_is_refused(pattern: str, escape: str) -> None:
    with pytest.raises(ValueError, match="escape"):
        like(pattern, escape)


def steps(matches: Matcher, text: str) -> int:
    """Lines of the module that run to match the text."""
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename == module.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        matches(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "pattern",
    [
        "%" + "a_" * 20 + "b%",
        "%a_" * 30 + "b",
        "%_a" * 10 + "%b%",
        "%" + "a" * 30 + "_b%",
        "a%" * 30 + "b",
        "%" + "_" * 30 + "b%",
        "_" * 50 + "%b",
    ],
)
def test_the_steps_grow_no_faster_than_the_text(pattern: str) -> None:
    matches = like(pattern)
    short, long = (steps(matches, "a" * length) for length in (1000, 8000))
    assert short > 0
    assert long <= 8 * short + 8


@pytest.mark.parametrize(
    "pattern",
    ["%" + "a_" * 126 + "b%", "%a_b" * 64, "%" + "a%" * 127, "%" + "_a%" * 85, "_" * 254 + "%b"],
)
def test_the_longest_patterns_take_no_long_time(pattern: str) -> None:
    """Milliseconds, where trying everything would take for ever."""
    assert len(pattern) <= MAX_PATTERN
    started = time.monotonic()
    like(pattern)("a" * 10_000)
    assert time.monotonic() - started < 10


def test_a_longer_pattern_is_refused() -> None:
    like("%" * MAX_PATTERN)
    with pytest.raises(ValueError, match="the pattern has 257 characters, and 256 are allowed"):
        like("%" * 257)
    with pytest.raises(ValueError, match="256"):
        cost("%" * 257)


@pytest.mark.parametrize(
    ("pattern", "escape", "price"),
    [
        ("abc", None, 10),
        ("a%c", None, 10),
        ("a_c%", None, 10),
        ("%abc%", None, 20),
        ("%_abc_%", None, 20),
        ("%a_c%", None, 10 + 60 + 6 * 3),
        ("%a!_c%", "!", 20),
        ("%a_c%de%_%", None, 10 + 60 + 6 * 3 + 10 + 10),
    ],
)
def test_what_a_pattern_costs(pattern: str, escape: str | None, price: int) -> None:
    assert cost(pattern, escape) == price
