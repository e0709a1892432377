"""Completions of one session: who is told what, when, in which order.

Owns the promises that were made and not kept. Knows nothing of messages and destinations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.broker.durability.commit import GroupCommit
from gateway.broker.store.interface import StoreError
from gateway.messaging.errors import MessagingError, StorageFailed
from gateway.messaging.provider import Done


class Promise:
    """A completion that was asked for."""

    __slots__ = ("done", "error", "held", "ready")

    def __init__(self, done: Done) -> None:
        self.done = done
        #: Withheld while a destination holds the sender back.
        self.held = False
        #: What it waited for has come.
        self.ready = False
        self.error: MessagingError | None = None


class Promises:
    """The promises of one session.

    They are kept in the order in which they were made, each when what it speaks for is durable or
    has failed.

    :param soon: does something at the end of this turn.
    """

    def __init__(self, commits: GroupCommit, soon: Callable[[Callable[[], None]], None]) -> None:
        self._commits: Final = commits
        self._soon: Final = soon
        #: The last batch that gathered when something was done that the session was asked for; and
        #: the same of what is inserted.
        self.mark = 0
        self.inserted = 0
        self._line: deque[Promise] = deque()

    def touch(self, *, inserts: bool = False) -> None:
        """Note that the batch that gathers may hold changes of the session.

        :param inserts: the changes may need room on the disk.

        :param inserts: the same of what needs room on the disk.
        """
        self.mark = self._commits.number
        if inserts:
            self.inserted = self.mark

    def touch_since(self, changes: int) -> None:
        """The same, if anything was gathered since there were that many changes."""
        if self._commits.changes != changes:
            self.mark = self._commits.number

    def wait_for_room(self) -> bool:
        """Whether something that it was asked for waits for room on the disk."""
        return self._commits.waits_for_room(self.inserted)

    def make(self, done: Done) -> Promise:
        """Take the next place in the line; :meth:`ask` or :meth:`keep` follows."""
        promise = Promise(done)
        self._line.append(promise)
        return promise

    def ask(self, promise: Promise) -> None:
        """Keep it when all that the session asked for so far is durable.

        Never from inside this call.
        """
        if self.mark > self._commits.durable or self.wait_for_room():
            self._commits.wait_for(self.mark, partial(self._durable, promise), self.inserted)
        else:
            self.keep_soon(promise, None)

    def keep_soon(self, promise: Promise, error: MessagingError | None) -> None:
        """:meth:`keep` it at the end of this turn."""
        self._soon(partial(self.keep, promise, error))

    def keep(self, promise: Promise, error: MessagingError | None) -> None:
        """What it waited for has come: tell, as far as those before it were told."""
        promise.ready = True
        promise.error = error
        line = self._line
        while line and line[0].ready:
            first = line.popleft()
            first.done(first.error)

    def release_held(self) -> None:
        """The sender is held back no longer."""
        for promise in self._line:
            if promise.held:
                promise.held = False
                self.ask(promise)

    def break_held(self, error: MessagingError) -> None:
        """Break withheld promises, as the session is closed.

        No caller can say any more when they could be kept.
        """
        for promise in self._line:
            if promise.held:
                promise.held = False
                self.keep_soon(promise, error)

    def _durable(self, promise: Promise, error: StoreError | None) -> None:
        self.keep(promise, storage_failed(error))


def storage_failed(error: StoreError | None) -> StorageFailed | None:
    """What a failed batch is to the users of the seam."""
    return None if error is None else StorageFailed(str(error))
