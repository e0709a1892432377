"""Real clients against a real ``stomp-gateway``: every scenario, by every client, in every version
it speaks, over TCP and TLS.

The gateway asks TLS clients for a certificate. Over TLS the short run takes two scenarios, because
what a frame means is settled over TCP; ``--long`` takes them all. The clients that are not Python's
come by ``tests/install-packages``, Node.js's by npm into ``node/``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.gateway_process import HOST, Certificates, GatewayProcess
from tests.interop.client import Client, Server, Tls
from tests.interop.scenarios import COMMON, OURS, connects, sends_and_receives

HERE: Final = Path(__file__).parent
NODE: Final = HERE / "node"
DRIVERS: Final = HERE / "clients"


@dataclass(frozen=True)
class Driven:
    """A client: how its driver is started and what the client can do.

    :param tls: it can present a certificate of its own.
    """

    name: str
    command: tuple[str, ...]
    versions: tuple[str, ...] = ("1.0", "1.1", "1.2")
    tls: bool = True


CLIENTS: Final = (
    Driven("stomp.py", (sys.executable, "-m", "tests.interop.clients.stomp_py")),
    # Its docstrings hold escapes that Python warns of when it compiles them.
    Driven(
        "stompest", (sys.executable, "-W", "ignore", "-m", "tests.interop.clients.stompest_sync")
    ),
    Driven("ruby", ("ruby", str(DRIVERS / "ruby_stomp.rb"))),
    Driven("perl", ("perl", str(DRIVERS / "net_stomp.pl"))),
    Driven("php", ("php", str(DRIVERS / "php_stomp.php")), versions=("1.0",), tls=False),
    Driven("stompit", ("node", str(DRIVERS / "stompit.js"), str(NODE))),
)
SCENARIOS: Final = {**COMMON, **OURS}
SHORT_OVER_TLS: Final = {connects.__name__, sends_and_receives.__name__}


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        tmp_path_factory.mktemp("interop"), tls=certificates, require_client_certificate=True
    ) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def node_modules() -> None:
    """Has npm bring the pinned client, unless it is there.

    There is no lock file: one would name a registry.
    """
    [(name, version)] = json.loads((NODE / "package.json").read_text())["dependencies"].items()
    installed = NODE / "node_modules" / name / "package.json"
    if installed.is_file() and json.loads(installed.read_text())["version"] == version:
        return
    subprocess.run(
        ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=NODE,
        check=True,
        stdin=subprocess.DEVNULL,
    )


def combinations() -> Iterator[object]:
    for client in CLIENTS:
        for version in client.versions:
            for transport in ("tcp", "tls") if client.tls else ("tcp",):
                for scenario in SCENARIOS:
                    short = transport == "tcp" or scenario in SHORT_OVER_TLS
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
    if transport == "tls":
        tls = Tls(
            str(certificates.ca), str(certificates.client_certificate), str(certificates.client_key)
        )
        server = Server(HOST, gateway.tls_port, tls)
    else:
        server = Server(HOST, gateway.port)
    with Client(client.command, version, server) as driven:
        SCENARIOS[scenario](driven)
