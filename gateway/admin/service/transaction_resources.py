"""The transactions of the bridges' coordinators as resources of the admin service.

Owns their form in JSON, and how the orders of operators are refused. What an order does is the
coordinator's business.

============================================================  ================================================================
``GET /v1/transactions/BRIDGE``                               ``transactions``: those that are live, wait, or are heuristic
``POST /v1/transactions/BRIDGE/commit`` ``{"id"}``            take the branches that wait for committed
``POST /v1/transactions/BRIDGE/rollback`` ``{"id"}``          roll them back, against the decision
``POST /v1/transactions/BRIDGE/forget`` ``{"id"}``            forget one that is heuristic
============================================================  ================================================================

An order answers with ``transaction``: what it is then, null where it is listed no more. The fields
are those of :mod:`bridge.xa.status`, with ``age_ms``, and ``configured`` of a branch: whether the
bridge's file has its connection factory.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from bridge.manager import Bridge
from bridge.status import BridgeState
from bridge.xa.errors import LogFailed, UnknownTransaction, WrongState
from bridge.xa.status import TransactionStatus
from gateway.admin.service.bridges import matching, plain
from gateway.admin.service.ports import Bridges, WithTransactions
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.admin.service.transactions import coordinator_of, transactions_of


class TransactionResources:
    """The resources.

    :param bridges: those whose transactions they are. :param now_ms: the time, in epoch
        milliseconds.
    """

    def __init__(self, bridges: Bridges, now_ms: Callable[[], int]) -> None:
        self._bridges = bridges
        self._now_ms = now_ms

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/transactions/<name>", self._list)
        routes.add(
            "POST", "/v1/transactions/<name>/<any(commit, rollback, forget):operation>", self._order
        )

    def _list(self, request: AdminRequest, name: str) -> dict[str, object]:
        bridge = self._bridge(name)
        return {
            "bridge": name,
            "state": bridge.state.value,
            "transactions": [self._json(bridge, each) for each in transactions_of(bridge)],
        }

    async def _order(self, request: AdminRequest, name: str, operation: str) -> dict[str, object]:
        bridge = self._bridge(name)
        wanted = request.needed("id")
        coordinator = coordinator_of(bridge)
        try:
            if coordinator is None:
                if bridge.state is BridgeState.STOPPED:
                    text = f"cannot {operation} transaction {wanted}: bridge {name} is STOPPED, and its transaction log is read when it starts"
                    raise Refused(text, "wrong_state", HTTPStatus.CONFLICT)
                raise UnknownTransaction(wanted)
            orders = {
                "commit": coordinator.commit,
                "rollback": coordinator.rollback,
                "forget": coordinator.forget,
            }
            await orders[operation](wanted)
        except UnknownTransaction as error:
            raise Refused(str(error), "unknown_transaction", HTTPStatus.NOT_FOUND) from None
        except WrongState as error:
            raise Refused(str(error), "wrong_state", HTTPStatus.CONFLICT) from None
        except LogFailed as error:
            raise Refused(str(error), "log_failed", HTTPStatus.CONFLICT) from None
        id = _typed(wanted)
        left = next(
            (self._json(bridge, each) for each in transactions_of(bridge) if each.id == id), None
        )
        return {"bridge": name, "id": id, "operation": operation, "transaction": left}

    def _bridge(self, name: str) -> Bridge:
        [bridge] = matching(self._bridges, name)
        if bridge.type == "STOMP":
            raise Refused(
                f"bridge {name} is of type STOMP, which has no transactions to list",
                "BSS4000",
                HTTPStatus.CONFLICT,
            )
        return bridge

    def _json(self, bridge: Bridge, transaction: TransactionStatus) -> dict[str, object]:
        config = cast(WithTransactions, bridge).config
        known = (
            {factory.ref_name for factory in config.connection_factories}
            if config is not None
            else set()
        )
        shown = cast(dict[str, Any], plain(transaction))
        shown["age_ms"] = max(0, self._now_ms() - transaction.since_ms)
        for branch in shown["branches"]:
            branch["configured"] = branch["ref_name"] in known
        return shown


def _typed(id: str) -> str:
    """As the coordinator understands what an operator types."""
    return id.strip().lower().lstrip("0")
