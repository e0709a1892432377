"""What a transacted link leaves behind: a transaction that it was stopped over, and messages of one
that ended otherwise than decided.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bridge.config.model import QualityOfService
from bridge.link import link as links
from bridge.link.delivery import xa
from bridge.link.link import JMSLink
from bridge.status import LinkState
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import XAError
from gateway.messaging.provider import Provider, Xid
from tests.bridge.linking import SOURCE, TARGET, Rig, until
from tests.bridge.once.test_shared import Behind, Slow
from tests.on_reactor import on_reactor

ONCE = QualityOfService.ONCE_AND_ONLY_ONCE
NUMBERS = [f"{number:02}" for number in range(20)]
_HEURISTIC_ROLLBACK = 6


class Heuristic:
    """A provider that ends the first branch that it prepares otherwise than decided, on its own."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.ended: list[Xid] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def connect(self, *given: Any) -> Deferred[Any]:
        return self._provider.connect(*given).addCallback(
            lambda connection: Behind(
                connection, xa_session=lambda: self._session(connection.xa_session())
            )
        )

    def _session(self, session: Any) -> Any:
        behind = session.resource()

        async def commit(xid: Xid, one_phase: bool) -> None:
            if self.ended:
                await behind.commit(xid, one_phase)
                return
            self.ended.append(xid)
            await behind.rollback(xid)
            raise XAError(_HEURISTIC_ROLLBACK, "it was here too long")

        async def forget(xid: Xid) -> None:
            """It is."""

        resource = _Other(
            behind,
            commit=lambda xid, one_phase: Deferred.fromCoroutine(commit(xid, one_phase)),
            forget=lambda xid: Deferred.fromCoroutine(forget(xid)),
        )
        return Behind(session, resource=lambda: resource)


class _Other:
    """What is as it is behind it, but for what it is given."""

    def __init__(self, behind: Any, **other: Any) -> None:
        self._behind = behind
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return self._other.get(name) or getattr(self._behind, name)


async def started(rig: Rig, **link: Any) -> JMSLink:
    return await rig.started(quality_of_service=ONCE, max_batch_time_ms=20, **link)


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
    away = getattr(brokers, side).provider
    away._provider = slow = Slow(away._provider, call)
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5)
    await until(lambda: slow.waiting is not None)
    await link.stop()
    if anew:
        link = brokers.link(quality_of_service=ONCE, max_batch_time_ms=20, max_batch_size=5)
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
    assert [*there, *await brokers.target.texts(20 - len(there))] == NUMBERS
    await until(lambda: not link.status().in_flight)
    await link.stop()
    assert await brokers.source.rest(SOURCE) == []
    assert list(brokers.coordinator().transactions()) == []


@on_reactor
async def test_while_such_a_transaction_hangs_the_link_says_so_and_tries_again(
    brokers: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "STOP_S", 0.05)
    monkeypatch.setattr(xa, "EARLIER_S", 0.05)
    away = brokers.target.provider
    away._provider = slow = Slow(away._provider, "prepare")
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=5)
    await until(lambda: slow.waiting is not None)
    await link.stop()
    await link.start()
    assert link.state is LinkState.RETRYING
    assert "over which the link was stopped, is PREPARING" in link.status().last_error
    slow.let_go()
    assert await brokers.target.texts(20) == NUMBERS


# --- messages of a transaction that ended otherwise


@on_reactor
async def test_messages_of_a_heuristic_end_are_kept_until_a_dead_message_queue_takes_them(
    brokers: Rig,
) -> None:
    away = brokers.target.provider
    away._provider = Heuristic(away._provider)
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
    await brokers.source.send("later")
    assert await brokers.target.texts(1) == ["later"]
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 3}


@pytest.mark.parametrize("anew", [False, True])
@on_reactor
async def test_messages_of_a_heuristic_end_are_kept_while_the_link_is_stopped(
    brokers: Rig, anew: bool
) -> None:
    away = brokers.target.provider
    away._provider = Heuristic(away._provider)
    brokers.graves.refuse = 1000
    await brokers.source.send("a", "b", "c")
    link = await started(brokers, max_batch_size=3)
    await until(lambda: link.state is LinkState.RETRYING)
    await link.stop()
    assert brokers.graves.dead == []
    brokers.graves.refuse = 0
    if anew:
        link = brokers.link(quality_of_service=ONCE, max_batch_time_ms=20, max_batch_size=3)
    await link.start()
    await until(lambda: len(brokers.graves.dead) == 3)
    assert [dead.message.text for dead in brokers.graves.dead] == ["a", "b", "c"]
    assert link.status().counters.dead == {BridgeDeadReason.COMMIT_FAILURE: 3}
