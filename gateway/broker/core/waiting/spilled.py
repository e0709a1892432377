"""Messages that the store has for one subscription's sake only.

Memory had no room for them.

Owns which they are and of which topics. A subscriber that is far behind has millions of them, so
they are kept as runs of consecutive seqs and not one by one. Knows nothing of rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

_Topic = TypeVar("_Topic")

#: Runs taken out at the front that are kept before the others are moved there.
_TRIM = 1024


class Spilled(Generic[_Topic]):
    """Seqs, in order, and the topic of each."""

    __slots__ = ("_count", "_firsts", "_lasts", "_start", "_topics")

    def __init__(self) -> None:
        #: The runs: the first and the last seq of each, and its topic.
        self._firsts = array("Q")
        self._lasts = array("Q")
        self._topics: list[_Topic] = []
        #: Index of the first run; those before it were taken out.
        self._start = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for index in range(self._start, len(self._firsts)):
            yield from range(self._firsts[index], self._lasts[index] + 1)

    def topic(self, seq: int) -> _Topic:
        """The topic of a message. :raises KeyError: it is not here."""
        index = self._run(seq)
        if index < 0:
            raise KeyError(seq)
        return self._topics[index]

    def add_all(self, seqs: Sequence[int], topic: _Topic) -> None:
        """Add messages that are not here, given in order.

        Quick for a whole run after all others.
        """
        if seqs and seqs[-1] - seqs[0] == len(seqs) - 1:
            self._add(seqs[0], seqs[-1], topic)
        else:
            for seq in seqs:
                self._add(seq, seq, topic)

    def _add(self, first: int, last: int, topic: _Topic) -> None:
        lasts = self._lasts
        self._count += last - first + 1
        if lasts and first <= lasts[-1]:
            self._insert(bisect_right(self._firsts, first, self._start), first, last, topic)
        elif lasts and lasts[-1] == first - 1 and self._topics[-1] is topic:
            lasts[-1] = last
        else:
            self._firsts.append(first)
            lasts.append(last)
            self._topics.append(topic)

    def discard(self, seq: int) -> bool:
        """Take a message out. :returns: whether it was here."""
        index = self._run(seq)
        if index < 0:
            return False
        self._cut(index, seq, seq)
        return True

    def discard_all(self, seqs: Sequence[int]) -> Sequence[int]:
        """Take messages out, given in order.

        Quick for those that follow each other.

        :returns: those that were not here.
        """
        missing: list[int] = []
        at = 0
        while at < len(seqs):
            first = seqs[at]
            index = self._run(first)
            if index < 0:
                missing.append(first)
                at += 1
                continue
            end = min(at + self._lasts[index] - first + 1, len(seqs))
            if seqs[end - 1] - first != end - 1 - at:
                # Some between are not to go.
                end = at + 1
            self._cut(index, first, seqs[end - 1])
            at = end
        return missing

    def _run(self, seq: int) -> int:
        """The index of the run that has a seq; -1 where none has."""
        index = bisect_right(self._firsts, seq, self._start) - 1
        return index if index >= self._start and self._lasts[index] >= seq else -1

    def _cut(self, index: int, first: int, last: int) -> None:
        """Take a part out of a run."""
        firsts, lasts = self._firsts, self._lasts
        self._count -= last - first + 1
        if not self._count:
            # Not cleared: arrays keep their room when they are.
            self._firsts, self._lasts, self._topics, self._start = array("Q"), array("Q"), [], 0
        elif firsts[index] < first:
            end = lasts[index]
            lasts[index] = first - 1
            if last < end:
                self._insert(index + 1, last + 1, end, self._topics[index])
        elif last < lasts[index]:
            firsts[index] = last + 1
        elif index > self._start:
            del firsts[index], lasts[index], self._topics[index]
        else:
            self._start += 1
            if self._start >= _TRIM and 2 * self._start >= len(firsts):
                del firsts[: self._start], lasts[: self._start], self._topics[: self._start]
                self._start = 0

    def _insert(self, index: int, first: int, last: int, topic: _Topic) -> None:
        self._firsts.insert(index, first)
        self._lasts.insert(index, last)
        self._topics.insert(index, topic)
