"""The embedded broker as resources of the admin service.

They are its destinations, durable subscriptions, connections, and the prepared branches of XA
transactions.

Owns their form in JSON. What an operation does, the broker knows.

=================================================================  ===========================================================
``GET /v1/broker``                                                 the broker as a whole
``GET /v1/destinations?type=T&temporary=true``                     ``destinations``: all, or those of a type
``GET /v1/destination?type=T&name=N``                              one
``POST /v1/destinations`` ``{"type", "name", "properties"}``       create
``PUT /v1/destination`` ``{"type", "name", "properties"}``         update; ``reset``: properties that get back their own values
``POST /v1/destination/purge`` ``{"type", "name", "selector"}``    purge; the answer has ``purged``, how many messages
``POST /v1/destination/pause`` ``{"type", "name", "pause"}``       pause for ``ALL``, ``CONSUMERS`` or ``PRODUCERS``
``POST /v1/destination/resume`` ``{"type", "name"}``               resume; without a name, this and the former are for all
``DELETE /v1/destination`` ``{"type", "name"}``                    destroy
``GET /v1/destination/destroyable?type=T&name=N``                  whether that would be refused now
``GET /v1/scheduled?type=T&name=N&limit=N``                        ``scheduled``: the first that are due, of ``count``
``DELETE /v1/scheduled`` ``{"job_id"}``                            remove one that is to be delivered later
``GET /v1/durables?topic=T``                                       ``durables``: all, or those to a topic or of a pattern
``DELETE /v1/durable`` ``{"name", "client_id"}``                   destroy
``GET /v1/connections?service=S``                                  ``connections``: all, or those of a service
``DELETE /v1/connection`` ``{"id"}``                               destroy
``GET /v1/branches``                                               ``branches``: those prepared, or completed by an administrator
``POST /v1/branches/commit`` ``{"xid"}``                           commit one
``POST /v1/branches/rollback`` ``{"xid"}``                         roll one back
``POST /v1/branches/forget`` ``{"xid"}``                           forget one that an administrator has completed
=================================================================  ===========================================================

Types are ``queue`` and ``topic``; ``q`` and ``t`` mean the same. Names are no part of a path, since
they may have slashes. Properties are texts by name: ``{"maxNumMsgs": "10"}``. What creates or
updates answers with the destination as it is then, and ``notes``: sentences about properties that
have no effect. A purge and a destroy with ``"use_dmq": true`` move what they give up to the dead
message queue. Times are epoch milliseconds, sizes octets. The fields of each kind are those of the
dataclasses in ``gateway/broker/operator/views.py``, of a branch those of ``BranchView``; one that a
bridge's coordinator has made has ``coordinator``, ``transaction`` and ``ref_name``, which are empty
of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from bridge.xa import xids
from gateway.admin.service.requests import AdminRequest, LongList, Refused, Routes, plain
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.operator.xa_administration import BranchAdministration, BranchView
from gateway.broker.properties.pause import TYPES as PAUSES
from gateway.broker.properties.pause import Pause
from gateway.messaging.provider import Xid

_TYPES: Final = {"q": "queue", "t": "topic"}
#: Scheduled messages that are listed.
_LISTED: Final = 100
_MOST_LISTED: Final = 10_000


class BrokerResources:
    """Destinations, subscriptions, connections and branches as resources.

    :param about: more fields of the broker as a whole, such as ``journal``.
    """

    def __init__(
        self,
        administration: BrokerAdministration,
        branches: BranchAdministration,
        about: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._broker = administration
        self._branches = branches
        self._about = about

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        for method, path, answer in (
            ("GET", "/v1/broker", self._whole),
            ("GET", "/v1/destinations", self._destinations),
            ("POST", "/v1/destinations", self._create),
            ("GET", "/v1/destination", self._destination),
            ("PUT", "/v1/destination", self._update),
            ("DELETE", "/v1/destination", self._destroy),
            ("GET", "/v1/destination/destroyable", self._destroyable),
            ("POST", "/v1/destination/purge", self._purge),
            ("POST", "/v1/destination/pause", self._pause),
            ("POST", "/v1/destination/resume", self._resume),
            ("GET", "/v1/scheduled", self._scheduled),
            ("DELETE", "/v1/scheduled", self._remove_scheduled),
            ("GET", "/v1/durables", self._durables),
            ("DELETE", "/v1/durable", self._destroy_durable),
            ("GET", "/v1/connections", self._connections),
            ("DELETE", "/v1/connection", self._destroy_connection),
            ("GET", "/v1/branches", self._prepared),
            ("POST", "/v1/branches/<any(commit, rollback, forget):operation>", self._order),
        ):
            routes.add(method, path, answer)

    async def _whole(self, request: AdminRequest) -> object:
        return {**_fields(await self._broker.broker()), **self._about()}

    # --- destinations

    async def _destinations(self, request: AdminRequest) -> object:
        kind = request.text("type")
        listed = LongList("destinations")
        await self._broker.list_destinations(
            listed.add, _TYPES.get(kind, kind), request.flag("temporary")
        )
        return listed

    def _destination(self, request: AdminRequest) -> object:
        return self._broker.look(*_which(request))

    async def _create(self, request: AdminRequest) -> object:
        which = _which(request)
        notes = await self._broker.create(*which, _properties(request))
        return {**_fields(self._broker.destination(*which)), "notes": notes}

    async def _update(self, request: AdminRequest) -> object:
        which = _which(request)
        reset = None if "reset" not in request.body else request.texts("reset")
        notes = await self._broker.update(*which, _properties(request), reset)
        return {**_fields(self._broker.destination(*which)), "notes": notes}

    def _destroyable(self, request: AdminRequest) -> object:
        kind, name = _which(request)
        self._broker.destroyable(kind, name)
        return {"type": kind, "name": name}

    async def _purge(self, request: AdminRequest) -> object:
        kind, name = _which(request)
        purged = await self._broker.purge(
            kind, name, request.text("selector"), request.flag("use_dmq")
        )
        return {"type": kind, "name": name, "purged": purged}

    async def _pause(self, request: AdminRequest) -> object:
        given = request.text("pause") or "ALL"
        pause = PAUSES.get(given.upper())
        if pause is None:
            raise Refused(f"pause '{given}': expected {', '.join(PAUSES)}", "bad_request")
        return await self._set_pause(request, pause)

    async def _resume(self, request: AdminRequest) -> object:
        return await self._set_pause(request, Pause.NONE)

    async def _set_pause(self, request: AdminRequest, pause: Pause) -> object:
        if not request.text("name"):
            kind = request.text("type")
            return {"destinations": await self._broker.pause(_TYPES.get(kind, kind), "", pause)}
        which = _which(request)
        await self._broker.pause(*which, pause)
        return self._broker.destination(*which)

    async def _destroy(self, request: AdminRequest) -> object:
        kind, name = _which(request)
        await self._broker.destroy(kind, name, request.flag("use_dmq"))
        return {"type": kind, "name": name}

    async def _scheduled(self, request: AdminRequest) -> object:
        kind, name = _which(request)
        limit = request.number("limit", _LISTED, 1, _MOST_LISTED)
        found = await self._broker.scheduled.first(kind, name, limit)
        return {"scheduled": found, "count": self._broker.destination(kind, name).scheduled}

    async def _remove_scheduled(self, request: AdminRequest) -> object:
        job_id = request.needed("job_id")
        return {
            "job_id": job_id,
            "destination": await self._broker.scheduled.remove(job_id),
        }

    # --- durable subscriptions, connections

    def _durables(self, request: AdminRequest) -> object:
        return {"durables": self._broker.durables(request.text("topic"))}

    async def _destroy_durable(self, request: AdminRequest) -> object:
        name, client_id = request.needed("name"), request.needed("client_id")
        await self._broker.destroy_durable(name, client_id)
        return {"name": name, "client_id": client_id}

    async def _connections(self, request: AdminRequest) -> object:
        listed = LongList("connections")
        await self._broker.list_connections(listed.add, request.text("service"))
        return listed

    def _destroy_connection(self, request: AdminRequest) -> object:
        number = request.number("id", 0, 1, 1 << 62)
        self._broker.destroy_connection(number)
        return {"id": number}

    # --- prepared branches

    def _prepared(self, request: AdminRequest) -> object:
        return {"branches": [_branch_json(each) for each in self._branches.branches()]}

    async def _order(self, request: AdminRequest, operation: str) -> object:
        xid = request.needed("xid")
        orders = {
            "commit": self._branches.commit,
            "rollback": self._branches.rollback,
            "forget": self._branches.forget,
        }
        await orders[operation](xid)
        return {"xid": xid, "operation": operation}


def _which(request: AdminRequest) -> tuple[str, str]:
    kind = request.needed("type")
    return _TYPES.get(kind, kind), request.needed("name")


def _properties(request: AdminRequest) -> dict[str, str]:
    given = request.body.get("properties", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise Refused(
            'properties are no texts by name; expected such as {"maxNumMsgs": "10"}', "bad_request"
        )
    return dict(given)


def _fields(view: object) -> dict[str, object]:
    return cast(dict[str, object], plain(view))


def _branch_json(branch: BranchView) -> dict[str, object]:
    shown = _fields(branch)
    format_id, gtrid, bqual = branch.xid.split(".")
    xid = Xid(int(format_id, 16), bytes.fromhex(gtrid), bytes.fromhex(bqual))
    origin = xids.origin(xid)
    if origin is None:
        return {**shown, "coordinator": "", "transaction": "", "ref_name": ""}
    return {
        **shown,
        "coordinator": origin.name,
        "transaction": origin.unique.id,
        "ref_name": xids.ref_name(xids.without_padding(xid.bqual)) or "",
    }
