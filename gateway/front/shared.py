"""Connections that many users of one broker share.

A connection of a JMS provider costs threads, and so does each of its sessions. Here a few
connections have as many users as there are. Consumers of one connection share its sessions, and who
sends has a session only until what was sent is durable: who is idle costs nothing.

A user with a client identifier has a connection of its own, as have its durable subscriptions.
Consumers of one session must be settled each for itself, as they are over JMS here.

What a shared connection cannot do is refused: not to receive what one has sent oneself, as the
broker cannot tell the users apart, and to recover a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, gatherResults, succeed

from gateway.front.refusals import check_open
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdRequired,
    InvalidDestination,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Capabilities,
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Deliver,
    Done,
    Mode,
    Provider,
    Session,
    XASession,
)
from gateway.reactor.deferreds import deferred, shield

#: Seconds that a connection stays open without users.
_LINGER_S: Final = 10.0
#: Sessions of one connection that are kept for the next who sends.
_KEPT: Final = 2


class SharedProvider:
    """A provider whose users share connections.

    :param provider: the broker, or the way to it. Its connections may have ``drop_temporary``,
        without which temporary destinations stay as long as the connection that they are of.
    :param reactor: Twisted's, for time.
    :param most: connections, besides those of users with client identifiers.
    """

    def __init__(self, provider: Provider, reactor: Any, most: int) -> None:
        self._provider: Final = provider
        self._reactor: Final = reactor
        self._most: Final = most
        self._lines: Final[list[_Line]] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._provider.capabilities

    @property
    def resource(self) -> str:
        return self._provider.resource

    @deferred
    async def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        """As the seam says.

        :param credentials: always the same.
        """
        if client_id:
            return await self._provider.connect(credentials, client_id, lost)
        line = min(self._lines, key=_Line.load, default=None)
        if line is None or (line.load() and len(self._lines) < self._most):
            line = _Line(self._provider, credentials, self._reactor, self._lines)
            self._lines.append(line)
        return await line.join(lost)

    def close(self) -> None:
        """Close connections without users at once."""
        for line in list(self._lines):
            line.end_if_idle()


class _Line:
    """One connection that is shared.

    :param lines: those there are, of which it takes itself out.
    """

    def __init__(
        self, provider: Provider, credentials: Credentials, reactor: Any, lines: list[_Line]
    ) -> None:
        self.provider: Final = provider
        self._credentials: Final = credentials
        self._reactor: Final = reactor
        self._lines: Final = lines
        self.users: Final[dict[SharedConnection, None]] = {}
        self._joining = 0
        self._opening: Deferred[None] | None = None
        self._inner: Connection | None = None
        self._sessions: Final[dict[Mode, Session]] = {}
        self._free: Final[dict[Mode, list[Session]]] = {}
        self._timer: Any = None

    def load(self) -> int:
        """How many use it."""
        return len(self.users) + self._joining

    @property
    def inner(self) -> Connection:
        """The connection. :raises ProviderUnavailable: it is lost."""
        if self._inner is None:
            raise ProviderUnavailable("the connection is lost")
        return self._inner

    async def join(self, lost: Callable[[MessagingError], None]) -> SharedConnection:
        """Use it; the first opens it. Fails as ``Provider.connect``."""
        self._joining += 1
        try:
            while self._inner is None:
                opening = self._opening
                if opening is None:
                    opening = Deferred.fromCoroutine(self._open())
                    opening.addErrback(self._not_opened)
                    if not opening.called:
                        self._opening = opening
                await shield(opening)
        finally:
            self._joining -= 1
            self._look()
        user = SharedConnection(self, self._reactor, lost)
        self.users[user] = None
        return user

    async def _open(self) -> None:
        lost: list[MessagingError] = []

        def ended(error: MessagingError) -> None:
            lost.append(error)
            self._lost(error)

        inner = await self.provider.connect(self._credentials, None, ended)
        self._opening = None
        if lost:
            raise lost[0]
        self._inner = inner

    def _not_opened(self, failure: Any) -> Any:
        self._opening = None
        self._leave()
        return failure

    def _lost(self, error: MessagingError) -> None:
        self._inner = None
        self._sessions.clear()
        self._free.clear()
        self._leave()
        users = list(self.users)
        self.users.clear()
        for user in users:
            user.fail(error)

    def _leave(self) -> None:
        if self in self._lines:
            self._lines.remove(self)

    def left(self, user: SharedConnection) -> None:
        """It uses it no more."""
        self.users.pop(user, None)
        self._look()

    def _look(self) -> None:
        if not self.load() and self._inner is not None and self._timer is None:
            self._timer = self._reactor.callLater(_LINGER_S, self.end_if_idle)

    def end_if_idle(self) -> None:
        """Close it where no user uses it."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self.load() or self._inner is None:
            return
        inner, self._inner = self._inner, None
        self._leave()
        inner.close()

    # --- sessions

    def receiving(self, mode: Mode) -> Session:
        """The session of the connection's consumers that are settled like that."""
        if mode not in self._sessions:
            self._sessions[mode] = self.inner.session(mode)
        return self._sessions[mode]

    def lend(self, mode: Mode) -> Session:
        """A session of one's own, until it is given back."""
        free = self._free.get(mode)
        return free.pop() if free else self.inner.session(mode)

    def give_back(self, mode: Mode, session: Session) -> None:
        """A session in which nothing is open or waits any more."""
        free = self._free.setdefault(mode, [])
        if self._inner is None or len(free) >= _KEPT:
            session.close()
        else:
            free.append(session)

    def drop(self, temporary: Iterable[Destination]) -> None:
        """These temporary destinations have no user any more."""
        drop = getattr(self._inner, "drop_temporary", None)
        if drop is not None:
            for destination in temporary:
                drop(destination)

    def settled(self) -> Deferred[None]:
        """Fire when what the shared sessions were asked is done; never fails."""
        if self._inner is None:
            return succeed(None)
        done = []
        for session in self._sessions.values():
            one: Deferred[MessagingError | None] = Deferred()
            session.completion(one.callback)
            done.append(one)
        return gatherResults(done).addCallback(self._judged)

    def _judged(self, errors: Sequence[MessagingError | None]) -> None:
        for error in errors:
            if isinstance(error, ProviderUnavailable):
                self.doubt(error)

    def doubt(self, error: ProviderUnavailable) -> None:
        """Something failed for one of its users, and which of them is not known.

        So it is lost for all, if it is not lost anyway.
        """
        inner = self._inner
        if inner is not None:
            self._lost(error)
            inner.close()


class SharedConnection:
    """One user's part of a shared connection. Made by its provider."""

    #: The provider does not say it.
    administers = False
    client_id = None

    def __init__(self, line: _Line, reactor: Any, lost: Callable[[MessagingError], None]) -> None:
        self.line: Final = line
        self.reactor: Final = reactor
        self._lost: Final = lost
        self.error: MessagingError | None = None
        self.temporary_destinations: Final[set[Destination]] = set()
        self._sessions: Final[dict[SharedSession | LentSession, None]] = {}

    @property
    def user(self) -> str:
        return self.line.inner.user

    @property
    def product(self) -> str:
        return self.line.inner.product

    def check_open(self) -> None:
        """:raises ProviderUnavailable: it is closed or lost."""
        check_open(self.error)

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        return False

    def session(self, mode: Mode) -> SharedSession | LentSession:
        self.check_open()
        if mode is Mode.INDIVIDUAL and not self.line.provider.capabilities.individual:
            raise NotSupported("acknowledgement one by one")
        together = mode in (Mode.CLIENT, Mode.INDIVIDUAL)
        session = SharedSession(self, mode) if together else LentSession(self, mode)
        self._sessions[session] = None
        return session

    def ended(self, session: SharedSession | LentSession) -> None:
        """A session was closed."""
        self._sessions.pop(session, None)

    def xa_session(self) -> XASession:
        self.check_open()
        return self.line.inner.xa_session()

    def temporary(self, kind: Kind) -> Destination:
        self.check_open()
        made = self.line.inner.temporary(kind)
        self.temporary_destinations.add(made)
        return made

    def renew(self, credentials: Credentials) -> Deferred[None]:
        return fail(NotSupported("new credentials"))

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        return fail(self.error or ClientIdRequired(durable_name))

    def check(self, spec: ConsumerSpec) -> None:
        """Check what a consumer may be.

        :raises MessagingError: a user of a shared connection cannot have it.
        """
        destination = spec.destination
        if destination.temporary and destination not in self.temporary_destinations:
            raise InvalidDestination(
                destination,
                "only the connection that created a temporary destination may consume from it",
            )
        if spec.durable_name is not None:
            raise ClientIdRequired(spec.durable_name)
        if spec.no_local:
            raise NotSupported("no-local on a connection that it shares")

    def fail(self, error: MessagingError) -> None:
        """The shared connection is lost, and has answered what was asked of it."""
        if self.error is None:
            self.error = error
            self._sessions.clear()
            self._lost(error)

    def close(self) -> Deferred[None]:
        if self.error is not None:
            return succeed(None)
        for session in list(self._sessions):
            session.close()
        self.error = ProviderUnavailable("the connection is closed")
        return self.line.settled().addCallback(lambda _: self._gone())

    def _gone(self) -> None:
        self.line.drop(self.temporary_destinations)
        self.line.left(self)


class LentSession:
    """A session that has one of the connection's while it needs it.

    With a consumer it keeps it.
    """

    def __init__(self, connection: SharedConnection, mode: Mode) -> None:
        self._connection: Final = connection
        self._mode: Final = mode
        self._inner: Session | None = None
        #: Answers that are to come, and whether something was asked since the last was asked for.
        self._waiting = 0
        self._open = False
        self._has_consumers = False
        self._closed = False

    @property
    def inner(self) -> Session:
        """The session that it has now."""
        self._connection.check_open()
        if self._closed:
            raise ProviderUnavailable("the session is closed")
        if self._inner is None:
            self._inner = self._connection.line.lend(self._mode)
        return self._inner

    def send(self, messages: Sequence[Message]) -> None:
        self.inner.send(messages)
        self._open = True

    def writable(self) -> bool:
        return self._inner is None or self._inner.writable()

    def on_writable(self, resume: Callable[[], None]) -> None:
        if self._inner is None:
            self._connection.reactor.callLater(0, resume)
        else:
            self._inner.on_writable(resume)

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> Consumer:
        self._connection.check(spec)
        made = self.inner.consumer(spec, deliver, failed)
        self._has_consumers = True
        return made

    def completion(self, done: Done) -> None:
        if self._mode is Mode.TRANSACTED:
            self.inner.completion(self._answering(done))
        else:
            self._ask(self.inner.completion, done)

    def commit(self, done: Done) -> None:
        self._ask(self.inner.commit, done)

    def rollback(self, done: Done) -> None:
        self._ask(self.inner.rollback, done)

    def recover(self) -> None:
        self.inner.recover()

    def _ask(self, ask: Callable[[Done], None], done: Done) -> None:
        ask(self._answering(done))
        self._open = False

    def _answering(self, done: Done) -> Done:
        self._waiting += 1

        def answered(error: MessagingError | None) -> None:
            self._waiting -= 1
            done(error)
            self._give_back()

        return answered

    def _give_back(self) -> None:
        inner, busy = self._inner, self._waiting or self._open or self._has_consumers
        if inner is not None and not busy:
            self._inner = None
            self._connection.line.give_back(self._mode, inner)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._connection.ended(self)
        self._give_back()
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()


class SharedSession:
    """A session whose consumers are those of a session of the connection's."""

    def __init__(self, connection: SharedConnection, mode: Mode) -> None:
        self._connection: Final = connection
        self._mode: Final = mode
        self._consumers: Final[list[Consumer]] = []
        self._sending: LentSession | None = None
        self._closed = False

    @property
    def _inner(self) -> Session:
        self._connection.check_open()
        if self._closed:
            raise ProviderUnavailable("the session is closed")
        return self._connection.line.receiving(self._mode)

    @property
    def _sender(self) -> LentSession:
        if self._sending is None:
            self._sending = LentSession(self._connection, Mode.AUTO)
        return self._sending

    def send(self, messages: Sequence[Message]) -> None:
        self._sender.send(messages)

    def writable(self) -> bool:
        return self._sender.writable()

    def on_writable(self, resume: Callable[[], None]) -> None:
        self._sender.on_writable(resume)

    def consumer(
        self, spec: ConsumerSpec, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> Consumer:
        self._connection.check(spec)
        made = self._inner.consumer(spec, deliver, failed)
        self._consumers.append(made)
        return made

    def completion(self, done: Done) -> None:
        line = self._connection.line

        def told(error: MessagingError | None) -> None:
            if isinstance(error, ProviderUnavailable):
                # Whose it is that failed is not known.
                line.doubt(error)
            done(error)

        if self._sending is None:
            self._inner.completion(told)
            return
        errors: list[MessagingError | None] = []

        def answered(error: MessagingError | None) -> None:
            errors.append(error)
            if len(errors) == 2:
                told(errors[0] or errors[1])

        self._inner.completion(answered)
        self._sending.completion(answered)

    def commit(self, done: Done) -> None:
        raise NotSupported("commit and rollback outside of a transacted session")

    def rollback(self, done: Done) -> None:
        raise NotSupported("commit and rollback outside of a transacted session")

    def recover(self) -> None:
        raise NotSupported("recover on a connection that it shares")

    def close(self) -> None:
        if self._closed:
            return
        for consumer in self._consumers:
            consumer.close(True)
        self._closed = True
        if self._sending is not None:
            self._sending.close()
        self._connection.ended(self)
