"""Advisories: what they cost without a listener, and what is left of them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.security.access import DEFAULT_RULES
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import AccessDenied, MessageRejected
from gateway.messaging.provider import Mode
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.stepped_broker import Stepped

ALL = Topic("ActiveMQ.Advisory.>")
RULE = "\ntopic.ActiveMQ.Advisory.>.consume.allow.user=guest\n"


@pytest.fixture
def told(tmp_path: Path) -> Stepped:
    """A broker of which guest may know what others do."""
    return Stepped(tmp_path, rules=RULE)


def test_without_a_listener_nothing_is_made(told: Stepped) -> None:
    told.receive(told.session(Mode.AUTO), Queue("q"))
    told.send([text(Queue("q"), "1")])
    assert told.broker.last_seq == 1
    assert list(told.broker.destinations) == [Queue("q")]


def test_a_listener_hears_of_others_until_it_leaves(told: Stepped) -> None:
    listening = told.session(Mode.AUTO)
    inbox = told.receive(listening, ALL)
    other = told.session(Mode.AUTO)
    told.receive(other, Queue("q"))
    inbox.clear()
    other.close()
    told.run_until_idle()
    assert [each[:13] for each in inbox.texts] == ['{"RemoveInfo"']
    listening.close()
    told.run_until_idle()
    last = told.broker.last_seq
    told.receive(told.session(Mode.AUTO), Queue("q"))
    assert told.broker.last_seq == last
    assert not told.broker.advisories.listeners


def test_who_may_hear_of_some_hears_of_no_others(told: Stepped) -> None:
    inbox = told.receive(told.session(Mode.AUTO), ALL)
    told.access.path.write_text(
        DEFAULT_RULES + "\ntopic.ActiveMQ.Advisory.*.consume.allow.user=guest\n"
    )
    told.access.reload()
    inbox.clear()
    told.receive(told.session(Mode.AUTO), Queue("q"))
    assert sorted(each[:10] for each in inbox.texts) == ['{"Connecti', '{"Destinat']


def test_topics_that_only_patterns_cover_go_again(told: Stepped) -> None:
    told.receive(told.session(Mode.AUTO), ALL)
    for number in range(3):
        told.receive(told.session(Mode.AUTO), Queue(f"q{number}"))
    advisory = [each for each in told.broker.destinations if each.name.startswith("ActiveMQ.")]
    assert Topic("ActiveMQ.Advisory.Consumer.Queue.q2") in advisory
    told.clock.advance(61)
    told.run_until_idle()
    assert not [each for each in told.broker.destinations if each.name.startswith("ActiveMQ.")]


def test_who_is_not_named_may_neither_listen_nor_send(stepped: Stepped) -> None:
    with pytest.raises(AccessDenied):
        stepped.consume(stepped.session(), ALL)
    with pytest.raises(AccessDenied):
        stepped.consume(stepped.session(), Topic("ActiveMQ.Advisory.Connection"))


def heard(inbox: Inbox) -> list[tuple[str, str]]:
    """Of each advisory, the topic's name and the body, and forget them."""
    found = [(each.headers.destination.name[18:], each.text) for each in inbox.messages]
    inbox.clear()
    return found


def listen(told: Stepped, topic: str) -> Inbox:
    inbox = told.receive(told.session(Mode.AUTO), Topic(f"ActiveMQ.Advisory.{topic}"))
    inbox.clear()
    return inbox


def test_a_dead_message_is_told_of(told: Stepped) -> None:
    inbox = listen(told, "MessageDLQd.>")
    consumer = told.consume(told.session(Mode.INDIVIDUAL), Queue("q"))
    told.send([text(Queue("q"), "secret", correlation_id="c")])
    [message] = consumer.messages
    told.reject(consumer, consumer.numbers, dead=DeadReason.UNDELIVERABLE)
    [(name, body)] = heard(inbox)
    assert name == "MessageDLQd.Queue.q"
    shown = json.loads(body)["ActiveMQTextMessage"]
    assert shown["messageId"] == {"textView": message.message_id}
    assert shown["destination"]["string"] == "q"
    assert (shown["correlationId"], shown["persistent"]) == ("c", True)
    assert "secret" not in body


def test_what_expires_is_told_of(told: Stepped) -> None:
    expired, dead = listen(told, "Expired.>"), listen(told, "MessageDLQd.Queue.q")
    told.send([text(Queue("q"), "1", expires=told.now_ms - 1)])
    [message] = expired.messages
    assert message.headers.destination.name == "ActiveMQ.Advisory.Expired.Queue.q"
    identity = json.loads(message.text)["ActiveMQTextMessage"]["messageId"]["textView"]
    assert message.headers.properties["orignalMessageId"] == identity
    assert [name for name, _ in heard(dead)] == ["MessageDLQd.Queue.q"]


def test_what_expires_of_a_topic_is_told_of(told: Stepped) -> None:
    expired = listen(told, "Expired.Topic.t")
    told.consume(told.session(Mode.AUTO), Topic("t"), start=False)
    told.send([text(Topic("t"), "1", expires=told.now_ms - 1)])
    assert [name for name, _ in heard(expired)] == ["Expired.Topic.t"]


def test_what_is_dead_and_not_kept_is_not_told_of_as_kept(told: Stepped) -> None:
    inbox = listen(told, "MessageDLQd.>")
    consumer = told.consume(told.session(Mode.INDIVIDUAL), Queue("q"))
    lost = {"JMS_SUN_PRESERVE_UNDELIVERED": False}
    told.send([text(Queue("q"), "1", properties=lost)])
    told.reject(consumer, consumer.numbers, dead=DeadReason.UNDELIVERABLE)
    assert heard(inbox) == []


def test_what_makes_room_is_told_of(tmp_path: Path) -> None:
    told = Stepped(tmp_path, limited(LimitBehavior.REMOVE_OLDEST), rules=RULE)
    inbox = listen(told, "MessageDiscarded.>")
    told.send([text(Queue("q"), "1"), text(Queue("q"), "2")])
    [message] = inbox.messages
    assert message.headers.destination.name == "ActiveMQ.Advisory.MessageDiscarded.Queue.q"
    assert message.headers.properties["orignalDestination"] == "queue://q"


@pytest.mark.parametrize("behavior", [LimitBehavior.FLOW_CONTROL, LimitBehavior.REJECT_NEWEST])
def test_a_full_queue_is_told_of_once(tmp_path: Path, behavior: LimitBehavior) -> None:
    told = Stepped(tmp_path, limited(behavior), rules=RULE)
    inbox = listen(told, "FULL.>")
    for body in "123":
        with suppress(MessageRejected):
            told.send([text(Queue("q"), body)])
    told.run_until_idle()
    [message] = inbox.messages
    assert (message.headers.destination.name, message.text) == (
        "ActiveMQ.Advisory.FULL.Queue.q",
        '{"null":""}',
    )
    assert message.headers.properties["usageName"] == "queue://q"
    assert cast("int", message.headers.properties["usageCount"]) > 0


def test_nothing_is_told_of_the_dead_when_the_last_listener_has_left(told: Stepped) -> None:
    listening = told.session(Mode.AUTO)
    told.receive(listening, ALL)
    assert told.broker.dead_letters.listener is not None
    told.close(listening)
    assert told.broker.dead_letters.listener is None
    assert told.broker.limit_reports.listener is None


def limited(behavior: LimitBehavior) -> BrokerOptions:
    """A queue q that has room for one message."""
    properties = DestinationProperties(max_num_msgs=1, limit_behavior=behavior)
    return BrokerOptions(reap_time=0, destinations=((Queue("q"), properties),))
