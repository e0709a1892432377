"""Answers in the order in which they were asked for.

Such as completions and RECEIPTs.

What each answer waits for may come in any order; the answers may not. Owns the line they wait in.
"""

from __future__ import annotations

from collections import deque

from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Done


class Pending:
    """An answer in the line; subclasses say how it is given.

    :ivar ready: what it waits for has come. :ivar error: why it failed, None if it did not.
    """

    __slots__ = ("error", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.error: MessagingError | None = None

    def complete(self) -> None:
        """Give the answer.

        Called once, when it is ready and all before it were given.
        """
        raise NotImplementedError


class Completion(Pending):
    """An answer that is given by calling ``done``."""

    __slots__ = ("done",)

    def __init__(self, done: Done) -> None:
        super().__init__()
        self.done = done

    def complete(self) -> None:
        self.done(self.error)


class Completions:
    """The line of one session.

    What it calls may add to it and finish what is in it.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: deque[Pending] = deque()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._line)

    def add(self, pending: Pending) -> None:
        """Put an answer at the end of the line."""
        self._line.append(pending)

    def ask(self, done: Done) -> Completion:
        """Put ``done`` at the end of the line."""
        completion = Completion(done)
        self._line.append(completion)
        return completion

    def finish(self, pending: Pending, error: MessagingError | None = None) -> None:
        """What it waits for has come: give it, once those before it were given."""
        # Not by the two methods below: for each RECEIPT these calls would be noticed.
        pending.ready = True
        pending.error = error
        line = self._line
        while line and line[0].ready:
            line.popleft().complete()

    def settle(self, pending: Pending, error: MessagingError | None = None) -> None:
        """As :meth:`finish`, but calls nothing before :meth:`release`."""
        pending.ready = True
        pending.error = error

    def release(self) -> None:
        """Give the answers that are ready, up to the first that is not."""
        line = self._line
        while line and line[0].ready:
            line.popleft().complete()

    def fail_all(self, error: MessagingError) -> None:
        """Give all, those that are not ready with this error.

        Nothing more will come.
        """
        line = self._line
        while line:
            pending = line.popleft()
            if not pending.ready:
                pending.ready = True
                pending.error = error
            pending.complete()

    def abandon(self) -> None:
        """Give those that are ready, drop the rest."""
        ready = [pending for pending in self._line if pending.ready]
        self._line.clear()
        for pending in ready:
            pending.complete()

    def clear(self) -> None:
        """Drop all."""
        self._line.clear()
