"""The logs of an instance: one of its own, and one for each bridge.

Each has its level and its files. Owns the way from an event to its log, the levels at run time, how
many lines strangers at a port may cause, and the files, which are rotated as java.util.logging's
FileHandler does. What a line looks like is :mod:`gateway.instance.log_lines`'s. Code that logs is
given a
:class:`Log`, or uses a Logger of Twisted whose namespace is routed to one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import (
    ILogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogPublisher,
    globalLogPublisher,
)
from zope.interface import implementer

from gateway.instance import settings_general as general
from gateway.instance.events import Events
from gateway.instance.layout import PRIVATE_FILE, Layout, make_directory
from gateway.instance.levels import Level, level_of
from gateway.instance.log_lines import ANNOUNCED, FORMS, LINES, TEXT, LineForm
from gateway.instance.redaction import Redaction, hidden_by_value
from gateway.instance.settings import Settings


@implementer(ILogObserver)
class Log:
    """One log: writes events of its level and above, each as one line.

    :attr:`fine` tells whether anybody would see an event of FINE, so that the hot path need not make
    it: ``if log.fine: log.logger.debug(...)``.

    :param name: what it is the log of.
    :param files: where lines go.
    :param redaction: takes secrets out of them.
    :param also: what gets warnings and worse as well.
    :param form: of its lines.
    :param events: what gets each event, whatever its level; None for nothing.
    """

    fine: bool

    def __init__(
        self,
        name: str,
        files: LogFiles,
        redaction: Redaction,
        level: Level = Level.INFO,
        also: Callable[[LogEvent], None] | None = None,
        form: LineForm = TEXT,
        events: Events | None = None,
    ) -> None:
        self.name = name
        self._events = events
        self._files = files
        self._form = form
        self._redaction = redaction
        self._also = also
        self.level = level
        self.logger = self.logger_for(name)
        self.set_level(level)

    def logger_for(self, namespace: str, source: object = None) -> Logger:
        """A Logger of Twisted whose events come here and nowhere else."""
        return Logger(namespace=namespace, source=source, observer=self)

    def set_level(self, level: Level) -> None:
        """Take events of ``level`` and above from now on."""
        self.level = level
        self.fine = level <= Level.FINE

    def __call__(self, event: LogEvent) -> None:
        level = level_of(event)
        if self._events is not None:
            self._events.observe(event, level)
        if level >= self.level:
            self._write(event, level)

    def also(self, event: LogEvent) -> None:
        """Write an event that came to another log."""
        level = level_of(event)
        if level >= self.level:
            self._write(event, level)

    def _write(self, event: LogEvent, level: Level) -> None:
        many = event.get(LINES)
        self._files.write(
            self._form.one(event, level, self._redaction)
            if many is None
            else self._form.many(many, event, level, self._redaction)
        )
        if self._also is not None and level >= Level.WARNING:
            self._also(event)

    def reopen(self) -> None:
        """Reopen the file, as when the operator's tool has moved it.

        :raises OSError: it cannot be opened.
        """
        self._files.reopen()

    def close(self) -> None:
        """Write no more."""
        self._files.close()


@implementer(ILogObserver)
class StandardError:
    """Shows events, each as one line, to the starter of the process.

    Events marked as shown already are left out.
    """

    def __init__(self, redaction: Redaction, form: LineForm = TEXT) -> None:
        self._redaction = redaction
        self._form = form

    def __call__(self, event: LogEvent) -> None:
        if not event.get(ANNOUNCED):
            print_error(self._form.one(event, level_of(event), self._redaction))


@implementer(ILogObserver)
class Logs:
    """All logs of an instance, and the way from an event to its log.

    An event goes to the bridge it names in its field ``bridge``, else to the one to which the
    longest beginning of its namespace is routed, else to the instance's log.

    :param layout: says where the files are.
    :param redaction: takes secrets out of every line; shared by all logs.
    :param level: that of the instance's log.
    :param limit: octets at which its file is rotated; 0 for never.
    :param count: how many files of it there are at most.
    :param shown: warnings and worse of what the instance's log takes go to the standard error as
        well.
    :param form: of the lines of all of them.
    :raises OSError: its file cannot be opened.
    """

    def __init__(
        self,
        layout: Layout,
        redaction: Redaction,
        level: Level = Level.INFO,
        limit: int = 0,
        count: int = 1,
        *,
        shown: bool = False,
        form: LineForm = TEXT,
    ) -> None:
        self.redaction = redaction
        #: What happens, for those who follow it.
        self.events: Final = Events(redaction)
        self._form = form
        self._layout = layout
        self._bridges: dict[str, Log] = {}
        self._routes: dict[str, str] = {}
        self.instance = Log(
            "imq",
            LogFiles(lambda generation: instance_log(layout.log, generation), limit, count, form),
            redaction,
            level,
            StandardError(redaction, form) if shown else None,
            form,
            self.events,
        )

    def open_bridge(
        self,
        name: str,
        level: Level = Level.INFO,
        limit: int = 0,
        count: int = 1,
        namespaces: Iterable[str] = (),
    ) -> Log:
        """Open the log of a bridge: ``bridges/NAME/NAME0.log``.

        Its warnings are in the instance's log, too.

        :param limit: ``imq.bridge.NAME.logfile.limit``, in octets; 0 for none.
        :param count: ``imq.bridge.NAME.logfile.count``.
        :param namespaces: those of Loggers whose events belong to this bridge, with all below them.
        :raises ValueError: it is open.
        :raises OSError: its file cannot be opened.
        """
        if name in self._bridges:
            raise ValueError(f"the log of bridge {name} is open")
        directory = self._layout.bridge(name)
        form = self._form
        files = LogFiles(
            lambda generation: directory / f"{name}{generation}.log", limit, count, form
        )
        log = Log(
            f"imq.bridge.{name}",
            files,
            self.redaction,
            level,
            self.instance.also,
            form,
            self.events,
        )
        self._bridges[name] = log
        self._routes.update(dict.fromkeys(namespaces, name))
        return log

    def close_bridge(self, name: str) -> None:
        """Close the log of a bridge that has stopped.

        What is still logged of it goes to the instance's. One that is not open is no error.
        """
        log = self._bridges.pop(name, None)
        self._routes = {
            namespace: bridge for namespace, bridge in self._routes.items() if bridge != name
        }
        if log is not None:
            log.close()

    def bridge(self, name: str) -> Log | None:
        """Return the log of a bridge, for its level at run time.

        None where it is not open.
        """
        return self._bridges.get(name)

    def bridges(self) -> dict[str, Log]:
        """The logs of bridges that are open, by name."""
        return dict(self._bridges)

    def reopen(self) -> None:
        """Reopen all files, as when the operator's tool has moved them.

        :raises OSError: one cannot be opened; the others are.
        """
        failed: OSError | None = None
        for log in (self.instance, *self._bridges.values()):
            try:
                log.reopen()
            except OSError as refused:
                failed = refused
        if failed is not None:
            raise failed

    def __call__(self, event: LogEvent) -> None:
        self._log_for(event)(event)

    def start(self, publisher: LogPublisher = globalLogPublisher) -> None:
        """Observe all events of the process."""
        publisher.addObserver(self)

    def stop(self, publisher: LogPublisher = globalLogPublisher) -> None:
        """Observe no more, and close all files."""
        publisher.removeObserver(self)
        for name in list(self._bridges):
            self.close_bridge(name)
        self.instance.close()

    def _log_for(self, event: LogEvent) -> Log:
        named = event.get("bridge")
        if isinstance(named, str) and named in self._bridges:
            return self._bridges[named]
        namespace = event.get("log_namespace")
        while self._routes and isinstance(namespace, str) and namespace:
            if namespace in self._routes:
                return self._bridges[self._routes[namespace]]
            namespace = namespace.rpartition(".")[0]
        return self.instance


def open_logs(layout: Layout, settings: Settings, *, shown: bool = False) -> Logs:
    """Open the logs of an instance as its settings want them.

    Its passwords are never in them, as far as :func:`hidden_by_value` goes.

    :param shown: whether warnings and worse go to the standard error as well.
    :raises OSError: the instance's log cannot be opened.
    """
    return Logs(
        layout,
        Redaction(hidden_by_value(settings.secrets(), [settings[general.BRIDGE_ADMIN_USER]])),
        Level[settings[general.LOG_LEVEL]],
        max(0, settings[general.LOG_FILE_ROLLOVERBYTES]),
        settings[general.LOG_FILE_COUNT],
        shown=shown,
        form=FORMS[settings[general.LOG_FORMAT]],
    )


def open_bridge_log(
    logs: Logs, settings: Settings, name: str, namespaces: Iterable[str] = ()
) -> Log:
    """Open a bridge's log as its settings want it.

    See :meth:`Logs.open_bridge`.

    :raises SettingsError: one of these settings is bad, so that the bridge must not start.
    :raises ValueError: it is open.
    :raises OSError: it cannot be opened.
    """
    return logs.open_bridge(
        name,
        Level[settings.named(general.BRIDGE_LEVEL, name)],
        settings.named(general.BRIDGE_LOGFILE_LIMIT, name),
        settings.named(general.BRIDGE_LOGFILE_COUNT, name),
        namespaces,
    )


def set_levels(logs: Logs, settings: Settings) -> None:
    """Have all logs that are open take the levels of ``settings`` from now on.

    :raises SettingsError: the level of a bridge is bad; then none is changed.
    """
    levels = [(logs.instance, settings[general.LOG_LEVEL])]
    levels += [
        (log, settings.named(general.BRIDGE_LEVEL, name)) for name, log in logs.bridges().items()
    ]
    for log, level in levels:
        log.set_level(Level[level])


def instance_log(directory: Path, generation: int) -> Path:
    """Return ``log.txt``, or ``log_1.txt`` and so on for the older ones.

    The original names them so.
    """
    return directory / (f"log_{generation}.txt" if generation else "log.txt")


#: Lines of one kind that are written in a second; of more only the number is told.
MOST_A_SECOND: Final = 10
#: Seconds after the first line that was left out until their number is told.
REPORT_S: Final = 60.0
#: Addresses of one kind that are told apart; strangers must not fill the memory either.
_MOST_ADDRESSES: Final = 10_000


class _Kind:
    """The lines of one kind, in the present second and since the report.

    ``second``: when the present second began. ``written``: lines in it. ``more``: lines left out
    since the last report.
    """

    __slots__ = ("addresses", "more", "second", "written")

    def __init__(self) -> None:
        self.second = float("-inf")
        self.written = 0
        self.more = 0
        self.addresses: set[str] = set()


class Strangers:
    """The limit of one service.

    :param clock: the reactor.
    :param log: is told the numbers, at the level of the lines.
    """

    def __init__(self, clock: Any, log: Logger) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._kinds: Final[dict[tuple[str, LogLevel], _Kind]] = {}
        self._reporting: IDelayedCall | None = None

    def may_log(self, kind: str, level: LogLevel, address: str) -> bool:
        """Whether a line is to be written; one that is not is counted.

        :param kind: what the line is about, in words for "and 5 more: KIND"; there are few of them.
            :param address: who has caused it.
        """
        now = self._clock.seconds()
        known = self._kinds.get((kind, level))
        if known is None:
            known = self._kinds[kind, level] = _Kind()
        if now - known.second >= 1:
            known.second, known.written = now, 0
        if known.written < MOST_A_SECOND:
            known.written += 1
            return True
        known.more += 1
        if len(known.addresses) < _MOST_ADDRESSES:
            known.addresses.add(address)
        if self._reporting is None:
            self._reporting = self._clock.callLater(REPORT_S, self.report)
        return False

    def report(self) -> None:
        """Tell what was left out until now; also for the end of the service."""
        reporting, self._reporting = self._reporting, None
        if reporting is not None and reporting.active():
            reporting.cancel()
        for (kind, level), known in self._kinds.items():
            more, known.more = known.more, 0
            if more:
                addresses = len(known.addresses)
                known.addresses.clear()
                self._log.emit(
                    level,
                    "and {more} more from {addresses} {noun} in the last minute: {kind}",
                    more=more,
                    addresses=f"{addresses} or more" if addresses == _MOST_ADDRESSES else addresses,
                    noun="address" if addresses == 1 else "addresses",
                    kind=kind,
                )


class LogFiles:
    """Files by generation: 0 is the newest, and the only one written to.

    May be used from any thread.

    What is there when they are opened is kept, and counts. After a line that reaches the limit,
    each file takes the next older one's name, the oldest of ``count`` is dropped, and generation 0
    begins anew. So a file is longer than the limit by part of a line, and with a count of one the
    only file begins anew.

    :param path: the path of a generation.
    :param limit: octets after which to rotate; 0 for never.
    :param count: how many files there are at most, at least 1.
    :param form: of what is told on the standard error when the file cannot be written.
    :raises OSError: generation 0 cannot be opened, or its directory not made.
    """

    def __init__(
        self,
        path: Callable[[int], Path],
        limit: int = 0,
        count: int = 1,
        form: LineForm = TEXT,
    ) -> None:
        if limit < 0 or count < 1:
            raise ValueError(
                f"limit is {limit} and count {count}; expected at least 0 and at least 1"
            )
        self._path = path
        self._limit = limit
        self._count = count
        self._form = form
        # One thread may come twice: Twisted logs in its signal handlers, and a signal may come
        # while a line is being written.
        self._lock = threading.RLock()
        self._descriptor: int | None = None
        self._size = 0
        self._failing = False
        #: Whether the file ends within a line, so that the next one must begin anew.
        self._torn = False
        make_directory(path(0).parent)
        self._open(0)

    @property
    def current(self) -> Path:
        """The file that is written."""
        return self._path(0)

    def write(self, line: str) -> None:
        """Write ``line`` and a line feed, at once and not synced.

        A log that cannot be written stops nothing: the first failure of a row of them is told on the
        standard error, with the line. What was written of it then stays a line of its own. After
        :meth:`close` nothing is written.
        """
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            if self._descriptor is None:
                return
            try:
                self._write(data)
                if self._limit and self._size >= self._limit:
                    self._rotate()
                self._failing = False
            except OSError as failed:
                if not self._failing:
                    self._failing = True
                    why = f"the log cannot be written: {failed.strerror or failed}"
                    print_error(self._form.notice(f"{self.current}: {why}: {line}", Level.SEVERE))

    def reopen(self) -> None:
        """Close and open generation 0, after the operator's tool has moved it.

        :raises OSError: it cannot be opened; then nothing is written until the next call.
        """
        with self._lock:
            self._close()
            self._open(0)

    def close(self) -> None:
        """Write no more. Once is enough; again does nothing."""
        with self._lock:
            self._close()

    def _write(self, data: bytes) -> None:
        descriptor = self._descriptor
        assert descriptor is not None
        if self._torn:
            data = b"\n" + data
        while data:
            written = os.write(descriptor, data)
            self._size += written
            self._torn = data[written - 1 : written] != b"\n"
            data = data[written:]

    def _open(self, flags: int) -> None:
        opened = os.open(
            self.current,
            os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | flags,
            PRIVATE_FILE,
        )
        self._descriptor = opened
        self._size = os.fstat(opened).st_size
        self._torn = self._size > 0 and os.pread(opened, 1, self._size - 1) != b"\n"

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _rotate(self) -> None:
        # The open file keeps its descriptor until its successor is there, so a failure on the way
        # loses no line. Where its name is gone, an earlier attempt got as far as that: to shift the
        # names again would drop a file for nothing.
        if self.current.exists():
            for generation in range(self._count - 2, -1, -1):
                younger = self._path(generation)
                if younger.exists():
                    younger.rename(self._path(generation + 1))
        before = self._descriptor
        self._open(os.O_TRUNC)
        if before is not None:
            os.close(before)


def print_error(line: str) -> None:
    """Write ``line`` to the process's standard error, if it has one.

    Never to what took its place, which may be a log.

    A failure is ignored: there is no other place to tell it.
    """
    stream = sys.__stderr__
    if stream is not None and not stream.closed:
        with suppress(OSError):
            print(line, file=stream, flush=True)
