"""The STOMP bridge's listeners as resources of the service.

Operators call them services. Owns their form in JSON. What an operation does, the listeners know.

==================================================  ========================================================================
``GET /v1/services``                                ``services``: all
``POST /v1/services/pause`` ``{"service"}``         close one; its clients stay
``POST /v1/services/resume`` ``{"service"}``        open one that was paused, or could not be opened
``POST /v1/services/reload``                        read from the settings where to listen; the answer is that of the ``GET``
==================================================  ========================================================================

They have the fields of :class:`~gateway.stomp.open_listeners.ListenerView`, and ``connections``, how
many clients are connected that came by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

from gateway.admin.service.requests import AdminRequest, Routes
from gateway.stomp.open_listeners import UnknownListener
from gateway.stomp.service import StompService


class ListenerResources:
    """Listeners as resources.

    :param stomp: the STOMP bridge; None without one.
    :param read: has its listeners be those of the settings.
    """

    def __init__(
        self, stomp: StompService | None, read: Callable[[], Awaitable[None]] | None
    ) -> None:
        self._stomp: Final = stomp
        self._read: Final = read

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/services", self._all)
        routes.add("POST", "/v1/services/reload", self._reload)
        routes.add("POST", "/v1/services/<any(pause, resume):operation>", self._order)

    def _all(self, request: AdminRequest) -> dict[str, object]:
        return {"services": self._shown()}

    async def _reload(self, request: AdminRequest) -> dict[str, object]:
        if self._read is not None:
            await self._read()
        return self._all(request)

    async def _order(self, request: AdminRequest, operation: str) -> dict[str, object]:
        service = request.needed("service")
        if self._stomp is None:
            raise UnknownListener(service)
        listeners = self._stomp.listeners
        await (listeners.pause if operation == "pause" else listeners.resume)(service)
        return next(each for each in self._shown() if each["service"] == service)

    def _shown(self) -> list[dict[str, object]]:
        if self._stomp is None:
            return []
        there = Counter(client.service for client in self._stomp.clients)
        return [
            {**asdict(view), "connections": there[view.service]}
            for view in self._stomp.listeners.views()
        ]
