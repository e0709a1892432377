"""Definitions of JMS bridges as resources of the service.

Owns their form in JSON. What is kept of a definition, and what a change does to a running bridge,
:mod:`gateway.bridge_definitions` knows.

=================================================================  =========================================================
``GET /v1/definitions``                                            ``definitions``: of all JMS bridges
``POST /v1/definitions`` ``{"name", "properties", "document"}``    create a bridge, and start it unless it has autostart=false
``PUT /v1/definition`` ``{"name", "properties", "document"}``      have one be so: what is not given, it has no more
``DELETE /v1/definition`` ``{"name"}``                             stop and destroy one
``POST /v1/definition/check`` the same, and ``{"action"}``         whether ``create``, ``update`` or ``destroy`` would be refused; does nothing
=================================================================  =========================================================

``properties`` are texts by the ends of ``imq.bridge.NAME.*``; ``document`` is the XML, "" where the
property ``xmlurl`` says where it is. What creates or changes a bridge answers with its ``state``,
and with ``problem``: why it did not start, "" if it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Protocol

from bridge.manager import BridgeServiceManager
from gateway.admin.service.requests import AdminRequest, Refused, Routes


@dataclass(frozen=True)
class BridgeDefinition:
    """What an operator gives of a bridge.

    :param properties: by the ends of their names, without the type, and without the place of a
        document that is given.
    :param document: the XML; "" where it is only known where it is.
    :param own: whether the document is in a file that the gateway has written.
    """

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    document: str = ""
    own: bool = False


class DefinitionRefused(Refused):
    """A bridge cannot be created, changed or destroyed so; ``text`` says why."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "configuration", HTTPStatus.CONFLICT)


class Definitions(Protocol):
    """Those of an instance. What it raises is for the operator."""

    async def all(self) -> list[BridgeDefinition]:
        """Return those of all JMS bridges, by name."""

    async def create(self, asker: str, wanted: BridgeDefinition) -> str:
        """Make a bridge. :returns: why it did not start, "" if it did."""

    async def update(self, asker: str, wanted: BridgeDefinition) -> str:
        """Have a bridge be as wanted. :returns: as :meth:`create`."""

    async def destroy(self, asker: str, name: str) -> None:
        """Stop a bridge and forget it."""

    async def check(self, action: str, wanted: BridgeDefinition) -> None:
        """Fail as ``create``, ``update`` or ``destroy`` would. Changes nothing."""


class DefinitionResources:
    """Definitions as resources."""

    def __init__(self, definitions: Definitions, bridges: BridgeServiceManager) -> None:
        self._definitions: Final = definitions
        self._bridges: Final = bridges

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/definitions", self._all)
        routes.add("POST", "/v1/definitions", self._create)
        routes.add("PUT", "/v1/definition", self._update)
        routes.add("DELETE", "/v1/definition", self._destroy)
        routes.add("POST", "/v1/definition/check", self._check)

    async def _all(self, request: AdminRequest) -> dict[str, object]:
        return {
            "definitions": [
                {"name": each.name, "properties": each.properties, "document": each.document}
                for each in await self._definitions.all()
            ]
        }

    async def _create(self, request: AdminRequest) -> dict[str, object]:
        wanted = _wanted(request)
        return self._began(wanted, await self._definitions.create(request.user, wanted))

    async def _update(self, request: AdminRequest) -> dict[str, object]:
        wanted = _wanted(request)
        return self._began(wanted, await self._definitions.update(request.user, wanted))

    async def _destroy(self, request: AdminRequest) -> dict[str, object]:
        name = request.needed("name")
        await self._definitions.destroy(request.user, name)
        return {"name": name}

    async def _check(self, request: AdminRequest) -> dict[str, object]:
        wanted, action = _wanted(request), request.needed("action")
        if action not in ("create", "update", "destroy"):
            raise Refused(
                f"action is {action!r}; expected create, update or destroy", "bad_request"
            )
        await self._definitions.check(action, wanted)
        return {"name": wanted.name}

    def _began(self, wanted: BridgeDefinition, problem: str) -> dict[str, object]:
        state = self._bridges.find(wanted.name).state
        return {"name": wanted.name, "state": state.value, "problem": problem}


def _wanted(request: AdminRequest) -> BridgeDefinition:
    given: Any = request.body.get("properties", {})
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise Refused(
            'properties are no texts by name; expected such as {"level": "FINE"}', "bad_request"
        )
    return BridgeDefinition(request.needed("name"), given, request.text("document"))
