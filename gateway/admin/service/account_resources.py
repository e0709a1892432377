"""Users and access rules as resources of the service.

Owns their form in JSON. What a change does, :class:`~gateway.broker.operator.accounts.Accounts`
knows.

=====================================================================  =====================================================
``GET /v1/users``                                                      ``users``, with the hashes of their passcodes
``PUT /v1/user`` ``{"name", "groups", "hash", "active", "loopback"}``  make or change one; without ``hash`` that stays
``DELETE /v1/user`` ``{"name"}``                                       delete one, whose connections end
``GET /v1/access``                                                     ``rules``: names by the left sides of the rules
``PUT /v1/access`` ``{"rules"}``                                       change rules, all or none; null removes one
=====================================================================  =====================================================

A change that would keep the administrator who asks from administering is refused.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.broker.operator.accounts import Accounts, UserChange


class AccountResources:
    """Users and access rules as resources."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts: Final = accounts

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/users", self._users)
        routes.add("PUT", "/v1/user", self._put)
        routes.add("DELETE", "/v1/user", self._delete)
        routes.add("GET", "/v1/access", self._rules)
        routes.add("PUT", "/v1/access", self._change)

    async def _users(self, request: AdminRequest) -> dict[str, object]:
        return {
            "users": [
                {
                    "name": user.name,
                    "groups": sorted(user.groups),
                    "hash": user.hash,
                    "active": user.active,
                    "loopback": user.loopback,
                }
                for user in await self._accounts.users()
            ]
        }

    async def _put(self, request: AdminRequest) -> dict[str, object]:
        name = request.needed("name")
        change = UserChange(
            name,
            request.texts("groups"),
            request.text("hash"),
            "active" not in request.body or request.flag("active"),
            request.flag("loopback"),
        )
        return {"name": name, "notes": await self._accounts.put_user(request.user, change)}

    async def _delete(self, request: AdminRequest) -> dict[str, object]:
        name = request.needed("name")
        await self._accounts.delete_user(request.user, name)
        return {"name": name}

    async def _rules(self, request: AdminRequest) -> dict[str, object]:
        return {"rules": await self._accounts.rules()}

    async def _change(self, request: AdminRequest) -> dict[str, object]:
        given: Any = request.body.get("rules", {})
        if not isinstance(given, dict) or not all(map(_is_list, given.values())):
            raise Refused(
                'rules are no lists of names by left sides; expected such as {"queue.a.consume.allow.user": ["bob"]}',
                "bad_request",
            )
        await self._accounts.change_rules(request.user, given)
        return await self._rules(request)


def _is_list(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )
