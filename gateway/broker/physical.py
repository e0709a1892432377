"""What queues and topics have in common: identity, properties, counts, and senders who wait for room.

Owns the counts that limits are about, and the decision at a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from gateway.broker.limits import DestinationProperties, LimitBehavior
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationFull
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.broker import Broker


#: Lets messages that were kept take their places.
Arrival: TypeAlias = Callable[[], None]


def nothing() -> None:
    """The arrival of no message."""


class Physical:
    """A destination as the broker keeps it.

    :param number: its id in the store.
    """

    def __init__(self, broker: Broker, destination: Destination, number: int, properties: DestinationProperties) -> None:
        self.broker = broker
        self.destination = destination
        self.number = number
        self.properties = properties
        #: Messages that were accepted and not settled, and their octets.
        self.count = 0
        self.octets = 0
        #: Nobody made it but a send or a subscription, so it goes when nobody uses it.
        self.auto_created = True
        #: The store has its row.
        self.stored = False
        #: Called once there is room again.
        self.waiting_senders: list[Callable[[], None]] = []
        #: Arrivals that wait for the commit of a transaction before them.
        self.arrivals: list[list[Arrival | None]] = []
        self.removed = False

    # --- what differs

    def keep(self, run: Sequence[Message]) -> Arrival:
        """Messages are coming, with rising seqs: put what must be stored of them into the gathering batch.

        :returns: what :meth:`arrive` or :meth:`fill_place` is to be given for them.
        """
        raise AssertionError("a physical destination is a queue or a topic")

    def evict(self, lowest_priority: bool) -> bool:
        raise AssertionError("a physical destination is a queue or a topic")

    @property
    def busy(self) -> bool:
        raise AssertionError("a physical destination is a queue or a topic")

    # --- limits

    def admit(self, count: int, octets: int) -> None:
        """Whether so many messages of so many octets in all may come. :raises DestinationFull:"""
        properties = self.properties
        if properties.limit_behavior is not LimitBehavior.REJECT_NEWEST:
            return
        if 0 <= properties.max_num_msgs < self.count + count:
            raise DestinationFull(self.destination, "maxNumMsgs", properties.max_num_msgs)
        if 0 <= properties.max_total_msg_bytes < self.octets + octets:
            raise DestinationFull(self.destination, "maxTotalMsgBytes", properties.max_total_msg_bytes)

    def over(self) -> bool:
        """Whether a limit on waiting messages is exceeded."""
        properties = self.properties
        return (0 <= properties.max_num_msgs < self.count) or (0 <= properties.max_total_msg_bytes < self.octets)

    def at_limit(self) -> bool:
        """Whether senders should be held back: a FLOW_CONTROL destination has reached a limit."""
        properties = self.properties
        return properties.limit_behavior is LimitBehavior.FLOW_CONTROL and (
            0 <= properties.max_num_msgs <= self.count or 0 <= properties.max_total_msg_bytes <= self.octets
        )

    def make_room(self) -> None:
        """After arrivals: give up old messages while a limit is exceeded, where the properties say so."""
        behavior = self.properties.limit_behavior
        if behavior in (LimitBehavior.REMOVE_OLDEST, LimitBehavior.REMOVE_LOW_PRIORITY):
            while self.over() and self.evict(behavior is LimitBehavior.REMOVE_LOW_PRIORITY):
                pass

    def let_senders_go(self) -> None:
        """There may be room again: tell those who wait for it."""
        if not self.at_limit():
            self.waiting_senders, resumed = [], self.waiting_senders
            for resume in resumed:
                self.broker.turn.dispatch(resume)

    # --- arrivals in order

    def arrive(self, arrival: Arrival) -> None:
        """Messages that may be delivered at once; behind a transaction that came before and is not durable yet, they wait for it."""
        if self.arrivals:
            self.arrivals.append([arrival])
        else:
            arrival()
            if self.properties.bounded:
                self.make_room()

    def hold_place(self) -> list[Arrival | None]:
        """A place in the order of arrivals for messages of a transaction; see :meth:`fill_place`."""
        place: list[Arrival | None] = [None]
        self.arrivals.append(place)
        return place

    def fill_place(self, place: list[Arrival | None], arrival: Arrival) -> None:
        """The transaction is durable, and its messages arrive, or it is rolled back, and :func:`nothing` does; then what waited behind."""
        place[0] = arrival
        while self.arrivals and self.arrivals[0][0] is not None:
            ready = self.arrivals.pop(0)[0]
            assert ready is not None
            ready()
            if self.properties.bounded:
                self.make_room()

    def emptied(self) -> None:
        """Nothing is left here: an auto-created destination that nobody uses is reaped after a while."""
        if self.auto_created and not self.removed and not self.busy:
            self.broker.reap_later(self)
