"""The end of a turn of the reactor.

A connection delivers and writes then. Owns the order of what is left for it, and which senders wait until less is to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime

#: Bytes of bodies that wait for the end of the turn from which on a session is not writable.
_MOST_GATHERED: Final = 1_048_576


class TurnWire(Protocol):
    """A socket that is written to at the end of a turn."""

    #: Called when all that arrived together was passed on.
    on_run: Callable[[], None]
    #: Called each time that more can be written after :attr:`crowded`.
    on_relief: Callable[[], None]

    @property
    def crowded(self) -> bool:
        """Whether as much waits to be written as should."""

    def flush(self) -> None:
        """Write what was gathered."""


class EndOfTurn:
    """The end of a turn of the reactor.

    First due calls, then deliveries, then the frames of sessions, then the socket.

    :param ended: called after each.
    """

    def __init__(self, clock: IReactorTime, wire: TurnWire, ended: Callable[[], None]) -> None:
        self._clock = clock
        self._wire = wire
        self._ended = ended
        #: Bytes of bodies that wait for the end of the turn.
        self.gathered = 0
        #: What pumps a consumer, and what flushes a session, in the order asked for.
        self._touched: dict[Callable[[], None], None] = {}
        self._to_flush: dict[Callable[[], None], None] = {}
        self._due: list[Callable[[], None]] = []
        self._scheduled = False
        self._resumes: list[Callable[[], None]] = []
        wire.on_run = self.finish
        wire.on_relief = self._relieved

    def touched(self, pump: Callable[[], None]) -> None:
        """Pump a consumer at the end of the run of frames that is being read."""
        self._touched[pump] = None

    def touch(self, pump: Callable[[], None]) -> None:
        """Pump a consumer at the end of this turn."""
        self._touched[pump] = None
        self._schedule()

    def flush_later(self, flush: Callable[[], None]) -> None:
        """Flush a session at the end of this turn."""
        self._to_flush[flush] = None
        self._schedule()

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a later turn."""
        self._due.append(call)
        self._schedule()

    @property
    def crowded(self) -> bool:
        """Whether as much waits to be written as should."""
        return self._wire.crowded or self.gathered > _MOST_GATHERED

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once when :attr:`crowded` is over."""
        self._resumes.append(resume)

    def finish(self) -> None:
        """Deliver until nothing more can be delivered, then write."""
        while self._touched:
            touched, self._touched = self._touched, {}
            for pump in touched:
                pump()
        self.flush()
        self._ended()

    def flush(self) -> None:
        """Write the gathered frames of all sessions."""
        to_flush, self._to_flush = self._to_flush, {}
        self.gathered = 0
        for flush in to_flush:
            flush()
        self._wire.flush()

    def drop(self) -> None:
        """Forget deliveries and waiting senders: the connection has ended."""
        self._touched.clear()
        self._resumes.clear()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        self._scheduled = False
        due, self._due = self._due, []
        for call in due:
            call()
        self.finish()

    def _relieved(self) -> None:
        if self._resumes:
            resumes, self._resumes = self._resumes, []
            for resume in resumes:
                self.soon(lambda resume=resume: self._resume(resume))  # type: ignore[misc]

    def _resume(self, resume: Callable[[], None]) -> None:
        if self.crowded:
            self._resumes.append(resume)
        else:
            resume()
