"""Explain why something is not delivered, to an operator who asks.

Gathers what is known at that moment, asks the functions of this package, and ranks what they find.
What looks at many things is done in short steps between the work for clients: a queue of 100,000
messages is asked about by a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredSemaphore, TimeoutError
from twisted.internet.threads import deferToThreadPool

from bridge.config.model import Link
from bridge.link.status import BridgeState
from bridge.manager import Bridge, BridgeServiceManager
from gateway.admin.service.bridge_resources import ElsewhereOwned, as_jms
from gateway.admin.service.browsing import quoted as literal
from gateway.admin.service.browsing import reader
from gateway.admin.service.dead import destination_of as parsed_destination
from gateway.admin.service.requests import Refused
from gateway.admin.why.broker import broker_causes
from gateway.admin.why.cause import Answer, Cause, CauseKind, command, counted, ranked, spoken
from gateway.admin.why.connections import connection_causes
from gateway.admin.why.destinations import (
    address_causes,
    empty_cause,
    queue_causes,
    topic_causes,
    transaction_causes,
)
from gateway.admin.why.facts import Facts, LinkFacts, StoppedLink
from gateway.admin.why.journeys import Journey, read_journey
from gateway.admin.why.limits import refusal_causes
from gateway.admin.why.links import elsewhere_cause, link_causes, stopped_cause, unknown_links
from gateway.admin.why.messages import (
    absent_causes,
    dead_cause,
    duplicate_causes,
    found_causes,
    journey_causes,
    unknown_of_journal,
)
from gateway.admin.why.names import (
    absent_cause,
    behind_cause,
    by_exchange,
    exchange_cause,
    find_near,
    near_cause,
    temporary_name,
)
from gateway.admin.why.selectors import SAMPLE
from gateway.admin.why.whereabouts import Found, destination_of, find_message, place_of, seq_of_id
from gateway.broker.broker import Broker
from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.durability.rows import BLOCK
from gateway.broker.operator.searching import MessageSearch, WantedMessages
from gateway.broker.operator.views import totals
from gateway.broker.sessions.provider import EmbeddedProvider, waiting_at
from gateway.broker.timing.schedule import Steps
from gateway.front.reach import Behind
from gateway.journal.journal import Journal
from gateway.messaging.dead import BRIDGE_SOURCE_MESSAGE_ID, DMQ
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Credentials
from gateway.stomp.service import StompService

#: Seconds that a message is looked for: among what waits, what is dead, and in the journal. Each of
#: these takes a share at most of what is left.
LOOKED_FOR_S: Final = 6.0
_SHARE: Final = 0.4
#: Places of it that are named.
_MOST_PLACES: Final = 10
#: Seconds that the store may take to say what is first in a queue.
_STORE_S: Final = 2.0
#: Threads that read the journal at once; others have work for threads, too.
_READERS: Final = 2
#: Characters of what is asked about.
_LONGEST: Final = 1024
_KINDS: Final = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}


@dataclass(frozen=True, slots=True)
class Sources:
    """What explanations are made from.

    :param reactor: the clock, and whose threads read the journal.
    :param credentials: as whom the dead message queues are browsed.
    :param stomp: the STOMP bridge; None without one.
    :param owners: what in this process has a connection, by the ``id`` of each.
    :param elsewhere: the bridges that other brokers of the cluster own.
    :param behind: tells which other broker has a destination of STOMP clients; None is this one.
    :param folder: the journal's, and
    :param segment_age: the seconds after which a segment of it is whole.
    """

    reactor: Any
    provider: EmbeddedProvider
    credentials: Callable[[], Credentials]
    bridges: BridgeServiceManager
    stomp: Callable[[], StompService | None]
    owners: Callable[[], dict[int, str]]
    elsewhere: Callable[[], Sequence[ElsewhereOwned]]
    behind: Callable[[Destination], Behind | None]
    journal: Journal
    folder: Path
    segment_age: float


@dataclass(frozen=True, slots=True)
class MessageTold:
    """What is known of one message.

    :param places: where it is now.
    :param copies: what is dead of it, with the queues that these are in.
    :param journey: what the journal says.
    :param why: why it is not delivered, and what cannot be known.
    """

    places: Sequence[Found]
    copies: Sequence[tuple[Destination, Message]]
    journey: Journey
    why: Answer


class Explanations:
    """Answers of why something is not delivered."""

    def __init__(self, sources: Sources) -> None:
        self._sources: Final = sources
        self._provider: Final = sources.provider
        self._broker: Final = sources.provider.broker
        self._readers: Final = DeferredSemaphore(_READERS)

    # --- what can be asked

    async def destination(self, type: str, name: str) -> Answer:
        """Explain why messages of a destination are not delivered.

        :raises Refused: there is no such type.
        """
        kind = _KINDS.get(type)
        if kind is None:
            raise Refused(
                f"'{type}' is no type of a destination; expected queue or topic", "bad_request"
            )
        wanted = Destination(kind, name[:_LONGEST])
        physical = self._broker.find(wanted)
        if physical is None and temporary_name(name):
            physical = self._broker.find(Destination(kind, temporary_name(name), True))
        exchange = ""
        if physical is None:
            wanted, exchange = by_exchange(wanted)
            physical = self._broker.find(wanted)
        facts = self._facts(physical.destination if physical is not None else wanted)
        found = list(broker_causes(self._broker, facts))
        unknown = unknown_links(facts)
        # What no topic stands for, no client can name.
        nowhere = exchange == wanted.name
        behind = None if temporary_name(name) or nowhere else self._sources.behind(wanted)
        if behind is not None:
            found.append(behind_cause(wanted, behind))
        if physical is None:
            if exchange and behind is None:
                found.append(exchange_cause(exchange, wanted))
            elif behind is None:
                await self._absent(wanted, facts, found)
            return Answer(
                f"Why messages of {spoken(wanted)} are not delivered", ranked(found), unknown
            )
        waiting, sample, unknown = await self._of_destination(physical, facts, found, unknown)
        return Answer(
            f"Why messages of {spoken(physical.destination)} are not delivered",
            ranked(found),
            unknown,
            len(sample),
            waiting,
        )

    async def message(
        self, id: str, seconds: float = LOOKED_FOR_S, *, whole: bool = False
    ) -> MessageTold:
        """Explain where a message is and why it is not delivered.

        :param seconds: how long it may be looked for.
        :param whole: find what is dead of it, and what the journal says, also where it is here.
        """
        id = id[:_LONGEST]
        broker, clock = self._broker, self._sources.reactor
        until: float = clock.seconds() + seconds

        def share(part: float = _SHARE) -> float:
            left: float = until - clock.seconds()
            return max(0.0, part * left)

        facts = self._facts(None)
        found = list(broker_causes(broker, facts))
        places, unknown = await self._places(id, facts, share())
        for place in places:
            found += found_causes(place, facts)
        asked = {destination_of(place) for place in places if place.state == "waiting"}
        for destination in list(asked)[:3]:
            physical = broker.find(destination)
            if physical is not None:
                more: list[Cause] = []
                of_it = self._facts(destination)
                await self._of_destination(physical, of_it, more, [])
                found += [cause for cause in more if cause.kind not in _NOT_OF_ONE]
        copies: list[tuple[Destination, Message]] = []
        journey = Journey()
        if whole or not places:
            copies, late = await self._dead(id, share())
            unknown += late
            journey = await self._journey(id, share(1.0))
        if not places:
            found += [dead_cause(copy, queue, id) for queue, copy in copies]
            found += journey_causes(journey, id, self._dead_queue_of)
            if not copies and not journey.steps:
                found += absent_causes(broker, id, seq_of_id(broker, id))
                await self._stepwise(duplicate_causes(broker, id, found))
        if whole or not (places or copies):
            standing = self._sources.journal.standing()
            unknown += unknown_of_journal(journey, standing, self._sources.segment_age)
        where = f": it is in {places[0].name}" if places else ""
        why = Answer(f"Why message {id} is not delivered{where}", ranked(found), unknown)
        return MessageTold(places, copies, journey, why)

    async def connection(self, number: int) -> Answer:
        """Explain why a connection receives nothing, or cannot send.

        :raises Refused: there is no such connection.
        """
        connection = self._provider.numbered(number)
        if connection is None:
            raise Refused(
                f"there is no connection {number}: it has ended, or is another broker's; 'imqcmd list cxn' lists those there are",
                "no_connection",
                HTTPStatus.NOT_FOUND,
            )
        facts = self._facts(None)
        found = list(broker_causes(self._broker, facts))
        await self._stepwise(connection_causes(self._broker, connection, facts, found))
        return Answer(
            f"Why {facts.who(connection)} receives nothing, or cannot send", ranked(found)
        )

    async def link(self, bridge_name: str, link_name: str) -> Answer:
        """Explain why a link moves nothing.

        :raises Refused: there is no such link.
        :raises UnknownBridge: there is no such bridge.
        """
        subject = f"Why link {link_name} of bridge {bridge_name} moves nothing"
        for owned in self._sources.elsewhere():
            if owned.name == bridge_name:
                return Answer(subject, [elsewhere_cause(owned)])
        bridge = self._sources.bridges.find(bridge_name)
        if bridge.state in (BridgeState.STOPPED, BridgeState.STOPPING):
            cause = stopped_cause(bridge_name, bridge.state.value, bridge.problem)
            return Answer(subject, [cause])
        link = next((each for each in bridge.links() if each.name == link_name), None)
        if link is None:
            known = ", ".join(each.name for each in bridge.links()) or "no link at all"
            raise Refused(
                f"there is no link {link_name} in bridge {bridge_name}; those that there are: {known}",
                "BSJ4019",
                HTTPStatus.NOT_FOUND,
            )
        await link.look()
        facts = self._facts(None)
        found = list(broker_causes(self._broker, facts))
        of_link = next(
            each
            for each in facts.links
            if (each.status.bridge, each.status.name) == (bridge_name, link_name)
        )
        found += link_causes(of_link, facts.now_ms)
        for end in (of_link.source, of_link.target):
            physical = None if end is None else self._broker.find(end)
            if physical is not None and end is not None:
                more: list[Cause] = []
                await self._of_destination(physical, self._facts(end), more, [])
                wanted = _OF_SOURCE if end == of_link.source else _OF_TARGET
                found += [cause for cause in more if cause.kind in wanted]
        return Answer(subject, ranked(found), (), 0, max(0, of_link.status.waiting))

    # --- what they are made of

    async def _of_destination(
        self,
        physical: PhysicalQueue | PhysicalTopic,
        facts: Facts,
        found: list[Cause],
        unknown: list[str],
    ) -> tuple[int, Sequence[Message], list[str]]:
        """Find the causes of one destination.

        :returns: how many wait, the sample of them, and what is not known.
        """
        broker = self._broker
        sample: list[Message] = []
        before = len(found)
        if isinstance(physical, PhysicalQueue):
            waiting = physical.dispatch.backlog.waiting
            oldest_ms = 0
            if waiting and not broker.turn.suspended:
                oldest_ms = await self._oldest(physical)
                sample = await self._sample(physical)
            await self._stepwise(queue_causes(broker, physical, facts, oldest_ms, sample, found))
            if len(sample) < waiting and any(
                each.consumer.selector is not None
                for each in facts.holders(physical.dispatch.consumers)
            ):
                unknown = [
                    *unknown,
                    f"Of {waiting} messages that wait the first {len(sample)} were looked at; further ones may match.",
                ]
        else:
            waiting = sum([each.dispatch.backlog.waiting for each in physical.subscriptions])
            await self._stepwise(topic_causes(broker, physical, facts, found))
        if not physical.count:
            near: list[tuple[float, PhysicalQueue | PhysicalTopic]] = []
            await self._stepwise(find_near(physical.destination, broker.destinations, near))
            cause = near_cause(physical.destination, True, near)
            if cause is not None:
                found.append(cause)
            if len(found) == before:
                found.append(empty_cause(physical))
        return waiting, sample, unknown

    async def _absent(self, wanted: Destination, facts: Facts, found: list[Cause]) -> None:
        if wanted.kind is Kind.QUEUE and wanted.name in self._broker.addresses.by_name:
            found += address_causes(self._broker, wanted.name)
        else:
            found.append(absent_cause(wanted, self._broker.creatable(wanted)))
        found += refusal_causes(wanted, facts.refusals, facts.now_ms)
        if not temporary_name(wanted.name):
            near: list[tuple[float, PhysicalQueue | PhysicalTopic]] = []
            await self._stepwise(find_near(wanted, self._broker.destinations, near))
            cause = near_cause(wanted, False, near)
            if cause is not None:
                found.append(cause)
        await self._stepwise(transaction_causes(facts, wanted, found))

    async def _places(self, id: str, facts: Facts, seconds: float) -> tuple[list[Found], list[str]]:
        """Find where a message is; what is dead is found by its own question.

        :param seconds: how long what waits may be looked through for its id.
        :returns: the places, and what was not looked at.
        """
        places: list[Found] = []
        await self._stepwise(find_message(self._broker, facts, id, places))
        if places or self._broker.turn.suspended or not id:
            return places, []
        # It may have another number than its id says: it was moved, replayed or delayed.
        wanted = WantedMessages(
            selector=f"JMSMessageID = {literal(id)}", count=_MOST_PLACES, seconds=seconds
        )
        search = await MessageSearch(self._sources.reactor, self._broker).find(wanted)
        dead = {*await self._dead_queues()}
        places += [
            place_of(self._broker, each)
            for each in search.messages
            if not isinstance(each.place, PhysicalQueue) or each.place.destination not in dead
        ]
        unknown = [f"{place} could not be read from the store in time." for place in search.unread]
        if search.next and not places:
            find = command("imqcmd", "query", "msg", "-t", "q", "-n", "QUEUE", "-msgID", id)
            unknown.append(
                f"It was looked for by its id among {counted(search.looked_at)} that wait in {seconds:.1f} seconds, and there are more. If it was moved or replayed, ask about its queue: {find}"
            )
        return places, unknown

    async def _oldest(self, queue: PhysicalQueue) -> int:
        waiting = await self._soon(waiting_at(queue))
        return -1 if waiting is None else waiting.oldest_ms

    async def _sample(self, queue: PhysicalQueue) -> list[Message]:
        """Return the first messages that wait, also from the store."""
        cursor = Cursor(queue.dispatch.backlog)
        messages = list(islice(cursor.ahead(), SAMPLE))
        seqs = cursor.stored_ahead(BLOCK) if not messages else None
        if seqs:
            read: Deferred[Sequence[Message]] = Deferred()
            with queue.changes.turn:
                queue.changes.fetch(seqs, read.callback)
            messages = list(await self._soon(read) or ())
        return messages

    async def _dead(
        self, id: str, seconds: float
    ) -> tuple[list[tuple[Destination, Message]], list[str]]:
        """Look for a dead message.

        :param seconds: how long all queues together may take.
        :returns: queues and copies, and what was not looked at.
        """
        copies: list[tuple[Destination, Message]] = []
        unknown: list[str] = []
        selector = f"JMSMessageID = {literal(id)} OR {BRIDGE_SOURCE_MESSAGE_ID} = {literal(id)}"
        queues = await self._dead_queues()
        until = self._sources.reactor.seconds() + seconds
        for queue in queues:
            physical = self._broker.find(queue)
            if physical is None or not physical.count or self._broker.turn.suspended:
                continue
            looking = Deferred.fromCoroutine(self._browsed(queue, selector))
            left = max(0.0, until - self._sources.reactor.seconds())
            looking.addTimeout(left, self._sources.reactor)
            try:
                copies += [(queue, copy) for copy in await looking]
            except (TimeoutError, MessagingError):
                find = command(
                    "imqcmd", "list", "msg", "-t", "q", "-n", queue.name, "-selector", selector
                )
                unknown.append(
                    f"{counted(physical.count)} of {spoken(queue)} could not be looked through in {seconds:.1f} seconds: {find}"
                )
        return copies, unknown

    async def _browsed(self, queue: Destination, selector: str) -> list[Message]:
        async with reader(self._provider, self._sources.credentials) as reading:
            return await reading.first(queue, selector, 3)

    async def _dead_queues(self) -> list[Destination]:
        broker = self._broker
        found = await broker.schedule.looked(totals(broker))
        queues = dict.fromkeys([each.destination for each in found.dead])
        for bridge in self._sources.bridges.bridges:
            jms = as_jms(bridge)
            for dmq in () if jms is None else jms.dmqs():
                kind, colon, name = dmq.destination.partition(":")
                if dmq.embedded and colon and kind == "queue":
                    queues[Queue(name)] = None
        return list(queues)

    def _dead_queue_of(self, text: str) -> str:
        destination = parsed_destination(text)
        physical = None if destination is None else self._broker.find(destination)
        return (DMQ if physical is None else physical.dead_queue).name

    async def _journey(self, id: str, seconds: float) -> Journey:
        sources = self._sources
        pool = sources.reactor.getThreadPool()
        return await self._readers.run(
            deferToThreadPool, sources.reactor, pool, read_journey, sources.folder, id, seconds
        )

    async def _soon(self, waiting: Deferred[Any]) -> Any:
        """What the store says, or None where it takes too long."""
        told: Deferred[Any] = Deferred()

        def tell(result: Any) -> None:
            if not told.called:
                told.callback(result)

        waiting.addCallback(tell)
        told.addTimeout(_STORE_S, self._sources.reactor)
        try:
            return await told
        except TimeoutError:
            return None

    def _stepwise(self, steps: Steps[None]) -> Deferred[None]:
        """Run steps between the work for clients."""
        return self._broker.schedule.looked(steps)

    def _facts(self, destination: Destination | None) -> Facts:
        sources, broker = self._sources, self._broker
        stomp = sources.stomp()
        links: list[LinkFacts] = []
        stopped: list[str] = []
        stopped_links: list[StoppedLink] = []
        for bridge in sources.bridges.bridges:
            if bridge.type == "JMS" and bridge.state is BridgeState.STOPPED:
                stopped.append(bridge.name)
                stopped_links += _stopped_links(bridge)
            links += _links_of(bridge, broker)
        return Facts(
            now_ms=broker.turn.refresh(),
            connections=dict(self._provider.connections),
            owners=sources.owners(),
            sessions={} if stomp is None else stomp.sessions,
            allowances={} if stomp is None else stomp.allowances,
            stomp="" if stomp is None else stomp.state.value,
            closed=()
            if stomp is None
            else [
                (view.service, view.state)
                for view in stomp.listeners.views()
                if view.state != "RUNNING"
            ],
            links=links,
            stopped=stopped,
            stopped_links=stopped_links,
            elsewhere=sources.elsewhere(),
            refusals=() if destination is None else broker.refusals.of(destination),
        )


#: Causes of a destination that say nothing of one message that waits in it.
_NOT_OF_ONE: Final = frozenset(
    (
        CauseKind.DEAD,
        CauseKind.EXPIRED,
        CauseKind.DUPLICATE_ID,
        CauseKind.NOTHING_WAITS,
        CauseKind.OTHER_NAME,
        CauseKind.LIMIT_REACHED,
        CauseKind.TOO_LARGE,
        CauseKind.NO_SUBSCRIPTION,
        CauseKind.COPIED,
        CauseKind.SCHEDULED,
    )
)
#: Causes of a link's source, and of its target, that hold the link up.
_OF_SOURCE: Final = frozenset(
    (
        CauseKind.DESTINATION_DAMAGED,
        CauseKind.DESTINATION_GOING,
        CauseKind.DESTINATION_PAUSED,
        CauseKind.SELECTOR,
        CauseKind.ACCESS_DENIED,
        CauseKind.MAX_CONSUMERS,
        CauseKind.REDELIVERY_PAUSE,
        CauseKind.PREPARED_TRANSACTION,
    )
)
_OF_TARGET: Final = frozenset(
    (
        CauseKind.DESTINATION_DAMAGED,
        CauseKind.DESTINATION_GOING,
        CauseKind.DESTINATION_PAUSED,
        CauseKind.FLOW_CONTROL,
        CauseKind.LIMIT_REACHED,
        CauseKind.ACCESS_DENIED,
        CauseKind.TOO_LARGE,
    )
)


def _links_of(bridge: Bridge, broker: Broker) -> Iterator[LinkFacts]:
    for link in bridge.links():
        config, status = getattr(link, "config", None), link.status()
        if isinstance(config, Link):
            source, target = _ends(config)
            queue = None if source is None else broker.find(source)
            if isinstance(queue, PhysicalQueue) and config.source.selector is None:
                # What the link saw may be long ago, and of none where it does not run.
                backlog = queue.dispatch.backlog
                waiting = backlog.waiting + backlog.pausing + status.in_flight
                status = replace(status, waiting=waiting)
            yield LinkFacts(status, source, target, bridge.state)
        else:
            yield LinkFacts(status, bridge=bridge.state)


def _stopped_links(bridge: Bridge) -> Iterator[StoppedLink]:
    jms = as_jms(bridge)
    config = None if jms is None else jms.last_config
    for link in () if config is None else config.links:
        if link.enabled:
            yield StoppedLink(bridge.name, link.name, *_ends(link))


def _ends(config: Link) -> tuple[Destination | None, Destination | None]:
    """Return the ends of a link that are destinations of this broker."""
    source, target = config.source, config.target
    return (
        source.destination.by_name if source.connection_factory.embedded else None,
        target.destination.by_name
        if target.destination is not None and target.connection_factory.embedded
        else None,
    )
