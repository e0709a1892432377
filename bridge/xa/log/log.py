"""The decision log for the reactor: a thread writes, changes share syncs.

Where the octets are is the log's :class:`~bridge.xa.log.file.Storage`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from bridge.xa.decision_log import Change, Entry, Presumed
from bridge.xa.errors import LogFailed, NotWritten
from bridge.xa.log.file import LogFile
from gateway.reactor.deferreds import outcome

T = TypeVar("T")

#: Seconds that a change which is only noted may wait for one that is synced.
LAZY_S: Final = 0.2


#: Takes a job; None ends the thread once it has done those before.
Put = Callable[[Callable[[], None] | None], None]


def log_thread(name: str) -> Put:
    """Start a thread that runs jobs in order; they must not raise.

    :param name: for debuggers.
    """
    jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run() -> None:
        while (job := jobs.get()) is not None:
            job()

    # A daemon: a process that fails without closing its log must be able to end.
    threading.Thread(target=run, name=name, daemon=True).start()
    return jobs.put


def ask(reactor: Any, put: Put, question: Callable[[], T]) -> Deferred[T]:
    """Have a log's thread call ``question``.

    :returns: fires on the reactor's thread; fails as that raises.
    """
    answer: Deferred[T] = Deferred()

    def job() -> None:
        result: T | Failure
        try:
            result = question()
        except BaseException:  # noqa: BLE001 - who asked is told
            result = Failure()  # type: ignore[no-untyped-call]
        reactor.callFromThread(answer.callback, result)

    put(job)
    return answer


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change on its way.

    :param written: called on the reactor's thread, with why it failed.
    """

    change: Change
    sync: bool
    written: Callable[[LogFailed | None], None] | None


class FileDecisionLog:
    """A decision log that a thread of its own writes.

    It is a :class:`~bridge.xa.decision_log.DecisionLog`.

    :param file: open; the thread's alone from now on.
    :param put: gives the thread a job.
    """

    def __init__(self, reactor: Any, file: LogFile, put: Put) -> None:
        self.entries: Final[Sequence[Entry]] = file.entries()
        #: Branches that an earlier run took for committed.
        self.presumed: Final[Sequence[Presumed]] = file.presumed()
        #: Why nothing can be written any more.
        self.failed: LogFailed | None = None
        self._reactor: Final = reactor
        self._file: Final = file
        self._thread: Final = put
        self._waiting: list[_Waiting] = []
        self._writing = False
        self._lazy: IDelayedCall | None = None
        self._closing = False
        self._closers: list[Deferred[None]] = []
        self._ended = False

    @property
    def path(self) -> str:
        return self._file.path

    def write(self, change: Change) -> Deferred[None]:
        done, written = outcome()
        self._put(_Waiting(change, True, written))
        return done

    def note(self, change: Change, written: Callable[[], None] | None = None) -> None:
        def told(failed: LogFailed | None) -> None:
            if failed is None and written is not None:
                written()

        self._put(_Waiting(change, False, told if written is not None else None))

    def close(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self._ended:
            return succeed(None)
        self._closers.append(done)
        if not self._closing:
            self._closing = True
            self._file.hurry()
            if not self._writing:
                self._next()
        return done

    def _put(self, waiting: _Waiting) -> None:
        if self._closing:
            if waiting.written is not None:
                # Not from inside the call.
                self._reactor.callLater(
                    0, waiting.written, NotWritten(self._file.path, "it is closed")
                )
            return
        self._waiting.append(waiting)
        if self._writing:
            return
        if waiting.sync:
            self._next()
        elif self._lazy is None:
            self._lazy = self._reactor.callLater(LAZY_S, self._late)

    def _late(self) -> None:
        self._lazy = None
        if not self._writing:
            self._next()

    def _next(self) -> None:
        """Have the thread write everything that waits.

        If nothing waits and closing was requested, the thread closes the log.
        """
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        batch, self._waiting = self._waiting, []
        if batch:
            self._writing = True
            self._thread(lambda: self._write(batch))
        elif self._closing:
            self._writing = True
            self._thread(self._close)
            self._thread(None)

    # On the log's thread.

    def _write(self, batch: Sequence[_Waiting]) -> None:
        failed: LogFailed | None = None
        try:
            self._file.write(
                [waiting.change for waiting in batch], any(waiting.sync for waiting in batch)
            )
        except LogFailed as raised:
            failed = raised
        except Exception as broken:  # noqa: BLE001  whatever it is, the batch must not count as written
            failed = LogFailed(self._file.path, f"{type(broken).__name__}: {broken}")
            self._file.failed = failed
        self._reactor.callFromThread(self._written, batch, failed, self._file.failed)

    def _close(self) -> None:
        with suppress(OSError):  # what matters was synced
            self._file.close()
        self._reactor.callFromThread(self._let_go)

    # On the reactor's thread.

    def _written(
        self, batch: Sequence[_Waiting], failed: LogFailed | None, for_good: LogFailed | None
    ) -> None:
        self._writing = False
        self.failed = for_good
        if failed is not None and for_good is None and not self._closing:
            # Notes are tried again with the next batch.
            lazy = [waiting for waiting in batch if not waiting.sync]
            batch = [waiting for waiting in batch if waiting.sync]
            self._waiting[:0] = lazy
        if any(waiting.sync for waiting in self._waiting) or self._closing:
            self._next()
        elif self._waiting and self._lazy is None:
            self._lazy = self._reactor.callLater(LAZY_S, self._late)
        for waiting in batch:
            if waiting.written is not None:
                waiting.written(failed)

    def _let_go(self) -> None:
        self._ended = True
        for done in self._closers:
            done.callback(None)
