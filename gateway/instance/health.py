"""The health of the process, for load balancers and supervisors.

Two resources over HTTP, without a login: ``/live`` says that the process runs, ``/ready`` whether
clients can be served here. Each answers 200 or 503 and a JSON object that says why. Owns the
listener and the form; what the health is, its user says.

Whoever reaches the port may ask, so a connection has one request, :data:`REQUEST_S` seconds for it
and no body that is kept. There are at most :data:`MOST_CONNECTIONS`; one more closes the oldest.

A process that takes over a broker of millions of messages cannot serve its reactor for seconds. Then
a thread answers on the same port: a supervisor that ended the process would only have the next one
begin anew.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from socket import socket
from typing import Any, Final

from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from gateway.instance import settings_general
from gateway.instance.listening import server_endpoint
from gateway.instance.settings import Settings
from gateway.instance.systemd import given_sockets

#: What the port mapper calls it.
SERVICE: Final = "health"
#: Connections there may be; a look takes a millisecond.
MOST_CONNECTIONS: Final = 64
#: Seconds in which a connection must have sent its request, however many octets it sends.
REQUEST_S: Final = 10
#: What is read, and thrown away, of the body that a request may have.
MOST_BODY: Final = 64 * 1024
#: The same where a thread answers one at a time, and may be waited for when the reactor runs again.
_BESIDE_REQUEST_S: Final = 0.2
#: The longest head of a request that the thread reads.
_BESIDE_MOST_HEAD: Final = 16 * 1024
#: How soon that thread sees that it is over.
_POLL_SECONDS: Final = 0.02
_HEADERS: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}

_log: Final = Logger(namespace="gateway.health")


@dataclass(frozen=True)
class Health:
    """How the process is.

    :param state: such as ``owner`` or ``standby``.
    :param reasons: why clients cannot be served, sentences; empty while they can be.
    """

    state: str
    reasons: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The same in a line, for a supervisor."""
        return "; ".join(self.reasons) or "clients are served"


class HealthService:
    """Listens for those who ask about the health.

    :param health: called for each of them.
    """

    def __init__(self, reactor: Any, health: Callable[[], Health]) -> None:
        self._reactor = reactor
        self._listening: IListeningPort | None = None
        self._site = _Site(_Resource(health), reactor)

    async def start_as(self, settings: Settings) -> tuple[str, int] | None:
        """Listen where settings say.

        :returns: host and port; None where they want no health service.
        :raises CannotListenError: it cannot listen there.
        """
        number = settings[settings_general.HEALTH_PORT]
        if number < 0 and not given_sockets(SERVICE):
            return None
        host = settings[settings_general.HEALTH_HOSTNAME] or settings[settings_general.HOSTNAME]
        return host, await self.start(host, number)

    async def start(self, host: str, port: int) -> int:
        """Listen.

        :returns: the port, which is another one where 0 was asked for.
        :raises CannotListenError: it cannot listen there.
        """
        endpoint = server_endpoint(self._reactor, host, port, MOST_CONNECTIONS, SERVICE)
        self._listening = await endpoint.listen(self._site)
        address: Any = self._listening.getHost()
        return int(address.port)

    def stop(self) -> Any:
        """Stop listening. :returns: a Deferred that fires then, or None."""
        listening, self._listening = self._listening, None
        return None if listening is None else listening.stopListening()

    @contextmanager
    def answered_beside(self, why: str) -> Iterator[None]:
        """Answer from a thread while the body keeps the reactor busy.

        :param why: clients cannot be served meanwhile, a sentence.
        """
        if self._listening is None:
            yield
            return
        listening: Any = self._listening
        beside = _Beside(listening.socket.dup(), Health("starting", (why,)))
        thread = threading.Thread(
            target=beside.serve_forever, args=(_POLL_SECONDS,), name="health", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            beside.shutdown()
            thread.join()
            beside.server_close()


class _Resource(Resource):
    """Answers by the path alone. :param health: as for the service."""

    isLeaf = True

    def __init__(self, health: Callable[[], Health]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._health = health

    def render(self, request: Any) -> bytes:
        """As :class:`~twisted.web.resource.IResource` does."""
        form = _FORMS.get(request.path.decode("latin-1"))
        if form is None:
            request.setResponseCode(HTTPStatus.NOT_FOUND)
            return b""
        status, body = _answer(form(self._health()))
        request.setResponseCode(status)
        for name, text in _HEADERS.items():
            request.setHeader(name, text)
        return body


class _Request(Request):
    """The one request of a connection; its body is thrown away."""

    _seen = 0
    content: Any
    channel: Any

    def gotLength(self, length: int | None) -> None:
        # Never a file on the disk.
        self.content = BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        self._seen += len(data)
        if self._seen > MOST_BODY:
            self.channel.transport.abortConnection()

    def process(self) -> None:
        # Requests without end on one connection would keep the reactor from all others.
        self.channel.persistent = False
        self.setHeader("Connection", "close")  # type: ignore[no-untyped-call]
        super().process()  # type: ignore[no-untyped-call]


class _Channel(HTTPChannel):
    """A connection, with one time for all of its request."""

    site: _Site
    transport: Any

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[no-untyped-call]
        self.site.make_room()
        self.site.connected[self] = None

    def resetTimeout(self) -> None:
        """Nothing: a client that dribbles gets no more time."""

    def timeoutConnection(self) -> None:
        """Close the connection; strangers cause no line of the log."""
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.site.connected.pop(self, None)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class _Site(Site):
    """Twisted's site, which logs no requests, and has room for the next one."""

    noisy = False
    protocol: Any = _Channel

    def __init__(self, resource: Any, reactor: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            resource, _Request, reactor=reactor, timeout=REQUEST_S, parsePOSTFormSubmission=False
        )
        #: The connections there are, the oldest first.
        self.connected: dict[_Channel, None] = {}

    def make_room(self) -> None:
        """Close the oldest connection if there are as many as may be.

        A look takes a millisecond, so who has been there for longest waits for nothing.
        """
        if len(self.connected) >= MOST_CONNECTIONS:
            oldest = next(iter(self.connected))
            del self.connected[oldest]
            oldest.transport.abortConnection()

    def log(self, request: Any) -> None:
        """Nothing."""


class _Beside(HTTPServer):
    """Answers on a socket that listens already. :param health: what it says."""

    def __init__(self, listening: socket, health: Health) -> None:
        super().__init__(("", 0), _Asked, bind_and_activate=False)
        # One of its own, which was never bound.
        self.socket.close()
        self.socket = listening
        self.health = health

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what is not the doing of a client that has gone or is too slow."""
        if not isinstance(sys.exception(), OSError):
            _log.failure("who asked for the health got no answer")


class _Asked(BaseHTTPRequestHandler):
    timeout = _BESIDE_REQUEST_S
    server: _Beside

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = BytesIO(self._head())

    def _head(self) -> bytes:
        """Read the head of the request.

        :raises OSError: it did not come in time.
        """
        until = time.monotonic() + _BESIDE_REQUEST_S
        head = b""
        while not re.search(rb"\r?\n\r?\n", head) and len(head) < _BESIDE_MOST_HEAD:
            # The time of a socket is for each octet that comes, and this is for all of them.
            self.connection.settimeout(max(0.001, until - time.monotonic()))
            more = self.connection.recv(4096)
            if not more:
                break
            head += more
        return head

    def do_GET(self) -> None:
        """Answer as the resources do."""
        form = _FORMS.get(self.path.partition("?")[0])
        if form is None:
            self.send_error(404)
            return
        status, body = _answer(form(self.server.health))
        self.send_response(status)
        for name, text in {**_HEADERS, "Content-Length": str(len(body))}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _life(health: Health) -> tuple[bool, object]:
    return True, {"live": True, "state": health.state}


def _readiness(health: Health) -> tuple[bool, object]:
    ready = not health.reasons
    return ready, {"ready": ready, "state": health.state, "reasons": list(health.reasons)}


#: What is asked for, and what makes the answer.
_FORMS: Final = {"/live": _life, "/ready": _readiness}


def _answer(told: tuple[bool, object]) -> tuple[int, bytes]:
    """Return the status and the body."""
    well, value = told
    return 200 if well else 503, json.dumps(value).encode() + b"\n"
