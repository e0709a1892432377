"""A topic's subscription: messages that one subscriber has yet to take.

Owns which messages it accepts, and which rows of the store it still needs. A durable subscription
outlives its consumers.

Its selector is asked about each message that arrives. Where there is no time for that
(:mod:`gateway.broker.timing.selector_time`), the message waits here as if it was wanted, stored and counted.
The selector is asked later, in any case before the message is delivered, and what is not wanted
goes. A process that ends between leaves such messages behind; so the selector is asked again about
all that a durable subscription had at the start.

Whether the user may read a topic that the pattern covers is asked when that topic finds the
subscription. The next consumer of a durable one may be another user, or the rules may differ by
then, and after a restart its user is not known until he returns. So it is asked again about each
message that waited when the consumer came, before the message is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Protocol

from twisted.logger import Logger

from gateway.broker.core.changes import Changes
from gateway.broker.core.consumers.consumer import EmbeddedConsumer
from gateway.broker.core.delivery import redelivery
from gateway.broker.core.delivery.dispatch import Dispatch
from gateway.broker.core.destinations.purging import SelectivePurge
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.waiting.lane import BEYOND
from gateway.broker.core.waiting.spilled import Spilled
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.names import is_wild, shown
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.message import Headers, Message
from gateway.messaging.redelivery import RedeliveryChanges, RedeliveryPolicy
from gateway.messaging.selector.selector import Selector

#: How the client identifiers of shared durable subscriptions begin; no client has such a one.
SHARED_BY: Final = "shared-by:"


class Topics(Protocol):
    """Finds the topics of subscriptions, and ends subscriptions."""

    @property
    def destinations(self) -> Mapping[Destination, PhysicalDestination]:
        """All of them, by name."""

    @property
    def topics(self) -> Mapping[Destination, PhysicalDestination]:
        """The topics among them."""

    @property
    def last_seq(self) -> int:
        """That of the message accepted last."""

    def topic_of(self, message: Message) -> PhysicalDestination | None:
        """The topic that the message was sent to, unless it was removed."""

    def properties_for(self, destination: Destination) -> DestinationProperties:
        """The properties that a destination has, or would have."""

    def end_subscription(self, subscription: TopicSubscription) -> None:
        """No more messages come to it."""


class TopicSubscription:
    """What one subscriber is owed.

    :param pattern: the topic, or a name with wildcards. One with a name may get more topics, see
        :meth:`~gateway.broker.core.destinations.subscribing.Subscribing.add`.
    :param number: its id in the store; 0 when it is not durable.
    :param client_id: with ``name``, what consumers find it by; "" where it is one consumer's.
    :param origin: with ``no_local``, the connection whose messages it does not want.
    :param none_or_more: see :class:`~gateway.messaging.provider.ConsumerSpec`.
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
        none_or_more: bool = False,
    ) -> None:
        self.changes = changes
        self.dispatch = Dispatch(
            changes, examines=selector is not None or (name != "" and is_wild(pattern.name))
        )
        self.topics = topics
        #: See :attr:`QueueOrSubscription.dmq_comment`.
        self.dmq_comment: str | None = None
        self.pattern = pattern
        #: Which of the subscriptions with wildcards it is, from 1; 0 for others. And which names of
        #: topics its pattern covers, once it has an ordinal.
        self.ordinal = 0
        self.matches: Callable[[str], bool] = pattern.name.__eq__
        self.selector = selector
        self.no_local = no_local
        self.none_or_more = none_or_more
        self.origin = origin
        self.number = self.owner = number
        self.client_id = client_id
        self.name = name
        #: It was removed: nothing waits here any more.
        self.ended = False
        #: Whether its user may read a topic that the pattern covers.
        self.covers: Callable[[Destination], bool] = _everything
        #: Messages up to this seq came before the rights of its user were known.
        self._unauthorized = 0
        #: Messages whose row is in the store for this subscription's sake though they are not owed
        #: durably.
        self.spilled: Spilled[PhysicalDestination] = Spilled()
        #: Seqs of messages that wait and that the selector was not asked about.
        self._unexamined: set[int] = set()
        #: Messages up to this seq were restored; the selector has not seen them since the start.
        self.restored = 0
        #: A search for what is not wanted is under way, and more has come since it began.
        self._searching = self._more = False
        #: Messages that came and that it did not want, since it was made: of its own connection,
        #: and by its selector; and what the last of these said.
        self.own_refused = 0
        self.refused = 0
        self.last_refused: Headers | None = None

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
            came = len(run)
            run = [
                message for message in run if not message.origin or message.origin != self.origin
            ]
            self.own_refused += came - len(run)
        selector = self.selector
        if selector is None:
            return run, BEYOND
        matches, stride, spent = selector.matches, selector.stride, self.changes.selector_time.spent
        accepted: list[Message] = []
        for index, message in enumerate(run):
            if index % stride == 0 and spent():
                accepted += run[index:]
                return accepted, message.seq - 1
            if matches(message):
                accepted.append(message)
        if not accepted and run:
            self.last_refused = run[-1].headers
        self.refused += len(run) - len(accepted)
        return accepted, BEYOND

    def accept(self, topic: PhysicalDestination, run: Sequence[Message]) -> None:
        """Store what is persistent of a run, if the subscription is durable."""
        if self.number:
            self.changes.store_owed(self.number, topic, run)

    def arrive(
        self, topic: PhysicalDestination, run: Sequence[Message], examined: int, held: bool = False
    ) -> None:
        """Put what was kept, with rising seqs, into the backlog.

        :param examined: see :meth:`wanted`.
        :param held: see :meth:`PhysicalDestination.enqueue`.
        """
        if not run:
            return
        if self.ended:
            self.release(run)
            return
        self.changes.journal_routed(self, run)
        if examined != BEYOND:
            self._examine_later(run, examined)
        size = 0
        for message in run:
            size += message.size
        topic.came(len(run), size)
        dispatch = self.dispatch
        if held:
            dispatch.wait_again(self, run)
            return
        spilled = dispatch.backlog.put(run)
        if spilled:
            if self.number:
                spilled = [message for message in spilled if not message.headers.persistent]
            self.changes.store_spilled_for_subscription(topic, spilled)
            self.spilled.add_all([message.seq for message in spilled], topic)
        if dispatch.backlog.expiring:
            redelivery.look_at_arrivals(self, run)
        dispatch.wake(self)

    # --- rights that were not known, and selectors that had no time

    def read_by(self, covers: Callable[[Destination], bool]) -> None:
        """Deliver what a user may read from now on, also of what waits here.

        The topics must look again as well: see
        :meth:`~gateway.broker.core.destinations.topic.WildSubscriptions.look_again`.
        """
        self.covers = covers
        self._unauthorized = self.topics.last_seq

    def _examine_later(self, run: Sequence[Message], examined: int) -> None:
        self._unexamined.update([message.seq for message in run if message.seq > examined])
        self._more = True
        if not self._searching:
            self.changes.selector_time.wait(self._search)

    def _search(self) -> None:
        """Look through what waits for messages that the selector refuses.

        There may be no consumer to whom they would be delivered.
        """
        if self._searching or self.ended or not self._unexamined:
            return
        self._searching, self._more = True, False
        SelectivePurge(
            self, max(self._unexamined), self._is_unwanted, self._searched, journaled=False
        ).start()

    def _searched(self, count: int) -> None:
        self._searching = False
        if self._more:
            self._search()
        else:
            # Whatever was here was examined, and the others have left.
            self._unexamined.clear()

    def examine_no_more(self) -> None:
        """Forget what was not examined, since nothing is delivered any more.

        There may be as many entries as messages.
        """
        self._unexamined, self.dispatch.failed_deliveries = set(), {}

    def _is_unwanted(self, message: Message) -> bool:
        if message.seq <= self._unauthorized and not self.covers(message.headers.destination):
            return True
        if message.seq not in self._unexamined and message.seq > self.restored:
            return False
        self._unexamined.discard(message.seq)
        return self.selector is not None and not self.selector.matches(message)

    def _without_unwanted(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Leave out what the selector or the access rules refuse.

        A message that there is no time to examine is buried: better buried than lost.
        """
        unwanted = [
            message
            for message in messages
            if not self.changes.selector_time.spent() and self._is_unwanted(message)
        ]
        if unwanted:
            self.settle(unwanted)
            gone = {message.seq for message in unwanted}
            return [message for message in messages if message.seq not in gone]
        return messages

    def examine(self, run: list[Message]) -> list[Message]:
        """Ask the selector and the rules about what they have not judged yet.

        :returns: what is wanted; what there was no time for waits again.
        """
        if not (self._unexamined or self.restored or self._unauthorized):
            return run
        last = max(self.restored, self._unauthorized)
        kept: list[Message] = []
        unwanted: list[Message] = []
        for index, message in enumerate(run):
            seq = message.seq
            if seq <= last or seq in self._unexamined:
                if self.changes.selector_time.spent():
                    self.dispatch.backlog.put_back(run[index:])
                    self.dispatch.hold_up(self)
                    break
                if self._is_unwanted(message):
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
        if self.number or self.spilled:
            self.changes.release_for_subscription(self.number, messages, self.spilled)

    def release_stored(self, seqs: Sequence[int]) -> None:
        self.changes.release_for_subscription_by_seq(
            self.number, seqs, self.spilled.discard_all(seqs)
        )

    def settled(self, messages: Sequence[Message]) -> None:
        if self.dispatch.failed_deliveries:
            self.dispatch.forget_tries(messages)
        left: PhysicalDestination | None = None
        for message in messages:
            if left is None or left.destination != message.headers.destination:
                if left is not None:
                    left.taken()
                left = self.topics.topic_of(message)
                if left is None:
                    continue
            left.count -= 1
            left.octets -= message.size
        if left is not None:
            left.taken()

    def keeps_count(self, message: Message) -> bool:
        return self.number != 0 and message.headers.persistent and bool(message.stored)

    def stop_counting(self, count: int, octets: int) -> None:
        topic = self.named
        if topic is not None:
            # Of which topic a message was that came by a pattern, only the message knew.
            topic.stop_counting(count, octets)

    @property
    def named(self) -> PhysicalDestination | None:
        return self.topics.destinations.get(self.pattern)

    @property
    def shown(self) -> Destination:
        """What it receives from, for people."""
        return self.pattern._replace(name=shown(self.pattern.name))

    @property
    def gone(self) -> bool:
        return self.ended

    def use_policy(self) -> RedeliveryPolicy:
        return self.topics.properties_for(self.pattern).redelivery

    def bury(
        self,
        messages: Sequence[Message],
        reason: DeadReason,
        comment: str,
        keeps_unstored: bool = True,
    ) -> None:
        if self._unexamined or self.restored or self._unauthorized:
            messages = self._without_unwanted(messages)
        self.changes.bury(self, messages, self.topics.topic_of, reason, comment, keeps_unstored)

    def evict(self, topic: PhysicalDestination, lowest_priority: bool) -> bool:
        """Give up one waiting message of ``topic`` to make room.

        :returns: False when no suitable message is in memory.
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

    def wake(self) -> None:
        self.dispatch.wake(self)

    def join(self, consumer: EmbeddedConsumer) -> None:
        self.dispatch.join(self, consumer)

    def return_to_backlog(self, messages: Sequence[Message]) -> None:
        self.dispatch.backlog.put_back(messages)

    def tries(self, seq: int) -> int:
        return self.dispatch.failed_deliveries.get(seq, 0)

    def end_outstanding(self, messages: Sequence[Message]) -> None:
        redelivery.end_outstanding(self, messages)

    def redeliver(self, messages: Sequence[Message]) -> None:
        redelivery.redeliver(self, messages)

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

    def hold(self, topic: Destination, held: bool) -> None:
        """Deliver nothing of that topic, or go on."""
        if topic == self.pattern:
            self.dispatch.pause(self, held)
        else:
            self.dispatch.bar(self, topic, held)

    # --- the end

    def leave(self, consumer: EmbeddedConsumer) -> None:
        """Remove a consumer.

        A subscription that is not durable ends with its last consumer.
        """
        self.dispatch.leave(self, consumer)
        if not self.durable and not self.dispatch.consumers:
            self.topics.end_subscription(self)

    def __str__(self) -> str:
        if self.durable:
            return f"durable subscription '{self.name}' of client-id '{self.client_id}' on {self.shown}"
        if self.name:
            return f"shared subscription '{self.name}' on {self.shown}"
        return f"subscription on {self.shown}"


def _everything(topic: Destination) -> bool:
    return True
