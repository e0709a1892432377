"""How large the next transaction of a link may be, after some have failed: so that a message that
the target refuses is alone in the end.

Where the target says which it is, those before it are the next transaction, and it is one by
itself: one rollback. Else it is found by halving.

Owns that, and how often each message was refused alone. Knows neither sources nor targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.message import Message

MOST: Final = 6
"""How often a message is tried alone; when it was refused as often it is dead."""

KEPT: Final = 1000
"""Of so many messages it is known how often they were refused alone: a source may give them out by
turns. Of more, those refused last are known.
"""


class _Suspect(NamedTuple):
    """How often one was refused alone, and what was wrong with it last."""

    times: int
    reason: BridgeDeadReason
    exception: str


class Poison:
    """What is suspect on one link.

    :param size: messages of a whole batch.
    """

    def __init__(self, size: int) -> None:
        self._size: Final = size
        #: Messages of the next transaction, at most.
        self.limit = size
        #: Those that were refused alone, by their ids, the last one last.
        self._suspects: Final[dict[str, _Suspect]] = {}
        #: What the limit is after the next success, and after the one behind that, where the target
        #: has named a message; else it doubles.
        self._next: tuple[int, ...] = ()

    def refused(
        self,
        messages: Sequence[Message],
        reason: BridgeDeadReason,
        exception: str,
        bad: int | None = None,
    ) -> int:
        """A transaction of these was refused, which are at their source again.

        :param reason: why the one message will be dead. :param exception: what was said. :param
            bad: which of them it is, if the target said.
        :returns: how often the one message was by now, 0 where there were several: then those
            before the bad one are tried next, or a half of them.
        """
        if len(messages) > 1:
            if bad is None:
                self.limit, self._next = len(messages) // 2, ()
            else:
                self.limit, *rest = (bad, 1, self._size) if bad else (1, self._size)
                self._next = tuple(rest)
            return 0
        self.limit = 1
        name = messages[0].message_id
        before = self._suspects.pop(name, None)
        times = 1 if before is None else before.times + 1
        self._suspects[name] = _Suspect(times, reason, exception)
        if len(self._suspects) > KEPT:
            del self._suspects[next(iter(self._suspects))]
        return times

    def is_dead(self, message: Message) -> bool:
        """Whether this one has been refused as often as it may be."""
        suspect = self._suspects.get(message.message_id)
        return suspect is not None and suspect.times >= MOST

    def cause(self, message: Message) -> tuple[BridgeDeadReason, str]:
        """Of one that is dead: why it is, and what was said last."""
        _, reason, exception = self._suspects[message.message_id]
        return reason, exception

    def transferred(self) -> None:
        """A transaction was committed: the next may be twice as large, or as large as ever where
        the target has named the bad one.
        """
        if self._next:
            self.limit, *rest = self._next
            self._next = tuple(rest)
        else:
            self.limit = min(self._size, self.limit * 2)
        # One without an id, by which another that has none could be told from it.
        self._suspects.pop("", None)
