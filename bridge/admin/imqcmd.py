"""The ``imqcmd`` command: Open MQ's Command utility, as far as there is something for it to do here, with its syntax, tables and exit codes.

Owns the command line: which words there are, what each needs, and what is printed. What is done is the admin service's.

Exit codes: 0 done, also when the operator answers no; 1 for everything else, a wrong command line included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.admin.broker_shown import (
    broker_details,
    connection_details,
    connections_table,
    destination_details,
    destinations_table,
    durables_table,
    listed,
    which_table,
)
from bridge.admin.client import AdminClient, AdminError
from bridge.admin.imqcmd_help import INSTEAD, LONG, SHORT
from bridge.admin.options import Common, Parser, UsageError, add_common_options, run_to_the_end
from bridge.admin.running import run_command
from bridge.admin.tables import table

PROGRAM: Final = "imqcmd"
PASSWORD_NAME: Final = "imq.imqcmd.password"
_TYPES: Final = {"q": "queue", "queue": "queue", "t": "topic", "topic": "topic"}
_TITLES: Final = {"queue": "Queue", "topic": "Topic"}
_ON: Final = "On the broker specified by:"


@dataclass(frozen=True)
class Command:
    """One command, as it was given.

    :param type: ``queue``, ``topic``, or "" where none was given. :param properties: given by ``-o``.
    """

    common: Common
    options: argparse.Namespace
    type: str
    properties: Mapping[str, str]

    @property
    def name(self) -> str:
        name: str = self.options.name
        return name

    def client(self) -> AdminClient:
        """The way to the admin service. :raises AdminError: there is none."""
        return self.common.client(PASSWORD_NAME)

    def introduce(self, doing: str, what: str = "", more: str = "") -> None:
        """Print what will be done, to what, and on which broker. :param what: a table. :param more: what it is done with, each on a line."""
        common = self.common
        common.say(doing)
        common.say()
        if what:
            common.show(what)
            if more:
                common.show(more)
            common.say(_ON)
            common.say()
        common.show_broker()

    def refused(self, question: str, otherwise: str) -> bool:
        """Whether the operator does not want it; then that is printed."""
        common = self.common
        if common.confirmed(question):
            common.say()
            return False
        common.say()
        common.say(otherwise)
        common.show_json({"done": False})
        return True


# --- destinations


def list_dst(command: Command) -> int:
    common, client = command.common, command.client()
    which = f"the {_TITLES[command.type].lower()} destinations" if command.type else "all the destinations"
    command.introduce(f"Listing {which} on the broker specified by:")
    answer = client.get("/v1/destinations", type=command.type, temporary=bool(command.options.temporary))
    common.show(destinations_table(answer["destinations"]))
    common.show_json(answer)
    common.say("Successfully listed destinations.")
    return 0


def query_dst(command: Command) -> int:
    common, client = command.common, command.client()
    command.introduce("Querying the destination where:", which_table(command.type, command.name))
    answer = client.get("/v1/destination", type=command.type, name=command.name)
    common.show(destination_details(answer))
    common.show_json(answer)
    common.say("Successfully queried the destination.")
    return 0


def create_dst(command: Command) -> int:
    common, client = command.common, command.client()
    attributes = [("Destination Name", command.name), ("Destination Type", _TITLES[command.type]), *command.properties.items()]
    command.introduce("Creating a destination with the following attributes:", listed(attributes))
    answer = client.post("/v1/destinations", type=command.type, name=command.name, properties=dict(command.properties))
    _say_notes(common, answer)
    common.show_json(answer)
    common.say("Successfully created the destination.")
    return 0


def update_dst(command: Command) -> int:
    common, client = command.common, command.client()
    given = listed(list(command.properties.items()))
    command.introduce("Updating the destination where:", which_table(command.type, command.name), given)
    if command.refused("Are you sure you want to update this destination?", "The destination was not updated."):
        return 0
    body = {"type": command.type, "name": command.name, "properties": dict(command.properties)}
    answer = client.ask("PUT", "/v1/destination", body=body)
    _say_notes(common, answer)
    common.show_json(answer)
    common.say("Successfully updated the destination.")
    return 0


def purge_dst(command: Command) -> int:
    common, client, selector = command.common, command.client(), command.options.selector
    more = listed([("Selector", selector)]) if selector else ""
    command.introduce("Purging the destination where:", which_table(command.type, command.name), more)
    if command.refused("Are you sure you want to purge this destination?", "The destination was not purged."):
        return 0
    answer = client.post("/v1/destination/purge", type=command.type, name=command.name, selector=selector)
    common.show_json(answer)
    common.say(f"Messages purged: {answer['purged']}")
    common.say("Successfully purged the destination.")
    return 0


def destroy_dst(command: Command) -> int:
    common, client = command.common, command.client()
    command.introduce("Destroying the destination where:", which_table(command.type, command.name))
    if command.refused("Are you sure you want to destroy this destination?", "The destination was not destroyed."):
        return 0
    answer = client.ask("DELETE", "/v1/destination", body={"type": command.type, "name": command.name})
    common.show_json(answer)
    common.say("Successfully destroyed the destination.")
    return 0


# --- durable subscriptions


def list_dur(command: Command) -> int:
    common, client, topic = command.common, command.client(), command.options.topic
    which = f"on the topic {topic}" if topic else "of all topics"
    command.introduce(f"Listing all the durable subscriptions {which} on the broker specified by:")
    answer = client.get("/v1/durables", topic=topic)
    common.show(durables_table(answer["durables"], not topic))
    common.show_json(answer)
    common.say("Successfully listed durable subscriptions.")
    return 0


def destroy_dur(command: Command) -> int:
    common, client, client_id = command.common, command.client(), command.options.client_id
    what = table(("Durable Subscription Name", "Client ID"), [(command.name, client_id)])
    command.introduce("Destroying the durable subscription where:", what)
    question = "Are you sure you want to destroy this durable subscription?"
    if command.refused(question, "The durable subscription was not destroyed."):
        return 0
    answer = client.ask("DELETE", "/v1/durable", body={"name": command.name, "client_id": client_id})
    common.show_json(answer)
    common.say("Successfully destroyed the durable subscription.")
    return 0


# --- connections


def list_cxn(command: Command) -> int:
    common, client, service = command.common, command.client(), command.options.service
    which = f"the connections of the service {service}" if service else "all the connections"
    command.introduce(f"Listing {which} on the broker specified by:")
    answer = client.get("/v1/connections", service=service)
    common.show(connections_table(answer["connections"]))
    common.show_json(answer)
    common.say("Successfully listed connections.")
    return 0


def query_cxn(command: Command) -> int:
    common, client = command.common, command.client()
    command.introduce("Querying the connection where:", table(("Connection ID",), [(command.name,)]))
    every = client.get("/v1/connections")["connections"]
    found = next((each for each in every if str(each["id"]) == command.name), None)
    if found is None:
        raise AdminError(f"there is no connection {command.name}")
    common.show(connection_details(found))
    common.show_json(found)
    common.say("Successfully queried the connection.")
    return 0


def destroy_cxn(command: Command) -> int:
    common, client = command.common, command.client()
    command.introduce("Destroying the connection where:", table(("Connection ID",), [(command.name,)]))
    if command.refused("Are you sure you want to destroy this connection?", "The connection was not destroyed."):
        return 0
    answer = client.ask("DELETE", "/v1/connection", body={"id": command.name})
    common.show_json(answer)
    common.say("Successfully destroyed the connection.")
    return 0


# --- the broker


def query_bkr(command: Command) -> int:
    common, client = command.common, command.client()
    command.introduce("Querying the broker specified by:")
    answer = client.get("/v1/broker")
    common.show(broker_details(answer, common.port))
    common.show_json(answer)
    common.say("Successfully queried the broker.")
    return 0


def _say_notes(common: Common, answer: Any) -> None:
    for note in answer["notes"]:
        common.complain(f"{PROGRAM}: Warning: {note}")


@dataclass(frozen=True)
class _Form:
    """How a command is spelled. :param needs: options that it must have. :param may: those it may have. Of the particular ones, that is."""

    do: Callable[[Command], int]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


_COMMANDS: Final[Mapping[tuple[str, str], _Form]] = {
    ("list", "dst"): _Form(list_dst, (), ("-t", "-tmp")),
    ("query", "dst"): _Form(query_dst, ("-t", "-n")),
    ("create", "dst"): _Form(create_dst, ("-t", "-n"), ("-o",)),
    ("update", "dst"): _Form(update_dst, ("-t", "-n", "-o")),
    ("purge", "dst"): _Form(purge_dst, ("-t", "-n"), ("-selector",)),
    ("destroy", "dst"): _Form(destroy_dst, ("-t", "-n")),
    ("list", "dur"): _Form(list_dur, (), ("-d",)),
    ("destroy", "dur"): _Form(destroy_dur, ("-n", "-c")),
    ("list", "cxn"): _Form(list_cxn, (), ("-svn",)),
    ("query", "cxn"): _Form(query_cxn, ("-n",)),
    ("destroy", "cxn"): _Form(destroy_cxn, ("-n",)),
    ("query", "bkr"): _Form(query_bkr),
}
#: Options that not every command has, and where their values are.
_PARTICULAR: Final = {
    "-t": "type",
    "-n": "name",
    "-o": "properties",
    "-tmp": "temporary",
    "-selector": "selector",
    "-d": "topic",
    "-c": "client_id",
    "-svn": "service",
}


def _parser() -> Parser:
    parser = Parser(PROGRAM)
    parser.add_argument("subcommand", nargs="?", default="")
    parser.add_argument("argument", nargs="?", default="")
    add_common_options(parser)
    parser.add_argument("-t", dest="type", default="")
    parser.add_argument("-n", dest="name", default="")
    parser.add_argument("-o", dest="properties", action="append", default=[])
    parser.add_argument("-tmp", dest="temporary", action="store_true")
    parser.add_argument("-selector", "--selector", dest="selector", default="")
    parser.add_argument("-d", dest="topic", default="")
    parser.add_argument("-c", dest="client_id", default="")
    parser.add_argument("-svn", dest="service", default="")
    return parser


def _form(options: argparse.Namespace) -> _Form:
    """:raises UsageError: there is no such command, or something is missing, or too much."""
    subcommand, argument = options.subcommand, options.argument
    if not subcommand:
        raise UsageError("a subcommand is missing")
    form = _COMMANDS.get((subcommand, argument))
    command = f"{subcommand} {argument}".strip()
    if form is None:
        if command in INSTEAD:
            raise UsageError(f"there is no {command}: {INSTEAD[command]}")
        arguments = [known for word, known in _COMMANDS if word == subcommand]
        if arguments:
            raise UsageError(f"there is no {command}; expected {subcommand} {' or '.join(arguments)}")
        words = sorted({word for word, _ in _COMMANDS})
        raise UsageError(f"there is no subcommand {subcommand}; expected one of {', '.join(words)}")
    for option, name in _PARTICULAR.items():
        given = bool(getattr(options, name))
        if option in form.needs and not given:
            raise UsageError(f"{option} is missing: {command} needs {' and '.join(form.needs)}")
        if given and option not in (*form.needs, *form.may):
            raise UsageError(f"{option} is not for {command}")
    return form


def _type(text: str) -> str:
    kind = _TYPES.get(text.lower(), "") if text else ""
    if text and not kind:
        raise UsageError(f"-t {text}: expected q for a queue or t for a topic")
    return kind


def _properties(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(f"-o {each}: expected NAME=VALUE")
        if name in found:
            raise UsageError(f"-o {each}: {name} is given twice")
        found[name] = value
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command. :returns: the exit code."""
    return run_command(PROGRAM, SHORT, LONG, arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    form = _form(options)
    return form.do(Command(Common.of(PROGRAM, options), options, _type(options.type), _properties(options.properties)))


def main() -> None:
    """The console script."""
    run_to_the_end(run)


if __name__ == "__main__":
    main()
