"""Destinations, and one of them, in the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.admin.console.explained import Explained
from gateway.admin.console.view import ROWS, Paged, View, first_row
from gateway.admin.service.requests import AdminRequest
from gateway.broker.operator.paging import ORDERS, Paging, Wanted

#: Consumers of one destination that are shown.
_CONSUMERS: Final = 100


def destination_views(
    paging: Paging, explained: Explained, now_ms: Callable[[], int]
) -> Sequence[View]:
    """Return the views of destinations."""
    return [
        View("destinations", "Destinations", "destinations.html", partial(_all, paging)),
        View("destination", "", "destination.html", partial(_one, paging, explained, now_ms)),
    ]


async def _all(paging: Paging, asked: AdminRequest) -> Mapping[str, object]:
    order = asked.text("order", "messages")
    kind = asked.text("type")
    first = first_row(asked)
    page = await paging.destinations(
        Wanted(
            asked.text("text").strip(),
            kind if kind in ("queue", "topic") else "",
            order if order in ORDERS else "",
            asked.text("temporary") != "no",
            first,
            ROWS,
        )
    )
    return {
        "rows": page.rows,
        "paged": Paged(first, len(page.rows), page.matched, page.total),
        "order": order,
        "orders": ["name", *ORDERS],
    }


async def _one(
    paging: Paging, explained: Explained, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    kind, name = asked.needed("type"), asked.needed("name")
    destination = await paging.destination(kind, name)
    why = await explained.why(asked, "destination", type=kind, name=name)
    consumers, count = paging.consumers(kind, name, _CONSUMERS)
    return {
        "destination": destination,
        "why": why,
        "consumers": consumers,
        "consumer_count": count,
        "now_ms": now_ms(),
    }
