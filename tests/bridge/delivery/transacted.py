"""What tests of transacted links share: links, and providers that get in their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self, cast

from twisted.internet.defer import Deferred, fail, succeed

from bridge.config.model import QualityOfService
from bridge.jms_link import JMSLink
from gateway.messaging.destination import Topic
from gateway.messaging.errors import OutcomeUnknown, ProviderUnavailable, XAError
from gateway.messaging.message import Message
from gateway.messaging.provider import Provider, Vote, Xid
from gateway.reactor.deferreds import deferred
from tests.bridge.link_pair import SOURCE, TARGET, Away, Rig, Side

ONCE: Final = QualityOfService.ONCE_AND_ONLY_ONCE
NUMBERS: Final = [f"{number:02}" for number in range(60)]
TOPIC: Final = Topic("link.topic")
_RMERR, _HEURISTIC_ROLLBACK, _ROLLED_BACK = -3, 6, 100


def link(rig: Rig, **link: Any) -> JMSLink:
    return rig.link(**{"quality_of_service": ONCE, "max_batch_time_ms": 20, **link})


async def started(rig: Rig, **link: Any) -> JMSLink:
    return await rig.started(**{"quality_of_service": ONCE, "max_batch_time_ms": 20, **link})


async def nothing_is_left(rig: Rig) -> None:
    """Stop the links; then there are neither messages nor branches."""
    for link in rig.links:
        await link.stop()
    for side, queue in ((rig.source, SOURCE), (rig.target, TARGET)):
        assert await side.rest(queue) == []
        client = await side.seam.connect()
        assert list(await client.connection.xa_session().resource().recover()) == []
        await client.close()
    assert list(rig.coordinator().transactions()) == []


class Behind:
    """Answers like the object behind it, except for the attributes that it is given."""

    def __init__(self, behind: Any, **given: Callable[..., Any]) -> None:
        self._behind = behind
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class Altered(Behind):
    """A provider whose sessions, or their resources, are others than those behind it."""

    @classmethod
    def of(cls, side: Side, *given: Any, **named: Any) -> Self:
        """Put one in front of a broker."""
        made = cls(side.provider._provider, *given, **named)
        side.provider._provider = cast(Provider, made)
        return made

    def connect(self, *given: Any) -> Deferred[Any]:
        return self._behind.connect(*given).addCallback(  # type: ignore[no-any-return]
            lambda connection: Behind(
                connection,
                session=lambda mode: self.session(connection.session(mode)),
                xa_session=lambda: self.xa_session(connection.xa_session()),
            )
        )

    def session(self, session: Any) -> Any:
        return session

    def xa_session(self, session: Any) -> Any:
        resource = self.xa_resource(session.resource())
        return Behind(session, resource=lambda: resource)

    def xa_resource(self, behind: Any) -> Any:
        return behind


class Slow(Altered):
    """A provider whose first call of a kind waits.

    A prepare has been done by then, a commit has not.

    :param call: ``prepare`` or ``commit``.
    """

    def __init__(self, provider: Any, call: str) -> None:
        super().__init__(provider)
        self._call = call
        self._gate: Deferred[None] | None = None
        #: The branch that waits.
        self.waiting: Xid | None = None
        #: What was asked, and of which branch.
        self.asked: list[tuple[str, Xid | None]] = []

    async def waits(self, call: str, xid: Xid) -> None:
        self.asked.append((call, xid))
        if call == self._call and self._gate is None:
            self._gate = Deferred()
            self.waiting = xid
            await self._gate

    def let_go(self) -> None:
        assert self._gate is not None
        self._gate.callback(None)

    def xa_resource(self, behind: Any) -> Any:
        return _SlowResource(behind, self)


class _SlowResource(Behind):
    def __init__(self, behind: Any, side: Slow) -> None:
        super().__init__(behind)
        self._side = side

    @deferred
    async def prepare(self, xid: Xid) -> Vote:
        vote: Vote = await self._behind.prepare(xid)
        await self._side.waits("prepare", xid)
        return vote

    @deferred
    async def commit(self, xid: Xid, one_phase: bool) -> None:
        await self._side.waits("commit", xid)
        await self._behind.commit(xid, one_phase)

    def rollback(self, xid: Xid) -> Deferred[None]:
        self._side.asked.append(("rollback", xid))
        return self._behind.rollback(xid)  # type: ignore[no-any-return]

    def recover(self) -> Deferred[Any]:
        self._side.asked.append(("recover", None))
        return self._behind.recover()  # type: ignore[no-any-return]

    def is_same_rm(self, other: Any) -> Deferred[bool]:
        return succeed(other is self)


class Heuristic(Altered):
    """A provider that ends the first branch heuristically."""

    ended = False

    def xa_resource(self, behind: Any) -> Any:
        async def commit(xid: Xid, one_phase: bool) -> None:
            if self.ended:
                await behind.commit(xid, one_phase)
                return
            self.ended = True
            await behind.rollback(xid)
            raise XAError(_HEURISTIC_ROLLBACK, "it was here too long")

        return Behind(
            behind,
            commit=lambda xid, one_phase: Deferred.fromCoroutine(commit(xid, one_phase)),
            forget=lambda xid: succeed(None),
        )


class Unwilling(Altered):
    """A provider whose resource manager refuses some calls, and does nothing.

    :param calls: how many, by their names.
    """

    def __init__(self, provider: Any, **calls: int) -> None:
        super().__init__(provider)
        self._calls = calls

    def xa_resource(self, behind: Any) -> Any:
        return Behind(behind, **{call: self._cannot(behind, call) for call in self._calls})

    def _cannot(self, behind: Any, call: str) -> Callable[[Xid], Deferred[Any]]:
        def asked(xid: Xid) -> Deferred[Any]:
            if not self._calls[call]:
                return getattr(behind, call)(xid)  # type: ignore[no-any-return]
            self._calls[call] -= 1
            return fail(XAError(_RMERR, f"it cannot {call}"))

        return asked


class Refusing(Altered):
    """A target that will not prepare a message, and does not say which.

    :param bad: its text.
    """

    def __init__(self, provider: Any, bad: str) -> None:
        super().__init__(provider)
        self._bad = bad

    def xa_session(self, session: Any) -> Any:
        sent: list[str] = []
        behind = session.resource()

        def send(messages: Sequence[Message]) -> None:
            sent.extend([message.text for message in messages])
            session.send(messages)

        def start(xid: Xid, flags: Any) -> Deferred[None]:
            sent.clear()
            return behind.start(xid, flags)  # type: ignore[no-any-return]

        def prepare(xid: Xid) -> Deferred[Vote]:
            if self._bad in sent:
                return fail(XAError(_ROLLED_BACK, "not these"))
            return behind.prepare(xid)  # type: ignore[no-any-return]

        resource = Behind(behind, start=start, prepare=prepare)
        return Behind(session, send=send, resource=lambda: resource)


class Silent(Altered):
    """A target that takes the first message, and is away before it has said so."""

    def __init__(self, provider: Any, away: Away) -> None:
        super().__init__(provider)
        self._away = away
        self._said = False

    def session(self, session: Any) -> Any:
        def commit(done: Callable[[Any], None]) -> None:
            said, self._said = self._said, True
            if not said:
                self._away.error = ProviderUnavailable("it is away")
            session.commit(
                lambda failed: done(failed if said else OutcomeUnknown("its connection is lost"))
            )

        return Behind(session, commit=commit)
