"""Message groups: who gets them, when they are free, and how many."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from gateway.broker.core.delivery.groups import MOST_IDLE
from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message, VariedHeaders
from gateway.messaging.provider import Session
from tests.gateway.broker.brokers import with_properties
from tests.gateway.broker.stepped_broker import Stepped

Q = Queue("q")


def of(group: str, body: object, sequence: object = None) -> Message:
    properties: dict[str, object] = {"JMSXGroupID": group}
    if sequence is not None:
        properties["JMSXGroupSeq"] = sequence
    return with_properties(Q, str(body), properties)  # type: ignore[arg-type]


def test_a_group_stays_with_its_consumer_and_groups_are_spread(
    stepped: Stepped, session: Session
) -> None:
    inboxes = [stepped.consume(session, Q) for _ in range(3)]
    for number in range(4):
        session.send([of(group, f"{group}{number}") for group in "abcdef"])
        stepped.run_reactor()
    found = [sorted({body[0] for body in inbox.texts}) for inbox in inboxes]
    assert sorted(group for groups in found for group in groups) == list("abcdef")
    assert [len(each) for each in found] == [2, 2, 2]
    for inbox in inboxes:
        for group in "abcdef":
            mine = [body for body in inbox.texts if body[0] == group]
            assert mine == sorted(mine)


def test_a_consumer_that_comes_gets_its_part_of_the_groups(
    stepped: Stepped, session: Session
) -> None:
    first = stepped.consume(session, Q)
    session.send([of(group, f"{group}0") for group in "abcdef"])
    stepped.run_reactor()
    # It has a, b and c to acknowledge yet.
    first.consumer.acknowledge([4, 5, 6])
    second = stepped.consume(session, Q)
    for number in (1, 2):
        session.send([of(group, f"{group}{number}") for group in "abcdef"])
        stepped.run_reactor()
    assert sorted(second.texts) == ["d1", "d2", "e1", "e2", "f1", "f2"]
    assert first.texts[6:] == ["a1", "b1", "c1", "a2", "b2", "c2"]


def test_a_group_moves_when_its_consumer_has_settled_what_it_has(
    stepped: Stepped, session: Session
) -> None:
    first = stepped.consume(session, Q)
    session.send([of(group, f"{group}{number}") for group in "ab" for number in range(2)])
    stepped.run_reactor()
    second = stepped.consume(session, Q)
    session.send([of(group, f"{group}{number}") for group in "ab" for number in (2, 3)])
    stepped.run_reactor()
    # One of the two groups waits for that.
    moving = ({"a", "b"} - {body[0] for body in first.texts[4:]}).pop()
    assert (len(first.texts), second.texts) == (6, [])
    held = [n for n, body in enumerate(first.texts, 1) if body[0] == moving]
    first.consumer.acknowledge(held[:1])
    stepped.run_reactor()
    assert second.texts == []
    first.consumer.acknowledge(held[1:])
    stepped.run_reactor()
    assert second.texts == [f"{moving}2", f"{moving}3"]


def test_groups_stay_where_they_are_if_told_so(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(moves_groups=False))
    session = stepped.session()
    first = stepped.consume(session, Q)
    session.send([of(group, f"{group}0") for group in "abcd"])
    stepped.run_reactor()
    first.consumer.acknowledge([1, 2, 3, 4])
    second = stepped.consume(session, Q)
    session.send([of(group, f"{group}1") for group in "abcd"])
    session.send([of("e", "e0")])
    stepped.run_reactor()
    assert (len(first.texts), second.texts) == (8, ["e0"])


def test_a_group_whose_consumer_has_no_credit_waits_while_others_flow(
    stepped: Stepped, session: Session
) -> None:
    stuck = stepped.consume(session, Q, credit=1)
    session.send([of("a", "a0")])
    stepped.run_reactor()
    good = stepped.consume(session, Q)
    session.send([of(group, f"{group}{number}") for number in range(1, 4) for group in "ab"])
    stepped.run_reactor()
    assert (stuck.texts, good.texts) == (["a0"], ["b1", "b2", "b3"])
    stuck.consumer.grant(10)
    stepped.run_reactor()
    assert stuck.texts == ["a0", "a1", "a2", "a3"]


def test_what_a_consumer_had_of_a_group_comes_first_and_in_order_to_the_next(
    stepped: Stepped, session: Session
) -> None:
    first_session = stepped.session()
    first = stepped.consume(first_session, Q, credit=3)
    session.send([of("a", number) for number in range(6)])
    stepped.run_reactor()
    others = [stepped.consume(session, Q) for _ in range(2)]
    stepped.run_reactor()
    assert (first.texts, [inbox.texts for inbox in others]) == (["0", "1", "2"], [[], []])
    stepped.close(first_session)
    (got,) = [inbox for inbox in others if inbox.texts]
    assert got.texts == ["0", "1", "2", "3", "4", "5"]
    assert got.attempts == [2, 2, 2, 1, 1, 1]


def test_a_consumer_that_has_left_keeps_a_group_until_it_has_settled_what_it_has(
    stepped: Stepped, session: Session
) -> None:
    first = stepped.consume(session, Q, credit=1)
    session.send([of("a", number) for number in range(3)])
    stepped.run_reactor()
    first.consumer.close(requeue=False)
    second = stepped.consume(session, Q)
    stepped.run_reactor()
    assert second.texts == []
    stepped.acknowledge_through(first, 1)
    assert second.texts == ["1", "2"]


@pytest.mark.parametrize("sequence", [-1, "-1"])
def test_a_negative_sequence_number_ends_a_group(
    stepped: Stepped, session: Session, sequence: object
) -> None:
    one = stepped.consume(session, Q)
    session.send([of("b", 0), of("a", 1), of("a", 2, sequence)])
    stepped.run_reactor()
    two = stepped.consume(session, Q)
    session.send([of("a", 3), of("b", 4)])
    stepped.run_reactor()
    assert (one.texts, two.texts) == (["0", "1", "2", "4"], ["3"]), "it has fewer groups"


def test_the_first_of_a_group_is_marked_for_who_asks(stepped: Stepped, session: Session) -> None:
    inbox = stepped.consume(session, Q, tells_groups=True)
    session.send([of("a", 0), of("a", 1), of("b", 2)])
    stepped.run_reactor()
    marks = [
        message.headers.properties.get("JMSXGroupFirstForConsumer") for message in inbox.messages
    ]
    assert marks == [True, None, True]
    session.recover()
    plain = stepped.session()
    inbox.consumer.close()
    other = stepped.consume(plain, Q)
    stepped.run_reactor()
    assert [len(message.headers.properties) for message in other.messages] == [1, 1, 1]


def test_headers_of_a_messages_own_are_of_the_group_of_those_it_shares() -> None:
    shared = Headers(Q, properties={"JMSXGroupID": "g:1"})
    ends = [
        VariedHeaders(shared, lines, lines.count(b"\n"), 30).ends_group
        for lines in (b"a:b\nJMSXGroupSeq:-1\n", b"JMSXGroupSeq:1\n", b"a:JMSXGroupSeq:-x\n")
    ]
    assert ends == [True, False, False]
    assert VariedHeaders(shared, b"a:b\n", 1, 30).group == "g:1"
    last = Headers(Q, properties={"JMSXGroupID": "g", "JMSXGroupSeq": -1})
    assert VariedHeaders(last, b"a:b\n", 1, 30).ends_group


def test_messages_in_the_store_only_keep_to_their_groups_after_a_restart(tmp_path: Path) -> None:
    little = Memory(total=40 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)
    stepped = Stepped(tmp_path, memory=little)
    stepped.send([of(str(number % 7), number) for number in range(210)])
    stepped.restart()
    sessions = [stepped.session() for _ in range(3)]
    inboxes = [stepped.consume(each, Q, credit=5) for each in sessions]
    for _ in range(60):
        stepped.run_until_idle()
        for inbox in inboxes:
            outstanding = inbox.consumer.outstanding  # type: ignore[attr-defined]
            if outstanding:
                inbox.consumer.acknowledge_through(inbox.numbers[-1])
                inbox.consumer.grant(outstanding)
    groups = [{int(body) % 7 for body in inbox.texts} for inbox in inboxes]
    assert sum(len(each) for each in groups) == 7
    assert sorted(int(body) for inbox in inboxes for body in inbox.texts) == list(range(210))


def test_many_groups_are_not_remembered_for_ever(stepped: Stepped, session: Session) -> None:
    inboxes = [stepped.consume(session, Q, credit=10**6) for _ in range(2)]
    for start in range(0, 3 * MOST_IDLE, 1_000):
        session.send([of(f"g{number}", number) for number in range(start, start + 1_000)])
        stepped.run_until_idle()
        for inbox in inboxes:
            inbox.consumer.acknowledge_through(inbox.numbers[-1])
        stepped.run_until_idle()
    groups = stepped.broker.queue(Q).dispatch.groups
    assert groups is not None
    assert len(groups) == MOST_IDLE
    assert sum(len(inbox.messages) for inbox in inboxes) == 3 * MOST_IDLE
    for inbox in inboxes:
        inbox.consumer.close()
    stepped.run_until_idle()
    assert stepped.broker.queue(Q).dispatch.groups is None, "no consumer is left"


def test_long_ids_take_little_memory_and_are_told_apart(stepped: Stepped, session: Session) -> None:
    inboxes = [stepped.consume(session, Q, credit=10**6) for _ in range(2)]

    def send(count: int) -> list[set[object]]:
        session.send([of(f"{'x' * 20_000}{number}", number) for number in range(count)])
        stepped.run_until_idle()
        found: list[set[object]] = []
        for inbox in inboxes:
            found.append({message.body for message in inbox.messages})
            inbox.consumer.acknowledge_through(inbox.numbers[-1])
            inbox.messages.clear()
        stepped.run_until_idle()
        return found

    tracemalloc.start()
    try:
        first = send(500)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The ids have ten million characters.
    assert taken < 3_000_000
    assert [len(each) for each in first] == [250, 250]
    assert send(500) == first
