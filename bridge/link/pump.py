"""Moves the messages of one link, batch by batch, from start to stop.

A *batch* is what the source delivered within its time, as many messages as the link allows at most
(:class:`Batch`). Every batch takes these steps:

transform
    Each message goes through expiry, reply-to, transformer and tag (:mod:`bridge.link.transfer`).
    It is then to be sent, dead, or not to be transferred.
send
    The target takes what is to be sent.
bury
    The dead messages go to the dead message queues.
settle
    The source forgets the batch.
report
    Log lines and counters (step 8 of the sequence).

The pump owns the loop, the batches under way, and the steps that are the same for all links:
transform, bury and report. Its :class:`Delivery` owns send and settle, their order, and what
happens when one of them fails:

=====================  ============================  ==========================  ==========================
\\                      acknowledge after sending     acknowledge before sending  one XA transaction
=====================  ============================  ==========================  ==========================
quality of service     DUPLICATES_OK; also ONCE...   AT_MOST_ONCE                ONCE_AND_ONLY_ONCE
                       with duplicate ids
order                  send, bury, settle            settle, send, bury          send, bury, settle,
                                                                                 prepare, decide, commit
target refuses a       it is dead                    it is dead                  all roll back; it is found,
message                                                                          tried alone, then dead
target lost            the batch is kept, and        what was not sent is dead   all roll back
                       continued when reconnected
no dead message queue  the batch is kept, likewise   the log says so; it is      all roll back
takes it                                             lost
source lost before     the batch is void: delivered  the same; nothing was sent  all roll back
settling               again, so what was sent may
                       arrive twice
source lost while      what was sent is dead, too    the same as before          recovery finishes what was
settling               (ACK_FAILURE)                                             decided
pause                  the batch is finished         the batch is finished       the transaction is finished
stop, not in time      the batch is void             what was not sent is dead   all roll back, unless it
                                                                                 was decided
=====================  ============================  ==========================  ==========================

When to try again after a failure is for the link to decide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from twisted.logger import Logger

from bridge.dead.chain import DeadMessage
from bridge.link.arrivals import Received
from bridge.link.balance import Balance, UnderWay
from bridge.link.balance_mark import Fate
from bridge.link.errors import SourceLost
from bridge.link.journal import STOPPED, BatchLines, LinkLines
from bridge.link.pace import LinkPace
from bridge.link.source import LinkSource
from bridge.link.status import Doing, LinkCounters, OnceBy
from bridge.link.target import TargetSession
from bridge.link.transfer import (
    Dead,
    Item,
    LinkEnds,
    NeedsJava,
    NeedsLookUp,
    NotTransferred,
    Outcome,
    ToSend,
    Transfer,
    Undecided,
)
from bridge.xa.coordinator import Transaction
from gateway.instance import crashpoints
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import Message
from gateway.messaging.transformer import Transformed, TransformFailed
from gateway.reactor.clocks import wall_ms
from gateway.reactor.deferreds import FairShare


class Buries(Protocol):
    """The dead message queues of the bridge."""

    async def bury(self, dead: DeadMessage) -> None:
        """:raises NotBuried: no queue takes it."""


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that were received together and are settled together.

    :param source: the connection they came by. When it ends the batch is void, as the provider
        delivers the messages again.
    :param lines: its lines in the journal.
    """

    source: LinkSource[Any]
    received: Sequence[Received]
    lines: BatchLines
    items: list[Item] = field(default_factory=list)
    #: That the source has acknowledged it, or never will.
    acknowledged: bool = False
    #: That one message of it was refused, it is unknown which, and others may have arrived: each is
    #: sent by itself.
    singly: bool = False
    #: It counts in the link's balance as held.
    held: bool = True
    #: What the balance knows of it, in case of a crash.
    under_way: UnderWay | None = None

    @property
    def doubtful(self) -> int:
        """How many of it the target has, while the source may give them out again."""
        return 0 if self.acknowledged else sum(item.sent for item in self.items)


class Delivery(ABC):
    """How the batches of one link are sent and settled.

    ``source`` is what :meth:`source` returned; the target is the delivery's own.
    """

    #: What it relies on to transfer each message once; None where it does not.
    once_by: OnceBy | None
    #: Whether a batch that fails is rolled back as a whole; else what was done of it stays done.
    rolls_back = False
    target: TargetSession[Any]

    @property
    def transaction(self) -> Transaction | None:
        """The transaction to be shown; None without one."""
        return None

    @abstractmethod
    def source(
        self, destination: Destination, lost: Callable[[SourceLost], None]
    ) -> LinkSource[Any]:
        """Return the source, not connected yet."""

    @abstractmethod
    async def connected(self, source: Any) -> None:
        """Prepare both connected ends before a message is moved.

        :raises SourceLost:
        :raises TargetLost: this end is not as it must be.
        :raises MessagingError: it can never be.
        """

    @abstractmethod
    async def resume(self, pump: Pump, source: Any) -> None:
        """A run begins. :raises MessagingError: as :meth:`Pump.run`."""

    @abstractmethod
    async def deliver(self, pump: Pump, source: Any, sides: LinkEnds) -> None:
        """Take the next batch, or the one that is kept, through all its steps.

        Returns when the next may begin, or without a batch when the source was interrupted.

        :raises MessagingError: as :meth:`Pump.run`.
        """

    @abstractmethod
    async def drain(self, pump: Pump, source: Any) -> BaseException | None:
        """Wait for what goes on beside :meth:`deliver`, as a run ends.

        Never fails.

        :returns: why that has failed; None where it has not.
        """

    def check(self, pump: Pump) -> None:
        """Check for a stop or a failure after each wait.

        :raises ProviderUnavailable: the link was stopped meanwhile.
        :raises BaseException: why something beside :meth:`deliver` has failed.
        """
        pump.check()

    async def failed(self, source: Any) -> bool:
        """A run has failed, and the link has not been stopped.

        :returns: whether the source must be connected anew though it was not lost.
        """
        return False


class Pump:
    """Moves the messages of one link.

    :param clock: the reactor.
    :param link: its name, for dead messages.
    :param transferred: is given each batch that is done on both sides: its messages, as received
        and as sent.
    :param lines: its lines in the journal.
    :param balance: its balance.
    :param pace: how fast it may take messages.
    """

    def __init__(
        self,
        clock: Any,
        link: str,
        delivery: Delivery,
        transfer: Transfer,
        dead_queues: Buries,
        counters: LinkCounters,
        transferred: Callable[[Sequence[tuple[Message, Message]]], None],
        log: Logger,
        lines: LinkLines,
        balance: Balance,
        pace: LinkPace,
    ) -> None:
        self._pace: Final = pace
        self.balance: Final = balance
        self.clock: Final = clock
        self.link: Final = link
        self.delivery: Final = delivery
        #: Whether what was done of a batch stays done when the batch fails.
        self._keeps_parts: Final = not delivery.rolls_back
        self.transfer: Final = transfer
        self.counters: Final = counters
        self.log: Final = log
        #: Of the reactor's time.
        self.share: Final = FairShare(clock)
        self._dead_queues: Final = dead_queues
        self._transferred: Final = transferred
        self._lines: Final = lines
        self._source: LinkSource[Any] | None = None
        #: The batches that were taken from the source and are not done, the oldest first.
        self.under_way: Final[list[Batch]] = []
        #: Whether no other batch is to be begun.
        self.halting = False
        #: Whether what is under way will not be finished.
        self.stopped = False
        #: What it waits for, and since when.
        self.doing = Doing.NOTHING
        self.doing_since_ms = 0

    # --- for the link

    async def run(self, source: LinkSource[Any], sides: LinkEnds) -> None:
        """Move messages until :meth:`halt`, which lets a batch be finished.

        If it was halted before, no batch is begun.

        May be called again after a failure. A batch that is kept is continued if ``source`` is
        still the one it came by.

        :raises SourceLost:
        :raises TargetLost:
        :raises NotBuried:
        :raises BatchRefused:
        :raises NotDecided: these may be over when it is called again.
        :raises LinkStops:
        :raises TransformerUnusable: these would fail again.
        :raises MessagingError: a destination could not be looked up; the coordinator's log cannot
            be written.
        """
        delivery = self.delivery
        self._source = source
        failed: BaseException | None = None
        try:
            await delivery.resume(self, source)
            if self.transfer.java is not None:
                await self.transfer.java.ready(source, delivery.target)
            while not self.halting or (self.under_way and self._keeps_parts):
                await delivery.deliver(self, source, sides)
        finally:
            failed = await delivery.drain(self, source)
            self._source = None
            self.do(Doing.NOTHING)
        if failed is not None:
            raise failed

    @property
    def in_flight(self) -> int:
        """Messages taken from the source and not settled."""
        return sum([len(batch.received) for batch in self.under_way if not batch.acknowledged])

    def times(self) -> list[int]:
        return [
            received.message.timestamp
            for batch in self.under_way
            if not batch.acknowledged
            for received in batch.received
        ]

    def release(self) -> None:
        """Batches may be begun again, after :meth:`halt`."""
        self.halting = False

    def halt(self) -> None:
        """Begin no other batch; :meth:`run` returns when those under way are done."""
        self.halting = True
        self.interrupt()

    def stop(self) -> None:
        """Close the source: what is not decided is delivered again to a consumer.

        What is being done at this moment ends as it ends; nothing else is begun.
        """
        self.stopped = True
        if self.transfer.java is not None:
            self.transfer.java.close()
        if self._keeps_parts:
            for batch in list(self.under_way):
                self.void(batch, STOPPED)

    # --- for the delivery

    def interrupt(self) -> None:
        self._pace.interrupt()
        if self._source is not None:
            self._source.interrupt()

    def check(self) -> None:
        """:raises ProviderUnavailable: the link was stopped meanwhile."""
        if self.stopped:
            raise ProviderUnavailable("the link was stopped")

    def do(self, doing: Doing) -> None:
        """Show what is being done from now on."""
        if doing is not self.doing:
            self.doing = doing
            self.doing_since_ms = wall_ms(self.clock)

    async def pace(self) -> None:
        """Wait until the link's rate allows a whole batch.

        Returns early upon :meth:`interrupt`.
        """
        while (room := self.balance.room(self._pace.size)) is not None:
            await room
        if not self._pace.allows():
            self.do(Doing.PACING)
            await self._pace.wait()

    def begin(self, source: LinkSource[Any], received: Sequence[Received]) -> Batch:
        """A batch was taken from the source: it is under way."""
        batch = Batch(source, received, self._lines.received(received))
        self.under_way.append(batch)
        self.counters.received += len(received)
        self._pace.took(
            len(received),
            sum([len(each.message.body) for each in received]) if self._pace.counts_octets else 0,
        )
        self.balance.taken(received)
        crashpoints.hit("link.after-receive")
        return batch

    def ended(self, batch: Batch) -> None:
        """A batch is under way no longer. Idempotent."""
        if batch in self.under_way:
            self.under_way.remove(batch)

    def void(self, batch: Batch, reason: str) -> None:
        """The source delivers this batch again. :param reason: for the observer."""
        self.ended(batch)
        if not batch.acknowledged:
            batch.lines.given_back(batch.items, reason)
            self.unconfirmed(batch)
        else:
            self.settled(batch)
        self.doubled(batch.doubtful)

    def sends(self, batch: Batch) -> None:
        """Before a batch is sent that the source may give out again. Idempotent."""
        if batch.under_way is None:
            batch.under_way = self.balance.sending(sum(item.to_be_sent for item in batch.items))

    def asks(self, batch: Batch, unsent: Fate) -> None:
        """The source is about to be asked to forget a batch. Idempotent.

        :param unsent: what becomes of messages that are not sent yet.
        """
        if batch.under_way is None:
            batch.under_way = self.balance.asking(batch.items, unsent)

    def returned(self, batch: Batch) -> None:
        """Count a batch that the source has again. Idempotent."""
        if batch.held:
            batch.held = False
            self.balance.returned(len(batch.received), batch.under_way)

    def unconfirmed(self, batch: Batch) -> None:
        """Count a batch that the source has again, or has forgotten. Idempotent."""
        if batch.under_way is None or self.delivery.once_by is None:
            self.returned(batch)
        elif batch.held:
            batch.held = False
            self.balance.unconfirmed(len(batch.received), batch.under_way)

    def settled(self, batch: Batch) -> None:
        """Count a batch that is over for good. Idempotent."""
        if batch.held:
            batch.held = False
            self.balance.settled(
                batch.items,
                len(batch.received),
                batch.under_way,
                exactly=self.delivery.once_by is not None,
            )

    def doubled(self, count: int) -> None:
        """Count messages that may be at the target twice."""
        self.counters.possible_duplicates += count
        if count and self.delivery.once_by is None:
            self.balance.doubled(count)

    async def transform(
        self,
        batch: Batch,
        sides: LinkEnds,
        known_dead: Callable[[Message], Dead | None] | None = None,
    ) -> None:
        """Do steps 1 to 6 for the messages of a batch that have not had them.

        :param known_dead: says which messages are dead already.
        :raises LinkStops:
        :raises MessagingError: see :class:`~bridge.link.transfer.Transfer`.
        """
        self.do(Doing.TRANSFORMING)
        seconds, receive, share, items = (
            self.clock.seconds,
            self.transfer.outcome_of,
            self.share,
            batch.items,
        )
        left = batch.received[len(items) :]
        java = None
        if self.transfer.java is not None and left:
            java = await self._asked_java(batch.source, left, sides, known_dead)
        for received in left:
            began = seconds()
            outcome: Undecided | None = None
            if java is not None:
                outcome = next(java)()
            elif known_dead is not None:
                outcome = known_dead(received.message)
            if outcome is None:
                outcome = receive(received.message, sides)
            if isinstance(outcome, NeedsLookUp):
                outcome = await self.transfer.branch(outcome, sides)
                self.delivery.check(self)
            assert not isinstance(outcome, NeedsJava), "it was not asked"
            item = Item(received, outcome, len(items))
            items.append(item)
            if not isinstance(outcome, ToSend):
                if self._keeps_parts:
                    self.count(outcome)
                if isinstance(outcome, Dead):
                    item.give_up(self.link, outcome, sides)
            share.worked_since(began)
            if share.due:
                await share.give()

    async def _asked_java(
        self,
        source: LinkSource[Any],
        left: Sequence[Received],
        sides: LinkEnds,
        known_dead: Callable[[Message], Dead | None] | None,
    ) -> Iterator[Callable[[], Undecided]]:
        """Have the transformer in Java transform these, together.

        :returns: for each what gives its outcome, which may raise :class:`LinkStops`.
        :raises MessagingError: as :meth:`transform`.
        """
        java, share = self.transfer.java, self.share
        assert java is not None
        first: list[Undecided] = []
        for received in left:
            began = share.now()
            dead = None if known_dead is None else known_dead(received.message)
            first.append(dead or self.transfer.outcome_of(received.message, sides))
            share.worked_since(began)
            if share.due:
                await share.give()
        asked = [one.message for one in first if isinstance(one, NeedsJava)]
        results: Iterator[Transformed | TransformFailed] = iter(())
        if asked:
            names = sides.source, sides.target
            properties = self.transfer.for_transformer
            target = self.delivery.target
            results = iter(await java.transform(asked, source, target, names, properties))
            self.delivery.check(self)

        def outcome_of(one: Undecided) -> Callable[[], Undecided]:
            if isinstance(one, NeedsJava):
                return partial(self.transfer.transformed, one, next(results), sides)
            return lambda: one

        return iter([outcome_of(one) for one in first])

    def count(self, outcome: Outcome) -> None:
        """Count what the sequence made of a message, once that is final."""
        if isinstance(outcome, NotTransferred):
            self.counters.not_transferred += 1
        elif isinstance(outcome, Dead):
            if outcome.reason is BridgeDeadReason.MESSAGE_EXPIRED:
                self.counters.expired += 1
            elif outcome.reason is BridgeDeadReason.TRANSFORM_FAILURE:
                self.counters.transform_failures += 1

    async def bury(self, dead: DeadMessage) -> None:
        """Have a dead message queue take this one. :raises NotBuried:"""
        self.do(Doing.BURYING)
        crashpoints.hit("link.before-bury")
        await self._dead_queues.bury(dead)
        crashpoints.hit("link.after-bury")

    def count_dead(self, dead: DeadMessage) -> None:
        self.counters.dead[dead.reason] = self.counters.dead.get(dead.reason, 0) + 1

    def report(self, batch: Batch) -> None:
        """Step 8: a batch is done on both sides."""
        self.counters.batches += 1
        began = self.clock.seconds()
        self._transferred(
            [
                (item.received.message, item.outgoing)
                for item in batch.items
                if item.sent and item.outgoing is not None
            ]
        )
        self.share.worked_since(began)
