"""Real clients against a real ``stomp-gateway``: every scenario, by every client, in every version
it speaks, over TCP, TLS and WebSocket.

The gateway asks TLS clients for a certificate. Over TLS the short run takes two scenarios, because
what a frame means is settled over TCP; ``--long`` takes them all. The clients that are not Python's
come by ``tests/install-packages``, Node.js's by npm into ``node/``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.gateway_process import HOST, Certificates, GatewayProcess, free_port
from tests.interop.client import Client, Server, Tls
from tests.interop.node_modules import NODE, brought
from tests.interop.scenarios import COMMON, OURS, connects, sends_and_receives

HERE: Final = Path(__file__).parent
DRIVERS: Final = HERE / "clients"


@dataclass(frozen=True)
class Driven:
    """A client: how its driver is started and what the client can do.

    :param transports: what it can connect by: ``tcp``, ``ws``, and with a certificate of its own
        ``tls``, ``wss``.
    """

    name: str
    command: tuple[str, ...]
    versions: tuple[str, ...] = ("1.0", "1.1", "1.2")
    transports: tuple[str, ...] = ("tcp", "tls")


CLIENTS: Final = (
    Driven("stomp.py", (sys.executable, "-m", "tests.interop.clients.stomp_py")),
    # Its docstrings hold escapes that Python warns of when it compiles them.
    Driven(
        "stompest", (sys.executable, "-W", "ignore", "-m", "tests.interop.clients.stompest_sync")
    ),
    Driven("ruby", ("ruby", str(DRIVERS / "ruby_stomp.rb"))),
    Driven("perl", ("perl", str(DRIVERS / "net_stomp.pl"))),
    Driven("php", ("php", str(DRIVERS / "php_stomp.php")), versions=("1.0",), transports=("tcp",)),
    Driven("stompit", ("node", str(DRIVERS / "stompit.js"), str(NODE))),
    Driven(
        "stompjs",
        ("node", str(DRIVERS / "stompjs.js"), str(NODE)),
        transports=("ws", "wss"),
    ),
    Driven(
        "stomp.py",
        (sys.executable, "-m", "tests.interop.clients.stomp_py", "ws"),
        versions=("1.2",),
        transports=("ws",),
    ),
)
SCENARIOS: Final = {**COMMON, **OURS}
SHORT_OVER_TLS: Final = {connects.__name__, sends_and_receives.__name__}


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[GatewayProcess]:
    listener = "imq.bridge.stomp.listener"
    with GatewayProcess(
        tmp_path_factory.mktemp("interop"),
        tls=certificates,
        require_client_certificate=True,
        settings={
            f"{listener}.web.port": str(free_port()),
            f"{listener}.web.ws": "true",
            f"{listener}.secure.port": str(free_port()),
            f"{listener}.secure.ws": "true",
            f"{listener}.secure.tls": "true",
        },
    ) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def node_modules() -> None:
    brought()


def combinations() -> Iterator[object]:
    for client in CLIENTS:
        for version in client.versions:
            for transport in client.transports:
                for scenario in SCENARIOS:
                    short = transport in ("tcp", "ws") or scenario in SHORT_OVER_TLS
                    yield pytest.param(
                        client,
                        version,
                        transport,
                        scenario,
                        id=f"{client.name}-{version}-{transport}-{scenario}",
                        marks=() if short else (pytest.mark.long,),
                    )


@pytest.mark.parametrize(("client", "version", "transport", "scenario"), list(combinations()))
def test_a_client_does_it(
    client: Driven,
    version: str,
    transport: str,
    scenario: str,
    gateway: GatewayProcess,
    certificates: Certificates,
    request: pytest.FixtureRequest,
) -> None:
    if client.command[0] == "node":
        request.getfixturevalue("node_modules")
    port = {
        "tcp": gateway.port,
        "tls": gateway.tls_port,
        "ws": int(gateway.settings.get("imq.bridge.stomp.listener.web.port", 0)),
        "wss": int(gateway.settings.get("imq.bridge.stomp.listener.secure.port", 0)),
    }[transport]
    tls = Tls(
        str(certificates.ca), str(certificates.client_certificate), str(certificates.client_key)
    )
    server = Server(HOST, port, tls if transport in ("tls", "wss") else None)
    with Client(client.command, version, server) as driven:
        SCENARIOS[scenario](driven)
