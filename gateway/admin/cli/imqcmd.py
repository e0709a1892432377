"""The ``imqcmd`` command: Open MQ's Command utility.

It has those commands that make sense here, with the original's syntax, tables and exit codes. Owns the table of its commands, and what each needs on the command line.

Exit codes: 0 done, also when the operator answers no; 1 for everything else, a wrong command line
included.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.admin.cli import render_broker as render
from gateway.admin.cli.bench import ACKS, BENCH
from gateway.admin.cli.commands import (
    Ask,
    Command,
    Common,
    Parser,
    Question,
    UsageError,
    carry_out,
    found,
    no_such,
    one_of,
    properties_of,
    request,
    run_program,
)
from gateway.admin.cli.completion import Vocabulary, completion_commands
from gateway.admin.cli.connection_commands import CONNECTION_COMMANDS, which_connection
from gateway.admin.cli.context_commands import CONTEXT_COMMANDS
from gateway.admin.cli.doctor import DOCTOR
from gateway.admin.cli.events import EVENTS
from gateway.admin.cli.help_texts import BROKER_LONG, BROKER_SHORT, INSTEAD
from gateway.admin.cli.instance_commands import INSTANCE_COMMANDS
from gateway.admin.cli.message_commands import MESSAGE_COMMANDS
from gateway.admin.cli.render import listed, table
from gateway.admin.cli.why import WHY
from gateway.broker.properties.pause import TYPES as PAUSES
from gateway.instance.command_end import run_to_the_end

PROGRAM: Final = "imqcmd"
_TYPES: Final = {"q": "queue", "queue": "queue", "t": "topic", "topic": "topic"}


def _change(
    verb: str,
    done: str,
    noun: str,
    ask: Ask,
    subject: Callable[[Namespace], Sequence[str]],
    *,
    doing: str = "",
    render: Callable[[Namespace, Any], Iterable[str]] = lambda options, answer: (),
    needs: tuple[str, ...],
    may: tuple[str, ...] = (),
) -> Command:
    """A command that changes what is there, if the operator wants it.

    :param doing: such as ``Committing``, where that is not the verb with an ending.
    """
    return Command(
        title=f"{doing or verb.removesuffix('e').capitalize() + 'ing'} the {noun} where:",
        subject=subject,
        question=lambda options: Question(
            f"Are you sure you want to {verb} this {noun}?",
            f"The {noun} was not {done}.",
            spaced=True,
        ),
        ask=ask,
        render=render,
        done=f"Successfully {done} the {noun}.",
        needs=needs,
        may=may,
    )


def _pausing(verb: str, doing: str, done: str, ask: Ask, *may: str) -> Command:
    """Pause or resume one destination, or all where none is named."""
    return Command(
        title=lambda options: (
            f"{doing} the destination where:"
            if options.name
            else f"{doing} all the destinations where:"
            if options.pause
            else f"{doing} all the destinations on the broker specified by:"
        ),
        subject=lambda options: [
            *(_destination(options) if options.name else []),
            *([listed([("Pause Type", options.pause)])] if options.pause else []),
        ],
        question=lambda options: (
            Question(
                f"Are you sure you want to {verb} this destination?",
                f"The destination was not {done}.",
                spaced=True,
            )
            if options.name
            else Question(
                f"Are you sure you want to {verb} all the destinations?",
                f"The destinations were not {done}.",
                spaced=True,
            )
        ),
        ask=ask,
        done=lambda options: (
            f"Successfully {done} the destination."
            if options.name
            else f"Successfully {done} all destinations."
        ),
        may=("-t", "-n", *may),
    )


# --- what a command is about


def _destination(options: Namespace) -> Sequence[str]:
    return [render.which_table(options.type, options.name)]


def _destination_and_how(options: Namespace) -> Sequence[str]:
    how = list(options.properties.items())
    if options.selector:
        how.insert(0, ("Selector", options.selector))
    return [*_destination(options), *([listed(how)] if how else [])]


def _service(options: Namespace) -> Sequence[str]:
    return [table(("Service Name",), [(options.name,)])]


def _transaction(options: Namespace) -> Sequence[str]:
    return [table(("Transaction ID",), [(options.name,)])]


# --- the table


def _listed_scheduled(options: Namespace, answer: Any) -> Iterator[str]:
    scheduled = answer["scheduled"]
    yield render.scheduled_table(scheduled)
    if answer["count"] > len(scheduled):
        yield f"These are the first {len(scheduled)} of {answer['count']}. -maxNumMsgsRetrieved shows more of them."


def _listed_branches(options: Namespace, answer: Any) -> Iterator[str]:
    if answer["branches"]:
        yield render.branches_table(answer["branches"])
    else:
        yield "There are no prepared transactions."
        yield ""


#: By subcommand and argument.
_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    **INSTANCE_COMMANDS,
    **CONTEXT_COMMANDS,
    **completion_commands(lambda: _vocabulary()),
    ("list", "dst"): Command(
        title=lambda options: (
            f"Listing {f'the {options.type}' if options.type else 'all the'} destinations on the broker specified by:"
        ),
        ask=request("GET", "/v1/destinations", "type", "temporary"),
        render=lambda options, answer: [render.destinations_table(answer["destinations"])],
        done="Successfully listed destinations.",
        may=("-t", "-tmp"),
    ),
    ("query", "dst"): Command(
        title="Querying the destination where:",
        subject=_destination,
        ask=request("GET", "/v1/destination", "type", "name"),
        render=lambda options, answer: [render.destination_details(answer)],
        done="Successfully queried the destination.",
        needs=("-t", "-n"),
    ),
    ("create", "dst"): Command(
        title="Creating a destination with the following attributes:",
        subject=lambda options: [
            listed(
                [
                    ("Destination Name", options.name),
                    ("Destination Type", render.TYPES[options.type]),
                    *options.properties.items(),
                ]
            )
        ],
        ask=request("POST", "/v1/destinations", "type", "name", "properties"),
        done="Successfully created the destination.",
        needs=("-t", "-n"),
        may=("-o",),
    ),
    ("update", "dst"): _change(
        "update",
        "updated",
        "destination",
        request("PUT", "/v1/destination", "type", "name", "properties"),
        _destination_and_how,
        needs=("-t", "-n", "-o"),
    ),
    ("purge", "dst"): _change(
        "purge",
        "purged",
        "destination",
        request("POST", "/v1/destination/purge", "type", "name", "selector", "use_dmq"),
        _destination_and_how,
        render=lambda options, answer: [f"Messages purged: {answer['purged']}"],
        needs=("-t", "-n"),
        may=("-selector", "-o"),
    ),
    ("pause", "dst"): _pausing(
        "pause",
        "Pausing",
        "paused",
        request("POST", "/v1/destination/pause", "type", "name", "pause"),
        "-pst",
    ),
    ("resume", "dst"): _pausing(
        "resume",
        "Resuming",
        "resumed",
        request("POST", "/v1/destination/resume", "type", "name"),
    ),
    ("destroy", "dst"): _change(
        "destroy",
        "destroyed",
        "destination",
        request("DELETE", "/v1/destination", "type", "name", "use_dmq"),
        _destination_and_how,
        needs=("-t", "-n"),
        may=("-o",),
    ),
    **MESSAGE_COMMANDS,
    ("list", "scheduled"): Command(
        title="Listing the messages that are to be delivered later in the destination where:",
        subject=_destination,
        ask=request("GET", "/v1/scheduled", "type", "name", "limit"),
        render=_listed_scheduled,
        done="Successfully listed scheduled messages.",
        needs=("-t", "-n"),
        may=("-maxNumMsgsRetrieved",),
    ),
    ("destroy", "scheduled"): _change(
        "destroy",
        "destroyed",
        "scheduled message",
        request("DELETE", "/v1/scheduled", job_id="name"),
        lambda options: [table(("Job ID",), [(options.name,)])],
        needs=("-n",),
    ),
    ("list", "dur"): Command(
        title=lambda options: (
            f"Listing all the durable subscriptions {f'on the topic {options.topic}' if options.topic else 'of all topics'} on the broker specified by:"
        ),
        ask=request("GET", "/v1/durables", "topic"),
        render=lambda options, answer: [
            # A pattern may have two meanings, which its column tells.
            (
                render.durables_table
                if options.topic and ">" not in options.topic
                else render.all_durables_table
            )(answer["durables"])
        ],
        done="Successfully listed durable subscriptions.",
        may=("-d",),
    ),
    ("destroy", "dur"): _change(
        "destroy",
        "destroyed",
        "durable subscription",
        request("DELETE", "/v1/durable", "name", "client_id"),
        lambda options: [
            table(("Durable Subscription Name", "Client ID"), [(options.name, options.client_id)])
        ],
        needs=("-n", "-c"),
    ),
    **CONNECTION_COMMANDS,
    ("destroy", "cxn"): _change(
        "destroy",
        "destroyed",
        "connection",
        request("DELETE", "/v1/connection", id="name"),
        which_connection,
        needs=("-n",),
    ),
    ("list", "svc"): Command(
        title="Listing all the services on the broker specified by:",
        ask=request("GET", "/v1/services"),
        render=lambda options, answer: [render.services_table(answer["services"])],
        done="Successfully listed services.",
    ),
    ("query", "svc"): Command(
        title="Querying the service where:",
        subject=_service,
        ask=one_of("/v1/services", "services", "service", "there is no service"),
        render=lambda options, answer: [render.service_details(answer)],
        done="Successfully queried the service.",
        needs=("-n",),
    ),
    **{
        (order, "svc"): _change(
            order,
            done,
            "service",
            request("POST", f"/v1/services/{order}", service="name"),
            _service,
            doing=doing,
            needs=("-n",),
        )
        for order, done, doing in (
            ("pause", "paused", "Pausing"),
            ("resume", "resumed", "Resuming"),
        )
    },
    ("reload", "svc"): Command(
        title="Reading the settings of the services again on the broker specified by:",
        ask=request("POST", "/v1/services/reload"),
        render=lambda options, answer: [render.services_table(answer["services"])],
        done="Successfully read the settings of the services again.",
    ),
    ("list", "txn"): Command(
        title="Listing all the prepared transactions on the broker specified by:",
        ask=request("GET", "/v1/branches"),
        render=_listed_branches,
        done="Successfully listed transactions.",
    ),
    ("query", "txn"): Command(
        title="Querying the transaction where:",
        subject=_transaction,
        ask=one_of("/v1/branches", "branches", "xid", "there is no prepared transaction"),
        render=lambda options, answer: [render.branch_details(answer)],
        done="Successfully queried the transaction.",
        needs=("-n",),
    ),
    **{
        (order, "txn"): _change(
            verb,
            done,
            "transaction",
            request("POST", f"/v1/branches/{order}", xid="name"),
            _transaction,
            doing=doing,
            needs=("-n",),
        )
        for order, verb, done, doing in (
            ("commit", "commit", "committed", "Committing"),
            ("rollback", "roll back", "rolled back", "Rolling back"),
            ("forget", "forget", "forgotten", "Forgetting"),
        )
    },
    ("query", "bkr"): Command(
        title="Querying the broker specified by:",
        ask=request("GET", "/v1/broker"),
        render=lambda options, answer: [render.broker_details(answer, options.port)],
        done="Successfully queried the broker.",
    ),
    ("list", "bkr"): Command(
        title="Listing all the processes of the broker specified by:",
        ask=request("GET", "/v1/brokers"),
        render=lambda options, answer: [render.members_table(answer["brokers"])],
        done="Successfully listed the processes of the broker.",
    ),
    ("takeover", "bkr"): Command(
        title="Taking over the broker where:",
        subject=lambda options: [table(("Broker ID",), [(options.name,)])],
        question=lambda options: Question(
            "Are you sure you want to take over this broker?",
            "The broker was not taken over.",
            spaced=True,
        ),
        ask=request("POST", "/v1/broker/takeover", broker="name"),
        done="Successfully asked the owner to give the broker up; 'list bkr' shows who owns it.",
        needs=("-n",),
    ),
    **{
        (order, "bkr"): _change(
            verb,
            done,
            "broker",
            request("POST", f"/v1/broker/{order}"),
            lambda options: [],
            doing=doing,
            needs=(),
        )
        for order, verb, done, doing in (
            ("quiesce", "quiesce", "quiesced", "Quiescing"),
            ("shutdown", "shut down", "shut down", "Shutting down"),
        )
    },
    **WHY,
    **EVENTS,
    **DOCTOR,
    **BENCH,
}
#: Options with a value, and their attributes. Each is for some commands only.
_VALUES: Final = {
    "-t": "type",
    "-n": "name",
    "-selector --selector -sel": "selector",
    "-d": "topic",
    "-c": "client_id",
    "-svn": "service",
    "-msgID": "message_id",
    "-maxNumMsgsRetrieved": "limit",
    "-limit": "most",
    "-to": "to",
    "-body": "body_file",
    "-priority": "priority",
    "-type": "message_type",
    "-expires": "expires",
    "-pst": "pause",
    "-id": "id",
    "-bn": "bridge",
    "-ln": "link",
    "-since --since": "since",
    "-kind --kind": "kind",
    "-producers --producers": "producers",
    "-consumers --consumers": "consumers",
    "-size --size": "size",
    "-window --window": "window",
    "-ack --ack": "ack",
    "-duration --duration": "duration",
}
_FLAGS: Final = {
    "-tmp": "temporary",
    "-prune --prune": "prune",
    "-follow --follow": "follow",
    "-persistent --persistent": "persistent",
}
#: In the order in which they are checked.
_PARTICULAR: Final = {
    "-t": "type",
    "-n": "name",
    "-o": "properties",
    "-tmp": "temporary",
    "-selector": "selector",
    "-d": "topic",
    "-c": "client_id",
    "-svn": "service",
    "-msgID": "message_id",
    "-maxNumMsgsRetrieved": "limit",
    "-limit": "most",
    "-to": "to",
    "-body": "body_file",
    "-priority": "priority",
    "-type": "message_type",
    "-expires": "expires",
    "-pst": "pause",
    "-id": "id",
    "-bn": "bridge",
    "-ln": "link",
    "-prune": "prune",
    "-follow": "follow",
    "-since": "since",
    "-kind": "kind",
    "-producers": "producers",
    "-consumers": "consumers",
    "-size": "size",
    "-persistent": "persistent",
    "-window": "window",
    "-ack": "ack",
    "-duration": "duration",
}


def _command(options: Namespace) -> Command:
    """:raises UsageError: the command is unknown, or an option wrong."""
    subcommand, argument = options.subcommand, options.argument
    if not subcommand:
        raise UsageError("a subcommand is missing")
    words = f"{subcommand} {argument}".strip()
    if words in INSTEAD:
        raise UsageError(f"there is no {words}: {INSTEAD[words]}")
    command = found(_COMMANDS, subcommand, argument)
    if command is None:
        raise no_such(_COMMANDS, subcommand, words)
    for option, attribute in _PARTICULAR.items():
        given = bool(getattr(options, attribute))
        if option in command.needs and not given:
            raise UsageError(f"{option} is missing: {words} needs {' and '.join(command.needs)}")
        if given and option not in (*command.needs, *command.may):
            raise UsageError(f"{option} is not for {words}")
    return command


def _convert(options: Namespace) -> None:
    """Convert the values of ``-t`` and ``-o``.

    :raises UsageError: one is wrong.
    """
    if options.type:
        kind = _TYPES.get(options.type.lower())
        if kind is None:
            raise UsageError(f"-t {options.type}: expected q for a queue or t for a topic")
        options.type = kind
    elif options.name and options.argument == "dst":
        raise UsageError(f"-t is missing: {options.subcommand} dst needs it with -n")
    if options.pause:
        options.pause = options.pause.upper()
        if options.pause not in PAUSES:
            raise UsageError(f"-pst {options.pause}: expected {', '.join(PAUSES)}")
    options.properties = properties_of(options.properties or ())
    if options.subcommand in ("purge", "destroy"):
        options.use_dmq = _use_dmq(options.properties)
    if options.argument == "msg" and options.subcommand != "why" and options.type != "queue":
        raise UsageError(
            "-t t: only the messages of queues can be looked at; a topic keeps none, and its subscriptions are in 'list dur'"
        )


def _use_dmq(properties: Mapping[str, str]) -> bool:
    """Whether messages that are given up shall go to the dead message queue."""
    for name, value in properties.items():
        if name != "useDMQ":
            raise UsageError(f"-o {name}: purge dst and destroy dst have useDMQ only")
        if value.lower() not in ("true", "false"):
            raise UsageError(f"-o {name}={value}: expected true or false")
    return properties.get("useDMQ", "").lower() == "true"


def run(arguments: Sequence[str]) -> int:
    """Run the command. :returns: the exit code."""
    return run_program(PROGRAM, BROKER_SHORT, BROKER_LONG, arguments, _run)


def _parser() -> Parser:
    parser = Parser(PROGRAM, _VALUES, _FLAGS)
    parser.add_argument("-o", dest="properties", action="append")
    return parser


def _vocabulary() -> Vocabulary:
    return Vocabulary.of(
        _parser(), _COMMANDS, _PARTICULAR, {"-t": ("q", "t"), "-pst": tuple(PAUSES), "-ack": ACKS}
    )


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    command = _command(options)
    common = Common.of(PROGRAM, options)
    _convert(options)
    options.port = common.port
    return carry_out(command, common, options)


def main() -> None:
    """The console script."""
    run_to_the_end(run)


if __name__ == "__main__":
    main()
