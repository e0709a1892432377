"""Topics: their limits concern no other topic; which rows their subscriptions need, and what is left when
these end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import (
    DestinationFull,
    InvalidDestination,
    MessageRejected,
    MessagingError,
)
from gateway.messaging.provider import Connection, Mode, Session
from tests.gateway.broker.brokers import Inbox, with_properties
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


T = Topic("t")
DMQ = Queue("mq.sys.dmq")


def little() -> Memory:
    """Room for some ten messages of a subscription."""
    return Memory(total=60 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)


@pytest.fixture
def small(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path, memory=little())


def leave_durable(
    stepped: Stepped, client_id: str, destination: Destination = T, **spec: Any
) -> None:
    """Make a durable subscription, and leave it alone."""
    connection = stepped.connect(client_id)
    stepped.consume(connection.session(Mode.CLIENT), destination, durable_name="d", **spec)
    stepped.close(connection)


def take_up(
    stepped: Stepped, client_id: str, destination: Destination = T, **spec: Any
) -> tuple[Connection, Inbox]:
    """Read a durable subscription again."""
    connection = stepped.connect(client_id)
    inbox = stepped.receive(connection.session(Mode.CLIENT), destination, durable_name="d", **spec)
    return connection, inbox


# --- rows


def test_a_message_for_many_has_one_row_until_the_last_has_taken_it(stepped: Stepped) -> None:
    for client_id in ("a", "b", "c"):
        leave_durable(stepped, client_id)
    stepped.send(texts(T, ["x", "y"]))
    assert (stepped.bodies, len(stepped.disk.owed)) == (["x", "y"], 6)
    assert len(stepped.broker.rows.shared) == 2
    for left, client_id in ((2, "b"), (2, "a"), (0, "c")):
        _, inbox = take_up(stepped, client_id)
        stepped.acknowledge_through(inbox, 2)
        assert len(stepped.disk.rows) == left
    assert (stepped.empty, stepped.broker.topic(T).count) == (True, 0)


def test_one_who_is_not_durable_needs_no_row_while_there_is_memory(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, T, credit=0)
    stepped.send(texts(T, range(20)), session)
    assert stepped.empty
    stepped.grant(inbox, 20)
    inbox.consumer.acknowledge_through(20)
    assert stepped.broker.topic(T).count == 0


@pytest.mark.parametrize("pattern", [T, Topic("*")])
def test_what_waits_for_a_subscription_that_ends_is_deleted_unread(
    small: Stepped, pattern: Destination
) -> None:
    session = small.session()
    slow = [small.session() for _ in range(3)]
    for each in slow:
        small.consume(each, pattern, credit=3)
    small.send_each(texts(T, range(2_000)), session)
    assert len(small.disk.rows) > 1_900
    read = small.store.fetches
    for each in slow:
        each.close()
    small.run_until_idle()
    assert (small.store.fetches, small.empty) == (read, True)
    assert (small.broker.topic(T).count, small.broker.topic(T).octets) == (0, 0)
    assert small.broker.memory.used == 0


def test_subscriptions_that_end_wait_for_the_commits_of_others(small: Stepped) -> None:
    session = small.session()
    slow = small.session()
    small.consume(slow, T, credit=3)
    small.send_each(texts(T, range(6_000), persistent=False), session)
    slow.close()
    for _ in range(100):
        small.run_reactor()
    # The disk has answered nothing yet: one batch is with it, and one that is full waits.
    assert small.store.asked == 1
    assert small.broker.commits.number <= small.broker.commits.durable + 3
    small.later(0.01)
    small.later(0.01, times=100)
    assert small.empty


@pytest.mark.parametrize("persistent", [True, False])
def test_those_who_are_behind_share_rows_with_those_who_are_durable(
    small: Stepped, persistent: bool
) -> None:
    leave_durable(small, "a")
    session = small.session()
    slow = [small.consume(small.session(), T, credit=0) for _ in range(2)]
    small.send_each(texts(T, range(60), persistent=persistent), session)
    if persistent:
        assert len(small.disk.rows) == 60
    assert len(small.broker.rows.shared) > 30
    for inbox in slow:
        small.grant(inbox, 60)
        assert inbox.texts == [str(number) for number in range(60)]
        inbox.consumer.acknowledge_through(60)
    small.run_until_idle()
    assert len(small.broker.rows.shared) == 0
    connection, inbox = take_up(small, "a")
    assert inbox.texts == [str(number) for number in range(60)]
    small.acknowledge_through(inbox, 60)
    assert (small.empty, small.broker.topic(T).count, small.broker.memory.used) == (True, 0, 0)
    assert connection


def test_a_subscription_that_ends_while_it_is_behind_leaves_nothing(small: Stepped) -> None:
    session = small.session()
    slow = small.session()
    small.consume(slow, T, credit=3)
    small.send_each(texts(T, range(60)), session)
    assert small.disk.rows
    small.close(slow)
    assert (small.empty, small.broker.topic(T).count, small.broker.memory.used) == (True, 0, 0)


def test_deliveries_may_be_settled_after_the_subscription_has_ended(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, T, credit=3)
    stepped.send(texts(T, range(5)))
    inbox.consumer.close(requeue=False)
    stepped.run_until_idle()
    assert stepped.broker.topic(T).count == 3
    inbox.consumer.acknowledge_through(1)
    assert stepped.broker.topic(T).count == 2
    stepped.close(session)
    assert stepped.broker.topic(T).count == 0


def test_what_a_transaction_took_of_an_ended_subscription_is_settled_by_its_rollback(
    stepped: Stepped, connection: Connection
) -> None:
    session, transacted = connection.session(Mode.CLIENT), connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(session, T)
    stepped.send(texts(T, range(3)), session)
    inbox.consumer.acknowledge([1, 2], within=transacted)
    session.close()
    assert stepped.broker.topic(T).count == 2
    transacted.rollback(Told())
    stepped.run_until_idle()
    assert stepped.broker.topic(T).count == 0


# --- durable subscriptions


def test_durable_subscriptions_are_there_after_a_restart_with_all_they_had(
    stepped: Stepped,
) -> None:
    leave_durable(stepped, "plain")
    leave_durable(stepped, "red", selector="colour = 'red'")
    leave_durable(stepped, "wild", Topic("t.*"))
    leave_durable(stepped, "distant", no_local=True)
    session = stepped.session()
    session.send(
        [
            with_properties(T, str(number), {"colour": "red" if number % 2 else "blue"})
            for number in range(6)
        ]
    )
    stepped.send(texts(Topic("t.a"), ["a"]) + texts(Topic("u.a"), ["b"]), session)
    stepped.restart()
    session = stepped.session()
    session.send(texts(Topic("t.new"), ["c"]))
    stepped.send(
        [with_properties(T, "6", {"colour": "blue"}), with_properties(T, "7", {"colour": "red"})],
        session,
    )
    found = {
        client_id: take_up(stepped, client_id, destination, **spec)[1]
        for client_id, destination, spec in (
            ("plain", T, {}),
            ("red", T, {"selector": "colour = 'red'"}),
            ("wild", Topic("t.*"), {}),
            ("distant", T, {"no_local": True}),
        )
    }
    assert found["plain"].texts == [str(number) for number in range(8)]
    assert (found["red"].texts, found["wild"].texts) == (["1", "3", "5", "7"], ["a", "c"])
    assert found["distant"].texts == [str(number) for number in range(8)]
    for inbox in found.values():
        inbox.consumer.acknowledge_through(len(inbox.messages))
    stepped.run_until_idle()
    assert stepped.empty
    assert stepped.disk.subscriptions.keys() == {
        subscription.number for subscription in stepped.broker.durables.values()
    }


def test_numbers_are_not_given_out_twice_after_a_restart(stepped: Stepped) -> None:
    leave_durable(stepped, "wild", Topic("t.*"))
    leave_durable(stepped, "plain")
    used = {*stepped.disk.destinations, *stepped.disk.subscriptions}
    stepped.restart()
    leave_durable(stepped, "other", Topic("other.*"))
    now = [*stepped.disk.destinations, *stepped.disk.subscriptions]
    assert len(now) == len(set(now))
    assert used < set(now)


def test_a_pattern_that_nobody_names_any_more_leaves_the_store(stepped: Stepped) -> None:
    for client_id in ("a", "b"):
        leave_durable(stepped, client_id, Topic("t.*"))
    for rows, client_id in ((1, "a"), (0, "b")):
        connection = stepped.connect(client_id)
        done: list[object] = []
        connection.unsubscribe("d").addCallback(done.append)
        stepped.run_until_idle()
        assert done == [None]
        connection.close()
        assert len(stepped.disk.destinations) == rows
    assert stepped.disk.subscriptions == {}
    leave_durable(stepped, "a", Topic("t.*"))
    assert len(stepped.disk.destinations) == 1


@pytest.mark.parametrize("use_dmq", [True, False])
def test_a_redefined_subscription_gives_up_all_it_had_block_by_block(
    tmp_path: Path, use_dmq: bool
) -> None:
    small = Stepped(
        tmp_path,
        BrokerOptions(reap_time=0, auto_topic=DestinationProperties(use_dmq=use_dmq)),
        little(),
    )
    leave_durable(small, "a")
    leave_durable(small, "b")
    session = small.session()
    small.send_each(texts(T, range(700)), session)
    number = small.broker.durables["a", "d"].number
    connection = small.connect("a")
    inbox = small.consume(connection.session(Mode.CLIENT), T, durable_name="d", selector="x = 1")
    small.send([with_properties(T, "new", {"x": 1})], session)
    assert inbox.texts == ["new"]
    assert number not in small.disk.subscriptions
    assert {owner for owner, _ in small.disk.owed} == {
        small.broker.durables[key].number for key in (("a", "d"), ("b", "d"))
    }
    dead = small.receive(session, DMQ)
    assert dead.texts == ([str(number) for number in range(700)] if use_dmq else [])
    _, other = take_up(small, "b")
    assert other.texts == [*(str(number) for number in range(700)), "new"]
    other.consumer.acknowledge_through(701)
    inbox.consumer.acknowledge_through(1)
    if use_dmq:
        dead.consumer.acknowledge_through(700)
    small.run_until_idle()
    assert (small.empty, small.broker.topic(T).count) == (True, 0)


def test_a_redefinition_that_a_crash_cut_short_is_finished(small: Stepped) -> None:
    leave_durable(small, "a")
    small.send_each(texts(T, range(700)))
    connection = small.connect("a")
    small.consume(connection.session(Mode.CLIENT), T, durable_name="d", selector="x = 1")
    small.run_reactor()
    small.store.step()
    small.run_reactor()
    small.store.step()
    assert len(small.disk.subscriptions) == 2, (
        "both are there, and the old one has not given up all"
    )
    assert small.disk.owed
    small.restart(little())
    small.run_until_idle()
    assert (len(small.disk.subscriptions), small.disk.owed) == (1, set())
    _, inbox = take_up(small, "a", selector="x = 1")
    assert inbox.texts == []
    dead = small.receive(small.session(), DMQ)
    assert [int(body) for body in dead.texts] == list(range(700))
    small.send([with_properties(T, "new", {"x": 1})])
    assert inbox.texts == ["new"]


def test_a_removal_that_is_told_is_durable_and_one_that_a_crash_cut_short_is_not_told(
    small: Stepped,
) -> None:
    leave_durable(small, "a")
    small.send_each(texts(T, range(700)))
    done: list[object] = []
    small.connect("a").unsubscribe("d").addCallback(done.append)
    small.run_reactor()
    small.store.step()
    assert done == []
    small.restart(little())
    small.run_until_idle()
    assert len(small.disk.subscriptions) == 1
    small.connect("a").unsubscribe("d").addCallback(done.append)
    small.run_until_idle()
    assert (done, small.disk.subscriptions, small.disk.owed) == ([None], {}, set())


def test_what_durable_subscriptions_give_back_is_counted_for_each(stepped: Stepped) -> None:
    for client_id in ("a", "b"):
        leave_durable(stepped, client_id)
    stepped.send(texts(T, ["x"]))
    for _ in range(2):
        connection, _ = take_up(stepped, "a")
        stepped.close(connection)
    assert [row.attempts for row in stepped.disk.redeliveries.values()] == [2]
    stepped.restart()
    _, inbox = take_up(stepped, "a")
    assert inbox.attempts == [3]
    _, other = take_up(stepped, "b")
    assert other.attempts == [1]
    stepped.acknowledge_through(inbox, 1)
    assert stepped.disk.redeliveries == {}
    stepped.acknowledge_through(other, 1)
    assert stepped.empty


def test_the_tries_of_one_who_is_not_durable_are_not_stored(stepped: Stepped) -> None:
    leave_durable(stepped, "a")
    session = stepped.session()
    inbox = stepped.consume(session, T)
    stepped.send(texts(T, ["x"]))
    session.recover()
    stepped.run_until_idle()
    assert (inbox.attempts, stepped.disk.redeliveries) == ([1, 2], {})


# --- temporary topics


def test_a_pattern_does_not_cover_the_temporary_topics_of_others(stepped: Stepped) -> None:
    creator = stepped.connect()
    curious = stepped.consume(stepped.session(), Topic(">"))
    temporary = creator.temporary(Kind.TOPIC)
    late = stepped.consume(stepped.session(), Topic(">"))
    mine = stepped.consume(creator.session(Mode.CLIENT), temporary)
    stepped.send(texts(temporary, ["secret"]))
    assert (curious.texts, late.texts, mine.texts) == ([], [], ["secret"])


def test_a_temporary_topic_has_no_durable_subscriptions(stepped: Stepped) -> None:
    connection = stepped.connect("a")
    with pytest.raises(InvalidDestination):
        stepped.consume(
            connection.session(Mode.CLIENT), connection.temporary(Kind.TOPIC), durable_name="d"
        )


def test_a_temporary_topic_does_not_come_back_when_what_was_sent_to_it_is_settled(
    stepped: Stepped, connection: Connection
) -> None:
    temporary = connection.temporary(Kind.TOPIC)
    session, transacted = connection.session(Mode.CLIENT), connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(session, temporary)
    stepped.session().send(texts(temporary, ["x"]))
    stepped.run_reactor()
    inbox.consumer.acknowledge([1], within=transacted)
    told: list[MessagingError | None] = []
    transacted.commit(told.append)
    stepped.close(connection)
    assert told == [None]
    assert temporary not in stepped.broker.destinations


def test_what_the_selector_was_never_asked_about_is_not_dead_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = Stepped(tmp_path)
    inbox = stepped.receive(
        stepped.session(client_id="me"), Topic("t"), durable_name="d", selector="a = 1", start=False
    )
    inbox.consumer.close()
    monkeypatch.setattr(stepped.broker.selector_time, "spent", lambda: True)
    expires = stepped.now_ms + 60_000
    session = stepped.session()
    session.send(texts(Topic("t"), ["unwanted"], properties={"a": 2}, expires=expires))
    session.send(texts(Topic("t"), ["wanted"], properties={"a": 1}, expires=expires))
    stepped.run_reactor()
    stepped.broker.selector_time.close()
    stepped.run_until_idle()
    assert stepped.bodies == ["unwanted", "wanted"]
    monkeypatch.undo()
    stepped.restart()
    stepped.later(61)
    stepped.later(120)
    assert (stepped.broker.queue(DMQ).count, stepped.bodies) == (1, ["wanted"])
