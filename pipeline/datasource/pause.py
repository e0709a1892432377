"""How long to wait for more messages before acknowledging what has come.

It is used with brokers that keep no window.

A broker may be silent because it waits for that, and then any longer wait is time lost. Or it has no more
for now: where messages come singly, there would be a piece for each, with its file, its syncs and
its ACK, unless it is waited for longer. What comes after an acknowledgement, and how soon, tells
one from the other.

Knows nothing of clients and clocks.
"""

from __future__ import annotations

from typing import Final

#: Seconds of silence that are enough where nothing else is known.
SHORTEST: Final = 0.02
#: Messages that are worth a piece, and its file.
_MANY: Final = 100


class Pause:
    """What one task has learnt on one connection.

    :param longest: seconds that it waits at most.
    :ivar seconds: that the broker must be silent now.
    """

    def __init__(self, longest: float) -> None:
        self.seconds = SHORTEST
        self._longest: Final = longest
        self._acknowledged = 0.0
        self._last = 0.0
        self._in_piece = 0
        #: Messages of the piece before; 0 for the first.
        self._before = 0
        #: Whether one that came soon after an acknowledgement has been taken for one that came by
        #: chance.
        self._by_chance = False

    def acknowledged(self, now: float) -> None:
        """Another piece begins, as the one before is acknowledged; or the first."""
        self._acknowledged = now
        self._before, self._in_piece = self._in_piece, 0

    def came(self, now: float, messages: int) -> None:
        """So many messages have come."""
        if self._in_piece:
            # It has not waited for an acknowledgement.
            self._by_chance = False
        elif self._before:
            self.seconds = min(self._next(now), self._longest)
        self._last = now
        self._in_piece += messages

    def _next(self, now: float) -> float:
        if now - self._acknowledged > SHORTEST:
            # It had no more, or is slow; then a longer pause is of use only where pieces are small.
            return self.seconds if self._before >= _MANY else 2 * self.seconds
        if self._before == 1 and not self._by_chance:
            # One that comes singly may come just then, and so each time. If that is so here, the
            # next comes within a pause of this length; else the broker waits again, and answers the
            # next acknowledgement as soon.
            self._by_chance = True
            return 2 * max(self.seconds, now - self._last)
        return SHORTEST
