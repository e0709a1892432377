"""What makes connections, and what an operator does to their deliveries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from gateway.instance.listening import peer_host
from gateway.instance.logs import Log, Strangers
from gateway.instance.memory_budget import MemoryBudget
from gateway.messaging.provider import Provider
from gateway.messaging.turn import Turn
from gateway.stomp.connection_log import ConnectionLog
from gateway.stomp.conversion import MessageEncoder
from gateway.stomp.counters import Counters
from gateway.stomp.session.session import Session
from gateway.stomp.session.transforming import Transforming
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.transport.admission import Admission
from gateway.stomp.transport.connection import Shared, StompConnection
from gateway.stomp.transport.deadlines import Wheel
from gateway.stomp.wire import Limits, Version


class StompFactory(ServerFactory):
    """Makes connections, for TCP and TLS alike.

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
        detail: Log | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.wheel: Final = Wheel(clock)
        self.strangers: Final = Strangers(clock, Logger(namespace="gateway.stomp.connection"))
        self._turn: Final = turn
        self.admission: Final[Admission[StompConnection]] = Admission(options, counters)
        small = options.connect_frame
        self._shared: Final = Shared(
            clock=clock,
            turn=turn,
            memory=memory or MemoryBudget(clock, sys.maxsize),
            options=options,
            counters=counters,
            wheel=self.wheel,
            limits_before=_limits(options, small, small, small),
            limits=_limits(
                options, options.header_block, options.body, options.body + options.header_block
            ),
            admission=self.admission,
            session_for=self._session_for,
        )
        self._provider: Final = provider
        self._session_options: Final = session_options
        self._transforming: Final = transforming
        self._random: Final = random
        self._detail: Final = detail
        self._encoders: Final[Mapping[Version, MessageEncoder]] = {
            version: MessageEncoder(version, turn, session_options.tell_user) for version in Version
        }
        self._paused = False

    def buildProtocol(self, addr: IAddress | None) -> StompConnection:
        """Make a connection for the client at ``addr``."""
        return StompConnection(self._shared, peer_host(addr), getattr(addr, "port", 0))

    def _session_for(self, connection: StompConnection, port: int) -> Session:
        identifier = self._random(16).hex()
        session = Session(
            identifier,
            connection,
            connection.output,
            self._provider,
            self._turn,
            self._session_options,
            self._encoders,
            self._transforming,
            self._shared.counters,
            ConnectionLog(identifier, connection.address, port, self._detail, self.strangers),
        )
        if self._paused:
            session.subscriptions.pause()
        return session

    def pause(self) -> None:
        """Deliver nothing to anybody until :meth:`resume`."""
        self._paused = True
        for connection in self.admission.connections:
            connection.session.subscriptions.pause()

    def resume(self) -> None:
        """Deliver again."""
        self._paused = False
        for connection in self.admission.connections:
            connection.session.subscriptions.resume()


def _limits(options: TransportOptions, header_block: int, body: int, frame: int) -> Limits:
    return Limits(
        header_count=options.header_count,
        header_line=options.header_line,
        header_lines=max(Limits().header_lines, options.header_count),
        header_block=header_block,
        body=body,
        frame=frame,
    )
