"""Messages that a provider has and its client cannot read, at the source of a link and elsewhere:
they are dead in the end, and the others go on.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from bridge.config.model import (
    BUILT_IN_DMQ_DESTINATION,
    Bridge,
    ConnectionFactory,
    Dmq,
    QualityOfService,
)
from bridge.connections.administered import AdministeredFactory
from bridge.connections.factories import Embedded, Factories
from bridge.dead.chain import DeadMessageQueues
from bridge.jms_link import JMSLink
from bridge.link.delivery.poison import MOST
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.jms.xa_session import JMSXASession
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import BodyType, Headers, Message, Unreadable
from gateway.messaging.provider import ConsumerSpec, Mode
from gateway.messaging.transformer import MessageTransformer
from gateway.messaging.values import Int
from tests.bridge import link_pair
from tests.bridge.link_pair import Rig, clock
from tests.bridge.providers.jms import native
from tests.bridge.providers.jms.branches import left, provider_at
from tests.bridge.providers.jms.stubs import (
    GUEST,
    compiled,
    not_lost,
    received,
    send,
    stub_provider,
)
from tests.on_reactor import on_reactor
from tests.servers import WithoutScheduler, started

pytestmark = pytest.mark.brokers

PLAIN: Final = QualityOfService.DUPLICATES_OK
ONCE: Final = QualityOfService.ONCE_AND_ONLY_ONCE
AT_MOST_ONCE: Final = QualityOfService.AT_MOST_ONCE


class FromActiveMQ:
    """Links from a queue of ActiveMQ to the embedded broker, which has the dead message queue."""

    def __init__(self, rig: Rig, port: int, log: Logger) -> None:
        self.rig = rig
        self.queue: Destination = Queue(f"unreadable.{os.urandom(6).hex()}")
        self.plain = provider_at(port, "ConnectionFactory")
        self._port = port
        backend = rig.target.backend
        factories = Factories(
            clock, Embedded(backend.provider(), backend.credentials), _no_jvm, dict
        )
        queues = DeadMessageQueues(
            clock, Bridge("bridge"), factories, rig.connections, _no_transformer, log
        )
        rig.graves = queues  # type: ignore[assignment]
        self.queues = queues

    async def send(self, *bodies: str) -> list[str]:
        connection = await self.plain.connect(GUEST, None, not_lost)
        ids: list[str] = await deferToThread(native.send, self.plain, self.queue, bodies)
        await connection.close()
        return ids

    async def link(self, quality: QualityOfService) -> JMSLink:
        provider = provider_at(self._port, "XAConnectionFactory") if quality is ONCE else self.plain
        source = self.rig.source
        source.config = ConnectionFactory(
            "activemq", connect_attempt_interval_s=1, lookup_name=provider.factory.lookup_name
        )
        source.factory = AdministeredFactory(
            source.config, provider, GUEST, "jms", find=provider.look_up_factory
        )
        made = self.rig.link(
            of=self.queue,
            quality_of_service=quality,
            max_batch_size=10,
            max_batch_time_ms=50,
            failure_retry_interval_ms=10,
        )
        await made.start()
        return made

    async def buried(self, count: int) -> list[Message]:
        return await self.rig.target.arrived(count, BUILT_IN_DMQ_DESTINATION)


def _no_jvm() -> JavaOptions:
    raise AssertionError("the dead message queue is of the embedded broker")


def _no_transformer(name: str, setting: str, dmq: Dmq) -> MessageTransformer:
    raise AssertionError(f"{setting} names {name}")


@pytest_twisted.async_yield_fixture
async def links(tmp_path: Path) -> AsyncIterator[FromActiveMQ]:
    server = await deferToThread(started, WithoutScheduler)
    rig = await link_pair.rig(tmp_path)
    log = Logger(namespace="bridge.test", observer=link_pair._Observer(rig))
    made = FromActiveMQ(rig, server.openwire_port, log)
    yield made
    for link in rig.links:
        await link.stop()
    await made.queues.stop()
    await link_pair.close(rig)


@pytest.mark.parametrize("kind", ["map", "stream", "object", "text"])
@pytest.mark.parametrize("quality", [PLAIN, ONCE, AT_MOST_ONCE])
@on_reactor
async def test_a_message_that_cannot_be_read_is_dead_and_the_others_arrive_in_order(
    links: FromActiveMQ, quality: QualityOfService, kind: str
) -> None:
    ids = await links.send("0", "1", kind, "2", "3")
    link = await links.link(quality)
    assert await links.rig.target.texts(4) == ["0", "1", "2", "3"]
    [dead] = await links.buried(1)
    await link.stop()
    properties = dead.headers.properties
    said = {
        "JMS_SUN_JMSBRIDGE_DMQ_REASON": "SEND_FAILURE",
        "JMS_SUN_JMSBRIDGE_DMQ_BODY_TRUNCATED": "true",
        "JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID": ids[2],
        "JMS_SUN_JMSBRIDGE_SOURCE_CORRELATIONID": "c-1",
        "JMS_SUN_JMSBRIDGE_SOURCE_DESTINATION": str(links.queue),
        "colour": "red",
    }
    assert said.items() <= properties.items()
    told = str(properties["JMS_SUN_JMSBRIDGE_DMQ_EXCEPTION"])
    assert re.match(f"message {ids[2]} of {links.queue} cannot be read: .*Exception", told), told
    # Nobody takes it for a whole one, and not even its octets are lost.
    assert dead.headers.extras == (("content-type", "text/plain; charset=utf-8"),)
    assert "incomplete, as it cannot be read" in dead.text
    assert f"octets: {native.DAMAGED.hex()}" in dead.text
    counters = link.status().counters
    assert (counters.sent, counters.acknowledged) == (4, 5)
    assert {reason.value: count for reason, count in counters.dead.items()} == {"SEND_FAILURE": 1}
    await left(links.queue, [])


@pytest.mark.parametrize("quality", [PLAIN, ONCE])
@on_reactor
async def test_the_first_try_is_told_and_everything_known_when_it_is_dead(
    links: FromActiveMQ, quality: QualityOfService
) -> None:
    [message_id] = await links.send("stream")
    link = await links.link(quality)
    await links.buried(1)
    await link.stop()
    warned = links.rig.warned
    # The others are the same, and would tell nothing new.
    [line] = [line for line in warned if "message refused, " in line]
    assert f"message refused, 1 of {MOST} times: message {message_id} of" in line
    assert "cannot be read: javax.jms." in line
    [line] = [line for line in warned if f"message {message_id} is dead, SEND_FAILURE" in line]
    for header in (f"JMSMessageID='{message_id}'", "JMSCorrelationID='c-1'", "colour='red'"):
        assert header in line


@pytest.mark.parametrize("quality", [PLAIN, ONCE])
@on_reactor
async def test_several_one_after_the_other(links: FromActiveMQ, quality: QualityOfService) -> None:
    ids = await links.send("map", "0", "text", "object", "1")
    link = await links.link(quality)
    assert await links.rig.target.texts(2) == ["0", "1"]
    dead = await links.buried(3)
    await link.stop()
    # Between tries so short a while apart ActiveMQ may let one overtake another.
    named = [one.headers.properties["JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID"] for one in dead]
    assert sorted(map(str, named)) == sorted([ids[0], ids[2], ids[3]])
    await left(links.queue, [])


@on_reactor
async def test_a_topic_without_durable_sub_loses_nothing_meanwhile(links: FromActiveMQ) -> None:
    links.queue = Topic(links.queue.name)
    link = await links.link(PLAIN)
    before, behind = [f"a{number}" for number in range(60)], [f"b{number}" for number in range(60)]
    await links.send(*before, "map", *behind, "text", "end")
    assert await links.rig.target.texts(121) == [*before, *behind, "end"]
    await links.buried(2)
    await link.stop()


@on_reactor
async def test_properties_that_cannot_be_read_keep_no_header_from_being_known(
    links: FromActiveMQ,
) -> None:
    ids = await links.send("0", "properties", "1")
    link = await links.link(PLAIN)
    assert await links.rig.target.texts(2) == ["0", "1"]
    [dead] = await links.buried(1)
    await link.stop()
    said = dead.headers.properties
    assert (
        said["JMS_SUN_JMSBRIDGE_SOURCE_MESSAGEID"],
        said["JMS_SUN_JMSBRIDGE_SOURCE_CORRELATIONID"],
    ) == (ids[1], "c-1")
    assert "getPropertyNames() failed: " in str(said["JMS_SUN_JMSBRIDGE_DMQ_EXCEPTION"])


@on_reactor
async def test_it_is_a_delivery_as_any_other_to_a_user_of_the_seam(links: FromActiveMQ) -> None:
    ids = await links.send("before", "map", "behind")
    connection = await links.plain.connect(GUEST, None, not_lost)
    found = [
        message
        for message, _ in await received(connection, ConsumerSpec(links.queue), 3, Mode.CLIENT)
    ]
    assert [message.message_id for message in found] == ids
    assert [isinstance(message, Unreadable) for message in found] == [False, True, False]
    damaged = found[1]
    assert isinstance(damaged, Unreadable)
    assert "Exception" in damaged.reason
    assert (damaged.headers.body_type, damaged.body) == (BodyType.MAP, native.DAMAGED)
    assert (damaged.headers.destination, damaged.headers.correlation_id) == (links.queue, "c-1")
    assert damaged.headers.properties == {"colour": "red"}
    assert damaged.timestamp > 0
    await connection.close()


@pytest.mark.parametrize("namespace", ["javax", "jakarta"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a class is missing", "java.lang.NoClassDefFoundError: some/Missing"),
        (
            "memory is short",
            "java.lang.OutOfMemoryError: Requested array size exceeds VM limit (the heap is at most 64 MiB: give it more by -Xmx in imq.jms.jvmOptions, or "
            "have the client fetch fewer messages ahead (ActiveMQ: jms.prefetchPolicy.all=N in its URL))",
        ),
    ],
)
@on_reactor
async def test_whatever_reading_one_message_throws_is_told_of_that_message(
    namespace: str, text: str, reason: str
) -> None:
    connection = await stub_provider(compiled(namespace)).connect(GUEST, None, not_lost)
    queue = Queue("unreadable")
    headers: dict[str, Any] = {"type": "order", "reply_to": Topic("r"), "properties": {"n": Int(1)}}
    sent = await send(connection, queue, b"before", text.encode(), b"behind", **headers)
    before, damaged, behind = [
        message for message, _ in await received(connection, ConsumerSpec(queue), 3)
    ]
    assert (before.text, behind.text) == ("before", "behind")
    assert isinstance(damaged, Unreadable)
    assert damaged.reason == reason
    assert (damaged.message_id, damaged.timestamp, damaged.body) == (
        sent[1].message_id,
        sent[1].timestamp,
        b"",
    )
    assert damaged.headers == sent[1].headers
    await connection.close()


async def damaged_among_others(
    namespace: str, queue: Destination, properties: dict[str, Any], body: bytes
) -> Unreadable:
    """Send a message between two others; those are whole when all are received in order."""
    connection = await stub_provider(compiled(namespace)).connect(GUEST, None, not_lost)
    session = connection.session(Mode.AUTO)
    sent = [Message(Headers(queue, properties=had), body) for had in ({}, properties, {})]
    session.send(sent)
    found = [message for message, _ in await received(connection, ConsumerSpec(queue), 3)]
    assert [message.message_id for message in found] == [message.message_id for message in sent]
    assert [isinstance(message, Unreadable) for message in found] == [False, True, False]
    await connection.close()
    return cast(Unreadable, found[1])


@pytest.mark.parametrize("namespace", ["javax", "jakarta"])
@on_reactor
async def test_names_of_properties_that_fail_one_by_one_are_known_as_far_as_they_go(
    namespace: str,
) -> None:
    properties = {"n": Int(1), "damaged": True}
    damaged = await damaged_among_others(namespace, Queue("names"), properties, b"")
    assert "java.lang.IllegalStateException: the names end too soon" in damaged.reason
    assert damaged.headers.properties == properties


@pytest.mark.parametrize("namespace", ["javax", "jakarta"])
@on_reactor
async def test_one_of_which_nothing_can_be_read_is_a_delivery_and_spoils_no_other_answer(
    namespace: str,
) -> None:
    queue, properties = Queue("nothing"), {"n": Int(1), "untold": True}
    nothing = await damaged_among_others(namespace, queue, properties, b"body")
    assert nothing.reason == "java.lang.IllegalStateException: it has no text"
    assert (nothing.headers, nothing.body) == (Headers(queue, body_type=BodyType.MESSAGE), b"")


@on_reactor
async def test_answers_that_cannot_be_read_lose_the_connection_and_nobody_waits_for_ever() -> None:
    lost: Deferred[Exception] = Deferred()
    connection = await stub_provider(compiled("javax"), "xa").connect(GUEST, None, lost.callback)
    session = cast(JMSXASession, connection.xa_session())
    waiting = session.resource().recover()
    session._answered(b"\4 half of a delivery")
    for failing in (waiting, session.resource().recover()):
        with pytest.raises(ProviderUnavailable, match="cannot be read"):
            await failing
    assert isinstance(await lost, ProviderUnavailable)
    await connection.close()
