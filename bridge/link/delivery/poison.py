"""Finds the messages that a link's target refuses.

Sizes the next transaction so that such a message is alone in the end, and says when it is dead.

Where the target says which message it is, those before it are the next transaction, and it is one
by itself: one rollback. Else it is found by halving.

Owns that, and how often each message was refused alone; and which dead messages were buried though
their source has yet to forget them. Knows neither sources nor targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bridge.link.errors import BatchRefused, Refused
from bridge.link.transfer import CannotBeRead, Dead, Item
from bridge.xa.errors import RolledBack
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message, Unreadable

#: How often a message is tried alone. After as many refusals it is dead.
MOST: Final = 6

#: How many messages' refusals are remembered, the latest ones: a source may deliver them by turns.
KEPT: Final = 1000

#: How many ids of buried messages are kept. Some never come again: another consumer has the
#: message, or its transaction ended otherwise than was decided.
BURIED: Final = 10_000


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

        :param reason: why the one message will be dead.
        :param exception: what was said.
        :param bad: which of them it is, if the target said.
        :returns: how often the one message was refused by now. 0 where there were several: then
            those before the bad one are tried next, or a half of them.
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

    def blame(self, items: Sequence[Item], error: Refused | RolledBack) -> None:
        """Blame these messages for a refusal or a failed prepare.

        :param items: the whole transaction, which was rolled back.
        :raises BatchRefused: it is one message alone, and is to be tried again later.
        """
        reason = (
            BridgeDeadReason.SEND_FAILURE
            if isinstance(error, Refused)
            else BridgeDeadReason.COMMIT_FAILURE
        )
        messages = [item.received.message for item in items]
        times = self.refused(messages, reason, str(error.cause), _named(items, error))
        if 0 < times < MOST:
            raise BatchRefused(error.cause, times, MOST)

    def verdict(self, message: Message, destination: Destination | None) -> Dead | None:
        """Return why this message is dead; None where it is not.

        :param destination: the target's.
        """
        if not self.is_dead(message):
            return None
        _, reason, exception = self._suspects[message.message_id]
        return Dead(reason, exception, destination)

    def is_dead(self, message: Message) -> bool:
        """Whether this one has been refused as often as it may be."""
        suspect = self._suspects.get(message.message_id)
        return suspect is not None and suspect.times >= MOST

    def transferred(self) -> None:
        """Set the size of the next transaction after one was committed.

        It doubles, up to the configured size. Where the target named the bad message, the sizes
        planned for that come first: the bad message alone, then the configured size.
        """
        if self._next:
            self.limit, *rest = self._next
            self._next = tuple(rest)
        else:
            self.limit = min(self._size, self.limit * 2)
        # One without an id, by which another that has none could be told from it.
        self._suspects.pop("", None)


def _named(items: Sequence[Item], error: Refused | RolledBack) -> int | None:
    """Return which message the target named; None if it did not.

    The target counts what was sent to it.
    """
    if isinstance(error.cause, CannotBeRead):
        return next(
            (
                number
                for number, item in enumerate(items)
                if isinstance(item.received.message, Unreadable)
            ),
            None,
        )
    if not isinstance(error, Refused) or error.index is None:
        return None
    sent = [number for number, item in enumerate(items) if item.to_be_sent]
    return sent[error.index] if error.index < len(sent) else None


class Buried:
    """Dead messages in a queue that their source has yet to forget.

    They are not buried twice. One that is forgotten too early is in the queue twice, which is
    better than not at all.
    """

    def __init__(self) -> None:
        self._ids: Final[dict[str, None]] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, id: str) -> None:
        """Note a buried message. One without an id cannot be recognized."""
        if id:
            self._ids[id] = None
            if len(self._ids) > BURIED:
                del self._ids[next(iter(self._ids))]

    def discard(self, id: str) -> None:
        self._ids.pop(id, None)
