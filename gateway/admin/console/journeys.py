"""A message's journey, and the search for messages, in the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from gateway.admin.console.view import ROWS, View
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.admin.service.search_resources import moment_of
from gateway.messaging.errors import MessagingError

#: Seconds that messages are searched for, or one message, for a page that is to be there within one.
_SEARCHED_S: Final = "0.7"
#: What the form of the search has.
_FIELDS: Final = ("destination", "selector", "from", "to")


def journey_views(routes: Routes, now_ms: Callable[[], int]) -> Sequence[View]:
    """Return the views of journeys and of the search."""
    # A search is made once, and does not follow what happens.
    return [
        View("search", "Search", "search.html", partial(_search, routes), 0),
        View("journey", "", "journey.html", partial(_journey, routes, now_ms), 15.0),
    ]


async def _search(routes: Routes, asked: AdminRequest) -> Mapping[str, object]:
    form = {name: asked.text(name).strip() for name in _FIELDS}
    found: Mapping[str, Any] | None = None
    problem = ""
    if asked.text("search"):
        query = {**form, "after": asked.text("after"), "limit": str(ROWS)}
        query["seconds"] = _SEARCHED_S
        try:
            found = await routes.perform(
                "GET", "/v1/messages/search", AdminRequest(asked.user, query, role=asked.role)
            )
        except (MessagingError, Refused) as error:
            # The form is shown with it, to be mended.
            problem = str(error)
    return {"form": form, "found": found, "problem": problem, "command": _command(asked, form)}


def _command(asked: AdminRequest, form: Mapping[str, str]) -> Sequence[str]:
    """Return the command that lists the same; none for several places."""
    name = form["destination"].removeprefix("queue:")
    if not name or name.startswith("topic:"):
        return ()
    try:
        bounds = (("from", ">="), ("to", "<="))
        terms = [
            f"JMSTimestamp {sign} {moment}"
            for field, sign in bounds
            for moment in (moment_of(asked, field),)
            if moment
        ]
    except Refused:
        return ()
    if form["selector"]:
        terms.append(f"({form['selector']})" if terms else form["selector"])
    selector = ("-selector", " AND ".join(terms)) if terms else ()
    return ["imqcmd", "list", "msg", "-t", "q", "-n", name, *selector]


async def _journey(
    routes: Routes, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    query = {"id": asked.needed("id").strip(), "seconds": _SEARCHED_S}
    request = AdminRequest(asked.user, query, role=asked.role)
    journey = await routes.perform("GET", "/v1/message/journey", request)
    return {"journey": journey, "now_ms": now_ms()}
