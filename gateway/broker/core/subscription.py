"""A subscription of a topic: the messages that one subscriber has yet to take.

Owns which messages it accepts, and which rows of the store it still needs. A durable subscription
outlives its consumers.

Its selector is asked about each message that arrives. Where there is no time for that
(:mod:`gateway.broker.core.slices`), the message waits here as if it was wanted, stored and counted.
The selector is asked later, in any case before the message is delivered, and what is not wanted
goes. A process that ends between leaves such messages behind; so the selector is asked again about
all that a durable subscription had at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from twisted.logger import Logger

from gateway.broker.core import redelivery
from gateway.broker.core.dispatch import Dispatch
from gateway.broker.core.lane import BEYOND
from gateway.broker.core.names import is_wild
from gateway.broker.core.spilled import Spilled
from gateway.broker.durability.rows import BLOCK
from gateway.broker.operator.purging import Search, purge
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DestinationStopped
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from gateway.broker.core.changes import Changes
    from gateway.broker.core.limits import DestinationProperties
    from gateway.broker.core.physical import Physical
    from gateway.broker.core.source import Receiver
    from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy
    from gateway.messaging.selector.selector import Selector


class Topics(Protocol):
    """Where the messages of subscriptions come from, and who ends subscriptions."""

    @property
    def destinations(self) -> Mapping[Destination, Physical]:
        """All of them, by name."""

    @property
    def topics(self) -> Mapping[Destination, Physical]:
        """The topics among them."""

    @property
    def last_seq(self) -> int:
        """That of the message accepted last."""

    def find(self, destination: Destination) -> Physical | None:
        """The physical destination, if there is one."""

    def topic_of(self, message: Message) -> Physical | None:
        """The topic that the message was sent to, unless it was removed."""

    def properties_for(self, destination: Destination) -> DestinationProperties:
        """The properties that a destination has, or would have."""

    def end_subscription(self, subscription: TopicSubscription) -> None:
        """No more messages come to it."""


class TopicSubscription:
    """What one subscriber is owed.

    :param pattern: the topic, or a name with wildcards.
    :param number: its id in the store; 0 when it is not durable.
    :param origin: with ``no_local``, the connection whose messages it does not want.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(
        self,
        changes: Changes,
        topics: Topics,
        pattern: Destination,
        selector: Selector | None,
        *,
        no_local: bool = False,
        origin: int = 0,
        number: int = 0,
        client_id: str = "",
        name: str = "",
    ) -> None:
        self.changes = changes
        self.dispatch = Dispatch(changes, examines=selector is not None)
        self._topics = topics
        #: See :attr:`Place.burial`.
        self.burial: str | None = None
        self.pattern = pattern
        #: Which of the subscriptions with wildcards it is, from 1; 0 for others. And which names of
        #: topics its pattern covers, once it has an ordinal.
        self.ordinal = 0
        self.matches: Callable[[str], bool] = pattern.name.__eq__
        self.selector = selector
        self.no_local = no_local
        self.origin = origin
        self.number = self.owner = number
        self.client_id = client_id
        self.name = name
        #: It was removed: nothing waits here any more.
        self.ended = False
        #: Whether its user may read a topic that the pattern covers.
        self.covers: Callable[[Destination], bool] = _everything
        #: Messages whose row is in the store for this subscription's sake though they are not owed
        #: durably.
        self._spilled: Spilled[Physical] = Spilled()
        #: Seqs of messages that wait and that the selector was not asked about.
        self._unexamined: set[int] = set()
        #: Nor was it, since the start, about messages up to this seq, which the store had.
        self.restored = 0
        #: A search for what is not wanted is under way, and more has come since it began.
        self._searching = self._more = False

    @property
    def durable(self) -> bool:
        return self.number != 0

    # --- arrivals

    def wanted(self, run: Sequence[Message]) -> tuple[Sequence[Message], int]:
        """Those of a run, which has rising seqs, that it accepts.

        :returns: they, and the seq after which the selector was not asked because there was no
            time.
        """
        if self.no_local:
            run = [
                message for message in run if not message.origin or message.origin != self.origin
            ]
        selector = self.selector
        if selector is None:
            return run, BEYOND
        matches, stride, spent = selector.matches, selector.stride, self.changes.slices.spent
        accepted: list[Message] = []
        for index, message in enumerate(run):
            if index % stride == 0 and spent():
                accepted += run[index:]
                return accepted, message.seq - 1
            if matches(message):
                accepted.append(message)
        return accepted, BEYOND

    def keep(self, topic: Physical, run: Sequence[Message]) -> None:
        """What was accepted is coming: durable subscriptions have what is persistent stored."""
        if self.number:
            self.changes.owed(self.number, topic, run)

    def arrive(self, topic: Physical, run: Sequence[Message], examined: int) -> None:
        """What was kept arrives, with rising seqs. :param examined: see :meth:`wanted`."""
        if not run:
            return
        if self.ended:
            self.release(run)
            return
        if self.changes.journal is not None:
            self.changes.journal.routed(self, run)
        if examined != BEYOND:
            self._examine_later(run, examined)
        size = 0
        for message in run:
            size += message.size
        topic.came(len(run), size)
        dispatch = self.dispatch
        spilled = dispatch.backlog.put(run)
        if spilled:
            if self.number:
                spilled = [message for message in spilled if not message.headers.persistent]
            self.changes.spilled_for_subscription(topic, spilled)
            self._spilled.add_all([message.seq for message in spilled], topic)
        if not dispatch.marked:
            self.mark()

    def arrive_held(self, topic: Physical, run: Sequence[Message], examined: int) -> None:
        """The same for what a prepared branch had sent, in the places that the seqs say."""
        if self.ended:
            self.release(run)
        elif run:
            if self.changes.journal is not None:
                self.changes.journal.routed(self, run)
            if examined != BEYOND:
                self._examine_later(run, examined)
            topic.came(len(run), sum([message.size for message in run]))
            self.dispatch.wait_again(self, run)

    # --- selectors that had no time

    def _examine_later(self, run: Sequence[Message], examined: int) -> None:
        self._unexamined.update([message.seq for message in run if message.seq > examined])
        self._more = True
        if not self._searching:
            self.changes.slices.wait(self._search)

    def _search(self) -> None:
        """Look through what waits for what is not wanted: nobody may be there to have it
        delivered.
        """
        if self._searching or self.ended or not self._unexamined:
            return
        self._searching, self._more = True, False
        Search(
            self, max(self._unexamined), self._is_unwanted, self._searched, journaled=False
        ).start()

    def _searched(self, count: int) -> None:
        self._searching = False
        if self._more:
            self._search()
        else:
            # Whatever was here was examined, and the others have left.
            self._unexamined.clear()

    def _is_unwanted(self, message: Message) -> bool:
        if message.seq not in self._unexamined and message.seq > self.restored:
            return False
        self._unexamined.discard(message.seq)
        return self.selector is not None and not self.selector.matches(message)

    def _without_unwanted(self, messages: Sequence[Message]) -> Sequence[Message]:
        """What to bury of these. Where there is no time to ask the selector, a message counts as
        wanted: better buried than lost.
        """
        unwanted = [
            message
            for message in messages
            if not self.changes.slices.spent() and self._is_unwanted(message)
        ]
        if unwanted:
            self.settle(unwanted)
            gone = {message.seq for message in unwanted}
            return [message for message in messages if message.seq not in gone]
        return messages

    def examine(self, run: list[Message]) -> list[Message]:
        """Ask the selector about those of a run that it was not asked about. :returns: what is
        wanted; what there was no time for waits again.
        """
        selector = self.selector
        if selector is None or not (self._unexamined or self.restored):
            return run
        kept: list[Message] = []
        unwanted: list[Message] = []
        for index, message in enumerate(run):
            seq = message.seq
            if seq in self._unexamined or seq <= self.restored:
                if self.changes.slices.spent():
                    self.dispatch.backlog.give_back(run[index:])
                    self.dispatch.hold_up(self)
                    break
                self._unexamined.discard(seq)
                if not selector.matches(message):
                    unwanted.append(message)
                    continue
            kept.append(message)
        if unwanted:
            self.settle(unwanted)
        return kept

    # --- departures

    def settle(self, messages: Sequence[Message]) -> None:
        self.release(messages)
        self.settled(messages)

    def release(self, messages: Sequence[Message]) -> None:
        if self.number or self._spilled:
            self.changes.settled_by_subscription(self.number, messages, self._spilled)

    def release_stored(self, seqs: Sequence[int]) -> None:
        self.changes.settled_stored_by_subscription(
            self.number, seqs, self._spilled.discard_all(seqs)
        )

    def settled(self, messages: Sequence[Message]) -> None:
        if self.dispatch.tried:
            self.dispatch.forget_tries(messages)
        left: Physical | None = None
        for message in messages:
            if left is None or left.destination != message.headers.destination:
                if left is not None:
                    left.taken()
                left = self._topics.topic_of(message)
                if left is None:
                    continue
            left.count -= 1
            left.octets -= message.size
        if left is not None:
            left.taken()

    def keeps_count(self, message: Message) -> bool:
        return self.number != 0 and message.headers.persistent and bool(message.stored)

    def lost(self, count: int, octets: int) -> None:
        topic = self._topics.find(self.pattern)
        if topic is not None:
            # Of which topic a message was that came by a pattern, only the message knew.
            topic.count -= count
            topic.octets -= octets
            if topic.waiting_senders or topic.holds_back:
                topic.let_senders_go()
            topic.emptied()

    @property
    def named(self) -> Physical | None:
        return self._topics.find(self.pattern)

    @property
    def gone(self) -> bool:
        return self.ended

    def use_policy(self) -> RedeliveryPolicy:
        return self._topics.properties_for(self.pattern).redelivery

    def bury(self, messages: Sequence[Message], reason: DeadReason, comment: str) -> None:
        if self._unexamined or self.restored:
            messages = self._without_unwanted(messages)
        self.changes.buried(self, messages, self._topics.topic_of, reason, comment)

    def evict(self, topic: Physical, lowest_priority: bool) -> bool:
        """Give up one waiting message of ``topic`` to make room. :returns: False when none is at
        hand.
        """
        victim = (
            self.dispatch.backlog.least() if lowest_priority else self.dispatch.backlog.oldest()
        )
        if victim is not None and victim.headers.destination != topic.destination:
            # It has messages of other topics too, which are not to suffer for this one's limit.
            victim = self._first_of(topic.destination, lowest_priority)
        if victim is None:
            self.dispatch.read_for(self, topic.make_room)
            return False
        self.dispatch.backlog.pluck([victim.seq], victim.headers.priority)
        reason = DeadReason.LOW_PRIORITY if lowest_priority else DeadReason.OLDEST
        self.changes.reports.evicting(topic, reason)
        self.bury([victim], reason, f"{self} was at the limit of its topic")
        return True

    def _first_of(self, destination: Destination, lowest_priority: bool) -> Message | None:
        of_topic = [
            message
            for message in self.dispatch.backlog.waiting_in_memory()
            if message.headers.destination == destination
        ]
        if lowest_priority:
            return min(
                of_topic, key=lambda message: (message.headers.priority, message.seq), default=None
            )
        return min(of_topic, key=lambda message: message.seq, default=None)

    # --- consumers

    def mark(self) -> None:
        dispatch = self.dispatch
        if not dispatch.marked:
            dispatch.marked = True
            self.changes.turn.dispatch(self.hand_out)

    def hand_out(self) -> None:
        self.dispatch.hand_out(self)

    def join(self, consumer: Receiver) -> None:
        self.dispatch.join(self, consumer)

    def return_to_backlog(self, messages: Sequence[Message]) -> None:
        self.dispatch.backlog.give_back(messages)

    def tries(self, seq: int) -> int:
        return self.dispatch.tried.get(seq, 0)

    def give_up(self, messages: Sequence[Message]) -> None:
        redelivery.give_up(self, messages)

    def give_back(self, messages: Sequence[Message]) -> None:
        redelivery.give_back(self, messages)

    def reject(
        self,
        messages: Sequence[Message],
        delay_ms: int | None,
        dead: DeadReason | None,
        changes: RedeliveryChanges | None,
    ) -> None:
        redelivery.reject(self, messages, delay_ms, dead, changes)

    def sweep(self, now_ms: int) -> None:
        redelivery.sweep(self, now_ms)

    # --- the end

    def leave(self, consumer: Receiver) -> None:
        """The consumer receives no more; a subscription that is not durable ends with it."""
        self.dispatch.leave(consumer)
        if not self.durable and not self.dispatch.consumers:
            self._topics.end_subscription(self)

    def discard(self, comment: str | None, done: Callable[[], None]) -> None:
        """Give up everything that waits, block by block, to the dead message queue if there is a
        comment; then call ``done``.

        Only what goes there, or whose topic nobody knows, is read from the store.
        """
        if comment is None:
            # Nothing is examined or delivered any more, and there may be as many of these as
            # messages.
            self._unexamined, self.dispatch.tried = set(), {}
        if comment is None and not is_wild(self.pattern.name):
            purge(self, lambda count: done())
            return
        if comment is None and not self.durable:
            if not (self.dispatch.backlog.waiting or self.dispatch.backlog.pausing):
                done()
                return
            self.changes.delete_slowly(self._discard_unread(done))
            return
        messages, seqs, octets = self.dispatch.backlog.clear()

        def steps() -> Iterator[None]:
            for start in range(0, len(messages), BLOCK):
                self._give_up(messages[start : start + BLOCK], comment)
                if len(messages) > start + BLOCK:
                    yield
            self._give_up_stored(seqs, 0, octets, comment, done)

        self.changes.schedule.in_slices(steps())

    def go_on_without(self, topic: Physical, done: Callable[[], None]) -> None:
        """A topic that has stopped it is being destroyed: give up what it has of that, and hand out
        the rest again; then call ``done``.

        It stays stopped where a message of another topic is damaged, too.
        """
        topics = self._topics

        def of_the_destroyed(message: Message) -> bool:
            # Or of one that was destroyed before this, when the subscription had to stay stopped.
            found = topics.topic_of(message)
            return found is None or found is topic

        def damaged_elsewhere(seqs: Collection[int]) -> bool:
            numbers = {self.changes.damaged.get(seq) for seq in seqs}
            return any(
                each is not topic and each.number in numbers
                for each in topics.destinations.values()
            )

        def unreadable(seqs: Collection[int]) -> bool:
            if damaged_elsewhere(seqs):
                return False
            for seq in seqs:
                self._drop_damaged(topic, seq)
            return True

        def searched(count: int) -> None:
            stopped = [
                each
                for each in topics.topics.values()
                if each.damaged and each is not topic and self in each.subscriptions
            ]
            if not stopped:
                self.dispatch.halted = None
                self._log.info(
                    "{subscription} goes on: {topic}, which had stopped it, is destroyed",
                    subscription=self,
                    topic=topic,
                )
                self.mark()
            else:
                self.dispatch.halted = DestinationStopped(stopped[0].destination)
            done()

        # These were read before, and told of.
        known = [seq for seq, number in self.changes.damaged.items() if number == topic.number]
        for seq in known:
            self._drop_damaged(topic, seq)
        Search(self, topics.last_seq, of_the_destroyed, searched, unreadable=unreadable).start()

    def _drop_damaged(self, topic: Physical, seq: int) -> None:
        """Give up a message that cannot be read, if it waits here."""
        count, size = self.dispatch.backlog.drop_behind((seq,))
        if not count and (resting := self.dispatch.backlog.resting.pop(seq, None)) is not None:
            count, size = 1, resting
        if count:
            self.changes.removed_stored(self, [seq])
            self.release_stored([seq])
            self.dispatch.tried.pop(seq, None)
            topic.count -= 1
            topic.octets -= size

    def _discard_unread(self, done: Callable[[], None]) -> Iterator[None]:
        """Give up what waits for a pattern that is not durable: of what is in the store only, the
        topics are known.
        """
        detached = self.dispatch.backlog.detach()
        while detached.more:
            messages, sizes = detached.take(BLOCK)
            self._give_up(messages, None)
            self.changes.removed_stored(self, list(sizes))
            topics: set[Physical] = set()
            for seq, size in sizes.items():
                topic = self._spilled.topic(seq)
                self.dispatch.tried.pop(seq, None)
                topic.count -= 1
                topic.octets -= size
                topics.add(topic)
            self.release_stored(list(sizes))
            for topic in topics:
                topic.taken()
            if detached.more:
                yield
        done()

    def _give_up_stored(
        self,
        seqs: Sequence[int],
        start: int,
        octets: int,
        comment: str | None,
        done: Callable[[], None],
    ) -> None:
        """Give up what is in the store only, from ``start`` on; :param octets: what is left of
        it.
        """
        asked = seqs[start : start + BLOCK]
        if not asked:
            done()
            return

        def found(messages: Sequence[Message]) -> None:
            self._give_up(messages, comment)
            left = octets - sum([message.size for message in messages])
            if len(messages) < len(asked):
                self._never_found(asked, messages, left if start + BLOCK >= len(seqs) else 0)
            self._give_up_stored(seqs, start + BLOCK, left, comment, done)

        self.changes.fetch(asked, found)

    def _never_found(self, asked: Sequence[int], messages: Sequence[Message], octets: int) -> None:
        missing = set(asked).difference([message.seq for message in messages])
        if self.number:
            self.changes.owed_no_more(self.number, missing - self.changes.damaged.keys())
        self.dispatch.not_found(self, len(missing), octets)

    def _give_up(self, messages: Sequence[Message], comment: str | None) -> None:
        if messages and comment is not None:
            self.bury(messages, DeadReason.UNDELIVERABLE, comment)
        elif messages:
            self.changes.removed(self, messages)
            self.settle(messages)

    def __str__(self) -> str:
        if self.durable:
            return f"durable subscription '{self.name}' of client-id '{self.client_id}' on {self.pattern}"
        return f"subscription on {self.pattern}"


def _everything(topic: Destination) -> bool:
    return True
