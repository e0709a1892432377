"""When messages of a backlog expire that are in the store only."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

#: Bits of a key for the priority, below those for the time.
_BITS: Final = 4
_PRIORITY: Final = (1 << _BITS) - 1
#: No key has room for a later time; clients may name any.
_LATEST: Final = (1 << (64 - _BITS)) - 1


class Expiries:
    """When messages expire that are in the store only, the earliest first.

    Each entry is a time in epoch milliseconds, a priority from 0 to 9, and a seq.

    A backlog may have millions of them, so this is a heap of two arrays and no tuples. Whether a
    message is still there its backlog knows.
    """

    __slots__ = ("_keys", "_seqs")

    def __init__(self) -> None:
        #: Time and priority of each, as a heap, and the seqs in the same places.
        self._keys = array("Q")
        self._seqs = array("Q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, expires: int, priority: int, seq: int) -> None:
        """Add a message; quick for one that expires after all others."""
        keys, seqs = self._keys, self._seqs
        key = max(1, min(expires, _LATEST)) << _BITS | priority
        place = len(keys)
        keys.append(key)
        seqs.append(seq)
        while place:
            above = (place - 1) >> 1
            if keys[above] <= key:
                break
            keys[place], seqs[place] = keys[above], seqs[above]
            place = above
        keys[place], seqs[place] = key, seq

    def take(self, now_ms: int) -> tuple[int, int, int] | None:
        """Take out the earliest if it has expired.

        :returns: its time, priority and seq.
        """
        keys, seqs = self._keys, self._seqs
        if not keys or keys[0] >> _BITS > now_ms:
            return None
        taken = keys[0] >> _BITS, keys[0] & _PRIORITY, seqs[0]
        key, seq = keys.pop(), seqs.pop()
        count = len(keys)
        if count:
            place, below = 0, 1
            while below < count:
                if below + 1 < count and keys[below + 1] < keys[below]:
                    below += 1
                if keys[below] >= key:
                    break
                keys[place], seqs[place] = keys[below], seqs[below]
                place, below = below, 2 * below + 1
            keys[place], seqs[place] = key, seq
        return taken

    def keep(self, is_there: Callable[[int, int], bool]) -> None:
        """Forget the messages that have left.

        :param is_there: tells by priority and seq whether a message is still there.
        """
        # In order, which is a heap, too.
        pairs = sorted(zip(self._keys, self._seqs, strict=True))
        kept = [(key, seq) for key, seq in pairs if is_there(key & _PRIORITY, seq)]
        self._keys = array("Q", [key for key, _ in kept])
        self._seqs = array("Q", [seq for _, seq in kept])
