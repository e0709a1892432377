"""Times at which messages of one destination are due.

The messages are in the store only; here are their seqs, sizes and times. Far times are in spans of
about a minute, unsorted. A span is sorted into single milliseconds when it begins, some entries at
a time, so that no step is long however many messages are due at once.

Owns which are due next. Knows no clock, and not what a message is due for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

#: A span has that many milliseconds, as a power of two.
_SPAN: Final = 16
#: Entries that are sorted in one step.
SORTED: Final = 3_000


class Due(NamedTuple):
    """A message and its time, in epoch milliseconds."""

    due_ms: int
    seq: int
    size: int


class Timetable:
    """What is due at one destination, and when."""

    __slots__ = (
        "_far",
        "_gone",
        "_near",
        "_opening",
        "_place",
        "_spans",
        "_through",
        "_times",
        "_used",
        "count",
        "octets",
    )

    def __init__(self) -> None:
        #: By span: time, seq and size of each entry, one behind the other.
        self._far: dict[int, array[int]] = {}
        #: A heap of these spans.
        self._spans: list[int] = []
        #: By time: seq and size of each entry, in the order of their coming.
        self._near: dict[int, array[int]] = {}
        self._times: list[int] = []
        #: How much at the beginning of these was taken, where anything was.
        self._used: dict[int, int] = {}
        #: The last span that is near, as are all before it.
        self._through = -1
        #: Entries of that span that are not sorted yet, and the place of the next among them.
        self._opening: array[int] = array("Q")
        self._place = 0
        #: Seqs that were taken out and are still in one of these.
        self._gone: set[int] = set()
        self.count = 0
        self.octets = 0

    def add(self, due_ms: int, seq: int, size: int) -> None:
        """A message is due at that time, which is above 0."""
        self.count += 1
        self.octets += size
        span = due_ms >> _SPAN
        if span <= self._through:
            self._add_near(due_ms, seq, size)
            return
        entries = self._far.get(span)
        if entries is None:
            entries = self._far[span] = array("Q")
            heappush(self._spans, span)
        entries.extend((due_ms, seq, size))

    def _add_near(self, due_ms: int, seq: int, size: int) -> None:
        entries = self._near.get(due_ms)
        if entries is None:
            entries = self._near[due_ms] = array("Q")
            heappush(self._times, due_ms)
        entries.extend((seq, size))

    @property
    def next_ms(self) -> int:
        """When to look again, epoch milliseconds; 0 if it is empty."""
        if self._place < len(self._opening):
            return max(1, self._through << _SPAN)
        first = self._times[0] if self._times else 0
        if self._spans:
            begins = max(1, self._spans[0] << _SPAN)
            return min(first, begins) if first else begins
        return first

    def take(self, now_ms: int, most: int) -> list[Due]:
        """Take what is due, in the order of times.

        :returns: at most ``most``; none while entries are being sorted, see :attr:`next_ms`.
        """
        left = SORTED
        while left > 0:
            if self._place >= len(self._opening):
                if self._times and self._times[0] <= now_ms:
                    # They come before all of later spans.
                    break
                if not self._spans or self._spans[0] << _SPAN > now_ms:
                    break
                self._through = heappop(self._spans)
                self._opening, self._place = self._far.pop(self._through), 0
            left -= self._sort(left)
        taken: list[Due] = []
        if self._place < len(self._opening):
            return taken
        while self._times and self._times[0] <= now_ms and len(taken) < most:
            due_ms = self._times[0]
            entries, begin = self._near[due_ms], self._used.pop(due_ms, 0)
            end = min(len(entries), begin + 2 * (most - len(taken)))
            for index in range(begin, end, 2):
                seq, size = entries[index], entries[index + 1]
                if seq in self._gone:
                    self._gone.discard(seq)
                else:
                    taken.append(Due(due_ms, seq, size))
            if end < len(entries):
                self._used[due_ms] = end
            else:
                del self._near[due_ms]
                heappop(self._times)
        for _, _, size in taken:
            self.count -= 1
            self.octets -= size
        return taken

    def _sort(self, most: int) -> int:
        """Sort some of the span that has begun. :returns: how many."""
        opening = self._opening
        end = min(len(opening), self._place + 3 * most)
        for index in range(self._place, end, 3):
            self._add_near(opening[index], opening[index + 1], opening[index + 2])
        sorted_ = (end - self._place) // 3
        self._place = end
        if end == len(opening):
            self._opening, self._place = array("Q"), 0
        return sorted_

    def find(self, seq: int) -> Due | None:
        """The entry of a message; None if it has no entry."""
        if seq in self._gone:
            return None
        for due_ms, entries in self._near.items():
            if seq in entries:
                for index in range(self._used.get(due_ms, 0), len(entries), 2):
                    if entries[index] == seq:
                        return Due(due_ms, seq, entries[index + 1])
        for entries in (*self._far.values(), self._opening[self._place :]):
            if seq in entries:
                for index in range(0, len(entries), 3):
                    if entries[index + 1] == seq:
                        return Due(entries[index], seq, entries[index + 2])
        return None

    def remove(self, entry: Due) -> None:
        """Take one out that :meth:`find` has found."""
        self._gone.add(entry.seq)
        self.count -= 1
        self.octets -= entry.size

    def blocks(self, most: int) -> Iterator[list[Due]]:
        """Yield all of them in blocks, in no order.

        The timetable may change between two blocks: entries that come or go meanwhile may be left
        out.
        """
        arrays = [(due_ms, near, self._used.get(due_ms, 0)) for due_ms, near in self._near.items()]
        arrays += [(-1, far, 0) for far in (*self._far.values(), self._opening[self._place :])]
        block: list[Due] = []
        for due_ms, entries, begin in arrays:
            width = 2 if due_ms >= 0 else 3
            for index in range(begin, len(entries), width):
                first = entries[index]
                entry = (
                    Due(due_ms, first, entries[index + 1])
                    if width == 2
                    else Due(first, entries[index + 1], entries[index + 2])
                )
                if entry.seq not in self._gone:
                    block.append(entry)
                if len(block) >= most:
                    yield block
                    block = []
        yield block
