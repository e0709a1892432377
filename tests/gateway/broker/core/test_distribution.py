"""Who gets which message, and when: fairness, credit, selectors and browsers, with most of a queue
in the store only.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gateway.broker.core.delivery.dispatch import MOST_IN_A_TURN
from gateway.broker.core.destinations.purging import purge
from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Queue
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode, Session
from gateway.messaging.redelivery import RedeliveryChanges
from gateway.messaging.selector.selector import Selector
from tests.gateway.broker.brokers import text, with_properties
from tests.gateway.broker.stepped_broker import Stepped, Told, all_of, texts

Q = Queue("q")


def little() -> Memory:
    """Room for some ten messages of a queue."""
    return Memory(total=40 * OVERHEAD, share=10 * OVERHEAD, least=2 * OVERHEAD)


@pytest.fixture
def small(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path, memory=little())


# --- fairness


def test_a_run_is_dealt_like_cards(stepped: Stepped, session: Session) -> None:
    inboxes = [stepped.consume(session, Q) for _ in range(3)]
    session.send(texts(Q, range(9)))
    stepped.run_reactor()
    assert [inbox.texts for inbox in inboxes] == [["0", "3", "6"], ["1", "4", "7"], ["2", "5", "8"]]


def test_the_next_run_begins_with_whoever_is_next(stepped: Stepped, session: Session) -> None:
    inboxes = [stepped.consume(session, Q) for _ in range(3)]
    for number in range(7):
        session.send(texts(Q, [f"{number}a", f"{number}b"]))
        stepped.run_reactor()
    assert [len(inbox.texts) for inbox in inboxes] == [5, 5, 4]


def test_whoever_has_little_credit_gets_that_and_the_others_the_rest(
    stepped: Stepped, session: Session
) -> None:
    credits = [1, 100, 7]
    inboxes = [stepped.consume(session, Q, credit=credit) for credit in credits]
    session.send(texts(Q, range(30)))
    stepped.run_reactor()
    assert [len(inbox.texts) for inbox in inboxes] == [1, 22, 7]
    assert sorted(int(body) for inbox in inboxes for body in inbox.texts) == list(range(30))
    for inbox in inboxes:
        assert [int(body) for body in inbox.texts] == sorted(int(body) for body in inbox.texts)


def test_uneven_credit_does_not_starve_anyone_in_the_long_run(
    stepped: Stepped, session: Session
) -> None:
    inboxes = [stepped.consume(session, Q, credit=1) for _ in range(4)]
    for number in range(80):
        session.send(texts(Q, [number]))
        stepped.run_reactor()
        for inbox in inboxes[: 2 + number % 3]:
            if inbox.messages and len(inbox.messages) <= number:
                inbox.consumer.grant(1)
        stepped.run_reactor()
    counts = [len(inbox.messages) for inbox in inboxes]
    assert sum(counts) == 80
    assert max(counts[:2]) - min(counts[:2]) <= 5, counts


def test_octets_bound_what_each_gets(stepped: Stepped, session: Session) -> None:
    tight = stepped.consume(session, Q, octets=25)
    wide = stepped.consume(session, Q, octets=45)
    session.send(texts(Q, ["x" * 10] * 20))
    stepped.run_reactor()
    # The message that exceeds the credit is delivered whole.
    assert (len(tight.messages), len(wide.messages)) == (3, 5)
    assert stepped.broker.queue(Q).dispatch.backlog.waiting == 12
    tight.consumer.grant(0, 15)
    stepped.run_reactor()
    assert len(tight.messages) == 4, "5 octets too many were taken before"
    wide.consumer.grant(0, 1000)
    stepped.run_reactor()
    assert len(wide.messages) == 16
    assert sorted(tight.numbers + wide.numbers) == sorted([*range(1, 5), *range(1, 17)])


def test_order_is_kept_when_a_hand_is_given_back_for_want_of_octets(
    stepped: Stepped, session: Session
) -> None:
    one = stepped.consume(session, Q, octets=15)
    two = stepped.consume(session, Q, octets=15)
    session.send(texts(Q, [f"{number:010}" for number in range(10)]))
    stepped.run_reactor()
    one.consumer.grant(0, 1000)
    stepped.run_reactor()
    assert [int(body) for body in two.texts] == [1, 3]
    assert [int(body) for body in one.texts] == [0, 2, *range(4, 10)]


def test_one_destination_does_not_keep_another_waiting(stepped: Stepped, session: Session) -> None:
    session.send(texts(Q, range(3 * MOST_IN_A_TURN), persistent=False))
    order: list[str] = []
    busy = stepped.consume(session, Q, credit=10 * MOST_IN_A_TURN, start=False)
    other = stepped.consume(session, Queue("other"), start=False)
    session.send(texts(Queue("other"), ["x"]))
    busy.until(lambda: not order.append("busy")).addCallback(lambda _: None)  # type: ignore[func-returns-value]
    other.until(lambda: bool(order.append("other") or other.messages)).addCallback(lambda _: None)  # type: ignore[func-returns-value]
    busy.consumer.start()
    other.consumer.start()
    stepped.run_reactor()
    assert len(busy.messages) == 3 * MOST_IN_A_TURN
    assert other.messages
    assert busy.runs == 3


def test_commits_and_writes_go_on_while_a_destination_dispatches_without_end(
    stepped: Stepped, session: Session
) -> None:
    inbox = stepped.consume(session, Q, credit=10**6)
    written: list[int] = []
    seen = 0

    def forward() -> None:
        # Whatever comes is sent on to where it came from, for ever.
        nonlocal seen
        if len(inbox.messages) > seen and seen < 1_000:
            seen = len(inbox.messages)
            session.send(texts(Q, ["again"]))
        if seen < 1_000:
            stepped.turn.deliver(forward)

    stepped.turn.begin()
    stepped.turn.deliver(forward)
    session.send(texts(Q, ["first"]))
    session.completion(Told())
    stepped.turn.write(lambda: written.append(seen))
    stepped.turn.end()
    assert written, "writes wait for the endless deliveries"
    assert written[0] < 100


# --- what delivery callbacks may do


def test_a_consumer_that_anothers_delivery_closed_receives_nothing(stepped: Stepped) -> None:
    session, others = stepped.session(), stepped.session()
    first = stepped.consume(session, Q)
    second = stepped.consume(others, Q)
    first.until(lambda: bool(first.messages)).addCallback(lambda _: others.close())
    session.send(texts(Q, range(4)))
    stepped.run_reactor()
    assert (second.messages, sorted(first.texts)) == ([], ["0", "1", "2", "3"])
    stepped.acknowledge_through(first, 4)
    assert stepped.broker.queue(Q).count == 0


def test_a_consumer_that_anothers_delivery_stopped_keeps_its_credit(
    stepped: Stepped, session: Session
) -> None:
    first = stepped.consume(session, Q, credit=2)
    second = stepped.consume(session, Q, credit=2)
    first.until(lambda: bool(first.messages)).addCallback(lambda _: second.consumer.stop())
    session.send(texts(Q, range(4)))
    stepped.run_reactor()
    assert (first.texts, second.texts) == (["0", "2"], [])
    second.consumer.start()
    stepped.run_reactor()
    assert (second.texts, second.attempts) == (["1", "3"], [1, 1])


def test_one_who_fails_on_delivery_does_not_take_what_others_get(
    stepped: Stepped, session: Session
) -> None:

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("on purpose")

    bad = stepped.consume(session, Q, start=False)
    bad.deliver = fail  # type: ignore[method-assign]
    consumer = session.consumer(bad.consumer.spec, fail, lambda error: None)  # type: ignore[attr-defined]
    bad.consumer.close()
    consumer.grant(100)
    good = stepped.consume(session, Q)
    consumer.start()
    session.send(texts(Q, range(4)))
    stepped.run_reactor()
    assert good.texts == ["1", "3"] or good.texts == ["0", "2"]
    consumer.close()
    stepped.run_reactor()
    assert sorted(good.texts) == ["0", "1", "2", "3"]


# --- selectors


def coloured(numbers: range) -> list[tuple[int, str]]:
    return [(number, "red" if number % 5 == 0 else "blue") for number in numbers]


def send_coloured(stepped: Stepped, count: int) -> None:
    stepped.send_each(
        [
            with_properties(Q, str(number), {"colour": colour})
            for number, colour in coloured(range(count))
        ]
    )


@pytest.mark.parametrize("persistent", [True, False])
def test_a_selector_finds_what_it_wants_behind_a_full_memory(
    small: Stepped, persistent: bool
) -> None:
    session = small.session()
    for number, colour in coloured(range(200)):
        message = with_properties(Q, str(number), {"colour": colour})
        if not persistent:
            message.headers = message.headers.replace(persistent=False)
        session.send([message])
    small.run_until_idle()
    assert small.broker.queue(Q).dispatch.backlog.behind > 150
    red = small.receive(session, Q, selector="colour = 'red'")
    assert red.texts == [str(number) for number in range(0, 200, 5)]
    red.consumer.acknowledge_through(40)
    plain = small.receive(session, Q)
    assert plain.texts == [str(number) for number in range(200) if number % 5]
    small.acknowledge_through(plain, 160)
    assert small.empty


def test_a_selector_finds_it_after_a_restart_too(small: Stepped) -> None:
    send_coloured(small, 200)
    small.restart(little())
    small.run_until_idle()
    session = small.session()
    red = small.consume(session, Q, credit=7, selector="colour = 'red'")
    blue = small.receive(session, Q, selector="colour = 'blue'")
    assert red.texts == [str(number) for number in range(0, 35, 5)]
    assert blue.texts == [str(number) for number in range(200) if number % 5]
    small.grant(red, 100)
    assert red.texts == [str(number) for number in range(0, 200, 5)]


def test_a_plain_consumer_and_one_with_a_selector_share_a_queue_that_is_mostly_in_the_store(
    small: Stepped,
) -> None:
    send_coloured(small, 200)
    session = small.session()
    red = small.consume(session, Q, selector="colour = 'red'")
    plain = small.receive(session, Q, credit=5)
    while small.broker.queue(Q).dispatch.backlog.waiting:
        small.grant(plain, 9)
    got = [int(body) for body in red.texts + plain.texts]
    assert sorted(got) == list(range(200))
    assert [int(body) for body in red.texts] == sorted(int(body) for body in red.texts)
    assert [int(body) for body in plain.texts] == sorted(int(body) for body in plain.texts)
    assert all(int(body) % 5 == 0 for body in red.texts)


def test_what_one_selector_gives_back_another_one_gets_in_order(small: Stepped) -> None:
    send_coloured(small, 100)
    giver = small.session()
    red = small.receive(giver, Q, selector="colour = 'red'")
    assert len(red.messages) == 20
    other = small.receive(small.session(), Q, selector="colour IN ('red', 'blue')", credit=30)
    assert [int(body) for body in other.texts] == [number for number in range(100) if number % 5][
        :30
    ]
    small.close(giver)
    other.consumer.grant(1000)
    other.clear()
    small.run_until_idle()
    got = [int(body) for body in other.texts]
    reds = [number for number in got if number % 5 == 0]
    assert reds == list(range(0, 100, 5))
    assert [number for number in got if number % 5] == [
        number for number in range(100) if number % 5
    ][30:]
    assert {
        attempt for number, attempt in zip(got, other.attempts, strict=True) if number % 5 == 0
    } == {2}


def test_a_selector_counts_octets(stepped: Stepped, session: Session) -> None:
    inbox = stepped.consume(session, Q, selector="JMSPriority >= 0", octets=25)
    session.send(texts(Q, ["x" * 10] * 10))
    stepped.run_reactor()
    assert len(inbox.messages) == 3


def test_a_selector_does_not_get_what_has_expired_in_the_store(small: Stepped) -> None:
    session = small.session()
    small.send_each(
        [
            text(Q, str(number), expires=small.now_ms + (1_000 if number % 2 else 100_000))
            for number in range(100)
        ],
        session,
    )
    small.later(5)
    inbox = small.receive(session, Q, selector="JMSPriority = 4")
    assert inbox.texts == [str(number) for number in range(0, 100, 2)]
    dead = small.receive(session, Queue("mq.sys.dmq"))
    assert sorted(int(body) for body in dead.texts) == list(range(1, 100, 2))


def test_looking_through_a_large_queue_is_cut_into_rounds(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch, session: Session
) -> None:
    session.send(texts(Q, range(5_000), persistent=False))
    inbox = stepped.consume(session, Q, selector="JMSPriority = 9", start=False)
    looks = 0

    def matches(selector: object, message: Message) -> bool:
        nonlocal looks
        looks += 1
        return False

    monkeypatch.setattr(Selector, "matches", matches)
    queue = stepped.broker.queue(Q)
    inbox.consumer.start()
    rounds = 0
    while queue.dispatch.woken:
        before = looks
        queue.dispatch.hand_out(queue)
        assert looks - before <= MOST_IN_A_TURN
        rounds += 1
    assert looks == 5_000
    assert rounds >= 5


# --- browsers


def test_a_browser_sees_all_of_a_queue_that_is_mostly_in_the_store(small: Stepped) -> None:
    session = small.session()
    small.send_each(
        [text(Q, str(number), priority=(4, 9, 0)[number % 3]) for number in range(150)], session
    )
    browser = small.receive(small.session(), Q, browse=True, credit=10)
    assert not browser.ended
    for _ in range(20):
        small.grant(browser, 10)
    assert browser.ended
    inbox = small.receive(session, Q)
    assert (browser.texts, len(browser.texts)) == (inbox.texts, 150)


def test_a_browser_beside_a_consumer_sees_what_is_there_and_ends(small: Stepped) -> None:
    send_coloured(small, 120)
    browser = small.consume(small.session(), Q, browse=True, selector="colour = 'red'", credit=3)
    inbox = small.consume(small.session(), Q, credit=0)
    while not browser.ended:
        inbox.consumer.grant(4)
        browser.consumer.grant(1)
        small.run_reactor()
        if small.store.busy:
            small.store.step()
    assert [int(body) for body in browser.texts] == sorted({int(body) for body in browser.texts})
    assert all(int(body) % 5 == 0 for body in browser.texts)
    assert small.broker.queue(Q).count == 120


def test_a_browser_does_not_see_what_has_expired(stepped: Stepped, session: Session) -> None:
    session.send(texts(Q, ["old"], expires=stepped.now_ms + 10) + texts(Q, ["good"]))
    stepped.run_reactor()
    stepped.clock.advance(1)
    browser = stepped.consume(session, Q, browse=True)
    stepped.run_reactor()
    assert (browser.texts, browser.ended) == (["good"], True)


def test_a_row_that_cannot_be_read_is_left_out_and_holds_nobody_up(small: Stepped) -> None:
    send_coloured(small, 60)
    small.restart(little())
    lost = sorted(small.disk.rows)[20:25]
    for seq in lost:
        del small.disk.rows[seq]
    session = small.session()
    browser = small.receive(session, Q, browse=True)
    assert browser.ended
    red = small.receive(session, Q, selector="colour = 'red'")
    plain = small.receive(session, Q)
    expected = [number for number in range(60) if not 20 <= number < 25]
    assert sorted(int(body) for body in red.texts + plain.texts) == expected
    assert sorted(int(body) for body in browser.texts) == expected
    queue = small.broker.queue(Q)
    assert (queue.count, queue.dispatch.backlog.waiting) == (55, 0)
    assert queue.octets == sum(message.size for message in red.messages + plain.messages)


# --- giving back


def test_a_lot_that_is_given_back_is_counted_in_the_store_slice_by_slice(
    stepped: Stepped, session: Session
) -> None:
    session.send(texts(Q, range(9_000)))
    taker = stepped.session()
    inbox = stepped.receive(taker, Q, credit=10_000)
    assert len(inbox.messages) == 9_000
    before = stepped.broker.commits.changes
    taker.close()
    assert stepped.broker.commits.changes - before < 3_000, "one turn does not count them all"
    stepped.run_until_idle()
    assert {row.attempts for row in stepped.disk.redeliveries.values()} == {1}
    assert len(stepped.disk.redeliveries) == 9_000
    again = stepped.receive(session, Q, credit=10_000)
    assert (again.texts, set(again.attempts)) == ([str(number) for number in range(9_000)], {2})
    stepped.acknowledge_through(again, 9_000)
    assert stepped.empty


def test_consecutive_rollbacks_are_bounded_where_the_operator_says_so(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(most_rollbacks=2))
    session = stepped.session()
    inbox = stepped.consume(session, Q)
    session.send(texts(Q, ["poison", "good"]))
    stepped.run_reactor()
    inbox.consumer.acknowledge([2])
    session.recover()
    stepped.run_reactor()
    assert inbox.attempts == [1, 1, 2]
    session.recover()
    dead = stepped.receive(session, Queue("mq.sys.dmq"))
    assert dead.texts == ["poison"]
    assert dead.messages[0].headers.properties["JMS_SUN_DMQ_DELIVERY_COUNT"] == 2
    assert stepped.broker.queue(Q).count == 0


def test_rejected_messages_come_back_after_their_pause_in_their_old_places(
    stepped: Stepped, individual: Session
) -> None:
    policy = RedeliveryChanges(initial_redelivery_delay=5_000)
    inbox = stepped.consume(individual, Q, credit=3, redelivery=policy)
    individual.send(texts(Q, range(6)))
    stepped.run_reactor()
    inbox.consumer.reject([1])
    inbox.consumer.reject([2], delay_ms=0)
    inbox.consumer.reject([3], delay_ms=1_000)
    inbox.clear()
    inbox.consumer.grant(1)
    stepped.run_reactor()
    assert all_of(inbox) == ["1"]
    stepped.later(6)
    stepped.grant(inbox, 10)
    assert (inbox.texts, inbox.attempts) == (["0", "2", "3", "4", "5"], [2, 2, 1, 1, 1])


def test_deliveries_are_shared_by_whoever_has_credit(stepped: Stepped, session: Session) -> None:
    inboxes = [stepped.consume(session, Q, credit=50) for _ in range(2)]
    session.send(texts(Q, range(100)))
    stepped.run_reactor()
    assert Counter(len(inbox.messages) for inbox in inboxes) == {50: 2}


# --- purge


def test_a_purge_takes_what_waits_and_leaves_what_is_outstanding(small: Stepped) -> None:
    session = small.session(Mode.INDIVIDUAL)
    inbox = small.consume(session, Q, credit=6)
    small.send(texts(Q, range(100)), session)
    inbox.consumer.reject([1], delay_ms=60_000)
    inbox.consumer.reject([2], delay_ms=0)
    assert purge(small.broker.queue(Q), lambda count: None) == 96
    queue = small.broker.queue(Q)
    assert (queue.count, queue.octets) == (4, sum(message.size for message in inbox.messages[2:]))
    inbox.consumer.grant(100)
    small.later(100)
    assert len(inbox.messages) == 6
    small.acknowledge(inbox, [3, 4, 5, 6])
    assert (small.empty, small.broker.memory.used) == (True, 0)


def test_a_purge_while_messages_are_being_read_back_is_a_purge_of_those_too(small: Stepped) -> None:
    session = small.session()
    small.send(texts(Q, range(50)), session)
    session.close()
    small.restart(little())
    session = small.session()
    inbox = small.consume(session, Q)
    for _ in range(5):
        small.clock.advance(0)
    assert small.broker.queue(Q).dispatch.backlog.reading
    purge(small.broker.queue(Q), lambda count: None)
    small.send(texts(Q, ["new"]), session)
    assert inbox.texts == ["new"]
    small.acknowledge_through(inbox, 1)
    assert small.empty


def test_a_large_purge_is_cut_into_slices(stepped: Stepped, session: Session) -> None:
    for _ in range(5):
        session.send(texts(Q, range(2_000)))
    stepped.run_until_idle()
    before = stepped.broker.commits.changes
    assert purge(stepped.broker.queue(Q), lambda count: None) == 10_000
    assert stepped.broker.queue(Q).count == 0
    assert stepped.broker.commits.changes - before <= 2_000
    stepped.run_until_idle()
    assert stepped.empty


def test_expired_messages_are_given_up_in_slices_wherever_they_are(small: Stepped) -> None:
    session = small.session()
    session.send(texts(Q, range(1_200), expires=small.now_ms + 1_000))
    small.send(texts(Q, ["stays"]), session)
    small.later(61)
    queue = small.broker.queue(Q)
    assert (queue.count, queue.dispatch.backlog.waiting) == (1, 1)
    dead = small.receive(session, Queue("mq.sys.dmq"), credit=2_000)
    assert sorted(int(body) for body in dead.texts) == list(range(1_200))
