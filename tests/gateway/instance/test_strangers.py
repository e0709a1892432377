"""Lines that strangers cause: some a second, and the number of all others."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, formatEvent

from gateway.instance.logs import MOST_A_SECOND, Strangers
from tests.logged import recording


def told(events: list[LogEvent]) -> list[tuple[Any, str]]:
    """Levels and lines."""
    return [(event["log_level"], formatEvent(event)) for event in events]


def test_some_a_second_of_each_kind_are_written_and_the_others_counted() -> None:
    clock, (log, events) = Clock(), recording()
    strangers = Strangers(clock, log)
    written = [
        strangers.may_log("silent", LogLevel.info, f"192.0.2.{number % 3}") for number in range(100)
    ]
    assert written == [True] * MOST_A_SECOND + [False] * (100 - MOST_A_SECOND)
    assert strangers.may_log("wrong", LogLevel.warn, "192.0.2.9"), (
        "another kind has its own measure"
    )
    clock.advance(1)
    assert strangers.may_log("silent", LogLevel.info, "192.0.2.1")
    assert told(events) == []
    clock.advance(60)
    assert told(events) == [
        (
            LogLevel.info,
            f"and {100 - MOST_A_SECOND} more from 3 addresses in the last minute: silent",
        )
    ]
    clock.advance(600)
    assert (len(events), clock.getDelayedCalls()) == (1, [])


def test_what_was_left_out_is_told_at_the_end() -> None:
    clock, (log, events) = Clock(), recording()
    strangers = Strangers(clock, log)
    for _ in range(MOST_A_SECOND + 1):
        strangers.may_log("wrong", LogLevel.warn, "192.0.2.9")
    strangers.report()
    assert told(events) == [(LogLevel.warn, "and 1 more from 1 address in the last minute: wrong")]
    assert clock.getDelayedCalls() == []
    strangers.report()
    assert len(events) == 1
