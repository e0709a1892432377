"""Delivers by acknowledgement: source and target are each told by itself.

A message may arrive twice but is never lost (``DUPLICATES_OK``)::

    receive · transform · send, durable · bury · acknowledge, durable · report

or it may be lost but never arrives twice (``AT_MOST_ONCE``)::

    receive · transform · acknowledge, durable · send · bury · report

The first, with a duplicate id on each message and a target that drops what it has already, is also
one of the ways to transfer once and only once.

Where source and target have one store, the first does not wait for the acknowledgement before it
takes the next batch. The store makes changes durable in the order in which they were asked for, so
what the next batch sends is never there without the acknowledgement of this one. Hence a crash
doubles the messages of one batch at most, as where it waits; and the two share a sync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from bridge.config.model import Link, QualityOfService
from bridge.dead.chain import DeadMessage, NotBuried
from bridge.link.balance_mark import Fate
from bridge.link.delivery.poison import MOST, Poison
from bridge.link.delivery.run_sender import RunSender, give_up
from bridge.link.errors import BatchRefused, SourceLost, TargetLost
from bridge.link.journal import SOURCE_LOST
from bridge.link.pump import Batch, Delivery, Pump
from bridge.link.source import Source
from bridge.link.status import Doing, OnceBy
from bridge.link.target import Target
from bridge.link.transfer import CannotBeRead, Dead, Item, LinkEnds
from gateway.instance import crashpoints
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message, Unreadable
from gateway.reactor.deferreds import shield


class Acknowledge(Delivery):
    """The delivery of one link.

    :param one_store: whether source and target make their changes durable in one order.
    :param once_by: DUPLICATE_IDS where messages are marked with them, else None.
    :param refused: is told why the target refuses how many messages, which are dead.
    :param check_connected: raises what either side lacks, once both are connected.
    """

    def __init__(
        self,
        reactor: Any,
        link: Link,
        target: Target,
        one_store: bool,
        once_by: OnceBy | None,
        refused: Callable[[MessagingError, int], None],
        check_connected: Callable[[], None],
    ) -> None:
        self.once_by = once_by
        self.target: Target = target
        self._reactor: Final = reactor
        self._link: Final = link
        self._first: Final = link.quality_of_service is QualityOfService.AT_MOST_ONCE
        self._sender: Final = RunSender(self._first, refused)
        self._check_connected: Final = check_connected
        #: Whether a batch may be sent while the one before is being acknowledged.
        self._overlaps: Final = one_store and not self._first
        #: The batch that is being acknowledged beside the next one, and the end of that; never fails.
        self._settling: Batch | None = None
        self._settled: Deferred[None] = succeed(None)
        #: Why the first that has failed so in this run did.
        self._failed: BaseException | None = None
        #: Which messages could not be read, and how often.
        self._unread: Final = Poison(1)

    def source(self, destination: Destination, lost: Callable[[SourceLost], None]) -> Source:
        return Source(self._reactor, self._link, destination, lost)

    async def connected(self, source: Source) -> None:
        self._check_connected()

    async def resume(self, pump: Pump, source: Source) -> None:
        """Have the source deliver. A batch that came by another source is void."""
        source.start()
        for batch in list(pump.under_way):
            if batch.source is not source:
                pump.void(batch, SOURCE_LOST)
        pump.balance.recovered()

    async def deliver(self, pump: Pump, source: Source, sides: LinkEnds) -> None:
        kept = [batch for batch in pump.under_way if batch is not self._settling]
        if kept:
            [batch] = kept
        elif pump.halting:
            pump.do(Doing.ACKNOWLEDGING)
            await self._before()
            return
        else:
            await pump.pace()
            self._check_before()
            if pump.halting:
                return
            pump.do(Doing.RECEIVING)
            received = await source.batch(self._at_once(pump))
            self._check_before()
            if not received:
                return
            self._check_read(source, received[0].message)
            batch = pump.begin(source, received)
        await pump.transform(batch, sides)
        batch.lines.judged(batch.items)
        if self._first:
            await self._settle_and_send(pump, batch, source, sides)
            self._done(pump, batch)
        else:
            await self._send_and_settle(pump, batch, source, sides)

    def _at_once(self, pump: Pump) -> int:
        """How many messages to take for a batch.

        A link whose batches wait until they are full has no smaller ones.
        """
        size = self._link.batch_size
        return size if self._link.batch_time_ms < 0 else pump.share.at_once(size)

    def _done(self, pump: Pump, batch: Batch) -> None:
        """:raises ProviderUnavailable: the link was stopped meanwhile."""
        pump.settled(batch)
        pump.check()
        pump.report(batch)
        if isinstance(batch.received[0].message, Unreadable):
            self._unread.transferred()
        pump.ended(batch)

    async def drain(self, pump: Pump, source: Source) -> BaseException | None:
        source.stop()
        await self._settled
        failed, self._failed = self._failed, None
        return failed

    async def _before(self) -> None:
        """Wait until the batch before is over.

        :raises BaseException: why it is not done.
        """
        await shield(self._settled)
        self._check_before()

    def _check_before(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _check_read(self, source: Source, message: Message) -> None:
        """Have a message that could not be read delivered again, some times.

        Most that cannot be read once never will be. But a dead one has no body any more, or bytes
        that cannot be interpreted; and what looks like a damaged message may be a connection that
        breaks while a body is on its way, or memory that is short.

        :raises BatchRefused: it is still at its source, and is tried again later.
        :raises SourceLost:
        """
        if isinstance(message, Unreadable):
            error = CannotBeRead(message)
            times = self._unread.refused([message], BridgeDeadReason.SEND_FAILURE, str(error))
            if times < MOST:
                source.recover()
                raise BatchRefused(error, times, MOST)

    # --- DUPLICATES_OK

    async def _send_and_settle(
        self, pump: Pump, batch: Batch, source: Source, sides: LinkEnds
    ) -> None:
        pump.do(Doing.SENDING)
        if self.once_by is None:
            pump.sends(batch)
        await self._sender.send(pump, batch, self.target, sides)
        try:
            # A dead message queue may be elsewhere, and must not have messages of this one as well.
            await self._before()
            pump.check()
            await self._bury(pump, batch)
            crashpoints.hit("link.before-acknowledge")
            settling = await self._settle(pump, batch, source)
        except SourceLost as error:
            await self._not_settled(pump, batch, error, sides)
        if not self._overlaps:
            await self._forgotten(pump, batch, settling, sides)
            return

        def failed(failure: Failure) -> None:
            self._failed = failure.value
            # The next one may wait for messages.
            pump.interrupt()

        self._settling = batch
        self._settled = Deferred.fromCoroutine(self._forgotten(pump, batch, settling, sides))
        self._settled.addErrback(failed)

    async def _forgotten(
        self, pump: Pump, batch: Batch, settling: Deferred[None], sides: LinkEnds
    ) -> None:
        """The batch is done once the source has forgotten it."""
        try:
            await self._confirmed(pump, batch, settling)
        except SourceLost as error:
            await self._not_settled(pump, batch, error, sides)
        self._done(pump, batch)

    async def _not_settled(
        self, pump: Pump, batch: Batch, error: SourceLost, sides: LinkEnds
    ) -> NoReturn:
        pump.check()
        await self._bury_unacknowledged(pump, batch, error, sides)
        raise error

    async def _bury_unacknowledged(
        self, pump: Pump, batch: Batch, error: SourceLost, sides: LinkEnds
    ) -> None:
        """Bury what was sent and cannot be acknowledged: it comes again."""
        sent = [item for item in batch.items if item.sent]
        pump.doubled(len(sent))
        pump.unconfirmed(batch)
        # It never will be: the source is lost, and delivers it again.
        batch.acknowledged = True
        for item in sent:
            dead = Dead(BridgeDeadReason.ACK_FAILURE, str(error.cause), item.current)
            item.give_up(pump.link, dead, sides)
        pump.log.error(
            "link {link}: {count} messages were sent and could not be acknowledged: {error}",
            link=pump.link,
            count=len(sent),
            error=error.cause,
        )
        try:
            await self._bury(pump, batch)
        finally:
            pump.ended(batch)

    # --- AT_MOST_ONCE

    async def _settle_and_send(
        self, pump: Pump, batch: Batch, source: Source, sides: LinkEnds
    ) -> None:
        """Settle, then send: nothing can come again, nothing is tried twice."""
        if not batch.acknowledged:
            if not self.target.ready:
                # If it is known to be away nothing need be lost.
                await self.target.open()
                pump.check()
            crashpoints.hit("link.before-acknowledge")
            # If that fails nothing was sent yet, and the batch comes again.
            await self._confirmed(pump, batch, await self._settle(pump, batch, source))
        pump.do(Doing.SENDING)
        try:
            await self._sender.send(pump, batch, self.target, sides)
        except TargetLost as lost:
            self._give_up_rest(pump, batch, lost.cause, sides)
            await self._bury_or_lose(pump, batch)
            raise
        if pump.stopped:
            # It is nowhere else any more.
            self._give_up_rest(pump, batch, ProviderUnavailable("the link was stopped"), sides)
        await self._bury_or_lose(pump, batch)

    def _give_up_rest(
        self, pump: Pump, batch: Batch, error: MessagingError, sides: LinkEnds
    ) -> None:
        give_up(pump, [item for item in batch.items if item.to_be_sent], error, sides)

    async def _bury_or_lose(self, pump: Pump, batch: Batch) -> None:
        """Bury what its source has forgotten.

        What no queue takes is in the log, and lost.
        """
        while True:
            try:
                return await self._bury(pump, batch)
            except NotBuried as error:
                lost = next(item for item in batch.items if item.dead is not None)
                if lost.dead is not None and lost.dead.reason is BridgeDeadReason.MESSAGE_EXPIRED:
                    batch.lines.expired(lost)
                lost.dead = None
                lost.lost = True
                pump.log.error(
                    "link {link}: message {id} is lost, as its quality of service allows: {error}",
                    link=pump.link,
                    id=lost.received.message.message_id,
                    error=error,
                )

    # --- both

    async def _bury(self, pump: Pump, batch: Batch) -> None:
        """:raises NotBuried: those before it are buried, and will not be again."""
        buried: list[tuple[Item, DeadMessage]] = []
        try:
            for item in batch.items:
                dead = item.dead
                if dead is not None:
                    await pump.bury(dead)
                    item.dead = None
                    buried.append((item, dead))
                    pump.count_dead(dead)
                    if not batch.acknowledged:
                        pump.check()
        finally:
            batch.lines.buried(buried)

    async def _settle(self, pump: Pump, batch: Batch, source: Source) -> Deferred[None]:
        """Have the source forget the batch; for :meth:`_confirmed`."""
        pump.do(Doing.ACKNOWLEDGING)
        written = batch.lines.written()
        if written is not None:
            # What was received and sent is to be known whatever becomes of this process.
            await written
            pump.check()
        if self._first or self.once_by is not None:
            pump.asks(batch, Fate.LOST if self._first else Fate.OUT)
        began = pump.clock.seconds()
        settling = source.settle(batch.received)
        pump.share.worked_since(began)
        crashpoints.hit("link.after-acknowledge")
        return settling

    async def _confirmed(self, pump: Pump, batch: Batch, settling: Deferred[None]) -> None:
        """Wait until the source has forgotten the batch. :raises SourceLost:"""
        await settling
        batch.acknowledged = True
        batch.lines.settled()
        pump.counters.acknowledged += len(batch.received)
        crashpoints.hit("link.after-settlement")
