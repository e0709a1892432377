"""Proxies before the gateway, which tell who the client is.

Owns whose word is taken, and what it says: the header of the PROXY protocol, versions 1 and 2 (HAProxy's
``proxy-protocol.txt``), before all else on a connection; and ``X-Forwarded-For`` of a request for a
WebSocket. Of all others both are what a client may say of itself.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory, Protocol, ServerFactory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.instance.listening import parsed_address, peer_host

_log: Final = Logger(namespace="gateway.stomp.connection")

_V1: Final = b"PROXY "
_V1_LONGEST: Final = 107
_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
#: Behind the signature: version and command, family and protocol, octets that follow.
_V2_HEAD: Final = struct.Struct("!BBH")
_V2_LOCAL: Final = 0x20
_V2_PROXY: Final = 0x21
#: Two addresses and two ports, by family and protocol; of others nothing is known.
_V2_ADDRESSES: Final = {0x11: struct.Struct("!4s4sHH"), 0x21: struct.Struct("!16s16sHH")}
#: Most octets of it that are read; more than any proxy sends.
_V2_LONGEST: Final = 4096
_HIGHEST_PORT: Final = 65_535


class BadProxyHeader(Exception):
    """A proxy's octets begin like a header, and break its rules."""


class Told(NamedTuple):
    """What a header says.

    :param client: None: it says nothing of a client.
    :param size: octets of the header.
    :param own: the proxy itself asks, as for a look at its health.
    """

    client: IAddress | None
    size: int
    own: bool = False


class Proxies:
    """The addresses whose word is taken.

    :param networks: such as ``10.0.0.5`` or ``10.0.0.0/24``.
    :raises ValueError: one of them is no network.
    """

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks: Final = frozenset(map(ipaddress.ip_network, networks))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proxies) and self._networks == other._networks

    def __hash__(self) -> int:
        return hash(self._networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, host: str) -> bool:
        address = parsed_address(host)
        return address is not None and any(address in network for network in self._networks)

    def client(self, forwarded: str, peer: str) -> str:
        """Return the client's address by ``X-Forwarded-For``.

        It is the last one there that is not a proxy's. What stands before it the client may have
        written. That a client is on this machine no proxy can say, be it that the proxy is there
        itself: such a client is :data:`UNKNOWN`.

        :param peer: who has sent the request.
        """
        found = peer
        for one in reversed(forwarded.split(",")):
            if found not in self:
                break
            host = _host(one)
            if host is None:
                break
            found = host
        if peer not in self:
            return found
        return _elsewhere(peer if _is_loopback(found) else found)


#: The address of a client of whom a proxy on this machine does not say where it is. It has no rights
#: of this machine's.
UNKNOWN: Final = "unknown"

#: No proxy at all.
NONE: Final = Proxies()


def _is_loopback(host: str) -> bool:
    address = parsed_address(host)
    return address is not None and address.is_loopback


def _elsewhere(host: str) -> str:
    return UNKNOWN if _is_loopback(host) else host


def _host(text: str) -> str | None:
    """Return the address that a proxy wrote, without its port.

    None: it wrote something else.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def read_header(octets: bytes) -> Told | None:
    """Read the header with which a connection may begin.

    :returns: None: it is not whole.
    :raises BadProxyHeader: it is not a header, though it begins like one.
    """
    if octets.startswith(_V2[: len(octets)]):
        return _version_2(octets)
    if octets.startswith(_V1[: len(octets)]):
        return _version_1(octets)
    return Told(None, 0)


def _version_1(octets: bytes) -> Told | None:
    line, end, _ = octets[:_V1_LONGEST].partition(b"\r\n")
    if not end:
        if len(octets) >= _V1_LONGEST:
            raise BadProxyHeader(f"a header of version 1 has at most {_V1_LONGEST} octets")
        return None
    size = len(line) + len(end)
    kind, *rest = line[len(_V1) :].split(b" ")
    if kind == b"UNKNOWN":
        return Told(None, size)
    try:
        source, target, *ports = (part.decode("ascii") for part in rest)
        numbers = [int(port) for port in ports if port.isdecimal()]
        if kind not in (b"TCP4", b"TCP6") or len(numbers) != 2 or max(numbers) > _HIGHEST_PORT:
            raise ValueError
        parse = ipaddress.IPv4Address if kind == b"TCP4" else ipaddress.IPv6Address
        parse(target)
        return Told(_address(parse(source).packed, numbers[0]), size)
    except ValueError:
        raise BadProxyHeader(f"a header of version 1 does not say who connects: {line!r}") from None


def _version_2(octets: bytes) -> Told | None:
    start = len(_V2)
    if len(octets) < start + _V2_HEAD.size:
        return None
    command, kind, following = _V2_HEAD.unpack_from(octets, start)
    if command not in (_V2_LOCAL, _V2_PROXY) or following > _V2_LONGEST:
        raise BadProxyHeader(
            f"a header of version 2 has the command {command:#x} and {following} octets: expected 0x20 or 0x21, and at most {_V2_LONGEST}"
        )
    size = start + _V2_HEAD.size + following
    if len(octets) < size:
        return None
    addresses = _V2_ADDRESSES.get(kind)
    if command == _V2_LOCAL or addresses is None:
        return Told(None, size, command == _V2_LOCAL)
    if following < addresses.size:
        raise BadProxyHeader("a header of version 2 is too short for its addresses")
    source, _, port, _ = addresses.unpack_from(octets, start + _V2_HEAD.size)
    return Told(_address(source, port), size)


def _address(packed: bytes, port: int) -> IAddress:
    address = ipaddress.ip_address(packed)
    kind: Any = IPv4Address if address.version == 4 else IPv6Address
    made: IAddress = kind("TCP", str(address), port)
    return made


def _client_by(proxy: IAddress | None) -> IAddress:
    """The address of a client of whom the proxy says nothing."""
    address: IAddress = IPv4Address("TCP", _elsewhere(peer_host(proxy)), 0)
    return address


class ProxiedFactory(ServerFactory):
    """Makes connections for clients, of which some come by proxies.

    :param wrapped: makes the protocol for a client's address.
    :param timeout_s: seconds that a proxy has for its header.
    :param must_tell: a proxy's connection without one is closed: else a client could write it.
    """

    noisy = False

    def __init__(
        self,
        wrapped: Factory,
        proxies: Proxies,
        clock: IReactorTime,
        timeout_s: float,
        must_tell: bool,
    ) -> None:
        self._waiting: Final[set[_Announced]] = set()
        self._must_tell: Final = must_tell
        self._wrapped: Final = wrapped
        self._proxies: Final = proxies
        self._clock: Final = clock
        self._timeout_s: Final = timeout_s

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Make a protocol for the peer at ``addr``."""
        if peer_host(addr) in self._proxies:
            return _Announced(
                self._wrapped, addr, self._clock, self._timeout_s, self._must_tell, self._waiting
            )
        return self._wrapped.buildProtocol(addr)

    def stopFactory(self) -> None:
        """Nobody listens any more: those that have not said who they are go."""
        for waiting in [*self._waiting]:
            waiting.give_up("the listener is closed")


class _Announced(Protocol):
    """A connection from a proxy until its header is read.

    Then the client's protocol takes its place.
    """

    def __init__(
        self,
        wrapped: Factory,
        proxy: IAddress | None,
        clock: IReactorTime,
        timeout_s: float,
        must_tell: bool,
        waiting: set[_Announced],
    ) -> None:
        self._must_tell: Final = must_tell
        self._waiting: Final = waiting
        waiting.add(self)
        self._wrapped: Final = wrapped
        self._proxy: Final = proxy
        self._read = b""
        self._late: IDelayedCall | None = clock.callLater(
            timeout_s, self.give_up, "it sends no header of the PROXY protocol, and nothing else"
        )

    def dataReceived(self, data: bytes) -> None:
        """Octets from the proxy."""
        if self._late is None:
            return
        self._read += data
        try:
            told = read_header(self._read)
        except BadProxyHeader as error:
            self.give_up(str(error))
            return
        if told is None:
            return
        if not told.size and self._must_tell:
            self.give_up("it does not begin with a header of the PROXY protocol")
            return
        self._over()
        transport: Any = self.transport
        client = None if _is_loopback(peer_host(told.client)) else told.client
        if client is None and self._must_tell and not told.own:
            client = _client_by(self._proxy)
        # Where the header need not tell, the request may.
        following: Any = self._wrapped.buildProtocol(client or self._proxy)
        transport.protocol = following
        following.makeConnection(transport)
        if rest := self._read[told.size :]:
            following.dataReceived(rest)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The proxy has gone."""
        self._over()

    def give_up(self, why: str) -> None:
        """Close the connection. :param why: for the log."""
        self._over()
        _log.warn(
            "{proxy}: the proxy's connection is closed: {why}",
            proxy=peer_host(self._proxy),
            why=why,
        )
        self.transport.abortConnection()  # type: ignore[union-attr]

    def _over(self) -> None:
        self._waiting.discard(self)
        late, self._late = self._late, None
        if late is not None and late.active():
            late.cancel()
