"""``stomp-gateway``: the gateway in the foreground."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gateway.exit_codes import EXIT_REFUSED


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the gateway until it is stopped, and exit.

    The exit code is 0 if it was stopped, 2 if it did not start, 3 if the store has failed.

    :param arguments: of the command; None takes the process's.
    """
    from twisted.python.usage import UsageError

    from gateway.tap import Options, makeService

    options = Options()
    try:
        options.parseOptions(arguments)
    except UsageError as error:
        print(f"stomp-gateway: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    gateway = makeService(options)

    from twisted.internet import reactor

    gateway.announce = _announce
    reactor.callWhenRunning(gateway.run)
    reactor.run()
    sys.exit(gateway.exit_code)


def _announce(line: str, *, error: bool = False) -> None:
    print(line, file=sys.stderr if error else sys.stdout, flush=True)
