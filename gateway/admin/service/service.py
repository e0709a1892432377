"""The admin service: one HTTP listener, found through the port mapper.

Owns the listener, its limits and its end. Who is let in, :mod:`gateway.admin.service.guard` knows.
What can be requested, modules of resources know: the constructor takes functions, each of which
adds its resources to the :class:`~gateway.admin.service.requests.Routes`.

At most :data:`MOST_REQUESTS` requests are under way, open pages that follow among them; others are
answered with status 503, a sentence, and a ``Retry-After``. Where some are of strangers, whose
password is yet to be checked, the oldest of these is answered so, and not somebody who was let in.
There are at most :data:`MOST_CONNECTIONS` connections, so that those without a request, which
browsers keep, are in no one's way: for one more, another is closed. A request body has at most
:data:`LARGEST_BODY` bytes. A client that is silent for :data:`IDLE_S` seconds is disconnected, and one that has
sent no request with a right password within :data:`STRANGE_S`, however many bytes it sends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from io import BytesIO
from itertools import chain
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort, IReactorTime
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web.http import HTTPChannel
from twisted.web.resource import IResource
from twisted.web.server import Request, Site
from zope.interface import implementer

from gateway import __version__
from gateway.admin.service.guard import Authenticate, Guard
from gateway.admin.service.requests import AdminRequest, Refused, Routes, write_refusal
from gateway.admin.service.roles import Identity, Role
from gateway.admin.service.settings import PORT_MAPPER_NAME, AdminOptions, is_loopback
from gateway.instance.listening import server_endpoint
from gateway.reactor.deferreds import deferred

MOST_CONNECTIONS: Final = 256
MOST_REQUESTS: Final = 64
LARGEST_BODY: Final = 256 * 1024
IDLE_S: Final = 60
#: Seconds in which a connection must have sent a request with a right password.
STRANGE_S: Final = 10
#: Seconds that requests under way may take when the service stops.
STOP_S: Final = 2.0
#: Seconds after which somebody who was sent away may come again.
AGAIN_S: Final = 2
#: What is read, and thrown away, of a body that is too large, so that the answer is not lost in a
#: reset.
_MOST_THROWN_AWAY: Final = 1024 * 1024

#: Adds what a module has.
Resources = Callable[[Routes], None]


#: The port mapper's ``register``: name, protocol, type, port and properties of a service. Returns
#: what takes it back.
RegisterPort = Callable[[str, str, str, int, dict[str, str]], Callable[[], None]]


#: ``(user, password, host)``: who that is, as :meth:`gateway.admin.service.guard.Guard.identify`.
Identify = Callable[[str, str, str], Awaitable[Identity]]


class Pages(Protocol):
    """Pages for browsers. Whom they let in is their own business."""

    def has(self, request: Any) -> bool:
        """Whether this request is for them."""

    def render(self, request: Any) -> int:
        """Answer, as :class:`~twisted.web.resource.IResource` does."""

    def close(self) -> None:
        """End what they are still writing. Idempotent."""


#: Makes the pages.
MakePages = Callable[[Routes, Identify], Pages]


class AdminService:
    """The admin service.

    :param reactor: listens, and is the clock.
    :param resources: what can be asked for, besides ``GET /v1``, which says what this is.
    :param authenticate: for users other than the one in the options; None lets in only that one.
    :param register_port: announces the port to the port mapper, or None.
    :param pages: makes the pages for browsers; None for no pages.
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
        pages: MakePages | None = None,
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
        self._pages = None if pages is None else pages(routes, self._guard.identify)
        root = self._guard if self._pages is None else _Root(self._guard, self._pages)
        site = _Site(root, reactor=reactor, timeout=IDLE_S)
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
        try:
            self._listening = await self._listen(options.port)
        except CannotListenError as error:
            if not options.any_port:
                raise
            self._listening = await self._listen(0)
            self._log.warn(
                "port {port} is taken ({reason}), so that the system chose one for the admin service; imq.bridge.admin.port sets one",
                port=options.port,
                reason=str(error.socketError),
            )
        if self._register_port is not None:
            address: Any = self._listening.getHost()
            protocol = "tls" if options.tls else "tcp"
            self._unregister = self._register_port(
                PORT_MAPPER_NAME, protocol, "ADMIN", self.port, {"hostname": address.host}
            )
        self._log.info("admin service on {host}:{port}", host=options.hostname, port=self.port)
        if self._pages is not None:
            self._log.info("console: {url}", url=self.url)

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        host = self._options.hostname
        named = f"[{host}]" if ":" in host else host
        return f"http{'s' if self._options.tls else ''}://{named}:{self.port}/"

    def _listen(self, port: int) -> Deferred[IListeningPort]:
        return server_endpoint(
            self._reactor, self._options.hostname, port, MOST_CONNECTIONS, PORT_MAPPER_NAME
        ).listen(self._factory)

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
        if self._pages is not None:
            self._pages.close()
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

    :ivar admin: who asks, once they are let in. :ivar role: what they may do.
    :ivar now: what they may do now. :ivar too_large: whether its body was.
    :ivar gone: whether it has been answered by :meth:`send_away`, or its client has gone.
    """

    admin = ""
    gone = False
    role = Role.VIEWER
    now: Callable[[], Role | None] = staticmethod(lambda: None)
    too_large = False
    _seen = 0
    #: Whether the connection was to be kept, where it is not because a stranger asks.
    _persistent: Any = False
    content: Any
    channel: Any

    def let_in(self, identity: Identity) -> None:
        """Keep this connection when others need room: who asks was let in."""
        self.admin, self.role, self.now = identity.user, identity.role, identity.now
        if not self.gone:
            self.channel.site.let_in.add(_peer(self.channel.getPeer()))
            if self._persistent:
                self.channel.persistent = self._persistent
                self.responseHeaders.removeHeader("Connection")

    def process(self) -> None:
        site: _Site = self.channel.site
        site.under_way[self] = None
        self.notifyFinish().addBoth(lambda _: site.under_way.pop(self, None))
        if site.is_stranger(self) and self.channel.persistent:
            # One after the other, a stranger's requests would keep the reactor from all others:
            # what has come of them is answered at once.
            self._persistent, self.channel.persistent = self.channel.persistent, False
            self.setHeader("Connection", "close")  # type: ignore[no-untyped-call]
        if odd := self._odd_header():
            self._answer_with(Refused(f"the header {odd} of the request is not UTF-8", "bad_text"))
            return
        if len(site.under_way) > MOST_REQUESTS:
            sent_away = next(filter(site.is_stranger, site.under_way), self)
            sent_away.send_away()
            if sent_away is self:
                return
        super().process()  # type: ignore[no-untyped-call]

    def send_away(self) -> None:
        """Answer that there are too many requests, and nothing else."""
        refused = Refused(
            f"{MOST_REQUESTS} requests and open pages are under way, and more are not taken: try again in {AGAIN_S} s",
            "busy",
            HTTPStatus.SERVICE_UNAVAILABLE,
            {"Retry-After": str(AGAIN_S), "Connection": "close"},
        )
        self.channel.persistent = False
        self._answer_with(refused)

    def _answer_with(self, refused: Refused) -> None:
        self.write(write_refusal(self, refused))  # type: ignore[no-untyped-call]
        # What else would answer it writes no more.
        self.gone = True
        self.finish()  # type: ignore[no-untyped-call]

    def _odd_header(self) -> str:
        """Return the name of a header that is no text; "" if all are.

        Who asks is not known yet. That of the host is looked at when it is.
        """
        for name, values in self.requestHeaders.getAllRawHeaders():
            try:
                b"".join(values).decode()
            except UnicodeDecodeError:
                if name.lower() != b"host":
                    return name.decode("ascii", "replace")
        return ""

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


@implementer(IResource)
class _Root:
    """Has pages answer what is for browsers, and the guard all else."""

    isLeaf = True
    server: Any = None

    def __init__(self, guard: Guard, pages: Pages) -> None:
        self._guard = guard
        self._pages = pages

    def getChildWithDefault(self, name: bytes, request: Any) -> _Root:
        return self

    def putChild(self, path: bytes, child: IResource) -> None:
        raise TypeError("the admin service's resources are added to its routes")

    def render(self, request: Any) -> int:
        pages = self._pages.has(request)
        return self._pages.render(request) if pages else self._guard.render(request)


class _Channel(HTTPChannel):
    """Twisted's, which says nothing of a line that is too long."""

    _refused = False

    def dataReceived(self, data: bytes) -> None:
        """Octets of requests."""
        if not self._refused:
            super().dataReceived(data)  # type: ignore[no-untyped-call]

    def lineLengthExceeded(self, line: bytes) -> None:
        """Say so, and close the connection."""
        self._refused = True
        text = f"a line of the request has more than {self.MAX_LENGTH} octets\n"
        head = f"HTTP/1.1 414 URI Too Long\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        transport: Any = self.transport
        transport.write((head + text).encode())
        self.loseConnection()  # type: ignore[no-untyped-call]


class _Site(Site):
    """Twisted's site, which logs no requests; changes are logged elsewhere."""

    noisy = False
    protocol: Any = _Channel
    requestFactory = _Request

    def __init__(self, resource: Any, **options: Any) -> None:
        super().__init__(resource, _Request, parsePOSTFormSubmission=False, **options)  # type: ignore[no-untyped-call]
        self.displayTracebacks = False
        #: Requests that have come whole and are not answered yet, the oldest first.
        self.under_way: dict[_Request, None] = {}
        #: Peers that the guard has let in.
        self.let_in: set[tuple[str, int]] = set()

    def is_stranger(self, request: _Request) -> bool:
        """Whether who asks has not been let in."""
        return _peer(request.channel.getPeer()) not in self.let_in

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
            busy = {_peer(request.channel.getPeer()) for request in self._site.under_way}
            # Looked at one by one, as in a flood the first is mostly the one.
            idle = (each for each in self._there() if _address(each) not in busy)
            strange_idle = (
                each
                for each in filter(self._is_strange, self._there())
                if _address(each) not in busy
            )
            # Connections without a right password must not keep the administrator out: the oldest
            # of them goes, those whose password is being checked last. One that is kept for a
            # later request, its client opens again.
            leaving = next(chain(strange_idle, idle, filter(self._is_strange, self._there())), None)
            if leaving is None:
                # None closes the connection at once.
                return None
            self._leaving.add(leaving)
            transport: Any = leaving.transport
            if self._is_stranger(leaving):
                transport.abortConnection()
            else:
                transport.loseConnection()
        built: Any = super().buildProtocol(addr)
        self._limit(built)
        return built

    def _there(self) -> Iterator[ProtocolWrapper]:
        return (each for each in self.protocols if each not in self._leaving)

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
        return connection not in self._leaving and self._is_stranger(connection)

    def _is_stranger(self, connection: ProtocolWrapper) -> bool:
        return _address(connection) not in self._site.let_in

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
