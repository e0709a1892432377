"""What would make an instance be as a file declares it.

Owns the comparison, the order of the changes, and how they are shown. Changes nothing.

Users come first, then access rules, destinations and bridges, so that each finds what it needs;
what is destroyed goes last, in the opposite order. About sections that the file does not have
nothing is done, and only where it is asked for is anything destroyed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.admin.cli.client import AdminClient
from gateway.admin.cli.declaration import (
    Declaration,
    DeclaredBridge,
    DeclaredUser,
)
from gateway.broker.properties.administered_properties import unusual
from gateway.instance.problems import counted

CREATE: Final = "create"
UPDATE: Final = "update"
DESTROY: Final = "destroy"
_SIGNS: Final = {CREATE: "+", UPDATE: "~", DESTROY: "-"}
_DONE: Final = {CREATE: "created", UPDATE: "changed", DESTROY: "destroyed"}
_HIDDEN: Final = "(not shown)"
#: Left sides of rules that are shown as they are.
_PLAIN_SIDE: Final = re.compile(r"[\w.*>/-]+")


@dataclass(frozen=True)
class Change:
    """One thing that is to be done, by one request.

    :param action: ``create``, ``update`` or ``destroy``.
    :param what: such as ``queue orders``.
    :param details: what changes of it, a line each with its sign.
    :param parameters: of the request.
    """

    action: str
    what: str
    details: Sequence[str]
    method: str
    path: str
    parameters: Mapping[str, object]

    @property
    def done(self) -> str:
        """What is said when it was done."""
        return f"{self.what}: {_DONE[self.action]}"

    @property
    def lines(self) -> list[str]:
        """How it is shown."""
        return [f"  {_SIGNS[self.action]} {self.what}", *(f"      {each}" for each in self.details)]


@dataclass(frozen=True)
class Standing:
    """What an instance has.

    :param declared: as a file would declare it.
    :param used: destinations that exist because clients use them, by type and name, and what each
        has that is other than by itself: limits of the settings, or a client's address.
    :param there: those that exist for another reason and have no properties of an administrator.
    :param messages: how many messages each destination has.
    """

    declared: Declaration
    used: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    there: frozenset[tuple[str, str]] = frozenset()
    messages: Mapping[tuple[str, str], int] = field(default_factory=dict)


def standing(client: AdminClient) -> Standing:
    """Ask the admin service what an instance has.

    :raises AdminError: it refuses.
    """
    listed = client.get("/v1/destinations")["destinations"]
    by_name = {(each["type"], each["name"]): each for each in listed}
    administered = {
        which: dict(each["administered"])
        for which, each in by_name.items()
        if each["administered"] or each["origin"] == "administrator"
    }
    users = {
        each["name"]: DeclaredUser(
            tuple(each["groups"]), each["hash"], each["active"], each["loopback"]
        )
        for each in client.get("/v1/users")["users"]
    }
    bridges = {
        each["name"]: DeclaredBridge(each["properties"], each["document"])
        for each in client.get("/v1/definitions")["definitions"]
    }
    rules = client.get("/v1/access")["rules"]
    used = {
        which: unusual(each["properties"])
        for which, each in by_name.items()
        if each["origin"] == "client"
    }
    return Standing(
        Declaration(rules, users, administered, bridges),
        used,
        frozenset(by_name.keys() - administered.keys() - used.keys()),
        {which: each["messages"] for which, each in by_name.items()},
    )


def changes(wanted: Declaration, found: Standing, *, prune: bool) -> list[Change]:
    """Return what is to be done, in that order.

    :param prune: destroy what the file's sections do not have.
    """
    have = found.declared
    made = [
        *_users(wanted, have),
        *_access(wanted, have, prune),
        *_destinations(wanted, found),
        *_bridges(wanted, have),
    ]
    return [*made, *_destroyed(wanted, found)] if prune else made


def shown(planned: Sequence[Change]) -> list[str]:
    """Return the lines that show a plan."""
    if not planned:
        return ["No changes. The instance is as the file declares it."]
    counts = Counter(change.action for change in planned)
    lines = [line for change in planned for line in (*change.lines, "")]
    return [
        *lines,
        f"Plan: {counts[CREATE]} to create, {counts[UPDATE]} to change, {counts[DESTROY]} to destroy.",
    ]


# --- what differs


def _users(wanted: Declaration, have: Declaration) -> Iterator[Change]:
    for name, user in sorted(wanted.users.items()):
        before = have.users.get(name)
        details = list(_differing(_shown_user(before), _shown_user(user)))
        if before is not None and user.hash and user.hash != before.hash:
            details.append(f"~ passcode = {_HIDDEN}")
        if before is not None and not details:
            continue
        yield Change(
            CREATE if before is None else UPDATE,
            f"user {name}",
            details,
            "PUT",
            "/v1/user",
            {
                "name": name,
                "groups": list(user.groups),
                "hash": user.hash,
                "active": user.active,
                "loopback": user.loopback,
            },
        )


def _shown_user(user: DeclaredUser | None) -> dict[str, str]:
    if user is None:
        return {}
    return {
        "groups": ", ".join(user.groups),
        "active": str(user.active).lower(),
        "loopback": str(user.loopback).lower(),
    }


def _access(wanted: Declaration, have: Declaration, prune: bool) -> Iterator[Change]:
    different: dict[str, Sequence[str] | None] = {
        side: list(names)
        for side, names in sorted(wanted.access.items())
        if list(have.access.get(side, ("",))) != list(names)
    }
    if prune and "access" in wanted.sections:
        different |= dict.fromkeys(sorted(have.access.keys() - wanted.access.keys()))
    if not different:
        return
    before = {_side(side): _list(have.access[side]) for side in different if side in have.access}
    after = {_side(side): _list(names) for side, names in different.items() if names is not None}
    yield Change(
        UPDATE,
        "access rules",
        list(_differing(before, after)),
        "PUT",
        "/v1/access",
        {"rules": different},
    )


def _side(text: str) -> str:
    """Return a rule's left side.

    It is quoted where it has more than words, dots and wildcards.
    """
    return text if _PLAIN_SIDE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _list(names: Sequence[str]) -> str:
    """Return names as the file has them, so that one with a comma is not two."""
    return json.dumps(list(names), ensure_ascii=False)


def _destinations(wanted: Declaration, found: Standing) -> Iterator[Change]:
    have = found.declared.destinations
    for (kind, name), properties in sorted(wanted.destinations.items()):
        which, what = (kind, name), f"{kind} {name}"
        same = {"type": kind, "name": name, "properties": dict(properties)}
        before = have.get(which)
        if before is None and which in found.used:
            own = found.used[which]
            details = ["~ stays when no client uses it", *_differing(own, properties)]
            reset = sorted(own.keys() - properties.keys())
            yield Change(UPDATE, what, details, "PUT", "/v1/destination", {**same, "reset": reset})
        elif before is None and which not in found.there:
            details = list(_differing({}, properties))
            yield Change(CREATE, what, details, "POST", "/v1/destinations", same)
        elif properties != (before or {}):
            details = list(_differing(before or {}, properties))
            reset = sorted((before or {}).keys() - properties.keys())
            yield Change(UPDATE, what, details, "PUT", "/v1/destination", {**same, "reset": reset})


def _bridges(wanted: Declaration, have: Declaration) -> Iterator[Change]:
    for name, bridge in sorted(wanted.bridges.items()):
        before = have.bridges.get(name)
        if bridge == before:
            continue
        details = list(_differing({} if before is None else before.properties, bridge.properties))
        document = "" if before is None else before.document
        if bridge.document != document:
            details.append(_document(document, bridge.document))
        same = {
            "name": name,
            "properties": dict(bridge.properties),
            "document": bridge.document,
        }
        if before is None:
            yield Change(CREATE, f"bridge {name}", details, "POST", "/v1/definitions", same)
        else:
            yield Change(UPDATE, f"bridge {name}", details, "PUT", "/v1/definition", same)


def _document(before: str, after: str) -> str:
    """Say how a document changes; not its lines, which may have passwords."""
    if not before or not after:
        return f"{'+' if after else '-'} document = {_count(after or before)}"
    import difflib

    signs = Counter(line[0] for line in difflib.ndiff(before.splitlines(), after.splitlines()))
    come, go = signs["+"], signs["-"]
    return f"~ document: {counted(come, 'line')} {'comes' if come == 1 else 'come'}, {counted(go, 'line')} {'goes' if go == 1 else 'go'}"


def _count(text: str) -> str:
    return counted(len(text.splitlines()), "line")


def _destroyed(wanted: Declaration, found: Standing) -> Iterator[Change]:
    have = found.declared
    if "bridge" in wanted.sections:
        for name in sorted(have.bridges.keys() - wanted.bridges.keys()):
            yield Change(DESTROY, f"bridge {name}", [], "DELETE", "/v1/definition", {"name": name})
    for which in sorted(have.destinations.keys() - wanted.destinations.keys()):
        kind, name = which
        if kind not in wanted.sections:
            continue
        same = {"type": kind, "name": name}
        if name.startswith("mq."):
            # The broker's own stays, without an administrator's properties.
            properties = have.destinations[which]
            details = list(_differing(properties, {}))
            asked = {**same, "reset": sorted(properties)}
            yield Change(UPDATE, f"{kind} {name}", details, "PUT", "/v1/destination", asked)
        else:
            count = found.messages[which]
            details = [f"- {counted(count)} {'is' if count == 1 else 'are'} lost"] if count else []
            yield Change(DESTROY, f"{kind} {name}", details, "DELETE", "/v1/destination", same)
    if "user" in wanted.sections:
        for name in sorted(have.users.keys() - wanted.users.keys()):
            yield Change(DESTROY, f"user {name}", [], "DELETE", "/v1/user", {"name": name})


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if old is None:
            yield f"+ {name} = {new}"
        elif new is None:
            yield f"- {name} = {old}"
        else:
            yield f"~ {name} = {old} -> {new}"
