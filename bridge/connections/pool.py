"""The connections of one factory and client identifier: opened when somebody needs one, lent, and
closed when nobody did for long enough.

Owns which connection a taker gets, and how long one stays open that nobody has. One pool is the
connection of one link, the shared connection of a factory, or its pooled ones, by its
:attr:`Pool.kind`. Which links use which pool is said in :mod:`bridge.connections.connections`.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.internet.defer import fail as failed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bridge.connections.administered import AdministeredFactory
from bridge.connections.leases import ConnectionKind, Lease, Lost, Opened
from gateway.messaging.errors import ClientIdInUse, MessagingError, ProviderUnavailable
from gateway.messaging.provider import Connection

#: Seconds after which a client identifier that was in use is tried a second time.
CLIENT_ID_S: Final = 5.0


class Pool:
    """Connections of one factory.

    :param reactor: Twisted's, for time.
    :param client_id: of each connection; None is the factory's own.
    :param kind: None finds it out by the first connection: SHARED if the factory gives it a client
        identifier, else POOLED.
    :param linger_s: seconds that a connection which nobody has stays open; None is for ever, 0 not
        at all. :param log: the bridge's.
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
        self.factory = factory
        self.holder = holder
        self.kind = kind
        #: Whether the factory's configuration is no longer that of the bridge's file; kept by
        #: whoever knows.
        self.outdated = False
        #: How many ways lead here; kept by whoever makes them.
        self.ways = 0
        self._reactor = reactor
        self._log = log
        self._client_id = client_id
        self._linger_s = linger_s
        self._what = f"connection of connection-factory {factory.config.ref_name}"
        #: Why there are no more connections.
        self._closed: ProviderUnavailable | None = None
        #: Those that are open, that given back last at the end.
        self._opened: dict[Opened, None] = {}
        #: Those that are being closed, until they are.
        self._closing: dict[Opened, None] = {}
        #: Attempts that somebody waits for, or did: what each waits for before the second time, if
        #: it does.
        self._attempts: dict[Opened, Deferred[None] | None] = {}
        #: Who waits, in order: whom to tell of a loss, and by which way.
        self._takers: dict[Deferred[Lease], tuple[Lost, object]] = {}
        self._all_back: list[Deferred[None]] = []

    # --- what is known of it

    @property
    def in_use(self) -> int:
        """Connections that somebody has."""
        return sum(1 for opened in self._opened if opened.leases)

    @property
    def open(self) -> list[Connection]:
        """The connections that are open."""
        return [opened.connection for opened in self._opened]

    @property
    def idle(self) -> int:
        """Connections that nobody has."""
        return len(self._opened) - self.in_use

    @property
    def leases(self) -> int:
        """How many times connections are lent now."""
        return sum(len(opened.leases) for opened in self._opened)

    @property
    def used(self) -> bool:
        """Whether there are connections, or attempts to have one."""
        return bool(self._opened or self._attempts)

    def over(self) -> ProviderUnavailable:
        """What those are told who want a connection although they have closed their way."""
        return ProviderUnavailable(
            f"the use of connection-factory '{self.factory.config.ref_name}' has ended"
        )

    # --- taking

    def take(self, lost: Lost, way: object) -> Deferred[Lease]:
        """As :meth:`bridge.connections.leases.Way.take`. :param way: for :meth:`dismiss`."""
        if self._closed is not None:
            return failed(self._closed)
        found = self._available()
        if found is not None:
            return succeed(found.lend(lost))
        taker: Deferred[Lease] = Deferred(self._given_up)
        self._takers[taker] = lost, way
        self._connect()
        return taker

    def dismiss(self, way: object, error: MessagingError) -> None:
        """Those who wait by this way wait no longer."""
        for taker in [taker for taker, (_, by) in self._takers.items() if by is way]:
            del self._takers[taker]
            taker.errback(error)

    def invalidate(self) -> None:
        """No connection that is open now, or is being opened, is lent any more; each is closed when
        nobody has it.
        """
        for opened in list(self._opened):
            opened.sound = False
            if not opened.leases:
                self._close(opened)
        self._abandon()
        self._connect()

    def all_back(self) -> Deferred[None]:
        """Fires when nobody has a connection."""
        if not self.leases:
            return succeed(None)
        back: Deferred[None] = Deferred()
        self._all_back.append(back)
        return back

    def refuse(self, error: ProviderUnavailable) -> None:
        """No more is taken: who waits, and whoever comes, is told this. What nobody has is closed,
        now or when it is given back.
        """
        self._closed = error
        self.invalidate()
        takers, self._takers = self._takers, {}
        for taker in takers:
            taker.errback(error)

    def close(self, error: ProviderUnavailable, tell: bool = False) -> Deferred[None]:
        """Close every connection, whoever has it.

        :param error: for who waits. :param tell: whether those who have one are told that it is
            lost.
        :returns: fires when all are closed; attempts to connect are not waited for, and what comes
            of them is closed.
        """
        self.refuse(error)
        for opened in list(self._opened):
            self._close(opened)
            if tell:
                opened.withdraw(error)
        self._ring()
        return self.closings()

    def closings(self) -> Deferred[None]:
        """Fires when what is being closed now is closed."""
        return gatherResults([opened.close() for opened in self._closing]).addCallback(
            lambda _: None
        )

    # --- what becomes of one (bridge.connections.leases.Owner)

    def returned(self, opened: Opened) -> Deferred[None]:
        done: Deferred[None] = opened.close() if opened in self._closing else succeed(None)
        if opened in self._opened and not opened.leases:
            del self._opened[opened]
            self._opened[opened] = None
            done = self._rest(opened)
            self._serve()
        self._ring()
        return done

    def ended(self, opened: Opened, idle: bool) -> None:
        if opened in self._opened:
            if idle:
                self._log.info(
                    "{what}: lost while nobody had it: {error}", what=self._what, error=opened.error
                )
            # What the provider still keeps of it goes with this.
            self._close(opened)
        self._ring()

    # --- connecting

    def _available(self) -> Opened | None:
        several = self.kind is not ConnectionKind.POOLED
        return next(
            (
                opened
                for opened in reversed(self._opened)
                if opened.sound and (several or not opened.leases)
            ),
            None,
        )

    def _connect(self) -> None:
        """As many attempts as are needed: one for each who waits where each has a connection of its
        own, else one for all.
        """
        # Counted anew each time: an attempt may have succeeded before it returns.
        while self._closed is None and len(self._attempts) < (
            len(self._takers) if self.kind is ConnectionKind.POOLED else min(1, len(self._takers))
        ):
            opened = Opened(self._reactor, self, self._what, self._log)
            self._attempts[opened] = None
            Deferred.fromCoroutine(self._attempt(opened)).addErrback(self._defect)

    async def _attempt(self, opened: Opened) -> None:
        try:
            if self._client_id is not None or self.factory.client_id is not None:
                # One that is being closed has the same client identifier until it is. One that was
                # lost has it no more.
                await gatherResults(
                    [closing.close() for closing in self._closing if closing.error is None]
                )
                if opened not in self._attempts:
                    return
            error = await self._open(opened)
            if isinstance(error, ClientIdInUse) and opened in self._attempts:
                pause: Deferred[None] = deferLater(self._reactor, CLIENT_ID_S)
                self._attempts[opened] = pause
                await pause
                self._attempts[opened] = None
                error = await self._open(opened)
        except CancelledError:
            # Only the pause is ever cancelled, when nobody waits any longer.
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
        """Those fail for whom no other attempt is under way."""
        while len(self._takers) > len(self._attempts):
            taker = next(iter(self._takers))
            del self._takers[taker]
            taker.errback(error)

    def _serve(self) -> None:
        """Give those who wait what there is."""
        served: list[tuple[Deferred[Lease], Lease]] = []
        while self._takers and (found := self._available()) is not None:
            taker = next(iter(self._takers))
            lost, _ = self._takers.pop(taker)
            served.append((taker, found.lend(lost)))
        # Only now, as those served may do anything.
        for taker, lease in served:
            taker.callback(lease)

    def _given_up(self, taker: Deferred[Lease]) -> None:
        """Somebody waits no longer. The attempt goes on: an opened connection that nobody closes
        would stay.
        """
        self._takers.pop(taker, None)

    def _abandon(self) -> None:
        """What comes of the attempts under way is closed at once."""
        attempts, self._attempts = self._attempts, {}
        for pause in attempts.values():
            if pause is not None:
                pause.cancel()

    # --- closing

    def _rest(self, opened: Opened) -> Deferred[None]:
        """Nobody has it."""
        # It may have been so before: who was served by an arrival may have given it back already.
        opened.stay()
        if not opened.sound or self._linger_s == 0:
            return self._close(opened)
        if self._linger_s is not None:
            opened.timer = self._reactor.callLater(self._linger_s, self._idle_for_long, opened)
        return succeed(None)

    def _idle_for_long(self, opened: Opened) -> None:
        self._log.debug(
            "{what}: closed after {seconds:g} s without use",
            what=self._what,
            seconds=self._linger_s,
        )
        self._close(opened)

    def _close(self, opened: Opened) -> Deferred[None]:
        self._opened.pop(opened, None)
        self._closing[opened] = None
        return opened.close().addCallback(lambda _: self._closing.pop(opened, None) and None)

    def _ring(self) -> None:
        if self._all_back and not self.leases:
            waiting, self._all_back = self._all_back, []
            for back in waiting:
                back.callback(None)

    def _defect(self, failure: Any) -> None:
        """An attempt raised what the factory never raises: a defect of ours, after which who waits
        must not wait for ever.
        """
        self._log.failure(
            "{what}: connecting failed with what is no MessagingError", failure, what=self._what
        )
        self._attempts.clear()
        self._refused(ProviderUnavailable(f"{self._what}: {failure.type.__name__}"))
