"""The command lines of ``imqusermgr`` and ``imqdbmgr``: what both share.

Owns the options that name an instance, and how a command ends. Exit codes: 0 done; 1 it could not
be done; 2 the command line is wrong. An error is one line on the standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import get_completion_class

from gateway.instance.command_end import broken_pipes_of_click
from gateway.instance.layout import LayoutError

C = TypeVar("C", bound=Callable[..., Any])

PATH: Final = click.Path(path_type=Path)


class CommandRefused(Exception):
    """What was asked cannot be done; ``str`` says why."""


def with_instance(function: C) -> C:
    """Add the options that name the data directory and the instance."""
    varhome = click.option(
        "--varhome",
        "-varhome",
        type=PATH,
        envvar="IMQ_VARHOME",
        default=Path("var"),
        show_default=True,
        help="The directory of all instances' data; also by the environment's IMQ_VARHOME.",
    )
    instance = click.option(
        "--instance", "-i", default="imqbroker", show_default=True, help="The instance."
    )
    return instance(varhome(function))


def add_completion(group: click.Group, program: str) -> None:
    """Add ``completion SHELL``, which prints a script for the shell.

    The script asks the program itself, so that it never knows less than that.
    """

    @group.command("completion")
    @click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
    def completion(shell: str) -> None:
        """Print what completes command lines in a shell."""
        made = get_completion_class(shell)
        assert made is not None
        click.echo(made(group, {}, program, f"_{program.upper()}_COMPLETE").source())


def run_command(
    command: click.Command,
    program: str,
    arguments: Sequence[str],
    *errors: type[Exception],
    aborted: str = "aborted",
) -> int:
    """Run a command. :returns: the exit code.

    :param errors: what it may raise whose ``str`` is for the user, besides CommandRefused,
        LayoutError and OSError.
    :param aborted: what is said where the answer to a question is no.
    :raises BrokenPipeError: nothing reads the output any more.
    """
    refusals: tuple[type[Exception], ...] = (CommandRefused, LayoutError, OSError, *errors)
    with broken_pipes_of_click():
        try:
            code = command.main(list(arguments), program, standalone_mode=False)
        except click.ClickException as error:
            complain(program, error.format_message())
            return error.exit_code
        except click.Abort:
            complain(program, aborted)
            return 1
        except refusals as error:
            complain(program, error)
            return 1
    return code if isinstance(code, int) else 0


def complain(program: str, error: object) -> None:
    """Print a line on the standard error."""
    click.echo(f"{program}: {error}", err=True)
