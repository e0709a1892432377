"""The order in which logins are verified: fair between those who ask, and known ones first.

Owns that order. Knows nothing of passcodes.

Verifying a passcode is made to be slow, so whoever sends many wrong ones fills a queue. Two things keep it from being everybody's queue: each source has
a queue of its own, and these take turns; and sources that are known to log in have turns before all others, of which one in :data:`_SHARE` is given
away so that a new user can log in meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

#: Of so many turns, known sources leave one to the others.
_SHARE: Final = 4


class LoginQueue(Generic[T]):
    """What waits to be verified. Lengths of single queues are looked at only when there is no room.

    :param gone: whether an entry is not wanted any more; it is dropped when its turn comes.
    """

    def __init__(self, gone: Callable[[T], bool]) -> None:
        self._gone = gone
        #: By source, the one whose turn it is first; the known ones, and the others.
        self._known: dict[Hashable, deque[T]] = {}
        self._others: dict[Hashable, deque[T]] = {}
        self._turns = 0

    def put(self, entry: T, source: Hashable, *, known: bool) -> None:
        """It waits, behind others of its source."""
        (self._known if known else self._others).setdefault(source, deque()).append(entry)

    def take(self) -> T | None:
        """The one whose turn it is, or None."""
        while self._known or self._others:
            self._turns += 1
            first, second = self._known, self._others
            if self._turns % _SHARE == 0:
                first, second = second, first
            entry = _next(first or second)
            if not self._gone(entry):
                return entry
        return None

    def crowded_out(self, source: Hashable, *, known: bool) -> T | None:
        """Room for one more of a source, taken from the one that has the most waiting: what came last of that goes.

        A known source makes room among the others first.

        :returns: what has gone, or None: that would be what is to come.
        """
        queues = self._others if self._others else self._known
        if not queues or (not known and queues is self._known):
            return None
        most = max(queues, key=lambda each: len(queues[each]))
        mine = (self._known if known else self._others).get(source, ())
        if (queues is self._known) == known and len(queues[most]) <= len(mine) + 1:
            return None
        entry = queues[most].pop()
        if not queues[most]:
            del queues[most]
        return entry

    def clear(self) -> None:
        """Forget all that waits."""
        self._known.clear()
        self._others.clear()


def _next(queues: dict[Hashable, deque[T]]) -> T:
    source = next(iter(queues))
    queue = queues.pop(source)
    entry = queue.popleft()
    if queue:
        # Behind all others.
        queues[source] = queue
    return entry
