"""Which consumer of a queue gets a group of messages (``JMSXGroupID``).

The first message of a group that is looked at chooses: of the consumers that want it and have
credit, the one with the fewest groups. All others of the group go to the same consumer as long as
that is there, and wait while it has no credit. When it leaves, its groups are free once what it had
of them is settled or given back, so that no two consumers have messages of one group. The last
message of a group (a negative ``JMSXGroupSeq``) frees it at once.

When a consumer comes, those that have more than their part of the groups give some up: at once those
of which they have no messages, and the others when they have settled what they have, until when the
rest of the group waits.

A group of which a consumer has messages is never forgotten, nor one whose messages wait for it.
Of the others, those used last are remembered, up to :data:`MOST_IDLE`: however many groups there
are, the table does not grow beyond that and what the consumers have.

Owns that table. What waits, and how far each consumer has looked, is the dispatch's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.messaging.message import FIRST_FOR_CONSUMER, Message

#: Groups that are remembered although no consumer has messages of them.
MOST_IDLE: Final = 10_000
#: Groups looked at to forget one of them.
_TRIED: Final = 3
#: Characters of an id that is remembered as it is; of a longer one its hash is.
_LONGEST_ID: Final = 64
_HASH_OCTETS: Final = 16


def short_key(id: str) -> str:
    """Return by what a group, or a key, is remembered, which is short."""
    if len(id) <= _LONGEST_ID:
        return id
    return f"\0{blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=_HASH_OCTETS).hexdigest()}"


class Group:
    """One group, while it is a consumer's."""

    __slots__ = (
        "closed",
        "consumer",
        "first",
        "id",
        "left",
        "moves",
        "outstanding",
        "passed",
        "unwanted",
    )

    def __init__(self, id: str, consumer: EmbeddedConsumer) -> None:
        #: Or its hash.
        self.id: Final = id
        self.consumer: Final = consumer
        #: How many of its messages are with the consumer.
        self.outstanding = 0
        #: None of its messages was given to the consumer yet.
        self.first = True
        #: The consumer has left, and is yet to settle or give back what it has.
        self.left = False
        #: It is free once the consumer has settled or given back what it has.
        self.moves = False
        #: Its last message was given to the consumer.
        self.closed = False
        #: By priority, the last message that another consumer has passed by, as it is for this one.
        self.passed: dict[int, int] | None = None
        #: Another consumer has passed one by that this one's selector does not select.
        self.unwanted = False


class Groups:
    """The groups of one queue.

    :param passed: whether a consumer has looked at the message of a priority and seq.
    :param most_idle: groups that are remembered although no consumer has messages of them.
    :param moves: whether groups may go to a consumer that comes later.
    """

    __slots__ = (
        "_at",
        "_by_id",
        "_candidates",
        "_counts",
        "_handed",
        "_idle",
        "_most_idle",
        "_moves",
        "_passed",
        "_promised",
        "closing",
        "firsts",
        "given",
    )

    def __init__(
        self,
        passed: Callable[[EmbeddedConsumer, int, int], bool],
        most_idle: int = MOST_IDLE,
        moves: bool = True,
    ) -> None:
        self._passed = passed
        self._most_idle = most_idle
        self._moves = moves
        self._by_id: dict[str, Group] = {}
        #: Those without outstanding messages, the one unused for longest first.
        self._idle: dict[str, Group] = {}
        #: The group of each message that a consumer has, by seq.
        self._handed: dict[int, Group] = {}
        #: How many groups each consumer has.
        self._counts: dict[EmbeddedConsumer, int] = {}
        #: Consumers that new groups may go to in this turn, a heap by how many they have and their
        #: places, which are :attr:`_at`; None when not looked yet. An entry whose number is too low
        #: is mended when it comes first; none is too high but beside another that is not.
        self._candidates: list[tuple[int, int, EmbeddedConsumer]] | None = None
        self._at: dict[EmbeddedConsumer, int] = {}
        #: How many new groups each was given in this turn.
        self._promised: dict[EmbeddedConsumer, int] = {}
        #: Messages whose group went to another consumer than the one that looked at them.
        self.given: list[tuple[EmbeddedConsumer, Message]] = []
        #: Of the messages chosen last, the seqs of those that are the first of a group for their
        #: consumer, and
        self.firsts: set[int] = set()
        #: those that have ended a group.
        self.closing: list[Message] = []

    def __len__(self) -> int:
        """How many groups are remembered."""
        return len(self._by_id)

    @property
    def empty(self) -> bool:
        """Whether nothing is remembered."""
        return not self._by_id and not self._handed

    def count(self, consumer: EmbeddedConsumer) -> int:
        """Return how many groups a consumer has."""
        return self._counts.get(consumer, 0)

    def owner(self, group: str) -> EmbeddedConsumer | None:
        """Return the consumer that has a group; None when it is free."""
        found = self._by_id.get(short_key(group))
        return None if found is None else found.consumer

    def moves(self, group: str) -> bool:
        """Whether a group waits for its consumer, to go to another."""
        found = self._by_id.get(short_key(group))
        return found is not None and found.moves

    def begin(self) -> None:
        """A new round of handing out begins: who has credit is to be asked again."""
        self._candidates = None
        if self._promised:
            self._promised = {}

    def gives(
        self, message: Message, consumer: EmbeddedConsumer, consumers: Sequence[EmbeddedConsumer]
    ) -> bool:
        """Whether a message goes to the consumer that looks at it and wants it.

        The message has a group. If this is true, the message counts as given to it, so it must be.

        :param consumers: all that there are.
        """
        return self.taker(message, consumer, consumers, (consumer,)) is not None

    def taker(
        self,
        message: Message,
        looking: EmbeddedConsumer,
        consumers: Sequence[EmbeddedConsumer],
        together: Container[EmbeddedConsumer],
    ) -> EmbeddedConsumer | None:
        """Return to which of several that look at a message together it goes.

        The message has a group, and counts as given to that consumer, so it must be.

        :param looking: one of them.
        :param consumers: all that there are.
        :param together: those that have room.
        :returns: None where it is another's.
        """
        id = short_key(message.headers.group)
        group = self._by_id.get(id)
        if group is None:
            group = self._assign(id, message, looking, consumers)
            if group.consumer not in together:
                self.given.append((group.consumer, message))
        if group.consumer not in together:
            self._pass_by(group, message)
            return None
        if group.moves:
            return None
        self._give(group, message)
        return group.consumer

    def is_full(self, consumer: EmbeddedConsumer) -> None:
        """A consumer has no credit beyond what it was given in this round."""
        self._promised[consumer] = consumer.credit

    def _pass_by(self, group: Group, message: Message) -> None:
        passed = group.passed
        priority = message.headers.priority
        if passed is None:
            group.passed = {priority: message.seq}
        elif passed.get(priority, 0) < message.seq:
            passed[priority] = message.seq
        if group.consumer.selector is not None and not group.consumer.wants(message):
            group.unwanted = True

    def _give(self, group: Group, message: Message) -> None:
        if not group.outstanding:
            self._idle.pop(group.id, None)
        group.outstanding += 1
        self._handed[message.seq] = group
        if group.first:
            group.first = False
            self.firsts.add(message.seq)
        if message.headers.ends_group:
            group.closed = True
            self._forget(group)
            self.closing.append(message)

    def _assign(
        self,
        id: str,
        message: Message,
        looking: EmbeddedConsumer,
        consumers: Sequence[EmbeddedConsumer],
    ) -> Group:
        best = self._fewest(message, looking, consumers)
        # First, as it must not forget this one, which is about to be given a message.
        self._trim()
        group = self._by_id[id] = self._idle[id] = Group(id, best)
        self._counts[best] = self._counts.get(best, 0) + 1
        self._promised[best] = self._promised.get(best, 0) + 1
        return group

    def _fewest(
        self, message: Message, looking: EmbeddedConsumer, consumers: Sequence[EmbeddedConsumer]
    ) -> EmbeddedConsumer:
        """Return the consumer with the fewest groups that may be given one.

        It wants the message, and has credit.
        """
        counts, heap = self._counts, self._candidates
        if heap is None:
            heap = [
                (counts.get(each, 0), at, each)
                for at, each in enumerate(consumers)
                if each is looking or each.ready()
            ]
            self._at = {each: at for _, at, each in heap}
            heapify(heap)
            self._candidates = heap
        best, fewest = looking, counts.get(looking, 0)
        unwilling: list[tuple[int, int, EmbeddedConsumer]] = []
        while heap and heap[0][0] < fewest:
            count, at, each = heap[0]
            has = counts.get(each, 0)
            if has > count:
                heapreplace(heap, (has, at, each))
            elif each.closed or each.credit <= self._promised.get(each, 0):
                heappop(heap)
            elif each.wants(message):
                best = each
                break
            else:
                unwilling.append(heappop(heap))
        for entry in unwilling:
            heappush(heap, entry)
        return best

    def back(self, messages: Sequence[Message]) -> list[EmbeddedConsumer]:
        """These are with no consumer any more: settled, or given back.

        :returns: consumers that have left or give up groups, of which some are free now.
        """
        freed: list[EmbeddedConsumer] = []
        handed = self._handed
        for message in messages:
            group = handed.pop(message.seq, None)
            if group is None:
                continue
            group.outstanding -= 1
            if group.outstanding or group.closed:
                continue
            if group.left or group.moves:
                self._forget(group)
                if group.consumer not in freed:
                    freed.append(group.consumer)
            else:
                self._idle[group.id] = group
                self._trim()
        return freed

    def join(self, consumer: EmbeddedConsumer, consumers: Sequence[EmbeddedConsumer]) -> bool:
        """A consumer has come: it gets its part of the groups.

        One with a selector gets none that others have, as it may not want them.

        :param consumers: all that there are now.
        :returns: whether groups are free now.
        """
        if not self._moves or consumer.selector is not None:
            return False
        part = -(-len(self._by_id) // len(consumers))
        over = {each: count - part for each, count in self._counts.items() if count > part}
        if not over:
            return False
        for group in self._by_id.values():
            if group.moves and group.consumer in over:
                over[group.consumer] -= 1
        free = False
        for group in [*self._idle.values(), *self._by_id.values()]:
            if over.get(group.consumer, 0) <= 0 or group.left or group.moves:
                continue
            over[group.consumer] -= 1
            group.moves = True
            if not group.outstanding:
                free = True
                self._forget(group)
        return free

    def leave(self, consumer: EmbeddedConsumer) -> bool:
        """A consumer receives no more: its groups are free, or will be.

        :returns: whether it has messages of groups, which are free later.
        """
        later = False
        for group in [each for each in self._by_id.values() if each.consumer is consumer]:
            if group.outstanding:
                group.left = later = True
            else:
                self._forget(group)
        return later

    def _trim(self) -> None:
        """Forget the group that was unused for longest, if there are too many."""
        idle = self._idle
        tried = 0
        while len(idle) > self._most_idle and tried < _TRIED:
            tried += 1
            id = next(iter(idle))
            group = idle.pop(id)
            passed = group.passed
            if group.unwanted or (
                passed is not None
                and not all(
                    self._passed(group.consumer, priority, seq) for priority, seq in passed.items()
                )
            ):
                idle[id] = group
            else:
                self._forget(group)

    def _forget(self, group: Group) -> None:
        if self._by_id.get(group.id) is group:
            del self._by_id[group.id]
            self._idle.pop(group.id, None)
            consumer = group.consumer
            left = self._counts[consumer] - 1
            if left:
                self._counts[consumer] = left
            else:
                del self._counts[consumer]
            at = self._at.get(consumer, -1)
            if self._candidates is not None and at >= 0:
                heappush(self._candidates, (left, at, consumer))


def has_groups(run: Sequence[Message]) -> bool:
    """Whether any of these has a group.

    Asked of every message that a queue hands out.
    """
    for message in run:  # noqa: SIM110 - a generator takes twice as long
        if message.headers.group:
            return True
    return False


def marked(messages: Sequence[Message], firsts: set[int]) -> list[Message]:
    """Return these with the first of each group marked as such.

    :param firsts: their seqs.
    """
    return [_first(each) if each.seq in firsts else each for each in messages]


def _first(message: Message) -> Message:
    headers = message.headers
    properties = {**headers.properties, FIRST_FOR_CONSUMER: True}
    shown = message.replaced(headers.replace(properties=properties))
    shown.seq = message.seq
    return shown
