"""Search for messages that wait, in one place or in all.

Owns the order of the search, where it goes on, and that it is cut up: selectors take their share of
each pass of the reactor, no step looks at more than :data:`EXAMINED` messages, and a search ends
when its time is over. Messages are looked at where they wait, in queues and in durable
subscriptions. Those that consumers have, that pause before they are delivered again, or that are to
be delivered later, are not looked at. Changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.operator.views import PART
from gateway.broker.properties.settings import SELECTOR_COST
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.message import Message
from gateway.messaging.selector.selector import parse

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


@dataclass(slots=True)
class FoundMessages:
    """What was found.

    :param messages: each with the place where it waits.
    :param looked_at: how many were looked at.
    :param next: where to go on; "" where all was looked at.
    :param unread: places that were left, as the store did not give what is in it.
    """

    messages: list[tuple[Dispatched, Message]] = field(default_factory=list)
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
        skipped_to, lanes = _resumed(wanted.after) if wanted.after else ("", {})
        search = _Search(self._clock, self._broker, wanted)
        for number, place in enumerate(self._places(wanted.destination), 1):
            if not number % PART:
                await search.pause()
            if skipped_to and place_key(place) != skipped_to:
                continue
            cursor = Cursor(place.dispatch.backlog)
            cursor.resume(lanes)
            skipped_to, lanes = "", {}
            if place.dispatch.backlog.waiting and not await search.through(place, cursor):
                search.found.next = json.dumps([place_key(place), cursor.examined])
                break
        if skipped_to:
            raise AdministrationRefused(
                f"{skipped_to}, where the search is to go on, is no longer there: begin again"
            )
        return search.found

    def _places(self, wanted: Destination | None) -> Iterator[Dispatched]:
        if wanted is not None and wanted.kind is Kind.QUEUE:
            physical = self._broker.find(wanted)
            if not isinstance(physical, PhysicalQueue):
                raise AdministrationRefused(f"there is no {wanted}")
            yield physical
            return
        if wanted is None:
            yield from (
                each
                for each in list(self._broker.destinations.values())
                if isinstance(each, PhysicalQueue)
            )
        yield from list(self._broker.durables.values())


class _Search:
    """One request."""

    def __init__(self, clock: IReactorTime, broker: Broker, wanted: WantedMessages) -> None:
        self.found: Final = FoundMessages()
        self._clock: Final = clock
        self._broker: Final = broker
        self._wanted: Final = wanted
        self._until: Final = clock.seconds() + wanted.seconds
        self._matches: Final = (
            parse(wanted.selector, broker.options.selector_cost, SELECTOR_COST.name).matches
            if wanted.selector.strip()
            else None
        )

    async def through(self, place: Dispatched, cursor: Cursor) -> bool:
        """Look through a place.

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
                    self.found.messages.append((place, message))
            await self.pause()
            if self._is_late():
                return False

    async def pause(self) -> None:
        """Let others go first."""
        await self._told(lambda done: self._broker.schedule.after(0, done))

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


def place_key(place: Dispatched) -> str:
    """Return a place as words: ``queue:NAME``, or ``durable:CLIENT-ID:NAME``."""
    if isinstance(place, TopicSubscription):
        return f"durable:{place.client_id}:{place.name}"
    assert isinstance(place, PhysicalQueue)
    return str(place.destination)


def _resumed(after: str) -> tuple[str, Mapping[int, int]]:
    try:
        place, lanes = json.loads(after)
        return str(place), {int(priority): int(seq) for priority, seq in lanes.items()}
    except (AttributeError, TypeError, ValueError):
        raise AdministrationRefused("after is not where a search has stopped") from None
