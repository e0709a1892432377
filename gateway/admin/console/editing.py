"""Editing a dead message in the console before it is replayed.

Owns the form: what it has of the message, and what of it was changed. The message is shown when
somebody asks for it, then the difference that their edit makes, and only with that the action.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twisted.logger import Logger

from gateway.admin.console.actions import Asked, audited
from gateway.admin.console.message_actions import LOOK_TO_EDIT, REPLAY_EDITED
from gateway.admin.service.edited import NEVER
from gateway.admin.service.requests import AdminRequest, Routes

#: Of a property's field, what comes before its place among the properties.
_VALUE: Final = "value-"


@dataclass(frozen=True, slots=True)
class _Row:
    """A property in the form."""

    field: str
    name: str
    value: str
    editable: bool


async def editor(
    log: Logger, host: str, plan: Asked, routes: Routes, asked: AdminRequest
) -> Mapping[str, object]:
    """Return what the page of an edit shows.

    :param plan: to look at the message, which is done where the form was sent.
    :param asked: with the form.
    """
    shown: dict[str, object] = {"title": LOOK_TO_EDIT.title, "plan": plan, "original": None}
    if not asked.body:
        return shown
    plan.outcome = await audited(log, asked.user, host, plan, routes, asked)
    if plan.failed:
        return shown
    original, form = plan.answer, asked.body
    edit = _edit(original, form) if "compare" in form else {}
    shown |= {"original": original, "rows": _rows(original, form), "asked": None, "difference": ()}
    shown["text"] = form.get("text", original["text"])
    shown["headers"] = {name: form.get(name, value) for name, value in _headers(original).items()}
    shown |= {"new_name": form.get("new-name", ""), "new_value": form.get("new-value", "")}
    if "compare" in form:
        given = {**plan.given, "edit": json.dumps(edit)}
        replay = Asked(REPLAY_EDITED, given, plan.address)
        replay.foreseen = await replay.tried(routes, asked)
        shown |= {"asked": replay, "difference": _marked(replay.answer.get("difference", ()))}
    return shown


def _headers(original: Mapping[str, Any]) -> dict[str, str]:
    """Return what the fields of headers have of a message.

    An expiry is in whole seconds, in UTC, as a browser has it.
    """
    expires_s = original["expires_ms"] / 1000
    return {
        "priority": str(original["priority"]),
        "type": original["type"],
        "expires": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(expires_s)) if expires_s else "",
    }


def _rows(original: Mapping[str, Any], form: Mapping[str, str]) -> Sequence[_Row]:
    return [
        _Row(field, each["name"], form.get(field, each["value"]), each["editable"])
        for at, each in enumerate(original["properties"])
        for field in (f"{_VALUE}{at}",)
    ]


def _edit(original: Mapping[str, Any], form: Mapping[str, str]) -> Mapping[str, object]:
    """Return what the form changes, as the route takes it."""
    edit: dict[str, object] = {}
    text, given = original["text"], form.get("text")
    if text is not None and given is not None and _of_form(given) != _of_form(text):
        edit["text"] = _with_line_ends_of(text, given)
    for name, value in _headers(original).items():
        filled_in = form.get(name)
        if filled_in is not None and _of_form(filled_in) != _of_form(value):
            edit[name] = (
                (f"{filled_in}Z" if filled_in else NEVER) if name == "expires" else filled_in
            )
    properties = {
        each["name"]: _with_line_ends_of(each["value"], value)
        for at, each in enumerate(original["properties"])
        for value in (form.get(f"{_VALUE}{at}"),)
        if value is not None and _of_form(value) != _of_form(each["value"])
    }
    if form.get("new-name"):
        properties[form["new-name"]] = form.get("new-value", "")
    return {**edit, **({"properties": properties} if properties else {})}


def _of_form(text: str) -> str:
    """Return a text as a browser sends it back, with lines that end in LF."""
    sent = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\ufffd")
    return sent.replace("\r\n", "\n").replace("\r", "\n")


def _with_line_ends_of(before: str, given: str) -> str:
    """Return what was filled in, with lines that end as they did before.

    Browsers send CR LF, whatever there was.
    """
    text = given.replace("\r\n", "\n")
    dos = "\r\n" in before and "\n" not in before.replace("\r\n", "")
    return text.replace("\n", "\r\n") if dos else text


def _marked(lines: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return lines of a difference, each with its kind.

    The kind is ``added``, ``removed`` or "" for neither.
    """
    kinds = {"+": "added", "-": "removed"}
    # The first two lines say what is compared.
    return [(kinds.get(line[:1], "") if at > 1 else "", line) for at, line in enumerate(lines)]
