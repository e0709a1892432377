"""An AMQP 1.0 broker behind the AMQP provider: RabbitMQ 3 with its plugin.

Between provider and broker there is a relay, so that connections can be lost without harm to the
broker, which others share.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from bridge.providers.amqp.options import AmqpAddress, AmqpOptions
from bridge.providers.amqp.provider import AmqpProvider
from gateway.messaging.provider import Credentials, Provider
from tests.contract.backends.backend import Backend
from tests.contract.backends.relay import Relay
from tests.gateway_process import HOST, free_port
from tests.servers import RabbitMQ, started

clock: Any = reactor


class AmqpRabbitMQ(Backend):
    """RabbitMQ 3 with rabbitmq_amqp1_0.

    Its queues know no priorities unless they are made so.
    """

    name = "amqp-rabbitmq"
    mark = "brokers"
    product = "RabbitMQ"
    by_priority = False
    wrong: ClassVar[Credentials | None] = Credentials("guest", "letmein")
    breaches: ClassVar[Mapping[str, str]] = {}

    async def start(self, folder: Path) -> None:
        self._relay = Relay((await deferToThread(started, RabbitMQ)).amqp_port)

    async def stop(self) -> None:
        await self._relay.stop()

    def provider(self) -> Provider:
        return self._provider(self._relay.entrance)

    def unreachable(self) -> Provider:
        return self._provider(free_port())

    def _provider(self, port: int) -> Provider:
        return AmqpProvider(AmqpAddress(HOST, port), AmqpOptions(peer="rabbitmq3"), clock)

    async def lose(self) -> None:
        self._relay.drop()

    async def restart(self) -> None:
        server = await deferToThread(started, RabbitMQ)
        await deferToThread(server.stop)
        await deferToThread(server.start)
