"""How long senders wait that outrun a queue's or subscription's consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.broker.core.waiting.backlog import Backlog
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.timing.schedule import Schedule
from gateway.reactor.turn import Turn

#: The parts of a backlog's share of memory at which senders are slowed, and resume.
_SLOW_DOWN: Final = 4
_RESUME: Final = 8
_MOMENT_MS: Final = 50
#: Octets that may come between two such moments.
_GRACE: Final = 1024 * 1024


class Pace:
    """Slows senders that outrun the consumers of one place.

    A sender is slowed when a part of the backlog's share of memory is full, until only a smaller
    part is: reading messages back from the store costs more than waiting does. It is slowed, not
    stopped, and not at all for consumers that take nothing.
    """

    def __init__(self, turn: Turn, schedule: Schedule, memory: Memory, backlog: Backlog) -> None:
        self._turn = turn
        self._schedule = schedule
        self._memory = memory
        self._backlog = backlog
        self._slowed: list[Callable[[], None]] = []
        self._until = 0
        self._handed = 0
        self._handed_before = -1
        self._stuck = False

    def outrun(self) -> bool:
        """Whether senders outrun the consumers, so that memory fills up."""
        return (
            not self._stuck
            and self._fuller_than(_SLOW_DOWN)
            and self._backlog.window_octets > self._until
        )

    def slow_down(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` when the consumers have caught up, or after a moment."""
        self._slowed.append(resume)
        if len(self._slowed) == 1:
            self._handed_before = self._handed
            self._schedule.after(_MOMENT_MS, self._moment_over)

    @property
    def slows(self) -> bool:
        """Whether it slows senders, or lets them go on for a moment."""
        return bool(self._until or self._slowed)

    def handed(self, count: int) -> None:
        """Count messages that consumers were given."""
        self._handed += count
        self._stuck = False

    def resume_senders(self) -> None:
        """Some were handed out: senders may go on if the consumers have caught up."""
        if (self._until or self._slowed) and not self._fuller_than(_RESUME):
            self._until = 0
            self._resume()

    def _moment_over(self) -> None:
        if self._slowed and self._handed == self._handed_before:
            self._stuck = True
        self._until = self._backlog.window_octets + _GRACE
        self._resume()

    def _fuller_than(self, part: int) -> bool:
        return self._backlog.window_octets > self._memory.share // part

    def _resume(self) -> None:
        self._slowed, resumed = [], self._slowed
        for resume in resumed:
            self._turn.deliver(resume)
