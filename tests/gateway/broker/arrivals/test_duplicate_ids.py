"""Duplicate ids: what comes a second time is taken and dropped, whatever happens between: crashes,
full disks, transactions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet import reactor

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Kind, Queue, Topic
from gateway.messaging.errors import InvalidDuplicateId, MessageRejected
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, Connection, Mode, Session
from tests.gateway.broker.arrivals.duplicate_ids import Q, bearing, committed, rest, told
from tests.gateway.broker.brokers import Deployment, completed, text
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

OTHER = Queue("other")
DMQ = Queue("mq.sys.dmq")


# --- at once


def test_those_between_stay_in_order(stepped: Stepped, session: Session) -> None:
    session.send(
        [
            bearing("a"),
            *texts(Q, [1]),
            bearing("b"),
            bearing("a", "no"),
            *texts(Q, [2]),
            bearing("c"),
            bearing("c", "no"),
        ]
    )
    stepped.send([bearing("b", "no"), *texts(Q, [3]), bearing("d")], session)
    assert rest(stepped) == ["a", "1", "b", "2", "c", "3", "d"]


def test_a_topic_remembers_though_nobody_subscribes(stepped: Stepped) -> None:
    topic = Topic("t")
    session = stepped.session()
    stepped.send([bearing("a", destination=topic)], session)
    inbox = stepped.consume(session, topic)
    stepped.send([bearing("a", destination=topic), bearing("b", destination=topic)], session)
    assert inbox.texts == ["b"]


def test_a_repeat_needs_no_room(tmp_path: Path) -> None:
    properties = DestinationProperties(max_num_msgs=1, limit_behavior=LimitBehavior.REJECT_NEWEST)
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0, destinations=((Q, properties),)))
    session = stepped.session()
    session.send([bearing("a")])
    session.send([bearing("a")])
    with pytest.raises(MessageRejected) as refused:
        session.send([bearing("a"), bearing("b")])
    assert refused.value.index == 1, "its place among those that were sent"
    again = stepped.complete(session)
    assert again.well
    assert rest(stepped) == ["a"]


@pytest.mark.parametrize("id", ["", 7, True, b"octets", "x" * 1025])
def test_what_is_no_id_is_refused(stepped: Stepped, id: Any, session: Session) -> None:
    with pytest.raises(MessageRejected) as refused:
        session.send([*texts(Q, ["before"]), text(Q, "x", properties={DUPLICATE_ID: id})])
    assert refused.value.index == 1
    assert isinstance(refused.value.cause, InvalidDuplicateId)
    stepped.run_until_idle()
    assert rest(stepped) == []


def test_the_longest_id_and_half_a_character(stepped: Stepped) -> None:
    stepped.send([bearing(id, "body") for id in ("x" * 1024, "\ud800", "x" * 1024, "\ud800")])
    stepped.restart()
    stepped.send([bearing(id, "body") for id in ("x" * 1024, "\ud800")])
    assert stepped.broker.queue(Q).count == 2


def test_what_is_sent_again_from_the_dead_message_queue_is_taken(
    stepped: Stepped, individual: Session
) -> None:
    individual.send([bearing("a")])
    inbox = stepped.receive(individual, Q)
    inbox.consumer.reject([1], dead=DeadReason.UNDELIVERABLE)
    dead = stepped.receive(individual, DMQ)
    assert DUPLICATE_ID not in dead.messages[0].headers.properties
    stepped.send(
        [Message(dead.messages[0].headers.replace(destination=Q), dead.messages[0].body)],
        individual,
    )
    assert inbox.texts == ["a", "a"]


# --- transactions


def test_in_a_transaction_repeats_go_at_the_commit(stepped: Stepped, transacted: Session) -> None:
    stepped.session().send([bearing("a")])
    transacted.send([bearing("a", "no"), bearing("b"), *texts(Q, [1])])
    transacted.send([bearing("b", "no"), bearing("c")])
    done = stepped.commit(transacted)
    assert done.well
    assert rest(stepped) == ["a", "b", "1", "c"]


def test_one_that_is_only_of_repeats_is_committed(stepped: Stepped, transacted: Session) -> None:
    stepped.session().send([bearing("a")])
    transacted.send([bearing("a", "no")])
    done = committed(transacted)
    assert done.results == [], "the original is not durable yet"
    stepped.run_until_idle()
    assert done.well
    transacted.send([bearing("a", "no")])
    again = stepped.commit(transacted)
    assert again.well
    assert rest(stepped) == ["a"]


def test_the_first_to_commit_wins(stepped: Stepped) -> None:
    first, second = stepped.session(Mode.TRANSACTED), stepped.session(Mode.TRANSACTED)
    first.send([bearing("a", "first")])
    second.send([bearing("a", "second")])
    outcomes = [committed(second), committed(first)]
    stepped.run_until_idle()
    assert all(outcome.well for outcome in outcomes)
    assert rest(stepped) == ["second"]


# --- real stores


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@pytest_twisted.ensureDeferred
async def test_on_a_real_store(kind: str, tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, kind, BrokerOptions(duplicate_count=10))
    client = await deployment.connect()
    session = client.session()
    for number in range(20):
        session.send([bearing(str(number)), bearing(str(number), "no"), text(Q, "plain")])
    assert await completed(session) is None
    session.send([bearing(str(number), "no") for number in range(10, 20)])
    assert await completed(session) is None
    inbox = client.consumer(session, Q)
    await inbox.count(40)
    assert [body for body in inbox.texts if body != "plain"] == [
        str(number) for number in range(20)
    ]
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    assert await completed(session) is None
    await client.close()
    if kind == "sqlite":
        await deployment.reopen()
        client = await deployment.connect()
        session = client.session()
        inbox = client.consumer(session, Q)
        session.send([bearing(str(number), "again") for number in range(10, 21)])
        assert await completed(session) is None
        await inbox.count(1)
        assert [message.headers.properties[DUPLICATE_ID] for message in inbox.messages] == ["20"]
        await client.close()
    await deployment.close()


# --- restarts


def test_they_are_remembered_over_a_crash(stepped: Stepped) -> None:
    stepped.send([bearing(str(number)) for number in range(5)])
    stepped.restart()
    stepped.send([bearing(str(number)) for number in range(7)])
    assert [int(body) for body in rest(stepped)] == list(range(7))


def test_what_was_taken_before_it_was_stored_is_remembered_over_a_crash(stepped: Stepped) -> None:
    session = stepped.session(Mode.AUTO)
    inbox = stepped.consume(session, Q)
    session.send([bearing("a")])
    done = told(session)
    stepped.run_reactor()
    assert (inbox.texts, stepped.empty) == (["a"], True)
    stepped.run_until_idle()
    assert done.well
    stepped.restart()
    stepped.send([bearing("a")])
    assert rest(stepped) == []


def test_what_was_not_durable_is_not_remembered(stepped: Stepped) -> None:
    stepped.session().send([bearing("a")])
    stepped.run_reactor()
    stepped.restart()
    stepped.send([bearing("a")])
    assert rest(stepped) == ["a"]


def test_what_is_not_persistent_is_remembered_as_long_as_it_may_be_there(stepped: Stepped) -> None:
    stepped.send([bearing("a", persistent=False), bearing("a", persistent=False)])
    assert rest(stepped) == ["a"]
    stepped.send([bearing("a", persistent=False)])
    assert rest(stepped) == []
    stepped.restart()
    stepped.send([bearing("a", persistent=False)])
    assert rest(stepped) == ["a"]
    assert not stepped.disk.duplicates


@pytest.mark.parametrize("kind", [Kind.QUEUE, Kind.TOPIC])
def test_temporary_destinations_remember_in_memory(
    stepped: Stepped, kind: Kind, connection: Connection
) -> None:
    session, temporary = connection.session(Mode.AUTO), connection.temporary(kind)
    inbox = stepped.consume(session, temporary)
    stepped.send(
        [bearing("a", destination=temporary), bearing("a", destination=temporary)], session
    )
    assert inbox.texts == ["a"]
    assert not stepped.disk.duplicates
    stepped.close(connection)
    assert stepped.broker.duplicates.count == 0


_ids = st.sampled_from([None, "a", "b", "c", "r/1", "r/2"])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.lists(_ids, min_size=1, max_size=4)),
        st.tuples(st.just("transaction"), st.lists(_ids, min_size=1, max_size=4)),
        st.tuples(st.just("turns"), st.none()),
        st.tuples(st.just("commit"), st.none()),
        st.tuples(st.just("full"), st.none()),
        st.tuples(st.just("room"), st.none()),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=25,
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=_steps)
def test_whatever_happens_none_is_kept_twice_and_none_that_was_confirmed_is_missing(
    tmp_path: Path, steps: Any
) -> None:
    """Everything is sent until it is confirmed, as senders do.

    Bodies are numbers; what comes of one id is one of them.
    """
    stepped = Stepped(tmp_path)
    pending: list[tuple[Told, list[tuple[int, str | None]]]] = []
    id_of: dict[int, str | None] = {}
    confirmed: set[int] = set()
    taken: list[int] = []
    number = 0

    def observe() -> None:
        for outcome, sent in list(pending):
            if outcome.results:
                pending.remove((outcome, sent))
                if outcome.well:
                    confirmed.update(body for body, _ in sent)

    def take() -> None:
        stepped.run_until_idle()
        stepped.store.make_room()
        stepped.run_until_idle()
        observe()
        taken.extend(int(body) for body in rest(stepped))

    for step, ids in steps:
        if step in ("send", "transaction"):
            sent = []
            for id in ids:
                number += 1
                id_of[number] = id
                sent.append((number, id))
            messages = [
                text(Q, str(body)) if id is None else bearing(id, str(body)) for body, id in sent
            ]
            session = stepped.session(Mode.TRANSACTED if step == "transaction" else Mode.CLIENT)
            session.send(messages)
            pending.append((committed(session) if step == "transaction" else told(session), sent))
        elif step == "turns":
            stepped.run_reactor()
        elif step == "commit" and stepped.store.busy:
            stepped.store.step()
        elif step == "full" and stepped.store.busy:
            stepped.store.step(full=True)
        elif step == "room":
            stepped.store.make_room()
        elif step == "take":
            take()
        elif step == "crash":
            stepped.run_reactor()
            observe()
            pending.clear()
            stepped.restart()
        observe()
    take()
    assert len(set(taken)) == len(taken)
    came = [id_of[body] for body in taken if id_of[body] is not None]
    assert len(set(came)) == len(came), "kept twice"
    plain = {body for body in confirmed if id_of[body] is None}
    assert plain <= set(taken), "a message without an id is missing"
    assert {id_of[body] for body in confirmed} - {None} <= set(came), "a confirmed id never came"
    assert sorted(taken) == taken, "not in order"
