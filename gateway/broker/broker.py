"""The embedded broker: its destinations, and how messages get to them.

Owns the registry of destinations and durable subscriptions, the numbering of messages, and the acceptance of what sessions send. How a queue or a
subscription hands messages out is ``distribution``'s, what becomes durable when is ``commit``'s, what one user may do is
``connection``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from gateway.broker.commit import GroupCommit
from gateway.broker.dead_letters import DMQ, DeadLetters
from gateway.broker.limits import DestinationProperties
from gateway.broker.memory import Memory
from gateway.broker.physical import Physical
from gateway.broker.queue import PhysicalQueue
from gateway.broker.schedule import Schedule
from gateway.broker.settings import DMQ_PROPERTIES, BrokerOptions
from gateway.broker.store.interface import (
    Batch,
    DestinationRow,
    Row,
    Store,
    StoreDamaged,
    StoreError,
    SubscriptionRow,
)
from gateway.broker.subscription import TopicSubscription
from gateway.broker.topic import PhysicalTopic
from gateway.broker.wildcards import is_wild, matches
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.envelope import decode_head
from gateway.messaging.errors import InvalidDestination
from gateway.messaging.message import Message
from gateway.messaging.turn import Turn

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

#: Seqs are reserved in the store by so many at once, ahead of their use.
_RESERVE: Final = 10_000_000
_LONGEST_NAME: Final = 1024


class Broker:
    """Queues, topics, durable subscriptions, and the messages in them.

    Made by :func:`gateway.broker.recovery.open_broker`.

    :param clock: the reactor. :param store: opened. :param store_id: in every message id.
    :param failed: called once when the store has failed for good: the process must end.
    """

    log = Logger(namespace="gateway.broker")

    def __init__(
        self,
        clock: IReactorTime,
        turn: Turn,
        store: Store,
        store_id: str,
        options: BrokerOptions,
        failed: Callable[[StoreError], None],
        *,
        spills: bool,
        memory: Memory | None = None,
    ) -> None:
        self.turn = turn
        self.store = store
        self.options = options
        #: Whether messages that memory has no room for can live in the store only.
        self.spills = spills
        self.memory = memory or Memory()
        self.schedule = Schedule(clock, turn)
        self.commits = GroupCommit(store, turn, failed)
        self.dead_letters = DeadLetters(self, truncate=options.truncate_dead, log_all=options.log_dead)
        self.most_rollbacks = options.most_rollbacks
        self.store_id = store_id
        self._prefix = f"ID-{store_id}-"
        #: Properties that the settings give, by destination.
        self.configured = dict(options.destinations)
        self.configured.setdefault(DMQ, DMQ_PROPERTIES)
        self.destinations: dict[Destination, PhysicalQueue | PhysicalTopic] = {}
        self.durables: dict[tuple[str, str], TopicSubscription] = {}
        self._wild: list[TopicSubscription] = []
        #: Numbers of patterns that durable subscriptions name, in the store.
        self._patterns: dict[Destination, int] = {}
        #: Rows of topic messages that more than one subscription needs: how many others.
        self._shared_rows: dict[int, int] = {}
        self._next_number = 1
        self._seq = 0
        self._reserved = 0
        self._evicting: dict[Destination, int] = {}
        self._reaping: set[Destination] = set()
        self._soon: list[Callable[[], None]] = []
        #: Messages accepted since the start.
        self.accepted = 0
        store.on_draining = self._draining
        if options.expiration_interval:
            self._sweep_later()

    # --- destinations

    def properties_for(self, destination: Destination) -> DestinationProperties:
        """The properties that a destination has, or would have."""
        physical = self.destinations.get(destination)
        if physical is not None:
            return physical.properties
        given = self.configured.get(destination)
        if given is not None:
            return given
        auto = self.options.auto_queue if destination.kind is Kind.QUEUE else self.options.auto_topic
        return auto or DestinationProperties()

    def find(self, destination: Destination) -> PhysicalQueue | PhysicalTopic | None:
        """The physical destination, if there is one."""
        return self.destinations.get(destination)

    def creatable(self, destination: Destination) -> bool:
        """Whether using the destination would create it."""
        if destination in self.configured or destination.temporary:
            return True
        return (self.options.auto_queue if destination.kind is Kind.QUEUE else self.options.auto_topic) is not None

    def create(self, destination: Destination, properties: DestinationProperties | None = None) -> PhysicalQueue | PhysicalTopic:
        """The physical destination, made if there is none.

        :raises InvalidDestination: the name is not one.
        """
        physical = self.destinations.get(destination)
        if physical is not None:
            return physical
        check_name(destination)
        number = self.new_number()
        made = properties or self.properties_for(destination)
        if destination.kind is Kind.QUEUE:
            physical = PhysicalQueue(self, destination, number, made)
        else:
            physical = PhysicalTopic(self, destination, number, made)
        physical.auto_created = not destination.temporary and destination not in self.configured
        self._register(physical)
        return physical

    def restore(self, row: DestinationRow) -> PhysicalQueue | PhysicalTopic:
        """A destination that the store knows."""
        destination = Destination(Kind(row.kind), row.name)
        number = row.id
        properties = self.configured.get(destination)
        if properties is None:
            properties = DestinationProperties.from_text(row.properties) if row.properties else self.properties_for(destination)
        made: PhysicalQueue | PhysicalTopic
        if destination.kind is Kind.QUEUE:
            made = PhysicalQueue(self, destination, number, properties)
        else:
            made = PhysicalTopic(self, destination, number, properties)
        made.stored = True
        made.auto_created = destination not in self.configured and not row.properties
        self.used_number(number)
        self._register(made)
        return made

    def _register(self, physical: PhysicalQueue | PhysicalTopic) -> None:
        self.destinations[physical.destination] = physical
        if isinstance(physical, PhysicalTopic):
            physical.subscriptions += [
                subscription
                for subscription in self._wild
                if matches(subscription.pattern.name, physical.destination.name) and subscription.covers(physical.destination)
            ]

    def topic(self, destination: Destination) -> PhysicalTopic:
        """The physical topic, made if there is none."""
        physical = self.create(destination)
        assert isinstance(physical, PhysicalTopic)
        return physical

    def queue(self, destination: Destination) -> PhysicalQueue:
        """The physical queue, made if there is none."""
        physical = self.create(destination)
        assert isinstance(physical, PhysicalQueue)
        return physical

    def remove(self, physical: PhysicalQueue | PhysicalTopic) -> None:
        """The destination goes, with what waits in it."""
        physical.removed = True
        if self.destinations.pop(physical.destination, None) is None:
            return
        if isinstance(physical, PhysicalQueue):
            physical.purge()
            error = InvalidDestination(physical.destination, "the destination was removed")
            for consumer in list(physical.consumers):
                physical.leave(consumer)
                consumer.fail(error)
        if physical.stored:
            self.commits.remove_destination(physical.number)

    def reap_later(self, physical: Physical) -> None:
        """Remove the destination if nobody uses it for the reap time."""
        destination = physical.destination
        if destination in self._reaping or not self.options.reap_time:
            return
        self._reaping.add(destination)

        def reap() -> None:
            self._reaping.discard(destination)
            there = self.destinations.get(destination)
            if there is not None and there.auto_created and not there.busy and not there.arrivals:
                self.remove(there)

        self.schedule.at(self.turn.refresh() + self.options.reap_time * 1000, reap)

    def new_number(self) -> int:
        """A number for a destination or a durable subscription, in the store and for as long as it lasts."""
        number = self._next_number
        self._next_number += 1
        return number

    def used_number(self, number: int) -> None:
        self._next_number = max(self._next_number, number + 1)

    # --- subscriptions

    def subscribe(self, subscription: TopicSubscription) -> None:
        """Messages for the subscription's topic, or for the topics its pattern covers, come to it from now on."""
        pattern = subscription.pattern
        if is_wild(pattern.name):
            self._wild.append(subscription)
            for destination, physical in self.destinations.items():
                if not isinstance(physical, PhysicalTopic) or not matches(pattern.name, destination.name):
                    continue
                if subscription.covers(destination):
                    physical.subscriptions.append(subscription)
        else:
            self.topic(pattern).subscriptions.append(subscription)

    def end_subscription(self, subscription: TopicSubscription) -> None:
        """No more messages come to it, and what waits there is gone."""
        subscription.ended = True
        if subscription in self._wild:
            self._wild.remove(subscription)
        left: list[PhysicalTopic] = []
        for physical in self.destinations.values():
            if isinstance(physical, PhysicalTopic) and subscription in physical.subscriptions:
                physical.subscriptions.remove(subscription)
                left.append(physical)
        if not subscription.durable:
            subscription.discard(None, lambda: None)
        for topic in left:
            topic.emptied()

    # --- arrivals

    def check_size(self, physical: Physical, message: Message) -> int:
        """The octets a message counts for."""
        message.size = size = len(message.body) + message.headers.octets
        return size

    def number(self, messages: Sequence[Message], user: str, origin: int) -> None:
        """Give messages that are accepted now their identity and time."""
        now_ms = self.turn.now_ms
        prefix = self._prefix
        seq = self._seq
        for message in messages:
            seq += 1
            message.seq = seq
            if not message.message_id:
                message.message_id = f"{prefix}{seq}"
            if not message.timestamp:
                message.timestamp = now_ms
            message.user = user
            message.origin = origin
        self._seq = seq
        self.accepted += len(messages)
        if seq > self._reserved - _RESERVE // 2:
            self._reserve()

    def start_numbering(self, next_seq: int) -> None:
        """Continue after what an earlier run used."""
        self._seq = next_seq - 1
        self._reserved = next_seq - 1
        self._reserve()

    def _reserve(self) -> None:
        self._reserved = max(self._reserved, self._seq) + _RESERVE
        self.commits.reserve(self._reserved)

    def arrive(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Messages of the broker's own arrive somewhere; no limit refuses them."""
        physical = self.create(destination)
        for message in messages:
            self.check_size(physical, message)
        self.number(messages, messages[0].user, 0)
        physical.arrive(physical.keep(messages))

    # --- rows of the store

    def store_row(self, physical: Physical, message: Message, *, persistent: bool) -> None:
        """A row for the message, and one for its destination if the store has none."""
        if not physical.stored:
            self._store_destination(physical)
        self.commits.insert(message, physical.number, persistent)

    def _store_destination(self, physical: Physical) -> None:
        physical.stored = True
        destination = physical.destination
        properties = "" if physical.auto_created else physical.properties.to_text()
        self.commits.destination(DestinationRow(physical.number, int(destination.kind), destination.name, properties))

    def store_subscription(self, subscription: TopicSubscription) -> None:
        """Rows for a new durable subscription and for what it names."""
        pattern = subscription.pattern
        if is_wild(pattern.name):
            number = self._patterns.get(pattern)
            if number is None:
                number = self._patterns[pattern] = self.new_number()
                self.commits.destination(DestinationRow(number, int(pattern.kind), pattern.name, ""))
        else:
            topic = self.topic(pattern)
            number = topic.number
            if not topic.stored:
                self._store_destination(topic)
        selector = subscription.selector.text if subscription.selector is not None else ""
        self.commits.subscription(
            SubscriptionRow(
                subscription.number, number, subscription.client_id, subscription.name, selector, int(subscription.no_local)
            )
        )

    def restore_pattern(self, pattern: Destination, number: int) -> None:
        """A pattern that the store knows."""
        self._patterns[pattern] = number
        self.used_number(number)

    def hold_row(self, topic: PhysicalTopic, message: Message, *, persistent: bool) -> None:
        """One more subscription needs the message's row."""
        if message.stored:
            self.share_row(message.seq)
        else:
            message.stored = 1
            self.store_row(topic, message, persistent=persistent)

    def share_row(self, seq: int) -> None:
        self._shared_rows[seq] = self._shared_rows.get(seq, 0) + 1

    def release_row(self, seq: int) -> None:
        """One subscription less needs the row; the last one's going is its end."""
        others = self._shared_rows.get(seq)
        if others is None:
            self.commits.delete(seq)
        elif others == 1:
            del self._shared_rows[seq]
        else:
            self._shared_rows[seq] = others - 1

    def undo_arrivals(self, batch: Batch, arrivals: Iterable[tuple[PhysicalQueue | PhysicalTopic, Sequence[Message]]]) -> None:
        """The store could not keep a batch: what it was to store of these arrivals never came."""
        arrivals = list(arrivals)
        self.undo_rows(batch, arrivals)
        for physical, run in arrivals:
            for message in run:
                if message.seq in batch.inserts:
                    physical.undo(message)

    def undo_rows(self, batch: Batch, arrivals: Iterable[tuple[PhysicalQueue | PhysicalTopic, Sequence[Message]]]) -> None:
        """The store has no rows of a batch."""
        for physical, run in arrivals:
            if physical.number in batch.destinations:
                physical.stored = False
            for message in run:
                if message.seq in batch.inserts:
                    message.stored = 0
                    self._shared_rows.pop(message.seq, None)

    def read_back(self, seqs: Sequence[int], done: Callable[[Sequence[Message]], None]) -> None:
        """Get whole messages that are in the store only, in the order asked; ``done`` is called later, in a turn.

        A row that is damaged is reported and left out.
        """
        waiting = {seq: message for seq in seqs if (message := self.commits.unstored(seq)) is not None}
        wanted = [seq for seq in seqs if seq not in waiting]

        def fetched(rows: Sequence[Row] | StoreError) -> None:
            self.turn.begin()
            try:
                if isinstance(rows, StoreError):
                    self._read_failed(rows, wanted, waiting, seqs, done)
                    return
                for row in rows:
                    message = decode_head(row.head, row.body)
                    message.seq = row.seq
                    message.size = row.size
                    message.stored = 1
                    waiting[row.seq] = message
                done([waiting[seq] for seq in seqs if seq in waiting])
            finally:
                self.turn.end()

        if wanted:
            self.store.fetch(wanted, fetched)
        else:
            self.turn.dispatch(lambda: done([waiting[seq] for seq in seqs]))

    def _read_failed(
        self,
        error: StoreError,
        wanted: Sequence[int],
        waiting: dict[int, Message],
        seqs: Sequence[int],
        done: Callable[[Sequence[Message]], None],
    ) -> None:
        self.log.error("{count} messages could not be read from the store: {error}", count=len(wanted), error=str(error))
        if isinstance(error, StoreDamaged) and len(wanted) > 1:
            # Find the good ones: each half alone, until the damaged row is alone.
            middle = len(wanted) // 2
            found: list[Message] = []

            def first(messages: Sequence[Message]) -> None:
                found.extend(messages)
                self.read_back(wanted[middle:], second)

            def second(messages: Sequence[Message]) -> None:
                for message in [*found, *messages]:
                    waiting[message.seq] = message
                done([waiting[seq] for seq in seqs if seq in waiting])

            self.read_back(wanted[:middle], first)
        else:
            done([waiting[seq] for seq in seqs if seq in waiting])

    # --- time

    def _sweep_later(self) -> None:
        self.schedule.at(self.turn.refresh() + self.options.expiration_interval * 1000, self._sweep)

    def _sweep(self) -> None:
        now_ms = self.turn.now_ms
        subscriptions: dict[int, TopicSubscription] = {}
        for physical in list(self.destinations.values()):
            if isinstance(physical, PhysicalQueue):
                physical.sweep(now_ms)
            else:
                for subscription in physical.subscriptions:
                    subscriptions[id(subscription)] = subscription
        for subscription in subscriptions.values():
            subscription.sweep(now_ms)
        self._sweep_later()

    def soon(self, work: Callable[[], None]) -> None:
        """Do ``work`` at the end of this turn, in the order asked, before anything is written to a client."""
        self._soon.append(work)
        if len(self._soon) == 1:
            self.turn.hand_off(self._do_soon)

    def _do_soon(self) -> None:
        self._soon, work = [], self._soon
        for do in work:
            do()

    def evicting(self, physical: Physical, reason: DeadReason) -> None:
        """A destination gives messages up to make room: said once a minute, with how many."""
        count = self._evicting.get(physical.destination)
        if count is not None:
            self._evicting[physical.destination] = count + 1
            return
        self._evicting[physical.destination] = 0
        self.log.warn(
            "{destination} is at its limit and begins to give up messages ({reason})",
            destination=str(physical.destination),
            reason=reason.value,
        )

        def report() -> None:
            more = self._evicting.pop(physical.destination, 0)
            if more:
                self.log.warn(
                    "{destination} gave up {count} more messages in a minute", destination=str(physical.destination), count=more
                )

        self.schedule.at(self.turn.refresh() + 60_000, report)

    def _draining(self, full: bool) -> None:
        self.memory.spilling = not full
        if full:
            self.log.error("the disk is full: persistent messages are refused until there is room, acknowledgements are taken")
        else:
            self.log.info("the disk has room again: persistent messages are taken")

    def close(self, closed: Callable[[], None]) -> None:
        """Make durable what was asked, and close the store; then call ``closed``."""
        self.schedule.close()

        def flushed(error: StoreError | None) -> None:
            self.store.close(closed)

        self.commits.wait(flushed)


def check_name(destination: Destination) -> None:
    """Whether a destination can have this name.

    :raises InvalidDestination: it is empty, too long, has a control character, or begins with ``mq.``, which is the broker's own.
    """
    name = destination.name
    if not name:
        raise InvalidDestination(destination, "a destination needs a name")
    if len(name) > _LONGEST_NAME:
        raise InvalidDestination(f"{name[:40]}...", f"the name is longer than {_LONGEST_NAME} characters")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidDestination(repr(name), "the name has a control character")
    if name.startswith("mq.") and destination != DMQ:
        raise InvalidDestination(destination, "names that begin with 'mq.' are the broker's own")
