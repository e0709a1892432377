"""Against ActiveMQ, what the contract suite has no words for: its JNDI, what its own client sees,
what it alone can do, and how its consumers share the heap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Connection, Consumer, ConsumerSpec, Mode
from gateway.messaging.values import Byte, Float, Int, Short, Value
from tests.bridge.providers.jms import native
from tests.bridge.providers.jms.branches import provider_at
from tests.bridge.providers.jms.stubs import (
    GUEST,
    SMALL,
    clock,
    compiled,
    not_lost,
    received,
    send,
    told,
)
from tests.contract.backends.relay import Relay
from tests.contract.waiting import until
from tests.faults.proxy import Proxy
from tests.on_reactor import on_reactor
from tests.servers import activemq

pytestmark = pytest.mark.brokers

PROPERTIES: dict[str, Value] = {
    "b": Byte(1),
    "s": Short(2),
    "i": Int(3),
    "l": 4,
    "f": Float(0.5),
    "d": 0.25,
    "t": True,
    "x": "text",
    "n": None,
}


async def provider(query: str = "") -> JMSProvider:
    server = await deferToThread(activemq)
    return provider_at(server.openwire_port, "ConnectionFactory", query)


@pytest_twisted.async_yield_fixture
async def connection() -> AsyncIterator[Connection]:
    made = await (await provider()).connect(GUEST, None, not_lost)
    yield made
    await made.close()


@on_reactor
async def test_destinations_are_looked_up() -> None:
    there = await provider()
    environment = {
        **there.factory.environment,
        "queue.orders": "shop.orders",
        "topic.prices": "shop.prices",
    }
    assert await there.look_up("orders", environment) == Queue("shop.orders")
    assert await there.look_up("prices", environment) == Topic("shop.prices")
    with pytest.raises(ProviderUnavailable, match="looking up 'nothing' failed"):
        await there.look_up("nothing", environment)


@on_reactor
async def test_each_connection_fetches_ahead_what_fits_into_the_heap() -> None:
    """All connections of a factory share its policy; each begins with one message and then has as
    many as fit.
    """
    there = await provider()
    for number in range(2):
        connection = await there.connect(GUEST, None, not_lost)
        queue = Queue(f"ahead.{number}")
        await send(connection, queue, *[b"x" * 1024] * 2000)
        runs: list[int] = []
        enough: Deferred[None] = Deferred()

        def deliver(
            consumer: Consumer,
            first: int,
            messages: Any,
            attempts: Any,
            /,
            runs: list[int] = runs,
            enough: Deferred[None] = enough,
        ) -> None:
            runs.append(len(messages))
            if sum(runs) == 2000:
                enough.callback(None)

        consumer = connection.session(Mode.AUTO).consumer(
            ConsumerSpec(queue), deliver, enough.errback
        )
        consumer.grant(2000)
        consumer.start()
        await enough
        # One by one they would be about as many as there are messages.
        assert len(runs) < 500, runs
        await connection.close()


@on_reactor
async def test_another_client_reads_the_types_that_were_sent(connection: Connection) -> None:
    extras = (("content-type", "text/plain"),)
    await send(connection, Queue("types.seen"), b"x", properties=PROPERTIES, extras=extras)
    types = await deferToThread(native.types, await provider(), "types.seen")
    assert types == {
        "b": "Byte",
        "s": "Short",
        "i": "Integer",
        "l": "Long",
        "f": "Float",
        "d": "Double",
        "t": "Boolean",
        "x": "String",
        "n": "null",
        # ActiveMQ takes any name.
        "content-type": "String",
    }


@on_reactor
async def test_headers_that_are_no_properties_survive(connection: Connection) -> None:
    queue = Queue("extras.kept")
    extras = (
        ("content-type", "application/json;charset=utf-8"),
        ("x-foo", "größe"),
        ("1st", ""),
        ("a b", "x"),
    )
    await send(connection, queue, b"{}", properties={"foo": "bar"}, extras=extras)
    [(message, _)] = await received(connection, ConsumerSpec(queue), 1)
    assert sorted(message.headers.extras) == sorted(extras)
    assert message.headers.properties == {"foo": "bar"}


@pytest.mark.parametrize("query", ["", "?jms.useCompression=true"])
@on_reactor
async def test_an_object_is_never_looked_at(query: str) -> None:
    connection = await (await provider(query)).connect(GUEST, None, not_lost)
    queue = Queue("objects")
    # No class has such a stream: to deserialise it would fail.
    body = b"\xac\xed\x00\x05 no object" * 50
    await send(connection, queue, body, body_type=BodyType.OBJECT)
    [(message, _)] = await received(connection, ConsumerSpec(queue), 1)
    assert (message.headers.body_type, message.body) == (BodyType.OBJECT, body)
    await connection.close()


@on_reactor
async def test_many_rollbacks_are_no_poison(connection: Connection) -> None:
    queue = Queue("rolled.back")
    await send(connection, queue, b"again")
    for attempt in range(1, 11):
        [(message, attempts)] = await received(connection, ConsumerSpec(queue), 1, Mode.TRANSACTED)
        assert (message.text, attempts) == ("again", attempt)


@on_reactor
async def test_characters_beyond_the_basic_plane_that_activemq_itself_damages(
    connection: Connection,
) -> None:
    assert await deferToThread(native.passed, await provider(), "beyond", "\U0001f600") == (
        "\U0001f600",
        "\ufffd\ufffd",
    )
    await send(connection, Queue("beyond"), b"x", properties={"p": "\U0001f600"})
    [(message, _)] = await received(connection, ConsumerSpec(Queue("beyond")), 1)
    assert message.headers.properties == {"p": "\U0001f600"}


# --- consumers that are gone leave their share of the heap to the others


COUNTED: Final = "static:stompgateway.jms.javax.Prefetch#CONSUMERS"


class Sharing:
    """A Java process with ActiveMQ's client and with the stubs, by which it is asked."""

    def __init__(self, name: str) -> None:
        self._class_path = f"/usr/share/activemq/lib/*:{compiled('javax')}"
        self._name = name

    def at(self, port: int, **options: Any) -> JMSProvider:
        given: dict[str, Any] = {
            "class_path": self._class_path,
            "java_options": SMALL,
            "process": self._name,
        }
        return provider_at(port, "ConnectionFactory", **given, **options)

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
        ConsumerSpec(destination), lambda *delivered: come.append(delivered), not_lost
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
    provider = sharing.at(proxy.port, send_timeout_s=6.0, close_timeout_s=2.0)
    connection = await provider.connect(GUEST, None, lost.callback)
    session = connection.session(Mode.TRANSACTED)
    for number in range(3):
        session.consumer(
            ConsumerSpec(Queue(f"share.silent.{number}")), lambda *delivered: None, not_lost
        )
    assert await told(session.commit) is None
    assert await sharing.consumers() == 4
    await deferToThread(proxy.silence)
    session.send([Message(Headers(Queue("share.silent")), b"")])
    session.commit(lambda error: None)
    assert "did not return within 6 s" in str(await lost)
    await deferToThread(proxy.drop)
    await sharing.until(1)
    await stays.close()
    await deferToThread(proxy.close)
