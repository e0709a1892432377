"""Search for messages that wait, in one place or in all.

Owns the order of the search, where it goes on, and that it is cut up: selectors take their share of
each pass of the reactor, no step looks at more than :data:`EXAMINED` messages, and a search ends
when its time is over. Messages are looked at where they are: in queues, in durable subscriptions,
and, where they are to be delivered later, in queues and topics. Of each place those that wait come
first, then those that pause before they are delivered again, then those of later, these two in the
order in which they were sent. Those that consumers have are not looked at. Changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from gateway.broker.broker import Broker
from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.purging import EXAMINED
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.operator.views import PART
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import SELECTOR_COST
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import Message
from gateway.messaging.selector.selector import parse

#: Where a message is: it waits; the same, and its destination is paused for consumers; it waits until
#: it is delivered again; it is to be delivered later.
WAITING: Final = "waiting"
PAUSED: Final = "paused"
PAUSING: Final = "pausing"
SCHEDULED: Final = "scheduled"
#: Seconds of one step, as others' work is cut up.
_SLICE: Final = 0.005
#: Entries of a place that are put in order in one step.
_SORTED: Final = 5_000
#: Seconds that the store may take, beyond the time of the search.
_STORE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """Which messages are wanted.

    :param destination: that they are of; None for all.
    :param selector: that they match, "" for any.
    :param from_ms: since when they were sent, epoch milliseconds, and
    :param to_ms: until when; 0 for no bound.
    :param after: where the search goes on, as :attr:`FoundMessages.next` has it; "" to begin.
    :param count: how many at most.
    :param seconds: how long the search may take.
    """

    destination: Destination | None = None
    selector: str = ""
    from_ms: int = 0
    to_ms: int = 0
    after: str = ""
    count: int = 50
    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message, and where it is.

    :param state: :data:`WAITING`, :data:`PAUSED`, :data:`PAUSING` or :data:`SCHEDULED`.
    :param due_ms: when it is to be delivered, epoch milliseconds; 0 where that is not planned.
    """

    place: Dispatched | PhysicalTopic
    message: Message
    state: str
    due_ms: int = 0


@dataclass(slots=True)
class FoundMessages:
    """What was found.

    :param looked_at: how many were looked at.
    :param next: where to go on; "" where all was looked at.
    :param unread: places that were left, as the store did not give what is in it.
    """

    messages: list[FoundMessage] = field(default_factory=list)
    looked_at: int = 0
    next: str = ""
    unread: list[str] = field(default_factory=list)


class MessageSearch:
    """Searches for messages. Called on the reactor's thread.

    :param clock: the reactor.
    """

    def __init__(self, clock: IReactorTime, broker: Broker) -> None:
        self._clock: Final = clock
        self._broker: Final = broker

    async def find(self, wanted: WantedMessages) -> FoundMessages:
        """Search until enough is found, all is looked at or the time is over.

        :raises InvalidSelector: the selector is wrong.
        :raises AdministrationRefused: it cannot begin or go on there.
        """
        if self._broker.turn.suspended:
            raise AdministrationRefused("the database cannot be reached, and nothing is searched")
        skipped_to, state, position = _resumed(wanted.after) if wanted.after else ("", "", {})
        search = _Search(self._clock, self._broker, wanted)
        for number, place in enumerate(self._places(wanted.destination), 1):
            if not number % PART:
                await search.breathe()
            if skipped_to and place_key(place) != skipped_to:
                continue
            stopped = await search.at(place, state, position)
            skipped_to, state, position = "", "", {}
            if stopped is not None:
                search.found.next = json.dumps([place_key(place), *stopped])
                break
        if skipped_to:
            raise AdministrationRefused(
                f"{skipped_to}, where the search is to go on, is no longer there: begin again"
            )
        return search.found

    def _places(self, wanted: Destination | None) -> Iterator[Dispatched | PhysicalTopic]:
        broker = self._broker
        if wanted is not None and wanted.kind is Kind.QUEUE:
            physical = broker.find(wanted)
            if not isinstance(physical, PhysicalQueue):
                raise AdministrationRefused(f"there is no {wanted}")
            yield physical
            return
        if wanted is None:
            yield from (
                each
                for each in list(broker.destinations.values())
                if isinstance(each, PhysicalQueue)
            )
        yield from list(broker.durables.values())
        for each in list(broker.scheduled.places):
            # What is to be delivered later is its topic's until then.
            if isinstance(each, PhysicalTopic) and wanted in (None, each.destination):
                yield each


#: Where in a place a search goes on: seqs by priority, or one seq.
_Position = Mapping[int, int] | int


class _Search:
    """One request."""

    def __init__(self, clock: IReactorTime, broker: Broker, wanted: WantedMessages) -> None:
        self.found: Final = FoundMessages()
        self._clock: Final = clock
        self._broker: Final = broker
        self._wanted: Final = wanted
        self._until: Final = clock.seconds() + wanted.seconds
        self._step_ends = clock.seconds() + _SLICE
        self._matches: Final = (
            parse(wanted.selector, broker.options.selector_cost, SELECTOR_COST.name).matches
            if wanted.selector.strip()
            else None
        )

    async def at(
        self, place: Dispatched | PhysicalTopic, state: str, position: _Position
    ) -> tuple[str, _Position] | None:
        """Look through a place, in the order of the states.

        :param state: where the search goes on, "" to begin, and
        :param position: from where on.
        :returns: the same where it has stopped; None at the end.
        """
        if not isinstance(place, PhysicalTopic):
            backlog = place.dispatch.backlog
            if state in ("", WAITING) and backlog.waiting:
                cursor = Cursor(backlog)
                cursor.resume(position if isinstance(position, Mapping) else {})
                if not await self.through(place, cursor):
                    return WAITING, cursor.examined
            if state in ("", WAITING, PAUSING) and (backlog.delayed or backlog.resting):
                seqs = [*backlog.delayed, *backlog.resting]
                pausing = (
                    [(seq, 0) for seq in seqs[start : start + _SORTED]]
                    for start in range(0, len(seqs), _SORTED)
                )
                stopped = await self._listed(
                    place, PAUSING, pausing, _seq(state, PAUSING, position)
                )
                if stopped is not None:
                    return PAUSING, stopped
        later = (
            self._broker.scheduled.places.get(place)
            if isinstance(place, (PhysicalQueue, PhysicalTopic))
            else None
        )
        if later is not None:
            blocks = (
                [(entry.seq, entry.due_ms) for entry in block]
                for block in later.timetable.blocks(_SORTED)
            )
            stopped = await self._listed(place, SCHEDULED, blocks, _seq(state, SCHEDULED, position))
            if stopped is not None:
                return SCHEDULED, stopped
        return None

    async def _listed(
        self,
        place: Dispatched | PhysicalTopic,
        state: str,
        blocks: Iterable[Iterable[tuple[int, int]]],
        after: int,
    ) -> int | None:
        """Look through messages that are in no lane, in the order of their seqs.

        :param blocks: these, each with when it is to be delivered.
        :param after: the seq behind which to begin.
        :returns: the seq behind which to go on; None at the end.
        """
        ordered: list[list[tuple[int, int]]] = []
        for block in blocks:
            ordered.append(sorted([each for each in block if each[0] > after]))
            await self.breathe()
        every = merge(*ordered)
        while part := dict(islice(every, EXAMINED)):
            for message in await self._read(place, list(part)):
                if len(self.found.messages) >= self._wanted.count:
                    return after
                if place.changes.selector_time.spent():
                    await self._told(place.changes.selector_time.wait)
                self.found.looked_at += 1
                if self._is_wanted(message):
                    self.found.messages.append(
                        FoundMessage(place, message, state, part[message.seq])
                    )
                after = message.seq
            after = max(part)
            await self.breathe()
            if self._is_late():
                return after
        return None

    async def _read(
        self, place: Dispatched | PhysicalTopic, seqs: Sequence[int]
    ) -> Sequence[Message]:
        """Return messages that are in no lane, if they are still there."""
        here = {} if isinstance(place, PhysicalTopic) else place.dispatch.backlog.delayed
        found = {seq: here[seq] for seq in seqs if seq in here}
        stored = [seq for seq in seqs if seq not in found]
        if stored:
            read: Deferred[Any] = Deferred()
            with place.changes.turn:
                place.changes.fetch(stored, read.callback)
            try:
                found |= {message.seq: message for message in await self._soon(read)}
            except TimeoutError:
                self.found.unread.append(place_key(place))
        return [found[seq] for seq in seqs if seq in found]

    async def through(self, place: Dispatched, cursor: Cursor) -> bool:
        """Look through what waits at a place.

        :returns: whether all of it was looked at; if not, the cursor is where to go on.
        """
        while True:
            messages = list(islice(cursor.ahead(), EXAMINED))
            if not messages:
                stored = await self._stored(place, cursor)
                if stored is None:
                    return True
                messages = list(stored)
            for message in messages:
                if len(self.found.messages) >= self._wanted.count:
                    return False
                if place.changes.selector_time.spent():
                    await self._told(place.changes.selector_time.wait)
                    if self.found.looked_at and self._is_late():
                        return False
                if cursor.has_passed(message):
                    continue
                cursor.looked_at(message)
                self.found.looked_at += 1
                if self._is_wanted(message):
                    state = PAUSED if self._is_paused(message) else WAITING
                    self.found.messages.append(FoundMessage(place, message, state))
            await self.breathe()
            if len(messages) < EXAMINED and not place.dispatch.backlog.behind:
                return True
            if self._is_late():
                return False

    async def breathe(self) -> None:
        """Let others go first, when this step was long enough."""
        if self._clock.seconds() >= self._step_ends:
            await self._told(lambda done: self._broker.schedule.after(0, done))
            self._step_ends = self._clock.seconds() + _SLICE

    def _is_paused(self, message: Message) -> bool:
        """Whether an administrator keeps it from consumers."""
        physical = self._broker.find(message.headers.destination)
        return physical is not None and bool(physical.pause & Pause.CONSUMERS)

    def _is_late(self) -> bool:
        return self._clock.seconds() >= self._until

    def _is_wanted(self, message: Message) -> bool:
        wanted = self._wanted
        sent_ms = message.timestamp
        if (wanted.from_ms and sent_ms < wanted.from_ms) or 0 < wanted.to_ms < sent_ms:
            return False
        of = wanted.destination
        if of is not None and of.kind is Kind.TOPIC and message.headers.destination != of:
            return False
        return self._matches is None or self._matches(message)

    async def _stored(self, place: Dispatched, cursor: Cursor) -> Sequence[Message] | None:
        """Return what comes next, from the store.

        :returns: none of them where they are in memory meanwhile; None at the end, or where
            they are not read in time.
        """
        seqs = cursor.stored_ahead(EXAMINED)
        if not seqs and seqs is not None:
            return None
        try:
            if seqs is None:
                # It is being read for consumers, and in memory then.
                await self._told(place.dispatch.after_reading, soon=True)
                return ()
            read: Deferred[Any] = Deferred()
            with place.changes.turn:
                place.changes.fetch(seqs, read.callback)
            messages = await self._soon(read)
        except TimeoutError:
            self.found.unread.append(place_key(place))
            return None
        ahead = cursor.still_ahead(messages)
        if not ahead and cursor.stored_ahead(EXAMINED) == seqs:
            self.found.unread.append(place_key(place))
            return None
        return ahead

    async def _told(
        self, ask: Callable[[Callable[[], None]], object], *, soon: bool = False
    ) -> None:
        told: Deferred[None] = Deferred()
        ask(lambda: told.callback(None))
        await (self._soon(told) if soon else told)

    def _soon(self, waiting: Deferred[Any]) -> Deferred[Any]:
        """What is waited for. :raises TimeoutError: it takes too long."""
        told: Deferred[Any] = Deferred()

        def tell(result: Any) -> None:
            if not told.called:
                told.callback(result)

        waiting.addCallback(tell)
        return told.addTimeout(
            max(0.0, self._until - self._clock.seconds()) + _STORE_S, self._clock
        )


def place_key(place: Dispatched | PhysicalTopic) -> str:
    """Return a place as words.

    They are ``queue:NAME``, ``durable:CLIENT-ID:NAME``, or ``topic:NAME``.
    """
    if isinstance(place, TopicSubscription):
        return f"durable:{place.client_id}:{place.name}"
    assert isinstance(place, (PhysicalQueue, PhysicalTopic))
    return str(place.destination)


def _seq(state: str, at: str, position: _Position) -> int:
    """Return behind which seq to begin in the state ``at``."""
    return position if state == at and isinstance(position, int) else 0


def _resumed(after: str) -> tuple[str, str, _Position]:
    try:
        place, state, position = json.loads(after)
        if state == WAITING:
            lanes = {int(priority): int(seq) for priority, seq in position.items()}
            return str(place), WAITING, lanes
        if state in (PAUSING, SCHEDULED):
            return str(place), str(state), int(position)
    except (AttributeError, TypeError, ValueError):
        pass
    raise AdministrationRefused("after is not where a search has stopped")
