"""The completions of a session, and the answers that they wait for.

Owns which failure is told to which completion. What an answer is, such as a RECEIPT of STOMP or a
disposition of AMQP, is the provider's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from gateway.messaging.completions import Completion, Completions
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Done


class SessionAnswers:
    """A session's completions in order, and the answers they wait for.

    :param soon: calls in a later turn, so that no completion is told from inside a call.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        #: All completions in order; those that the session makes itself finish here.
        self.completions = Completions()
        #: Those that wait, each with the number up to which the answers must arrive.
        self._boundaries: deque[tuple[int, Completion]] = deque()
        self._last = 0
        #: All numbers up to :attr:`_low` have arrived, and these behind it.
        self._low = 0
        self._arrived: set[int] = set()
        #: Failures that no completion has told yet, by number.
        self._failures: list[tuple[int, MessagingError]] = []
        self._releasing = False
        #: Why nothing more arrives.
        self._ended: MessagingError | None = None

    def __len__(self) -> int:
        return len(self.completions)

    def number(self) -> int:
        """The number of an answer that is being asked for."""
        self._last += 1
        return self._last

    def arrived(self, number: int, error: MessagingError | None) -> None:
        """The answer of this number arrived, or the request failed.

        Tells the completions that waited for it.
        """
        if error is not None:
            self._failures.append((number, error))
        self._arrived.add(number)
        while self._low + 1 in self._arrived:
            self._low += 1
            self._arrived.remove(self._low)
        while self._boundaries and self._boundaries[0][0] <= self._low:
            self.completions.settle(self._boundaries.popleft()[1])
        self.completions.release()

    def complete(self, done: Done) -> None:
        """Call ``done`` when all answers asked for so far have arrived.

        Earlier completions are called first.
        """
        upto = self._last
        completion = Completion(lambda error: done(self.failure(upto) or error))
        self.completions.add(completion)
        if upto <= self._low:
            self.completions.settle(completion)
        else:
            self._boundaries.append((upto, completion))
        self._release_soon()

    def finish_soon(self, completion: Completion) -> None:
        """Finish it without error, and tell it in a later turn."""
        self.completions.settle(completion)
        self._release_soon()

    def fail_all(self, error: MessagingError) -> None:
        """Nothing more arrives: from the first completion that waits on, all fail."""
        self.completions.release()
        self._ended = error
        self.completions.fail_all(error)

    def failure(self, upto: int) -> MessagingError | None:
        """The first failure up to this number that no completion has told yet.

        It counts as told, as do all others up to the number.
        """
        failures = [error for number, error in self._failures if number <= upto]
        self._failures = [each for each in self._failures if each[0] > upto]
        return failures[0] if failures else self._ended

    def _release_soon(self) -> None:
        if not self._releasing:
            self._releasing = True
            self._soon(self._release)

    def _release(self) -> None:
        self._releasing = False
        self.completions.release()
