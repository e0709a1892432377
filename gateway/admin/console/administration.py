"""Users, access rules and the end of the process, in the console.

For administrators. Owns what the page shows of them, and the actions on them. Users are changed by what ``imqusermgr``
changes them by, and the files are read again at once. A password is in no command, no line of the
log, and no page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from gateway.admin.console import subjects
from gateway.admin.console.actions import Action, Field, Given
from gateway.admin.console.view import ROWS, Paged, View, first_row
from gateway.admin.service.requests import AdminRequest, Refused, Routes
from gateway.admin.service.roles import Role

_GROUPS: Final = Field(
    "groups", "Groups", default="user", required=True, help="Names with commas between."
)
_PASSWORDS: Final = (
    Field("password", "Password", "password", required=True),
    Field("again", "Password again", "password", required=True),
)
#: Operations that can be tested, in the words of the rules.
OPERATIONS: Final = ("produce", "consume", "browse", "create")
#: Most rules that the page has.
_MOST_RULES: Final = 200
#: Parameters of a test of the rules: the page's, by those of the resource.
_TESTED: Final = {
    "user": "user",
    "groups": "of",
    "operation": "operation",
    "type": "type",
    "name": "destination",
}


def _listed(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


def _with_password(given: Given) -> dict[str, object]:
    if given.get("password") != given.get("again"):
        raise Refused("the two passwords differ: give the same one twice", "bad_request")
    body: dict[str, object] = {name: given.get(name, "") for name in ("name", "password")}
    if "groups" in given:
        body["groups"] = _listed(given["groups"])
        body["loopback"] = bool(given.get("loopback"))
    return body


def _rules_of(given: Given) -> dict[str, object]:
    rule = given.get("rule", "").strip()
    return {"rules": {rule: _listed(given.get("names", "")) or None}}


def _changed(answer: Mapping[str, Any]) -> str:
    return " ".join([f"User {answer['name']} is changed.", *answer.get("notes", ())])


def _rule_by_http(given: Given) -> list[str]:
    return [
        *("curl", "-u", "USER", "-X", "PUT", "-H", "Content-Type: application/json"),
        *("-d", json.dumps(_rules_of(given), ensure_ascii=False), f"{given['address']}/v1/access"),
    ]


def administration_actions(varhome: Path, instance: str) -> Mapping[str, Action]:
    """Return the actions.

    :param varhome: of the instance, and
    :param instance: its name, which the commands are given.
    """
    place = ["-varhome", str(varhome), "--instance", instance]

    def usermgr(verb: str, *words: str) -> Callable[[Given], list[str]]:
        return lambda given: ["imqusermgr", verb, "-u", given["name"], *words, *place]

    def of_groups(verb: str) -> Callable[[Given], list[str]]:
        return lambda given: [
            *("imqusermgr", verb, "-u", given["name"], "-g", ",".join(_listed(given["groups"]))),
            *(["--loopback"] if given.get("loopback") else []),
            *place,
        ]

    def change(
        verb: str,
        title: str,
        question: str,
        option: Sequence[str],
        changed: Mapping[str, Any],
        danger: bool,
    ) -> Action:
        return Action(
            f"{verb}-user",
            title,
            question,
            "PUT",
            "/v1/users",
            usermgr("update", *option),
            ("name",),
            body=lambda given: {**given, **changed},
            done=_changed,
            danger=danger,
            subject=subjects.user,
        )

    def switch(verb: str, title: str, question: str, active: bool) -> Action:
        option = ("-a", str(active).lower())
        return change(verb, title, question, option, {"active": active}, not active)

    def reach(verb: str, title: str, question: str, loopback: bool) -> Action:
        option = ("--loopback" if loopback else "--any",)
        return change(verb, title, question, option, {"loopback": loopback}, loopback)

    found = (
        Action(
            "add-user",
            "Add a user",
            "Add a user?",
            "POST",
            "/v1/users",
            of_groups("add"),
            (),
            (
                Field("name", "Name", required=True),
                _GROUPS,
                Field("loopback", "May connect from this machine only", "flag"),
                *_PASSWORDS,
            ),
            lambda answer: f"User {answer['name']} is added.",
            body=_with_password,
        ),
        Action(
            "user-password",
            "New password",
            "Give user {name} another password? Those who are connected stay connected.",
            "PUT",
            "/v1/users",
            usermgr("update", "--password"),
            ("name",),
            _PASSWORDS,
            _changed,
            body=_with_password,
            subject=subjects.user,
        ),
        Action(
            "user-groups",
            "Groups",
            "Change the groups of user {name}?",
            "PUT",
            "/v1/users",
            of_groups("update"),
            ("name",),
            (_GROUPS,),
            _changed,
            body=lambda given: {**given, "groups": _listed(given.get("groups", ""))},
            subject=subjects.user,
        ),
        switch(
            "deactivate",
            "Deactivate",
            "Deactivate user {name}? Its connections end, and it cannot connect any more.",
            False,
        ),
        switch("activate", "Activate", "Have user {name} connect again?", True),
        reach(
            "confine",
            "From here only",
            "Have user {name} connect from this machine only? Its connections from elsewhere end, and "
            "the console and the commands let it in from this machine only, too.",
            True,
        ),
        reach("release", "From anywhere", "Have user {name} connect from anywhere?", False),
        Action(
            "delete-user",
            "Delete",
            "Delete user {name}? Its connections end.",
            "DELETE",
            "/v1/user",
            usermgr("delete"),
            ("name",),
            done=lambda answer: f"User {answer['name']} is deleted.",
            danger=True,
            subject=subjects.user,
        ),
        Action(
            "change-rule",
            "Change a rule",
            "Change an access rule? It holds at once, also for those who are connected.",
            "PUT",
            "/v1/access",
            _rule_by_http,
            (),
            (
                Field(
                    "rule", "Rule", required=True, help="Such as queue.orders.produce.allow.group."
                ),
                Field(
                    "names", "Names", help="With commas between, or *. Empty: the rule is removed."
                ),
            ),
            lambda answer: "The rules are changed, and hold.",
            dry_run=True,
            foreseen=lambda answer: "These rules can be used, and you could still administer.",
            body=_rules_of,
        ),
        _of_process(
            "shutdown",
            "Shut down",
            "End this process in order? Its clients are disconnected, and nothing is accepted or "
            "delivered until it is started again. The console ends with it.",
            "It ends now.",
        ),
        _of_process(
            "quiesce",
            "Quiesce",
            "End this process, so that one that stands by takes over? Its clients connect again "
            "there.",
            "It ends now, and another process takes over.",
        ),
    )
    return {action.name: action for action in found}


def _of_process(word: str, title: str, question: str, done: str) -> Action:
    return Action(
        word,
        title,
        question,
        "POST",
        f"/v1/broker/{word}",
        lambda given: ["imqcmd", word, "bkr"],
        done=lambda answer: done,
        danger=True,
    )


def administration_views(routes: Routes) -> Sequence[View]:
    """Return the view."""
    look = partial(_administration, routes)
    return [
        View(
            "administration",
            "Administration",
            "administration.html",
            look,
            10.0,
            role=Role.ADMINISTRATOR,
        )
    ]


async def _administration(routes: Routes, asked: AdminRequest) -> Mapping[str, object]:
    request = AdminRequest(asked.user, role=asked.role)
    users = await routes.perform("GET", "/v1/users", request)
    rules = await routes.perform("GET", "/v1/access", request)
    members = await routes.perform("GET", "/v1/brokers", request)
    tested = {name: asked.text(shown).strip() for name, shown in _TESTED.items()}
    judged = None
    if tested["user"] and tested["name"]:
        test = AdminRequest(asked.user, tested, {}, asked.role)
        judged = await routes.perform("GET", "/v1/access/test", test)
    first, text = first_row(asked), asked.text("text").strip()
    chosen = [each for each in users["users"] if _has(text, each["name"], *each["groups"])]
    rows = chosen[first : first + ROWS]
    found = [each for each in rules["rules"].items() if _has(text, each[0], *each[1])]
    return {
        # Their hashes are not shown.
        "users": [{**each, "hash": ""} for each in rows],
        "paged": Paged(first, len(rows), len(chosen), len(users["users"])),
        "text": text,
        "rules": dict(found[:_MOST_RULES]),
        "more_rules": max(0, len(found) - _MOST_RULES),
        "members": members["brokers"],
        "tested": tested,
        "judged": judged,
        "operations": OPERATIONS,
    }


def _has(text: str, *names: str) -> bool:
    """Return whether one of the names has the text, in large or small letters."""
    wanted = text.casefold()
    return any(wanted in name.casefold() for name in names)
