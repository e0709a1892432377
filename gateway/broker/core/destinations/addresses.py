"""Addresses that have several queues, of which each message comes to one.

Artemis has an *address* in front of its queues. A queue usually has the address of its own name;
several queues may have one address, and a message that is sent to it with the routing type ANYCAST
comes to one of them, in turn.

Owns which queues an address has, and whose turn it is. Which address a queue has is one of its
properties, and stored with it; whose turn it is, is not. A message becomes one of its queue where it
is sent: from then on it is as if it had been sent there. With the routing type MULTICAST an address
is a topic, and its queues are durable subscriptions; owns what is for one of these alone.

Facts of Artemis are from its documentation, "Address Model", and from its ``BindingsImpl``: queues
with a consumer that wants the message come before others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.virtual_topics import with_repeated
from gateway.broker.properties.names import check_name
from gateway.broker.properties.pause import Pause
from gateway.messaging.destination import Destination, Queue
from gateway.messaging.message import Headers, Message, for_queue
from gateway.messaging.provider import DUPLICATE_ID

#: Duplicate ids of which an address remembers where it has sent them last.
_MOST_IDS: Final = 1_000
#: Queues of an address that an error names.
_NAMED: Final = 10


class ForSubscription(list[Message]):
    """A run that is for the durable subscriptions of one name alone.

    :ivar name: consumers share them by it.
    """

    __slots__ = ("name",)

    def __init__(self, run: Sequence[Message], name: str) -> None:
        super().__init__(run)
        self.name: Final = name


class QueueAddress:
    """The queues of one address.

    :param repeats: whether a queue remembers the duplicate id of a message with these headers.
    """

    def __init__(self, repeats: Callable[[PhysicalQueue, Headers], bool]) -> None:
        self._repeats: Final = repeats
        #: In the order in which they were made.
        self.queues: Final[list[PhysicalQueue]] = []
        #: The place of the queue whose turn it is; it may be behind the last.
        self._next = 0
        #: Where messages with duplicate ids went that may not be accepted yet, the oldest first.
        self._ids: Final[dict[str, PhysicalQueue]] = {}

    def add(self, queue: PhysicalQueue) -> None:
        """Let a queue take its turns from now on."""
        if queue not in self.queues:
            self.queues.append(queue)
            self.queues.sort(key=_number)

    def remove(self, queue: PhysicalQueue) -> None:
        """The queue is gone."""
        place = self.queues.index(queue)
        self.queues.remove(queue)
        if place < self._next:
            self._next -= 1

    def choose(self, message: Message) -> PhysicalQueue | None:
        """Return the queue that a message comes to.

        What repeats a duplicate id comes to the queue of that, and is dropped there.

        :returns: None where no queue takes anything.
        """
        headers = message.headers
        # No duplicate id is among the lines of headers that vary.
        id = (headers.repeated or headers).properties.get(DUPLICATE_ID)
        if not isinstance(id, str):
            return self._in_turn(message)
        queue = self._ids.get(id)
        if queue is None or queue.removed or queue not in self.queues:
            same = [each for each in self.queues if self._repeats(each, headers)]
            queue = same[0] if same else self._in_turn(message)
            if queue is not None:
                self._ids[id] = queue
                if len(self._ids) > _MOST_IDS:
                    del self._ids[next(iter(self._ids))]
        return queue

    def _in_turn(self, message: Message) -> PhysicalQueue | None:
        queues = self.queues
        idle = held = -1
        for step in range(len(queues)):
            place = (self._next + step) % len(queues)
            queue = queues[place]
            if queue.removed or queue.damaged:
                continue
            if queue.pause & Pause.PRODUCERS:
                held = place if held < 0 else held
            elif _is_wanted(queue, message):
                break
            elif idle < 0:
                idle = place
        else:
            place = idle if idle >= 0 else held
            if place < 0:
                return None
        self._next = place + 1
        return queues[place]


class Addresses:
    """The addresses of one broker that have a queue of another name.

    :param find: the physical destination, if there is one.
    :param store: stores a destination's row with its properties.
    :param repeats: see :class:`QueueAddress`.
    """

    def __init__(
        self,
        find: Callable[[Destination], PhysicalDestination | None],
        store: Callable[[PhysicalDestination], None],
        repeats: Callable[[PhysicalQueue, Headers], bool],
    ) -> None:
        self._find: Final = find
        self._store: Final = store
        self._repeats: Final = repeats
        self.by_name: Final[dict[str, QueueAddress]] = {}

    def register(self, physical: PhysicalDestination) -> None:
        """A destination is made, or has other properties than before."""
        if not isinstance(physical, PhysicalQueue) or physical.destination.temporary:
            return
        name = physical.properties.address
        address = self.by_name.get(name or physical.destination.name)
        if address is None and name:
            address = self.by_name[name] = QueueAddress(self._repeats)
            own = self._find(Queue(name))
            if isinstance(own, PhysicalQueue) and not own.properties.address:
                address.add(own)
        if address is not None:
            address.add(physical)

    def remove(self, physical: PhysicalDestination) -> None:
        """A destination is removed, or gets other properties."""
        name = physical.properties.address or physical.destination.name
        address = self.by_name.get(name)
        if (
            address is not None
            and isinstance(physical, PhysicalQueue)
            and physical in address.queues
        ):
            address.remove(physical)
            if not any(queue.properties.address for queue in address.queues):
                del self.by_name[name]

    def bind(self, physical: PhysicalDestination, address: str) -> None:
        """A client calls a queue one of an address.

        A queue that use has made gets that address, unless it has one.

        :raises InvalidDestination: no address can have that name.
        """
        if (
            physical.auto_created
            and isinstance(physical, PhysicalQueue)
            and not physical.properties.address
            and address != physical.destination.name
        ):
            check_name(Queue(address))
            self._give(physical, address)

    def told(self, name: str) -> str:
        """Return the end of a sentence about a name that no queue has.

        It says which queues the address of that name has; "" where it has no queue.
        """
        address = self.by_name.get(name)
        if address is None:
            return ""
        names = [queue.destination.name for queue in address.queues]
        more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
        return f"; it is the address of {', '.join(names[:_NAMED])}{more}"

    def forget(self, physical: PhysicalDestination) -> None:
        """A queue goes that use has made, and maybe its row stays.

        The next one of its name has the address that it is given then.
        """
        self.remove(physical)
        if physical.auto_created and physical.properties.address and physical.stored:
            physical.properties = replace(physical.properties, address="")
            self._store(physical)

    def _give(self, queue: PhysicalQueue, address: str) -> None:
        self.remove(queue)
        queue.properties = replace(queue.properties, address=address)
        self.register(queue)
        # A restart is to find it, though it is empty.
        self._store(queue)


def to_queue(queue: PhysicalQueue, original: Headers) -> Headers:
    """Return the headers of a message that comes to a queue of its address.

    What a producer repeats is shared as before: the last is kept.
    """
    repeated = original.repeated
    whole = original if repeated is None else repeated
    last = queue.copied_headers
    if last is None or last[0] is not whole:
        queue.copied_headers = last = (whole, for_queue(whole, queue.destination))
    return last[1] if repeated is None else with_repeated(original, last[1])


def _is_wanted(queue: PhysicalQueue, message: Message) -> bool:
    """Whether a consumer of the queue wants a message.

    Where there is no time to ask selectors, they want it.
    """
    spent = queue.changes.selector_time.spent
    return any(
        consumer.selector is None or spent() or consumer.wants(message)
        for consumer in queue.dispatch.consumers
    )


def _number(queue: PhysicalQueue) -> int:
    return queue.number
