"""The commands of ``imqcmd`` about messages.

Owns what they send and print. Which messages can be touched, the broker knows.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gateway.admin.cli import render_broker as render
from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.commands import (
    Ask,
    Command,
    Question,
    UsageError,
    request,
)
from gateway.admin.cli.render import listed, one_line
from gateway.admin.left_behind import left_behind
from gateway.instance.problems import counted


def _listed_messages(options: Namespace, answer: Any) -> Iterator[str]:
    messages = answer["messages"]
    yield render.messages_table(messages)
    if answer["more"]:
        yield f"There are more; these are the first {len(messages)}. -maxNumMsgsRetrieved shows more of them."


def _which(options: Namespace) -> Sequence[str]:
    """The table of what it is done to."""
    rows = [
        ("Destination Name", options.name),
        ("Destination Type", render.TYPES[options.type]),
        ("Message ID", options.message_id),
        ("Selector", options.selector),
        ("At Most", options.most),
        ("To", options.to),
        ("Body From", options.body_file),
        ("Priority", options.priority),
        ("Type", options.message_type),
        ("Expires", options.expires),
        *options.properties.items(),
    ]
    return [listed([(name, value) for name, value in rows if value])]


def _order(word: str, body: Callable[[Namespace], dict[str, object]] = lambda options: {}) -> Ask:
    def ask(client: AdminClient, options: Namespace) -> Any:
        if not (options.message_id or options.selector or options.most):
            raise UsageError(
                f"{word} msg needs -msgID, -selector or -limit; 'purge dst' empties a queue"
            )
        return client.ask(
            "POST",
            f"/v1/message/{word}",
            {
                "name": options.name,
                "id": options.message_id or "",
                "selector": options.selector or "",
                "limit": options.most or 0,
                **({"to": options.to} if options.to else {}),
                **body(options),
            },
        )

    return ask


def _edited(options: Namespace) -> dict[str, object]:
    """What the options of an edit change of a message."""
    edit: dict[str, object] = {
        name: value
        for name, value in (
            ("priority", options.priority),
            ("type", options.message_type),
            ("expires", options.expires),
        )
        if value is not None
    }
    if options.properties:
        edit["properties"] = options.properties
    if options.body_file:
        try:
            octets = (
                sys.stdin.buffer.read()
                if options.body_file == "-"
                else Path(options.body_file).read_bytes()
            )
            edit["text"] = octets.decode()
        except OSError as error:
            raise AdminError(f"{options.body_file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise AdminError(f"{options.body_file}: expected text in UTF-8") from None
    return edit


def _told(options: Namespace, answer: Any) -> Iterator[str]:
    yield from map(one_line, answer.get("difference", ()))
    yield f"Done: {answer['done']} of {answer['matched']} messages that wait and were chosen."
    for reason, count in answer["reasons"].items():
        yield f"{count} stay: {one_line(reason)}"
    for name, what in (
        ("unacknowledged", "delivered and not acknowledged, or in transactions"),
        ("in_transaction", "yet to come of transactions"),
        ("scheduled", "to be delivered later ('list scheduled' and 'destroy scheduled')"),
    ):
        if answer[name]:
            yield f"Not looked at: {counted(answer[name])} of the queue, {what}."
    yield ""


def _changing(
    word: str, doing: str, done: str, *needs: str, may: tuple[str, ...] = (), ask: Ask | None = None
) -> Command:
    return Command(
        title=f"{doing} the messages where:",
        subject=_which,
        question=lambda options: Question(
            f"Are you sure you want to {word} these messages?",
            f"The messages were not {done}.",
            spaced=True,
        ),
        ask=ask or _order(word),
        render=_told,
        undone=left_behind,
        needs=("-t", "-n", *needs),
        may=("-msgID", "-selector", "-limit", *may),
    )


#: By subcommand and argument.
MESSAGE_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    ("list", "msg"): Command(
        title="Listing the messages that wait in the destination where:",
        subject=lambda options: [render.which_table(options.type, options.name)],
        ask=request("GET", "/v1/messages", "name", "selector", "limit"),
        render=_listed_messages,
        done="Successfully listed messages.",
        needs=("-t", "-n"),
        may=("-selector", "-maxNumMsgsRetrieved"),
    ),
    ("query", "msg"): Command(
        title="Querying the message where:",
        subject=lambda options: [
            listed([("Message ID", options.message_id), ("Destination Name", options.name)])
        ],
        ask=request("GET", "/v1/message", "name", id="message_id"),
        render=lambda options, answer: [render.message_details(answer)],
        done="Successfully queried the message.",
        needs=("-t", "-n", "-msgID"),
    ),
    ("move", "msg"): _changing("move", "Moving", "moved", "-to"),
    ("copy", "msg"): _changing("copy", "Copying", "copied", "-to"),
    ("delete", "msg"): _changing("delete", "Deleting", "deleted"),
    ("replay", "msg"): _changing(
        "replay",
        "Replaying",
        "replayed",
        may=("-to", "-body", "-priority", "-type", "-expires", "-o"),
        ask=_order("replay", _edited),
    ),
}
