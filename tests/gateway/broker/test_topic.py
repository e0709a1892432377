"""Topics: their limits count what their subscriptions have yet to take, and fall on nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import DestinationFull, MessageRejected
from gateway.messaging.provider import Mode
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

LIMITED, FREE = Topic("t.limited"), Topic("t.free")


def limited(folder: Path, behavior: LimitBehavior, most: int = 4, reap_time: int = 0) -> Stepped:
    properties = DestinationProperties(max_num_msgs=most, limit_behavior=behavior)
    return Stepped(
        folder, BrokerOptions(reap_time=reap_time, destinations=((LIMITED, properties),))
    )


def test_each_subscription_counts(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.REJECT_NEWEST)
    session = stepped.session()
    inboxes = [stepped.consume(session, LIMITED) for _ in range(2)]
    stepped.send(texts(LIMITED, range(2)), session)
    topic = stepped.broker.topic(LIMITED)
    assert (topic.count, topic.octets) == (
        4,
        2 * sum(message.size for message in inboxes[0].messages),
    )
    with pytest.raises(MessageRejected) as refused:
        session.send(texts(LIMITED, ["more"]))
    assert isinstance(refused.value.cause, DestinationFull)
    for inbox in inboxes:
        inbox.consumer.acknowledge_through(2)
    assert (topic.count, topic.octets) == (0, 0)
    session.send(texts(LIMITED, ["more"]))


@pytest.mark.parametrize(
    "behavior", [LimitBehavior.REMOVE_OLDEST, LimitBehavior.REMOVE_LOW_PRIORITY]
)
def test_a_limit_falls_on_the_messages_of_its_own_topic(
    tmp_path: Path, behavior: LimitBehavior
) -> None:
    stepped = limited(tmp_path, behavior)
    session = stepped.session()
    everything = stepped.consume(session, Topic("t.*"), credit=0)
    session.send(texts(FREE, [f"free {number}" for number in range(20)], priority=0))
    for number in range(10):
        session.send(texts(LIMITED, [number]))
    stepped.grant(everything, 100)
    assert [body for body in everything.texts if body.startswith("free")] == [
        f"free {number}" for number in range(20)
    ]
    assert [body for body in everything.texts if not body.startswith("free")] == [
        "6",
        "7",
        "8",
        "9",
    ]
    dead = stepped.receive(session, Queue("mq.sys.dmq"))
    assert dead.texts == [str(number) for number in range(6)]


def test_a_limit_falls_on_whoever_is_furthest_behind(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.REMOVE_OLDEST)
    session = stepped.session()
    slow = stepped.consume(session, LIMITED, credit=0)
    quick = stepped.consume(session, LIMITED)
    for number in range(10):
        stepped.send(texts(LIMITED, [number]), session)
        quick.consumer.acknowledge_through(number + 1)
    stepped.grant(slow, 100)
    assert quick.texts == [str(number) for number in range(10)]
    # The fourth is the one that the quick one is about to take.
    assert slow.texts == ["7", "8", "9"]


def test_flow_control_holds_senders_until_subscribers_have_taken(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    sender, taker = stepped.session(), stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.consume(taker, LIMITED)
    told = Told()
    sender.send(texts(LIMITED, range(5)))
    sender.completion(told)
    stepped.run_until_idle()
    assert not sender.writable()
    stepped.acknowledge(inbox, [1])
    assert told.results == [], "the limit is reached still"
    stepped.acknowledge(inbox, [2])
    assert (told.well, sender.writable()) == (True, True)


def test_a_topic_that_nobody_uses_is_reaped_and_one_that_is_used_is_not(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.REJECT_NEWEST, reap_time=10)
    session = stepped.session()
    inbox = stepped.consume(session, FREE)
    stepped.send(texts(FREE, ["x"]), session)
    inbox.consumer.close(requeue=False)
    stepped.later(30)
    assert FREE in stepped.broker.destinations, "a message is not settled"
    inbox.consumer.acknowledge_through(1)
    stepped.later(9)
    assert FREE in stepped.broker.destinations
    stepped.later(2)
    assert FREE not in stepped.broker.destinations


def test_use_within_the_reap_time_begins_it_anew(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.REJECT_NEWEST, reap_time=10)
    session = stepped.session()
    for _ in range(4):
        stepped.consume(session, FREE).consumer.close()
        stepped.later(7)
        assert FREE in stepped.broker.destinations
    stepped.later(4)
    assert FREE not in stepped.broker.destinations
