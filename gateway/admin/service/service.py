"""The admin service: one HTTP listener, found through the port mapper.

Owns the listener, its limits and its end. Who is let in, :mod:`gateway.admin.service.guard` knows.
What can be requested, modules of resources know: the constructor takes functions, each of which
adds its resources to the :class:`~gateway.admin.service.requests.Routes`.

There are at most :data:`MOST_CONNECTIONS` connections. A request body has at most
:data:`LARGEST_BODY` bytes. A client that is silent for :data:`IDLE_S` seconds is disconnected, and one that has
sent no request with a right password within :data:`STRANGE_S`, however many bytes it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort, IReactorTime
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web.server import Request, Site

from gateway import __version__
from gateway.admin.service.guard import Authenticate, Guard
from gateway.admin.service.requests import AdminRequest, Routes
from gateway.admin.service.settings import PORT_MAPPER_NAME, AdminOptions, is_loopback
from gateway.instance.listening import server_endpoint
from gateway.reactor.deferreds import deferred

MOST_CONNECTIONS: Final = 64
LARGEST_BODY: Final = 64 * 1024
IDLE_S: Final = 60
#: Seconds in which a connection must have sent a request with a right password.
STRANGE_S: Final = 10
#: Seconds that requests under way may take when the service stops.
STOP_S: Final = 2.0
#: What is read, and thrown away, of a body that is too large, so that the answer is not lost in a
#: reset.
_MOST_THROWN_AWAY: Final = 1024 * 1024

#: Adds what a module has.
Resources = Callable[[Routes], None]


#: The port mapper's ``register``: name, protocol, type, port and properties of a service. Returns
#: what takes it back.
RegisterPort = Callable[[str, str, str, int, dict[str, str]], Callable[[], None]]


class AdminService:
    """The admin service.

    :param reactor: listens, and is the clock.
    :param resources: what can be asked for, besides ``GET /v1``, which says what this is.
    :param authenticate: for users other than the one in the options; None lets in only that one.
    :param register_port: announces the port to the port mapper, or None.
    :param tls_context_factory: makes TLS connections; needed where the options ask for them.
    :raises ValueError: it would listen in the clear where others can reach it, or there is nothing
        to make TLS connections with.
    """

    def __init__(
        self,
        reactor: Any,
        options: AdminOptions,
        resources: Sequence[Resources],
        authenticate: Authenticate | None = None,
        register_port: RegisterPort | None = None,
        tls_context_factory: Any = None,
        log: Logger | None = None,
    ) -> None:
        if options.tls and tls_context_factory is None:
            raise ValueError("TLS is enabled, and there is nothing to make TLS connections with")
        if not options.tls and not is_loopback(options.hostname):
            raise ValueError(
                f"the admin service would speak in the clear on {options.hostname}, which is not the loopback"
            )
        self._reactor = reactor
        self._options = options
        self._register_port = register_port
        self._log = log or Logger(namespace="bridge.admin")
        routes = Routes(self._log)
        routes.add("GET", "/v1", _about)
        for add in resources:
            add(routes)
        self._guard = Guard(
            reactor, routes.app.resource(), options.user, options.password, authenticate, self._log
        )
        site = _Site(self._guard, reactor=reactor, timeout=IDLE_S)
        self._connections = _Connections(site, reactor)
        self._factory: Any = self._connections
        if options.tls:
            self._factory = TLSMemoryBIOFactory(
                tls_context_factory, False, self._connections, reactor
            )
        self._listening: IListeningPort | None = None
        self._unregister: Callable[[], None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 where it does not."""
        address: Any = None if self._listening is None else self._listening.getHost()
        return 0 if address is None else int(address.port)

    async def start(self) -> None:
        """Listen, and announce the port.

        :raises CannotListenError: it cannot listen there.
        """
        if self._listening is not None:
            return
        options = self._options
        self._listening = await server_endpoint(
            self._reactor, options.hostname, options.port, MOST_CONNECTIONS, PORT_MAPPER_NAME
        ).listen(self._factory)
        if self._register_port is not None:
            address: Any = self._listening.getHost()
            protocol = "tls" if options.tls else "tcp"
            self._unregister = self._register_port(
                PORT_MAPPER_NAME, protocol, "ADMIN", self.port, {"hostname": address.host}
            )
        self._log.info("admin service on {host}:{port}", host=options.hostname, port=self.port)

    @deferred
    async def stop(self) -> None:
        """Stop listening.

        Requests under way have :data:`STOP_S` seconds to be answered, then their connections are
        closed.
        """
        listening, self._listening = self._listening, None
        unregister, self._unregister = self._unregister, None
        if unregister is not None:
            unregister()
        if listening is not None:
            await maybeDeferred(listening.stopListening)
        await self._connections.end(self._reactor)
        self._guard.close()


def _address(connection: ProtocolWrapper) -> tuple[str, int]:
    transport: Any = connection.transport
    return _peer(transport.getPeer())


def _peer(address: Any) -> tuple[str, int]:
    return address.host, address.port


def _about(request: AdminRequest) -> dict[str, str]:
    return {"product": "stomp-gateway", "version": __version__, "user": request.user}


class _Request(Request):
    """A request whose body is bounded.

    :ivar admin: who asks, once the guard has let them in. :ivar too_large: whether its body was.
    """

    admin = ""
    too_large = False
    _seen = 0
    content: Any
    channel: Any

    def let_in(self, user: str) -> None:
        """Keep this connection when others need room: the guard let it in."""
        self.admin = user
        self.channel.site.let_in.add(_peer(self.channel.getPeer()))

    def process(self) -> None:
        under_way: set[_Request] = self.channel.site.under_way
        under_way.add(self)
        self.notifyFinish().addBoth(lambda _: under_way.discard(self))
        super().process()  # type: ignore[no-untyped-call]

    def gotLength(self, length: int | None) -> None:
        # Never a file on the disk.
        self.content = BytesIO()
        self.too_large = length is not None and length > LARGEST_BODY

    def handleContentChunk(self, data: bytes) -> None:
        self._seen += len(data)
        self.too_large = self.too_large or self._seen > LARGEST_BODY
        if not self.too_large:
            self.content.write(data)
        elif self._seen > _MOST_THROWN_AWAY:
            self.channel.transport.abortConnection()


class _Site(Site):
    """Twisted's site, which logs no requests; changes are logged elsewhere."""

    noisy = False
    requestFactory = _Request

    def __init__(self, resource: Any, **options: Any) -> None:
        super().__init__(resource, _Request, parsePOSTFormSubmission=False, **options)  # type: ignore[no-untyped-call]
        self.displayTracebacks = False
        #: Requests that have come whole and are not answered yet.
        self.under_way: set[_Request] = set()
        #: Peers that the guard has let in.
        self.let_in: set[tuple[str, int]] = set()

    def log(self, request: Any) -> None:
        """Nothing."""


class _Connections(WrappingFactory):
    """The connections there are."""

    noisy = False

    def __init__(self, site: _Site, clock: IReactorTime) -> None:
        super().__init__(site)  # type: ignore[no-untyped-call]
        self._site = site
        self._clock = clock
        #: When connections that are not let in yet are closed.
        self._limits: dict[ProtocolWrapper, IDelayedCall] = {}
        self._emptied: list[Deferred[None]] = []
        #: Those that were closed to make room, and are not gone yet.
        self._leaving: set[ProtocolWrapper] = set()

    def buildProtocol(self, addr: IAddress | None) -> Any:
        if len(self.protocols) - len(self._leaving) >= MOST_CONNECTIONS:
            # Connections without a right password must not keep the administrator out: the oldest
            # of them goes.
            stranger = next((each for each in self.protocols if self._is_strange(each)), None)
            if stranger is None:
                # None closes the connection at once.
                return None
            self._leaving.add(stranger)
            stranger.transport.abortConnection()
        built: Any = super().buildProtocol(addr)
        self._limit(built)
        return built

    def _limit(self, connection: ProtocolWrapper) -> None:
        self._limits[connection] = self._clock.callLater(STRANGE_S, self._look, connection)

    def _look(self, connection: ProtocolWrapper) -> None:
        """Close the connection of a stranger who has sent no whole request."""
        del self._limits[connection]
        if not self._is_strange(connection):
            return
        peer = _address(connection)
        if any(_peer(request.channel.getPeer()) == peer for request in self._site.under_way):
            # Its password is being checked.
            self._limit(connection)
        else:
            transport: Any = connection.transport
            transport.abortConnection()

    def _is_strange(self, connection: ProtocolWrapper) -> bool:
        return connection not in self._leaving and _address(connection) not in self._site.let_in

    def unregisterProtocol(self, p: ProtocolWrapper) -> None:
        limit = self._limits.pop(p, None)
        if limit is not None:
            limit.cancel()
        self._leaving.discard(p)
        self._site.let_in.discard(_address(p))
        super().unregisterProtocol(p)  # type: ignore[no-untyped-call]
        if not self.protocols:
            waiting, self._emptied = self._emptied, []
            for each in waiting:
                each.callback(None)

    async def end(self, reactor: Any) -> None:
        """Close those that are idle, and after :data:`STOP_S` seconds all others."""
        busy = set()
        for request in self._site.under_way:
            # When it is answered, the connection is not kept for another.
            request.channel.persistent = False
            busy.add(_peer(request.channel.getPeer()))
        for each in list(self.protocols):
            if _address(each) not in busy:
                each.transport.loseConnection()
        if self.protocols:
            emptied: Deferred[None] = Deferred()
            self._emptied.append(emptied)
            late = reactor.callLater(STOP_S, self._abort)
            await emptied
            if late.active():
                late.cancel()

    def _abort(self) -> None:
        for each in list(self.protocols):
            each.transport.abortConnection()
