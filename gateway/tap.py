"""``twistd stomp-gateway``: the options, and the service made from them.

Imports nothing heavy: listing the plugins must stay cheap. ``gateway.command`` takes the same options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from twisted.python import usage

from gateway.refusal import EXIT_REFUSED, StartRefused

if TYPE_CHECKING:
    from gateway.app import Gateway

#: The original's spellings of long options, with one dash.
_ONE_DASH: Final = {"-varhome": "--varhome", "-instance": "--instance", "-name": "--instance", "-passfile": "--passfile"}


class Options(usage.Options):
    """Where the instance is, and settings over those of its file."""

    synopsis = "[--varhome DIR] [--instance NAME] [--passfile FILE] [-D name=value]..."
    longdesc = (
        "Run one instance of the STOMP gateway with its embedded broker. An instance that does not exist is made. "
        "SIGTERM stops it; SIGHUP reads certificates, users, access rules and the levels of the logs again."
    )
    optParameters = [  # noqa: RUF012
        ["varhome", None, None, "The directory of all instances' data; else that of the environment's IMQ_VARHOME, else var"],
        ["instance", None, "imqbroker", "The name of the instance"],
        ["passfile", None, None, "A file of passwords, in place of the instance's own"],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overrides: list[str] = []

    def opt_D(self, definition: str) -> None:
        """A setting, as name=value, over the instance's file. May be given again."""
        self.overrides.append(definition)

    def opt_version(self) -> None:
        """Show the version and exit."""
        from gateway import __version__

        print(f"stomp-gateway {__version__}")
        sys.exit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        words = sys.argv[1:] if options is None else options
        super().parseOptions([_ONE_DASH.get(word, word) for word in words])  # type: ignore[no-untyped-call]

    @property
    def varhome(self) -> Path:
        return Path(self["varhome"] or os.environ.get("IMQ_VARHOME") or "var").absolute()

    @property
    def passfile(self) -> Path | None:
        return Path(self["passfile"]).absolute() if self["passfile"] else None


def makeService(options: Options) -> Gateway:
    """The gateway as a service, configured and not started. Ends the process with code 2 when it cannot be configured.

    A start that is refused later ends it so, too, where nobody catches :class:`StartRefused`, as in ``twistd``.
    """
    from gateway.app import Gateway
    from gateway.configuration import configure

    sys.excepthook = _uncaught
    try:
        configuration = configure(options.varhome, options["instance"], options.passfile, options.overrides)
        from twisted.internet import reactor

        return Gateway(reactor, configuration)
    except StartRefused as refused:
        for line in refused.lines:
            print(line, file=sys.stderr)
        sys.exit(EXIT_REFUSED)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """``twistd`` lets what a service's start raises end the process: a refusal is told in its own lines, and by its code."""
    if not isinstance(error, StartRefused):
        sys.__excepthook__(kind, error, trace)
        return
    for line in error.lines:
        print(line, file=sys.stderr)
    for stream in (sys.stderr, sys.stdout):
        stream.flush()
    os._exit(EXIT_REFUSED)
