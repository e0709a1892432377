"""Rows of the table of commands, and the one way to run a row.

Owns the order: find the service, print what will be done, ask whether it shall be, request it,
print the answer. Which commands there are is :mod:`gateway.admin.cli.imqbridgemgr`'s and
:mod:`gateway.admin.cli.imqcmd`'s.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import quote

from gateway import __version__
from gateway.admin.cli.client import AdminClient, AdminError
from gateway.admin.cli.options import Common, UsageError, printable_lines

#: A text, or what makes it of the options.
Text = str | Callable[[Namespace], str]
#: Requests something of the admin service. :raises AdminError: it is refused.
Ask = Callable[[AdminClient, Namespace], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is changed.

    :param refusal: printed where the answer is no. :param notice: printed before the question.
    :param spaced: whether an empty line follows the answer, and ``-f`` in place of it.
    """

    text: str
    refusal: str
    notice: str = ""
    spaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A row of the table.

    :param title: the first line; a command without one does not say what it does. :param subject:
        the tables below it: what it is done to.
    :param question: None where nothing is asked.
    :param ask: makes the request. :param render: the lines and tables of the answer. :param done:
        the last line. :param json: what ``--json`` prints of the answer.
    :param needs: options that must be given, and :param may: options that may, of those that not
        every command has.
    :param run: runs the command in another way than :func:`carry_out`.
    """

    ask: Ask
    title: Text = ""
    subject: Callable[[Namespace], Sequence[str]] = lambda options: ()
    question: Callable[[Namespace], Question | None] = lambda options: None
    render: Callable[[Namespace, Any], Iterable[str]] = lambda options, answer: ()
    done: Text = ""
    json: Callable[[Namespace, Any], object] = lambda options, answer: answer
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    run: Callable[[Command, Common, Namespace], int] | None = None


def request(method: str, path: Text, *parameters: str, **renamed: str) -> Ask:
    """A request made of options.

    :param path: ``{name}`` in it is that option, quoted. :param parameters: the options that are
        sent. :param renamed: options that are sent by another name.
    """
    sent = {**dict(zip(parameters, parameters, strict=True)), **renamed}

    def ask(client: AdminClient, options: Namespace) -> Any:
        given = vars(options)
        quoted = {name: quote(str(value), safe="") for name, value in given.items()}
        return client.ask(
            method,
            text_of(path, options).format_map(quoted),
            {name: given[option] for name, option in sent.items()},
        )

    return ask


def text_of(text: Text, options: Namespace) -> str:
    """The text for these options."""
    return text if isinstance(text, str) else text(options)


def carry_out(command: Command, common: Common, options: Namespace) -> int:
    """Run a command. :returns: the exit code.

    :raises AdminError: it cannot be done.
    """
    if command.run is not None:
        return command.run(command, common, options)
    client = common.client()
    if command.title:
        _introduce(common, text_of(command.title, options), command.subject(options))
    question = command.question(options)
    if question is not None and not _confirmed(common, question):
        common.say(question.refusal)
        common.show_json({"done": False})
        return 0
    answer = command.ask(client, options)
    # Sentences about what has no effect; only what makes or changes a destination has any.
    for note in answer.get("notes", ()):
        common.complain(f"{common.program}: Warning: {note}")
    for text in command.render(options, answer):
        common.say(text)
    common.show_json(command.json(options, answer))
    done = text_of(command.done, options)
    if done:
        common.say(done)
    return 0


def _introduce(common: Common, title: str, subject: Sequence[str]) -> None:
    common.say(title)
    common.say()
    for table in subject:
        common.say(table)
    if subject and not title.endswith("on the broker specified by:"):
        common.say("On the broker specified by:")
        common.say()
    common.say_broker()


def _confirmed(common: Common, question: Question) -> bool:
    if question.notice:
        common.say(question.notice)
        common.say()
    confirmed = common.confirmed(question.text)
    if question.spaced:
        common.say()
    return confirmed


def no_such(
    commands: Collection[tuple[str, str]], subcommand: str, given: str, *others: str
) -> UsageError:
    """What is wrong with a command that is not in the table.

    :param given: subcommand and argument, as they are to be named. :param others: subcommands that
        are not in the table.
    """
    arguments = [argument for known, argument in commands if known == subcommand]
    if arguments:
        expected = " or ".join(arguments)
        return UsageError(f"there is no {given}; expected {subcommand} {expected}")
    words = sorted({*others, *(known for known, _ in commands)})
    return UsageError(f"there is no subcommand {subcommand}; expected one of {', '.join(words)}")


def run_program(
    program: str,
    short: str,
    long: str,
    arguments: Sequence[str],
    act: Callable[[Sequence[str]], int],
) -> int:
    """Run a program. :returns: the exit code.

    :param short: what ``-h`` prints. :param long: what ``-H`` prints.
    :param act: does what the arguments ask for. May raise UsageError and AdminError.
    """
    # These win over everything else, in Open MQ's order.
    for names, text in (
        (("-H", "-Help", "--Help"), long),
        (("-h", "-help", "--help"), short),
        (("-v", "-version", "--version"), f"{program} {__version__} (stomp-gateway)"),
    ):
        if not set(names).isdisjoint(arguments):
            print(text)
            return 0
    as_json = not {"--json", "-json"}.isdisjoint(arguments)
    try:
        return act(arguments)
    except (AdminError, UsageError) as error:
        _complain_of(program, error, as_json)
        if isinstance(error, UsageError) and not as_json:
            print(f"{program} -h says how it is used.", file=sys.stderr)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 1


def _complain_of(program: str, error: AdminError | UsageError, as_json: bool) -> None:
    """Print an error on the standard error: ``Error [CODE]: TEXT``."""
    if as_json:
        print(json.dumps({"error": {"text": error.text, "code": error.code}}), file=sys.stderr)
        return
    # Words such as wrong_state are for programs.
    code = f" [{error.code}]" if error.code[:2] in ("BA", "BB", "BS") else ""
    print(printable_lines(f"{program}: Error{code}: {error.text}"), file=sys.stderr)


def run_to_the_end(run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a program with the process's arguments, and end the process.

    The exit code is the program's.

    Where nothing reads the output any more, as behind ``| head``, it ends without a word: with 1 if
    that stopped the command, which does not go on, else with its own exit code.
    """
    code = 1
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes both once more, and would complain.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
    sys.exit(code)
