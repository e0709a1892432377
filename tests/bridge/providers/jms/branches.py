"""What tests of XA sessions against ActiveMQ share: connections of both kinds, and sessions that
receive in branches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSConnection, JMSFactory
from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import MessagingError, XAError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import ConsumerSpec, Flags, Xid
from tests.bridge.providers.jms import stubs
from tests.bridge.providers.jms.stubs import GUEST, clock, not_lost
from tests.servers import activemq

CLASS_PATH: Final = "/usr/share/activemq/lib/*"


def provider_at(
    port: int, lookup_name: str = "XAConnectionFactory", query: str = "", **options: Any
) -> JMSProvider:
    environment = {
        "java.naming.factory.initial": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
        "java.naming.provider.url": f"tcp://127.0.0.1:{port}{query}",
    }
    return JMSProvider(
        clock,
        JMSFactory(lookup_name, environment, **{"class_path": CLASS_PATH, **options}),
        name=lookup_name,
    )


async def connect(lookup_name: str = "XAConnectionFactory", query: str = "") -> JMSConnection:
    server = await deferToThread(activemq)
    connection = await provider_at(server.openwire_port, lookup_name, query).connect(
        GUEST, None, not_lost
    )
    assert isinstance(connection, JMSConnection)
    return connection


def branch() -> Xid:
    """A branch that nobody has used."""
    return Xid(0x5354, os.urandom(16), b"\x01")


def queue() -> Destination:
    """A queue that nobody has used."""
    return Queue(f"xa.{os.urandom(6).hex()}")


def texts(destination: Destination, bodies: Sequence[object]) -> list[Message]:
    return [Message(Headers(destination), str(body).encode()) for body in bodies]


async def refused(code: int, *calls: Deferred[Any], match: str | None = None) -> None:
    """Each call fails with the code."""
    for call in calls:
        with pytest.raises(XAError, match=match) as error:
            await call
        assert error.value.code == code


async def put(destination: Destination, bodies: Sequence[object]) -> None:
    """Send these, without XA."""
    connection = await connect("ConnectionFactory")
    await stubs.send(connection, destination, *[str(body).encode() for body in bodies])
    await connection.close()


async def left(destination: Destination, bodies: list[str]) -> None:
    """These wait there and nothing else, and are taken."""
    connection = await connect("ConnectionFactory")
    await stubs.send(connection, destination, b"end")
    assert await stubs.texts(connection, destination, len(bodies) + 1) == [*bodies, "end"]
    await connection.close()


async def nothing_left(connection: JMSConnection, destination: Destination) -> None:
    """Once a connection is closed nothing waits there."""
    await connection.close()
    await left(destination, [])


async def source_of(*bodies: object) -> tuple[Destination, JMSConnection, Branch]:
    """A queue of its own with messages, and an XA session that receives from it."""
    there = queue()
    await put(there, bodies)
    connection = await connect()
    return there, connection, Branch(connection, there)


class Branch:
    """An XA session that receives from a queue, one branch after the other."""

    def __init__(self, connection: JMSConnection, destination: Destination) -> None:
        self.session = connection.xa_session()
        self.resource = self.session.resource()
        self.messages: list[Message] = []
        self.attempts: list[int] = []
        self.failures: list[MessagingError] = []
        self.last = 0
        self._enough: tuple[int, Deferred[None]] | None = None
        self.consumer = self.session.consumer(
            ConsumerSpec(destination), self._deliver, self.failures.append
        )
        self.consumer.start()

    def _deliver(self, consumer: Any, first: int, messages: Any, attempts: Any, /) -> None:
        self.messages += messages
        self.attempts += attempts or [1] * len(messages)
        self.last = first + len(messages) - 1
        if self._enough is not None and len(self.messages) >= self._enough[0]:
            self._enough[1].callback(None)
            self._enough = None

    async def receive(self, count: int, credit: int | None = None) -> list[str]:
        self.messages, self.attempts = [], []
        enough: Deferred[None] = Deferred()
        self._enough = count, enough
        self.consumer.grant(count if credit is None else credit)
        await enough
        return self.bodies

    def acknowledge(self) -> int:
        return self.consumer.acknowledge_through(self.last)

    async def worked(self, count: int) -> Xid:
        """A branch that has received so many more, all acknowledged, and has ended; :attr:`bodies`
        are those.
        """
        xid = branch()
        await self.resource.start(xid, Flags.NOFLAGS)
        await self.receive(count)
        assert self.acknowledge() == count
        await self.resource.end(xid, Flags.SUCCESS)
        return xid

    async def taken(self, count: int) -> list[str]:
        await self.resource.commit(await self.worked(count), True)
        return self.bodies

    @property
    def bodies(self) -> list[str]:
        return [message.text for message in self.messages]
