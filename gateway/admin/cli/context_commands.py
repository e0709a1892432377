"""``imqcmd context add``, ``use``, ``list`` and ``remove``.

Owns what they need and print. What a context is, :mod:`gateway.admin.cli.contexts` says.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from gateway.admin.cli.client import AdminError, broker_address
from gateway.admin.cli.commands import Command, Common, UsageError
from gateway.admin.cli.contexts import NONE, Context, ContextRefused, edited, path, read
from gateway.admin.cli.render import table


def _add(common: Common, options: Namespace, name: str) -> str:
    try:
        broker_address(options.broker or "")
    except AdminError as error:
        raise UsageError(f"-b {error}") from None
    context = Context(
        options.broker or "",
        options.user or "",
        _absolute(options.passfile),
        _absolute(options.cacert),
        options.secure,
    )
    with edited(path(os.environ)) as contexts:
        contexts.add(name, context)
    return f"Successfully added the context {name}."


def _absolute(given: str | None) -> str:
    # It is used from other folders, too.
    return str(Path(given).absolute()) if given else ""


def _use(common: Common, options: Namespace, name: str) -> str:
    with edited(path(os.environ)) as contexts:
        if name == NONE:
            contexts.current = ""
            return "No context is used."
        contexts.named(name, "context use")
        contexts.current = name
    return f"The context {name} is used where no other broker is named."


def _remove(common: Common, options: Namespace, name: str) -> str:
    with edited(path(os.environ)) as contexts:
        contexts.named(name, "context remove")
        del contexts.by_name[name]
        if contexts.current == name:
            contexts.current = ""
    return f"Successfully removed the context {name}."


def _list(command: Command, common: Common, options: Namespace) -> int:
    try:
        contexts = read(path(os.environ))
    except ContextRefused as error:
        raise AdminError(str(error)) from None
    rows = [
        (
            "*" if name == contexts.current else "",
            name,
            each.broker or "-",
            each.user or "-",
            each.passfile or "-",
            "yes" if each.secure else "-",
            each.cacert or "-",
        )
        for name, each in sorted(contexts.by_name.items())
    ]
    heads = ("Used", "Name", "Broker", "User", "Passfile", "Only TLS", "Certificates")
    common.say(table(heads, rows) if rows else "There are no contexts.")
    common.show_json(
        {
            "current": contexts.current,
            "contexts": {name: asdict(each) for name, each in sorted(contexts.by_name.items())},
        }
    )
    return 0


def _named(act: Callable[[Common, Namespace, str], str]) -> Command:
    def run(command: Command, common: Common, options: Namespace) -> int:
        if not options.more:
            raise UsageError(f"the context's name is missing: context {options.argument} NAME")
        try:
            done = act(common, options, options.more)
        except ContextRefused as error:
            raise AdminError(str(error)) from None
        common.say(done)
        common.show_json({"context": options.more})
        return 0

    return Command(run=run)


#: By subcommand and argument.
CONTEXT_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    ("context", "add"): _named(_add),
    ("context", "use"): _named(_use),
    ("context", "list"): Command(run=_list),
    ("context", "remove"): _named(_remove),
}
