"""What the broker would refuse of a plan, before any of it is done.

Owns which checks belong to which change, and where in the file each refusal has its cause. The
checks are those that the admin service makes when it carries out the change. What depends on the
running gateway is asked of it; it answers and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.declaration import Declaration
from gateway.admin.cli.plan import DESTROY, Change, Standing
from gateway.admin.cli.toml_places import Place, Places, located
from gateway.broker.operator.accounts import UserChange, check_user, no_hash
from gateway.broker.properties.names import check_administered
from gateway.broker.security.access import check_rule
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidDestination

_KINDS: Final = {"queue": Kind.QUEUE, "topic": Kind.TOPIC}
#: The path of something in the file, and what is wrong with it.
_Refusal = tuple[tuple[str, ...], str]


def refusals(
    client: AdminClient,
    wanted: Declaration,
    found: Standing,
    planned: Sequence[Change],
    text: str,
    origin: str,
) -> list[str]:
    """Return what would be refused, a line each, in the order of the file.

    :param text: of the file.
    :param origin: its name.
    :raises AdminError: the service cannot be asked.
    """
    refused = [
        *_users(wanted, found.declared),
        *_rules(wanted),
        *_destinations(planned),
    ]
    if not refused:
        # The gateway would say the same again, without the places.
        refused = [*_accounts(client, planned), *_asked(client, planned)]
    if not refused:
        return []
    places = Places(text)
    placed = [(places.of(where), where, what) for where, what in refused]
    return [
        located(origin, place, where, what)
        for place, where, what in sorted(placed, key=lambda each: each[0] or Place(0, 0))
    ]


def _users(wanted: Declaration, have: Declaration) -> Iterator[_Refusal]:
    for name, user in wanted.users.items():
        if not user.hash and name not in have.users:
            yield ("user", name), no_hash(name)
        for key, groups, hash in (
            ("", (), ""),
            ("groups", user.groups, ""),
            ("hash", (), user.hash),
        ):
            try:
                check_user(UserChange(name, groups, hash, user.active, user.loopback))
            except ValueError as error:
                yield ("user", name, key) if key else ("user", name), str(error)
                if not key:
                    break


def _rules(wanted: Declaration) -> Iterator[_Refusal]:
    for side, names in wanted.access.items():
        try:
            check_rule(side, names)
        except ValueError as error:
            yield ("access", side), str(error)


def _destinations(planned: Sequence[Change]) -> Iterator[_Refusal]:
    for change in planned:
        if change.path == "/v1/destinations":
            kind, name = str(change.parameters["type"]), str(change.parameters["name"])
            try:
                check_administered(Destination(_KINDS[kind], name))
            except InvalidDestination as error:
                yield (kind, name), error.reason


def _accounts(client: AdminClient, planned: Sequence[Change]) -> Iterator[_Refusal]:
    """Ask whether the administrator who asks stays one."""
    asker, _ = client.credentials
    mine: list[Mapping[str, object]] = []
    rules: Any = {}
    deleted: list[str] = []
    for change in planned:
        if change.path == "/v1/access":
            rules = change.parameters["rules"]
        elif change.path == "/v1/user" and change.parameters["name"] == asker:
            if change.action == DESTROY:
                deleted.append(asker)
            else:
                mine.append(change.parameters)
    if not (mine or rules or deleted):
        return
    given = {"users": mine, "rules": rules, "deleted": deleted}
    what = _refused(client, "POST", "/v1/accounts/check", given)
    if what:
        # Which of the changes it is that takes the right away, none of them says.
        where = ("access",) if rules else ("user", asker)
        yield (where if not deleted else ()), what


def _asked(client: AdminClient, planned: Sequence[Change]) -> Iterator[_Refusal]:
    for change in planned:
        name = str(change.parameters.get("name", ""))
        if change.path.startswith("/v1/definition"):
            given = {**change.parameters, "action": change.action}
            what = _refused(client, "POST", "/v1/definition/check", given)
            where: tuple[str, ...] = ("bridge", name)
        elif change.action == DESTROY and change.path == "/v1/destination":
            what = _refused(client, "GET", f"{change.path}/destroyable", change.parameters)
            where = (str(change.parameters["type"]), name)
        else:
            continue
        if what:
            yield (*where, *_property(change, what)), what


def _property(change: Change, what: str) -> tuple[str, ...]:
    """Return the path of a bridge's property that a refusal names.

    Empty where it names no property.
    """
    named = set(re.split(r"[\s=:;,]+", what))
    given = change.parameters.get("properties")
    begin = f"imq.bridge.{change.parameters.get('name', '')}."
    for key in given if isinstance(given, Mapping) else ():
        if f"{begin}{key}" in named:
            return ("properties", str(key))
    return ()


def _refused(client: AdminClient, method: str, path: str, parameters: Mapping[str, object]) -> str:
    """Return why the gateway would refuse it; "" where it would not."""
    try:
        client.ask(method, path, parameters)
    except AdminError as error:
        if not error.status:
            raise
        # A gateway of an older version cannot be asked, and says so when the change is made.
        if error.status == HTTPStatus.NOT_FOUND:
            return ""
        return error.text
    return ""
