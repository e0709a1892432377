"""Completions of one session: who is to be told what, when, and in which order.

Owns the promises that were made and not kept, and which of the session's sends each speaks for.
Knows nothing of messages and destinations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.broker.durability.commit import GroupCommit
from gateway.broker.store.interface import StoreError, StoreFull
from gateway.messaging.errors import MessagingError, StorageFailed
from gateway.messaging.provider import Done

#: The words with which sends are refused as long as the disk is full: the first that does not fit
#: gets the same.
_NO_ROOM: Final = "the disk is full"


class Promise:
    """A completion that was asked for.

    :param after: the promise before it spoke for so many of the session's sends,
    :param sends: and it for those from there to this one.
    """

    __slots__ = ("after", "done", "error", "held", "ready", "sends")

    def __init__(self, done: Done, after: int, sends: int) -> None:
        self.done = done
        self.after = after
        self.sends = sends
        #: Withheld while a destination holds the sender back.
        self.held = False
        #: What it waited for has come.
        self.ready = False
        self.error: MessagingError | None = None


class Promises:
    """The promises of one session. They are kept in the order in which they were made, each when
    what it speaks for is durable or has failed.

    :param soon: does something at the end of this turn.
    """

    def __init__(self, commits: GroupCommit, soon: Callable[[Callable[[], None]], None]) -> None:
        self._commits: Final = commits
        self._soon: Final = soon
        #: The last batch that holds something the session was asked for.
        self.mark = 0
        self._line: deque[Promise] = deque()
        #: Sends until now, those that promises speak for, and those the store has undone and the
        #: user was not told of yet.
        self._sent = 0
        self._promised = 0
        self._refused: list[int] = []

    def touch(self) -> None:
        """Something the session was asked for may be in the batch that gathers now."""
        self.mark = self._commits.number

    def touch_since(self, changes: int) -> None:
        """The same, if anything was gathered since there were so many changes."""
        if self._commits.changes != changes:
            self.mark = self._commits.number

    def send(self) -> int:
        """A send begins. :returns: its number, for :meth:`refuse`."""
        self._sent += 1
        return self._sent

    def refuse(self, number: int) -> bool:
        """The store has undone a send. :returns: whether a promise will tell of it; else the user
        must hear of it in another way.
        """
        self._refused.append(number)
        return number <= self._promised

    def make(self, done: Done) -> Promise:
        """Take the next place in the line, for one who calls :meth:`ask` or :meth:`keep` later."""
        promise = Promise(done, self._promised, self._sent)
        self._promised = self._sent
        self._line.append(promise)
        return promise

    def ask(self, promise: Promise) -> None:
        """Keep it when all that the session was asked for until now is durable. Never from inside
        this call.
        """
        if self.mark > self._commits.durable:
            self._commits.wait_for(self.mark, partial(self._durable, promise))
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
            if self._refused and min(self._refused) <= first.sends:
                # Maybe in an earlier batch than the one that it waited for.
                self._refused = [number for number in self._refused if number > first.sends]
                first.error = first.error or StorageFailed(_NO_ROOM, _NO_ROOM)
            first.done(first.error)

    def release_held(self) -> None:
        """The sender is held back no longer."""
        for promise in self._line:
            if promise.held:
                promise.held = False
                self.ask(promise)

    def break_held(self, error: MessagingError) -> None:
        """The session is closed, so nobody will be able to say when those that are withheld could
        be kept.
        """
        for promise in self._line:
            if promise.held:
                promise.held = False
                self.keep_soon(promise, error)

    def _durable(self, promise: Promise, error: StoreError | None) -> None:
        if isinstance(error, StoreFull) and not any(
            promise.after < number <= promise.sends for number in self._refused
        ):
            # Other sends did not fit. What this promise speaks for is tried again.
            self._commits.wait_for(self._commits.durable + 1, partial(self._durable, promise))
            return
        self.keep(promise, storage_failed(error))


def storage_failed(error: StoreError | None) -> StorageFailed | None:
    """What a failed batch is to the users of the seam."""
    return None if error is None else not_stored(error)


def not_stored(error: StoreError) -> StorageFailed:
    """The same of an error: clients are told that the disk is full, and nothing that names
    files.
    """
    return (
        StorageFailed(_NO_ROOM, _NO_ROOM)
        if isinstance(error, StoreFull)
        else StorageFailed(str(error))
    )
