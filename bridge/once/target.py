"""The target of a link that transfers once: messages go out as work of a branch.

Owns one connection's XA session. Knows nothing of sources, and nothing of when a branch is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred

from bridge.connections import ConnectionKind, Lease, Way
from bridge.fair_share import FairShare
from bridge.target import Refused, TargetLost
from gateway.messaging.errors import MessageRejected, MessagingError, OutcomeUnknown, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import XAResource, XASession

#: Messages handed over between two looks at whether others want the reactor.
SLICE: Final = 100


class OnceTarget:
    """The target of one link.

    :param rm: names its resource manager. :param stays: whether the connection is kept between transactions.
    :param lost: called if the connection ends without being closed.
    """

    def __init__(self, way: Way, rm: str, stays: bool, lost: Callable[[TargetLost], None]) -> None:
        #: What the provider calls itself.
        self.product = ""
        self._way: Final = way
        #: Names the resource manager.
        self.rm: Final = rm
        self._stays: Final = stays
        self._tell_lost: Final = lost
        self._lease: Lease | None = None
        self._session: XASession | None = None
        #: Waits for the session to take more.
        self._room: Deferred[None] | None = None

    @property
    def kind(self) -> ConnectionKind | None:
        """How it is connected; None until that is known."""
        return self._way.kind

    @property
    def ready(self) -> bool:
        """Whether it is connected."""
        return self._session is not None

    @property
    def resource(self) -> XAResource:
        """The resource manager, for this target's session. :raises TargetLost:"""
        return self._open_session().resource()

    async def open(self) -> None:
        """Connect, if it is not connected. :raises TargetLost: its ``cause`` is of :meth:`Provider.connect` or :meth:`Connection.xa_session`."""
        if self._session is not None:
            return
        lease: Lease | None = None

        def lost(error: MessagingError) -> None:
            # Of one that was given back meanwhile nobody wants to know.
            if lease is not None and lease is self._lease:
                self._lease = self._session = None
                lease.give_back(broken=True)
                self._no_room(error)
                self._tell_lost(TargetLost(error, sent=False))

        try:
            lease = await self._way.take(lost)
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error
        self._lease = lease
        self.product = lease.connection.product
        try:
            self._session = lease.connection.xa_session()
        except MessagingError as error:
            await self._give_back(broken=True)
            raise TargetLost(error, sent=False) from error

    def renew(self) -> None:
        """Have another session, after a branch was rolled back. :raises TargetLost:"""
        self._open_session().close()
        assert self._lease is not None
        try:
            self._session = self._lease.connection.xa_session()
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error

    async def send(self, messages: Sequence[Message], share: FairShare) -> Deferred[None]:
        """Send these as work of the branch that was begun.

        :param share: of the reactor's time. :returns: that the target has taken them all, for the branch; fails as this does. Where it has not, the branch
            cannot be prepared.
        :raises Refused: and the branch is to be rolled back. :raises TargetLost: likewise.
        """
        for begin in range(0, len(messages), SLICE):
            session = await self._writable()
            began = share.now()
            try:
                session.send(messages[begin : begin + SLICE])
            except MessageRejected as rejected:
                raise _rejected(rejected, begin) from rejected
            except MessagingError as error:
                raise TargetLost(error, sent=False) from error
            share.worked_since(began)
            if share.due:
                await share.give()
        session = self._open_session()
        taken: Deferred[None] = Deferred()

        def done(failed: MessagingError | None) -> None:
            if failed is None:
                taken.callback(None)
            elif isinstance(failed, OutcomeUnknown | ProviderUnavailable):
                taken.errback(TargetLost(failed, sent=False))
            elif isinstance(failed, MessageRejected):
                taken.errback(_rejected(failed, 0))
            else:
                taken.errback(Refused(failed, 0 if len(messages) == 1 else None, sent=False))

        try:
            session.completion(done)
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error
        return taken

    async def rest(self) -> None:
        """A transaction is done with: let go of the connection, if it is not kept."""
        if not self._stays:
            await self._give_back()

    async def close(self) -> None:
        """Let go of the connection."""
        self._no_room(ProviderUnavailable("the link's target is closed"))
        await self._give_back()
        await self._way.close()

    async def let_go(self, broken: bool) -> None:
        """Give the connection back, to :meth:`open` another time. :param broken: nobody is to have it again."""
        await self._give_back(broken)

    # --- inside

    async def _give_back(self, broken: bool = False) -> None:
        lease, self._lease = self._lease, None
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if lease is not None:
            await lease.give_back(broken)

    async def _writable(self) -> XASession:
        while not (session := self._open_session()).writable():
            self._room = Deferred()
            session.on_writable(self._has_room)
            await self._room
        return session

    def _open_session(self) -> XASession:
        if self._session is None:
            raise TargetLost(ProviderUnavailable("its connection has ended"), sent=False)
        return self._session

    def _has_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _no_room(self, error: MessagingError) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.errback(TargetLost(error, sent=False))


def _rejected(rejected: MessageRejected, before: int) -> MessagingError:
    """:param before: how many were handed over before those among which it counts."""
    if isinstance(rejected.cause, ProviderUnavailable):
        return TargetLost(rejected.cause, sent=False)
    return Refused(rejected.cause, before + rejected.index, sent=False)
