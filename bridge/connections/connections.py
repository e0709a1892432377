"""The connections of links and dead message queues.

Dedicated, pooled or shared (Open MQ, "Pooled, Shared, and Dedicated Connections").

A source always has a dedicated connection. A target or a dead message queue has one if its
``stay-connected`` is true or it has a ``clientid``; else a pooled one if its connection factory has
no client identifier, else a shared one. Whether it has one, a JMS provider's own configuration may
say: then the first connection tells.

How a connection is lent is said in :mod:`bridge.connections.pool`. Trying again is up to the
borrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.logger import Logger

from bridge.connections.administered import AdministeredFactory
from bridge.connections.pool import ConnectionKind, Lease, Lost, Pool
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.provider import Connection
from gateway.reactor.deferreds import deferred, timeout

__all__ = [
    "ConnectionKind",
    "ConnectionLender",
    "Connections",
    "Lease",
    "PoolStatus",
    "SharedStatus",
]

#: Seconds that borrowers have to return a connection when the bridge stops.
GIVE_BACK_S: Final = 10.0

_log: Final = Logger(namespace="bridge")


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The pooled connections of one connection factory.

    :param factory: its ``ref-name``.
    :param xa: whether they can take part in XA transactions.
    :param in_use: connections that are lent.
    :param idle: connections that are not.
    :param idle_timeout_s: seconds after which an idle connection is closed; 0 is never.
    :param max_retries: the factory's ``connect-attempts``; -1 is for ever.
    :param retry_interval_s: seconds between them.
    """

    factory: str
    xa: bool
    in_use: int
    idle: int
    idle_timeout_s: int
    max_retries: int
    retry_interval_s: int


@dataclass(frozen=True, slots=True)
class SharedStatus:
    """The shared connection of one connection factory.

    :param ref_count: how many borrowers have it. The other fields are as in :class:`PoolStatus`.
    """

    factory: str
    xa: bool
    ref_count: int
    idle_timeout_s: int
    max_retries: int
    retry_interval_s: int


class ConnectionLender:
    """How one end of a link or a dead message queue borrows connections."""

    def __init__(self, connections: Connections, pool: Pool) -> None:
        self._connections = connections
        self._pool = pool
        self._closed = False
        pool.join(self)

    @property
    def kind(self) -> ConnectionKind | None:
        """The kind of connection; None until the first connection tells."""
        return self._pool.kind

    def borrow(self, lost: Lost) -> Deferred[Lease]:
        """Borrow an open connection, or else make one attempt to connect.

        Trying again is up to the caller. A client identifier that is in use is tried a second time
        after :data:`~bridge.connections.pool.CLIENT_ID_S` seconds, within this attempt. May be
        cancelled; what comes of the attempt is then for others.

        :param lost: called at most once, and not after the lease was given back, if the connection
            ends.
        :returns: fails as :meth:`gateway.messaging.provider.Provider.connect` does; with
            ProviderUnavailable once this is closed.
        """
        if self._closed:
            return fail(self._pool.ended)
        return self._pool.borrow(lost, self)

    def close(self) -> Deferred[None]:
        """Borrow no more; borrowing that is under way fails.

        :returns: fires, never with an error, when connections that are not needed any more are
            closed, a dedicated one among them.
        """
        if not self._closed:
            self._closed = True
            self._pool.leave(self)
        return self._connections.left(self._pool)


class Connections:
    """The connections of one bridge.

    :param reactor: Twisted's, for time.
    :param log: the bridge's.
    """

    def __init__(self, reactor: Any, log: Logger = _log) -> None:
        self._reactor = reactor
        self._log = log
        #: Each belongs to one source.
        self._dedicated: dict[Pool, None] = {}
        #: The pooled or shared ones of each factory.
        self._common: dict[AdministeredFactory, Pool] = {}
        #: Those that are not used for borrowing any more, until the last connection is returned.
        self._leaving: dict[Pool, None] = {}
        self._closed: ProviderUnavailable | None = None

    def dedicated(
        self,
        factory: AdministeredFactory,
        client_id: str | None,
        holder: str = "",
        linger_s: float | None = None,
    ) -> ConnectionLender:
        """Make what a source borrows from: one connection.

        Borrowing it several times at once gives several leases of one connection.

        :param client_id: None is the factory's own one, if it has one.
        :param holder: whose it is, for operators.
        :param linger_s: seconds that the connection stays when it is not lent; None is until this
            is closed or the connection lost.
        """
        pool = Pool(
            self._reactor, factory, client_id, ConnectionKind.DEDICATED, linger_s, self._log, holder
        )
        self._dedicated[pool] = None
        return self._lender_of(pool)

    def for_sending(
        self,
        factory: AdministeredFactory,
        stay_connected: bool,
        client_id: str | None,
        holder: str = "",
    ) -> ConnectionLender:
        """Make what a target or a dead message queue borrows from.

        A connection that is dedicated only for its ``client_id`` is closed whenever it is returned.

        :param stay_connected: the attribute.
        :param client_id: the attribute ``clientid``; None if it is not given.
        :param holder: as in :meth:`dedicated`.
        """
        if stay_connected or client_id is not None:
            return self.dedicated(factory, client_id, holder, None if stay_connected else 0)
        pool = self._common.get(factory)
        if pool is None:
            kind = None
            if factory.client_id_known:
                kind = ConnectionKind.POOLED if factory.client_id is None else ConnectionKind.SHARED
            # The attribute's 0 is for ever.
            linger_s = factory.config.idle_timeout_s or None
            pool = self._common[factory] = Pool(
                self._reactor,
                factory,
                None,
                kind,
                linger_s,
                self._log,
                f"connection-factory {factory.config.ref_name}",
            )
        return self._lender_of(pool)

    def _lender_of(self, pool: Pool) -> ConnectionLender:
        if self._closed is not None:
            pool.refuse(self._closed)
        return ConnectionLender(self, pool)

    def left(self, pool: Pool) -> Deferred[None]:
        """Close what is not needed now that a lender from this pool was closed.

        :returns: fires when that is done.
        """
        if pool.lent_from:
            return succeed(None)
        if pool in self._dedicated:
            return pool.close(pool.ended).addCallback(lambda _: self._dedicated.pop(pool, None))
        if self._common.get(pool.factory) is pool and not pool.worth_keeping:
            del self._common[pool.factory]
            self._leaving[pool] = None
            # Connections that are still lent stay open until they are returned.
            pool.refuse(pool.ended)
            pool.all_back().addCallback(lambda _: self._leaving.pop(pool, None))
            return pool.closings()
        return succeed(None)

    def invalidate(self, ref_name: str) -> None:
        """Lend no open connection of this factory to several any more.

        Its configuration has changed. Each pooled or shared connection is closed when it has been
        returned.
        """
        for pool in list(self._common.values()):
            if pool.factory.config.ref_name == ref_name:
                pool.invalidate()
                self.left(pool)

    def pools(self) -> Sequence[PoolStatus]:
        return [
            PoolStatus(
                pool.factory.config.ref_name,
                pool.factory.provider.capabilities.xa,
                pool.in_use,
                pool.idle,
                pool.factory.config.idle_timeout_s,
                pool.factory.config.connect_attempts,
                pool.factory.config.connect_attempt_interval_s,
            )
            for pool in self._those(ConnectionKind.POOLED)
        ]

    def shared(self) -> Sequence[SharedStatus]:
        return [
            SharedStatus(
                pool.factory.config.ref_name,
                pool.factory.provider.capabilities.xa,
                pool.leases,
                pool.factory.config.idle_timeout_s,
                pool.factory.config.connect_attempts,
                pool.factory.config.connect_attempt_interval_s,
            )
            for pool in self._those(ConnectionKind.SHARED)
        ]

    def open(self) -> Sequence[tuple[Connection, str]]:
        """Return the open connections, each with its holder.

        That is a link's end, a dead message queue, or the connection factory that lends it.
        """
        pools = (*self._dedicated, *self._common.values(), *self._leaving)
        return [(connection, pool.holder) for pool in pools for connection in pool.open]

    def _those(self, kind: ConnectionKind) -> list[Pool]:
        return [pool for pool in (*self._common.values(), *self._leaving) if pool.kind is kind]

    @deferred
    async def close(self) -> None:
        """Close every connection.

        Attempts to connect fail at once, and so does borrowing from now on.

        Borrowers may return connections within :data:`GIVE_BACK_S`. What is still lent then is
        closed, and reported to them as lost.

        :returns: fires, never with an error, when all are closed.
        """
        error = self._closed = self._closed or ProviderUnavailable(
            "the bridge has closed its connections"
        )
        pools = [*self._dedicated, *self._common.values(), *self._leaving]
        for pool in pools:
            pool.refuse(error)
        if not await timeout(
            self._reactor, GIVE_BACK_S, gatherResults([pool.all_back() for pool in pools])
        ):
            self._log.warn(
                "{count} connections are closed although they are in use, because they were not given back within {seconds:g} s: {names}",
                count=sum(pool.in_use for pool in pools),
                seconds=GIVE_BACK_S,
                names=", ".join(
                    sorted({pool.factory.config.ref_name for pool in pools if pool.in_use})
                ),
            )
        await gatherResults([pool.close(error, tell=True) for pool in pools])
