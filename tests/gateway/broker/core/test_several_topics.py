"""Subscriptions that consumers share and that have several topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.broker.core.destinations.subscribing import MOST_TOPICS
from gateway.broker.core.waiting.memory import of_destination
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.properties.pause import Pause
from gateway.messaging.destination import Destination, Topic
from gateway.messaging.errors import AccessDenied, InvalidDestination, SubscriptionDiffers
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Mode
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.stepped_broker import Stepped

A, B, C = Topic("a"), Topic("b"), Topic("c")
BELOW = Topic("a.>")
PASSING: dict[str, Any] = {"shared_name": "s", "adds": True}
KEPT: dict[str, Any] = {"durable_name": "s", "shared": True, "redefines": False, "adds": True}
KINDS = pytest.mark.parametrize("kind", [PASSING, KEPT], ids=["passing", "kept"])


def share(stepped: Stepped, kind: dict[str, Any], topic: Destination, **more: Any) -> Inbox:
    """Consume, and acknowledge, on a connection of its own."""
    below = ">" in topic.name
    given = {**kind, "none_or_more": below, **more}
    return stepped.receive(stepped.session(Mode.AUTO), topic, **given)


def leave(stepped: Stepped, *inboxes: Inbox) -> None:
    """Consume no more."""
    for inbox in inboxes:
        inbox.consumer.close()
    stepped.run_until_idle()


def to_each(*names: str, **headers: Any) -> list[Message]:
    """A message to each topic, whose text is its name."""
    return [text(Topic(name), name, **headers) for name in names]


def came(*inboxes: Inbox) -> list[str]:
    return sorted(each for inbox in inboxes for each in inbox.texts)


@KINDS
def test_it_gets_what_any_of_its_topics_gets_and_each_message_once(
    stepped: Stepped, kind: dict[str, Any]
) -> None:
    inboxes = [share(stepped, kind, topic) for topic in (A, Topic("a.*"), B, BELOW)]
    stepped.send_each(to_each("a", "b", "c", "a.x", "a.x.y"))
    assert came(*inboxes) == ["a", "a.x", "a.x.y", "b"]
    # No key is new, and none goes with the consumer that has brought it.
    leave(stepped, *inboxes[1:])
    inboxes.append(share(stepped, kind, B))
    stepped.send_each(to_each("a", "b", "a.x"))
    assert came(*inboxes) == sorted(["a", "a.x", "a.x.y", "b", "a", "b", "a.x"])
    assert len(stepped.broker.durables) + len(stepped.broker.shared) == 1


@KINDS
def test_what_waits_is_kept_when_a_topic_is_added(stepped: Stepped, kind: dict[str, Any]) -> None:
    holder = stepped.receive(stepped.session(), A, **kind, credit=0)
    stepped.send_each(to_each("a", "b"))
    assert came(holder, share(stepped, kind, B)) == ["a"]


def test_one_that_is_not_durable_ends_with_its_last_consumer(stepped: Stepped) -> None:
    inboxes = [share(stepped, PASSING, topic, credit=0) for topic in (A, B, BELOW)]
    stepped.send_each(to_each("a", "b", "a.x"))
    leave(stepped, *inboxes)
    assert stepped.empty
    assert (stepped.broker.shared, dict(stepped.broker.wild.subscriptions)) == ({}, {})
    assert [stepped.broker.topic(topic).count for topic in (A, B)] == [0, 0]
    again = share(stepped, PASSING, B)
    stepped.send_each(to_each("a", "b"))
    assert again.texts == ["b"], "its other topics have gone with it"


def test_a_durable_one_has_all_topics_after_a_restart(stepped: Stepped) -> None:
    for topic in (A, BELOW, B):
        leave(stepped, share(stepped, KEPT, topic))
    for _ in range(2):
        stepped.restart()
        stepped.send_each(to_each("a", "b", "c", "a.x", persistent=True))
    inbox = share(stepped, KEPT, B)
    assert came(inbox) == sorted(["a", "b", "a.x"] * 2)
    share(stepped, KEPT, C)
    stepped.send_each(to_each("c", persistent=True))
    stepped.restart()
    assert len(stepped.broker.durables) == 1
    rows = [row.id for row in stepped.disk.destinations.values()]
    assert {row.destination for row in stepped.disk.subscriptions.values()} < set(rows)
    connection = stepped.connect()
    told: list[object] = []
    connection.unsubscribe("s").addBoth(told.append)
    stepped.run_until_idle()
    assert (told, stepped.disk.subscriptions, stepped.empty) == ([None], {}, True)
    stepped.restart()
    assert not [row for row in stepped.disk.destinations.values() if "\x1f" in row.name]


def test_after_a_restart_there_is_a_topic_to_send_to(tmp_path: Path) -> None:
    """As for one topic: who sends need not be allowed to make it."""
    stepped = Stepped(tmp_path)
    for topic in (A, B):
        share(stepped, KEPT, topic)
    stepped.restart()
    assert [stepped.broker.find(topic) is not None for topic in (A, B)] == [True, True]


@KINDS
def test_another_selector_is_refused(stepped: Stepped, kind: dict[str, Any]) -> None:
    share(stepped, kind, A)
    share(stepped, kind, B)
    with pytest.raises(SubscriptionDiffers, match="is to topic:a, b without a selector"):
        share(stepped, kind, C, selector="n = 1")
    stepped.send_each(to_each("c"))
    assert not stepped.broker.topic(C).count


@KINDS
def test_others_ask_for_what_it_has(stepped: Stepped, kind: dict[str, Any]) -> None:
    """Such as clients by JMS, to whom a name has one topic."""
    share(stepped, kind, A)
    with pytest.raises(SubscriptionDiffers):
        share(stepped, {**kind, "adds": False}, B)


@KINDS
def test_who_may_not_read_a_topic_does_not_add_it(tmp_path: Path, kind: dict[str, Any]) -> None:
    rules = "\ntopic.b.consume.deny.user=guest\ntopic.a.x.consume.deny.user=guest\n"
    stepped = Stepped(tmp_path, rules=rules)
    inbox = share(stepped, kind, A)
    with pytest.raises(AccessDenied):
        share(stepped, kind, B)
    wide = share(stepped, kind, BELOW)
    stepped.send_each(to_each("a", "b", "a.x", "a.y"))
    assert came(inbox, wide) == ["a", "a.y"]


def test_a_right_that_has_gone_meanwhile_is_asked_for_again(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    for topic in (A, B):
        leave(stepped, share(stepped, KEPT, topic))
    stepped.send_each(to_each("a", "b", persistent=True))
    rules = stepped.access.path
    rules.write_text(rules.read_text() + "\ntopic.b.consume.deny.user=guest\n")
    stepped.access.load()
    assert share(stepped, KEPT, A).texts == ["a"]


@pytest.mark.parametrize("paused", [A, B])
def test_a_topic_that_is_paused_holds_its_own_messages_only(
    stepped: Stepped, admin: BrokerAdministration, paused: Destination
) -> None:
    topic = stepped.broker.topic(paused)
    stepped.broker.pauses.set(topic, Pause.CONSUMERS)
    first = share(stepped, KEPT, A)
    stepped.send_each(to_each("a", persistent=True))
    inboxes = [first, share(stepped, KEPT, B)]
    stepped.send_each(to_each("b", persistent=True))
    other = {"a": "b", "b": "a"}[paused.name]
    assert came(*inboxes) == [other]
    stepped.broker.pauses.set(topic, Pause.NONE)
    stepped.run_until_idle()
    assert came(*inboxes) == ["a", "b"]


def test_its_topics_are_counted_and_bounded(stepped: Stepped) -> None:
    nothing = stepped.broker.memory.object_octets
    inbox = share(stepped, PASSING, A)
    before = stepped.broker.memory.object_octets
    session = stepped.session(Mode.AUTO)
    for number in range(1, MOST_TOPICS):
        spec = ConsumerSpec(Topic(f"t.{number}.*"), **PASSING)
        session.consumer(spec, Inbox().deliver, print).close()
    assert stepped.broker.memory.object_octets - before >= 32 * MOST_TOPICS
    with pytest.raises(InvalidDestination, match="has 256 topics, and may have no more"):
        share(stepped, PASSING, B)
    stepped.send_each(to_each("t.255.x"))
    assert inbox.texts == ["t.255.x"]
    leave(stepped, inbox)
    made = sum(of_destination(name) for name in ("a", "b", "t.255.x"))
    assert stepped.broker.memory.object_octets == nothing + made


def test_an_advisory_topic_is_a_subscriptions_only_one(tmp_path: Path) -> None:
    advisory = Topic("ActiveMQ.Advisory.Connection")
    stepped = Stepped(tmp_path, rules=f"\ntopic.{advisory.name}.consume.allow.user=guest\n")
    for first, second in ((A, advisory), (advisory, A)):
        inbox = share(stepped, PASSING, first)
        with pytest.raises(InvalidDestination, match="advisories"):
            share(stepped, PASSING, second)
        leave(stepped, inbox)


def test_no_client_writes_several_topics_as_one(stepped: Stepped) -> None:
    for name in ("a\x1fb", "a.*\x1fb"):
        with pytest.raises(InvalidDestination, match="control character"):
            share(stepped, PASSING, Topic(name))


def test_operators_see_its_topics(stepped: Stepped, admin: BrokerAdministration) -> None:
    for topic in (A, BELOW):
        share(stepped, KEPT, topic)
    [found] = admin.durables()
    assert (found.topic, found.none_or_more) == ("a, a.>", True)
    for name in ("a", "a.>", "a, a.>"):
        assert admin.durables(name) == [found]
    assert admin.durables("b") == []
    assert admin.destination("topic", "a").wildcards == {"a, a.>": 2}


def test_its_messages_are_purged_with_their_topic(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    for topic in (A, B):
        leave(stepped, share(stepped, KEPT, topic))
    stepped.send_each(to_each("a", "b", persistent=True))
    admin.destroy("topic", "a")
    stepped.run_until_idle()
    inbox = share(stepped, KEPT, B)
    stepped.send_each(to_each("a", persistent=True))
    assert inbox.texts == ["b", "a"], "the name has both topics still"
