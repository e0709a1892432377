"""The exact count of what arrived: losses, duplicates, order.

Every number of every message is looked at.

Knows numbers only (see :mod:`benchmarks.wire`), no frames and no servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.wire import SPAN

# Above this a number is nonsense, not a message of a run of some seconds; it keeps a wrong digit
# from asking for gigabytes.
_HIGHEST = 10**8


@dataclass(frozen=True)
class Outcome:
    """What became of the messages.

    :param lost: sent and never arrived.
    :param duplicated: arrivals of a number that had arrived before.
    :param disordered: first arrivals that came to a reader after a higher number of the same
        producer.
    :param unexpected: arrivals of numbers that were not sent.
    """

    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    unexpected: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.disordered + other.disordered,
            self.unexpected + other.unexpected,
        )


class Reader:
    """One consumer's place: the highest number seen of each producer."""

    __slots__ = ("highest",)

    def __init__(self, producers: int) -> None:
        self.highest = [-1] * producers


class Tally:
    """A set of messages, each of which must arrive once, at any reader.

    Consumers of a queue share one tally; each subscriber of a topic has its own.

    :param producers: numbers of producers 0 to ``producers - 1`` are expected.
    """

    def __init__(self, producers: int) -> None:
        self._seen = [bytearray() for _ in range(producers)]
        #: Different numbers that have arrived.
        self.distinct = 0
        self._duplicated = 0
        self._disordered = 0
        self._nonsense = 0

    def add(self, reader: Reader, arrived: Sequence[int]) -> None:
        """Count what ``reader`` received, in the order received."""
        if not arrived:
            return
        first, count = arrived[0], len(arrived)
        producer, start = divmod(first, SPAN)
        # Most of the time a chunk is one unbroken run of one producer: counted without a loop.
        if (
            arrived[-1] - first == count - 1
            and 0 <= producer < len(self._seen)
            and start > reader.highest[producer]
            and start + count <= _HIGHEST
            and list(arrived) == list(range(first, first + count))
        ):
            seen = self._room(producer, start + count)
            if not seen.count(1, start, start + count):
                seen[start : start + count] = b"\1" * count
                self.distinct += count
                reader.highest[producer] = start + count - 1
                return
        self._add_each(reader, arrived)

    def _add_each(self, reader: Reader, arrived: Sequence[int]) -> None:
        everything, highest = self._seen, reader.highest
        for number in arrived:
            producer, count = divmod(number, SPAN)
            if not 0 <= producer < len(everything) or count >= _HIGHEST:
                self._nonsense += 1
                continue
            seen = everything[producer]
            if count >= len(seen):
                seen = self._room(producer, count + 1)
            if seen[count]:
                self._duplicated += 1
                continue
            seen[count] = 1
            self.distinct += 1
            if count < highest[producer]:
                self._disordered += 1
            else:
                highest[producer] = count

    def _room(self, producer: int, size: int) -> bytearray:
        seen = self._seen[producer]
        if size > len(seen):
            seen.extend(bytes(size - len(seen) + 65536))
        return seen

    def outcome(self, sent: Sequence[int]) -> Outcome:
        """Compare with producer p having sent the numbers 0 to ``sent[p] - 1``.

        :param sent: as many entries as there are producers.
        """
        if len(sent) != len(self._seen):
            raise ValueError(
                f"{len(self._seen)} producers are counted, {len(sent)} counts were given"
            )
        lost = unexpected = 0
        for count, seen in zip(sent, self._seen, strict=True):
            lost += count - seen.count(1, 0, count)
            unexpected += seen.count(1, count)
        return Outcome(lost, self._duplicated, self._disordered, unexpected + self._nonsense)
