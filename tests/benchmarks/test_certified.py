"""Load over TLS, from clients with certificates."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.certified import (
    Certified,
    CertifiedActiveMQ,
    CertifiedGateway,
    CertifiedRabbitMQ,
    readme,
)
from benchmarks.endpoint import Refused
from benchmarks.load import Load
from benchmarks.tally import Outcome
from benchmarks.wire import Confirm

LOADS = (
    Load(varying=True),
    Load(body=65536),
    Load(persistent=True, confirm=Confirm.EACH_100, ack="client", varying=True),
)


def check(peer: Certified, loads: Sequence[Load]) -> None:
    peer.start()
    try:
        for number, declared in enumerate(loads):
            measured = load.run(peer, declared, f"tls{number}", 0.1, 0.3)
            assert measured.value
            assert measured.outcome == Outcome()
        # The server's answer to a client without a certificate comes with the first read (TLS 1.3).
        peer._context = ssl.create_default_context(cafile=peer.keys / "ca.pem")
        with pytest.raises(Refused):
            load.run(peer, Load(), "uncertified", 0.1, 0.3)
    finally:
        peer.kill()


def test_the_gateway_takes_only_clients_with_certificates(tmp_path: Path) -> None:
    check(CertifiedGateway(tmp_path / "gateway"), LOADS)


@pytest.mark.long
@pytest.mark.parametrize("kind", [CertifiedActiveMQ, CertifiedRabbitMQ])
def test_so_do_the_others(tmp_path: Path, kind: type[Certified]) -> None:
    check(kind(tmp_path / "other"), LOADS)


def test_every_server_has_one_that_demands_certificates() -> None:
    for cell in readme():
        assert set(cell.servers) == {"gateway", "pure", "ActiveMQ", "RabbitMQ"}
        assert all(issubclass(server, Certified) for server in cell.servers.values())
