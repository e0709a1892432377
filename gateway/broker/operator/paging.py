"""Pages of destinations and connections.

For administrators who look at a part of very many.

Owns what is wanted, the order, and that the search takes short steps: none of them looks at more
than :data:`~gateway.broker.operator.views.PART`. What is told of each,
:mod:`gateway.broker.operator.views` knows. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred

from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.operator import views
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.operator.ages import Ages
from gateway.broker.operator.views import (
    PART,
    Client,
    ConnectionView,
    DestinationView,
    Totals,
)
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.timing.schedule import Steps
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind
from gateway.reactor.deferreds import deferred

T = TypeVar("T")
_Physical = PhysicalQueue | PhysicalTopic

#: Orders of destinations: by what, and whether the most come first.
ORDERS: Final[Mapping[str, Callable[[_Physical], int]]] = {
    "messages": lambda each: each.count,
    "octets": lambda each: each.octets,
    "in": lambda each: each.come,
    "peak": lambda each: each.peak,
}
#: Destinations of one kind of trouble that are named.
NAMED: Final = 20
#: A destination is nearly full from this part of its limit on.
NEARLY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of what there is.

    :param matched: how many match what is wanted.
    :param total: how many there are.
    """

    rows: Sequence[T]
    matched: int
    total: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part is wanted.

    :param text: a part of the name, in any case; of a connection, of its user, client id, address
        or service.
    :param kind: ``queue``, ``topic`` or "" for both.
    :param order: a word of :data:`ORDERS`; else by name.
    :param temporary: temporary destinations, too.
    :param first: how many are left out before.
    :param count: how many at most.
    """

    text: str = ""
    kind: str = ""
    order: str = ""
    temporary: bool = True
    first: int = 0
    count: int = 50


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A consumer of a queue, or of a topic's subscription.

    :param connection: the connection's id.
    :param subscription: its durable name, "" for none; a pattern where it covers the destination.
    :param credit: messages that it would take now.
    :param unacknowledged: messages that it has, and has not settled.
    :param oldest_ms: when the oldest of those was sent, epoch milliseconds; 0 for none.
    :param running: whether it has been started.
    """

    connection: int
    user: str
    client_id: str
    subscription: str
    selector: str
    credit: int
    unacknowledged: int
    oldest_ms: int
    running: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """All destinations at once.

    :param totals: what they have together.
    :param idle: queues with messages and no consumer, those with the most first;
    :param stuck: whose consumers have as much as they take, while messages wait;
    :param full: that are nearly at a limit of theirs;
    :param paused: by an administrator. Of each kind at most :data:`NAMED`, with its number:
    :param counts: of them by these words.
    """

    destinations: int
    totals: Totals
    idle: Sequence[DestinationView]
    stuck: Sequence[DestinationView]
    full: Sequence[DestinationView]
    paused: Sequence[DestinationView]
    counts: Mapping[str, int]


class Paging:
    """Looks at parts of what a broker has. Called on the reactor's thread.

    :param clients: those who are behind connections of the provider.
    :param holders: what in this process has the others, by the ``id`` of each.
    """

    def __init__(
        self,
        provider: EmbeddedProvider,
        clients: Callable[[], Sequence[Client]],
        holders: Callable[[], Mapping[int, str]],
    ) -> None:
        self._provider: Final = provider
        self._broker: Final = provider.broker
        self._clients: Final = clients
        self._holders: Final = holders
        self._ages: Final = Ages(provider.broker.turn)

    @deferred
    async def destinations(self, wanted: Wanted) -> Page[DestinationView]:
        """Return a page of destinations."""
        found = await self._broker.schedule.looked(self._destinations(wanted))
        await self._ages.known(found.rows)
        rows = [views.destination(each, 0, self._ages) for each in found.rows]
        return Page(rows, found.matched, found.total)

    def connections(self, wanted: Wanted) -> Deferred[Page[ConnectionView]]:
        """Return a page of connections, the newest first."""
        return self._broker.schedule.looked(self._connections(wanted))

    def connection(self, number: int) -> ConnectionView | None:
        """Return the connection with this id; None without one."""
        found = self._provider.numbered(number)
        if found is None:
            return None
        address = self._provider.connections[found]
        return self._view(found, address, self._clients(), self._holders())

    @deferred
    async def survey(self) -> Survey:
        """Look at every destination."""
        total, totals, counts, found = await self._broker.schedule.looked(self._survey())
        await self._ages.known(chain.from_iterable(found.values()))
        named = {
            word: [views.destination(each, 0, self._ages) for each in places]
            for word, places in found.items()
        }
        return Survey(total, totals, counts=counts, **named)

    def count(self, type: str, name: str) -> int:
        """Return how many messages a destination has; 0 without it."""
        physical = self._find(type, name)
        return 0 if physical is None else physical.count

    async def dead_queues(self) -> Sequence[str]:
        """Return the names of the dead message queues, the broker's own first."""
        totals = await self._broker.schedule.looked(views.totals(self._broker))
        return [each.destination.name for each in totals.dead]

    @deferred
    async def destination(self, type: str, name: str) -> DestinationView:
        """Return one destination; fails with AdministrationRefused."""
        physical = self._find(type, name)
        if physical is None:
            raise AdministrationRefused(f"there is no {type} '{name}'")
        producers = await self._broker.schedule.looked(self._producers(physical))
        await self._ages.known([physical])
        return views.destination(physical, producers, self._ages)

    def consumers(self, type: str, name: str, most: int = 200) -> tuple[list[ConsumerView], int]:
        """Return consumers of a destination, and how many there are.

        :param most: of those that are returned.
        """
        # Those of one destination are few, beside all connections.
        physical = self._find(type, name)
        if physical is None:
            return [], 0
        if isinstance(physical, PhysicalQueue):
            there = [("", each) for each in physical.dispatch.consumers]
        else:
            there = [
                (subscription.name, each)
                for subscription in physical.subscriptions
                for each in subscription.dispatch.consumers
            ]
        shown = there[:most]
        sessions = {id(each.session) for _, each in shown}
        owners = {
            id(session): connection
            for connection in self._provider.connections
            for session in connection.sessions
            if id(session) in sessions
        }
        return [
            _consumer(each, subscription, owners.get(id(each.session)))
            for subscription, each in shown
        ], len(there)

    def _find(self, type: str, name: str) -> _Physical | None:
        kind = Kind.QUEUE if type == "queue" else Kind.TOPIC
        found = (self._broker.find(Destination(kind, name, each)) for each in (False, True))
        return next((each for each in found if each is not None), None)

    def _destinations(self, wanted: Wanted) -> Steps[Page[_Physical]]:
        text = wanted.text.lower()
        order = ORDERS.get(wanted.order)
        total = matched = 0
        parts: list[list[tuple[Any, ...]]] = []
        for part in views.parts(self._broker):
            total += len(part)
            # Names are of one kind each only once, so that destinations are never compared.
            keyed = sorted(
                [
                    (
                        -order(each) if order else 0,
                        each.destination.kind.value,
                        each.destination.name,
                        each.destination.temporary,
                        each,
                    )
                    for each in part
                    if wanted.kind in ("", each.destination.kind.name.lower())
                    and (wanted.temporary or not each.destination.temporary)
                    and text in each.destination.name.lower()
                ]
            )
            matched += len(keyed)
            parts.append(keyed)
            yield
        merged = merge(*parts)
        for skipped in range(0, wanted.first, PART):
            for _ in islice(merged, min(PART, wanted.first - skipped)):
                pass
            yield
        return Page([keys[-1] for keys in islice(merged, wanted.count)], matched, total)

    def _producers(self, physical: _Physical) -> Steps[int]:
        producers = 0
        every = iter(list(self._provider.connections))
        while part := list(islice(every, PART)):
            producers += sum(
                [each.routing.producible.get(physical.destination) is physical for each in part]
            )
            yield
        return producers

    def _connections(self, wanted: Wanted) -> Steps[Page[ConnectionView]]:
        text = wanted.text.lower()
        there = list(self._provider.connections.items())
        clients: dict[int, Client] = {}
        every = iter(list(self._clients()))
        while part := list(islice(every, PART)):
            clients.update((id(client.connection), client) for client in part)
            yield
        holders = self._holders()
        found: list[tuple[EmbeddedConnection, str]] = []
        for start in range(0, len(there), PART):
            for each, address in there[start : start + PART]:
                if not text or text in _about(each, address, clients.get(id(each)), holders):
                    found.append((each, address))
            yield
        found.reverse()
        return Page(
            [
                views.connection(each, address, clients.get(id(each)), holders.get(id(each), ""))
                for each, address in found[wanted.first : wanted.first + wanted.count]
            ],
            len(found),
            len(there),
        )

    def _view(
        self,
        connection: EmbeddedConnection,
        address: str,
        clients: Sequence[Client],
        holders: Mapping[int, str],
    ) -> ConnectionView:
        client = next((each for each in clients if each.connection is connection), None)
        return views.connection(connection, address, client, holders.get(id(connection), ""))

    def _survey(self) -> Steps[tuple[int, Totals, dict[str, int], dict[str, list[_Physical]]]]:
        found: dict[str, list[_Physical]] = {"idle": [], "stuck": [], "full": [], "paused": []}
        counts = dict.fromkeys(found, 0)
        total = messages = octets = 0
        dead: list[PhysicalQueue] = []
        for part in views.parts(self._broker):
            total += len(part)
            dead += views.dead_queues(part)
            for each in part:
                messages += each.count
                octets += each.octets
                for word in _troubles(each):
                    counts[word] += 1
                    found[word].append(each)
            for places in found.values():
                places.sort(key=lambda each: -each.count)
                del places[NAMED:]
            yield
        return total, Totals(messages, octets, [self._broker.queue(DMQ), *dead]), counts, found


def _troubles(physical: _Physical) -> Iterator[str]:
    """Yield the words of what is wrong with a destination."""
    if physical.pause:
        yield "paused"
    if not physical.count:
        return
    properties = physical.properties
    if (0 < properties.max_num_msgs * NEARLY <= physical.count) or (
        0 < properties.max_total_msg_bytes * NEARLY <= physical.octets
    ):
        yield "full"
    if not isinstance(physical, PhysicalQueue) or physical.destination == DMQ or properties.is_dmq:
        return
    if not physical.dispatch.consumers:
        yield "idle"
    elif physical.dispatch.unclaimed and not any(
        each.ready() for each in physical.dispatch.consumers
    ):
        yield "stuck"


def _about(
    connection: EmbeddedConnection, address: str, client: Client | None, holders: Mapping[int, str]
) -> str:
    there = (
        (address, "bridge", holders.get(id(connection), ""))
        if client is None
        else (client.address, client.service)
    )
    return " ".join((connection.user, connection.client_id or "", *there)).lower()


def _consumer(
    consumer: EmbeddedConsumer, subscription: str, connection: EmbeddedConnection | None
) -> ConsumerView:
    oldest = consumer.oldest
    return ConsumerView(
        connection=0 if connection is None else connection.number,
        user="" if connection is None else connection.user,
        client_id="" if connection is None else connection.client_id or "",
        subscription=subscription
        or (consumer.spec.destination.name if consumer.of_pattern else ""),
        selector=consumer.selector.text if consumer.selector is not None else "",
        credit=consumer.credit,
        unacknowledged=consumer.outstanding,
        oldest_ms=0 if oldest is None else oldest.timestamp,
        running=consumer.running,
    )
