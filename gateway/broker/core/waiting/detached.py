"""What waited in a place that is gone, until it is given up.

A place is a queue or a subscription. That may be a great deal, so it is taken some at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from gateway.broker.core.waiting.lane import PriorityLane
from gateway.broker.core.waiting.memory import Memory
from gateway.messaging.message import Message


class DetachedBacklog:
    """Messages of a backlog that is gone, also those that paused.

    :param waiting: how many there are without these, and
    :param octets: theirs.
    """

    __slots__ = ("_delayed", "_lanes", "_memory", "_resting", "octets", "waiting")

    def __init__(
        self,
        memory: Memory,
        lanes: Sequence[PriorityLane],
        delayed: dict[int, Message],
        resting: dict[int, int],
        waiting: int,
        octets: int,
    ) -> None:
        self._memory: Final = memory
        self._lanes: Final = list(lanes)
        self._delayed: Final = delayed
        self._resting: Final = resting
        self.waiting = waiting + len(delayed) + len(resting)
        self.octets = (
            octets + sum([message.size for message in delayed.values()]) + sum(resting.values())
        )

    def take(self, most: int) -> tuple[list[Message], dict[int, int]]:
        """Take some of the messages, in no particular order.

        Both results may be empty although there are more, see :attr:`more`.

        :param most: messages to take, or places to look at that are empty.
        :returns: whole messages, and sizes by seq of those in the store only.
        """
        taken: list[Message] = []
        stored: dict[int, int] = {}
        while most > 0 and self._lanes:
            messages, sizes, looked_at = self._lanes[-1].take_some(most)
            if looked_at < most:
                self._lanes.pop()
            most -= looked_at
            taken += messages
            stored |= sizes
        self._memory.behind -= len(stored)
        self._memory.used -= sum([message.weight for message in taken])
        for seq in list(islice(self._delayed, most)):
            taken.append(self._delayed.pop(seq))
            most -= 1
        for seq in list(islice(self._resting, most)):
            stored[seq] = self._resting.pop(seq)
        self.waiting -= len(taken) + len(stored)
        return taken, stored

    @property
    def more(self) -> bool:
        """Whether anything may be left."""
        return bool(self._lanes or self._delayed or self._resting)
