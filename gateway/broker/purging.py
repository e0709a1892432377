"""Purging: messages that wait are given up, not to the dead message queue, slice by slice.

Owns what goes and what stays: messages that consumers have and have not settled stay, and so does what comes after the purge began. What giving a
message up means is its queue's or its subscription's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from gateway.broker.cursor import Cursor
from gateway.broker.distribution import Distribution
from gateway.messaging.message import Message

#: Messages given up in one turn.
SLICE: Final = 500
#: Messages looked at in one turn, whether they are to go or not.
EXAMINED: Final = 250


def purge(place: Distribution, done: Callable[[int], None]) -> int:
    """Give up everything that waits; it counts no more at once, and its rows go slice by slice. Then ``done`` is called with how many they were.

    :returns: the same.
    """
    remains = place.backlog.detach()
    delayed, resting = place.delayed, place.resting
    place.delayed, place.resting = {}, {}
    count = remains.waiting + len(delayed) + len(resting)
    journey = place.broker.journey
    octets = remains.octets + sum([message.size for message in delayed.values()]) + sum(resting.values())

    def give_up(messages: Sequence[Message], seqs: Sequence[int]) -> None:
        if journey is not None:
            journey.removed(place, messages)
            journey.removed_stored(place, seqs)
        place.release(messages)
        if place.tried:
            place.forget_tries(messages)
        for seq in seqs:
            place.release_stored(seq)
            place.tried.pop(seq, None)

    def steps() -> Iterator[None]:
        paused, rested = iter(delayed.values()), iter(resting)
        while remains.more:
            messages, sizes = remains.take(SLICE)
            give_up(messages, list(sizes))
            if remains.more:
                yield
        while delayed_part := list(islice(paused, SLICE)):
            give_up(delayed_part, ())
            yield
        while seqs := list(islice(rested, SLICE)):
            give_up((), seqs)
            yield
        done(count)

    place.lost(count, octets)
    # A million rows are not to hold anybody up: not the reactor, and not the commits of others.
    place.broker.schedule.in_turn(steps(), place.broker.commits.backed_up)
    return count


class Search:
    """Looks at everything that waits at a place, takes out what is wanted, and leaves the rest in its order.

    :param last: the seq after which nothing is looked at.
    :param wanted: whether a message is to go.
    :param done: called with how many have gone, when all was looked at.
    """

    def __init__(self, place: Distribution, last: int, wanted: Callable[[Message], bool], done: Callable[[int], None]) -> None:
        self._place: Final = place
        self._last: Final = last
        self._wanted: Final = wanted
        self._done: Final = done
        self._cursor: Final = Cursor(place.backlog)
        self._delayed: Final = iter(list(place.delayed))
        self._resting: Final = iter(list(place.resting))
        self._found = 0

    def start(self) -> None:
        """Begin, in a turn of its own."""
        broker = self._place.broker
        broker.schedule.at(broker.turn.refresh(), self._step)

    def _step(self) -> None:
        cursor, place = self._cursor, self._place
        if place.halted is not None:
            # What waits there cannot all be read, so nobody can say what is wanted of it.
            self._done(self._found)
            return
        messages = list(islice(cursor.ahead(), EXAMINED))
        if messages:
            self._give_up(place.backlog.pluck_messages(self._choose(messages)))
            self.start()
            return
        seqs = cursor.stored_ahead(EXAMINED)
        if seqs:
            place.broker.rows.read_back(seqs, partial(self._read, seqs))
        elif seqs is None:
            # They are being read for consumers.
            place.after_reading(self.start)
        else:
            self._step_aside()

    def _read(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        place, backlog = self._place, self._place.backlog
        place.drop_missing(seqs, messages)
        chosen = self._choose(self._cursor.still_ahead(messages))
        self._give_up(
            [
                message
                for message in chosen
                if backlog.pluck_behind(message.headers.priority, message.seq, message.expires) is not None
            ]
        )
        self.start()

    def _choose(self, messages: Sequence[Message]) -> list[Message]:
        """Those that are to go; the cursor has looked at all of them then."""
        chosen: list[Message] = []
        for message in messages:
            if message.seq > self._last:
                self._cursor.pass_by(message.headers.priority)
            else:
                self._cursor.looked_at(message)
                if self._wanted(message):
                    chosen.append(message)
        return chosen

    # What was refused by a consumer and pauses is in no backlog.

    def _step_aside(self) -> None:
        place = self._place
        seqs = list(islice(self._delayed, EXAMINED))
        if not seqs:
            self._step_behind()
            return
        for seq in seqs:
            message = place.delayed.get(seq)
            if message is not None and self._wanted(message):
                del place.delayed[seq]
                self._give_up([message])
        self._after(self._step_aside)

    def _step_behind(self) -> None:
        seqs = list(islice(self._resting, EXAMINED))
        if not seqs:
            self._done(self._found)
            return

        def read(messages: Sequence[Message]) -> None:
            for message in messages:
                if self._wanted(message) and self._place.resting.pop(message.seq, None) is not None:
                    self._give_up([message])
            self._after(self._step_behind)

        self._place.broker.rows.read_back(seqs, read)

    def _after(self, step: Callable[[], None]) -> None:
        broker = self._place.broker
        broker.schedule.at(broker.turn.refresh(), step)

    def _give_up(self, messages: Sequence[Message]) -> None:
        if messages:
            self._found += len(messages)
            if self._place.broker.journey is not None:
                self._place.broker.journey.removed(self._place, messages)
            self._place.settle(messages)
