"""One line for an operator when a link does not get on: what is wrong, where, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent
from zope.interface import implementer

from bridge.config.model import QualityOfService
from bridge.link import trouble
from bridge.link.errors import TargetLost
from bridge.link.link import JMSLink
from bridge.link.trouble import Progress, Refusals, Stall
from bridge.status import Doing, LinkState
from gateway.messaging.destination import Queue
from gateway.messaging.errors import (
    AuthenticationFailed,
    DestinationFull,
    OutcomeUnknown,
    ProviderUnavailable,
)
from tests.bridge.delivery import transacted
from tests.bridge.delivery.transacted import Slow
from tests.bridge.linking import Rig, until
from tests.on_reactor import on_reactor

NUMBERS = [str(number) for number in range(40)]


def said(brokers: Rig, *words: str) -> list[str]:
    """The warnings that have all of these words."""
    return [line for line in brokers.warned if all(word in line for word in words)]


def full(brokers: Rig) -> tuple[Queue, int]:  # type: ignore[valid-type]
    """A queue of the target with a limit."""
    place, most = brokers.target.backend.full
    return place, most


@on_reactor
async def test_a_full_target_is_one_line_with_the_remedy_and_the_last_error(brokers: Rig) -> None:
    place, most = full(brokers)
    link = await brokers.started(to=place)
    await brokers.source.send(*NUMBERS)
    await until(lambda: link.status().counters.refused == len(NUMBERS) - most)
    [line] = said(brokers, "refuses messages")
    for words in (
        "connection-factory 'target'",
        f"{place} is full: maxNumMsgs is {most}",
        "raise its limit",
        "replay dead",
    ):
        assert words in line
    assert f"{place} is full: maxNumMsgs is {most}; make room there" in link.status().last_error


@on_reactor
async def test_a_full_target_of_a_transacted_link_is_one_line_with_the_remedy(brokers: Rig) -> None:
    place, most = full(brokers)
    link = await brokers.started(
        to=place, quality_of_service=QualityOfService.ONCE_AND_ONLY_ONCE, max_batch_time_ms=20
    )
    await brokers.source.send(*NUMBERS[: most + 1])
    await until(lambda: link.status().counters.refused >= 3, lambda: str(link.status()))
    [line] = said(brokers, "message refused")
    assert "make room there" in line
    assert "make room there" in link.status().last_error


@on_reactor
async def test_a_refused_login_is_one_line_with_the_remedy(brokers: Rig) -> None:
    link = await brokers.started()
    brokers.target.provider.error = AuthenticationFailed("bridge")
    brokers.target.provider.cut()
    await brokers.reaches(link, LinkState.RETRYING)
    await until(lambda: link.status().attempt > 2)
    [line] = said(brokers, "user 'bridge' is refused")
    assert "target, connection-factory 'target'" in line
    assert "correct the username and the password" in line
    assert "correct the username and the password" in link.status().last_error


async def stalled(brokers: Rig, link: JMSLink, what: str) -> None:
    await until(lambda: said(brokers, what) != [], lambda: f"{brokers.warned} {link.status()}")
    [line] = said(brokers, what)
    assert "make room" in line
    assert what in link.status().last_error
    assert link.state is LinkState.STARTED


@on_reactor
async def test_a_target_that_takes_nothing_is_one_line_and_so_is_that_it_goes_on(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "STALLED_S", 0.05)
    monkeypatch.setattr(trouble, "LOOK_S", 0.02)
    place = brokers.target.backend.flow[0]
    most = brokers.target.backend.flow[1]
    link = await brokers.started(to=place)
    await brokers.source.send(*NUMBERS[: most + 1])
    await until(lambda: link.status().counters.sent == most + 1)
    await brokers.source.send(*NUMBERS[most + 1 : most + 10])
    await stalled(
        brokers,
        link,
        f"target, connection-factory 'target', has not taken what is being sent to {place}",
    )
    assert await brokers.target.texts(most + 1, place) == NUMBERS[: most + 1]
    assert await brokers.target.texts(9, place) == NUMBERS[most + 1 : most + 10]
    await until(lambda: any("goes on after" in line for line in brokers.logged))


@on_reactor
async def test_a_resource_manager_that_does_not_answer_is_one_line(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "STALLED_S", 0.05)
    monkeypatch.setattr(trouble, "LOOK_S", 0.02)
    slow = Slow.of(brokers.target, "commit")
    await brokers.source.send("a")
    link = await transacted.started(brokers)
    await until(lambda: slow.waiting is not None)
    await stalled(brokers, link, "connection-factory 'target', has not taken")
    slow.let_go()
    assert await brokers.target.texts(1) == ["a"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            "javax.jms.ResourceAllocationException: Usage Manager Memory Limit reached on queue://q",
            "raise its limit",
        ),
        ("it sent ERROR: Usage Manager Store is Full", "raise its limit"),
        (
            "a call of jms session 1 did not return within 30 s; the provider does not answer",
            "if the broker hangs, restart it",
        ),
        ("connection refused", ""),
    ],
)
def test_a_broker_that_ends_the_connection_as_it_is_full_is_told_of_with_the_remedy(
    said: str, wanted: str
) -> None:
    for error in (
        ProviderUnavailable(said),
        OutcomeUnknown(said),
        TargetLost(ProviderUnavailable(said), sent=True),
    ):
        found = trouble.remedy(error)
        assert wanted in found
        assert bool(wanted) == bool(found)


@implementer(ILogObserver)
class Lines:
    """What was logged, and recorded as the last error."""

    def __init__(self) -> None:
        self.logged: list[str] = []
        self.recorded: list[str] = []
        self.log = Logger(observer=self)

    def __call__(self, event: LogEvent) -> None:
        self.logged.append(formatEvent(event))


def test_a_refusal_is_told_again_after_a_minute_with_how_many_there_were() -> None:
    lines, clock = Lines(), Clock()
    refusals = Refusals("orders", "far", lines.log, clock.seconds, lines.recorded.append)
    error = DestinationFull(Queue("q"), "maxNumMsgs", 3)
    for _ in range(5):
        refusals(error, 2)
    clock.advance(trouble.TELL_S)
    refusals(error, 2)
    assert ["2 since" in lines.logged[0], "10 since" in lines.logged[1], len(lines.logged)] == [
        True,
        True,
        2,
    ]
    assert len(lines.recorded) == 6


def test_a_link_that_waits_for_messages_or_gets_on_is_not_stalled() -> None:
    lines, clock = Lines(), Clock()
    now: list[Any] = [Progress(Doing.RECEIVING, (0,))]
    names = {"source": "s", "target": "t", "destination": "queue:q"}
    stall = Stall(clock, "orders", names, lines.log, lambda: now[0], lines.recorded.append)
    stall.watch()
    clock.pump([trouble.LOOK_S] * 20)
    for number in range(20):
        now[0] = Progress(Doing.SENDING, (number,))
        clock.advance(trouble.LOOK_S)
    assert lines.logged == []
    clock.pump([trouble.LOOK_S] * 20)
    assert len(lines.logged) == len(lines.recorded) == 1
    stall.stop()
    assert clock.getDelayedCalls() == []
