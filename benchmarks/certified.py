"""Steady load over TLS, each client with a certificate.

Declares the servers that take no others, and their cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.cell import Cell
from benchmarks.goals import AtLeast
from benchmarks.peers import ActiveMQ, Gateway, Peer, PureGateway, RabbitMQ
from benchmarks.steady_cells import elsewhere, steady


class Certified(Peer):
    """A server whose clients connect over TLS and show a certificate."""

    demands_certificates = True

    def __init__(self, folder: Path, tls: bool = True) -> None:
        super().__init__(folder, tls=True)


class CertifiedGateway(Certified, Gateway):
    """With ``requireClientAuth``."""


class CertifiedPureGateway(Certified, PureGateway):
    """The same in pure Python."""


class CertifiedActiveMQ(Certified, ActiveMQ):
    """With ``stomp+nio+ssl`` and ``needClientAuth``."""


class CertifiedRabbitMQ(Certified, RabbitMQ):
    """With ``verify_peer`` and ``fail_if_no_peer_cert``."""


_SERVERS: Mapping[str, type[Peer]] = {
    peer.name: peer
    for peer in (CertifiedGateway, CertifiedPureGateway, CertifiedActiveMQ, CertifiedRabbitMQ)
}


def _over_tls(name: str) -> Cell:
    said = "TLS with client certificates"
    return elsewhere(steady(name), "tls", said, AtLeast(2.0, "ActiveMQ"), _SERVERS)


def readme() -> list[Cell]:
    """The cells of the tables in ``README.rst``."""
    return [
        _over_tls("queue-100B-transient-1to1-auto-varying"),
        _over_tls("queue-100B-receipt100-1to1-client-varying"),
    ]
