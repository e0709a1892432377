"""How a subscription gives up what it has.

It does so when it ends, and when a topic that has stopped it is destroyed.

Owns which of its messages are read for that, and in which slices. What giving one up means is the
subscription's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from twisted.logger import Logger

from gateway.broker.core.destinations.purging import SelectivePurge, purge
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.durability.rows import BLOCK
from gateway.broker.properties.names import is_wild
from gateway.messaging.dead import DeadReason
from gateway.messaging.errors import DestinationStopped
from gateway.messaging.message import Message

_LOG: Final = Logger(namespace="gateway.broker")


def discard(subscription: TopicSubscription, comment: str | None, done: Callable[[], None]) -> None:
    """Give up everything that waits, block by block; then call ``done``.

    With a comment, the messages go to the dead message queue.

    Only messages that go there, or whose topic is not known, are read from the store.
    """
    if comment is None:
        subscription.examine_no_more()
    if comment is None and not is_wild(subscription.pattern.name):
        purge(subscription, lambda count: done())
        return
    if comment is None and not subscription.durable:
        if not (subscription.dispatch.backlog.waiting or subscription.dispatch.backlog.pausing):
            done()
            return
        subscription.changes.delete_slowly(_discard_unread(subscription, done))
        return
    messages, seqs, octets = subscription.dispatch.backlog.clear()

    def steps() -> Iterator[None]:
        for start in range(0, len(messages), BLOCK):
            _remove(subscription, messages[start : start + BLOCK], comment)
            if len(messages) > start + BLOCK:
                yield
        _remove_stored(subscription, seqs, 0, octets, comment, done)

    subscription.changes.schedule.one_step_a_turn(steps())


def resume_without(
    subscription: TopicSubscription, topic: PhysicalDestination, done: Callable[[], None]
) -> None:
    """Resume a subscription when the topic that stopped it is destroyed.

    Gives up its messages of that topic, and hands out the rest again; then calls ``done``.

    It stays stopped where a message of another topic is damaged, too.
    """
    topics = subscription.topics

    def of_the_destroyed(message: Message) -> bool:
        # Or of one that was destroyed before this, when the subscription had to stay stopped.
        found = topics.topic_of(message)
        return found is None or found is topic

    def damaged_elsewhere(seqs: Collection[int]) -> bool:
        numbers = {subscription.changes.damaged.get(seq) for seq in seqs}
        return any(
            each is not topic and each.number in numbers for each in topics.destinations.values()
        )

    def unreadable(seqs: Collection[int]) -> bool:
        if damaged_elsewhere(seqs):
            return False
        for seq in seqs:
            _drop_damaged(subscription, topic, seq)
        return True

    def searched(count: int) -> None:
        stopped = [
            each
            for each in topics.topics.values()
            if each.damaged and each is not topic and subscription in each.subscriptions
        ]
        if not stopped:
            subscription.dispatch.halted = None
            _LOG.info(
                "{subscription} goes on: {topic}, which had stopped it, is destroyed",
                subscription=subscription,
                topic=topic,
            )
            subscription.wake()
        else:
            subscription.dispatch.halted = DestinationStopped(stopped[0].destination)
        done()

    # These were read before, and told of.
    known = [seq for seq, number in subscription.changes.damaged.items() if number == topic.number]
    for seq in known:
        _drop_damaged(subscription, topic, seq)
    SelectivePurge(
        subscription, topics.last_seq, of_the_destroyed, searched, unreadable=unreadable
    ).start()


def _drop_damaged(subscription: TopicSubscription, topic: PhysicalDestination, seq: int) -> None:
    """Give up a message that cannot be read, if it waits here."""
    count, size = subscription.dispatch.backlog.drop_behind((seq,))
    if not count and (resting := subscription.dispatch.backlog.resting.pop(seq, None)) is not None:
        count, size = 1, resting
    if count:
        subscription.changes.journal_removed_stored(subscription, [seq])
        subscription.release_stored([seq])
        subscription.dispatch.failed_deliveries.pop(seq, None)
        topic.count -= 1
        topic.octets -= size


def _discard_unread(subscription: TopicSubscription, done: Callable[[], None]) -> Iterator[None]:
    """Give up what waits for a pattern that is not durable.

    Messages in the store only are not read: their topics are known.
    """
    detached = subscription.dispatch.backlog.detach()
    while detached.more:
        messages, sizes = detached.take(BLOCK)
        _remove(subscription, messages, None)
        subscription.changes.journal_removed_stored(subscription, list(sizes))
        topics: set[PhysicalDestination] = set()
        for seq, size in sizes.items():
            topic = subscription.spilled.topic(seq)
            subscription.dispatch.failed_deliveries.pop(seq, None)
            topic.count -= 1
            topic.octets -= size
            topics.add(topic)
        subscription.release_stored(list(sizes))
        for topic in topics:
            topic.taken()
        if detached.more:
            yield
    done()


def _remove_stored(
    subscription: TopicSubscription,
    seqs: Sequence[int],
    start: int,
    octets: int,
    comment: str | None,
    done: Callable[[], None],
) -> None:
    """Give up what is in the store only, from ``start`` on.

    :param octets: of the messages that are left.
    """
    asked = seqs[start : start + BLOCK]
    if not asked:
        done()
        return

    def found(messages: Sequence[Message]) -> None:
        _remove(subscription, messages, comment)
        left = octets - sum([message.size for message in messages])
        if len(messages) < len(asked):
            _never_found(subscription, asked, messages, left if start + BLOCK >= len(seqs) else 0)
        _remove_stored(subscription, seqs, start + BLOCK, left, comment, done)

    subscription.changes.fetch(asked, found)


def _never_found(
    subscription: TopicSubscription, asked: Sequence[int], messages: Sequence[Message], octets: int
) -> None:
    missing = set(asked).difference([message.seq for message in messages])
    if subscription.number:
        subscription.changes.delete_owed(
            subscription.number, missing - subscription.changes.damaged.keys()
        )
    subscription.dispatch.not_found(subscription, len(missing), octets)


def _remove(
    subscription: TopicSubscription, messages: Sequence[Message], comment: str | None
) -> None:
    if messages and comment is not None:
        subscription.bury(messages, DeadReason.UNDELIVERABLE, comment)
    elif messages:
        subscription.changes.journal_removed(subscription, messages)
        subscription.settle(messages)
