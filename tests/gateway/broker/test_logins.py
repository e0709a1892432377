"""Who has logged in before, and how long answers to failures are held back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.broker.security.logins import FORGOTTEN_S, FREE, Logins
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
