"""Consumers that get no more until something is acknowledged.

A consumer gets more while what it has not acknowledged is less than what is left for all consumers.
So one that acknowledges nothing cannot have more than half, and there is always some left for the
others. A consumer that has nothing gets a message in any case, however large.

Owns who is held back, when to look again, and what the log says. What a consumer has is its own to
count.
"""

from __future__ import annotations

from typing import ClassVar, Final

from twisted.logger import Logger

from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.timing.schedule import Schedule

#: Milliseconds between two looks at those who are held back: memory is counted at each message, and
#: does not tell.
_MOMENT_MS: Final = 50
#: Milliseconds between two lines of the log.
_REPORT_MS: Final = 60_000


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
        if consumer.in_memory < self._memory.octets_left():
            return True
        if consumer not in self.held_back:
            self.held_back[consumer] = None
            self._report(consumer)
            if not self._looking:
                self._looking = True
                self._schedule.after(_MOMENT_MS, self._resume)
        return False

    def _resume(self) -> None:
        left = self._memory.octets_left()
        for consumer in [each for each in self.held_back if each.closed or each.in_memory < left]:
            del self.held_back[consumer]
            consumer.source.wake()
        self._looking = bool(self.held_back)
        if self._looking:
            self._schedule.after(_MOMENT_MS, self._resume)

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
            octets=consumer.in_memory,
        )

    def _speak_again(self) -> None:
        self._quiet = False
