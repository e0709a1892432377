"""Deliveries that a client has not settled: by number, and by message identifier for those who
acknowledge by that.

Owns the record that ACK and NACK are looked up in. The provider has its own of what that means to
the messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.messaging.message import Message


class Outstanding:
    """The unsettled deliveries of one subscription."""

    __slots__ = ("_first", "_index", "_messages")

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        #: No smaller number is outstanding. Known, not looked for: the front of a dict that shrinks
        #: there is slow to find.
        self._first = 1
        #: Number by message identifier; made when a client first acknowledges by that.
        self._index: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, number: int) -> bool:
        return number in self._messages

    def octets(self) -> int:
        """Roughly what their messages take in memory. Goes through all of them."""
        return sum([message.weight for message in self._messages.values()])

    def add(self, first: int, messages: Sequence[Message]) -> None:
        """Deliveries ``first``, ``first + 1`` and so on."""
        self._messages.update(zip(range(first, first + len(messages)), messages, strict=True))
        if self._index is not None:
            for number, message in enumerate(messages, first):
                self._index[message.message_id] = number

    def number_of(self, message_id: str) -> int | None:
        """The latest outstanding delivery of that message."""
        if self._index is None:
            self._index = {message.message_id: number for number, message in self._messages.items()}
        return self._index.get(message_id)

    def take(self, number: int) -> bool:
        """Settle one; False if it is not outstanding."""
        message = self._messages.pop(number, None)
        if message is None:
            return False
        self._forget(number, message)
        return True

    def through(self, number: int) -> list[int]:
        """Settle all up to ``number``; those it settled, in order. Deliveries must have been
        numbered in order.
        """
        taken = [each for each in range(self._first, number + 1) if self.take(each)]
        self._first = max(self._first, number + 1)
        return taken

    def up_to(self, number: int) -> list[int]:
        """Those outstanding up to ``number``, in order."""
        return [each for each in range(self._first, number + 1) if each in self._messages]

    def message(self, number: int) -> Message:
        """That delivery's message. :raises KeyError: not outstanding."""
        return self._messages[number]

    def restore(self, number: int, message: Message) -> None:
        """Make a settled delivery outstanding again."""
        self._messages[number] = message
        self._first = min(self._first, number)
        if self._index is not None:
            self._index.setdefault(message.message_id, number)

    def clear(self) -> int:
        """Forget them all: they were given back. Returns how many there were."""
        count = len(self._messages)
        self._messages.clear()
        self._index = None
        return count

    def _forget(self, number: int, message: Message) -> None:
        if self._index is not None and self._index.get(message.message_id) == number:
            del self._index[message.message_id]
