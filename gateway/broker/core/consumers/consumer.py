"""A consumer of the embedded broker, its source, and its owner.

Its credit, delivery numbers, and what is outstanding (``messaging.provider.Consumer``).

Owns the deliveries of one consumer until they are settled or given back. Where they came from and
what settling them means is its source's business; when an acknowledgement takes effect is its
session's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from twisted.logger import Logger

from gateway.broker.core.consumers.ledger import CumulativeLedger, Ledger
from gateway.broker.core.consumers.origin import Origin
from gateway.broker.core.waiting.memory import Memory
from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import (
    MessagingError,
    NotSupported,
    ProviderUnavailable,
    TransactionTooLarge,
    UnknownDelivery,
)
from gateway.messaging.inflight import InFlight
from gateway.messaging.message import OVERHEAD, Message
from gateway.messaging.provider import Consumer, ConsumerSpec, Deliver, Mode, Session
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy
from gateway.messaging.selector.selector import Selector

#: Octets that a consumer may have, whatever memory is left.
FREE: Final = 64 * 1024


class Source(Protocol):
    """What a consumer receives from."""

    def wake(self) -> None:
        """Look at the end of the turn whether anything can be handed out."""

    def settle(self, messages: Sequence[Message]) -> None:
        """These were taken for good."""

    def release(self, messages: Sequence[Message]) -> None:
        """Delete the rows of these in the batch that gathers now.

        The first half of :meth:`settle`.
        """

    def settled(self, messages: Sequence[Message]) -> None:
        """Stop counting these: the second half of :meth:`settle`."""

    def end_outstanding(self, messages: Sequence[Message]) -> None:
        """Give up outstanding messages of a source that no longer exists.

        They go to the dead message queue where :attr:`QueueOrSubscription.dmq_comment` says so.
        """

    def redeliver(self, messages: Sequence[Message]) -> None:
        """These were not taken: deliver them again, in order."""

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None:
        """A consumer could not take these."""

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """The consumer receives no more."""


class QueueOrSubscription(Source, Protocol):
    """Where messages wait: a queue, or a subscription of a topic."""

    #: While it is destroyed, the comment for its dead messages; None if they are deleted.
    dmq_comment: str | None

    @property
    def owner(self) -> int:
        """Owner in the store's redelivery rows: 0 for a queue."""

    @property
    def gone(self) -> bool:
        """Whether it was removed.

        Nothing waits here any more, and what comes back is settled.
        """

    def use_policy(self) -> RedeliveryPolicy:
        """The redelivery policy of the destination."""

    def tries(self, seq: int) -> int:
        """How often the message came back."""

    def keeps_count(self, message: Message) -> bool:
        """Whether the store is told how often the message was tried."""

    def examine(self, run: list[Message]) -> list[Message]:
        """Those of a run that are still to be handed out, just before they are."""

    def return_to_backlog(self, messages: Sequence[Message]) -> None:
        """These wait again."""

    def release_stored(self, seqs: Sequence[int]) -> None:
        """Release messages that are in the store only.

        Like :meth:`release`, but by seq; quick for seqs in order.
        """

    def bury(
        self,
        messages: Sequence[Message],
        reason: DeadReason,
        comment: str,
        keeps_unstored: bool = True,
    ) -> None:
        """Send dead messages to the dead message queue, and settle them here.

        They wait no longer and are not outstanding.

        :param keeps_unstored: else those that are not persistent are only settled.
        """

    def stop_counting(self, count: int, octets: int) -> None:
        """The store has lost messages that waited here: they no longer count."""


class Transaction:
    """The work of a session in its open transaction.

    :param memory: where its bytes count; None where they count elsewhere.
    :param most: deliveries that it may have.
    """

    __slots__ = (
        "_memory",
        "_most",
        "acknowledged",
        "acknowledged_count",
        "octets",
        "rejected",
        "rejected_count",
        "sends",
        "sends_octets",
    )

    def __init__(self, memory: Memory | None, most: int) -> None:
        self._memory = memory
        self._most = most
        self.sends: list[Message] = []
        self.sends_octets = 0
        self.acknowledged: list[tuple[EmbeddedConsumer, list[tuple[int, Message]]]] = []
        self.acknowledged_count = 0
        self.rejected: list[Rejected] = []
        self.rejected_count = 0
        #: Octets of all this that count in the broker's memory.
        self.octets = 0

    def acknowledge(
        self, consumer: EmbeddedConsumer, deliveries: list[tuple[int, Message]]
    ) -> None:
        """Deliveries are acknowledged in it.

        :raises TransactionTooLarge: they are another session's, whose consumer has no bound of its
            own, and too many.
        """
        self.acknowledged.append((consumer, deliveries))
        self.acknowledged_count += len(deliveries)
        self._took(consumer, deliveries)

    def reject(
        self,
        consumer: EmbeddedConsumer,
        deliveries: list[tuple[int, Message]],
        delay_ms: int | None,
        dead: DeadReason | None,
    ) -> None:
        """Deliveries are rejected in it.

        :raises TransactionTooLarge: as :meth:`acknowledge`.
        """
        self.rejected.append(Rejected(consumer, deliveries, delay_ms, dead))
        self.rejected_count += len(deliveries)
        self._took(consumer, deliveries)

    def _took(self, consumer: EmbeddedConsumer, deliveries: list[tuple[int, Message]]) -> None:
        self.count_octets(sum([message.weight for _, message in deliveries]))
        if (
            self.acknowledged_count + self.rejected_count > self._most
            and consumer.session.transaction is not self
        ):
            raise TransactionTooLarge("imq.transaction.consumer.maxNumMsgs", self._most)

    def count_octets(self, octets: int) -> None:
        """Count what it has in memory."""
        if self._memory is not None:
            self.octets += octets
            self._memory.transactions += octets

    def stop_counting(self) -> None:
        """Count nothing any more: it is over."""
        if self._memory is not None:
            self._memory.transactions -= self.octets


class ConsumerOwner(ABC):
    """A session, as its consumers know it.

    A class and not a protocol, since compiled code calls its methods directly.
    """

    origin: Origin
    memory: Memory
    mode: Mode
    #: For a session whose transactions are branches: called with what is about to be done in one,
    #: raises if it may not be.
    gate: Callable[[str], None] | None
    #: The open one; empty in a session that is not transacted.
    transaction: Transaction

    @abstractmethod
    def forget(self, consumer: EmbeddedConsumer) -> None:
        """A consumer has nothing outstanding any more and is closed."""

    @abstractmethod
    def has(self, consumer: EmbeddedConsumer) -> bool:
        """Whether the consumer may still have something outstanding."""

    @abstractmethod
    def may_have_more(self, consumer: EmbeddedConsumer) -> bool:
        """Whether there is memory for more deliveries. If not, they come later."""

    @abstractmethod
    def settle(self, consumer: EmbeddedConsumer, messages: Sequence[Message]) -> None:
        """Settle these at the consumer's source; later completions wait for that."""

    @abstractmethod
    def touch_after(self, work: Callable[[], None]) -> None:
        """Do ``work``, and let later completions wait for what it gathered."""

    @abstractmethod
    def sibling(self, session: Session) -> ConsumerOwner | None:
        """The session, if open, of this connection and with commits of its own."""


class EmbeddedConsumer:
    """One consumer. Made by its session.

    :param selector: the parsed selector, where it is looked at on delivery (queues); a topic's
        subscription looks at its own on arrival.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    __slots__ = (
        "_deliver",
        "_failed",
        "_ledger",
        "_memory",
        "_next",
        "closed",
        "cost",
        "credit",
        "ending",
        "handed_ms",
        "mode",
        "octets",
        "of_pattern",
        "origin",
        "running",
        "selector",
        "session",
        "source",
        "spec",
        "unsettled",
        "weight",
    )

    def __init__(
        self,
        session: ConsumerOwner,
        source: Source,
        spec: ConsumerSpec,
        selector: Selector | None,
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
    ) -> None:
        self.session = session
        self.source: Source = source
        self.spec = spec
        self.selector = selector
        #: What its selector costs, wherever it is looked at; 0 without one.
        self.cost = 0
        #: The bytes it takes in memory, counted from the time it has joined its source until it is
        #: closed.
        self.weight = 0
        self.mode = session.mode
        self.origin: Origin = session.origin
        self._deliver = deliver
        self._failed = failed
        self._ledger: Ledger = InFlight() if session.mode is Mode.INDIVIDUAL else CumulativeLedger()
        self._memory = session.memory
        #: Octets of what it has and has not settled, overhead included; what was acknowledged in a
        #: transaction is that one's.
        self.unsettled = 0
        self._next = 1
        #: It was started, and not stopped or closed.
        self.running = False
        self.closed = False
        #: Messages that may still be handed to it.
        self.credit = 0
        #: When its source handed it something last, epoch milliseconds; 0 for never. Credit ends by
        #: that, so it is also since when one without credit has had none.
        self.handed_ms = 0
        #: Octets that may, None when they are not counted.
        self.octets: int | None = None
        #: It is one of several, in one queue each, of a consumer of a pattern.
        self.of_pattern = False
        #: Called when it is about to leave its source; None for nothing.
        self.ending: Callable[[EmbeddedConsumer], None] | None = None

    # --- for the source

    def ready(self) -> bool:
        """Whether something can be handed to it."""
        return (
            self.running
            and self.credit > 0
            and (self.octets is None or self.octets > 0)
            and (self.unsettled <= FREE or self.session.may_have_more(self))
        )

    def wants(self, message: Message) -> bool:
        return self.selector is None or self.selector.matches(message)

    def hand(
        self,
        run: list[Message],
        attempts: list[int] | None,
        shown: list[Message] | None = None,
    ) -> None:
        """Deliver a run. Its length is within the credit.

        :param shown: what its user sees of them; None: these themselves.
        """
        first = self._next
        self._next = first + len(run)
        self.credit -= len(run)
        self.origin.delivered += len(run)
        if self.octets is not None:
            self.octets -= sum([len(message.body) for message in run])
        self._ledger.add(first, run)
        self._take_on(run)
        try:
            self._deliver(self, first, run if shown is None else shown, attempts)
        except Exception:  # noqa: BLE001
            # Its user broke the contract. What it was given stays outstanding, and others get
            # theirs.
            self._log.failure("a consumer of {source} failed on delivery", source=str(self.source))
            return
        if self.mode is Mode.AUTO and not self.closed:
            self._settle(self._ledger.clear())

    def end_of_browse(self) -> None:
        """There is nothing more to browse."""
        self._deliver(self, self._next, [], None)

    def fail(self, error: MessagingError) -> None:
        """Its source is gone."""
        if not self.closed:
            failed = self._failed
            self._end()
            self.session.forget(self)
            messages = self._ledger.clear()
            self._stop_counting(messages)
            self.source.end_outstanding(messages)
            failed(error)

    def stop_for_good(self, error: MessagingError) -> None:
        """Take nothing more from its source.

        What it has and has not settled goes back there.
        """
        if not self.closed:
            failed = self._failed
            self.close()
            failed(error)

    @property
    def gone(self) -> bool:
        """Whether it is closed and forgotten by its session.

        Then nothing can be outstanding.
        """
        return self.closed and not self.session.has(self)

    @property
    def in_memory(self) -> int:
        """Octets in memory of what its user has and has not settled."""
        return self.unsettled

    @property
    def outstanding(self) -> int:
        """Deliveries not settled."""
        return len(self._ledger)

    @property
    def oldest(self) -> Message | None:
        """The delivery not settled that was made first."""
        return self._ledger.first()

    def unsettled_messages(self) -> list[Message]:
        """The deliveries not settled, in order. For operators: it copies the list."""
        return self._ledger.messages()

    # --- the seam

    def start(self) -> None:
        if not self.closed:
            self.running = True
            self.source.wake()

    def stop(self) -> None:
        self.running = False

    def grant(self, messages: int, octets: int = 0) -> None:
        if messages < 0 or octets < 0:
            raise ValueError(f"credit is not negative: {messages} messages, {octets} octets")
        self.credit += messages
        if octets:
            self.octets = octets + (self.octets or 0)
        if self.running:
            self.source.wake()

    def withdraw(self) -> None:
        self.credit = 0

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        if self._transaction(within) is None:
            messages = self._ledger.through(number)
            self._stop_counting(messages)
            self._settle(messages)
            return len(messages)
        numbers = self._ledger.up_to(number)
        if not numbers or numbers[-1] != number:
            raise UnknownDelivery(number)
        self.acknowledge(numbers, within)
        return len(numbers)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        transaction = self._transaction(within)
        messages = self._ledger.take(numbers)
        self._stop_counting(messages)
        if transaction is None:
            self._settle(messages)
        else:
            transaction.acknowledge(self, list(zip(numbers, messages, strict=True)))

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        transaction = self._transaction(within)
        if within is None and self.session.gate is not None:
            raise NotSupported("rejection in a branch")
        messages = self._ledger.take(numbers)
        self._stop_counting(messages)
        if transaction is None:
            self.session.touch_after(
                lambda: self.source.reject(messages, delay_ms, dead, self.spec.redelivery)
            )
        else:
            transaction.reject(self, list(zip(numbers, messages, strict=True)), delay_ms, dead)

    def close(self, requeue: bool = True) -> None:
        if not self.closed:
            self._end()
            self.source.leave(self)
        if requeue:
            self.session.forget(self)
            self.session.touch_after(self.return_outstanding)

    def _end(self) -> None:
        """Deliver and report nothing more.

        Its user refers to it, so it must not refer to its user: only a garbage collection would
        free the two.
        """
        self.closed = True
        self.running = False
        if self.ending is not None:
            self.ending(self)
            self.ending = None
        self._memory.count_object(-self.weight)
        self._deliver = undelivered
        self._failed = untold

    # --- for the session

    def return_outstanding(self, more: Sequence[Message] = ()) -> None:
        """Return everything outstanding to the source.

        The numbers of these deliveries are void.

        :param more: what was acknowledged in a transaction that is undone.
        """
        outstanding = self._ledger.clear()
        self._stop_counting(outstanding)
        messages = sorted([*outstanding, *more], key=lambda message: message.seq)
        if messages:
            self.source.redeliver(messages)

    def restore(self, deliveries: Sequence[tuple[int, Message]]) -> None:
        """Acknowledgements of these were undone: they are outstanding again."""
        self._ledger.restore(deliveries)
        self._take_on([message for _, message in deliveries])

    def _take_on(self, messages: Sequence[Message]) -> None:
        """Count messages that it has from now on.

        One that others have too is in memory once.
        """
        if self.mode is Mode.AUTO:
            return
        own = more = 0
        for message in messages:
            weight = message.weight
            own += weight
            more += OVERHEAD if message.out else weight
            message.out += 1
        self.unsettled += own
        self._memory.unacknowledged += more
        if own > FREE and self._memory.octets_left() < 0:
            self._memory.report_excess()

    def _stop_counting(self, messages: Sequence[Message]) -> None:
        """Stop counting messages that it no longer has."""
        if self.mode is Mode.AUTO:
            return
        own = less = 0
        for message in messages:
            weight = message.weight
            own += weight
            message.out -= 1
            less += OVERHEAD if message.out else weight
        self.unsettled -= own
        self._memory.unacknowledged -= less

    def _settle(self, messages: Sequence[Message]) -> None:
        self.session.settle(self, messages)
        if self.closed and not self._ledger:
            self.session.forget(self)

    def _transaction(self, within: Session | None) -> Transaction | None:
        if within is None:
            if self.mode is not Mode.TRANSACTED:
                return None
            if self.session.gate is not None:
                self.session.gate("acknowledgement")
            return self.session.transaction
        joined = self.session.sibling(within)
        if joined is None or joined.mode is not Mode.TRANSACTED:
            raise ProviderUnavailable(
                "an acknowledgement can only join a transacted session of its own connection"
            )
        return joined.transaction


def undelivered(
    consumer: Consumer, first: int, messages: Sequence[Message], attempts: Sequence[int] | None, /
) -> None:
    """For a consumer that is closed: nothing is handed to it."""


def untold(error: MessagingError) -> None:
    """For a consumer that is closed: it has ended already."""


class Rejected(NamedTuple):
    """Deliveries that were rejected in a transaction.

    It stands below the class that it names, which compiled code needs here.
    """

    consumer: EmbeddedConsumer
    deliveries: list[tuple[int, Message]]
    delay_ms: int | None
    dead: DeadReason | None
