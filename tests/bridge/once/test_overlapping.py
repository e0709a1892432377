"""The next transaction of a link begins while the one before is committed, and overtakes
nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config.model import QualityOfService
from bridge.link.link import JMSLink
from gateway.instance import crashpoints
from tests.bridge.linking import Rig, until
from tests.bridge.once.test_once_link import NUMBERS, nothing_is_left, started
from tests.on_reactor import on_reactor

BEGUN = crashpoints.AFTER_RECEIVE
COMMITTED = crashpoints.AFTER_COMMIT_2


def ahead(points: list[str]) -> int:
    """How often messages were received in a transaction before the one before was committed."""
    found, open_ = 0, False
    for point in points:
        if point == crashpoints.AFTER_DECISION:
            open_ = True
        elif point == COMMITTED:
            open_ = False
        elif point == BEGUN:
            found += open_
    return found


@on_reactor
async def test_the_next_is_received_and_sent_while_one_is_committed_and_decided_behind_it(
    brokers: Rig,
) -> None:
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5, max_batch_time_ms=20)
    assert await brokers.target.texts(60) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 60)
    await link.stop()
    assert ahead(brokers.points) >= 6
    decisions = [
        point for point in brokers.points if point in (crashpoints.BEFORE_DECISION, COMMITTED)
    ]
    assert decisions == [crashpoints.BEFORE_DECISION, COMMITTED] * 12
    await nothing_is_left(brokers)


@on_reactor
async def test_where_the_connection_does_not_stay_one_is_over_before_the_next_begins(
    brokers: Rig,
) -> None:
    await brokers.source.send(*NUMBERS[:30])
    link = await started(
        brokers, max_batch_size=5, max_batch_time_ms=20, target={"stay_connected": False}
    )
    assert await brokers.target.texts(30) == NUMBERS[:30]
    await link.stop()
    assert ahead(brokers.points) == 0
    await nothing_is_left(brokers)


@pytest.mark.parametrize(
    "at", [crashpoints.AFTER_START_1, BEGUN, crashpoints.AFTER_SEND, crashpoints.AFTER_PREPARE_1]
)
@pytest.mark.parametrize("cut", ["source", "target"])
@on_reactor
async def test_a_commit_that_waits_for_its_broker_is_not_overtaken(
    brokers: Rig, at: str, cut: str
) -> None:
    """The connection is lost when one is decided, and the next has come so far."""
    decided = False
    times = 0

    def passed(point: str) -> None:
        nonlocal decided, times
        brokers.points.append(point)
        if point == crashpoints.AFTER_DECISION:
            decided = True
        elif point == COMMITTED:
            decided = False
        elif point == at and decided and times < 2:
            times += 1
            (brokers.source if cut == "source" else brokers.target).provider.cut()

    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5, max_batch_time_ms=20, passed=passed)
    assert await brokers.target.texts(60) == NUMBERS
    assert times == 2
    await until(lambda: not link.status().in_flight)
    await link.stop()
    await nothing_is_left(brokers)


@pytest.mark.parametrize("act", ["pause", "stop"])
@on_reactor
async def test_it_can_be_stopped_between_a_decision_and_the_next(brokers: Rig, act: str) -> None:
    acted: list[Any] = []
    links: list[JMSLink] = []
    decided = False

    def passed(point: str) -> None:
        nonlocal decided
        if point == BEGUN and decided and not acted:
            acted.append(getattr(links[0], act)())
        decided = point == crashpoints.AFTER_DECISION or (decided and point != COMMITTED)

    await brokers.source.send(*NUMBERS)
    once = QualityOfService.ONCE_AND_ONLY_ONCE
    links.append(
        brokers.link(quality_of_service=once, max_batch_size=5, max_batch_time_ms=20, passed=passed)
    )
    await links[0].start()
    await until(lambda: bool(acted))
    await acted[0]
    assert links[0].status().in_flight == 0
    await links[0].start()
    assert await brokers.target.texts(60) == NUMBERS
    await links[0].stop()
    await nothing_is_left(brokers)
