"""What the journal and the counters have of transactions that do not end at once, or end otherwise
than was decided.
"""

from __future__ import annotations

import pytest

from bridge.config.model import QualityOfService
from bridge.link import link as links
from bridge.status import LinkState
from gateway.journal.schema import Level
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.journaled import Journaled, steps
from tests.bridge.linking import Rig, until
from tests.bridge.once.test_ends import Heuristic
from tests.bridge.once.test_shared import Slow
from tests.on_reactor import on_reactor

ONCE = QualityOfService.ONCE_AND_ONLY_ONCE


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
    link = await brokers.started(
        quality_of_service=ONCE, max_batch_size=3, max_batch_time_ms=20, passed=brokers.passed
    )
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
        other = await brokers.started(
            quality_of_service=ONCE, max_batch_size=3, max_batch_time_ms=20
        )
        await brokers.source.send("d")
        assert await brokers.target.texts(4) == ["a", "b", "c", "d"]
        await other.stop()
    else:
        assert await brokers.target.texts(3) == ["a", "b", "c"]
        await until(lambda: link.status().counters.acknowledged == 3)
        await link.stop()
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
    link = await brokers.started(
        quality_of_service=ONCE, max_batch_size=2, max_batch_time_ms=20, passed=brokers.passed
    )
    await brokers.reaches(link, LinkState.RETRYING)
    [transaction] = brokers.coordinator().transactions()
    await brokers.coordinator().rollback(transaction.id)
    assert brokers.graves.dead == [], "the target has not been asked yet"
    brokers.passed = brokers.points.append
    brokers.target.provider.error = None
    await until(lambda: len(brokers.graves.dead) == 2, lambda: str(link.status()))
    assert [(dead.message.text, dead.reason) for dead in brokers.graves.dead] == [
        ("a", BridgeDeadReason.COMMIT_FAILURE),
        ("b", BridgeDeadReason.COMMIT_FAILURE),
    ]
    assert f"transaction {transaction.id} ended heuristically" in brokers.graves.dead[0].exception
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 2}
    await brokers.source.send("c")
    assert await brokers.target.texts(1) == ["c"]


@on_reactor
async def test_what_waits_for_its_target_has_not_arrived(journaled: Journaled) -> None:
    brokers = journaled.rig
    await brokers.source.send("a")
    away_behind_the_decision(brokers)
    link = await brokers.started(
        quality_of_service=ONCE, max_batch_time_ms=20, passed=brokers.passed
    )
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
    away = brokers.target.provider
    away._provider = Heuristic(away._provider)
    await brokers.source.send("a", "b", "c")
    # The second is buried at first, the others later: by two other runs.
    takes = iter([False, True, False, False, True, True])

    class Some:
        """A dead message queue that takes some."""

        bury = brokers.graves.bury

        async def chooses(self, dead: object) -> None:
            brokers.graves.refuse = not next(takes)
            await self.bury(dead)  # type: ignore[arg-type]

    brokers.graves.bury = Some().chooses  # type: ignore[method-assign]
    link = await brokers.started(quality_of_service=ONCE, max_batch_size=3, max_batch_time_ms=20)
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
    away = brokers.target.provider
    away._provider = slow = Slow(away._provider, "commit")
    await brokers.source.send("a")
    link = await brokers.started(quality_of_service=ONCE, max_batch_time_ms=20)
    await until(lambda: slow.waiting is not None)
    await until(lambda: len(brokers.coordinator().transactions()) == 2)
    before, behind = brokers.coordinator().transactions()
    assert (before.state, behind.state) == ("COMMITTING", "ACTIVE")
    assert (link.status().transaction, link.status().transaction_state) == (before.id, "COMMITTING")
    # And over it the link is stopped, and made anew.
    await link.stop()
    link = brokers.link(quality_of_service=ONCE, max_batch_time_ms=20)
    starting = link.start()
    await until(lambda: link.status().transaction == before.id)
    slow.let_go()
    await starting
    assert await brokers.target.texts(1) == ["a"]
    await until(lambda: link.status().transaction not in ("", before.id))
    assert link.status().transaction_state == "ACTIVE"
