"""Where the instance listens: on one address, or on every address.

Every address of the machine is of IPv4 and IPv6 alike. A supervisor may have opened the sockets
before; see :mod:`gateway.instance.systemd`.

Owns the choice of the address family, and what the log says when the system lets no more
connections be accepted. Knows nothing of what is served.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import resource
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, execute, maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.logger import Logger
from zope.interface import implementer

from gateway.instance.systemd import given_sockets

_MAPPED: Final = "::ffff:"
#: Seconds between two log lines about connections to one port that cannot be accepted.
REPORT_S: Final = 60.0
#: Errors of accept() by which the system says that it has no room. Twisted survives them, and says
#: nothing that an operator would see.
_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

_log: Final = Logger(namespace="gateway.listening")


def server_endpoint(
    reactor: Any, host: str, port: int, backlog: int = 50, service: str = ""
) -> IStreamServerEndpoint:
    """The endpoint of a TCP server.

    :param host: a name or an address; empty is every address, of both families where the machine
        has both.
    :param port: 0 lets the system choose.
    :param backlog: connections that may wait to be accepted.
    :param service: if the process was given sockets of this name, those are used, wherever they
        listen.
    """
    given = given_sockets(service) if service else ()
    return _Given(reactor, given) if given else _Endpoint(reactor, host, port, backlog)


def cannot_listen(what: str, error: CannotListenError) -> str:
    """Return a line for operators. :param what: that was to listen."""
    return f"the {what} cannot listen on {error.interface or '*'}:{error.port}: {error.socketError}"


def peer_host(address: object) -> str:
    """Return the IP address of a peer.

    That of IPv4 is given as such where it came to a socket of both families. It is empty where the
    peer has none.
    """
    host = str(getattr(address, "host", ""))
    return host.removeprefix(_MAPPED) if host.startswith(_MAPPED) and "." in host else host


def parsed_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a text is, with or without a zone.

    None: it is something else.
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def counted_address(host: str) -> str:
    """Return what a peer is counted by.

    An address of IPv6 counts by its /64, which is what one machine has.
    """
    address = parsed_address(host)
    if address is None:
        return host
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


@implementer(IStreamServerEndpoint)
class _Endpoint:
    """An endpoint whose port tells the log when it cannot accept connections.

    For every address it has one socket for both families. Twisted's own would have IPv4 as well, or
    not, by a setting of the system.
    """

    def __init__(self, reactor: Any, host: str, port: int, backlog: int) -> None:
        self._reactor = reactor
        self._host = host
        self._port = port
        self._backlog = backlog

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        listening: Deferred[IListeningPort]
        if not self._host and socket.has_dualstack_ipv6():
            listening = execute(self._listen_everywhere, protocolFactory)
        else:
            family: Any = TCP6ServerEndpoint if ":" in self._host else TCP4ServerEndpoint
            listening = family(
                self._reactor, self._port, backlog=self._backlog, interface=self._host
            ).listen(protocolFactory)
        return listening.addCallback(self._watch)

    def _listen_everywhere(self, factory: IProtocolFactory) -> IListeningPort:
        try:
            made = socket.create_server(
                ("", self._port), family=socket.AF_INET6, backlog=self._backlog, dualstack_ipv6=True
            )
        except OSError as error:
            raise CannotListenError("", self._port, error) from error  # type: ignore[no-untyped-call]
        with made:
            made.setblocking(False)
            adopted: IListeningPort = self._reactor.adoptStreamPort(
                made.fileno(), socket.AF_INET6, factory
            )
        return adopted

    def _watch(self, port: Any) -> Any:
        return _watched(self._reactor, port)


@implementer(IStreamServerEndpoint)
class _Given:
    """An endpoint of sockets that listen already.

    They stay open when the port is closed, so that it can be opened again.
    """

    def __init__(self, reactor: Any, given: Sequence[socket.socket]) -> None:
        self._reactor = reactor
        self._given = given

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        return execute(self._adopt, protocolFactory)

    def _adopt(self, factory: IProtocolFactory) -> Any:
        ports = [
            _watched(
                self._reactor, self._reactor.adoptStreamPort(one.fileno(), one.family, factory)
            )
            for one in self._given
        ]
        return ports[0] if len(ports) == 1 else _Ports(ports)


@implementer(IListeningPort)
class _Ports:
    """Several ports of one service, of which the first speaks for all."""

    def __init__(self, ports: Sequence[Any]) -> None:
        self._ports = ports

    def startListening(self) -> None:
        """Nothing: they do."""

    def stopListening(self) -> Deferred[None]:
        """Close all."""
        closing = DeferredList([maybeDeferred(port.stopListening) for port in self._ports])
        return closing.addCallback(lambda _: None)

    def getHost(self) -> Any:
        """Return where the first listens."""
        return self._ports[0].getHost()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports[0], name)


def _watched(reactor: Any, port: Any) -> Any:
    """Return a port that tells the log when it cannot accept connections."""
    if hasattr(port, "socket"):
        address = port.getHost()
        port.socket = _WatchedSocket(
            port.socket, Shortage(reactor, f"{address.host or '*'}:{address.port}")
        )
    return port


class _WatchedSocket:
    """A listening socket.

    :param short: called each time that a connection cannot be accepted.
    """

    def __init__(self, listening: socket.socket, short: Callable[[int], None]) -> None:
        self._socket = listening
        self._short = short

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return self._socket.accept()
        except OSError as error:
            if error.errno in _SHORT:
                self._short(error.errno)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class Shortage:
    """Logs that a port cannot accept connections.

    It does so at most once in :data:`REPORT_S` seconds.

    :param where: the port's address.
    """

    def __init__(self, reactor: Any, where: str) -> None:
        self._reactor = reactor
        self._where = where
        self._count = 0
        self._told: float | None = None
        self._telling = False

    def __call__(self, number: int) -> None:
        """A connection could not be accepted. :param number: the ``errno``."""
        self._count += 1
        if not self._telling and (
            self._told is None or self._reactor.seconds() - self._told >= REPORT_S
        ):
            self._telling = True
            # Not now: Twisted has a descriptor in reserve, and closes the connection by it; a log
            # file that is rotated must not take that.
            self._reactor.callLater(0, self._tell, number)

    def _tell(self, number: int) -> None:
        self._telling = False
        self._told = self._reactor.seconds()
        count, self._count = self._count, 0
        _log.warn(
            "new connections to {where} are not accepted, {count} times since the last such line: {why}",
            where=self._where,
            count=count,
            why=_why(number),
        )


def _why(number: int) -> str:
    if number == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"this process has as many files and connections open as it may, {limit}; raise that limit, by 'ulimit -n' or LimitNOFILE in the "
            "systemd unit, and start it anew, or have fewer clients connect"
        )
    if number == errno.ENFILE:
        return "this machine has as many files and connections open as it may; raise fs.file-max, or end what holds them"
    return f"this machine is short of memory for sockets ({os.strerror(number)})"
