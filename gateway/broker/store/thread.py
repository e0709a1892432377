"""A thread that does jobs in the order they were put, and looks after the place when there are none.

Owns the queue and the thread. Knows nothing of what the jobs are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue


class JobThread:
    """Runs jobs one after the other.

    :param name: the thread's, as tools show it.
    :param idle: called on the thread when no job came for ``idle_seconds``; returns the seconds until it wants to be called again if
        there is still no job, or None: not before there was another.
    :param broken: called on the thread with what a job or ``idle`` raised, which they must not; the thread then goes on.
    """

    def __init__(
        self, name: str, idle: Callable[[], float | None], idle_seconds: float, broken: Callable[[Exception], None]
    ) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
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

    def finish(self) -> None:
        """End once the jobs put so far are done. From any thread; does not wait."""
        self._jobs.put(None)

    def waiting(self) -> bool:
        """Whether there are jobs to do."""
        return not self._jobs.empty()

    def _run(self) -> None:
        pause: float | None = self._idle_seconds
        while True:
            try:
                job = self._jobs.get(timeout=pause)
            except Empty:
                pause = self._look_after()
                continue
            if job is None:
                return
            try:
                job()
            except Exception as error:  # noqa: BLE001
                self._broken(error)
            pause = self._idle_seconds

    def _look_after(self) -> float | None:
        try:
            return self._idle()
        except Exception as error:  # noqa: BLE001
            self._broken(error)
            return None
