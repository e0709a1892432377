"""The target of a link that transfers once: messages go out as work of a branch.

Owns one connection's XA session. Knows nothing of sources, and nothing of when a branch is
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred

from bridge.connections.connections import Way
from bridge.link.errors import Refused, TargetLost
from bridge.link.fair_share import FairShare
from bridge.link.target import TargetSession
from gateway.messaging.errors import (
    MessageRejected,
    MessagingError,
    OutcomeUnknown,
    ProviderUnavailable,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, XAResource, XASession

#: Messages handed over between two looks at whether others want the reactor.
SLICE: Final = 100


class OnceTarget(TargetSession[XASession]):
    """The target of one link.

    :param rm: names its resource manager. :param stays: whether the connection is kept between
        transactions.
    :param lost: called if the connection ends without being closed.
    """

    def __init__(self, way: Way, rm: str, stays: bool, lost: Callable[[TargetLost], None]) -> None:
        super().__init__(way, lost)
        #: Names the resource manager.
        self.rm: Final = rm
        #: Whether the connection is kept between transactions.
        self.stays: Final = stays

    @property
    def resource(self) -> XAResource:
        """The resource manager, for this target's session. :raises TargetLost:"""
        return self._open_session().resource()

    async def open(self) -> None:
        """Connect, if it is not connected. :raises TargetLost: its ``cause`` is of
        :meth:`Provider.connect` or :meth:`Connection.xa_session`.
        """
        if self._session is None:
            await self._take()

    def renew(self) -> None:
        """Have another session, after a branch was rolled back. :raises TargetLost:"""
        self._open_session().close()
        assert self._lease is not None
        try:
            self._session = self._session_of(self._lease.connection)
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error

    async def send(self, messages: Sequence[Message], share: FairShare) -> Deferred[None]:
        """Send these as work of the branch that was begun.

        :param share: of the reactor's time. :returns: that the target has taken them all, for the
            branch; fails as this does. Where it has not, the branch cannot be prepared.
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
        """A transaction is done with: let go of the connection, if it is not kept.

        :raises TargetLost: while the target held it back; the session is told of that, and another
            would not be.
        """
        if not self.stays:
            if self._session is not None:
                await self._writable()
            await self.let_go()

    def _session_of(self, connection: Connection) -> XASession:
        return connection.xa_session()


def _rejected(rejected: MessageRejected, before: int) -> MessagingError:
    """:param before: how many were handed over before those among which it counts."""
    if isinstance(rejected.cause, ProviderUnavailable):
        return TargetLost(rejected.cause, sent=False)
    return Refused(rejected.cause, before + rejected.index, sent=False)
