"""One batch after another from a link's source to its target: the order of the steps, and what is
done when one of them fails.

Owns the batch under way, so that after a failure the link goes on with exactly what is not done
yet. What is done to one message is
:mod:`bridge.link.transfer`'s; connections are :mod:`bridge.link.source`'s and
:mod:`bridge.link.target`'s; when to try again is the link's.

A batch, where a message may arrive twice but never be lost (``DUPLICATES_OK``)::

    receive · expiry · reply-to · transformer · tag · send, durable · the dead to their queues · acknowledge, durable · log

and where it may be lost but never arrive twice (``AT_MOST_ONCE``)::

    receive · expiry · reply-to · transformer · tag · acknowledge, durable · send · the dead to their queues · log
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from twisted.logger import Logger

from bridge.config.model import QualityOfService
from bridge.dead.chain import DeadMessage, NotBuried
from bridge.link.batch import SOURCE_LOST, STOPPED, Batch, Item, LinkObserver
from bridge.link.errors import BatchRefused, SourceLost, TargetLost
from bridge.link.fair_share import FairShare
from bridge.link.sending import Sending
from bridge.link.source import Source
from bridge.link.target import Target
from bridge.link.transfer import (
    Branched,
    CannotBeRead,
    Dead,
    NotTransferred,
    Outcome,
    Sides,
    Transfer,
)
from bridge.once.poison import MOST, Poison
from bridge.status import Doing, LinkCounters
from gateway.instance import crashpoints
from gateway.messaging.clocks import wall_ms
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.message import Message, Unreadable


class Buries(Protocol):
    """The dead message queues of the bridge."""

    async def bury(self, dead: DeadMessage) -> None: ...


class Journey(Protocol):
    """Who wants to know what was moved."""

    def transferred(self, moved: Sequence[tuple[Message, Message]]) -> None:
        """A batch is done with on both sides. :param moved: each message that was moved, as
        received and as sent.
        """


class Pump:
    """Moves the messages of one link, from its start to its stop.

    :param clock: the reactor. :param link: its name, for dead messages. :param quality: not
        ONCE_AND_ONLY_ONCE.
    :param observer: is told each step of each batch.
    :param refused: told why the target refuses how many messages, which are dead.
    """

    def __init__(
        self,
        clock: Any,
        link: str,
        quality: QualityOfService,
        transfer: Transfer,
        dead_queues: Buries,
        counters: LinkCounters,
        journey: Journey,
        log: Logger,
        observer: LinkObserver,
        refused: Callable[[MessagingError, int], None] = lambda cause, count: None,
    ) -> None:
        self._clock: Final = clock
        self._link: Final = link
        self._acknowledges_first: Final = quality is QualityOfService.AT_MOST_ONCE
        self._transfer: Final = transfer
        self._share: Final = FairShare(clock)
        self._sending: Final = Sending(
            link, transfer, counters, self._acknowledges_first, self._share, clock, refused
        )
        self._dead_queues: Final = dead_queues
        self._counters: Final = counters
        self._journey: Final = journey
        self._log: Final = log
        self._observer: Final = observer
        #: Which messages could not be read, and how often.
        self._unread: Final = Poison(1)
        self._batch: Batch | None = None
        self._source: Source | None = None
        self._halting = False
        #: What it waits for, and since when.
        self.doing = Doing.NOTHING
        self.doing_since_ms = 0

    @property
    def in_flight(self) -> int:
        """Messages taken from the source and not acknowledged."""
        batch = self._batch
        return 0 if batch is None or batch.acknowledged else len(batch.received)

    def times(self) -> list[int]:
        """The timestamps of those messages."""
        batch = self._batch
        return (
            []
            if batch is None or batch.acknowledged
            else [received.message.timestamp for received in batch.received]
        )

    async def run(self, source: Source, target: Target, sides: Sides) -> None:
        """Move messages until :meth:`halt`, which lets the batch under way be finished; not at all
        as long as that holds.

        May be called again after a failure: it goes on with the batch under way if ``source`` is
        still the one it came by.

        :raises SourceLost: :raises TargetLost: :raises NotBuried: :raises BatchRefused: these may
            be over when it is called again.
        :raises LinkStops: that would fail again.
        :raises MessagingError: a destination could not be looked up.
        """
        self._source = source
        if self._batch is not None and self._batch.source is not source:
            self._void(self._batch, SOURCE_LOST)
        try:
            while True:
                if self._batch is None:
                    if self._halting:
                        return
                    self._do(Doing.RECEIVING)
                    received = await source.batch()
                    if not received:
                        continue
                    self._check_read(source, received[0].message)
                    self._batch = Batch(source, received, self._observer.received(received))
                    self._counters.received += len(received)
                    crashpoints.hit(crashpoints.AFTER_RECEIVE)
                await self._move(self._batch, target, sides)
                if isinstance(self._batch.received[0].message, Unreadable):
                    self._unread.transferred()
                self._batch = None
        finally:
            self._source = None
            self._do(Doing.NOTHING)

    def release(self) -> None:
        """Batches may be begun again, after :meth:`halt`."""
        self._halting = False

    def halt(self) -> None:
        """Begin no other batch; :meth:`run` returns when the one under way is done with."""
        self._halting = True
        if self._source is not None:
            self._source.interrupt()

    def forget(self) -> None:
        """The batch under way will not be finished: its source is closed, and delivers it again to
        whom it likes.

        What is being done about it at this moment ends as it ends; nothing else is begun.
        """
        if self._batch is not None:
            self._void(self._batch, STOPPED)

    def _void(self, batch: Batch, reason: str) -> None:
        self._batch = None
        if not batch.acknowledged:
            batch.observer.given_back(batch.items, reason)
        batch.void = True
        self._counters.possible_duplicates += batch.doubtful

    def _check(self, batch: Batch) -> None:
        """After each wait: whether there is still something to be done. :raises
        ProviderUnavailable: the link was stopped meanwhile.
        """
        if batch.void:
            raise ProviderUnavailable("the link was stopped")

    def _check_read(self, source: Source, message: Message) -> None:
        """Have a message that could not be read delivered again, some times.

        Most that cannot be read once never will be. But of the body of a dead one nothing is left,
        or octets that nobody knows how to read; and what looks like a damaged message may be a
        connection that breaks while a body is on its way, or memory that is short.

        :raises BatchRefused: it is at its source still, and is tried again later. :raises
            SourceLost:
        """
        if isinstance(message, Unreadable):
            error = CannotBeRead(message)
            times = self._unread.refused([message], BridgeDeadReason.SEND_FAILURE, str(error))
            if times < MOST:
                source.recover()
                raise BatchRefused(error, times, MOST)

    def _do(self, doing: Doing) -> None:
        if doing is not self.doing:
            self.doing = doing
            self.doing_since_ms = wall_ms(self._clock)

    # --- one batch

    async def _move(self, batch: Batch, target: Target, sides: Sides) -> None:
        self._do(Doing.TRANSFORMING)
        for received in batch.received[len(batch.items) :]:
            began = self._clock.seconds()
            outcome = self._transfer.receive(received.message, sides)
            if isinstance(outcome, Branched):
                outcome = await self._transfer.branch(outcome, sides)
                self._check(batch)
            item = Item(received, outcome, len(batch.items))
            batch.items.append(item)
            self._judge(item, outcome, sides)
            self._share.worked_since(began)
            if self._share.due:
                await self._share.give()
        batch.observer.judged(batch.items)
        if self._acknowledges_first:
            await self._move_at_most_once(batch, target, sides)
        else:
            self._do(Doing.SENDING)
            await self._sending.send(batch, target, sides)
            self._check(batch)
            await self._bury(batch)
            await self._acknowledge(batch, sides)
        self._check(batch)
        self._counters.batches += 1
        # 8
        began = self._clock.seconds()
        self._journey.transferred(
            [
                (item.received.message, item.outgoing)
                for item in batch.items
                if item.sent and item.outgoing is not None
            ]
        )
        self._share.worked_since(began)

    async def _move_at_most_once(self, batch: Batch, target: Target, sides: Sides) -> None:
        """The other order: nothing is sent that the source could give out again, and nothing is
        tried twice.
        """
        if not batch.acknowledged:
            if not target.ready:
                # If it is known to be away nothing need be lost.
                await target.open()
                self._check(batch)
            crashpoints.hit(crashpoints.BEFORE_ACKNOWLEDGE)
            # Where that fails nothing was sent yet, and it comes again.
            await self._settled(batch)
        self._do(Doing.SENDING)
        try:
            await self._sending.send(batch, target, sides)
        except TargetLost as lost:
            self._sending.give_up_rest(batch, lost.cause, sides)
            await self._bury_as_can_be(batch)
            raise
        if batch.void:
            # It is nowhere else any more.
            self._sending.give_up_rest(batch, ProviderUnavailable("the link was stopped"), sides)
        await self._bury_as_can_be(batch)

    # --- the dead

    def _judge(self, item: Item, outcome: Outcome, sides: Sides) -> None:
        """Count what the sequence made of a message, and note whom to bury."""
        if isinstance(outcome, NotTransferred):
            self._counters.not_transferred += 1
        elif isinstance(outcome, Dead):
            if outcome.reason is BridgeDeadReason.MESSAGE_EXPIRED:
                self._counters.expired += 1
            elif outcome.reason is BridgeDeadReason.TRANSFORM_FAILURE:
                self._counters.transform_failures += 1
            item.give_up(self._link, outcome, sides)

    async def _bury(self, batch: Batch) -> None:
        """:raises NotBuried: those before it are buried, and will not be again."""
        buried: list[tuple[Item, DeadMessage]] = []
        try:
            for item in batch.items:
                dead = item.dead
                if dead is not None:
                    self._do(Doing.BURYING)
                    crashpoints.hit(crashpoints.BEFORE_BURY)
                    await self._dead_queues.bury(dead)
                    crashpoints.hit(crashpoints.AFTER_BURY)
                    item.dead = None
                    buried.append((item, dead))
                    self._counters.dead[dead.reason] = self._counters.dead.get(dead.reason, 0) + 1
                    if not batch.acknowledged:
                        self._check(batch)
        finally:
            batch.observer.buried(buried)

    async def _bury_as_can_be(self, batch: Batch) -> None:
        """The same of what its source has let go already: what no queue takes is in the log, and
        lost.
        """
        while True:
            try:
                return await self._bury(batch)
            except NotBuried as error:
                lost = next(item for item in batch.items if item.dead is not None)
                if lost.dead is not None and lost.dead.reason is BridgeDeadReason.MESSAGE_EXPIRED:
                    batch.observer.expired(lost)
                lost.dead = None
                self._log.error(
                    "link {link}: message {id} is lost, as its quality of service allows: {error}",
                    link=self._link,
                    id=lost.received.message.message_id,
                    error=error,
                )

    # --- acknowledging

    async def _settled(self, batch: Batch) -> None:
        self._do(Doing.ACKNOWLEDGING)
        written = batch.observer.written()
        if written is not None:
            await written
            self._check(batch)
        began = self._clock.seconds()
        settling = batch.source.settle(batch.received)
        self._share.worked_since(began)
        crashpoints.hit(crashpoints.AFTER_ACKNOWLEDGE)
        await settling
        batch.acknowledged = True
        batch.observer.settled()
        self._counters.acknowledged += len(batch.received)
        crashpoints.hit(crashpoints.AFTER_SETTLEMENT)

    async def _acknowledge(self, batch: Batch, sides: Sides) -> None:
        """Step 7; what cannot be acknowledged is dead too, though it has arrived, and comes
        again.
        """
        crashpoints.hit(crashpoints.BEFORE_ACKNOWLEDGE)
        try:
            await self._settled(batch)
        except SourceLost as error:
            self._check(batch)
            sent = [item for item in batch.items if item.sent]
            self._counters.possible_duplicates += len(sent)
            # It never will: the source is lost, and gives it out again.
            batch.acknowledged = True
            for item in sent:
                item.give_up(
                    self._link,
                    Dead(BridgeDeadReason.ACK_FAILURE, str(error.cause), item.current),
                    sides,
                )
            self._log.error(
                "link {link}: {count} messages were sent and could not be acknowledged: {error}",
                link=self._link,
                count=len(sent),
                error=error.cause,
            )
            try:
                await self._bury(batch)
            finally:
                if self._batch is batch:
                    self._batch = None
            raise
