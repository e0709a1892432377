"""Servers that move messages between queues, asked in the same words.

Owns the routes, and the lives of the further brokers that a route needs. How a server moves is its
own module's: :mod:`benchmarks.gateway_links`,
:mod:`benchmarks.jms_bridge`, :mod:`benchmarks.shovel`. Knows no load and no measurement.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.endpoint import Refused
from benchmarks.peers import NotInstalled, Peer
from benchmarks.process import ProcessTree
from bridge.config.model import QualityOfService


class Way(Enum):
    """Which broker has the source queue, and which the target queue.

    The mover is one of the two, or both.
    """

    WITHIN = "within one broker"
    OUT = "to another broker"
    IN = "from another broker"


@dataclass(frozen=True)
class Route:
    """One way of moving.

    :param name: without spaces.
    :param way: what movers besides the gateway use.
    :param foreign: the other broker of the gateway's link: ``gateway`` or ``activemq``; empty
        within one.
    :param protocol: how the gateway's link speaks to it: ``stomp`` or ``jms``; empty within one.
    :param quality: what the gateway's link promises; others ignore it.
    """

    name: str
    way: Way
    foreign: str = ""
    protocol: str = ""
    quality: QualityOfService = QualityOfService.DUPLICATES_OK


WITHIN = Route("within", Way.WITHIN)
BETWEEN = Route("between", Way.OUT, "gateway", "stomp")
TO_ACTIVEMQ_JMS = Route("to-activemq-jms", Way.OUT, "activemq", "jms")
TO_ACTIVEMQ_STOMP = Route("to-activemq-stomp", Way.OUT, "activemq", "stomp")
FROM_ACTIVEMQ_JMS = Route("from-activemq-jms", Way.IN, "activemq", "jms")
FROM_ACTIVEMQ_STOMP = Route("from-activemq-stomp", Way.IN, "activemq", "stomp")
#: Every route that is measured.
ROUTES = (
    WITHIN,
    BETWEEN,
    TO_ACTIVEMQ_JMS,
    TO_ACTIVEMQ_STOMP,
    FROM_ACTIVEMQ_JMS,
    FROM_ACTIVEMQ_STOMP,
)
#: Those on which one transaction has both ends.
ONCE_TO_ACTIVEMQ = Route(
    "once-to-activemq", Way.OUT, "activemq", "jms", QualityOfService.ONCE_AND_ONLY_ONCE
)
ONCE_FROM_ACTIVEMQ = Route(
    "once-from-activemq", Way.IN, "activemq", "jms", QualityOfService.ONCE_AND_ONLY_ONCE
)
ONCE_ROUTES = (ONCE_TO_ACTIVEMQ, ONCE_FROM_ACTIVEMQ)


def _of_each_quality(
    name: str, way: Way, foreign: str = "", protocol: str = ""
) -> tuple[Route, ...]:
    each = {quality: quality.value.lower().replace("_", "-") for quality in QualityOfService}
    return tuple(
        Route(f"{word}-{name}", way, foreign, protocol, quality) for quality, word in each.items()
    )


#: The same way with each quality of service.
QUALITIES_WITHIN = _of_each_quality("within", Way.WITHIN)
QUALITIES_TO_ACTIVEMQ = _of_each_quality("to-activemq-jms", Way.OUT, "activemq", "jms")
#: From a queue to the end of that same queue, which so never runs dry.
ROUND = Route("round", Way.WITHIN)

#: As a batch: the link says nothing of it.
UNSAID = 0
#: Messages that a link of the gateway sends and acknowledges at once.
BATCHES = (1, UNSAID, 1000)
#: Likewise, in one transaction.
ONCE_BATCHES = (1, 10, 100)
#: Likewise, where qualities of service are compared.
QUALITY_BATCHES = (1, 100)


class Mover(Peer):
    """A server that moves messages, with the other brokers it was asked for.

    :cvar many: how many messages it has under way at a time whatever the link says; 0 where the
        link says it.
    :cvar stops: whether :meth:`end` comes through while messages keep coming.
    :ivar warmed: the routes on which it has moved messages, and those that have what they need
        beforehand.
    """

    many = 0
    stops = True

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self._further: dict[str, Peer] = {}
        self.warmed: set[Route] = set()

    # --- lives

    def prepare(self, route: Route) -> None:
        """Have the brokers run that the route needs.

        :raises Refused: one is not installed.
        :raises NotReady: one does not start.
        """
        self.foreign(route)

    def foreign(self, route: Route) -> Peer:
        """The broker at the other end; the mover itself within one."""
        if route.way is Way.WITHIN:
            return self
        return self._started(route.foreign)

    @abstractmethod
    def make(self, foreign: str, folder: Path) -> Peer:
        """Make the other broker, not started.

        :param foreign: of :class:`Route`.
        :param folder: for its data.
        """

    def _started(self, foreign: str) -> Peer:
        peer = self._further.get(foreign)
        if peer is not None and peer.running():
            return peer
        peer = self.make(foreign, self.folder / f"other-{foreign}")
        self._further[foreign] = peer
        try:
            peer.start()
        except NotInstalled as error:
            raise Refused(f"{self.name} has no broker to move messages to: {error}") from error
        return peer

    def running(self) -> bool:
        return super().running() and all(peer.running() for peer in self._further.values())

    def stop(self) -> None:
        super().stop()
        while self._further:
            self._further.popitem()[1].kill()

    def kill(self) -> None:
        super().kill()
        while self._further:
            self._further.popitem()[1].kill()

    # --- moving

    def ends(self, route: Route) -> tuple[Peer, Peer]:
        """The brokers of the source and of the target."""
        foreign = self.foreign(route)
        return (foreign, self) if route.way is Way.IN else (self, foreign)

    def further(self, route: Route) -> Sequence[ProcessTree]:
        """The processes of the brokers besides the mover that take part."""
        return [] if route.way is Way.WITHIN else [self.foreign(route).tree]

    def queues(self, route: Route, batch: int) -> tuple[str, str]:
        """The names of the source's queue and of the target's."""
        name = f"{route.name}-{batch}"
        return (name, name) if route is ROUND else (f"{name}.in", f"{name}.out")

    @abstractmethod
    def begin(self, route: Route, batch: int) -> None:
        """Move what is in the source's queue; blocks until that has begun.

        :param batch: messages at once; others ignore it.
        :raises Refused: it does not.
        """

    @abstractmethod
    def end(self, route: Route, batch: int) -> None:
        """Move no more; what was moved is settled when this returns.

        :raises Refused: it does not.
        """

    def moved(self, route: Route, batch: int) -> int | None:
        """Return messages moved since :meth:`begin`; None if that is not known."""
        return None
