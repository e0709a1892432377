"""Things to do later."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from gateway.broker.timing.schedule import Schedule, Steps
from gateway.reactor.turn import Turn


def make() -> tuple[Clock, Turn, Schedule]:
    clock = Clock()
    clock.advance(1_700_000_000.123)
    turn = Turn(clock)
    return clock, turn, Schedule(clock, turn)


@given(st.lists(st.integers(-5, 50), max_size=20), st.lists(st.integers(0, 30), max_size=10))
def test_everything_is_done_once_when_it_is_due_and_in_order(
    delays: list[int], steps: list[int]
) -> None:
    clock, turn, schedule = make()
    now = turn.refresh()
    done: list[tuple[int, int]] = []
    for place, delay in enumerate(delays):
        schedule.at(now + delay, partial(done.append, (delay, place)))
    passed = 0
    for step in steps:
        clock.advance(step / 1000)
        passed += step
        assert {place for _, place in done} >= {
            place for place, delay in enumerate(delays) if delay < passed
        }
        assert {place for _, place in done} <= {
            place for place, delay in enumerate(delays) if delay <= passed + 1
        }
    clock.advance(1)
    assert [place for _, place in done] == [
        place for _, place in sorted((delay, place) for place, delay in enumerate(delays))
    ]
    assert clock.getDelayedCalls() == []


def test_one_timer_serves_all() -> None:
    clock, turn, schedule = make()
    for delay in (500, 100, 900, 100):
        schedule.at(turn.refresh() + delay, lambda: None)
        assert len(clock.getDelayedCalls()) == 1
    assert clock.getDelayedCalls()[0].getTime() - clock.seconds() < 0.101


def test_work_is_done_inside_a_turn() -> None:
    clock, turn, schedule = make()
    events: list[str] = []

    def work() -> None:
        turn.deliver(lambda: events.append("dispatched"))
        events.append("done")

    schedule.at(0, work)
    schedule.at(0, lambda: events.append("other"))
    clock.advance(0)
    assert events == ["done", "other", "dispatched"]


def one_pass(clock: Clock) -> None:
    """What is due, but not what that asks for, which :meth:`Clock.advance` would do too."""
    due: list[Any] = clock.calls
    clock.calls = []
    for call in due:
        call.called = 1
        call.func(*call.args)


def test_what_work_asks_for_at_once_is_done_in_another_turn() -> None:
    clock, _, schedule = make()
    done: list[int] = []

    def again() -> None:
        done.append(len(done))
        schedule.at(0, again)

    schedule.at(0, again)
    for passed in range(5):
        assert len(done) == passed
        one_pass(clock)


def test_one_failure_leaves_the_rest_for_the_next_time() -> None:
    clock, _, schedule = make()
    done: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    schedule.at(0, fail)
    schedule.at(0, lambda: done.append(1))
    with pytest.raises(ZeroDivisionError):
        clock.advance(0)
    clock.advance(0)
    assert done == [1]


def test_a_closed_schedule_does_nothing_any_more() -> None:
    clock, _, schedule = make()
    done: list[int] = []
    schedule.at(0, lambda: done.append(1))
    schedule.close()
    schedule.at(0, lambda: done.append(2))
    clock.advance(10)
    assert (done, clock.getDelayedCalls()) == ([], [])


def test_slices_begin_at_once_and_go_on_in_turns_of_their_own() -> None:
    clock, _, schedule = make()
    done: list[str] = []

    def steps(name: str, count: int) -> Iterator[None]:
        for index in range(count):
            if index:
                yield
            done.append(f"{name}{index}")

    schedule.one_step_a_turn(steps("a", 3))
    schedule.one_step_a_turn(steps("b", 2))
    assert done == ["a0", "b0"]
    one_pass(clock)
    assert done == ["a0", "b0", "a1", "b1"]
    one_pass(clock)
    assert (done, clock.getDelayedCalls()) == (["a0", "b0", "a1", "b1", "a2"], [])
    schedule.one_step_a_turn(steps("c", 0))
    assert clock.getDelayedCalls() == []


def test_work_that_can_wait_gets_its_turn_although_it_is_always_busy() -> None:
    clock, _, schedule = make()
    done: list[float] = []

    def steps() -> Iterator[None]:
        for _ in range(3):
            done.append(clock.seconds())
            yield

    schedule.one_step_of_all_a_turn(steps(), lambda: True)
    for _ in range(10):
        clock.advance(0.005)
    assert done == [], "others come first"
    for _ in range(200):
        clock.advance(0.005)
    assert len(done) == 3
    assert all(later - earlier > 0.09 for earlier, later in pairwise(done))
    assert not schedule.waiting


@pytest.mark.parametrize("way", ["finished", "looked"])
@pytest.mark.parametrize("fails", [False, True])
def test_who_waits_for_work_in_steps_is_told_its_end(fails: bool, way: str) -> None:
    clock, _, schedule = make()

    def steps() -> Steps[str]:
        for _ in range(3):
            # Longer than a turn lasts.
            clock.rightNow += 1
            yield
        if fails:
            raise ValueError("the last step")
        return "found"

    finished = getattr(schedule, way)(steps())
    told: list[object] = []
    finished.addCallbacks(told.append, lambda failure: told.append(str(failure.value)))
    assert told == []
    for _ in range(4):
        clock.advance(0.001)
    assert told == ["the last step" if fails else "found"]


def test_steps_that_only_look_go_on_while_the_turn_is_suspended() -> None:
    clock, turn, schedule = make()
    done: list[str] = []

    def steps() -> Steps[str]:
        for _ in range(3):
            clock.rightNow += 1
            done.append("step")
            clock.callLater(0, done.append, "other")
            yield
        return "found"

    turn.suspend()
    schedule.looked(steps()).addCallback(done.append)
    clock.advance(0)
    assert done == [*["step", "other"] * 3, "found"]
