"""The source of a link, connected: messages come in, and are handed out in batches.

Owns one connection's consumer and its credit. Knows nothing of targets, and nothing of why messages
are acknowledged. When the connection ends it is done with; a link makes another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed

from bridge.config.model import Link
from bridge.connections.connections import Lease, Way
from bridge.link.arrivals import BATCH_OCTETS, Arrivals, Received
from bridge.link.errors import SourceLost
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Consumer, Mode, Session, Subscription

#: Messages received ahead, at least: the next one is here when one is done with.
_LEAST_CREDIT: Final = 2


class Source:
    """A connected source. Made by :func:`open_source`.

    :param lost: called once if it ends without being closed; every wait fails with
        :class:`SourceLost` then, too.
    """

    def __init__(
        self, reactor: Any, link: Link, destination: Destination, lost: Callable[[SourceLost], None]
    ) -> None:
        self.destination: Final = destination
        #: What the provider calls itself.
        self.product = ""
        #: Why it is of no use any more.
        self.failed: SourceLost | None = None
        #: Whether the provider has accepted what the link asks for: a later refusal is no mistake
        #: in the configuration.
        self.accepted = False
        self._started = False
        self._size: Final = link.batch_size
        self._arrivals: Final = Arrivals(reactor, link.batch_time_ms, alone=True)
        self._tell_lost: Final = lost
        self._lease: Lease | None = None
        self._session: Session | None = None
        self._consumer: Consumer | None = None
        #: Delivered and not settled: messages, and octets of their bodies.
        self._unsettled = (0, 0)
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

    async def confirmed(self) -> None:
        """Wait until the provider has answered to what it was asked. Some ask it for a consumer at
        once, others at :meth:`start`.

        :raises SourceLost: it refuses.
        """
        if self.failed is None and self._session is not None:
            answered: Deferred[MessagingError | None] = Deferred()
            self._session.completion(answered.callback)
            error = await answered
            if error is not None:
                self.lose(error)
        if self.failed is not None:
            raise self.failed

    def lose(self, error: MessagingError) -> None:
        """The connection or the consumer has ended."""
        if self.failed is not None or self._closed:
            return
        self.failed = lost = SourceLost(error)
        # In this order: who waits for a batch goes on at once, and then tells what became of it.
        self._tell_lost(lost)
        self._arrivals.fail(lost)

    def start(self) -> None:
        """Receive, or go on to."""
        if self._consumer is None or self._session is None or self.failed is not None:
            return
        self._consumer.start()
        if not self._started:
            self._started = True
            try:
                self._session.completion(self._answered)
            except MessagingError as error:
                self.lose(error)

    def _answered(self, error: MessagingError | None) -> None:
        # What was refused has failed the consumer before.
        self.accepted = error is None and self.failed is None

    def stop(self) -> None:
        """Receive nothing until :meth:`start`; what was received stays here."""
        if self._consumer is not None and self.failed is None:
            self._consumer.stop()

    # --- batches

    @property
    def connection(self) -> Connection | None:
        """The connection; None when it has ended or was given back."""
        return None if self._lease is None or self.failed is not None else self._lease.connection

    @property
    def ahead(self) -> int:
        """Messages received and not taken yet."""
        return len(self._arrivals)

    def times(self) -> list[int]:
        """The timestamps of those messages."""
        return self._arrivals.times()

    async def batch(self) -> Sequence[Received]:
        """The next messages, in order: as many as a batch holds, or those that came within its
        time. One that cannot be read comes alone.

        :returns: empty once :meth:`interrupt` was called while waiting.
        :raises SourceLost:
        """
        return await self._arrivals.batch(self._size)

    def interrupt(self) -> None:
        """Have whoever waits for a batch go on without one; what has come stays for the next who
        asks.
        """
        self._arrivals.interrupt()

    def settle(self, batch: Sequence[Received]) -> Deferred[None]:
        """Acknowledge these, and with them all before; receive as many more.

        :returns: fires once the source's provider has made that durable; fails with
            :class:`SourceLost`, as after a failure nobody knows what it holds to be settled, and
            how much it may deliver.
        """
        settled: Deferred[None] = Deferred()
        if self.failed is not None or self._session is None or self._consumer is None:
            settled.errback(
                self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))
            )
            return settled

        def done(error: MessagingError | None) -> None:
            if error is None:
                settled.callback(None)
            else:
                self.lose(error)
                settled.errback(SourceLost(error))

        messages, octets = len(batch), sum([len(received.message.body) for received in batch])
        self._unsettled = self._unsettled[0] - messages, self._unsettled[1] - octets
        try:
            self._consumer.acknowledge_through(batch[-1].number)
            self._consumer.grant(messages, octets)
            self._session.completion(done)
        except MessagingError as error:
            self.lose(error)
            settled.errback(SourceLost(error))
        return settled

    def recover(self) -> None:
        """Have what was delivered and is not settled delivered again. The connection is kept, as a
        topic would give nothing again to another.

        :raises SourceLost:
        """
        if self.failed is not None or self._session is None or self._consumer is None:
            raise self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))
        self._arrivals.clear()
        (messages, octets), self._unsettled = self._unsettled, (0, 0)
        try:
            self._session.recover()
            self._consumer.grant(messages, octets)
        except MessagingError as error:
            self.lose(error)
            raise SourceLost(error) from error

    # --- the end

    def close(self) -> Deferred[None]:
        """Give everything unacknowledged back, then the connection."""
        self._closed = True
        broken = self.failed is not None
        if self.failed is None:
            self.failed = SourceLost(ProviderUnavailable("the link's source is closed"))
        self._arrivals.fail(self.failed)
        session, self._session = self._session, None
        lease, self._lease = self._lease, None
        if session is not None:
            session.close()
        return succeed(None) if lease is None else lease.give_back(broken)

    # --- inside

    def _deliver(
        self,
        _consumer: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        if self.failed is None:
            octets = sum([len(message.body) for message in messages])
            self._unsettled = self._unsettled[0] + len(messages), self._unsettled[1] + octets
            self._arrivals.put(first, messages, attempts)


def subscription_of(link: Link, destination: Destination) -> Subscription:
    """What a link's source asks for. :param destination: the source's own, looked up."""
    topic = destination.kind is Kind.TOPIC
    # What the guide says of durable-sub: ignored if the destination is no topic. A link's own
    # messages never come back to it by a topic.
    return Subscription(
        destination,
        link.source.selector,
        no_local=topic,
        durable_name=link.source.durable_sub if topic else None,
    )


async def open_source(
    reactor: Any, way: Way, link: Link, destination: Destination, lost: Callable[[SourceLost], None]
) -> Source:
    """Connect a link's source; its consumer is stopped.

    :param destination: the source's own, looked up.
    :raises MessagingError: of :meth:`Provider.connect` and :meth:`Session.consumer`; nothing is
        left open then.
    """
    source = Source(reactor, link, destination, lost)
    lease = await way.take(source.lose)
    try:
        source.connected(lease, subscription_of(link, destination))
        await source.confirmed()
    except BaseException:
        await source.close()
        raise
    return source
