"""The prepared branches of the embedded broker as resources of the admin service.

Owns their form in JSON, and whose they are as far as their ids tell. What an order does is the
broker's business.

===================================================  ==========================================================================
``GET /v1/branches``                                 ``branches``: those that are prepared, or were completed by an administrator
``POST /v1/branches/commit`` ``{"xid"}``             commit one
``POST /v1/branches/rollback`` ``{"xid"}``           roll one back
``POST /v1/branches/forget`` ``{"xid"}``             forget one that an administrator has completed
===================================================  ==========================================================================

The fields of a branch are those of ``BranchView`` in ``gateway/broker/xa/administration.py``;
of one that a bridge's coordinator has made there are ``coordinator``, ``transaction`` and
``ref_name`` besides, which are empty of others.
"""

from __future__ import annotations

from typing import Any, cast

from bridge.xa import xids
from gateway.admin.service.bridges import plain
from gateway.admin.service.broker_port import BranchAdministration
from gateway.admin.service.requests import AdminRequest, Routes
from gateway.messaging.provider import Xid


class BranchResources:
    """The resources. :param administration: what they are about."""

    def __init__(self, administration: BranchAdministration) -> None:
        self._branches = administration

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/branches", self._list)
        routes.add("POST", "/v1/branches/<any(commit, rollback, forget):operation>", self._order)

    def _list(self, request: AdminRequest) -> object:
        return {"branches": [_json(each) for each in self._branches.branches()]}

    async def _order(self, request: AdminRequest, operation: str) -> object:
        xid = request.needed("xid")
        orders = {
            "commit": self._branches.commit,
            "rollback": self._branches.rollback,
            "forget": self._branches.forget,
        }
        await orders[operation](xid)
        return {"xid": xid, "operation": operation}


def _json(standing: Any) -> dict[str, object]:
    shown = cast(dict[str, object], plain(standing))
    format_id, gtrid, bqual = standing.xid.split(".")
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
