"""How large the next transaction of a link may be, after some have failed: so that a message that the target refuses is alone in the end.

Where the target says which it is, those before it are the next transaction, and it is one by itself: one rollback. Else it is found by halving.

Owns that, and how often one message was refused alone. Knows neither sources nor targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.message import Message

MOST: Final = 6
"""How often a message is tried alone; when it was refused as often it is dead."""


class Poison:
    """What is suspect on one link.

    :param size: messages of a whole batch.
    """

    def __init__(self, size: int) -> None:
        self._size: Final = size
        #: Messages of the next transaction, at most.
        self.limit = size
        #: The message that was refused alone, by its id, and how often.
        self._suspect = ""
        self._times = 0
        #: What the limit is after the next success, and after the one behind that, where the target has named a message; else it doubles.
        self._next: tuple[int, ...] = ()
        #: What was wrong with it last.
        self.reason = BridgeDeadReason.SEND_FAILURE
        self.exception = ""

    def refused(self, messages: Sequence[Message], reason: BridgeDeadReason, exception: str, bad: int | None = None) -> int:
        """A transaction of these was refused, which are at their source again.

        :param reason: why the one message will be dead. :param exception: what was said. :param bad: which of them it is, if the target said.
        :returns: how often the one message was by now, 0 where there were several: then those before the bad one are tried next, or a half of them.
        """
        if len(messages) > 1:
            if bad is None:
                self.limit, self._next = len(messages) // 2, ()
            else:
                self.limit, *rest = (bad, 1, self._size) if bad else (1, self._size)
                self._next = tuple(rest)
            return 0
        self.limit = 1
        self.reason, self.exception = reason, exception
        message = messages[0].message_id
        self._times = self._times + 1 if message == self._suspect else 1
        self._suspect = message
        return self._times

    def is_dead(self, message: Message) -> bool:
        """Whether this one has been refused as often as it may be."""
        return self._times >= MOST and message.message_id == self._suspect

    def transferred(self) -> None:
        """A transaction was committed: the next may be twice as large, or as large as ever where the target has named the bad one."""
        if self._next:
            self.limit, *rest = self._next
            self._next = tuple(rest)
        else:
            self.limit = min(self._size, self.limit * 2)
        if not self._suspect:
            # It had no id, by which another that has none could be told from it.
            self._times = 0
