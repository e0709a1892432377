"""Whether two sessions have one resource manager, as their providers know.

Owns what was answered: of each pair it is asked once, as links take the same two sessions for each of their transactions. The name of a resource manager
cannot tell, as one name may lead to several brokers.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import XAResource


class Sameness:
    """The pairs that were asked for, as long as their sessions are there."""

    def __init__(self) -> None:
        self._known: Final[WeakKeyDictionary[XAResource, WeakKeyDictionary[XAResource, bool]]] = WeakKeyDictionary()

    async def of(self, one: XAResource, other: XAResource) -> bool:
        """Whether they have the same. :param other: was asked something before. :returns: at once, if it is known."""
        known = self._known.setdefault(one, WeakKeyDictionary())
        same = known.get(other)
        if same is None:
            try:
                same = known[other] = await one.is_same_rm(other)
            except MessagingError:
                # Nobody knows, and two branches are always right.
                return False
        return same
