"""The journal's thread: makes lines of what it is given.

It has them written.

Owns the bound of what waits, the numbers of lines, and what happens when the disk takes no more:
the journal stops, and tries again by itself. A line that is lost, for lack of memory or of disk,
leaves its number out. How many are lost is noted where a kill leaves it
(:mod:`gateway.journal.runs`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from gateway.journal.lines import Lines
from gateway.journal.runs import Runs
from gateway.journal.segments import CutShort, Segments
from gateway.journal.tracer import Tracer

#: Octets that what waits may take, roughly.
MOST_WAITING: Final = 64 * 1024 * 1024
#: What a line takes while it waits, beside what its writer says.
OVERHEAD: Final = 1_000
#: Lines written at once.
_MOST_LINES: Final = 1_000
#: Seconds between two looks at what waits, while there is always something: what gathers meanwhile
#: is one write.
NAP: Final = 0.01
#: Seconds after which a journal that has stopped tries again, and after which old segments are
#: looked for.
RETRY: Final = 60.0
_SWEEP: Final = 600.0


class News(Enum):
    """What an operator is to know.

    ``str.format`` is given ``error``, ``lost``, ``names``, ``run`` and ``comment``.
    """

    STOPPED = "the journal has stopped, and lines are lost: {error}; it tries again each minute"
    RESUMED = "the journal goes on; {lost} lines were lost"
    CROWDED = "lines of the journal are lost: they come faster than the disk takes them"
    RELIEVED = "the journal's disk has caught up; {lost} lines were lost"
    NOT_A_LINE = "a line of the journal could not be made, and is lost: {error}"
    COMPLETED = "segments of the journal that were left open are whole: {names}"
    ENDED = "the journal of an earlier run, {run}, has an end line: {comment}"
    UNREADABLE = "the journal had a note of an earlier run that cannot be read: lines of that run may be lost"
    NOT_NOTED = "the journal cannot note which lines it loses: if it is killed now, nothing says so later: {error}"
    NOT_REMOVED = "old segments of the journal could not be removed: {error}"


_Item = TypeVar("_Item")

#: A line that waits: its number, its fields, and what it takes. Or what is to be called when all
#: before it is written.
_Waiting: TypeAlias = "tuple[int, Mapping[str, object], int] | Callable[[], None]"


class Writer:
    """Writes lines on a thread of its own.

    :param tell: called with what is new and what its text is given; on any thread.
    :param now: seconds since the epoch.
    :param runs: where this run notes how it stands; None for nowhere.
    :param tracer: reads the lines, before they are written.
    """

    def __init__(
        self,
        segments: Segments,
        lines: Lines,
        tell: Callable[[News, dict[str, object]], None],
        now: Callable[[], float] = time.time,
        *,
        most: int = MOST_WAITING,
        retry: float = RETRY,
        tracer: Tracer | None = None,
        runs: Runs | None = None,
    ) -> None:
        self._runs: Final = runs
        #: The newest segment and the lines lost that were noted, and whether that failed.
        self._noted = (-1, 0)
        self._not_noted = False
        #: The last line that the kernel has.
        self._kept = 0
        self._tracer: Final = tracer
        self._segments: Final = segments
        self._lines: Final = lines
        self._tell: Final = tell
        self._now: Final = now
        self._most: Final = most
        self._retry: Final = retry
        self._queue: deque[_Waiting] = deque()
        self._wake: Final = threading.Event()
        #: The thread looks at what is taken only when it is roused.
        self.asleep = False
        #: Somebody waits for what is in the queue, or its end.
        self._hurry: Final = threading.Event()
        self._ending = False
        self._ended = False
        self._at_end: deque[Callable[[], None]] = deque()
        #: The last line that was taken, and the last that is written or lost, by their numbers.
        self.last = 0
        self.through = 0
        # Octets that were put in the queue, and octets that were taken out: each is changed by one
        # thread only.
        self._put = 0
        self._taken = 0
        self._crowded_lost = 0
        self._crowded = False
        self._lost_on_thread = 0
        self._told_lost = 0
        self._swept = 0.0
        #: When to try again, by the monotonic clock; None while all is well.
        self._stopped: float | None = None
        #: Lines and octets that the kernel has.
        self.written_lines = 0
        self.written_octets = 0
        self._thread: Final = threading.Thread(target=self._run, name="journal", daemon=True)

    # --- on the thread of those who write

    def start(self) -> None:
        self._thread.start()

    def add(self, fields: Mapping[str, object], octets: int) -> None:
        """Take a line. Called by one thread only.

        See :attr:`asleep` and :meth:`rouse`.

        :param octets: what it holds in memory while it waits, beside :data:`OVERHEAD`.
        """
        self.last = number = self.last + 1
        weight = octets + OVERHEAD
        waiting = self._put - self._taken
        if self._ended:
            self._crowded_lost += 1
            return
        if waiting + weight > self._most and waiting:
            self._crowded_lost += 1
            if not self._crowded:
                self._crowded = True
                self._tell(News.CROWDED, {})
            return
        if self._crowded and waiting < self._most // 2:
            self._crowded = False
            self._tell(News.RELIEVED, {"lost": self._crowded_lost})
        self._put += weight
        self._queue.append((number, fields, weight))

    def rouse(self, hurry: bool) -> None:
        """Have the thread look at what was taken.

        :param hurry: it writes at once; else it lets more lines gather for a moment.
        """
        if hurry:
            self._hurry.set()
        if self.asleep:
            self.asleep = False
            self._wake.set()

    def after(self, done: Callable[[], None]) -> None:
        """Call ``done`` when all taken until now is written, or lost.

        It is called on the journal's thread, or here when that has ended.
        """
        if self._ended:
            done()
            return
        self._queue.append(done)
        self.rouse(True)
        if self._ended:
            self._finish()

    def end(self, done: Callable[[], None]) -> None:
        """Write what waits, make the last segment whole, and end the thread.

        Then call ``done``, on that thread, or here when that has ended.
        """
        self._at_end.append(done)
        if self._ended:
            self._tell_end()
        self._ending = True
        self.rouse(True)

    @property
    def lost(self) -> int:
        """Lines that were lost."""
        return self._crowded_lost + self._lost_on_thread

    @property
    def stopped(self) -> bool:
        """Whether the disk takes nothing, as far as is known."""
        return self._stopped is not None

    # --- on the journal's thread

    def _run(self) -> None:
        try:
            self._begin()
            while not self._ending or self._queue:
                self._sleep()
                self._write_all()
                self._look_after()
            whole = True
            try:
                self._segments.roll()
            except OSError as error:
                whole = False
                self._stop(error)
            self._ended = True
            self._finish()
            self._end_run(whole)
        finally:
            self._ended = True
            self._finish()
            self._tell_end()

    def _finish(self) -> None:
        """Call those who wait, though nothing is written any more."""
        for waiting in _taken_out(self._queue):
            if callable(waiting):
                waiting()
            else:
                self._lost_on_thread += 1

    def _tell_end(self) -> None:
        for done in _taken_out(self._at_end):
            done()

    def _sleep(self) -> None:
        self.asleep = True
        if not self._queue and not self._ending:
            self._wake.wait(self._pause())
        self.asleep = False
        self._wake.clear()
        if not self._ending:
            self._hurry.wait(NAP)
        self._hurry.clear()

    def _pause(self) -> float:
        """Seconds until there is something to do though nothing comes."""
        due = self._segments.due_in()
        return _SWEEP if due is None else min(due, _SWEEP)

    def _write_all(self) -> None:
        # What comes meanwhile is for the next time, so that other things are looked after.
        left = len(self._queue)
        while left:
            most = min(left, _MOST_LINES)
            left -= most
            self._write(most)

    def _write(self, most: int) -> None:
        made: list[bytes] = []
        told: list[Callable[[], None]] = []
        weight = 0
        last = kept = self.through
        tracer = self._tracer
        lines: list[Mapping[str, object]] = []
        for _ in range(most):
            waiting = self._queue.popleft()
            if callable(waiting):
                told.append(waiting)
                continue
            last, fields, octets = waiting
            weight += octets
            if tracer is not None:
                lines.append(fields)
            try:
                made.append(self._lines.line(last, fields))
                kept = last
            except Exception as error:  # noqa: BLE001
                # A defect of who handed it over, who has gone on: it is told.
                self._lost_on_thread += 1
                self._tell(News.NOT_A_LINE, {"error": repr(error)})
        if tracer is not None:
            tracer.read(lines)
        if made:
            self._hand_over(made, kept)
        self._taken += weight
        self.through = last
        self._note()
        for done in told:
            done()

    def _hand_over(self, made: list[bytes], last: int) -> None:
        if self._stopped is not None and time.monotonic() < self._stopped:
            self._lost_on_thread += len(made)
            return
        data = b"".join(made)
        kept = 0
        try:
            if self._stopped is not None:
                self._complete()
            self._segments.write(data)
        except OSError as error:
            kept = error.kept if isinstance(error, CutShort) else 0
            whole = data.count(b"\n", 0, kept)
            self._written(whole, kept)
            self._lost_on_thread += len(made) - whole
            self._stop(error)
            return
        self._written(len(made), len(data))
        self._kept = last
        if self._stopped is not None:
            self._stopped = None
            self._tell(News.RESUMED, {"lost": self._lost_on_thread - self._told_lost})
            self._told_lost = self._lost_on_thread

    def _written(self, lines: int, octets: int) -> None:
        self.written_lines += lines
        self.written_octets += octets

    def _stop(self, error: OSError) -> None:
        again = self._stopped is not None
        self._stopped = time.monotonic() + self._retry
        if not again:
            self._tell(News.STOPPED, {"error": _text(error)})

    # --- beside

    def _begin(self) -> None:
        # First, since the disk may be full.
        self._note()
        try:
            completed = self._complete()
        except OSError as error:
            self._stop(error)
            return
        if completed:
            self._tell(News.COMPLETED, {"names": ", ".join(completed)})
        self._remove_old()

    def _complete(self) -> list[str]:
        """Complete what was left open, and end the runs that left it.

        :raises OSError: it could not be done.
        """
        completed = self._segments.complete()
        if self._runs is not None:
            for told in self._runs.end_others(self._segments.chain):
                if told.run:
                    self._tell(News.ENDED, {"run": told.run, "comment": told.comment})
                else:
                    self._tell(News.UNREADABLE, {})
        return completed

    def _note(self) -> None:
        """Note how this run stands, where that has changed."""
        stands = (self._segments.number, self.lost)
        if self._runs is None or stands == self._noted:
            return
        try:
            self._runs.note(self.last, self._kept, stands[1], stopped=self.stopped)
        except OSError as error:
            if not self._not_noted:
                self._not_noted = True
                self._tell(News.NOT_NOTED, {"error": _text(error)})
            return
        self._noted, self._not_noted = stands, False

    def _end_run(self, whole: bool) -> None:
        """Free this run's slot, or write its end line.

        It has an end line where its last lines are lost.

        :param whole: its last segment is.
        """
        if self._runs is None:
            return
        try:
            if whole and self._kept == self.last:
                self._runs.end()
            else:
                self._runs.note(self.last, self._kept, self.lost, closed=True)
                self._runs.end_this(self._segments.chain)
        except OSError as error:
            # The next start finds the slot.
            self._tell(News.STOPPED, {"error": _text(error)})

    def _look_after(self) -> None:
        try:
            self._segments.roll_if_old()
        except OSError as error:
            self._stop(error)
        if time.monotonic() - self._swept >= _SWEEP:
            self._remove_old()

    def _remove_old(self) -> None:
        self._swept = time.monotonic()
        try:
            self._segments.remove_old(self._now())
        except OSError as error:
            self._tell(News.NOT_REMOVED, {"error": _text(error)})


def _taken_out(queue: deque[_Item]) -> Iterator[_Item]:
    """What is in it, until nothing is; two threads may do so at once."""
    while True:
        try:
            item = queue.popleft()
        except IndexError:
            return
        yield item


def _text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
