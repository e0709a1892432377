"""The messages that wait for consumers, of one queue or one subscription, in the order they will be delivered.

Order is priority, then seq. Of each priority a *window* of whole messages is in memory, and a *tail* of bare seqs behind it, whose messages
are in the store; ``returned`` holds what was given back, to be delivered again in its old place.

Owns order and counts of what waits. Knows no consumers, no limits, and not how the store is asked: whoever puts a message behind the
window sees to it that the store has it, and feeds what it read back to :meth:`Backlog.refill`.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from gateway.broker.memory import OVERHEAD, Memory
from gateway.messaging.message import Message

_TRIM = 65_536


def _seq(message: Message) -> int:
    return message.seq


class _Level:
    """One priority."""

    __slots__ = ("gone", "returned", "tail", "tail_start", "window")

    def __init__(self) -> None:
        self.returned: list[Message] = []
        self.window: deque[Message] = deque()
        self.tail = array("Q")
        #: Index of the first seq of the tail that was not read back yet.
        self.tail_start = 0
        #: Seqs of the tail that were taken out of its middle.
        self.gone: set[int] = set()

    def front(self) -> list[Message]:
        """The candidates for its first message."""
        return self.returned[:1] + ([self.window[0]] if self.window else [])


class Backlog:
    """What waits.

    :param memory: the bound on whole messages, shared with all other backlogs.
    :param spill: whether there is a store to put messages in; without one everything stays in memory.
    """

    __slots__ = (
        "_expiries",
        "_levels",
        "_memory",
        "_order",
        "_reading",
        "_spill",
        "_tailed",
        "expiring",
        "octets",
        "waiting",
        "window_octets",
    )

    def __init__(self, memory: Memory, spill: bool) -> None:
        self._memory = memory
        self._spill = spill
        self._levels: dict[int, _Level] = {}
        #: Levels from the highest priority down.
        self._order: list[_Level] = []
        #: (expires, seq, priority, size) of messages that were put behind the window and may expire there.
        self._expiries: list[tuple[int, int, int, int]] = []
        #: Messages in tails.
        self._tailed = 0
        #: Messages, and their octets, here; in memory or not.
        self.waiting = 0
        self.octets = 0
        #: Octets of whole messages in memory, overhead included.
        self.window_octets = 0
        #: How many messages here may expire.
        self.expiring = 0
        #: Seqs of the tail that are being read back.
        self._reading: set[int] = set()

    # --- in

    def put(self, run: Sequence[Message]) -> Sequence[Message]:
        """Add messages with rising seqs behind all others of their priority.

        :returns: those that memory has no room for. Their seqs are in the tail now: the caller must have them stored.
        """
        size = 0
        for message in run:
            size += message.size
            if message.expires:
                self.expiring += 1
        self.waiting += len(run)
        self.octets += size
        if not self._tailed and not self._reading and not (self._spill and self._memory.full(self.window_octets)):
            octets = size + OVERHEAD * len(run)
            self.window_octets += octets
            self._memory.used += octets
            first = run[0].headers.priority
            level = self._levels.get(first) or self._level(first)
            if len(run) == 1:
                level.window.append(run[0])
                return ()
            for message in run:
                if message.headers.priority != first:
                    break
            else:
                level.window.extend(run)
                return ()
            for message in run:
                self._level(message.headers.priority).window.append(message)
            return ()
        for message in run:
            self._append_tail(message.headers.priority, message.seq)
            if message.expires:
                heappush(self._expiries, (message.expires, message.seq, message.headers.priority, message.size))
        return run

    def _append_tail(self, priority: int, seq: int) -> None:
        level = self._level(priority)
        level.tail.append(seq)
        self._tailed += 1

    def restore(self, priority: int, seq: int, size: int, expires: int) -> None:
        """Add a message that the store held when it was opened."""
        self._append_tail(priority, seq)
        self.waiting += 1
        self.octets += size
        if expires:
            self.expiring += 1
            heappush(self._expiries, (expires, seq, priority, size))

    def give_back(self, messages: Iterable[Message]) -> None:
        """Messages that were taken wait again, in their old places."""
        for message in messages:
            insort(self._level(message.headers.priority).returned, message, key=_seq)
            octets = message.size + OVERHEAD
            self.window_octets += octets
            self._memory.used += octets
            self.waiting += 1
            self.octets += message.size
            if message.expires:
                self.expiring += 1

    def refill(self, messages: Sequence[Message]) -> int:
        """Messages of the tail, read back for :meth:`wanted`, are in memory now; what was wanted and is not among them is gone.

        :returns: how many are gone.
        """
        octets = 0
        reading = self._reading
        for message in messages:
            if message.seq in reading:
                reading.discard(message.seq)
                self._level(message.headers.priority).window.append(message)
                octets += message.size + OVERHEAD
        gone = len(reading)
        self.waiting -= gone
        reading.clear()
        self.window_octets += octets
        self._memory.used += octets
        return gone

    # --- out

    def take(self, most: int, octets: int, now_ms: int) -> tuple[list[Message], list[Message]]:
        """Take up to ``most`` messages from the front.

        :param octets: stop after the message whose body exceeds what remains of these; negative is no bound.
        :returns: the messages to deliver, and those found expired; neither waits any longer.
        """
        taken: list[Message] = []
        expired: list[Message] = []
        size = 0
        for level in self._order:
            window = level.window
            if level.returned or self.expiring:
                gone, octets = self._take_careful(level, most, octets, now_ms, taken, expired)
                size += gone
            else:
                pop = window.popleft
                count = min(most - len(taken), len(window))
                if octets < 0:
                    run = [pop() for _ in range(count)]
                    for message in run:
                        size += message.size
                    taken = taken + run if taken else run
                else:
                    while count and octets > 0:
                        message = pop()
                        taken.append(message)
                        size += message.size
                        octets -= len(message.body)
                        count -= 1
                    octets = max(octets, 0)
            if not octets or len(taken) >= most or level.tail_start < len(level.tail) or (self._reading and not window):
                break
        count = len(taken) + len(expired)
        if count:
            held = size + OVERHEAD * count
            self.window_octets -= held
            self._memory.used -= held
            self.waiting -= count
            self.octets -= size
        return taken, expired

    def _take_careful(
        self, level: _Level, most: int, octets: int, now_ms: int, taken: list[Message], expired: list[Message]
    ) -> tuple[int, int]:
        """Take from one level, merging what was returned, leaving out what expired.

        :returns: the size of what was taken, and what is left of ``octets``.
        """
        size = 0
        returned, window = level.returned, level.window
        tail_first = level.tail[level.tail_start] if level.tail_start < len(level.tail) else 0
        back = 0
        while len(taken) < most and octets:
            if back < len(returned) and (not window or returned[back].seq < window[0].seq):
                message = returned[back]
                if not window and ((tail_first and message.seq > tail_first) or (self._reading and tail_first == 0)):
                    break
                back += 1
            elif window:
                message = window.popleft()
            else:
                break
            size += message.size
            if message.expires:
                self.expiring -= 1
                if message.expires <= now_ms:
                    expired.append(message)
                    continue
            taken.append(message)
            if octets > 0:
                octets = max(octets - len(message.body), 0)
        del returned[:back]
        return size, octets

    def waiting_in_memory(self) -> Iterator[Message]:
        """Whole messages in delivery order, for selectors and browsers; not to be changed meanwhile."""
        for level in self._order:
            window = iter(level.window)
            ahead = next(window, None)
            for message in level.returned:
                while ahead is not None and ahead.seq < message.seq:
                    yield ahead
                    ahead = next(window, None)
                yield message
            while ahead is not None:
                yield ahead
                ahead = next(window, None)

    def pluck(self, seqs: set[int]) -> list[Message]:
        """Take out these, wherever they are; what is only in the tail is left out of the answer, but gone all the same.

        :returns: the whole messages, in delivery order.
        """
        found: list[Message] = []
        left = set(seqs)
        for level in self._order:
            for part in (level.returned, level.window):
                here = [message for message in part if message.seq in left]
                if here:
                    found += here
                    kept = [message for message in part if message.seq not in left]
                    left.difference_update(message.seq for message in here)
                    part.clear()
                    part.extend(kept)
        for message in found:
            self._forget(message.size, message.expires)
            octets = message.size + OVERHEAD
            self.window_octets -= octets
            self._memory.used -= octets
        return found

    def pluck_tail(self, priority: int, seq: int, size: int, expires: int) -> bool:
        """Take out a message that is in the store only. :returns: False when it is not there: in memory, or taken."""
        if seq in self._reading:
            self._reading.discard(seq)
        else:
            level = self._levels.get(priority)
            if level is None or seq in level.gone:
                return False
            index = self._tail_index(level, seq - 1)
            if index >= len(level.tail) or level.tail[index] != seq:
                return False
            level.gone.add(seq)
            self._tailed -= 1
        self._forget(size, expires)
        return True

    def take_expired(self, now_ms: int) -> tuple[list[Message], list[int]]:
        """Take out what has expired.

        :returns: the whole messages, and the seqs of those that are in the store only.
        """
        here = {message.seq for message in self.waiting_in_memory() if 0 < message.expires <= now_ms}
        stored = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            expires, seq, priority, size = heappop(self._expiries)
            if self.pluck_tail(priority, seq, size, expires):
                stored.append(seq)
        return (self.pluck(here) if here else []), stored

    def oldest(self) -> Message | None:
        """The message that has waited longest, whatever its priority; None when none is in memory."""
        candidates = [message for level in self._order for message in level.front()]
        return min(candidates, key=_seq, default=None)

    def least(self) -> Message | None:
        """The oldest message of the lowest priority; None when none is in memory."""
        for level in reversed(self._order):
            candidates = level.front()
            if candidates:
                return min(candidates, key=_seq)
            if level.tail_start < len(level.tail):
                return None
        return None

    # --- the tail

    def wanted(self, most: int) -> list[int]:
        """Seqs of the tail to read back now, in delivery order; empty when there is no need. Until :meth:`refill` there is nothing more to read."""
        if not self._tailed or self._reading or not self._memory.low(self.window_octets):
            return []
        seqs: list[int] = []
        for level in self._order:
            while len(seqs) < most and level.tail_start < len(level.tail):
                stop = min(level.tail_start + most - len(seqs), len(level.tail))
                if level.gone:
                    seqs += [seq for seq in level.tail[level.tail_start : stop] if seq not in level.gone]
                    level.gone.difference_update(level.tail[level.tail_start : stop])
                else:
                    seqs += level.tail[level.tail_start : stop]
                level.tail_start = stop
                self._trim(level)
            if len(seqs) >= most:
                break
        self._tailed -= len(seqs)
        self._reading.update(seqs)
        return seqs

    def tail_beyond(self, examined: Mapping[int, int], most: int) -> list[int]:
        """Seqs of messages that are in the store only, in delivery order, for selectors and browsers that read on.

        :param examined: by priority, the seq up to which the reader has read.
        """
        found: list[int] = []
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            for index in range(self._tail_index(level, examined.get(priority, -1)), len(level.tail)):
                if level.tail[index] not in level.gone:
                    found.append(level.tail[index])
                    if len(found) >= most:
                        return found
        return found

    @property
    def tailed(self) -> int:
        """Messages that are in the store only."""
        return self._tailed

    def stored_only(self) -> list[int]:
        """The seqs of all messages that are in the store only."""
        seqs = list(self._reading)
        for level in self._order:
            seqs += [seq for seq in level.tail[level.tail_start :] if seq not in level.gone]
        return seqs

    def clear(self) -> list[Message]:
        """Everything is gone. :returns: the whole messages; for the others see :meth:`stored_only` before this."""
        found = list(self.waiting_in_memory())
        self._levels.clear()
        self._order.clear()
        self._reading.clear()
        self._expiries.clear()
        self._memory.used -= self.window_octets
        self.window_octets = self.waiting = self.octets = self.expiring = self._tailed = 0
        return found

    # --- inside

    def _level(self, priority: int) -> _Level:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            self._order = [self._levels[number] for number in sorted(self._levels, reverse=True)]
        return level

    def _forget(self, size: int, expires: int) -> None:
        self.waiting -= 1
        self.octets -= size
        if expires:
            self.expiring -= 1

    @staticmethod
    def _tail_index(level: _Level, after: int) -> int:
        """Index of the first seq of the tail above ``after``; seqs of a tail rise."""
        low, high = level.tail_start, len(level.tail)
        while low < high:
            middle = (low + high) // 2
            if level.tail[middle] <= after:
                low = middle + 1
            else:
                high = middle
        return low

    @staticmethod
    def _trim(level: _Level) -> None:
        if level.tail_start == len(level.tail):
            del level.tail[:]
            level.tail_start = 0
        elif level.tail_start >= _TRIM:
            del level.tail[: level.tail_start]
            level.tail_start = 0
