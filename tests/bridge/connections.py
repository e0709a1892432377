"""What tests of factories and connections share: a broker of this instance in memory, and a
provider in front of it that can wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from inspect import Signature, signature
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bridge.config.model import ConnectionFactory
from bridge.connections.connections import ConnectionLender, Connections, Lease
from bridge.connections.factories import AdministeredFactory, Embedded, Factories
from bridge.providers.jms.java_command import JavaOptions
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Capabilities, Connection, Credentials, Mode, Provider
from tests.contract.backends.embedded import EmbeddedMemory
from tests.contract.waiting import LONGEST_WAIT, until
from tests.on_reactor import on_reactor

clock: Any = reactor
GUEST: Final = Credentials("guest", "guest")
WRONG: Final = Credentials("guest", "letmein")


def ignored(error: MessagingError) -> None:
    """For connections whose loss is no matter."""


class Gated:
    """A provider whose connections are counted, and wait while :attr:`gate` is there."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.gate: Deferred[None] | None = None
        #: How often it was asked to connect, by which client identifiers, and what is open.
        self.asked: list[str | None] = []
        self.open: list[Connection] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._provider.capabilities

    @property
    def resource(self) -> str:
        return self._provider.resource

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        self.asked.append(client_id)
        return Deferred.fromCoroutine(self._connect(credentials, client_id, lost))

    async def _connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Connection:
        gate = self.gate
        if gate is not None:
            passed: Deferred[None] = Deferred()
            gate.addCallback(lambda _: passed.callback(None))
            await passed
        connection = await self._provider.connect(credentials, client_id, lost)
        self.open.append(connection)
        return connection

    def hold(self) -> None:
        self.gate = Deferred()

    def release(self) -> None:
        """They wait no longer."""
        assert self.gate is not None
        gate, self.gate = self.gate, None
        gate.callback(None)


class Bench:
    """Connections of one bridge, whose time is a Clock, to a real broker.

    :ivar provider: in front of the broker.
    """

    def __init__(self, backend: EmbeddedMemory) -> None:
        self.backend = backend
        self.provider = Gated(backend.provider())
        self.clock = Clock()
        self.factories = Factories(clock, Embedded(self.provider, GUEST), JavaOptions)
        self.connections = Connections(self.clock)

    def factory(
        self, ref_name: str = "here", client_id: str | None = None, **attributes: Any
    ) -> AdministeredFactory:
        properties = {} if client_id is None else {"imqConfiguredClientID": client_id}
        return self.factories.get(ConnectionFactory(ref_name, properties=properties, **attributes))

    async def take(
        self, way: ConnectionLender, lost: Callable[[MessagingError], None] = ignored
    ) -> Lease:
        return await way.borrow(lost).addTimeout(LONGEST_WAIT, clock)

    async def used(self, way: ConnectionLender) -> Lease:
        """A lease that was given back at once."""
        lease = await self.take(way)
        await lease.give_back()
        return lease

    async def lose(self) -> None:
        """Every connection to the broker is lost; returns when that is known."""
        lost: list[MessagingError] = []
        await self.provider.connect(GUEST, None, lost.append)
        await self.backend.lose()
        await until(lambda: lost, lambda: "the broker is still there")

    def alive(self) -> int:
        return sum(1 for connection in self.provider.open if is_open(connection))


def is_open(connection: Connection) -> bool:
    try:
        connection.session(Mode.AUTO).close()
    except MessagingError:
        return False
    return True


@asynccontextmanager
async def broker() -> AsyncIterator[EmbeddedMemory]:
    """The broker of this instance, for one test."""
    backend = EmbeddedMemory()
    with tempfile.TemporaryDirectory() as folder:
        await backend.start(Path(folder))
        try:
            yield backend
        finally:
            await backend.stop()


def benched(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    """Run a coroutine as a test, whose first argument is a bench of its own that is cleared up
    behind it; the others are parameters.
    """

    async def run(**given: Any) -> None:
        async with broker() as backend:
            bench = Bench(backend)
            await test(bench, **given)
            if bench.provider.gate is not None:
                bench.provider.release()
            closing = bench.connections.close()
            bench.clock.advance(100)
            await closing.addTimeout(LONGEST_WAIT, clock)
            await until(
                lambda: not bench.alive(), lambda: f"{bench.alive()} connections are still open"
            )
            assert [str(call) for call in bench.clock.getDelayedCalls()] == []

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    made = on_reactor(run)
    _, *others = signature(test).parameters.values()
    made.__signature__ = Signature(others)  # type: ignore[attr-defined]
    return made
