"""Connections: how many there may be, and what they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from cryptography.x509 import Certificate
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from gateway.instance.listening import peer_host
from gateway.instance.memory_budget import MemoryBudget
from gateway.instance.strangers import Strangers
from gateway.messaging.provider import Provider
from gateway.messaging.turn import Turn
from gateway.stomp.connection_log import ConnectionLog, Detail, EveryDetail
from gateway.stomp.conversion import MessageEncoder
from gateway.stomp.counters import Counters
from gateway.stomp.refusals import BridgeStopped, CertificateRevoked, TooManyConnections
from gateway.stomp.session.session import Session
from gateway.stomp.session.transforming import Transforming
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.transport.connection import StompConnection
from gateway.stomp.transport.wheel import Wheel
from gateway.stomp.wire import Limits, Version


class StompFactory(ServerFactory):
    """Makes and counts connections, for TCP and TLS alike, so that limits hold over both.

    :param clock: the reactor.
    :param random: gives that many random octets.
    :param detail: what the log takes.
    :param memory: of the process; None is no bound.
    """

    noisy = False

    def __init__(
        self,
        clock: IReactorTime,
        turn: Turn,
        provider: Provider,
        session_options: SessionOptions,
        options: TransportOptions,
        transforming: Transforming | None,
        counters: Counters,
        random: Callable[[int], bytes],
        detail: Detail | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.clock: Final = clock
        self.memory: Final = memory or MemoryBudget(clock, sys.maxsize)
        self.turn: Final = turn
        self.options: Final = options
        self.counters: Final = counters
        self.wheel: Final = Wheel(clock)
        self.strangers: Final = Strangers(clock, Logger(namespace="gateway.stomp.connection"))
        small = options.connect_frame
        lines = max(Limits().header_lines, options.header_count)
        self.limits_before: Final = Limits(
            header_count=options.header_count,
            header_line=options.header_line,
            header_lines=lines,
            header_block=small,
            body=small,
            frame=small,
        )
        self.limits: Final = Limits(
            header_count=options.header_count,
            header_line=options.header_line,
            header_lines=lines,
            header_block=options.header_block,
            body=options.body,
            frame=options.body + options.header_block,
        )
        self._provider: Final = provider
        self._session_options: Final = session_options
        self._transforming: Final = transforming
        self._random: Final = random
        self._detail: Final = detail or EveryDetail()
        self._encoders: Final[Mapping[Version, MessageEncoder]] = {
            version: MessageEncoder(version, turn, session_options.tell_user) for version in Version
        }
        self._connections: dict[StompConnection, str] = {}
        self._by_address: dict[str, int] = {}
        self._by_user: dict[str, int] = {}
        self._users: dict[StompConnection, str] = {}
        self._paused = False
        self._emptied: list[Deferred[None]] = []

    def buildProtocol(self, addr: IAddress | None) -> StompConnection:  # type: ignore[override]
        """A connection for the client at ``addr``."""
        return StompConnection(self, peer_host(addr), getattr(addr, "port", 0))

    def session_for(self, connection: StompConnection, port: int) -> Session:
        """The session of a new connection. :param port: the client's."""
        identifier = self._random(16).hex()
        session = Session(
            identifier,
            connection,
            self._provider,
            self.turn,
            self._session_options,
            self._encoders,
            self._transforming,
            self.counters,
            ConnectionLog(identifier, connection.address, port, self._detail, self.strangers),
        )
        if self._paused:
            session.pause()
        return session

    @property
    def connections(self) -> list[StompConnection]:
        """Those that are open."""
        return [*self._connections]

    def admit(self, connection: StompConnection) -> None:
        """Count a new connection, which :meth:`gone` is called for in any case.

        :raises TooManyConnections: it is one too many.
        """
        address = connection.address
        self._connections[connection] = address
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self.counters.connections = len(self._connections)
        self.counters.connections_total += 1
        options = self.options
        if 0 <= options.max_connections < len(self._connections):
            raise TooManyConnections(
                f"too many connections: {options.max_connections} is the limit"
            )
        if 0 <= options.max_connections_per_address < self._by_address[address]:
            raise TooManyConnections(
                f"too many connections from {address}: {options.max_connections_per_address} is the limit"
            )

    def claim_user(self, connection: StompConnection, username: str) -> None:
        """Count a connection for its user. :raises TooManyConnections: the user has as many as one
        may have.
        """
        limit = self.options.max_connections_per_user
        count = self._by_user.get(username, 0)
        if 0 <= limit <= count:
            raise TooManyConnections(
                f"too many connections of user '{username}': {limit} is the limit"
            )
        self._by_user[username] = count + 1
        self._users[connection] = username

    def gone(self, connection: StompConnection) -> None:
        """That connection is closed."""
        address = self._connections.pop(connection, None)
        if address is not None:
            _less(self._by_address, address)
        username = self._users.pop(connection, None)
        if username is not None:
            _less(self._by_user, username)
        self.counters.connections = len(self._connections)
        if not self._connections:
            emptied, self._emptied = self._emptied, []
            for each in emptied:
                each.callback(None)

    def emptied(self) -> Deferred[None]:
        """Fires when there is no connection any more."""
        if not self._connections:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._emptied.append(waiting)
        return waiting

    def end_all(self, error: BridgeStopped) -> None:
        """Tell every client that this is the end: ERROR, roll back, close."""
        self.turn.begin()
        try:
            for connection in self.connections:
                connection.session.fail(error)
        finally:
            self.turn.end()

    def end_revoked(self, is_revoked: Callable[[Certificate], bool]) -> None:
        """Tell the clients that have shown such a certificate: ERROR, roll back, close."""
        self.turn.begin()
        try:
            for connection in self.connections:
                shown = connection.peer_certificate
                if shown is not None and is_revoked(shown):
                    connection.end(CertificateRevoked())
        finally:
            self.turn.end()

    def pause(self) -> None:
        """Deliver nothing to anybody until :meth:`resume`."""
        self._paused = True
        for connection in self.connections:
            connection.session.pause()

    def resume(self) -> None:
        """Deliver again."""
        self._paused = False
        for connection in self.connections:
            connection.session.resume()


def _less(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
