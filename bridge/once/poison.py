"""How large the next transaction of a link may be, after some have failed: a message that the target refuses is found by halving.

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
        #: What was wrong with it last.
        self.reason = BridgeDeadReason.SEND_FAILURE
        self.exception = ""

    def refused(self, messages: Sequence[Message], reason: BridgeDeadReason, exception: str) -> int:
        """A transaction of these was refused, which are at their source again.

        :param reason: why the one message will be dead. :param exception: what was said.
        :returns: how often the one message was by now, 0 where there were several: then a half of them is tried next.
        """
        if len(messages) > 1:
            self.limit = len(messages) // 2
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
        """A transaction was committed: the next may be twice as large."""
        self.limit = min(self._size, self.limit * 2)
