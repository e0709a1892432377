"""What a consumer was given and has not settled: delivery numbers, which its user knows, and keys,
which Java knows.

Owns the numbers. What settling means is the consumer's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from gateway.messaging.errors import UnknownDelivery
from gateway.messaging.message import Message


class Delivery(NamedTuple):
    """Something that was received. :param attempts: from 1."""

    key: int
    message: Message
    attempts: int


class Ledger:
    """Outstanding deliveries by number, in rising order."""

    def __init__(self) -> None:
        self._next = 1
        self._outstanding: dict[int, Delivery] = {}

    def __len__(self) -> int:
        return len(self._outstanding)

    def add(self, deliveries: Sequence[Delivery]) -> int:
        """Number these. :returns: the number of the first."""
        first = self._next
        self._next += len(deliveries)
        self._outstanding.update(zip(range(first, self._next), deliveries, strict=True))
        return first

    @property
    def next(self) -> int:
        """The number of the delivery that comes next."""
        return self._next

    def through(self, number: int) -> list[Delivery]:
        """Take out everything up to ``number``. :raises UnknownDelivery: ``number`` is not
        outstanding.
        """
        if number not in self._outstanding:
            raise UnknownDelivery(number)
        numbers = list(takewhile(lambda one: one <= number, self._outstanding))
        return [self._outstanding.pop(one) for one in numbers]

    def take(self, numbers: Sequence[int]) -> list[Delivery]:
        """Take these out, all or none. :raises UnknownDelivery: for the first that is not
        outstanding, or comes twice.
        """
        seen: set[int] = set()
        for number in numbers:
            if number not in self._outstanding or number in seen:
                raise UnknownDelivery(number)
            seen.add(number)
        return [self._outstanding.pop(number) for number in numbers]

    def clear(self) -> list[Delivery]:
        """Take everything out."""
        deliveries = list(self._outstanding.values())
        self._outstanding.clear()
        return deliveries
