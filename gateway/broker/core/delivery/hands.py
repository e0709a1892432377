"""Who gets what of messages that several consumers may have.

Owns two ways: dealing like cards, and by groups, where one look at the messages serves all consumers
that have looked at the same ones before. So a message costs as much with a hundred consumers as
with two. Where messages wait, and how they are handed over, is the dispatch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.delivery.groups import Groups
from gateway.messaging.message import Message

_NO_BOUND: Final = 1 << 62
#: Places at which many consumers may be.
_TRIED: Final = 3


def deal(
    ready: Sequence[EmbeddedConsumer], run: list[Message]
) -> tuple[list[list[Message]], int, Sequence[Message]]:
    """Deal messages out like cards, beginning with the first consumer.

    :returns: their hands, the seat of the next, and what none has room for.
    """
    count = len(ready)
    share = -(-len(run) // count)
    octets = sum([len(message.body) for message in run])
    if all(
        consumer.credit >= share and (consumer.octets is None or consumer.octets > octets)
        for consumer in ready
    ):
        return [run[seat::count] for seat in range(count)], len(run) % count, ()
    return _deal_singly(ready, run)


def _deal_singly(
    ready: Sequence[EmbeddedConsumer], run: Sequence[Message]
) -> tuple[list[list[Message]], int, Sequence[Message]]:
    """Deal to consumers that may not have room for their share."""
    count = len(ready)
    hands: list[list[Message]] = [[] for _ in ready]
    room = [_NO_BOUND if consumer.octets is None else consumer.octets for consumer in ready]
    seat = 0
    for index, message in enumerate(run):
        for _ in range(count):
            if len(hands[seat]) < ready[seat].credit and room[seat] > 0:
                break
            seat = (seat + 1) % count
        else:
            return hands, seat, run[index:]
        hands[seat].append(message)
        room[seat] -= len(message.body)
        seat = (seat + 1) % count
    return hands, seat, ()


def look_together(
    groups: Groups,
    cursors: Mapping[EmbeddedConsumer, Cursor],
    consumers: Sequence[EmbeddedConsumer],
    everyone: Sequence[EmbeddedConsumer],
    most: int,
    now_ms: int,
) -> GroupHands | None:
    """Have consumers that are at one place look at what comes next, once.

    :param consumers: those that may, in their turns.
    :param everyone: all consumers that there are.
    :param most: messages to look at.
    :returns: what they must be given; None where there are no two, or nothing comes next.
    """
    together = _alike(consumers, cursors)
    if len(together) < 2:
        return None
    messages = list(islice(cursors[together[0]].ahead(), most))
    if not messages:
        return None
    hands = GroupHands(groups, cursors, together, everyone)
    hands.look(messages, now_ms)
    return hands


def show_others(
    groups: Groups, cursors: Mapping[EmbeddedConsumer, Cursor], consumer: EmbeddedConsumer
) -> None:
    """Show consumers what another has found to be theirs, or may be."""
    given, groups.given = groups.given, []
    for other, message in given:
        cursor = cursors.get(other)
        if cursor is not None and cursor.has_passed(message):
            cursor.go_back_to(message)
    closing, groups.closing = groups.closing, []
    if closing:
        # The rest of the group may be of another priority, or what its selector has passed by.
        own = cursors.get(consumer) if consumer.selector is None else None
        for other, cursor in cursors.items():
            if other is consumer:
                continue
            cursor.go_back_with(own)
            for message in closing:
                if cursor.has_passed(message):
                    cursor.go_back_to(message)


def _alike(
    consumers: Sequence[EmbeddedConsumer], cursors: Mapping[EmbeddedConsumer, Cursor]
) -> list[EmbeddedConsumer]:
    """Return ready ones without selectors that are at the same place.

    If that is not most of those that are ready, there may be more at another.
    """
    able = []
    for consumer in consumers:
        cursor = cursors.get(consumer)
        if (
            cursor is not None
            and consumer.selector is None
            and not cursor.reading
            and consumer.ready()
        ):
            able.append(consumer)
    best: list[EmbeddedConsumer] = []
    for _ in range(_TRIED):
        if not able:
            break
        place = cursors[able[0]]
        same = [each for each in able if cursors[each].is_at(place)]
        if len(same) > len(best):
            best = same
        if 2 * len(same) >= len(able):
            break
        able = [each for each in able if not cursors[each].is_at(place)]
    return best


class GroupHands:
    """What consumers at one place get of the next messages.

    :param consumers: those, in their turns.
    """

    __slots__ = (
        "_all",
        "_cursors",
        "_examined",
        "_groups",
        "_open",
        "closers",
        "expired",
        "runs",
        "together",
    )

    def __init__(
        self,
        groups: Groups,
        cursors: Mapping[EmbeddedConsumer, Cursor],
        consumers: Sequence[EmbeddedConsumer],
        everyone: Sequence[EmbeddedConsumer],
    ) -> None:
        self._groups = groups
        self._cursors = cursors
        self._all = everyone
        self.together = frozenset(consumers)
        self._examined = cursors[consumers[0]].examined
        #: Those that have room, in their turns: for how many messages, and octets.
        self._open: dict[EmbeddedConsumer, list[int]] = {
            each: [each.credit, _NO_BOUND if each.octets is None else each.octets]
            for each in consumers
        }
        #: What each gets.
        self.runs: dict[EmbeddedConsumer, list[Message]] = {}
        self.expired: list[Message] = []
        #: Messages that have ended their groups, by the consumer that gets them.
        self.closers: dict[EmbeddedConsumer, list[Message]] = {}

    def look(self, messages: Sequence[Message], now_ms: int) -> None:
        """Look at the next messages, for all of them at once.

        They must be given what they get then.
        """
        groups, still = self._groups, self._open
        for message in messages:
            if not still:
                break
            self._examined[message.headers.priority] = message.seq
            if message.expires and message.expires <= now_ms:
                self.expired.append(message)
                continue
            taker: EmbeddedConsumer | None = next(iter(still))
            assert taker is not None
            if message.headers.group:
                taker = groups.taker(message, taker, self._all, still)
            if taker is not None:
                self._give(taker, message)
        for consumer in still:
            self._cursors[consumer].resume(self._examined)

    def _give(self, consumer: EmbeddedConsumer, message: Message) -> None:
        run = self.runs.get(consumer)
        if run is None:
            run = self.runs[consumer] = []
        run.append(message)
        if self._groups.closing:
            self.closers.setdefault(consumer, []).extend(self._groups.closing)
            self._groups.closing = []
        room = self._open[consumer]
        room[0] -= 1
        room[1] -= len(message.body)
        if room[0] <= 0 or room[1] <= 0:
            # It looks at nothing behind this before it has room again.
            del self._open[consumer]
            self._groups.is_full(consumer)
            self._cursors[consumer].resume(self._examined)
