"""The order in which logins are verified."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.login_queue import LoginQueue


def everything(queue: LoginQueue[str]) -> list[str]:
    found = []
    while (entry := queue.take()) is not None:
        found.append(entry)
    return found


def make(gone: set[str] | None = None) -> LoginQueue[str]:
    return LoginQueue((gone or set()).__contains__)


def test_sources_take_turns_and_each_keeps_its_order() -> None:
    queue = make()
    for number in range(4):
        queue.put(f"a{number}", "a", known=False)
    queue.put("b0", "b", known=False)
    queue.put("c0", "c", known=False)
    queue.put("c1", "c", known=False)
    assert everything(queue) == ["a0", "b0", "c0", "a1", "c1", "a2", "a3"]


def test_known_sources_come_first_and_leave_one_turn_in_four() -> None:
    queue = make()
    for number in range(3):
        queue.put(f"new{number}", "new", known=False)
    for number in range(5):
        queue.put(f"old{number}", "old", known=True)
    assert everything(queue) == ["old0", "old1", "old2", "new0", "old3", "old4", "new1", "new2"]


def test_what_is_not_wanted_any_more_is_passed_over() -> None:
    queue = make({"a0", "b0"})
    for entry, source in (("a0", "a"), ("a1", "a"), ("b0", "b"), ("c0", "c")):
        queue.put(entry, source, known=False)
    assert sorted(everything(queue)) == ["a1", "c0"]


def test_room_is_made_by_the_last_of_the_source_that_has_most() -> None:
    queue = make()
    for number in range(3):
        queue.put(f"a{number}", "a", known=False)
    queue.put("b0", "b", known=False)
    assert queue.crowded_out("b", known=False) == "a2"
    assert queue.crowded_out("b", known=False) is None, "it would have as many"
    assert queue.crowded_out("a", known=False) is None, "it is the one that has most"
    assert queue.crowded_out("b", known=True) == "a1"


def test_known_sources_are_crowded_out_by_known_ones_only() -> None:
    queue = make()
    for number in range(3):
        queue.put(f"a{number}", "a", known=True)
    assert queue.crowded_out("b", known=False) is None
    assert queue.crowded_out("b", known=True) == "a2"
    queue.put("c0", "c", known=False)
    assert queue.crowded_out("b", known=True) == "c0"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_everything_is_taken_once_whatever_the_order(puts: list[tuple[str, bool]]) -> None:
    queue = make()
    entries = [f"{source}{known}{number}" for number, (source, known) in enumerate(puts)]
    for entry, (source, known) in zip(entries, puts, strict=True):
        queue.put(entry, source, known=known)
    assert sorted(everything(queue)) == sorted(entries)
