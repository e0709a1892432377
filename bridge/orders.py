"""What an operator said last of bridges and their links.

It is kept beyond the process: the next one, on this machine or on another, has a paused link paused
and a stopped one stopped. Owns what follows from each operation; where it is kept is
:class:`OrderStorage`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from twisted.internet.defer import Deferred, DeferredLock

from bridge.link.status import LinkState

#: Orders by the name of the link, that of the bridge itself under ``""``: ``PAUSED`` or
#: ``STOPPED``. What is not there is to run.
Orders = Mapping[str, str]

PAUSED: Final = LinkState.PAUSED.value
STOPPED: Final = LinkState.STOPPED.value
#: Under which the order about the bridge itself is.
ITSELF: Final = ""


class OrdersNotKept(Exception):
    """Orders cannot be read or written. ``str`` says why."""


class OrderStorage(Protocol):
    """Where orders are kept. Deferreds fail with :class:`OrdersNotKept`."""

    def read(self, bridge: str) -> Deferred[Orders]:
        """Return those about a bridge; empty for one that has none."""

    def write(self, bridge: str, orders: Orders) -> Deferred[None]:
        """Replace those about a bridge, durably."""


class StandingOrders:
    """The orders about the bridges of an instance.

    :param storage: where they are kept; None keeps none.
    """

    def __init__(self, storage: OrderStorage | None = None) -> None:
        self._storage: Final = storage
        self._known: Final[dict[str, Orders]] = {}
        self._turn: Final = DeferredLock()

    async def of(self, bridge: str) -> Orders:
        """Return those about a bridge.

        :raises OrdersNotKept: they cannot be read.
        """
        if self._storage is None:
            return {}
        if bridge not in self._known:
            self._known[bridge] = await self._storage.read(bridge)
        return self._known[bridge]

    async def note(self, bridge: str, operation: str, link: str = ITSELF) -> None:
        """Keep what an operator had done.

        :param operation: ``start``, ``stop``, ``pause`` or ``resume``.
        :param link: a link of it; else the bridge itself is meant.
        :raises OrdersNotKept: it cannot be kept.
        """
        if self._storage is None:
            return
        await self._turn.acquire()
        try:
            before = await self.of(bridge)
            orders = after(before, operation, link)
            if orders != before:
                # What is durable is not known if this fails.
                del self._known[bridge]
                await self._storage.write(bridge, orders)
                self._known[bridge] = orders
        finally:
            self._turn.release()

    def forget(self, bridge: str) -> None:
        """Read those about a bridge anew: it may be another broker's now."""
        self._known.pop(bridge, None)


def after(orders: Orders, operation: str, link: str = ITSELF) -> Orders:
    """Return the orders that stand after one more.

    To start a bridge starts all its links; to resume it resumes those that are paused.
    """
    others = {name: order for name, order in orders.items() if name != link}
    if operation == "pause":
        return {**others, link: PAUSED}
    if operation == "stop":
        return {**others, link: STOPPED} if link else {ITSELF: STOPPED}
    if link:
        return others
    if operation == "start":
        return {}
    return {name: order for name, order in others.items() if order != PAUSED}
