"""Bridges, their links and transactions as resources of the service.

Owns their form in JSON, and the rules of Open MQ's ``imqbridgemgr`` with the codes of its errors.
What an operation does, the bridges know; what an order about a transaction does, its coordinator.

==========================================================  ==================================================================
``GET /v1/bridges?type=T``                                  all, or those of a type, also those that other brokers own
``GET /v1/bridges/BRIDGE``                                  one, with its links, pools, shared connections and dead message queues
``POST /v1/bridges`` ``{"operation", "type"}``              start, stop, pause, resume all of a type; start and stop without one: all
``POST /v1/bridges/BRIDGE/OPERATION`` ``{"type"}``          start, stop, pause, resume one; a type must be its own
``POST /v1/bridges/BRIDGE/transfer`` ``{"to"}``             have another broker of the cluster own it, and wait until that runs it
``POST /v1/bridges/BRIDGE/reload``                          read its file again; the answer says what changed, and warnings
``GET /v1/bridges/BRIDGE/level``, ``PUT`` ``{"level"}``     the level of its log
``GET /v1/links/BRIDGE``, ``GET /v1/links/BRIDGE/LINK``     links with counters, rates, last error, next attempt
``POST /v1/links/BRIDGE/OPERATION`` ``{"link", "type"}``    start, stop, pause, resume one link
``GET /v1/transactions/BRIDGE``                             ``transactions``: those that are live, wait, or are heuristic
``POST /v1/transactions/BRIDGE/commit`` ``{"id"}``          take the branches that wait for committed
``POST /v1/transactions/BRIDGE/rollback`` ``{"id"}``        roll them back, against the decision
``POST /v1/transactions/BRIDGE/forget`` ``{"id"}``          forget one that is heuristic
==========================================================  ==================================================================

Links have the fields of :class:`~bridge.link.status.LinkStatus`, transactions those of
:mod:`bridge.xa.status` with ``age_ms``, and ``configured`` of a branch: whether the bridge's file
has its connection factory. An order answers with ``transaction``: what it is then, null where it is
listed no more. Times are epoch milliseconds.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from twisted.internet.defer import gatherResults
from twisted.logger import Logger

from bridge.link.errors import LinkFailed, LinkRefused
from bridge.link.status import BridgeState, LinkState
from bridge.manager import (
    Bridge,
    BridgeLink,
    BridgeServiceManager,
    NotInTime,
    Outcome,
    UnknownBridge,
    error_lines,
)
from bridge.orders import OrdersNotKept
from bridge.xa.errors import LogFailed, UnknownTransaction
from bridge.xa.status import TransactionState, TransactionStatus
from gateway.admin.service.requests import AdminRequest, Refused, Routes, plain, refusal
from gateway.instance.levels import ALIASES, LEVELS, Level
from gateway.instance.logs import Log

if TYPE_CHECKING:
    # Imported where there is such a bridge, as it takes its time.
    from bridge.jms_bridge import JMSBridge

OPERATIONS: Final = ("start", "stop", "pause", "resume")
#: Packages whose errors are sentences for operators.
_OURS: Final = ("bridge", "gateway", "certs")

#: States of transactions that call for an operator: decided and waiting, and ended otherwise than
#: decided.
COUNTED: Final[Mapping[str, tuple[TransactionState, ...]]] = {
    "waiting": (TransactionState.WAITING, TransactionState.IN_DOUBT),
    "heuristic": (TransactionState.HEURISTIC,),
}


def as_jms(bridge: Bridge) -> JMSBridge | None:
    """Return the bridge as one of type JMS.

    None where it is of another type, or could not be made.
    """
    return cast("JMSBridge", bridge) if hasattr(bridge, "coordinator") else None


def transactions_of(bridge: Bridge) -> Sequence[TransactionStatus]:
    """Return the bridge's transactions, the oldest first."""
    jms = as_jms(bridge)
    coordinator = None if jms is None else jms.coordinator
    return () if coordinator is None else coordinator.transactions()


async def looked(links: Sequence[BridgeLink]) -> None:
    """Have each link look at what waits at its source, all at once."""
    await gatherResults([link.look() for link in links])


@dataclass(frozen=True)
class ElsewhereOwned:
    """A JMS bridge that another broker of the cluster owns.

    :param broker: that broker's id.
    :param state: what it said of the bridge last; "" where it has not begun to run it.
    :param problem: why it could not start it, "" if it could.
    """

    name: str
    broker: str
    state: str
    problem: str


class BridgeOwnership(Protocol):
    """Who owns which JMS bridge, in a cluster of brokers."""

    @property
    def broker(self) -> str:
        """The id of the broker that was asked."""

    def elsewhere(self) -> Sequence[ElsewhereOwned]:
        """Return the bridges that other brokers own, as they were seen last."""

    async def transfer(self, name: str, to: str) -> ElsewhereOwned:
        """Give a bridge to another broker, and wait until that runs it.

        :param to: its id.
        :raises Refused: it cannot be given, and why.
        """


class BridgeResources:
    """Bridges, their links and their transactions as resources.

    :param ownership: of bridges in a cluster; None without one.
    :param log_of: finds the log of a bridge by its name; None where it is not open.
    :param log: gets defects.
    :param now_ms: the time, in epoch milliseconds.
    """

    def __init__(
        self,
        bridges: BridgeServiceManager,
        log_of: Callable[[str], Log | None],
        log: Logger,
        now_ms: Callable[[], int],
        ownership: BridgeOwnership | None = None,
    ) -> None:
        self._bridges = bridges
        self._ownership = ownership
        self._now_ms = now_ms
        self._log_of = log_of
        self._log = log

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        for method, path, answer in (
            # No bridge has a slash in its name, and who asks for one is told so as of any unknown name.
            ("GET", "/v1/bridges", self._list),
            ("POST", "/v1/bridges", self._operate_on_many),
            ("GET", "/v1/bridges/<path:name>", self._one),
            ("GET", "/v1/bridges/<path:name>/level", self._level),
            ("PUT", "/v1/bridges/<path:name>/level", self._set_level),
            ("POST", "/v1/bridges/<path:name>/reload", self._reload),
            ("POST", "/v1/bridges/<path:name>/transfer", self._transfer),
            (
                "POST",
                "/v1/bridges/<path:name>/<any(start, stop, pause, resume):operation>",
                self._operate,
            ),
            ("GET", "/v1/links/<path:name>", self._links),
            # Names of links may have slashes.
            ("GET", "/v1/links/<name>/<path:link>", self._link),
            (
                "POST",
                "/v1/links/<path:name>/<any(start, stop, pause, resume):operation>",
                self._operate_on_link,
            ),
            ("GET", "/v1/transactions/<path:name>", self._transactions),
            (
                "POST",
                "/v1/transactions/<path:name>/<any(commit, rollback, forget):operation>",
                self._order,
            ),
        ):
            routes.add(method, path, answer)

    # --- bridges

    def _list(self, request: AdminRequest) -> dict[str, object]:
        kind = request.text("type")
        found = [self._owned_json(bridge) for bridge in self._matching(None, kind)]
        if self._ownership is not None and kind.upper() in ("", "JMS"):
            found += [_elsewhere_json(owned) for owned in self._ownership.elsewhere()]
        return {"bridges": found}

    def _owned_json(self, bridge: Bridge) -> dict[str, object]:
        shown = _bridge_json(bridge)
        if self._ownership is not None:
            shown["owner"] = self._ownership.broker
        return shown

    async def _one(self, request: AdminRequest, name: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        await looked(bridge.links())
        shown = self._owned_json(bridge) | _with_links(bridge, bridge.links())
        if bridge.type == "JMS":
            jms = as_jms(bridge)
            shown["pools"] = () if jms is None else jms.pools()
            shown["shared"] = () if jms is None else jms.shared()
            shown["dmqs"] = () if jms is None else jms.dmqs()
        return shown

    async def _operate_on_many(self, request: AdminRequest) -> dict[str, object]:
        operation, kind = request.needed("operation"), request.text("type")
        if operation not in OPERATIONS:
            raise Refused(
                f"operation is {operation!r}; expected one of {', '.join(OPERATIONS)}",
                "bad_request",
            )
        if operation in ("pause", "resume") and not kind:
            raise Refused(
                f"to {operation} bridges, name one or give a type",
                "BB4008" if operation == "pause" else "BB4009",
            )
        return await self._operated(operation, None, kind)

    async def _operate(self, request: AdminRequest, name: str, operation: str) -> dict[str, object]:
        return await self._operated(operation, name, request.text("type"))

    async def _operated(self, operation: str, name: str | None, kind: str) -> dict[str, object]:
        # A wrong request is refused before anything is done.
        self._matching(name, kind)
        outcomes = await self._bridges.operate(operation, name, kind or None)
        refusals = [refused for refused in map(self._refusal_of, outcomes) if refused is not None]
        if refusals:
            done = [outcome.bridge.name for outcome in outcomes if outcome.error is None]
            text = "\n".join(refused.text for refused in refusals)
            also = f"\ndone for: {', '.join(done)}" if done else ""
            raise Refused(text + also, refusals[0].code, refusals[0].status)
        return {"bridges": [_bridge_json(outcome.bridge) for outcome in outcomes]}

    def _refusal_of(self, outcome: Outcome) -> Refused | None:
        error = outcome.error
        if error is None:
            return None
        known = refusal(error)
        code, status = (
            (known.code, known.status) if known is not None else ("failed", HTTPStatus.CONFLICT)
        )
        if isinstance(error, NotInTime):
            code, status = "not_in_time", HTTPStatus.GATEWAY_TIMEOUT
        elif known is None and type(error).__module__.split(".")[0] not in _OURS:
            incident = secrets.token_hex(4)
            self._log.error(
                "incident {incident}: {operation} bridge {name}: {error!r}",
                incident=incident,
                operation=outcome.operation,
                name=outcome.bridge.name,
                error=error,
            )
            text = f"bridge {outcome.bridge.name}: internal error, incident {incident}; the server's log has it"
            return Refused(text, "internal_error", HTTPStatus.INTERNAL_SERVER_ERROR)
        return Refused("\n".join(error_lines(outcome.bridge.name, known or error)), code, status)

    async def _reload(self, request: AdminRequest, name: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        changes = await self._bridges.reload(name)
        made = {*changes.added, *changes.changed}
        return {
            "bridge": name,
            "state": bridge.state.value,
            "changed": bool(changes),
            "changes": changes,
            "not_started_links": [link.name for link in _not_started(bridge) if link.name in made],
            "warnings": [str(warning) for warning in cast("JMSBridge", bridge).warnings],
        }

    async def _transfer(self, request: AdminRequest, name: str) -> dict[str, object]:
        to = request.needed("to")
        if self._ownership is None:
            raise Refused(
                "this broker is in no cluster: imq.cluster.clusterid and imq.persist.store=jdbc make it a part of one",
                "wrong_state",
                HTTPStatus.CONFLICT,
            )
        return _elsewhere_json(await self._ownership.transfer(name, to))

    def _matching(self, name: str | None, kind: str) -> list[Bridge]:
        try:
            return self._bridges.matching(name, kind or None)
        except UnknownBridge:
            for owned in () if self._ownership is None else self._ownership.elsewhere():
                if owned.name == name:
                    raise Refused(
                        f"broker {owned.broker} owns bridge {name}: ask it there",
                        "wrong_state",
                        HTTPStatus.CONFLICT,
                    ) from None
            raise

    # --- logs

    def _level(self, request: AdminRequest, name: str) -> dict[str, object]:
        return {"bridge": name, "level": self._open_log(name).level.name}

    def _set_level(self, request: AdminRequest, name: str) -> dict[str, object]:
        log = self._open_log(name)
        wanted = request.needed("level").upper()
        wanted = ALIASES.get(wanted, wanted)
        if wanted not in LEVELS:
            raise Refused(
                f"there is no level {wanted}; expected one of {', '.join(LEVELS)}", "bad_request"
            )
        before = log.level.name
        log.set_level(Level[wanted])
        return {"bridge": name, "level": wanted, "before": before}

    def _open_log(self, name: str) -> Log:
        self._matching(name, "")
        log = self._log_of(name)
        if log is None:
            raise Refused(
                f"bridge {name} has no log of its own: it could not be loaded",
                "no_log",
                HTTPStatus.CONFLICT,
            )
        return log

    # --- links

    async def _links(self, request: AdminRequest, name: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        await looked(bridge.links())
        return _with_links(bridge, bridge.links())

    async def _link(self, request: AdminRequest, name: str, link: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        found = _found(bridge, link)
        await looked([found])
        return _with_links(bridge, [found])

    async def _operate_on_link(
        self, request: AdminRequest, name: str, operation: str
    ) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        wanted = request.needed("link")
        if bridge.type == "STOMP":
            raise Refused(
                f"bridge {name} is of type STOMP, which has no links",
                "BSS4000",
                HTTPStatus.CONFLICT,
            )
        if bridge.state is not BridgeState.STARTED:
            text = f"cannot {operation} link {wanted}: bridge {name} is {bridge.state.value}, and must be {BridgeState.STARTED.value}"
            raise Refused(text, "BSJ4000", HTTPStatus.CONFLICT)
        link = _found(bridge, wanted)
        try:
            await self._bridges.operate_link(bridge, link, operation)
        except (LinkRefused, LinkFailed) as error:
            raise Refused(str(error), "link_failed", HTTPStatus.CONFLICT) from None
        except OrdersNotKept as error:
            raise Refused(
                f"done, and not kept for the next start: {error}",
                "not_kept",
                HTTPStatus.SERVICE_UNAVAILABLE,
            ) from None
        return _with_links(bridge, [link])

    # --- transactions

    def _transactions(self, request: AdminRequest, name: str) -> dict[str, object]:
        bridge = self._with_transactions(name)
        return {
            "bridge": name,
            "state": bridge.state.value,
            "transactions": [
                self._transaction_json(bridge, each) for each in transactions_of(bridge)
            ],
        }

    async def _order(self, request: AdminRequest, name: str, operation: str) -> dict[str, object]:
        bridge = self._with_transactions(name)
        wanted = request.needed("id")
        jms = as_jms(bridge)
        coordinator = None if jms is None else jms.coordinator
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
        except LogFailed as error:
            raise Refused(str(error), "log_failed", HTTPStatus.CONFLICT) from None
        id = _typed(wanted)
        left = next(
            (
                self._transaction_json(bridge, each)
                for each in transactions_of(bridge)
                if each.id == id
            ),
            None,
        )
        return {"bridge": name, "id": id, "operation": operation, "transaction": left}

    def _with_transactions(self, name: str) -> Bridge:
        [bridge] = self._matching(name, "")
        if bridge.type == "STOMP":
            raise Refused(
                f"bridge {name} is of type STOMP, which has no transactions to list",
                "BSS4000",
                HTTPStatus.CONFLICT,
            )
        return bridge

    def _transaction_json(
        self, bridge: Bridge, transaction: TransactionStatus
    ) -> dict[str, object]:
        config = cast("JMSBridge", bridge).config
        factories = () if config is None else config.connection_factories
        known = {factory.ref_name for factory in factories}
        shown = cast(dict[str, Any], plain(transaction))
        shown["age_ms"] = max(0, self._now_ms() - transaction.since_ms)
        for branch in shown["branches"]:
            branch["configured"] = branch["ref_name"] in known
        return shown


def _found(bridge: Bridge, name: str) -> BridgeLink:
    links = bridge.links()
    for link in links:
        if link.name == name:
            return link
    if links:
        known = f"; those that there are: {', '.join(link.name for link in links)}"
    elif bridge.state is BridgeState.STOPPED and bridge.type == "JMS":
        known = f": the bridge is {bridge.state.value}, and its file is read when it starts"
    else:
        known = ", nor any other"
    raise Refused(
        f"there is no link {name} in bridge {bridge.name}{known}", "BSJ4019", HTTPStatus.NOT_FOUND
    )


def _not_started(bridge: Bridge) -> list[BridgeLink]:
    """The links that are enabled, and yet neither STARTED nor STALLED."""
    statuses = [(link, link.status()) for link in bridge.links()]
    return [
        link
        for link, status in statuses
        if status.enabled and status.state not in (LinkState.STARTED, LinkState.STALLED)
    ]


def _bridge_json(bridge: Bridge) -> dict[str, object]:
    """Return a bridge in JSON.

    ``enabled_links`` is how many its file enables, 0 where it is stopped; ``transactions`` is how
    many call for an operator.
    """
    return {
        "name": bridge.name,
        "type": bridge.type,
        "state": bridge.state.value,
        "enabled_links": sum(link.status().enabled for link in bridge.links()),
        "not_started_links": [link.name for link in _not_started(bridge)],
        "transactions": _counted(transactions_of(bridge)),
        "problem": bridge.problem,
    }


def _elsewhere_json(owned: ElsewhereOwned) -> dict[str, object]:
    """Return a bridge of another broker in JSON.

    Of its links nothing is known here.
    """
    return {
        "name": owned.name,
        "type": "JMS",
        "state": owned.state,
        "enabled_links": 0,
        "not_started_links": [],
        "transactions": _counted(()),
        "problem": owned.problem,
        "owner": owned.broker,
    }


def _with_links(bridge: Bridge, links: Sequence[BridgeLink]) -> dict[str, object]:
    return {**_bridge_json(bridge), "links": [link.status() for link in links]}


def _counted(transactions: Sequence[TransactionStatus]) -> dict[str, int]:
    """Count those that call for an operator, by the words of :data:`COUNTED`."""
    states = [each.state for each in transactions]
    return {word: sum(state in wanted for state in states) for word, wanted in COUNTED.items()}


def _typed(id: str) -> str:
    """Return an id in the coordinator's form of what an operator types."""
    return id.strip().lower().lstrip("0")
