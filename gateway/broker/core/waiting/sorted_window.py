"""A window of messages out of whose middle any can be taken at once.

The window of a lane is a deque. In that, what is far from both ends takes long to be found, and longer
to be taken out: the time grows with the number of messages. A last-value queue takes messages out of
the middle all day, so its lanes have this one: runs of messages in a list. Finding one is two
searches, and taking it out moves no more than one run.

Owns the order of these messages, which is that of their seqs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from gateway.messaging.message import Message

#: Messages in one run, if not said.
_MOST: Final = 256


class Window(Protocol):
    """What a lane needs of its window for what all queues do; a deque has it."""

    def append(self, message: Message, /) -> None: ...

    def extend(self, messages: Iterable[Message], /) -> None: ...

    def popleft(self) -> Message: ...

    def __getitem__(self, index: int, /) -> Message: ...

    def __iter__(self) -> Iterator[Message]: ...

    def __len__(self) -> int: ...


def seq_of(message: Message) -> int:
    """The order of delivery within a priority."""
    return message.seq


def _first_of(run: list[Message]) -> int:
    return run[0].seq


class SortedWindow:
    """Messages in order.

    :param messages: to begin with, in order.
    :param most: messages in one run.
    """

    __slots__ = ("_count", "_most", "_runs")

    def __init__(self, messages: Iterable[Message] = (), most: int = _MOST) -> None:
        self._most: Final = most
        #: None is empty.
        self._runs: list[list[Message]] = []
        self._count = 0
        self.extend(messages)

    # --- as a deque

    def append(self, message: Message) -> None:
        """Add a message whose seq is above all others."""
        if self._runs and len(self._runs[-1]) < self._most:
            self._runs[-1].append(message)
        else:
            self._runs.append([message])
        self._count += 1

    def extend(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.append(message)

    def popleft(self) -> Message:
        """Take out the first. :raises IndexError: the window is empty."""
        first = self._runs[0]
        message = first.pop(0)
        if not first:
            del self._runs[0]
        self._count -= 1
        return message

    def __getitem__(self, index: int) -> Message:
        """Return the message at an end.

        :param index: 0 or -1.
        :raises IndexError: the window is empty.
        """
        return self._runs[index][index]

    def __iter__(self) -> Iterator[Message]:
        return self.after(0)

    def __len__(self) -> int:
        return self._count

    # --- by seq

    def after(self, seq: int) -> Iterator[Message]:
        """Yield the messages behind a seq."""
        if not self._runs:
            return
        at = self._run_of(seq)
        run = self._runs[at]
        for index in range(bisect_right(run, seq, key=seq_of), len(run)):
            yield run[index]
        for later in range(at + 1, len(self._runs)):
            yield from self._runs[later]

    def before(self, seq: int) -> int:
        """Count the messages before a seq."""
        if not self._runs:
            return 0
        at = self._run_of(seq)
        return sum([len(run) for run in self._runs[:at]]) + bisect_left(
            self._runs[at], seq, key=seq_of
        )

    def find(self, seq: int) -> Message | None:
        """Return a message; it stays."""
        if not self._runs:
            return None
        run = self._runs[self._run_of(seq)]
        index = bisect_left(run, seq, key=seq_of)
        return run[index] if index < len(run) and run[index].seq == seq else None

    def pluck(self, seq: int) -> Message | None:
        """Take out a message, if it is there."""
        if not self._runs:
            return None
        at = self._run_of(seq)
        run = self._runs[at]
        index = bisect_left(run, seq, key=seq_of)
        if index == len(run) or run[index].seq != seq:
            return None
        message = run.pop(index)
        self._count -= 1
        if not run:
            del self._runs[at]
        else:
            # Else there could be as many runs as messages.
            self._join(at)
            self._join(at - 1)
        return message

    def _run_of(self, seq: int) -> int:
        """Find the run that a seq would be in."""
        return max(bisect_right(self._runs, seq, key=_first_of) - 1, 0)

    def _join(self, at: int) -> None:
        """Make one of a run and the next, if both are short."""
        if 0 <= at < len(self._runs) - 1:
            run, following = self._runs[at], self._runs[at + 1]
            if len(run) + len(following) <= self._most // 2:
                run += following
                del self._runs[at + 1]
