"""Wait for several Deferreds with a timeout, without cancelling them.

What is awaited goes on after the timeout: a link that stops late still stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, TimeoutError
from twisted.python.failure import Failure

T = TypeVar("T")


@dataclass
class Gathered:
    """What became of what was awaited, by name.

    :param results: of those that succeeded. :param failures: of those that failed. :param late: the
        names of those that had not ended in time.
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

    :param clock: the reactor. :param awaited: by name; nothing else may wait for them. :param late:
        called for each that fails after the waiting ended.
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

    At once where nothing is awaited. Others may wait for them, too.
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
