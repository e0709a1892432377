"""Whether what an action is about is there, before its question is asked.

Each function looks at one kind of thing by the service's own resources, and raises what these
refuse with, as :class:`~gateway.admin.service.requests.Refused` with a status that says whether it
is missing (404) or cannot be (400). What an action then does, and refuses, its own route decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.broker.operator.administration import AdministrationRefused

#: What an action is about, by the names of its parameters, and
_Given = Mapping[str, str]
#: what finds it. :raises Refused: it is not there.
Subject = Callable[[Routes, AdminRequest, _Given], Awaitable[object]]

_TYPES: Final = ("queue", "topic", "q", "t")


async def destination(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A destination, by ``type`` and ``name``."""
    type = given["type"]
    if type not in _TYPES:
        raise Refused(
            f"'{type}' is no type of a destination; expected queue or topic", "bad_request"
        )
    try:
        await _got(routes, asked, "/v1/destination", type=type, name=given["name"])
    except AdministrationRefused as error:
        raise _missing(str(error)) from None


async def messages(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A queue, by ``name``.

    Where an ``id`` is given, that message, too, which must wait there.
    """
    await destination(routes, asked, {"type": "queue", "name": given["name"]})
    if given.get("id"):
        await _got(routes, asked, "/v1/message", name=given["name"], id=given["id"])


async def bridge(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A bridge, by ``bridge``."""
    await routes.perform("GET", "/v1/bridges/<path:name>", _request(asked), name=given["bridge"])


async def link(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A link, by ``bridge`` and ``link``."""
    parts = {"name": given["bridge"], "link": given["link"]}
    await routes.perform("GET", "/v1/links/<name>/<path:link>", _request(asked), **parts)


async def transaction(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A transaction of a bridge's links, by ``bridge`` and ``id``."""
    found = await routes.perform(
        "GET", "/v1/transactions/<path:name>", _request(asked), name=given["bridge"]
    )
    if given["id"] not in {each["id"] for each in found["transactions"]}:
        raise _missing(f"there is no transaction {given['id']} in bridge {given['bridge']}")


async def branch(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A branch that this broker has prepared, by ``xid``."""
    found = await _got(routes, asked, "/v1/branches")
    if given["xid"] not in {each["xid"] for each in found["branches"]}:
        raise _missing(f"there is no prepared branch {given['xid']}: it may be over")


async def connection(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A connection, by ``id``, or by ``connection``."""
    number = given.get("id") or given["connection"]
    await _got(routes, asked, "/v1/connection/subscriptions", id=number)


async def traced(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A destination, by ``destination``: ``queue:NAME`` or ``topic:NAME``."""
    type, _, name = given["destination"].partition(":")
    await destination(routes, asked, {"type": type, "name": name})


async def trace(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A trace, by ``id``."""
    await _got(routes, asked, "/v1/traces/lines", id=given["id"])


async def user(routes: Routes, asked: AdminRequest, given: _Given) -> None:
    """A user of the users file, by ``name``."""
    found = await _got(routes, asked, "/v1/users")
    if given["name"] not in {each["name"] for each in found["users"]}:
        raise _missing(f"there is no user '{given['name']}'")


async def _got(routes: Routes, asked: AdminRequest, path: str, **query: str) -> Any:
    return await routes.perform("GET", path, _request(asked, query))


def _request(asked: AdminRequest, query: Mapping[str, str] | None = None) -> AdminRequest:
    return AdminRequest(asked.user, dict(query or {}), {}, asked.role)


def _missing(text: str) -> Refused:
    return Refused(text, "not_found", HTTPStatus.NOT_FOUND)
