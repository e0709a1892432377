"""What queues and topics share: identity, properties, counts, senders.

Owns the counts that limits are about, and the decision at a limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.consumer import Source
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.pause import Pause
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.errors import DestinationFull, DestinationStopped
from gateway.messaging.message import Headers, Message

#: Messages given up in one turn to make room.
_REMOVED: Final = 100

#: What ``accept`` returns for ``enqueue``: a queue's messages, or a topic's subscriptions, each
#: with its messages and the last seq that its selector saw.
Accepted: TypeAlias = Sequence[Any]


class Reservation:
    """A place in the order of arrivals of one destination.

    :param kept: None while it is not known what, if anything, arrives there.
    """

    __slots__ = ("count", "kept", "octets")

    def __init__(self, kept: Accepted | None) -> None:
        self.kept = kept
        #: Messages and octets that limits count as if they were here.
        self.count = 0
        self.octets = 0


class PhysicalDestination(ABC):
    """A destination as the broker keeps it.

    :param number: its id in the store.
    """

    def __init__(
        self,
        changes: Changes,
        destination: Destination,
        number: int,
        properties: DestinationProperties,
    ) -> None:
        self.changes = changes
        self.destination = destination
        self.number = number
        self.properties = properties
        #: Messages that were accepted and not settled, and their octets.
        self.count = 0
        self.octets = 0
        #: Messages and octets that the store had at the start, and those that have come since.
        self.found = self.found_octets = 0
        self.come = self.come_octets = 0
        #: The most that were here at once since the start.
        self.peak = self.peak_octets = 0
        #: Messages among these that are to be delivered later.
        self.scheduled = 0
        #: Messages with this seq or a lower one were sent to an earlier destination of the same
        #: name.
        self.since = 0
        #: Messages with a higher seq have ids that the broker made.
        self.identified = 0
        #: A send or a subscription made it, so it goes when it is no longer used.
        self.auto_created = True
        #: What an administrator has given it: name and value of properties. None when it is no
        #: administrator's.
        self.administered: dict[str, str] | None = None
        #: As an administrator has paused it; changed by
        #: :class:`~gateway.broker.core.destinations.pauses.Pauses`.
        self.pause = Pause.NONE
        #: The store has its row.
        self.stored = False
        #: Called once there is room again.
        self.waiting_senders: list[Callable[[], None]] = []
        #: It is at a limit where it holds its senders back, and the log may have been told.
        self.holds_back = False
        #: Old messages are being given up, slice by slice.
        self._removing = False
        #: Arrivals that wait for the commit of a transaction before them, and the sums of what they
        #: count for.
        self.arrivals: deque[Reservation] = deque()
        self.coming = 0
        self.coming_octets = 0
        #: Those of them that transaction branches have sent, which are prepared or being committed.
        self.prepared = 0
        #: Since when it has not been used, as far as is known, in milliseconds of the clock of
        #: timers.
        self.idle_since = 0
        self.removed = False
        #: What has left the count and may still have rows that name this destination in the store:
        #: purges that go on, and durable subscriptions that are ending. Until it is 0 again the
        #: destination's row stays.
        self.clearing = 0
        #: Called once nothing clears any more.
        self._on_clear: list[Callable[[], None]] = []
        #: As :attr:`QueueOrSubscription.dmq_comment`, for the whole of a topic.
        self.dmq_comment: str | None = None
        #: Once it was removed: what waited in it was given up to the last.
        self.purged = False
        #: A message of it is damaged in the store: nothing comes, and nothing is delivered.
        self.damaged = False
        #: Messages that have died here since the start, by reason; and why the last one did, and
        #: when, in epoch milliseconds.
        self.died: dict[DeadReason, int] = {}
        #: How many of these were not kept, as they are not persistent, and who has rejected them
        #: wants no such ones kept.
        self.dropped = 0
        self.last_death = ""
        self.last_death_ms = 0
        #: Messages in place of which newer ones of their keys came, since the start.
        self.replaced = 0
        #: Of a topic: messages that came while it had no subscription, since the start.
        self.unheard = 0
        #: Of a virtual topic: the queues that get copies of its messages, see
        #: :mod:`gateway.broker.core.virtual_topics`.
        self.copied_to: Sequence[PhysicalDestination] = ()
        #: Of such a queue: the topic. Like a durable subscription the queue stays while it is not
        #: used, until an administrator removes it.
        self.copied_from: Destination | None = None
        #: The last headers that were copied for it, and what became of them.
        self.copied_headers: tuple[Headers, Headers] | None = None

    # --- what differs

    @abstractmethod
    def accept(self, run: Sequence[Message]) -> Accepted:
        """Store what must be stored of a run that is coming.

        The seqs rise. The rows go into the batch that gathers now.

        :returns: what :meth:`arrive` or :meth:`fill_place` is to be given for them.
        """

    @abstractmethod
    def enqueue(self, kept: Accepted, held: bool = False) -> None:
        """What was kept takes its places, and may be delivered.

        :param held: these are the places of its seqs: before messages that were sent after its
            branch was prepared.
        """

    @abstractmethod
    def accept_prepared(self, run: Sequence[Message]) -> Accepted:
        """Store what changes when a prepared branch is committed.

        The branch has sent these messages. The changes go into the batch that gathers now.

        :returns: what :meth:`place` is to be given for them.
        """

    @abstractmethod
    def evict(self, lowest_priority: bool) -> bool: ...

    @abstractmethod
    def stop(self, error: DestinationStopped) -> None:
        """Stop for good, because a message here is damaged.

        The destination takes and delivers nothing more, and its consumers end. What waits stays in
        the store.
        """

    @property
    @abstractmethod
    def busy(self) -> bool: ...

    @property
    def has_rows(self) -> bool:
        """Whether rows of the store may name it, or are to."""
        return bool(self.count or self.arrivals or self.coming or self.clearing)

    @property
    def dead_queue(self) -> Destination:
        """The queue that its dead messages go to, if they are kept.

        Temporary destinations have none of their own.
        """
        name = self.properties.dead_letter_queue
        if name.endswith("."):
            name += self.destination.name
        if not name or self.destination.temporary or Queue(name) == self.destination:
            return DMQ
        return Queue(name)

    @property
    def drops_arrivals(self) -> bool:
        """Whether it gives up what still arrives.

        It does once it was removed, unless its messages go to the dead message queue.
        """
        return self.removed and self.dmq_comment is None

    @property
    def subscriptions(self) -> Sequence[Source]:
        """Those that its messages come to; a queue has none."""
        return ()

    def taken(self) -> None:
        """Messages of it were settled."""
        if self.waiting_senders or self.holds_back:
            self.let_senders_go()
        if not self.count:
            self.emptied()

    def stop_counting(self, count: int, octets: int) -> None:
        """Messages of it are gone, by whatever way: they no longer count."""
        self.count -= count
        self.octets -= octets
        self._left()

    def _left(self) -> None:
        if self.waiting_senders or self.holds_back:
            self.let_senders_go()
        self.emptied()

    def came(self, count: int, octets: int) -> None:
        """Count messages that came, and their octets."""
        self.come += count
        self.come_octets += octets
        self.count += count
        self.octets += octets
        if self.count > self.peak:
            self.peak = self.count
        if self.octets > self.peak_octets:
            self.peak_octets = self.octets

    # --- limits

    def admit(self, count: int, octets: int) -> None:
        """Check that the limits allow this many more messages and octets.

        :raises DestinationFull: they do not.
        """
        properties = self.properties
        if properties.limit_behavior is not LimitBehavior.REJECT_NEWEST:
            return
        if 0 <= properties.max_num_msgs < self.count + self.coming + count:
            raise DestinationFull(self.destination, "maxNumMsgs", properties.max_num_msgs)
        if 0 <= properties.max_total_msg_bytes < self.octets + self.coming_octets + octets:
            raise DestinationFull(
                self.destination, "maxTotalMsgBytes", properties.max_total_msg_bytes
            )

    def over(self) -> bool:
        """Whether a limit on waiting messages is exceeded."""
        properties = self.properties
        return (0 <= properties.max_num_msgs < self.count) or (
            0 <= properties.max_total_msg_bytes < self.octets
        )

    def at_limit(self) -> bool:
        """Whether a FLOW_CONTROL destination should hold senders back."""
        properties = self.properties
        return properties.limit_behavior is LimitBehavior.FLOW_CONTROL and (
            0 <= properties.max_num_msgs <= self.count + self.coming
            or 0 <= properties.max_total_msg_bytes <= self.octets + self.coming_octets
        )

    @property
    def holds_senders(self) -> bool:
        """Whether a pause or a limit holds senders back."""
        return bool(self.pause & Pause.PRODUCERS) or self.at_limit()

    def make_room(self) -> None:
        """After arrivals, do what the properties say about exceeded limits.

        Give up old messages while a limit is exceeded, or report that senders are held back.
        """
        behavior = self.properties.limit_behavior
        if behavior in (LimitBehavior.REMOVE_OLDEST, LimitBehavior.REMOVE_LOW_PRIORITY):
            if not self._removing:
                self._removing = True
                self.changes.schedule.one_step_a_turn(
                    self._remove(behavior is LimitBehavior.REMOVE_LOW_PRIORITY)
                )
        elif self.at_limit():
            self.holds_back = True
            self.changes.reports.holding_back(self)

    def _remove(self, lowest_priority: bool) -> Iterator[None]:
        removed = 0
        try:
            while self.over() and not self.removed and self.evict(lowest_priority):
                removed += 1
                # Only where a limit was lowered, or much came at once.
                if removed % _REMOVED == 0:
                    yield
        finally:
            self._removing = False

    def let_senders_go(self) -> None:
        """There may be room again: tell those who wait for it."""
        if not self.at_limit():
            had_room = not self.holds_back
            if self.holds_back:
                self.holds_back = False
                self.changes.reports.has_room(self)
            if had_room and self.pause & Pause.PRODUCERS:
                return
            self.waiting_senders, resumed = [], self.waiting_senders
            for resume in resumed:
                self.changes.turn.deliver(resume)

    # --- what branches have sent

    def add_prepared(self, count: int, octets: int) -> None:
        """Count messages that a branch has sent.

        Limits leave room for them, and the destination stays.
        """
        self.prepared += count
        self.coming += count
        self.coming_octets += octets

    def remove_prepared(self, count: int, octets: int) -> None:
        """They have come, or never will."""
        self.prepared -= count
        self.coming -= count
        self.coming_octets -= octets
        self._left()

    # --- arrivals in order

    def arrive(self, run: Sequence[Message], kept: Accepted) -> None:
        """Enqueue messages that were kept, behind earlier transactions.

        They may be delivered at once, unless an earlier transaction is not durable yet. Then they
        wait for it.

        The caller lets the destination :meth:`make_room` then, outside of what it has stored
        together.
        """
        if self.arrivals:
            self.hold_place(run).kept = kept
        else:
            self.enqueue(kept)

    def hold_place(self, run: Sequence[Message]) -> Reservation:
        """Reserve a place among the arrivals for messages of a transaction.

        Limits leave room for them. See :meth:`fill_place`.
        """
        place = Reservation(None)
        place.count = len(run)
        place.octets = sum([message.size for message in run])
        self.coming += place.count
        self.coming_octets += place.octets
        self.arrivals.append(place)
        return place

    def fill_place(self, place: Reservation, kept: Accepted) -> None:
        """Enqueue the messages of a transaction that is durable.

        A transaction that was rolled back has no messages. Then place the arrivals that waited
        behind it.
        """
        place.kept = kept
        while self.arrivals and (ready := self.arrivals[0].kept) is not None:
            first = self.arrivals.popleft()
            self.coming -= first.count
            self.coming_octets -= first.octets
            if ready:
                self.enqueue(ready)
                if self.properties.bounded:
                    self.make_room()
        self._left()

    def cleared(self) -> None:
        """One of what was :attr:`clearing` has no rows any more."""
        self.clearing -= 1
        if not self.clearing:
            waiting, self._on_clear = self._on_clear, []
            for call in waiting:
                call()
            self.emptied()

    def on_clear(self, call: Callable[[], None]) -> None:
        """Call ``call`` once nothing is :attr:`clearing`; at once if nothing is."""
        if self.clearing:
            self._on_clear.append(call)
        else:
            call()

    def emptied(self) -> None:
        """Have an unused destination reaped, after something left it.

        It is unused if it was auto-created and is not busy. A removed one may be cleaned up.
        """
        if self.auto_created and not self.removed and not self.damaged and not self.busy:
            self.idle_since = self.changes.turn.refresh_timer()
            self.changes.idle(self)
        elif self.removed:
            self.changes.removal_over(self)

    def __str__(self) -> str:
        return str(self.destination)
