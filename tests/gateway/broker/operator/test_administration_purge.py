"""Purging: what goes, what stays, how much of it in one turn, and that it is durable."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from twisted.internet.interfaces import IDelayedCall

from gateway.broker.core.destinations.purging import EXAMINED, SLICE
from gateway.broker.operator.administration import AdministrationRefused, BrokerAdministration
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import InvalidSelector
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode, Session
from tests.gateway.broker.administration import administration, outcome, with_messages
from tests.gateway.broker.brokers import Inbox, text, with_properties
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

Q = Queue("q")
T, U = Topic("t.a"), Topic("t.b")


@pytest.fixture(params=["in memory", "in the store"])
def stepped(request: pytest.FixtureRequest, tmp_path: Path) -> Stepped:
    return with_messages(request.param, tmp_path)


def coloured(destination: Destination, count: int) -> list[Message]:
    """Messages by turns red and blue."""
    return [
        with_properties(destination, str(number), {"colour": ("red", "blue")[number % 2]})
        for number in range(count)
    ]


def remaining(stepped: Stepped, inbox: Inbox) -> Sequence[str]:
    stepped.run_until_idle()
    return inbox.texts


def test_all_goes_but_what_consumers_have(
    stepped: Stepped, admin: BrokerAdministration, individual: Session
) -> None:
    inbox = stepped.consume(individual, Q, credit=4)
    stepped.send_each(texts(Q, range(60)), individual)
    inbox.consumer.reject([1], delay_ms=60_000)
    stepped.reject(inbox, [2], delay_ms=0)
    assert outcome(stepped, admin.purge("queue", "q")) == 58
    assert stepped.bodies == ["2", "3"]
    found = admin.destination("queue", "q")
    assert (found.messages, found.unacknowledged, found.octets) == (
        2,
        2,
        sum(message.size for message in inbox.messages[2:]),
    )
    assert admin.destination("queue", "mq.sys.dmq").messages == 0
    inbox.consumer.grant(100)
    stepped.later(100)
    assert inbox.texts == ["0", "1", "2", "3"]
    stepped.acknowledge(inbox, [3, 4])
    assert (stepped.empty, stepped.broker.memory.used) == (True, 0)


def test_a_selector_says_what_goes(stepped: Stepped, admin: BrokerAdministration) -> None:
    stepped.send_each(coloured(Q, 60))
    assert outcome(stepped, admin.purge("queue", "q", "colour = 'red'")) == 30
    assert stepped.bodies == [str(number) for number in range(1, 60, 2)]
    assert admin.destination("queue", "q").messages == 30
    inbox = stepped.consume(stepped.session(Mode.AUTO), Q)
    assert remaining(stepped, inbox) == [str(number) for number in range(1, 60, 2)]
    assert stepped.empty


def test_a_selector_finds_what_pauses_too_also_after_a_restart(
    stepped: Stepped, admin: BrokerAdministration, individual: Session
) -> None:
    individual.send(coloured(Q, 8))
    inbox = stepped.receive(individual, Q)
    stepped.reject(inbox, [1, 2, 3, 4], delay_ms=60_000)
    assert outcome(stepped, admin.purge("queue", "q", "colour = 'red' AND JMSPriority = 4")) == 2
    assert sorted(stepped.bodies) == ["1", "3", "4", "5", "6", "7"]
    stepped.close(individual)
    stepped.restart()
    admin = administration(stepped)
    assert outcome(stepped, admin.purge("queue", "q", "colour = 'blue'")) == 4
    assert stepped.bodies == ["4", "6"]
    stepped.later(100)
    inbox = stepped.consume(stepped.session(Mode.AUTO), Q)
    assert remaining(stepped, inbox) == ["4", "6"]


def test_what_comes_after_it_began_stays(
    stepped: Stepped, admin: BrokerAdministration, session: Session
) -> None:
    stepped.send(coloured(Q, 40), session)
    told: list[int] = []
    admin.purge("queue", "q", "colour = 'red'").addCallback(told.append)
    stepped.send([with_properties(Q, "late", {"colour": "red"})], session)
    assert told == [20]
    session.send(coloured(Q, 2))
    told.clear()
    admin.purge("queue", "q").addCallback(told.append)
    stepped.send(texts(Q, ["later"]), session)
    assert (told, stepped.bodies) == ([23], ["later"])


def test_what_a_consumer_takes_meanwhile_is_not_purged(
    stepped: Stepped, admin: BrokerAdministration, individual: Session
) -> None:
    stepped.send(coloured(Q, 40), individual)
    asked = admin.purge("queue", "q", "colour = 'red'")
    inbox = stepped.consume(individual, Q, credit=10)
    count = outcome(stepped, asked)
    assert len(inbox.texts) == 10
    assert count == 20 - sum(1 for body in inbox.texts if int(body) % 2 == 0)
    assert len(stepped.bodies) == 40 - count


def test_it_is_durable_when_it_is_said(stepped: Stepped, admin: BrokerAdministration) -> None:
    stepped.send(texts(Q, range(30)))
    told: list[int] = []
    admin.purge("queue", "q").addCallback(told.append)
    stepped.run_reactor()
    assert (told, admin.destination("queue", "q").messages, len(stepped.bodies)) == ([], 0, 30)
    stepped.run_until_idle()
    assert (told, stepped.bodies) == ([30], [])


def test_priorities_and_messages_that_are_not_persistent(
    stepped: Stepped, admin: BrokerAdministration, session: Session
) -> None:
    stepped.send_each(
        [
            text(Q, str(number), priority=number % 10, persistent=number % 3 > 0)
            for number in range(40)
        ],
        session,
    )
    assert outcome(stepped, admin.purge("queue", "q", "JMSPriority > 4")) == 20
    inbox = stepped.consume(stepped.session(Mode.AUTO), Q)
    assert sorted(int(body) % 10 for body in remaining(stepped, inbox)) == sorted(
        [0, 1, 2, 3, 4] * 4
    )
    session.send(texts(Q, range(5), persistent=False))
    assert remaining(stepped, inbox)
    assert (stepped.empty, stepped.broker.memory.used) == (True, 0)


def test_a_commit_that_is_under_way_keeps_its_messages(
    stepped: Stepped, admin: BrokerAdministration, transacted: Session
) -> None:
    transacted.send(texts(Q, ["committed"]))
    told = Told()
    transacted.commit(told)
    asked = admin.purge("queue", "q")
    assert outcome(stepped, asked) == 0
    assert told.well
    assert (stepped.bodies, admin.destination("queue", "q").messages) == (["committed"], 1)


# --- topics


def test_a_topic_is_purged_for_every_subscription(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    stepped.consume(session, T, durable_name="d").consumer.close()
    plain = stepped.consume(session, T, credit=3)
    pattern = stepped.consume(session, Topic("t.>"), credit=0)
    stepped.consume(session, Topic("t.*"), durable_name="w").consumer.close()
    sender = stepped.session()
    for number in range(20):
        sender.send(texts(T, [number], persistent=number % 2 == 0))
        sender.send(texts(U, [f"other {number}"]))
    stepped.run_until_idle()
    assert admin.destination("topic", "t.a").messages == 80
    assert outcome(stepped, admin.purge("topic", "t.a")) == 77
    found = admin.destination("topic", "t.a")
    assert (found.messages, found.octets) == (3, sum(message.size for message in plain.messages))
    assert admin.destination("topic", "t.b").messages == 40
    pattern.consumer.grant(100)
    assert remaining(stepped, pattern) == [f"other {number}" for number in range(20)]
    assert ([each.messages for each in admin.durables()], len(stepped.disk.owed)) == ([0, 20], 20)
    pattern.consumer.acknowledge_through(20)
    plain.consumer.acknowledge_through(3)
    assert outcome(stepped, admin.purge("topic", "t.b")) == 20
    assert (stepped.empty, stepped.broker.memory.used) == (True, 0)


def test_a_selector_purges_a_topic(stepped: Stepped, admin: BrokerAdministration) -> None:
    session = stepped.session(Mode.CLIENT, client_id="me")
    stepped.consume(session, T, durable_name="d").consumer.close()
    stepped.consume(session, Topic("t.*"), durable_name="w").consumer.close()
    stepped.send([*coloured(T, 10), *coloured(U, 10)], session)
    assert outcome(stepped, admin.purge("topic", "t.a", "colour = 'red'")) == 10
    assert [each.messages for each in admin.durables()] == [5, 15]
    stepped.restart()
    admin = administration(stepped)
    assert [each.messages for each in admin.durables()] == [5, 15]
    assert outcome(stepped, admin.purge("topic", "t.b")) == 10
    assert outcome(stepped, admin.purge("topic", "t.a")) == 10
    assert stepped.empty


# --- refusals


@pytest.mark.parametrize(
    ("type", "name", "selector", "error"),
    [
        ("queue", "nowhere", "", "there is no queue 'nowhere'"),
        ("topic", "q", "", "there is no topic 'q'"),
        ("queue", "q", "colour ==", "colour =="),
    ],
)
def test_what_cannot_be_purged_is_refused(
    stepped: Stepped, admin: BrokerAdministration, type: str, name: str, selector: str, error: str
) -> None:
    stepped.send(texts(Q, ["stays"]))
    with pytest.raises((AdministrationRefused, InvalidSelector), match=error):
        outcome(stepped, admin.purge(type, name, selector))
    assert stepped.bodies == ["stays"]


# --- many


@pytest.mark.slow
@pytest.mark.parametrize("selector", ["", "JMSPriority = 4"])
@pytest.mark.parametrize("where", ["in memory", "in the store"])
def test_a_hundred_thousand_go_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, selector: str
) -> None:
    count = 100_000
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0))
    session = stepped.session()
    body = os.urandom(8).hex()
    for _ in range(count // 1_000):
        stepped.send(texts(Q, [body] * 1_000), session)
    session.close()
    if where == "in the store":
        stepped.restart()
        assert stepped.broker.queue(Q).dispatch.backlog.behind == count
    admin = administration(stepped)
    commits, call_later, step = stepped.broker.commits, stepped.clock.callLater, stepped.store.step
    slices: list[int] = []

    def counted(call: Callable[[], object]) -> None:
        """Note how many messages one call of the reactor gives up."""
        before = commits.changes
        call()
        slices.append(commits.changes - before)

    def call_counted(delay: float, call: Callable[..., object], *arguments: object) -> IDelayedCall:
        return call_later(delay, lambda: counted(lambda: call(*arguments)))

    monkeypatch.setattr(stepped.clock, "callLater", call_counted)
    monkeypatch.setattr(stepped.store, "step", lambda: counted(step))
    before = commits.changes
    asked = admin.purge("queue", "q", selector)
    first = commits.changes - before
    assert outcome(stepped, asked) == count
    most = EXAMINED if selector else SLICE
    assert max(first, *slices) <= most, "more than a slice was given up in one turn"
    assert (sum([first, *slices]), stepped.empty) == (count, True)


# --- places that go while their rows are given up


def reaping(tmp_path: Path, **more: object) -> Stepped:
    return Stepped(tmp_path, BrokerOptions(reap_time=120, **more))  # type: ignore[arg-type]


def test_a_queue_destroyed_while_it_is_purged_can_be_found_by_a_restart_at_any_moment(
    tmp_path: Path,
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0))
    admin = administration(stepped)
    stepped.send(texts(Q, range(1_600)))
    told: list[object] = []
    admin.purge("queue", "q").addBoth(told.append)
    admin.destroy("queue", "q").addBoth(told.append)
    # The disk looks after each batch whether a start would refuse it.
    stepped.run_until_idle()
    assert sorted(told, key=str) == [1_600, None]
    assert (stepped.empty, stepped.disk.destinations) == (True, {})


def test_a_crash_while_a_queue_is_purged_and_destroyed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0))
    admin = administration(stepped)
    stepped.send(texts(Q, range(1_600)))
    monkeypatch.setattr(stepped.broker.schedule, "_next_step", lambda busy: None)
    admin.purge("queue", "q")
    admin.destroy("queue", "q")
    stepped.run_until_idle()
    assert stepped.bodies, "the purge would go on"
    monkeypatch.undo()
    stepped.restart()
    stepped.run_until_idle()
    assert (stepped.empty, stepped.disk.destinations) == (True, {})


def test_a_queue_is_not_reaped_while_it_is_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = reaping(tmp_path)
    stepped.send(texts(Q, range(1_600)))
    admin = administration(stepped)
    told: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(stepped.broker.schedule, "_next_step", lambda busy: None)
        admin.purge("queue", "q").addBoth(told.append)
        stepped.later(1, times=130)
        assert len(stepped.bodies) == 1_600
        assert stepped.broker.find(Q) is not None
    stepped.broker.schedule._next_step(lambda: False)
    stepped.run_until_idle()
    assert told == [1_600]
    stepped.later(1, times=130)
    assert stepped.broker.find(Q) is None
    assert (stepped.empty, stepped.disk.destinations) == (True, {})


@pytest.mark.parametrize("how", ["reaped", "destroyed"])
def test_a_topic_stays_while_what_a_durable_subscription_had_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    stepped = reaping(tmp_path, auto_topic=DestinationProperties(use_dmq=False))
    admin = administration(stepped)
    connection = stepped.connect("me")
    stepped.consume(connection.session(Mode.CLIENT), T, durable_name="d").consumer.close()
    stepped.send(texts(T, range(1_600)))
    told: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(stepped.broker.schedule, "_next_step", lambda busy: None)
        connection.unsubscribe("d").addBoth(told.append)
        if how == "destroyed":
            admin.destroy("topic", "t.a").addBoth(told.append)
        stepped.later(1, times=130)
        assert ([row.name for row in stepped.disk.destinations.values()], told) == (["t.a"], [])
    stepped.broker.schedule._next_step(lambda: False)
    stepped.run_until_idle()
    assert told == [None] * (2 if how == "destroyed" else 1)
    stepped.later(1, times=130)
    assert stepped.broker.find(T) is None
    assert (stepped.empty, stepped.disk.destinations) == (True, {})
