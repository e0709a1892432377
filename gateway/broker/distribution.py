"""Hands waiting messages to consumers, fairly and as far as they have credit, and takes back what they could not keep.

A queue is one distribution, and so is each subscription of a topic. What differs between them (what settling a message means, where a dead one
comes from) is theirs.

Owns fairness, credit, selectors at delivery, and how often each message was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from gateway.broker.backlog import Backlog
from gateway.broker.store.interface import Batch
from gateway.messaging.dead import DeadReason
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.broker import Broker
    from gateway.broker.consumer import EmbeddedConsumer
    from gateway.messaging.redelivery import RedeliveryPolicy

#: Messages handed out by one destination in one turn; others come between.
MOST_IN_A_TURN: Final = 1_000
#: Messages read back from the store at once.
BLOCK: Final = 500
#: A sender that outruns the consumers is slowed when this part of a backlog's share of memory is full, until only that part is, but
#: not longer than a moment at a time: reading messages back from the store costs more than waiting does.
_SLOW_DOWN: Final = 4
_LET_GO: Final = 8
_MOMENT_MS: Final = 50


class Source(Protocol):
    """What a consumer receives from."""

    def mark(self) -> None:
        """Something changed: look at the end of the turn whether anything can be handed out."""

    def settle(self, messages: Sequence[Message]) -> None:
        """These were taken for good."""

    def release(self, messages: Sequence[Message]) -> None:
        """These are being taken: their rows go in the batch that gathers now. The first half of :meth:`settle`."""

    def settled(self, messages: Sequence[Message]) -> None:
        """These, which were released, are taken. The second half."""

    def unrelease(self, messages: Sequence[Message], batch: Batch) -> None:
        """The batch in which these were released was undone: they keep their rows, and are not taken."""

    def give_back(self, messages: Sequence[Message]) -> None:
        """These were not taken: deliver them again, in order."""

    def reject(
        self, messages: Sequence[Message], delay_ms: int | None, dead: DeadReason | None, policy: RedeliveryPolicy | None
    ) -> None:
        """A consumer could not take these."""

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """The consumer receives no more."""


class Distribution:
    """Messages that wait, and consumers that want them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.backlog = Backlog(broker.memory, broker.spills)
        self.consumers: list[EmbeddedConsumer] = []
        #: Deliveries that came to nothing, by seq; empty for nearly every message.
        self.tried: dict[int, int] = {}
        #: Rejected messages that wait for their pause to end, by seq.
        self.delayed: dict[int, Message] = {}
        #: Owner in the store's redelivery rows: 0 for a queue.
        self.owner = 0
        self._selective = 0
        self._turn_of = 0
        self._marked = False
        #: Senders that wait a moment for the consumers to catch up.
        self._slowed: list[Callable[[], None]] = []
        #: Handing out is paused, by an operator.
        self.paused = False

    # --- what differs

    def settle(self, messages: Sequence[Message]) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def release(self, messages: Sequence[Message]) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def settled(self, messages: Sequence[Message]) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def unrelease(self, messages: Sequence[Message], batch: Batch) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def use_policy(self) -> RedeliveryPolicy:
        """The redelivery policy of the destination."""
        raise AssertionError("a distribution is a queue or a subscription")

    def bury(self, messages: Sequence[Message], reason: DeadReason, comment: str) -> None:
        """Messages that wait no longer and are not outstanding are dead: to the dead message queue, and settle them here."""
        raise AssertionError("a distribution is a queue or a subscription")

    # --- consumers

    def join(self, consumer: EmbeddedConsumer) -> None:
        self.consumers.append(consumer)
        if consumer.selector is not None:
            self._selective += 1
        self.mark()

    def leave(self, consumer: EmbeddedConsumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            if consumer.selector is not None:
                self._selective -= 1

    # --- handing out

    def mark(self) -> None:
        if not self._marked:
            self._marked = True
            self.broker.turn.dispatch(self._dispatch)

    def _dispatch(self) -> None:
        self._marked = False
        backlog = self.backlog
        if not backlog.waiting or self.paused:
            return
        if self._selective:
            self._dispatch_selective()
        else:
            ready = [consumer for consumer in self.consumers if consumer.ready()]
            if ready:
                if len(ready) == 1:
                    consumer = ready[0]
                    octets = -1 if consumer.octets is None else consumer.octets
                    run, expired = backlog.take(min(consumer.credit, MOST_IN_A_TURN), octets, self.broker.turn.now_ms)
                    if run:
                        self._hand(consumer, run)
                else:
                    most = min(sum(consumer.credit for consumer in ready), MOST_IN_A_TURN)
                    run, expired = backlog.take(most, -1, self.broker.turn.now_ms)
                    if run:
                        self._deal(ready, run)
                if expired:
                    self.bury(expired, DeadReason.EXPIRED, "expired before it was delivered")
                if run and backlog.waiting:
                    self.mark()
        self._read_back()
        if self._slowed and not self._outrun_by(_LET_GO):
            self._let_go()

    def outrun(self) -> bool:
        """Whether messages come faster than the consumers take them, so that memory fills with them."""
        return bool(self.consumers) and self._outrun_by(_SLOW_DOWN)

    def slow_down(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` when the consumers have caught up, or after a moment: a sender is slowed, not stopped."""
        self._slowed.append(resume)
        if len(self._slowed) == 1:
            self.broker.schedule.at(self.broker.turn.refresh() + _MOMENT_MS, self._let_go)

    def _outrun_by(self, part: int) -> bool:
        return self.backlog.window_octets > self.broker.memory.share // part

    def _let_go(self) -> None:
        self._slowed, resumed = [], self._slowed
        for resume in resumed:
            self.broker.turn.dispatch(resume)

    def _deal(self, ready: list[EmbeddedConsumer], run: list[Message]) -> None:
        """Deal messages out like cards, beginning with whoever is next."""
        count = len(ready)
        start = self._turn_of % count
        self._turn_of = start + len(run)
        ready = ready[start:] + ready[:start]
        share = -(-len(run) // count)
        octets = sum([len(message.body) for message in run])
        if all(consumer.credit >= share and (consumer.octets is None or consumer.octets > octets) for consumer in ready):
            for place, consumer in enumerate(ready):
                hand = run[place::count]
                if hand:
                    self._hand(consumer, hand)
            return
        hands: list[list[Message]] = [[] for _ in ready]
        room = [consumer.octets if consumer.octets is not None else 1 << 62 for consumer in ready]
        place = 0
        for index, message in enumerate(run):
            for _ in range(count):
                if len(hands[place]) < ready[place].credit and room[place] > 0:
                    break
                place = (place + 1) % count
            else:
                self.backlog.give_back(run[index:])
                break
            hands[place].append(message)
            room[place] -= len(message.body)
            place = (place + 1) % count
        for consumer, hand in zip(ready, hands, strict=True):
            if hand:
                self._hand(consumer, hand)

    def _hand(self, consumer: EmbeddedConsumer, run: list[Message]) -> None:
        if self.tried:
            attempts = [self.tried.get(message.seq, 0) + 1 for message in run]
            consumer.hand(run, attempts if max(attempts) > 1 else None)
        else:
            consumer.hand(run, None)

    def _dispatch_selective(self) -> None:
        """Some consumer has a selector: each looks at what it has not looked at yet, the one whose turn it is first."""
        now_ms = self.broker.turn.now_ms
        count = len(self.consumers)
        start = self._turn_of % count
        self._turn_of = start + 1
        more = False
        for consumer in self.consumers[start:] + self.consumers[:start]:
            if not consumer.ready():
                continue
            run: list[Message] = []
            expired: list[Message] = []
            most = min(consumer.credit, 64)
            for message in self.backlog.waiting_in_memory():
                priority = message.headers.priority
                if message.seq <= consumer.examined.get(priority, -1):
                    continue
                if len(run) >= most:
                    more = True
                    break
                consumer.examined[priority] = message.seq
                if message.expires and message.expires <= now_ms:
                    expired.append(message)
                elif consumer.wants(message):
                    run.append(message)
            if run or expired:
                self.backlog.pluck({message.seq for message in run} | {message.seq for message in expired})
                if run:
                    self._hand(consumer, run)
                if expired:
                    self.bury(expired, DeadReason.EXPIRED, "expired before it was delivered")
            elif self.backlog.tailed and consumer.selector is not None and not consumer.reading:
                self._search_tail(consumer)
        if more:
            self.mark()

    def _search_tail(self, consumer: EmbeddedConsumer) -> None:
        """What this consumer wants may be behind the window: read on, without taking the window's place."""
        seqs = self.backlog.tail_beyond(consumer.examined, BLOCK)
        if not seqs:
            return
        consumer.reading = True

        def found(messages: Sequence[Message]) -> None:
            consumer.reading = False
            if consumer not in self.consumers:
                return
            run: list[Message] = []
            for message in messages:
                if not consumer.ready() or len(run) >= consumer.credit:
                    break
                consumer.examined[message.headers.priority] = message.seq
                if consumer.wants(message) and self.backlog.pluck_tail(
                    message.headers.priority, message.seq, message.size, message.expires
                ):
                    run.append(message)
            if run:
                self._hand(consumer, run)
            self.mark()

        self.broker.read_back(seqs, found)

    def _read_back(self) -> None:
        seqs = self.backlog.wanted(BLOCK) if self.backlog.tailed else []
        if seqs:
            self.broker.read_back(seqs, self._refilled)

    def _refilled(self, messages: Sequence[Message]) -> None:
        gone = self.backlog.refill(messages)
        if gone:
            self.broker.log.error("{count} messages of {source} could not be read back", count=gone, source=str(self))
        self.mark()

    def sweep(self, now_ms: int) -> None:
        """Give up what has expired and still waits."""
        if not self.backlog.expiring:
            return
        comment = "expired while it waited"
        expired, stored = self.backlog.take_expired(now_ms)
        if expired:
            self.bury(expired, DeadReason.EXPIRED, comment)
        for start in range(0, len(stored), BLOCK):
            self.broker.read_back(stored[start : start + BLOCK], lambda messages: self.bury(messages, DeadReason.EXPIRED, comment))

    # --- taking back

    def give_back(self, messages: Sequence[Message]) -> None:
        """Deliver these again at once, in order; each was tried once more."""
        limit = self.broker.most_rollbacks
        kept: list[Message] = []
        for message in messages:
            count = self._count(message, 0)
            if limit and count > limit:
                self.bury([message], DeadReason.UNDELIVERABLE, f"rolled back {count} times")
            else:
                kept.append(message)
        self._wait_again(kept)

    def reject(
        self, messages: Sequence[Message], delay_ms: int | None, dead: DeadReason | None, policy: RedeliveryPolicy | None
    ) -> None:
        """A consumer could not take these: later again, or dead."""
        rules = policy or self.use_policy()
        again: list[Message] = []
        for message in messages:
            tries = self.tried.get(message.seq, 0) + 1
            pause = rules.delay(tries) if delay_ms is None else delay_ms
            if dead is not None or pause is None:
                self.tried[message.seq] = tries
                reason = dead or DeadReason.UNDELIVERABLE
                self.bury([message], reason, f"refused by its consumer {tries} times")
            elif pause == 0:
                self._count(message, 0)
                again.append(message)
            else:
                due = self.broker.turn.now_ms + pause
                self._count(message, due)
                self.pause(message, due)
        self._wait_again(again)

    def pause(self, message: Message, due_ms: int) -> None:
        """Let an outstanding message wait again, but not before ``due_ms``."""
        self.delayed[message.seq] = message
        self.broker.schedule.at(due_ms, lambda: self._due(message.seq))

    def resume_pause(self, seq: int, due_ms: int) -> None:
        """The same for a message that is in the store only."""
        self.broker.schedule.at(due_ms, lambda: self.broker.read_back([seq], self._wait_again))

    def _due(self, seq: int) -> None:
        message = self.delayed.pop(seq, None)
        if message is not None:
            self._wait_again([message])

    def _wait_again(self, messages: Sequence[Message]) -> None:
        if messages:
            self.backlog.give_back(messages)
            for consumer in self.consumers:
                consumer.examined.clear()
            self.mark()

    def _count(self, message: Message, not_before: int) -> int:
        count = self.tried[message.seq] = self.tried.get(message.seq, 0) + 1
        if message.stored and message.headers.persistent:
            self.broker.commits.redelivery(self.owner, message.seq, count, not_before)
        return count

    def forget_tries(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.tried.pop(message.seq, None)
