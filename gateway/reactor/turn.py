"""A reactor turn as a batch.

What a turn of the reactor causes is collected and done once, at its end: deliveries, then one write
per connection, then one hand-off to the store, which need not be troubled with what the writes have
settled. Whoever starts a turn (a transport that received bytes) brackets it with
``with``, or with :meth:`Turn.begin` and :meth:`Turn.end`; code called outside of one need not care, the end is
then scheduled.

A turn can be suspended: then nothing is delivered and nothing given to the store until it resumes.
Writes go on, so that connections stay alive. The user of a turn may say until when it may deliver;
then it is asked to suspend.

Owns the order of the phases and the guard against re-entry. Knows nothing of what the work is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from twisted.logger import Logger

from gateway.reactor.clocks import wall_clock
from gateway.reactor.polls import polls_of

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall, IReactorTime

Work = Callable[[], None]

#: Rounds of deliver, write, store in one ending; work that keeps making work waits for the reactor
#: after that.
_ROUNDS: Final = 8
#: Seconds after which no other round is begun in one ending.
_LONGEST: Final = 0.005


class Turn:
    """The work collected in this turn. One per reactor.

    :param clock: the reactor; timers and spans of time are its clock's, and
        :func:`~gateway.reactor.clocks.wall_clock` says the time of day.
    """

    _log: ClassVar = Logger(namespace="gateway.reactor.turn")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._deliver: list[Work] = []
        self._write: list[Work] = []
        self._store: list[Work] = []
        self._depth = 0
        self._ending = False
        self._polls: Final = polls_of(clock)
        #: An ending is to come by itself.
        self._scheduled = False
        #: Deliveries and the store wait for :meth:`resume`.
        self.suspended = False
        self._resumed: list[Work] = []
        #: Until when this process may answer, by the clock of timers.
        self._answers_until = inf
        #: Called then, before anything else is done; it suspends.
        self.on_overdue: Work = self.suspend
        #: Looks for that while there are no turns.
        self._late_call: IDelayedCall | None = None
        #: When the first turn began whose ending is scheduled.
        self._first = 0.0
        self._wall = wall_clock(clock)
        #: Epoch milliseconds at the beginning of this turn, by the wall clock: for expiry and
        #: time-stamps.
        self.now_ms: int = int(self._wall() * 1000)
        #: When this turn began, by the clock of timers, in seconds.
        self.began: float = clock.seconds()
        #: The same in milliseconds, for spans of time.
        self.timer_ms: int = int(self.began * 1000)

    def begin(self) -> None:
        """A turn begins; what is asked from now on is done at its end. Nests."""
        self._depth += 1
        if self._depth == 1 and not self._ending:
            self._look()

    def end(self) -> None:
        """The turn that :meth:`begin` began ends: do what was collected."""
        self._depth -= 1
        if not self._depth and not self._ending:
            self._finish()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *raised: object) -> None:
        self.end()

    def leave(self) -> None:
        """As :meth:`end`, but serve other sockets that are ready now first.

        What they cause is done in the same ending.
        """
        self._depth -= 1
        if self._depth or self._ending or not (self._deliver or self._write or self._store):
            return
        if not self._scheduled:
            self._schedule()
            self._first = self.began
        elif self.began - self._first > _LONGEST:
            self._finish()

    def deliver(self, work: Work) -> None:
        """Deliver something at the end of the turn.

        Callers see to it that one piece of work is asked for once.
        """
        self._deliver.append(work)
        if not self._depth and not self._ending and not self._scheduled:
            self._schedule()

    def write(self, work: Work) -> None:
        """Write to a transport, after all deliveries."""
        self._write.append(work)
        if not self._depth and not self._ending and not self._scheduled:
            self._schedule()

    def store(self, work: Work) -> None:
        """Give something to the store, after all deliveries and writes."""
        self._store.append(work)
        if not self._depth and not self._ending and not self._scheduled:
            self._schedule()

    def later(self, seconds: float, work: Work) -> IDelayedCall:
        """Do ``work`` in a turn of its own after this many seconds.

        0 is the reactor's next pass.
        """

        def run() -> None:
            with self:
                self._do([work])

        return self._clock.callLater(seconds, run)

    def suspend(self) -> None:
        """Deliver nothing and give the store nothing until :meth:`resume`.

        What is asked meanwhile waits, in order. Timers are not stopped: its owner looks at
        :attr:`suspended`. What was to be written before is written now.
        """
        self.suspended = True
        if not self._depth and not self._ending:
            self._only_write()

    def resume(self) -> None:
        """Do what has waited, and what :meth:`when_resumed` was given before it."""
        self.suspended = False
        resumed, self._resumed = self._resumed, []
        with self:
            self._do(resumed)

    def when_resumed(self, work: Work) -> None:
        """Do ``work`` at the beginning of the turn in which this is no longer suspended."""
        self._resumed.append(work)

    def answer_for(self, seconds: float) -> None:
        """Deliver and store for at most this number of seconds from now.

        Then :attr:`on_overdue` is called, before anything else is done. Until the first call of
        this there is no such limit.
        """
        self._answers_until = self._clock.seconds() + seconds
        if self._late_call is None and not self.suspended:
            self._late_call = self._clock.callLater(max(0.0, seconds), self._look_for_overdue)

    def _look_for_overdue(self) -> None:
        self._late_call = None
        left = self._answers_until - self._clock.seconds()
        if left > 0:
            self.answer_for(left)
        else:
            self._suspend_if_overdue(self._clock.seconds())

    def _suspend_if_overdue(self, now: float) -> None:
        if now >= self._answers_until and not self.suspended:
            self._do([self.on_overdue])

    def refresh(self) -> int:
        """Return the time of day now, in epoch milliseconds.

        Unlike :attr:`now_ms`, it is right outside of a turn, too.
        """
        if not self._depth and not self._ending:
            self._look()
        return self.now_ms

    def refresh_timer(self) -> int:
        """The same by the clock of timers."""
        if not self._depth and not self._ending:
            self._look()
        return self.timer_ms

    def _look(self) -> None:
        self.now_ms = int(self._wall() * 1000)
        self.began = self._clock.seconds()
        self.timer_ms = int(self.began * 1000)
        # A process that was stopped and goes on has perhaps been replaced.
        self._suspend_if_overdue(self.began)

    def _schedule(self) -> None:
        self._scheduled = True
        polls = self._polls
        if polls is not None and polls.under_way:
            polls.afterwards(self._late)
        else:
            self._clock.callLater(0, self._late)

    def _late(self) -> None:
        self._scheduled = False
        if not self._depth and not self._ending:
            self._look()
            self._finish()

    def _finish(self) -> None:
        now = self._clock.seconds()
        self._suspend_if_overdue(now)
        if self.suspended:
            self._only_write()
            return
        self._ending = True
        try:
            rounds = 0
            until = now + _LONGEST
            while rounds < _ROUNDS and (self._deliver or self._store or self._write):
                if self._deliver:
                    self._deliver, work = [], self._deliver
                elif self._write:
                    self._write, work = [], self._write
                else:
                    self._store, work = [], self._store
                self._do(work)
                rounds += 1
                if self._deliver and self._clock.seconds() >= until:
                    break
            # Deliveries that make deliveries without end must not keep the store and the transports
            # waiting.
            self._write, work = [], self._write
            self._do(work)
            self._store, work = [], self._store
            self._do(work)
        finally:
            self._ending = False
            if (self._deliver or self._store or self._write) and not self._scheduled:
                self._schedule()

    def _only_write(self) -> None:
        self._ending = True
        try:
            self._write, work = [], self._write
            self._do(work)
        finally:
            self._ending = False
            if self._write and not self._scheduled:
                self._schedule()

    def _do(self, work: list[Work]) -> None:
        for do in work:
            try:
                do()
            except Exception:  # noqa: BLE001
                # A defect in one piece of work must not take the others' turn away; it is logged,
                # never silent.
                self._log.failure("work at the end of a turn failed: {work}", work=do)
