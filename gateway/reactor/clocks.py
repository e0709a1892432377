"""Two clocks: timers that never jump, and the wall clock.

The wall clock is for expiry and time-stamps.

Twisted's reactor has one clock for both, which is the wall clock: set back an hour, it stops all
timers for an hour; set ahead, it has all of them run at once. The composition root gives the
reactor a clock that does not jump; who needs the time of day asks :func:`wall_clock` for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IDelayedCall

#: A timer that is this many seconds late tells that this process did not run: it was stopped, or
#: starved, or in one long turn of the reactor.
AWAY_S: Final = 0.5
#: Where a reactor has its wall clock, once its timers have another.
_WALL: Final = "wall_clock_seconds"


class Clock(Protocol):
    """A reactor, or what tests advance."""

    def seconds(self) -> float: ...


class Timers(Clock, Protocol):
    """The same with timers."""

    def callLater(
        self, delay: float, function: Callable[..., Any], /, *args: Any
    ) -> IDelayedCall: ...


class TimeLimit:
    """How long another party may take, for an answer over a socket say.

    This process's own pauses are not blamed on them:

    1. Before the limit has passed, the reactor serves all sockets once more. An answer that lies
       there is read, and cancels the limit.
    2. A limit that ends :data:`AWAY_S` late, because this process did not run, goes on for as long
       as it is late.

    :param passed: called with ``arguments`` when the time has passed, unless :meth:`cancel` is
        called before.
    """

    __slots__ = ("_arguments", "_call", "_clock", "_due", "_passed", "_seconds")

    def __init__(
        self, clock: Timers, seconds: float, passed: Callable[..., object], *arguments: object
    ) -> None:
        self._clock: Final = clock
        self._seconds: Final = seconds
        self._passed: Final = passed
        self._arguments: Final = arguments
        self._due = clock.seconds() + seconds
        self._call = clock.callLater(seconds, self._look)

    def active(self) -> bool:
        """Whether it has neither passed nor been cancelled."""
        return self._call.active()

    def cancel(self) -> None:
        """It does not matter any more.

        :raises AlreadyCalled: it has passed.
        :raises AlreadyCancelled: this was said before.
        """
        self._call.cancel()

    def _look(self) -> None:
        now = self._clock.seconds()
        late = now - self._due
        if late >= AWAY_S:
            more = min(late, self._seconds)
            self._due = now + more
            self._call = self._clock.callLater(more, self._look)
        else:
            self._call = self._clock.callLater(0, self._passed, *self._arguments)


def make_monotonic(reactor: Any) -> None:
    """Have a reactor's timers and ``seconds`` follow the monotonic clock.

    Idempotent.

    It goes on from the present time of day, for two reasons: calls that are pending already keep
    their times, and whatever takes ``reactor.seconds()`` for the time of day, such as a service
    beside this one under ``twistd``, is right until the wall clock jumps.
    """
    if hasattr(reactor, _WALL):
        return
    monotonic = time.monotonic
    ahead = reactor.seconds() - monotonic()
    setattr(reactor, _WALL, time.time)
    reactor.seconds = lambda: ahead + monotonic()


def wall_clock(clock: Clock) -> Callable[[], float]:
    """Return the clock for the time of day, in seconds since the epoch.

    For any other clock, such as one that tests advance, it is that clock's ``seconds``.
    """
    wall: Callable[[], float] = getattr(clock, _WALL, clock.seconds)
    return wall


def wall_ms(clock: Clock) -> int:
    """The time of day, in milliseconds since the epoch."""
    return int(wall_clock(clock)() * 1000)
