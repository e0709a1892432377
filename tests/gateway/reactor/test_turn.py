"""A reactor turn as a batch: the order of its phases, and that nothing asked for is lost or done
inside of what asked.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from gateway.reactor.turn import Turn
from tests.logged import logged


class Noted:
    """Work that notes its name when it is done, and may go on to do more."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def work(self, name: str, then: Callable[[], None] | None = None) -> Callable[[], None]:
        def do() -> None:
            self.done.append(name)
            if then is not None:
                then()

        return do


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turn(clock: Clock) -> Turn:
    return Turn(clock)


@pytest.fixture
def noted() -> Noted:
    return Noted()


def test_the_phases_come_in_their_order_at_the_end_of_the_turn(turn: Turn, noted: Noted) -> None:
    turn.begin()
    turn.write(noted.work("write"))
    turn.store(noted.work("store"))
    turn.deliver(noted.work("deliver"))
    turn.deliver(noted.work("deliver more"))
    assert noted.done == []
    turn.end()
    assert noted.done == ["deliver", "deliver more", "write", "store"]


def test_turns_nest_and_the_outermost_ends_it(turn: Turn, noted: Noted) -> None:
    turn.begin()
    turn.begin()
    turn.deliver(noted.work("deliver"))
    turn.end()
    assert noted.done == []
    turn.end()
    assert noted.done == ["deliver"]


def test_work_that_makes_work_is_still_in_order(turn: Turn, noted: Noted) -> None:
    turn.begin()
    turn.write(noted.work("write", then=lambda: turn.deliver(noted.work("deliver for write"))))
    turn.deliver(noted.work("deliver", then=lambda: turn.store(noted.work("store for deliver"))))
    turn.end()
    assert noted.done == ["deliver", "write", "deliver for write", "store for deliver"]


def test_work_may_begin_and_end_a_turn_without_running_what_is_asked_inside(
    turn: Turn, noted: Noted
) -> None:

    def nested() -> None:
        turn.begin()
        turn.deliver(noted.work("asked inside"))
        turn.end()
        noted.done.append("nested is over")

    turn.begin()
    turn.deliver(nested)
    turn.end()
    assert noted.done == ["nested is over", "asked inside"]


@pytest.mark.parametrize("phase", ["deliver", "store", "write"])
def test_outside_of_a_turn_the_end_is_scheduled_once(
    phase: str, clock: Clock, turn: Turn, noted: Noted
) -> None:
    getattr(turn, phase)(noted.work("first"))
    getattr(turn, phase)(noted.work("second"))
    assert (noted.done, len(clock.getDelayedCalls())) == ([], 1)
    clock.advance(0)
    assert (noted.done, clock.getDelayedCalls()) == (["first", "second"], [])


def test_a_turn_takes_what_was_asked_before_it_and_the_scheduled_end_finds_nothing(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    turn.deliver(noted.work("before"))
    turn.begin()
    turn.end()
    assert noted.done == ["before"]
    clock.advance(0)
    assert noted.done == ["before"]


def test_work_that_never_stops_making_work_leaves_the_reactor_its_turn(
    clock: Clock, turn: Turn
) -> None:
    rounds = 0

    def again() -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 100:
            turn.deliver(again)

    turn.begin()
    turn.deliver(again)
    turn.end()
    assert 0 < rounds < 100
    for _ in range(100):
        clock.advance(0)
    assert (rounds, clock.getDelayedCalls()) == (100, [])


def test_one_failure_leaves_the_other_work_alone_and_is_logged(turn: Turn, noted: Noted) -> None:
    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    turn.begin()
    turn.deliver(fail)
    turn.deliver(noted.work("deliver"))
    turn.write(noted.work("write"))
    with logged() as events:
        turn.end()
    assert noted.done == ["deliver", "write"]
    (event,) = [event for event in events if "log_failure" in event]
    assert event["log_failure"].type is ZeroDivisionError
    assert event["work"] is fail
    # The next turn is not hindered.
    turn.begin()
    turn.deliver(noted.work("next"))
    turn.end()
    assert noted.done[-1] == "next"


def test_the_time_stands_still_within_a_turn(clock: Clock) -> None:
    clock.advance(10.5)
    turn = Turn(clock)
    assert turn.now_ms == 10_500
    turn.begin()
    clock.advance(1)
    assert turn.now_ms == turn.refresh() == 10_500
    turn.begin()
    assert turn.now_ms == 10_500
    turn.end()
    turn.end()
    assert turn.refresh() == turn.now_ms == 11_500
    clock.advance(1)
    turn.begin()
    assert turn.now_ms == 12_500
    turn.end()


def test_a_scheduled_end_is_a_turn_of_its_own_time(clock: Clock, turn: Turn) -> None:
    times: list[int] = []
    turn.deliver(lambda: times.append(turn.refresh()))
    clock.advance(2)
    assert times == [2000]


def test_deliveries_without_end_do_not_keep_the_store_and_the_transports_waiting(
    turn: Turn, noted: Noted
) -> None:
    rounds = 0

    def again() -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 1_000:
            turn.deliver(again)

    turn.begin()
    turn.write(noted.work("write"))
    turn.store(noted.work("store"))
    turn.deliver(again)
    turn.end()
    assert noted.done == ["write", "store"]
    assert rounds < 50


def test_an_ending_that_takes_long_leaves_the_rest_for_the_reactors_next_pass(
    clock: Clock, turn: Turn, noted: Noted
) -> None:

    def slow() -> None:
        clock.advance(0.02)
        turn.deliver(noted.work("later"))

    turn.begin()
    turn.deliver(slow)
    turn.write(noted.work("write"))
    turn.end()
    assert noted.done == ["write"]
    clock.advance(0)
    assert noted.done == ["write", "later"]


# --- turns that are left


def test_turns_that_are_left_end_together_at_the_reactors_next_pass(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    for socket in ("first", "second"):
        turn.begin()
        turn.deliver(noted.work(f"deliver for {socket}"))
        turn.write(noted.work(f"write for {socket}"))
        turn.leave()
    assert (noted.done, len(clock.getDelayedCalls())) == ([], 1)
    clock.advance(0)
    assert noted.done == [
        "deliver for first",
        "deliver for second",
        "write for first",
        "write for second",
    ]


def test_a_turn_that_is_left_with_nothing_to_do_schedules_nothing(clock: Clock, turn: Turn) -> None:
    turn.begin()
    turn.leave()
    assert clock.getDelayedCalls() == []


def test_what_turns_have_left_is_done_before_it_gets_old(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    for socket in ("first", "second"):
        turn.begin()
        turn.deliver(noted.work(socket))
        clock.rightNow += 0.01
        turn.leave()
    assert noted.done == ["first", "second"]
    clock.advance(0)
    assert noted.done == ["first", "second"]


def test_a_turn_that_ends_ends_those_that_were_left(turn: Turn, noted: Noted) -> None:
    turn.begin()
    turn.deliver(noted.work("left"))
    turn.leave()
    turn.begin()
    turn.deliver(noted.work("ended"))
    turn.end()
    assert noted.done == ["left", "ended"]


def test_suspended_nothing_is_delivered_or_stored_and_writes_go_on(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    turn.write(noted.work("written before"))
    turn.suspend()
    assert noted.done == ["written before"]
    with turn:
        turn.deliver(noted.work("deliver"))
        turn.store(noted.work("store"))
        turn.write(noted.work("write"))
    turn.deliver(noted.work("deliver later"))
    clock.advance(0)
    assert noted.done == ["written before", "write"]
    assert not clock.getDelayedCalls(), "it does not look for work that it may not do"
    turn.when_resumed(noted.work("told"))
    noted.done.clear()
    turn.resume()
    assert noted.done == ["told", "deliver", "deliver later", "store"]


def test_what_a_write_writes_while_suspended_comes_in_another_turn(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    turn.suspend()
    turn.write(noted.work("write", lambda: turn.write(noted.work("write more"))))
    clock.advance(0)
    clock.advance(0)
    assert noted.done == ["write", "write more"]


def test_it_can_be_suspended_within_a_turn_and_resumed_within_another(
    turn: Turn, noted: Noted
) -> None:
    with turn:
        turn.deliver(noted.work("deliver"))
        turn.write(noted.work("write"))
        turn.suspend()
    assert noted.done == ["write"]
    with turn:
        turn.resume()
        assert noted.done == ["write"]
    assert noted.done == ["write", "deliver"]


def test_a_turn_that_comes_too_late_is_told_before_anything_is_delivered(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    turn.on_overdue = noted.work("overdue", turn.suspend)
    turn.answer_for(3)
    clock.advance(2.9)
    with turn:
        turn.deliver(noted.work("in time"))
        # As in a process that is stopped for a while: no timer has run.
        clock.rightNow += 0.2
    assert noted.done == ["overdue"]
    turn.answer_for(3)
    turn.resume()
    assert noted.done == ["overdue", "in time"]
    clock.rightNow += 3
    with turn:
        assert noted.done[2:] == ["overdue"], "before anything is read"
        turn.deliver(noted.work("deliver"))
        turn.write(noted.work("write"))
    assert noted.done[3:] == ["write"], "it is told once"


def test_it_is_told_too_late_while_there_are_no_turns(
    clock: Clock, turn: Turn, noted: Noted
) -> None:
    turn.on_overdue = noted.work("overdue", turn.suspend)
    turn.answer_for(3)
    clock.advance(2)
    turn.answer_for(3)
    clock.advance(2.9)
    assert noted.done == []
    clock.advance(0.1)
    assert noted.done == ["overdue"]
    assert not clock.getDelayedCalls()
    turn.answer_for(3)
    turn.resume()
    turn.answer_for(3)
    clock.advance(3)
    assert noted.done == ["overdue", "overdue"]
