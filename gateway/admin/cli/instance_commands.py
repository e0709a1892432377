"""``imqcmd export``, ``plan`` and ``apply``: an instance as one file.

Owns how they ask, what they print and how they end. The file is
:mod:`gateway.admin.cli.declaration`'s, what differs :mod:`gateway.admin.cli.plan`'s.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any, Final

from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.commands import FILE, Command, Common
from gateway.admin.cli.declaration import Declaration, DeclarationRefused, read, written
from gateway.admin.cli.plan import Change, changes, shown, standing
from gateway.admin.cli.toml_places import Places
from gateway.instance.layout import replace
from gateway.instance.problems import counted

#: The exit code of a plan that has changes.
CHANGES: Final = 2
_STANDARD: Final = "-"


def _export(command: Command, common: Common, options: Namespace) -> int:
    declared = standing(common.client()).declared
    for warning in _passwords_in(declared):
        common.complain(f"{common.program}: Warning: {warning}")
    text = written(declared)
    if options.argument == _STANDARD:
        sys.stdout.write(text)
        return 0
    path = Path(options.argument)
    try:
        replace(path, text.encode())
    except OSError as error:
        raise AdminError(f"{path} cannot be written: {error.strerror or error}") from None
    common.say(f"Successfully exported the instance to {path}.")
    common.show_json({"file": str(path)})
    return 0


def _passwords_in(declared: Declaration) -> list[str]:
    """Return a sentence for each password that stands in a bridge's document."""
    if not any(bridge.document for bridge in declared.bridges.values()):
        return []
    # Reading takes lxml.
    from bridge.config.problems import ConfigurationError
    from bridge.config.reader import read as read_document

    found: list[str] = []
    for name, bridge in declared.bridges.items():
        try:
            _, problems = read_document(
                bridge.document.encode(),
                f"bridge {name}",
                passwords=_AnyPassword(),
                exposed="the exported file has it",
            )
        except ConfigurationError:
            continue
        found += [str(each) for each in problems if "the exported file has it" in str(each)]
    return found


class _AnyPassword(Mapping[str, str]):
    """Has every password, as that of the passfile is not known here."""

    def __getitem__(self, name: str) -> str:
        return "password"

    def __iter__(self) -> Any:
        return iter(("any",))

    def __len__(self) -> int:
        return 1


def _planned(common: Common, options: Namespace) -> tuple[AdminClient, list[Change]]:
    """Return what is to be done, and who is asked for it.

    :raises AdminError: the file declares no instance, or the broker would refuse some of it.
    """
    # Its checks are the broker's, which takes half a second to import.
    from gateway.admin.cli.refusals import refusals

    wanted, text = _declared(common, options)
    client = common.client()
    found = standing(client)
    planned = changes(wanted, found, prune=options.prune)
    refused = refusals(client, wanted, found, planned, text, options.argument)
    if refused:
        raise AdminError("\n".join([*refused, "Nothing was changed."]))
    return client, planned


def _declared(common: Common, options: Namespace) -> tuple[Declaration, str]:
    """Return what the file declares, and its text.

    :raises AdminError: the file declares no instance.
    """
    try:
        if options.argument == _STANDARD:
            text = sys.stdin.read()
        else:
            text = Path(options.argument).read_bytes().decode()
        declared = read(text, options.argument)
    except OSError as error:
        raise AdminError(f"{options.argument}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise AdminError(f"{options.argument}: expected text in UTF-8") from None
    except DeclarationRefused as error:
        raise AdminError(str(error)) from None
    wrong = _wrong_documents(declared, text, options.argument)
    if wrong:
        raise AdminError("\n".join(wrong))
    for note in declared.notes:
        common.complain(f"{common.program}: Warning: {note}")
    return declared, text


def _wrong_documents(declared: Declaration, text: str, origin: str) -> list[str]:
    """Return what is wrong in bridges' documents, with the lines.

    The broker would refuse the document too, but when other changes are made already.
    """
    if not any(bridge.document for bridge in declared.bridges.values()):
        return []
    from bridge.config.problems import ConfigurationError, Severity
    from bridge.config.reader import read as read_document

    places = Places(text).known
    found: list[str] = []
    for name, bridge in declared.bridges.items():
        if not bridge.document:
            continue
        try:
            read_document(bridge.document.encode(), "", name, passwords=_AnyPassword())
        except ConfigurationError as error:
            place = places.get(("bridge", name, "document"))
            before = (
                sum(len(each) + 1 for each in text.split("\n")[: place.line - 1]) if place else 0
            )
            begins = text.find(bridge.document, before) if place else -1
            for problem in error.problems:
                if problem.severity is Severity.WARNING:
                    continue
                if begins >= 0 and problem.line:
                    moved = replace_fields(
                        problem, origin=origin, line=problem.line + text.count("\n", 0, begins)
                    )
                else:
                    moved = replace_fields(problem, origin=f"{origin}: bridge.{name}.document")
                found.append(str(moved))
    return found


def _plan(command: Command, common: Common, options: Namespace) -> int:
    _, planned = _planned(common, options)
    for line in shown(planned):
        common.say(line)
    common.show_json({"changes": [_as_json(change) for change in planned]})
    return CHANGES if planned else 0


def _apply(command: Command, common: Common, options: Namespace) -> int:
    client, planned = _planned(common, options)
    for line in shown(planned):
        common.say(line)
    if not planned:
        common.show_json({"changes": []})
        return 0
    common.say()
    if not common.confirmed("Are you sure you want to make these changes?"):
        common.say("Nothing was changed.")
        common.show_json({"done": False})
        return 0
    for number, change in enumerate(planned):
        try:
            answer = client.ask(change.method, change.path, change.parameters)
        except AdminError as error:
            common.say()
            raise AdminError(
                f"{change.what}: {error.text}\n{_done_before(planned, number)}",
                error.code,
                error.status,
            ) from None
        _report(common, change, answer)
    common.say()
    common.say(f"Successfully made {counted(len(planned), 'change')}.")
    common.show_json({"changes": [_as_json(change) for change in planned]})
    return 0


def _report(common: Common, change: Change, answer: Mapping[str, Any]) -> None:
    problem = answer.get("problem", "")
    if problem:
        common.complain(f"{common.program}: Warning: {change.done}, and not started: {problem}")
    else:
        common.say(f"{change.done}.")
    for note in answer.get("notes", ()):
        common.complain(f"{common.program}: Warning: {note}")


def _done_before(planned: Sequence[Change], number: int) -> str:
    done = "; ".join(change.done for change in planned[:number]) or "nothing"
    left = len(planned) - number
    return f"Done before that: {done}. Not done: {counted(left, 'change')}, this one included."


def _as_json(change: Change) -> dict[str, object]:
    return {"action": change.action, "what": change.what, "details": list(change.details)}


#: By subcommand and argument.
INSTANCE_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    ("export", FILE): Command(run=_export),
    ("plan", FILE): Command(run=_plan, may=("-prune",)),
    ("apply", FILE): Command(run=_apply, may=("-prune",)),
}
