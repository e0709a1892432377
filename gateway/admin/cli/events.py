"""``imqcmd events``: what happens to an instance, as it happens.

Owns the form of its lines, and that a stream which ends is asked for again behind the last event.
"""

from __future__ import annotations

import json
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TextIO

from gateway.admin.cli.client import AdminClient, AdminError, find
from gateway.admin.cli.commands import Command, Common, printable_lines

_PATH: Final = "/v1/events"
#: Seconds without a sign of the service after which it is asked again; it says something every 15.
_SILENCE_S: Final = 45.0
#: Seconds between two attempts to reach the service again: the first, and the longest.
_FIRST_S: Final = 0.5
_LONGEST_S: Final = 10.0


def _parameters(options: Namespace) -> dict[str, object]:
    return {"kind": options.kind, "since": options.since}


def _run(command: Command, common: Common, options: Namespace) -> int:
    client = common.client()
    if not options.follow:
        answer = client.ask("GET", _PATH, _parameters(options))
        for event in answer["events"]:
            common.say(_line(event))
        common.show_json(answer)
        if answer["missed"]:
            common.complain(_gap(answer["missed"]))
        return 0
    with suppress(KeyboardInterrupt):
        _follow(common, client, options)
    return 0


def _follow(common: Common, client: AdminClient, options: Namespace) -> None:
    """Print events for ever. :raises AdminError: the service refuses."""
    last = ""
    wait_s = 0.0
    while True:
        try:
            for name, number, data in _stream(client, _parameters(options), last):
                wait_s = 0.0
                if number:
                    last = number
                if name == "gap" and common.json:
                    print(json.dumps({"kind": "gap", **data}), flush=True)
                elif name == "gap":
                    common.complain(_gap(data["missed"]))
                elif data:
                    _show(common, number, data)
        except AdminError as error:
            if error.status or not (last or wait_s):
                raise
        # It has ended, or cannot be reached: the process was restarted, or another one owns the
        # broker.
        if not wait_s:
            common.complain("The events have ended; waiting for the broker.")
        wait_s = min(_LONGEST_S, wait_s * 2 or _FIRST_S)
        time.sleep(wait_s)
        try:
            client.move(
                find(common.host, common.port, secure=common.secure, timeout_s=common.timeout_s)
            )
        except AdminError:
            continue


def _stream(
    client: AdminClient, parameters: Mapping[str, object], last: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield name, id and data of each event of a stream."""
    name = number = data = ""
    for line in client.stream(_PATH, parameters, last, _SILENCE_S):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if number or data:
                yield name, number, json.loads(data) if data else {}
            name = number = data = ""
        elif not field:
            # It says nothing every 15 seconds.
            end_unread(sys.stdout)
        elif field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            data += value


def end_unread(stream: TextIO) -> None:
    """End where nothing reads what is written, as behind ``| head``.

    Writing would tell, but the next event may be hours away.

    :raises BrokenPipeError: nothing reads it any more.
    """
    poll = select.poll()
    try:
        poll.register(stream, 0)
    except (OSError, ValueError):
        # It is no file.
        return
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


def _show(common: Common, number: str, event: Mapping[str, Any]) -> None:
    if common.json:
        print(json.dumps({"id": number, **event}))
    elif not common.silent:
        print(printable_lines(_line(event)))
    sys.stdout.flush()


def _line(event: Mapping[str, Any]) -> str:
    return f"{event['time']}  {event['kind']:<22}  {event['message']}"


def _gap(missed: int | None) -> str:
    if missed is None:
        return "The process is another one; the log has what happened before."
    return f"{missed} events before this are not kept any more; the log has them."


#: By subcommand and argument.
EVENTS: Final[Mapping[tuple[str, str], Command]] = {
    ("events", ""): Command(run=_run, may=("-follow", "-since", "-kind")),
}
