"""The journal on the reactor's thread, where nothing waits for it.

Owns the level and what an operator's log is told. The thread is :mod:`gateway.journal.writer`'s,
the files are :mod:`gateway.journal.segments`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger, LogLevel

from gateway.journal.lines import Lines
from gateway.journal.segments import Bounds, Segments
from gateway.journal.settings import JournalOptions
from gateway.journal.writer import MOST_WAITING, RETRY, News, Writer

_LEVELS: Final = {
    News.STOPPED: LogLevel.error,
    News.CROWDED: LogLevel.error,
    News.NOT_A_LINE: LogLevel.error,
    News.NOT_REMOVED: LogLevel.warn,
}


@dataclass(frozen=True, slots=True)
class JournalStanding:
    """How the journal stands.

    :param lines: that the kernel has, since the start, and :param octets: of them. :param lost:
        lines that were not written.
    :param stopped: the disk takes nothing, as far as is known.
    """

    level: str
    lines: int
    octets: int
    lost: int
    stopped: bool


class Journal:
    """Takes lines and has them written on a thread of its own.

    All of it is called on the reactor's thread.

    :param folder: of the segments; it must be there. :param run: as
        :func:`~gateway.journal.schema.run_name` gives it.
    :param instance: the gateway's. :param most: octets of lines that may wait. :param retry:
        seconds until a journal that has stopped tries again.
    :param wall: the time of day, seconds since the epoch; None for the reactor's ``seconds``.
    """

    _log: ClassVar = Logger(namespace="gateway.journal")

    def __init__(
        self,
        reactor: Any,
        folder: Path,
        run: str,
        instance: str,
        options: JournalOptions,
        *,
        most: int = MOST_WAITING,
        retry: float = RETRY,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._reactor = reactor
        self._wall: Callable[[], float] = reactor.seconds if wall is None else wall
        #: How much is told. Callers look at it before they gather anything.
        self.level = options.level
        #: Whether headers, and bodies, are told.
        self.headers = options.headers
        self.bodies = options.bodies
        bounds = Bounds(
            options.segment_size, options.segment_age, options.retention, options.retention_size
        )
        self._writer = Writer(
            Segments(folder, run, bounds), Lines(run, instance), self._tell, most=most, retry=retry
        )
        self._writer.start()

    def add(self, fields: dict[str, object], octets: int = 0) -> None:
        """Take one line. Never blocks, never raises.

        Lines are written in the order in which they were taken.

        :param fields: by the names of :data:`~gateway.journal.schema.FIELDS`, without ``v``,
            ``run``, ``line`` and ``instance``; ``time`` is set to now if it is missing. Also what
            :mod:`gateway.journal.lines` says. The caller changes it no more.
        :param octets: what it holds in memory for as long as it waits, where that is more than a
            few hundred octets.
        """
        if "time" not in fields:
            fields["time"] = int(self._wall() * 1_000_000)
        self._writer.add(fields, octets)

    def written(self) -> Deferred[None]:
        """Wait until all that was taken until now is with the kernel.

        Or lost because the journal has stopped.
        """
        done: Deferred[None] = Deferred()
        self._writer.after(lambda: self._reactor.callFromThread(done.callback, None))
        return done

    def close(self) -> Deferred[None]:
        """Write what waits, and make the last segment whole.

        Fires when that is done, or cannot be.
        """
        done: Deferred[None] = Deferred()
        self._writer.end(lambda: self._reactor.callFromThread(done.callback, None))
        return done

    def standing(self) -> JournalStanding:
        """How it stands."""
        writer = self._writer
        return JournalStanding(
            self.level.value,
            writer.written_lines,
            writer.written_octets,
            writer.lost,
            writer.stopped,
        )

    def _tell(self, news: News, said: dict[str, object]) -> None:
        # From the journal's thread, too.
        self._reactor.callFromThread(
            self._log.emit, _LEVELS.get(news, LogLevel.info), news.value, **said
        )
