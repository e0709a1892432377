"""Consumers of all queues that a pattern covers."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.waiting.memory import Memory, of_destination
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import (
    AccessDenied,
    DestinationStopped,
    InvalidDestination,
    NoRoom,
    SelectorTooCostly,
    TooManyConsumers,
    UnknownDelivery,
)
from gateway.messaging.message import Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Mode,
    Session,
    Xid,
)
from tests.gateway.broker.administration import destinations, outcome
from tests.gateway.broker.brokers import Inbox, text
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa.xa_branches import Branching

ALL = Queue("o.>")
A, B, C = Queue("o.a"), Queue("o.b"), Queue("o.c")
#: One consumer at most.
ONE = Queue("o.one")


class Held(dict[str, str]):
    """Is as long as what holds it."""


def queue(stepped: Stepped, destination: Destination) -> PhysicalQueue:
    found = stepped.broker.find(destination)
    assert isinstance(found, PhysicalQueue)
    return found


def pairs(inbox: Inbox) -> list[tuple[str, str]]:
    """Queue and text of each message, in order of delivery."""
    return [(message.headers.destination.name, message.text) for message in inbox.messages]


def by_queue(inbox: Inbox) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, body in pairs(inbox):
        found.setdefault(name, []).append(body)
    return found


# --- what it receives


def test_many_consumers_are_shown_new_queues_over_several_turns(stepped: Stepped) -> None:
    """So a client that has very many does not keep others waiting with each queue that it makes."""
    session = stepped.session(Mode.INDIVIDUAL)
    inboxes = [stepped.consume(session, ALL, credit=1) for _ in range(200)]
    for name in ("o.a", "o.b"):
        stepped.broker.create(Queue(name))
    assert len(queue(stepped, B).dispatch.consumers) < 100
    inboxes[150].consumer.close()
    stepped.run_until_idle()
    for each in (A, B):
        assert len(queue(stepped, each).dispatch.consumers) == 199
    stepped.send(texts(A, range(300)))
    assert [len(inbox.texts) for inbox in inboxes] == [1] * 150 + [0] + [1] * 49


def test_it_receives_from_queues_that_are_there_and_from_later_ones(
    stepped: Stepped, session: Session
) -> None:
    stepped.send(texts(A, "12"))
    stepped.send(texts(Queue("other"), "x"))
    inbox = stepped.receive(session, ALL)
    stepped.send(texts(B, "34"))
    stepped.send(texts(Queue("o.b.deeper"), "5"))
    stepped.send(texts(Queue("o"), "not covered"))
    stepped.send(texts(Topic("o.a"), "a topic's"))
    assert by_queue(inbox) == {"o.a": ["1", "2"], "o.b": ["3", "4"], "o.b.deeper": ["5"]}
    assert inbox.numbers == [1, 2, 3, 4, 5]
    assert inbox.messages[0].headers.destination == A


def test_one_level(stepped: Stepped, session: Session) -> None:
    inbox = stepped.receive(session, Queue("*.new"))
    for name in ("a.new", "b.new", "b.old", "a.b.new"):
        stepped.send(texts(Queue(name), ["x"]))
    assert set(by_queue(inbox)) == {"a.new", "b.new"}


def test_it_creates_no_queue(stepped: Stepped, session: Session) -> None:
    before = set(stepped.broker.destinations)
    stepped.receive(session, ALL).consumer.close()
    assert set(stepped.broker.destinations) == before


def test_neither_temporary_queues_nor_the_brokers_own_are_covered(
    stepped: Stepped, connection: Connection
) -> None:
    temporary = connection.temporary(Kind.QUEUE)
    dead = stepped.receive(connection.session(Mode.INDIVIDUAL), A)
    stepped.send(texts(A, ["dies"]))
    stepped.reject(dead, [1], dead=DeadReason.UNDELIVERABLE)
    inboxes = [stepped.receive(connection.session(Mode.CLIENT), Queue(name)) for name in (">", "*")]
    stepped.send(texts(temporary, ["1"]))
    assert queue(stepped, DMQ).count == 1
    assert [inbox.messages for inbox in inboxes] == [[], []]


def test_an_administrator_makes_a_queue_and_a_restart_finds_one(
    stepped: Stepped, session: Session, admin: BrokerAdministration
) -> None:
    inbox = stepped.receive(session, ALL)
    outcome(stepped, admin.create("queue", "o.made", {}))
    stepped.send(texts(Queue("o.made"), ["1"]))
    assert pairs(inbox) == [("o.made", "1")]
    stepped.restart()
    again = stepped.receive(stepped.session(), ALL)
    assert pairs(again) == [("o.made", "1")]
    stepped.acknowledge_through(again, 1)
    assert stepped.empty


def test_a_selector_holds_for_all(stepped: Stepped, session: Session) -> None:
    for each in (A, B):
        stepped.send(texts(each, ["red"], type="red") + texts(each, ["blue"], type="blue"))
    inbox = stepped.receive(session, ALL, selector="JMSType = 'red'")
    stepped.send(texts(C, ["red"], type="red") + texts(C, ["blue"], type="blue"))
    assert by_queue(inbox) == {"o.a": ["red"], "o.b": ["red"], "o.c": ["red"]}


# --- one credit, in turn


def test_the_credit_is_for_all_together(stepped: Stepped, session: Session) -> None:
    for each in (A, B, C):
        stepped.send(texts(each, range(10)))
    inbox = stepped.receive(session, ALL, credit=6)
    assert Counter(name for name, _ in pairs(inbox)) == {"o.a": 2, "o.b": 2, "o.c": 2}
    stepped.grant(inbox, 3)
    assert Counter(name for name, _ in pairs(inbox)) == {"o.a": 3, "o.b": 3, "o.c": 3}
    assert all(bodies == ["0", "1", "2"] for bodies in by_queue(inbox).values())


def test_queues_take_turns(stepped: Stepped, session: Session) -> None:
    stepped.send(texts(A, range(100)))
    stepped.send(texts(B, range(3)))
    inbox = stepped.receive(session, ALL, credit=1)
    for number in range(1, 8):
        stepped.acknowledge_through(inbox, number)
        stepped.grant(inbox, 1)
    assert "".join(name[-1] for name, _ in pairs(inbox)) == "abababaa"


def test_a_busy_queue_does_not_keep_another_waiting(stepped: Stepped, session: Session) -> None:
    stepped.send(texts(A, range(1000)))
    inbox = stepped.receive(session, ALL, credit=10)
    stepped.send(texts(B, ["late"]))
    for number in range(1, 4):
        inbox.consumer.acknowledge_through(number)
        stepped.grant(inbox, 1)
    assert ("o.b", "late") in pairs(inbox)


def test_what_one_queue_has_no_use_for_the_others_get(stepped: Stepped, session: Session) -> None:
    stepped.send(texts(A, range(2)))
    stepped.send(texts(B, range(50)))
    inbox = stepped.receive(session, ALL, credit=40)
    assert Counter(name for name, _ in pairs(inbox)) == {"o.a": 2, "o.b": 38}


def test_thousands_that_wait_from_the_beginning(stepped: Stepped, session: Session) -> None:
    sender = stepped.session()
    for index in range(1_100):
        sender.send(texts(Queue(f"o.{index}"), ["1", "2"], persistent=False))
    inbox = stepped.receive(session, ALL, credit=5_000)
    assert Counter(inbox.texts) == {"1": 1_100, "2": 1_100}


def test_octets_bound_all_together(stepped: Stepped, session: Session) -> None:
    for each in (A, B, C):
        stepped.send(texts(each, ["x" * 100] * 5))
    inbox = stepped.receive(session, ALL, octets=150)
    assert len(inbox.messages) == 2
    inbox.consumer.grant(0, 200)
    stepped.run_until_idle()
    assert len(inbox.messages) == 4


def test_stopped_it_receives_nothing_and_keeps_its_credit(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, ALL, credit=2, start=False)
    stepped.send(texts(A, range(3)))
    assert inbox.messages == []
    inbox.consumer.start()
    inbox.consumer.stop()
    stepped.run_until_idle()
    assert inbox.messages == []
    inbox.consumer.start()
    stepped.run_until_idle()
    assert inbox.texts == ["0", "1"]


def test_stopped_by_another_consumers_delivery_it_receives_nothing(
    stepped: Stepped, session: Session
) -> None:
    pattern = stepped.consume(session, ALL)

    def stop(
        consumer: Consumer, first: int, messages: Sequence[Message], attempts: object, /
    ) -> None:
        pattern.consumer.stop()

    queue(stepped, stepped.broker.queue(A).destination)
    first = session.consumer(ConsumerSpec(A), stop, lambda error: None)
    # The other comes first.
    queue(stepped, A).dispatch.consumers.reverse()
    first.grant(10)
    first.start()
    stepped.send(texts(A, range(4)))
    assert len(pattern.messages) in (0, 2)
    assert not queue(stepped, A).dispatch.consumers[-1].running


def test_it_shares_a_queue_with_other_consumers(stepped: Stepped, session: Session) -> None:
    inboxes = [stepped.consume(session, each) for each in (ALL, A, ALL)]
    stepped.send(texts(A, range(300)))
    assert sorted(int(each) for inbox in inboxes for each in inbox.texts) == list(range(300))
    assert [len(inbox.messages) for inbox in inboxes] == [100, 100, 100]


def test_it_takes_what_is_only_in_the_store(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, memory=Memory(total=20_000, share=5_000, least=1_000))
    for each in (A, B):
        stepped.send(texts(each, range(200)))
    inbox = stepped.receive(stepped.session(), ALL, credit=50)
    while len(inbox.messages) < 400:
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
        stepped.grant(inbox, 25)
    assert by_queue(inbox) == {name: [str(each) for each in range(200)] for name in ("o.a", "o.b")}


def test_all_it_has_counts_against_the_memory(tmp_path: Path) -> None:
    memory = Memory()
    memory.octets_left = lambda: 400_000 - memory.unacknowledged
    memory.report_excess = lambda: None
    stepped = Stepped(tmp_path, memory=memory)
    for index in range(20):
        stepped.send(texts(Queue(f"o.{index}"), ["x" * 20_000]))
    inbox = stepped.receive(stepped.session(), ALL)
    assert 3 < len(inbox.messages) < 15, "it may have half of what there is"
    while len(inbox.messages) < 20:
        before = len(inbox.messages)
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
        stepped.later(0.1)
        assert len(inbox.messages) > before
    inbox.consumer.acknowledge_through(20)
    assert stepped.broker.memory.unacknowledged == 0


# --- settling


def test_an_acknowledgement_through_a_number_is_of_all_queues(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, ALL)
    stepped.send_each([text(each, str(body)) for body in range(3) for each in (A, B)])
    assert inbox.consumer.acknowledge_through(5) == 5
    stepped.run_until_idle()
    assert stepped.bodies == ["2"]
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(5)
    assert inbox.consumer.acknowledge_through(6) == 1
    stepped.run_until_idle()
    assert stepped.empty


def test_single_acknowledgements_are_all_or_none(stepped: Stepped, individual: Session) -> None:
    inbox = stepped.consume(individual, ALL)
    stepped.send_each([text(each, each.name) for each in (A, B, C)])
    for wrong in ([1, 4], [2, 2], [1, 2, 1]):
        with pytest.raises(UnknownDelivery):
            inbox.consumer.acknowledge(wrong)
    stepped.acknowledge(inbox, [3, 1])
    assert stepped.bodies == ["o.b"]
    stepped.acknowledge(inbox, [2])
    assert stepped.empty


def test_auto(stepped: Stepped) -> None:
    inbox = stepped.consume(stepped.session(Mode.AUTO), ALL)
    stepped.send_each([text(each, each.name) for each in (A, B)])
    assert len(inbox.messages) == 2
    assert stepped.empty


def test_rejected_messages_come_again_from_their_queue_or_are_dead(
    stepped: Stepped, individual: Session
) -> None:
    inbox = stepped.consume(individual, ALL)
    stepped.send_each([text(each, each.name) for each in (A, B)])
    stepped.reject(inbox, [1, 2], delay_ms=0)
    assert (inbox.texts, inbox.attempts) == (["o.a", "o.b"] * 2, [1, 1, 2, 2])
    assert inbox.numbers == [1, 2, 3, 4]
    stepped.reject(inbox, [4], dead=DeadReason.UNDELIVERABLE)
    stepped.acknowledge(inbox, [3])
    assert queue(stepped, DMQ).count == 1


def test_recovered_messages_come_again_under_new_numbers(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, ALL)
    stepped.send_each([text(each, str(body)) for body in range(2) for each in (A, B)])
    session.recover()
    stepped.run_until_idle()
    assert inbox.numbers == [1, 2, 3, 4, 5, 6, 7, 8]
    assert inbox.attempts == [1] * 4 + [2] * 4
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge_through(4)
    assert inbox.consumer.acknowledge_through(8) == 4
    stepped.run_until_idle()
    assert stepped.empty


@pytest.mark.parametrize("commits", [True, False])
def test_transactions(stepped: Stepped, transacted: Session, commits: bool) -> None:
    inbox = stepped.consume(transacted, ALL)
    stepped.send_each([text(each, each.name) for each in (A, B)])
    inbox.consumer.acknowledge_through(2)
    transacted.send(texts(C, ["sent"]))
    stepped.run_until_idle()
    assert len(stepped.disk.rows) == 2
    if commits:
        assert stepped.commit(transacted).well
        assert stepped.bodies == ["sent"]
        assert pairs(inbox)[2:] == [("o.c", "sent")]
        return
    told = Told()
    transacted.rollback(told)
    stepped.run_until_idle()
    assert told.well
    assert (inbox.texts, inbox.attempts) == (["o.a", "o.b"] * 2, [1, 1, 2, 2])
    assert inbox.consumer.acknowledge_through(4) == 2
    assert stepped.commit(transacted).well
    assert stepped.empty


def test_an_acknowledgement_joins_another_sessions_transaction(
    stepped: Stepped, connection: Connection
) -> None:
    inbox = stepped.consume(connection.session(Mode.INDIVIDUAL), ALL)
    transacted = connection.session(Mode.TRANSACTED)
    stepped.send_each([text(each, each.name) for each in (A, B, C)])
    inbox.consumer.acknowledge([1, 3], within=transacted)
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([1], within=transacted)
    transacted.rollback(Told())
    stepped.run_until_idle()
    assert len(inbox.messages) == 3, "they are outstanding again"
    inbox.consumer.acknowledge([1, 2, 3], within=transacted)
    assert stepped.commit(transacted).well
    assert stepped.empty


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_branches(stepped: Stepped, xa: Branching, ending: str) -> None:
    stepped.send_each([text(each, each.name) for each in (A, B)])
    xid = Xid(1, b"g", b"b")
    inbox = xa.consume(ALL)
    xa.start(xid)
    inbox.consumer.acknowledge_through(2)
    xa.end_and_prepare(xid)
    if ending == "commit":
        xa.commit(xid)
        stepped.run_until_idle()
        assert stepped.empty
        return
    xa.rollback(xid)
    stepped.run_until_idle()
    assert (inbox.texts, inbox.attempts) == (["o.a", "o.b"] * 2, [1, 1, 2, 2])


# --- queues that go


def test_it_outlives_its_queues(stepped: Stepped, session: Session) -> None:
    inbox = stepped.consume(session, ALL)
    stepped.send_each([text(A, "1"), text(B, "2"), text(A, "3")])
    stepped.remove(queue(stepped, A))
    assert inbox.failures == []
    assert inbox.consumer.acknowledge_through(3) == 3, "what went with its queue is settled, too"
    stepped.run_until_idle()
    assert stepped.empty
    stepped.send(texts(A, ["again"]))
    assert pairs(inbox)[-1] == ("o.a", "again")


def test_what_went_with_its_queue_is_void_after_a_recovery(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, ALL)
    stepped.send_each([text(A, "1"), text(B, "2")])
    stepped.remove(queue(stepped, A))
    session.recover()
    stepped.run_until_idle()
    assert inbox.numbers == [1, 2, 3]
    assert inbox.consumer.acknowledge_through(3) == 1


def test_a_removed_queue_is_free_without_a_garbage_collection(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, ALL, credit=1)
    stepped.send(texts(B, range(3)))
    sender = stepped.connect()
    stepped.send(texts(A, ["1"]), sender.session(Mode.AUTO))
    # It would know where it has sent to.
    stepped.close(sender)
    # What is compiled has no weak references.
    held = Held()
    queue(stepped, A).administered = held
    gone = weakref.ref(held)
    del held
    gc.disable()
    try:
        stepped.remove(queue(stepped, A))
        assert gone() is None
    finally:
        gc.enable()
    inbox.consumer.close()


def test_single_settlements_of_what_went_with_its_queue_do_nothing(
    stepped: Stepped, individual: Session
) -> None:
    inbox = stepped.consume(individual, ALL)
    stepped.send_each([text(A, "1"), text(B, "2"), text(A, "3")])
    assert pairs(inbox) == [("o.a", "1"), ("o.a", "3"), ("o.b", "2")]
    stepped.remove(queue(stepped, A))
    stepped.acknowledge(inbox, [1, 3])
    stepped.reject(inbox, [2])
    assert stepped.empty
    assert stepped.broker.memory.unacknowledged == 0


@pytest.mark.parametrize("rejects", [False, True])
def test_what_went_with_its_queue_in_a_transaction_can_be_settled_after_its_end(
    stepped: Stepped, rejects: bool
) -> None:
    connection = stepped.connect()
    transacted = connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(connection.session(Mode.INDIVIDUAL), ALL)
    stepped.send_each([text(A, "1"), text(B, "2")])
    if rejects:
        inbox.consumer.reject([1, 2], within=transacted)
    else:
        inbox.consumer.acknowledge([1, 2], within=transacted)
    stepped.remove(queue(stepped, A))
    transacted.rollback(Told())
    stepped.run_until_idle()
    stepped.acknowledge(inbox, [1, 2])
    assert inbox.failures == []
    assert stepped.empty
    assert stepped.broker.memory.unacknowledged == 0


def test_what_a_rollback_brings_back_to_a_closed_one_returns_to_its_queue(
    stepped: Stepped,
) -> None:
    connection = stepped.connect()
    transacted = connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(connection.session(Mode.INDIVIDUAL), ALL)
    stepped.send_each([text(A, "1"), text(B, "2")])
    inbox.consumer.close(requeue=False)
    inbox.consumer.acknowledge([1, 2], within=transacted)
    transacted.rollback(Told())
    stepped.run_until_idle()
    stepped.acknowledge(inbox, [1])
    inbox.consumer.close()
    assert stepped.receive(stepped.session(), ALL).texts == ["2"]


def test_an_unused_queue_is_reaped_while_it_is_covered(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    inbox = stepped.consume(stepped.session(), ALL)
    stepped.send(texts(A, ["1"]))
    stepped.later(20)
    assert stepped.broker.find(A) is not None, "its message is not settled"
    stepped.acknowledge_through(inbox, 1)
    stepped.later(5)
    stepped.later(20)
    assert stepped.broker.find(A) is None
    stepped.send(texts(A, ["2"]))
    assert inbox.texts == ["1", "2"]
    by_name = stepped.receive(stepped.session(), A)
    stepped.acknowledge_through(inbox, 2)
    stepped.later(20)
    stepped.later(20)
    assert stepped.broker.find(A) is not None, "it has a consumer by its name"
    by_name.consumer.close()
    stepped.later(20)
    assert stepped.broker.find(A) is None


def test_a_damaged_queue_ends_it(stepped: Stepped, session: Session) -> None:
    inbox = stepped.consume(session, ALL)
    stepped.send_each([text(A, "1"), text(B, "2")])
    queue(stepped, A).stop(DestinationStopped(A))
    assert [type(error) for error in inbox.failures] == [DestinationStopped]
    again = stepped.receive(session, ALL)
    assert pairs(again) == [("o.b", "2")]


# --- its own end


@pytest.mark.parametrize("how", ["consumer", "session", "connection"])
def test_closed_it_gives_everything_back(
    stepped: Stepped, connection: Connection, how: str
) -> None:
    session = connection.session(Mode.CLIENT)
    before = stepped.broker.memory.object_octets
    inbox = stepped.consume(session, ALL)
    for each in (A, B):
        stepped.send(texts(each, range(2)))
    closable: dict[str, Consumer | Session | Connection] = {
        "consumer": inbox.consumer,
        "session": session,
        "connection": connection,
    }
    closable[how].close()
    stepped.run_until_idle()
    assert not stepped.broker.queue_patterns.consumers
    assert queue(stepped, A).covering == 0
    stepped.send(texts(C, ["x"]))
    assert len(inbox.messages) == 4
    assert stepped.broker.memory.object_octets == before + 3 * of_destination("o.a")
    again = stepped.receive(stepped.session(), ALL)
    assert by_queue(again) == {"o.a": ["0", "1"], "o.b": ["0", "1"], "o.c": ["x"]}
    assert again.attempts == [2] * 4 + [1]


def test_closed_without_giving_back_it_may_still_settle(stepped: Stepped, session: Session) -> None:
    inbox = stepped.consume(session, ALL)
    for each in (A, B):
        stepped.send(texts(each, range(2)))
    inbox.consumer.close(requeue=False)
    stepped.send(texts(A, ["later"]))
    assert inbox.consumer.acknowledge_through(3) == 3
    inbox.consumer.close(requeue=True)
    stepped.run_until_idle()
    again = stepped.receive(stepped.session(), ALL)
    assert by_queue(again) == {"o.b": ["1"], "o.a": ["later"]}


def test_closed_inside_a_delivery(stepped: Stepped, session: Session) -> None:
    for each in (A, B):
        stepped.send(texts(each, range(3)))
    got: list[Message] = []

    def deliver(
        consumer: Consumer, first: int, messages: Sequence[Message], attempts: object, /
    ) -> None:
        got.extend(messages)
        consumer.close()

    consumer = session.consumer(ConsumerSpec(ALL), deliver, lambda error: None)
    consumer.grant(100)
    consumer.start()
    stepped.run_until_idle()
    assert {message.headers.destination for message in got} == {A}
    assert len(stepped.receive(stepped.session(), ALL).messages) == 6


# --- who may


def test_queues_that_its_user_may_not_consume_give_it_nothing(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.o.b.consume.deny.user=guest\n")
    session = stepped.session()
    stepped.send(texts(A, ["1"]))
    stepped.send(texts(B, ["2"]))
    inbox = stepped.receive(session, ALL)
    stepped.send(texts(C, ["3"]))
    assert set(by_queue(inbox)) == {"o.a", "o.c"}


def test_who_may_consume_from_none_is_refused(tmp_path: Path) -> None:
    rules = "queue.*.consume.allow.user=\nqueue.o.b.consume.allow.user=guest\n"
    stepped = Stepped(tmp_path, rules=rules)
    session = stepped.session()
    for each in (A, B):
        stepped.send(texts(each, ["x"]))
    with pytest.raises(AccessDenied) as refused:
        session.consumer(ConsumerSpec(Queue("other.>")), Inbox().deliver, print)
    assert refused.value.operation == "consume"
    assert set(by_queue(stepped.receive(session, ALL))) == {"o.b"}


def test_a_queue_made_by_its_use_needs_the_right_to_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = Stepped(tmp_path, rules="queue.create.allow.user=*\nqueue.create.deny.user=guest\n")
    admin = BrokerAdministration(stepped.provider, lambda: ())
    inbox = stepped.receive(stepped.session(), ALL)
    stepped.broker.queue(A)
    outcome(stepped, admin.create("queue", "o.made", {}))
    assert not queue(stepped, A).dispatch.consumers
    assert queue(stepped, Queue("o.made")).dispatch.consumers
    inbox.consumer.close()


# --- limits and refusals


def limited(folder: Path) -> Stepped:
    properties = DestinationProperties(max_num_active_consumers=1)
    return Stepped(folder, BrokerOptions(reap_time=0, destinations=((ONE, properties),)))


def test_a_queue_with_all_its_consumers_has_it_when_one_leaves(tmp_path: Path) -> None:
    stepped = limited(tmp_path)
    session = stepped.session()
    by_name = stepped.receive(session, ONE)
    inbox = stepped.receive(session, ALL)
    second = stepped.receive(session, ALL)
    stepped.send(texts(ONE, ["1"]))
    stepped.send(texts(A, ["2"]))
    assert (by_name.texts, inbox.texts) == (["1"], ["2"])
    by_name.consumer.close()
    stepped.run_until_idle()
    assert pairs(inbox)[-1] == ("o.one", "1")
    with pytest.raises(TooManyConsumers):
        session.consumer(ConsumerSpec(ONE), Inbox().deliver, print)
    inbox.consumer.close()
    stepped.run_until_idle()
    assert ("o.one", "1") in pairs(second)


def test_a_queue_that_is_allowed_more_consumers_has_it_then(tmp_path: Path) -> None:
    stepped = limited(tmp_path)
    admin = BrokerAdministration(stepped.provider, lambda: ())
    session = stepped.session()
    stepped.receive(session, ONE)
    inbox, closed = stepped.receive(session, ALL), stepped.receive(session, ALL)
    closed.consumer.close()
    outcome(stepped, admin.update("queue", ONE.name, {"maxNumActiveConsumers": "2"}))
    assert len(queue(stepped, ONE).dispatch.consumers) == 2
    stepped.send(texts(ONE, range(2)))
    assert len(inbox.messages) == 1


@pytest.mark.parametrize(
    "spec",
    [
        ConsumerSpec(ALL, browse=True),
        ConsumerSpec(ALL, durable_name="d"),
        ConsumerSpec(Queue("mq.>")),
        ConsumerSpec(Queue("a.>.b")),
    ],
)
def test_refused(session: Session, spec: ConsumerSpec) -> None:
    with pytest.raises(InvalidDestination):
        session.consumer(spec, Inbox().deliver, print)


def test_nothing_is_sent_to_a_pattern(session: Session) -> None:
    with pytest.raises(Exception, match="wildcards"):
        session.send(texts(ALL, ["x"]))


def test_its_selector_costs_once(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0, selectors_cost=30))
    session = stepped.session()
    for index in range(50):
        stepped.broker.queue(Queue(f"o.{index}"))
    stepped.receive(session, ALL, selector="a = 1")
    (pattern,) = stepped.broker.queue_patterns.consumers
    assert 0 < pattern.cost <= 30
    stepped.broker.options = replace(stepped.broker.options, selectors_cost=pattern.cost)
    with pytest.raises(SelectorTooCostly):
        stepped.receive(session, ALL, selector="a = 1")


def test_there_must_be_room_for_all_of_it(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    for index in range(50):
        stepped.broker.queue(Queue(f"o.{index}"))
    connections: list[Any] = []
    stepped.provider.connect(Credentials("guest", "guest", "192.0.2.1"), None, print).addCallback(
        connections.append
    )
    stepped.broker.memory.most_object_octets = stepped.broker.memory.object_octets + 10_000
    with pytest.raises(NoRoom):
        connections[0].session(Mode.CLIENT).consumer(ConsumerSpec(ALL), Inbox().deliver, print)


# --- what operators see


def test_each_queue_shows_it(
    stepped: Stepped, connection: Connection, admin: BrokerAdministration
) -> None:
    session = connection.session(Mode.CLIENT)
    stepped.consume(session, ALL)
    stepped.consume(session, Queue("*.a"))
    stepped.consume(session, A)
    stepped.send(texts(A, range(3)))
    stepped.broker.queue(B)
    shown = {each.name: each for each in destinations(admin)}
    assert (shown["o.a"].consumers, shown["o.a"].wildcards) == (3, {"*.a": 1, "o.>": 1})
    assert (shown["o.b"].consumers, shown["o.b"].wildcards) == (1, {"o.>": 1})
    assert shown["o.a"].unacknowledged == 3


@pytest.mark.parametrize("queues", [0, 3])
def test_what_waits_for_it(stepped: Stepped, queues: int) -> None:
    for index in range(queues):
        stepped.send(texts(Queue(f"o.{index}"), range(index + 1)))
        stepped.later(1)
    stepped.send(texts(Queue("else"), range(5)))
    found: list[Any] = []
    stepped.provider.waiting(ConsumerSpec(ALL), None).addCallback(found.append)
    assert found[0].messages == sum(range(queues + 1))
    assert bool(found[0].oldest_ms) is bool(queues)
