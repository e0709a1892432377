"""Read a queue of this instance's broker through the seam.

Browse it, or take messages of known ids out of it.

Owns waiting for deliveries, and for none. Does not know what the messages are taken for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Mode,
    Provider,
    Session,
)
from gateway.messaging.selector.selector import parse

#: Messages that are read at once.
_PORTION: Final = 100
#: Seconds to wait for messages that were seen in the queue and are not delivered: somebody else has
#: taken them.
GRACE_S: Final = 2.0
#: Characters of message ids that one selector may have.
_IDS_LENGTH: Final = 8000


class Reader:
    """A connection of an administrator.

    :ivar connection: the connection, set before the reader is used.
    """

    connection: Connection

    def __init__(self) -> None:
        self._error: MessagingError | None = None
        self._waiting: list[Deferred[None]] = []

    def lost(self, error: MessagingError) -> None:
        """End what waits for deliveries: the connection or a consumer is lost."""
        if self._error is None:
            self._error = error
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.called:
                each.errback(self._error)

    def watch(self, waiting: Deferred[None]) -> None:
        """Fail a Deferred when the connection or a consumer is lost.

        :raises MessagingError: it is lost already.
        """
        if self._error is not None:
            raise self._error
        self._waiting = [each for each in self._waiting if not each.called]
        self._waiting.append(waiting)

    async def first(self, queue: Destination, selector: str | None, most: int) -> list[Message]:
        """Return the first messages that the selector matches.

        :raises MessagingError: the selector is wrong, or the broker refuses.
        """
        browsing = Browsing(self, queue, selector)
        found: list[Message] = []
        while batch := await browsing.next(min(_PORTION, most - len(found))):
            found += batch
        return found


@asynccontextmanager
async def reader(
    provider: Provider, credentials: Callable[[], Credentials]
) -> AsyncIterator[Reader]:
    """Connect for as long as the block lasts.

    :raises MessagingError: the broker refuses.
    """
    reading = Reader()
    reading.connection = await provider.connect(credentials(), None, reading.lost)
    try:
        yield reading
    finally:
        await reading.connection.close()


class _Reading:
    """A consumer, what it was given, and a way to wait for more."""

    def __init__(self, reading: Reader, session: Session, what: ConsumerSpec) -> None:
        self._got: list[tuple[int, Message]] = []
        self._ended = False
        self._reading = reading
        self._waiter: Deferred[None] | None = None
        self.consumer = session.consumer(what, self._deliver, reading.lost)

    def _deliver(
        self,
        consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        if not messages:
            self._ended = True
        self._got += enumerate(messages, first)
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.called:
            waiter.callback(None)

    def _more(self) -> Deferred[None]:
        """Fires with the next delivery; fails when the connection is lost."""
        waiter = self._waiter = Deferred()
        self._reading.watch(waiter)
        return waiter


class Browsing(_Reading):
    """Looks through a queue, in portions.

    :raises InvalidSelector: the selector is wrong.
    """

    def __init__(self, reading: Reader, queue: Destination, selector: str | None) -> None:
        if selector:
            # Raises the same error for every provider.
            parse(selector)
        what = ConsumerSpec(queue, selector=selector or None, browse=True)
        super().__init__(reading, reading.connection.session(Mode.AUTO), what)
        self.consumer.start()

    async def next(self, most: int) -> list[Message]:
        """Return ``most`` messages, fewer only at the end of the queue."""
        if most > 0 and not self._ended:
            self.consumer.grant(most)
            while len(self._got) < most and not self._ended:
                await self._more()
        got, self._got = self._got, []
        return [message for _, message in got]


class Taking(_Reading):
    """Takes messages of known ids out of a queue, by that session."""

    def __init__(
        self, reading: Reader, session: Session, queue: Destination, ids: Iterable[str]
    ) -> None:
        self._ids = list(ids)
        selector = f"JMSMessageID IN ({', '.join(map(quoted, self._ids))})"
        super().__init__(reading, session, ConsumerSpec(queue, selector=selector))

    async def all(self, reactor: IReactorTime) -> list[tuple[int, Message]]:
        """Return numbers and messages; those missing another has taken."""
        self.consumer.grant(len(self._ids))
        self.consumer.start()
        while len(self._got) < len(self._ids):
            try:
                await self._more().addTimeout(GRACE_S, reactor)
            except TimeoutError:
                break
        self.consumer.stop()
        return self._got


def quoted(text: str) -> str:
    """Return a text as a literal of selectors."""
    return "'" + text.replace("'", "''") + "'"


def portions(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the ids in portions that one selector can name."""
    portion: list[str] = []
    size = 0
    for each in ids:
        if portion and size + len(quoted(each)) > _IDS_LENGTH:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += len(quoted(each)) + 2
    if portion:
        yield portion
