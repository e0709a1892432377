"""A worker thread: runs jobs in order, does maintenance when idle.

Urgent jobs come first, in order; other jobs run when no urgent one waits.

Owns the queues and the thread. Knows nothing of what the jobs are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue


class JobThread:
    """Runs jobs one after the other.

    Jobs of :attr:`put` run in the order they were put. Jobs of :meth:`put_behind` run in their own
    order, each at a moment when no job of :attr:`put` waits. So a job that was put waits for one of
    the others at most, however many there are.

    :param name: the thread's, as tools show it.
    :param idle: called on the thread when no job came for ``idle_seconds``; returns the seconds
        until it wants to be called again if there is still no job, or None: not before there was
        another.
    :param broken: called on the thread with what a job or ``idle`` raised, which they must not; the
        thread then goes on.
    """

    def __init__(
        self,
        name: str,
        idle: Callable[[], float | None],
        idle_seconds: float,
        broken: Callable[[Exception], None],
    ) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._last: Callable[[], None] = _nothing
        self._behind: deque[Callable[[], None]] = deque()
        self._idle = idle
        self._idle_seconds = idle_seconds
        self._broken = broken
        # A daemon: a process that fails without closing its store must be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        #: Put the next job. From any thread; never blocks.
        self.put = self._jobs.put

    def start(self) -> None:
        """Begin; jobs may have been put before."""
        self._thread.start()

    def put_behind(self, job: Callable[[], None]) -> None:
        """Put a job that yields to those of :attr:`put`.

        May be called from any thread; never blocks.
        """
        self._behind.append(job)
        # The thread may be waiting.
        self._jobs.put(_nothing)

    def finish(self, last: Callable[[], None] | None = None) -> None:
        """End once all jobs put so far, and then ``last``, are done.

        May be called from any thread; does not wait.
        """
        self._last = last or _nothing
        self._jobs.put(None)

    def waiting(self) -> bool:
        """Whether there are jobs to do."""
        return bool(self._behind) or not self._jobs.empty()

    def _run(self) -> None:
        pause: float | None = self._idle_seconds
        while True:
            try:
                job = self._jobs.get(block=not self._behind, timeout=pause)
            except Empty:
                if not self._behind:
                    pause = self._look_after()
                    continue
                if not self._jobs.empty():
                    # They came since it was found empty, some before what waits behind them.
                    continue
                job = self._behind.popleft()
            if job is None:
                while self._behind:
                    self._do(self._behind.popleft())
                self._do(self._last)
                return
            self._do(job)
            pause = self._idle_seconds

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001
            self._broken(error)

    def _look_after(self) -> float | None:
        try:
            return self._idle()
        except Exception as error:  # noqa: BLE001
            self._broken(error)
            return None


def _nothing() -> None:
    """Wakes the thread."""
