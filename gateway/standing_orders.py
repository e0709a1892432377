"""Where the orders about bridges are kept: beside the broker's messages.

Part of the composition: it joins :mod:`bridge.orders` with the instance's files, or with the store's
database, where the next owner of the broker finds them on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail, succeed

from bridge.orders import Orders, OrdersNotKept
from gateway.broker.store.interface import StoreError
from gateway.instance.layout import Layout, make_directory, replace
from gateway.reactor.deferreds import alone_on_thread, deferred

if TYPE_CHECKING:
    from gateway.broker.store.postgresql.connecting import Session
    from gateway.broker.store.postgresql.decisions import OwnerIdentity

_T = TypeVar("_T")


class OrdersInFiles:
    """In a file of each bridge's folder.

    Implements :class:`~bridge.orders.OrderStorage`.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout: Final = layout

    def read(self, bridge: str) -> Deferred[Orders]:
        path = self._layout.bridge_orders(bridge)
        try:
            return succeed(_loaded(path.read_text("utf-8")))
        except FileNotFoundError:
            return succeed({})
        except (OSError, ValueError) as error:
            return fail(OrdersNotKept(f"{path}: expected the orders of its operator: {error}"))

    def write(self, bridge: str, orders: Orders) -> Deferred[None]:
        path = self._layout.bridge_orders(bridge)
        try:
            make_directory(path.parent)
            replace(path, json.dumps(orders).encode())
        except OSError as error:
            return fail(OrdersNotKept(f"{path} cannot be written: {error.strerror or error}"))
        return succeed(None)


def read_orders(layout: Layout) -> dict[str, str]:
    """Return the orders in an instance's files by bridge, in JSON.

    :raises OSError: a file cannot be read.
    """
    return {path.parent.name: path.read_text("utf-8") for path in _files(layout)}


def write_orders(layout: Layout, orders: Mapping[str, str]) -> None:
    """Have an instance's files be these orders, and no others.

    :param orders: by bridge, in JSON.
    :raises OSError: a file cannot be written.
    """
    for path in _files(layout):
        if path.parent.name not in orders:
            path.unlink()
    for bridge, text in orders.items():
        path = layout.bridge_orders(bridge)
        make_directory(path.parent)
        replace(path, text.encode())


def _files(layout: Layout) -> list[Path]:
    return sorted(layout.bridges.glob("*/orders.json"))


class OrdersInDatabase:
    """In the broker's schema.

    Implements :class:`~bridge.orders.OrderStorage`.

    :param owner: of the broker.
    """

    def __init__(self, reactor: Any, owner: OwnerIdentity) -> None:
        # psycopg is an extra.
        from gateway.broker.store.postgresql.proven import ProvenSession

        self._reactor: Final = reactor
        self._turn: Final = DeferredLock()
        self._session: Final = ProvenSession(owner, "orders about bridges")

    @deferred
    async def read(self, bridge: str) -> Orders:
        def read(session: Session) -> Orders:
            rows = session.execute(
                "SELECT orders FROM bridge_orders WHERE bridge = %b", (bridge.encode(),)
            ).fetchall()
            return _loaded(rows[0][0]) if rows else {}

        return await self._on_thread(lambda: self._session.ask(read))

    @deferred
    async def write(self, bridge: str, orders: Orders) -> None:
        def write(session: Session) -> None:
            session.execute(
                "INSERT INTO bridge_orders VALUES (%b, %b) ON CONFLICT (bridge) DO UPDATE SET orders = excluded.orders",
                (bridge.encode(), json.dumps(orders)),
            )

        await self._on_thread(lambda: self._session.change(write))

    async def _on_thread(self, call: Callable[[], _T]) -> _T:
        def then_close() -> _T:
            try:
                return call()
            finally:
                # They are rare, and no session is to be there for them.
                self._session.close()

        try:
            return await alone_on_thread(self._reactor, self._turn, then_close)
        except (StoreError, ValueError) as error:
            raise OrdersNotKept(str(error)) from error


def _loaded(text: str) -> Orders:
    """:raises ValueError: they are no orders."""
    found = json.loads(text)
    if not isinstance(found, Mapping):
        raise ValueError("no mapping")
    return {str(name): str(order) for name, order in found.items()}
