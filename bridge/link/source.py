"""The connected source of a link: messages come in and go out in batches.

Owns one connection's session, its consumer and its credit. :class:`Source` acknowledges batches by
itself; :class:`XASource` receives as work of a branch. Neither knows targets, nor why messages are
acknowledged or when a branch is committed. A source whose connection has ended is finished; a link
makes another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred, succeed

from bridge.config.model import Link
from bridge.connections.connections import ConnectionLender, Lease
from bridge.link.arrivals import Arrivals, Received
from bridge.link.errors import SourceLost
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Mode,
    Session,
    XAConsumer,
    XAResource,
    XASession,
)
from gateway.reactor.deferreds import deferred

#: Messages received ahead, at least: the next one is here when one is done with.
_LEAST_CREDIT: Final = 2

S = TypeVar("S", bound=Session)


def subscription_of(link: Link, destination: Destination) -> ConsumerSpec:
    """Return what a link's source subscribes to.

    :param destination: the source's own, looked up.
    """
    topic = destination.kind is Kind.TOPIC
    # The guide says of durable-sub: ignored if the destination is not a topic. A link's own
    # messages never come back to it by a topic.
    return ConsumerSpec(
        destination,
        link.source.selector,
        no_local=topic,
        durable_name=link.source.durable_sub if topic else None,
    )


class LinkSource(ABC, Generic[S]):
    """What both kinds of sources share: connection, arrivals, and loss.

    :param lost: called once if it ends without being closed; every wait then fails with
        :class:`~bridge.link.errors.SourceLost`, too.
    """

    def __init__(
        self,
        link: Link,
        destination: Destination,
        arrivals: Arrivals,
        lost: Callable[[SourceLost], None],
    ) -> None:
        #: What the provider calls itself.
        self.product = ""
        #: Why it is of no use any more.
        self.failed: SourceLost | None = None
        #: Whether the provider has accepted what the link asks for: a later refusal is no mistake
        #: in the configuration.
        self.accepted = False
        self._subscription: Final = subscription_of(link, destination)
        self._arrivals: Final = arrivals
        self._on_lost: Final = lost
        self._lease: Lease | None = None
        self._session: S | None = None
        self._closed = False

    # --- connecting

    async def open(self, lender: ConnectionLender) -> None:
        """Connect.

        :raises MessagingError: of :meth:`Provider.connect`, or of making session and consumer;
            nothing is left open then.
        """
        lease = await lender.borrow(self.lose)
        try:
            self._lease = lease
            self.product = lease.connection.product
            await self._connected(lease.connection)
        except BaseException:
            await self.close()
            raise

    @abstractmethod
    async def _connected(self, connection: Connection) -> None:
        """Make the session and what belongs to it. :raises MessagingError:"""

    def lose(self, error: MessagingError) -> None:
        """The connection or the consumer has ended."""
        if self.failed is not None or self._closed:
            return
        self.failed = lost = SourceLost(error)
        # In this order: the caller that waits for a batch goes on at once, and then reports what became of
        # it.
        self._on_lost(lost)
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
        return self._arrivals.times()

    def interrupt(self) -> None:
        """End a wait for a batch; what has arrived stays for the next caller."""
        self._arrivals.interrupt()

    # --- the end

    @abstractmethod
    def close(self) -> Deferred[None]:
        """Give everything unacknowledged back, then the connection."""

    # --- inside

    def _gone(self) -> SourceLost:
        """Why it cannot be used."""
        return self.failed or SourceLost(ProviderUnavailable("the link's source is closed"))

    async def _quiet(self) -> None:
        """Wait until the provider has done what was asked; an error is its loss."""
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

    def _end(self) -> bool:
        """Stop arrivals, and fail waits.

        :returns: whether the connection is broken.
        """
        self._closed = True
        broken = self.failed is not None
        self.failed = self._gone()
        self._arrivals.fail(self.failed)
        return broken

    def _give_back(self, broken: bool) -> Deferred[None]:
        session, self._session = self._session, None
        lease, self._lease = self._lease, None
        if session is not None:
            session.close()
        return succeed(None) if lease is None else lease.give_back(broken)


class Source(LinkSource[Session]):
    """A source whose messages are acknowledged by themselves."""

    def __init__(
        self, reactor: Any, link: Link, destination: Destination, lost: Callable[[SourceLost], None]
    ) -> None:
        arrivals = Arrivals(reactor, link.batch_time_ms, link.batch_octets, alone=True)
        super().__init__(link, destination, arrivals, lost)
        self._size: Final = link.batch_size
        self._octets: Final = link.batch_octets
        self._started = False
        self._consumer: Consumer | None = None
        #: Delivered and not settled: messages, and bytes of their bodies.
        self._unsettled = (0, 0)

    async def _connected(self, connection: Connection) -> None:
        """Consume, stopped until :meth:`start`, and wait for the answer.

        Some providers ask for a consumer at once, others at :meth:`start`.
        """
        self._session = connection.session(Mode.CLIENT)
        self._consumer = self._session.consumer(self._subscription, self._deliver, self.lose)
        self._consumer.grant(max(_LEAST_CREDIT, 2 * self._size), 2 * self._octets)
        if self.failed is None:
            await self._quiet()
        if self.failed is not None:
            raise self.failed

    def start(self) -> None:
        """Receive, or go on receiving."""
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

    async def batch(self, size: int) -> Sequence[Received]:
        """Return the next ``size`` messages, in order, or what came in time.

        One that cannot be read comes alone.

        :returns: empty once :meth:`interrupt` was called while waiting.
        :raises SourceLost:
        """
        return await self._arrivals.batch(size)

    def settle(self, batch: Sequence[Received]) -> Deferred[None]:
        """Acknowledge these, and with them all before; receive as many more.

        :returns: fires once the source's provider has made that durable; fails with
            :class:`SourceLost`, as after a failure it is unknown what the provider holds to be
            settled, and how much it may deliver.
        """
        settled: Deferred[None] = Deferred()
        if self.failed is not None or self._session is None or self._consumer is None:
            settled.errback(self._gone())
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
        """Have unsettled deliveries delivered again on the kept connection.

        A topic would give nothing again to another.

        :raises SourceLost:
        """
        if self.failed is not None or self._session is None or self._consumer is None:
            raise self._gone()
        self._arrivals.clear()
        (messages, octets), self._unsettled = self._unsettled, (0, 0)
        try:
            self._session.recover()
            self._consumer.grant(messages, octets)
        except MessagingError as error:
            self.lose(error)
            raise SourceLost(error) from error

    def close(self) -> Deferred[None]:
        return self._give_back(self._end())

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


class XASource(LinkSource[XASession]):
    """A source whose messages come as work of a branch.

    Credit is for one batch and granted when its branch has begun: a JMS provider counts whatever it
    hands over meanwhile as work of that branch.

    :param rm: names its resource manager.
    """

    def __init__(
        self,
        reactor: Any,
        link: Link,
        rm: str,
        destination: Destination,
        lost: Callable[[SourceLost], None],
    ) -> None:
        arrivals = Arrivals(reactor, link.batch_time_ms, link.batch_octets)
        super().__init__(link, destination, arrivals, lost)
        self._batch_octets: Final = link.batch_octets
        #: Names the resource manager.
        self.rm: Final = rm
        #: Whether there is no other consumer that could have what this one gives back.
        self._stays: Final = (
            destination.kind is Kind.TOPIC and self._subscription.durable_name is None
        )
        self._consumer: XAConsumer | None = None
        #: Credit that is granted and not used up.
        self._messages = 0
        self._octets = 0
        #: Whether the consumer is started.
        self._running = False

    @property
    def resource(self) -> XAResource:
        """The resource manager, for this source's session. :raises SourceLost:"""
        if self._session is None or self.failed is not None:
            raise self._gone()
        return self._session.resource()

    async def _connected(self, connection: Connection) -> None:
        """Make a session. Nothing is consumed before :meth:`consume`."""
        self._new_session(connection)
        if self.failed is not None:
            raise self.failed

    def _new_session(self, connection: Connection) -> None:
        self._messages = self._octets = 0
        self._running = False
        self._consumer = None
        self._session = connection.xa_session()

    async def renew(self) -> None:
        """Go on after a branch was rolled back.

        What was handed over, and the credit that was left, is void.

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
            assert self._lease is not None
            self._new_session(self._lease.connection)
            self.consume()
        except MessagingError as error:
            self.lose(error)
            raise SourceLost(error) from error

    def keep(self) -> bool:
        """Go on after a failure that was not this end's, without reconnecting.

        Every branch is rolled back, and to connect anew would lose what that gave back: see
        :meth:`renew`.

        :returns: False where it would not; nothing was done then, and it is to be closed.
        """
        if self.failed is None and self._stays:
            self._arrivals.clear()
            self._withdraw()
            return True
        return False

    def _withdraw(self) -> None:
        """Stop a consumer that has credit left, so that it gives no more.

        A consumer that stays must not give more than the next batch may have.
        """
        if self._consumer is not None:
            self._consumer.withdraw()
        self._messages = 0

    def consume(self) -> None:
        """Make a consumer, if there is not one yet.

        Call it only after the resource manager has finished what was prepared there. A broker may
        hand messages to a consumer ahead of all credit, and those of a branch that is rolled back
        later would come behind them.

        :raises MessagingError: of :meth:`Session.consumer`.
        :raises SourceLost:
        """
        if self._consumer is not None:
            return
        session = self._session
        if session is None or self.failed is not None:
            raise self._gone()

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
        """Wait for the provider's answer to :meth:`consume`.

        :raises SourceLost: it refuses.
        """
        await self._quiet()
        if self.failed is not None:
            raise self.failed
        self.accepted = True

    async def batch(self, size: int) -> Sequence[Received]:
        """Return the messages of a begun branch, ``size`` at most, in order.

        There may be fewer, if no more arrive in time. No others come before this is called again.

        :returns: empty where :meth:`interrupt` was called before one had come.
        :raises SourceLost:
        """
        consumer = self._consumer
        if self.failed is not None or consumer is None:
            raise self._gone()
        messages, octets = size - self._messages, self._batch_octets - self._octets
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
        """Close the consumer, and wait until the provider has its messages back.

        The next consumer would get what is behind those first.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
            await self._quiet()

    def acknowledge(self, batch: Sequence[Received]) -> None:
        """Settle these, with the branch. :raises SourceLost:"""
        if self.failed is not None or self._consumer is None:
            raise self._gone()
        try:
            self._consumer.acknowledge_through(batch[-1].number)
        except MessagingError as error:
            self.lose(error)
            raise SourceLost(error) from error

    @deferred
    async def close(self) -> None:
        broken = self._end()
        if not broken:
            await self._given_back()
        await self._give_back(broken)
