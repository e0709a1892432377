"""Open a broker over its store and restore what an earlier run left.

The scan reads the narrow rows only; whole messages are read back as consumers come to them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.interfaces import IReactorTime

from gateway.broker.broker import Broker
from gateway.broker.core.delivery import redelivery
from gateway.broker.core.delivery.dispatch import Dispatched
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.scheduled import SCHEDULED
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.batch import REMOVED
from gateway.broker.properties.names import is_wild
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.store.interface import (
    DestinationRow,
    IndexRow,
    RedeliveryRow,
    Store,
    StoreDamaged,
    StoreError,
    SubscriptionRow,
)
from gateway.broker.xa.branch import Branch, restored
from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.selector.selector import parse
from gateway.messaging.xa import xid_text
from gateway.reactor.turn import Turn

#: Paused destinations that the log names at the start.
_NAMED: Final = 10


def open_broker(
    clock: IReactorTime,
    turn: Turn,
    store: Store,
    options: BrokerOptions,
    failed: Callable[[StoreError], None],
    *,
    spills: bool = True,
    memory: Memory | None = None,
) -> Broker:
    """Open the broker over what the store holds.

    May block; the reactor does not run yet.

    :param spills: whether the store can hold what memory has no room for; False for the memory
        store.
    :raises StoreError: the store cannot be opened, and why. Nothing was changed.
    """
    recovered = store.open()
    broker = Broker(
        clock, turn, store, recovered.store_id, options, failed, spills=spills, memory=memory
    )
    log = broker.log
    if not recovered.clean:
        log.warn(
            "the last run did not end in order: its process was killed, or its machine stopped; {log}",
            log=recovered.log,
        )
    for note in recovered.notes:
        log.info("{note}", note=note)
    if recovered.full:
        log.error("{full}", full=recovered.full)
        broker.memory.spilling = False
        broker.commits.disk_full(True)
    places = _Places(broker)
    known_rows: list[DestinationRow] = []
    patterns: dict[int, Destination] = {}
    #: Those whose ``>`` means none or more levels.
    open_patterns: set[int] = set()
    removed: set[int] = set()
    for row in sorted(recovered.destinations):
        if row.administered == REMOVED:
            broker.used_number(row.id)
            removed.add(row.id)
            continue
        patterns[row.id] = destination = Destination(Kind(row.kind), row.name)
        if destination.kind is Kind.TOPIC and is_wild(destination.name):
            broker.used_number(row.id)
            if broker.rows.restore_pattern(destination, row):
                open_patterns.add(row.id)
            continue
        known_rows.append(row)
    places.add(known_rows)
    durables: dict[int, TopicSubscription] = {}
    superseded: list[TopicSubscription] = []
    for known in sorted(recovered.subscriptions):
        broker.used_number(known.id)
        if known.destination in removed:
            # It was ending when its topic was removed.
            broker.commits.remove_subscription(known.id)
            continue
        subscription = durables[known.id] = _subscription(
            broker, known, patterns, known.destination in open_patterns, recovered.path
        )
        key = (known.client_id, known.name)
        if key in broker.durables:
            superseded.append(broker.durables[key])
        broker.durables[key] = subscription
        broker.subscribing.begin(subscription)
    count = _restore_messages(broker, store, places, durables, removed, recovered.path)
    needed = {known.destination for known in recovered.subscriptions}
    for number in places.successors.keys() - places.asked - needed:
        broker.commits.remove_destination(number)
    broker.numbering.start(recovered.next_seq)
    for duplicates in store.scan_duplicates():
        broker.duplicates.restore(duplicates, patterns)
    for destination in broker.duplicates.needless():
        broker.create(destination)
    for destination in broker.configured:
        if destination.kind is Kind.QUEUE and broker.virtual.topic_of(destination.name):
            # Copies come before anybody uses it.
            broker.create(destination)
    for subscription in superseded:
        # The process ended while it was being redefined.
        broker.end_durable(subscription, "the durable subscription was redefined", lambda: None)
    for physical in list(broker.destinations.values()):
        physical.found, physical.found_octets = physical.count, physical.octets
        physical.peak, physical.peak_octets = physical.count, physical.octets
        physical.identified = broker.last_seq
        physical.emptied()
        if isinstance(physical, PhysicalQueue):
            physical.find_last_values()
    paused = [
        f"{physical} is {physical.pause.state}"
        for physical in broker.destinations.values()
        if physical.pause
    ]
    if paused:
        log.warn(
            "an administrator has paused {count} destinations: {paused}{more}",
            count=len(paused),
            paused=", ".join(paused[:_NAMED]),
            more=", ..." if len(paused) > _NAMED else "",
        )
    log.info(
        "store {store} holds {count} messages, {destinations} destinations, {subscriptions} durable subscriptions",
        store=recovered.store_id,
        count=count,
        destinations=len(recovered.destinations),
        subscriptions=len(recovered.subscriptions),
    )
    if recovered.full:
        # Its first job starts the store's thread, which looks for room from then on. What waits for
        # room does not become one.
        store.fetch([], lambda found: None)
    return broker


class _Places:
    """Destinations by their numbers.

    A destination of which the store has only a row is made when something that needs it is found;
    duplicate ids do not.

    There may be two of one name: one that was destroyed while dead messages of it waited for room
    on the disk, and its successor. They are one from then on, and the row of the first goes at the
    first start that finds nothing of it.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: dict[int, PhysicalQueue | PhysicalTopic] = {}
        self._rows: dict[int, Destination] = {}
        #: Rows of those that have a successor of the same name: its number.
        self.successors: dict[int, int] = {}
        #: Numbers of destinations that something was found of.
        self.asked: set[int] = set()

    def add(self, rows: Sequence[DestinationRow]) -> None:
        """The store has these, by rising numbers."""
        latest = {(row.kind, row.name): row.id for row in rows}
        for row in rows:
            successor = latest[row.kind, row.name]
            if successor == row.id:
                self._add(row)
            else:
                self._broker.used_number(row.id)
                self.successors[row.id] = successor

    def _add(self, row: DestinationRow) -> None:
        destination = Destination(Kind(row.kind), row.name)
        if (
            row.properties
            or row.administered
            or destination in self._broker.configured
            or (row.kind == Kind.QUEUE and self._broker.virtual.topic_of(row.name))
        ):
            self._made[row.id] = self._broker.restore(row)
        else:
            self._broker.used_number(row.id)
            self._broker.duplicates.stay_away(destination, row.id)
            self._rows[row.id] = destination

    def get(self, number: int) -> PhysicalQueue | PhysicalTopic | None:
        """The destination of that number, if there is one."""
        self.asked.add(number)
        number = self.successors.get(number, number)
        made = self._made.get(number)
        if made is None and number in self._rows:
            made = self._made[number] = self._broker.create(self._rows[number])
        return made


class _Holdings:
    """What prepared branches hold, which must not wait where it was.

    :raises StoreError: a branch cannot be read. The broker knows all of them then.
    """

    def __init__(self, broker: Broker, store: Store) -> None:
        self._sent: dict[int, Branch] = {}
        #: Messages that branches have acknowledged and that the scan has not come to: owner and seq.
        #: The durable subscription that had one may exist no longer.
        self.acknowledged: dict[tuple[int, int], Branch] = {}
        self._open = broker.sent_in_branches
        for block in store.scan_branches():
            for row in block:
                branch, sent, taken = restored(row)
                # Only when they are read it is known whether these are to be delivered later.
                broker.core.schedules = broker.core.schedules or bool(sent)
                broker.branches.restore(branch)
                self._sent.update(dict.fromkeys(sent, branch))
                self.acknowledged.update(dict.fromkeys(taken, branch))

    def sent(self, row: IndexRow, physical: PhysicalQueue | PhysicalTopic | None) -> bool:
        """Whether a branch has sent this message, which then must not wait.

        :param physical: where it goes.

        :raises StoreError: that is missing.
        """
        branch = self._sent.pop(row.seq, None) if self._sent else None
        if branch is None:
            return False
        if physical is None:
            raise StoreError(
                f"the store holds branch {xid_text(branch.xid)} (row {branch.id}) that has sent message {row.seq} to destination "
                f"{row.destination}, which is missing"
            )
        branch.unread_sends.append((physical, row))
        self._open.add(row.seq)
        branch.sent += 1
        physical.add_prepared(1, row.size)
        return True

    def taken(self, row: IndexRow, source: Dispatched) -> bool:
        """Whether a branch has acknowledged this message.

        It counts at its source then, and must not wait there.
        """
        branch = self.acknowledged.pop((source.owner, row.seq), None) if self.acknowledged else None
        if branch is None:
            return False
        branch.unread_taken.append((source, row))
        branch.acknowledged += 1
        source.dispatch.locked += 1
        return True

    def check(self) -> None:
        """Check, after the scan, that every message sent by a branch exists.

        What branches have acknowledged may be missing, with its durable subscription.

        :raises StoreError: one is missing.
        """
        for seq, branch in self._sent.items():
            raise StoreError(
                f"the store holds branch {xid_text(branch.xid)} (row {branch.id}) that has sent message {seq}, which is missing"
            )


class _Later:
    """The times of scheduled messages, which may be very many.

    They are found in the order of the messages.
    """

    def __init__(self) -> None:
        self._rows = array("Q")
        self._place = 0

    def add(self, row: RedeliveryRow) -> None:
        self._rows.extend((row.seq, row.not_before, row.attempts))

    def restored(
        self, broker: Broker, physical: PhysicalQueue | PhysicalTopic, row: IndexRow
    ) -> bool:
        """Whether a message is scheduled. Then it counts, and waits for its time."""
        rows = self._rows
        while self._place < len(rows) and rows[self._place] < row.seq:
            self._place += 3
        if self._place >= len(rows) or rows[self._place] != row.seq:
            return False
        physical.count += 1
        physical.octets += row.size
        due_ms, fired = rows[self._place + 1], rows[self._place + 2]
        broker.core.schedules = True
        broker.scheduled.restore(physical, row.seq, row.size, due_ms, fired)
        return True


def _subscription(
    broker: Broker,
    row: SubscriptionRow,
    patterns: dict[int, Destination],
    none_or_more: bool,
    path: str,
) -> TopicSubscription:
    if row.destination not in patterns:
        what = f"its topic, row {row.destination}, is missing: '{row.name}' of client-id '{row.client_id}'"
        raise StoreDamaged(path, f"subscription {row.id}", what)
    if patterns[row.destination].kind is not Kind.TOPIC:
        what = f"its destination, row {row.destination}, is a queue; a topic was expected: '{row.name}' of client-id '{row.client_id}'"
        raise StoreDamaged(path, f"subscription {row.id}", what)
    try:
        return TopicSubscription(
            broker.core,
            broker,
            patterns[row.destination],
            parse(row.selector) if row.selector else None,
            no_local=bool(row.no_local),
            number=row.id,
            client_id=row.client_id,
            name=row.name,
            none_or_more=none_or_more,
        )
    except InvalidSelector as error:
        what = f"durable subscription '{row.name}' of client-id '{row.client_id}' (row {row.id})"
        raise StoreError(f"the store holds a {what} that cannot be restored: {error}") from error


def _restore_messages(
    broker: Broker,
    store: Store,
    places: _Places,
    durables: dict[int, TopicSubscription],
    removed: set[int],
    path: str,
) -> int:
    """Put every message where it waits.

    :param removed: destinations whose messages were being deleted when the process ended.
    :param path: the store's file, for errors.
    :returns: how many there are.
    :raises StoreDamaged: a message or what says to whom it is owed names what is missing.
    """
    tried: dict[tuple[int, int], RedeliveryRow] = {}
    later = _Later()
    for tries in store.scan_redeliveries():
        for each in tries:
            if each.owner == SCHEDULED:
                later.add(each)
            else:
                tried[each.owner, each.seq] = each
    held = _Holdings(broker, store)
    count = 0
    of_topics: dict[int, IndexRow] = {}
    gone: set[int] = set()
    for block in store.scan():
        count += len(block)
        for row in block:
            place = places.get(row.destination)
            if held.sent(row, place):
                continue
            if place is None:
                if row.destination not in removed:
                    raise StoreDamaged(
                        path,
                        f"message {row.seq}",
                        f"its destination, row {row.destination}, is missing",
                    )
                gone.add(row.seq)
                broker.commits.delete(row.seq)
                continue
            if later.restored(broker, place, row):
                continue
            if not isinstance(place, PhysicalQueue):
                of_topics[row.seq] = row
                continue
            place.count += 1
            place.octets += row.size
            _restore(
                broker,
                place,
                row,
                tried.pop((0, row.seq), None) if tried else None,
                held.taken(row, place),
            )
    owed: set[int] = set()
    for pairs in store.scan_owed():
        for number, seq in pairs:
            message = of_topics.get(seq)
            subscription = durables.get(number)
            if seq in gone or (subscription is None and (number, seq) in held.acknowledged):
                # Its topic was being removed when the process ended; or its subscription was, and a
                # branch has acknowledged it.
                broker.commits.settle(number, seq)
                continue
            if subscription is None:
                raise StoreDamaged(
                    path,
                    f"owed row of message {seq}",
                    f"its subscription, row {number}, is missing",
                )
            if message is None:
                raise StoreDamaged(
                    path,
                    f"owed row of message {seq}",
                    f"subscription {number} is owed it, and no topic has it",
                )
            topic = places.get(message.destination)
            assert isinstance(topic, PhysicalTopic), "of_topics has messages of topics only"
            topic.count += 1
            topic.octets += message.size
            if subscription.selector is not None:
                subscription.restored = max(subscription.restored, seq)
            locked = held.taken(message, subscription)
            _restore(
                broker,
                subscription,
                message,
                tried.pop((number, seq), None) if tried else None,
                locked,
            )
            if seq in owed:
                broker.rows.share(seq)
            owed.add(seq)
    settled = of_topics.keys() - owed
    for seq in settled:
        # Every durable subscription has settled it. Only one that was not durable still had it when
        # the process ended.
        broker.commits.delete(seq)
    held.check()
    for owner, seq in tried:
        broker.commits.settle(owner, seq)
    for number in removed:
        broker.commits.remove_destination(number)
    if gone or settled:
        broker.log.info(
            "deleted {gone} messages of destinations that were being removed when the last run ended, and {settled} of topics that no "
            "durable subscription is owed any more",
            gone=len(gone),
            settled=len(settled),
        )
    return count - len(gone) - len(settled)


def _restore(
    broker: Broker, place: Dispatched, row: IndexRow, tried: RedeliveryRow | None, locked: bool
) -> None:
    """Put a message back in its queue, or continue its pause.

    :param locked: a prepared branch has acknowledged it.
    """
    if tried is not None:
        place.dispatch.failed_deliveries[row.seq] = tried.attempts
    if locked:
        return
    if tried is not None and tried.not_before > broker.turn.now_ms:
        redelivery.resume_pause(place, row.seq, row.size, tried.not_before)
        return
    place.dispatch.backlog.restore(row.priority, row.seq, row.size, row.expires)
