"""The source of a link that transfers once: messages come in as work of a branch, a batch at a
time.

Owns one connection's XA session and consumer, and their credit. Credit is for one batch and granted
when its branch has begun: a JMS provider counts whatever it hands over meanwhile as work of that
branch. Knows nothing of targets, and nothing of when a branch is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from bridge.config.model import Link
from bridge.connections.connections import Lease, Way
from bridge.link.arrivals import BATCH_OCTETS, Arrivals, Received
from bridge.link.errors import SourceLost
from bridge.link.source import subscription_of
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, XAConsumer, XAResource, XASession


class OnceSource:
    """A connected source. Made by :func:`open_once_source`.

    :param rm: names its resource manager. :param lost: called once if it ends without being closed;
        every wait fails with :class:`~bridge.link.errors.SourceLost` then, too.
    """

    def __init__(
        self,
        reactor: Any,
        link: Link,
        rm: str,
        destination: Destination,
        lost: Callable[[SourceLost], None],
    ) -> None:
        #: What the provider calls itself.
        self.product = ""
        #: Why it is of no use any more.
        self.failed: SourceLost | None = None
        #: Whether the provider has accepted what the link asks for.
        self.accepted = False
        #: Names the resource manager.
        self.rm: Final = rm
        self._tell_lost: Final = lost
        self._arrivals: Final = Arrivals(reactor, link.batch_time_ms)
        self._subscription: Final = subscription_of(link, destination)
        #: Whether there is no other consumer that could have what this one gives back.
        self._stays: Final = (
            destination.kind is Kind.TOPIC and self._subscription.durable_name is None
        )
        self._lease: Lease | None = None
        self._session: XASession | None = None
        self._consumer: XAConsumer | None = None
        #: Credit that is granted and not used up.
        self._messages = 0
        self._octets = 0
        #: Whether the consumer is started.
        self._running = False
        self._closed = False

    # --- connecting

    @property
    def resource(self) -> XAResource:
        """The resource manager, for this source's session. :raises SourceLost:"""
        if self._session is None or self.failed is not None:
            raise self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))
        return self._session.resource()

    def connected(self, lease: Lease) -> None:
        """The connection is there. Nothing is consumed before :meth:`consume`. :raises
        MessagingError: of :meth:`Connection.xa_session`.
        """
        self._lease = lease
        self.product = lease.connection.product
        self._open()

    async def renew(self) -> None:
        """Go on after a branch was rolled back: whatever was handed over, and whatever credit was
        left, is void.

        With another session, as not every provider gives a consumer what was rolled back before
        what it has ahead. But of a topic without a durable subscription a consumer is all there is,
        so its session stays, and gets from it what it can.

        :raises SourceLost:
        """
        if self.failed is not None:
            raise self.failed
        self._arrivals.clear()
        if self._stays:
            self._withdraw()
            return
        await self._given_back()
        if self.failed is not None:
            raise self.failed
        try:
            if self._session is not None:
                self._session.close()
            self._open()
            self.consume()
        except MessagingError as error:
            self.lose(error)
            raise SourceLost(error) from error

    def keep(self) -> bool:
        """Go on after a failure that was not this end's, every branch being rolled back, where to
        connect anew would lose what that gave back: see
        :meth:`renew`.

        :returns: False where it would not; nothing was done then, and it is to be closed.
        """
        if self.failed is None and self._stays:
            self._arrivals.clear()
            self._withdraw()
            return True
        return False

    def _withdraw(self) -> None:
        """A consumer that stays must not give more than the next batch may have. It is stopped
        where any credit is left.
        """
        if self._consumer is not None:
            self._consumer.withdraw()
        self._messages = 0

    def _open(self) -> None:
        assert self._lease is not None
        self._messages = self._octets = 0
        self._running = False
        self._consumer = None
        self._session = self._lease.connection.xa_session()

    def consume(self) -> None:
        """Have a consumer, if there is none.

        Not before the resource manager has finished what was prepared there: a broker may hand
        messages to a consumer ahead of all credit, and those of a branch that is rolled back only
        then would come behind them.

        :raises MessagingError: of :meth:`Session.consumer`. :raises SourceLost:
        """
        if self._consumer is not None:
            return
        session = self._session
        if session is None or self.failed is not None:
            raise self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))

        def deliver(
            _consumer: object,
            first: int,
            messages: Sequence[Message],
            attempts: Sequence[int] | None,
            /,
        ) -> None:
            if session is self._session and self.failed is None:
                self._messages -= len(messages)
                self._octets -= sum([len(message.body) for message in messages])
                self._arrivals.put(first, messages, attempts)

        def failed(error: MessagingError) -> None:
            if session is self._session:
                self.lose(error)

        self._consumer = session.consumer(self._subscription, deliver, failed)

    async def confirmed(self) -> None:
        """Wait until the provider has answered to :meth:`consume`. :raises SourceLost: it
        refuses.
        """
        await self._quiet()
        if self.failed is not None:
            raise self.failed
        self.accepted = True

    def lose(self, error: MessagingError) -> None:
        """The connection or the consumer has ended."""
        if self.failed is not None or self._closed:
            return
        self.failed = lost = SourceLost(error)
        # In this order: who waits for a batch goes on at once, and then tells what became of it.
        self._tell_lost(lost)
        self._arrivals.fail(lost)

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

    async def batch(self, size: int) -> Sequence[Received]:
        """The messages of a branch that has begun, in order: ``size`` of them at most, or those
        that came within their time. No others come before this is called again.

        :returns: empty where :meth:`interrupt` was called before one had come. :raises SourceLost:
        """
        consumer = self._consumer
        if self.failed is not None or consumer is None:
            raise self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))
        messages, octets = size - self._messages, BATCH_OCTETS - self._octets
        if messages > 0:
            self._messages += messages
            self._octets += max(0, octets)
            consumer.grant(messages, max(0, octets))
        if not self._running:
            self._running = True
            consumer.start()
        try:
            batch = await self._arrivals.batch(size)
        finally:
            # Without credit it gives nothing anyhow.
            if self._messages and self.failed is None:
                self._running = False
                consumer.stop()
        if self._messages:
            await self._quiet()
        # Whatever was handed over is work of the branch.
        return [*batch, *self._arrivals.take(size)]

    async def _given_back(self) -> None:
        """Have no consumer any more, and wait until the provider has back what it had ahead: the
        next consumer would get what is behind that first.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
            await self._quiet()

    async def _quiet(self) -> None:
        """Wait until what the session was asked is done: such as a receive that was under way when
        the consumer was stopped.
        """
        if self._session is None:
            return
        done: Deferred[MessagingError | None] = Deferred()
        try:
            self._session.completion(done.callback)
        except MessagingError as error:
            self.lose(error)
            return
        failed = await done
        if failed is not None:
            self.lose(failed)

    def acknowledge(self, batch: Sequence[Received]) -> None:
        """Settle these, with the branch. :raises SourceLost:"""
        if self.failed is not None or self._consumer is None:
            raise self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))
        try:
            self._consumer.acknowledge_through(batch[-1].number)
        except MessagingError as error:
            self.lose(error)
            raise SourceLost(error) from error

    def interrupt(self) -> None:
        """Have whoever waits for a batch go on without one."""
        self._arrivals.interrupt()

    # --- the end

    def close(self) -> Deferred[None]:
        """Give everything unacknowledged back, then the connection."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        broken = self.failed is not None
        self._closed = True
        if self.failed is None:
            self.failed = SourceLost(ProviderUnavailable("the link's source is closed"))
        self._arrivals.fail(self.failed)
        if not broken:
            await self._given_back()
        session, self._session = self._session, None
        lease, self._lease = self._lease, None
        if session is not None:
            session.close()
        if lease is not None:
            await lease.give_back(broken)


async def open_once_source(
    reactor: Any,
    way: Way,
    link: Link,
    rm: str,
    destination: Destination,
    lost: Callable[[SourceLost], None],
) -> OnceSource:
    """Connect a link's source.

    :param rm: names its resource manager. :param destination: the source's own, looked up.
    :raises MessagingError: of :meth:`Provider.connect` and :meth:`Connection.xa_session`; nothing
        is left open then.
    """
    source = OnceSource(reactor, link, rm, destination, lost)
    lease = await way.take(source.lose)
    try:
        source.connected(lease)
        if source.failed is not None:
            raise source.failed
    except BaseException:
        await source.close()
        raise
    return source
