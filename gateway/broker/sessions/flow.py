"""Flow control: senders and consumers that are held back.

A sender is held back by destinations at their limits, a crowded or full disk, full memory, and
consumers that it outruns.

A consumer gets more while what it has not acknowledged is less than what is left for all consumers.
So one that acknowledges nothing cannot have more than half, and there is always some left for the
others. A consumer that has nothing gets a message in any case, however large.

Owns who is held back, when to look again, and what the log says. What a consumer has is its own to
count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from twisted.logger import Logger

from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.schedule import Schedule
from gateway.reactor.turn import Turn

#: Milliseconds between two looks at those who are held back: memory is counted at each message, and
#: does not tell.
_MOMENT_MS: Final = 50
#: Milliseconds between two lines of the log.
_REPORT_MS: Final = 60_000


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
        #: The queue it sent to last, whose consumers it may outrun.
        self.fast: PhysicalQueue | None = None
        self._resume: list[Callable[[], None]] = []
        self._closed = False

    def writable(self) -> bool:
        """Whether nothing holds the sender back."""
        return (
            not self.blocked
            and not self._commits.crowded()
            and not self._waits_for_room()
            and not self._memory.crowded()
            and not self._outruns()
        )

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
            self._turn.deliver(resume)

    def look(self, physical: PhysicalDestination) -> None:
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


class Unacknowledged:
    """The consumers of one broker that are held back."""

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, memory: Memory, schedule: Schedule) -> None:
        self._memory: Final = memory
        self._schedule: Final = schedule
        self.held_back: Final[dict[EmbeddedConsumer, None]] = {}
        self._looking = False
        self._quiet = False

    def may_have_more(self, consumer: EmbeddedConsumer) -> bool:
        """Whether there is memory for more deliveries.

        If there is not, the consumer gets them later.
        """
        if consumer.unsettled < self._memory.left():
            return True
        if consumer not in self.held_back:
            self.held_back[consumer] = None
            self._report(consumer)
            if not self._looking:
                self._looking = True
                self._schedule.after(_MOMENT_MS, self._look)
        return False

    def _look(self) -> None:
        left = self._memory.left()
        for consumer in [each for each in self.held_back if each.closed or each.unsettled < left]:
            del self.held_back[consumer]
            consumer.source.wake()
        self._looking = bool(self.held_back)
        if self._looking:
            self._schedule.after(_MOMENT_MS, self._look)

    def _report(self, consumer: EmbeddedConsumer) -> None:
        if self._quiet:
            return
        self._quiet = True
        self._schedule.after(_REPORT_MS, self._speak_again)
        origin, spec = consumer.origin, consumer.spec
        self._log.warn(
            "subscription '{name}' of user '{user}' from {address} has not acknowledged {count} messages of {source}, {octets} bytes in memory, "
            "and there is no room for more; it gets no more until it acknowledges some or others do (imq.memory.unacknowledged)",
            name=spec.durable_name or spec.name,
            user=origin.user,
            address=origin.address or "this process",
            count=consumer.outstanding,
            source=str(consumer.source),
            octets=consumer.unsettled,
        )

    def _speak_again(self) -> None:
        self._quiet = False
