"""Flow control: what holds a sender back.

That is destinations at their limits, a store that is crowded, full or out of reach, full memory,
and consumers that it outruns.

Owns which of them hold one sender back, and when to look again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.properties.pause import Pause
from gateway.broker.timing.schedule import Schedule
from gateway.reactor.turn import Turn

#: Milliseconds between two looks at memory: it is counted at each message, and does not tell.
_MOMENT_MS: Final = 50


class Backpressure:
    """What holds the sender of one session back.

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
        self.blocked: set[PhysicalDestination] = set()
        #: Whether what it sent last is stored. Only then is it held back while too much waits for
        #: the disk.
        self.stores = True
        #: The queue it sent to last, whose consumers it may outrun.
        self.fast: PhysicalQueue | None = None
        self._resume: list[Callable[[], None]] = []
        self._closed = False

    def writable(self) -> bool:
        """Whether nothing holds the sender back."""
        return (
            not self._turn.suspended
            and not self.blocked
            and not self._crowds()
            and not self._waits_for_room()
            and not self._memory.senders_must_wait()
            and not self._outruns()
        )

    def reasons(self) -> list[str]:
        """Return what holds the sender back now, in words for operators."""
        found = [
            f"{physical} is {physical.pause.state}"
            if physical.pause & Pause.PRODUCERS
            else f"{physical} is at its limit"
            for physical in self.blocked
        ]
        for holds, why in (
            (self._turn.suspended, "the store cannot be reached"),
            (self._crowds(), "too much waits for the disk"),
            (self._waits_for_room(), "the disk is full"),
            (self._memory.senders_must_wait(), "the memory of waiting messages is full"),
            (self._outruns(), f"it sends faster than the consumers of {self.fast} take"),
        ):
            if holds:
                found.append(why)
        return found

    def _crowds(self) -> bool:
        """Whether it sends to the disk, for which too much waits already."""
        return self.stores and self._commits.crowded()

    def _outruns(self) -> bool:
        """Whether it sends faster than the consumers of its queue take.

        False for a queue without consumers.
        """
        return (
            self.fast is not None
            and bool(self.fast.dispatch.consumers)
            and self.fast.dispatch.pace.outrun()
        )

    def on_writable(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once, when nothing holds the sender back any more.

        Never from inside this call, and not after :meth:`close`.
        """
        if self._closed:
            return
        if self.blocked:
            self._resume.append(resume)
        elif self._crowds():
            self._commits.on_relief(lambda: self.on_writable(resume))
        elif self._waits_for_room():
            self._commits.on_room(lambda: self.on_writable(resume))
        elif self._memory.senders_must_wait():
            # Memory is counted at each message, and does not tell.
            self._schedule.after(_MOMENT_MS, lambda: self.on_writable(resume))
        elif self.fast is not None and self._outruns():
            self.fast.dispatch.pace.slow_down(resume)
        else:
            self._turn.deliver(resume)

    def look(self, physical: PhysicalDestination) -> None:
        """Something was sent there: it may be at its limit now."""
        if (
            (physical.properties.bounded or physical.pause)
            and physical.holds_senders
            and not (self._closed or physical.removed or physical in self.blocked)
        ):
            self.blocked.add(physical)
            physical.waiting_senders.append(self._unblock)

    def _unblock(self) -> None:
        """A destination that held this sender back has room again."""
        self.blocked = {
            physical for physical in self.blocked if physical.holds_senders and not physical.removed
        }
        for physical in self.blocked:
            if self._unblock not in physical.waiting_senders:
                physical.waiting_senders.append(self._unblock)
        if not self.withholds():
            self._released()
        if not self.blocked:
            resumed, self._resume = self._resume, []
            for resume in resumed:
                self.on_writable(resume)

    def withholds(self) -> bool:
        """Whether completions are to wait until a destination has room.

        Where a pause alone holds the sender back, nothing of what it holds was sent.
        """
        return any(physical.at_limit() for physical in self.blocked)

    def close(self) -> None:
        """The session is closed."""
        for physical in self.blocked:
            if self._unblock in physical.waiting_senders:
                physical.waiting_senders.remove(self._unblock)
        self.blocked.clear()
        self._resume.clear()
        self._closed = True
