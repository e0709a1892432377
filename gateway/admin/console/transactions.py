"""Transactions in the console, and the safe ways out of those that wait.

Two kinds: the transactions of bridges' links, and the branches that this broker has prepared, for
bridges or for other coordinators. Owns which order makes sense in which state, and the sentence
that says what each order does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from bridge.xa.status import TransactionState
from gateway.admin.console import subjects
from gateway.admin.console.actions import Action
from gateway.admin.console.bridges import is_here
from gateway.admin.console.view import View
from gateway.admin.service.requests import AdminRequest, Routes

_OF_BRIDGE: Final = "/v1/transactions/<path:name>/<any(commit, rollback, forget):operation>"
_OF_BROKER: Final = "/v1/branches/<any(commit, rollback, forget):operation>"

#: What an order about a transaction of a bridge does, by its word.
_BRIDGE_ORDERS: Final = {
    "commit": (
        "Take what waits in transaction {id} of bridge {bridge} for committed, and stop waiting? For "
        "a broker that never comes back, or where the branch was committed by hand. If it comes back "
        "after more than a month or 2,000 other transactions, its half of the messages may be "
        "missing or double."
    ),
    "rollback": (
        "Roll back what waits in transaction {id} of bridge {bridge}, against the decision? The rest "
        "is committed already, so that its messages are lost if this is the target, and double if "
        "it is the source. The transaction is HEURISTIC then."
    ),
    "forget": (
        "Forget transaction {id} of bridge {bridge}, here and at its brokers? Do so when you have "
        "seen what became of its messages: after that nothing tells of it."
    ),
}
#: The same about a branch that this broker has prepared.
_BROKER_ORDERS: Final = {
    "commit": (
        "Commit branch {xid}, without its coordinator? What it has sent is delivered, and what it "
        "has acknowledged is gone. If the coordinator decides otherwise, the other side differs: "
        "messages are missing or double. Only where it does not come back."
    ),
    "rollback": (
        "Roll branch {xid} back, without its coordinator? What it has sent is thrown away, and what "
        "it has acknowledged is delivered again. If the coordinator decides otherwise, the other "
        "side differs: messages are missing or double. Only where it does not come back."
    ),
    "forget": (
        "Forget how branch {xid} was ended? Its coordinator, if it asks later, is not told that it "
        "was ended otherwise than it decided."
    ),
}
#: Orders that make sense, by the state of a bridge's transaction;
_BY_STATE: Final[Mapping[str, Sequence[str]]] = {
    TransactionState.WAITING: ("commit", "rollback"),
    TransactionState.HEURISTIC: ("forget",),
    TransactionState.FORGETTING: ("forget",),
}
#: of a branch.
_BY_BRANCH_STATE: Final[Mapping[str, Sequence[str]]] = {
    "PREPARED": ("commit", "rollback"),
    "HEURISTIC_COMMIT": ("forget",),
    "HEURISTIC_ROLLBACK": ("forget",),
}
_TITLES: Final = {"commit": "Commit", "rollback": "Roll back", "forget": "Forget"}


def _bridge_action(verb: str) -> Action:
    return Action(
        f"{verb}-transaction",
        _TITLES[verb],
        _BRIDGE_ORDERS[verb],
        "POST",
        _OF_BRIDGE,
        lambda given: [
            *("imqbridgemgr", verb, "transaction"),
            *("-bn", given["bridge"], "-tid", given["id"]),
        ],
        ("bridge", "id"),
        parts={"name": "bridge"},
        operation={"operation": verb},
        done=_became,
        danger=True,
        subject=subjects.transaction,
    )


def _broker_action(verb: str) -> Action:
    return Action(
        f"{verb}-txn",
        _TITLES[verb],
        _BROKER_ORDERS[verb],
        "POST",
        _OF_BROKER,
        lambda given: ["imqcmd", verb, "txn", "-n", given["xid"]],
        ("xid",),
        operation={"operation": verb},
        done=lambda answer: _ENDED[answer["operation"]],
        danger=True,
        subject=subjects.branch,
    )


_ENDED: Final = {
    "commit": "It is committed. It stays listed until its coordinator asks, or it is forgotten.",
    "rollback": "It is rolled back. It stays listed until its coordinator asks, or it is forgotten.",
    "forget": "It is forgotten.",
}


def _became(answer: Mapping[str, Any]) -> str:
    left = answer["transaction"]
    return "It is over." if left is None else f"It is {left['state']} now."


TRANSACTION_ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for verb in _TITLES
    for action in (_bridge_action(verb), _broker_action(verb))
}


def transaction_views(routes: Routes, now_ms: Callable[[], int]) -> Sequence[View]:
    """Return the view of transactions."""
    look = partial(_transactions, routes, now_ms)
    return [View("transactions", "Transactions", "transactions.html", look, 4.0)]


async def _transactions(
    routes: Routes, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    request = AdminRequest(asked.user, role=asked.role)
    found = await routes.perform("GET", "/v1/bridges", request)
    bridges = []
    for bridge in found["bridges"]:
        # What another broker owns has its transactions there.
        if bridge["type"] != "JMS" or not is_here(bridge, found):
            continue
        answer = await routes.perform(
            "GET", "/v1/transactions/<path:name>", request, name=bridge["name"]
        )
        bridges.append(answer)
    branches = await routes.perform("GET", "/v1/branches", request)
    return {
        "bridges": bridges,
        "branches": branches["branches"],
        "orders": _BY_STATE,
        "branch_orders": _BY_BRANCH_STATE,
        "now_ms": now_ms(),
    }
