"""The commands of ``imqbridgemgr``: what each asks the admin service, and what it prints, in Open
MQ's order.

Each returns the exit code, and raises AdminError for what cannot be done. How they are spelled is
:mod:`gateway.admin.cli.imqbridgemgr`'s to know.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.admin.cli.client import AdminClient, path_of
from gateway.admin.cli.options import Common
from gateway.admin.cli.shown import (
    bridge_table,
    bridges_table,
    changes_lines,
    dead_lines,
    dmqs_table,
    link_details,
    links_table,
    pools_table,
    shared_table,
    tally_lines,
    unread,
)
from gateway.admin.cli.tables import table
from gateway.admin.cli.transaction_shown import records_table, waiting_line

PASSWORD_NAME: Final = "imq.imqbridgemgr.password"
#: What is done to bridges and links, and the words for it.
OPERATIONS: Final = {
    "start": ("Starting", "started"),
    "stop": ("Stopping", "stopped"),
    "pause": ("Pausing", "paused"),
    "resume": ("Resuming", "resumed"),
}


@dataclass(frozen=True)
class Command:
    """One command, as it was given.

    :param argument: ``bridge``, ``link``, ``dead``, or the file to validate.
    """

    common: Common
    options: argparse.Namespace
    argument: str

    @property
    def bridge(self) -> str:
        name: str = self.options.bridge
        return name

    @property
    def link(self) -> str:
        name: str = self.options.link
        return name

    @property
    def type(self) -> str:
        name: str = self.options.type
        return name

    def client(self) -> AdminClient:
        """The way to the admin service. :raises AdminError: there is none."""
        return self.common.client(PASSWORD_NAME)

    def show_what(self, doing: str) -> None:
        """Print what will be done, and to which broker."""
        self.common.say(doing)
        self.common.say()
        titles = [
            ("Bridge Name", self.bridge),
            ("Bridge Type", self.type),
            ("Link Name", self.link),
        ]
        given = [(title, value) for title, value in titles if value]
        if given:
            self.common.show(table([title for title, _ in given], [[value for _, value in given]]))
            self.common.say("On the broker specified by:")
            self.common.say()
        self.common.show_broker()


# --- list, query, watch


def list_bridges(command: Command) -> int:
    client, common = command.client(), command.common
    if not command.bridge:
        common.say(
            f"Listing the bridges{' of the type' if command.type else ''} on the broker specified by:"
        )
        common.say()
        if command.type:
            common.show(table(("Bridge Type",), [(command.type,)]))
        common.show_broker()
        answer = client.get("/v1/bridges", type=command.type)
        common.show(bridges_table(answer["bridges"]))
        common.show_json(answer)
        _say_problems(common, answer["bridges"])
        _say_transactions(common, answer["bridges"])
    else:
        command.show_what("Listing the bridge:")
        answer = client.get(path_of("v1", "bridges", command.bridge), type=command.type)
        _show_bridge(command, answer)
    common.say("Successfully listed bridges.")
    return 0


def list_links(command: Command) -> int:
    client, common = command.client(), command.common
    command.show_what("Listing the link:" if command.link else "Listing the links of the bridge:")
    parts = [command.bridge, *([command.link] if command.link else [])]
    answer = client.get(path_of("v1", "links", *parts), type=command.type)
    if command.options.debug and not command.link:
        answer = client.get(path_of("v1", "bridges", command.bridge), type=command.type)
    elif command.options.debug and any(link["transacted"] for link in answer["links"]):
        answer["transaction_records"] = client.get(path_of("v1", "transactions", command.bridge))[
            "transactions"
        ]
    _show_bridge(command, answer)
    common.say("Successfully listed links.")
    return 0


def _show_bridge(command: Command, answer: Any) -> None:
    common = command.common
    if answer["type"] == "JMS":
        common.show(bridge_table(answer))
        _show_links(common, answer, links_table)
    else:
        common.show(bridges_table([answer]))
    if command.options.debug:
        for rows, form in (
            (answer.get("pools"), pools_table),
            (answer.get("shared"), shared_table),
            (answer.get("dmqs"), dmqs_table),
        ):
            if rows:
                common.show(form(rows))
        if "transaction_records" in answer:
            common.show(records_table(answer["transaction_records"]))
    _say_problems(common, [answer])
    _say_transactions(common, [answer])
    common.show_json(answer)


def _show_links(common: Common, answer: Any, form: Callable[[Sequence[Any]], str]) -> None:
    if answer["links"] or not unread(answer):
        common.show(form(answer["links"]))
    else:
        common.say(unread(answer))
        common.say()


def _say_problems(common: Common, bridges: Sequence[Any]) -> None:
    for bridge in bridges:
        for line in bridge["problem"].splitlines():
            common.say(f"{bridge['name']}: {line}")
        if bridge["problem"]:
            common.say()


def _say_transactions(common: Common, bridges: Sequence[Any]) -> None:
    lines = [line for line in map(waiting_line, bridges) if line]
    for line in lines:
        common.say(line)
    if lines:
        common.say()


def query_link(command: Command) -> int:
    client, common = command.client(), command.common
    command.show_what("Querying the link:" if command.link else "Querying the links of the bridge:")
    parts = [command.bridge, *([command.link] if command.link else [])]
    answer = client.get(path_of("v1", "links", *parts), type=command.type)
    _show_links(common, answer, lambda links: "\n".join(map(link_details, links)))
    _say_problems(common, [answer])
    _say_transactions(common, [answer])
    common.show_json(answer["links"][0] if command.link else answer)
    common.say(
        "Successfully queried the link." if command.link else "Successfully queried the links."
    )
    return 0


def watch(command: Command) -> int:
    from gateway.admin.cli.watching import watch as watch_live

    client = command.client()
    if command.argument == "bridge":
        return watch_live(
            command.common, lambda: client.get("/v1/bridges", type=command.type), command.options
        )
    parts = [command.bridge, *([command.link] if command.link else [])]
    return watch_live(
        command.common,
        lambda: client.get(path_of("v1", "links", *parts), type=command.type),
        command.options,
    )


# --- start, stop, pause, resume, reload, level


def operate_on_bridges(command: Command) -> int:
    operation = command.options.subcommand
    doing, done = OPERATIONS[operation]
    common, client = command.common, command.client()
    one = bool(command.bridge)
    which = "the bridge" if one else "all bridges of the type" if command.type else "all bridges"
    command.show_what(
        f"{doing} {which}{':' if one or command.type else ' on the broker specified by:'}"
    )
    if not common.confirmed(
        f"Are you sure you want to {operation} {'this bridge' if one else 'these bridges'}?"
    ):
        return not_done(command, f"The {'bridge was' if one else 'bridges were'} not {done}.")
    if one:
        answer = client.post(
            path_of("v1", "bridges", command.bridge, operation), type=command.type or None
        )
    else:
        answer = client.post("/v1/bridges", operation=operation, type=command.type or None)
    if not one:
        common.show(bridges_table(answer["bridges"]))
    common.show_json(answer)
    for bridge in answer["bridges"]:
        if operation in ("start", "resume"):
            _say_not_started(common, bridge["name"], bridge["not_started_links"])
    pausing = [bridge["name"] for bridge in answer["bridges"] if bridge["state"] == "PAUSING"]
    for name in pausing:
        common.say(
            f"Bridge {name} is PAUSING: it is PAUSED as soon as its last link has finished the batch under way."
        )
    if len(pausing) < len(answer["bridges"]):
        common.say(f"Successfully {done} the {'bridge' if one else 'bridges'}.")
    return 0


def _say_not_started(common: Common, bridge: str, links: Sequence[str]) -> None:
    if links:
        common.say(
            f"Links of bridge {bridge} that are not started yet: {', '.join(links)}. Query them to see why."
        )


def operate_on_link(command: Command) -> int:
    operation = command.options.subcommand
    doing, done = OPERATIONS[operation]
    common, client = command.common, command.client()
    command.show_what(f"{doing} the link:")
    if not common.confirmed(f"Are you sure you want to {operation} this link?"):
        return not_done(command, f"The link was not {done}.")
    answer = client.post(
        path_of("v1", "links", command.bridge, operation),
        link=command.link,
        type=command.type or None,
    )
    common.show_json(answer)
    [link] = answer["links"]
    wanted = {"start": "STARTED", "resume": "STARTED", "stop": "STOPPED", "pause": "PAUSED"}[
        operation
    ]
    if link["state"] == wanted:
        common.say(f"Successfully {done} the link.")
    else:
        common.say(
            f"The link is {link['state']}{': ' if link['last_error'] else '.'}{link['last_error']}"
        )
    return 0


def reload_bridge(command: Command) -> int:
    common, client = command.common, command.client()
    command.show_what("Reloading the bridge:")
    if not common.confirmed("Are you sure you want to reload this bridge?"):
        return not_done(command, "The bridge was not reloaded.")
    answer = client.post(
        path_of("v1", "bridges", command.bridge, "reload"), type=command.type or None
    )
    for line in changes_lines(answer):
        common.say(line)
    common.show_json(answer)
    for warning in answer["warnings"]:
        common.say(f"Warning: {warning}")
    if answer["state"] == "STARTED":
        _say_not_started(common, command.bridge, answer["not_started_links"])
    common.say("Successfully reloaded the bridge.")
    return 0


def level_of_bridge(command: Command) -> int:
    common, client = command.common, command.client()
    path = path_of("v1", "bridges", command.bridge, "level")
    wanted = command.options.level
    answer = client.ask("PUT", path, body={"level": wanted}) if wanted else client.get(path)
    common.show_json(answer)
    if wanted:
        common.say(
            f"The log of bridge {command.bridge} takes {answer['level']} and above until the gateway ends or is told otherwise."
        )
    else:
        common.say(f"The log of bridge {command.bridge} takes {answer['level']} and above.")
    return 0


# --- dead messages


def list_dead(command: Command) -> int:
    common, client, options = command.common, command.client(), command.options
    _show_queue(
        command,
        "Listing the dead messages that the selector matches:"
        if options.selector
        else "Listing the dead messages:",
    )
    answer = client.get(
        "/v1/dead", selector=options.selector, limit=options.limit, **_which_queue(options)
    )
    common.show(dead_lines(answer["messages"], options.debug))
    common.show_json(answer)
    if answer["more"]:
        common.say("There are more; --limit N shows so many.")
    common.say("Successfully listed dead messages.")
    return 0


def replay_dead(command: Command) -> int:
    return _dead_operation(command, "replay", "Replaying", "replayed", to=command.options.to)


def purge_dead(command: Command) -> int:
    return _dead_operation(command, "purge", "Purging", "purged")


def _dead_operation(command: Command, operation: str, doing: str, done: str, **more: object) -> int:
    common, client, options = command.common, command.client(), command.options
    every = (
        "the dead messages that the selector matches" if options.selector else "all dead messages"
    )
    _show_queue(command, f"{doing} {every}:")
    dry = bool(options.dry_run)
    if not dry and not common.confirmed(f"Are you sure you want to {operation} these messages?"):
        return not_done(command, f"The messages were not {done}.")
    body = {
        "selector": options.selector,
        "limit": options.limit,
        "dry_run": dry,
        **_which_queue(options),
        **more,
    }
    answer = client.post(path_of("v1", "dead", operation), **body)
    for line in tally_lines(answer, done):
        common.say(line)
    common.show_json(answer)
    common.say("Nothing was changed." if dry else f"Successfully {done} dead messages.")
    return 0


def _show_queue(command: Command, doing: str) -> None:
    common, options = command.common, command.options
    common.say(doing)
    common.say()
    given = [
        ("Bridge Name", options.bridge),
        ("Dead Message Queue", options.dmq),
        ("Selector", options.selector),
        ("To", options.to),
    ]
    rows = [(title, value) for title, value in given if value]
    if rows:
        common.show(table([title for title, _ in rows], [[value for _, value in rows]]))
        common.say("On the broker specified by:")
        common.say()
    common.show_broker()


def _which_queue(options: argparse.Namespace) -> dict[str, str]:
    return {"bridge": options.bridge, "dmq": options.dmq} if options.dmq else {}


def not_done(command: Command, text: str) -> int:
    """Say that the operator did not want it. :returns: the exit code."""
    command.common.say(text)
    command.common.show_json({"done": False})
    return 0
