"""What an administrator sees of the broker.

The broker as a whole, destinations, durable subscriptions and connections. Owns these values and
how they are read off. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any, Final, Protocol

from gateway import __version__
from gateway.broker.broker import Broker
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.operator.ages import Ages
from gateway.broker.properties import administered_properties
from gateway.broker.properties.names import names_of
from gateway.broker.properties.settings import DEAD_QUEUE_PROPERTIES
from gateway.broker.sessions.connection import EmbeddedConnection
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.timing.schedule import Steps
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind

#: Destinations that are looked at in one step, where little is asked about each.
PART: Final = 1000


@dataclass(frozen=True, slots=True)
class DestinationView:
    """A destination.

    On a topic, a message counts once for each subscription that has yet to take it.

    :param type: ``queue`` or ``topic``.
    :param state: ``RUNNING``; as an administrator has paused it, ``CONSUMERS_PAUSED``,
        ``PRODUCERS_PAUSED`` or ``PAUSED`` for both; ``DESTROYING`` while its removal goes on.
    :param origin: ``administrator`` who created or updated it, ``settings`` where
        ``imq.destination.*`` name it, ``broker`` for dead message queues that it has made, ``client`` where its
        use has made it.
    :param messages: accepted and not settled;
    :param octets: theirs.
    :param unacknowledged: of them, those that consumers have, or that prepared branches have
        acknowledged; on a topic without those that wildcard subscriptions have.
    :param scheduled: of them, those that are to be delivered later; on a topic each once.
    :param in_transaction: messages of transactions that are prepared or being committed, and
    :param octets_in_transaction: theirs.
    :param producers: connections that have sent to it.
    :param consumers: consumers that it has; on a topic those of its subscriptions, and inactive
        durable subscriptions.
    :param wildcards: consumers of patterns that cover it, by pattern.
    :param messages_in: messages that have come since the start of the broker,
    :param messages_out: that have gone, by whatever way.
    :param replaced: of these, those in place of which newer ones of their keys came (``lastValueKey``).
    :param oldest_age_ms: since its oldest message was sent, those that consumers have included; 0
        without one, -1 where that is not known.
    :param peak_messages: the most that were here at once since then.
    :param properties: all of them, by the original's names.
    :param administered: those that an administrator has given.
    """

    type: str
    name: str
    temporary: bool
    state: str
    origin: str
    messages: int
    octets: int
    unacknowledged: int
    scheduled: int
    in_transaction: int
    octets_in_transaction: int
    producers: int
    consumers: int
    wildcards: Mapping[str, int]
    messages_in: int
    messages_out: int
    octets_in: int
    octets_out: int
    replaced: int
    oldest_age_ms: int
    peak_messages: int
    peak_octets: int
    properties: Mapping[str, Any]
    administered: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DurableView:
    """A durable subscription.

    :param topic: its name, or a pattern.
    :param none_or_more: whether ``>`` in the pattern stands for no level, too: ``a.>`` covers ``a``.
    :param messages: those it has yet to settle.
    :param active: whether a consumer uses it.
    """

    name: str
    client_id: str
    topic: str
    selector: str
    no_local: bool
    messages: int
    active: bool
    none_or_more: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """A connection.

    :param id: counts the connections since the start of the broker, from 1.
    :param service: by which it came: ``stomp``, ``sslstomp``, ``bridge`` for one of this process.
    :param address: the client's, and
    :param port: the client's; "" and 0 inside the process.
    :param protocol: the client's.
    :param session: what the bridge calls it in its log.
    :param since_ms: epoch milliseconds.
    :param holder: what in this process has it, such as a bridge's link; "" for a client's.
    :param producers: destinations that it has sent to.
    :param sent: messages, and
    :param delivered: messages; redelivered ones each time.
    :param unacknowledged: those delivered that it has not settled.
    :param credit: messages that its consumers would take now.
    :param held_since_ms: since when at the latest it has some of those that it has not settled, epoch
        milliseconds; 0 for none.
    :param silent_ms: for how long nothing has come from its client, milliseconds; -1 where that is
        not known, as the socket is not read now, or inside the process.
    :param beat_ms: how often the client sends something, as it has promised by heart-beats; 0 for no
        promise.
    :param late: whether it has been silent for longer than that.
    """

    id: int
    user: str
    client_id: str
    service: str
    address: str
    port: int
    protocol: str
    session: str
    holder: str
    since_ms: int
    producers: int
    consumers: int
    sent: int
    delivered: int
    unacknowledged: int
    credit: int
    held_since_ms: int
    silent_ms: int
    beat_ms: int
    late: bool


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The broker as a whole.

    :param store: ``sqlite`` or ``memory``.
    :param started_ms: epoch milliseconds, and
    :param uptime_ms: since then.
    :param messages: a message of a topic counts for each subscription.
    :param accepted: messages since the start.
    :param memory_used: octets of waiting messages in memory, and
    :param memory_most: the bound on them.
    :param refusing: why persistent messages are not stored; "" if they are.
    :param unreachable_since_ms: epoch milliseconds since when the store's database cannot be
        reached, so that nothing is confirmed or delivered; 0 if it can.
    """

    version: str
    instance: str
    varhome: str
    store: str
    store_id: str
    started_ms: int
    uptime_ms: int
    messages: int
    octets: int
    dead_messages: int
    dead_octets: int
    destinations: int
    durables: int
    connections: int
    accepted: int
    memory_used: int
    memory_most: int
    refusing: str
    unreachable_since_ms: int
    max_message_octets: int
    log_dead: bool
    truncate_dead: bool
    auto_create_queues: bool
    auto_create_topics: bool
    auto_max_consumers: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What all destinations have together.

    :param messages: a message of a topic counts for each subscription.
    :param octets: theirs.
    :param dead: the dead message queues, the broker's own first.
    """

    messages: int
    octets: int
    dead: Sequence[PhysicalQueue]


class Client(Protocol):
    """The client behind a connection, as its transport knows it."""

    @property
    def connection(self) -> object: ...
    @property
    def service(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def protocol(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def silent_ms(self) -> int: ...
    @property
    def beat_ms(self) -> int: ...


def count_producers(provider: EmbeddedProvider, counts: Counter[Destination]) -> Iterator[None]:
    """Count the connections that sent to each destination, in short steps."""
    for connection in list(provider.connections):
        known = iter(list(connection.routing.producible.values()))
        while part := list(islice(known, PART)):
            counts.update([physical.destination for physical in part if not physical.removed])
            yield


def destination(
    physical: PhysicalQueue | PhysicalTopic, count_of_producers: int, ages: Ages
) -> DestinationView:
    """How one stands."""
    wildcards: Counter[str] = Counter()
    if isinstance(physical, PhysicalQueue):
        consumers = len(physical.dispatch.consumers)
        if physical.covering:
            wildcards.update(
                [
                    each.spec.destination.name
                    for each in physical.dispatch.consumers
                    if each.of_pattern
                ]
            )
        unacknowledged = physical.count - physical.dispatch.unclaimed - physical.scheduled
    else:
        consumers = unacknowledged = 0
        for subscription in physical.subscriptions:
            consumers += max(1, len(subscription.dispatch.consumers))
            if subscription.ordinal:
                wildcards[subscription.shown.name] += max(1, len(subscription.dispatch.consumers))
            else:
                unacknowledged += subscription.dispatch.locked + sum(
                    [consumer.outstanding for consumer in subscription.dispatch.consumers]
                )
    return DestinationView(
        type=physical.destination.kind.name.lower(),
        name=physical.destination.name,
        temporary=physical.destination.temporary,
        state="DESTROYING" if physical.removed else physical.pause.state,
        origin=_origin(physical),
        messages=physical.count,
        octets=physical.octets,
        unacknowledged=unacknowledged,
        scheduled=physical.scheduled,
        in_transaction=physical.coming,
        octets_in_transaction=physical.coming_octets,
        producers=count_of_producers,
        consumers=consumers,
        wildcards=dict(sorted(wildcards.items())),
        messages_in=physical.come,
        messages_out=physical.found + physical.come - physical.count,
        octets_in=physical.come_octets,
        octets_out=physical.found_octets + physical.come_octets - physical.octets,
        replaced=physical.replaced,
        oldest_age_ms=_age(ages.oldest_ms(physical), physical.changes.turn.refresh()),
        peak_messages=physical.peak,
        peak_octets=physical.peak_octets,
        properties=administered_properties.values(physical.properties),
        administered=dict(physical.administered or {}),
    )


def show_destinations(
    provider: EmbeddedProvider,
    show: Callable[[DestinationView], None],
    kind: Kind | None,
    temporary: bool,
    ages: Ages,
) -> Steps[None]:
    """Show the destinations by name, queues first, in short steps.

    :param kind: None shows both.
    :param temporary: show temporary ones, too.
    """
    counts: Counter[Destination] = Counter()
    yield from count_producers(provider, counts)
    sorted_parts: list[list[PhysicalQueue | PhysicalTopic]] = []
    for part in parts(provider.broker):
        if kind is not None or not temporary:
            part = [
                each
                for each in part
                if kind in (None, each.destination.kind)
                and (temporary or not each.destination.temporary)
            ]
        sorted_parts.append(sorted(part, key=_by_kind_and_name))
        yield
    for physical in merge(*sorted_parts, key=_by_kind_and_name):
        # It may have been removed since.
        if provider.broker.find(physical.destination) is physical:
            show(destination(physical, counts[physical.destination], ages))
        yield


def measured(
    provider: EmbeddedProvider, most: int, ages: Ages
) -> Steps[tuple[list[DestinationView], int]]:
    """The destinations with metrics of their own, and how many are left out.

    Temporary ones have none. Those of administrators and settings come first, then the oldest.

    :param most: how many at most; -1 is all.
    """
    count: Counter[Destination] = Counter()
    yield from count_producers(provider, count)
    total, sorted_parts = 0, []
    for part in parts(provider.broker):
        lasting = [each for each in part if not each.destination.temporary]
        total += len(lasting)
        sorted_parts.append(sorted(lasting, key=_by_origin_and_age))
        yield
    views: list[DestinationView] = []
    for physical in islice(
        merge(*sorted_parts, key=_by_origin_and_age), None if most < 0 else most
    ):
        views.append(destination(physical, count[physical.destination], ages))
        yield
    return views, total - len(views)


def parts(broker: Broker) -> Iterator[list[PhysicalQueue | PhysicalTopic]]:
    """Yield all destinations, as many at once as one step looks at."""
    every = iter(list(broker.destinations.values()))
    while part := list(islice(every, PART)):
        yield part


def in_doubt(physical: PhysicalQueue | PhysicalTopic) -> bool:
    """Whether a prepared branch has sent to it, or acknowledged from it.

    Of a topic, only subscriptions by its name count.
    """
    if isinstance(physical, PhysicalQueue):
        return bool(physical.prepared or physical.dispatch.locked)
    named = [each for each in physical.subscriptions if each.pattern == physical.destination]
    return bool(physical.prepared) or any(each.dispatch.locked for each in named)


def producers(provider: EmbeddedProvider, physical: PhysicalQueue | PhysicalTopic) -> int:
    """Return how many connections send to a destination. Looks at all of them."""
    return sum(
        [
            each.routing.producible.get(physical.destination) is physical
            for each in provider.connections
        ]
    )


def durables(broker: Broker, topic: str) -> list[DurableView]:
    """Return durable subscriptions by client identifier and name.

    :param topic: only those to this topic, or with this pattern; "" for all.
    """
    found = [
        each
        for each in broker.durables.values()
        if topic in ("", each.shown.name, *names_of(each.pattern.name))
    ]
    return [durable(each) for each in sorted(found, key=lambda each: (each.client_id, each.name))]


def durable(subscription: TopicSubscription) -> DurableView:
    return DurableView(
        name=subscription.name,
        client_id=subscription.client_id,
        topic=subscription.shown.name,
        selector=subscription.selector.text if subscription.selector is not None else "",
        no_local=subscription.no_local,
        messages=subscription.dispatch.unclaimed
        + subscription.dispatch.locked
        + sum([consumer.outstanding for consumer in subscription.dispatch.consumers]),
        active=bool(subscription.dispatch.consumers),
        none_or_more=subscription.none_or_more and ">" in subscription.pattern.name,
    )


def broker(
    provider: EmbeddedProvider,
    *,
    varhome: str,
    store: str,
    started_ms: int,
    uptime_ms: int,
    totals: Totals,
) -> BrokerView:
    """How it stands."""
    broker = provider.broker
    options = broker.options
    return BrokerView(
        version=__version__,
        instance=options.name,
        varhome=varhome,
        store=store,
        store_id=broker.store_id,
        started_ms=started_ms,
        uptime_ms=uptime_ms,
        messages=totals.messages,
        octets=totals.octets,
        dead_messages=sum([each.count for each in totals.dead]),
        dead_octets=sum([each.octets for each in totals.dead]),
        destinations=len(broker.destinations),
        durables=len(broker.durables),
        connections=len(provider.connections),
        accepted=broker.numbering.accepted,
        memory_used=broker.memory.used,
        memory_most=broker.memory.total,
        refusing=broker.commits.trouble(),
        unreachable_since_ms=broker.reach.since_ms,
        max_message_octets=options.max_size,
        log_dead=options.log_dead,
        truncate_dead=options.truncate_dead,
        auto_create_queues=options.auto_queue is not None,
        auto_create_topics=options.auto_topic is not None,
        auto_max_consumers=-1
        if options.auto_queue is None
        else options.auto_queue.max_num_active_consumers,
    )


def totals(broker: Broker) -> Steps[Totals]:
    """Count what all destinations have together, in short steps."""
    messages = octets = 0
    dead: list[PhysicalQueue] = []
    for part in parts(broker):
        messages += sum([physical.count for physical in part])
        octets += sum([physical.octets for physical in part])
        dead += dead_queues(part)
        yield
    return Totals(messages, octets, [broker.queue(DMQ), *dead])


def show_connections(
    provider: EmbeddedProvider,
    clients: Sequence[Client],
    holders: Mapping[int, str],
    show: Callable[[ConnectionView], None],
    service: str,
) -> Steps[None]:
    """Show the connections, the oldest first, in short steps.

    :param clients: those who are behind some of them.
    :param holders: what in this process has the others, by the ``id`` of each.
    :param service: only those that came by this service; "" for all.
    """
    by_connection = {id(client.connection): client for client in clients}
    for each, address in list(provider.connections.items()):
        if each in provider.connections:
            view = connection(each, address, by_connection.get(id(each)), holders.get(id(each), ""))
            if service in ("", view.service):
                show(view)
        yield


def connection(
    connection: EmbeddedConnection, address: str, client: Client | None, holder: str
) -> ConnectionView:
    """How one stands.

    :param address: where it comes from, as far as the broker knows.
    :param client: who is behind it; None for one of this process.
    :param holder: what has it; "" where that is not known.
    """
    every = [consumer for session in connection.sessions for consumer in session.consumers]
    patterns = [pattern for session in connection.sessions for pattern in session.patterns]
    silent_ms = -1 if client is None else client.silent_ms
    beat_ms = 0 if client is None else client.beat_ms
    return ConnectionView(
        id=connection.number,
        user=connection.user,
        client_id=connection.client_id or "",
        service="bridge" if client is None else client.service,
        address=address if client is None else client.address,
        port=0 if client is None else client.port,
        protocol="" if client is None else client.protocol,
        session="" if client is None else client.session,
        holder=holder,
        since_ms=connection.since_ms,
        producers=sum(
            [not physical.removed for physical in connection.routing.producible.values()]
        ),
        consumers=sum([not consumer.of_pattern for consumer in every]) + len(patterns),
        sent=connection.routing.origin.sent,
        delivered=connection.routing.origin.delivered,
        unacknowledged=sum([consumer.outstanding for consumer in every]),
        # What members of a pattern may have is the pattern's.
        credit=sum([consumer.credit for consumer in every if not consumer.of_pattern])
        + sum([pattern.credit for pattern in patterns]),
        held_since_ms=held_since_ms(every),
        silent_ms=silent_ms,
        beat_ms=beat_ms,
        late=0 < beat_ms < silent_ms,
    )


def held_since_ms(consumers: Iterable[EmbeddedConsumer]) -> int:
    """Return since when at the latest consumers hold messages.

    :returns: when the one that was given something the longest ago was, epoch milliseconds; 0 where
        none has anything.
    """
    return min([each.handed_ms for each in consumers if each.outstanding], default=0)


def _age(since_ms: int, now_ms: int) -> int:
    return since_ms if since_ms <= 0 else max(1, now_ms - since_ms)


def dead_queues(part: Iterable[PhysicalQueue | PhysicalTopic]) -> list[PhysicalQueue]:
    """Return those that are dead message queues, without the broker's own."""
    return [each for each in part if isinstance(each, PhysicalQueue) and each.properties.is_dmq]


def _by_origin_and_age(physical: PhysicalQueue | PhysicalTopic) -> tuple[bool, int]:
    return physical.auto_created, physical.number


def _by_kind_and_name(physical: PhysicalQueue | PhysicalTopic) -> tuple[Kind, str]:
    return physical.destination.kind, physical.destination.name


def _origin(physical: PhysicalQueue | PhysicalTopic) -> str:
    if physical.destination == DMQ:
        return "broker"
    if physical.administered is not None:
        return "administrator"
    if physical.auto_created or physical.destination.temporary:
        return "client"
    return "broker" if physical.properties == DEAD_QUEUE_PROPERTIES else "settings"
