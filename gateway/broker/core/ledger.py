"""Outstanding deliveries of consumers: one ledger for each consumer.

Deliveries are numbered from 1 without gaps. Two ledgers, because acknowledging through a number and
acknowledging single numbers want different structures, and both must cost next to nothing. Each can
do the other's job, only slower.

Owns the numbers; what settling a message means is the caller's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NoReturn, TypeAlias

from gateway.messaging.errors import UnknownDelivery
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
                _refuse(numbers, self._is_open)
            found.append(message)
        if len(numbers) > 1 and len(set(numbers)) != len(numbers):
            _refuse(numbers, self._is_open)
        for number in numbers:
            run[number - self._base] = None
        self._holes += len(numbers)
        self._trim()
        return found

    def numbers_through(self, number: int) -> list[int]:
        """The outstanding numbers up to ``number``.

        :raises UnknownDelivery: ``number`` is not outstanding.
        """
        count = number - self._base + 1
        if not 0 < count <= len(self._run) or self._run[count - 1] is None:
            raise UnknownDelivery(number)
        return [
            self._base + index
            for index, message in enumerate(islice(self._run, count))
            if message is not None
        ]

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

    def _is_open(self, number: int) -> bool:
        index = number - self._base
        return 0 <= index < len(self._run) and self._run[index] is not None

    def _trim(self) -> None:
        run = self._run
        while run and run[0] is None:
            run.popleft()
            self._base += 1
            self._holes -= 1


class IndividualLedger:
    """Messages by number; otherwise as :class:`CumulativeLedger`."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Message] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, first: int, messages: Sequence[Message]) -> None:
        self._open.update(zip(range(first, first + len(messages)), messages, strict=True))

    def through(self, number: int) -> list[Message]:
        return self.take(self.numbers_through(number))

    def take(self, numbers: Sequence[int]) -> list[Message]:
        pop = self._open.pop
        if len(numbers) == 1:
            message = pop(numbers[0], None)
            if message is None:
                raise UnknownDelivery(numbers[0])
            return [message]
        if not self._open.keys() >= set(numbers) or len(set(numbers)) != len(numbers):
            _refuse(numbers, self._open.__contains__)
        return [pop(number) for number in numbers]

    def numbers_through(self, number: int) -> list[int]:
        if number not in self._open:
            raise UnknownDelivery(number)
        return sorted(open_number for open_number in self._open if open_number <= number)

    def restore(self, deliveries: Sequence[tuple[int, Message]]) -> None:
        self._open.update(deliveries)

    def clear(self) -> list[Message]:
        found = [self._open[number] for number in sorted(self._open)]
        self._open.clear()
        return found


#: Outstanding deliveries of one consumer, in order.
Ledger: TypeAlias = CumulativeLedger | IndividualLedger


def _refuse(numbers: Sequence[int], is_open: Callable[[int], bool]) -> NoReturn:
    """Raise the error for the first number that cannot be taken.

    It is not outstanding, or was named before.

    :raises UnknownDelivery: always.
    """
    seen: set[int] = set()
    for number in numbers:
        if number in seen or not is_open(number):
            raise UnknownDelivery(number)
        seen.add(number)
    raise AssertionError("all are outstanding")
