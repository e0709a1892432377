"""Wait for Deferreds without cancelling them, or give others a turn.

What is awaited goes on after the timeout: a link that stops late still stops.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, TimeoutError
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from gateway.reactor.polls import polls_of

T = TypeVar("T")
P = ParamSpec("P")


def deferred(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Deferred[T]]:
    """Have a coroutine function begin when called, and return a Deferred."""

    @wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(function(*args, **kwargs))

    return begin


async def alone_on_thread(
    reactor: Any, turn: DeferredLock, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call on a thread, and nothing else of ``turn`` meanwhile.

    Who is cancelled waits no longer; the call has its turn until it returns.
    """
    await turn.acquire()
    calling = deferToThreadPool(reactor, reactor.getThreadPool(), call, *args, **kwargs)

    def over(result: Any) -> Any:
        turn.release()
        return result

    return await shield(calling.addBoth(over))


def outcome() -> tuple[Deferred[None], Callable[[Exception | None], None]]:
    """Return a Deferred, and what fires it: an error, or None for success."""
    done: Deferred[None] = Deferred()

    def ended(error: Exception | None) -> None:
        if error is None:
            done.callback(None)
        else:
            done.errback(error)

    return done, ended


@dataclass
class Gathered:
    """What became of what was awaited, by name.

    :param results: of those that succeeded.
    :param failures: of those that failed.
    :param late: the names of those that had not ended in time.
    """

    results: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    late: tuple[str, ...] = ()


def gather(
    clock: Any,
    awaited: Mapping[str, Deferred[Any]],
    seconds: float,
    late: Callable[[str, Failure], None],
) -> Deferred[Gathered]:
    """Wait until all have ended, at most that many seconds.

    :param clock: the reactor.
    :param awaited: by name; nothing else may wait for them.
    :param late: called for each that fails after the waiting ended.
    :returns: never fails by itself. Cancelling it ends the waiting only.
    """
    ended = Gathered()
    open_names = dict.fromkeys(awaited)
    waiting: Deferred[Gathered] = Deferred(lambda _: over())
    timer = clock.callLater(seconds, lambda: finish())

    def over() -> None:
        if timer.active():
            timer.cancel()
        ended.late = tuple(open_names)

    def finish() -> None:
        over()
        waiting.callback(ended)

    def succeeded(result: Any, name: str) -> None:
        del open_names[name]
        ended.results[name] = result
        if not open_names and not waiting.called:
            finish()

    def failed(failure: Failure, name: str) -> None:
        del open_names[name]
        if waiting.called:
            late(name, failure)
            return
        ended.failures[name] = failure
        if not open_names:
            finish()

    if not awaited:
        finish()
    for name, one in awaited.items():
        one.addCallbacks(succeeded, failed, callbackArgs=(name,), errbackArgs=(name,))
    return waiting


def when_all_ended(awaited: Mapping[str, Deferred[Any]], over: Callable[[], None]) -> None:
    """Call ``over`` once, as soon as all have succeeded or failed.

    With nothing to await it is called at once. Others may wait for the same Deferreds.
    """
    left = set(awaited)

    def ended(result: Any, name: str) -> Any:
        left.discard(name)
        if not left:
            over()
        return result

    for name, one in awaited.items():
        one.addBoth(ended, name)
    if not awaited:
        over()


def shield(doing: Deferred[T]) -> Deferred[T]:
    """Pass on the result of ``doing``, shielded from cancellation.

    Cancelling what this returns leaves ``doing`` alone.
    """
    given_up = False

    def give_up(_: Deferred[T]) -> None:
        nonlocal given_up
        given_up = True

    waiter: Deferred[T] = Deferred(give_up)

    def succeeded(result: T) -> None:
        if not given_up:
            waiter.callback(result)

    def failed(failure: Failure) -> None:
        # Whoever gave up knows that it may have failed; what has failed reports that itself.
        if not given_up:
            waiter.errback(failure)

    doing.addCallbacks(succeeded, failed)
    return waiter


def timeout(clock: Any, seconds: float, event: Deferred[Any]) -> Deferred[bool]:
    """Wait for an event that never fails, with a timeout.

    Does not cancel the event.

    :param clock: the reactor.
    :returns: True when it has happened, False when it has not in time.
    """

    def late(failure: Failure) -> bool:
        if not isinstance(failure.value, TimeoutError):
            failure.raiseException()
        return False

    waiting = shield(event).addTimeout(seconds, clock)
    return waiting.addCallbacks(lambda _: True, late)


#: How much time the others get for each unit of a link's, where rounds of the reactor tell what they
#: want; the store works for it, too, while the reactor does something else.
OTHERS: Final = 20.0
#: Seconds of pause for each second of a link's work, where clients want all of the reactor's time.
#: An interruption delays all who wait just then. Of round trips of a third of a millisecond for ten
#: clients, 20 interruptions a second delay less than one in a hundred.
PAUSE: Final = 160.0
#: Seconds of work after which it is asked at all: what one turn of the reactor may last.
TURN_S: Final = 0.003
#: The same while others want the reactor.
SHORT_S: Final = 0.0004
#: Messages taken at once while others want the reactor. With fewer a link interrupts more often, and
#: each commit costs as much as some ten messages.
FEW: Final = 50
#: The share of the time from which on serving clients counts as wanting it; the consumer of what a
#: link sends takes less.
_WANTED: Final = 0.25
#: Seconds over which that share is taken.
_OVER_S: Final = 0.05
#: Seconds of a round of the reactor in which almost nothing was wanted.
_IDLE_S: Final = 0.0003
#: Seconds that it waits for the others at most, whatever they do.
_LONGEST_S: Final = 0.2


class FairShare:
    """The share of the reactor's time that one link may take from others.

    A link at full speed is one more user of the reactor, with a backlog of a million messages where
    a client has one: without this it would halve what clients get. So while clients want much of
    the reactor the link works for a moment only and then pauses, the longer the more they want: for
    :data:`PAUSE` times its work where they want all there is. Where they want next to nothing it
    goes as fast as it can.

    How much they want is what the reactor's :class:`~gateway.reactor.polls.Polls` have served.
    Another kind of reactor tells by the length of its rounds: there the link pauses for
    :data:`OTHERS` times its work, or until a round in which nothing is wanted.

    :param clock: the reactor.
    """

    def __init__(self, clock: Any) -> None:
        self._clock: Final = clock
        self._polls: Final = polls_of(clock)
        self._worked = 0.0
        #: What the others wanted lately, 0 to 1; measured since when, and what was served by then.
        self._others = 0.0
        self._since = 0.0
        self._served = 0.0

    def now(self) -> float:
        now: float = self._clock.seconds()
        return now

    def worked_since(self, began: float) -> None:
        """The link has worked from then until now, and waited for nothing."""
        self._worked += self._clock.seconds() - began

    @property
    def wanted(self) -> bool:
        """Whether others want much of the reactor's time."""
        polls = self._polls
        if polls is not None:
            now: float = self._clock.seconds()
            span = now - self._since
            if span >= _OVER_S:
                self._others = (polls.served_s - self._served) / span
                self._since, self._served = now, polls.served_s
        return self._others >= _WANTED

    @property
    def due(self) -> bool:
        """Whether this has worked for long enough to speak of."""
        return self._worked >= (SHORT_S if self.wanted else TURN_S)

    def at_once(self, most: int) -> int:
        """How many of ``most`` messages to take at once."""
        return min(most, FEW) if self.wanted else most

    async def give(self) -> None:
        """Let the others have theirs, if it is :attr:`due`."""
        if not self.due:
            return
        worked, self._worked = self._worked, 0.0
        if self._polls is not None:
            much = (self._others - _WANTED) / (1 - _WANTED) if self.wanted else 0.0
            await deferLater(self._clock, min(worked * PAUSE * much, _LONGEST_S))
            return
        left = worked * OTHERS
        now: float = self._clock.seconds()
        latest = now + _LONGEST_S
        while left > 0 and now < latest:
            await deferLater(self._clock, 0)
            before, now = now, self._clock.seconds()
            if now - before < _IDLE_S:
                break
            left -= now - before
