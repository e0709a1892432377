"""Messages that a link's source has delivered, handed out in batches.

Owns when a batch is complete: it is full, or its first message has waited as long as it may, or
nothing more has come for a while. Knows no connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from gateway.messaging.message import Message, Unreadable

#: Of ``max-batch-time`` so much may pass without another message: a source that has no more, or
#: gives no more before it hears of these, is not waited for.
_QUIET_PART: Final = 20


class Received(NamedTuple):
    """A message as its source delivered it.

    :param number: of the delivery.
    :param attempts: how often it was delivered, this time included, as far as is known.
    """

    number: int
    message: Message
    attempts: int = 1


class Arrivals:
    """The messages that have arrived.

    :param reactor: for time.
    :param time_ms: how long the first message of a batch may wait for others, in milliseconds; -1
        is for ever, 0 not at all.
    :param most_octets: octets of bodies that end a batch.
    :param alone: whether a message that cannot be read is a batch by itself.
    """

    def __init__(self, reactor: Any, time_ms: int, most_octets: int, alone: bool = False) -> None:
        self._reactor: Final = reactor
        self._most_octets: Final = most_octets
        self._time_s: Final = None if time_ms <= 0 else time_ms / 1000
        self._waits: Final = time_ms != 0
        self._alone: Final = alone
        self._buffer: deque[Received] = deque()
        self._octets = 0
        #: Messages of a whole batch, as the waiting caller wants it.
        self._size = 1
        #: Fires with whether there may be a batch; False is an interruption.
        self._waiting: Deferred[bool] | None = None
        #: Until the batch has waited as long as it may, and until nothing has come for long enough.
        self._timer: IDelayedCall | None = None
        self._quiet: IDelayedCall | None = None
        #: That the first message of the next batch has waited as long as it may.
        self._due = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._buffer)

    def times(self) -> list[int]:
        return [received.message.timestamp for received in self._buffer]

    def put(
        self, first: int, messages: Sequence[Message], attempts: Sequence[int] | None = None
    ) -> None:
        """Add messages; ``first`` is the number of the first delivery.

        :param attempts: as of :class:`~gateway.messaging.provider.Deliver`.
        """
        was_empty = not self._buffer
        for number, message in enumerate(messages, first):
            self._buffer.append(
                Received(number, message, 1 if attempts is None else attempts[number - first])
            )
            self._octets += len(message.body)
        if was_empty and self._buffer:
            self._start_timer()
        elif self._quiet is not None and self._time_s is not None:
            self._quiet.reset(self._time_s / _QUIET_PART)
        if self._complete():
            self._wake()

    async def batch(self, size: int) -> Sequence[Received]:
        """Return the next ``size`` messages, or those that came within their time.

        :returns: empty once :meth:`interrupt` was called while waiting.
        :raises: what :meth:`fail` was given.
        """
        self._size = size
        if self._buffer:
            self._start_timer()
        while not self._complete():
            self._waiting = Deferred()
            if not await self._waiting:
                return ()
        return self.take(size)

    def take(self, size: int) -> Sequence[Received]:
        """Return the next messages that are here, ``size`` at most, also none.

        :raises: what :meth:`fail` was given.
        """
        if self._error is not None:
            raise self._error
        self._stop_timers()
        batch: list[Received] = []
        octets = 0
        while self._buffer and len(batch) < size and octets < self._most_octets:
            if (
                self._alone
                and batch
                and Unreadable in (type(batch[-1].message), type(self._buffer[0].message))
            ):
                break
            received = self._buffer.popleft()
            octets += len(received.message.body)
            batch.append(received)
        self._octets -= octets
        if self._buffer:
            self._start_timer()
        return batch

    def interrupt(self) -> None:
        """End a wait without a batch; what has come stays for the next caller."""
        self._wake(False)

    def fail(self, error: Exception) -> None:
        """Drop what has come, and fail every wait until :meth:`clear`."""
        self.clear()
        self._error = error
        self._wake()

    def clear(self) -> None:
        """What has come is void."""
        self._error = None
        self._buffer.clear()
        self._octets = 0
        self._stop_timers()

    # --- inside

    def _complete(self) -> bool:
        """Whether there is a batch, or will never be one."""
        if self._error is not None:
            return True
        return bool(self._buffer) and (
            not self._waits
            or self._due
            or len(self._buffer) >= self._size
            or self._octets >= self._most_octets
        )

    def _start_timer(self) -> None:
        if self._time_s is not None and self._timer is None and not self._due and self._size > 1:
            self._timer = self._reactor.callLater(self._time_s, self._time_is_over)
            self._quiet = self._reactor.callLater(self._time_s / _QUIET_PART, self._time_is_over)

    def _stop_timers(self) -> None:
        self._due = False
        timers, self._timer, self._quiet = (self._timer, self._quiet), None, None
        for timer in timers:
            if timer is not None and timer.active():
                timer.cancel()

    def _time_is_over(self) -> None:
        self._stop_timers()
        self._due = True
        self._wake()

    def _wake(self, maybe: bool = True) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(maybe)
