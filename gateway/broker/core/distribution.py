"""Hands waiting messages to consumers, fairly and as far as they have credit, and takes back what
they could not keep.

A queue is one distribution, and so is each subscription of a topic. What differs between them (what
settling a message means, where a dead one comes from) is theirs.

Owns fairness, credit, pauses before another try, and how often each message was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from twisted.logger import Logger

from gateway.broker.core.backlog import Backlog
from gateway.broker.core.cursor import Cursor
from gateway.broker.core.pace import Pace
from gateway.broker.core.selection import Looking, Selection
from gateway.broker.durability.rows import BLOCK
from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import DestinationStopped
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.core.memory import Memory
    from gateway.broker.core.physical import Physical
    from gateway.broker.core.source import Receiver
    from gateway.broker.durability.commit import GroupCommit
    from gateway.broker.schedule import Schedule
    from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy

#: Messages handed out by one destination in one turn; others come between.
MOST_IN_A_TURN: Final = 1_000

#: How long the wall clock is believed before it is looked at again, in milliseconds.
_LOOK_MS: Final = 10_000


class DistributionChanges(Looking, Protocol):
    """What a distribution needs of :class:`gateway.broker.core.changes.Changes`, which says what the
    verbs mean.
    """

    memory: Memory
    schedule: Schedule
    commits: GroupCommit
    spills: bool
    most_rollbacks: int

    def delivered(
        self,
        source: Distribution,
        consumer: Receiver,
        run: Sequence[Message],
        attempts: list[int] | None,
    ) -> None: ...

    def returned(self, source: Distribution, messages: Sequence[Message], reason: str) -> None: ...

    def removed(self, source: Distribution, messages: Sequence[Message]) -> None: ...

    def removed_stored(self, source: Distribution, seqs: Sequence[int]) -> None: ...


class Distribution:
    """Messages that wait, and consumers that want them."""

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, changes: DistributionChanges) -> None:
        self.changes: DistributionChanges = changes
        self.backlog = Backlog(changes.memory, changes.spills)
        self.consumers: list[Receiver] = []
        #: Deliveries that came to nothing, by seq; empty for nearly every message.
        self.tried: dict[int, int] = {}
        #: Rejected messages that wait for their pause to end, by seq.
        self.delayed: dict[int, Message] = {}
        #: The same for messages that are in the store only since a restart: their sizes, by seq.
        self.resting: dict[int, int] = {}
        #: Owner in the store's redelivery rows: 0 for a queue.
        self.owner = 0
        self._selection = Selection()
        #: Index of the consumer whose turn it is.
        self._turn_of = 0
        self._marked = False
        #: Senders that outrun the consumers.
        self.pace = Pace(changes.turn, changes.schedule, changes.memory, self.backlog)
        #: Browsers that wait for what is being read back.
        self._readers: list[Callable[[], None]] = []
        #: Messages that have expired or were refused, and are being read or buried, slice by slice:
        #: they wait no longer, but still count.
        self.dying = 0
        #: Messages that prepared branches have acknowledged: nobody has them, nobody is given them,
        #: and they still count.
        self.locked = 0
        #: Handing out is paused, by an operator.
        self.paused = False
        #: It is being destroyed and what it has goes to the dead message queue, with this comment;
        #: None: nothing goes there.
        self.burial: str | None = None
        #: A selector is to be asked, and that waits for time.
        self.held_up = False
        #: Why nothing is handed out any more: a message that waits here is damaged in the store.
        self.halted: DestinationStopped | None = None

    # --- what differs

    def settle(self, messages: Sequence[Message]) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def release(self, messages: Sequence[Message]) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def release_stored(self, seqs: Sequence[int]) -> None:
        """The same as :meth:`release` for messages that are in the store only; quick for seqs in
        order.
        """
        raise AssertionError("a distribution is a queue or a subscription")

    def settled(self, messages: Sequence[Message]) -> None:
        raise AssertionError("a distribution is a queue or a subscription")

    def use_policy(self) -> RedeliveryPolicy:
        """The redelivery policy of the destination."""
        raise AssertionError("a distribution is a queue or a subscription")

    def bury(self, messages: Sequence[Message], reason: DeadReason, comment: str) -> None:
        """Messages that wait no longer and are not outstanding are dead: to the dead message queue,
        and settle them here.
        """
        raise AssertionError("a distribution is a queue or a subscription")

    def keeps_count(self, message: Message) -> bool:
        """Whether the store is told how often the message was tried."""
        raise AssertionError("a distribution is a queue or a subscription")

    def lost(self, count: int, octets: int) -> None:
        """The store has lost messages that waited here: they no longer count."""
        raise AssertionError("a distribution is a queue or a subscription")

    @property
    def named(self) -> Physical | None:
        """The destination that it is, or that it names; None for a pattern, or where that is
        gone.
        """
        raise AssertionError("a distribution is a queue's or a subscription's")

    @property
    def gone(self) -> bool:
        """Whether it was removed: nothing waits here any more, and what comes back is settled."""
        raise AssertionError("a distribution is a queue or a subscription")

    # --- consumers

    def halt(self, error: DestinationStopped) -> None:
        """Hand out nothing more, whatever comes back, and end the consumers."""
        if self.halted is None:
            self.halted = error
            for consumer in list(self.consumers):
                consumer.stop_for_good(error)
            self._readers, waiting = [], self._readers
            for look in waiting:
                look()

    def join(self, consumer: Receiver) -> None:
        if self.halted is not None:
            raise self.halted
        self.consumers.append(consumer)
        if consumer.selector is not None:
            self._selection.cursors[consumer] = Cursor(self.backlog)
        self.mark()

    def leave(self, consumer: Receiver) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._selection.cursors.pop(consumer, None)

    # --- handing out

    def mark(self) -> None:
        if not self._marked:
            self._marked = True
            self.changes.turn.dispatch(self._dispatch)

    def _dispatch(self) -> None:
        self._marked = False
        backlog = self.backlog
        if backlog.waiting and not self.paused and not self.held_up and self.halted is None:
            if self._selection.cursors:
                self._selection.dispatch(self, self._in_turn())
            else:
                ready = [consumer for consumer in self.consumers if consumer.ready()]
                if ready:
                    self._dispatch_plain(ready)
            if backlog.behind:
                self._read_back()
        self.pace.look()

    def hold_up(self) -> None:
        """The time for selectors is used up: hand nothing out before there is more."""
        if not self.held_up:
            self.held_up = True
            self.changes.slices.wait(self._go_on)

    def _go_on(self) -> None:
        self.held_up = False
        self._dispatch()

    def _dispatch_plain(self, ready: list[Receiver]) -> None:
        backlog = self.backlog
        if len(ready) == 1:
            consumer = ready[0]
            octets = -1 if consumer.octets is None else consumer.octets
            run, expired = backlog.take(
                min(consumer.credit, MOST_IN_A_TURN), octets, self.changes.turn.now_ms
            )
            if run:
                self.hand(consumer, run)
        else:
            most = min(sum([consumer.credit for consumer in ready]), MOST_IN_A_TURN)
            run, expired = backlog.take(most, -1, self.changes.turn.now_ms)
            if run:
                self._deal(run)
        if expired:
            self.bury(expired, DeadReason.EXPIRED, "expired before it was delivered")
        if (run or expired) and backlog.waiting:
            self.mark()

    def _deal(self, run: list[Message]) -> None:
        """Deal messages out like cards, beginning with whoever is next."""
        ready = [consumer for consumer in self._in_turn() if consumer.ready()]
        count = len(ready)
        share = -(-len(run) // count)
        octets = sum([len(message.body) for message in run])
        if all(
            consumer.credit >= share and (consumer.octets is None or consumer.octets > octets)
            for consumer in ready
        ):
            hands = [run[place::count] for place in range(count)]
            place = len(run) % count
        else:
            hands, place = self._deal_singly(ready, run)
        self._turn_of = self.consumers.index(ready[place])
        for consumer, hand in zip(ready, hands, strict=True):
            if hand and consumer.running:
                self.hand(consumer, hand)
            elif hand:
                # Another one's delivery has closed or stopped it.
                self._wait_again(hand)

    def _deal_singly(
        self, ready: list[Receiver], run: list[Message]
    ) -> tuple[list[list[Message]], int]:
        """Deal to consumers who may not have room for their share. :returns: their hands, and the
        place of the next.
        """
        count = len(ready)
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
        return hands, place

    def _in_turn(self) -> list[Receiver]:
        start = self._turn_of % len(self.consumers)
        self._turn_of = start + 1
        return self.consumers[start:] + self.consumers[:start]

    def hand(self, consumer: Receiver, run: list[Message]) -> None:
        """Deliver what was taken out of the backlog."""
        self.pace.handed(len(run))
        attempts = [self.tried.get(message.seq, 0) + 1 for message in run] if self.tried else None
        if attempts is not None and max(attempts) == 1:
            attempts = None
        self.changes.delivered(self, consumer, run, attempts)
        consumer.hand(run, attempts)

    # --- the store

    def _read_back(self) -> None:
        if self.changes.memory.used >= self.changes.memory.most and not (
            self.consumers or self._readers
        ):
            return
        seqs = self.backlog.wanted(BLOCK)
        if seqs:
            self.changes.rows.read_back(seqs, partial(self._refilled, seqs))

    def _refilled(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        if self.halted is not None:
            # One of them is damaged. All stay where they are, and nothing more is read.
            self.backlog.unread()
        else:
            self.not_found(*self.backlog.refill(seqs, messages))
            self.mark()
        self._readers, waiting = [], self._readers
        for look in waiting:
            look()

    def after_reading(self, look: Callable[[], None]) -> None:
        """Call ``look`` when what is being read back is in memory."""
        self._readers.append(look)

    def read_for(self, look: Callable[[], None]) -> None:
        """If anything is in the store only, have some of it read back, and call ``look`` then."""
        if self.backlog.behind and look not in self._readers:
            self._readers.append(look)
            self.mark()

    def drop_missing(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        """These seqs were to be read: what is not among the messages, and still should be in the
        store, is there no more.
        """
        if len(messages) < len(seqs) and self.halted is None:
            self.not_found(
                *self.backlog.drop_behind(
                    set(seqs).difference([message.seq for message in messages])
                )
            )

    def not_found(self, count: int, octets: int) -> None:
        """So many messages should have been in the store, and are not."""
        if count:
            self._log.error(
                "{count} messages of {source} are not in the store any more",
                count=count,
                source=str(self),
            )
            self.lost(count, octets)

    # --- expiry

    def sweep(self, now_ms: int) -> None:
        """Give up what has expired and still waits."""
        if self.backlog.expiring and self.halted is None:
            expired, stored = self.backlog.take_expired(now_ms)
            self.dying += len(expired) + len(stored)
            if expired:
                self.changes.schedule.in_slices(
                    self._bury_slowly(expired, DeadReason.EXPIRED, "expired while it waited")
                )
            self._bury_stored(
                dict(stored), DeadReason.EXPIRED, "expired while it waited", lambda: None
            )

    def _bury_slowly(
        self, messages: list[Message], reason: DeadReason, comment: str
    ) -> Iterator[None]:
        for start in range(0, len(messages), BLOCK):
            if start:
                yield
            part = messages[start : start + BLOCK]
            self.dying -= len(part)
            self.bury(part, reason, comment)

    def _bury_stored(
        self, sizes: dict[int, int], reason: DeadReason, comment: str, done: Callable[[], None]
    ) -> None:
        """Bury messages that are in the store only, given by their sizes, block by block; then call
        ``done``.
        """
        if not sizes:
            done()
            return
        seqs = list(islice(sizes, BLOCK))

        def found(messages: Sequence[Message]) -> None:
            octets = sum([sizes.pop(seq) for seq in seqs])
            self.dying -= len(seqs)
            if len(messages) < len(seqs):
                self.not_found(
                    len(seqs) - len(messages), octets - sum([message.size for message in messages])
                )
            if messages:
                self.bury(messages, reason, comment)
            self._bury_stored(sizes, reason, comment, done)

        self.changes.rows.read_back(seqs, found)

    # --- taking back

    def give_up(self, messages: Sequence[Message]) -> None:
        """Give up what was outstanding when this went."""
        if messages and self.burial is not None:
            self.bury(messages, DeadReason.UNDELIVERABLE, self.burial)
        else:
            self.changes.removed(self, messages)
            self.settle(messages)

    def give_back(self, messages: Sequence[Message]) -> None:
        """Deliver these again at once, in order; each was tried once more."""
        self.changes.returned(self, messages, "unsettled")
        if self.gone:
            self.give_up(messages)
            return
        tried, limit = self.tried, self.changes.most_rollbacks
        kept = messages
        for message in messages:
            tried[message.seq] = tried.get(message.seq, 0) + 1
        if limit:
            kept = [message for message in messages if tried[message.seq] < limit]
            buried: dict[int, list[Message]] = {}
            for message in messages:
                if tried[message.seq] >= limit:
                    buried.setdefault(tried[message.seq], []).append(message)
            for tries, part in buried.items():
                self.dying += len(part)
                self.changes.schedule.in_slices(
                    self._bury_slowly(part, DeadReason.UNDELIVERABLE, f"rolled back {tries} times")
                )
        self.changes.schedule.in_slices(
            self._count_slowly([message for message in kept if self.keeps_count(message)])
        )
        self._wait_again(kept)

    def _count_slowly(self, messages: list[Message]) -> Iterator[None]:
        """Have the store know how often these were tried, those that were settled meanwhile left
        out.
        """
        for start in range(0, len(messages), 4 * BLOCK):
            if start:
                yield
            for message in messages[start : start + 4 * BLOCK]:
                count = self.tried.get(message.seq)
                if count is not None and message.seq not in self.delayed:
                    self.changes.commits.redelivery(self.owner, message.seq, count, 0)

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None:
        """A consumer could not take these: later again, or dead."""
        self.changes.returned(self, messages, "rejected")
        if self.gone:
            self.give_up(messages)
            return
        policy = self.use_policy()
        if changes is not None:
            policy = changes.over(policy)
        again: list[Message] = []
        buried: dict[tuple[DeadReason, int], list[Message]] = {}
        for message in messages:
            tries = self.tried[message.seq] = self.tried.get(message.seq, 0) + 1
            pause = policy.delay(tries) if delay_ms is None else delay_ms
            if dead is not None or pause is None:
                buried.setdefault((dead or DeadReason.UNDELIVERABLE, tries), []).append(message)
                continue
            if self.keeps_count(message):
                due_ms = self.changes.turn.refresh() + pause if pause else 0
                self.changes.commits.redelivery(self.owner, message.seq, tries, due_ms)
            if pause:
                self._pause(message, pause)
            else:
                again.append(message)
        for (reason, tries), part in buried.items():
            self.dying += len(part)
            self.changes.schedule.in_slices(
                self._bury_slowly(part, reason, f"refused by its consumer {tries} times")
            )
        self._wait_again(again)

    def _pause(self, message: Message, pause_ms: int) -> None:
        """Let a message wait again, but not before so many milliseconds have passed."""
        self.delayed[message.seq] = message
        self.changes.schedule.after(pause_ms, lambda: self._due(message.seq))

    def resume_pause(self, seq: int, size: int, due_ms: int) -> None:
        """The same for a message that is in the store only since a restart.

        Its pause ends at a time of day, the only clock that outlives the process. That may have
        been set back meanwhile, so the pause is no longer than the longest of the destination; or
        be behind now and put right later, so it is looked at again.

        :param due_ms: epoch milliseconds.
        """
        self.resting[seq] = size
        turn = self.changes.turn
        left_ms, longest_ms = due_ms - turn.refresh(), self.use_policy().maximum_redelivery_delay
        self._rest(
            seq,
            due_ms,
            turn.refresh_timer() + (min(left_ms, longest_ms) if longest_ms >= 0 else left_ms),
        )

    def _rest(self, seq: int, due_ms: int, until_ms: int) -> None:
        def look() -> None:
            turn = self.changes.turn
            if turn.refresh() < due_ms and turn.timer_ms < until_ms:
                self._rest(seq, due_ms, until_ms)
            else:
                self.changes.rows.read_back([seq], partial(self._rested, seq))

        self.changes.schedule.at(min(until_ms, self.changes.turn.refresh_timer() + _LOOK_MS), look)

    def _rested(self, seq: int, messages: Sequence[Message]) -> None:
        size = self.resting.pop(seq, None)
        if size is not None and messages:
            self._wait_again(messages)
        elif size is not None:
            self.not_found(1, size)

    def _due(self, seq: int) -> None:
        message = self.delayed.pop(seq, None)
        if message is not None:
            self._wait_again([message])

    def _wait_again(self, messages: Sequence[Message]) -> None:
        if messages:
            self.return_to_backlog(messages)
            if self._selection.cursors:
                self._selection.look_again(messages)
            self.mark()

    def return_to_backlog(self, messages: Sequence[Message]) -> None:
        """These wait again."""
        self.backlog.give_back(messages)

    def forget_tries(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.tried.pop(message.seq, None)
