"""The STOMP bridge: its listeners, its connections, its operations.

Owns which ports are open, in which state the bridge is, and what all connections share. Sockets are
:mod:`gateway.stomp.transport`'s, frames the sessions'.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from os import urandom
from typing import Any, Final

from cryptography.x509 import Certificate
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.instance.listening import peer_host
from gateway.instance.logs import Log, Strangers
from gateway.instance.memory.budget import MemoryBudget
from gateway.messaging.provider import Connection, Provider
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.turn import Turn
from gateway.stomp.connection_log import ConnectionLog
from gateway.stomp.counters import Counters
from gateway.stomp.listeners import NO_LISTENER, TCP, Listener
from gateway.stomp.management import Answer, Asked, Reply, Requests
from gateway.stomp.message_encoder import MessageEncoder
from gateway.stomp.open_listeners import OpenListeners, RegisterPort
from gateway.stomp.profiles import Profile
from gateway.stomp.refusals import BridgeStopped, CertificateRevoked
from gateway.stomp.session.session import Session
from gateway.stomp.session.subscription import Hold
from gateway.stomp.session.transforming import Transforming
from gateway.stomp.settings import SessionOptions, StompOptions, TransportOptions
from gateway.stomp.transport.admission import Admission
from gateway.stomp.transport.connection import Shared, StompConnection
from gateway.stomp.transport.deadlines import Wheel
from gateway.stomp.transport.websocket import WebSocketConnection
from gateway.stomp.user_limits import Allowance, UserLimits
from gateway.stomp.websocket.endpoint import WebSocket
from gateway.stomp.wire import FrameParser, Limits, Version

#: How long clients may take to go when the bridge stops, in seconds; then their sockets are closed
#: over them.
STOP_S: Final = 10


class ServiceState(Enum):
    """What the bridge is doing; the words are those of ``imqbridgemgr list``."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPING = "STOPPING"


class NoListener(Exception):
    """There is no listener, so there is nothing to start."""

    def __init__(self) -> None:
        super().__init__(f"the STOMP bridge has {NO_LISTENER}")


class WrongState(Exception):
    """The bridge cannot do that now.

    :param operation: ``start``, ``pause`` or ``resume``.
    """

    def __init__(self, operation: str, state: ServiceState) -> None:
        super().__init__(f"cannot {operation} the STOMP bridge, which is {state.value}")
        self.operation = operation
        self.state = state


@dataclass(frozen=True, slots=True)
class Client:
    """A client that is CONNECTED.

    :param connection: the provider's connection behind it.
    :param service: the port mapper's name of what it came to: ``stomp``, ``sslstomp``.
    :param address: its own, and
    :param port: its own, 0 if it has none.
    :param protocol: such as ``STOMP 1.2``.
    :param session: the session identifier of its CONNECTED, which the log has, too.
    :param silent_ms: for how long nothing has come from it; -1 while its socket is not read.
    :param beat_ms: how often it sends something, as it has promised by heart-beats; 0 for no promise.
    """

    connection: Connection
    service: str
    address: str
    port: int
    protocol: str
    session: str
    silent_ms: int = -1
    beat_ms: int = 0


def _itself(connection: Connection) -> Connection:
    return connection


class StompService:
    """The STOMP bridge.

    :param reactor: listens, and is the clock.
    :param provider: the broker behind.
    :param tls_contexts: gives what makes TLS connections for a listener (a ``CertificateOptions`` or
        alike), or raises :class:`~gateway.stomp.transport.tls.NoTLS`.
    :param transformer: the operator's, or None.
    :param register_port: announces the ports to the port mapper, or None.
    :param log: what to log to; operators' events only.
    :param random: gives that many random octets.
    :param detail: what the bridge's log takes; None for everything.
    :param memory: the process's budget; None is no bound.
    :param own: returns the embedded broker's connection behind one of the provider's.
    :param answer: carries out requests to manage the broker; None where nothing does.
    """

    def __init__(
        self,
        reactor: Any,
        turn: Turn,
        provider: Provider,
        options: StompOptions,
        tls_contexts: Callable[[Listener], Any] | None = None,
        transformer: MessageTransformer | None = None,
        register_port: RegisterPort | None = None,
        log: Logger | None = None,
        random: Callable[[int], bytes] = urandom,
        detail: Log | None = None,
        memory: MemoryBudget | None = None,
        own: Callable[[Connection], Connection] = _itself,
        answer: Answer | None = None,
    ) -> None:
        self._reactor: Final = reactor
        self._turn: Final = turn
        self._options: Final = options
        self._own: Final = own
        self._log: Final = log or Logger()
        self.counters: Final = Counters()
        self.state = ServiceState.STOPPED
        self._factory: Final = StompFactory(
            reactor,
            turn,
            provider,
            options.session,
            options.transport,
            None if transformer is None else Transforming(transformer),
            self.counters,
            random,
            detail,
            memory,
            None if answer is None else partial(self._answered, answer),
        )
        self._admission: Final = self._factory.admission
        self.listeners: Final = OpenListeners(
            reactor,
            options.listeners,
            partial(_Listening, self._factory),
            options.transport.connect_timeout_s,
            tls_contexts,
            register_port,
            self._log,
        )

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports that are in use, by the names of listeners."""
        return self.listeners.ports

    async def start(self) -> None:
        """Listen and announce the ports; resumes a paused bridge.

        :raises NoListener, WrongState: it cannot. :raises CannotListenError, NoTLS: a listener
            cannot be opened; then nothing listens.
        """
        if self.state is ServiceState.PAUSED:
            await self.resume()
            return
        if self.state is not ServiceState.STOPPED:
            raise WrongState("start", self.state)
        if not self.listeners:
            raise NoListener
        self.state = ServiceState.STARTING
        self._factory.resume()
        try:
            await self.listeners.open()
        except BaseException:
            self.state = ServiceState.STOPPED
            raise
        self.state = ServiceState.STARTED
        self._log.info(
            "STOMP bridge started: {ports}",
            ports=", ".join(f"{name} {port}" for name, port in self.ports.items()),
        )

    async def stop(self, reason: str = "the STOMP bridge was stopped") -> None:
        """Stop accepting, end each connection by ERROR, leave the port mapper.

        What is unacknowledged and uncommitted is rolled back. Returns when the last connection is
        closed, at the latest after :data:`STOP_S` seconds.

        :param reason: a sentence for the clients.
        """
        if self.state in (ServiceState.STOPPED, ServiceState.STOPPING):
            await self._admission.emptied()
            return
        self.state = ServiceState.STOPPING
        await self.listeners.close()
        with self._turn:
            for connection in self._admission.connections:
                connection.session.fail(BridgeStopped(reason))
        late = self._reactor.callLater(STOP_S, self.drop_all)
        await self._admission.emptied()
        if late.active():
            late.cancel()
        self._factory.wheel.stop()
        self._factory.strangers.report()
        self.state = ServiceState.STOPPED
        self._log.info("STOMP bridge stopped")

    def drop_all(self) -> None:
        """Close all connections. Does not wait for clients that do not read."""
        for connection in self._admission.connections:
            connection.drop("it did not go when the bridge stopped")

    @property
    def clients(self) -> list[Client]:
        """The clients that are CONNECTED."""
        now_ms = int(self._reactor.seconds() * 1000)
        return [
            Client(
                self._own(each.session.connection),
                each.service,
                each.address,
                each.port,
                f"STOMP {each.session.version!s}",
                each.session.identifier,
                max(0, now_ms - each.beats.heard) if each.is_read else -1,
                each.beats.promised_ms,
            )
            for each in self._admission.connections
            if each.session.connection is not None
        ]

    @property
    def sessions(self) -> dict[int, Session]:
        """The sessions of CONNECTED clients, by the ``id`` of the connection."""
        return {number: each.session for number, each in self._connected.items()}

    @property
    def allowances(self) -> dict[int, Allowance]:
        """What users may send and get, by the ``id`` of each connection of theirs."""
        return {number: each.rates.allowance for number, each in self._connected.items()}

    def _answered(self, answer: Answer, connection: Connection, asked: Asked) -> Deferred[Reply]:
        """Have a request carried out, and its reply given in a turn of its own.

        A client may have sent hundreds of them at once, and the next is read after its reply. So
        others have their turn between any two.
        """
        told: Deferred[Reply] = Deferred()

        def tell(result: Reply | Failure) -> None:
            with self._turn:
                told.callback(result)

        answered = answer(self._own(connection), asked)
        answered.addBoth(lambda result: self._reactor.callLater(0, tell, result))
        return told

    @property
    def _connected(self) -> dict[int, StompConnection]:
        """Those of CONNECTED clients, by the ``id`` of the connection behind."""
        return {
            id(self._own(each.session.connection)): each
            for each in self._admission.connections
            if each.session.connection is not None
        }

    def change_limits(self, limits: UserLimits) -> None:
        """Have these limits of users from now on. Clients that are connected stay."""
        self._factory.change_limits(limits)

    def end_revoked(self, is_revoked: Callable[[Certificate], bool]) -> None:
        """End the connections of clients whose certificates are revoked.

        They get an ERROR, and their work under way is rolled back.

        :param is_revoked: tells of a verified certificate whether it is.
        """
        with self._turn:
            for connection in self._admission.connections:
                shown = connection.peer_certificate
                if shown is not None and is_revoked(shown):
                    connection.end(CertificateRevoked())

    async def pause(self) -> None:
        """Accept no connections and deliver nothing.

        Those that are connected stay, and may send and acknowledge.

        :raises WrongState: it is neither started nor paused.
        """
        if self.state is ServiceState.PAUSED:
            return
        if self.state is not ServiceState.STARTED:
            raise WrongState("pause", self.state)
        self.state = ServiceState.PAUSED
        self._factory.pause()
        await self.listeners.suspend()
        self._log.info("STOMP bridge paused")

    async def resume(self) -> None:
        """Accept and deliver again.

        :raises WrongState: it is not paused.
        :raises CannotListenError, NoTLS: it stays paused.
        """
        if self.state is not ServiceState.PAUSED:
            raise WrongState("resume", self.state)
        await self.listeners.go_on()
        self.state = ServiceState.STARTED
        self._factory.resume()
        self._log.info("STOMP bridge resumed")


class StompFactory(ServerFactory):
    """Makes connections, for TCP and TLS alike.

    :param clock: the reactor.
    :param random: gives that many random octets.
    :param detail: what the log takes.
    :param memory: of the process; None is no bound.
    :param answer: carries out requests to manage the broker; None where nothing does.
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
        answer: Answer | None = None,
    ) -> None:
        self._answer: Final = answer
        self.wheel: Final = Wheel(clock)
        self.strangers: Final = Strangers(clock, Logger(namespace="gateway.stomp.connection"))
        self._turn: Final = turn
        self.admission: Final[Admission[StompConnection]] = Admission(
            options, counters, clock.seconds
        )
        self._options: Final = options
        self._shared: Final = Shared(
            clock=clock,
            turn=turn,
            memory=memory or MemoryBudget(clock, sys.maxsize),
            options=options,
            counters=counters,
            wheel=self.wheel,
            parser=self._parser_for(session_options.profile),
            limits=self._limits_of(session_options.profile),
            admission=self.admission,
            session_for=partial(self._session_for, session_options),
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
        return self.connection(addr, Listener(TCP, 0, profile=self._session_options.profile))

    def connection(self, addr: IAddress | None, listener: Listener) -> StompConnection:
        """Make a connection for a client of a listener's."""
        came = peer_host(addr), getattr(addr, "port", 0), listener.service
        shared = self._shared
        if listener.profile != self._session_options.profile:
            options = replace(self._session_options, profile=listener.profile)
            shared = replace(
                shared,
                session_for=partial(self._session_for, options),
                parser=self._parser_for(listener.profile),
                limits=self._limits_of(listener.profile),
            )
        if listener.websocket is None:
            return StompConnection(shared, *came)
        websocket = WebSocket(listener.websocket)
        return WebSocketConnection(shared, *came, websocket, listener.proxies)

    def change_limits(self, limits: UserLimits) -> None:
        """Have these limits of users from now on. Clients that are connected stay."""
        self.admission.change_limits(limits)
        for connection in self.admission.connections:
            connection.rates.changed(connection.session.subscriptions)

    def _parser_for(self, profile: Profile) -> Callable[[], FrameParser]:
        """Return what makes parsers for clients with these habits."""
        options = self._options
        small = (
            options.connect_frame
            if options.frame < 0
            else min(options.connect_frame, options.frame)
        )
        limits = _limits(options, profile, small, small, small)
        return partial(FrameParser, limits, rule=profile.varying, leniency=profile.leniency)

    def _limits_of(self, profile: Profile) -> Limits:
        """Return the limits of frames from CONNECTED on."""
        options = self._options
        most = options.header_block + options.body
        frame = most if options.frame < 0 else min(options.frame, most)
        return _limits(options, profile, options.header_block, options.body, frame)

    def _session_for(
        self, options: SessionOptions, connection: StompConnection, port: int
    ) -> Session:
        identifier = self._random(16).hex()
        session = Session(
            identifier,
            connection,
            connection.output,
            self._provider,
            self._turn,
            options,
            self._encoders,
            self._transforming,
            self._shared.counters,
            ConnectionLog(identifier, connection.address, port, self._detail, self.strangers),
            None if self._answer is None else partial(_requests, self._answer, connection),
        )
        if self._paused:
            session.subscriptions.hold(Hold.PAUSED)
        return session

    def pause(self) -> None:
        """Deliver nothing to anybody until :meth:`resume`."""
        self._paused = True
        for connection in self.admission.connections:
            connection.session.subscriptions.hold(Hold.PAUSED)

    def resume(self) -> None:
        """Deliver again."""
        self._paused = False
        for connection in self.admission.connections:
            connection.session.subscriptions.free(Hold.PAUSED)


def _requests(
    answer: Answer,
    client: StompConnection,
    connection: Connection,
    is_open: Callable[[], bool],
) -> Requests:
    return Requests(answer, connection, client.address, is_open)


class _Listening(ServerFactory):
    """Makes the connections of one listener."""

    noisy = False

    def __init__(self, factory: StompFactory, listener: Listener) -> None:
        self._factory: Final = factory
        self._listener: Final = listener

    def buildProtocol(self, addr: IAddress | None) -> StompConnection:
        """Make a connection for the client at ``addr``."""
        return self._factory.connection(addr, self._listener)


def _limits(
    options: TransportOptions, profile: Profile, header_block: int, body: int, frame: int
) -> Limits:
    return Limits(
        command_length=profile.longest_command,
        header_count=options.header_count,
        header_line=options.header_line,
        header_lines=max(Limits().header_lines, options.header_count),
        header_block=header_block,
        body=body,
        frame=frame,
    )
