"""The ledger of a consumer's deliveries that are not settled.

Owns the numbers. What settling a delivery means is the consumer's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from gateway.messaging.errors import UnknownDelivery

T = TypeVar("T")


class InFlight(Generic[T]):
    """Unsettled deliveries by number.

    Numbers rise from 1; a consumer never uses one again.

    All ways to take deliveries out go through :meth:`pop`, so that a subclass can keep an index.

    :ivar next: the number of the delivery that comes next.
    """

    __slots__ = ("_first", "_open", "next")

    def __init__(self) -> None:
        self._open: dict[int, T] = {}
        #: No smaller number is in flight. Remembered, because the front of a dict that shrinks
        #: there is slow to find.
        self._first = 1
        self.next = 1

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, number: int) -> bool:
        return number in self._open

    def __getitem__(self, number: int) -> T:
        """Return a delivery, which stays in flight.

        :raises UnknownDelivery: it is not in flight.
        """
        try:
            return self._open[number]
        except KeyError:
            raise UnknownDelivery(number) from None

    def items(self) -> list[tuple[int, T]]:
        """Return the numbers and deliveries, in order."""
        return sorted(self._open.items(), key=_number_of)

    def add(self, first: int, deliveries: Sequence[T]) -> None:
        """Add the deliveries ``first``, ``first + 1`` and so on.

        They follow the last added.
        """
        self.next = first + len(deliveries)
        self._open.update(zip(range(first, self.next), deliveries, strict=True))

    def first(self) -> T | None:
        """The delivery in flight with the lowest number."""
        if not self._open:
            return None
        found = self._open.get(self._first)
        return self._open[min(self._open)] if found is None else found

    def messages(self) -> list[T]:
        """The deliveries in flight, in order."""
        return [delivery for _, delivery in self.items()]

    def up_to(self, number: int) -> list[int]:
        """Return the numbers in flight up to ``number``, in order."""
        open_ = self._open
        if number - self._first <= 2 * len(open_):
            return [each for each in range(self._first, number + 1) if each in open_]
        return sorted([each for each in open_ if each <= number])

    def pop(self, number: int) -> T:
        """Take one out. :raises UnknownDelivery: it is not in flight."""
        try:
            delivery = self._open.pop(number)
        except KeyError:
            raise UnknownDelivery(number) from None
        if number == self._first:
            self._first = number + 1
        return delivery

    def take(self, numbers: Sequence[int]) -> list[T]:
        """Take these out, all or none, in the order given.

        :raises UnknownDelivery: for the first that is not in flight, or comes twice.
        """
        if len(numbers) == 1:
            return [self.pop(numbers[0])]
        wanted = set(numbers)
        if len(wanted) < len(numbers) or not wanted <= self._open.keys():
            for number in numbers:
                if number not in self._open or number not in wanted:
                    raise UnknownDelivery(number)
                wanted.remove(number)
        return [self.pop(number) for number in numbers]

    def through(self, number: int) -> list[T]:
        """Take out everything up to ``number``, in order.

        :raises UnknownDelivery: ``number`` itself is not in flight.
        """
        if number not in self._open:
            raise UnknownDelivery(number)
        return [self.pop(each) for each in self.up_to(number)]

    def restore(self, deliveries: Sequence[tuple[int, T]]) -> None:
        """Put back what was taken, under the numbers it had."""
        self._open.update(deliveries)
        self._first = min([self._first, *[number for number, _ in deliveries]])

    def clear(self) -> list[T]:
        """Take everything out, in order."""
        deliveries = [delivery for _, delivery in self.items()]
        self._open.clear()
        self._first = self.next
        return deliveries


def _number_of(item: tuple[int, object]) -> int:
    return item[0]
