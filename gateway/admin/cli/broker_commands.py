"""The commands of ``imqcmd``: what each asks the admin service, and what it prints, in Open MQ's
order.

Each returns the exit code, and raises AdminError for what cannot be done. How they are spelled is
:mod:`gateway.admin.cli.imqcmd`'s to know.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.admin.cli.broker_shown import (
    broker_details,
    connection_details,
    connections_table,
    destination_details,
    destinations_table,
    durables_table,
    listed,
    message_details,
    messages_table,
    which_table,
)
from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.options import Common, UsageError
from gateway.admin.cli.tables import table

PASSWORD_NAME: Final = "imq.imqcmd.password"
_TITLES: Final = {"queue": "Queue", "topic": "Topic"}
_ON: Final = "On the broker specified by:"


@dataclass(frozen=True)
class Command:
    """One command, as it was given.

    :param type: ``queue``, ``topic``, or "" where none was given. :param properties: given by
        ``-o``.
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
        """Print what will be done, to what, and on which broker. :param what: a table. :param more:
        what it is done with, each on a line.
        """
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


def carry_out(
    command: Command,
    introduction: Sequence[str],
    ask: Callable[[AdminClient], Any],
    said: str,
    show: Callable[[Common, Any], None] = lambda common, answer: None,
    unless: tuple[str, str] | None = None,
) -> int:
    """What all commands do: find the service, say what will be done, have it confirmed, ask for it,
    show the answer, and say that it is done.

    :param introduction: of :meth:`Command.introduce`. :param said: at the end. :param unless:
        question and refusal of :meth:`Command.refused`.
    """
    client = command.client()
    command.introduce(*introduction)
    if unless is not None and command.refused(*unless):
        return 0
    answer = ask(client)
    show(command.common, answer)
    command.common.show_json(answer)
    command.common.say(said)
    return 0


def change(
    command: Command,
    words: tuple[str, str, str],
    what: Sequence[str],
    ask: Callable[[AdminClient], Any],
    show: Callable[[Common, Any], None] = lambda common, answer: None,
    doing: str = "",
) -> int:
    """A command that changes what is there, if the operator wants it.

    :param words: such as ``("purge", "purged", "destination")``. :param what: tables of what is
        changed, and how.
    :param doing: such as ``Purging``, where that is not made of the first word so.
    """
    verb, done, noun = words
    doing = f"{doing or verb.removesuffix('e').capitalize() + 'ing'} the {noun} where:"
    unless = (f"Are you sure you want to {verb} this {noun}?", f"The {noun} was not {done}.")
    return carry_out(command, (doing, *what), ask, f"Successfully {done} the {noun}.", show, unless)


def shown(form: Callable[[Any], str]) -> Callable[[Common, Any], None]:
    """Shows an answer in that form."""
    return lambda common, answer: common.show(form(answer))


def _say_notes(common: Common, answer: Any) -> None:
    for note in answer["notes"]:
        common.complain(f"{common.program}: Warning: {note}")


# --- destinations


def list_dst(command: Command) -> int:
    which = (
        f"the {_TITLES[command.type].lower()} destinations"
        if command.type
        else "all the destinations"
    )
    return carry_out(
        command,
        (f"Listing {which} on the broker specified by:",),
        lambda client: client.get(
            "/v1/destinations", type=command.type, temporary=bool(command.options.temporary)
        ),
        "Successfully listed destinations.",
        shown(lambda answer: destinations_table(answer["destinations"])),
    )


def query_dst(command: Command) -> int:
    return carry_out(
        command,
        ("Querying the destination where:", _which(command)),
        lambda client: client.get("/v1/destination", type=command.type, name=command.name),
        "Successfully queried the destination.",
        shown(destination_details),
    )


def create_dst(command: Command) -> int:
    attributes = [
        ("Destination Name", command.name),
        ("Destination Type", _TITLES[command.type]),
        *command.properties.items(),
    ]
    properties = dict(command.properties)
    return carry_out(
        command,
        ("Creating a destination with the following attributes:", listed(attributes)),
        lambda client: client.post(
            "/v1/destinations", type=command.type, name=command.name, properties=properties
        ),
        "Successfully created the destination.",
        _say_notes,
    )


def update_dst(command: Command) -> int:
    body = {"type": command.type, "name": command.name, "properties": dict(command.properties)}
    return change(
        command,
        ("update", "updated", "destination"),
        (_which(command), listed(list(command.properties.items()))),
        lambda client: client.ask("PUT", "/v1/destination", body=body),
        _say_notes,
    )


def purge_dst(command: Command) -> int:
    selector, use_dmq = command.options.selector, _use_dmq(command)
    how = [*([("Selector", selector)] if selector else []), *command.properties.items()]
    return change(
        command,
        ("purge", "purged", "destination"),
        (_which(command), listed(how) if how else ""),
        lambda client: client.post(
            "/v1/destination/purge",
            type=command.type,
            name=command.name,
            selector=selector,
            use_dmq=use_dmq,
        ),
        lambda common, answer: common.say(f"Messages purged: {answer['purged']}"),
    )


def destroy_dst(command: Command) -> int:
    body = {"type": command.type, "name": command.name, "use_dmq": _use_dmq(command)}
    return change(
        command,
        ("destroy", "destroyed", "destination"),
        (_which(command), listed(list(command.properties.items())) if command.properties else ""),
        lambda client: client.ask("DELETE", "/v1/destination", body=body),
    )


def _use_dmq(command: Command) -> bool:
    """Whether what is given up is to go to the dead message queue. :raises UsageError: another
    property is given, or another value.
    """
    for name, value in command.properties.items():
        if name != "useDMQ":
            raise UsageError(f"-o {name}: purge dst and destroy dst have useDMQ only")
        if value.lower() not in ("true", "false"):
            raise UsageError(f"-o {name}={value}: expected true or false")
    return command.properties.get("useDMQ", "").lower() == "true"


def _which(command: Command) -> str:
    return which_table(command.type, command.name)


# --- messages


def list_msg(command: Command) -> int:
    _only_queues(command)
    selector, limit = command.options.selector, command.options.limit
    asked = {"name": command.name, "selector": selector, **({"limit": limit} if limit else {})}

    def show(common: Common, answer: Any) -> None:
        common.show(messages_table(answer["messages"]))
        if answer["more"]:
            common.say(
                f"There are more; these are the first {len(answer['messages'])}. -maxNumMsgsRetrieved shows more of them."
            )

    return carry_out(
        command,
        ("Listing the messages that wait in the destination where:", _which(command)),
        lambda client: client.get("/v1/messages", **asked),
        "Successfully listed messages.",
        show,
    )


def query_msg(command: Command) -> int:
    _only_queues(command)
    return carry_out(
        command,
        (
            "Querying the message where:",
            listed(
                [("Message ID", command.options.message_id), ("Destination Name", command.name)]
            ),
        ),
        lambda client: client.get("/v1/message", name=command.name, id=command.options.message_id),
        "Successfully queried the message.",
        shown(message_details),
    )


def _only_queues(command: Command) -> None:
    if command.type != "queue":
        raise UsageError(
            "-t t: only the messages of queues can be looked at; a topic keeps none, and its subscriptions are in 'list dur'"
        )


# --- durable subscriptions


def list_dur(command: Command) -> int:
    topic = command.options.topic
    return carry_out(
        command,
        (
            f"Listing all the durable subscriptions {f'on the topic {topic}' if topic else 'of all topics'} on the broker specified by:",
        ),
        lambda client: client.get("/v1/durables", topic=topic),
        "Successfully listed durable subscriptions.",
        shown(lambda answer: durables_table(answer["durables"], not topic)),
    )


def destroy_dur(command: Command) -> int:
    client_id = command.options.client_id
    return change(
        command,
        ("destroy", "destroyed", "durable subscription"),
        (table(("Durable Subscription Name", "Client ID"), [(command.name, client_id)]),),
        lambda client: client.ask(
            "DELETE", "/v1/durable", body={"name": command.name, "client_id": client_id}
        ),
    )


# --- connections


def list_cxn(command: Command) -> int:
    service = command.options.service
    which = f"the connections of the service {service}" if service else "all the connections"
    return carry_out(
        command,
        (f"Listing {which} on the broker specified by:",),
        lambda client: client.get("/v1/connections", service=service),
        "Successfully listed connections.",
        shown(lambda answer: connections_table(answer["connections"])),
    )


def query_cxn(command: Command) -> int:
    def ask(client: AdminClient) -> Any:
        every = client.get("/v1/connections")["connections"]
        found = next((each for each in every if str(each["id"]) == command.name), None)
        if found is None:
            raise AdminError(f"there is no connection {command.name}")
        return found

    introduction = ("Querying the connection where:", _which_cxn(command))
    return carry_out(
        command,
        introduction,
        ask,
        "Successfully queried the connection.",
        shown(connection_details),
    )


def destroy_cxn(command: Command) -> int:
    return change(
        command,
        ("destroy", "destroyed", "connection"),
        (_which_cxn(command),),
        lambda client: client.ask("DELETE", "/v1/connection", body={"id": command.name}),
    )


def _which_cxn(command: Command) -> str:
    return table(("Connection ID",), [(command.name,)])


# --- the broker


def query_bkr(command: Command) -> int:
    return carry_out(
        command,
        ("Querying the broker specified by:",),
        lambda client: client.get("/v1/broker"),
        "Successfully queried the broker.",
        shown(lambda answer: broker_details(answer, command.common.port)),
    )
