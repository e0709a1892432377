"""Organizational units of client certificates as groups in access rules.

By TLS over TCP, and by WebSocket over TLS.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from certs.keystore import KeyStore
from tests.conformance.client import Client, upgrade
from tests.gateway_process import Certificates, GatewayProcess, free_port

_WEB: Final = "imq.bridge.stomp.listener.web"
_RULES: Final = """
queue.tills.produce.deny.user=*
queue.tills.consume.deny.user=*
queue.tills.produce.allow.group=shop
queue.tills.consume.allow.group=staff
"""
#: Clients, none of whom ``etc/users`` has, and what they may do with the queue.
_CLIENTS: Final = {
    "alice": (("shop", "staff"), True, True),
    "bob": (("shop",), True, False),
    "carol": (("staff",), False, True),
    "dave": ((), False, False),
}
_LOGIN: Final = {"accept-version": "1.2", "host": "localhost"}


class _WebClient(Client):
    """A client of STOMP whose frames are WebSocket messages."""

    def __init__(self, port: int, *, tls: ssl.SSLContext) -> None:
        super().__init__(port, tls=tls)
        super().write(upgrade())
        self._raw = b""
        while b"\r\n\r\n" not in self._raw:
            self._raw += self._socket.recv(65536)
        head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def write(self, octets: bytes) -> None:
        assert len(octets) < 65536
        # Masked with zeros.
        super().write(bytes((0x82, 0x80 | 126)) + len(octets).to_bytes(2) + bytes(4) + octets)

    def _read(self, until: float) -> None:
        kept, self._buffer = self._buffer, b""
        super()._read(until)
        self._raw += self._buffer
        self._buffer = kept
        while len(self._raw) >= 2:
            size, start = self._raw[1], 2
            if size == 126:
                size, start = int.from_bytes(self._raw[2:4]), 4
            if len(self._raw) < start + size:
                return
            # What closes the connection is no part of STOMP.
            if self._raw[0] & 15 in (1, 2):
                self._buffer += self._raw[start : start + size]
            self._raw = self._raw[start + size :]


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[GatewayProcess]:
    """A gateway that knows its users by certificates alone."""
    settings = {
        "imq.bridge.stomp.tls.certificateLogin": "true",
        "imq.bridge.stomp.tls.certificateGroups": "true",
        f"{_WEB}.port": str(free_port()),
        f"{_WEB}.ws": "true",
        f"{_WEB}.tls": "true",
        f"{_WEB}.requireClientAuth": "true",
    }
    folder = tmp_path_factory.mktemp("groups")
    with GatewayProcess(
        folder, tls=certificates, require_client_certificate=True, settings=settings
    ) as made:
        rules = made.directory / "etc" / "accesscontrol.properties"
        rules.write_text(rules.read_text() + _RULES)
        made.restart()
        yield made


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, gateway: GatewayProcess) -> Path:
    """Certificates that the gateway's authority has made for clients."""
    store = KeyStore(gateway.directory / "etc" / "tls")
    for name, (groups, _, _) in _CLIENTS.items():
        store.issue_client(name, datetime.now(UTC), groups=groups)
    return store.clients


#: Gives a client that shows a certificate; with ``login``, it has sent CONNECT with that and no more.
_Dial = Callable[..., Client]


@pytest.fixture(params=["tcp", "websocket"])
def dial(
    request: pytest.FixtureRequest, gateway: GatewayProcess, certificates: Certificates, shown: Path
) -> Iterator[_Dial]:
    with ExitStack() as opened:

        def dialled(name: str, **login: str) -> Client:
            context = ssl.create_default_context(cafile=str(certificates.ca))
            context.load_cert_chain(shown / f"{name}.pem", shown / f"{name}.key")
            made = (
                Client(gateway.tls_port, tls=context)
                if request.param == "tcp"
                else _WebClient(int(gateway.settings[f"{_WEB}.port"]), tls=context)
            )
            opened.enter_context(closing(made))
            made.send("CONNECT", _LOGIN, **login)
            if not login:
                made.expect("CONNECTED")
                made.version = "1.2"
            return made

        yield dialled


def test_units_of_a_certificate_decide_in_access_rules(dial: _Dial) -> None:
    for name, (_, sends, receives) in _CLIENTS.items():
        client = dial(name)
        client.send("SEND", {"destination": "/queue/tills", "receipt": "r"}, name)
        if sends:
            assert client.expect("RECEIPT")["receipt-id"] == "r"
        else:
            client.error(f"'{name}' may not", receipt_id="r")
        client = dial(name)
        client.send("SUBSCRIBE", {"destination": "/queue/tills", "id": "s", "receipt": "r"})
        if receives:
            assert client.expect("RECEIPT")["receipt-id"] == "r"
            while sends and client.message().text != name:
                pass
        else:
            client.error(f"'{name}' may not", receipt_id="r")


def test_a_login_that_is_not_the_certificates_is_refused(dial: _Dial) -> None:
    client = dial("dave", login="bob")
    client.error("passcode")
