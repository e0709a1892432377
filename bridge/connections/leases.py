"""Connections on loan: one that is open, those who have it, and what becomes of them when it is
given back or lost.

Owns a single connection's leases, its loss and its end. Who may have it, and how long it stays
open, is :mod:`bridge.connections.pool`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from gateway.messaging.errors import MessagingError

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall

    from gateway.messaging.provider import Connection

#: Seconds that closing one connection may take before it is left to itself; providers have shorter
#: limits of their own.
CLOSE_S: Final = 30.0

#: As in :meth:`gateway.messaging.provider.Provider.connect`.
Lost = Callable[[MessagingError], None]


class ConnectionKind(Enum):
    """How a link or a dead message queue has its connection (seed 003, "Pooled, Shared, and
    Dedicated Connections").
    """

    #: Its own.
    DEDICATED = "D"
    #: Its own from :meth:`Way.take` until it is given back.
    POOLED = "P"
    #: One for all of a factory, because the factory has a client identifier.
    SHARED = "S"


class Lease:
    """A connection that somebody has, to use sessions of; not to close."""

    def __init__(self, opened: Opened, lost: Lost) -> None:
        self.connection: Connection = opened.connection
        self._opened: Opened | None = opened
        self._lost = lost
        self._log = opened.log
        self._ending: Deferred[None] | None = None

    def give_back(self, broken: bool = False) -> Deferred[None]:
        """Have it no more: sessions are closed, and ``lost`` is not called from now on. Once more
        does nothing more.

        :param broken: nobody is to have this connection again.
        :returns: fires, never with an error, when the connection is closed if this closes it, else
            at once.
        """
        opened, self._opened = self._opened, None
        if opened is not None:
            self._ending = opened.returned(self, broken)
        return succeed(None) if self._ending is None else _after(self._ending)

    def lose(self, error: MessagingError) -> None:
        """The connection has ended; whoever has it is told."""
        self._opened = None
        try:
            self._lost(error)
        except Exception:  # noqa: BLE001
            # The others who have it must be told all the same.
            self._log.failure("who had a connection failed when told that it is lost")


class Way(Protocol):
    """How a link's source, its target or a dead message queue gets at connections."""

    @property
    def kind(self) -> ConnectionKind | None:
        """Which kind of connection; None as long as that depends on the provider, which has not
        been connected to.
        """

    def take(self, lost: Lost) -> Deferred[Lease]:
        """Have a connection: one that is open, or else one attempt to connect. It is for whoever
        calls to try again.

        A client identifier that is in use is tried a second time after
        :data:`~bridge.connections.pool.CLIENT_ID_S` seconds, within this attempt. May be cancelled;
        what comes of the attempt is then for others.

        :param lost: called at most once, and not after the lease was given back, if the connection
            ends.
        :returns: fails as :meth:`gateway.messaging.provider.Provider.connect` does; with
            ProviderUnavailable once this is closed.
        """

    def close(self) -> Deferred[None]:
        """Take no more. What is being taken fails; a dedicated connection is closed.

        :returns: fires, never with an error, when that is done.
        """


class Owner(Protocol):
    """Who decides what becomes of a connection."""

    def returned(self, opened: Opened) -> Deferred[None]:
        """A lease of it was given back. :returns: fires when what becomes of it is done."""

    def ended(self, opened: Opened, idle: bool) -> None:
        """It was lost. :param idle: nobody had it; else who had it is told behind this."""


class Opened:
    """A connection that is open, or about to be.

    :param reactor: Twisted's, for time. :param what: names it in the log. :param log: the bridge's.
    """

    connection: Connection

    def __init__(self, reactor: Any, owner: Owner, what: str, log: Logger) -> None:
        self.log = log
        #: Who has it.
        self.leases: dict[Lease, None] = {}
        #: Whether it may be lent.
        self.sound = True
        #: Why it was lost.
        self.error: MessagingError | None = None
        #: Closes it when it has been idle for long enough.
        self.timer: IDelayedCall | None = None
        self._reactor = reactor
        self._owner = owner
        self._what = what
        self._closing: Deferred[None] | None = None

    def lend(self, lost: Lost) -> Lease:
        """A new lease."""
        self.stay()
        lease = Lease(self, lost)
        self.leases[lease] = None
        return lease

    def returned(self, lease: Lease, broken: bool) -> Deferred[None]:
        """A lease was given back."""
        self.leases.pop(lease, None)
        if broken:
            self.sound = False
        return self._owner.returned(self)

    def stay(self) -> None:
        """Somebody needs it, or it is gone: it is not idle."""
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        self.timer = None

    def lose(self, error: MessagingError) -> None:
        """It has ended, as the provider says; may come before whoever asked for it has it."""
        if self._closing is None and self.error is None:
            self.error = error
            self.sound = False
            self.stay()
            leases, self.leases = self.leases, {}
            self._owner.ended(self, not leases)
            for lease in leases:
                lease.lose(error)

    def withdraw(self, error: MessagingError) -> None:
        """Those who have it have it no more, and are told why."""
        leases, self.leases = self.leases, {}
        for lease in leases:
            lease.lose(error)

    def close(self) -> Deferred[None]:
        """Close it, once. :returns: fires, never with an error, when it is closed, or was not
        within :data:`CLOSE_S`.
        """
        self.sound = False
        self.stay()
        if self._closing is None:
            self._closing = Deferred.fromCoroutine(self._close())
        return _after(self._closing)

    async def _close(self) -> None:
        closing: Deferred[None] = Deferred.fromCoroutine(self._close_connection())
        if not await within(self._reactor, CLOSE_S, closing):
            self.log.warn(
                "{what}: it is not closed after {seconds:g} s, and is left to itself",
                what=self._what,
                seconds=CLOSE_S,
            )

    async def _close_connection(self) -> None:
        try:
            await self.connection.close()
        except Exception:  # noqa: BLE001
            # A provider of another package may break the promise that closing never fails.
            self.log.failure("{what}: closing it failed", what=self._what)


def _after(event: Deferred[None]) -> Deferred[None]:
    """Fires when ``event`` has; cancelling it does nothing to the event, which others wait for,
    too.
    """
    after: Deferred[None] = Deferred()

    def fired(result: None) -> None:
        if not after.called:
            after.callback(None)

    event.addCallback(fired)
    return after


def within(reactor: Any, seconds: float, event: Deferred[Any]) -> Deferred[bool]:
    """Wait for an event that never fails, but not for ever.

    :returns: True when it has happened, False when it has not after that many seconds; the event is
        not cancelled.
    """
    known: Deferred[bool] = Deferred()

    def late() -> None:
        known.callback(False)

    timer = reactor.callLater(seconds, late)

    def happened(_: Any) -> None:
        if timer.active():
            timer.cancel()
            known.callback(True)

    event.addCallback(happened)
    return known
