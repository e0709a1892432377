"""The dead message queues as resources of the admin service.

Owns their form in JSON, and which queue is meant. What is done to the queue is
:mod:`gateway.admin.service.dead`'s business.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, cast

from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from bridge.manager import UnknownBridge
from bridge.status import BridgeState
from gateway.admin.service.dead import LISTED, DeadMessages, Tally
from gateway.admin.service.dead_originals import destination_of
from gateway.admin.service.ports import Bridges, WithConnections
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidSelector, ProviderUnavailable

_MOST: Final = 10**9
_MOST_LISTED: Final = 10_000


class DeadMessageResources:
    """The queues as resources of the admin service.

    =====================================================================  ==========================================================
    ``GET /v1/dead?selector=S&limit=N``                                    what is in one
    ``POST /v1/dead/replay`` ``{"selector", "to", "limit", "dry_run"}``    send again; ``to`` is ``queue:NAME`` or ``topic:NAME``
    ``POST /v1/dead/purge`` ``{"selector", "limit", "dry_run"}``           throw away
    =====================================================================  ==========================================================

    It is the built-in one, unless ``bridge`` and ``dmq`` name a bridge and one of its dead message
    queues.
    """

    def __init__(self, messages: DeadMessages, bridges: Bridges) -> None:
        self._messages = messages
        self._bridges = bridges

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/dead", self._list)
        routes.add("POST", "/v1/dead/replay", self._replay)
        routes.add("POST", "/v1/dead/purge", self._purge)

    async def _list(self, request: AdminRequest) -> dict[str, object]:
        queue = self._queue(request)
        limit = request.number("limit", LISTED, 1, _MOST_LISTED)
        messages, more = await _selected(
            self._messages.list(request.text("selector"), limit, queue=queue)
        )
        return {"queue": queue.name, "messages": messages, "more": more}

    async def _replay(self, request: AdminRequest) -> dict[str, object]:
        queue = self._queue(request)
        to, given = None, request.text("to")
        if given:
            to = destination_of(given)
            if to is None:
                raise Refused(
                    f"{given!r} is no destination; expected queue:NAME or topic:NAME", "bad_request"
                )
        selector, limit, dry_run = _parameters(request)
        return _told(
            queue,
            await _selected(
                self._messages.replay(selector, to, limit, dry_run=dry_run, queue=queue)
            ),
            dry_run,
        )

    async def _purge(self, request: AdminRequest) -> dict[str, object]:
        queue = self._queue(request)
        selector, limit, dry_run = _parameters(request)
        return _told(
            queue,
            await _selected(self._messages.purge(selector, limit, dry_run=dry_run, queue=queue)),
            dry_run,
        )

    def _queue(self, request: AdminRequest) -> Destination:
        """Which is meant. :raises Refused: there is none of that name, or none that can be looked
        into from here.
        """
        name, bridge_name = request.text("dmq"), request.text("bridge")
        if not name and not bridge_name:
            return BUILT_IN_DMQ_DESTINATION
        if not name or not bridge_name:
            raise Refused(
                "a dead message queue is named by its bridge and its own name: give bridge and dmq",
                "bad_request",
            )
        try:
            bridge = self._bridges.find(bridge_name)
        except UnknownBridge as error:
            raise Refused(str(error), "BB4006", HTTPStatus.NOT_FOUND) from None
        dmqs = cast(WithConnections, bridge).dmqs() if hasattr(bridge, "dmqs") else ()
        found = next((each for each in dmqs if each.name == name), None)
        if found is None:
            known = (
                ": it is STOPPED, and its file is read when it starts"
                if bridge.state is BridgeState.STOPPED
                else ""
            )
            known = (
                known
                or f"; those that there are: {', '.join(each.name for each in dmqs) or 'none'}"
            )
            raise Refused(
                f"there is no dead message queue {name} in bridge {bridge_name}{known}",
                "no_dmq",
                HTTPStatus.NOT_FOUND,
            )
        what = f"dead message queue {name} of bridge {bridge_name} is {found.destination}"
        if not found.embedded:
            where = f"at the provider of connection-factory {found.connection_factory}"
            text = f"{what} {where}: only those at the broker of this instance can be looked into; ask that provider's own tools"
            raise Refused(text, "foreign_dmq", HTTPStatus.CONFLICT)
        queue = destination_of(found.destination)
        if queue is None or queue.kind is not Kind.QUEUE:
            raise Refused(
                f"{what}, and only a queue keeps what can be looked into",
                "not_a_queue",
                HTTPStatus.CONFLICT,
            )
        return queue


def _parameters(request: AdminRequest) -> tuple[str, int, bool]:
    return request.text("selector"), request.number("limit", 0, 0, _MOST), request.flag("dry_run")


async def _selected(asked: Any) -> Any:
    try:
        return await asked
    except InvalidSelector as error:
        raise Refused(str(error), "selector") from None
    except ProviderUnavailable as error:
        raise Refused(str(error), "unavailable", HTTPStatus.SERVICE_UNAVAILABLE) from None


def _told(queue: Destination, tally: Tally, dry_run: bool) -> dict[str, object]:
    return {
        "queue": queue.name,
        "dry_run": dry_run,
        "matched": tally.matched,
        "done": tally.done,
        "left": tally.left,
        "gone": tally.gone,
        "reasons": tally.reasons,
    }
