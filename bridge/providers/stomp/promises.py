"""What a session has promised to tell, in the order in which it was asked to.

Owns the line of completions and the frames whose RECEIPTs they wait for. Knows neither frames nor
transactions: who asks for a RECEIPT takes a number, and says when it has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Done


class Promise:
    """One place in the line.

    :ivar upto: fulfilled when all numbers up to this have come; None for one that
        :meth:`Promises.keep` fulfils.
    """

    __slots__ = ("done", "error", "kept", "upto")

    def __init__(self, done: Done, upto: int | None) -> None:
        self.done: Final = done
        self.upto: Final = upto
        self.kept = False
        self.error: MessagingError | None = None


class Promises:
    """The line of one session.

    :param soon: calls in a later turn, so that nobody is told from inside of a call.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        self._line: deque[Promise] = deque()
        self._last = 0
        #: Numbers not yet passed by :attr:`_low`, in order, and those of them that have come.
        self._come: set[int] = set()
        self._low = 0
        #: What failed and nobody was told of yet.
        self._failures: list[tuple[int, MessagingError]] = []
        self._told = False

    def __len__(self) -> int:
        return len(self._line)

    def take(self) -> int:
        """A number for a RECEIPT that was asked for."""
        self._last += 1
        return self._last

    def come(self, number: int, error: MessagingError | None) -> None:
        """The RECEIPT of that number has come, or its frame failed. Tells whoever waited for it."""
        if error is not None:
            self._failures.append((number, error))
        self._come.add(number)
        while self._low + 1 in self._come:
            self._low += 1
            self._come.remove(self._low)
        self._tell()

    def complete(self, done: Done) -> None:
        """Tell ``done`` when all numbers taken so far have come, and all earlier promises are
        kept.
        """
        self._line.append(Promise(done, self._last))
        self._tell_soon()

    def make(self, done: Done) -> Promise:
        """A promise that :meth:`keep` fulfils."""
        promise = Promise(done, None)
        self._line.append(promise)
        return promise

    def keep(self, promise: Promise, error: MessagingError | None) -> None:
        """Fulfil it; tells at once, so this is not for calls that users of the seam make."""
        promise.kept = True
        promise.error = error
        self._tell()

    def keep_soon(self, promise: Promise, error: MessagingError | None) -> None:
        """Fulfil it, and tell in a later turn."""
        promise.kept = True
        promise.error = error
        self._tell_soon()

    def break_all(self, error: MessagingError) -> None:
        """Nothing more will come: whoever waits is told so."""
        while self._line:
            promise = self._line[0]
            if not promise.kept and (promise.upto is None or promise.upto > self._low):
                self._failures.append((self._low, error))
                promise.kept = True
                promise.error = error
            self._tell_first()

    def _tell_soon(self) -> None:
        if not self._told:
            self._told = True
            self._soon(self._tell_later)

    def _tell_later(self) -> None:
        self._told = False
        self._tell()

    def _tell(self) -> None:
        while self._line:
            first = self._line[0]
            if not (first.kept if first.upto is None else first.kept or first.upto <= self._low):
                return
            self._tell_first()

    def _tell_first(self) -> None:
        promise = self._line.popleft()
        error = promise.error
        if promise.upto is not None:
            known = [failure for number, failure in self._failures if number <= promise.upto]
            self._failures = [failure for failure in self._failures if failure[0] > promise.upto]
            if known:
                error = known[0]
        promise.done(error)
