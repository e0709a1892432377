"""Users and access rules as resources of the service.

Owns their form in JSON. What a change does, :class:`~gateway.broker.operator.accounts.Accounts`
knows.

=====================================================================  =====================================================
``POST /v1/users`` ``{"name", "password", "groups", "loopback"}``      add one
``PUT /v1/users`` ``{"name"}`` and of these what is to change          change one: ``groups``, ``password``, ``active``, ``loopback``
``GET /v1/users``                                                      ``users``, with the hashes of their passcodes
``PUT /v1/user`` ``{"name", "groups", "hash", "active", "loopback"}``  make or change one; without ``hash`` that stays
``DELETE /v1/user`` ``{"name"}``                                       delete one, whose connections end
``GET /v1/access``                                                     ``rules``: names by the left sides of the rules
``PUT /v1/access`` ``{"rules", "dry_run"}``                            change rules, all or none; null removes one
``POST /v1/accounts/check`` ``{"users", "rules", "deleted"}``           whether these changes, in that order, would be refused; makes none
``GET /v1/access/test?user=U&operation=O&type=T&name=N``               may this user do that, by which rule; ``groups`` of one not in the file
=====================================================================  =====================================================

A change that would keep the administrator who asks from administering is refused.
"""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import Any, Final, cast

from gateway.admin.service.requests import AdminRequest, Refused, Routes, plain
from gateway.broker.operator.accounts import Accounts, UserChange, UserUpdate
from gateway.broker.security.access import Operation
from gateway.messaging.destination import Destination, Kind


class AccountResources:
    """Users and access rules as resources."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts: Final = accounts

    def __call__(self, routes: Routes) -> None:
        """Add them."""
        routes.add("GET", "/v1/users", self._users)
        routes.add("POST", "/v1/users", self._add)
        routes.add("PUT", "/v1/users", self._update)
        routes.add("PUT", "/v1/user", self._put)
        routes.add("DELETE", "/v1/user", self._delete)
        routes.add("GET", "/v1/access", self._rules)
        routes.add("PUT", "/v1/access", self._change)
        routes.add("GET", "/v1/access/test", self._test)
        routes.add("POST", "/v1/accounts/check", self._check)

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

    async def _add(self, request: AdminRequest) -> dict[str, object]:
        name = request.needed("name")
        groups, loopback = request.texts("groups"), request.flag("loopback")
        password = request.needed("password")
        await self._accounts.add_user(request.user, name, password, groups, loopback)
        return {"name": name}

    async def _update(self, request: AdminRequest) -> dict[str, object]:
        name, body = request.needed("name"), request.body
        update = UserUpdate(
            request.texts("groups") if "groups" in body else None,
            request.text("password"),
            request.flag("active") if "active" in body else None,
            request.flag("loopback") if "loopback" in body else None,
        )
        if update == UserUpdate():
            raise Refused(
                "nothing is to change; expected groups, password, active or loopback", "bad_request"
            )
        notes = await self._accounts.update_user(request.user, name, update)
        return {"name": name, "notes": notes}

    async def _put(self, request: AdminRequest) -> dict[str, object]:
        change = _user(request)
        return {"name": change.name, "notes": await self._accounts.put_user(request.user, change)}

    async def _delete(self, request: AdminRequest) -> dict[str, object]:
        name = request.needed("name")
        await self._accounts.delete_user(request.user, name)
        return {"name": name}

    async def _rules(self, request: AdminRequest) -> dict[str, object]:
        return {"rules": await self._accounts.rules()}

    async def _change(self, request: AdminRequest) -> dict[str, object]:
        dry_run = request.flag("dry_run")
        await self._accounts.change_rules(request.user, _rules(request), dry_run=dry_run)
        return await self._rules(request)

    async def _check(self, request: AdminRequest) -> dict[str, object]:
        given: Any = request.body.get("users", [])
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            raise Refused("users are no list of users as PUT /v1/user takes them", "bad_request")
        users = [_user(replaced(request, body=each)) for each in given]
        await self._accounts.check(request.user, users, _rules(request), request.texts("deleted"))
        return {"users": len(users)}

    async def _test(self, request: AdminRequest) -> dict[str, object]:
        word, kind = request.needed("operation"), request.needed("type")
        operation = next((each for each in Operation if each.value == word), None)
        if operation is None:
            known = ", ".join(each.value for each in Operation)
            raise Refused(f"operation is {word!r}; expected one of {known}", "bad_request")
        if kind not in ("queue", "topic"):
            raise Refused(f"type is {kind!r}; expected queue or topic", "bad_request")
        name = request.needed("name")
        destination = Destination(Kind.QUEUE if kind == "queue" else Kind.TOPIC, name)
        groups = [each for each in map(str.strip, request.text("groups").split(",")) if each]
        judged = await self._accounts.judged(
            request.needed("user"), groups or None, operation, destination
        )
        return {**cast(dict[str, object], plain(judged)), "operation": word}


def _user(request: AdminRequest) -> UserChange:
    return UserChange(
        request.needed("name"),
        request.texts("groups"),
        request.text("hash"),
        "active" not in request.body or request.flag("active"),
        request.flag("loopback"),
    )


def _rules(request: AdminRequest) -> dict[str, Any]:
    given: Any = request.body.get("rules", {})
    if not isinstance(given, dict) or not all(map(_is_list, given.values())):
        raise Refused(
            'rules are no lists of names by left sides; expected such as {"queue.a.consume.allow.user": ["bob"]}',
            "bad_request",
        )
    return given


def _is_list(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )
