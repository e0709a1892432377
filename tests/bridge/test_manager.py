"""The bridge service manager: all bridges at once, each whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent
from twisted.python.failure import Failure

from bridge.config.changes import Changes
from bridge.link.status import BridgeState, WrongState
from bridge.manager import (
    STOP_S,
    BridgeLink,
    BridgeServiceManager,
    NotInTime,
    NotReloadable,
    OtherType,
    Outcome,
    UnknownBridge,
    UnknownType,
    error_lines,
)
from gateway.reactor.deferreds import Gathered, gather, shield
from tests.logged import logged


class Simple:
    def __init__(self, name: str, type: str = "JMS") -> None:
        self.name = name
        self.type = type
        self.state = BridgeState.STOPPED
        self.problem = ""
        self.asked: list[str] = []
        #: What the next operation gives; None does it.
        self.gives: Deferred[None] | None = None
        self.seconds = 0.0

    def start(self) -> Deferred[None]:
        return self._do("start", BridgeState.STARTED)

    def stop(self, seconds: float = STOP_S) -> Deferred[None]:
        self.seconds = seconds
        return self._do("stop", BridgeState.STOPPED)

    def pause(self) -> Deferred[None]:
        return self._do("pause", BridgeState.PAUSED)

    def resume(self) -> Deferred[None]:
        return self._do("resume", BridgeState.STARTED)

    def links(self) -> Sequence[BridgeLink]:
        return ()

    def reload(self) -> Deferred[Changes]:
        self.asked.append("reload")
        return (
            succeed(Changes(added=("one",)))
            if self.type == "JMS"
            else fail(NotReloadable(self.name, "it has no file"))
        )

    def _do(self, operation: str, state: BridgeState) -> Deferred[None]:
        self.asked.append(operation)
        if self.gives is not None:
            return self.gives
        self.state = state
        return succeed(None)


class Raising(Simple):
    def start(self) -> Deferred[None]:
        raise RuntimeError("a defect")


class Fixture:
    def __init__(self, *bridges: Simple, automatic: Sequence[str] = ()) -> None:
        self.clock = Clock()
        self.bridges = {bridge.name: bridge for bridge in bridges}
        self.manager = BridgeServiceManager(self.clock)
        for bridge in bridges:
            self.manager.add(bridge, automatic=bridge.name in automatic)


def result(done: Deferred[Any] | Coroutine[Any, Any, Any]) -> Any:
    found: list[Any] = []
    ensureDeferred(done).addBoth(found.append)
    assert found, "it has not fired"
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


def three() -> Fixture:
    return Fixture(
        Simple("stomp", "STOMP"), Simple("one"), Simple("two"), automatic=["stomp", "two"]
    )


@pytest.fixture(name="events")
def logged_events() -> Iterator[list[LogEvent]]:
    with logged() as events:
        yield events


def test_those_that_start_by_themselves_are_started_in_order() -> None:
    fixture = three()
    outcomes = result(fixture.manager.autostart())
    assert [outcome.bridge.name for outcome in outcomes] == ["stomp", "two"]
    assert fixture.bridges["one"].asked == []
    assert [bridge.name for bridge in fixture.manager.bridges] == ["stomp", "one", "two"]


def test_bridges_are_found_by_name_type_or_both() -> None:
    manager = three().manager
    assert [bridge.name for bridge in manager.matching()] == ["stomp", "one", "two"]
    assert [bridge.name for bridge in manager.matching(type="jms")] == ["one", "two"]
    assert [bridge.name for bridge in manager.matching("two", "JMS")] == ["two"]
    assert [bridge.name for bridge in manager.matching("stomp")] == ["stomp"]
    assert manager.find("one").name == "one"
    with pytest.raises(UnknownType, match="expected JMS or STOMP"):
        manager.matching(type="amqp")
    with pytest.raises(
        UnknownBridge, match="no bridge three; those that there are: stomp, one, two"
    ):
        manager.matching("three")
    with pytest.raises(UnknownBridge, match="none at all"):
        Fixture().manager.find("three")
    with pytest.raises(OtherType, match="bridge stomp is of type STOMP, not JMS"):
        manager.matching("stomp", "jms")


def test_what_nothing_matches_is_the_failure() -> None:
    manager = three().manager
    for operation in ("start", "stop", "pause", "resume"):
        with pytest.raises(UnknownBridge):
            result(manager.operate(operation, "three"))
    with pytest.raises(UnknownBridge):
        result(manager.reload("three"))


def test_the_first_failure_does_not_end_the_others(events: list[LogEvent]) -> None:
    fixture = Fixture(Raising("zero"), Simple("one"), Simple("two"), Simple("three"))
    fixture.bridges["one"].gives = fail(WrongState("bridge one", "start", "STOPPING"))
    outcomes: list[Outcome] = result(fixture.manager.operate("start"))
    assert [type(outcome.error) for outcome in outcomes] == [
        RuntimeError,
        WrongState,
        type(None),
        type(None),
    ]
    assert [outcome.lines for outcome in outcomes[:3]] == [
        ["bridge zero: a defect"],
        ["cannot start bridge one, which is STOPPING"],
        [],
    ]
    assert fixture.bridges["three"].state is BridgeState.STARTED
    # In the bridge's own log, by its name.
    assert [event["bridge"] for event in events if event.get("bridge")] == ["zero", "one"]


def test_all_four_operations_reach_the_bridges_asked_for() -> None:
    fixture = three()
    for operation in ("start", "pause", "resume", "stop"):
        result(fixture.manager.operate(operation, type="jms"))
    assert (
        fixture.bridges["one"].asked
        == fixture.bridges["two"].asked
        == ["start", "pause", "resume", "stop"]
    )
    assert fixture.bridges["stomp"].asked == []


def test_a_shut_down_is_over_those_that_run_at_once_and_bounded() -> None:
    fixture = three()
    result(fixture.manager.operate("start", "one"))
    result(fixture.manager.operate("start", "stomp"))
    hanging: Deferred[None] = Deferred()
    fixture.bridges["one"].gives = hanging
    stopping = ensureDeferred(fixture.manager.shut_down(8))
    assert fixture.bridges["stomp"].state is BridgeState.STOPPED
    assert fixture.bridges["two"].asked == []
    # Enough for it to say itself what it has abandoned.
    assert 0 < fixture.bridges["one"].seconds < 8
    fixture.clock.advance(7.9)
    assert not stopping.called
    fixture.clock.advance(0.2)
    outcomes = result(stopping)
    assert [type(outcome.error) for outcome in outcomes] == [type(None), NotInTime]
    hanging.errback(RuntimeError("late"))
    assert fixture.clock.getDelayedCalls() == []


def test_reload_gives_what_changed_or_fails(events: list[LogEvent]) -> None:
    manager = three().manager
    assert result(manager.reload("one")).added == ("one",)
    with pytest.raises(NotReloadable, match="cannot reload bridge stomp"):
        result(manager.reload("stomp"))
    assert [event["bridge"] for event in events if event.get("bridge")] == ["stomp"]


def test_each_line_of_an_error_names_its_bridge() -> None:
    assert error_lines("one", ValueError("a\nbridge one: b\nFILE:1: imq.bridge.one.type=x")) == [
        "bridge one: a",
        "bridge one: b",
        "FILE:1: imq.bridge.one.type=x",
    ]
    assert error_lines("one", ValueError()) == ["bridge one: ValueError()"]


# --- waiting


def test_together_waits_for_all_or_until_the_time_is_over() -> None:
    clock = Clock()
    late: list[str] = []

    def wait(**awaited: Deferred[Any]) -> Deferred[Gathered]:
        return gather(
            clock, awaited, 5, lambda name, failure: late.append(f"{name}: {failure.value}")
        )

    assert result(wait()) == Gathered()
    ended = result(wait(one=succeed(1), two=fail(ValueError("no"))))
    assert (ended.results, ended.late) == ({"one": 1}, ())
    assert isinstance(ended.failures["two"].value, ValueError)
    one, two, three = Deferred[None](), Deferred[None](), Deferred[None]()
    waiting = wait(one=one, two=two, three=three)
    one.callback(None)
    clock.advance(5)
    assert result(waiting).late == ("two", "three")
    two.errback(ValueError("no"))
    three.callback(None)
    assert late == ["two: no"]
    assert clock.getDelayedCalls() == []


def test_to_give_up_waiting_leaves_what_is_awaited_alone() -> None:
    clock = Clock()
    awaited: Deferred[None] = Deferred(lambda _: pytest.fail("it was cancelled"))
    waiting = gather(clock, {"one": awaited}, 5, lambda name, failure: None)
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    assert clock.getDelayedCalls() == []
    waiter = shield(awaited)
    waiter.addErrback(lambda _: None)
    waiter.cancel()
    awaited.callback(None)


def test_a_shield_lets_results_through() -> None:
    assert result(shield(succeed(1))) == 1
    with pytest.raises(ValueError, match="no"):
        result(shield(fail(ValueError("no"))))
