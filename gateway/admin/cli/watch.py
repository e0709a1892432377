"""``imqbridgemgr watch``: bridges or links, refreshed again and again.

Owns the form and the pace. Where the output is no terminal, or JSON is wanted, each look is printed
below the one before.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.admin.cli.client import AdminError
from gateway.admin.cli.commands import Common
from gateway.admin.cli.render import moment
from gateway.admin.cli.render_bridges import lag, unread
from gateway.instance.settings import printable

#: Characters of a line where the output is no terminal.
_WIDTH: Final = 120
_COLOURS: Final = {
    "STARTED": "green",
    "STALLED": "red",
    "RETRYING": "yellow",
    "FAILED": "bold red",
    "PAUSED": "cyan",
    "STOPPED": "dim",
}


def watch(common: Common, look: Callable[[], Any], options: argparse.Namespace) -> int:
    """Show what ``look`` returns, until Ctrl-C or as often as asked.

    A broker that does not answer for a while does not end this: what was seen last stays, with the
    error below.

    :returns: the exit code: 0.
    :raises AdminError: the first look fails.
    """
    answer = look()
    if common.silent:
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    left = options.count or None
    try:
        if common.json or not sys.stdout.isatty():
            while True:
                print(json.dumps(answer)) if common.json else console.print(view(answer))
                sys.stdout.flush()
                left = None if left is None else left - 1
                if left == 0:
                    return 0
                time.sleep(options.interval)
                answer = look()
        with Live(view(answer), console=console, auto_refresh=False, screen=False) as live:
            error = ""
            while True:
                live.update(view(answer, error), refresh=True)
                left = None if left is None else left - 1
                if left == 0:
                    return 0
                time.sleep(options.interval)
                try:
                    answer, error = look(), ""
                except AdminError as failed:
                    error = str(failed)
    except KeyboardInterrupt:
        return 0


def view(answer: Mapping[str, Any], error: str = "") -> Group:
    """One look: the links of a bridge, or all bridges."""
    parts: list[Any] = []
    if "links" in answer:
        parts.append(
            Text.assemble(
                f"{answer['type']} bridge ",
                (answer["name"], "bold"),
                " is ",
                _state(answer["state"]),
            )
        )
        parts.append(
            _links(answer["links"])
            if answer["links"] or not unread(answer)
            else Text(unread(answer))
        )
        # What one that runs has overcome is no news; query link has it.
        failing = [
            link for link in answer["links"] if link["last_error"] and link["state"] != "STARTED"
        ]
        parts += [
            Text(
                printable(f"{link['name']}, {moment(link['last_error_ms'])}: {link['last_error']}"),
                "red",
            )
            for link in failing
        ]
    else:
        parts.append(_bridges(answer["bridges"]))
        parts += [
            Text(printable(f"{bridge['name']}: {line}"), "red")
            for bridge in answer["bridges"]
            for line in bridge["problem"].splitlines()
        ]
    if error:
        parts.append(Text(printable(error), "bold red"))
    return Group(*parts)


def _bridges(bridges: list[Mapping[str, Any]]) -> Table:
    shown = Table("Bridge Name", "Bridge Type", "Bridge State", "Links", "Not Started")
    for bridge in bridges:
        waiting = ", ".join(map(printable, bridge["not_started_links"]))
        shown.add_row(
            Text(bridge["name"]),
            bridge["type"],
            _state(bridge["state"]),
            str(bridge["enabled_links"]),
            Text(waiting),
        )
    return shown


def _links(links: list[Mapping[str, Any]]) -> Table:
    shown = Table("Link Name")
    shown.add_column("Link State", no_wrap=True)
    for title in (
        "Received",
        "In/s",
        "Sent",
        "Out/s",
        "In Flight",
        "Dead",
        "Lag s",
        "Next Attempt",
    ):
        shown.add_column(title, justify="right")
    for link in links:
        counters = link["counters"]
        shown.add_row(
            Text(printable(link["name"])),
            _state(link["state"]),
            str(counters["received"]),
            f"{link['received_rate']:.1f}",
            str(counters["sent"]),
            f"{link['sent_rate']:.1f}",
            str(link["in_flight"]),
            str(sum(counters["dead"].values())),
            lag(link).removesuffix(" s"),
            moment(link["next_try_ms"], ""),
        )
    return shown


def _state(state: str) -> Text:
    return Text(state, _COLOURS.get(state, ""))
