"""Transactions that overlap: the next of a link, and that of another link on the same brokers.

None overtakes another, or is taken for what is to be recovered.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from bridge.link.status import LinkState
from gateway.messaging.destination import Queue
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.delivery import transacted
from tests.bridge.delivery.transacted import NUMBERS, Slow, nothing_is_left, started
from tests.bridge.link_pair import TARGET, Rig, until
from tests.on_reactor import on_reactor

OTHER_SOURCE: Final = Queue("other.source")
OTHER_TARGET: Final = Queue("other.target")
BEGUN = "link.after-receive"
COMMITTED = "xa.after-commit-2"


def ahead(points: list[str]) -> int:
    """How often messages were received in a transaction before the one before was committed."""
    found, open_ = 0, False
    for point in points:
        if point == "xa.after-decision":
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
    link = await started(brokers, max_batch_size=5)
    assert await brokers.target.texts(60) == NUMBERS
    await brokers.finishes(link, 60)
    assert ahead(brokers.points) >= 6
    decisions = [point for point in brokers.points if point in ("xa.before-decision", COMMITTED)]
    assert decisions == ["xa.before-decision", COMMITTED] * 12
    await nothing_is_left(brokers)


@on_reactor
async def test_where_the_connection_does_not_stay_one_is_over_before_the_next_begins(
    brokers: Rig,
) -> None:
    await brokers.source.send(*NUMBERS[:30])
    link = await started(brokers, max_batch_size=5, target={"stay_connected": False})
    assert await brokers.target.texts(30) == NUMBERS[:30]
    await link.stop()
    assert ahead(brokers.points) == 0
    await nothing_is_left(brokers)


@pytest.mark.parametrize("at", ["xa.after-start-1", BEGUN, "link.after-send", "xa.after-prepare-1"])
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
        if point == "xa.after-decision":
            decided = True
        elif point == COMMITTED:
            decided = False
        elif point == at and decided and times < 2:
            times += 1
            (brokers.source if cut == "source" else brokers.target).provider.cut()

    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5, passed=passed)
    assert await brokers.target.texts(60) == NUMBERS
    assert times == 2
    await until(lambda: not link.status().in_flight)
    await nothing_is_left(brokers)


@pytest.mark.parametrize("act", ["pause", "stop"])
@on_reactor
async def test_it_can_be_stopped_between_a_decision_and_the_next(brokers: Rig, act: str) -> None:
    acted: list[Any] = []
    decided = False

    def passed(point: str) -> None:
        nonlocal decided
        if point == BEGUN and decided and not acted:
            acted.append(getattr(moving, act)())
        decided = point == "xa.after-decision" or (decided and point != COMMITTED)

    await brokers.source.send(*NUMBERS)
    moving = transacted.link(brokers, max_batch_size=5, passed=passed)
    await moving.start()
    await until(lambda: bool(acted))
    await acted[0]
    assert moving.status().in_flight == 0
    await moving.start()
    assert await brokers.target.texts(60) == NUMBERS
    await nothing_is_left(brokers)


# --- two links that share both resource managers


@pytest.mark.parametrize("cut", ["source", "target", "both"])
@pytest.mark.parametrize("call", ["prepare", "commit"])
@on_reactor
async def test_a_link_that_reconnects_leaves_a_prepared_transaction_of_another_alone(
    brokers: Rig, call: str, cut: str
) -> None:
    sides = (brokers.source, brokers.target)
    slow = [Slow.of(side, call) for side in sides]
    other = await started(brokers, name="other", of=OTHER_SOURCE, to=OTHER_TARGET)
    others = {side.config.ref_name: list(side.provider._made) for side in sides}
    await brokers.source.send(*NUMBERS[:20])
    link = await started(brokers, max_batch_size=5)
    await until(lambda: all(one.waiting is not None for one in slow))
    for one in slow:
        one.asked.clear()

    # Now both branches are prepared. The decision is not made yet, or no resource manager knows it.
    for name, connections in others.items():
        if cut in (name, "both"):
            for connection in connections:
                connection.fail(ProviderUnavailable("its connection is cut"))
    await until(
        lambda: other.status().counters.reconnects == 1 and other.state is LinkState.STARTED
    )
    assert all(("recover", None) in one.asked for one in slow)
    await brokers.source.send("a", "b", to=OTHER_SOURCE)
    assert await brokers.target.texts(2, OTHER_TARGET) == ["a", "b"]
    for one in slow:
        assert one.waiting not in [xid for _, xid in one.asked]
    assert await brokers.target.rest(TARGET) == []

    for one in slow:
        one.let_go()
    assert await brokers.target.texts(20) == NUMBERS[:20]
    await until(lambda: link.status().counters.acknowledged == 20)
    assert link.status().counters.reconnects == 0
    await nothing_is_left(brokers)
    assert not any(("rollback", one.waiting) in one.asked for one in slow)
