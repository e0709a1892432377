"""STOMP brokers behind the STOMP provider: ActiveMQ, RabbitMQ, and a gateway of this project in a
child process.

Between provider and broker there is a relay, so that connections can be lost without harm to the
broker, which others share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from bridge.providers.stomp.options import StompAddress, StompOptions
from bridge.providers.stomp.provider import StompProvider
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.provider import Credentials, Provider
from tests.contract.backends.backend import Backend
from tests.contract.backends.relay import Relay
from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.servers import ActiveMQ, RabbitMQ, started

clock: Any = reactor


class Stomp(Backend):
    """A broker that is reached by STOMP; which it is, is theirs."""

    #: What the provider takes it for, before and after it was asked.
    dialect: ClassVar[str]

    # A peer's selector sees what is on the wire, which is text.
    typed_selectors = False

    async def start(self, folder: Path) -> None:
        self._relay = Relay(await self.launch(folder))

    async def stop(self) -> None:
        await self._relay.stop()

    @abstractmethod
    async def launch(self, folder: Path) -> int:
        """Have the broker run. :returns: its port."""

    def provider(self) -> Provider:
        return StompProvider(
            StompAddress(HOST, self._relay.entrance), StompOptions(dialect=self.dialect), clock
        )

    def unreachable(self) -> Provider:
        return StompProvider(
            StompAddress(HOST, free_port()), StompOptions(dialect=self.dialect), clock
        )

    async def lose(self) -> None:
        self._relay.drop()


class StompShared(Stomp):
    """One of the servers that this test run shares."""

    server: ClassVar[type[ActiveMQ] | type[RabbitMQ]]

    async def launch(self, folder: Path) -> int:
        return (await deferToThread(started, self.server)).port

    async def restart(self) -> None:
        server = await deferToThread(started, self.server)
        await deferToThread(server.stop)
        await deferToThread(server.start)


class StompActiveMQ(StompShared):
    """ActiveMQ, which gives messages ids of its own and delivers in the order of sending whatever
    the priority.
    """

    name = "stomp-activemq"
    mark = "brokers"
    product = "ActiveMQ"
    dialect = "activemq"
    server = ActiveMQ
    by_priority = False
    same_ids = False
    dead: ClassVar[Destination | None] = Queue("ActiveMQ.DLQ")
    breaches: ClassVar[Mapping[str, str]] = {
        "test_what_was_joined_goes_back_to_the_queue_when_its_consumer_is_closed_and_then_rolled_back": (
            "UNSUBSCRIBE gives back all or nothing, so what is outstanding stays until the transaction is over"
        ),
    }


class StompRabbitMQ(StompShared):
    """RabbitMQ, whose queues know no priorities unless they are made so."""

    name = "stomp-rabbitmq"
    mark = "brokers"
    product = "RabbitMQ"
    dialect = "rabbitmq"
    server = RabbitMQ
    by_priority = False
    wrong: ClassVar[Credentials | None] = Credentials("guest", "letmein")


_AHEAD: Final = "what the broker had sent ahead of credit comes back as delivered before"


class StompGateway(Stomp):
    """A gateway of this project, with the embedded broker."""

    name = "stomp-gateway"
    mark = "process"
    product = "stomp-gateway"
    dialect = "gateway"
    same_ids = False
    wrong: ClassVar[Credentials | None] = Credentials("guest", "letmein")
    dead: ClassVar[Destination | None] = Queue("mq.sys.dmq")
    breaches: ClassVar[Mapping[str, str]] = {
        "test_what_recover_gives_back_comes_before_what_waits": _AHEAD,
        "test_what_a_closed_session_gives_back_comes_first_and_in_order": _AHEAD,
    }

    async def launch(self, folder: Path) -> int:
        self._gateway = GatewayProcess(folder / "var")
        await deferToThread(self._gateway.start)
        return self._gateway.port

    async def stop(self) -> None:
        await super().stop()
        await deferToThread(self._gateway.kill)

    async def restart(self) -> None:
        await deferToThread(self._gateway.restart)
