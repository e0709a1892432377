"""The lag of a link: the age of the oldest message at its source.

Owns when the source is looked at, and what is believed until the next time. Messages that the link
has received and not acknowledged wait at the source too; :mod:`bridge.link.endpoints` tells of
those. The broker of this instance says what waits. Queues of other providers are browsed, over the
connection that the link has anyway. A topic gives nothing to look at: only what the link holds of
it is known, and of a durable subscription elsewhere nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from bridge.config.model import Link
from bridge.connections.administered import AdministeredFactory
from bridge.link.source import subscription_of
from gateway.messaging.destination import Kind
from gateway.messaging.errors import MessagingError
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Consumer, ConsumerSpec, Mode, Session, Waiting
from gateway.reactor.clocks import wall_ms
from gateway.reactor.deferreds import timeout

#: Seconds between two browses of a source.
BROWSE_EVERY_S: Final = 10.0
#: Seconds after which what was seen is not believed any more.
BELIEVED_S: Final = 3 * BROWSE_EVERY_S
#: Seconds that the caller waits for an answer, and that a browser has to give it.
ANSWER_S: Final = 2.0
BROWSE_S: Final = 10.0
#: Messages, and bytes of their bodies, that a browser reads: the first is not the oldest where
#: priorities differ.
_MESSAGES: Final = 100
_BYTES: Final = 1 << 20

UNKNOWN: Final = Waiting(-1, -1)
_NOTHING: Final = Waiting(0, 0)


class Lag:
    """How long messages wait at the source of one link.

    :param clock: the reactor.
    :param factory: the source's.
    """

    def __init__(self, clock: Any, link: Link, factory: AdministeredFactory, log: Logger) -> None:
        self._clock: Final = clock
        self._link: Final = link
        self._factory: Final = factory
        self._log: Final = log
        self._seen = UNKNOWN
        self._seen_at: float | None = None
        #: When the source was browsed last.
        self._browsed_at: float | None = None
        self._looking: Deferred[None] | None = None

    def look(self, connection: Connection | None) -> Deferred[None]:
        """Look at the source, unless it was browsed a short time ago.

        That is within the last :data:`BROWSE_EVERY_S` seconds.

        :param connection: the link's to its source; None while it has none.
        :returns: fires, never with an error, at most :data:`ANSWER_S` seconds later.
        """
        if self._looking is None:
            self._looking = Deferred.fromCoroutine(self._look(connection))
            self._looking.addErrback(self._failed).addCallback(self._looked)
        if self._looking is None:
            return succeed(None)
        looked: Deferred[None] = Deferred()
        self._looking.addCallback(lambda _: looked.callback(None))
        answer: Deferred[Any] = timeout(self._clock, ANSWER_S, looked)
        return answer.addCallback(lambda _: None)

    def _looked(self, _: Any) -> None:
        self._looking = None

    def _failed(self, failure: Any) -> None:
        self._see(UNKNOWN)
        error = failure.value
        if isinstance(error, MessagingError):
            self._log.debug(
                "link {link}: what waits at its source is unknown: {error}",
                link=self._link.name,
                error=error,
            )
        else:
            self._log.failure(
                "link {link}: looking at what waits at its source failed",
                failure,
                link=self._link.name,
            )

    def ms(self, held_ms: int) -> int:
        """Return the age of the oldest waiting message in milliseconds.

        0 when none waits, -1 when unknown.

        :param held_ms: the timestamp of the oldest message that the link holds; 0 when it holds
            none, -1 when unknown.
        """
        seen_ms = self._believed().oldest_ms
        times = [each for each in (held_ms, seen_ms) if each > 0]
        if times:
            return max(0, wall_ms(self._clock) - min(times))
        return 0 if held_ms == seen_ms == 0 else -1

    def waiting(self, held: int) -> int:
        """Return how many messages wait; -1 when unknown.

        :param held: those that the link holds.
        """
        count = self._believed().messages
        if count < 0:
            return -1
        # Some brokers show to a browser what a consumer has, and others do not.
        return max(count, held) if self._browsed_at is not None else count + held

    def _believed(self) -> Waiting:
        return (
            UNKNOWN
            if self._seen_at is None or self._clock.seconds() - self._seen_at > BELIEVED_S
            else self._seen
        )

    def _see(self, waiting: Waiting) -> None:
        self._seen = waiting
        self._seen_at = self._clock.seconds()

    # --- looking

    async def _look(self, connection: Connection | None) -> None:
        spec = subscription_of(
            self._link, await self._factory.destination(self._link.source.destination)
        )
        if self._factory.waiting is not None:
            waiting = await self._factory.waiting(
                spec, self._link.source.clientid or self._factory.client_id
            )
            if waiting is not None:
                self._see(waiting)
                return
        if spec.destination.kind is Kind.TOPIC:
            # Without a durable subscription nothing waits anywhere but here.
            self._see(_NOTHING if spec.durable_name is None else UNKNOWN)
        elif connection is None or not self._factory.provider.capabilities.browse:
            self._see(UNKNOWN)
        elif self._browsed_at is None or self._clock.seconds() - self._browsed_at >= BROWSE_EVERY_S:
            self._browsed_at = self._clock.seconds()
            browse = _Browse(connection, spec)
            if await timeout(self._clock, BROWSE_S, browse.over):
                browse.close()
                self._see(browse.found())
            else:
                browse.close()
                self._see(UNKNOWN)


class _Browse:
    """One look through a queue.

    :raises MessagingError: the provider refuses.
    """

    def __init__(self, connection: Connection, spec: ConsumerSpec) -> None:
        #: Fires when there is nothing more to see.
        self.over: Final[Deferred[None]] = Deferred()
        self._error: MessagingError | None = None
        self._count = self._bytes = 0
        self._ended = False
        self._times: list[int] = []
        self._session: Final[Session] = connection.session(Mode.AUTO)
        try:
            browsed = ConsumerSpec(spec.destination, spec.selector, browse=True)
            consumer = self._session.consumer(browsed, self._deliver, self._failed)
            consumer.grant(_MESSAGES, _BYTES)
            consumer.start()
        except BaseException:
            self._session.close()
            raise

    def close(self) -> None:
        self._session.close()

    def found(self) -> Waiting:
        """What was seen. :raises MessagingError: the browser has failed."""
        if self._error is not None:
            raise self._error
        if not self._count:
            return _NOTHING
        return Waiting(self._count if self._ended else -1, min(self._times, default=-1))

    def _deliver(
        self,
        _consumer: Consumer,
        _first: int,
        messages: Sequence[Message],
        _attempts: Sequence[int] | None,
        /,
    ) -> None:
        self._ended = self._ended or not messages
        self._count += len(messages)
        self._bytes += sum([len(message.body) for message in messages])
        self._times += [message.timestamp for message in messages if message.timestamp]
        if self._ended or self._count >= _MESSAGES or self._bytes >= _BYTES:
            self._finish()

    def _failed(self, error: MessagingError) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        if not self.over.called:
            self.over.callback(None)
