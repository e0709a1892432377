"""The share of the reactor's time that one link may take from others.

Owns the measuring. A link at full speed is one more user of the reactor, with a backlog of a
million messages where a client has one: without this it would halve what clients get. After it has
worked, it lets the reactor go round until the others have had :data:`OTHERS` times as much, or
until a round in which they want nothing; so a link alone goes as fast as it can.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.task import deferLater

#: How much time the others get for each unit of a link's; the store works for it, too, while the
#: reactor does something else.
OTHERS: Final = 20.0
#: Seconds of work after which it is asked at all: what one turn of the reactor may last.
TURN_S: Final = 0.003
#: Seconds of a round of the reactor in which almost nothing was wanted.
_IDLE_S: Final = 0.0003
#: Seconds that it waits for the others at most, whatever they do.
_LONGEST_S: Final = 0.2


class FairShare:
    """The share of one link.

    :param clock: the reactor.
    """

    def __init__(self, clock: Any) -> None:
        self._clock: Final = clock
        self._worked = 0.0

    def now(self) -> float:
        """The time, for :meth:`worked_since`."""
        now: float = self._clock.seconds()
        return now

    def worked_since(self, began: float) -> None:
        """The link has worked from then until now, and waited for nothing."""
        self._worked += self._clock.seconds() - began

    @property
    def due(self) -> bool:
        """Whether this has worked for long enough to speak of."""
        return self._worked >= TURN_S

    async def give(self) -> None:
        """Let the others have theirs, if it is :attr:`due`."""
        if not self.due:
            return
        left, self._worked = self._worked * OTHERS, 0.0
        now: float = self._clock.seconds()
        latest = now + _LONGEST_S
        while left > 0 and now < latest:
            await deferLater(self._clock, 0)
            before, now = now, self._clock.seconds()
            if now - before < _IDLE_S:
                break
            left -= now - before
