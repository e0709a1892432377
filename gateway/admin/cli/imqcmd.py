"""The ``imqcmd`` command: Open MQ's Command utility, as far as there is something for it to do
here, with its syntax, tables and exit codes.

Owns the command line: which words there are, and what each needs. What the commands do is
:mod:`gateway.admin.cli.broker_commands`'s.

Exit codes: 0 done, also when the operator answers no; 1 for everything else, a wrong command line
included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.admin.cli.branch_commands import (
    commit_txn,
    forget_txn,
    list_txn,
    query_txn,
    rollback_txn,
)
from gateway.admin.cli.broker_commands import (
    Command,
    create_dst,
    destroy_cxn,
    destroy_dst,
    destroy_dur,
    list_cxn,
    list_dst,
    list_dur,
    list_msg,
    purge_dst,
    query_bkr,
    query_cxn,
    query_dst,
    query_msg,
    update_dst,
)
from gateway.admin.cli.imqcmd_help import INSTEAD, LONG, SHORT
from gateway.admin.cli.options import Common, Parser, UsageError, add_common_options, run_to_the_end
from gateway.admin.cli.running import run_command

PROGRAM: Final = "imqcmd"
_TYPES: Final = {"q": "queue", "queue": "queue", "t": "topic", "topic": "topic"}


@dataclass(frozen=True)
class _Form:
    """How a command is spelled. :param needs: options that it must have. :param may: those it may
    have. Of the particular ones, that is.
    """

    do: Callable[[Command], int]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


_COMMANDS: Final[Mapping[tuple[str, str], _Form]] = {
    ("list", "dst"): _Form(list_dst, (), ("-t", "-tmp")),
    ("query", "dst"): _Form(query_dst, ("-t", "-n")),
    ("create", "dst"): _Form(create_dst, ("-t", "-n"), ("-o",)),
    ("update", "dst"): _Form(update_dst, ("-t", "-n", "-o")),
    ("purge", "dst"): _Form(purge_dst, ("-t", "-n"), ("-selector", "-o")),
    ("destroy", "dst"): _Form(destroy_dst, ("-t", "-n"), ("-o",)),
    ("list", "msg"): _Form(list_msg, ("-t", "-n"), ("-selector", "-maxNumMsgsRetrieved")),
    ("query", "msg"): _Form(query_msg, ("-t", "-n", "-msgID")),
    ("list", "dur"): _Form(list_dur, (), ("-d",)),
    ("destroy", "dur"): _Form(destroy_dur, ("-n", "-c")),
    ("list", "cxn"): _Form(list_cxn, (), ("-svn",)),
    ("query", "cxn"): _Form(query_cxn, ("-n",)),
    ("destroy", "cxn"): _Form(destroy_cxn, ("-n",)),
    ("list", "txn"): _Form(list_txn),
    ("query", "txn"): _Form(query_txn, ("-n",)),
    ("commit", "txn"): _Form(commit_txn, ("-n",)),
    ("rollback", "txn"): _Form(rollback_txn, ("-n",)),
    ("forget", "txn"): _Form(forget_txn, ("-n",)),
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
    "-msgID": "message_id",
    "-maxNumMsgsRetrieved": "limit",
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
    parser.add_argument("-msgID", dest="message_id", default="")
    parser.add_argument("-maxNumMsgsRetrieved", dest="limit", default="")
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
            raise UsageError(
                f"there is no {command}; expected {subcommand} {' or '.join(arguments)}"
            )
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
    return form.do(
        Command(
            Common.of(PROGRAM, options),
            options,
            _type(options.type),
            _properties(options.properties),
        )
    )


def main() -> None:
    """The console script."""
    run_to_the_end(run)


if __name__ == "__main__":
    main()
