"""What stands between a provider and a broker that others share, so that connections can be lost
without harm to it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import maybeDeferred
from twisted.internet.protocol import connectionDone
from twisted.protocols.portforward import ProxyFactory, ProxyServer
from twisted.python.failure import Failure

from tests.gateway_process import HOST

clock: Any = reactor


class _Relayed(ProxyServer):
    """One connection that is relayed."""

    factory: Relay

    def connectionMade(self) -> None:
        self.factory.relayed.add(self)
        super().connectionMade()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.relayed.discard(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class Relay(ProxyFactory):
    """Relays connections to a port of the loopback until it is told to drop them."""

    protocol = _Relayed

    def __init__(self, port: int) -> None:
        super().__init__(HOST, port)
        self.noisy = False
        self.relayed: set[Any] = set()
        self._listener: Any = clock.listenTCP(0, self, interface=HOST)

    @property
    def entrance(self) -> int:
        """The port to connect to, of the loopback."""
        address: IPv4Address = self._listener.getHost()
        return address.port

    def drop(self) -> None:
        """Every connection that is relayed ends, on both sides, at once."""
        for one in list(self.relayed):
            if one.peer is not None and one.peer.transport is not None:
                one.peer.transport.abortConnection()
            one.transport.abortConnection()

    async def stop(self) -> None:
        self.drop()
        await maybeDeferred(self._listener.stopListening)
