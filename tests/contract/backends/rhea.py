"""An AMQP 1.0 broker that is recognised as no product.

It is on rhea for Node.js, another implementation than the one under test. Of AMQP it has what such a broker must have: queues, topics, credit, drain, settlement by both sides,
the outcomes, and sequences of frames for large messages.
"""

from __future__ import annotations

import subprocess
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

clock: Any = reactor
_BROKER: Final = Path(__file__).parent / "broker.js"


class AmqpRhea(Backend):
    """A broker on which only the least is relied."""

    name = "amqp-rhea"
    mark = "brokers"
    product = "a broker on rhea"
    wrong: ClassVar[Credentials | None] = Credentials("guest", "letmein")

    async def start(self, folder: Path) -> None:
        await deferToThread(brought)
        self._process = subprocess.Popen(
            ["node", str(_BROKER), str(NODE)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._relay = Relay(int(await deferToThread(self._process.stdout.readline)))

    async def stop(self) -> None:
        await self._relay.stop()
        self._process.kill()
        self._process.communicate()

    def provider(self) -> Provider:
        return self._provider(self._relay.entrance)

    def unreachable(self) -> Provider:
        return self._provider(free_port())

    @staticmethod
    def _provider(port: int) -> Provider:
        return AmqpProvider(AmqpAddress(HOST, port), AmqpOptions(), clock)

    async def lose(self) -> None:
        self._relay.drop()
