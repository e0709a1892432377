"""Where the instance listens: on one address, or on every address of the machine, of IPv4 and IPv6 alike.

Owns the choice of the address family. Knows nothing of what is served.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final

from twisted.internet.defer import Deferred, execute
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from zope.interface import implementer

_MAPPED: Final = "::ffff:"


def server_endpoint(reactor: Any, host: str, port: int, backlog: int = 50) -> IStreamServerEndpoint:
    """The endpoint of a TCP server.

    :param host: a name or an address; empty is every address, of both families where the machine has both.
    :param port: 0 lets the system choose. :param backlog: connections that may wait to be accepted.
    """
    endpoint: IStreamServerEndpoint
    if not host and socket.has_dualstack_ipv6():
        endpoint = _EveryAddress(reactor, port, backlog)
    else:
        family: Any = TCP6ServerEndpoint if ":" in host else TCP4ServerEndpoint
        endpoint = family(reactor, port, backlog=backlog, interface=host)
    return endpoint


def peer_host(address: object) -> str:
    """The IP address of a peer, that of IPv4 as such where it came to a socket of both families; empty where it has none."""
    host = str(getattr(address, "host", ""))
    return host.removeprefix(_MAPPED) if host.startswith(_MAPPED) and "." in host else host


def counted_address(host: str) -> str:
    """What a peer is counted by: an address of IPv6 by its /64, which is what one machine has."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


@implementer(IStreamServerEndpoint)
class _EveryAddress:
    """One socket for both families. Twisted's own would have IPv4 as well, or not, by a setting of the system."""

    def __init__(self, reactor: Any, port: int, backlog: int) -> None:
        self._reactor = reactor
        self._port = port
        self._backlog = backlog

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        listening: Deferred[IListeningPort] = execute(self._listen, protocolFactory)
        return listening

    def _listen(self, factory: IProtocolFactory) -> IListeningPort:
        try:
            made = socket.create_server(("", self._port), family=socket.AF_INET6, backlog=self._backlog, dualstack_ipv6=True)
        except OSError as error:
            raise CannotListenError("", self._port, error) from error  # type: ignore[no-untyped-call]
        with made:
            made.setblocking(False)
            adopted: IListeningPort = self._reactor.adoptStreamPort(made.fileno(), socket.AF_INET6, factory)
        return adopted
