"""How much memory the messages of a broker may take, over all destinations, consumers and links.

Owns the sums, and the bound on messages that wait. Each backlog reports what it holds; beyond the bound, or beyond its own share, whole messages live
in the store only. The bounds on the other sums are the process's, which are asked for by :attr:`Memory.left`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

#: Octets that a message object, its strings and its numbers take beside its body.
OVERHEAD: Final = 512
#: Octets that a backlog takes for a message that is in the store only: its seq and its size.
ENTRY: Final = 16

_TOTAL: Final = 64 * 1024 * 1024
_SHARE: Final = 32 * 1024 * 1024
_LEAST: Final = 256 * 1024


class Memory:
    """The window of all backlogs together.

    :param total: octets for all of them. :param share: octets for one. :param least: octets that each may have all the same.
    :param most: octets from which on not even that much: then what comes goes to the store, and is not read back before somebody wants it;
        where the store does not take what memory has no room for, senders are held back.
    """

    __slots__ = (
        "behind",
        "least",
        "left",
        "most",
        "press",
        "share",
        "spilling",
        "spills",
        "total",
        "transactions",
        "unacknowledged",
        "used",
    )

    def __init__(self, total: int = _TOTAL, share: int = _SHARE, least: int = _LEAST, most: int = sys.maxsize) -> None:
        self.total = total
        self.most = most
        self.share = share
        self.least = least
        #: Octets in all windows now.
        self.used = 0
        #: Messages in all backlogs that are in the store only.
        self.behind = 0
        #: The store takes messages; while its disk is full, memory must do.
        self.spilling = True
        #: There is a store that could.
        self.spills = True
        #: Octets of messages that consumers have and have not settled.
        self.unacknowledged = 0
        #: Octets of the open transactions and branches of users inside this process. Those of clients are counted where their frames are read.
        self.transactions = 0
        #: Returns how many octets more consumers may have; and is told that one was given its only message although there were none left.
        self.left: Callable[[], int] = _unbounded
        self.press: Callable[[], None] = _unheard

    @property
    def octets(self) -> int:
        """What all backlogs take of memory: the windows, and what they know of messages that are in the store only."""
        return self.used + ENTRY * self.behind

    @classmethod
    def within(cls, limit: int) -> Memory:
        """The usual window, or a smaller one where waiting messages may have no more than ``limit`` octets."""
        total = min(_TOTAL, limit // 2)
        return cls(total, min(_SHARE, total // 2), min(_LEAST, total // 4), limit)

    def crowded(self) -> bool:
        """Whether senders should wait: memory alone has what waits, and it is full."""
        return self.used > self.most and not (self.spills and self.spilling)

    def full(self, own: int) -> bool:
        """Whether a backlog that holds ``own`` octets must not take more into memory."""
        return self.spilling and (own >= self.share or (self.used >= self.total and own >= self.least) or self.used >= self.most)

    def room(self, own: int) -> int:
        """Octets that a backlog that holds ``own`` octets should read back now; 0 while it has enough."""
        if self.used >= self.total:
            return self.least - own if own < self.least // 2 else 0
        return min(self.share - own, max(self.total - self.used, self.least)) if own < self.share // 2 else 0


def _unbounded() -> int:
    return sys.maxsize


def _unheard() -> None:
    pass
