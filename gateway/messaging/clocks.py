"""Two clocks: one for timers, which never jumps, and the wall clock, for expiry and time-stamps.

Twisted's reactor has one clock for both, which is the wall clock: set back an hour, it stops all timers for an hour; set ahead, it has all of them
run at once. The composition root gives the reactor a clock that does not jump; who needs the time of day asks :func:`wall_clock` for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

#: Where a reactor has its wall clock, once its timers have another.
_WALL: Final = "wall_clock_seconds"


class Clock(Protocol):
    """A reactor, or what tests advance."""

    def seconds(self) -> float: ...


def make_monotonic(reactor: Any) -> None:
    """Have a reactor's timers, and its ``seconds``, follow the monotonic clock. Idempotent.

    It goes on from the present time of day, for two reasons: calls that are pending already keep their times, and whatever takes
    ``reactor.seconds()`` for the time of day, such as a service beside this one under ``twistd``, is right until the wall clock jumps.
    """
    if hasattr(reactor, _WALL):
        return
    monotonic = time.monotonic
    ahead = reactor.seconds() - monotonic()
    setattr(reactor, _WALL, time.time)
    reactor.seconds = lambda: ahead + monotonic()


def wall_clock(clock: Clock) -> Callable[[], float]:
    """The time of day, in seconds since the epoch, beside a reactor's timers; any other clock, such as one that tests advance, is both."""
    wall: Callable[[], float] = getattr(clock, _WALL, clock.seconds)
    return wall


def wall_ms(clock: Clock) -> int:
    """The time of day, in milliseconds since the epoch."""
    return int(wall_clock(clock)() * 1000)
