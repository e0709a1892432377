"""Connections that may outlive a loss of their broker.

Each wraps a provider's connection. Where that is lost, the wrapper opens another one, and its user
notices a delay and nothing else, as long as nothing was lost with it that only the user can make
good. It may also be made before it is open.

What was sent and is not known to be durable is sent again, so it may arrive twice. Deliveries that
were outstanding are the broker's again: their numbers stay good, and settling them does nothing, as
they come again; a completion behind that fails. What cannot go on ends the connection: temporary
destinations and browsers are gone. A transaction that had begun is rolled back, and its commit
fails. Settlements of which a completion was to tell fail with it.

Besides, messages that the broker refuses after they were taken end the connection where no one has
asked for a completion, which would tell: a message that is refused must not vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.front.held_session import HeldSession
from gateway.front.reach import Reach
from gateway.front.refusals import check_open
from gateway.front.scheduler import Scheduler
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    ClientIdInUse,
    ClosedOverRefusal,
    MessagingError,
    ProviderUnavailable,
)
from gateway.messaging.provider import (
    Capabilities,
    Connection,
    Credentials,
    Mode,
    Provider,
    XASession,
)
from gateway.reactor.deferreds import deferred, shield

#: Seconds between two attempts to connect: the first pause, which doubles, and the longest.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
#: Losses one after the other, of a broker that answers nothing in between, that are waited for.
_MOST_LOSSES: Final = 3

_log: Final = Logger(namespace="gateway.front")

#: Opens a connection of the provider's.
Open: TypeAlias = Callable[[Callable[[MessagingError], None]], Deferred[Connection]]


class HeldProvider:
    """A provider whose connections may outlive it.

    :param provider: the broker, or the way to it.
    :param reactor: Twisted's, for time.
    :param hold_s: seconds that a connection waits for the broker; 0: a loss is told at once.
    :param name: of the broker.
    :param login: of the gateway itself; None where only its clients have one.
    :param may_have_exchanges: it may turn out to be a RabbitMQ.
    """

    def __init__(
        self,
        provider: Provider,
        reactor: Any,
        hold_s: float,
        name: str,
        login: Credentials | None,
        may_have_exchanges: bool = False,
    ) -> None:
        self._provider: Final = provider
        self._reactor: Final = reactor
        self._hold_s: Final = hold_s
        self.may_have_exchanges: Final = may_have_exchanges
        own = None if login is None else partial(provider.connect, login, None, _not_used)
        self.reach: Final = Reach(reactor, hold_s, name, own)
        self._scheduler: Final = Scheduler(provider, reactor, name)

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

        May be cancelled; what is opened meanwhile is then closed.
        """
        connection = self._made(credentials, client_id, lost)
        try:
            await connection.open()
        except BaseException as error:
            connection.close()
            if isinstance(error, ProviderUnavailable):
                self.reach.failed(error)
            raise
        return connection

    def later(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> HeldConnection:
        """Return a connection at once, and open it then.

        If that fails, it is ``lost``.
        """
        connection = self._made(credentials, client_id, lost)
        connection.begin()
        return connection

    def _made(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> HeldConnection:
        @deferred
        async def open(ended: Callable[[MessagingError], None]) -> Connection:
            connection = await self._provider.connect(credentials, client_id, ended)
            await self._scheduler.look(credentials)
            return connection

        return HeldConnection(
            open,
            self._reactor,
            self._hold_s,
            client_id,
            credentials.username,
            lost,
            self.reach,
            self._scheduler,
            self.may_have_exchanges,
        )


def _not_used(error: MessagingError) -> None:
    """A connection was lost that only showed that the broker is there."""


class HeldConnection:
    """One connection. Made by its provider.

    :param open: opens the one behind it.
    :param clock: the reactor.
    :param hold_s: how long it waits for the broker; 0: not.
    :param lost: of ``Provider.connect``.
    :param reach: told of what is opened and lost.
    :param scheduler: of the broker.
    :param may_have_exchanges: as for :class:`HeldProvider`.
    """

    #: The broker behind it does not say it.
    administers = False

    def __init__(
        self,
        open: Open,
        clock: Any,
        hold_s: float,
        client_id: str | None,
        username: str,
        lost: Callable[[MessagingError], None],
        reach: Reach,
        scheduler: Scheduler,
        may_have_exchanges: bool = False,
    ) -> None:
        self._open: Final = open
        self._clock: Final = clock
        self._hold_s: Final = hold_s
        self._client_id: Final = client_id
        self.user: Final = username
        self._lost: Final = lost
        self._reach: Final = reach
        self.scheduler: Final = scheduler
        self._may_have_exchanges: Final = may_have_exchanges
        self._inner: Connection | None = None
        #: Why nothing can be asked of it any more.
        self.error: MessagingError | None = None
        self._sessions: Final[dict[HeldSession, None]] = {}
        self._temporary = False
        self._pause = _FIRST_PAUSE
        self._timer: Any = None
        #: Losses since the broker has answered anything that was asked.
        self._losses = 0
        #: Ends the waiting.
        self._deadline: Any = None
        self._why: MessagingError = ProviderUnavailable("it is being connected to")
        #: Durable subscriptions that are to be removed when there is a broker.
        self._removing: list[tuple[str, Deferred[None]]] = []

    @property
    def client_id(self) -> str | None:
        return self._client_id if self._inner is None else self._inner.client_id

    @property
    def product(self) -> str:
        return "an unknown broker" if self._inner is None else self._inner.product

    @property
    def waits_for_broker(self) -> bool:
        """Whether a loss of the broker is waited for, and not told."""
        return self._hold_s > 0 and self.error is None

    @property
    def is_over(self) -> bool:
        """Whether nothing can be asked of it any more."""
        return self.error is not None

    # --- opening, and opening again

    async def open(self) -> None:
        """Open it for the first time; fails as ``Provider.connect``."""
        self._attach(await self._opened())

    def begin(self) -> None:
        """Open it for the first time, and be ``lost`` where that fails."""
        if self._hold_s:
            self._end_waiting_later()
        self._try()

    async def _opened(self) -> Connection:
        inner: Connection | None = None
        ended: list[MessagingError] = []

        def lost(error: MessagingError) -> None:
            ended.append(error)
            if inner is not None and inner is self._inner:
                self._away(error)

        opening = self._open(lost)
        # Not every provider closes what it opens after it was cancelled.
        opening.addCallback(self._kept)
        inner = await shield(opening)
        if self.error is not None or ended:
            raise self.error or ended[0]
        return inner

    def _kept(self, connection: Connection) -> Connection:
        if self.error is not None:
            connection.close()
        return connection

    def _attach(self, inner: Connection) -> None:
        self._inner = inner
        self._reach.reached()
        removing, self._removing = self._removing, []
        try:
            for session in list(self._sessions):
                session.attach(inner)
        except MessagingError as error:
            self.fail(error)
            for _, removed in removing:
                removed.errback(error)
            return
        for name, removed in removing:
            inner.unsubscribe(name).chainDeferred(removed)

    def _away(self, error: MessagingError) -> None:
        """The connection behind it is lost."""
        self._inner = None
        self.scheduler.lost()
        if self.error is not None:
            return
        if not isinstance(error, ClosedOverRefusal):
            self._reach.lost(error)
        tells = not self.waits_for_broker or self._temporary
        if tells or any(session.cannot_wait for session in self._sessions):
            self.fail(error)
            return
        if any(session.is_stuck for session in self._sessions):
            # What it is asked may be why it goes away.
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                self.fail(error)
                return
        else:
            self._losses = 0
            self._stop_waiting()
        for session in list(self._sessions):
            session.detach(error)
        self._why = error
        self._end_waiting_later()
        self._try_later()

    def _end_waiting_later(self) -> None:
        if self._deadline is None:
            self._deadline = self._clock.callLater(self._hold_s, self._too_late)

    def _too_late(self) -> None:
        """It has waited for as long as it may."""
        self._deadline = None
        if self._inner is None:
            self.fail(self._why)

    def _stop_waiting(self) -> None:
        self._pause = _FIRST_PAUSE
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _try_later(self) -> None:
        self._timer = self._clock.callLater(self._pause, self._try)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _try(self) -> None:
        self._timer = None
        Deferred.fromCoroutine(self._opened()).addCallbacks(self._attach, self._failed)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if self.error is not None:
            return
        if not isinstance(error, MessagingError):
            _log.failure("a connection could not be opened", failure)
            error = ProviderUnavailable("its connection could not be opened")
        # The broker may not know yet that the one before is lost, whose identifier is then in use.
        passes = isinstance(error, ProviderUnavailable | ClientIdInUse)
        if isinstance(error, ProviderUnavailable):
            self._reach.failed(error)
        if passes and self.waits_for_broker:
            self._why = error
            self._end_waiting_later()
            self._try_later()
        else:
            self.fail(error)

    def fail(self, error: MessagingError) -> None:
        """Lose it: what waits fails, and its user is told. Once."""
        if self.error is not None:
            return
        inner = self._end(error)
        if inner is not None:
            inner.close()
        self._lost(error)

    def _end(self, error: MessagingError) -> Connection | None:
        """Ask nothing more of it.

        :returns: the connection behind it, if there is one.
        """
        inner = self._stop(error)
        for session in list(self._sessions):
            session.lost(error)
        self._sessions.clear()
        return inner

    def _stop(self, error: MessagingError) -> Connection | None:
        self.error = error
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        inner, self._inner = self._inner, None
        removing, self._removing = self._removing, []
        for _, removed in removing:
            removed.errback(error)
        return inner

    # --- the seam

    def check_open(self) -> None:
        """:raises ProviderUnavailable: it is closed or lost."""
        check_open(self.error)

    def forget(self, session: HeldSession) -> None:
        """The session is closed."""
        self._sessions.pop(session, None)

    def exists(self, destination: Destination) -> bool | None:
        return None

    def has_exchanges(self, destination: Destination) -> bool:
        # A provider to which it turns out later that it has none refuses them then.
        return self._may_have_exchanges and (
            self._inner is None or self._inner.has_exchanges(destination)
        )

    def session(self, mode: Mode) -> HeldSession:
        self.check_open()
        session = HeldSession(self, self._clock, mode)
        if self._inner is not None:
            session.attach(self._inner)
        self._sessions[session] = None
        return session

    def xa_session(self) -> XASession:
        self.check_open()
        if self._inner is None:
            raise ProviderUnavailable("the broker is away")
        return self._inner.xa_session()

    def temporary(self, kind: Kind) -> Destination:
        self.check_open()
        if self._inner is None:
            raise ProviderUnavailable("the broker is away, and makes no temporary destination")
        made = self._inner.temporary(kind)
        self._temporary = True
        return made

    def renew(self, credentials: Credentials) -> Deferred[None]:
        if self._inner is None:
            return fail(ProviderUnavailable("the broker is away"))
        return self._inner.renew(credentials)

    def unsubscribe(self, durable_name: str) -> Deferred[None]:
        if self.error is not None:
            return fail(self.error)
        if self._inner is not None:
            return self._inner.unsubscribe(durable_name)
        removed: Deferred[None] = Deferred()
        self._removing.append((durable_name, removed))
        return removed

    def close(self) -> Deferred[None]:
        if self.error is not None:
            return succeed(None)
        inner = self._stop(ProviderUnavailable("the connection is closed"))
        if inner is not None:
            # It answers what its sessions were asked, which passes what they had to answer on.
            return inner.close().addCallback(lambda _: self._closed())
        self._closed()
        return succeed(None)

    def _closed(self) -> None:
        assert self.error is not None
        for session in list(self._sessions):
            session.closed(self.error)
        self._sessions.clear()
