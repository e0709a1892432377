"""What a backlog held when it was given up as a whole, to be gone through slice by slice while new
messages take its place.

Owns the messages from then on, and what they take of the memory. Nobody waits for them any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.broker.core.level import Level
from gateway.broker.core.memory import Memory
from gateway.messaging.message import Message


class Remains:
    """Messages of a backlog that is gone.

    :param waiting: how many there are, and :param octets: theirs.
    """

    __slots__ = ("_levels", "_memory", "octets", "waiting")

    def __init__(self, memory: Memory, levels: Sequence[Level], waiting: int, octets: int) -> None:
        self._memory: Final = memory
        self._levels: Final = list(levels)
        self.waiting = waiting
        self.octets = octets

    def take(self, most: int) -> tuple[list[Message], dict[int, int]]:
        """Some of it, in no order that matters; there may be more although both are empty, see
        :attr:`more`.

        :param most: messages to take, or places to look at that are empty. :returns: whole
            messages, and sizes by seq of those in the store only.
        """
        taken: list[Message] = []
        stored: dict[int, int] = {}
        while most > 0 and self._levels:
            messages, sizes, looked_at = self._levels[-1].give_up(most)
            if looked_at < most:
                self._levels.pop()
            most -= looked_at
            taken += messages
            stored |= sizes
        self.waiting -= len(taken) + len(stored)
        self._memory.behind -= len(stored)
        self._memory.used -= sum([message.weight for message in taken])
        return taken, stored

    @property
    def more(self) -> bool:
        """Whether anything may be left."""
        return bool(self._levels)
