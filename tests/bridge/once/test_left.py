"""A transaction that is refused, and that a resource manager does not roll back when it is asked
to: what is behind its messages waits for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from gateway.messaging.destination import Topic
from gateway.messaging.errors import XAError
from gateway.messaging.provider import Provider, Vote, Xid
from tests.bridge.linking import SOURCE, Rig, until
from tests.bridge.once.test_once_link import NUMBERS, nothing_is_left, started
from tests.bridge.once.test_shared import Behind
from tests.on_reactor import on_reactor

TOPIC = Topic("link.topic")
_RMERR = -3


class Unwilling:
    """A provider whose resource manager says of some calls that it cannot, and has done nothing.

    :param calls: how many, by their names.
    """

    def __init__(self, provider: Provider, **calls: int) -> None:
        self._provider = provider
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def connect(self, *given: Any) -> Deferred[Any]:
        return self._provider.connect(*given).addCallback(
            lambda connection: Behind(
                connection, xa_session=lambda: self._session(connection.xa_session())
            )
        )

    def _session(self, session: Any) -> Any:
        resource = _Resource(session.resource(), self._calls)
        return Behind(session, resource=lambda: resource)


class _Resource:
    def __init__(self, behind: Any, calls: dict[str, int]) -> None:
        self._behind = behind
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        return self._cannot("prepare") or self._behind.prepare(xid)

    def rollback(self, xid: Xid) -> Deferred[None]:
        return self._cannot("rollback") or self._behind.rollback(xid)

    def _cannot(self, call: str) -> Deferred[Any] | None:
        if not self._calls.get(call):
            return None
        self._calls[call] -= 1
        return fail(XAError(_RMERR, f"it cannot {call}"))


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
    refuses.provider._provider = Unwilling(refuses.provider._provider, prepare=1)
    # The first attempt to recover is in vain, too.
    leaves.provider._provider = Unwilling(leaves.provider._provider, rollback=2)
    for each in (refuses, leaves):
        each.factory.config = replace(each.config, multi_rm=several)
    await brokers.source.send(*NUMBERS)
    link = await started(brokers, max_batch_size=size, max_batch_time_ms=20)
    assert await brokers.target.texts(60) == NUMBERS
    await until(lambda: not link.status().in_flight)
    await link.stop()
    assert any("it cannot rollback" in line for line in brokers.warned)
    await nothing_is_left(brokers)


@on_reactor
async def test_a_source_that_must_be_kept_recovers_as_well(brokers: Rig) -> None:
    """A topic without a durable subscription: its session has all that the link will ever get of
    it.
    """
    brokers.target.provider._provider = Unwilling(brokers.target.provider._provider, prepare=1)
    brokers.source.provider._provider = Unwilling(brokers.source.provider._provider, rollback=1)
    link = await started(brokers, of=TOPIC, max_batch_size=5, max_batch_time_ms=20)
    await brokers.source.send(*NUMBERS, to=TOPIC)
    assert await brokers.target.texts(60) == NUMBERS
    await until(lambda: not link.status().in_flight)
    await link.stop()
    assert await brokers.source.rest(SOURCE) == []
    assert list(brokers.coordinator().transactions()) == []
