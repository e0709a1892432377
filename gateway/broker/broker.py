"""The embedded broker: its destinations, and how messages get to them.

Owns the registry of destinations and durable subscriptions, and the acceptance of what sessions
send. How a queue or a subscription hands messages out is ``dispatch``'s, what becomes durable
when is ``commit``'s, what one user may do is ``connection``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.broker.acceptance.acceptance import Acceptance
from gateway.broker.advisories import Advisories
from gateway.broker.arrivals.duplicates import DuplicateIds
from gateway.broker.arrivals.numbering import Numbering
from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.unacknowledged import Unacknowledged
from gateway.broker.core.dead_letters import DeadLetters
from gateway.broker.core.destinations import subscription_end
from gateway.broker.core.destinations.addresses import Addresses
from gateway.broker.core.destinations.pauses import Pauses
from gateway.broker.core.destinations.purging import fail_consumers, purge
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.queue_pattern import QueuePatterns
from gateway.broker.core.destinations.subscribing import Subscribing
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic, WildSubscriptions
from gateway.broker.core.limit_reports import DeadReports, LimitReports, UseReports
from gateway.broker.core.refusals import Refusals
from gateway.broker.core.scheduled import ScheduledMessages
from gateway.broker.core.virtual_topics import VirtualTopics, arrive, make_room
from gateway.broker.core.waiting.memory import Memory, of_destination
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.durability.reach import Reach
from gateway.broker.durability.rows import Destined, Rows
from gateway.broker.housekeeping import Housekeeping
from gateway.broker.properties import administered_properties
from gateway.broker.properties.destination_properties import DestinationProperties, address_from
from gateway.broker.properties.names import check_name
from gateway.broker.properties.pause import taken_from
from gateway.broker.properties.settings import DMQ_PROPERTIES, BrokerOptions
from gateway.broker.store.interface import (
    DestinationRow,
    Store,
    StoreDamaged,
    StoreError,
    StoreFailed,
)
from gateway.broker.timing.schedule import Schedule
from gateway.broker.timing.selector_time import SelectorTime
from gateway.broker.xa.registry import Branches
from gateway.broker.xa.work import BranchWork
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import DestinationStopped, InvalidDestination
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn


class Broker:
    """Queues, topics, durable subscriptions, and the messages in them.

    Made by :func:`gateway.broker.recovery.open_broker`.

    :param clock: the reactor.
    :param store: opened.
    :param store_id: in every message id.
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
        self.memory = memory or Memory()
        self.memory.spills = spills
        self.schedule = Schedule(clock, turn)
        self.selector_time = SelectorTime(clock, turn)
        self.commits = GroupCommit(store, turn, failed)
        self.rows = Rows(store, self.commits, turn)
        self.dead_reports = DeadReports(self.schedule)
        self.dead_letters = DeadLetters(self.arrive, self.create, turn, options, self.dead_reports)
        self.limit_reports = LimitReports(self.schedule)
        #: What the destinations and subscriptions of this broker share.
        self.core: Changes = Changes(
            lambda physical: self.housekeeping.reap_later(physical),
            self._removal_over,
            self.dead_letters,
            self.limit_reports,
            turn,
            self.memory,
            self.schedule,
            self.selector_time,
            self.commits,
            self.rows,
            spills=spills,
            most_rollbacks=options.most_rollbacks,
            moves_groups=options.moves_groups,
        )
        self.store_id = store_id
        #: Properties that the settings give, by destination.
        self.configured = dict([(DMQ, DMQ_PROPERTIES), *options.destinations])
        self.destinations: dict[Destination, PhysicalQueue | PhysicalTopic] = {}
        self.durables: dict[tuple[str, str], TopicSubscription] = {}
        #: Those that are shared and not durable, in the same way.
        self.shared: dict[tuple[str, str], TopicSubscription] = {}
        self.virtual = VirtualTopics(options.virtual_topics, options.virtual_prefix)
        #: Consumers of all queues that a pattern covers.
        self.queue_patterns = QueuePatterns(self._queues, self.virtual)
        self.topics: dict[Destination, PhysicalTopic] = {}
        self.pauses = Pauses()
        self.wild = WildSubscriptions(self.schedule, self.topics)
        #: Durable ones that are going, and whose rows are there yet.
        self._ending: dict[TopicSubscription, None] = {}
        self._next_number = 1
        self.subscribing = Subscribing(
            self.wild,
            self.topics,
            self.topic,
            self.pauses,
            self.memory,
            self.commits,
            self.rows,
            self.new_number,
            lambda: (*self.durables.values(), *self._ending),
        )
        self.numbering: Numbering = Numbering(store_id, self.commits, turn, self.find)
        self.scheduled = ScheduledMessages(
            turn, self.schedule, self.memory, self.commits, self.rows, self.numbering.give
        )
        self.scheduled.prefix = self.numbering.prefix
        self.core.later = self.scheduled
        self._soon: list[Callable[[], None]] = []
        self.advisories = Advisories(self, options.name)
        #: Called when the store is closed; None before that is asked, and after.
        self._closed: Callable[[], None] | None = None
        store.on_full = self._disk_full
        self.reach = Reach(store, turn, self._close_unreachable)
        store.on_damaged = self._damaged_unasked
        store.on_failed = self._store_failed
        self.rows.on_damaged = self._damaged
        self.use_reports = UseReports(self.schedule, options.reap_time)
        self.refusals = Refusals(turn)
        self.housekeeping = Housekeeping(
            turn,
            self.schedule,
            options,
            self.destinations,
            self.wild.subscriptions,
            self.use_reports,
            partial(self.remove, keeps_ids=True),
        )
        self.unacknowledged = Unacknowledged(self.memory, self.schedule)
        #: Seqs of the messages that prepared branches have sent.
        self.sent_in_branches: set[int] = set()
        self.duplicates = DuplicateIds(
            options,
            turn,
            self.schedule,
            self.commits,
            self.rows,
            self.numbering,
            self.sent_in_branches,
        )
        self.addresses = Addresses(self.find, self.rows.store_destination, self.duplicates.repeats)
        self.acceptance = Acceptance(self.commits, store, options, self.numbering, self.duplicates)
        self.branches = Branches(
            turn,
            self.schedule,
            self.commits,
            BranchWork(
                self.rows,
                self.memory,
                self.acceptance,
                self.soon,
                self.sent_in_branches,
            ),
            options.xa_timeout,
            self.soon,
        )

    def waiting_octets(self) -> int:
        """Octets of messages in memory, waiting for consumers or for the store."""
        return self.memory.octets + self.commits.octets_waiting

    # --- destinations

    def properties_for(self, destination: Destination) -> DestinationProperties:
        """The properties that a destination has, or would have."""
        physical = self.destinations.get(destination)
        if physical is not None:
            return physical.properties
        return (
            self.configured.get(destination) or self._auto(destination) or DestinationProperties()
        )

    def _auto(self, destination: Destination) -> DestinationProperties | None:
        """What use gives a destination of its kind; None where it creates none."""
        kind = destination.kind
        return self.options.auto_queue if kind is Kind.QUEUE else self.options.auto_topic

    def find(self, destination: Destination) -> PhysicalQueue | PhysicalTopic | None:
        """The physical destination, if there is one."""
        return self.destinations.get(destination)

    def creatable(self, destination: Destination) -> bool:
        """Whether using the destination would create it."""
        return (
            destination in self.configured
            or destination.temporary
            or self._auto(destination) is not None
        )

    def create(
        self, destination: Destination, given: DestinationProperties | None = None
    ) -> PhysicalQueue | PhysicalTopic:
        """The physical destination, made if it does not exist.

        :param given: what an administrator gives it; None where use makes it.
        :raises InvalidDestination: the name is not one.
        """
        physical = self.destinations.get(destination)
        if physical is not None:
            return physical
        check_name(destination)
        stayed = self.duplicates.come_back(destination)
        number = stayed or self.new_number()
        physical = self._register(destination, number, given or self.properties_for(destination))
        physical.since = physical.identified = self.last_seq
        physical.stored = bool(stayed)
        physical.auto_created = (
            given is None and not destination.temporary and destination not in self.configured
        )
        # What it is made for may be refused, or be a repetition.
        physical.emptied()
        if physical.copied_from is not None and not physical.stored:
            # A restart is to find it, though it is empty.
            self.rows.store_destination(physical)
        if self.queue_patterns.consumers:
            self.queue_patterns.created(physical)
        self.advisories.created(physical)
        return physical

    def _queues(self) -> list[PhysicalQueue]:
        every = self.destinations.values()
        return [physical for physical in every if isinstance(physical, PhysicalQueue)]

    def restore(self, row: DestinationRow) -> PhysicalQueue | PhysicalTopic:
        """Restore a destination that the store knows.

        :raises StoreError: its properties cannot be read.
        """
        destination = Destination(Kind(row.kind), row.name)
        held = self.configured.get(destination)
        try:
            text, pause = taken_from(row.properties)
            given = administered_properties.from_text(text) if row.administered else None
            address = "" if row.administered else address_from(text)
            if given is not None:
                held = administered_properties.over(held or DestinationProperties(), given)
            elif held is None and text and not address:
                held = DestinationProperties.from_text(text)
            elif held is None:
                held = replace(self.properties_for(destination), address=address)
        except ValueError as error:
            raise StoreError(
                f"the store holds {destination} with properties that cannot be read: {error}"
            ) from error
        made = self._register(destination, row.id, held)
        made.stored = True
        made.administered = given
        by_use = not text or bool(address)
        made.auto_created = destination not in self.configured and by_use and given is None
        self.pauses.set(made, pause)
        self.used_number(row.id)
        return made

    def _register(
        self, destination: Destination, number: int, given: DestinationProperties
    ) -> PhysicalQueue | PhysicalTopic:
        physical: PhysicalQueue | PhysicalTopic
        if destination.kind is Kind.QUEUE:
            physical = PhysicalQueue(self.core, destination, number, given)
        else:
            physical = PhysicalTopic(self.core, self.wild, destination, number, given)
            self.topics[destination] = physical
        self.destinations[destination] = physical
        self.virtual.register(physical)
        self.addresses.register(physical)
        self.memory.count_object(of_destination(destination.name))
        return physical

    def topic(self, destination: Destination) -> PhysicalTopic:
        """The physical topic, made if it does not exist."""
        physical = self.create(destination)
        assert isinstance(physical, PhysicalTopic)
        return physical

    def topic_of(self, message: Message) -> PhysicalTopic | None:
        """The topic that the message was sent to, unless it was removed."""
        physical = self.destinations.get(message.headers.destination)
        return (
            physical
            if isinstance(physical, PhysicalTopic) and message.seq > physical.since
            else None
        )

    def queue(self, destination: Destination) -> PhysicalQueue:
        """The physical queue, made if it does not exist."""
        physical = self.create(destination)
        assert isinstance(physical, PhysicalQueue)
        return physical

    def remove(
        self,
        physical: PhysicalQueue | PhysicalTopic,
        done: Callable[[], None] = lambda: None,
        *,
        keeps_ids: bool = False,
    ) -> None:
        """Remove the destination, with its messages.

        Messages that wait in it or that its consumers have go, too; subscriptions of a topic lose
        its messages only.

        :param keeps_ids: its duplicate ids are remembered anyway, and hold for the next
            destination of its name.
        :param done: called when nothing is left of it but commits.
        """
        physical.removed = True
        if self.destinations.pop(physical.destination, None) is None:
            done()
            return
        self.advisories.removed(physical)
        self.pauses.forget(physical)
        self.scheduled.discard(physical)
        self.topics.pop(physical.destination, None)
        self.virtual.remove(physical)
        self.addresses.forget(physical)
        self.memory.count_object(-of_destination(physical.destination.name))
        if (
            physical.stored
            and keeps_ids
            and self.duplicates.keep_away(physical.destination, physical.number)
        ):
            # Its row stays as long as its ids are remembered.
            physical.stored = False
        elif physical.stored and physical.dmq_comment is None and physical.has_rows:
            # Until its last message is deleted, so that a restart does not find messages of no
            # destination. It would delete them, too; those that are to be buried are nowhere else
            # yet, and it is to find them again.
            self.rows.mark_removed(physical)

        def emptied(count: int) -> None:
            physical.purged = True
            self._removal_over(physical)
            done()

        if isinstance(physical, PhysicalQueue):
            fail_consumers(
                physical, InvalidDestination(physical.destination, "the destination was removed")
            )
            physical.offer_room()
            physical.keep_last_values("")
            purge(physical, emptied)
        self.limit_reports.forget(physical)
        if not keeps_ids:
            self.duplicates.forget(physical.destination)
        waiting, physical.waiting_senders = physical.waiting_senders, []
        for resume in waiting:
            self.turn.deliver(resume)
        if not isinstance(physical, PhysicalQueue):
            emptied(0)

    def _removal_over(self, physical: Destined) -> None:
        """Delete the row of a removed destination once nothing holds it."""
        if physical.purged and physical.stored and not physical.has_rows:
            physical.stored = False
            if self.rows.damaged:
                self.rows.delete_damaged(physical.number)
            self.commits.remove_destination(physical.number)

    def new_number(self) -> int:
        """A new number for a destination or a durable subscription.

        It has the number in the store and for as long as it lasts.
        """
        number = self._next_number
        self._next_number += 1
        return number

    def used_number(self, number: int) -> None:
        self._next_number = max(self._next_number, number + 1)

    def end_subscription(
        self, subscription: TopicSubscription, done: Callable[[], None] = lambda: None
    ) -> None:
        """Stop delivering messages to the subscription.

        What waits in one that is not durable is given up; then ``done`` is called.
        """
        key = (subscription.client_id, subscription.name)
        if self.shared.get(key) is subscription:
            del self.shared[key]
        topic = self.subscribing.end(subscription)
        if not subscription.durable:
            subscription_end.discard(subscription, subscription.dmq_comment, done)
        if topic is not None:
            topic.emptied()

    def end_durable(
        self, subscription: TopicSubscription, comment: str | None, done: Callable[[], None]
    ) -> None:
        """Remove a durable subscription with its backlog, block by block.

        ``done`` is called when nothing is left of it except commits.

        :param comment: why, for the dead message queue; None sends nothing there.

        Its row goes last. So a restart meanwhile finds it again, beside its successor if it has
        one, and ends it again.
        """
        if self.durables.get((subscription.client_id, subscription.name)) is subscription:
            del self.durables[subscription.client_id, subscription.name]
        pattern, topic = subscription.pattern, subscription.named
        if topic is not None:
            topic.clearing += 1
        self._ending[subscription] = None
        self.end_subscription(subscription)

        def emptied() -> None:
            self._ending.pop(subscription, None)
            self.commits.remove_subscription(subscription.number)
            self.subscribing.forget(pattern, subscription.none_or_more)
            if topic is not None:
                topic.cleared()
            done()

        kept = comment if self.properties_for(pattern).use_dmq else None
        subscription_end.discard(subscription, kept, emptied)

    @property
    def last_seq(self) -> int:
        """That of the message accepted last."""
        return self.numbering.last

    def arrive(self, destination: Destination, messages: Sequence[Message]) -> None:
        """Messages of the broker's own arrive somewhere; no limit refuses them."""
        physical = self.create(destination)
        arrive(physical, messages, lambda run: self.numbering.give(run, messages[0].user, 0))
        make_room(physical)

    # --- turns and the end

    def soon(self, work: Callable[[], None]) -> None:
        """Do ``work`` at the end of this turn, before anything is written."""
        self._soon.append(work)
        if len(self._soon) == 1:
            self.turn.deliver(self._do_soon)

    def _do_soon(self) -> None:
        self._soon, work = [], self._soon
        for do in work:
            try:
                do()
            except Exception:  # noqa: BLE001
                # It must not take the others' turn away; it is logged, never silent.
                self.log.failure("what was to be told at the end of a turn failed: {work}", work=do)

    def _disk_full(self, full: bool) -> None:
        """The disk is full, or has room again; the store has said so in the log."""
        with self.turn:
            self.memory.spilling = not full
            self.commits.disk_full(full)

    def _damaged(self, error: StoreDamaged) -> None:
        """Stop the destination of a message that is damaged in the store.

        If the destination is not known, everything is stopped.
        """
        self.log.critical("{error}", error=str(error))
        if error.destination is None:
            self.commits.fail(
                StoreFailed(f"{error}; it is not known which destination this is about")
            )
            return
        for physical in self.destinations.values():
            if physical.number == error.destination and not physical.damaged:
                self.log.critical(
                    "{destination} is stopped: its consumers end, and nothing is sent to it. Restore a backup, or give its messages up with "
                    "'imqcmd destroy dst'; 'imqdbmgr check' says what else is damaged",
                    destination=str(physical.destination),
                    event="destination.damaged",
                )
                physical.stop(DestinationStopped(physical.destination))
                break

    def _damaged_unasked(self, error: StoreDamaged) -> None:
        """The same where the store has found it by itself."""
        with self.turn:
            self._damaged(error)

    def _store_failed(self, error: StoreFailed) -> None:
        """The store has failed, maybe while no caller waited for it."""
        with self.turn:
            self.commits.fail(error)

    def close(self, closed: Callable[[], None]) -> None:
        """Make durable what was asked, and close the store; then call ``closed``.

        On a full disk what needs no room is tried a few times. What cannot be written then is a
        failure of the store, so that the exit tells of it. What waits for room is not stored; no
        sender was told that it was.

        While the database cannot be reached, the store has its own time-out for what it is given.
        """
        self.use_reports.report()
        self.dead_reports.report()
        self.schedule.close()
        self.selector_time.close()
        self._closed = closed
        self.commits.close(lambda error: self._close_store())
        self._close_unreachable()

    def _close_unreachable(self) -> None:
        """If closing has to wait for an unreachable database, do not wait."""
        if self._closed is not None and self.turn.suspended:
            self.commits.submit_all()
            self._close_store()

    def _close_store(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            self.store.close(closed)
