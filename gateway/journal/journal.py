"""The journal on the reactor's thread, where nothing waits for it.

Owns the level, what an operator's log is told, and the journal's settings, from which the reference
page is made. The thread is :mod:`gateway.journal.writer`'s, the files are
:mod:`gateway.journal.segments`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger, LogLevel

from gateway.instance.settings import Boolean, Choice, Duration, Octets, Setting, Settings
from gateway.journal.chain import Chain
from gateway.journal.lines import Lines
from gateway.journal.runs import Runs
from gateway.journal.schema import DEAD_STEPS, Level
from gateway.journal.segments import Bounds, Segments
from gateway.journal.tracer import Tracer
from gateway.journal.writer import MOST_WAITING, RETRY, News, Writer

#: Is given the fields of a line, as :meth:`Journal.add` takes them.
Follower: TypeAlias = Callable[[Mapping[str, object]], None]

LEVEL: Final = Setting(
    "imq.journal.level",
    Choice(*(level.value for level in Level)),
    Level.LINKS.value,
    "What the journal tells: off is nothing, dead what expires or is given up, links that and every step on links, all that and every step at the "
    "embedded broker. SIGHUP reads it again.",
)
HEADERS: Final = Setting(
    "imq.journal.headers",
    Boolean(),
    False,
    "Whether the journal has the headers of messages that are produced, received or given up",
)
BODIES: Final = Setting(
    "imq.journal.bodies",
    Boolean(),
    False,
    "Whether the journal has the bodies of messages that are produced, received or given up",
)
SEGMENT_SIZE: Final = Setting(
    "imq.journal.segment.size",
    Octets(unlimited=False, minimum=4096),
    64 * 1024 * 1024,
    "Octets of a segment of the journal from which on the next is begun",
)
SEGMENT_AGE: Final = Setting(
    "imq.journal.segment.age",
    Duration("seconds", 1),
    60,
    "Time after which a segment of the journal can be read, and the next is begun",
)
RETENTION: Final = Setting(
    "imq.journal.retention",
    Duration("days"),
    7,
    "Time for which segments of the journal are kept; 0 is for ever",
)
RETENTION_SIZE: Final = Setting(
    "imq.journal.retention.size",
    Octets(),
    4 * 1024**3,
    "Octets that the segments of the journal may take together; above it the oldest go, however new they are",
)

CHAIN: Final = Setting(
    "imq.journal.chain",
    Boolean(),
    False,
    "Whether a chain of hashes vouches for the segments of the journal, which imqdbmgr verify journal looks at",
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    LEVEL,
    HEADERS,
    BODIES,
    SEGMENT_SIZE,
    SEGMENT_AGE,
    RETENTION,
    RETENTION_SIZE,
    CHAIN,
)

_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How much is written, and for how long it is kept.

    :param segment_size: octets.
    :param segment_age: seconds.
    :param retention: seconds, 0 for ever.
    :param retention_size: octets, negative for no bound.
    :param chain: whether segments are chained.
    """

    level: Level = Level.LINKS
    headers: bool = False
    bodies: bool = False
    segment_size: int = 64 * 1024 * 1024
    segment_age: float = 60
    retention: float = 7 * _DAY
    retention_size: int = 4 * 1024**3
    chain: bool = False

    @classmethod
    def read(cls, settings: Settings) -> JournalOptions:
        """The options that the settings ask for."""
        return cls(
            level=Level(settings[LEVEL]),
            headers=settings[HEADERS],
            bodies=settings[BODIES],
            segment_size=settings[SEGMENT_SIZE],
            segment_age=settings[SEGMENT_AGE],
            retention=settings[RETENTION] * _DAY,
            retention_size=settings[RETENTION_SIZE],
            chain=settings[CHAIN],
        )


_LEVELS: Final = {
    News.STOPPED: LogLevel.error,
    News.CROWDED: LogLevel.error,
    News.NOT_A_LINE: LogLevel.error,
    News.NOT_NOTED: LogLevel.error,
    News.ENDED: LogLevel.warn,
    News.UNREADABLE: LogLevel.warn,
    News.NOT_REMOVED: LogLevel.warn,
}


@dataclass(frozen=True, slots=True)
class JournalStanding:
    """How the journal stands.

    :param lines: that the kernel has, since the start, and
    :param octets: of them.
    :param lost: lines that were not written.
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

    :param folder: of the segments; it must be there.
    :param run: as :func:`~gateway.journal.schema.run_name` gives it.
    :param instance: the gateway's.
    :param most: octets of lines that may wait.
    :param retry: seconds until a journal that has stopped tries again.
    :param wall: the time of day, seconds since the epoch; None for the reactor's ``seconds``.
    :param tracer: makes traces of the lines; None for no traces.
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
        tracer: Tracer | None = None,
    ) -> None:
        #: Says which messages are traced. Callers look at it before they ask.
        self.tracer: Final = tracer
        self._reactor = reactor
        self._wall: Callable[[], float] = reactor.seconds if wall is None else wall
        #: How much is told. Callers look at it before they gather anything.
        self.level = options.level
        #: What is written; less than that where somebody follows.
        self._kept = options.level
        self._followers: list[Follower] = []
        #: Lines come that are only for those who follow.
        self._more = False
        #: Called when :attr:`level` is another.
        self.level_changed: Callable[[], None] = lambda: None
        #: Whether headers, and bodies, are told.
        self.headers = options.headers
        self.bodies = options.bodies
        bounds = Bounds(
            options.segment_size, options.segment_age, options.retention, options.retention_size
        )
        self._writer = Writer(
            Segments(folder, run, bounds, chain=Chain(folder) if options.chain else None),
            Lines(run, instance),
            self._tell,
            most=most,
            retry=retry,
            tracer=tracer,
            runs=Runs(folder, run, instance),
        )
        #: The thread is to be roused when this turn is over, and not to let more lines gather.
        self._rousing = False
        self._hurried = False
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
        if self._more or self._followers:
            for follower in self._followers:
                follower(fields)
            if self._more and not self._is_kept(fields):
                return
        self._writer.add(fields, octets)
        if self._writer.asleep:
            self._rouse_later()

    def set_level(self, level: Level) -> None:
        """Write so much from now on."""
        self._kept = level
        self._choose_level()

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Have somebody get each line as it is taken, of every step.

        What is written is the same as without them, but callers have more to do.

        :param follower: called on the reactor's thread, with fields that it does not change; never
            raises.
        :returns: what ends that. Idempotent.
        """
        self._followers = [*self._followers, follower]
        self._choose_level()

        def end() -> None:
            self._followers = [each for each in self._followers if each is not follower]
            self._choose_level()

        return end

    def _choose_level(self) -> None:
        level = Level.ALL if self._followers else self._kept
        if level is not self.level:
            self.level = level
            # Lines that were gathered until now come.
            self.level_changed()
        self._more = self._kept is not level

    def _is_kept(self, fields: Mapping[str, object]) -> bool:
        if self._kept is Level.OFF:
            return False
        if self._kept is Level.LINKS and "link" in fields:
            return True
        steps = cast(Sequence[str], fields.get("steps", ()))
        return not DEAD_STEPS.isdisjoint(steps)

    def written(self) -> Deferred[None]:
        """Wait until the kernel has all lines taken until now.

        It ends, too, if they are lost because the journal has stopped.
        """
        done: Deferred[None] = Deferred()
        self._writer.after(lambda: self._reactor.callFromThread(done.callback, None))
        return done

    def hurry(self) -> int:
        """Have all lines taken until now written soon.

        :returns: the last of them, for :meth:`has`.
        """
        self._hurried = True
        self._rouse_later()
        return self._writer.last

    def has(self, line: int) -> bool:
        """Whether lines up to this one are written, or lost."""
        return self._writer.through >= line

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
            self._kept.value,
            writer.written_lines,
            writer.written_octets,
            writer.lost,
            writer.stopped,
        )

    def _rouse_later(self) -> None:
        # When this turn is over: the thread would take the interpreter from what the turn is to
        # hand to the store yet, and so keep a link that sends one message at a time waiting.
        if not self._rousing:
            self._rousing = True
            self._reactor.callLater(0, self._rouse)

    def _rouse(self) -> None:
        hurried, self._hurried, self._rousing = self._hurried, False, False
        self._writer.rouse(hurried)

    def _tell(self, news: News, said: dict[str, object]) -> None:
        # From the journal's thread, too.
        self._reactor.callFromThread(
            self._log.emit, _LEVELS.get(news, LogLevel.info), news.value, **said
        )
