"""Messages in the console: of a queue, one, and dead ones by cause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from twisted.logger import Logger

from bridge.config.model import BUILT_IN_DMQ_DESTINATION
from gateway.admin.console.explained import Explained
from gateway.admin.console.view import View
from gateway.admin.service.browsing import quoted
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.messaging.dead import (
    BRIDGE_REASON,
    BRIDGE_SOURCE_DESTINATION,
    ORIGINAL_DESTINATION,
    UNDELIVERED_REASON,
)
from gateway.messaging.errors import MessagingError

_log: Final = Logger(namespace="gateway.admin")

#: Messages of a queue that are listed.
_LISTED: Final = 50
#: Dead messages that are looked at to group them.
_GROUPED: Final = 1000
_EXAMPLES: Final = 3


@dataclass(slots=True)
class Group:
    """Dead messages that died of the same cause, of the same destination.

    :param queue: where they are.
    :param selector: which of them, in the dead message queue.
    :param comments: what was said of the first.
    :param of_bridges: whether they are in the bridges' queue, from where they can be replayed.
    """

    queue: str
    reason: str
    source: str
    selector: str
    of_bridges: bool
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    comment: str = ""
    examples: list[str] = field(default_factory=list)


def message_views(
    routes: Routes,
    explained: Explained,
    dead_queues: Callable[[], Awaitable[Sequence[str]]],
    now_ms: Callable[[], int],
) -> Sequence[View]:
    """Return the views of messages. Browsing costs more than counting does.

    :param dead_queues: the names of the broker's dead message queues.
    """
    return [
        View(
            "dead", "Dead messages", "dead.html", partial(_dead, routes, dead_queues, now_ms), 5.0
        ),
        View("messages", "", "messages.html", partial(_messages, routes), 15.0),
        View("message", "", "message.html", partial(_message, routes, explained, now_ms), 15.0),
    ]


async def _browsed(routes: Routes, asked: AdminRequest, **query: str) -> Mapping[str, Any]:
    request = AdminRequest(asked.user, query, role=asked.role)
    found: Mapping[str, Any] = await routes.perform("GET", "/v1/messages", request)
    return found


async def _dead(
    routes: Routes,
    dead_queues: Callable[[], Awaitable[Sequence[str]]],
    now_ms: Callable[[], int],
    asked: AdminRequest,
) -> Mapping[str, object]:
    groups: dict[tuple[str, str], Group] = {}
    looked_at, more = 0, False
    for queue in (BUILT_IN_DMQ_DESTINATION.name, *await dead_queues()):
        try:
            found = await _browsed(routes, asked, name=queue, limit=str(_GROUPED))
        except MessagingError as error:
            # That of bridges is made when it is needed first.
            _log.debug("{queue} is not browsed: {error}", queue=queue, error=error)
            continue
        _group(queue, found["messages"], groups)
        looked_at += len(found["messages"])
        more = more or found["more"]
    return {
        "groups": sorted(groups.values(), key=lambda each: -each.count),
        "more": more,
        "looked_at": looked_at,
        "now_ms": now_ms(),
    }


def _group(
    queue: str, messages: Sequence[Mapping[str, Any]], groups: dict[tuple[str, str], Group]
) -> None:
    """Add messages of a dead message queue to the groups."""
    for message in messages:
        group = _group_of(queue, message["properties"])
        group = groups.setdefault((queue, group.selector), group)
        group.count += 1
        died_ms = message["dead_since_ms"] or message["timestamp_ms"]
        group.first_ms = min(group.first_ms or died_ms, died_ms)
        group.last_ms = max(group.last_ms, died_ms)
        group.comment = group.comment or str(message["comment"] or "")
        if len(group.examples) < _EXAMPLES:
            group.examples.append(message["message_id"])


def _group_of(queue: str, properties: Mapping[str, object]) -> Group:
    of_bridge = BRIDGE_REASON in properties
    reason = BRIDGE_REASON if of_bridge else UNDELIVERED_REASON
    source = BRIDGE_SOURCE_DESTINATION if of_bridge else ORIGINAL_DESTINATION
    terms = [
        f"{name} = {quoted(value)}" if isinstance(value, str) else f"{name} IS NULL"
        for name in (reason, source)
        for value in (properties.get(name),)
    ]
    return Group(
        queue,
        str(properties.get(reason) or "not said"),
        str(properties.get(source) or "not said"),
        " AND ".join(terms),
        queue == BUILT_IN_DMQ_DESTINATION.name,
    )


async def _messages(routes: Routes, asked: AdminRequest) -> Mapping[str, object]:
    name, selector = asked.needed("name"), asked.text("selector").strip()
    problem = ""
    found: Mapping[str, Any] = {"messages": [], "more": False}
    try:
        found = await _browsed(routes, asked, name=name, selector=selector, limit=str(_LISTED))
    except Refused as refused:
        if refused.code != "selector":
            raise
        problem = refused.text
    return {"name": name, "selector": selector, "problem": problem, **found}


async def _message(
    routes: Routes, explained: Explained, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    return {
        "name": asked.needed("name"),
        "message": await routes.perform("GET", "/v1/message", asked),
        "why": await explained.why(asked, "message", id=asked.needed("id")),
        "now_ms": now_ms(),
    }
