"""Purging: waiting messages are given up, slice by slice.

They go to the dead message queue only where that is asked for.

Owns what goes and what stays: messages that consumers have and have not settled stay, and so does
what comes after the purge began. What giving a message up means is its queue's or its
subscription's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from twisted.internet.defer import Deferred

from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.message import Message

#: Messages given up in one turn.
SLICE: Final = 500
#: Messages looked at in one turn, whether they are to go or not.
EXAMINED: Final = 250


def fail_consumers(place: Dispatched, error: InvalidDestination) -> None:
    """Consumers receive no more, and what they have is gone."""
    for consumer in list(place.dispatch.consumers):
        place.leave(consumer)
        consumer.fail(error)


def purge(place: Dispatched, done: Callable[[int], None]) -> int:
    """Give up everything that waits, for good.

    It stops counting at once, and its rows are deleted slice by slice. Then ``done`` is called with
    the number of messages.

    :returns: the same.
    """
    dispatch = place.dispatch
    detached = dispatch.backlog.detach()
    count, octets = detached.waiting, detached.octets

    def remove(messages: Sequence[Message], seqs: Sequence[int]) -> None:
        place.changes.journal_removed(place, messages)
        place.changes.journal_removed_stored(place, seqs)
        place.release(messages)
        if dispatch.failed_deliveries:
            dispatch.forget_tries(messages)
        place.release_stored(seqs)
        if dispatch.failed_deliveries:
            for seq in seqs:
                dispatch.failed_deliveries.pop(seq, None)

    def steps() -> Iterator[None]:
        while detached.more:
            messages, sizes = detached.take(SLICE)
            remove(messages, list(sizes))
            if detached.more:
                yield
        if named is not None:
            named.cleared()
        done(count)

    if not count:
        done(0)
        return 0
    named = place.named
    if named is not None:
        named.clearing += 1
    place.stop_counting(count, octets)
    # A million rows are not to hold anybody up: not the reactor, and not the commits of others.
    place.changes.delete_slowly(steps())
    return count


class SelectivePurge:
    """Looks at all that waits at a place, and takes out what is wanted.

    The rest stays in its order.

    :param last: the seq after which nothing is looked at.
    :param wanted: whether a message is to go. It may be a selector, which may take long.
    :param done: called with how many have gone, when all was looked at.
    :param comment: why, for the dead message queue; None sends nothing there.
    :param journaled: whether the journal is told of what goes.
    :param unreadable: is given the seqs that cannot be read, to drop them, and returns whether to
        go on. With None, nothing is looked at while the place is stopped.
    :param remove: settles what was taken out, in the place of what ``comment`` and ``journaled``
        say.
    :param enough: whether to stop before all was looked at.
    """

    def __init__(
        self,
        place: Dispatched,
        last: int,
        wanted: Callable[[Message], bool],
        done: Callable[[int], None],
        *,
        journaled: bool = True,
        comment: str | None = None,
        unreadable: Callable[[Collection[int]], bool] | None = None,
        remove: Callable[[Sequence[Message]], None] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        self._place: Final = place
        self._last: Final = last
        self._wanted: Final = wanted
        self._done: Final = done
        self._comment: Final = comment
        self._journaled: Final = journaled
        self._unreadable: Final = unreadable
        self._take_away: Final = remove
        self._enough: Final = enough
        self._spent: Final = place.changes.selector_time.spent
        self._cursor: Final = Cursor(place.dispatch.backlog)
        self._delayed: Final = iter(list(place.dispatch.backlog.delayed))
        self._resting: Final = iter(list(place.dispatch.backlog.resting))
        self._found = 0

    def start(self) -> None:
        """Begin, in a turn of its own."""
        self._place.changes.schedule.after(0, self._step)

    def _step(self) -> None:
        cursor, place = self._cursor, self._place
        if self._enough() or (place.dispatch.halted is not None and self._unreadable is None):
            # What waits at a stopped place cannot all be read, so it is not known what is wanted.
            self._done(self._found)
            return
        messages = list(islice(cursor.ahead(), EXAMINED))
        if messages:
            chosen, left = self._choose(messages)
            self._remove(place.dispatch.backlog.pluck_messages(chosen))
            self._after(self._step, left)
            return
        seqs = cursor.stored_ahead(EXAMINED)
        if seqs:
            place.changes.fetch(seqs, partial(self._read, seqs))
        elif seqs is None:
            # They are being read for consumers.
            place.dispatch.after_reading(self.start)
        else:
            self._step_aside()

    def _read(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        backlog = self._place.dispatch.backlog
        if not self._found_all(seqs, messages):
            return
        ahead = self._cursor.still_ahead(messages)
        chosen, left = self._choose(ahead)
        self._remove(
            [
                message
                for message in chosen
                if backlog.pluck_behind(message.headers.priority, message.seq, message.expires)
                is not None
            ]
        )
        # Reading what is left once more would take longer than keeping it.
        self._after(partial(self._read, (), ahead[-left:]) if left else self._step, left)

    def _found_all(self, seqs: Sequence[int], messages: Sequence[Message]) -> bool:
        """Drop what could not be read.

        :returns: whether to go on; if not, ``done`` was called.
        """
        if self._unreadable is None:
            self._place.dispatch.drop_missing(self._place, seqs, messages)
        elif len(messages) < len(seqs) and not self._unreadable(
            set(seqs).difference([message.seq for message in messages])
        ):
            self._done(self._found)
            return False
        return True

    def _choose(self, messages: Sequence[Message]) -> tuple[list[Message], int]:
        """Choose the messages that are to go, moving the cursor past all.

        :returns: those, and how many there was no time to look at; the cursor is before these.
        """
        chosen: list[Message] = []
        for index, message in enumerate(messages):
            if self._spent():
                return chosen, len(messages) - index
            if message.seq > self._last:
                self._cursor.pass_by(message.headers.priority)
            else:
                self._cursor.looked_at(message)
                if self._wanted(message):
                    chosen.append(message)
        return chosen, 0

    # What was refused by a consumer and pauses is in no lane.

    def _step_aside(self) -> None:
        place = self._place
        for _ in range(EXAMINED):
            if self._spent():
                self._after(self._step_aside, 1)
                return
            seq = next(self._delayed, None)
            if seq is None:
                self._step_behind()
                return
            message = place.dispatch.backlog.delayed.get(seq)
            if message is not None and self._wanted(message):
                del place.dispatch.backlog.delayed[seq]
                self._remove([message])
        self._after(self._step_aside)

    def _step_behind(self) -> None:
        seqs = list(islice(self._resting, EXAMINED))
        if not seqs:
            self._done(self._found)
            return

        def read(messages: Sequence[Message]) -> None:
            for index, message in enumerate(messages):
                if self._spent():
                    self._after(partial(read, messages[index:]), 1)
                    return
                if (
                    self._wanted(message)
                    and self._place.dispatch.backlog.resting.pop(message.seq, None) is not None
                ):
                    self._remove([message])
            self._after(self._step_behind)

        def found(messages: Sequence[Message]) -> None:
            if self._unreadable is None or self._found_all(seqs, messages):
                read(messages)

        self._place.changes.fetch(seqs, found)

    def _after(self, step: Callable[[], None], left: int = 0) -> None:
        """Run ``step`` in another turn.

        If messages were left for lack of time, run it when there is time again.
        """
        changes = self._place.changes
        if left:
            changes.selector_time.wait(step)
        else:
            changes.schedule.after(0, step)

    def _remove(self, messages: Sequence[Message]) -> None:
        self._found += len(messages)
        if messages and self._take_away is not None:
            self._take_away(messages)
        elif messages and self._comment is not None:
            self._place.bury(messages, DeadReason.UNDELIVERABLE, self._comment)
        elif messages:
            if self._journaled:
                self._place.changes.journal_removed(self._place, messages)
            self._place.settle(messages)


def purged(
    place: Dispatched, wanted: Callable[[Message], bool] | None, last: int, comment: str | None
) -> Deferred[int]:
    """Give up the wanted messages that wait, up to number ``last``.

    :param comment: moves them to the dead message queue; None drops them.
    """
    done: Deferred[int] = Deferred()
    if wanted is None and comment is None:
        purge(place, done.callback)
    else:
        SelectivePurge(
            place, last, wanted or (lambda message: True), done.callback, comment=comment
        ).start()
    return done
