"""Driving the seam: connections, sessions and consumers with what tests want to know of them.

Owns the situations that tests begin in. Knows no provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessageRejected, MessagingError
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import (
    Capabilities,
    Connection,
    ConsumerSpec,
    Credentials,
    Mode,
    Provider,
    Session,
)
from tests.contract.backends.backend import Backend
from tests.contract.waiting import Inbox, Told, bounded, completed, until


def text(destination: Destination, body: str, *, expires: int = 0, **headers: Any) -> Message:
    """A TEXT message."""
    return Message(
        Headers(destination, body_type=BodyType.TEXT, **headers), body.encode(), expires=expires
    )


def texts(destination: Destination, bodies: Sequence[str] | range, **headers: Any) -> list[Message]:
    """TEXT messages with these bodies."""
    return [text(destination, str(body), **headers) for body in bodies]


def below(topic: Destination, *levels: str) -> Destination:
    """The topic that has these levels more."""
    return Destination(topic.kind, ".".join((topic.name, *levels)))


def now_ms() -> int:
    """The time in epoch milliseconds."""
    return int(time.time() * 1000)


async def send(session: Session, messages: Sequence[Message]) -> None:
    """Send, and wait until the messages are durable."""
    session.send(messages)
    await completed(session)


async def refused_send(session: Session, messages: Sequence[Message]) -> MessagingError:
    """Send what must be refused.

    :returns: why; :class:`MessageRejected` where ``send`` raised, else what the next completion
        says.
    """
    try:
        session.send(messages)
    except MessageRejected as error:
        return error
    told = Told()
    session.completion(told)
    error_ = await told.result()
    assert error_ is not None, "it was taken"
    return error_


async def refused_consumer(session: Session, spec: ConsumerSpec) -> MessagingError:
    """Ask for a consumer that must be refused.

    :returns: why, raised or told to ``failed``.
    """
    inbox = Inbox()
    try:
        inbox.consumer = session.consumer(spec, inbox.deliver, inbox.failures.append)
    except MessagingError as error:
        return error
    return await inbox.failed()


class Client:
    """A connection with the conveniences that tests want."""

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self.losses: list[MessagingError] = []
        #: Called inside of ``lost``.
        self.on_loss: Callable[[], object] | None = None
        self.closed = False
        self.connection: Connection
        self._sender: Session | None = None

    def lost(self, error: MessagingError) -> None:
        self.losses.append(error)
        if self.on_loss is not None:
            self.on_loss()

    def session(self, mode: Mode = Mode.CLIENT) -> Session:
        return self.connection.session(mode)

    async def consumer(
        self,
        destination: Destination,
        *,
        session: Session | None = None,
        mode: Mode = Mode.CLIENT,
        credit: int = 1000,
        octets: int = 0,
        start: bool = True,
        count: int = 0,
        on_delivery: Callable[[int, Sequence[Message]], object] | None = None,
        **spec: Any,
    ) -> Inbox:
        """A consumer that receives from when this returns.

        :param session: one of its own unless given.
        :param count: wait until it has this many messages.
        """
        if session is None:
            session = self.session(mode)
        inbox = Inbox()
        inbox.on_delivery = on_delivery
        inbox.session = session
        inbox.counted = self._seam.capabilities.delivery_count
        inbox.consumer = session.consumer(
            ConsumerSpec(destination, **spec), inbox.deliver, inbox.failures.append
        )
        await completed(session)
        assert inbox.failures == [], str(inbox.failures)
        if credit or octets:
            inbox.consumer.grant(credit, octets)
        if start:
            inbox.consumer.start()
        await inbox.count(count)
        return inbox

    async def send(
        self, destination: Destination, bodies: Sequence[str] | range, **headers: Any
    ) -> list[Message]:
        """Send TEXT messages and wait until they are durable.

        :returns: what was sent.
        """
        if self._sender is None:
            self._sender = self.session()
        messages = texts(destination, bodies, **headers)
        self._sender.send(messages)
        await completed(self._sender)
        return messages

    async def close(self) -> None:
        await bounded(self.end())

    def end(self) -> Deferred[None]:
        """Close, without waiting for it."""
        self.closed = True
        return self.connection.close()

    async def leaves(self, queue: Destination, bodies: list[str]) -> None:
        """Close; then these wait in the queue, in this order, and nothing else; they are taken."""
        await self.close()
        await self._seam.has_left(queue, bodies)


class Seam:
    """The seam of one backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.provider: Provider = backend.provider()
        self._clients: list[Client] = []
        self._beats: tuple[Destination, Client, Inbox] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.provider.capabilities

    def queue(self) -> Destination:
        return self.backend.queue()

    def topic(self) -> Destination:
        return self.backend.topic()

    async def connect(
        self, client_id: str | None = None, credentials: Credentials | None = None
    ) -> Client:
        """A connection; closed behind the test."""
        client = Client(self)
        given = self.backend.credentials if credentials is None else credentials
        client.connection = await bounded(self.provider.connect(given, client_id, client.lost))
        self._clients.append(client)
        return client

    async def waiting(
        self, bodies: Sequence[str] | range, **headers: Any
    ) -> tuple[Client, Destination]:
        """A connection, and a fresh queue in which these wait."""
        client, queue = await self.connect(), self.queue()
        await client.send(queue, bodies, **headers)
        return client, queue

    async def holding(
        self, bodies: Sequence[str] | range, *, credit: int = 1000, **consumer: Any
    ) -> tuple[Client, Destination, Inbox]:
        """A connection, a fresh queue that these were sent to, and a consumer of it that holds them
        as far as its credit goes.

        :param consumer: as for :meth:`Client.consumer`.
        """
        client, queue = await self.connect(), self.queue()
        inbox = await client.consumer(queue, credit=credit, **consumer)
        await client.send(queue, bodies)
        await inbox.count(min(len(bodies), credit))
        return client, queue, inbox

    def identifier(self) -> str:
        """A client identifier or durable name that no test has used."""
        return self.backend.queue().name.replace(".", "-")

    async def quiet(self) -> None:
        """Wait until what could have been delivered has been: messages that are sent now have made
        their way, twice.
        """
        if self._beats is None:
            queue, client = self.queue(), await self.connect()
            self._beats = queue, client, await client.consumer(queue, mode=Mode.AUTO)
        queue, client, inbox = self._beats
        for _ in range(2):
            before = len(inbox.messages)
            await client.send(queue, ["beat"])
            await inbox.count(before + 1)

    async def everything(self, inbox: Inbox, count: int) -> list[str]:
        """Return the texts of all that comes, which are at least this many."""
        await inbox.count(count)
        await self.quiet()
        return inbox.texts

    async def rest(self, queue: Destination, least: int = 0) -> list[str]:
        """Take and return what waits in a queue without other consumers.

        :param least: wait for at least this many messages.
        """
        client = await self.connect()
        inbox = await client.consumer(queue)
        await inbox.count(least)
        await self.quiet()
        if inbox.numbers:
            inbox.consumer.acknowledge_through(inbox.numbers[-1])
        await client.close()
        return inbox.texts

    async def has_left(self, queue: Destination, bodies: list[str]) -> None:
        """Check that a queue without other consumers has just these, in order.

        They are taken.
        """
        found = await self.rest(queue, len(bodies))
        assert found == bodies, f"{found} are left, and {bodies} were expected"

    async def lose(self) -> None:
        """Every connection is lost."""
        await self._gone(self.backend.lose)

    async def restart(self) -> None:
        """The broker restarts."""
        await self._gone(self.backend.restart)

    async def _gone(self, how: Callable[[], Coroutine[Any, Any, None]]) -> None:
        losing = [client for client in self._clients if not client.closed]
        await how()
        await until(
            lambda: all(client.losses for client in losing),
            lambda: "connections have not been lost",
        )
        self._clients.clear()
        self._beats = None
        self.provider = self.backend.provider()

    def counted(self, *attempts: int) -> list[int]:
        """These attempts as an inbox has them: where the provider cannot count, 2 is any but the
        first.
        """
        return [
            attempt if self.capabilities.delivery_count else min(attempt, 2) for attempt in attempts
        ]

    async def close(self) -> None:
        for client in self._clients:
            if not client.closed:
                await client.close()
        for client in self._clients:
            assert client.losses == [], "a connection was lost that was not to be"
