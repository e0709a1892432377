"""One priority of a backlog: messages in memory and in the store only.

In memory are the *window*, a run of messages in order, and what was *returned*, to be delivered
again in its old place. Behind the window are bare seqs whose messages are in the store: those that
are being read back, and the tail. Every seq of the window is below every seq behind it, while a
returned message may belong anywhere. There is one exception: memory had no room for all that was
returned. Then the lane is *mixed*, and the seqs of these messages may be anywhere, too.

Owns order within the priority. A lane knows no other priority, and keeps no sums but its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from gateway.broker.core.waiting.sorted_window import SortedWindow, Window, seq_of
from gateway.messaging.message import Message

#: Above every seq.
BEYOND: Final = 1 << 63
#: Seqs that were read back and are kept before the tail is moved to its front.
_TRIM: Final = 65_536
#: Seqs taken out of the middle of the tail that are kept where they are more than those in it.
_GAPS: Final = 1_000
#: For this many messages one sort is cheaper than a search for each.
_MANY: Final = 16


def _backwards(message: Message) -> int:
    return -message.seq


class PriorityLane:
    """The messages of one priority that wait."""

    __slots__ = (
        "_deque",
        "_gone",
        "_seqs",
        "_sizes",
        "_sorted",
        "_start",
        "behind",
        "mixed",
        "reading",
        "returned",
        "window",
    )

    def __init__(self) -> None:
        #: The window, and nothing if another one is.
        self._deque: deque[Message] = deque()
        #: The window of a lane that sorts.
        self._sorted: SortedWindow | None = None
        self.window: Window = self._deque
        #: The next to be delivered is the last.
        self.returned: list[Message] = []
        #: Messages in the store only.
        self.behind = 0
        #: Some of these may belong before messages of the window.
        self.mixed = False
        #: Seqs that are being read back, in order, and the sizes of their messages.
        self.reading: dict[int, int] = {}
        self._seqs = array("Q")
        self._sizes = array("Q")
        #: Index of the first seq of the tail; it was not taken out.
        self._start = 0
        #: Seqs of the tail that were taken out of its middle.
        self._gone: set[int] = set()

    # --- in memory

    def sort(self, sorts: bool) -> None:
        """Have messages taken out of the middle quickly, or no longer.

        Those of the window are moved.
        """
        if sorts and self._sorted is None:
            self.window = self._sorted = SortedWindow(self._deque)
            self._deque = deque()
        elif not sorts and self._sorted is not None:
            self.window = self._deque = deque(self._sorted)
            self._sorted = None

    def return_messages(self, messages: Sequence[Message]) -> None:
        """These, in any order, are in memory, in the places that their seqs say."""
        returned = self.returned
        if len(messages) < _MANY:
            for message in messages:
                insort(returned, message, key=_backwards)
        else:
            # Two runs in order, or nearly: that is what sorting is quick at.
            returned += reversed(messages)
            returned.sort(key=seq_of, reverse=True)

    def first(self) -> Message | None:
        """The first that is in memory."""
        returned, window = self.returned, self.window
        if returned and (not window or returned[-1].seq < window[0].seq):
            return returned[-1]
        return window[0] if window else None

    def last(self) -> int:
        """A number up to which all seqs that wait are; 0 if none does.

        Nothing of what comes later for the first time is below it.
        """
        ends = [self.window[-1].seq] if self.window else []
        if self.returned:
            ends.append(self.returned[0].seq)
        if len(self._seqs):
            ends.append(self._seqs[-1])
        return max([*ends, *self.reading], default=0)

    def in_memory(self, after: int = 0, before: int = BEYOND) -> Iterator[Message]:
        """Yield messages in memory with seqs between, in order.

        The caller must not change the lane meanwhile.
        """
        window, returned = self.window, self.returned
        parts: list[Iterator[Message]] = []
        if window and window[-1].seq > after:
            if self._sorted is not None:
                parts.append(self._sorted.after(after))
            else:
                parts.append(
                    islice(window, bisect_right(window, after, key=seq_of) if after else 0, None)
                )
        if returned and returned[0].seq > after:
            end = bisect_left(returned, -after, key=_backwards) if after else len(returned)
            parts.append(map(returned.__getitem__, range(end - 1, -1, -1)))
        for message in parts[0] if len(parts) == 1 else merge(*parts, key=seq_of):
            if message.seq >= before:
                return
            yield message

    def find(self, seq: int) -> Message | None:
        """Return a message that is in memory; it stays."""
        window, returned = self._deque, self.returned
        if self._sorted is not None and (found := self._sorted.find(seq)) is not None:
            return found
        index = bisect_left(window, seq, key=seq_of)
        if index < len(window) and window[index].seq == seq:
            return window[index]
        index = bisect_left(returned, -seq, key=_backwards)
        return returned[index] if index < len(returned) and returned[index].seq == seq else None

    def before(self, seq: int) -> int:
        """Count the messages of this priority that are delivered before a seq."""
        returned = self.returned
        behind = sum([each < seq for each in self.reading])
        behind += bisect_left(self._seqs, seq, self._start) - self._start
        behind -= sum([each < seq for each in self._gone])
        later = bisect_left(returned, -seq + 1, key=_backwards)
        if self._sorted is not None:
            return self._sorted.before(seq) + len(returned) - later + behind
        return bisect_left(self._deque, seq, key=seq_of) + len(returned) - later + behind

    @property
    def count(self) -> int:
        """How many messages wait in it."""
        return len(self.window) + len(self.returned) + self.behind

    def pluck(self, seqs: Sequence[int]) -> list[Message]:
        """Take out of memory those of these that are there."""
        if len(seqs) < _MANY:
            return [message for seq in seqs if (message := self._pluck_one(seq)) is not None]
        wanted = set(seqs)
        found = [message for message in self.returned if message.seq in wanted]
        if found:
            self.returned = [message for message in self.returned if message.seq not in wanted]
        if self._sorted is not None:
            plucked = [self._sorted.pluck(seq) for seq in sorted(wanted)]
            return found + [message for message in plucked if message is not None]
        window, last = self._deque, max(wanted)
        # They are mostly close together. Turning the window costs next to nothing, as against going
        # through all of it.
        before = bisect_left(window, min(wanted), key=seq_of)
        window.rotate(-before)
        kept: list[Message] = []
        for _ in range(len(window) - before):
            if window[0].seq > last:
                break
            message = window.popleft()
            (found if message.seq in wanted else kept).append(message)
        window.extendleft(reversed(kept))
        window.rotate(before)
        return found

    def _pluck_one(self, seq: int) -> Message | None:
        window, returned = self._deque, self.returned
        if self._sorted is not None and (found := self._sorted.pluck(seq)) is not None:
            return found
        index = bisect_left(window, seq, key=seq_of)
        if index < len(window) and window[index].seq == seq:
            message = window[index]
            del window[index]
            return message
        index = bisect_left(returned, -seq, key=_backwards)
        if index < len(returned) and returned[index].seq == seq:
            return returned.pop(index)
        return None

    # --- in the store only

    def append(self, seq: int, size: int) -> None:
        """A message in the store, behind all others of this priority."""
        self._seqs.append(seq)
        self._sizes.append(size)
        self.behind += 1

    def return_stored(self, sizes: dict[int, int]) -> None:
        """Put messages, in the store only, back in the places of their seqs.

        :param sizes: by seq.
        """
        again = [seq for seq in sizes if seq in self._gone]
        self._gone.difference_update(again)
        added = dict(sorted([(seq, size) for seq, size in sizes.items() if seq not in again]))
        if added:
            # Mostly they belong before all others of the tail: then nothing of that is looked at.
            seqs, tail = list(added), self._seqs
            start = bisect_left(tail, seqs[0], self._start)
            end = bisect_left(tail, seqs[-1], start)
            merged = dict(zip(tail[start:end], self._sizes[start:end], strict=True)) | added
            if end > start:
                merged = dict(sorted(merged.items()))
            self._seqs[start:end] = array("Q", merged)
            self._sizes[start:end] = array("Q", merged.values())
        self.behind += len(sizes)
        self.mixed = True

    def first_behind(self, after: int = 0) -> int:
        """Find the first seq above ``after`` that is in the store only.

        :returns: 0 when there is no such seq.
        """
        if not self.behind:
            return 0
        reading = 0
        for seq in self.reading:
            if seq > after:
                reading = seq
                break
        if reading and not self.mixed:
            return reading
        seqs, gone = self._seqs, self._gone
        for index in range(
            bisect_right(seqs, after, self._start) if after else self._start, len(seqs)
        ):
            if seqs[index] not in gone:
                return min(reading or BEYOND, seqs[index])
        return reading

    def is_behind(self, seq: int) -> bool:
        """Whether this message is in the store only."""
        return seq in self.reading or self._index(seq) is not None

    def size_of(self, seq: int) -> int | None:
        """Return the size of a message; None when it is not here."""
        message = self.find(seq)
        if message is not None:
            return message.size
        size = self.reading.get(seq)
        if size is None and (index := self._index(seq)) is not None:
            return self._sizes[index]
        return size

    def blocked(self) -> bool:
        """Whether the next to be delivered is in the store only."""
        if not self.behind:
            return False
        first = self.first()
        return first is None or first.seq > self.first_behind()

    def between(self, after: int, before: int, most: int, octets: int) -> list[int]:
        """Return seqs of the tail between two seqs, in order.

        There are at most ``most``, and they have at most ``octets`` unless the first alone has
        more.
        """
        seqs, sizes, gone = self._seqs, self._sizes, self._gone
        found: list[int] = []
        for index in range(bisect_right(seqs, after, self._start), len(seqs)):
            seq = seqs[index]
            if seq in gone:
                continue
            octets -= sizes[index]
            if seq >= before or len(found) >= most or (octets < 0 and found):
                break
            found.append(seq)
        return found

    def read(self, most: int, octets: int, excess: int = 0) -> list[int]:
        """Mark the first seqs of the tail as being read back.

        They are bounded as in :meth:`between`.

        :param excess: octets beside its size for each.
        """
        seqs, sizes, gone = self._seqs, self._sizes, self._gone
        asked: list[int] = []
        index = self._start
        while index < len(seqs) and len(asked) < most:
            seq, size = seqs[index], sizes[index]
            if seq in gone:
                gone.discard(seq)
            else:
                octets -= size + excess
                if octets < 0 and asked:
                    break
                asked.append(seq)
                self.reading[seq] = size
            index += 1
        self._start = index
        self._trim()
        return asked

    def unread(self) -> None:
        """Put back the seqs that were to be read and did not come."""
        if self.reading:
            self._seqs = array("Q", self.reading) + self._seqs[self._start :]
            self._sizes = array("Q", self.reading.values()) + self._sizes[self._start :]
            self._start = 0
            self.reading.clear()

    def pluck_behind(self, seq: int) -> int | None:
        """Take out a message that is in the store only.

        :returns: its size; None when it is not here, or in memory.
        """
        size = self.reading.pop(seq, None)
        if size is None:
            index = self._index(seq)
            if index is None:
                return None
            size = self._sizes[index]
            self._gone.add(seq)
            self._trim()
        self.behind -= 1
        return size

    def seqs_behind(self) -> array[int]:
        """All seqs whose messages are in the store only."""
        rest = self._seqs[self._start :]
        if self._gone:
            rest = array("Q", [seq for seq in rest if seq not in self._gone])
        return array("Q", self.reading) + rest

    def take_some(self, most: int) -> tuple[list[Message], dict[int, int], int]:
        """Take out up to ``most`` messages, from memory and from the store.

        After the first call, the lane may be used for nothing else.

        :returns: whole messages, sizes by seq of those in the store only, and how many places it
            has looked at; fewer than ``most``: nothing is left.
        """
        window, returned, reading = self.window, self.returned, self.reading
        taken = [
            (returned.pop if returned else window.popleft)()
            for _ in range(min(most, len(returned) + len(window)))
        ]
        looked_at = len(taken)
        sizes = {seq: reading.pop(seq) for seq in list(islice(reading, most - looked_at))}
        looked_at += len(sizes)
        # From the end, so that the arrays shrink with what is left.
        begin = max(self._start, len(self._seqs) - (most - looked_at))
        for index in range(begin, len(self._seqs)):
            if self._seqs[index] not in self._gone:
                sizes[self._seqs[index]] = self._sizes[index]
        looked_at += len(self._seqs) - begin
        del self._seqs[begin:], self._sizes[begin:]
        return taken, sizes, looked_at

    def _index(self, seq: int) -> int | None:
        seqs = self._seqs
        index = bisect_left(seqs, seq, self._start)
        return index if index < len(seqs) and seqs[index] == seq and seq not in self._gone else None

    def _trim(self) -> None:
        """Drop what was read or taken out at the beginning of the tail."""
        seqs, gone = self._seqs, self._gone
        while gone and self._start < len(seqs) and seqs[self._start] in gone:
            gone.discard(seqs[self._start])
            self._start += 1
        if self._start and (self._start == len(seqs) or self._start >= _TRIM):
            del seqs[: self._start], self._sizes[: self._start]
            self._start = 0
        elif len(gone) > _GAPS and 2 * len(gone) > len(seqs) - self._start:
            # A first message that stays must not keep all that came and went behind it.
            kept = [index for index in range(self._start, len(seqs)) if seqs[index] not in gone]
            sizes = self._sizes
            self._seqs = array("Q", [seqs[index] for index in kept])
            self._sizes = array("Q", [sizes[index] for index in kept])
            self._start = 0
            gone.clear()
