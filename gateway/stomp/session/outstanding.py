"""The deliveries that a client has not settled.

Owns how ACK and NACK find one, and, where they are of a whole connection, in which order those of
all its subscriptions were made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from gateway.messaging.inflight import InFlight
from gateway.messaging.message import Message

#: Runs that a subscription may have without looking which of them are over.
_RUNS: Final = 16


class Outstanding(InFlight[Message]):
    """The unsettled deliveries of one subscription.

    ACK and NACK name them by number or by message identifier.
    """

    __slots__ = ("_index",)

    def __init__(self) -> None:
        super().__init__()
        #: Number by message identifier; made when a client first acknowledges by that.
        self._index: dict[str, int] | None = None

    def octets(self) -> int:
        """Return roughly the bytes of their messages in memory.

        Looks at all of them.
        """
        return sum([message.weight for message in self._open.values()])

    def number_of(self, message_id: str) -> int | None:
        """The latest unsettled delivery of that message."""
        if self._index is None:
            self._index = {message.message_id: number for number, message in self._open.items()}
        return self._index.get(message_id)

    def place_of(self, number: int) -> int:
        """Return which delivery of the connection it is.

        0 where that does not matter.
        """
        return 0

    def before(self, place: int) -> list[int]:
        """Return the numbers of those made up to a place, in order.

        None are where places do not matter.
        """
        return []

    def add(self, first: int, deliveries: Sequence[Message]) -> None:
        super().add(first, deliveries)
        if self._index is not None:
            for number, message in enumerate(deliveries, first):
                self._index[message.message_id] = number

    def pop(self, number: int) -> Message:
        message = super().pop(number)
        if self._index is not None and self._index.get(message.message_id) == number:
            del self._index[message.message_id]
        return message

    def restore(self, deliveries: Sequence[tuple[int, Message]]) -> None:
        super().restore(deliveries)
        if self._index is not None:
            for number, message in deliveries:
                self._index.setdefault(message.message_id, number)

    def restore_at(self, place: int, number: int, message: Message) -> None:
        """Put one back that was at a place."""
        self.restore([(number, message)])

    def clear(self) -> list[Message]:
        self._index = None
        return super().clear()


class SizedOutstanding(Outstanding):
    """Those of one subscription whose window is in bytes.

    :ivar frame: the bytes of the frame of the delivery that is added next.
    :ivar total: those of all unsettled frames.
    """

    __slots__ = ("_sizes", "frame", "total")

    def __init__(self) -> None:
        super().__init__()
        self.frame = 0
        self.total = 0
        self._sizes: dict[int, int] = {}

    def add(self, first: int, deliveries: Sequence[Message]) -> None:
        super().add(first, deliveries)
        for number in range(first, first + len(deliveries)):
            self._sizes[number] = self.frame
            self.total += self.frame

    def pop(self, number: int) -> Message:
        message = super().pop(number)
        self.total -= self._sizes.pop(number)
        return message

    def restore(self, deliveries: Sequence[tuple[int, Message]]) -> None:
        super().restore(deliveries)
        for number, message in deliveries:
            # Nearly that of its frame, which is gone.
            size = message.headers.octets + len(message.body)
            self._sizes[number] = size
            self.total += size

    def clear(self) -> list[Message]:
        self._sizes.clear()
        self.total = 0
        return super().clear()


class DeliveryOrder:
    """Counts the deliveries of a connection that are to be settled.

    :ivar next: the place of the one that comes next, from 1.
    """

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 1


class OrderedOutstanding(Outstanding):
    """Those of one subscription, with their places in the connection.

    Owns runs of deliveries that were made without any of another subscription between.

    :param order: the connection's.
    """

    __slots__ = ("_counts", "_firsts", "_order", "_places")

    def __init__(self, order: DeliveryOrder) -> None:
        super().__init__()
        self._order: Final = order
        #: Of each run, in order: the place and the number of its first, and how many it has.
        self._places: list[int] = []
        self._firsts: list[int] = []
        self._counts: list[int] = []

    def place_of(self, number: int) -> int:
        at = bisect_right(self._firsts, number) - 1
        return self._places[at] + number - self._firsts[at]

    def before(self, place: int) -> list[int]:
        at = bisect_right(self._places, place) - 1
        if at < 0 or not len(self):
            return []
        return self.up_to(self._firsts[at] + min(place - self._places[at], self._counts[at] - 1))

    def add(self, first: int, deliveries: Sequence[Message]) -> None:
        if len(self._places) > 2 * len(self) + _RUNS:
            self._forget_runs()
        super().add(first, deliveries)
        count, place = len(deliveries), self._order.next
        self._order.next = place + count
        if self._places and (self._places[-1] + self._counts[-1], self._last + 1) == (place, first):
            self._counts[-1] += count
        else:
            self._places.append(place)
            self._firsts.append(first)
            self._counts.append(count)

    def restore_at(self, place: int, number: int, message: Message) -> None:
        self.restore([(number, message)])
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number >= self._firsts[at] + self._counts[at]:
            self._places.insert(at + 1, place)
            self._firsts.insert(at + 1, number)
            self._counts.insert(at + 1, 1)

    def clear(self) -> list[Message]:
        self._places, self._firsts, self._counts = [], [], []
        return super().clear()

    @property
    def _last(self) -> int:
        """The number of the last delivery of the last run."""
        return self._firsts[-1] + self._counts[-1] - 1

    def _forget_runs(self) -> None:
        """Forget the runs of which all is settled."""
        numbers = sorted(self._open)
        kept: list[int] = []
        for at, first in enumerate(self._firsts):
            found = bisect_left(numbers, first)
            if found < len(numbers) and numbers[found] < first + self._counts[at]:
                kept.append(at)
        self._places = [self._places[at] for at in kept]
        self._firsts = [self._firsts[at] for at in kept]
        self._counts = [self._counts[at] for at in kept]
