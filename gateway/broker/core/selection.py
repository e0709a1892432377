"""Handing out where some consumer has a selector.

Each consumer takes what it wants, wherever in the backlog that is.

Owns how far each of these consumers has looked: it looks at every message once, in delivery order,
at those in memory and at those in the store only alike, and again at what comes back. Fairness
between destinations and what a delivery means are ``dispatch``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from gateway.broker.core.cursor import Cursor
from gateway.broker.durability.rows import BLOCK
from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.core.backlog import Backlog
    from gateway.broker.core.changes import Changes
    from gateway.broker.core.source import Place, Receiver
    from gateway.messaging.errors import DestinationStopped

#: Messages that one consumer looks at in one turn.
_MOST_EXAMINED: Final = 1_000
#: Consumers are each asked about a few returned messages, if that is cheap; more than this are
#: simply shown to them again.
_FEW: Final = 64
_NO_BOUND: Final = 1 << 62


class Handing(Protocol):
    """A dispatch, as its selection knows it."""

    changes: Changes
    backlog: Backlog
    #: See :class:`gateway.broker.core.dispatch.Dispatch`.
    halted: DestinationStopped | None

    def hold_up(self, place: Place) -> None: ...

    def hand(self, place: Place, consumer: Receiver, run: list[Message]) -> None: ...

    def drop_missing(
        self, place: Place, seqs: Sequence[int], messages: Sequence[Message]
    ) -> None: ...


class Selection:
    """The consumers with selectors of one dispatch, beside those without.

    It is told of that in each call: with a reference to it the two would be a cycle, and a removed
    destination would stay in memory until a garbage collection.
    """

    __slots__ = ("cursors",)

    def __init__(self) -> None:
        #: The consumers that have a selector; without any, nothing here is used.
        self.cursors: dict[Receiver, Cursor] = {}

    def dispatch(self, dispatch: Handing, place: Place, consumers: Sequence[Receiver]) -> None:
        """Each looks at what it has not looked at yet, in this order."""
        backlog = dispatch.backlog
        again = False
        for consumer in consumers:
            if not consumer.ready():
                continue
            cursor = self.cursors.get(consumer)
            if cursor is None:
                # It takes all it looks at.
                cursor, most = Cursor(backlog), min(consumer.credit, _MOST_EXAMINED)
            elif cursor.reading:
                continue
            else:
                most = _MOST_EXAMINED
            messages = list(islice(cursor.ahead(), most))
            if messages:
                again = True
                run, expired, left = _choose(dispatch.changes, consumer, cursor, messages)
                backlog.pluck_messages([*run, *expired])
                _hand(dispatch, place, consumer, run, expired)
                if left:
                    dispatch.hold_up(place)
                    return
            elif backlog.behind and consumer.selector is not None:
                self._search(dispatch, place, consumer, cursor)
        if again:
            place.mark()

    def _search(self, dispatch: Handing, place: Place, consumer: Receiver, cursor: Cursor) -> None:
        """Read on in the store for a consumer.

        What is read takes no room of messages in memory.
        """
        seqs = cursor.stored_ahead(BLOCK)
        if seqs:
            cursor.reading = True
            dispatch.changes.fetch(
                seqs, partial(self._searched, dispatch, place, consumer, cursor, seqs)
            )

    def _searched(
        self,
        dispatch: Handing,
        place: Place,
        consumer: Receiver,
        cursor: Cursor,
        seqs: Sequence[int],
        messages: Sequence[Message],
    ) -> None:
        cursor.reading = False
        backlog = dispatch.backlog
        dispatch.drop_missing(place, seqs, messages)
        if consumer in self.cursors and consumer.ready() and dispatch.halted is None:
            # Meanwhile others may have taken some, and some may have come back before these.
            ahead = cursor.still_ahead(messages)
            run, expired, left = _choose(dispatch.changes, consumer, cursor, ahead)
            if left:
                # Reading them once more would take longer than keeping them.
                cursor.reading = True
                dispatch.changes.slices.wait(
                    partial(self._searched, dispatch, place, consumer, cursor, (), ahead[-left:])
                )
            for message in (*run, *expired):
                backlog.pluck_behind(message.headers.priority, message.seq, message.expires)
            _hand(dispatch, place, consumer, run, expired)
        place.mark()

    def look_again(self, messages: Sequence[Message]) -> None:
        """Show the consumers messages that have come back.

        They may be before the places up to which the consumers have looked.
        """
        for consumer, cursor in self.cursors.items():
            for message in messages:
                many = len(messages) > _FEW or (
                    consumer.selector is not None and consumer.selector.stride == 1
                )
                if cursor.has_passed(message) and (many or consumer.wants(message)):
                    cursor.go_back_to(message)


def _choose(
    changes: Changes, consumer: Receiver, cursor: Cursor, messages: Sequence[Message]
) -> tuple[list[Message], list[Message], int]:
    """Choose what the consumer takes of these, and what has expired.

    It takes no more than it has credit for. Moves its cursor past all that were looked at.

    :returns: those, and how many it had no time to look at.
    """
    now_ms = changes.turn.now_ms
    run: list[Message] = []
    expired: list[Message] = []
    octets = _NO_BOUND if consumer.octets is None else consumer.octets
    stride = 0 if consumer.selector is None else consumer.selector.stride
    spent = changes.slices.spent
    for index, message in enumerate(messages):
        if len(run) >= consumer.credit or octets <= 0:
            break
        if stride and index % stride == 0 and spent():
            return run, expired, len(messages) - index
        cursor.looked_at(message)
        if message.expires and message.expires <= now_ms:
            expired.append(message)
        elif consumer.wants(message):
            run.append(message)
            octets -= len(message.body)
    return run, expired, 0


def _hand(
    dispatch: Handing,
    place: Place,
    consumer: Receiver,
    run: list[Message],
    expired: list[Message],
) -> None:
    if run:
        dispatch.hand(place, consumer, run)
    if expired:
        place.bury(expired, DeadReason.EXPIRED, "expired before it was delivered")
