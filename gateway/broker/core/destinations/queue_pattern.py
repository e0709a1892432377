"""Consumers of all queues that a pattern covers.

A pattern such as ``orders.>`` covers queues that exist and queues that are created later. Its
consumer has a *member* in each of them, which that queue's dispatch treats as it does any other
consumer: settling, redelivery, transactions, branches and the journal are the member's and its
queue's. What the members have in common is their pattern consumer's: credit, the numbers of
deliveries, whether they are started, and its end.

Members take turns. One whose queue has messages while there is no credit waits behind the others
that do, and new credit goes to the first. Of more credit than one message each waiting queue gets an
equal part.

Temporary queues and those of the broker's own, such as the dead message queue, are covered by no
pattern.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gateway.broker.core.consumers.consumer import (
    FREE,
    ConsumerOwner,
    EmbeddedConsumer,
    undelivered,
    untold,
)
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.virtual_topics import VirtualTopics
from gateway.broker.core.waiting.memory import MEMBER, of_consumer
from gateway.broker.properties.names import OWN, matcher
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import (
    DestinationStopped,
    MessagingError,
    TooManyConsumers,
    UnknownDelivery,
)
from gateway.messaging.inflight import InFlight
from gateway.messaging.message import Message
from gateway.messaging.provider import Consumer, ConsumerSpec, Deliver, Mode, Session
from gateway.messaging.selector.selector import Selector
from gateway.reactor.turn import Turn

#: Members that are given credit in one round; others come between.
_FED: Final = 1_000
#: Consumers that are shown a new queue at once; the others are in later turns.
_SHOWN: Final = 64


class PatternOwner(ConsumerOwner):
    """A session, as its consumers of patterns know it."""

    @abstractmethod
    def remember(self, consumer: EmbeddedConsumer) -> None:
        """A member is one of the session's consumers."""

    @abstractmethod
    def remember_pattern(self, consumer: PatternConsumer) -> None:
        """A closed consumer of a pattern has something outstanding again."""

    @abstractmethod
    def forget_pattern(self, consumer: PatternConsumer) -> None:
        """A consumer of a pattern is closed and has nothing outstanding any more."""


class Member(EmbeddedConsumer):
    """What a pattern's consumer is to one queue.

    Its credit is what the queue may hand out now, from the one time that it is asked whether it is
    ready to the delivery that follows. Its deliveries have the numbers of the whole.
    """

    __slots__ = ("_numbered", "gone_with_queue", "pattern", "queue", "waits")

    def __init__(
        self,
        pattern: PatternConsumer,
        session: ConsumerOwner,
        queue: PhysicalQueue,
        selector: Selector | None,
    ) -> None:
        super().__init__(
            session, queue, pattern.spec, selector, pattern.deliver, pattern.queue_ended
        )
        self.of_pattern = True
        self.pattern: Final = pattern
        self.queue: Final = queue
        #: Its numbers have gaps.
        self._numbered: Final[InFlight[Message]] = InFlight()
        self._ledger = self._numbered
        #: It is among those that wait for their turn.
        self.waits = False
        #: The queue was removed: what it had is settled.
        self.gone_with_queue = False

    def ready(self) -> bool:
        if self.closed:
            return False
        pattern = self.pattern
        credit = pattern.offer(self)
        self.running = pattern.running
        self.credit = credit
        if not credit:
            return False
        self.octets = pattern.octets
        return pattern.unsettled <= FREE or self.session.may_have_more(self)

    def hand(
        self,
        run: list[Message],
        attempts: list[int] | None,
        shown: list[Message] | None = None,
    ) -> None:
        self._next = self.pattern.number(self, run)
        super().hand(run, attempts, shown)

    @property
    def in_memory(self) -> int:
        return self.pattern.unsettled

    def return_outstanding(self, more: Sequence[Message] = ()) -> None:
        if more or len(self._numbered):
            self.pattern.void([number for number, _ in self._numbered.items()])
            super().return_outstanding(more)

    @property
    def gone(self) -> bool:
        # What went with its queue is still to be settled by the user, for nothing.
        return self.closed and not self.gone_with_queue and not self.session.has(self)

    def restore(self, deliveries: Sequence[tuple[int, Message]]) -> None:
        if self.gone_with_queue:
            self.source.redeliver([message for _, message in deliveries])
        else:
            super().restore(deliveries)
        self.pattern.restored([(number, self) for number, _ in deliveries])

    def fail(self, error: MessagingError) -> None:
        self.gone_with_queue = True
        self.pattern.left(self)
        super().fail(error)

    def stop_for_good(self, error: MessagingError) -> None:
        self.pattern.fail(error)

    def _take_on(self, messages: Sequence[Message]) -> None:
        before = self.unsettled
        super()._take_on(messages)
        self.pattern.unsettled += self.unsettled - before

    def _stop_counting(self, messages: Sequence[Message]) -> None:
        before = self.unsettled
        super()._stop_counting(messages)
        self.pattern.unsettled += self.unsettled - before


class PatternConsumer:
    """One consumer of all queues that a pattern covers.

    It is the seam's ``XAConsumer``. Messages of one queue come in its order. A queue that is removed takes what the consumer has of
    it along, and settling that does nothing then; the consumer goes on. Where a queue is stopped, as
    it is damaged in the store, the consumer fails as that of the queue alone would.

    :param may_consume: whether the user may consume from a queue; asked once for each.
    :param patterns: where it is known until it is closed.
    """

    def __init__(
        self,
        session: PatternOwner,
        spec: ConsumerSpec,
        selector: Selector | None,
        may_consume: Callable[[PhysicalQueue], bool],
        deliver: Deliver,
        failed: Callable[[MessagingError], None],
        turn: Turn,
        patterns: QueuePatterns,
    ) -> None:
        self.session: Final = session
        self.spec: Final = spec
        self.selector: Final = selector
        #: What its selector costs, however many queues there are; 0 without one.
        self.cost = 0 if selector is None else selector.cost
        self.closed = False
        #: As a consumer has them, for all queues together.
        self.credit = 0
        self.octets: int | None = None
        self.running = False
        self.unsettled = 0
        self.weight: Final = of_consumer("" if selector is None else selector.text)
        self._matches: Final = matcher(spec.destination.name, spec.none_or_more)
        self._may_consume = may_consume
        self._deliver = deliver
        self._failed = failed
        self._turn: Final = turn
        self._patterns: Final = patterns
        self._members: Final[dict[PhysicalQueue, Member]] = {}
        #: Queues that have as many consumers as they may have.
        self._refused: Final[dict[PhysicalQueue, None]] = {}
        #: Which member has each delivery that is not settled.
        self._outstanding: Final[InFlight[Member]] = InFlight()
        self._next = 1
        #: Members whose queues have messages, in the order in which their turns come.
        self._waiting: Final[deque[Member]] = deque()
        self._feed_is_due = False
        #: The member whose turn it is, and what it may have then.
        self._fed: Member | None = None
        self._share = 0
        #: The member that was found ready last.
        self._latest: Member | None = None

    # --- queues

    def covers(self, queue: Destination) -> bool:
        """Whether the pattern covers a queue of that name."""
        return _covers(self._matches, queue)

    def offer_queue(self, queue: PhysicalQueue) -> None:
        """Consume from the queue from now on, if that is covered and the user may.

        A queue that has as many consumers as it may have is consumed from when one leaves.
        """
        if (
            not self.closed
            and queue not in self._members
            and not queue.removed
            and not queue.damaged
            and self.covers(queue.destination)
            and self._may_consume(queue)
        ):
            self._join(queue)

    def _join(self, queue: PhysicalQueue) -> None:
        member = Member(self, self.session, queue, self.selector)
        try:
            queue.join(member)
        except TooManyConsumers:
            self._refused[queue] = None
            queue.turned_away[self] = self._offered_again
            return
        except DestinationStopped:
            return
        member.weight = MEMBER
        self.session.memory.count_object(member.weight)
        self._members[queue] = member
        self.session.remember(member)
        if queue.dispatch.backlog.waiting:
            # All that wait from the beginning share the first credit.
            self._wait(member)

    def _offered_again(self, queue: PhysicalQueue) -> None:
        self._refused.pop(queue, None)
        self.offer_queue(queue)

    # --- for its members

    def offer(self, member: Member) -> int:
        """Return how many messages a member may be given now.

        :returns: 0 for none; its turn comes.
        """
        if self._can_take:
            if member is self._fed:
                self._latest = member
                return self._share
            if not self._waiting:
                self._latest = member
                return self.credit
        self._wait(member)
        return 0

    def number(self, member: Member, run: list[Message]) -> int:
        """Count a run that a member is given.

        :returns: the number of its first delivery.
        """
        first = self._next
        self._next = first + len(run)
        self.credit -= len(run)
        if self.octets is not None:
            self.octets -= sum([len(message.body) for message in run])
        if self.session.mode is not Mode.AUTO:
            self._outstanding.add(first, [member] * len(run))
        return first

    def deliver(
        self,
        member: Consumer,
        first: int,
        messages: Sequence[Message],
        attempts: Sequence[int] | None,
        /,
    ) -> None:
        """What a member was given is its user's."""
        self._deliver(self, first, messages, attempts)

    def void(self, numbers: Iterable[int]) -> None:
        """A member has given these back."""
        for number in numbers:
            if number in self._outstanding:
                self._outstanding.pop(number)

    def restored(self, deliveries: Sequence[tuple[int, Member]]) -> None:
        """These are outstanding again."""
        if deliveries:
            self._outstanding.restore(deliveries)
        if self.closed:
            # It may have been forgotten, as all was settled.
            self.session.remember_pattern(self)
            for _, member in deliveries:
                if not member.gone_with_queue:
                    self._members[member.queue] = member

    def left(self, member: Member) -> None:
        """The queue of a member was removed.

        What the member had is yet to be settled, for nothing.
        """
        self._members.pop(member.queue, None)
        # It must not keep the queue in memory.
        if member.waits:
            self._waiting.remove(member)
        if member is self._latest:
            self._latest = None

    def queue_ended(self, error: MessagingError) -> None:
        """A queue was removed. The consumer goes on, and that is no failure of it."""

    # --- turns

    @property
    def _can_take(self) -> bool:
        return self.running and self.credit > 0 and (self.octets is None or self.octets > 0)

    def _wait(self, member: Member) -> None:
        if not member.waits:
            member.waits = True
            self._waiting.append(member)
        self._feed_later()

    def _feed_later(self) -> None:
        if self._waiting and self._can_take and not self._feed_is_due:
            self._feed_is_due = True
            self._turn.deliver(self._feed)

    def _feed(self) -> None:
        """Divide the credit among those that wait, and have their queues hand out."""
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), _FED)):
                if not self._can_take:
                    break
                self._share = -(-self.credit // len(waiting))
                member = waiting.popleft()
                member.waits = False
                if member.closed:
                    continue
                self._fed = member
                member.queue.dispatch.hand_out(member.queue)
        finally:
            self._fed = None
            self._feed_is_due = False
        self._feed_later()

    # --- the seam

    def start(self) -> None:
        if not self.closed:
            self.running = True
            self._feed_later()

    def stop(self) -> None:
        self.running = False
        if self._latest is not None:
            # Its queue may be handing out.
            self._latest.running = False
            self._latest = None

    def grant(self, messages: int, octets: int = 0) -> None:
        if messages < 0 or octets < 0:
            raise ValueError(f"credit is not negative: {messages} messages, {octets} octets")
        self.credit += messages
        if octets:
            self.octets = octets + (self.octets or 0)
        self._feed_later()

    def withdraw(self) -> None:
        self.credit = 0

    def acknowledge_through(self, number: int, within: Session | None = None) -> int:
        if number not in self._outstanding:
            raise UnknownDelivery(number)
        numbers = self._outstanding.up_to(number)
        self.acknowledge(numbers, within)
        return len(numbers)

    def acknowledge(self, numbers: Sequence[int], within: Session | None = None) -> None:
        for member, mine in self._by_member(numbers).items():
            if not member.gone_with_queue:
                member.acknowledge(mine, within)
            self.void(mine)
        self._forget_if_over()

    def reject(
        self,
        numbers: Sequence[int],
        delay_ms: int | None = None,
        dead: DeadReason | None = None,
        within: Session | None = None,
    ) -> None:
        for member, mine in self._by_member(numbers).items():
            if not member.gone_with_queue:
                member.reject(mine, delay_ms, dead, within)
            self.void(mine)
        self._forget_if_over()

    def _by_member(self, numbers: Sequence[int]) -> dict[Member, list[int]]:
        """Find who has these.

        :raises UnknownDelivery: for the first that is not outstanding, or comes twice.
        """
        found: dict[Member, list[int]] = {}
        known: set[int] = set()
        for number in numbers:
            if number in known:
                raise UnknownDelivery(number)
            known.add(number)
            found.setdefault(self._outstanding[number], []).append(number)
        return found

    def close(self, requeue: bool = True) -> None:
        if not self.closed:
            self._end()
        for member in list(self._members.values()):
            member.close(requeue)
        if requeue:
            self._members.clear()
            self._outstanding.clear()
            self.session.forget_pattern(self)

    def fail(self, error: MessagingError) -> None:
        """It can receive no more."""
        if not self.closed:
            failed = self._failed
            self.close()
            failed(error)

    def _end(self) -> None:
        self.closed = True
        self.running = False
        self._patterns.remove(self)
        for queue in self._refused:
            queue.turned_away.pop(self, None)
        self._refused.clear()
        self._waiting.clear()
        self._latest = None
        self.session.memory.count_object(-self.weight)
        # As for other consumers: its user refers to it, so it must not refer to its user.
        self._deliver = undelivered
        self._failed = untold
        self._may_consume = _may_not

    def _forget_if_over(self) -> None:
        if self.closed and not len(self._outstanding):
            self._members.clear()
            self.session.forget_pattern(self)

    # --- for the session

    def recovered(self) -> None:
        """All that was outstanding was given back: its numbers are void."""
        self._outstanding.clear()


class QueuePatterns:
    """The consumers of patterns of one broker.

    It costs nothing while there are no such consumers; else each queue that is created is shown to each of them,
    where they are many in several turns.

    :param queues: all that exist.
    :param virtual: the topics that queues have copies of.
    """

    def __init__(
        self, queues: Callable[[], Iterable[PhysicalQueue]], virtual: VirtualTopics
    ) -> None:
        self._queues: Final = queues
        self._virtual: Final = virtual
        self.consumers: Final[dict[PatternConsumer, None]] = {}
        #: New queues, and the consumers that are yet to be shown them.
        self._unshown: Final[deque[tuple[PhysicalQueue, list[PatternConsumer]]]] = deque()
        self._showing = False

    def add(self, consumer: PatternConsumer, make: Callable[[Destination], None]) -> None:
        """Have a consumer consume from what it covers, now and later.

        :param make: makes a queue of a virtual topic for it, if its user may.
        """
        self.consumers[consumer] = None
        for queue in list(self._queues()):
            consumer.offer_queue(queue)
        spec = consumer.spec
        self._virtual.want(consumer, spec.destination.name, spec.none_or_more, make)

    def covered(self, spec: ConsumerSpec) -> list[PhysicalQueue]:
        """Return the queues that a consumer's pattern covers now."""
        matches = matcher(spec.destination.name, spec.none_or_more)
        return [queue for queue in self._queues() if _covers(matches, queue.destination)]

    def remove(self, consumer: PatternConsumer) -> None:
        """It is closed. Idempotent."""
        self.consumers.pop(consumer, None)
        self._virtual.want_no_more(consumer)

    def created(self, queue: PhysicalDestination) -> None:
        """Show a new queue to all: those whose pattern covers it consume from it.

        For a new topic, make the queues that some would have for it.
        """
        if not isinstance(queue, PhysicalQueue):
            self._virtual.make_queues(queue.destination.name)
            return
        consumers = list(self.consumers)
        for consumer in consumers[:_SHOWN]:
            consumer.offer_queue(queue)
        if len(consumers) > _SHOWN:
            self._unshown.append((queue, consumers[_SHOWN:]))
            if not self._showing:
                self._showing = True
                schedule = queue.changes.schedule
                schedule.after(0, lambda: schedule.steps_while_time_is_left(self._show_others()))

    def _show_others(self) -> Iterator[None]:
        try:
            while self._unshown:
                queue, consumers = self._unshown.popleft()
                for start in range(0, len(consumers), _SHOWN):
                    for consumer in consumers[start : start + _SHOWN]:
                        consumer.offer_queue(queue)
                    yield
        finally:
            self._showing = False


def _covers(matches: Callable[[str], bool], queue: Destination) -> bool:
    return not queue.temporary and matches(queue.name) and not queue.name.startswith(OWN)


def _may_not(queue: PhysicalQueue) -> bool:
    """For a consumer that is closed."""
    return False
