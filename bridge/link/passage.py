"""How the messages of a link pass from its source to its target: the plain way, where each side is
told by itself.

Owns what :mod:`bridge.link.ends` asks of such a way, and the plain one. The other, in which both
sides are told in one transaction, is :mod:`bridge.once`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from bridge.config.model import Link
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import ConnectionKind, Connections, Way
from bridge.link.errors import EndLost, SourceLost
from bridge.link.pump import Pump
from bridge.link.source import Source
from bridge.link.target import Target
from bridge.link.transfer import Sides
from bridge.status import Doing, OnceBy
from gateway.messaging.destination import Destination
from gateway.messaging.provider import Connection

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bridge.xa.coordinator import Transaction


class AnySource(Protocol):
    """A source that is connected."""

    #: What the provider calls itself.
    product: str
    #: Why it is of no use any more.
    failed: SourceLost | None
    #: Whether the provider has accepted what the link asks for.
    accepted: bool

    @property
    def connection(self) -> Connection | None:
        """The connection; None when it has ended or was given back."""

    @property
    def ahead(self) -> int:
        """Messages received and not taken yet."""

    def times(self) -> list[int]:
        """The timestamps of those messages."""

    def close(self) -> Deferred[None]: ...


class AnyTarget(Protocol):
    """A target."""

    #: What the provider calls itself.
    product: str

    @property
    def kind(self) -> ConnectionKind | None: ...

    @property
    def ready(self) -> bool:
        """Whether it is connected."""

    async def open(self) -> None:
        """Connect, if it is not connected. :raises TargetLost:"""

    async def let_go(self, broken: bool = False) -> None:
        """Give the connection back, to :meth:`open` another time. :param broken: nobody is to have
        it again.
        """

    async def close(self) -> None: ...


class AnyPump(Protocol):
    """What moves the messages, from a link's start to its stop."""

    doing: Doing
    doing_since_ms: int

    @property
    def in_flight(self) -> int:
        """Messages taken from the source and not acknowledged."""

    def times(self) -> list[int]:
        """The timestamps of those messages."""

    def release(self) -> None: ...

    def halt(self) -> None: ...

    def forget(self) -> None: ...


class Passage(Protocol):
    """One way, for one link, from its start to its stop."""

    @property
    def target(self) -> AnyTarget: ...

    @property
    def pump(self) -> AnyPump: ...

    @property
    def once_by(self) -> OnceBy | None:
        """What it relies on to transfer each message once; None where it does not."""

    @property
    def transaction(self) -> Transaction | None:
        """The transaction that was begun last."""

    async def open_source(
        self, way: Way, destination: Destination, lost: Callable[[SourceLost], None]
    ) -> AnySource:
        """Connect the source. :raises MessagingError: nothing is left open then."""

    async def connected(self, source: Any) -> None:
        """Source and target are connected: what must be before a message is moved.

        :raises SourceLost: :raises TargetLost: the one that is not as it must be. :raises
            MessagingError: it can never be.
        """

    async def run(self, source: Any, sides: Sides) -> None:
        """Move messages until the pump is halted. :raises MessagingError: of the pump."""

    async def failed(self, source: Any) -> bool:
        """:meth:`run` has failed, and the link has not been stopped.

        :returns: whether the source must be connected anew though it was not lost.
        """


class PlainPassage:
    """Each side is told by itself.

    :param lost: called if a kept connection to the target ends. :param handed_over: see
        :class:`~bridge.link.target.Target`.
    """

    once_by: Final = None
    transaction: Final = None

    def __init__(
        self,
        reactor: Any,
        link: Link,
        target: AdministeredFactory,
        connections: Connections,
        pump: Pump,
        lost: Callable[[EndLost], None],
        handed_over: Callable[[], None],
    ) -> None:
        self._reactor: Final = reactor
        self._link: Final = link
        self.pump: Final = pump
        stays = link.target.stay_connected
        self.target: Final = Target(
            connections.for_sending(
                target, stays, link.target.clientid, f"link {link.name}, target"
            ),
            target.provider,
            stays,
            # The embedded broker makes a run durable at once anyhow.
            link.batch_size > 1 and not target.embedded,
            lost,
            handed_over,
        )

    async def open_source(
        self, way: Way, destination: Destination, lost: Callable[[SourceLost], None]
    ) -> Source:
        source = Source(self._reactor, self._link, destination, lost)
        await source.open(way)
        return source

    async def connected(self, source: Source) -> None:
        """There is nothing more to do."""

    async def run(self, source: Source, sides: Sides) -> None:
        source.start()
        try:
            await self.pump.run(source, self.target, sides)
        finally:
            source.stop()

    async def failed(self, source: Source) -> bool:
        """Each goes on where it was."""
        return False
