"""What an administrator removes: destinations, durable subscriptions, connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.durability.batch import REMOVED
from gateway.broker.operator.administration import AdministrationRefused, BrokerAdministration
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import (
    ConnectionEnded,
    DurableInUse,
    InvalidDestination,
    MessageRejected,
    MessagingError,
    StorageFailed,
    UnknownSubscription,
)
from gateway.messaging.provider import Mode, Session
from tests.gateway.broker.administration import administration, connections, destinations, outcome
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

Q = Queue("q")
T, U = Topic("t.a"), Topic("t.b")


# --- queues


def test_a_destroyed_queue_is_gone_with_its_messages_and_consumers(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(stepped, admin.create("queue", "q", {"maxNumMsgs": "50"}))
    session = stepped.session()
    inbox = stepped.consume(session, Q, credit=3)
    stepped.send(texts(Q, range(10)), session)
    outcome(stepped, admin.destroy("queue", "q"))
    assert [str(error) for error in inbox.failures] == [
        str(InvalidDestination(Q, "the destination was removed"))
    ]
    assert (stepped.disk.destinations, stepped.empty) == ({}, True)
    assert [each.name for each in destinations(admin)] == ["mq.sys.dmq"]
    assert admin.destination("queue", "mq.sys.dmq").messages == 0, "what is destroyed is not dead"
    session.send(texts(Q, ["anew"]))
    found = admin.destination("queue", "q")
    assert (found.origin, found.messages, found.properties["maxNumMsgs"]) == ("client", 1, -1)


def test_senders_who_are_held_back_are_let_go(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    outcome(
        stepped, admin.create("queue", "q", {"maxNumMsgs": "1", "limitBehavior": "FLOW_CONTROL"})
    )
    session = stepped.session()
    session.send(texts(Q, ["1"]))
    told = stepped.complete(session)
    assert told.results == []
    outcome(stepped, admin.destroy("queue", "q"))
    assert told.well


def test_an_acknowledgement_that_waits_for_its_commit_ends_well(
    stepped: Stepped, admin: BrokerAdministration, transacted: Session
) -> None:
    inbox = stepped.consume(transacted, Q)
    stepped.send(texts(Q, ["x", "y"]))
    inbox.consumer.acknowledge_through(1)
    outcome(stepped, admin.destroy("queue", "q"))
    told = stepped.commit(transacted)
    assert (told.well, stepped.empty) == (True, True)


def test_it_is_gone_after_a_crash_in_the_middle(
    stepped: Stepped, admin: BrokerAdministration, session: Session
) -> None:
    for _ in range(3):
        session.send(texts(Q, range(1000)))
    stepped.run_until_idle()
    admin.destroy("queue", "q")
    stepped.clock.advance(0)
    stepped.run_reactor()
    stepped.store.step()
    stepped.restart()
    stepped.run_until_idle()
    assert stepped.empty
    assert Q not in stepped.broker.destinations


@pytest.mark.parametrize(
    ("type", "name", "sentence"),
    [
        (
            "queue",
            "mq.sys.dmq",
            "the dead message queue cannot be destroyed; 'purge dst' empties it",
        ),
        ("queue", "nowhere", "there is no queue 'nowhere'"),
        ("topic", "q", "there is no topic 'q'"),
        (
            "queue",
            "set",
            r"queue:set is defined by settings and would come again: take imq.destination.queue.set.\* out",
        ),
    ],
)
def test_what_cannot_be_destroyed_is_refused(
    tmp_path: Path, type: str, name: str, sentence: str
) -> None:
    stepped = Stepped(
        tmp_path, BrokerOptions(destinations=((Queue("set"), DestinationProperties()),))
    )
    stepped.session().send(texts(Q, ["x"]))
    with pytest.raises(AdministrationRefused, match=sentence):
        outcome(stepped, administration(stepped).destroy(type, name))
    assert {each.name for each in destinations(administration(stepped))} == {
        "mq.sys.dmq",
        "q",
        "set",
    }


def test_what_is_temporary_goes_with_its_connection(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    temporary = stepped.connect().temporary(Q.kind)
    with pytest.raises(AdministrationRefused, match="is temporary"):
        outcome(stepped, admin.destroy("queue", temporary.name))


# --- topics


def test_a_destroyed_topic_takes_its_subscriptions_along(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    plain = stepped.consume(session, T, credit=1)
    active = stepped.consume(session, T, durable_name="active", credit=1)
    stepped.consume(session, T, durable_name="asleep").consumer.close()
    pattern = stepped.consume(session, Topic("t.>"), credit=1)
    stepped.consume(session, Topic("t.*"), durable_name="w").consumer.close()
    sender = stepped.session()
    for number in range(5):
        sender.send(texts(T, [number]))
        sender.send(texts(U, [f"other {number}"]))
    stepped.run_until_idle()
    outcome(stepped, admin.destroy("topic", "t.a"))
    for inbox in (plain, active):
        assert [type(error) for error in inbox.failures] == [InvalidDestination]
        assert "an administrator has destroyed it" in str(inbox.failures[0])
    assert pattern.failures == []
    assert [(each.name, each.messages) for each in admin.durables()] == [("w", 5)]
    assert {each.name for each in destinations(admin)} == {"mq.sys.dmq", "t.b"}
    assert admin.destination("queue", "mq.sys.dmq").messages == 0
    # The one message of it that a consumer has is still its.
    pattern.consumer.acknowledge_through(1)
    stepped.grant(pattern, 100)
    assert pattern.texts == ["0", *[f"other {number}" for number in range(5)]]
    assert (len(stepped.disk.subscriptions), len(stepped.disk.owed)) == (1, 5)
    stepped.restart()
    assert [(each.name, each.messages) for each in administration(stepped).durables()] == [("w", 5)]


def test_a_topic_of_the_same_name_has_counts_of_its_own(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    inbox = stepped.consume(session, Topic("t.*"), durable_name="w", credit=2)
    stepped.send(texts(T, ["old 1", "old 2", "old 3"]), session)
    outcome(stepped, admin.destroy("topic", "t.a"))
    session.send(texts(T, ["new"]))
    assert admin.destination("topic", "t.a").messages == 1
    stepped.acknowledge_through(inbox, 2)
    assert admin.destination("topic", "t.a").messages == 1
    stepped.grant(inbox, 10)
    stepped.acknowledge_through(inbox, 3)
    assert (inbox.texts, admin.destination("topic", "t.a").messages) == (
        ["old 1", "old 2", "new"],
        0,
    )
    assert stepped.empty


def test_what_a_consumer_had_of_a_destroyed_topic_is_gone_after_a_restart(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    inbox = stepped.consume(session, Topic("t.*"), durable_name="w", credit=1)
    stepped.send(texts(T, ["had"]), session)
    assert inbox.texts == ["had"]
    outcome(stepped, admin.destroy("topic", "t.a"))
    assert stepped.bodies == ["had"]
    stepped.restart()
    stepped.run_until_idle()
    assert stepped.empty
    assert [each.messages for each in administration(stepped).durables()] == [0]


def test_nobody_uses_a_topic_that_is_being_destroyed(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    stepped.consume(session, Topic("t.*"), durable_name="w").consumer.close()
    for _ in range(3):
        session.send(texts(T, range(1000)))
    stepped.run_until_idle()
    asked = admin.destroy("topic", "t.a")
    found = admin.destination("topic", "t.a")
    assert found.state == "DESTROYING"
    with pytest.raises(MessageRejected, match="an administrator is removing it"):
        session.send(texts(T, ["too late"]))
    with pytest.raises(InvalidDestination, match="an administrator is removing it"):
        stepped.consume(session, T)
    second = admin.destroy("topic", "t.a")
    with pytest.raises(AdministrationRefused, match="is being destroyed"):
        outcome(stepped, second)
    outcome(stepped, asked)
    stepped.send(texts(T, ["anew"]), session)
    assert stepped.bodies == ["anew"]


def test_a_commit_that_comes_after_a_topic_is_gone_leaves_nothing(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.TRANSACTED, client_id="me")
    stepped.consume(session, T, durable_name="d").consumer.close()
    stepped.run_until_idle()
    session.send(texts(T, ["x"]))
    told = Told()
    session.commit(told)
    asked = admin.destroy("topic", "t.a")
    outcome(stepped, asked)
    assert (told.well, stepped.empty, stepped.disk.destinations) == (True, True, {})


# --- durable subscriptions


def test_a_destroyed_durable_subscription_leaves_what_it_had_to_the_dead_message_queue(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    stepped.consume(session, T, durable_name="d").consumer.close()
    stepped.consume(session, U, durable_name="e").consumer.close()
    stepped.send([*texts(T, ["a", "b"]), *texts(U, ["c"])], session)
    assert [(each.name, each.topic) for each in admin.durables()] == [("d", "t.a"), ("e", "t.b")]
    assert [each.name for each in admin.durables("t.a")] == ["d"]
    outcome(stepped, admin.destroy_durable("d", "me"))
    assert ([each.name for each in admin.durables()], len(stepped.disk.subscriptions)) == (["e"], 1)
    dead = stepped.receive(stepped.session(Mode.AUTO), Queue("mq.sys.dmq"))
    assert dead.texts == ["a", "b"]


def test_one_in_use_or_unknown_is_not_destroyed(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    stepped.consume(session, T, durable_name="d")
    assert admin.durables()[0].active
    with pytest.raises(DurableInUse):
        outcome(stepped, admin.destroy_durable("d", "me"))
    with pytest.raises(UnknownSubscription):
        outcome(stepped, admin.destroy_durable("d", "you"))
    assert len(admin.durables()) == 1


# --- connections


def test_a_destroyed_connection_is_told_and_gives_back_what_it_had(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    losses: list[MessagingError] = stepped.losses
    session = stepped.session(client_id="me")
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["x"]), session)
    assert inbox.texts == ["x"]
    (connection,) = connections(stepped, admin)
    admin.destroy_connection(connection.id)
    stepped.run_until_idle()
    assert [type(error) for error in losses] == [ConnectionEnded]
    assert "an administrator has ended the connection" in str(losses[0])
    assert connections(stepped, admin) == []
    again = stepped.receive(stepped.session(client_id="me"), Q)
    assert (again.texts, again.attempts) == (["x"], [2])
    with pytest.raises(AdministrationRefused, match=f"there is no connection {connection.id}"):
        admin.destroy_connection(connection.id)


# --- what goes on meanwhile


def with_little_memory(tmp_path: Path) -> Stepped:
    return Stepped(
        tmp_path,
        BrokerOptions(reap_time=0),
        memory=Memory(total=20 * OVERHEAD, share=5 * OVERHEAD, least=OVERHEAD),
    )


@pytest.mark.parametrize("then", ["crash", "end"])
def test_a_topic_is_destroyed_after_a_durable_subscription_of_it_that_is_ending(
    tmp_path: Path, then: str
) -> None:
    stepped = with_little_memory(tmp_path)
    admin = administration(stepped)
    connection = stepped.connect("me")
    stepped.consume(connection.session(Mode.CLIENT), T, durable_name="d", credit=0).consumer.close()
    stepped.send(texts(T, range(3_000)))
    told: list[object] = []
    connection.unsubscribe("d").addBoth(told.append)
    admin.destroy("topic", "t.a").addBoth(told.append)
    if then == "crash":
        while len(stepped.disk.owed) == 3_000:
            stepped.run_reactor()
            if stepped.store.busy:
                stepped.store.step()
        assert stepped.disk.owed, "it goes on"
        stepped.restart()
        stepped.run_until_idle()
        durable = stepped.broker.durables["me", "d"]
        assert (
            durable.dispatch.backlog.waiting + stepped.broker.queue(Queue("mq.sys.dmq")).count
            == 3_000
        )
    else:
        stepped.run_until_idle()
        assert told == [None, None]
        assert admin.destination("queue", "mq.sys.dmq").messages == 3_000, (
            "unsubscribing sends all of it there"
        )
        assert [row.name for row in stepped.disk.destinations.values()] == ["mq.sys.dmq"]


def test_a_subscription_whose_topic_was_being_removed_goes_at_the_next_start(
    stepped: Stepped,
) -> None:
    stepped.consume(stepped.session(client_id="me"), T, durable_name="d").consumer.close()
    stepped.send(texts(T, range(3)))
    for number, row in stepped.disk.destinations.items():
        stepped.disk.destinations[number] = row._replace(administered=REMOVED)
    stepped.restart()
    stepped.run_until_idle()
    assert (stepped.disk.subscriptions, stepped.disk.destinations, stepped.empty) == ({}, {}, True)
    stepped.consume(stepped.session(client_id="me"), T, durable_name="d")
    stepped.send(texts(T, ["new"]))
    assert len(stepped.disk.owed) == 1


def test_a_pattern_stays_as_long_as_a_durable_subscription_of_it_is_ending(tmp_path: Path) -> None:
    stepped = with_little_memory(tmp_path)
    connection = stepped.connect("me")
    pattern = Topic("t.*")
    stepped.consume(
        connection.session(Mode.CLIENT), pattern, durable_name="d", credit=0
    ).consumer.close()
    stepped.session().send(texts(T, range(3_000)))
    stepped.consume(connection.session(Mode.CLIENT), pattern, durable_name="e").consumer.close()
    stepped.run_until_idle()
    told: list[object] = []
    connection.unsubscribe("d").addBoth(told.append)
    connection.unsubscribe("e").addBoth(told.append)
    # The disk looks after each batch whether a start would refuse it.
    stepped.run_until_idle()
    assert told == [None, None]
    assert sorted(row.name for row in stepped.disk.destinations.values()) == ["mq.sys.dmq", "t.a"]


def test_a_topic_that_is_being_destroyed_is_not_reaped_and_the_administrator_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=120))
    stepped.consume(stepped.session(), T, start=False)
    stepped.send(texts(T, range(2_000)))
    told: list[object] = []
    admin = administration(stepped)
    with monkeypatch.context() as patched:
        patched.setattr(stepped.broker.schedule, "_next_step", lambda busy: None)
        admin.destroy("topic", "t.a").addBoth(told.append)
        stepped.later(1, times=130)
    stepped.broker.schedule._next_step(lambda: False)
    stepped.run_until_idle()
    assert told == [None]
    assert stepped.broker.find(T) is None


def test_a_queue_that_is_being_destroyed_is_not_reaped_and_the_administrator_is_answered(
    tmp_path: Path,
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=120))
    stepped.send(texts(Q, range(10)))
    stepped.clock.advance(119)
    told: list[object] = []
    queue = stepped.broker.queue(Q)
    administration(stepped).destroy("queue", "q", use_dmq=True).addBoth(told.append)
    stepped.run_reactor()
    while stepped.store.busy and queue.count:
        stepped.store.step()
        stepped.run_reactor()
    # The disk takes its time for the commit.
    for _ in range(130):
        stepped.clock.advance(1)
    assert told == []
    stepped.run_until_idle()
    assert told == [None]
    assert stepped.broker.find(Q) is None
    assert (len(stepped.bodies), [row.name for row in stepped.disk.destinations.values()]) == (
        10,
        ["mq.sys.dmq"],
    )


def test_removing_what_is_gone_is_answered_at_once(stepped: Stepped) -> None:
    stepped.send(texts(Q, ["x"]))
    queue = stepped.broker.queue(Q)
    told: list[str] = []
    stepped.broker.remove(queue, lambda: told.append("first"))
    stepped.broker.remove(queue, lambda: told.append("second"))
    stepped.run_until_idle()
    assert sorted(told) == ["first", "second"]


def test_a_store_that_fails_while_messages_are_moved_is_told(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    stepped.send(texts(Q, range(3)))
    told: list[object] = []
    admin.destroy("queue", "q", use_dmq=True).addErrback(lambda failure: told.append(failure.type))
    stepped.run_reactor()
    while stepped.broker.queue(Q).count:
        stepped.store.step()
        stepped.run_reactor()
    stepped.store.fail()
    stepped.run_until_idle()
    assert told == [StorageFailed]
