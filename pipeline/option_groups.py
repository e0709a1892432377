"""Options of a command that belong together and become one argument.

Owns how a group is added to a click command. What the options are, and what they become, is said
where that is known: the session, the output, the connections.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def option_group(
    parameter: str,
    options: Sequence[Callable[[Any], Any]],
    made: Callable[[dict[str, Any]], object],
) -> Callable[[_Function], _Function]:
    """Give a click command several options as one argument.

    :param parameter: the argument's name.
    :param options: by ``click.option``, in the order of ``--help``.
    :param made: makes the argument of the options' values by their names, before the function is
        called; what it raises is raised.
    """

    def decorate(command: _Function) -> _Function:
        def bearer() -> None: ...

        for option in reversed(options):
            option(bearer)
        own: list[click.Parameter] = bearer.__click_params__  # type: ignore[attr-defined]

        @functools.wraps(command)
        def with_group(*arguments: Any, **given: Any) -> Any:
            values = {str(one.name): given.pop(str(one.name)) for one in own}
            return command(*arguments, **{parameter: made(values)}, **given)

        others = getattr(command, "__click_params__", [])
        with_group.__click_params__ = [*others, *own]  # type: ignore[attr-defined]
        return with_group  # type: ignore[return-value]

    return decorate
