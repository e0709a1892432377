"""Transactions that do not end at once, or end otherwise than decided: what the link does, and what
the journal and the counters have of it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge import jms_link as links
from bridge.dead.chain import DeadMessage
from bridge.link.delivery import xa
from bridge.link.status import LinkState
from gateway.journal.schema import Level
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.delivery import transacted
from tests.bridge.delivery.transacted import (
    NUMBERS,
    TOPIC,
    Heuristic,
    Slow,
    Unwilling,
    nothing_is_left,
    started,
)
from tests.bridge.journaled import Journaled, steps
from tests.bridge.link_pair import TARGET, Rig, until
from tests.on_reactor import on_reactor

# --- a transaction that it was stopped over


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("call", ["prepare", "commit"])
@pytest.mark.parametrize("side", ["source", "target"])
@on_reactor
async def test_nothing_overtakes_a_transaction_that_the_link_was_stopped_over(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch, side: str, call: str, anew: bool
) -> None:
    """:param anew: the link is another when it is started again, as after a reload."""
    monkeypatch.setattr(links, "STOP_S", 0.05)
    slow = Slow.of(getattr(brokers, side), call)
    await brokers.source.send(*NUMBERS[:20])
    link = await started(brokers, max_batch_size=5)
    await until(lambda: slow.waiting is not None)
    await link.stop()
    if anew:
        link = transacted.link(brokers, max_batch_size=5)
    starting = link.start()
    # Time to do wrong.
    client = await brokers.source.seam.connect()
    for _ in range(20):
        await client.send(TARGET, ["turn"])
    there = await brokers.target.rest(TARGET)
    assert there in ([], NUMBERS[:5])
    slow.let_go()
    await starting
    await until(lambda: link.state is LinkState.STARTED)
    assert [*there, *await brokers.target.texts(20 - len(there))] == NUMBERS[:20]
    await until(lambda: not link.status().in_flight)
    await nothing_is_left(brokers)


@on_reactor
async def test_while_such_a_transaction_hangs_the_link_says_so_and_tries_again(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "STOP_S", 0.05)
    monkeypatch.setattr(xa, "EARLIER_S", 0.05)
    slow = Slow.of(brokers.target, "prepare")
    await brokers.source.send(*NUMBERS[:20])
    link = await started(brokers, max_batch_size=5)
    await until(lambda: slow.waiting is not None)
    await link.stop()
    await link.start()
    assert link.state is LinkState.RETRYING
    assert "over which the link was stopped, is PREPARING" in link.status().last_error
    slow.let_go()
    assert await brokers.target.texts(20) == NUMBERS[:20]


# --- messages of a transaction that ended otherwise


@on_reactor
async def test_messages_of_a_heuristic_end_are_kept_until_a_dead_message_queue_takes_them(
    brokers: Rig,
) -> None:
    Heuristic.of(brokers.target)
    # Each is tried three times, one more often.
    brokers.graves.refuse = 10
    await brokers.source.send("a", "b", "c")
    link = await started(brokers, max_batch_size=3)
    await until(lambda: len(brokers.graves.dead) == 3)
    assert sorted(dead.message.text for dead in brokers.graves.dead) == ["a", "b", "c"]
    assert {dead.reason for dead in brokers.graves.dead} == {BridgeDeadReason.COMMIT_FAILURE}
    # Whole, once.
    for body in "abc":
        [told] = [line for line in brokers.warned if f"\n\n{body}\n" in line]
        assert "JMSMessageID" in told
    await brokers.moves("later")
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 3}


@pytest.mark.parametrize("anew", [False, True])
@on_reactor
async def test_messages_of_a_heuristic_end_are_kept_while_the_link_is_stopped(
    brokers: Rig, anew: bool
) -> None:
    Heuristic.of(brokers.target)
    brokers.graves.refuse = 1000
    await brokers.source.send("a", "b", "c")
    link = await started(brokers, max_batch_size=3)
    await until(lambda: link.state is LinkState.RETRYING)
    await link.stop()
    assert brokers.graves.dead == []
    brokers.graves.refuse = 0
    if anew:
        link = transacted.link(brokers, max_batch_size=3)
    await link.start()
    await until(lambda: len(brokers.graves.dead) == 3)
    assert [dead.message.text for dead in brokers.graves.dead] == ["a", "b", "c"]
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 3}


# --- a resource manager that does not roll back when it is asked to


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("size", [1, 5])
@on_reactor
async def test_the_link_recovers_before_it_receives_again(
    brokers: Rig, side: str, several: bool, size: int
) -> None:
    """:param several: whether the factories are those of several resource managers."""
    refuses, leaves = (
        (brokers.target, brokers.source) if side == "source" else (brokers.source, brokers.target)
    )
    Unwilling.of(refuses, prepare=1)
    # The first attempt to recover is in vain, too.
    Unwilling.of(leaves, rollback=2)
    for each in (refuses, leaves):
        each.factory.config = replace(each.config, multi_rm=several)
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=size)
    assert await brokers.target.texts(60) == NUMBERS
    await until(lambda: not link.status().in_flight)
    await nothing_is_left(brokers)
    assert any("it cannot rollback" in line for line in brokers.warned)


@on_reactor
async def test_a_source_that_must_be_kept_recovers_as_well(brokers: Rig) -> None:
    """A topic without a durable subscription: its session has all that the link will ever get of
    it.
    """
    Unwilling.of(brokers.target, prepare=1)
    Unwilling.of(brokers.source, rollback=1)
    link = await started(brokers, of=TOPIC, max_batch_size=5)
    await brokers.source.send(*NUMBERS, to=TOPIC)
    assert await brokers.target.texts(60) == NUMBERS
    await until(lambda: not link.status().in_flight)
    await nothing_is_left(brokers)


# --- what is told of them


def away_behind_the_decision(brokers: Rig) -> None:
    """The target cannot be reached from when the first decision is on the disk."""

    def passed(point: str) -> None:
        if point == "xa.after-decision":
            brokers.target.provider.error = ProviderUnavailable("it is away")
            brokers.target.provider.cut()

    brokers.passed = passed


@pytest.mark.parametrize("anew", [False, True])
@on_reactor
async def test_what_waits_for_its_target_is_told_to_have_arrived_when_it_has(
    journaled: Journaled, anew: bool
) -> None:
    brokers = journaled.rig
    await brokers.source.send("a", "b", "c")
    away_behind_the_decision(brokers)
    link = await started(brokers, max_batch_size=3, passed=brokers.passed)
    await brokers.reaches(link, LinkState.RETRYING)
    assert [transaction.state for transaction in brokers.coordinator().transactions()] == [
        "WAITING"
    ]
    assert link.status().last_error.startswith("target"), link.status().last_error
    counters = link.status().counters
    assert (counters.received, counters.sent, counters.acknowledged) == (3, 0, 0)
    brokers.passed = brokers.points.append
    brokers.target.provider.error = None
    if anew:
        await link.stop()
        other = await started(brokers, max_batch_size=3)
        await brokers.source.send("d")
        assert await brokers.target.texts(4) == ["a", "b", "c", "d"]
        await other.stop()
    else:
        assert await brokers.target.texts(3) == ["a", "b", "c"]
        await brokers.finishes(link, 3)
    assert (counters.sent, counters.acknowledged) == (0, 0)
    assert (link.status().counters.sent, link.status().counters.acknowledged) == (3, 3)
    for events in (await journaled.transfers()).values():
        assert steps(events) == ["received", "sent", "arrived", "settled"]


@on_reactor
async def test_what_an_operator_rolls_back_against_the_decision_is_in_a_dead_message_queue(
    journaled: Journaled,
) -> None:
    brokers = journaled.rig
    await brokers.source.send("a", "b")
    away_behind_the_decision(brokers)
    link = await started(brokers, max_batch_size=2, passed=brokers.passed)
    await brokers.reaches(link, LinkState.RETRYING)
    [transaction] = brokers.coordinator().transactions()
    await brokers.coordinator().rollback(transaction.id)
    assert brokers.graves.dead == [], "the target has not been asked yet"
    brokers.passed = brokers.points.append
    brokers.target.provider.error = None
    await until(lambda: len(brokers.graves.dead) == 2, lambda: str(link.status()))
    assert [(dead.message.text, dead.reason) for dead in brokers.graves.dead] == [
        (body, BridgeDeadReason.COMMIT_FAILURE) for body in "ab"
    ]
    assert f"transaction {transaction.id} ended heuristically" in brokers.graves.dead[0].exception
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 2}
    await brokers.moves("c")


@on_reactor
async def test_what_waits_for_its_target_has_not_arrived(journaled: Journaled) -> None:
    brokers = journaled.rig
    await brokers.source.send("a")
    away_behind_the_decision(brokers)
    link = await started(brokers, passed=brokers.passed)
    await brokers.reaches(link, LinkState.RETRYING)
    await link.stop()
    [events] = (await journaled.transfers()).values()
    assert steps(events) == ["received", "sent"]


@pytest.mark.parametrize("level", [Level.LINKS, Level.DEAD])
@on_reactor
async def test_each_message_of_a_heuristic_end_is_told_of_when_it_is_buried(
    journaled: Journaled, level: Level
) -> None:
    brokers = journaled.rig
    await journaled.close()
    journaled.opened(level)
    Heuristic.of(brokers.target)
    await brokers.source.send("a", "b", "c")
    # The second is buried at first, the others later: by two other runs.
    takes = iter([False, True, False, False, True, True])

    bury = brokers.graves.bury

    async def some(dead: DeadMessage) -> None:
        brokers.graves.refuse = not next(takes)
        await bury(dead)

    brokers.graves.bury = some  # type: ignore[method-assign]
    link = await started(brokers, max_batch_size=3)
    await until(lambda: len(brokers.graves.dead) == 3)
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 3}
    await link.stop()
    assert [dead.message.text for dead in brokers.graves.dead] == ["b", "c", "a"]
    before = [] if level is Level.DEAD else ["received", "sent"]
    transfers = await journaled.transfers()
    assert [steps(events) for events in transfers.values()] == [[*before, "buried"]] * 3


@on_reactor
async def test_the_transaction_that_hangs_is_shown_and_not_the_idle_one_behind_it(
    journaled: Journaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "STOP_S", 0.05)
    brokers = journaled.rig
    slow = Slow.of(brokers.target, "commit")
    await brokers.source.send("a")
    link = await started(brokers)
    await until(lambda: slow.waiting is not None)
    await until(lambda: len(brokers.coordinator().transactions()) == 2)
    before, behind = brokers.coordinator().transactions()
    assert (before.state, behind.state) == ("COMMITTING", "ACTIVE")
    assert (link.status().transaction, link.status().transaction_state) == (before.id, "COMMITTING")
    # And over it the link is stopped, and made anew.
    await link.stop()
    link = transacted.link(brokers)
    starting = link.start()
    await until(lambda: link.status().transaction == before.id)
    slow.let_go()
    await starting
    assert await brokers.target.texts(1) == ["a"]
    await until(lambda: link.status().transaction not in ("", before.id))
    assert link.status().transaction_state == "ACTIVE"
