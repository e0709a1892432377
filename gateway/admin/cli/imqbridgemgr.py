"""The ``imqbridgemgr`` command: Open MQ's Bridge Manager utility, with its syntax, tables, order of
output and exit codes.

Owns the command line: which words and options there are, and what each needs. What the commands do
is :mod:`gateway.admin.cli.bridge_commands`'s.

Exit codes: 0 done, also when the operator answers no; 1 for everything else, a wrong command line
included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gateway.admin.cli.bridge_commands import (
    OPERATIONS,
    Command,
    level_of_bridge,
    list_bridges,
    list_dead,
    list_links,
    operate_on_bridges,
    operate_on_link,
    purge_dead,
    query_link,
    reload_bridge,
    replay_dead,
    watch,
)
from gateway.admin.cli.help_texts import LONG, SHORT
from gateway.admin.cli.options import Common, Parser, UsageError, add_common_options, run_to_the_end
from gateway.admin.cli.running import run_command
from gateway.admin.cli.transaction_commands import ORDERS, list_transactions, order_transaction
from gateway.admin.cli.validating import validate
from gateway.instance.levels import LEVELS

PROGRAM: Final = "imqbridgemgr"

#: What there is: (subcommand, argument) and what does it. Each of them may have the options of Open
#: MQ; what else it needs says :func:`_check`.
_COMMANDS: Final[dict[tuple[str, str], Callable[[Command], int]]] = {
    ("list", "bridge"): list_bridges,
    ("list", "link"): list_links,
    ("list", "dead"): list_dead,
    **{(operation, "bridge"): operate_on_bridges for operation in OPERATIONS},
    **{(operation, "link"): operate_on_link for operation in OPERATIONS},
    ("query", "link"): query_link,
    ("watch", "bridge"): watch,
    ("watch", "link"): watch,
    ("reload", "bridge"): reload_bridge,
    ("level", "bridge"): level_of_bridge,
    ("replay", "dead"): replay_dead,
    ("purge", "dead"): purge_dead,
    ("list", "transactions"): list_transactions,
    **{(order, "transaction"): order_transaction for order in ORDERS},
}


def _parser() -> Parser:
    parser = Parser(PROGRAM)
    parser.add_argument("subcommand", nargs="?", default="")
    parser.add_argument("argument", nargs="?", default="")
    add_common_options(parser)
    parser.add_argument("-bn", dest="bridge", default="")
    parser.add_argument("-ln", dest="link", default="")
    parser.add_argument("-tid", dest="transaction", default="")
    parser.add_argument("-t", dest="type", default="")
    parser.add_argument("-debug", dest="debug", action="store_true")
    parser.add_argument("-selector", "--selector", dest="selector", default="")
    parser.add_argument("-dmq", "--dmq", dest="dmq", default="")
    parser.add_argument("-to", "--to", dest="to", default=None)
    parser.add_argument("-limit", "--limit", dest="limit", default=None)
    parser.add_argument("-n", "-dry-run", "--dry-run", dest="dry_run", action="store_true")
    parser.add_argument("-level", "--level", dest="level", default="")
    parser.add_argument("-interval", "--interval", dest="interval", default="2")
    parser.add_argument("-count", "--count", dest="count", default="0")
    return parser


#: Options of our own, and the commands that have them.
_PARTICULAR: Final = (
    ("selector", "-selector", ("list dead", "replay dead", "purge dead")),
    ("limit", "-limit", ("list dead", "replay dead", "purge dead")),
    ("dry_run", "-dry-run", ("replay dead", "purge dead")),
    ("to", "-to", ("replay dead",)),
    ("dmq", "-dmq", ("list dead", "replay dead", "purge dead")),
    ("level", "-level", ("level bridge",)),
    ("transaction", "-tid", tuple(f"{order} transaction" for order in ORDERS)),
)


def _check(options: argparse.Namespace) -> None:
    """:raises UsageError: something is missing, or too much."""
    command = f"{options.subcommand} {options.argument}"
    needs_bridge = options.argument in (
        "link",
        "transactions",
        "transaction",
    ) or options.subcommand in ("reload", "level")
    if options.argument == "bridge" and options.link:
        raise UsageError("-ln is not for bridges: did you mean the argument link?", "BA3002")
    if needs_bridge and not options.bridge:
        raise UsageError(f"the name of the bridge is missing: give -bn for {command}", "BA3000")
    if options.argument == "dead" and bool(options.bridge) != bool(options.dmq):
        given, missing = ("-bn", "-dmq") if options.bridge else ("-dmq", "-bn")
        raise UsageError(
            f"{given} names a dead message queue of a bridge only with {missing}; without both it is the built-in one"
        )
    if options.argument == "link" and options.subcommand in OPERATIONS and not options.link:
        raise UsageError(f"the name of the link is missing: give -ln for {command}", "BA3001")
    if options.argument == "transaction" and not options.transaction:
        raise UsageError(
            f"the transaction is missing: give -tid for {command}; list transactions has the ids"
        )
    if (
        options.subcommand in ("pause", "resume")
        and options.argument == "bridge"
        and not (options.bridge or options.type)
    ):
        code = "BB4008" if options.subcommand == "pause" else "BB4009"
        raise UsageError(f"{command} needs -bn or -t", code)
    for name, option, commands in _PARTICULAR:
        if getattr(options, name) and command not in commands:
            raise UsageError(f"{option} is not for {command}, but for {', '.join(commands)}")
    if options.limit is not None:
        options.limit = _whole("-limit", options.limit, 1)
    if options.level and options.level.upper() not in (
        *LEVELS,
        "ERROR",
        "NONE",
        "DEBUG",
        "DEBUGMED",
        "DEBUGHIGH",
    ):
        raise UsageError(f"-level {options.level}: expected one of {', '.join(LEVELS)}")
    options.count = _whole("-count", options.count, 0)
    try:
        seconds = float(options.interval)
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
    return run_command(PROGRAM, SHORT, LONG, arguments, _run)


def _run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if not options.subcommand:
        raise UsageError("a subcommand is missing")
    common = Common.of(PROGRAM, options)
    if options.subcommand == "validate":
        if not options.argument:
            raise UsageError("validate needs the file to look at")
        return validate(common, Path(options.argument), options.bridge or None)
    do = _COMMANDS.get((options.subcommand, options.argument))
    if do is None:
        raise UsageError(_no_such(options.subcommand, options.argument))
    _check(options)
    return do(Command(common, options, options.argument))


def _no_such(subcommand: str, argument: str) -> str:
    arguments = [known for word, known in _COMMANDS if word == subcommand]
    if not arguments:
        words = sorted({word for word, _ in _COMMANDS} | {"validate"})
        return f"there is no subcommand {subcommand}; expected one of {', '.join(words)}"
    given = f"{subcommand} {argument}" if argument else f"{subcommand} without an argument"
    return f"there is no {given}; expected {subcommand} {' or '.join(arguments)}"


def main() -> None:
    """The console script."""
    run_to_the_end(run)


if __name__ == "__main__":
    main()
