"""What is left of a connection that is closed: nothing, without the garbage collector."""

from __future__ import annotations

import gc
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from OpenSSL import SSL
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.sessions.session import EmbeddedSession
from gateway.stomp.service import StompService
from gateway.stomp.session.session import Session
from gateway.stomp.settings import StompOptions
from gateway.stomp.transport.connection import StompConnection
from gateway.stomp.transport.tls import SniffingTLS
from tests.gateway.broker.brokers import Deployment
from tests.gateway.stomp.test_service import CERTIFICATES, CONNECT, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

_COUNT: Final = 20
_PATIENCE: Final = 20.0
_OF_ONE_CONNECTION: Final = frozenset(
    (StompConnection, Session, EmbeddedConnection, EmbeddedSession, SniffingTLS, SSL.Connection)
)
#: A record of a TLS handshake that announces more than comes.
_HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
#: A client with a message it has not acknowledged and a transaction it has not committed.
_BUSY: Final = (
    b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0"
    b"SUBSCRIBE\nid:2\ndestination:/topic/a\n\n\0"
    b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/b\ntransaction:t\n\nx\0"
    b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0"
)
_ENDINGS: Final = {
    "nothing": b"",
    "DISCONNECT": b"DISCONNECT\nreceipt:last\n\n\0",
    "an error": b"UNHEARD-OF\n\n\0",
}


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def remaining() -> Counter[str]:
    """How many objects there are of which each belongs to one connection."""
    kinds = [type(each) for each in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if kind in _OF_ONE_CONNECTION)


def visit(port: int, trust: ssl.SSLContext | None, *said: bytes) -> None:
    """Connect, say each of these and hear an answer to it, if it is a frame, and go."""
    client = socket.create_connection(("127.0.0.1", port), _PATIENCE)
    if trust is not None:
        client = trust.wrap_socket(client, server_hostname="localhost")
    with client:
        for octets in said:
            client.sendall(octets)
            if octets.endswith(b"\0"):
                assert client.recv(64 * 1024)


class Gateway:
    """The service in front of a broker, in this process."""

    def __init__(self, folder: Path) -> None:
        clock: Any = reactor
        self.broker = Deployment(clock, folder, "memory")
        self.service = StompService(
            clock,
            self.broker.turn,
            self.broker.provider,
            StompOptions(hostname="127.0.0.1", tcp_port=0, tls_port=0, tls_enabled=True),
            lambda _: CERTIFICATES.server(),
        )

    async def leaves_nothing(self, name: str, trust: ssl.SSLContext | None, *said: bytes) -> None:
        """Many clients come to the port of that name, one after the other, and go."""
        await self.service.start()
        before = remaining()
        for _ in range(_COUNT):
            await deferToThread(visit, self.service.ports[name], trust, *said)
        counters = self.service.counters
        await until(lambda: counters.connections_total == _COUNT and not counters.connections)
        # What the last turn left to the next pass of the reactor goes with that.
        await deferToThread(lambda: None)
        assert remaining() == before
        await self.service.stop()
        await self.broker.close()


@pytest.mark.parametrize("ending", _ENDINGS)
@pytest.mark.parametrize("name", ["tcp", "tls"])
@on_reactor
async def test_of_a_client_that_was_connected(tmp_path: Path, name: str, ending: str) -> None:
    trust = None
    if name == "tls":
        trust = ssl.create_default_context(cadata=CERTIFICATES.authority.dumpPEM().decode())  # type: ignore[no-untyped-call]
    said = [CONNECT, _BUSY, _ENDINGS[ending]]
    await Gateway(tmp_path).leaves_nothing(name, trust, *said)


@pytest.mark.parametrize("name", ["tcp", "tls"])
@pytest.mark.parametrize("said", [b"", _HALF_HELLO, CONNECT[:20]])
@on_reactor
async def test_of_a_client_that_got_no_further(tmp_path: Path, name: str, said: bytes) -> None:
    await Gateway(tmp_path).leaves_nothing(name, None, said)
