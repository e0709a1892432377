"""Duplicate ids: what comes a second time is taken and dropped, whatever happens between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import InvalidDuplicateId, MessageRejected
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, Mode, Session
from tests.gateway.broker.brokers import Deployment, completed, text
from tests.gateway.broker.duplicate_ids import Q, bearing, committed, rest
from tests.gateway.broker.stepped_broker import Stepped, texts

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
