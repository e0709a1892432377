"""A message in the store is found damaged while the broker runs: its destination is stopped, the
others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.store.interface import StoreDamaged
from gateway.messaging.dead import DMQ
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import DestinationStopped, MessageRejected
from gateway.messaging.provider import Mode
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.brokers import Inbox
from tests.gateway.broker.stepped_broker import Stepped, all_of, texts

Q = Queue("q")
OTHER = Queue("other")
T = Topic("t")


@pytest.fixture
def restarted(tmp_path: Path) -> Stepped:
    """A broker that has 40 messages in each of two queues, and for a durable subscription, in its
    store only. One of each but ``other`` is damaged.
    """
    stepped = Stepped(
        tmp_path, memory=Memory(total=60 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)
    )
    connection = stepped.connect("me")
    stepped.consume(connection.session(Mode.CLIENT), T, durable_name="d")
    connection.close()
    session = stepped.session()
    for number in range(40):
        session.send(texts(Q, [number]) + texts(OTHER, [number]) + texts(T, [number]))
    stepped.run_until_idle()
    disk = stepped.disk
    numbers = {row.name: row.id for row in disk.destinations.values()}
    for name in ("q", "t"):
        disk.damaged |= {
            row.seq
            for row in disk.rows.values()
            if row.destination == numbers[name] and row.body == b"20"
        }
    stepped.restart()
    return stepped


def damage_of(stepped: Stepped, name: str) -> StoreDamaged:
    """What a store tells that has found it by itself."""
    (number,) = (row.id for row in stepped.disk.destinations.values() if row.name == name)
    (seq,) = (seq for seq in stepped.disk.damaged if stepped.disk.rows[seq].destination == number)
    return StoreDamaged(
        "the disk", f"message {seq}", "its checksum is wrong", seq=seq, destination=number
    )


def test_nothing_behind_a_damaged_message_is_delivered(restarted: Stepped) -> None:
    rows = dict(restarted.disk.rows)
    inbox = restarted.consume(restarted.session(), Q)
    other = restarted.receive(restarted.session(), OTHER)
    assert [int(body) for body in inbox.texts] == list(range(len(inbox.texts)))
    assert len(inbox.texts) <= 20
    assert [type(error) for error in inbox.failures] == [DestinationStopped]
    assert other.texts == [str(number) for number in range(40)]
    assert not other.failures
    # What it had been given waits again, and everything is in the store as it was.
    assert restarted.disk.rows == rows


def test_senders_and_new_consumers_are_refused(restarted: Stepped) -> None:
    restarted.receive(restarted.session(), Q)
    session = restarted.session()
    with pytest.raises(MessageRejected) as error:
        session.send(texts(Q, ["new"]))
    assert isinstance(error.value.cause, DestinationStopped)
    assert str(error.value.cause).startswith("queue:q is stopped: ")
    for spec in ({}, {"browse": True}):
        with pytest.raises(DestinationStopped):
            restarted.consume(session, Q, **spec)
    restarted.send(texts(OTHER, ["new"]), session)
    assert "new" in restarted.bodies


def test_a_sender_that_had_sent_there_before_is_refused(restarted: Stepped) -> None:
    session = restarted.session()
    session.send(texts(Q, ["before"]))
    restarted.store.on_damaged(damage_of(restarted, "q"))  # type: ignore[misc]
    with pytest.raises(MessageRejected):
        session.send(texts(Q, ["after"]))


def test_what_the_store_finds_by_itself_stops_the_consumers(restarted: Stepped) -> None:
    error = damage_of(restarted, "q")
    restarted.disk.damaged.clear()
    inbox = restarted.consume(restarted.session(), Q, credit=3)
    browser = restarted.receive(restarted.session(), Q, credit=3, browse=True)
    assert (len(all_of(inbox)), len(all_of(browser))) == (3, 3)
    assert restarted.store.on_damaged is not None
    restarted.store.on_damaged(error)
    restarted.grant(browser, 5)
    assert [type(error) for error in inbox.failures + browser.failures] == [DestinationStopped] * 2
    assert (inbox.texts, browser.texts, restarted.broker.queue(Q).count) == ([], [], 40)


def test_a_topic_is_stopped_with_its_subscriptions(restarted: Stepped) -> None:
    owed = set(restarted.disk.owed)
    live = restarted.consume(restarted.session(), T)
    wild = restarted.consume(restarted.session(), Topic("*"))
    connection = restarted.connect("me")
    inbox = restarted.receive(connection.session(Mode.CLIENT), T, durable_name="d")
    assert [int(body) for body in inbox.texts] == list(range(len(inbox.texts)))
    assert len(inbox.texts) <= 20
    for each in (inbox, live, wild):
        assert [type(error) for error in each.failures] == [DestinationStopped]
    assert restarted.disk.owed == owed
    with pytest.raises(MessageRejected):
        restarted.session().send(texts(T, ["new"]))
    again = restarted.connect("me2")
    with pytest.raises(DestinationStopped):
        restarted.consume(again.session(Mode.CLIENT), T, durable_name="e")


def test_one_that_nobody_knows_the_destination_of_stops_everything(restarted: Stepped) -> None:
    assert restarted.store.on_damaged is not None
    restarted.store.on_damaged(
        StoreDamaged("the disk", "content 7", "the message it belongs to is missing", seq=7)
    )
    assert ["content 7" in str(error) for error in restarted.failures] == [True]


def test_an_operator_can_give_the_messages_up(restarted: Stepped) -> None:
    inbox = restarted.receive(restarted.session(), Q)
    assert inbox.failures
    restarted.remove(restarted.broker.queue(Q))
    restarted.later(1)
    (other,) = (row.id for row in restarted.disk.destinations.values() if row.name == "other")
    (topic,) = (row.id for row in restarted.disk.destinations.values() if row.name == "t")
    assert {row.destination for row in restarted.disk.rows.values()} == {other, topic}
    session = restarted.session()
    again = restarted.consume(session, Q)
    restarted.send(texts(Q, ["new"]), session)
    assert again.texts == ["new"]


def test_a_stopped_durable_subscription_is_not_removed(restarted: Stepped) -> None:
    connection = restarted.connect("me")
    restarted.receive(connection.session(Mode.CLIENT), T, durable_name="d")
    rows, owed = dict(restarted.disk.rows), set(restarted.disk.owed)
    results: list[object] = []
    connection.unsubscribe("d").addErrback(lambda failure: results.append(failure.type))
    restarted.run_until_idle()
    assert (results, restarted.disk.rows, restarted.disk.owed) == ([DestinationStopped], rows, owed)


# --- what an administrator asks of what is stopped


@pytest.mark.parametrize("type", ["queue", "topic"])
def test_what_is_stopped_is_not_moved_and_none_of_it_is_lost(restarted: Stepped, type: str) -> None:
    name = type[0]
    admin = administration(restarted)
    restarted.store.on_damaged(damage_of(restarted, name))  # type: ignore[misc]
    rows = dict(restarted.disk.rows)
    asks: list[Callable[[], Deferred[Any]]] = [
        lambda: admin.destroy(type, name, use_dmq=True),
        lambda: admin.purge(type, name, use_dmq=True),
        lambda: admin.purge(type, name, "JMSPriority = 4"),
    ]
    for asked in asks:
        with pytest.raises(
            AdministrationRefused,
            match=f"{type}:{name} is stopped: a message of it in the store is damaged.*without useDMQ",
        ):
            outcome(restarted, asked())
    assert restarted.disk.rows == rows
    outcome(restarted, admin.destroy(type, name))
    assert len(restarted.disk.rows) == len(rows) - 40


@pytest.mark.parametrize("what", ["destroy", "purge"])
def test_a_queue_found_damaged_while_it_is_moved_keeps_the_rest(
    restarted: Stepped, what: str
) -> None:
    admin = administration(restarted)
    asked: Deferred[Any] = (
        admin.destroy("queue", "q", use_dmq=True)
        if what == "destroy"
        else admin.purge("queue", "q", use_dmq=True)
    )
    with pytest.raises(AdministrationRefused, match="queue:q is stopped"):
        outcome(restarted, asked)
    assert len(restarted.disk.rows) == 120
    assert restarted.broker.queue(Q).count + restarted.broker.queue(DMQ).count == 40
    assert restarted.broker.queue(Q).count
    restarted.restart()
    restarted.run_until_idle()
    assert restarted.broker.queue(Q).count + restarted.broker.queue(DMQ).count == 40


def test_a_pattern_that_is_stopped_keeps_what_it_has_of_other_topics(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    stepped.consume(
        stepped.session(client_id="me"), Topic("t.*"), durable_name="w"
    ).consumer.close()
    stepped.send(texts(Topic("t.a"), ["a"]) + texts(Topic("t.b"), ["b"]))
    (row,) = (row for row in stepped.disk.rows.values() if row.body == b"a")
    stepped.disk.damaged = {row.seq}
    stepped.restart()
    stepped.store.on_damaged(damage_of(stepped, "t.a"))  # type: ignore[misc]
    with pytest.raises(
        AdministrationRefused,
        match=r"topic:t\.b has messages that cannot be .* as topic:t\.a is stopped",
    ):
        outcome(stepped, administration(stepped).destroy("topic", "t.b", use_dmq=True))
    assert stepped.bodies == ["a", "b"]


# --- patterns that a damaged topic has stopped go on when it is destroyed


def with_pattern(folder: Path, messages: int, *damaged: str) -> Stepped:
    """A broker that was started with so many messages of t.a and of t.b, in turn, for a durable
    pattern.

    :param damaged: texts of messages that are damaged in the store.
    """
    stepped = Stepped(
        folder, memory=Memory(total=60 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)
    )
    stepped.consume(
        stepped.session(client_id="me"), Topic("t.*"), durable_name="w"
    ).consumer.close()
    session = stepped.session()
    for number in range(messages):
        for name in "ab":
            session.send(texts(Topic(f"t.{name}"), [f"{name}{number}"]))
    stepped.run_until_idle()
    stepped.disk.damaged = {
        row.seq for row in stepped.disk.rows.values() if row.body.decode() in damaged
    }
    stepped.restart()
    return stepped


def received(stepped: Stepped) -> Inbox:
    """What the durable pattern's consumer is given."""
    connection = stepped.connect("me")
    try:
        inbox = stepped.receive(connection.session(Mode.AUTO), Topic("t.*"), durable_name="w")
    finally:
        stepped.close(connection)
    return inbox


def of_b(messages: int) -> list[str]:
    return [f"b{number}" for number in range(messages)]


@pytest.mark.parametrize("messages", [3, 400])
@pytest.mark.parametrize("found_by", ["a consumer", "the store"])
def test_a_pattern_goes_on_with_other_topics_once_the_damaged_one_is_destroyed(
    tmp_path: Path, messages: int, found_by: str
) -> None:
    stepped = with_pattern(tmp_path, messages, "a1", f"a{messages - 1}")
    if found_by == "a consumer":
        first = received(stepped)
        assert [type(error) for error in first.failures] == [DestinationStopped]
    else:
        stepped.store.on_damaged(damage_of_any(stepped, "a1"))  # type: ignore[misc]
    with pytest.raises(DestinationStopped):
        received(stepped)
    outcome(stepped, administration(stepped).destroy("topic", "t.a"))
    assert (sorted(stepped.bodies), len(stepped.disk.owed)) == (sorted(of_b(messages)), messages)
    stepped.send(texts(Topic("t.a"), ["new"]))
    again = received(stepped)
    assert (again.texts, again.failures) == ([*of_b(messages), "new"], [])
    stepped.later(1)
    assert (stepped.bodies, len(stepped.disk.owed)) == ([], 0)
    stepped.restart()
    assert received(stepped).texts == []


def test_a_pattern_stays_stopped_while_another_of_its_topics_is_damaged(tmp_path: Path) -> None:
    messages = 100
    stepped = with_pattern(tmp_path, messages, "a90", "b2")
    stepped.store.on_damaged(damage_of_any(stepped, "a90"))  # type: ignore[misc]
    outcome(stepped, administration(stepped).destroy("topic", "t.a"))
    with pytest.raises(DestinationStopped, match=r"t\.b"):
        received(stepped)
    outcome(stepped, administration(stepped).destroy("topic", "t.b"))
    stepped.send(texts(Topic("t.a"), ["new"]))
    again = received(stepped)
    assert (again.texts, again.failures) == (["new"], [])


def damage_of_any(stepped: Stepped, body: str) -> StoreDamaged:
    (row,) = (row for row in stepped.disk.rows.values() if row.body.decode() == body)
    return StoreDamaged(
        "the disk",
        f"message {row.seq}",
        "its checksum is wrong",
        seq=row.seq,
        destination=row.destination,
    )
