"""Which of the messages that wait in a queue is the last of its key.

A *last-value queue* names a property, and the value that a message has there is its key. Of the
messages that wait, the queue keeps one for each key, the newest; the others are *replaced*. What
has no key is kept as in any queue. Messages that consumers have are not looked at: one that comes
back is replaced then, where a newer one waits.

Newer is what was accepted later, so the order does not depend on where a message was meanwhile. The
newer one stays in its own place, behind what came before it.

Owns the keys, and which message was the last of each. Messages leave a queue by many ways, and none
of these tells: whether a message still waits is asked of the backlog each time. What replacing one
means is the queue's.

Facts of Artemis are from its documentation, "Last-Value Queues", and its ``LastValueQueue``: there,
too, a message that was handed out is replaced only when it comes back. The newer one takes the
place of the older one there, until a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.broker.core.delivery.groups import short_key
from gateway.broker.core.waiting.backlog import Backlog
from gateway.messaging.message import Message
from gateway.messaging.selector.fields import value_reader
from gateway.messaging.selector.nodes import Identifier
from gateway.messaging.values import text_of

#: Bytes that one key takes: its place in a dict, its text, and the place of its message.
ENTRY: Final = 384
#: Keys that are remembered beside those of messages that wait.
_SPARE: Final = 1_000


class LastOfKey:
    """Where the last message of a key is found, if it still waits."""

    __slots__ = ("expires", "id", "priority", "seq")

    def __init__(self, message: Message) -> None:
        self.seq: Final = message.seq
        self.priority: Final = message.headers.priority
        self.expires: Final = message.expires
        #: Its JMSMessageID.
        self.id: Final = message.message_id

    def expired(self, now_ms: int) -> bool:
        """Whether its time is over, also where no sweep has found it yet."""
        return 0 < self.expires <= now_ms


class LastValues:
    """The keys of one queue.

    :param name: of the property, or of a header, as selectors name it.
    :param count: told how many bytes more the keys take, or fewer.
    """

    def __init__(self, name: str, count: Callable[[int], None]) -> None:
        self.name: Final = name
        self._count: Final = count
        self._read: Final = value_reader(Identifier(name))
        self._last: dict[str, LastOfKey] = {}

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._last)

    def key_of(self, message: Message) -> str | None:
        """Return the key of a message; None where it has none.

        A number has the key that its text has, so that JMS and STOMP clients mean the same.
        """
        value = self._read(message.headers.properties, message)
        return None if value is None else short_key(text_of(value))

    def look_at(
        self, message: Message, backlog: Backlog, now_ms: int
    ) -> tuple[LastOfKey, LastOfKey] | None:
        """Look at a message that waits in the backlog and has not expired.

        :returns: where another of its key waits, the older of the two, which is to go, and the
            newer. One that has expired meanwhile is to go, whichever is older.
        """
        key = self.key_of(message)
        if key is None:
            return None
        other = self._last.get(key)
        if other is not None and other.seq == message.seq:
            return None
        this = LastOfKey(message)
        if other is None:
            self._add(key, this, backlog)
            return None
        if backlog.size_of(other.priority, other.seq) is None:
            self._last[key] = this
            return None
        if other.seq > this.seq and not other.expired(now_ms):
            return this, other
        self._last[key] = this
        return other, this

    def waiting_octets(self, key: str, backlog: Backlog) -> int | None:
        """Return the octets of the last message of a key; None if none waits."""
        last = self._last.get(key)
        return None if last is None else backlog.size_of(last.priority, last.seq)

    def clear(self) -> None:
        """Forget all keys."""
        self._count(-ENTRY * len(self._last))
        self._last = {}

    def _add(self, key: str, last: LastOfKey, backlog: Backlog) -> None:
        self._last[key] = last
        self._count(ENTRY)
        if len(self._last) > _SPARE + 2 * (backlog.waiting + backlog.pausing):
            waiting = {
                key: last
                for key, last in self._last.items()
                if backlog.size_of(last.priority, last.seq) is not None
            }
            self._count(ENTRY * (len(waiting) - len(self._last)))
            self._last = waiting


class Growth:
    """By how much a last-value queue grows by messages that are about to come.

    :ivar count: messages, and
    :ivar octets: theirs. One that replaces another adds what it is larger.
    """

    def __init__(self, values: LastValues, backlog: Backlog) -> None:
        self._values: Final = values
        self._backlog: Final = backlog
        self._coming: Final[dict[str, int]] = {}
        self.count = 0
        self.octets = 0

    def add(self, message: Message) -> None:
        """One more comes."""
        self.octets += message.size
        key = None if message.headers.scheduled else self._values.key_of(message)
        if key is None:
            self.count += 1
            return
        replaced = self._coming.get(key)
        if replaced is None:
            replaced = self._values.waiting_octets(key, self._backlog)
        if replaced is None:
            self.count += 1
        else:
            self.octets -= replaced
        self._coming[key] = message.size
