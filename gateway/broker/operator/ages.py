"""How old the oldest message of each destination is.

Messages that consumers have and have not settled count, and so do those that pause. Of each place
only the first message of each priority is looked at. Where that is in the store only, it is read
once, and its time remembered until another is first; until it is read, the age is unknown. Those who
look wait a moment for it.

Owns these times. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.timing.schedule import Steps
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn

#: Times of messages in the store that are remembered.
_MOST_KNOWN: Final = 20_000
#: Messages that are read from the store at once for this.
_MOST_ASKED: Final = 1000
#: Seconds that those who look wait for what is read.
PATIENCE_S: Final = 0.5


class Ages:
    """The ages of one broker's destinations."""

    def __init__(self, turn: Turn) -> None:
        self._turn: Final = turn
        #: When messages that are in the store only were sent, by seq; the latest asked last.
        self._known: Final[dict[int, int]] = {}
        self._asked: Final[set[int]] = set()
        #: Those who wait until all is read, and when they do so no longer.
        self._waiting: list[Deferred[None]] = []
        self._patience: IDelayedCall | None = None
        #: Whether the store has not answered in time, and since then not at all.
        self._late = False

    def known(self, physicals: Iterable[PhysicalQueue | PhysicalTopic]) -> Deferred[None]:
        """Read what the ages of these need.

        :returns: fires when that is done, or after :data:`PATIENCE_S` seconds; at once where nothing
            must be read, or the store has not answered for longer than that.
        """
        for each in physicals:
            self.oldest_ms(each)
        return self.read()

    def ask(self, parts: Iterable[Sequence[PhysicalQueue | PhysicalTopic]]) -> Steps[None]:
        """Ask for what the ages of very many need; :meth:`read` waits."""
        for part in parts:
            for each in part:
                self.oldest_ms(each)
            yield

    def read(self) -> Deferred[None]:
        """Wait for what was asked for, as :meth:`known` does."""
        waiting: Deferred[None] = Deferred()
        if not self._asked or self._late:
            waiting.callback(None)
            return waiting
        if not self._waiting:
            self._patience = self._turn.later(PATIENCE_S, self._give_up)
        self._waiting.append(waiting)
        return waiting

    def _give_up(self) -> None:
        self._late = True
        self._tell()

    def _tell(self) -> None:
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        told, self._waiting = self._waiting, []
        for each in told:
            each.callback(None)

    def oldest_ms(self, physical: PhysicalQueue | PhysicalTopic) -> int:
        """Return when its oldest message was sent, epoch milliseconds.

        It is 0 where there is no message, and -1 where that is not known, or not yet.
        """
        if not physical.count:
            return 0
        times: list[int] = []
        unknown = False
        for place in _places(physical):
            for first in _first(place):
                if isinstance(first, Message):
                    if _is_of(first, physical):
                        times.append(first.timestamp)
                elif first in self._known:
                    times.append(self._known[first])
                else:
                    unknown = True
                    self._ask(place, first)
        return -1 if unknown or not times else min(times)

    def _ask(self, place: Dispatched, seq: int) -> None:
        if seq not in self._asked and len(self._asked) < _MOST_ASKED:
            self._asked.add(seq)
            # In a turn of its own: those that are looked at are many.
            changes = place.changes
            changes.schedule.after(0, lambda: changes.fetch([seq], partial(self._read, seq)))

    def _read(self, seq: int, messages: Sequence[Message]) -> None:
        self._asked.discard(seq)
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        for message in messages:
            self._known[seq] = message.timestamp
        self._late = False
        if not self._asked:
            self._tell()


def _places(physical: PhysicalQueue | PhysicalTopic) -> Sequence[Dispatched]:
    return [physical] if isinstance(physical, PhysicalQueue) else physical.subscriptions


def _first(place: Dispatched) -> Iterator[Message | int]:
    """Yield candidates for the oldest; a seq for one in the store only."""
    backlog = place.dispatch.backlog
    for _, lane in backlog.lanes():
        first, behind = lane.first(), lane.first_behind()
        if first is not None and (not behind or first.seq < behind):
            yield first
        elif behind:
            yield behind
    if backlog.delayed:
        yield backlog.delayed[min(backlog.delayed)]
    if backlog.resting:
        yield min(backlog.resting)
    for consumer in place.dispatch.consumers:
        oldest = consumer.oldest
        if oldest is not None:
            yield oldest


def _is_of(message: Message, physical: PhysicalQueue | PhysicalTopic) -> bool:
    """Whether it is the destination's: a pattern has those of others, too."""
    return bool(message.timestamp) and message.headers.destination == physical.destination
