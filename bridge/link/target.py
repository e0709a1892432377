"""The connected target of a link: sends, and reports what it has.

Owns connection and session: kept where the link stays connected, taken for each batch where it does
not. :class:`Target` sends runs that are durable by themselves; :class:`XATarget` sends as work of a
branch. Neither knows sources, what is done about a refused message, or when a branch is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from twisted.internet.defer import Deferred

from bridge.connections.connections import ConnectionKind, ConnectionLender, Lease
from bridge.link.errors import Refused, TargetLost
from gateway.messaging.errors import (
    MessageRejected,
    MessagingError,
    OutcomeUnknown,
    ProducersPaused,
    ProviderUnavailable,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Mode, Provider, Session, XAResource, XASession
from gateway.reactor.deferreds import FairShare

#: Messages handed over to a branch between two looks at whether others want the reactor.
SLICE: Final = 100

S = TypeVar("S", bound=Session)


class TargetSession(ABC, Generic[S]):
    """A session at a target, on a connection that is taken and given back.

    :param lost: called if the connection ends while it is held, without being closed.
    """

    def __init__(self, lender: ConnectionLender, lost: Callable[[TargetLost], None]) -> None:
        #: What the provider calls itself.
        self.product = ""
        self._lender: Final = lender
        self._on_lost: Final = lost
        self._lease: Lease | None = None
        self._session: S | None = None
        #: Why the last connection was lost.
        self._loss: MessagingError | None = None
        #: Waits for the session to take more.
        self._room: Deferred[None] | None = None

    @property
    def kind(self) -> ConnectionKind | None:
        """How it is connected; None until that is known."""
        return self._lender.kind

    @property
    def ready(self) -> bool:
        """Whether it is connected."""
        return self._session is not None

    async def open(self) -> None:
        """Connect, if it is not connected.

        :raises TargetLost: its ``cause`` is of :meth:`Provider.connect`, or why there is no session.
        """
        if self._session is None:
            await self._take()

    async def connection(self) -> Connection:
        """Return its connection, taking one first if necessary.

        It is kept until what is sent next has been sent.

        :raises TargetLost: as :meth:`open` does.
        """
        if self._session is None:
            await self._take()
        if self._lease is None:
            raise TargetLost(
                self._loss or ProviderUnavailable("its connection has ended"), sent=False
            )
        return self._lease.connection

    async def let_go(self, broken: bool = False) -> None:
        """Give the connection back. :param broken: it must not be used again."""
        lease, self._lease = self._lease, None
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if lease is not None:
            await lease.give_back(broken)

    async def close(self) -> None:
        """Let go of the connection."""
        self._no_room(ProviderUnavailable("the link's target is closed"))
        await self.let_go()
        await self._lender.close()

    # --- for those who use it

    @abstractmethod
    def _session_of(self, connection: Connection) -> S:
        """The session to have of a connection. :raises MessagingError:"""

    async def _take(self) -> None:
        """Borrow a connection.

        :raises TargetLost: its ``cause`` is of :meth:`Provider.connect` or of :meth:`_session_of`.
        """
        lease: Lease | None = None

        def lost(error: MessagingError) -> None:
            # One that was given back meanwhile does not matter.
            if lease is not None and lease is self._lease:
                self._lease = self._session = None
                self._loss = error
                lease.give_back(broken=True)
                self._no_room(error)
                self._on_lost(TargetLost(error, sent=False))

        try:
            lease = await self._lender.borrow(lost)
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error
        self._lease, self._loss = lease, None
        self.product = lease.connection.product
        try:
            self._session = self._session_of(lease.connection)
        except MessagingError as error:
            await self.let_go(broken=True)
            raise TargetLost(error, sent=False) from error

    def _open_session(self) -> S:
        """Open a session. :raises TargetLost: it cannot be had."""
        if self._session is None:
            raise TargetLost(
                self._loss or ProviderUnavailable("its connection has ended"), sent=False
            )
        return self._session

    async def _writable(self) -> S:
        """The session, once it takes more. :raises TargetLost:"""
        while not (session := self._open_session()).writable():
            self._room = Deferred()
            session.on_writable(self._has_room)
            await self._room
        return session

    async def _taking(self, messages: Sequence[Message], before: int) -> S:
        """Send these, waiting while their destination is paused for producers.

        :param before: how many were handed over before those among which they count.
        :returns: the session that has taken them.
        :raises Refused:
        :raises TargetLost:
        """
        while True:
            session = await self._writable()
            try:
                session.send(messages)
                return session
            except MessageRejected as rejected:
                if not isinstance(rejected.cause, ProducersPaused):
                    raise _rejected(rejected, before, sent=False) from rejected
            except MessagingError as error:
                raise TargetLost(error, sent=False) from error

    def _has_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _no_room(self, error: MessagingError) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.errback(TargetLost(error, sent=False))


class Target(TargetSession[Session]):
    """The target of one link.

    :param provider: what is behind ``lender``.
    :param stays: whether the connection is kept.
    :param batches: whether to send each run in a local transaction where the provider has these: it
        spares many a provider a write for each message, and the run arrives whole or not at all.
    :param lost: called if a kept connection ends without being closed.
    :param handed_over: called when the session has been given a run, before it has said that it is
        durable.
    """

    def __init__(
        self,
        lender: ConnectionLender,
        provider: Provider,
        stays: bool,
        batches: bool,
        lost: Callable[[TargetLost], None],
        handed_over: Callable[[], None],
    ) -> None:
        super().__init__(lender, lost)
        self._provider: Final = provider
        self._stays: Final = stays
        self._batches: Final = batches
        self._handed_over: Final = handed_over
        self._transacted = False

    async def open(self) -> None:
        """Connect, if not connected, or show that it would be possible.

        The latter where the link does not stay connected.

        :raises TargetLost: its ``cause`` is of :meth:`Provider.connect`.
        """
        await super().open()
        if not self._stays:
            await self.let_go()

    async def send(self, messages: Sequence[Message]) -> None:
        """Send in order; on return they are durable at the target, with ids.

        :raises Refused:
        :raises TargetLost:
        """
        if self._session is None:
            await self._take()
        broken = False
        try:
            await self._sent(messages)
        except TargetLost:
            broken = True
            raise
        finally:
            if broken or not self._stays:
                await self.let_go(broken)

    # --- inside

    def _session_of(self, connection: Connection) -> Session:
        self._transacted = self._batches and self._provider.capabilities.transacted
        return connection.session(Mode.TRANSACTED if self._transacted else Mode.AUTO)

    async def _sent(self, messages: Sequence[Message]) -> None:
        session = await self._taking(messages, 0)
        # Of what was sent outside of a transaction it is unknown, from here on, whether it has
        # arrived.
        doubtful = not self._transacted
        done: Deferred[MessagingError | None] = Deferred()
        try:
            if self._transacted:
                session.commit(done.callback)
            else:
                session.completion(done.callback)
        except MessagingError as error:
            raise TargetLost(error, doubtful) from error
        self._handed_over()
        failed = await done
        if failed is not None:
            sent = doubtful or isinstance(failed, OutcomeUnknown)
            raise _not_taken(failed, len(messages), sent) from failed


class XATarget(TargetSession[XASession]):
    """A target that takes messages as work of a branch.

    :param rm: names its resource manager.
    :param stays: whether the connection is kept between transactions.
    :param lost: called if the connection ends without being closed.
    """

    def __init__(
        self,
        lender: ConnectionLender,
        rm: str,
        stays: bool,
        lost: Callable[[TargetLost], None],
    ) -> None:
        super().__init__(lender, lost)
        #: Names the resource manager.
        self.rm: Final = rm
        #: Whether the connection is kept between transactions.
        self.stays: Final = stays

    @property
    def resource(self) -> XAResource:
        """The resource manager, for this target's session. :raises TargetLost:"""
        return self._open_session().resource()

    def renew(self) -> None:
        """Open another session, after a branch was rolled back.

        :raises TargetLost:
        """
        self._open_session().close()
        assert self._lease is not None
        try:
            self._session = self._session_of(self._lease.connection)
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error

    async def send(self, messages: Sequence[Message], share: FairShare) -> Deferred[None]:
        """Send these as work of the branch that was begun.

        :param share: of the reactor's time.
        :returns: that the target has taken them all, for the branch; fails as this does. Where it
            has not, the branch cannot be prepared.
        :raises Refused: and the branch is to be rolled back.
        :raises TargetLost: likewise.
        """
        for begin in range(0, len(messages), SLICE):
            await self._writable()
            began = share.now()
            await self._taking(messages[begin : begin + SLICE], begin)
            share.worked_since(began)
            if share.due:
                await share.give()
        session = self._open_session()
        taken: Deferred[None] = Deferred()

        def done(failed: MessagingError | None) -> None:
            if failed is None:
                taken.callback(None)
            else:
                taken.errback(_not_taken(failed, len(messages), sent=False))

        try:
            session.completion(done)
        except MessagingError as error:
            raise TargetLost(error, sent=False) from error
        return taken

    async def rest(self) -> None:
        """A transaction is done: let go of the connection, if it is not kept.

        :raises TargetLost: while the target held the session back. Only this session is told when
            that ends, so it is waited for.
        """
        if not self.stays:
            if self._session is not None:
                await self._writable()
            await self.let_go()

    def _session_of(self, connection: Connection) -> XASession:
        return connection.xa_session()


def _rejected(rejected: MessageRejected, before: int, sent: bool) -> TargetLost | Refused:
    """Return the error for a message that the target has rejected.

    :param before: how many were handed over before those among which it counts.
    """
    if isinstance(rejected.cause, ProviderUnavailable):
        return TargetLost(rejected.cause, sent)
    return Refused(rejected.cause, before + rejected.index, sent)


def _not_taken(failed: MessagingError, count: int, sent: bool) -> TargetLost | Refused:
    """Why the target has not made ``count`` messages its own."""
    if isinstance(failed, OutcomeUnknown | ProviderUnavailable):
        return TargetLost(failed, sent)
    if isinstance(failed, MessageRejected):
        return _rejected(failed, 0, sent)
    return Refused(failed, 0 if count == 1 else None, sent)
