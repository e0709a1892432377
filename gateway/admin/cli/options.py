"""What the administration commands have in common, spelled as Open MQ's are: options with one dash,
prompts, and where the password comes from.

Owns the options that say which broker is meant and who asks, how a command is confirmed, and what
is printed where. Knows no command.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from gateway import __version__
from gateway.admin.cli.client import AdminClient, AdminError, broker_address, find
from gateway.admin.cli.tables import broker_table
from gateway.instance import passfile
from gateway.instance.problems import printable

DEFAULT_TIMEOUT_S: Final = 10
DEFAULT_RETRIES: Final = 5


class UsageError(Exception):
    """The command line is wrong.

    :param text: how. :param code: Open MQ's number for it, such as ``BA3000``; may be empty.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Parser(argparse.ArgumentParser):
    """argparse's, which abbreviates nothing and raises :class:`UsageError` where it would end the
    program.

    Options stand anywhere, and each by itself: ``-bhost`` is none.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, allow_abbrev=False, add_help=False)

    def parse_args(self, arguments: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """:raises UsageError: the arguments are not what was added."""
        self._check_options(arguments)
        return self.parse_intermixed_args(arguments)

    def error(self, message: str) -> NoReturn:
        """:raises UsageError: always."""
        raise UsageError(message)

    def _check_options(self, arguments: Sequence[str]) -> None:
        # argparse abbreviates options with one dash, whatever it is told.
        known = {option: action for action in self._actions for option in action.option_strings}
        given = iter(arguments)
        for argument in given:
            action = known.get(argument) or known.get(argument.partition("=")[0])
            if action is None:
                if argument.startswith("-") and not argument.startswith("-D"):
                    raise UsageError(f"there is no option {argument}")
            elif argument in known and action.nargs is None and next(given, None) is None:
                raise UsageError(f"option {argument} needs a value")


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """``-b -u -passfile -f -s -secure -cacert -rtm -rtr --json``, those of the JVM, and the hidden
    ones.
    """
    parser.add_argument(
        "-b",
        dest="broker",
        metavar="HOST:PORT",
        default="",
        help="the broker's port mapper; default localhost:7676",
    )
    parser.add_argument(
        "-u", dest="user", metavar="NAME", help="the administrator; asked for if not given"
    )
    parser.add_argument(
        "-passfile",
        "--passfile",
        dest="passfile",
        metavar="FILE",
        type=Path,
        help="has the administrator's password",
    )
    parser.add_argument(
        "-f", dest="force", action="store_true", help="do not ask whether it shall be done"
    )
    parser.add_argument("-s", dest="silent", action="store_true", help="print nothing but errors")
    parser.add_argument(
        "-secure", "--secure", dest="secure", action="store_true", help="only over TLS"
    )
    parser.add_argument(
        "-cacert",
        "--cacert",
        dest="cacert",
        metavar="FILE",
        type=Path,
        help="certificates to trust, PEM; default the system's",
    )
    parser.add_argument(
        "-rtm",
        dest="timeout",
        metavar="SECONDS",
        default="-1",
        help="how long to wait for an answer; default 10, 0 for ever",
    )
    parser.add_argument(
        "-rtr",
        dest="retries",
        metavar="N",
        default="-1",
        help="how often to wait again, each time longer; default 5",
    )
    parser.add_argument(
        "--json", "-json", dest="json", action="store_true", help="print JSON instead of tables"
    )
    parser.add_argument(
        "-javahome", dest="javahome", metavar="PATH", help="accepted and not used: there is no JVM"
    )
    parser.add_argument(
        "-D", dest="defines", action="append", metavar="NAME=VALUE", help="the same"
    )
    for name in ("-varhome", "-vmargs", "-jmqhome"):
        parser.add_argument(name, dest="ignored", help=argparse.SUPPRESS)
    for name in ("-verbose", "-nocheck", "-adebug"):
        parser.add_argument(name, dest="ignored", action="store_true", help=argparse.SUPPRESS)
    # Refused with a reason instead of as unknown.
    parser.add_argument(
        "-p", "-pw", dest="password_given", nargs="?", const="", help=argparse.SUPPRESS
    )


@dataclass(frozen=True, slots=True)
class Common:
    """What :func:`add_common_options`'s options came to.

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
        """:raises UsageError: a value is none."""
        if parsed.password_given is not None:
            raise UsageError(
                "-p is refused: other users of this machine can see a password that is given there; use -passfile, or be asked"
            )
        try:
            host, port = broker_address(parsed.broker)
        except AdminError as error:
            raise UsageError(f"-b {error}") from None
        timeout = _count("-rtm", parsed.timeout)
        retries = _count("-rtr", parsed.retries)
        return cls(
            program=program,
            host=host,
            port=port,
            user=parsed.user,
            passfile=parsed.passfile,
            force=parsed.force,
            silent=parsed.silent,
            secure=parsed.secure,
            cacert=parsed.cacert,
            timeout_s=None
            if timeout == 0
            else float(DEFAULT_TIMEOUT_S if timeout < 0 else timeout),
            retries=DEFAULT_RETRIES if retries < 0 else retries,
            json=parsed.json,
        )

    # --- asking

    def client(self, password_name: str) -> AdminClient:
        """The way to the admin service: found, and with the administrator's name and password,
        which are asked for where they are not given.

        :param password_name: the password's name in the passfile, such as
            ``imq.imqbridgemgr.password``.
        :raises AdminError: there is no way.
        """
        # Found first: nobody wants to type a password for a broker that is not there.
        address = find(self.host, self.port, secure=self.secure, timeout_s=self.timeout_s)
        user, password = self.credentials(password_name)
        return AdminClient(
            address,
            user,
            password,
            timeout_s=self.timeout_s,
            retries=self.retries,
            retrying=self._retrying,
            authorities=self.cacert,
        )

    def credentials(self, password_name: str) -> tuple[str, str]:
        """Name and password of the administrator. :raises AdminError: they are not given, and
        cannot be asked for.
        """
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
        """Print a line, unless silent or JSON is wanted."""
        if not self.silent and not self.json:
            print(printable_lines(text))

    def show(self, text: str) -> None:
        """Print a table and an empty line, unless silent or JSON is wanted."""
        if not self.silent and not self.json:
            print(text)

    def show_broker(self) -> None:
        """Print which broker it is about."""
        self.show(broker_table(self.host, self.port))

    def show_json(self, value: object) -> None:
        """Print a value as JSON, where that is wanted."""
        if self.json and not self.silent:
            print(json.dumps(value, indent=2, ensure_ascii=not _prints_unicode()))

    def complain(self, text: str) -> None:
        """Print a line on the standard error."""
        print(printable_lines(text), file=sys.stderr)

    def fail(self, error: AdminError | UsageError) -> int:
        """Print why it cannot be done. :returns: the exit code, 1."""
        return complain_of(self.program, error, as_json=self.json)

    def confirmed(self, question: str) -> bool:
        """Whether the operator wants it; n is what an empty answer means.

        :raises AdminError: the answer is neither yes nor no, or there is nobody to ask.
        """
        if self.force:
            return True
        if not sys.stdin.isatty():
            # Whatever a script pipes in is its answer; nothing at all is none.
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


def run_to_the_end(run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a command with the arguments of the process, and end the process with its exit code.

    Where nobody reads the output any more, as behind ``| head``, it ends without a word: with 1 if
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


def complain_of(program: str, error: AdminError | UsageError, *, as_json: bool = False) -> int:
    """Print an error on the standard error: ``Error [CODE]: TEXT``. :returns: the exit code, 1."""
    if as_json:
        print(json.dumps({"error": {"text": error.text, "code": error.code}}), file=sys.stderr)
    else:
        # Words such as wrong_state are for programs.
        code = f" [{error.code}]" if error.code[:2] in ("BA", "BB", "BS") else ""
        print(printable_lines(f"{program}: Error{code}: {error.text}"), file=sys.stderr)
    return 1


def wants(arguments: Sequence[str], *names: str) -> bool:
    """Whether one of these options, which win over everything else, is among the arguments."""
    return any(argument in names for argument in arguments)


def version_text(program: str) -> str:
    """What ``-v`` prints."""
    return f"{program} {__version__} (stomp-gateway)"


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


def _count(option: str, text: str) -> int:
    try:
        number = int(text)
        if number < -1:
            raise ValueError
    except ValueError:
        raise UsageError(f"{option} {text}: expected a whole number, -1 or more") from None
    return number
