"""Which broker a job connects to, and as which user.

The options of the command, and those of the data source that they become.

Owns the names on the command line. There is no option for a passcode: it would be in the history of the
shell and in the list of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from pipeline.errors import PipelineError
from pipeline.option_groups import option_group

_Function = TypeVar("_Function", bound=Callable[..., Any])

BROKERS: Final = ("auto", "gateway", "activemq", "artemis", "rabbitmq", "openmq")
#: Options of the command, without their dashes, and of the data source.
_NAMES: Final = {
    "host": "host",
    "port": "port",
    "login": "login",
    "passcode-file": "passcodeFile",
    "passcode-env": "passcodeEnv",
    "tls": "tls",
    "ca-file": "caFile",
    "cert-file": "certFile",
    "key-file": "keyFile",
    "broker": "broker",
    "timeout": "timeoutSeconds",
}
_HELP: Final = {
    "host": ("NAME", "Where the broker is. [default: 127.0.0.1]"),
    "port": ("NUMBER", "Of its STOMP. [default: 7672, with TLS 7673]"),
    "login": ("NAME", "Who you are."),
    "passcode-file": ("FILE", "Its first line is the passcode."),
    "passcode-env": ("NAME", "The environment variable that has the passcode."),
    "ca-file": ("FILE", "Certificates to trust, with TLS."),
    "cert-file": ("FILE", "The certificate to show, with TLS."),
    "key-file": ("FILE", "Its key."),
    "timeout": ("SECONDS", "How long to wait for an answer. [default: 30]"),
}


@dataclass(frozen=True)
class Connection:
    """A broker and who speaks to it.

    :param options: of the data source ``stomp``, those that were given.
    :param prefix: of the command's options for it.
    """

    options: dict[str, str]
    prefix: str = ""

    @property
    def address(self) -> str:
        """``HOST:PORT``, for sentences."""
        port = self.options.get("port") or ("7673" if self.options.get("tls") == "true" else "7672")
        return f"{self.options.get('host', '127.0.0.1')}:{port}"

    def check(self) -> None:
        """Connect once, to find a mistake before Spark has started.

        :raises PipelineError: an option is wrong, there is no connection, or the login is refused.
        """
        from pipeline.datasource.client import Client
        from pipeline.datasource.errors import OptionError
        from pipeline.datasource.options import Use, parse

        try:
            Client(parse(self.options, Use.WRITE)).open(patient=False).disconnect()
        except OptionError as error:
            flags = {option: name for name, option in _NAMES.items()}
            raise PipelineError(
                f"--{self.prefix}{flags.get(error.option, error.option)}: {error.problem}"
            ) from error


def connection_options(
    parameter: str = "connection", prefix: str = "", of: str = ""
) -> Callable[[_Function], _Function]:
    """Give a click command the options of a :class:`Connection`.

    :param parameter: its name.
    :param prefix: of the options' names, as ``target-``.
    :param of: whose they are, for ``--help``.
    """

    def made(given: dict[str, Any]) -> Connection:
        values = ((option, given[_variable(prefix, name)]) for name, option in _NAMES.items())
        return Connection(
            {
                option: "true" if value is True else str(value)
                for option, value in values
                if value is not None and value is not False
            },
            prefix,
        )

    return option_group(parameter, [_option(prefix, name, of) for name in _NAMES], made)


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}{name}".replace("-", "_")


def _option(prefix: str, name: str, of: str) -> Callable[[Any], Any]:
    whose = f"{of}: " if of else ""
    flag = f"--{prefix}{name}"
    variable = _variable(prefix, name)
    if name == "tls":
        return click.option(flag, variable, is_flag=True, help=f"{whose}Speak TLS.")
    if name == "broker":
        kinds = f"What it is. [default: {BROKERS[0]}, by its own word]"
        return click.option(flag, variable, type=click.Choice(BROKERS), help=f"{whose}{kinds}")
    metavar, text = _HELP[name]
    return click.option(flag, variable, metavar=metavar, help=f"{whose}{text}")


def as_destination(name: str) -> str:
    """Return the destination with a kind: ``queue:NAME`` if none is named."""
    return name if name.startswith(("queue:", "topic:", "/")) else f"queue:{name}"
