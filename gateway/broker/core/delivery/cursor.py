"""How far a reader has looked at a backlog without taking from it.

The reader is a consumer with a selector, or a browser.

Owns the reader's place in each priority. In delivery order whole messages are in memory, or in the
store only; the reader looks at the former with :meth:`Cursor.ahead`, and has the latter read for
it, until nothing is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery.groups import Groups
from gateway.broker.core.waiting.backlog import Backlog
from gateway.broker.core.waiting.lane import BEYOND, PriorityLane
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message

#: Octets that are read from the store at once.
_OCTETS: Final = 4 * 1024 * 1024
_NO_BOUND: Final = 1 << 62


class Cursor:
    """A reader's place in a backlog."""

    __slots__ = ("_backlog", "_examined", "reading")

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        #: By priority, the seq up to which the reader has looked.
        self._examined: dict[int, int] = {}
        #: What comes next is being read from the store for it.
        self.reading = False

    def ahead(self) -> Iterator[Message]:
        """Yield what comes next, in delivery order.

        Ends before the first message that is in the store only. The backlog must not change
        meanwhile.
        """
        for priority, lane in self._backlog.lanes():
            after = self._examined.get(priority, 0)
            stop = lane.first_behind(after)
            yield from lane.in_memory(after, stop or BEYOND)
            if stop:
                return

    def stored_ahead(self, most: int) -> list[int] | None:
        """Find the next seqs of one priority, when nothing is :meth:`ahead`.

        :returns: none when there is nothing more; None when they are being read back into memory:
            look again then.
        """
        for priority, lane in self._backlog.lanes():
            after = self._examined.get(priority, 0)
            first = lane.first_behind(after)
            if first in lane.reading:
                return None
            if first:
                return lane.between(after, _next_in_memory(lane, after), most, _OCTETS)
        return []

    def still_ahead(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Select the messages, read meanwhile, that still come next.

        :param messages: those of :meth:`stored_ahead`. Any that are no longer in the store only are
            left out, with all behind them.
        """
        if not messages:
            return messages
        priority = messages[0].headers.priority
        lane = self._backlog.lane(priority)
        after = self._examined.get(priority, 0)
        if lane.first_behind(after) != messages[0].seq:
            return ()
        before = _next_in_memory(lane, after)
        for index, message in enumerate(messages):
            if message.seq >= before or not lane.is_behind(message.seq):
                return messages[:index]
        return messages

    def looked_at(self, message: Message) -> None:
        """The reader has looked at the message, and at all before it."""
        self._examined[message.headers.priority] = message.seq

    def choose(
        self,
        changes: Changes,
        consumer: EmbeddedConsumer,
        messages: Sequence[Message],
        barred: Collection[Destination] = (),
        groups: Groups | None = None,
        consumers: Sequence[EmbeddedConsumer] = (),
    ) -> tuple[list[Message], list[Message], int]:
        """Look at messages for a consumer, up to its credit.

        :param barred: topics of which it gets nothing.
        :param groups: where messages may have groups, which decide to whom they go, and
        :param consumers: all of that place. It must be given what it takes then.
        :returns: those that it takes, those that have expired, and how many of them all there was
            no time to look at.
        """
        now_ms = changes.turn.now_ms
        run: list[Message] = []
        expired: list[Message] = []
        octets = _NO_BOUND if consumer.octets is None else consumer.octets
        stride = 0 if consumer.selector is None else consumer.selector.stride
        spent = changes.selector_time.spent
        for index, message in enumerate(messages):
            if len(run) >= consumer.credit or octets <= 0:
                break
            if stride and index % stride == 0 and spent():
                return run, expired, len(messages) - index
            self.looked_at(message)
            if message.expires and message.expires <= now_ms:
                expired.append(message)
            elif barred and message.headers.destination in barred:
                continue
            elif consumer.wants(message):
                if (
                    groups is not None
                    and message.headers.group
                    and not groups.gives(message, consumer, consumers)
                ):
                    continue
                run.append(message)
                octets -= len(message.body)
        return run, expired, 0

    @property
    def examined(self) -> dict[int, int]:
        """By priority, the seq up to which the reader has looked."""
        return dict(self._examined)

    def is_at(self, other: Cursor) -> bool:
        """Whether both have looked at the same messages."""
        return self is other or self._examined == other._examined

    def resume(self, examined: Mapping[int, int]) -> None:
        """Go on from where another reader of this backlog was."""
        self._examined = dict(examined)

    def pass_by(self, priority: int) -> None:
        """The reader has no use for the rest of this priority."""
        self._examined[priority] = BEYOND - 1

    def has_passed(self, message: Message) -> bool:
        """Whether the message's place is one that the reader has looked at."""
        return message.seq <= self._examined.get(message.headers.priority, 0)

    def has_looked_at(self, priority: int, seq: int) -> bool:
        """As :meth:`has_passed`, by a message's place."""
        return seq <= self._examined.get(priority, 0)

    def go_back_with(self, other: Cursor | None) -> None:
        """Look again at what another has not looked at; None: at everything."""
        examined = self._examined
        for priority in list(examined):
            before = 0 if other is None else other._examined.get(priority, 0)
            if before < examined[priority]:
                examined[priority] = before

    def go_back_to(self, message: Message) -> None:
        """The reader is to look at the message again."""
        self._examined[message.headers.priority] = message.seq - 1


def _next_in_memory(lane: PriorityLane, after: int) -> int:
    message = next(lane.in_memory(after), None)
    return BEYOND if message is None else message.seq
