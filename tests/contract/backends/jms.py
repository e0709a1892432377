"""ActiveMQ through its JMS client, over OpenWire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Queue
from gateway.messaging.provider import Credentials, Provider
from tests.contract.backends.backend import Backend
from tests.contract.backends.relay import Relay
from tests.gateway_process import free_port
from tests.servers import activemq

CLASS_PATH = "/usr/share/activemq/lib/*"

_clock: Any = reactor


def activemq_factory(port: int, **options: Any) -> JMSFactory:
    """The connection factory of an ActiveMQ that listens on this port.

    :param options: other fields of JMSFactory.
    """
    environment = {
        "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "java.naming.provider.url": f"tcp://127.0.0.1:{port}",
    }
    return JMSFactory("ConnectionFactory", environment, **{"class_path": CLASS_PATH, **options})


class JMS(Backend):
    """ActiveMQ, reached through a relay that can drop connections."""

    name = "jms"
    mark = "brokers"
    product = "ActiveMQ"
    credentials = Credentials("guest", "guest")
    dead = Queue("ActiveMQ.DLQ")
    by_priority = False
    # A JMS client does not choose its messages' ids.
    keeps_ids = False

    async def start(self, folder: Path) -> None:
        self._server = await deferToThread(activemq)
        self._relay = Relay(self._server.openwire_port)

    async def stop(self) -> None:
        await self._relay.stop()

    def provider(self) -> Provider:
        return JMSProvider(_clock, activemq_factory(self._relay.entrance), name="activemq")

    async def lose(self) -> None:
        self._relay.drop()

    def unreachable(self) -> Provider:
        return JMSProvider(_clock, activemq_factory(free_port()), name="unreachable")
