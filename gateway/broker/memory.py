"""How much memory waiting messages may take, over all destinations of a broker.

Owns one sum and its bound. Each backlog reports what it holds; beyond the bound, or beyond its own share, whole messages live in the
store only.
"""

from __future__ import annotations

from typing import Final

#: Octets that a message object, its strings and its numbers take beside its body.
OVERHEAD: Final = 512

_TOTAL: Final = 64 * 1024 * 1024
_SHARE: Final = 32 * 1024 * 1024
_LEAST: Final = 256 * 1024


class Memory:
    """The window of all backlogs together.

    :param total: octets for all of them. :param share: octets for one. :param least: octets that each may always have.
    """

    __slots__ = ("least", "share", "spilling", "total", "used")

    def __init__(self, total: int = _TOTAL, share: int = _SHARE, least: int = _LEAST) -> None:
        self.total = total
        self.share = share
        self.least = least
        #: Octets in all windows now.
        self.used = 0
        #: The store takes messages; while its disk is full, memory must do.
        self.spilling = True

    def full(self, own: int) -> bool:
        """Whether a backlog that holds ``own`` octets must not take more into memory."""
        return self.spilling and (own >= self.share or (self.used >= self.total and own >= self.least))

    def room(self, own: int) -> int:
        """Octets that a backlog that holds ``own`` octets should read back now; 0 while it has enough."""
        if self.used >= self.total:
            return self.least - own if own < self.least // 2 else 0
        return min(self.share - own, max(self.total - self.used, self.least)) if own < self.share // 2 else 0
