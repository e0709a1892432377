"""A link with a rate: its time, what is said of it, and that none is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock

from bridge.config.model import QualityOfService
from bridge.link.pace import LinkPace
from bridge.link.status import Doing, LinkState
from gateway.admin.why.cause import CauseKind
from gateway.admin.why.facts import LinkFacts
from gateway.admin.why.links import link_causes
from tests.bridge.link_pair import SOURCE, TARGET, Cuts, Rig, until
from tests.on_reactor import on_reactor

clock: Any = reactor
NUMBERS = [str(number) for number in range(100)]


@given(
    rate=st.integers(1, 5000),
    size=st.integers(1, 500),
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 500)), max_size=30),
)
def test_no_span_of_time_has_more_than_the_rate_and_what_was_saved(
    rate: int, size: int, steps: list[tuple[float, int]]
) -> None:
    time = Clock()
    pace = LinkPace(time, rate, size)
    taken: list[tuple[float, int]] = [(0.0, 0)]
    for idle_s, most in steps:
        time.advance(idle_s)
        if not pace.allows():
            waiting = ensureDeferred(pace.wait())
            while not waiting.called:
                time.advance(time.getDelayedCalls()[0].getTime() - time.seconds())
        count = min(most, size)
        pace.took(count)
        taken.append((time.seconds(), count))
    # From the start not even what could be saved.
    assert sum(count for _, count in taken) <= rate * time.seconds() + 1e-6
    for first in range(1, len(taken)):
        total = 0
        for at, count in taken[first:]:
            total += count
            assert total <= rate * (at - taken[first][0]) + 2 * size + 1e-6


@given(
    rate=st.integers(1, 10**7),
    batches=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 10**6)), max_size=30),
)
def test_no_span_of_time_has_more_octets_than_the_rate_and_one_batch(
    rate: int, batches: list[tuple[float, int]]
) -> None:
    time = Clock()
    pace = LinkPace(time, None, 100, rate)
    taken: list[tuple[float, int]] = []
    for idle_s, octets in batches:
        time.advance(idle_s)
        if not pace.allows():
            waiting = ensureDeferred(pace.wait())
            while not waiting.called:
                time.advance(time.getDelayedCalls()[0].getTime() - time.seconds())
        pace.took(1, octets)
        taken.append((time.seconds(), octets))
    for first in range(len(taken)):
        total = 0
        for at, octets in taken[first:]:
            # What was saved in a fifth of a second, then the batch itself.
            assert total <= rate * (at - taken[first][0] + 0.2) * (1 + 1e-9)
            total += octets


@pytest.mark.parametrize(
    ("rate", "size", "most"), [(25, None, 2), (5, 50, 1), (100_000, None, 100)]
)
@on_reactor
async def test_batches_are_smaller_rather_than_late(
    brokers: Rig, rate: int, size: int | None, most: int
) -> None:
    link = brokers.link(max_messages_per_second=rate, max_batch_size=size)
    assert link.config.batch_size == most


@pytest.mark.parametrize("quality", list(QualityOfService))
@on_reactor
async def test_messages_need_as_long_as_the_rate_says(
    brokers: Rig, quality: QualityOfService
) -> None:
    await brokers.source.send(*NUMBERS)
    began = clock.seconds()
    link = await brokers.started(max_messages_per_second=100, quality_of_service=quality)
    await until(lambda: link.status().paced and link.status().doing is Doing.PACING)
    assert link.status().transaction_state in ("", "COMMITTING", "COMMITTED")
    await link.look()
    causes = {cause.kind: cause for cause in link_causes(LinkFacts(link.status()), 0)}
    paced = causes[CauseKind.LINK_PACED]
    assert "max-messages-per-second of 100" in paced.sentence
    assert paced.command == "imqbridgemgr reload bridge -bn bridge"
    assert await brokers.target.texts(100) == NUMBERS
    needed = clock.seconds() - began
    await brokers.acknowledges(link, 100)
    assert 1.0 <= needed < 4.0
    assert link.state is LinkState.STARTED
    assert 0 < link.status().paced_s <= clock.seconds() - began
    assert link.status().difference == 0


@pytest.mark.parametrize("quality", list(QualityOfService))
@on_reactor
async def test_octets_need_as_long_as_the_rate_says(
    brokers: Rig, quality: QualityOfService
) -> None:
    bodies = [f"{number:1000}" for number in range(30)]
    await brokers.source.send(*bodies)
    began = clock.seconds()
    link = await brokers.started(max_bytes_per_second=20_000, quality_of_service=quality)
    await until(lambda: link.status().paced and link.status().doing is Doing.PACING)
    [paced] = [
        cause
        for cause in link_causes(LinkFacts(link.status()), 0)
        if cause.kind is CauseKind.LINK_PACED
    ]
    assert "held back by its max-bytes-per-second of 20000" in paced.sentence
    assert "raise max-bytes-per-second of the link" in paced.advice
    assert await brokers.target.texts(30) == bodies
    needed = clock.seconds() - began
    await brokers.acknowledges(link, 30)
    # All but the last batch, of at most 2,000 octets.
    assert 1.3 <= needed < 4.0
    assert link.status().difference == 0


@on_reactor
async def test_a_message_larger_than_the_rate_passes_and_the_next_waits(brokers: Rig) -> None:
    await brokers.source.send("x" * 30_000, "y")
    began = clock.seconds()
    await brokers.started(max_bytes_per_second=20_000)
    assert await brokers.target.texts(2) == ["x" * 30_000, "y"]
    assert 1.4 <= clock.seconds() - began < 4.0


@on_reactor
async def test_a_pause_and_a_stop_do_not_wait_for_the_rate(brokers: Rig) -> None:
    await brokers.source.send(*NUMBERS[:10])
    link = await brokers.started(max_messages_per_second=1)
    await until(lambda: link.status().doing is Doing.PACING)
    for operation in (link.pause, link.resume, link.stop):
        began = clock.seconds()
        await operation()
        assert clock.seconds() - began < 0.5
    left = await brokers.source.rest(SOURCE)
    moved = await brokers.target.rest(TARGET)
    assert moved + left == NUMBERS[:10]


@on_reactor
async def test_connections_that_are_lost_meanwhile_lose_nothing_and_earn_nothing(
    brokers: Rig,
) -> None:
    await brokers.source.send(*NUMBERS[:60])
    began = clock.seconds()
    cuts = Cuts(brokers, "link.after-send", [1, 3], brokers.source, brokers.target)
    link = await brokers.started(max_messages_per_second=60, passed=cuts)
    await brokers.acknowledges(link, 60)
    needed = clock.seconds() - began
    await link.stop()
    assert cuts.seen >= 3
    there = await brokers.target.rest(TARGET) + [dead.message.text for dead in brokers.graves.dead]
    assert set(there) == set(NUMBERS[:60])
    assert needed >= 1.0


@on_reactor
async def test_a_link_that_waits_for_its_rate_is_not_stalled(brokers: Rig) -> None:
    await brokers.source.send(*NUMBERS[:5])
    link = await brokers.started(max_messages_per_second=2)
    await until(lambda: link.status().doing is Doing.PACING)
    await link.look()
    # What the watchdog asks for.
    assert link._waiting() == 0
    assert link.status().waiting > 0
    assert link.status().state is LinkState.STARTED
