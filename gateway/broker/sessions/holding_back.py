"""What holds one sender back: destinations at their limits, a crowded or full disk, full memory,
and consumers that it outruns.

Owns which of them do, and who is told when none does any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.broker.core.physical import Physical
from gateway.broker.core.queue import PhysicalQueue

if TYPE_CHECKING:
    from gateway.broker.core.memory import Memory
    from gateway.broker.durability.commit import GroupCommit
    from gateway.broker.schedule import Schedule
    from gateway.messaging.turn import Turn

#: Milliseconds between two looks whether memory has room again.
_MOMENT_MS: Final = 50


class HoldingBack:
    """Of one session.

    :param waits_for_room: whether something that it has sent waits for room on the disk.
    :param released: called when no destination holds it back any more.
    """

    def __init__(
        self,
        turn: Turn,
        schedule: Schedule,
        commits: GroupCommit,
        memory: Memory,
        waits_for_room: Callable[[], bool],
        released: Callable[[], None],
    ) -> None:
        self._turn: Final = turn
        self._schedule: Final = schedule
        self._commits: Final = commits
        self._memory: Final = memory
        self._waits_for_room: Final = waits_for_room
        self._released: Final = released
        self.blocked: set[Physical] = set()
        #: The queue it sent to last, whose consumers it may outrun.
        self.fast: PhysicalQueue | None = None
        self._resume: list[Callable[[], None]] = []
        self._closed = False

    def writable(self) -> bool:
        """Whether nothing does."""
        return (
            not self.blocked
            and not self._commits.crowded()
            and not self._waits_for_room()
            and not self._memory.crowded()
            and not self._outruns()
        )

    def _outruns(self) -> bool:
        """Whether it sends faster than the consumers of its queue take; without any, nobody is
        outrun.
        """
        return (
            self.fast is not None
            and bool(self.fast.dispatch.consumers)
            and self.fast.dispatch.pace.outrun()
        )

    def on_writable(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once, when nothing does any more; never from inside this call, and not
        after :meth:`close`.
        """
        if self._closed:
            return
        if self.blocked:
            self._resume.append(resume)
        elif self._commits.crowded():
            self._commits.on_relief(lambda: self.on_writable(resume))
        elif self._waits_for_room():
            self._commits.on_room(lambda: self.on_writable(resume))
        elif self._memory.crowded():
            # Memory is counted at each message, and does not tell.
            self._schedule.after(_MOMENT_MS, lambda: self.on_writable(resume))
        elif self.fast is not None and self._outruns():
            self.fast.dispatch.pace.slow_down(resume)
        else:
            self._turn.dispatch(resume)

    def look(self, physical: Physical) -> None:
        """Something was sent there: it may be at its limit now."""
        if (
            physical.properties.bounded
            and physical.at_limit()
            and not (self._closed or physical.removed or physical in self.blocked)
        ):
            self.blocked.add(physical)
            physical.waiting_senders.append(self._unblock)

    def _unblock(self) -> None:
        """A destination that held this sender back has room again."""
        self.blocked = {
            physical for physical in self.blocked if physical.at_limit() and not physical.removed
        }
        for physical in self.blocked:
            if self._unblock not in physical.waiting_senders:
                physical.waiting_senders.append(self._unblock)
        if not self.blocked:
            self._released()
            resumed, self._resume = self._resume, []
            for resume in resumed:
                self.on_writable(resume)

    def close(self) -> None:
        """The session is closed."""
        for physical in self.blocked:
            if self._unblock in physical.waiting_senders:
                physical.waiting_senders.remove(self._unblock)
        self.blocked.clear()
        self._resume.clear()
        self._closed = True
