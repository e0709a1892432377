"""Logins: who has logged in before, in which order they are verified, and how long answers to
failures are held back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.broker.security.logins import FORGOTTEN_S, FREE, LoginQueue, Logins, Rank
from tests.logged import logged


class Reactor(Clock):
    """A clock whose threads are this one."""

    def callInThread(self, work: Callable[..., Any], *args: Any) -> None:
        work(*args)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "logins"


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


def test_who_has_logged_in_is_known_from_there_and_after_a_restart(
    file: Path, reactor: Reactor
) -> None:
    logins = Logins(reactor, file)
    assert not logins.is_known("alice", "192.0.2.1")
    logins.succeeded("alice", "192.0.2.1")
    logins.succeeded("bob the builder", "2001:db8::/64")
    reactor.advance(1)
    # The process may end at any moment from now on.
    again = Logins(reactor, file)
    for one in (logins, again):
        assert one.is_known("alice", "192.0.2.1")
        assert one.is_known("bob the builder", "2001:db8::/64")
        assert not one.is_known("alice", "192.0.2.2")
        assert not one.is_known("bob", "192.0.2.1")
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_last_news_is_kept_at_the_end(file: Path) -> None:
    logins = Logins(Reactor(), file)
    logins.succeeded("alice", "192.0.2.1")
    logins.close()
    logins.close()
    assert Logins(Reactor(), file).is_known("alice", "192.0.2.1")


def test_this_process_is_always_known_and_not_kept(file: Path) -> None:
    logins = Logins(Reactor(), file)
    logins.succeeded("admin", "")
    logins.close()
    assert logins.is_known("whoever", "")
    assert not file.exists()


def test_ten_thousand_are_known_and_those_not_seen_for_longest_are_forgotten(
    file: Path, reactor: Reactor
) -> None:
    logins = Logins(reactor, file)
    for number in range(10_000):
        logins.succeeded(str(number), "192.0.2.1")
    logins.succeeded("0", "192.0.2.1")
    logins.succeeded("one more", "192.0.2.1")
    reactor.advance(1)
    for one in (logins, Logins(reactor, file)):
        assert [one.is_known(name, "192.0.2.1") for name in ("0", "1", "2", "one more")] == [
            True,
            False,
            True,
            True,
        ]


@pytest.mark.parametrize(
    "text", [b"", b"something else\n", b"version=StompGatewayLogins/1\n\xff\n"]
)
def test_a_file_that_is_not_one_is_told_of_and_not_used(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    with logged() as events:
        logins = Logins(Reactor(), file)
    assert [event["file"] for event in events if "used" in str(event["log_format"])] == [str(file)]
    logins.succeeded("alice", "192.0.2.1")
    logins.close()
    assert Logins(Reactor(), file).is_known("alice", "192.0.2.1")


def test_a_folder_that_cannot_be_written_is_told_of_once(tmp_path: Path, reactor: Reactor) -> None:
    logins = Logins(reactor, tmp_path / "missing" / "logins")
    with logged() as events:
        for name in ("alice", "bob"):
            logins.succeeded(name, "192.0.2.1")
            reactor.advance(1)
    assert [
        event["error"] for event in events if "cannot be written" in str(event["log_format"])
    ] == [os.strerror(2)]
    assert logins.is_known("bob", "192.0.2.1")


def held_back(reactor: Clock, done: Deferred[None]) -> float:
    """Seconds until it fires."""
    began = reactor.seconds()
    while not done.called:
        reactor.advance(reactor.getDelayedCalls()[0].getTime() - reactor.seconds())
    return reactor.seconds() - began


def test_answers_to_failures_are_held_back_longer_and_longer(reactor: Reactor) -> None:
    logins = Logins(reactor, None, 3000)
    assert [held_back(reactor, logins.failed("192.0.2.1")) for _ in range(FREE + 6)] == [
        0
    ] * FREE + [0.25, 0.5, 1, 2, 3, 3]
    assert held_back(reactor, logins.failed("192.0.2.2")) == 0
    reactor.advance(FORGOTTEN_S + 1)
    assert held_back(reactor, logins.failed("192.0.2.1")) == 0


def test_nothing_is_held_back_for_this_process_or_where_the_setting_says_so(
    reactor: Reactor,
) -> None:
    for logins, address in ((Logins(reactor), ""), (Logins(reactor, None, 0), "192.0.2.1")):
        assert all(logins.failed(address).called for _ in range(100))


def test_who_does_not_wait_for_the_answer_leaves_nothing_behind(reactor: Reactor) -> None:
    logins = Logins(reactor)
    waiting = [logins.failed("192.0.2.1") for _ in range(FREE + 1)][-1]
    waiting.addErrback(lambda failure: None)
    waiting.cancel()
    assert reactor.getDelayedCalls() == []


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
