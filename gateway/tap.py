"""``twistd stomp-gateway``: the options, and the service made from them.

Imports nothing heavy: listing the plugins must stay cheap. ``gateway.command`` takes the same
options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, cast

from twisted.python import usage

from gateway.exit_codes import EXIT_REFUSED, StartRefused

if TYPE_CHECKING:
    from gateway.app import Gateway
    from gateway.configuration import Configuration
    from gateway.instance.levels import Level

#: The original's spellings of long options, with one dash.
_ONE_DASH: Final = {
    "-varhome": "--varhome",
    "-instance": "--instance",
    "-name": "--instance",
    "-passfile": "--passfile",
}


class Options(usage.Options):
    """Where the instance is, and settings over those of its file."""

    synopsis = "[--varhome DIR] [--instance NAME] [--passfile FILE] [-D name=value]..."
    longdesc = (
        "Run one instance of the STOMP gateway with its embedded broker. An instance that does not exist is made. "
        "SIGTERM stops it; SIGHUP reads certificates, users, access rules and the levels of the logs again."
    )
    optParameters = [  # noqa: RUF012
        [
            "varhome",
            None,
            None,
            "The directory of all instances' data; else that of the environment's IMQ_VARHOME, else var",
        ],
        ["instance", None, "imqbroker", "The name of the instance"],
        ["passfile", None, None, "A file of passwords, in place of the instance's own"],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overrides: list[str] = []

    def getSynopsis(self) -> str:
        synopsis: str = super().getSynopsis()
        # As a subcommand it follows what twistd says of itself.
        return synopsis if self.parent is not None else f"Usage: stomp-gateway {synopsis}"

    def opt_define(self, definition: str) -> None:
        """A setting, as name=value, over the instance's file. May be given again. Not for
        passwords, which others on the machine could see.
        """
        self.overrides.append(definition)

    opt_D = opt_define

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

    @property
    def daemon(self) -> bool:
        """Whether ``twistd`` is to put it into the background."""
        return self.parent is not None and not self.parent.get("nodaemon", True)

    @property
    def foreground(self) -> bool:
        """Whether warnings are to be seen on the standard error.

        A daemon's is not read.
        """
        if self.parent is None:
            return True
        # Where twistd shows all of its log, and in the same place, nothing is shown twice.
        shown = self.parent["logfile"] in (None, "-") and _same_file(1, 2)
        return bool(self.parent.get("nodaemon", True)) and not shown


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def makeService(options: Options) -> Gateway:
    """Make the gateway as a service, configured and not started.

    Ends the process with code 2 when it cannot be configured.

    A start that is refused later ends it so, too, where no caller catches :class:`StartRefused`, as in
    ``twistd``.
    """
    _take_sockets()

    from dataclasses import replace

    from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher

    from gateway.app import Gateway
    from gateway.configuration import configure
    from gateway.instance.levels import Level
    from gateway.instance.log_lines import FORMS, TEXT
    from gateway.instance.settings_general import LOG_FORMAT

    notice = TEXT.notice
    sys.excepthook = _uncaught
    try:
        configuration = configure(
            options.varhome, options["instance"], options.passfile, options.overrides
        )
        notice = FORMS[configuration.settings[LOG_FORMAT]].notice
        _announce(configuration, notice)
        from twisted.internet import reactor

        # Its log is not open while it is made: what is said meanwhile, such as that a certificate
        # ends soon, would be lost.
        said: list[LogEvent] = []
        observer = cast(ILogObserver, said.append)
        globalLogPublisher.addObserver(observer)
        try:
            gateway = Gateway(reactor, configuration)
        finally:
            globalLogPublisher.removeObserver(observer)
    except StartRefused as refused:
        for line in refused.lines:
            print(notice(line, Level.SEVERE), file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    # The log has them, too; who gave a password on the command line should not have to look there.
    warned = [event for event in said if event["log_level"] >= LogLevel.warn]
    warnings = [formatEvent(event) for event in warned if not event.get("passing")]
    passing = [formatEvent(event) for event in warned if event.get("passing")]
    gateway.configuration = replace(
        configuration,
        warnings=(*configuration.warnings, *warnings),
        passing_warnings=tuple(passing),
    )
    for warning in (*gateway.configuration.warnings, *passing):
        print(notice(warning, Level.WARNING), file=sys.stderr)
    gateway.foreground = options.foreground
    if options.daemon:
        with suppress(OSError):
            gateway.started = _tell_terminal(os.dup(2))
    return gateway


def _tell_terminal(descriptor: int) -> Callable[[StartRefused | None], None]:
    """Show why the start of a daemon is refused where it was asked for.

    ``twistd`` itself shows only 100 bytes of it.

    :param descriptor: a copy of the standard error, which is no terminal any more in the
        background; closed when the start has an outcome, since others may wait for its end.
    """

    def tell(refused: StartRefused | None) -> None:
        with suppress(OSError), os.fdopen(descriptor, "w", errors="backslashreplace") as terminal:
            if refused is not None:
                terminal.write("".join([f"{line}\n" for line in refused.lines]))
                terminal.flush()
                refused.shown()

    return tell


def _take_sockets() -> None:
    """Take the sockets that a supervisor has opened.

    Ends the process with code 2 if one cannot be used. To be called before anything imports
    Twisted's endpoints, which take them out of the environment.
    """
    from gateway.instance.systemd import SocketsRefused, take_sockets

    try:
        take_sockets(os.environ)
    except SocketsRefused as refused:
        print(refused, file=sys.stderr)
        sys.exit(EXIT_REFUSED)


def _announce(configuration: Configuration, notice: Callable[[str, Level], str]) -> None:
    """Print what was made.

    The password of ``admin`` is printed to a terminal only: anything else may keep it.
    """
    from gateway.broker.security.users import password_of_admin
    from gateway.instance.levels import Level

    for note in configuration.notes:
        print(notice(note, Level.INFO))
    if configuration.made_admin and sys.stdout.isatty():
        print(
            f"user 'admin' has the password {password_of_admin(configuration.layout)}; it is not shown again"
        )
    sys.stdout.flush()


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a refusal in its own lines, and exit with its code.

    ``twistd`` lets what a service's start raises end the process.
    """
    if not isinstance(error, StartRefused):
        sys.__excepthook__(kind, error, trace)
        return
    for line in error.lines:
        print(line, file=sys.stderr)
    for stream in (sys.stderr, sys.stdout):
        stream.flush()
    os._exit(EXIT_REFUSED)
