"""Purging and destroying to the dead message queue, where the administrator asks for that: nothing
is lost, and each message is there once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.operator.administration import AdministrationRefused, BrokerAdministration
from gateway.messaging.dead import DMQ, UNDELIVERED_COMMENT, UNDELIVERED_REASON
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import InvalidDestination, MessageRejected
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode
from tests.gateway.broker.administration import destinations, outcome, with_messages
from tests.gateway.broker.brokers import with_properties
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

Q = Queue("q")
T = Topic("t.a")


@pytest.fixture(params=["in memory", "in the store"])
def stepped(request: pytest.FixtureRequest, tmp_path: Path) -> Stepped:
    return with_messages(request.param, tmp_path)


def dead(stepped: Stepped) -> list[Message]:
    """Take everything out of the dead message queue."""
    inbox = stepped.receive(stepped.session(Mode.AUTO), DMQ)
    return list(inbox.messages)


def bodies(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def fill(stepped: Stepped, count: int) -> None:
    stepped.send_each(texts(Q, range(count)))


# --- purge


def test_what_is_purged_is_dead(stepped: Stepped, admin: BrokerAdministration) -> None:
    fill(stepped, 60)
    assert outcome(stepped, admin.purge("queue", "q", use_dmq=True)) == 60
    assert admin.destination("queue", "q").messages == 0
    # What it said is durable.
    stepped.restart()
    found = dead(stepped)
    assert bodies(found) == [str(number) for number in range(60)]
    assert {str(message.headers.properties[UNDELIVERED_REASON]) for message in found} == {
        "UNDELIVERABLE"
    }
    assert {str(message.headers.properties[UNDELIVERED_COMMENT]) for message in found} == {
        "an administrator purged queue:q"
    }
    assert stepped.empty


def test_with_a_selector_the_others_stay(stepped: Stepped, admin: BrokerAdministration) -> None:
    stepped.send_each(
        [
            with_properties(Q, str(number), {"colour": ("red", "blue")[number % 2]})
            for number in range(30)
        ]
    )
    assert outcome(stepped, admin.purge("queue", "q", "colour = 'red'", use_dmq=True)) == 15
    assert bodies(dead(stepped)) == [str(number) for number in range(0, 30, 2)]
    assert admin.destination("queue", "q").messages == 15


def test_what_consumers_have_and_what_comes_meanwhile_stays(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    fill(stepped, 5)
    inbox = stepped.receive(stepped.session(), Q, credit=2)
    asked = admin.purge("queue", "q", use_dmq=True)
    stepped.session().send(texts(Q, ["later"]))
    assert outcome(stepped, asked) == 3
    assert bodies(dead(stepped)) == ["2", "3", "4"]
    stepped.grant(inbox, 100)
    assert inbox.texts == ["0", "1", "later"]


def test_what_pauses_before_another_try_is_dead_too(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    fill(stepped, 3)
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.receive(session, Q, credit=1)
    inbox.consumer.reject([1], delay_ms=60_000)
    stepped.close(session)
    assert outcome(stepped, admin.purge("queue", "q", use_dmq=True)) == 3
    assert sorted(bodies(dead(stepped))) == ["0", "1", "2"]
    assert stepped.empty


def test_of_a_topic_each_subscription_s_is_dead(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(client_id="me")
    for name in ("d", "e"):
        stepped.consume(session, T, durable_name=name).consumer.close()
    stepped.consume(session, Topic("t.*"), durable_name="w").consumer.close()
    stepped.send([*texts(T, "ab"), *texts(Topic("t.b"), ["other"])], session)
    assert outcome(stepped, admin.purge("topic", "t.a", use_dmq=True)) == 6
    assert sorted(bodies(dead(stepped))) == ["a", "a", "a", "b", "b", "b"]
    assert [(each.name, each.messages) for each in admin.durables()] == [
        ("d", 0),
        ("e", 0),
        ("w", 1),
    ]


# --- destroy


def test_a_destroyed_queue_leaves_everything_to_the_dead_message_queue(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    fill(stepped, 60)
    inbox = stepped.receive(stepped.session(), Q, credit=3)
    outcome(stepped, admin.destroy("queue", "q", use_dmq=True))
    assert [str(error) for error in inbox.failures] == [
        str(InvalidDestination(Q, "the destination was removed"))
    ]
    assert [each.name for each in destinations(admin)] == ["mq.sys.dmq"]
    stepped.restart()
    found = dead(stepped)
    assert sorted(map(int, bodies(found))) == list(range(60))
    assert {str(message.headers.properties[UNDELIVERED_COMMENT]) for message in found} == {
        "an administrator destroyed queue:q"
    }
    assert stepped.empty


def test_what_a_transaction_had_acknowledged_is_dead_when_it_rolls_back(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    fill(stepped, 3)
    session = stepped.session(Mode.TRANSACTED)
    inbox = stepped.receive(session, Q)
    inbox.consumer.acknowledge_through(2)
    outcome(stepped, admin.destroy("queue", "q", use_dmq=True))
    session.rollback(Told())
    stepped.run_until_idle()
    assert sorted(bodies(dead(stepped))) == ["0", "1", "2"]
    assert stepped.empty


@pytest.mark.parametrize("destination", [Q, T], ids=str)
def test_a_commit_on_its_way_leaves_nothing_out(
    stepped: Stepped, admin: BrokerAdministration, destination: Destination
) -> None:
    session = stepped.session(Mode.TRANSACTED, client_id="me")
    name = "d" if destination == T else None
    stepped.consume(session, destination, durable_name=name).consumer.close()
    stepped.run_until_idle()
    session.send(texts(destination, ["x"]))
    told = Told()
    session.commit(told)
    outcome(stepped, admin.destroy(destination.kind.name.lower(), destination.name, use_dmq=True))
    assert told.well
    assert bodies(dead(stepped)) == ["x"]
    assert stepped.empty


def test_nobody_uses_a_queue_that_is_being_destroyed(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    fill(stepped, 600)
    asked = admin.destroy("queue", "q", use_dmq=True)
    assert admin.destination("queue", "q").state == "DESTROYING"
    with pytest.raises(MessageRejected, match="an administrator is removing it"):
        stepped.session().send(texts(Q, ["too late"]))
    with pytest.raises(AdministrationRefused, match="is being destroyed"):
        outcome(stepped, admin.destroy("queue", "q"))
    outcome(stepped, asked)
    assert len(dead(stepped)) == 600


@pytest.mark.parametrize("steps", range(8))
def test_after_a_crash_in_the_middle_each_message_is_in_one_place(
    stepped: Stepped, admin: BrokerAdministration, steps: int
) -> None:
    fill(stepped, 600)
    admin.destroy("queue", "q", use_dmq=True)
    stepped.run_reactor()
    for _ in range(steps):
        if stepped.store.busy:
            stepped.store.step()
        stepped.run_reactor()
    stepped.restart()
    found = bodies(dead(stepped))
    left = stepped.receive(stepped.session(Mode.AUTO), Q)
    assert sorted(map(int, [*found, *left.texts])) == list(range(600))


def test_a_destroyed_topic_leaves_everything_to_the_dead_message_queue(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(client_id="me")
    plain = stepped.consume(session, T, credit=1)
    active = stepped.consume(session, T, durable_name="active", credit=1)
    stepped.consume(session, T, durable_name="asleep").consumer.close()
    pattern = stepped.consume(session, Topic("t.>"), credit=1)
    for number in range(5):
        session.send(texts(T, [number]))
        session.send(texts(Topic("t.b"), [f"other {number}"]))
    stepped.run_until_idle()
    outcome(stepped, admin.destroy("topic", "t.a", use_dmq=True))
    assert [len(inbox.failures) for inbox in (plain, active, pattern)] == [1, 1, 0]
    # Three subscriptions had all five; the one with a pattern keeps what its consumer has.
    assert sorted(bodies(dead(stepped))) == sorted([*"01234" * 3, *"1234"])
    assert {each.name for each in destinations(admin)} == {"mq.sys.dmq", "t.b"}
    pattern.consumer.acknowledge_through(1)
    stepped.grant(pattern, 100)
    assert pattern.texts == ["0", *[f"other {number}" for number in range(5)]]


# --- what is refused


@pytest.mark.parametrize("operation", ["purge", "destroy"])
def test_where_the_destination_does_not_use_it_that_is_said(
    stepped: Stepped, admin: BrokerAdministration, operation: str
) -> None:
    outcome(stepped, admin.create("queue", "q", {"useDMQ": "false"}))
    fill(stepped, 2)
    with pytest.raises(
        AdministrationRefused,
        match=r"queue:q has useDMQ=false, so .*; 'update dst' with -o useDMQ=true first",
    ):
        outcome(stepped, getattr(admin, operation)("queue", "q", use_dmq=True))
    assert admin.destination("queue", "q").messages == 2


def test_the_dead_message_queue_has_none_for_itself(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    fill(stepped, 2)
    outcome(stepped, admin.purge("queue", "q", use_dmq=True))
    with pytest.raises(
        AdministrationRefused,
        match=r"what is purged from mq\.sys\.dmq has no other dead message queue to go to",
    ):
        outcome(stepped, admin.purge("queue", "mq.sys.dmq", use_dmq=True))
    assert admin.destination("queue", "mq.sys.dmq").messages == 2
