"""How long selectors may take in each pass of the reactor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.broker.timing.schedule import SLICE
from gateway.reactor.turn import Turn


class SelectorTime:
    """The time that a broker's selectors may take in a pass of the reactor.

    One per broker.

    Selectors are written by clients, and so are the messages that they are asked about; together
    they can ask for any amount of work. Code that evaluates selectors asks before each message, or
    before each few where the selector is cheap, whether the slice of this pass is used up. If it
    is, the rest waits for the next pass, in which all sockets are served before it.

    :param clock: the reactor.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, clock: IReactorTime, turn: Turn) -> None:
        self._clock = clock
        self._turn = turn
        #: When the slice of this pass ends; 0 before anybody has asked in this pass.
        self._until = 0.0
        self._waiting: deque[Callable[[], None]] = deque()
        self._closed = False

    def spent(self) -> bool:
        """Whether this pass of the reactor has no time left.

        The slice begins when this is first asked.
        """
        now = self._clock.seconds()
        if not self._until:
            self._until = now + SLICE
            self._clock.callLater(0, self._next)
        return now >= self._until

    def wait(self, work: Callable[[], None]) -> None:
        """Call ``work`` in a pass that has time, within a turn.

        First come, first served.
        """
        if not self._closed:
            self._waiting.append(work)
            self.spent()

    def close(self) -> None:
        """Forget everything, and what is asked from now on."""
        self._closed = True
        self._waiting.clear()

    def _next(self) -> None:
        """The sockets that were ready have been served."""
        self._until = 0.0
        if not self._waiting:
            return
        if self._turn.suspended:
            self._turn.when_resumed(self._next)
            return
        with self._turn:
            # Who finds the time used up asks again, and so comes after the others.
            while self._waiting and not self.spent():
                work = self._waiting.popleft()
                try:
                    work()
                except Exception:  # noqa: BLE001
                    # A defect of one must not take the others' turn away.
                    self._log.failure("work that had waited for time failed: {work}", work=work)
