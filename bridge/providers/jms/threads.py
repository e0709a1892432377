"""Threads for calls into Java that may hang, and single calls on them, each bounded in time.

A Java call cannot be ended from outside. One that does not return in time is abandoned: who asked is told so, the thread is left behind, and
nothing waits for it, neither the reactor nor the end of the process. Those left behind are counted, and a provider that has many of them is
not called again before some have returned.

Owns threads, that count, and single calls with their time-outs. Knows nothing of what is called. A session's thread, which makes one call after
another, is in :mod:`bridge.providers.jms.turns`.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bridge.providers.jms import jvm
from gateway.messaging.errors import ProviderUnavailable

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall

T = TypeVar("T")

_log: Final = Logger(namespace="bridge.jms")


#: Seconds that the end of the process waits for threads that are not hung.
_AT_EXIT: Final = 2.0
#: Threads that have not ended, and how each is told to.
_alive: Final[dict[threading.Thread, Callable[[], None]]] = {}


def start_thread(name: str, run: Callable[[], None], end: Callable[[], None]) -> threading.Thread:
    """A thread that may call Java. :param end: asks it to end; called when the process does."""

    def tracked() -> None:
        try:
            run()
        finally:
            jvm.detach()
            _alive.pop(threading.current_thread(), None)

    # A daemon: the interpreter waits for no call that hangs.
    thread = threading.Thread(target=tracked, name=name, daemon=True)
    _alive[thread] = end
    thread.start()
    return thread


def forget_thread(thread: threading.Thread | None) -> None:
    """It hangs: the end of the process does not wait for it."""
    if thread is not None:
        _alive.pop(thread, None)


@atexit.register
def _end_all() -> None:
    """A thread that came back from Java while the interpreter is being taken down would abort the process, so they end before."""
    until = time.monotonic() + _AT_EXIT
    alive = dict(_alive)
    for end in alive.values():
        end()
    for thread in alive:
        thread.join(max(0.0, until - time.monotonic()))


class Reactor(Protocol):
    """What is needed of the reactor."""

    def callFromThread(self, function: Callable[..., Any], *args: Any) -> None: ...

    def callLater(self, delay: float, function: Callable[..., Any], *args: Any) -> IDelayedCall: ...

    def seconds(self) -> float: ...


class Hung:
    """The calls of one provider that were abandoned and have not returned. On the reactor thread."""

    def __init__(self, provider: str, most: int = 8) -> None:
        """:param provider: its name, for the log. :param most: with so many it is not called again."""
        self.provider = provider
        self.most = most
        #: Threads left behind that are still in their call.
        self.count = 0
        #: All that ever were.
        self.total = 0

    def abandoned(self, what: str, seconds: float) -> ProviderUnavailable:
        """A call was abandoned. :returns: the error for who asked."""
        self.count += 1
        self.total += 1
        _log.warn(
            "{provider}: {what} did not return within {seconds:g} s; its thread is left behind, as {count} now",
            provider=self.provider,
            what=what,
            seconds=seconds,
            count=self.count,
        )
        return ProviderUnavailable(f"{what} did not return within {seconds:g} s")

    def returned(self, what: str) -> None:
        """An abandoned call has returned after all."""
        self.count -= 1
        _log.info("{provider}: {what}, which was abandoned, has returned", provider=self.provider, what=what)

    def check(self) -> None:
        """:raises ProviderUnavailable: too many calls hang."""
        if self.count >= self.most:
            raise ProviderUnavailable(f"{self.count} calls to it hang, and no more are made before some return")


class _Call(Generic[T]):
    __slots__ = ("abandoned", "function", "late", "result", "timer", "what")

    def __init__(self, what: str, function: Callable[[], T], late: Callable[[T], None] | None) -> None:
        self.what = what
        self.function = function
        self.late = late
        self.result: Deferred[T] = Deferred()
        self.timer: IDelayedCall | None = None
        self.abandoned = False


class CallThread:
    """A thread for single calls. It exists from the first call to :meth:`end`."""

    def __init__(self, reactor: Reactor, name: str, hung: Hung) -> None:
        self._reactor = reactor
        self._name = name
        self._hung = hung
        self._queue: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: list[_Call[Any]] = []
        #: A call hangs; nothing more can be asked of this thread.
        self.error: ProviderUnavailable | None = None
        #: Which call that is.
        self._hangs = ""

    def call(self, what: str, seconds: float, function: Callable[[], T], late: Callable[[T], None] | None = None) -> Deferred[T]:
        """Make a call after those asked before.

        :param what: for errors and the log, to be read before "did not return".
        :param seconds: how long may pass from now on.
        :param late: called on the thread with a result that comes after it was abandoned, to dispose of it.
        :returns: fails with what the call raised, or ProviderUnavailable.
        """
        call = _Call(what, function, late)
        if self.error is not None:
            call.result.errback(self.error)
            return call.result
        if self._thread is None:
            self._thread = start_thread(self._name, self._run, self.end)
        self._pending.append(call)
        call.timer = self._reactor.callLater(seconds, self._abandon, call, seconds)
        self._queue.put(call)
        return call.result

    def end(self) -> None:
        """The thread ends when what was asked is done."""
        self._queue.put(None)

    def _abandon(self, call: _Call[Any], seconds: float) -> None:
        first, waiting = self._pending[0], self._pending
        self._pending = []
        self._hangs = first.what
        self.error = self._hung.abandoned(first.what, seconds)
        forget_thread(self._thread)
        for one in waiting:
            one.abandoned = True
            if one.timer is not None and one.timer.active():
                one.timer.cancel()
        self.end()
        for one in waiting:
            one.result.errback(self.error)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            if call.abandoned:
                continue
            result: Any
            try:
                result = call.function()
            except BaseException:  # noqa: BLE001
                result = Failure()  # type: ignore[no-untyped-call]
            if call.abandoned and call.late is not None and not isinstance(result, Failure):
                try:
                    call.late(result)
                except Exception:  # noqa: BLE001
                    # Nobody waits for it; a defect in disposing of a late result must still be seen.
                    _log.failure("what came of {what} too late could not be disposed of", what=call.what)
            self._reactor.callFromThread(self._done, call, result)
        self._reactor.callFromThread(self._ended)

    def _ended(self) -> None:
        if self._hangs:
            self._hung.returned(self._hangs)

    def _done(self, call: _Call[Any], result: Any) -> None:
        if call.abandoned:
            return
        self._pending.remove(call)
        if call.timer is not None:
            call.timer.cancel()
        if isinstance(result, Failure):
            call.result.errback(result)
        else:
            call.result.callback(result)
