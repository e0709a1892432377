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

    from gateway.instance.command_end import output_written
    from gateway.instance.log_lines import FORMS
    from gateway.instance.settings_general import LOG_FORMAT
    from gateway.tap import Options, makeService

    options = Options()
    try:
        with output_written():
            options.parseOptions(arguments)
    except UsageError as error:
        print(f"stomp-gateway: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    gateway = makeService(options)

    from twisted.internet import reactor

    form = FORMS[gateway.configuration.settings[LOG_FORMAT]]
    gateway.announce = lambda line, level: _announce(form.notice(line, level), level)
    reactor.callWhenRunning(gateway.run)
    reactor.run()
    sys.exit(gateway.exit_code)


def _announce(line: str, level: int) -> None:
    from gateway.instance.levels import Level

    print(line, file=sys.stderr if level > Level.INFO else sys.stdout, flush=True)
