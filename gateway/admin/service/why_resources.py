"""Why something is not delivered, as resources of the admin service.

Owns their form in JSON. What holds messages back, :mod:`gateway.admin.why` finds.

=====================================================  =============================================
``GET /v1/why/destination?type=T&name=N``              why messages of a destination wait
``GET /v1/why/message?id=ID``                          where a message is, and why
``GET /v1/why/connection?id=N``                        why a client receives nothing, or cannot send
``GET /v1/why/link?bridge=B&link=L``                   why a link moves nothing
=====================================================  =============================================

The answer has ``subject``; ``causes``, the likeliest first, each with ``kind``, ``sentence``,
``figures``, ``advice``, ``command``, ``since_ms`` (0 for unknown) and ``weight``; ``unknown``,
sentences about what cannot be known; and where a sample was taken of what waits, ``looked_at`` of
``waiting``. A process that stands by answers each with ``STANDBY``.
"""

from __future__ import annotations

from typing import Final

from gateway.admin.service.ownership_resources import Ownership
from gateway.admin.service.requests import AdminRequest, Routes
from gateway.admin.why.cause import Answer, Cause, CauseKind, command
from gateway.admin.why.explain import Explanations

_TYPES: Final = {"q": "queue", "t": "topic"}
_PATHS: Final = ("destination", "message", "connection", "link")


class WhyResources:
    """Explanations as resources."""

    def __init__(self, explanations: Explanations) -> None:
        self._explanations: Final = explanations

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/why/destination", self._destination)
        routes.add("GET", "/v1/why/message", self._message)
        routes.add("GET", "/v1/why/connection", self._connection)
        routes.add("GET", "/v1/why/link", self._link)

    async def _destination(self, request: AdminRequest) -> Answer:
        kind = request.needed("type")
        return await self._explanations.destination(_TYPES.get(kind, kind), request.needed("name"))

    async def _message(self, request: AdminRequest) -> Answer:
        return (await self._explanations.message(request.needed("id"))).why

    async def _connection(self, request: AdminRequest) -> Answer:
        request.needed("id")
        return await self._explanations.connection(request.number("id", 0, 1, 1 << 62))

    async def _link(self, request: AdminRequest) -> Answer:
        return await self._explanations.link(request.needed("bridge"), request.needed("link"))


class StandbyWhyResources:
    """The same of a process that stands by: the owner has what is asked about."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership: Final = ownership

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        for path in _PATHS:
            routes.add("GET", f"/v1/why/{path}", self._stands_by)

    async def _stands_by(self, request: AdminRequest) -> Answer:
        members = await self._ownership.members()
        owner = next((each for each in members if each.state == "OWNER"), None)
        here = next((each.broker for each in members if each.here), "")
        who = (
            "no process owns the broker now"
            if owner is None
            else f"{owner.node} owns the broker since {owner.since}"
        )
        return Answer(
            "Why nothing is delivered here",
            [
                Cause(
                    CauseKind.STANDBY,
                    f"This process stands by and serves no client: {who}.",
                    {"processes": len(members)},
                    "Ask the owner, or have this process own the broker:",
                    command("imqcmd", "takeover", "bkr", "-n", here)
                    if here
                    else command("imqcmd", "list", "bkr"),
                )
            ],
        )
