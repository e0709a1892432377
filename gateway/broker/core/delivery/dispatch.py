"""Hands waiting messages to consumers, fairly and within their credit.

Each queue has a dispatch, and so has each subscription of a topic: they are its *place*, and told
in each call. With a reference to it the two would be a cycle, and what was removed would stay in
memory until a garbage collection. What settling a message means, and where a dead one comes from, is
the place's.

A consumer with a selector takes what it wants, wherever in the backlog that is, in memory or in the
store only. So does every consumer of a queue whose messages have groups
(:mod:`gateway.broker.core.delivery.groups`).

Owns fairness, credit, and what is read back for consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from itertools import chain, islice
from typing import ClassVar, Final, Protocol

from twisted.logger import Logger

from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.consumer import EmbeddedConsumer, QueueOrSubscription
from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.delivery.exclusive import Exclusive
from gateway.broker.core.delivery.groups import MOST_IDLE, Groups, has_groups, marked
from gateway.broker.core.delivery.hands import deal, look_together, show_others
from gateway.broker.core.delivery.pace import Pace
from gateway.broker.core.delivery.ranks import LOWEST, by_rank, has_ranks, highest, peers
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.waiting.backlog import Backlog
from gateway.broker.durability.rows import BLOCK
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationStopped
from gateway.messaging.message import Message

#: Messages handed out by one destination in one turn; others come between.
MOST_IN_A_TURN: Final = 1_000
#: Messages that a consumer with a selector looks at in one turn.
_MOST_EXAMINED: Final = 1_000
#: Consumers are each asked about a few returned messages, if that is cheap; more than this are
#: simply shown to them again.
_FEW: Final = 64


class Dispatched(QueueOrSubscription, Protocol):
    """A place, with what hands its messages out."""

    @property
    def changes(self) -> Changes: ...

    @property
    def dispatch(self) -> Dispatch: ...

    @property
    def named(self) -> PhysicalDestination | None:
        """The destination that it is or names.

        None for a pattern, or when the destination no longer exists.
        """


class Dispatch:
    """Messages that wait at one place, and consumers that want them.

    :param examines: whether the place is asked about each run before it is handed out.
    :param of_queue: whether messages of one group go to one consumer, and one consumer may have all.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, changes: Changes, examines: bool = False, of_queue: bool = False) -> None:
        self.changes = changes
        self.backlog = Backlog(changes.memory, changes.spills)
        self.consumers: list[EmbeddedConsumer] = []
        #: Deliveries that came to nothing, by seq; empty for nearly every message.
        self.failed_deliveries: dict[int, int] = {}
        self.examines = examines
        self._of_queue: Final = of_queue
        #: Those that messages may go to now: all, but where consumers are exclusive.
        self._takers = self.consumers
        self.exclusive: Exclusive | None = None
        #: Not all have one priority: see :mod:`gateway.broker.core.delivery.ranks`.
        self._ranked = False
        #: From a group's first message on, while a consumer has one. All have cursors then.
        self.groups: Groups | None = None
        #: Groups without outstanding messages that are remembered.
        self.most_idle_groups = MOST_IDLE
        #: How far consumers had looked when they left, of whose groups some are not free yet.
        self._left: dict[EmbeddedConsumer, Cursor | None] = {}
        #: An administrator has paused it: nothing is handed out.
        self.paused = False
        #: Topics of which nothing is handed out, as an administrator has paused them. Then consumers
        #: without selectors look for what is of others.
        self._barred: set[Destination] = set()
        #: How far each consumer with a selector has looked. It looks at every message once, in
        #: delivery order, and again at what comes back.
        self._cursors: dict[EmbeddedConsumer, Cursor] = {}
        #: Index of the consumer whose turn it is.
        self._turn_of = 0
        #: The place is to hand out at the end of this turn.
        self.woken = False
        #: Senders that outrun the consumers.
        self.pace = Pace(changes.turn, changes.schedule, changes.memory, self.backlog)
        #: Browsers that wait for what is being read back.
        self._readers: list[Callable[[], None]] = []
        #: Messages that have expired or were refused, and are being read or buried, slice by slice:
        #: they wait no longer, but still count.
        self.being_buried = 0
        #: Messages that prepared branches have acknowledged: no consumer has them or is given
        #: them, and they still count.
        self.locked = 0
        #: A selector is to be asked, and that waits for time.
        self.held_up = False
        #: Why nothing is handed out any more: a message that waits here is damaged in the store.
        self.halted: DestinationStopped | None = None

    # --- consumers

    def halt(self, error: DestinationStopped) -> None:
        """Hand out nothing more, whatever comes back, and end the consumers."""
        if self.halted is None:
            self.halted = error
            for consumer in list(self.consumers):
                consumer.stop_for_good(error)
            self._tell_readers()

    def join(self, place: QueueOrSubscription, consumer: EmbeddedConsumer) -> None:
        if self.halted is not None:
            raise self.halted
        self.consumers.append(consumer)
        self._ranked = self._ranked or consumer.spec.priority != self.consumers[0].spec.priority
        if consumer.spec.exclusive and self._of_queue:
            self.exclusive = self.exclusive or Exclusive()
            self.exclusive.join(consumer)
            self._share(place)
        if consumer.selector is not None or self._barred or self.groups is not None:
            self._cursors[consumer] = Cursor(self.backlog)
        if self.groups is not None and self.groups.join(consumer, self.consumers):
            self._look_again(place, None)
        place.wake()

    def leave(self, place: QueueOrSubscription, consumer: EmbeddedConsumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._ranked = self._ranked and has_ranks(self.consumers)
            cursor = self._cursors.pop(consumer, None)
            if self.groups is not None:
                # What only it would have taken: with a selector, that may be what it has passed.
                reached = cursor if consumer.selector is None else None
                if self.groups.leave(consumer):
                    self._left[consumer] = reached
                self._look_again(place, reached)
            if self.exclusive is not None:
                self.exclusive.leave(consumer)
                self._share(place)

    # --- exclusive consumers

    def _share(self, place: QueueOrSubscription) -> None:
        """Hand out to whom messages may go now."""
        exclusive = self.exclusive
        if exclusive is not None and exclusive.over:
            exclusive = self.exclusive = None
        self._takers = self.consumers if exclusive is None else exclusive.takers
        if exclusive is not None and self.groups is not None:
            self._left.clear()
            self._ungroup()
        self._turn_of = 0
        place.wake()

    # --- groups

    def _finds_groups(self, messages: Sequence[Message]) -> bool:
        """Whether these have groups, and no consumer has the queue for itself."""
        return self._of_queue and self.exclusive is None and has_groups(messages)

    def _group(self) -> None:
        """Messages have groups: each consumer looks for its own from now on."""
        self.groups = Groups(self._has_looked_at, self.most_idle_groups, self.changes.moves_groups)
        for consumer in self.consumers:
            self._cursors.setdefault(consumer, Cursor(self.backlog))

    def _has_looked_at(self, consumer: EmbeddedConsumer, priority: int, seq: int) -> bool:
        cursor = self._cursors.get(consumer)
        return cursor is None or cursor.has_looked_at(priority, seq)

    def _look_again(self, place: QueueOrSubscription, reached: Cursor | None) -> None:
        """Have all look again from where one has left off; None: at everything."""
        for cursor in self._cursors.values():
            cursor.go_back_with(reached)
        if self.groups is not None and self.groups.empty and not self._left:
            self._ungroup()
        place.wake()

    def _ungroup(self) -> None:
        self.groups = None
        for consumer in self.consumers:
            if consumer.selector is None and not self._barred:
                self._cursors.pop(consumer, None)

    @property
    def follows(self) -> bool:
        """Whether :meth:`no_longer_out` is to be called."""
        return self.groups is not None or self.exclusive is not None

    def no_longer_out(self, place: QueueOrSubscription, messages: Sequence[Message]) -> None:
        """These are with no consumer any more: what has waited for that may go."""
        if self.exclusive is not None and self.exclusive.back(messages):
            self._share(place)
        if (groups := self.groups) is None:
            return
        for consumer in groups.back(messages):
            reached = self._left.get(consumer)
            if not groups.count(consumer):
                self._left.pop(consumer, None)
            self._look_again(place, reached)

    def pause(self, place: QueueOrSubscription, paused: bool) -> None:
        """Hand nothing out, or go on."""
        self.paused = paused
        if not paused:
            place.wake()

    def bar(self, place: QueueOrSubscription, topic: Destination, barred: bool) -> None:
        """Hand out nothing of that topic, or all of it again."""
        if barred:
            self._barred.add(topic)
            for consumer in self.consumers:
                self._cursors.setdefault(consumer, Cursor(self.backlog))
            return
        self._barred.discard(topic)
        for consumer in self.consumers:
            # They have passed what they may have now.
            if self._barred or consumer.selector is not None:
                self._cursors[consumer] = Cursor(self.backlog)
            else:
                self._cursors.pop(consumer, None)
        place.wake()

    # --- handing out

    def wake(self, place: QueueOrSubscription) -> None:
        """Hand out at the end of this turn, if anything waits; once."""
        if not self.woken and (self.backlog.waiting or self.pace.slows):
            self.woken = True
            self.changes.turn.deliver(partial(self.hand_out, place))

    def hand_out(self, place: QueueOrSubscription) -> None:
        """Hand out what the consumers have credit for; the rest in another turn."""
        self.woken = False
        backlog = self.backlog
        if backlog.waiting and not self.held_up and self.halted is None:
            if self.paused:
                ready = []
            elif self._cursors and self._takers:
                if self.groups is not None:
                    self.groups.begin()
                self._select(place, self._in_turn())
            else:
                ready = [consumer for consumer in self._takers if consumer.ready()]
                if ready:
                    self._hand_out_plain(place, highest(ready) if self._ranked else ready)
            if backlog.behind:
                self._read_back(place)
        self.pace.resume_senders()

    def hold_up(self, place: QueueOrSubscription) -> None:
        """Hand nothing out until selectors have time again."""
        if not self.held_up:
            self.held_up = True
            self.changes.selector_time.wait(partial(self._go_on, place))

    def _go_on(self, place: QueueOrSubscription) -> None:
        self.held_up = False
        self.hand_out(place)

    def _hand_out_plain(self, place: QueueOrSubscription, ready: list[EmbeddedConsumer]) -> None:
        backlog = self.backlog
        consumer = ready[0] if len(ready) == 1 else None
        if consumer is not None:
            octets = -1 if consumer.octets is None else consumer.octets
            most = min(consumer.credit, MOST_IN_A_TURN)
            run, expired = backlog.take(most, octets, self.changes.turn.now_ms)
        else:
            most = min(sum([each.credit for each in ready]), MOST_IN_A_TURN)
            run, expired = backlog.take(most, -1, self.changes.turn.now_ms)
        if self._finds_groups(run):
            # By groups, first what was taken out of the backlog.
            place.return_to_backlog(run)
            self._group()
            self._select(place, self._in_turn())
        elif run and consumer is not None:
            self.hand(place, consumer, run)
        elif run:
            self._deal(place, run)
        if expired:
            place.bury(expired, DeadReason.EXPIRED, "expired before it was delivered")
        if (run or expired) and backlog.waiting:
            place.wake()

    def _deal(self, place: QueueOrSubscription, run: list[Message]) -> None:
        """Deal messages out like cards, beginning with the next in turn."""
        ready = [consumer for consumer in self._in_turn() if consumer.ready()]
        if self._ranked:
            ready = highest(ready)
        hands, seat, rest = deal(ready, run)
        if rest:
            self.backlog.put_back(rest)
        self._turn_of = self._takers.index(ready[seat])
        for consumer, hand in zip(ready, hands, strict=True):
            if hand and consumer.running:
                self.hand(place, consumer, hand)
            elif hand:
                # Another one's delivery has closed or stopped it.
                self.wait_again(place, hand)

    def _in_turn(self) -> list[EmbeddedConsumer]:
        takers = self._takers
        start = self._turn_of % len(takers)
        self._turn_of = start + 1
        turn = takers[start:] + takers[:start]
        return by_rank(turn) if self._ranked else turn

    def hand(
        self,
        place: QueueOrSubscription,
        consumer: EmbeddedConsumer,
        run: list[Message],
        firsts: set[int] | None = None,
    ) -> None:
        """Deliver what was taken out of the backlog.

        :param firsts: seqs of those that are the first of their group for the consumer.
        """
        if self.examines:
            run = place.examine(run)
            if not run:
                return
        self.pace.handed(len(run))
        attempts: list[int] | None = None
        if self.failed_deliveries:
            attempts = [self.failed_deliveries.get(message.seq, 0) + 1 for message in run]
            if max(attempts) == 1:
                attempts = None
        if self.exclusive is not None:
            self.exclusive.hand(run)
        self.changes.journal_delivered(place, consumer, run, attempts)
        consumer.handed_ms = self.changes.turn.now_ms
        shown = marked(run, firsts) if firsts and consumer.spec.tells_groups else None
        consumer.hand(run, attempts, shown)

    def wait_again(self, place: QueueOrSubscription, messages: Sequence[Message]) -> None:
        """These wait again, in their old places; nothing for none."""
        if messages:
            place.return_to_backlog(messages)
            if self._cursors:
                self._show_again(messages)
            place.wake()

    @property
    def unclaimed(self) -> int:
        """How many messages of the place no consumer has."""
        return self.backlog.waiting + self.backlog.pausing + self.being_buried

    def forget_tries(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.failed_deliveries.pop(message.seq, None)

    # --- consumers with selectors

    def _select(self, place: QueueOrSubscription, consumers: Sequence[EmbeddedConsumer]) -> None:
        """Let each look at what it has not looked at yet, in this order."""
        backlog, groups = self.backlog, self.groups
        together: Set[EmbeddedConsumer] = frozenset()
        if groups is not None and len(consumers) > 1 and not (self._barred or self._ranked):
            together = self._look_together(place, groups, consumers)
        again = bool(together)
        looking = LOWEST
        everyone = self.consumers
        for consumer in consumers:
            if self._ranked:
                if consumer.spec.priority < looking:
                    break  # They wait for one that has not looked at everything.
                everyone = peers(consumer, self.consumers)
            if self.groups is not groups:
                # A delivery has ended the last consumer that had groups.
                place.wake()
                return
            if consumer in together or not consumer.ready():
                continue
            cursor = self._cursors.get(consumer)
            if cursor is None:
                # It takes all it looks at.
                cursor, most = Cursor(backlog), min(consumer.credit, _MOST_EXAMINED)
            elif cursor.reading:
                looking = consumer.spec.priority
                continue
            else:
                most = _MOST_EXAMINED
            messages = list(islice(cursor.ahead(), most))
            if groups is None and self._finds_groups(messages):
                self._group()
                place.wake()
                return
            if messages:
                again = True
                run, expired, left = cursor.choose(
                    self.changes, consumer, messages, self._barred, self.groups, everyone
                )
                backlog.pluck_messages([*run, *expired])
                self._hand_chosen(place, consumer, run, expired)
                if left:
                    self.hold_up(place)
                    return
                if self._ranked and consumer.ready():
                    looking = consumer.spec.priority
            elif backlog.behind and self._search(place, consumer, cursor):
                looking = consumer.spec.priority
        if again:
            place.wake()

    def _look_together(
        self, place: QueueOrSubscription, groups: Groups, consumers: Sequence[EmbeddedConsumer]
    ) -> Set[EmbeddedConsumer]:
        """Look once for all consumers that are at one place.

        :returns: those; none where that is one, or nothing comes next.
        """
        now_ms, most = self.changes.turn.now_ms, _MOST_EXAMINED
        hands = look_together(groups, self._cursors, consumers, self.consumers, most, now_ms)
        if hands is None:
            return frozenset()
        self.backlog.pluck_messages([*chain(*hands.runs.values()), *hands.expired])
        firsts = groups.firsts
        for consumer, run in hands.runs.items():
            if self.groups is not groups:
                # A delivery has brought a consumer that has the queue for itself.
                self.wait_again(place, run)
                continue
            groups.firsts, groups.closing = firsts, hands.closers.get(consumer, [])
            self._hand_chosen(place, consumer, run, [])
        self._hand_chosen(place, consumers[0], [], hands.expired)
        return hands.together

    def _search(
        self, place: QueueOrSubscription, consumer: EmbeddedConsumer, cursor: Cursor
    ) -> bool:
        """Read on in the store for a consumer.

        What is read takes no room of messages in memory.

        :returns: whether it is to look at something there.
        """
        seqs = cursor.stored_ahead(BLOCK) if consumer in self._cursors else ()
        if seqs:
            cursor.reading = True
            self.changes.fetch(seqs, partial(self._searched, place, consumer, cursor, seqs))
        return seqs is None or bool(seqs)

    def _searched(
        self,
        place: QueueOrSubscription,
        consumer: EmbeddedConsumer,
        cursor: Cursor,
        seqs: Sequence[int],
        messages: Sequence[Message],
    ) -> None:
        cursor.reading = False
        backlog = self.backlog
        self.drop_missing(place, seqs, messages)
        if (
            consumer in self._cursors
            and consumer in self._takers
            and consumer.ready()
            and self.halted is None
            and not self.paused
        ):
            # Meanwhile others may have taken some, and some may have come back before these.
            ahead = cursor.still_ahead(messages)
            if self.groups is None and self._finds_groups(ahead):
                self._group()
            run, expired, left = cursor.choose(
                self.changes, consumer, ahead, self._barred, self.groups, self.consumers
            )
            if left:
                # Reading them once more would take longer than keeping them.
                cursor.reading = True
                self.changes.selector_time.wait(
                    partial(self._searched, place, consumer, cursor, (), ahead[-left:])
                )
            for message in (*run, *expired):
                backlog.pluck_behind(message.headers.priority, message.seq, message.expires)
            self._hand_chosen(place, consumer, run, expired)
        place.wake()

    def _show_again(self, messages: Sequence[Message]) -> None:
        """Show the consumers messages that have come back.

        They may be before the places up to which the consumers have looked.
        """
        for consumer, cursor in self._cursors.items():
            for message in messages:
                many = len(messages) > _FEW or (
                    consumer.selector is not None and consumer.selector.stride == 1
                )
                if cursor.has_passed(message) and (many or consumer.wants(message)):
                    cursor.go_back_to(message)

    def _hand_chosen(
        self,
        place: QueueOrSubscription,
        consumer: EmbeddedConsumer,
        run: list[Message],
        expired: list[Message],
    ) -> None:
        groups = self.groups
        firsts: set[int] | None = None
        if groups is not None:
            if groups.given or groups.closing:
                show_others(groups, self._cursors, consumer)
            if groups.firsts:
                firsts, groups.firsts = groups.firsts, set()
        if run and consumer.running:
            self.hand(place, consumer, run, firsts)
        elif run:
            # Another one's delivery has closed or stopped it.
            self.no_longer_out(place, run)
            self.wait_again(place, run)
        if expired:
            place.bury(expired, DeadReason.EXPIRED, "expired before it was delivered")

    # --- the store

    def _read_back(self, place: QueueOrSubscription) -> None:
        if self.changes.memory.used >= self.changes.memory.most and not (
            self.consumers or self._readers
        ):
            return
        seqs = self.backlog.wanted(BLOCK)
        if seqs:
            self.changes.fetch(seqs, partial(self._refilled, place, seqs))

    def _refilled(
        self, place: QueueOrSubscription, seqs: Sequence[int], messages: Sequence[Message]
    ) -> None:
        if self.halted is not None:
            # One of them is damaged. All stay where they are, and nothing more is read.
            self.backlog.unread()
        else:
            self.not_found(place, *self.backlog.refill(seqs, messages))
            place.wake()
        self._tell_readers()

    def _tell_readers(self) -> None:
        self._readers, waiting = [], self._readers
        for read in waiting:
            read()

    def after_reading(self, read: Callable[[], None]) -> None:
        """Call ``read`` when what is being read back is in memory."""
        self._readers.append(read)

    def read_for(self, place: QueueOrSubscription, read: Callable[[], None]) -> None:
        """Have messages read back from the store, then call ``read``.

        Does nothing when all are in memory.
        """
        if self.backlog.behind and read not in self._readers:
            self._readers.append(read)
            place.wake()

    def drop_missing(
        self, place: QueueOrSubscription, seqs: Sequence[int], messages: Sequence[Message]
    ) -> None:
        """Drop messages that should have been in the store and were not.

        :param seqs: those that were to be read.
        :param messages: those that were found.
        """
        if len(messages) < len(seqs) and self.halted is None:
            self.not_found(
                place,
                *self.backlog.drop_behind(
                    set(seqs).difference([message.seq for message in messages])
                ),
            )

    def not_found(self, place: QueueOrSubscription, count: int, octets: int) -> None:
        """Report messages that should have been in the store, and are not."""
        if count:
            self._log.error(
                "{count} messages of {source} are not in the store any more",
                count=count,
                source=str(place),
            )
            place.stop_counting(count, octets)
