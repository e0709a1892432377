"""When a link is called stalled, and when no longer."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent

from bridge.link.watchdog import Watchdog
from tests.logged import recording


@dataclass
class Watched:
    """A link as its watchdog sees it."""

    clock: Clock = field(default_factory=Clock)
    moved: int = 0
    waiting: int = 5
    looks: int = 0
    seconds: float = 20

    def __post_init__(self) -> None:
        log, events = recording()
        self.events: list[LogEvent] = events
        self.dog = Watchdog(
            self.clock,
            "l",
            self.seconds,
            lambda: self.moved,
            self._look,
            lambda: self.waiting,
            lambda: int(self.clock.seconds() * 1000),
            log,
        )
        self.dog.connected()

    def _look(self) -> Deferred[None]:
        self.looks += 1
        return succeed(None)

    def lines(self) -> str:
        return "\n".join(map(formatEvent, self.events))

    def later(self, seconds: float) -> None:
        self.clock.pump([1.0] * int(seconds))


def test_it_is_stalled_while_something_waits_and_nothing_moves() -> None:
    link = Watched()
    link.later(19)
    assert not link.dog.stalled
    link.later(2)
    assert link.dog.stalled
    assert link.dog.since_ms == 20_000
    assert "link l is STALLED: 5 messages wait" in link.lines()


def test_it_is_not_any_more_when_a_message_moves() -> None:
    link = Watched()
    link.later(30)
    link.moved += 1
    assert not link.dog.stalled
    link.later(5)
    assert link.dog.since_ms == 0
    assert "moves messages again" in link.lines()
    link.later(25)
    assert link.dog.stalled


@pytest.mark.parametrize("waiting", [0, -1])
def test_where_nothing_is_known_to_wait_it_is_never(waiting: int) -> None:
    link = Watched(waiting=waiting)
    link.later(100)
    assert not link.dog.stalled
    link.waiting = 1
    link.later(40)
    assert link.dog.stalled


def test_a_source_is_not_looked_at_while_messages_move() -> None:
    link = Watched()
    for _ in range(50):
        link.moved += 1
        link.later(1)
    assert link.looks == 0


def test_the_time_counts_over_connections_that_move_nothing() -> None:
    link = Watched()
    for _ in range(3):
        # Never connected for as long as the time.
        link.later(15)
        link.dog.lost()
        link.later(4)
        link.dog.connected()
    assert link.dog.stalled
    assert link.dog.since_ms == 20_000
    assert link.lines().count("STALLED") == 1
    link.dog.lost()
    link.later(30)
    assert link.dog.stalled


def test_it_is_found_while_it_tries_again_too() -> None:
    link = Watched()
    link.later(15)
    link.dog.lost()
    link.later(10)
    assert link.dog.stalled


def test_one_whose_broker_is_away_is_not_stalled() -> None:
    link = Watched()
    for _ in range(3):
        link.later(5)
        link.moved += 1
    link.later(7)
    link.dog.lost()
    link.later(100)
    assert not link.dog.stalled
    # It is back, and the link has moved nothing yet.
    link.dog.connected()
    link.later(4)
    link.moved += 1
    link.later(10)
    assert "STALLED" not in link.lines()


def test_one_that_is_connected_and_lost_at_once_is_stalled() -> None:
    link = Watched()
    for _ in range(25):
        link.dog.lost()
        link.later(1)
        link.dog.connected()
    assert link.dog.stalled


def test_it_is_not_stalled_any_more_when_nothing_waits() -> None:
    link = Watched()
    link.later(21)
    assert link.dog.stalled
    # A source that has been lost says nothing.
    link.waiting = -1
    link.later(30)
    assert link.dog.stalled
    link.waiting = 0
    link.later(6)
    assert not link.dog.stalled
    assert "as nothing waits" in link.lines()


def test_one_that_does_not_run_is_not_stalled() -> None:
    link = Watched()
    link.later(30)
    link.dog.stop()
    link.later(30)
    assert not link.dog.stalled
    assert not link.clock.getDelayedCalls()


def test_none_is_watched_where_the_time_is_0() -> None:
    link = Watched(seconds=0)
    link.later(100)
    assert not link.clock.getDelayedCalls()
