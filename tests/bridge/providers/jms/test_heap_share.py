"""Consumers of ActiveMQ share the heap: those that are gone, however they went, leave their share
to the others.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, Mode, Subscription
from tests.bridge.providers.jms.stubs import GUEST, SMALL, clock, compiled, told
from tests.contract.backends.relay import Relay
from tests.contract.waiting import until
from tests.faults.proxy import Proxy
from tests.on_reactor import on_reactor
from tests.servers import activemq

pytestmark = pytest.mark.brokers

COUNTED: Final = "static:stompgateway.jms.javax.Prefetch#CONSUMERS"


def not_lost(error: Exception) -> None:
    raise AssertionError(f"the connection was lost: {error}")


class Sharing:
    """A Java process with ActiveMQ's client and with the stubs, by which it is asked."""

    def __init__(self, name: str) -> None:
        self._class_path = f"/usr/share/activemq/lib/*:{compiled('javax')}"
        self._name = name

    def at(self, port: int, **options: Any) -> JMSProvider:
        environment = {
            "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
            "java.naming.provider.url": f"tcp://127.0.0.1:{port}",
        }
        return JMSProvider(
            clock,
            JMSFactory(
                "ConnectionFactory", environment, self._class_path, SMALL, self._name, **options
            ),
        )

    async def consumers(self) -> int:
        """Those among which the heap is divided."""
        environment = {"java.naming.factory.initial": "stub.StubProvider"}
        asking = JMSProvider(
            clock, JMSFactory("cf", environment, self._class_path, SMALL, self._name)
        )
        return int((await asking.look_up(COUNTED, environment)).name)

    async def until(self, count: int) -> None:
        found = -1
        for _ in range(2000):
            found = await self.consumers()
            if found == count:
                return
        assert found == count


async def consume(
    connection: Connection, destination: Destination, mode: Mode = Mode.CLIENT
) -> None:
    """Consume a message, which is not acknowledged."""
    session = connection.session(mode)
    session.send([Message(Headers(destination), b"x" * 1024)])
    if mode is Mode.TRANSACTED:
        assert await told(session.commit) is None
    come: list[Any] = []
    consumer = session.consumer(
        Subscription(destination), lambda *delivered: come.append(delivered), not_lost
    )
    consumer.grant(5)
    consumer.start()
    await until(lambda: come)


@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.AUTO, Mode.TRANSACTED])
@on_reactor
async def test_consumers_of_a_lost_connection_have_no_share(mode: Mode) -> None:
    server = await deferToThread(activemq)
    relay = Relay(server.openwire_port)
    sharing = Sharing(f"lost {mode.name}")
    stays = await sharing.at(server.openwire_port).connect(GUEST, None, not_lost)
    await consume(stays, Queue("share.stays"))
    lost: Deferred[Exception] = Deferred()
    connection = await sharing.at(relay.entrance).connect(GUEST, None, lost.callback)
    for number in range(3):
        await consume(connection, Queue(f"share.{mode.name}.{number}"), mode)
    assert await sharing.consumers() == 4
    relay.drop()
    assert isinstance(await lost, ProviderUnavailable)
    await sharing.until(1)
    await connection.close()
    await stays.close()
    await sharing.until(0)
    await relay.stop()


@on_reactor
async def test_consumers_of_an_abandoned_session_have_no_share_once_its_call_has_returned() -> None:
    server = await deferToThread(activemq)
    proxy = await deferToThread(Proxy, server.openwire_port)
    sharing = Sharing("abandoned")
    stays = await sharing.at(server.openwire_port).connect(GUEST, None, not_lost)
    await consume(stays, Queue("share.stays"))
    lost: Deferred[Exception] = Deferred()
    provider = sharing.at(proxy.port, send_timeout_s=2.0, close_timeout_s=2.0)
    connection = await provider.connect(GUEST, None, lost.callback)
    session = connection.session(Mode.TRANSACTED)
    for number in range(3):
        session.consumer(
            Subscription(Queue(f"share.silent.{number}")), lambda *delivered: None, not_lost
        )
    assert await told(session.commit) is None
    assert await sharing.consumers() == 4
    await deferToThread(proxy.silence)
    session.send([Message(Headers(Queue("share.silent")), b"")])
    session.commit(lambda error: None)
    assert "did not return within 2 s" in str(await lost)
    await deferToThread(proxy.drop)
    await sharing.until(1)
    await stays.close()
    await deferToThread(proxy.close)
