"""A physical queue, and the browsers that read it without taking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery import redelivery
from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.delivery.dispatch import Dispatch
from gateway.broker.core.destinations.last_values import Growth, LastOfKey, LastValues
from gateway.broker.core.destinations.purging import SelectivePurge
from gateway.broker.core.physical import Accepted, PhysicalDestination
from gateway.broker.durability.rows import BLOCK
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationStopped, TooManyConsumers
from gateway.messaging.message import Message
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy


class PhysicalQueue(PhysicalDestination):
    """Each message goes to one consumer.

    Owns its messages from acceptance to settlement: their number and octets, and the store's rows
    of those that have any.
    """

    def __init__(
        self,
        changes: Changes,
        destination: Destination,
        number: int,
        properties: DestinationProperties,
    ) -> None:
        super().__init__(changes, destination, number, properties)
        self.dispatch = Dispatch(changes, of_queue=True)
        #: See :attr:`QueueOrSubscription.owner`.
        self.owner = 0
        #: How many of its consumers are of patterns. They do not keep it from being reaped.
        self.covering = 0
        #: Consumers of patterns that it had no room for, and what is called when there may be.
        self.turned_away: dict[object, Callable[[PhysicalQueue], None]] = {}
        #: The keys, if it keeps only the last message of each.
        self.last_values: LastValues | None = None
        #: An administrator has paused its deliveries; and how often all that waits is being looked
        #: at before anything is delivered.
        self._held = False
        self._looking = 0
        self.keep_last_values(properties.last_value_key)

    # --- arrivals

    def accept(self, run: Sequence[Message]) -> Accepted:
        if not self.destination.temporary:
            self.changes.store_arrivals(self, run)
        if self.changes.schedules:
            self.changes.store_scheduled(self, run)
        return run

    def enqueue(self, kept: Accepted, held: bool = False) -> None:
        if self.drops_arrivals:
            if self.changes.schedules:
                self.changes.hold_scheduled(self, kept, dropped=True)
            self.changes.journal_removed(self, kept)
            self.release(kept)
            return
        if self.changes.schedules:
            kept = self.changes.hold_scheduled(self, kept)
            if not kept:
                return
        size = 0
        for message in kept:
            size += message.size
        values = self.last_values
        if values is None:
            self.came(len(kept), size)
        else:
            self._come_with_keys(len(kept), size)
        dispatch = self.dispatch
        if held:
            dispatch.wait_again(self, kept)
            self._note_peak()
            return
        spilled = dispatch.backlog.put(kept)
        if spilled:
            self.changes.store_spilled(self, spilled)
        if dispatch.backlog.expiring:
            redelivery.look_at_arrivals(self, kept)
        if values is not None:
            self._keep_newest(values, kept)
            self._note_peak()
        dispatch.wake(self)

    def return_to_backlog(self, messages: Sequence[Message]) -> None:
        self.changes.store_spilled(self, self.dispatch.backlog.put_back(messages, spill=True))
        if self.last_values is not None:
            self._keep_newest(self.last_values, messages)

    def accept_prepared(self, run: Sequence[Message]) -> Accepted:
        if self.changes.schedules:
            self.changes.store_scheduled(self, run)
        return run

    # --- the last message of each key

    def growth(self) -> Growth | None:
        """Return what sums up by how much messages would make it grow.

        :returns: None where each message counts.
        """
        values = self.last_values
        return None if values is None else Growth(values, self.dispatch.backlog)

    def keep_last_values(self, name: str) -> None:
        """Keep only the last message of each value of this property.

        :param name: its name; "" keeps all.
        """
        values = self.last_values
        if name == ("" if values is None else values.name):
            return
        if values is not None:
            values.clear()
        self.last_values = LastValues(name, self.changes.memory.count_object) if name else None
        self.dispatch.backlog.sort(bool(name))
        self.find_last_values()

    def find_last_values(self) -> None:
        """Look at all that waits, from the store or of times before it had keys.

        Nothing is delivered until that is done, or the queue is stopped.
        """
        values = self.last_values
        if values is None or not self.dispatch.unclaimed:
            return
        self._looking += 1
        self.hold_deliveries(self._held)
        # What comes later is looked at when it comes.
        backlog = self.dispatch.backlog
        last = max(
            [*(lane.last() for _, lane in backlog.lanes()), *backlog.delayed, *backlog.resting],
            default=0,
        )
        SelectivePurge(self, last, partial(self._look_at, values), self._looked_at).start()

    def _look_at(self, values: LastValues, message: Message) -> bool:
        if self.last_values is values:
            self._keep_newest(values, [message])
        # What is to go has gone by now.
        return False

    def _looked_at(self, gone: int) -> None:
        self._looking -= 1
        self.hold_deliveries(self._held)

    def _come_with_keys(self, count: int, octets: int) -> None:
        """Count messages that came, before it is known what they replace."""
        peak, peak_octets = self.peak, self.peak_octets
        self.came(count, octets)
        self.peak, self.peak_octets = peak, peak_octets

    def _note_peak(self) -> None:
        """Count nothing more, and see whether this is the most that was here."""
        self.came(0, 0)

    def _keep_newest(self, values: LastValues, messages: Sequence[Message]) -> None:
        """Messages wait: replace what others of their keys make needless."""
        backlog, now_ms = self.dispatch.backlog, self.changes.turn.now_ms
        for message in messages:
            # A message that has expired is no newer value.
            if not 0 < message.expires <= now_ms:
                found = values.look_at(message, backlog, now_ms)
                if found is None:
                    continue
                older, newer = found
                if older.expired(now_ms):
                    # It is dead, as it would be if a sweep had come first.
                    redelivery.expire(self, older.priority, older.seq, older.expires)
                else:
                    self._replace(older, newer)

    def _replace(self, older: LastOfKey, newer: LastOfKey) -> None:
        taken = self.dispatch.backlog.take_out(older.priority, older.seq, older.expires)
        if taken is None:
            return
        size, stored = taken
        self.replaced += 1
        self.dispatch.failed_deliveries.pop(older.seq, None)
        self.changes.replace(self, older, newer, bool(stored))
        self.stop_counting(1, size)

    # --- departures

    def settle(self, messages: Sequence[Message]) -> None:
        self.changes.delete_rows(messages)
        self.settled(messages)

    def release(self, messages: Sequence[Message]) -> None:
        self.changes.delete_rows(messages)

    def settled(self, messages: Sequence[Message]) -> None:
        self.count -= len(messages)
        size = 0
        for message in messages:
            size += message.size
        self.octets -= size
        if self.dispatch.failed_deliveries:
            self.dispatch.forget_tries(messages)
        if self.dispatch.follows:
            self.dispatch.no_longer_out(self, messages)
        if self.waiting_senders or self.holds_back:
            self.let_senders_go()
        if not self.count:
            self.emptied()

    def keeps_count(self, message: Message) -> bool:
        return bool(message.stored) and message.headers.persistent

    @property
    def named(self) -> PhysicalDestination:
        return self

    @property
    def gone(self) -> bool:
        return self.removed

    def use_policy(self) -> RedeliveryPolicy:
        return self.properties.redelivery

    def bury(
        self,
        messages: Sequence[Message],
        reason: DeadReason,
        comment: str,
        keeps_unstored: bool = True,
    ) -> None:
        self.changes.bury(self, messages, lambda message: self, reason, comment, keeps_unstored)

    # --- consumers

    def wake(self) -> None:
        self.dispatch.wake(self)

    def examine(self, run: list[Message]) -> list[Message]:
        return run

    def tries(self, seq: int) -> int:
        return self.dispatch.failed_deliveries.get(seq, 0)

    def end_outstanding(self, messages: Sequence[Message]) -> None:
        redelivery.end_outstanding(self, messages)

    def redeliver(self, messages: Sequence[Message]) -> None:
        if self.dispatch.follows:
            self.dispatch.no_longer_out(self, messages)
        redelivery.redeliver(self, messages)

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None:
        if self.dispatch.follows:
            self.dispatch.no_longer_out(self, messages)
        redelivery.reject(self, messages, delay_ms, dead, changes)
        if self.last_values is not None:
            # A newer one may be taken while they pause.
            delayed = self.dispatch.backlog.delayed
            self._keep_newest(self.last_values, [each for each in messages if each.seq in delayed])

    def sweep(self, now_ms: int) -> None:
        redelivery.sweep(self, now_ms)

    def join(self, consumer: EmbeddedConsumer) -> None:
        most = self.properties.max_num_active_consumers
        if 0 <= most <= len(self.dispatch.consumers):
            raise TooManyConsumers(self.destination, most)
        self.dispatch.join(self, consumer)
        if consumer.of_pattern:
            self.covering += 1

    def leave(self, consumer: EmbeddedConsumer) -> None:
        if consumer.of_pattern and consumer in self.dispatch.consumers:
            self.covering -= 1
        self.dispatch.leave(self, consumer)
        self.offer_room()
        if not self.count:
            self.emptied()

    def hold_deliveries(self, held: bool) -> None:
        """An administrator has paused its deliveries, or not."""
        self._held = held
        self.dispatch.pause(self, held or self._looking > 0)

    def changed(self) -> None:
        """An administrator has given it other properties."""
        self.keep_last_values(self.properties.last_value_key)
        self.offer_room()

    def offer_room(self) -> None:
        """Tell consumers of patterns that there may be room for another one."""
        if self.turned_away:
            turned_away, self.turned_away = self.turned_away, {}
            for offered in turned_away.values():
                offered(self)

    def stop(self, error: DestinationStopped) -> None:
        self.damaged = True
        self.dispatch.halt(error)

    @property
    def busy(self) -> bool:
        """Whether it holds messages, has consumers by its name or is paused.

        One that gets copies of a topic's messages is always in use.
        """
        return bool(
            self.count
            or len(self.dispatch.consumers) > self.covering
            or self.clearing
            or self.pause
            or self.copied_from is not None
        )

    def evict(self, lowest_priority: bool) -> bool:
        """Give up one waiting message to make room.

        :returns: False when no suitable message is in memory.
        """
        victim = (
            self.dispatch.backlog.least() if lowest_priority else self.dispatch.backlog.oldest()
        )
        if victim is None:
            self.dispatch.read_for(self, self.make_room)
            return False
        self.dispatch.backlog.pluck([victim.seq], victim.headers.priority)
        reason = DeadReason.LOW_PRIORITY if lowest_priority else DeadReason.OLDEST
        self.changes.reports.evicting(self, reason)
        self.bury([victim], reason, f"{self.destination} was at its limit")
        return True

    def release_stored(self, seqs: Sequence[int]) -> None:
        self.changes.delete_rows_by_seq(seqs)


class QueueBrowser:
    """Walks a queue for one consumer, in delivery order, within its credit.

    An empty delivery is the end.

    What arrives behind the place reached is seen, what leaves before it is reached is not.
    """

    def __init__(self, queue: PhysicalQueue) -> None:
        self._queue = queue
        self._cursor = Cursor(queue.dispatch.backlog)
        self._consumer: EmbeddedConsumer | None = None
        self._marked = False
        self._ended = False

    def join(self, consumer: EmbeddedConsumer) -> None:
        self._consumer = consumer

    def leave(self, consumer: EmbeddedConsumer) -> None:
        self._consumer = None

    def wake(self) -> None:
        if not self._marked and not self._ended:
            self._marked = True
            self._queue.changes.turn.deliver(self._walk)

    def _walk(self) -> None:
        self._marked = False
        consumer, cursor = self._consumer, self._cursor
        if consumer is not None and self._queue.dispatch.halted is not None:
            consumer.stop_for_good(self._queue.dispatch.halted)
            return
        if consumer is None or self._ended or not consumer.ready() or cursor.reading:
            return
        messages = list(islice(cursor.ahead(), BLOCK))
        if messages:
            if self._show(messages):
                self._marked = True
                self._queue.changes.selector_time.wait(self._walk)
            else:
                self.wake()
            return
        seqs = cursor.stored_ahead(BLOCK)
        if seqs:
            cursor.reading = True
            self._queue.changes.fetch(seqs, partial(self._read, seqs))
        elif seqs is None:
            # The queue is reading them for its consumers.
            self._queue.dispatch.after_reading(self.wake)
        else:
            self._ended = True
            consumer.end_of_browse()

    def _read(self, seqs: Sequence[int], messages: Sequence[Message]) -> None:
        self._cursor.reading = False
        self._queue.dispatch.drop_missing(self._queue, seqs, messages)
        ahead = self._cursor.still_ahead(messages)
        left = self._show(ahead)
        if left:
            # Reading them once more would take longer than keeping them.
            self._cursor.reading = True
            self._queue.changes.selector_time.wait(partial(self._read, (), ahead[-left:]))
        self.wake()

    def _show(self, messages: Sequence[Message]) -> int:
        """Deliver what the consumer wants of these, within its credit.

        :returns: how many there was no time to look at.
        """
        consumer = self._consumer
        if consumer is None or not consumer.ready() or self._queue.dispatch.halted is not None:
            return 0
        run, _, left = self._cursor.choose(self._queue.changes, consumer, messages)
        if run:
            consumer.hand(run, None)
        return left

    # Nothing that a browser's user does with a delivery changes the queue.

    def settle(self, messages: Sequence[Message]) -> None: ...

    def release(self, messages: Sequence[Message]) -> None: ...

    def settled(self, messages: Sequence[Message]) -> None: ...

    def end_outstanding(self, messages: Sequence[Message]) -> None: ...

    def redeliver(self, messages: Sequence[Message]) -> None: ...

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None: ...
