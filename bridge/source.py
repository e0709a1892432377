"""The source of a link, connected: messages come in, and are handed out in batches.

Owns one connection's consumer, its credit and what was received and not taken yet. Knows nothing of targets, and nothing of why messages are
acknowledged. When the connection ends it is done with; a link makes another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall

from bridge.config.model import Link
from bridge.connections import Lease, Way
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import Consumer, Mode, Session, Subscription

#: Octets of bodies that end a batch, and twice of which are received ahead: bodies of megabytes must not fill the memory.
BATCH_OCTETS: Final = 16 * 1024 * 1024
#: Of ``max-batch-time`` so much may pass without another message: a source that has no more, or gives no more before it hears of these, is not waited for.
_QUIET_PART: Final = 20
#: Messages received ahead, at least: the next one is here when one is done with.
_LEAST_CREDIT: Final = 2


class Received(NamedTuple):
    """A message as its source delivered it.

    :param number: of the delivery.
    """

    number: int
    message: Message


class SourceLost(MessagingError):
    """The source's connection or consumer has ended; what it delivered comes again from the next one. ``cause`` is why."""

    def __init__(self, cause: MessagingError) -> None:
        super().__init__(f"source lost: {cause}")
        self.cause = cause


class Source:
    """A connected source. Made by :func:`open_source`.

    :param lost: called once if it ends without being closed; every wait fails with :class:`SourceLost` then, too.
    """

    def __init__(self, reactor: Any, link: Link, destination: Destination, lost: Callable[[SourceLost], None]) -> None:
        self.destination: Final = destination
        #: What the provider calls itself.
        self.product = ""
        #: Why it is of no use any more.
        self.failed: SourceLost | None = None
        self._reactor: Final = reactor
        self._size: Final = link.max_batch_size
        self._time_s: Final = None if link.max_batch_time_ms < 0 else link.max_batch_time_ms / 1000
        self._tell_lost: Final = lost
        self._lease: Lease | None = None
        self._session: Session | None = None
        self._consumer: Consumer | None = None
        self._buffer: deque[Received] = deque()
        self._octets = 0
        #: Fires with whether there may be a batch; False is an interruption.
        self._waiting: Deferred[bool] | None = None
        #: Until the batch has waited as long as it may, and until nothing has come for long enough.
        self._timer: IDelayedCall | None = None
        self._quiet: IDelayedCall | None = None
        #: That the first message of the next batch has waited as long as it may.
        self._due = False
        self._closed = False

    # --- connecting

    def connected(self, lease: Lease, subscription: Subscription) -> None:
        """The connection is there: consume from it. Stopped until :meth:`start`.

        :raises MessagingError: of :meth:`Session.consumer`.
        """
        self._lease = lease
        self.product = lease.connection.product
        self._session = lease.connection.session(Mode.CLIENT)
        self._consumer = self._session.consumer(subscription, self._deliver, self.lose)
        self._consumer.grant(max(_LEAST_CREDIT, 2 * self._size), 2 * BATCH_OCTETS)

    def lose(self, error: MessagingError) -> None:
        """The connection or the consumer has ended."""
        if self.failed is not None or self._closed:
            return
        self.failed = lost = SourceLost(error)
        self._buffer.clear()
        self._octets = 0
        # In this order: who waits for a batch goes on at once, and then tells what became of it.
        self._tell_lost(lost)
        self._wake()

    def start(self) -> None:
        """Receive, or go on to."""
        if self._consumer is not None and self.failed is None:
            self._consumer.start()

    def stop(self) -> None:
        """Receive nothing until :meth:`start`; what was received stays here."""
        if self._consumer is not None and self.failed is None:
            self._consumer.stop()

    # --- batches

    @property
    def ahead(self) -> int:
        """Messages received and not taken yet."""
        return len(self._buffer)

    async def batch(self) -> Sequence[Received]:
        """The next messages, in order: as many as a batch holds, or those that came within its time.

        :returns: empty once :meth:`interrupt` was called while waiting.
        :raises SourceLost:
        """
        while not self._complete():
            self._waiting = Deferred()
            if not await self._waiting:
                return ()
        if self.failed is not None:
            raise self.failed
        self._stop_timer()
        batch: list[Received] = []
        octets = 0
        while self._buffer and len(batch) < self._size and octets < BATCH_OCTETS:
            received = self._buffer.popleft()
            octets += len(received.message.body)
            batch.append(received)
        self._octets -= octets
        if self._buffer:
            self._start_timer()
        return batch

    def interrupt(self) -> None:
        """Have whoever waits for a batch go on without one; what has come stays for the next who asks."""
        self._wake(False)

    def settle(self, batch: Sequence[Received]) -> Deferred[None]:
        """Acknowledge these, and with them all before; receive as many more.

        :returns: fires once the source's provider has made that durable; fails with what prevented it. Then the source is lost: what it holds
            to be settled, and how much it may deliver, nobody knows.
        """
        settled: Deferred[None] = Deferred()
        if self.failed is not None or self._session is None or self._consumer is None:
            settled.errback(self.failed or ProviderUnavailable("the link's source is closed"))
            return settled

        def done(error: MessagingError | None) -> None:
            if error is None:
                settled.callback(None)
            else:
                self.lose(error)
                settled.errback(error)

        try:
            self._consumer.acknowledge_through(batch[-1].number)
            self._consumer.grant(len(batch), sum(len(received.message.body) for received in batch))
            self._session.completion(done)
        except MessagingError as error:
            self.lose(error)
            settled.errback(error)
        return settled

    # --- the end

    def close(self) -> Deferred[None]:
        """Give everything unacknowledged back, then the connection."""
        self._closed = True
        self._buffer.clear()
        self._stop_timer()
        broken = self.failed is not None
        if self.failed is None:
            self.failed = SourceLost(ProviderUnavailable("the link's source is closed"))
        self._wake()
        session, self._session = self._session, None
        lease, self._lease = self._lease, None
        if session is not None:
            session.close()
        return succeed(None) if lease is None else lease.give_back(broken)

    # --- inside

    def _deliver(self, _consumer: Consumer, first: int, messages: Sequence[Message], _attempts: Sequence[int] | None, /) -> None:
        if self.failed is not None:
            return
        was_empty = not self._buffer
        for number, message in enumerate(messages, first):
            self._buffer.append(Received(number, message))
            self._octets += len(message.body)
        if was_empty and self._buffer:
            self._start_timer()
        elif self._quiet is not None and self._time_s is not None:
            self._quiet.reset(self._time_s / _QUIET_PART)
        if self._complete():
            self._wake()

    def _complete(self) -> bool:
        """Whether there is a batch, or will never be one."""
        if self.failed is not None:
            return True
        return bool(self._buffer) and (self._due or len(self._buffer) >= self._size or self._octets >= BATCH_OCTETS)

    def _start_timer(self) -> None:
        if self._time_s is not None and self._timer is None and self._size > 1:
            self._timer = self._reactor.callLater(self._time_s, self._time_is_over)
            self._quiet = self._reactor.callLater(self._time_s / _QUIET_PART, self._time_is_over)

    def _stop_timer(self) -> None:
        self._due = False
        timers, self._timer, self._quiet = (self._timer, self._quiet), None, None
        for timer in timers:
            if timer is not None and timer.active():
                timer.cancel()

    def _time_is_over(self) -> None:
        self._stop_timer()
        self._due = True
        self._wake()

    def _wake(self, maybe: bool = True) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(maybe)


async def open_source(reactor: Any, way: Way, link: Link, destination: Destination, lost: Callable[[SourceLost], None]) -> Source:
    """Connect a link's source; its consumer is stopped.

    :param destination: the source's own, looked up.
    :raises MessagingError: of :meth:`Provider.connect` and :meth:`Session.consumer`; nothing is left open then.
    """
    source = Source(reactor, link, destination, lost)
    lease = await way.take(source.lose)
    topic = destination.kind is Kind.TOPIC
    # What the guide says of durable-sub: ignored if the destination is no topic. A link's own messages never come back to it by a topic.
    subscription = Subscription(
        destination, link.source.selector, no_local=topic, durable_name=link.source.durable_sub if topic else None
    )
    try:
        source.connected(lease, subscription)
        if source.failed is not None:
            raise source.failed
    except BaseException:
        await source.close()
        raise
    return source
