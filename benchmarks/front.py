"""The gateway in front of ActiveMQ, by JMS and by STOMP, as peers.

The cells compare it with ActiveMQ's own STOMP. The broker behind it is one of its own, whose
processor time counts as that of others.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.cell import Cell
from benchmarks.goals import AtLeast
from benchmarks.jms_bridge import OpenWireActiveMQ
from benchmarks.peers import ActiveMQ, Gateway, Peer, PureGateway
from benchmarks.process import ProcessTree
from benchmarks.steady_cells import elsewhere, steady

_NAME: Final = "behind"


class Front(Gateway):
    """By JMS."""

    name = "front"

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self._broker = OpenWireActiveMQ(folder / _NAME)

    def _launch(self) -> ProcessTree:
        if not self._broker.running():
            self._broker.start()
            atexit.register(self._broker.kill)
        return super()._launch()

    def kill(self) -> None:
        super().kill()
        self._broker.kill()

    def factory(self) -> str:
        """The element of its connection factory."""
        properties = {
            "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
            "java.naming.provider.url": self._broker.url,
            "imq.jms.classpath": "/usr/share/activemq/lib/*",
        }
        inner = "".join(
            f'<property name="{name}" value="{value}"/>' for name, value in properties.items()
        )
        return f'<connection-factory ref-name="{_NAME}" lookup-name="ConnectionFactory">{inner}</connection-factory>'

    def settings(self) -> dict[str, str]:
        file = self.folder / "brokers.xml"
        file.write_text(f'<jmsbridge name="stomp">{self.factory()}</jmsbridge>')
        file.chmod(0o600)
        return super().settings() | {
            "imq.bridge.stomp.provider": _NAME,
            "imq.bridge.stomp.provider.xmlurl": str(file),
        }


class FrontStomp(Front):
    """By STOMP."""

    name = "front-stomp"

    def factory(self) -> str:
        return f'<connection-factory ref-name="{_NAME}" lookup-name="stomp://127.0.0.1:{self._broker.port}"/>'


PEERS: Final[dict[str, type[Peer]]] = {each.name: each for each in (Front, FrontStomp)}


class FrontGateway(Front):
    """By JMS, where the gateway itself is measured."""

    name = Gateway.name


class FrontPureGateway(Front):
    """The same in pure Python."""

    name = PureGateway.name
    path = PureGateway.path


_SERVERS: Final[Mapping[str, type[Peer]]] = {
    peer.name: peer for peer in (FrontGateway, FrontPureGateway, ActiveMQ)
}


def _in_front(name: str) -> Cell:
    said = "in front of ActiveMQ by JMS, beside its own STOMP"
    return elsewhere(steady(name), "front", said, AtLeast(0.6, "ActiveMQ"), _SERVERS)


def readme() -> list[Cell]:
    """The cells of the tables in ``README.rst``."""
    return [
        _in_front("queue-100B-receipt100-1to1-client-varying"),
        _in_front("queue-1KiB-receipt100-1to1-client-varying"),
    ]
