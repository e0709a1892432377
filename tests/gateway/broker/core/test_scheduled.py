"""Messages that are delivered later, also after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import DestinationFull, InvalidSchedule, MessageRejected
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Credentials, Mode, Vote, Xid
from gateway.messaging.values import Value
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.broker.xa.xa_branches import Branching

Q = Queue("q")
T = Topic("t")
XID = Xid(1, b"g", b"b")
DELAY, PERIOD, REPEAT, CRON = (
    f"AMQ_SCHEDULED_{word}" for word in ("DELAY", "PERIOD", "REPEAT", "CRON")
)


class WithClients(Stepped):
    """Its users come from elsewhere; others cannot schedule."""

    def connect(self, client_id: str | None = None) -> Connection:
        made: list[Connection] = []
        credentials = Credentials("guest", "guest", "192.0.2.1")
        self.provider.connect(credentials, client_id, self.losses.append).addCallback(made.append)
        return made[0]


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return WithClients(tmp_path)


def later(destination: Destination, body: str, delay_ms: object = 5000, **more: Any) -> Message:
    properties: dict[str, Value] = {DELAY: str(delay_ms)}
    return asking(destination, body, properties, **more)


def asking(destination: Destination, body: str, properties: Any, **more: Any) -> Message:
    return text(destination, body, properties=properties, **more)


def scheduled(stepped: Stepped, destination: Destination = Q) -> int:
    kind = destination.kind.name.lower()
    return administration(stepped).destination(kind, destination.name).scheduled


def receiving(stepped: Stepped, destination: Destination = Q, **given: Any) -> Inbox:
    return stepped.receive(stepped.session(Mode.AUTO), destination, **given)


# --- once


@pytest.mark.parametrize("persistent", [True, False])
def test_it_is_delivered_at_its_time_once(stepped: Stepped, persistent: bool) -> None:
    inbox = receiving(stepped)
    session = stepped.session()
    stepped.send([later(Q, "later", persistent=persistent), *texts(Q, ["now"])], session)
    assert stepped.complete(session).well
    assert inbox.texts == ["now"]
    found = administration(stepped).destination("queue", "q")
    assert (found.messages, found.scheduled, found.unacknowledged) == (1, 1, 0)
    stepped.later(4.9)
    assert inbox.texts == ["now"]
    stepped.later(0.2)
    assert inbox.texts == ["now", "later"]
    message = inbox.messages[1]
    assert DELAY not in message.headers.properties
    assert message.headers.properties["scheduledJobId"] == message.message_id
    found = administration(stepped).destination("queue", "q")
    assert (found.messages, found.octets, found.scheduled, found.messages_in) == (0, 0, 0, 2)
    assert (found.messages_out, stepped.empty) == (2, True)
    stepped.later(100, 3)
    assert len(inbox.messages) == 2


def test_it_survives_a_crash_and_is_in_time(stepped: Stepped) -> None:
    stepped.send([later(Q, "kept", 60_000), later(Q, "gone", 60_000, persistent=False)])
    stepped.send([later(Q, "late", 1_000)])
    found = administration(stepped).destination("queue", "q")
    stepped.clock.advance(0)
    stepped.restart()
    again = administration(stepped).destination("queue", "q")
    assert (found.scheduled, again.scheduled, again.messages) == (3, 2, 2)
    inbox = receiving(stepped)
    stepped.later(30)
    assert inbox.texts == ["late"]
    stepped.restart()
    inbox = receiving(stepped)
    stepped.later(29)
    assert inbox.texts == []
    stepped.later(2)
    assert inbox.texts == ["kept"]
    assert stepped.empty


def test_looks_at_the_time_do_not_add_up(stepped: Stepped) -> None:
    """One is due late, so there is always a next look."""
    inbox = receiving(stepped)
    stepped.send([later(Q, "late", 3_600_000)])
    for number in range(50):
        stepped.send([later(Q, str(number), 10)])
        stepped.later(0.02)
    assert len(inbox.messages) == 50
    stepped.later(30, 3)
    waiting = stepped.broker.schedule._heap
    assert len(waiting) < 10
    stepped.later(3600, 3)
    assert inbox.texts[-1] == "late"


def test_they_come_in_the_order_of_their_times_behind_what_waits(stepped: Stepped) -> None:
    stepped.send([later(Q, str(n), 1000 * n) for n in (70, 2, 1, 200, 3)])
    stepped.send(texts(Q, ["waits"]))
    stepped.later(300, 2)
    assert receiving(stepped).texts == ["waits", "1", "2", "3", "70", "200"]


def test_very_many_at_one_time_come_in_order_and_in_short_steps(stepped: Stepped) -> None:
    stepped.send([later(Q, str(number)) for number in range(3000)])
    inbox = receiving(stepped, credit=10_000)
    stepped.later(6)
    assert inbox.texts == [str(number) for number in range(3000)]


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"AMQ_SCHEDULED_TIME": "1005000000"}, 5_000),
        ({"_AMQ_SCHED_DELIVERY": 1_005_000_000}, 5_000),
        ({PERIOD: "2000"}, 2),
        ({DELAY: 2000, PERIOD: "7000"}, 2),
        ({DELAY: "0"}, 0),
        ({"AMQ_SCHEDULED_TIME": "5"}, 0),
    ],
)
def test_times_and_delays(stepped: Stepped, properties: Any, due: int) -> None:
    inbox = receiving(stepped)
    stepped.send([asking(Q, "x", properties)])
    if due:
        stepped.later(due - 0.5)
        assert inbox.texts == []
        stepped.later(0.6)
    stepped.later(0.1)
    assert inbox.texts == ["x"]


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({DELAY: "soon"}, "AMQ_SCHEDULED_DELAY 'soon' is invalid: a whole number is expected"),
        ({DELAY: "-1"}, "expected 0 to"),
        ({DELAY: "1", REPEAT: "1001", PERIOD: "1"}, "AMQ_SCHEDULED_REPEAT '1001' is invalid"),
        ({DELAY: "1", REPEAT: "2"}, "it needs AMQ_SCHEDULED_PERIOD"),
        ({CRON: "* * * *"}, "five fields are expected"),
        ({CRON: "0 0 30 2 *"}, "there is no such day"),
        ({CRON: "61 * * * *"}, "minute '61' is not within 0-59"),
        ({DELAY: "1" * 30}, "is invalid: expected 0 to"),
    ],
)
def test_what_cannot_be_read_is_refused(stepped: Stepped, properties: Any, sentence: str) -> None:
    session = stepped.session()
    with pytest.raises(MessageRejected) as refused:
        session.send([*texts(Q, ["1"]), asking(Q, "2", properties)])
    assert (refused.value.index, type(refused.value.cause)) == (1, InvalidSchedule)
    assert sentence in str(refused.value)


def test_what_a_link_brings_has_had_its_time(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    stepped.send([asking(Q, "x", {DELAY: "never read", CRON: "* * * * *"})])
    inbox = stepped.receive(stepped.session(Mode.AUTO), Q)
    assert inbox.texts == ["x"]
    assert inbox.messages[0].headers.properties == {DELAY: "never read", CRON: "* * * * *"}


# --- topics, transactions, expiry, limits


def test_those_get_it_who_are_subscribed_when_it_is_due(stepped: Stepped) -> None:
    early = receiving(stepped, T)
    stepped.send([later(T, "x")])
    assert scheduled(stepped, T) == 1
    early.consumer.close()
    connection = stepped.connect("c")
    durable = stepped.receive(connection.session(Mode.AUTO), T, durable_name="d")
    stepped.close(connection)
    stepped.restart()
    late = receiving(stepped, T)
    stepped.later(6)
    assert (early.texts, late.texts) == ([], ["x"])
    stepped.restart()
    durable = stepped.receive(stepped.session(client_id="c"), T, durable_name="d")
    assert durable.texts == ["x"]
    assert durable.messages[0].headers.properties.keys() == {"scheduledJobId"}


def test_one_that_nobody_hears_goes(stepped: Stepped) -> None:
    stepped.send([later(T, "x")])
    stepped.later(6)
    assert (scheduled(stepped, T), stepped.empty) == (0, True)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_it_is_scheduled_on_commit(stepped: Stepped, end: str) -> None:
    session = stepped.session(Mode.TRANSACTED)
    session.send([later(Q, "x"), *texts(Q, ["y"])])
    stepped.later(6)
    assert not scheduled_rows(stepped)
    if end == "commit":
        assert stepped.commit(session).well
    else:
        session.rollback(lambda error: None)
    inbox = receiving(stepped)
    stepped.later(4)
    assert inbox.texts == (["y"] if end == "commit" else [])
    stepped.later(2)
    assert inbox.texts == (["y", "x"] if end == "commit" else [])
    assert stepped.empty


def scheduled_rows(stepped: Stepped) -> int:
    return len([key for key in stepped.disk.redeliveries if key[0] >= 1 << 62])


@pytest.mark.parametrize("destination", [Q, T])
@pytest.mark.parametrize("restart", [False, True])
def test_a_branch_schedules_when_it_is_committed(
    stepped: Stepped, destination: Destination, restart: bool
) -> None:
    connection = stepped.connect("c")
    stepped.receive(connection.session(Mode.AUTO), T, durable_name="d")
    stepped.close(connection)
    branching = Branching(stepped)
    branching.start(XID)
    branching.session.send([later(destination, "x")])
    branching.end(XID)
    assert branching.prepare(XID) is Vote.OK
    if restart:
        stepped.restart()
        branching = Branching(stepped)
    stepped.later(10)
    branching.commit(XID)
    assert scheduled(stepped, destination) == 1
    stepped.restart()
    session = stepped.session(Mode.AUTO, client_id="c")
    durable = {"durable_name": "d"} if destination == T else {}
    inbox = stepped.receive(session, destination, **durable)
    assert inbox.texts == []
    stepped.later(6)
    assert inbox.texts == ["x"]
    assert stepped.empty


def test_the_time_to_live_begins_with_the_delivery(stepped: Stepped) -> None:
    stepped.send([later(Q, "x", 5000, expires=stepped.now_ms + 2000)])
    stepped.later(5.1)
    inbox = receiving(stepped)
    assert inbox.texts == ["x"]
    assert inbox.messages[0].expires - stepped.now_ms in range(1800, 2000)


def test_it_counts_in_limits(tmp_path: Path) -> None:
    stepped = WithClients(
        tmp_path, BrokerOptions(destinations=((Q, DestinationProperties(max_num_msgs=2)),))
    )
    session = stepped.session()
    stepped.send([later(Q, "1"), later(Q, "2")], session)
    with pytest.raises(MessageRejected) as full:
        session.send([later(Q, "3")])
    assert type(full.value.cause) is DestinationFull
    stepped.later(6)
    assert receiving(stepped).texts == ["1", "2"]


def test_a_sender_is_held_until_there_is_room(tmp_path: Path) -> None:
    flow = DestinationProperties(max_num_msgs=1, limit_behavior=LimitBehavior.FLOW_CONTROL)
    stepped = WithClients(tmp_path, BrokerOptions(destinations=((Q, flow),)))
    sender = stepped.session()
    stepped.send([later(Q, "1")], sender)
    assert not sender.writable()
    inbox = receiving(stepped)
    stepped.later(6)
    assert (inbox.texts, sender.writable()) == (["1"], True)


def test_one_that_is_due_comes_also_while_producers_are_paused(stepped: Stepped) -> None:
    stepped.send([later(Q, "once"), asking(Q, "again", {PERIOD: "5000", REPEAT: "1"})])
    outcome(stepped, administration(stepped).pause("queue", "q", Pause.PRODUCERS))
    stepped.later(6)
    inbox = receiving(stepped)
    assert inbox.texts == ["once"]
    outcome(stepped, administration(stepped).pause("queue", "q", Pause.NONE))
    stepped.later(2)
    stepped.later(6)
    assert inbox.texts == ["once", "again", "again"]


# --- again and again


def test_it_repeats_with_ids_of_its_own(stepped: Stepped) -> None:
    inbox = receiving(stepped)
    stepped.send([asking(Q, "x", {DELAY: "1000", PERIOD: "2000", REPEAT: "2"})])
    came: list[float] = []
    for second in range(10):
        before = len(inbox.messages)
        stepped.later(1)
        came += [second + 1] * (len(inbox.messages) - before)
        if second == 3:
            stepped.restart()
            inbox, found = receiving(stepped), inbox
    assert came == [1, 3, 5]
    messages = [*found.messages, *inbox.messages]
    assert len({message.message_id for message in messages}) == 3
    assert len({message.headers.properties["scheduledJobId"] for message in messages}) == 1
    assert stepped.empty


def test_what_was_missed_is_not_made_up(stepped: Stepped) -> None:
    stepped.send([asking(Q, "x", {PERIOD: "1000", REPEAT: "-1"})])
    stepped.clock.advance(0)
    stepped.run_until_idle()
    clock = stepped.clock
    stepped.restart()
    stepped.clock.rightNow = clock.rightNow + 3600
    inbox = receiving(stepped)
    stepped.later(0.1)
    assert inbox.texts == ["x"]
    stepped.later(1)
    assert inbox.texts == ["x", "x"]


def test_cron_recurs_until_it_is_removed(stepped: Stepped) -> None:
    inbox = receiving(stepped)
    stepped.send([asking(Q, "x", {CRON: "* * * * *"})])
    for _ in range(3):
        stepped.later(60)
    assert inbox.texts == ["x"] * 3
    stepped.restart()
    inbox = receiving(stepped)
    stepped.later(60)
    assert inbox.texts == ["x"]
    job = str(inbox.messages[0].headers.properties["scheduledJobId"])
    assert stepped.broker.scheduled.remove(f"{job}0") is None
    assert stepped.broker.scheduled.remove("no id") is None
    admin = administration(stepped).scheduled
    [listed] = outcome(stepped, admin.first("queue", "q", 10))
    assert (listed.job_id, listed.delivered, listed.asked) == (job, 4, {CRON: "* * * * *"})
    assert listed.due_ms % 60_000 == 0
    assert outcome(stepped, admin.remove(job)) == "queue:q"
    with pytest.raises(AdministrationRefused, match="there is no scheduled message"):
        outcome(stepped, admin.remove(job))
    stepped.later(60)
    assert (inbox.texts, scheduled(stepped), stepped.empty) == (["x"], 0, True)


def test_each_time_of_cron_begins_a_series(stepped: Stepped) -> None:
    inbox = receiving(stepped)
    stepped.send([asking(Q, "x", {CRON: "* * * * *", PERIOD: "10000", REPEAT: "2"})])
    stepped.clock.advance(60 - stepped.clock.seconds() % 60)
    stepped.run_until_idle()
    counts = []
    for _ in range(12):
        stepped.later(5)
        counts.append(len(inbox.messages))
    assert counts == [0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3]
    stepped.later(10, 3)
    assert len(inbox.messages) == 6


def test_repetitions_wait_while_a_limit_is_reached(tmp_path: Path) -> None:
    stepped = WithClients(
        tmp_path, BrokerOptions(destinations=((Q, DestinationProperties(max_num_msgs=3)),))
    )
    stepped.send([asking(Q, "x", {PERIOD: "1000", REPEAT: "-1"})])
    stepped.later(1, 10)
    assert stepped.broker.queue(Q).count == 3
    inbox = receiving(stepped)
    assert inbox.texts == ["x", "x"]
    stepped.later(1, 3)
    assert len(inbox.texts) >= 4


# --- what goes


def test_the_first_that_are_due_are_listed_and_any_is_removed(stepped: Stepped) -> None:
    begin = stepped.now_ms
    stepped.send([later(Q, str(n), 1000 * (n * 7919 % 12_000 + 10)) for n in range(12_000)])
    admin = administration(stepped).scheduled
    listed = outcome(stepped, admin.first("queue", "q", 600))
    assert [each.due_ms for each in listed] == sorted([each.due_ms for each in listed])
    assert (len(listed), listed[0].due_ms, listed[599].due_ms) == (
        600,
        begin + 10_000,
        begin + 609_000,
    )
    for each in (listed[0], listed[7]):
        assert outcome(stepped, admin.remove(each.job_id)) == "queue:q"
    inbox = receiving(stepped)
    stepped.later(20)
    assert (len(inbox.messages), scheduled(stepped)) == (9, 12_000 - 11)


@pytest.mark.parametrize("destination", [Q, T])
def test_a_destination_takes_its_scheduled_messages_along(
    stepped: Stepped, destination: Destination
) -> None:
    kind = destination.kind.name.lower()
    admin = administration(stepped)
    stepped.send([later(destination, str(number)) for number in range(2500)])
    outcome(stepped, admin.purge(kind, destination.name))
    assert scheduled(stepped, destination) == 2500, "they do not wait there"
    with pytest.raises(AdministrationRefused, match="2500 messages to be delivered later"):
        outcome(stepped, admin.destroy(kind, destination.name, use_dmq=True))
    outcome(stepped, admin.destroy(kind, destination.name))
    stepped.later(1, 10)
    assert stepped.empty
    assert destination not in stepped.broker.destinations
    assert destination.name not in [row.name for row in stepped.disk.destinations.values()]


def test_those_that_are_being_read_go_with_their_destination(stepped: Stepped) -> None:
    outcome(stepped, administration(stepped).create("queue", "q", {}))
    stepped.send([later(Q, "x"), later(Q, "y", 50_000)])
    stepped.clock.advance(5.1)
    assert stepped.store.busy, "the first is being read"
    outcome(stepped, administration(stepped).destroy("queue", "q"))
    stepped.later(1, 5)
    assert stepped.empty
    assert "q" not in [row.name for row in stepped.disk.destinations.values()]


def test_a_links_branch_from_before_a_restart_is_committed_whatever_it_asks(
    tmp_path: Path,
) -> None:
    stepped = Stepped(tmp_path)
    branching = Branching(stepped)
    branching.start(XID)
    branching.session.send([asking(Q, "x", {DELAY: "never read"})])
    branching.end(XID)
    assert branching.prepare(XID) is Vote.OK
    stepped.restart()
    Branching(stepped).commit(XID)
    stepped.later(1)
    assert stepped.receive(stepped.session(Mode.AUTO), Q).texts == ["x"]


def test_those_of_a_temporary_destination_go_with_it(stepped: Stepped) -> None:
    connection = stepped.connect()
    temporary = connection.temporary(Q.kind)
    stepped.send([later(temporary, "x")])
    stepped.close(connection)
    stepped.later(10)
    assert stepped.empty


def test_memory_has_neither_bodies_nor_headers(stepped: Stepped) -> None:
    before = stepped.broker.memory.octets
    for _ in range(20):
        stepped.send([later(Q, "x" * 10_000, 500_000) for _ in range(50)])
    assert stepped.broker.memory.octets - before < 1000 * 40 + 10_000


# --- the model


class Scheduling(RuleBasedStateMachine):
    """A queue, and messages that are due at some time, or every so often.

    After each crash the disk has what was confirmed, whatever was under way.
    """

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        memory = Memory(total=20 * OVERHEAD, share=5 * OVERHEAD, least=2 * OVERHEAD)
        self.stepped = WithClients(self.folder, memory=memory)
        #: Body and due time of what was sent.
        self.due: dict[str, int] = {}
        #: Body, the next time, the period, and how often more.
        self.again: dict[str, list[int]] = {}
        self.got: list[str] = []
        self.inbox = self.consume()
        self.sent = 0

    def consume(self) -> Inbox:
        return self.stepped.receive(self.stepped.session(Mode.CLIENT), Q, credit=10_000)

    @rule(delay=st.sampled_from([0, 1, 999, 1000, 61_000, 200_000]), count=st.integers(1, 5))
    def send(self, delay: int, count: int) -> None:
        self.stepped.send([later(Q, str(self.sent + number), delay) for number in range(count)])
        for number in range(self.sent, self.sent + count):
            self.due[str(number)] = self.stepped.now_ms + delay
        self.sent += count

    @rule(period=st.sampled_from([1000, 7000, 90_000]), repeat=st.integers(0, 3))
    def repeat(self, period: int, repeat: int) -> None:
        body = f"again {self.sent}"
        self.sent += 1
        self.stepped.send([asking(Q, body, {PERIOD: str(period), REPEAT: str(repeat)})])
        self.again[body] = [repeat + 1]

    @rule(seconds=st.sampled_from([0.5, 1, 7, 60, 100]))
    def wait(self, seconds: float) -> None:
        self.stepped.later(seconds)

    @rule(seconds=st.sampled_from([1, 60]), steps=st.integers(0, 3))
    def crash(self, seconds: float, steps: int) -> None:
        """End the process while the disk is at work."""
        self.settle()
        self.stepped.clock.advance(seconds)
        for _ in range(steps):
            self.stepped.run_reactor()
            if self.stepped.store.busy:
                self.stepped.store.step()
        self.stepped.restart()
        self.inbox = self.consume()

    @invariant()
    def settle(self) -> None:
        """Nothing is early, nothing is missing, and nothing comes twice."""
        self.stepped.later(0.001)
        for message in self.inbox.messages:
            self.got.append(message.text)
        if self.inbox.numbers:
            self.stepped.acknowledge_through(self.inbox, self.inbox.numbers[-1])
        self.inbox.clear()
        now_ms = self.stepped.now_ms
        once = [body for body in self.got if body in self.due]
        assert len(set(once)) == len(once)
        assert {body for body, due in self.due.items() if due < now_ms - 1} <= set(once)
        assert all(self.due[body] <= now_ms + 1 for body in once)
        for body, (times,) in self.again.items():
            assert self.got.count(body) <= times

    def teardown(self) -> None:
        for _ in range(12):
            self.stepped.later(100)
            self.settle()
        for body, (times,) in self.again.items():
            assert self.got.count(body) == times
        assert {*self.due} <= {*self.got}
        assert self.stepped.empty
        assert not self.stepped.broker.queue(Q).count


def test_nothing_is_early_lost_or_doubled(tmp_path: Path) -> None:
    machine: Any = type("InFolder", (Scheduling,), {"folder": tmp_path})
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=20))
