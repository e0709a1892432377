"""The ``imqbridgemgr`` command: Open MQ's Bridge Manager utility.

It has the original's syntax, tables, order of output and exit codes. Owns the table of its commands, and what each needs on the command line.

Exit codes: 0 done, also when the operator answers no; 1 for everything else, a wrong command line
included.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bridge.config.loading import read_path
from bridge.config.model import Bridge
from bridge.config.problems import ConfigurationError, Problem, Severity
from bridge.config.settings import PASSWORD
from gateway.admin.cli import render_bridges as render
from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.commands import (
    FILE,
    Command,
    Common,
    Parser,
    Question,
    UsageError,
    carry_out,
    found,
    no_such,
    properties_of,
    request,
    run_program,
)
from gateway.admin.cli.completion import Vocabulary, completion_commands
from gateway.admin.cli.definition_commands import DEFINITION_COMMANDS
from gateway.admin.cli.help_texts import BRIDGES_LONG, BRIDGES_SHORT
from gateway.admin.cli.render import table
from gateway.admin.cli.why import WHY_LINK
from gateway.admin.left_behind import left_behind
from gateway.instance.command_end import run_to_the_end
from gateway.instance.levels import ALIASES, LEVELS
from gateway.instance.problems import counted

PROGRAM: Final = "imqbridgemgr"

#: What is done to bridges and links, and the words for it.
_OPERATIONS: Final = {
    "start": ("Starting", "started"),
    "stop": ("Stopping", "stopped"),
    "pause": ("Pausing", "paused"),
    "resume": ("Resuming", "resumed"),
}
#: The state of a link after each.
_WANTED: Final = {"start": "STARTED", "stop": "STOPPED", "pause": "PAUSED", "resume": "STARTED"}
#: What is ordered of transactions: doing, done, and what it comes to.
_ORDERS: Final = {
    "commit": (
        "Committing",
        "committed",
        "Its branches that wait are taken for committed, and are waited for no longer.",
    ),
    "rollback": (
        "Rolling back",
        "rolled back",
        "Its branches that wait are rolled back, against the decision: what it moved is lost or doubled.",
    ),
    "forget": (
        "Forgetting",
        "forgotten",
        "Nobody will know any more that it did not end as it was decided.",
    ),
}
_DEAD_OPERATIONS: Final = {"replay": ("Replaying", "replayed"), "purge": ("Purging", "purged")}

_ALL: Final = "/v1/bridges"
_BRIDGE: Final = "/v1/bridges/{bridge}"
_LINKS: Final = "/v1/links/{bridge}"
_TRANSACTIONS: Final = "/v1/transactions/{bridge}"


def _given(**titles: str) -> Callable[[Namespace], Sequence[str]]:
    """A table of those of these options that were given, by their attributes."""

    def subject(options: Namespace) -> Sequence[str]:
        given = {title: getattr(options, name) for name, title in titles.items()}
        given = {title: value for title, value in given.items() if value}
        return [table(list(given), [list(given.values())])] if given else []

    return subject


_WHICH: Final = _given(bridge="Bridge Name", type="Bridge Type", link="Link Name")


# --- bridges and links


def _links_or_link(options: Namespace) -> str:
    return f"{_LINKS}/{{link}}" if options.link else _LINKS


_list_links: Final = request("GET", _links_or_link, "type")
_list_records: Final = request("GET", _TRANSACTIONS)


def _list_link(client: AdminClient, options: Namespace) -> Any:
    if not options.debug:
        return _list_links(client, options)
    if not options.link:
        # It has pools, shared connections and dead message queues as well.
        return request("GET", _BRIDGE, "type")(client, options)
    answer = _list_links(client, options)
    if any(link["transacted"] for link in answer["links"]):
        answer["transaction_records"] = _list_records(client, options)["transactions"]
    return answer


def _operate(client: AdminClient, options: Namespace) -> Any:
    if options.bridge:
        return request("POST", f"{_BRIDGE}/{{subcommand}}", "type")(client, options)
    return request("POST", _ALL, "type", operation="subcommand")(client, options)


def _title_of_operation(options: Namespace) -> str:
    doing, _ = _OPERATIONS[options.subcommand]
    if options.bridge:
        return f"{doing} the bridge:"
    if options.type:
        return f"{doing} all bridges of the type:"
    return f"{doing} all bridges on the broker specified by:"


def _question_of_operation(options: Namespace) -> Question:
    operation, (_, done) = options.subcommand, _OPERATIONS[options.subcommand]
    these, they = (
        ("this bridge", "bridge was") if options.bridge else ("these bridges", "bridges were")
    )
    return Question(f"Are you sure you want to {operation} {these}?", f"The {they} not {done}.")


def _operated_link(options: Namespace, answer: Any) -> Iterator[str]:
    [link] = answer["links"]
    if link["state"] == _WANTED[options.subcommand]:
        yield f"Successfully {_OPERATIONS[options.subcommand][1]} the link."
    else:
        colon = ": " if link["last_error"] else "."
        yield f"The link is {link['state']}{colon}{link['last_error']}"


def _level(client: AdminClient, options: Namespace) -> Any:
    method = "PUT" if options.level else "GET"
    return request(method, f"{_BRIDGE}/level", "level")(client, options)


def _shown_level(options: Namespace, answer: Any) -> Iterator[str]:
    until = " until the gateway ends or is told otherwise" if options.level else ""
    yield f"The log of bridge {options.bridge} takes {answer['level']} and above{until}."


def _watch(command: Command, common: Common, options: Namespace) -> int:
    # rich takes its time to import.
    from gateway.admin.cli.watch import watch

    client = common.client()
    return watch(common, lambda: command.ask(client, options), options)


_OPERATE_BRIDGE: Final = Command(
    title=_title_of_operation,
    subject=_WHICH,
    question=_question_of_operation,
    ask=_operate,
    render=lambda options, answer: render.operated(
        options.subcommand,
        _OPERATIONS[options.subcommand][1],
        bool(options.bridge),
        answer["bridges"],
    ),
)
_OPERATE_LINK: Final = Command(
    title=lambda options: f"{_OPERATIONS[options.subcommand][0]} the link:",
    subject=_WHICH,
    question=lambda options: Question(
        f"Are you sure you want to {options.subcommand} this link?",
        f"The link was not {_OPERATIONS[options.subcommand][1]}.",
    ),
    ask=request("POST", f"{_LINKS}/{{subcommand}}", "link", "type"),
    render=_operated_link,
    needs=("-bn", "-ln"),
)


# --- dead messages and transactions


def _dead_title(options: Namespace) -> str:
    doing, _ = _DEAD_OPERATIONS[options.subcommand]
    which = (
        "the dead messages that the selector matches" if options.selector else "all dead messages"
    )
    return f"{doing} {which}:"


def _dead_question(options: Namespace) -> Question | None:
    if options.dry_run:
        return None
    return Question(
        f"Are you sure you want to {options.subcommand} these messages?",
        f"The messages were not {_DEAD_OPERATIONS[options.subcommand][1]}.",
    )


_DEAD: Final = Command(
    title=_dead_title,
    subject=_given(bridge="Bridge Name", dmq="Dead Message Queue", selector="Selector", to="To"),
    question=_dead_question,
    ask=request(
        "POST", "/v1/dead/{subcommand}", "selector", "limit", "dry_run", "bridge", "dmq", "to"
    ),
    render=lambda options, answer: render.tally_lines(
        answer, _DEAD_OPERATIONS[options.subcommand][1]
    ),
    done=lambda options: (
        "Nothing was changed."
        if options.dry_run
        else f"Successfully {_DEAD_OPERATIONS[options.subcommand][1]} dead messages."
    ),
    undone=left_behind,
    may=("-selector", "-limit", "-dry-run", "-dmq"),
)


def _listed_dead(options: Namespace, answer: Any) -> Iterator[str]:
    yield render.dead_messages(answer["messages"], options.debug)
    if answer["more"]:
        yield "There are more; --limit N shows so many."


def _order_question(options: Namespace) -> Question:
    order, (_, done, meaning) = options.subcommand, _ORDERS[options.subcommand]
    verb = "roll back" if order == "rollback" else order
    return Question(
        f"Are you sure you want to {verb} this transaction?",
        f"The transaction was not {done}.",
        meaning,
    )


_ORDER: Final = Command(
    title=lambda options: f"{_ORDERS[options.subcommand][0]} the transaction:",
    subject=_given(bridge="Bridge Name", transaction="Transaction ID"),
    question=_order_question,
    ask=request("POST", f"{_TRANSACTIONS}/{{subcommand}}", id="transaction"),
    render=lambda options, answer: [
        render.ordered_line(answer)
        or f"Successfully {_ORDERS[options.subcommand][1]} the transaction."
    ],
    needs=("-bn", "-tid"),
)


# --- a file that needs no broker


def _validate(common: Common, path: Path, name: str | None) -> int:
    """Print errors and warnings, and which passwords the file needs.

    :param name: the name that the bridge must have; None where any will do.
    :returns: the exit code: 0 where it is valid.
    :raises AdminError: the file cannot be read.
    """
    passwords = _AnyPassword()
    bridge: Bridge | None = None
    found: Sequence[Problem]
    try:
        bridge, found = read_path(path, name, passwords)
    except ConfigurationError as error:
        found = error.problems
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror or error}") from None
    problems = [_problem(each) for each in found]
    valid = bridge is not None
    needed = [PASSWORD.full_name(each) for each in passwords.asked]
    if common.json:
        common.show_json(
            {"file": str(path), "valid": valid, "problems": problems, "passfile": needed}
        )
        return 0 if valid else 1
    for problem in problems:
        word = "Warning" if problem["severity"] == Severity.WARNING.name else "Error"
        common.complain(f"{word}: {problem['text']}")
    if bridge is not None:
        links = counted(len(bridge.links), "link")
        common.say(f"{path} configures bridge {bridge.name} with {links}.")
    if needed:
        common.say(f"Needs in the passfile: {', '.join(needed)}")
    return 0 if valid else 1


def _problem(problem: Problem) -> dict[str, object]:
    return {
        "line": problem.line,
        "element": problem.element,
        "attribute": problem.attribute,
        "value": problem.value,
        "expected": problem.expected,
        "severity": problem.severity.name,
        "text": str(problem),
    }


class _AnyPassword(Mapping[str, str]):
    """Has every password, in place of a passfile that may not be readable.

    :ivar asked: the names that were asked for, in the order of the file.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> str:
        if name not in self.asked:
            self.asked.append(name)
        return "password"

    def __iter__(self) -> Iterator[str]:
        return iter(("any",))

    def __len__(self) -> int:
        return 1


# --- the table

#: By subcommand and argument. Each may have the options of Open MQ besides.
_COMMANDS: Final[Mapping[tuple[str, str], Command]] = {
    ("list", "bridge"): Command(
        title=lambda options: (
            "Listing the bridge:"
            if options.bridge
            else f"Listing the bridges{' of the type' if options.type else ''} on the broker specified by:"
        ),
        subject=_WHICH,
        ask=request("GET", lambda options: _BRIDGE if options.bridge else _ALL, "type"),
        render=lambda options, answer: (
            render.bridge(answer, options.debug)
            if options.bridge
            else render.bridges(answer["bridges"])
        ),
        done="Successfully listed bridges.",
    ),
    ("list", "link"): Command(
        title=lambda options: (
            "Listing the link:" if options.link else "Listing the links of the bridge:"
        ),
        subject=_WHICH,
        ask=_list_link,
        render=lambda options, answer: render.bridge(answer, options.debug, balances=True),
        done="Successfully listed links.",
        needs=("-bn",),
    ),
    ("list", "dead"): Command(
        title=lambda options: (
            "Listing the dead messages that the selector matches:"
            if options.selector
            else "Listing the dead messages:"
        ),
        subject=_DEAD.subject,
        ask=request("GET", "/v1/dead", "selector", "limit", "bridge", "dmq"),
        render=_listed_dead,
        done="Successfully listed dead messages.",
        may=("-selector", "-limit", "-dmq"),
    ),
    **DEFINITION_COMMANDS,
    **completion_commands(lambda: _vocabulary()),
    ("validate", FILE): Command(
        ask=request("GET", "/v1"),
        run=lambda command, common, options: _validate(
            common, Path(options.argument), options.bridge or None
        ),
    ),
    **{(operation, "bridge"): _OPERATE_BRIDGE for operation in _OPERATIONS},
    **{(operation, "link"): _OPERATE_LINK for operation in _OPERATIONS},
    ("query", "link"): Command(
        title=lambda options: (
            "Querying the link:" if options.link else "Querying the links of the bridge:"
        ),
        subject=_WHICH,
        ask=_list_links,
        render=lambda options, answer: render.links(answer),
        json=lambda options, answer: answer["links"][0] if options.link else answer,
        done=lambda options: f"Successfully queried the {'link' if options.link else 'links'}.",
        needs=("-bn",),
    ),
    ("why", "link"): WHY_LINK,
    ("watch", "bridge"): Command(ask=request("GET", _ALL, "type"), run=_watch),
    ("watch", "link"): Command(ask=_list_links, run=_watch, needs=("-bn",)),
    ("reload", "bridge"): Command(
        title="Reloading the bridge:",
        subject=_WHICH,
        question=lambda options: Question(
            "Are you sure you want to reload this bridge?", "The bridge was not reloaded."
        ),
        ask=request("POST", f"{_BRIDGE}/reload", "type"),
        render=lambda options, answer: render.reloaded(answer),
        done="Successfully reloaded the bridge.",
        needs=("-bn",),
    ),
    ("transfer", "bridge"): Command(
        title="Transferring the bridge:",
        subject=_given(bridge="Bridge Name", to="To Broker"),
        question=lambda options: Question(
            "Are you sure you want to transfer this bridge?", "The bridge was not transferred."
        ),
        ask=request("POST", f"{_BRIDGE}/transfer", "to"),
        render=lambda options, answer: render.bridges([answer]),
        done="Successfully transferred the bridge.",
        needs=("-bn", "-to"),
    ),
    ("level", "bridge"): Command(ask=_level, render=_shown_level, needs=("-bn",), may=("-level",)),
    ("replay", "dead"): replace(_DEAD, may=(*_DEAD.may, "-to")),
    ("purge", "dead"): _DEAD,
    ("list", "transactions"): Command(
        title="Listing the transactions of the bridge:",
        subject=_WHICH,
        ask=_list_records,
        render=lambda options, answer: render.transactions(answer, options.debug),
        done="Successfully listed transactions.",
        needs=("-bn",),
    ),
    **{(order, "transaction"): _ORDER for order in _ORDERS},
}
#: Options that only some commands have, and their attributes.
_PARTICULAR: Final = {
    "-selector": "selector",
    "-limit": "limit",
    "-dry-run": "dry_run",
    "-to": "to",
    "-dmq": "dmq",
    "-level": "level",
    "-tid": "transaction",
    "-xml": "document",
    "-o": "properties",
}
#: Options with a value, and their attributes.
_VALUES: Final = {
    "-bn": "bridge",
    "-ln": "link",
    "-tid": "transaction",
    "-t": "type",
    "-selector --selector": "selector",
    "-dmq --dmq": "dmq",
    "-to --to": "to",
    "-limit --limit": "limit",
    "-level --level": "level",
    "-xml --xml": "document",
    "-interval --interval": "interval",
    "-count --count": "count",
}
_FLAGS: Final = {"-debug": "debug", "-n -dry-run --dry-run": "dry_run"}
#: What is said where an option is missing, with Open MQ's code.
_MISSING: Final = {
    "-bn": ("bridge", "the name of the bridge is missing: give -bn for {}", "BA3000"),
    "-ln": ("link", "the name of the link is missing: give -ln for {}", "BA3001"),
    "-to": ("to", "the broker is missing: give -to for {}", ""),
    "-tid": (
        "transaction",
        "the transaction is missing: give -tid for {}; list transactions has the ids",
        "",
    ),
}


def _check(command: Command, options: Namespace) -> None:
    """:raises UsageError: something is missing, or too much."""
    words = f"{options.subcommand} {options.argument}"
    if options.argument == "bridge" and options.link:
        raise UsageError("-ln is not for bridges: did you mean the argument link?", "BA3002")
    for option in command.needs:
        attribute, text, code = _MISSING[option]
        if not getattr(options, attribute):
            raise UsageError(text.format(words), code)
    if options.argument == "dead" and bool(options.bridge) != bool(options.dmq):
        given, missing = ("-bn", "-dmq") if options.bridge else ("-dmq", "-bn")
        raise UsageError(
            f"{given} names a dead message queue of a bridge only with {missing}; without both it is the built-in one"
        )
    if words in ("pause bridge", "resume bridge") and not (options.bridge or options.type):
        code = "BB4008" if options.subcommand == "pause" else "BB4009"
        raise UsageError(f"{words} needs -bn or -t", code)
    for option, attribute in _PARTICULAR.items():
        if getattr(options, attribute) and option not in (*command.needs, *command.may):
            having = ", ".join(
                " ".join(each)
                for each, other in _COMMANDS.items()
                if option in (*other.needs, *other.may)
            )
            raise UsageError(f"{option} is not for {words}, but for {having}")
    _check_values(options)


def _check_values(options: Namespace) -> None:
    """Convert the numbers. :raises UsageError: a value is wrong."""
    if options.limit is not None:
        options.limit = _whole("-limit", options.limit, 1)
    if options.level and options.level.upper() not in (*LEVELS, *ALIASES):
        raise UsageError(f"-level {options.level}: expected one of {', '.join(LEVELS)}")
    options.count = 0 if options.count is None else _whole("-count", options.count, 0)
    try:
        seconds = 2.0 if options.interval is None else float(options.interval)
        if not 0.1 <= seconds <= 3600:
            raise ValueError
        options.interval = seconds
    except ValueError:
        raise UsageError(f"-interval {options.interval}: expected 0.1 to 3600 seconds") from None


def _whole(option: str, text: str, minimum: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < minimum:
        raise UsageError(f"{option} {text}: expected a whole number, {minimum} or more")
    return int(text)


def run(arguments: Sequence[str]) -> int:
    """Run the command. :returns: the exit code."""
    return run_program(PROGRAM, BRIDGES_SHORT, BRIDGES_LONG, arguments, _run)


def _parser() -> Parser:
    parser = Parser(PROGRAM, _VALUES, _FLAGS)
    parser.add_argument("-o", dest="properties", action="append")
    return parser


def _vocabulary() -> Vocabulary:
    words = {"-t": ("jms", "stomp"), "-level": LEVELS, "--level": LEVELS}
    return Vocabulary.of(_parser(), _COMMANDS, _PARTICULAR, words)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    options.properties = properties_of(options.properties or ())
    subcommand, argument = options.subcommand, options.argument
    if not subcommand:
        raise UsageError("a subcommand is missing")
    common = Common.of(PROGRAM, options)
    if subcommand == "validate" and not argument:
        raise UsageError("validate needs the file to look at")
    command = found(_COMMANDS, subcommand, argument)
    if command is None:
        raise no_such(_COMMANDS, subcommand, f"{subcommand} {argument or 'without an argument'}")
    _check(command, options)
    return carry_out(command, common, options)


def main() -> None:
    """The console script."""
    run_to_the_end(run)


if __name__ == "__main__":
    main()
