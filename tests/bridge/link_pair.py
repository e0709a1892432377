"""A link between two embedded brokers of this process, with what tests want to do to it.

Owns the brokers and waiting. Each is a whole broker; nothing but the dead message queues, which
have tests of their own, is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent
from zope.interface import implementer

from bridge.config.model import Bridge, ConnectionFactory, Link, QualityOfService, Source, Target
from bridge.config.model import Destination as Configured
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.dead.chain import DeadMessage, NotBuried
from bridge.jms_link import JMSLink
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.journal import NO_JOURNAL
from bridge.link.status import LinkState
from bridge.xa.coordinator import Coordinator
from bridge.xa.log.opening import TransactionProperties, open_coordinator
from gateway.instance import crashpoints
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Credentials, Provider
from gateway.messaging.transformer import MessageTransformer
from tests.contract.backends.embedded import Embedded, EmbeddedMemory, EmbeddedSqlite
from tests.contract.driving import Client, Seam
from tests.contract.waiting import until

clock: Any = reactor
SOURCE: Final = Queue("link.source")
TARGET: Final = Queue("link.target")


class Away:
    """A provider that can be away: then nobody can connect."""

    def __init__(self, provider: Provider, resource: str) -> None:
        self._provider = provider
        self._resource = resource
        #: What connecting fails with; None lets it succeed.
        self.error: MessagingError | None = None
        #: Whether connecting takes for ever.
        self.hangs = False
        #: Whether each connection is lost as soon as it is there.
        self.dies = False
        #: What it says it can do other than it can.
        self.pretends: dict[str, bool] = {}
        self.attempts = 0
        self._made: list[Any] = []
        self._hanging: list[tuple[Deferred[Connection], Callable[[], Deferred[Connection]]]] = []

    def let_go(self) -> None:
        """Answer those who hang, as it is now."""
        hanging, self._hanging = self._hanging, []
        for waiter, connect in hanging:
            self.attempts -= 1
            connect().chainDeferred(waiter)

    def cut(self) -> None:
        """All connections that were made by this are lost."""
        made, self._made = self._made, []
        for connection in made:
            connection.fail(ProviderUnavailable("its connection is cut"))

    @property
    def capabilities(self) -> Any:
        return replace(self._provider.capabilities, **self.pretends)

    @property
    def resource(self) -> str:
        return self._resource

    def connect(
        self,
        credentials: Credentials,
        client_id: str | None,
        lost: Callable[[MessagingError], None],
    ) -> Deferred[Connection]:
        self.attempts += 1
        if self.hangs:
            hanging: Deferred[Connection] = Deferred()
            self._hanging.append((hanging, lambda: self.connect(credentials, client_id, lost)))
            return hanging
        if self.error is not None:
            failed: Deferred[Connection] = Deferred()
            failed.errback(self.error)
            return failed
        connecting = self._provider.connect(credentials, client_id, lost)

        def made(connection: Connection) -> Connection:
            self._made.append(connection)
            if self.dies:
                clock.callLater(0, self.cut)
            return connection

        return connecting.addCallback(made)


class Graves:
    """The dead message queues: a list."""

    def __init__(self) -> None:
        self.dead: list[DeadMessage] = []
        #: How many of the next are taken by no queue.
        self.refuse = 0
        #: Those that wait for :meth:`let_go`; None where nobody waits.
        self.holding: list[Deferred[None]] | None = None

    def let_go(self) -> None:
        """Bury those that wait."""
        holding, self.holding = self.holding or [], None
        for waiting in holding:
            waiting.callback(None)

    async def bury(self, dead: DeadMessage) -> None:
        if self.refuse:
            self.refuse -= 1
            raise NotBuried(dead.message.message_id, [])
        if self.holding is not None:
            self.holding.append(Deferred())
            await self.holding[-1]
        self.dead.append(dead)


class Side:
    def __init__(self, backend: Embedded, name: str) -> None:
        self.backend = backend
        self.provider = Away(backend.provider(), name)
        self.seam = Seam(backend)
        self.config = ConnectionFactory(
            name, connect_attempt_interval_s=1, lookup_name=f"there://{name}"
        )
        #: What looking up fails with; None lets it succeed.
        self.not_found: MessagingError | None = None
        self.factory = AdministeredFactory(
            self.config,
            self.provider,
            backend.credentials,
            name,
            look_up=self._look_up,
            remembers=True,
        )

    def _look_up(self, destination: Configured) -> Deferred[Destination]:
        """By JNDI everything is the target here, unless its name ends with "source"."""
        if self.not_found is not None:
            return fail(self.not_found)
        return succeed(SOURCE if (destination.lookup_name or "").endswith("source") else TARGET)

    async def send(self, *bodies: str, to: Destination = SOURCE, **headers: Any) -> None:
        client = await self.seam.connect()
        await client.send(to, bodies, **headers)
        await client.close()

    async def arrived(self, count: int, of: Destination = TARGET) -> list[Message]:
        """Take so many messages."""
        client = await self.seam.connect()
        inbox = await client.consumer(of)
        await inbox.count(count)
        messages = list(inbox.messages)
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
        await client.close()
        return messages

    async def texts(self, count: int, of: Destination = TARGET) -> list[str]:
        return [message.text for message in await self.arrived(count, of)]

    async def rest(self, of: Destination) -> list[str]:
        """What is there, and nobody has."""
        return await self.seam.rest(of)


@implementer(ILogObserver)
class _Observer:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def __call__(self, event: LogEvent) -> None:
        text = formatEvent(event)
        self._rig.logged.append(text)
        if event["log_level"] >= LogLevel.warn:
            self._rig.warned.append(text)
        for words, act in self._rig.at_once:
            if words in text:
                act()


class Rig:
    """Two brokers, and the links that a test makes between them."""

    def __init__(self, source: Embedded, target: Embedded, folder: Path) -> None:
        self.folder = folder
        self.source = Side(source, "source")
        self.target = Side(target, "target")
        self.graves = Graves()
        self.connections = Connections(clock)
        self.links: list[JMSLink] = []
        self.logged: list[str] = []
        #: Those of them that are warnings, or worse.
        self.warned: list[str] = []
        #: What to do at the very moment that a line with these words is logged.
        self.at_once: list[tuple[str, Callable[[], None]]] = []
        self.points: list[str] = []
        #: Called at the crash points, of the last link that was made and of the coordinator.
        self.passed: Callable[[str], None] = self.points.append
        crashpoints.arm(crashpoints.POINTS[crashpoints.LINK_VARIABLE], self._at)
        self.coordination = BackgroundRecovery(clock, self._open, lambda: False, Logger())
        #: What tells the journal, where a test has one.
        self.lines = NO_JOURNAL

    def _at(self, point: str) -> None:
        self.passed(point)

    def _open(self) -> Coordinator:
        return open_coordinator(
            clock,
            self.folder,
            "bridge",
            "instance",
            TransactionProperties(),
            Logger(),
            os.urandom,
        )

    def coordinator(self) -> Coordinator:
        self.coordination.open()
        return self.coordination.coordinator()

    def link(
        self,
        *,
        name: str = "link",
        transformer: MessageTransformer | None = None,
        source: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
        bridge: dict[str, Any] | None = None,
        to: Destination | None = TARGET,
        of: Destination = SOURCE,
        passed: Callable[[str], None] | None = None,
        **link: Any,
    ) -> JMSLink:
        """A link; not started."""
        link.setdefault("quality_of_service", QualityOfService.DUPLICATES_OK)
        link.setdefault("failure_retry_interval_ms", 2)
        configured = Link(
            name,
            Source(
                self.source.config, **{"destination": _configured("source", of), **(source or {})}
            ),
            Target(
                self.target.config,
                **{
                    "destination": None if to is None else _configured("target", to),
                    **(target or {}),
                },
            ),
            **link,
        )
        made = JMSLink(
            clock,
            configured,
            Bridge("bridge", links=(configured,), **(bridge or {})),
            self.source.factory,
            self.target.factory,
            self.connections,
            self.coordination,
            self.graves,
            transformer,
            "instance",
            Logger(namespace="bridge.test", observer=_Observer(self)),
            self.lines,
        )
        self.coordination.start([self.source.factory, self.target.factory])
        self.passed = passed or self.passed
        self.links.append(made)
        return made

    async def started(self, **link: Any) -> JMSLink:
        made = self.link(**link)
        await made.start()
        assert made.state is LinkState.STARTED, made.status().last_error
        return made

    async def moves(self, *bodies: str, of: Destination = SOURCE) -> None:
        """Messages that are sent to the source arrive at the target."""
        await self.source.send(*bodies, to=of)
        assert await self.target.texts(len(bodies)) == list(bodies)

    async def acknowledges(self, link: JMSLink, count: int) -> None:
        await until(lambda: link.status().counters.acknowledged == count)

    async def finishes(self, link: JMSLink, count: int) -> None:
        """The link acknowledges that many messages; then it is stopped."""
        await self.acknowledges(link, count)
        await link.stop()

    async def reaches(self, link: JMSLink, state: LinkState) -> None:
        await until(
            lambda: link.state is state, lambda: f"{link.state}: {link.status().last_error}"
        )

    async def close(self) -> None:
        for link in self.links:
            await link.stop()
        await self.connections.close()
        await self.coordination.stop()
        for side in (self.source, self.target):
            await side.seam.close()


class Cuts:
    """Loses connections at some of the times that a link passes a point.

    :ivar seen: how often it was passed.
    """

    def __init__(self, rig: Rig, point: str, times: Collection[int], *sides: Side) -> None:
        self._rig, self._point, self._times, self._sides = rig, point, times, sides
        self.seen = 0

    def __call__(self, point: str) -> None:
        self._rig.points.append(point)
        if point == self._point:
            self.seen += 1
            if self.seen in self._times:
                for side in self._sides:
                    side.provider.cut()


def _configured(ref_name: str, destination: Destination) -> Configured:
    return Configured(ref_name, destination.name, Kind(destination.kind))


def in_state(link: JMSLink, state: LinkState) -> None:
    assert link.state is state, link.status()


async def rig(folder: Path, both: bool = False) -> Rig:
    """The durable broker as the source, and the other as the target; or, if it is to be ``both``,
    as the target too.
    """
    source = EmbeddedSqlite()
    target = source if both else EmbeddedMemory()
    for backend in dict.fromkeys((source, target)):
        place = folder / backend.name
        place.mkdir()
        await backend.start(place)
    return Rig(source, target, folder)


async def close(rig: Rig) -> None:
    await rig.close()
    for backend in dict.fromkeys((rig.source.backend, rig.target.backend)):
        await backend.stop()


__all__ = [
    "SOURCE",
    "TARGET",
    "Away",
    "Client",
    "Cuts",
    "Graves",
    "Rig",
    "close",
    "in_state",
    "rig",
    "until",
]
