"""One timing wheel for all connections.

For heart-beats, time-outs and what a session wants to be woken for.

A connection is in one slot, that of the first thing it has to look at. Looking is cheap and being
early does no harm, so what moves a deadline further away (octets that arrive) touches the wheel not
at all. Owns when to look; what is due is the connection's to know.

A client is not blamed for time in which this process did not run. The wheel sees to that in two
ways:

1. Between the moment that a look is judged by and the look, the reactor serves all sockets once.
   What came before that moment is then read.
2. A turn that comes late tells all things on the wheel by how much, and they move their deadlines.
"""

from __future__ import annotations

from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from gateway.messaging.clocks import AWAY_S

#: How exact it is, in milliseconds: a connection is looked at so much late at most.
TICK_MS: Final = 50
#: A turn that comes this many milliseconds late tells that the process did not run.
AWAY_MS: Final = int(AWAY_S * 1000)
#: Slots; what is due later than a turn of the wheel is looked at once a turn.
_SLOTS: Final = 1024


class Timed(Protocol):
    """What is on the wheel."""

    #: The wheel's own; 0 to begin with, when the thing is not on the wheel.
    due_tick: int

    def expire(self, now_ms: int) -> int:
        """Do what is due at ``now_ms``.

        :returns: when to look next, in milliseconds of the same clock, or 0 for not at all.
        """

    def was_away(self, late_ms: int, now_ms: int) -> None:
        """The process did not run for ``late_ms``, until ``now_ms``.

        That time counts for no deadline of a client.
        """


class Wheel:
    """The wheel; it stands still while nothing is on it.

    :param clock: the reactor, whose clock does not jump.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock: Final = clock
        self._slots: Final[list[dict[Timed, None]]] = [{} for _ in range(_SLOTS)]
        self._tick = 0
        self._count = 0
        self._call: IDelayedCall | None = None
        #: When the next turn should come.
        self._due_ms = 0

    def __len__(self) -> int:
        """How many things are on it."""
        return self._count

    def arm(self, thing: Timed, at_ms: int) -> None:
        """Look at ``thing`` at ``at_ms``, or earlier if that was arranged before."""
        if self._call is None:
            # It stood still: begin at the present.
            now_ms = self._now_ms()
            self._tick = now_ms // TICK_MS
            self._next_turn(now_ms)
        self._place(thing, at_ms, self._tick)

    def remove(self, thing: Timed) -> None:
        """Look at ``thing`` no more."""
        if thing.due_tick:
            del self._slots[thing.due_tick % _SLOTS][thing]
            thing.due_tick = 0
            self._count -= 1

    def stop(self) -> None:
        """Stand still; whatever is on it is not looked at again."""
        for slot in self._slots:
            for thing in [*slot]:
                self.remove(thing)
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _next_turn(self, after_ms: int) -> None:
        self._due_ms = after_ms + TICK_MS
        self._call = self._clock.callLater(max(self._due_ms - self._now_ms(), 0) / 1000, self._turn)

    def _turn(self) -> None:
        """A tick has passed.

        What is due is looked at after the reactor has served the sockets once more, and judged by
        the time now.
        """
        now_ms = self._now_ms()
        late_ms = now_ms - self._due_ms
        if late_ms >= AWAY_MS:
            for slot in self._slots:
                for thing in slot:
                    thing.was_away(late_ms, now_ms)
        ticks = range(self._tick + 1, min(now_ms // TICK_MS, self._tick + _SLOTS) + 1)
        if any(self._slots[tick % _SLOTS] for tick in ticks):
            self._call = self._clock.callLater(0, self._look, now_ms)
        else:
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        target = now_ms // TICK_MS
        # A process that was stopped for long costs one round, not all that it has missed.
        first = self._tick + 1 if 0 <= target - self._tick < _SLOTS else target - _SLOTS + 1
        for tick in range(first, target + 1):
            self._tick = tick
            slot = self._slots[tick % _SLOTS]
            for thing in [*slot]:
                # One that was looked at just now may have taken another with it.
                if thing not in slot:
                    continue
                self.remove(thing)
                try:
                    following = thing.expire(now_ms)
                except Exception:  # noqa: BLE001
                    # One connection's defect must not stop the others' time; it is logged, never
                    # silent.
                    self._log.failure("looking at {thing} failed", thing=thing)
                    continue
                if following:
                    self._place(thing, following, target)
        self._tick = target
        self._call = None
        if self._count:
            self._next_turn(now_ms)

    def _place(self, thing: Timed, at_ms: int, present: int) -> None:
        due = max(-(-at_ms // TICK_MS), present + 1)
        if thing.due_tick:
            if thing.due_tick <= due:
                return
            self.remove(thing)
        due = min(due, present + _SLOTS - 1)
        thing.due_tick = due
        self._slots[due % _SLOTS][thing] = None
        self._count += 1
