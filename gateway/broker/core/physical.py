"""What queues and topics have in common: identity, properties, counts, and senders who wait for
room.

Owns the counts that limits are about, and the decision at a limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gateway.broker.core.limits import DestinationProperties, LimitBehavior
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationFull, DestinationStopped
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.core.changes import Changes
    from gateway.broker.core.source import Source

#: Messages given up in one turn to make room.
_REMOVED: Final = 100

#: Messages that were kept and are to take their places, as their destination has them; empty for
#: none.
Kept: TypeAlias = Sequence[Any]


class Reservation:
    """A place in the order of arrivals of one destination.

    :param kept: None while it is not known what, if anything, arrives there.
    """

    __slots__ = ("count", "kept", "octets")

    def __init__(self, kept: Kept | None) -> None:
        self.kept = kept
        #: Messages and octets that limits count as if they were here.
        self.count = 0
        self.octets = 0


class Physical:
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
        #: Messages with this seq or a lower one were sent to an earlier destination of the same
        #: name.
        self.since = 0
        #: No message here with a seq above this one has an id that is not made of its seq.
        self.identified = 0
        #: Nobody made it but a send or a subscription, so it goes when nobody uses it.
        self.auto_created = True
        #: What an administrator has given it: name and value of properties. None when it is no
        #: administrator's.
        self.administered: dict[str, str] | None = None
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
        self.held = 0
        #: Since when nobody has used it, as far as is known, in milliseconds of the clock of
        #: timers.
        self.idle_since = 0
        self.removed = False
        #: What has left the count and may still have rows that name this destination in the store:
        #: purges that go on, and durable subscriptions that are ending. Until it is 0 again the
        #: destination's row stays.
        self.clearing = 0
        #: Called once nothing clears any more.
        self._on_clear: list[Callable[[], None]] = []
        #: As :attr:`Place.burial`, for the whole of a topic.
        self.burial: str | None = None
        #: Once it was removed: what waited in it was given up to the last.
        self.purged = False
        #: A message of it is damaged in the store: nothing comes, and nothing is delivered.
        self.damaged = False

    # --- what differs

    def keep(self, run: Sequence[Message]) -> Kept:
        """Messages are coming, with rising seqs: put what must be stored of them into the gathering
        batch.

        :returns: what :meth:`arrive` or :meth:`fill_place` is to be given for them.
        """
        raise AssertionError("a physical destination is a queue or a topic")

    def place(self, kept: Kept) -> None:
        """What was kept takes its places, and may be delivered."""
        raise AssertionError("a physical destination is a queue or a topic")

    def keep_held(self, run: Sequence[Message]) -> Kept:
        """A prepared branch that has sent these is being committed: put what that changes in the
        store into the gathering batch.

        :returns: what :meth:`place_held` is to be given for them.
        """
        raise AssertionError("a physical destination is a queue or a topic")

    def place_held(self, kept: Kept) -> None:
        """What was kept takes the places that its seqs say, before what was sent after the branch
        was prepared.
        """
        raise AssertionError("a physical destination is a queue or a topic")

    def evict(self, lowest_priority: bool) -> bool:
        raise AssertionError("a physical destination is a queue or a topic")

    def stop(self, error: DestinationStopped) -> None:
        """A message of it is damaged: it takes and delivers nothing more, and its consumers end.
        What waits stays in the store.
        """
        raise AssertionError("a physical destination is a queue or a topic")

    @property
    def busy(self) -> bool:
        raise AssertionError("a physical destination is a queue or a topic")

    @property
    def drops_arrivals(self) -> bool:
        """Whether what still arrives is given up: it was removed, and nothing of it goes to the
        dead message queue.
        """
        return self.removed and self.burial is None

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

    def came(self, count: int, octets: int) -> None:
        """So many messages, of so many octets in all, count from now on."""
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
        """Whether so many messages of so many octets in all may come. :raises DestinationFull:"""
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
        """Whether senders should be held back: a FLOW_CONTROL destination has reached a limit."""
        properties = self.properties
        return properties.limit_behavior is LimitBehavior.FLOW_CONTROL and (
            0 <= properties.max_num_msgs <= self.count + self.coming
            or 0 <= properties.max_total_msg_bytes <= self.octets + self.coming_octets
        )

    def make_room(self) -> None:
        """After arrivals: give up old messages while a limit is exceeded, or say that senders are
        held back, as the properties say.
        """
        behavior = self.properties.limit_behavior
        if behavior in (LimitBehavior.REMOVE_OLDEST, LimitBehavior.REMOVE_LOW_PRIORITY):
            if not self._removing:
                self._removing = True
                self.changes.schedule.in_slices(
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
            if self.holds_back:
                self.holds_back = False
                self.changes.reports.has_room(self)
            self.waiting_senders, resumed = [], self.waiting_senders
            for resume in resumed:
                self.changes.turn.dispatch(resume)

    # --- what branches have sent

    def hold(self, count: int, octets: int) -> None:
        """A branch has sent so many messages: limits leave room for them, and the destination
        stays.
        """
        self.held += count
        self.coming += count
        self.coming_octets += octets

    def let_go(self, count: int, octets: int) -> None:
        """They have come, or never will."""
        self.held -= count
        self.coming -= count
        self.coming_octets -= octets
        if self.waiting_senders or self.holds_back:
            self.let_senders_go()
        self.emptied()

    # --- arrivals in order

    def arrive(self, run: Sequence[Message], kept: Kept) -> None:
        """Messages that were kept may be delivered at once; behind a transaction that came before
        and is not durable yet, they wait for it.

        The caller lets the destination :meth:`make_room` then, outside of what it has stored
        together.
        """
        if self.arrivals:
            self.hold_place(run).kept = kept
        else:
            self.place(kept)

    def hold_place(self, run: Sequence[Message]) -> Reservation:
        """A place in the order of arrivals for messages of a transaction, for which limits leave
        room; see :meth:`fill_place`.
        """
        place = Reservation(None)
        place.count = len(run)
        place.octets = sum([message.size for message in run])
        self.coming += place.count
        self.coming_octets += place.octets
        self.arrivals.append(place)
        return place

    def fill_place(self, place: Reservation, kept: Kept) -> None:
        """The transaction is durable, and its messages arrive; rolled back, none do. Then what
        waited behind.
        """
        place.kept = kept
        while self.arrivals and (ready := self.arrivals[0].kept) is not None:
            first = self.arrivals.popleft()
            self.coming -= first.count
            self.coming_octets -= first.octets
            if ready:
                self.place(ready)
                if self.properties.bounded:
                    self.make_room()
        if self.waiting_senders or self.holds_back:
            self.let_senders_go()
        self.emptied()

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
        """Something left: an auto-created destination that has nothing more and that nobody uses is
        reaped after a while.
        """
        if self.auto_created and not self.removed and not self.damaged and not self.busy:
            self.idle_since = self.changes.turn.refresh_timer()
            self.changes.upkeep.idle(self)
        elif self.removed:
            self.changes.upkeep.removal_over(self)
