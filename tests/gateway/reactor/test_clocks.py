"""Time limits for others: what comes in time counts, and this process's own pauses do not."""

from __future__ import annotations

from twisted.internet.task import Clock

from gateway.reactor.clocks import TimeLimit


def test_a_limit_passes_once_in_its_time() -> None:
    clock, passed = Clock(), list[str]()
    limit = TimeLimit(clock, 10, passed.append, "late")
    clock.advance(9.9)
    assert passed == []
    assert limit.active()
    clock.advance(0.2)
    assert passed == ["late"]
    assert not limit.active()
    clock.advance(100)
    assert (passed, clock.getDelayedCalls()) == (["late"], [])


def test_a_limit_that_is_cancelled_does_not_pass() -> None:
    clock, passed = Clock(), list[str]()
    limit = TimeLimit(clock, 10, passed.append, "late")
    limit.cancel()
    assert not limit.active()
    clock.advance(10)
    assert passed == []


def test_the_time_by_which_a_limit_ends_late_is_added_to_it() -> None:
    clock, passed = Clock(), list[str]()
    TimeLimit(clock, 10, passed.append, "late")
    clock.advance(6)
    clock.advance(7)  # late by 3 seconds: 7 of 10 were this process's own
    assert passed == []
    clock.advance(2.9)
    assert passed == []
    clock.advance(0.2)
    assert passed == ["late"]


def test_no_pause_gives_more_than_the_time_of_the_limit() -> None:
    clock, passed = Clock(), list[str]()
    TimeLimit(clock, 10, passed.append, "late")
    clock.advance(1000)
    assert passed == []
    clock.advance(10)
    assert passed == ["late"]


def test_an_answer_that_is_read_before_the_next_timers_comes_in_time() -> None:
    clock, passed = Clock(), list[str]()
    limit = TimeLimit(clock, 10, passed.append, "late")
    clock.callLater(10, limit.cancel)  # as if it were read then: after the timer that is due
    clock.advance(10)
    assert passed == []
