"""The commands of ``imqcmd`` that look at connections.

Owns what they ask for and print: the connections, and one of them with its subscriptions.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.admin.cli import render_broker as render
from gateway.admin.cli.client import AdminClient
from gateway.admin.cli.commands import Command, one_of, request
from gateway.admin.cli.render import table

_find: Final = one_of("/v1/connections", "connections", "id", "there is no connection")


def which_connection(options: Namespace) -> Sequence[str]:
    """Return the table of the connection that a command is about."""
    return [table(("Connection ID",), [(options.name,)])]


def _whole(client: AdminClient, options: Namespace) -> Any:
    """Ask for a connection and its subscriptions."""
    found = _find(client, options)
    told = client.get("/v1/connection/subscriptions", id=options.name)
    return {
        **found,
        "subscriptions": told["subscriptions"],
        "subscription_count": told["count"],
    }


def _shown(options: Namespace, answer: Any) -> Iterator[str]:
    yield render.connection_details(answer)
    subscriptions = answer["subscriptions"]
    if subscriptions:
        yield "Subscriptions:"
        yield render.subscriptions_table(subscriptions)
    if answer["subscription_count"] > len(subscriptions):
        yield f"There are {answer['subscription_count']}; these are the first {len(subscriptions)}."
        yield ""


#: By subcommand and argument.
CONNECTION_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    ("list", "cxn"): Command(
        title=lambda options: (
            f"Listing {f'the connections of the service {options.service}' if options.service else 'all the connections'} on the broker specified by:"
        ),
        ask=request("GET", "/v1/connections", "service"),
        render=lambda options, answer: [render.connections_table(answer["connections"])],
        done="Successfully listed connections.",
        may=("-svn",),
    ),
    ("query", "cxn"): Command(
        title="Querying the connection where:",
        subject=which_connection,
        ask=_whole,
        render=_shown,
        done="Successfully queried the connection.",
        needs=("-n",),
    ),
}
