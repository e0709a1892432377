"""Against ActiveMQ, what the contract suite has no words for: its JNDI, what its own client sees,
and what it alone can do.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import Consumer, Mode, Subscription
from gateway.messaging.values import Byte, Float, Int, Short, Value
from tests.bridge.providers.jms import native
from tests.bridge.providers.jms.stubs import GUEST, clock, received, told
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


async def provider(query: str = "", **options: Any) -> JMSProvider:
    server = await deferToThread(activemq)
    environment = {
        "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "java.naming.provider.url": f"tcp://127.0.0.1:{server.openwire_port}{query}",
        "queue.orders": "shop.orders",
        "topic.prices": "shop.prices",
    }
    return JMSProvider(
        clock,
        JMSFactory("ConnectionFactory", environment, "/usr/share/activemq/lib/*", **options),
        name="activemq",
    )


def not_lost(error: Exception) -> None:
    raise AssertionError(f"the connection was lost: {error}")


@on_reactor
async def test_destinations_are_looked_up() -> None:
    there = await provider()
    environment = there.factory.environment
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
        session = connection.session(Mode.AUTO)
        session.send([Message(Headers(queue), b"x" * 1024) for _ in range(2000)])
        assert await told(session.completion) is None
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
            Subscription(queue), deliver, enough.errback
        )
        consumer.grant(2000)
        consumer.start()
        await enough
        # One by one they would be about as many as there are messages.
        assert len(runs) < 500, runs
        await connection.close()


@on_reactor
async def test_another_client_reads_the_types_that_were_sent() -> None:
    there = await provider()
    connection = await there.connect(GUEST, None, not_lost)
    queue = Queue("types.seen")
    session = connection.session(Mode.AUTO)
    extras = (("content-type", "text/plain"),)
    session.send([Message(Headers(queue, properties=PROPERTIES, extras=extras), b"x")])
    assert await told(session.completion) is None

    types = await deferToThread(native.types, there, queue.name)
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
    await connection.close()


@on_reactor
async def test_headers_that_are_no_properties_survive() -> None:
    connection = await (await provider()).connect(GUEST, None, not_lost)
    queue = Queue("extras.kept")
    extras = (
        ("content-type", "application/json;charset=utf-8"),
        ("x-foo", "größe"),
        ("1st", ""),
        ("a b", "x"),
    )
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(queue, properties={"foo": "bar"}, extras=extras), b"{}")])
    [(message, _)] = await received(connection, Subscription(queue), 1)
    assert sorted(message.headers.extras) == sorted(extras)
    assert message.headers.properties == {"foo": "bar"}
    await connection.close()


@pytest.mark.parametrize("query", ["", "?jms.useCompression=true"])
@on_reactor
async def test_an_object_is_never_looked_at(query: str) -> None:
    connection = await (await provider(query)).connect(GUEST, None, not_lost)
    queue = Queue("objects")
    # No class has such a stream: to deserialise it would fail.
    body = b"\xac\xed\x00\x05 no object" * 50
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(queue, body_type=BodyType.OBJECT), body)])
    [(message, _)] = await received(connection, Subscription(queue), 1)
    assert (message.headers.body_type, message.body) == (BodyType.OBJECT, body)
    await connection.close()


@on_reactor
async def test_many_rollbacks_are_no_poison() -> None:
    connection = await (await provider()).connect(GUEST, None, not_lost)
    queue = Queue("rolled.back")
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(queue), b"again")])
    assert await told(session.completion) is None
    for attempt in range(1, 11):
        [(message, attempts)] = await received(connection, Subscription(queue), 1, Mode.TRANSACTED)
        assert (message.text, attempts) == ("again", attempt)
    await connection.close()


@on_reactor
async def test_characters_beyond_the_basic_plane_that_activemq_itself_damages() -> None:
    there = await provider()
    connection = await there.connect(GUEST, None, not_lost)

    assert await deferToThread(native.passed, there, "beyond", "\U0001f600") == (
        "\U0001f600",
        "\ufffd\ufffd",
    )
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(Queue("beyond"), properties={"p": "\U0001f600"}), b"x")])
    [(message, _)] = await received(connection, Subscription(Queue("beyond")), 1)
    assert message.headers.properties == {"p": "\U0001f600"}
    await connection.close()
