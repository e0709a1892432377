"""AMQP 1.0 brokers behind the AMQP provider: RabbitMQ 3 with its plugin, and one on rhea.

The second is of another implementation than the one under test. Of AMQP it has what a broker must
have: queues, topics, credit, drain, settlement by both sides, the outcomes, and sequences of frames
for large messages.

Between provider and broker there is a relay, so that connections can be lost without harm to the
broker, which others share.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from bridge.providers.amqp.options import AmqpAddress, AmqpOptions
from bridge.providers.amqp.provider import AmqpProvider
from gateway.messaging.provider import Credentials, Provider
from tests.contract.backends.backend import Backend
from tests.contract.backends.relay import Relay
from tests.gateway_process import HOST, free_port
from tests.interop.node_modules import NODE, brought
from tests.servers import RabbitMQ, started

clock: Any = reactor
_BROKER: Final = Path(__file__).parent / "broker.js"


class _Amqp(Backend):
    """A broker at a port of the loopback, behind a relay."""

    mark = "brokers"
    wrong: ClassVar[Credentials | None] = Credentials("guest", "letmein")
    options: ClassVar[AmqpOptions] = AmqpOptions()

    async def stop(self) -> None:
        await self._relay.stop()

    def provider(self) -> Provider:
        return self._provider(self._relay.entrance)

    def unreachable(self) -> Provider:
        return self._provider(free_port())

    async def lose(self) -> None:
        self._relay.drop()

    def _stand_before(self, port: int) -> None:
        self._relay = Relay(port)

    def _provider(self, port: int) -> Provider:
        return AmqpProvider(AmqpAddress(HOST, port), self.options, clock)


class AmqpRabbitMQ(_Amqp):
    """RabbitMQ 3 with rabbitmq_amqp1_0.

    Its queues know no priorities unless they are made so.
    """

    name = "amqp-rabbitmq"
    product = "RabbitMQ"
    by_priority = False
    options = AmqpOptions(peer="rabbitmq3")
    breaches: ClassVar[Mapping[str, str]] = {}

    async def start(self, folder: Path) -> None:
        self._stand_before((await deferToThread(started, RabbitMQ)).amqp_port)

    async def restart(self) -> None:
        server = await deferToThread(started, RabbitMQ)
        await deferToThread(server.stop)
        await deferToThread(server.start)


class AmqpRhea(_Amqp):
    """A broker that is recognised as no product.

    Only the least is relied on.
    """

    name = "amqp-rhea"
    product = "a broker on rhea"

    async def start(self, folder: Path) -> None:
        await deferToThread(brought)
        self._process = subprocess.Popen(
            ["node", str(_BROKER), str(NODE)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._stand_before(int(await deferToThread(self._process.stdout.readline)))

    async def stop(self) -> None:
        await super().stop()
        self._process.kill()
        self._process.communicate()
