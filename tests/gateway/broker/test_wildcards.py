"""Wildcards of topic names, against regular expressions."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.properties.names import Pattern, is_wild

LEVELS = st.sampled_from(["a", "b", "ab", "", "*", ">", "a*", ">>", "é"])
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map(".".join)


def matches(pattern: str, name: str) -> bool:
    return Pattern(pattern).matches(name)


def expression(pattern: str) -> re.Pattern[str]:
    """What a pattern means: ``*`` is one level, which may be empty, and a last ``>`` is at least
    one.
    """
    levels = pattern.split(".")
    parts = [r"[^.]*" if level == "*" else re.escape(level) for level in levels]
    if levels[-1] == ">":
        parts[-1] = r"[^.]*(\.[^.]*)*"
    return re.compile(r"\.".join(parts), re.DOTALL)


@given(NAMES, NAMES)
def test_patterns_match_what_their_regular_expression_does(pattern: str, name: str) -> None:
    assert matches(pattern, name) == (expression(pattern).fullmatch(name) is not None)


@given(NAMES)
def test_a_name_without_wildcards_matches_itself_only(name: str) -> None:
    if not is_wild(name):
        assert matches(name, name)
        assert not matches(name, name + ".x")
        assert not matches(name, name + "x")


def test_what_is_wild() -> None:
    assert [is_wild(name) for name in ("*", ">", "a.*", "a.>", "*.b", ">.b")] == [True] * 6
    assert [is_wild(name) for name in ("a", "a*", "*a.b", "a.b>", "a.**", "")] == [False] * 6


def test_the_rest_is_at_least_one_level() -> None:
    assert not matches("a.>", "a")
    assert matches("a.>", "a.b")
    assert matches("a.>", "a.b.c")
    assert not matches(">.a", "b.a"), "only the last level can stand for the rest"
    assert matches(">", "anything.at.all")
