"""Connections, and one of them with its subscriptions, in the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gateway.admin.console.explained import Explained
from gateway.admin.console.view import ROWS, Paged, View, first_row
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.broker.operator.paging import Paging, Wanted


def connection_views(
    paging: Paging, routes: Routes, explained: Explained, now_ms: Callable[[], int]
) -> Sequence[View]:
    """Return the views of connections."""
    one = partial(_one, paging, routes, explained, now_ms)
    return [
        View("connections", "Connections", "connections.html", partial(_all, paging, now_ms)),
        View("connection", "", "connection.html", one),
    ]


async def _all(
    paging: Paging, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    first = first_row(asked)
    text = asked.text("text").strip() or asked.text("service")
    page = await paging.connections(Wanted(text, first=first, count=ROWS))
    return {
        "rows": page.rows,
        "paged": Paged(first, len(page.rows), page.matched, page.total),
        "now_ms": now_ms(),
        "text": text,
    }


async def _one(
    paging: Paging,
    routes: Routes,
    explained: Explained,
    now_ms: Callable[[], int],
    asked: AdminRequest,
) -> Mapping[str, object]:
    number = asked.number("id", 0, 1, 1 << 62)
    connection = paging.connection(number)
    if connection is None:
        raise Refused(f"there is no connection {number}: it may have ended", "")
    request = AdminRequest(asked.user, {"id": str(number)}, {}, asked.role)
    answer = await routes.perform("GET", "/v1/connection/subscriptions", request)
    return {
        "connection": connection,
        "subscriptions": answer["subscriptions"],
        "subscription_count": answer["count"],
        "why": await explained.why(asked, "connection", id=str(number)),
        "now_ms": now_ms(),
    }
