"""Listening on one address, or on all of both families."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread

from gateway.instance.listening import peer_host, server_endpoint

pytestmark = pytest.mark.process


class Saying(Factory):
    """Says to each client who it is."""

    noisy = False

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        class Said(Protocol):
            def connectionMade(self) -> None:
                assert self.transport is not None
                self.transport.write(peer_host(addr).encode())
                self.transport.loseConnection()

        return Said()


def heard(host: str, port: int) -> Deferred[bytes]:
    def ask() -> bytes:
        with socket.create_connection((host, port), timeout=10) as client:
            return b"".join(iter(lambda: client.recv(100), b""))

    return deferToThread(ask)


@pytest.mark.parametrize(
    ("host", "reached"),
    [("", ["127.0.0.1", "::1"]), ("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"])],
)
@pytest_twisted.ensureDeferred
async def test_who_can_connect_and_by_which_name(host: str, reached: list[str]) -> None:
    port: Any = await server_endpoint(reactor, host, 0).listen(Saying())
    number = port.getHost().port
    try:
        for address in ("127.0.0.1", "::1"):
            if address in reached:
                assert await heard(address, number) == address.encode()
            else:
                with pytest.raises(ConnectionRefusedError):
                    await heard(address, number)
    finally:
        await maybeDeferred(port.stopListening)
    with pytest.raises(ConnectionRefusedError):
        await heard(reached[0], number)
    # At once again, though clients' connections linger.
    again: Any = await server_endpoint(reactor, host, number).listen(Saying())
    await maybeDeferred(again.stopListening)


@pytest_twisted.ensureDeferred
async def test_without_ipv6_there_is_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port: Any = await server_endpoint(reactor, "", 0).listen(Saying())
    assert await heard("127.0.0.1", port.getHost().port) == b"127.0.0.1"
    await maybeDeferred(port.stopListening)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest_twisted.ensureDeferred
async def test_a_port_that_either_family_has_taken_is_an_error(
    family: socket.AddressFamily,
) -> None:
    with socket.create_server(("", 0), family=family) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(CannotListenError) as refused:
            await server_endpoint(reactor, "", number).listen(Saying())
    assert refused.value.port == number


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (IPv4Address("TCP", "192.0.2.1", 1), "192.0.2.1"),
        (IPv6Address("TCP", "2001:db8::1", 1), "2001:db8::1"),
        (IPv6Address("TCP", "::ffff:192.0.2.1", 1), "192.0.2.1"),
        (UNIXAddress(b"/x"), ""),
        (None, ""),
    ],
)
def test_the_address_of_a_peer(address: IAddress | None, host: str) -> None:
    assert peer_host(address) == host
