"""Waiting: for conditions, for completions, and for what consumers are given. Every wait has a
bound.

Knows the seam's callbacks and no provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Consumer, Session

#: Seconds that any one wait lasts at most. A busy machine may need many of them.
LONGEST_WAIT: Final = 60.0

_clock: Any = reactor


async def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Wait until the condition holds.

    :param what: says in the failure how things stand.
    """
    end = time.monotonic() + LONGEST_WAIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LONGEST_WAIT:g} seconds: {what()}")
        await deferLater(_clock, 0.001)


async def bounded(deferred: Deferred[Any]) -> Any:
    """Wait for a Deferred, not for ever."""
    return await deferred.addTimeout(LONGEST_WAIT, _clock)


class Inbox:
    """What a consumer was given, in order."""

    session: Session
    consumer: Consumer

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.messages: list[Message] = []
        #: Whether the provider counts attempts; if not, any but the first is 2 here.
        self.counted = True
        #: 1 for each first attempt, also where the provider left them out.
        self.attempts: list[int] = []
        #: The runs as they came: first number, the very sequence, attempts.
        self.runs: list[tuple[int, Sequence[Message], Sequence[int] | None]] = []
        #: Empty deliveries, by which a browser ends.
        self.ends = 0
        self.failures: list[MessagingError] = []
        #: Called with the run inside of each delivery.
        self.on_delivery: Callable[[int, Sequence[Message]], object] | None = None

    def deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        self.runs.append((first, messages, attempts))
        self.ends += not messages
        self.numbers += range(first, first + len(messages))
        self.messages += messages
        tried = [1] * len(messages) if attempts is None else attempts
        self.attempts += tried if self.counted else [min(attempt, 2) for attempt in tried]
        if self.on_delivery is not None:
            self.on_delivery(first, messages)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]

    async def count(self, number: int) -> None:
        """Wait until that many messages are here."""
        await until(
            lambda: len(self.messages) >= number or self.failures,
            lambda: f"{self.texts} of {number}",
        )
        assert self.failures == [], str(self.failures)

    async def received(self, number: int) -> list[str]:
        """Wait until that many messages are here, and return the texts of all."""
        await self.count(number)
        return self.texts

    async def ended(self) -> None:
        """Wait for the empty delivery that ends a browser."""
        await until(lambda: self.ends, lambda: f"no end after {self.texts}")

    async def failed(self) -> MessagingError:
        """Wait until the consumer has ended by itself."""
        await until(lambda: self.failures, lambda: "the consumer has not failed")
        return self.failures[0]

    async def close(self) -> None:
        """Close the consumer, and wait until that is so for other sessions, too."""
        self.consumer.close()
        await completed(self.session)


class Told:
    """A Done that can be waited for."""

    def __init__(self) -> None:
        self.results: list[MessagingError | None] = []

    def __call__(self, error: MessagingError | None) -> None:
        self.results.append(error)

    async def result(self) -> MessagingError | None:
        """Wait for what it is told; only once."""
        await until(lambda: self.results, lambda: "a completion has not fired")
        assert len(self.results) == 1
        return self.results[0]


async def completed(session: Session) -> None:
    """Wait until all that the session was asked is durable; it must be well."""
    told = Told()
    session.completion(told)
    error = await told.result()
    assert error is None, str(error)


async def committed(session: Session) -> None:
    """Commit and wait; it must be well."""
    told = Told()
    session.commit(told)
    error = await told.result()
    assert error is None, str(error)


async def rolled_back(session: Session) -> None:
    """Roll back and wait; it must be well."""
    told = Told()
    session.rollback(told)
    error = await told.result()
    assert error is None, str(error)
