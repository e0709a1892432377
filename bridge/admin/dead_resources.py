"""The built-in dead message queue as resources of the admin service.

Owns their form in JSON. What is done to the queue is :mod:`bridge.admin.dead`'s business.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from bridge.admin.dead import LISTED, DeadMessages, Tally
from bridge.admin.dead_originals import destination_of
from bridge.admin.requests import AdminRequest, Refused, Routes
from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from gateway.messaging.errors import InvalidSelector, ProviderUnavailable

_MOST: Final = 10**9
_MOST_LISTED: Final = 10_000


class DeadMessageResources:
    """The queue as resources of the admin service.

    =====================================================================  ==========================================================
    ``GET /v1/dead?selector=S&limit=N``                                    what is in it
    ``POST /v1/dead/replay`` ``{"selector", "to", "limit", "dry_run"}``    send again; ``to`` is ``queue:NAME`` or ``topic:NAME``
    ``POST /v1/dead/purge`` ``{"selector", "limit", "dry_run"}``           throw away
    =====================================================================  ==========================================================
    """

    def __init__(self, messages: DeadMessages) -> None:
        self._messages = messages

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/dead", self._list)
        routes.add("POST", "/v1/dead/replay", self._replay)
        routes.add("POST", "/v1/dead/purge", self._purge)

    async def _list(self, request: AdminRequest) -> dict[str, object]:
        limit = request.number("limit", LISTED, 1, _MOST_LISTED)
        messages, more = await _selected(self._messages.list(request.text("selector"), limit))
        return {"queue": BUILT_IN_DMQ_DESTINATION.name, "messages": messages, "more": more}

    async def _replay(self, request: AdminRequest) -> dict[str, object]:
        to, given = None, request.text("to")
        if given:
            to = destination_of(given)
            if to is None:
                raise Refused(f"{given!r} is no destination; expected queue:NAME or topic:NAME", "bad_request")
        selector, limit, dry_run = _parameters(request)
        return _told(await _selected(self._messages.replay(selector, to, limit, dry_run=dry_run)), dry_run)

    async def _purge(self, request: AdminRequest) -> dict[str, object]:
        selector, limit, dry_run = _parameters(request)
        return _told(await _selected(self._messages.purge(selector, limit, dry_run=dry_run)), dry_run)


def _parameters(request: AdminRequest) -> tuple[str, int, bool]:
    return request.text("selector"), request.number("limit", 0, 0, _MOST), request.flag("dry_run")


async def _selected(asked: Any) -> Any:
    try:
        return await asked
    except InvalidSelector as error:
        raise Refused(str(error), "selector") from None
    except ProviderUnavailable as error:
        raise Refused(str(error), "unavailable", HTTPStatus.SERVICE_UNAVAILABLE) from None


def _told(tally: Tally, dry_run: bool) -> dict[str, object]:
    return {
        "queue": BUILT_IN_DMQ_DESTINATION.name,
        "dry_run": dry_run,
        "matched": tally.matched,
        "done": tally.done,
        "left": tally.left,
        "gone": tally.gone,
        "reasons": tally.reasons,
    }
