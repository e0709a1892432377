"""What a transacted link does about messages that its target refuses, and what its source has kept
then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, cast

import pytest

from bridge import jms_link as links
from bridge.link.status import LinkState
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.delivery import transacted
from tests.bridge.delivery.transacted import TOPIC, Refusing, Silent, started
from tests.bridge.link_pair import SOURCE, TARGET, Cuts, Rig, clock, close, until
from tests.contract.backends.embedded import EmbeddedMemory
from tests.contract.backends.jms_xa import JMSXA
from tests.on_reactor import on_reactor

NUMBERS: Final = transacted.NUMBERS[:20]


def too_large(rig: Rig) -> tuple[Destination, str]:
    """A queue of the target, and a body that it does not take."""
    small, most = rig.target.backend.small
    return small, "x" * (most + 1_000)


# --- a subscription that is not durable


@pytest.mark.parametrize("says_which", [True, False])
@pytest.mark.parametrize("size", [1, 7, 16, None])
@on_reactor
async def test_of_a_topic_without_durable_sub_nothing_is_lost_by_a_refusal(
    brokers: Rig, size: int | None, says_which: bool
) -> None:
    to, bad = too_large(brokers)
    if not says_which:
        to, bad = TARGET, "bad"
        Refusing.of(brokers.target, bad)
    link = await started(brokers, of=TOPIC, to=to, max_batch_size=size)
    bodies = [*NUMBERS[:5], bad, *NUMBERS[5:]]
    await brokers.source.send(*bodies, to=TOPIC)
    assert await brokers.target.texts(20, to) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 21)
    [dead] = brokers.graves.dead
    reason = BridgeDeadReason.SEND_FAILURE if says_which else BridgeDeadReason.COMMIT_FAILURE
    assert (dead.message.text, dead.reason) == (bad, reason)
    await brokers.source.send("later", to=TOPIC)
    assert await brokers.target.texts(1, to) == ["later"]
    assert link.status().counters.refused == 6


@on_reactor
async def test_of_a_topic_without_durable_sub_nothing_is_lost_while_the_target_is_away(
    brokers: Rig,
) -> None:
    link = await started(brokers, of=TOPIC)
    await brokers.moves("before", of=TOPIC)
    brokers.target.provider.error = ProviderUnavailable("it is away")
    brokers.target.provider.cut()
    await brokers.reaches(link, LinkState.RETRYING)
    await brokers.source.send(*NUMBERS, to=TOPIC)
    brokers.target.provider.error = None
    assert await brokers.target.texts(20) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 21)


@pytest.mark.parametrize(
    "point",
    [
        "xa.after-start-2",
        "link.after-send",
        "xa.after-prepare-1",
        "xa.after-prepare-2",
        "xa.after-decision",
    ],
)
@on_reactor
async def test_of_a_topic_without_durable_sub_nothing_is_lost_with_the_target_amid_a_transaction(
    brokers: Rig, point: str
) -> None:
    passed = Cuts(brokers, point, (2, 3), brokers.target)
    link = await started(brokers, of=TOPIC, max_batch_size=5, passed=passed)
    await brokers.source.send(*NUMBERS, to=TOPIC)
    assert await brokers.target.texts(20) == NUMBERS
    await until(lambda: link.status().counters.acknowledged >= 20 or not link.status().in_flight)
    assert passed.seen >= 3
    await link.stop()
    assert list(brokers.coordinator().transactions()) == []
    assert await brokers.target.rest(TARGET) == []


@pytest.mark.parametrize(
    ("of", "source", "warnings"),
    [(TOPIC, {}, 1), (TOPIC, {"durable_sub": "d", "clientid": "c"}, 0), (SOURCE, {}, 0)],
)
@on_reactor
async def test_a_topic_without_durable_sub_is_told_of_once(
    brokers: Rig, of: Destination, source: dict[str, str], warnings: int
) -> None:
    link = await started(brokers, of=of, source=source)
    brokers.source.provider.cut()
    await until(lambda: link.status().counters.reconnects == 1 and link.state is LinkState.STARTED)
    assert len([line for line in brokers.warned if "durable-sub" in line]) == warnings


# --- which message it is


@on_reactor
async def test_a_message_that_the_target_names_is_isolated_by_one_rollback(brokers: Rig) -> None:
    to, bad = too_large(brokers)
    await brokers.source.send(*NUMBERS[:13], bad, *NUMBERS[13:])
    link = await started(brokers, to=to)
    arrived = await brokers.target.texts(20, to)
    assert arrived == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 21)
    # All together, then what is before it, then itself six times and once more as a dead one, then
    # what is behind it.
    assert link.status().counters.received == 21 + 13 + 6 + 1 + 7
    assert link.status().counters.batches == 3


# --- a target that holds back


@on_reactor
async def test_a_target_that_does_not_stay_connected_holds_the_link_back(brokers: Rig) -> None:
    flow, most = brokers.target.backend.flow
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, to=flow, target={"stay_connected": False}, max_batch_size=1)
    await until(lambda: link.status().counters.sent >= most)
    # Time to do wrong: as many turns as ten more would take.
    client = await brokers.source.seam.connect()
    for _ in range(10):
        await client.send(TARGET, ["turn"])
    assert link.status().counters.sent <= most + 1
    arrived: list[str] = []
    while len(arrived) < 20:
        arrived += await brokers.target.texts(1, flow)
    assert arrived == NUMBERS


@on_reactor
async def test_a_link_that_is_held_back_can_be_stopped(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "STOP_S", 0.05)
    flow, most = brokers.target.backend.flow
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, to=flow, target={"stay_connected": False}, max_batch_size=1)
    await until(lambda: link.status().counters.sent >= most)
    await link.stop()
    sent = link.status().counters.sent
    assert await brokers.source.rest(SOURCE) == NUMBERS[sent:]
    assert await brokers.target.rest(flow) == NUMBERS[:sent]
    assert list(brokers.coordinator().transactions()) == []


# --- by ids


@on_reactor
async def test_what_was_sent_in_doubt_is_not_dead_when_it_expires(brokers: Rig) -> None:
    """The target has it, and must be asked again to know it for the same."""
    brokers.source.provider.pretends = {"xa": False}
    there = brokers.target.provider
    Silent.of(brokers.target, there)
    link = await started(brokers)
    expires = int(clock.seconds() * 1000) + 400
    await brokers.source.send("doubtful", expires=expires)
    assert await brokers.target.texts(1) == ["doubtful"]
    await until(lambda: clock.seconds() * 1000 > expires)
    there.error = None
    await until(lambda: link.status().counters.acknowledged == 1)
    assert (brokers.graves.dead, link.status().counters.expired, link.status().counters.sent) == (
        [],
        0,
        1,
    )
    assert await brokers.target.rest(TARGET) == []


@on_reactor
async def test_a_link_that_goes_by_xa_later_marks_nothing(brokers: Rig) -> None:
    brokers.source.provider.pretends = {"xa": False}
    link = await started(brokers)
    await brokers.source.send("by id")
    [first] = await brokers.target.arrived(1)
    await link.stop()
    brokers.source.provider.pretends = {}
    await link.start()
    await brokers.source.send("by XA")
    [second] = await brokers.target.arrived(1)
    assert "_AMQ_DUPL_ID" in first.headers.properties
    assert "_AMQ_DUPL_ID" not in second.headers.properties


# --- with ActiveMQ as the source


@pytest.mark.process
@pytest.mark.brokers
@pytest.mark.parametrize("size", [7, None])
@pytest.mark.parametrize("says_which", [True, False])
@on_reactor
async def test_of_a_topic_of_activemq_nothing_is_lost_by_a_refusal(
    tmp_path: Path, says_which: bool, size: int | None
) -> None:
    source, target = JMSXA(), EmbeddedMemory()
    for backend in (source, target):
        (tmp_path / backend.name).mkdir()
        await backend.start(tmp_path / backend.name)
    brokers = Rig(cast(Any, source), target, tmp_path)
    try:
        to, bad = too_large(brokers)
        if not says_which:
            to, bad = TARGET, "bad"
            Refusing.of(brokers.target, bad)
        topic = source.topic()
        link = await started(brokers, of=topic, to=to, max_batch_size=size)
        await brokers.source.send(*NUMBERS[:5], bad, *NUMBERS[5:], to=topic)
        assert await brokers.target.texts(20, to) == NUMBERS
        await until(lambda: link.status().counters.acknowledged == 21)
        assert [dead.message.text for dead in brokers.graves.dead] == [bad]
    finally:
        await close(brokers)
