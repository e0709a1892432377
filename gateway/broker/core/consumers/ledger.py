"""Outstanding deliveries of a consumer that acknowledges through a number.

Deliveries are numbered from 1 without gaps. A consumer that acknowledges single numbers has the
ledger of :mod:`gateway.messaging.inflight`: the two want different structures, and both must cost
next to nothing. Each can do the other's job, only slower.

Owns the numbers; what settling a message means is the caller's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NoReturn, TypeAlias

from gateway.messaging.errors import UnknownDelivery
from gateway.messaging.inflight import InFlight
from gateway.messaging.message import Message


class CumulativeLedger:
    """A run of messages from ``base`` on.

    Single ones taken out of its middle leave holes.
    """

    __slots__ = ("_base", "_holes", "_run")

    def __init__(self) -> None:
        self._run: deque[Message | None] = deque()
        self._base = 1
        self._holes = 0

    def __len__(self) -> int:
        return len(self._run) - self._holes

    def add(self, first: int, messages: Sequence[Message]) -> None:
        """Add deliveries ``first``, ``first + 1``, ...

        ``first`` follows the last added.
        """
        if not self._run:
            self._base = first
        self._run.extend(messages)

    def through(self, number: int) -> list[Message]:
        """Take out everything up to ``number``, in order.

        :raises UnknownDelivery: ``number`` is not outstanding.
        """
        run = self._run
        count = number - self._base + 1
        if not 0 < count <= len(run) or (self._holes and run[count - 1] is None):
            raise UnknownDelivery(number)
        pop = run.popleft
        self._base += count
        if not self._holes:
            return [pop() for _ in range(count)]  # type: ignore[misc]
        taken = [pop() for _ in range(count)]
        found = [message for message in taken if message is not None]
        self._holes -= count - len(found)
        self._trim()
        return found

    def take(self, numbers: Sequence[int]) -> list[Message]:
        """Take these out, all or none.

        :raises UnknownDelivery: for the first that is not outstanding.
        """
        run = self._run
        found: list[Message] = []
        for number in numbers:
            index = number - self._base
            message = run[index] if 0 <= index < len(run) else None
            if message is None:
                self._refuse(numbers)
            found.append(message)
        if len(numbers) > 1 and len(set(numbers)) != len(numbers):
            self._refuse(numbers)
        for number in numbers:
            run[number - self._base] = None
        self._holes += len(numbers)
        self._trim()
        return found

    def up_to(self, number: int) -> list[int]:
        """Return the outstanding numbers up to ``number``, in order."""
        return [
            self._base + index
            for index, message in enumerate(islice(self._run, max(0, number - self._base + 1)))
            if message is not None
        ]

    def first(self) -> Message | None:
        """The first that is outstanding."""
        return self._run[0] if self._run else None

    def messages(self) -> list[Message]:
        """All that are outstanding, in order."""
        return [message for message in self._run if message is not None]

    def restore(self, deliveries: Sequence[tuple[int, Message]]) -> None:
        """Put back what was taken, under the numbers it had."""
        if not deliveries:
            return
        lowest = min(number for number, _ in deliveries)
        highest = max(number for number, _ in deliveries)
        if not self._run:
            self._base = lowest
        while self._base > lowest:
            self._run.appendleft(None)
            self._base -= 1
            self._holes += 1
        while self._base + len(self._run) <= highest:
            self._run.append(None)
            self._holes += 1
        for number, message in deliveries:
            self._run[number - self._base] = message
            self._holes -= 1

    def clear(self) -> list[Message]:
        """Take everything out, in order."""
        found = [message for message in self._run if message is not None]
        self._base += len(self._run)
        self._run.clear()
        self._holes = 0
        return found

    def _refuse(self, numbers: Sequence[int]) -> NoReturn:
        """Raise for the first that is not outstanding, or was named before.

        :raises UnknownDelivery: always.
        """
        seen: set[int] = set()
        for number in numbers:
            index = number - self._base
            if number in seen or not 0 <= index < len(self._run) or self._run[index] is None:
                raise UnknownDelivery(number)
            seen.add(number)
        raise AssertionError("all are outstanding")

    def _trim(self) -> None:
        run = self._run
        while run and run[0] is None:
            run.popleft()
            self._base += 1
            self._holes -= 1


#: Outstanding deliveries of one consumer, in order.
Ledger: TypeAlias = CumulativeLedger | InFlight[Message]
