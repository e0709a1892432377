"""A queue that one consumer has for itself: exclusive consumers.

Where consumers of a queue ask to be exclusive, one of them gets all messages: that of the highest
priority, and of these the one that came first. The others wait. When it leaves, or one of a higher
priority comes, the next of them takes over; when the last has left, all consumers of
the queue share again.

What the one that has left has not settled comes first, in order, to the next. So that nothing
overtakes it, the next one gets nothing until all of that was settled or given back: also what an
open transaction has acknowledged, and what may still be acknowledged after UNSUBSCRIBE.

Owns who is the active one, and when another takes over. Handing out is
:mod:`gateway.broker.core.delivery.dispatch`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.messaging.message import Message


class Exclusive:
    """The exclusive consumers of one queue."""

    __slots__ = ("_handed", "_next", "active")

    def __init__(self) -> None:
        #: The one that gets all; None while the last one's messages are not settled.
        self.active: EmbeddedConsumer | None = None
        #: The others, by age.
        self._next: list[EmbeddedConsumer] = []
        #: What the active one, or the one that has left, has not settled: seqs.
        self._handed: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether no consumer is exclusive, and nothing of one is unsettled."""
        return self.active is None and not self._next and not self._handed

    @property
    def unsettled(self) -> int:
        """How many messages are unsettled: of the active, or of the last one."""
        return len(self._handed)

    @property
    def takers(self) -> list[EmbeddedConsumer]:
        """Those that messages may go to now: one, or none."""
        return [] if self.active is None else [self.active]

    def join(self, consumer: EmbeddedConsumer) -> None:
        """An exclusive consumer has come."""
        self._next.append(consumer)
        if self.active is not None and self.active.spec.priority < consumer.spec.priority:
            self._next.insert(0, self.active)
            self.active = None
        self._take_over()

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """A consumer receives no more, if it was an exclusive one."""
        if consumer is self.active:
            self.active = None
            self._take_over()
        elif consumer in self._next:
            self._next.remove(consumer)

    def hand(self, run: Sequence[Message]) -> None:
        """The active one is about to get these."""
        self._handed.update([message.seq for message in run])

    def back(self, messages: Sequence[Message]) -> bool:
        """These are with no consumer any more: settled, or given back.

        :returns: whether another takes over by that, or all.
        """
        self._handed.difference_update([message.seq for message in messages])
        if self.active is not None or self._handed:
            return False
        self._take_over()
        return True

    def _take_over(self) -> None:
        if self.active is None and self._next and not self._handed:
            # The first of them, where several have the highest.
            self.active = max(self._next, key=lambda consumer: consumer.spec.priority)
            self._next.remove(self.active)
