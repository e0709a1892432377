"""Bridges with their links in the console."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from bridge.link.status import LinkState
from bridge.manager import BridgeServiceManager
from gateway.admin.console.bridge_map import Joined, balance_of, bridge_map, joined, tone
from gateway.admin.console.explained import Explained
from gateway.admin.console.view import View
from gateway.admin.service.bridge_resources import as_jms
from gateway.admin.service.requests import AdminRequest, Routes

#: Links that are explained on a page; those that move messages are not.
_EXPLAINED: Final = 10
#: States of links in which it is worth asking why.
_IDLE: Final = (LinkState.FAILED, LinkState.RETRYING, LinkState.STALLED)
#: What templates of links call.
_SHOWN: Final[Mapping[str, object]] = {"tone": tone, "balance_of": balance_of}


def bridge_views(
    routes: Routes,
    explained: Explained,
    bridges: BridgeServiceManager,
    now_ms: Callable[[], int],
) -> Sequence[View]:
    """Return the views of bridges and links.

    :param bridges: say which brokers their links join.
    """
    every = partial(_bridges, routes, explained, bridges, now_ms)
    one = partial(_link, routes, explained, now_ms)
    # Looking at a link may browse its source.
    return [
        View("bridges", "Bridges", "bridges.html", every, 4.0),
        View("link", "", "link.html", one, 4.0),
    ]


async def _bridges(
    routes: Routes,
    explained: Explained,
    manager: BridgeServiceManager,
    now_ms: Callable[[], int],
    asked: AdminRequest,
) -> Mapping[str, object]:
    wanted = asked.text("name")
    found = await routes.perform("GET", "/v1/bridges", AdminRequest(asked.user, role=asked.role))
    configs = {each.name: jms.config for each in manager.bridges if (jms := as_jms(each))}
    bridges: list[dict[str, Any]] = []
    drawn: list[Joined] = []
    left = _EXPLAINED
    for bridge in found["bridges"]:
        if wanted and bridge["name"] != wanted:
            continue
        links: Sequence[Any] = ()
        # What another broker owns has its links there.
        if bridge["type"] == "JMS" and is_here(bridge, found):
            answer = await routes.perform(
                "GET",
                "/v1/links/<path:name>",
                AdminRequest(asked.user, role=asked.role),
                name=bridge["name"],
            )
            links = answer["links"]
        why: dict[str, object] = {}
        for link in links:
            if link.state in _IDLE and left > 0:
                left -= 1
                why[link.name] = await explained.why(
                    asked, "link", bridge=bridge["name"], link=link.name
                )
        config = configs.get(bridge["name"])
        if config is not None:
            drawn += joined(config, links)
        bridges.append({"owner": "", **bridge, "links": links, "why": why})
    return {
        "bridges": bridges,
        "map": bridge_map(drawn),
        "now_ms": now_ms(),
        "wanted": wanted,
        **_SHOWN,
    }


async def _link(
    routes: Routes, explained: Explained, now_ms: Callable[[], int], asked: AdminRequest
) -> Mapping[str, object]:
    bridge, name = asked.needed("bridge"), asked.needed("link")
    answer = await routes.perform(
        "GET",
        "/v1/links/<name>/<path:link>",
        AdminRequest(asked.user, role=asked.role),
        name=bridge,
        link=name,
    )
    return {
        "each": answer["links"][0],
        "bridge": answer,
        "why": await explained.why(asked, "link", bridge=bridge, link=name),
        "now_ms": now_ms(),
        **_SHOWN,
    }


def is_here(bridge: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether the broker that was asked owns a bridge.

    :param found: what it answered when it was asked for all bridges.
    """
    here = next((each.get("owner", "") for each in found["bridges"] if each["type"] == "STOMP"), "")
    return bridge.get("owner", "") in ("", here)
