"""The order in which logins are verified."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.security.logins import LoginQueue, Rank

KNOWN, OTHER = Rank


def make() -> LoginQueue[str]:
    """One that takes the oldest of a name."""
    return LoginQueue(lambda: 0.9)


@pytest.fixture
def queue() -> LoginQueue[str]:
    return make()


def everything(queue: LoginQueue[str]) -> list[str]:
    found = []
    while (entry := queue.take()) is not None:
        found.append(entry)
    return found


def test_addresses_take_turns_and_each_keeps_its_order(queue: LoginQueue[str]) -> None:
    for number in range(4):
        queue.put(f"a{number}", "a", "user", OTHER)
    queue.put("b0", "b", "user", OTHER)
    queue.put("c0", "c", "user", OTHER)
    queue.put("c1", "c", "user", OTHER)
    assert everything(queue) == ["a0", "b0", "c0", "a1", "c1", "a2", "a3"]


def test_names_take_turns_within_the_turns_of_their_address(queue: LoginQueue[str]) -> None:
    for number in range(3):
        queue.put(f"guess{number}", "a", "alice", OTHER)
    queue.put("bob", "a", "bob", OTHER)
    queue.put("carol", "b", "carol", OTHER)
    assert everything(queue) == ["guess0", "carol", "bob", "guess1", "guess2"]


def test_known_ones_come_first_and_leave_one_turn_in_four(queue: LoginQueue[str]) -> None:
    for number in range(3):
        queue.put(f"new{number}", "new", "user", OTHER)
    for number in range(5):
        queue.put(f"old{number}", "old", "user", KNOWN)
    assert everything(queue) == ["old0", "old1", "old2", "new0", "old3", "old4", "new1", "new2"]


def test_who_comes_after_many_of_the_same_name_waits_for_few_of_them() -> None:
    chances = iter([0.9, 0.9, 0.1, 0.9])
    queue: LoginQueue[str] = LoginQueue(lambda: next(chances))
    for number in range(400):
        queue.put(f"guess{number}", "a", "alice", OTHER)
    queue.put("alice", "a", "alice", OTHER)
    assert [queue.take() for _ in range(4)] == ["guess0", "guess1", "alice", "guess2"]


def test_who_comes_before_many_of_the_same_name_waits_for_few_of_them() -> None:
    queue: LoginQueue[str] = LoginQueue(Random(7).random)
    taken = []
    queue.put("alice", "a", "alice", OTHER)
    for number in range(20):
        queue.put(f"guess{number}", "a", "alice", OTHER)
        taken.append(queue.take())
    assert "alice" in taken[:10]


def test_one_that_is_asked_for_again_keeps_its_place_or_gets_a_better_one(
    queue: LoginQueue[str],
) -> None:
    queue.put("first", "a", "alice", OTHER)
    queue.put("second", "a", "alice", OTHER)
    queue.put("first", "a", "alice", OTHER)
    assert queue.take() == "first"
    queue.put("third", "a", "alice", OTHER)
    queue.put("third", "b", "alice", KNOWN)
    assert everything(queue) == ["third", "second"]


def test_what_is_not_wanted_any_more_is_gone(queue: LoginQueue[str]) -> None:
    for entry, address in (("a0", "a"), ("a1", "a"), ("b0", "b"), ("c0", "c")):
        queue.put(entry, address, "user", OTHER)
    for entry in ("a0", "b0", "b0", "never came"):
        queue.remove(entry)
    assert everything(queue) == ["a1", "c0"]


def test_room_is_made_by_the_last_of_the_address_that_has_most(queue: LoginQueue[str]) -> None:
    for number in range(3):
        queue.put(f"a{number}", "a", f"user{number}", OTHER)
    queue.put("b0", "b", "user", OTHER)
    assert queue.crowded_out("b", "user", OTHER) == "a0", "of its names, which have one each"
    assert queue.crowded_out("b", "user", OTHER) is None, "it would have as many"
    assert queue.crowded_out("a", "user1", OTHER) is None, "it is the one that has most"
    assert queue.crowded_out("b", "user", KNOWN) == "a1"


def test_room_for_a_name_is_made_by_the_name_that_has_most(queue: LoginQueue[str]) -> None:
    for number in range(3):
        queue.put(f"guess{number}", "a", "alice", OTHER)
    assert queue.crowded_out("a", "alice", OTHER) is None
    assert queue.crowded_out("a", "bob", OTHER) == "guess2"


def test_known_users_are_crowded_out_by_known_ones_only(queue: LoginQueue[str]) -> None:
    for number in range(3):
        queue.put(f"a{number}", "a", "alice", KNOWN)
    assert queue.crowded_out("b", "bob", OTHER) is None
    assert queue.crowded_out("b", "bob", KNOWN) == "a2"
    queue.put("c0", "c", "carol", OTHER)
    assert queue.crowded_out("b", "bob", KNOWN) == "c0"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(Rank), st.booleans()
        )
    )
)
def test_everything_is_taken_once_whatever_the_order(
    puts: list[tuple[str, str, Rank, bool]],
) -> None:
    queue = make()
    left = []
    for number, (address, name, rank, removed) in enumerate(puts):
        entry = f"{address}{name}{rank}{number}"
        queue.put(entry, address, name, rank)
        if removed:
            queue.remove(entry)
        else:
            left.append(entry)
    assert sorted(everything(queue)) == sorted(left)
