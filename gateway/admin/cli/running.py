"""How a command runs from its arguments to its exit code: the options that win over everything
else, and how every failure is told.

Owns what ``imqbridgemgr`` and ``imqcmd`` have in common there. What they do is theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from gateway.admin.cli.client import AdminError
from gateway.admin.cli.options import UsageError, complain_of, version_text, wants


def run_command(
    program: str,
    short: str,
    long: str,
    arguments: Sequence[str],
    act: Callable[[Sequence[str]], int],
) -> int:
    """Run a command. :returns: the exit code.

    :param short: what ``-h`` prints. :param long: what ``-H`` prints.
    :param act: does what the arguments ask for. May raise UsageError and AdminError.
    """
    # These win over everything else, in Open MQ's order.
    if wants(arguments, "-H", "-Help", "--Help"):
        print(long)
        return 0
    if wants(arguments, "-h", "-help", "--help"):
        print(short)
        return 0
    if wants(arguments, "-v", "-version", "--version"):
        print(version_text(program))
        return 0
    as_json = wants(arguments, "--json", "-json")
    try:
        return act(arguments)
    except UsageError as error:
        complain_of(program, error, as_json=as_json)
        if not as_json:
            print(f"{program} -h says how it is used.", file=sys.stderr)
        return 1
    except AdminError as error:
        return complain_of(program, error, as_json=as_json)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 1
