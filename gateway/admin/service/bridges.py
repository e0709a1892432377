"""Bridges and links as resources of the admin service: what they are, and starting, stopping,
pausing, resuming and reloading them.

Owns their form in JSON, and the rules of Open MQ's ``imqbridgemgr`` with the codes of its errors.
What an operation does is the bridges' business.

==========================================================  ==================================================================
``GET /v1/bridges?type=T``                                  all, or those of a type
``GET /v1/bridges/BRIDGE``                                  one, with its links, pools, shared connections and dead message queues
``POST /v1/bridges`` ``{"operation", "type"}``              start, stop, pause, resume all of a type; start and stop without one: all
``POST /v1/bridges/BRIDGE/OPERATION`` ``{"type"}``          start, stop, pause, resume one; a type must be its own
``POST /v1/bridges/BRIDGE/reload``                          read its file again; the answer says what changed, and warnings
``GET /v1/bridges/BRIDGE/level``, ``PUT`` ``{"level"}``     the level of its log
``GET /v1/links/BRIDGE``, ``GET /v1/links/BRIDGE/LINK``     links with counters, rates, last error, next attempt
``POST /v1/links/BRIDGE/OPERATION`` ``{"link", "type"}``    start, stop, pause, resume one link
==========================================================  ==================================================================
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, cast

from twisted.internet.defer import gatherResults
from twisted.logger import Logger

from bridge.link.errors import LinkFailed, LinkRefused
from bridge.manager import (
    Bridge,
    BridgeLink,
    NotInTime,
    NotReloadable,
    OtherType,
    Outcome,
    UnknownBridge,
    UnknownType,
    told,
)
from bridge.status import BridgeState, LinkState, LinkStatus
from gateway.admin.service.ports import BridgeLog, Bridges, WithConnections
from gateway.admin.service.requests import AdminRequest, Refused, Routes, refusal
from gateway.admin.service.transactions import counted, transactions_of
from gateway.instance.levels import ALIASES, LEVELS, Level

OPERATIONS: Final = ("start", "stop", "pause", "resume")
#: Packages whose errors are sentences for operators.
_OURS: Final = ("bridge", "gateway", "certs")


class BridgeResources:
    """The resources.

    :param bridges: what they are about.
    :param log_of: finds the log of a bridge by its name; None where it is not open.
    :param log: has what nobody foresaw.
    """

    def __init__(
        self, bridges: Bridges, log_of: Callable[[str], BridgeLog | None], log: Logger | None = None
    ) -> None:
        self._bridges = bridges
        self._log_of = log_of
        self._log = log or Logger(namespace="bridge.admin")

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/bridges", self._list)
        routes.add("POST", "/v1/bridges", self._operate_on_many)
        routes.add("GET", "/v1/bridges/<name>", self._one)
        routes.add("GET", "/v1/bridges/<name>/level", self._level)
        routes.add("PUT", "/v1/bridges/<name>/level", self._set_level)
        routes.add("POST", "/v1/bridges/<name>/reload", self._reload)
        routes.add(
            "POST", "/v1/bridges/<name>/<any(start, stop, pause, resume):operation>", self._operate
        )
        routes.add("GET", "/v1/links/<name>", self._links)
        # Names of links may have slashes.
        routes.add("GET", "/v1/links/<name>/<path:link>", self._link)
        routes.add(
            "POST",
            "/v1/links/<name>/<any(start, stop, pause, resume):operation>",
            self._operate_on_link,
        )

    # --- bridges

    def _list(self, request: AdminRequest) -> dict[str, object]:
        return {
            "bridges": [
                bridge_json(bridge) for bridge in self._matching(None, request.text("type"))
            ]
        }

    async def _one(self, request: AdminRequest, name: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        await looked(bridge.links())
        shown = bridge_json(bridge)
        shown["links"] = [link_json(link.status()) for link in bridge.links()]
        if bridge.type == "JMS":
            parts = cast(WithConnections, bridge)
            for what in ("pools", "shared", "dmqs"):
                # One that could not be made has none of them.
                shown[what] = [plain(each) for each in getattr(parts, what, tuple)()]
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
        # What is wrong with the request is told before anything is done.
        self._matching(name, kind)
        ask = {
            "start": self._bridges.start,
            "stop": self._bridges.stop,
            "pause": self._bridges.pause,
            "resume": self._bridges.resume,
        }
        outcomes = await ask[operation](name, kind or None)
        refusals = [refused for refused in map(self._refusal_of, outcomes) if refused is not None]
        if refusals:
            done = [outcome.bridge.name for outcome in outcomes if outcome.error is None]
            text = "\n".join(refused.text for refused in refusals)
            also = f"\ndone for: {', '.join(done)}" if done else ""
            raise Refused(text + also, refusals[0].code, refusals[0].status)
        return {"bridges": [bridge_json(outcome.bridge) for outcome in outcomes]}

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
        return Refused("\n".join(told(outcome.bridge.name, known or error)), code, status)

    async def _reload(self, request: AdminRequest, name: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        try:
            changes = await self._bridges.reload(name)
        except NotReloadable as error:
            raise Refused(str(error), "not_reloadable", HTTPStatus.CONFLICT) from None
        made = {*changes.added, *changes.changed}
        return {
            "bridge": name,
            "state": bridge.state.value,
            "changed": bool(changes),
            "changes": plain(changes),
            "not_started_links": [link.name for link in _not_started(bridge) if link.name in made],
            "warnings": [str(warning) for warning in cast(WithConnections, bridge).warnings],
        }

    def _matching(self, name: str | None, kind: str) -> list[Bridge]:
        return matching(self._bridges, name, kind)

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

    def _open_log(self, name: str) -> BridgeLog:
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
        return {
            **bridge_json(bridge),
            "links": [link_json(link.status()) for link in bridge.links()],
        }

    async def _link(self, request: AdminRequest, name: str, link: str) -> dict[str, object]:
        [bridge] = self._matching(name, request.text("type"))
        found = _found(bridge, link)
        await looked([found])
        return {**bridge_json(bridge), "links": [link_json(found.status())]}

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
        ask = {"start": link.start, "stop": link.stop, "pause": link.pause, "resume": link.resume}
        try:
            await ask[operation]()
        except (LinkRefused, LinkFailed) as error:
            raise Refused(str(error), "link_failed", HTTPStatus.CONFLICT) from None
        return {**bridge_json(bridge), "links": [link_json(link.status())]}


async def looked(links: Sequence[BridgeLink]) -> None:
    """Have each link look at what waits at its source, all at once."""
    await gatherResults([link.look() for link in links])


def matching(bridges: Bridges, name: str | None, kind: str = "") -> list[Bridge]:
    """The bridges of that name and type; None and "" are any. :raises Refused: there is no such
    bridge or type, or it is of another type.
    """
    try:
        return bridges.matching(name, kind or None)
    except UnknownType as error:
        raise Refused(str(error), "BB4005") from None
    except UnknownBridge as error:
        raise Refused(str(error), "BB4006", HTTPStatus.NOT_FOUND) from None
    except OtherType as error:
        raise Refused(str(error), "BB4007", HTTPStatus.CONFLICT) from None


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
    """The links that are enabled, and yet not STARTED."""
    statuses = [(link, link.status()) for link in bridge.links()]
    return [
        link
        for link, status in statuses
        if status.enabled and status.state is not LinkState.STARTED
    ]


def bridge_json(bridge: Bridge) -> dict[str, object]:
    """A bridge in JSON; ``enabled_links`` are those that are enabled in its file, 0 of a bridge
    that is stopped or has none; ``transactions`` says how many call for somebody.
    """
    return {
        "name": bridge.name,
        "type": bridge.type,
        "state": bridge.state.value,
        "enabled_links": sum(link.status().enabled for link in bridge.links()),
        "not_started_links": [link.name for link in _not_started(bridge)],
        "transactions": counted(transactions_of(bridge)),
        "problem": bridge.problem,
    }


def link_json(status: LinkStatus) -> dict[str, object]:
    """A link in JSON: the fields of :class:`~bridge.status.LinkStatus`, times in epoch
    milliseconds.
    """
    return cast(dict[str, object], plain(status))


def plain(value: object) -> object:
    """A value as ``json`` takes it: dataclasses by their fields, enumerations by their values,
    sequences and mappings as such.
    """
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(each) for each in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
