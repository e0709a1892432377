"""The port mapper: tells clients the instance's services and ports.

Owns the table and the text protocol of the original. Knows none of the services; each registers
itself and is given the means to leave.

A client may send one line, the version it speaks (``101``), or nothing. The answer, of which each
line ends with LF::

    101 INSTANCE VERSION
    NAME PROTOCOL TYPE PORT [KEY=VALUE,KEY=VALUE]
    .

The bracket is optional. The first entry is the port mapper's own. The server then closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableProtocol,
    IListeningPort,
    IReactorTime,
    IStreamServerEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.instance import settings_general
from gateway.instance.layout import Layout
from gateway.instance.settings import Settings

PROTOCOL_VERSION = "101"
#: What the port mapper calls itself.
SERVICE = "portmapper"
LONGEST_REQUEST = 128

_WORD = re.compile(r"[!-~]+")
_PROPERTY = re.compile(r"[^\x00-\x1f\x7f,\[\]]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One service in the table.

    :param name: what clients look for; one entry has it.
    :param protocol: such as ``tcp`` or ``stomp[TCP]``.
    :param type: such as ``NORMAL``, ``ADMIN`` or ``stomp[bridge]``.
    :param port: its TCP port; 0 for a service that has none of its own.
    :param properties: what else a client may want to know.
    :raises ValueError: something of it cannot be written in the table.
    """

    name: str
    protocol: str
    type: str
    port: int
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, word in (("name", self.name), ("protocol", self.protocol), ("type", self.type)):
            if _WORD.fullmatch(word) is None:
                raise ValueError(
                    f"{what} of a port mapper entry is {word!r}; expected printable ASCII without blanks"
                )
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port of entry {self.name} is {self.port}; expected 0 to 65535")
        for key, value in self.properties.items():
            if (
                _WORD.fullmatch(key) is None
                or "=" in key
                or _PROPERTY.fullmatch(key + value) is None
            ):
                raise ValueError(
                    f"property {key!r} of entry {self.name} is {value!r}; expected text without ',', '[' and ']'"
                )

    def line(self) -> str:
        """The entry's line, without its end."""
        listed = ",".join(f"{key}={value}" for key, value in self.properties.items())
        bracket = f" [{listed}]" if listed else ""
        return f"{self.name} {self.protocol} {self.type} {self.port}{bracket}"


class PortMapper(Factory):
    """The table, and the factory of its connections.

    :param reactor: for the clients' time-outs.
    :param instance: the instance's name, in the first line.
    :param version: the server's version, in the first line.
    :param properties: those of the port mapper's own entry: in the original ``imqvarhome``,
        ``imqhome``, ``sessionid``.
    :param timeout: milliseconds to wait for a request before answering without, and then for the
        client to close.
    :param connections: how many clients may be connected at once; more are dropped unanswered.
    """

    noisy = False

    def __init__(
        self,
        reactor: IReactorTime,
        instance: str,
        version: str,
        properties: Mapping[str, str] | None = None,
        *,
        timeout: int = 500,
        connections: int = 50,
    ) -> None:
        if _WORD.fullmatch(instance) is None or _WORD.fullmatch(version) is None:
            raise ValueError(
                f"instance is {instance!r} and version {version!r}; expected printable ASCII without blanks"
            )
        self._reactor = reactor
        self._first_line = f"{PROTOCOL_VERSION} {instance} {version}"
        self._timeout = timeout / 1000
        self._limit = connections
        self._own = Entry(SERVICE, "tcp", "PORTMAPPER", 0, dict(properties or {}))
        self._entries: dict[str, Entry] = {}
        self._connected: set[_Connection] = set()

    def register(
        self,
        name: str,
        protocol: str,
        type: str,
        port: int,
        properties: Mapping[str, str] | None = None,
    ) -> Callable[[], None]:
        """Add a service to the end of the table.

        :return: takes it out again; calling it once more does nothing, even if the name has been
            registered anew.
        :raises ValueError: the name is taken, or the entry cannot be written.
        """
        entry = Entry(name, protocol, type, port, dict(properties or {}))
        if name in self._entries or name == self._own.name:
            raise ValueError(f"the port mapper has an entry {name}")
        self._entries[name] = entry

        def remove() -> None:
            if self._entries.get(name) is entry:
                del self._entries[name]

        return remove

    def table(self) -> str:
        """The answer to a request."""
        lines = [
            self._first_line,
            self._own.line(),
            *(entry.line() for entry in self._entries.values()),
            ".",
        ]
        return "".join(line + "\n" for line in lines)

    def listen(self, endpoint: IStreamServerEndpoint) -> Deferred[IListeningPort]:
        """Listen there; the port that was got is in the port mapper's own entry.

        :return: fires with the listening port; fails with
            :class:`twisted.internet.error.CannotListenError`.
        """

        def listening(port: IListeningPort) -> IListeningPort:
            number = getattr(port.getHost(), "port", 0)
            self._own = Entry(SERVICE, "tcp", "PORTMAPPER", number, self._own.properties)
            return port

        return endpoint.listen(self).addCallback(listening)

    def buildProtocol(self, addr: IAddress | None) -> _Connection | None:
        # None closes the connection at once.
        if len(self._connected) >= self._limit:
            return None
        connection = _Connection(self, self._reactor, self._timeout)
        self._connected.add(connection)
        return connection

    def disconnected(self, connection: _Connection) -> None:
        """That client has gone."""
        self._connected.discard(connection)

    @property
    def connected(self) -> int:
        """How many clients are connected."""
        return len(self._connected)

    def close_connections(self) -> None:
        """Drop the clients that are connected, as when the instance stops."""
        for connection in list(self._connected):
            connection.drop()


@implementer(IHalfCloseableProtocol)
class _Connection(Protocol):
    """One client.

    It waits for a line or the timeout, answers, closes its side, and waits for the client to close
    the other.

    Were the socket closed while something the client sent is unread, the reset would overtake the
    answer.
    """

    transport: ITCPTransport

    def __init__(self, mapper: PortMapper, reactor: IReactorTime, timeout: float) -> None:
        self._mapper = mapper
        self._reactor = reactor
        self._timeout = timeout
        self._received = b""
        self._answered = False
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        self._timer = self._reactor.callLater(self._timeout, self._answer)

    def dataReceived(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > LONGEST_REQUEST:
            self.drop()
        elif not self._answered and b"\n" in self._received:
            self._answer()

    def readConnectionLost(self) -> None:
        # A client that has said all it will say may still be reading.
        if not self._answered:
            self._answer()
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Our side is closed; the client's is waited for."""

    def drop(self) -> None:
        """Close at once, answered or not."""
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._stop_timer()
        self._mapper.disconnected(self)

    def _answer(self) -> None:
        self._stop_timer()
        self._answered = True
        self.transport.write(self._mapper.table().encode("ascii", "backslashreplace"))
        self.transport.loseWriteConnection()
        self._timer = self._reactor.callLater(self._timeout, self.drop)

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None


def port_mapper(reactor: Any, layout: Layout, settings: Settings, version: str) -> PortMapper:
    """Make the port mapper of an instance, as its settings say.

    :param version: the gateway's.
    """
    least = settings[settings_general.PORTMAPPER_LEAST_INFO]
    return PortMapper(
        reactor,
        layout.instance,
        version,
        {} if least else {"imqvarhome": str(layout.varhome)},
        timeout=settings[settings_general.PORTMAPPER_SOTIMEOUT],
        connections=settings[settings_general.PORTMAPPER_BACKLOG],
    )
