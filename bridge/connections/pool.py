"""The connections of one factory and client identifier.

They are opened on demand, lent, and closed when they have been idle for long enough.

One pool is the connection of one link, the shared connection of a factory, or its pooled ones, by
its :attr:`Pool.kind`. Which links use which pool is said in :mod:`bridge.connections.connections`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.internet.defer import fail as failed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bridge.connections.administered import AdministeredFactory
from gateway.messaging.errors import ClientIdInUse, MessagingError, ProviderUnavailable
from gateway.messaging.provider import Connection
from gateway.reactor.deferreds import shield, timeout

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall

#: Seconds after which a client identifier that was in use is tried a second time.
CLIENT_ID_S: Final = 5.0
#: Seconds that closing one connection may take before it is left to itself; providers have shorter
#: limits of their own.
CLOSE_S: Final = 30.0

#: As in :meth:`gateway.messaging.provider.Provider.connect`.
Lost = Callable[[MessagingError], None]


class ConnectionKind(Enum):
    """How a link or a dead message queue has its connection.

    Open MQ, "Pooled, Shared, and Dedicated Connections".
    """

    #: Its own.
    DEDICATED = "D"
    #: Its own from :meth:`~bridge.connections.connections.ConnectionLender.borrow` until it is given back.
    POOLED = "P"
    #: One for all of a factory, because the factory has a client identifier.
    SHARED = "S"


class Lease:
    """A connection on loan, to use sessions of; not to close."""

    def __init__(self, opened: Opened, lost: Lost, log: Logger) -> None:
        self.connection: Final = opened.connection
        self._opened: Opened | None = opened
        self._lost: Final = lost
        self._log: Final = log
        self._ending: Deferred[None] | None = None

    def give_back(self, broken: bool = False) -> Deferred[None]:
        """Return the connection. Idempotent.

        Its sessions are closed, and ``lost`` is not called any more.

        :param broken: this connection must not be used again.
        :returns: fires, never with an error, when the connection is closed if this closes it, else
            at once.
        """
        opened, self._opened = self._opened, None
        if opened is not None:
            self._ending = opened.given_back(self, broken)
        return succeed(None) if self._ending is None else shield(self._ending)

    def lose(self, error: MessagingError) -> None:
        """Report that the connection has ended."""
        self._opened = None
        try:
            self._lost(error)
        except Exception:  # noqa: BLE001
            # The others who have it must be told nevertheless.
            self._log.failure("who had a connection failed when told that it is lost")


class Opened:
    """A connection of a pool that is open, or about to be."""

    connection: Connection

    def __init__(self, pool: Pool) -> None:
        self.leases: dict[Lease, None] = {}
        #: Whether it may be lent.
        self.sound = True
        #: Why it was lost.
        self.error: MessagingError | None = None
        #: Closes it when it has been idle for long enough.
        self.timer: IDelayedCall | None = None
        self._pool: Final = pool
        self._closing: Deferred[None] | None = None

    def lend(self, lost: Lost) -> Lease:
        self.stop_timer()
        lease = Lease(self, lost, self._pool.log)
        self.leases[lease] = None
        return lease

    def given_back(self, lease: Lease, broken: bool) -> Deferred[None]:
        self.leases.pop(lease, None)
        if broken:
            self.sound = False
        return self._pool.given_back(self)

    def stop_timer(self) -> None:
        """It is not idle, as somebody has it, or it is closed."""
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        self.timer = None

    def lose(self, error: MessagingError) -> None:
        """It has ended, as the provider says.

        This may come before :attr:`connection` is set.
        """
        if self._closing is None and self.error is None:
            self.error = error
            self.sound = False
            self.stop_timer()
            leases, self.leases = self.leases, {}
            self._pool.lost(self, idle=not leases)
            for lease in leases:
                lease.lose(error)

    def withdraw(self, error: MessagingError) -> None:
        """Take it from those who have it, and tell them why."""
        leases, self.leases = self.leases, {}
        for lease in leases:
            lease.lose(error)

    def close(self) -> Deferred[None]:
        """Close it, once.

        :returns: fires, never with an error, when it is closed, or was not within :data:`CLOSE_S`.
        """
        self.sound = False
        self.stop_timer()
        if self._closing is None:
            self._closing = Deferred.fromCoroutine(self._close())
        return shield(self._closing)

    async def _close(self) -> None:
        pool = self._pool
        if not await timeout(pool.reactor, CLOSE_S, Deferred.fromCoroutine(self._close_now())):
            pool.log.warn(
                "{what}: it is not closed after {seconds:g} s, and is left to itself",
                what=pool.what,
                seconds=CLOSE_S,
            )

    async def _close_now(self) -> None:
        try:
            await self.connection.close()
        except Exception:  # noqa: BLE001
            # A provider of another package may break the promise that closing never fails.
            self._pool.log.failure("{what}: closing it failed", what=self._pool.what)


class Pool:
    """Connections of one factory.

    :param reactor: Twisted's, for time.
    :param client_id: of each connection; None is the factory's own.
    :param kind: None finds it out by the first connection: SHARED if the factory gives it a client
        identifier, else POOLED.
    :param linger_s: seconds that an idle connection stays open; None is for ever, 0 not at all.
    :param log: the bridge's.
    :param holder: whose they are, for operators.
    """

    def __init__(
        self,
        reactor: Any,
        factory: AdministeredFactory,
        client_id: str | None,
        kind: ConnectionKind | None,
        linger_s: float | None,
        log: Logger,
        holder: str = "",
    ) -> None:
        self.reactor: Final = reactor
        self.log: Final = log
        self.factory: Final = factory
        self.holder: Final = holder
        self.kind = kind
        #: Its connections' name in the log.
        self.what: Final = f"connection of connection-factory {factory.config.ref_name}"
        self._client_id: Final = client_id
        self._linger_s: Final = linger_s
        #: Those that lend from here.
        self._lenders: Final[set[object]] = set()
        #: Whether the factory's configuration has changed since a lender joined.
        self._outdated = False
        #: Why no connection can be had any longer.
        self._closed: ProviderUnavailable | None = None
        #: Those that are open, that given back last at the end.
        self._opened: Final[dict[Opened, None]] = {}
        #: Those that are being closed, until they are.
        self._closing: Final[dict[Opened, None]] = {}
        #: Attempts to connect whose result is wanted, with the pause before a second try.
        self._attempts: dict[Opened, Deferred[None] | None] = {}
        #: Who waits, in order: whom to tell of a loss, and of which lender.
        self._takers: dict[Deferred[Lease], tuple[Lost, object]] = {}
        self._all_back: list[Deferred[None]] = []

    @property
    def in_use(self) -> int:
        return sum(1 for opened in self._opened if opened.leases)

    @property
    def open(self) -> list[Connection]:
        return [opened.connection for opened in self._opened]

    @property
    def idle(self) -> int:
        return len(self._opened) - self.in_use

    @property
    def leases(self) -> int:
        """How many times connections are lent now."""
        return sum(len(opened.leases) for opened in self._opened)

    @property
    def lent_from(self) -> bool:
        """Whether anybody lends from here: has joined and not left."""
        return bool(self._lenders)

    @property
    def worth_keeping(self) -> bool:
        """Whether the next lender could use what is here.

        That is a connection, or an attempt to have one, by the configuration as it is now.
        """
        return not self._outdated and bool(self._opened or self._attempts)

    @property
    def ended(self) -> ProviderUnavailable:
        """The error of borrowing from a lender that is closed."""
        return ProviderUnavailable(
            f"the use of connection-factory '{self.factory.config.ref_name}' has ended"
        )

    # --- lending

    def join(self, lender: object) -> None:
        """Have one more lender, which knows the configuration as it is now."""
        self._lenders.add(lender)
        self._outdated = False

    def leave(self, lender: object) -> None:
        """Have this lender no more; those who wait for it fail. Idempotent."""
        self._lenders.discard(lender)
        for taker in [taker for taker, (_, of) in self._takers.items() if of is lender]:
            del self._takers[taker]
            taker.errback(self.ended)

    def borrow(self, lost: Lost, lender: object) -> Deferred[Lease]:
        """Lend a connection, by this lender."""
        if self._closed is not None:
            return failed(self._closed)
        found = self._available()
        if found is not None:
            return succeed(found.lend(lost))
        # If the taker is cancelled, the attempt goes on: cancelling it could leave an open connection
        # behind.
        taker: Deferred[Lease] = Deferred(lambda taker: self._takers.pop(taker, None) and None)
        self._takers[taker] = lost, lender
        self._connect()
        return taker

    def invalidate(self) -> None:
        """Lend only what is opened from now on: the configuration has changed."""
        self._outdated = True
        self._renew()

    def _renew(self) -> None:
        """Lend no connection that is open or being opened; close idle ones."""
        for opened in list(self._opened):
            opened.sound = False
            if not opened.leases:
                self._close(opened)
        attempts, self._attempts = self._attempts, {}
        for pause in attempts.values():
            if pause is not None:
                pause.cancel()
        self._connect()

    def all_back(self) -> Deferred[None]:
        """Fires when no connection is lent."""
        back: Deferred[None] = Deferred()
        self._all_back.append(back)
        self._tell_all_back()
        return back

    def refuse(self, error: ProviderUnavailable) -> None:
        """Lend no more: fail those who wait, and those who come, with this.

        Close what is idle, now or when it is given back.
        """
        self._closed = error
        self._renew()
        takers, self._takers = self._takers, {}
        for taker in takers:
            taker.errback(error)

    def close(self, error: ProviderUnavailable, tell: bool = False) -> Deferred[None]:
        """Close every connection, also those that are lent.

        :param error: for those who wait.
        :param tell: whether those who have one are told that it is lost.
        :returns: fires when all are closed; attempts to connect are not waited for, and what comes
            of them is closed.
        """
        self.refuse(error)
        for opened in list(self._opened):
            self._close(opened)
            if tell:
                opened.withdraw(error)
        self._tell_all_back()
        return self.closings()

    def closings(self) -> Deferred[None]:
        """Fires when what is being closed now is closed."""
        return Deferred.fromCoroutine(_when_closed(self._closing))

    # --- what becomes of a connection

    def given_back(self, opened: Opened) -> Deferred[None]:
        """A lease was given back.

        :returns: fires when what becomes of the connection is done.
        """
        done: Deferred[None] = opened.close() if opened in self._closing else succeed(None)
        if opened in self._opened and not opened.leases:
            del self._opened[opened]
            self._opened[opened] = None
            done = self._rest(opened)
            self._serve()
        self._tell_all_back()
        return done

    def lost(self, opened: Opened, idle: bool) -> None:
        """A connection was lost.

        :param idle: it was not lent; else those who had it are told behind this.
        """
        if opened in self._opened:
            if idle:
                self.log.info(
                    "{what}: lost while it was not in use: {error}",
                    what=self.what,
                    error=opened.error,
                )
            # What the provider still keeps of it goes with this.
            self._close(opened)
        self._tell_all_back()

    def _rest(self, opened: Opened) -> Deferred[None]:
        # It may be idle already: a borrower may have returned it at once.
        opened.stop_timer()
        if not opened.sound or self._linger_s == 0:
            return self._close(opened)
        if self._linger_s is not None:
            opened.timer = self.reactor.callLater(self._linger_s, self._idle_for_long, opened)
        return succeed(None)

    def _idle_for_long(self, opened: Opened) -> None:
        self.log.debug(
            "{what}: closed after {seconds:g} s without use", what=self.what, seconds=self._linger_s
        )
        self._close(opened)

    def _close(self, opened: Opened) -> Deferred[None]:
        self._opened.pop(opened, None)
        self._closing[opened] = None
        return opened.close().addCallback(lambda _: self._closing.pop(opened, None))

    def _tell_all_back(self) -> None:
        if self._all_back and not self.leases:
            waiting, self._all_back = self._all_back, []
            for back in waiting:
                back.callback(None)

    # --- connecting

    def _available(self) -> Opened | None:
        several = self.kind is not ConnectionKind.POOLED
        for opened in reversed(self._opened):
            if opened.sound and (several or not opened.leases):
                return opened
        return None

    def _connect(self) -> None:
        """Make as many attempts as are needed.

        That is one for each who waits where each has a connection of its own, else one for all.
        """
        # Counted anew each time: an attempt may have succeeded before it returns.
        while self._closed is None and len(self._attempts) < (
            len(self._takers) if self.kind is ConnectionKind.POOLED else min(1, len(self._takers))
        ):
            opened = Opened(self)
            self._attempts[opened] = None
            Deferred.fromCoroutine(self._attempt(opened)).addErrback(self._defect)

    async def _attempt(self, opened: Opened) -> None:
        try:
            if self._client_id is not None or self.factory.client_id is not None:
                # One that is being closed keeps the client identifier until it is closed. One that
                # was lost does not.
                await _when_closed([one for one in self._closing if one.error is None])
                if opened not in self._attempts:
                    return
            error = await self._open(opened)
            if isinstance(error, ClientIdInUse) and opened in self._attempts:
                pause: Deferred[None] = deferLater(self.reactor, CLIENT_ID_S)
                self._attempts[opened] = pause
                await pause
                self._attempts[opened] = None
                error = await self._open(opened)
        except CancelledError:
            # Only the pause is ever cancelled, when the result is not wanted any more.
            return
        if opened not in self._attempts:
            if error is None:
                await opened.close()
            return
        del self._attempts[opened]
        if error is None:
            self._arrived(opened)
        else:
            self._refused(error)

    async def _open(self, opened: Opened) -> MessagingError | None:
        try:
            opened.connection = await self.factory.connect(self._client_id, opened.lose)
        except MessagingError as error:
            return error
        if opened.error is not None:
            await opened.close()
        return opened.error

    def _arrived(self, opened: Opened) -> None:
        if self.kind is None:
            self.kind = (
                ConnectionKind.POOLED if self.factory.client_id is None else ConnectionKind.SHARED
            )
        self._opened[opened] = None
        self._serve()
        if not opened.leases and opened in self._opened:
            self._rest(opened)
        self._connect()

    def _refused(self, error: MessagingError) -> None:
        """Fail those for whom no other attempt is under way."""
        while len(self._takers) > len(self._attempts):
            taker = next(iter(self._takers))
            del self._takers[taker]
            taker.errback(error)

    def _serve(self) -> None:
        """Lend what there is to those who wait."""
        served: list[tuple[Deferred[Lease], Lease]] = []
        while self._takers and (found := self._available()) is not None:
            taker = next(iter(self._takers))
            lost, _ = self._takers.pop(taker)
            served.append((taker, found.lend(lost)))
        # Only now, as the borrowers' callbacks may do anything.
        for taker, lease in served:
            taker.callback(lease)

    def _defect(self, failure: Any) -> None:
        """An attempt raised what the factory never raises: a defect of ours.

        Those who wait must not wait for ever.
        """
        self.log.failure(
            "{what}: connecting failed with what is no MessagingError", failure, what=self.what
        )
        self._attempts.clear()
        self._refused(ProviderUnavailable(f"{self.what}: {failure.type.__name__}"))


async def _when_closed(closing: Iterable[Opened]) -> None:
    await gatherResults([opened.close() for opened in closing])
