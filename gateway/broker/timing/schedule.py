"""Work to do later, inside turns of a bounded length.

One heap and one timer of the reactor serve redeliveries, sweeps for expiry and unused destinations.
Nothing is cancelled: what is due looks whether it is still wanted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from heapq import heappop, heappush
from typing import Final, TypeAlias, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.reactor.turn import Turn

T = TypeVar("T")

#: Work in short steps; what it returns is its result.
Steps: TypeAlias = Generator[None, None, T]

#: Seconds of one turn; what is due and was not done then is done in the next turns, between others'
#: work.
SLICE: Final = 0.005
#: Milliseconds after which work that can wait looks whether it still must.
_BUSY_MS: Final = 5
#: Looks after which one step is done although it is busy, so that a load that never ends does not
#: keep it from its end.
_BUSY_LOOKS: Final = 20


class Schedule:
    """Runs work after a while, each inside a turn.

    Times are those of the clock of timers, ``turn.timer_ms``; the wall clock does not matter. While
    the turn is suspended, nothing is done: it is done late then.
    """

    def __init__(self, clock: IReactorTime, turn: Turn) -> None:
        self._clock = clock
        self._turn = turn
        #: Work that is done one step a turn.
        self._waiting: deque[Iterator[None]] = deque()
        self._stepping = False
        #: How often it was busy since the last step.
        self._looked = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0
        self._timer: IDelayedCall | None = None
        self._timer_at = 0
        self._running = False
        self._closed = False

    def at(self, when_ms: int, work: Callable[[], None]) -> None:
        """Do ``work`` when it is ``when_ms``; at the earliest in the next turn."""
        if self._closed:
            return
        self._asked += 1
        heappush(self._heap, (when_ms, self._asked, work))
        if not self._running and (self._timer is None or when_ms < self._timer_at):
            self._arm()

    def after(self, pause_ms: int, work: Callable[[], None]) -> None:
        """Do ``work`` in ``pause_ms`` milliseconds."""
        self.at(self._turn.refresh_timer() + pause_ms, work)

    def one_step_a_turn(self, steps: Iterator[None]) -> None:
        """Run ``steps`` to their end, one step a turn.

        The first step, to the first ``yield``, runs now.
        """
        if next(steps, steps) is not steps:
            self.after(0, lambda: self.one_step_a_turn(steps))

    def steps_while_time_is_left(self, steps: Iterator[None]) -> None:
        """Run ``steps`` to their end, as many a turn as there is time for.

        The first run now; other work comes between the turns.
        """
        until = self._clock.seconds() + SLICE
        while next(steps, steps) is not steps:
            if self._clock.seconds() >= until:
                self.after(0, lambda: self.steps_while_time_is_left(steps))
                return

    def finished(self, steps: Steps[T]) -> Deferred[T]:
        """Run ``steps`` as :meth:`steps_while_time_is_left`, and tell the end.

        :returns: fires with what they return, or fails as they do.
        """
        done: Deferred[T] = Deferred()

        def run() -> Iterator[None]:
            try:
                result = yield from steps
            except Exception:  # noqa: BLE001
                done.errback()
            else:
                done.callback(result)

        self.steps_while_time_is_left(run())
        return done

    def looked(self, steps: Steps[T]) -> Deferred[T]:
        """Run ``steps`` that change nothing, and tell the end.

        They take as much time at once as those of :meth:`finished`, and go on while the turn is
        suspended.

        :returns: fires with what they return, or fails as they do.
        """
        done: Deferred[T] = Deferred()

        def run() -> None:
            until = self._clock.seconds() + SLICE
            try:
                while self._clock.seconds() < until:
                    next(steps)
            except StopIteration as end:
                done.callback(end.value)
            except Exception:  # noqa: BLE001
                done.errback()
            else:
                self._clock.callLater(0, run)

        run()
        return done

    def one_step_of_all_a_turn(self, steps: Iterator[None], busy: Callable[[], bool]) -> None:
        """Run ``steps`` that can wait, one step in a turn of the reactor.

        All work asked so shares that one step. While ``busy``, it waits, for at most 100 ms.

        :param busy: the same for all.
        """
        self._waiting.append(steps)
        if not self._stepping:
            self._stepping = True
            self._next_step(busy)

    def _next_step(self, busy: Callable[[], bool]) -> None:
        if self._looked < _BUSY_LOOKS and busy():
            self._looked += 1
            self.after(_BUSY_MS, lambda: self._next_step(busy))
            return
        self._looked = 0
        steps = self._waiting.popleft()
        try:
            if next(steps, steps) is not steps:
                self._waiting.append(steps)
        finally:
            # One that failed does not stop the others.
            if self._waiting and not self._closed:
                self.after(0, lambda: self._next_step(busy))
            else:
                self._stepping = False

    @property
    def waiting(self) -> bool:
        """Whether :meth:`one_step_of_all_a_turn` has work left."""
        return bool(self._waiting) or self._stepping

    def close(self) -> None:
        """Forget everything, and what is asked from now on."""
        self._closed = True
        self._heap.clear()
        self._waiting.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and not self._closed:
            self._timer_at = self._heap[0][0]
            self._timer = self._clock.callLater(
                max(0.0, self._timer_at / 1000 - self._clock.seconds()), self._run
            )

    def _run(self) -> None:
        self._timer = None
        if self._turn.suspended:
            self._turn.when_resumed(self._arm)
            return
        self._turn.begin()
        self._running = True
        last = self._asked
        later: list[tuple[int, int, Callable[[], None]]] = []
        try:
            # A clock's float may fall just short of the millisecond that was asked for.
            now = self._clock.seconds()
            now_ms = int(now * 1000 + 0.5)
            while self._heap and self._heap[0][0] <= now_ms:
                entry = heappop(self._heap)
                if entry[1] > last:
                    # It was asked for by work of this turn.
                    later.append(entry)
                else:
                    entry[2]()
                    if self._clock.seconds() >= now + SLICE:
                        break
        finally:
            self._running = False
            for entry in later:
                heappush(self._heap, entry)
            self._arm()
            self._turn.end()
