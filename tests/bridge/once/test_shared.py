"""Two transacted links of one bridge that share both resource managers: what one recovers is never
a live transaction of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred, succeed

from bridge.config.model import QualityOfService
from bridge.status import LinkState
from gateway.messaging.destination import Queue
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.provider import Flags, Provider, Vote, Xid
from tests.bridge.linking import SOURCE, TARGET, Rig, until
from tests.on_reactor import on_reactor

ONCE: Final = QualityOfService.ONCE_AND_ONLY_ONCE
OTHER_SOURCE: Final = Queue("other.source")
OTHER_TARGET: Final = Queue("other.target")
NUMBERS: Final = [str(number) for number in range(20)]


class Resource:
    """An XAResource that tells what it is asked, and may let its first prepare or commit wait: a
    prepare has been done by then, a commit has not.
    """

    def __init__(self, behind: Any, side: Slow) -> None:
        self._behind = behind
        self._side = side

    def start(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._behind.start(xid, flags)  # type: ignore[no-any-return]

    def end(self, xid: Xid, flags: Flags) -> Deferred[None]:
        return self._behind.end(xid, flags)  # type: ignore[no-any-return]

    async def _prepare(self, xid: Xid) -> Vote:
        vote: Vote = await self._behind.prepare(xid)
        await self._side.waits("prepare", xid)
        return vote

    def prepare(self, xid: Xid) -> Deferred[Vote]:
        return Deferred.fromCoroutine(self._prepare(xid))

    async def _commit(self, xid: Xid, one_phase: bool) -> None:
        await self._side.waits("commit", xid)
        await self._behind.commit(xid, one_phase)

    def commit(self, xid: Xid, one_phase: bool) -> Deferred[None]:
        return Deferred.fromCoroutine(self._commit(xid, one_phase))

    def rollback(self, xid: Xid) -> Deferred[None]:
        self._side.asked.append(("rollback", xid))
        return self._behind.rollback(xid)  # type: ignore[no-any-return]

    def recover(self) -> Deferred[Any]:
        self._side.asked.append(("recover", None))
        return self._behind.recover()  # type: ignore[no-any-return]

    def is_same_rm(self, other: Any) -> Deferred[bool]:
        return succeed(other is self)

    def forget(self, xid: Xid) -> Deferred[None]:
        self._side.asked.append(("forget", xid))
        return self._behind.forget(xid)  # type: ignore[no-any-return]


class Behind:
    """What is as it is behind it, but for what it is given."""

    def __init__(self, behind: Any, **other: Callable[[], Any]) -> None:
        self._behind = behind
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return self._other.get(name) or getattr(self._behind, name)


class Slow:
    """A provider whose first call of a kind waits.

    :param call: ``prepare`` or ``commit``.
    """

    def __init__(self, provider: Provider, call: str) -> None:
        self._provider = provider
        self._call = call
        self._gate: Deferred[None] | None = None
        #: The branch that waits.
        self.waiting: Xid | None = None
        #: What was asked, and of which branch.
        self.asked: list[tuple[str, Xid | None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def waits(self, call: str, xid: Xid) -> None:
        self.asked.append((call, xid))
        if call == self._call and self._gate is None:
            self._gate = Deferred()
            self.waiting = xid
            await self._gate

    def let_go(self) -> None:
        assert self._gate is not None
        self._gate.callback(None)

    def connect(self, *given: Any) -> Deferred[Any]:
        def session(connection: Any) -> Behind:
            made = connection.xa_session()
            resource = Resource(made.resource(), self)
            return Behind(made, resource=lambda: resource)

        def connected(connection: Any) -> Behind:
            return Behind(connection, xa_session=lambda: session(connection))

        return self._provider.connect(*given).addCallback(connected)


@pytest.mark.parametrize("cut", ["source", "target", "both"])
@pytest.mark.parametrize("call", ["prepare", "commit"])
@on_reactor
async def test_a_link_that_reconnects_leaves_a_prepared_transaction_of_another_alone(
    brokers: Rig, call: str, cut: str
) -> None:
    slow = {}
    for side in (brokers.source, brokers.target):
        slow[side.config.ref_name] = Slow(side.provider._provider, call)
        side.provider._provider = slow[side.config.ref_name]
    other = await brokers.started(
        name="other", quality_of_service=ONCE, of=OTHER_SOURCE, to=OTHER_TARGET
    )
    others = {
        side.config.ref_name: list(side.provider._made) for side in (brokers.source, brokers.target)
    }
    await brokers.source.send(*NUMBERS)
    link = await brokers.started(quality_of_service=ONCE, max_batch_size=5, max_batch_time_ms=20)
    await until(lambda: all(one.waiting is not None for one in slow.values()))
    for one in slow.values():
        one.asked.clear()

    # Now both branches are prepared. The decision is missing still, or nobody has heard of it.
    for name, connections in others.items():
        if cut in (name, "both"):
            for connection in connections:
                connection.fail(ProviderUnavailable("its connection is cut"))
    await until(
        lambda: other.status().counters.reconnects == 1 and other.state is LinkState.STARTED
    )
    assert all(("recover", None) in one.asked for one in slow.values())
    await brokers.source.send("a", "b", to=OTHER_SOURCE)
    assert await brokers.target.texts(2, OTHER_TARGET) == ["a", "b"]
    for one in slow.values():
        assert one.waiting not in [xid for _, xid in one.asked]
    assert await brokers.target.rest(TARGET) == []

    for one in slow.values():
        one.let_go()
    assert await brokers.target.texts(20) == NUMBERS
    await until(lambda: link.status().counters.acknowledged == 20)
    assert link.status().counters.reconnects == 0
    for started in (link, other):
        await started.stop()
    for one in slow.values():
        assert "rollback" not in [
            asked for asked, xid in one.asked if xid is not None and xid == one.waiting
        ]
    assert await brokers.source.rest(SOURCE) == []
    assert list(brokers.coordinator().transactions()) == []
