"""What both programs share: options, rows of commands, and how one runs.

Owns the options for the broker and the administrator, in Open MQ's form, how a command is
confirmed, and what is printed where. Owns the order, too: find the service, print what will be
done, ask whether it shall be, request it, print the answer. Which commands there are is
:mod:`gateway.admin.cli.imqbridgemgr`'s and :mod:`gateway.admin.cli.imqcmd`'s.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

from gateway import __version__
from gateway.admin.cli.client import AdminClient, AdminError, broker_address, find
from gateway.admin.cli.contexts import ContextRefused, applied
from gateway.admin.cli.render import broker_table
from gateway.instance import passfile
from gateway.instance.settings import printable

DEFAULT_TIMEOUT_S: Final = 10
DEFAULT_RETRIES: Final = 5
#: In a table of commands, an argument that is the path of a file, ``-`` for standard input or
#: output.
FILE: Final = "FILE"


class UsageError(Exception):
    """The command line is wrong.

    :param text: how.
    :param code: Open MQ's number for it, such as ``BA3000``; may be empty.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = code


#: Options with a value that every program has, and their attributes. The values of ``ignored`` ones
#: are for a JVM.
_VALUES: Final = {
    "-b": "broker",
    "-context --context": "context",
    "-u": "user",
    "-passfile --passfile": "passfile",
    "-cacert --cacert": "cacert",
    "-rtm": "timeout",
    "-rtr": "retries",
    "-javahome": "ignored",
    "-varhome": "ignored",
    "-vmargs": "ignored",
    "-jmqhome": "ignored",
}
#: Subcommands that ask no broker, so that it does not matter which one is meant.
_WITHOUT_BROKER: Final = ("context", "completion", "validate")
#: Options without a value, likewise.
_FLAGS: Final = {
    "-f": "force",
    "-s": "silent",
    "-secure --secure": "secure",
    "--json -json": "json",
    "-verbose": "ignored",
    "-nocheck": "ignored",
    "-adebug": "ignored",
}


class Parser(argparse.ArgumentParser):
    """argparse's parser, without abbreviations.

    It raises :class:`UsageError` where argparse would end the program. Options stand anywhere, each apart from its value: ``-bhost`` is unknown. What was not given is
    None, a flag False. A value may begin with a dash, as the names of destinations do that clients have
    given them; one that is an option, too, stands behind ``=``, as in ``-n=-f``.

    :param values: the program's own options with a value: how they are written, by blanks apart,
        and their attributes.
    :param flags: those without a value.
    """

    def __init__(self, prog: str, values: Mapping[str, str], flags: Mapping[str, str]) -> None:
        super().__init__(prog, allow_abbrev=False, add_help=False)
        self.add_argument("subcommand", nargs="?", default="")
        self.add_argument("argument", nargs="?", default="")
        self.add_argument("more", nargs="?", default="")
        for names, attribute in {**_VALUES, **values}.items():
            self.add_argument(*names.split(), dest=attribute)
        for names, attribute in {**_FLAGS, **flags}.items():
            self.add_argument(*names.split(), dest=attribute, action="store_true")
        self.add_argument("-D", dest="defines", action="append")
        # Refused with a reason instead of as unknown.
        self.add_argument("-p", "-pw", dest="password_given", nargs="?", const="")

    def parse_args(self, arguments: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """:raises UsageError: the arguments are not what was added."""
        self._check_options(arguments)
        parsed = self.parse_intermixed_args(self._with_dashes(arguments))
        if parsed.more and parsed.subcommand != "context":
            raise UsageError(f"unrecognized arguments: {parsed.more}")
        return parsed

    def options(self) -> dict[str, tuple[str, bool]]:
        """Return the options in all their spellings, but not ignored ones.

        :returns: the attribute of each, and whether it has a value.
        """
        return {
            option: (action.dest, action.nargs is None)
            for action in self._actions
            for option in action.option_strings
            if action.dest not in ("ignored", "password_given", "defines")
        }

    def error(self, message: str) -> NoReturn:
        """:raises UsageError: always."""
        raise UsageError(message)

    def _with_dashes(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments, each value that begins with a dash behind ``=``.

        argparse takes such a value for an option.
        """
        known = {option: action for action in self._actions for option in action.option_strings}
        found: list[str] = []
        given = iter(arguments)
        for argument in given:
            action = known.get(argument)
            if action is None or action.nargs is not None:
                found.append(argument)
                continue
            value = next(given)
            if value.startswith("-") and value.partition("=")[0] not in known:
                found.append(f"{argument}={value}")
            else:
                found += [argument, value]
        return found

    def _check_options(self, arguments: Sequence[str]) -> None:
        for each in arguments:
            # What Python makes of octets that are no UTF-8.
            if any("\udc80" <= character <= "\udcff" for character in each):
                raise UsageError(f"{each!r}: expected text in UTF-8")
        # argparse abbreviates options with one dash, whatever it is told.
        known = {option: action for action in self._actions for option in action.option_strings}
        given = iter(arguments)
        for argument in given:
            action = known.get(argument) or known.get(argument.partition("=")[0])
            if action is None:
                if argument.startswith("-") and argument != "-" and argument[:2] != "-D":
                    raise UsageError(f"there is no option {argument}")
            elif argument in known and action.nargs is None and next(given, None) is None:
                raise UsageError(f"option {argument} needs a value")


@dataclass(frozen=True, slots=True)
class Common:
    """The options that both programs have; how they ask and print.

    :param timeout_s: None waits for ever.
    """

    program: str
    host: str
    port: int
    user: str | None
    passfile: Path | None
    force: bool
    silent: bool
    secure: bool
    cacert: Path | None
    timeout_s: float | None
    retries: int
    json: bool

    @classmethod
    def of(cls, program: str, parsed: argparse.Namespace) -> Common:
        """:raises UsageError: a value is wrong."""
        if parsed.password_given is not None:
            raise UsageError(
                "-p is refused: other users of this machine can see a password that is given there; use -passfile, or be asked"
            )
        try:
            if parsed.subcommand not in _WITHOUT_BROKER:
                parsed = applied(parsed, os.environ)
        except ContextRefused as error:
            raise UsageError(str(error)) from None
        try:
            host, port = broker_address(parsed.broker or "")
        except AdminError as error:
            raise UsageError(f"-b {error}") from None
        timeout = _count("-rtm", parsed.timeout, DEFAULT_TIMEOUT_S)
        return cls(
            program=program,
            host=host,
            port=port,
            user=parsed.user,
            passfile=None if parsed.passfile is None else Path(parsed.passfile),
            force=parsed.force,
            silent=parsed.silent,
            secure=parsed.secure,
            cacert=None if parsed.cacert is None else Path(parsed.cacert),
            timeout_s=float(timeout) or None,
            retries=_count("-rtr", parsed.retries, DEFAULT_RETRIES),
            json=parsed.json,
        )

    # --- asking

    def client(self) -> AdminClient:
        """Find the admin service, and ask for what is missing to log in.

        :raises AdminError: there is no service, or no password.
        """
        # Found first, so that no password is typed for a broker that is not there.
        address = find(self.host, self.port, secure=self.secure, timeout_s=self.timeout_s)
        user, password = self._credentials()
        return AdminClient(
            address,
            user,
            password,
            timeout_s=self.timeout_s,
            retries=self.retries,
            retrying=self._retrying,
            authorities=self.cacert,
        )

    def _credentials(self) -> tuple[str, str]:
        password_name = f"imq.{self.program}.password"
        user = self.user
        if user is None:
            user = self._asked("Username", "-u", secret=False)
        if self.passfile is not None:
            try:
                password = passfile.read(self.passfile).get(password_name, "")
            except passfile.PassfileError as error:
                raise AdminError(str(error)) from None
            if not password:
                raise AdminError(f"passfile {self.passfile} has no {password_name}")
        else:
            password = self._asked("Password", f"-passfile with {password_name}", secret=True)
        return user, password

    def _asked(self, what: str, option: str, *, secret: bool) -> str:
        if self.force or not sys.stdin.isatty():
            why = "-f was given" if self.force else "there is no terminal to ask at"
            raise AdminError(
                f"the administrator's {what.lower()} is not given, and {why}: give {option}"
            )
        try:
            return getpass.getpass(f"{what}: ") if secret else _prompt(f"{what}: ")
        except EOFError:
            raise AdminError(f"the administrator's {what.lower()} was not given") from None

    def _retrying(self, attempt: int, attempts: int, wait_s: float) -> None:
        self.complain(
            f"The broker does not answer yet; waiting again [{attempt} of {attempts} times, {wait_s:g} seconds]"
        )

    # --- printing

    def say(self, text: str = "") -> None:
        """Print a line, or a table with an empty line below it.

        Nothing is printed where silence or JSON is wanted.
        """
        if not self.silent and not self.json:
            print(printable_lines(text))

    def say_broker(self) -> None:
        """Print which broker it is about."""
        self.say(broker_table(self.host, self.port))

    def show_json(self, value: object) -> None:
        """Print a value as JSON, where that is wanted."""
        if self.json and not self.silent:
            print(json.dumps(value, indent=2, ensure_ascii=not _prints_unicode()))

    def complain(self, text: str) -> None:
        """Print a line on the standard error."""
        print(printable_lines(text), file=sys.stderr)

    def confirmed(self, question: str) -> bool:
        """Ask the operator. An empty answer means no.

        :raises AdminError: the answer is neither yes nor no, or standard input has ended.
        """
        if self.force:
            return True
        if not sys.stdin.isatty():
            # What a script pipes in is its answer.
            answer = sys.stdin.readline()
            if not answer:
                raise AdminError(
                    "there is nobody to ask whether it shall be done: -f does it without asking"
                )
        else:
            try:
                answer = _prompt(f"{question} (y/n)[n] ")
            except EOFError:
                answer = ""
        self.say()
        answer = answer.strip().lower()
        if answer not in ("y", "yes", "n", "no", ""):
            raise AdminError(f"the answer {answer!r} is neither y nor n")
        return answer in ("y", "yes")


def printable_lines(text: str) -> str:
    """``text`` with what is not printable escaped, but the ends of lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _prints_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _prompt(question: str) -> str:
    # On the standard error: what the command prints may go into a file.
    print(question, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise EOFError
    return answer.rstrip(os.linesep)


def _count(option: str, text: str | None, default: int) -> int:
    try:
        number = -1 if text is None else int(text)
        if number < -1:
            raise ValueError
    except ValueError:
        raise UsageError(f"{option} {text}: expected a whole number, -1 or more") from None
    return default if number < 0 else number


def properties_of(given: Sequence[str]) -> dict[str, str]:
    """Return the properties that ``-o`` gives, by name.

    :raises UsageError: one has another form, or is given twice.
    """
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(f"-o {each}: expected NAME=VALUE")
        if name in found:
            raise UsageError(f"-o {each}: {name} is given twice")
        found[name] = value
    return found


#: A text, or what makes it of the options.
Text = str | Callable[[Namespace], str]
#: Requests something of the admin service. :raises AdminError: it is refused.
Ask = Callable[[AdminClient, Namespace], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is changed.

    :param refusal: printed where the answer is no.
    :param notice: printed before the question.
    :param spaced: whether an empty line follows the answer, and ``-f`` in place of it.
    """

    text: str
    refusal: str
    notice: str = ""
    spaced: bool = False


def _makes_its_own(client: AdminClient, options: Namespace) -> Any:
    raise AssertionError("a command without a request was carried out as if it had one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A row of the table.

    :param title: the first line; a command without one does not say what it does.
    :param subject: the tables below it: what it is done to.
    :param question: None where nothing is asked.
    :param ask: makes the request; what has ``run`` needs none.
    :param render: the lines and tables of the answer.
    :param done: the last line.
    :param undone: says of an answer what was not done; with that the command ends with 1, and
        without ``done``. Empty where all was.
    :param json: what ``--json`` prints of the answer.
    :param needs: options that must be given, and
    :param may: options that may, of those that not every command has.
    :param run: runs the command in another way than :func:`carry_out`.
    """

    ask: Ask = _makes_its_own
    title: Text = ""
    subject: Callable[[Namespace], Sequence[str]] = lambda options: ()
    question: Callable[[Namespace], Question | None] = lambda options: None
    render: Callable[[Namespace, Any], Iterable[str]] = lambda options, answer: ()
    done: Text = ""
    undone: Callable[[Any], str] = lambda answer: ""
    json: Callable[[Namespace, Any], object] = lambda options, answer: answer
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    run: Callable[[Command, Common, Namespace], int] | None = None


def request(method: str, path: Text, *parameters: str, **renamed: str) -> Ask:
    """A request made of options.

    :param path: ``{name}`` in it is that option, quoted.
    :param parameters: the options that are sent.
    :param renamed: options that are sent by another name.
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


def one_of(path: str, name: str, field: str, missing: str) -> Ask:
    """A request for a list, of which one entry is the answer.

    :param field: the entry's that is ``-n``.
    :param missing: begins the error where no entry is.
    """

    def ask(client: AdminClient, options: Namespace) -> Any:
        for each in client.get(path)[name]:
            if str(each[field]) == options.name:
                return each
        raise AdminError(f"{missing} {options.name}")

    return ask


def found(
    commands: Mapping[tuple[str, str], Command], subcommand: str, argument: str
) -> Command | None:
    """Return the command of these words; None if they are not a command."""
    return commands.get((subcommand, argument)) or (
        commands.get((subcommand, FILE)) if argument else None
    )


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
    undone = command.undone(answer)
    if undone:
        common.complain(f"{common.program}: Error: {undone}")
        return 1
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

    :param given: subcommand and argument, as they are to be named.
    :param others: subcommands that are not in the table.
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

    :param short: what ``-h`` prints.
    :param long: what ``-H`` prints.
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
