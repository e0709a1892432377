"""A database that cannot be reached: nothing is confirmed or delivered.

Everything goes on where it was when it is reached again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.logger import LogLevel

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.durability.commit import PROVEN
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.store.interface import StoreFailed
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import StorageFailed
from gateway.messaging.provider import Mode, Session
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.arrivals.duplicate_ids import told
from tests.gateway.broker.brokers import Inbox
from tests.gateway.broker.stepped_broker import Stepped, Told, all_of, texts
from tests.gateway.broker.xa.xa_branches import Branching, branched, waiting, xid
from tests.logged import logged, logged_lines

Q, OTHER, T = Queue("q"), Queue("other"), Topic("t")


def lose_reach(stepped: Stepped) -> None:
    stepped.store.lose_reach()
    stepped.run_until_idle()


def reach(stepped: Stepped) -> None:
    stepped.store.reach()
    stepped.run_until_idle()


def consumers(stepped: Stepped) -> list[Inbox]:
    """One of each kind."""
    durable = stepped.session(client_id="me")
    return [
        stepped.consume(stepped.session(), Q),
        stepped.consume(stepped.session(Mode.AUTO), T),
        stepped.consume(durable, T, durable_name="d"),
        stepped.consume(stepped.session(Mode.TRANSACTED), Topic("*")),
        stepped.consume(stepped.session(), OTHER, selector="colour = 'red'"),
    ]


def send_to_all(stepped: Stepped, *bodies: str, persistent: bool = True) -> None:
    session = stepped.session()
    for destination in (Q, T, OTHER):
        session.send(
            texts(destination, bodies, persistent=persistent, properties={"colour": "red"})
        )


# --- deliveries


def test_no_consumer_of_any_kind_is_given_anything_and_order_is_kept(stepped: Stepped) -> None:
    inboxes = consumers(stepped)
    stepped.run_until_idle()
    send_to_all(stepped, "1")
    lose_reach(stepped)
    send_to_all(stepped, "2", persistent=False)
    send_to_all(stepped, "3")
    browsed = stepped.consume(stepped.session(), Q, browse=True)
    inboxes.append(stepped.consume(stepped.session(), T))
    stepped.later(10)
    assert [inbox.texts for inbox in (*inboxes, browsed)] == [[]] * 7
    assert not browsed.ended
    reach(stepped)
    assert [inbox.texts for inbox in inboxes[:5]] == [["1", "2", "3"]] * 5
    assert inboxes[5].texts == [], "it came after them"
    assert browsed.ended


def test_what_comes_back_is_delivered_again_when_the_database_is_reached(stepped: Stepped) -> None:
    gone, other = stepped.session(), stepped.session()
    first = stepped.consume(gone, Q)
    stepped.send(texts(Q, range(3)))
    assert all_of(first) == ["0", "1", "2"]
    second = stepped.consume(other, Q)
    lose_reach(stepped)
    stepped.close(gone)
    stepped.later(10)
    assert second.texts == []
    reach(stepped)
    assert (second.texts, second.attempts) == (["0", "1", "2"], [2, 2, 2])


def test_what_is_in_the_store_only_is_read_and_delivered_then(stepped: Stepped) -> None:
    stepped.send(texts(Q, range(60)))
    stepped.restart(Memory(total=4 * OVERHEAD, share=2 * OVERHEAD, least=OVERHEAD))
    inbox = stepped.consume(stepped.session(), Q)
    stepped.run_reactor()
    assert stepped.store.busy, "the store is asked for more"
    delivered = len(inbox.texts)
    lose_reach(stepped)
    stepped.grant(inbox, 1000)
    stepped.later(10)
    assert len(inbox.texts) == delivered < 60
    reach(stepped)
    assert inbox.texts == [str(number) for number in range(60)]


# --- confirmations


def test_nothing_is_confirmed_and_then_all_is_in_order(stepped: Stepped) -> None:
    session = stepped.session()
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["taken"]))
    order: list[str] = []
    session.send(texts(OTHER, ["on its way"]))
    session.completion(lambda error: order.append(f"sent {error}"))
    stepped.run_reactor()
    assert stepped.store.asked == 1
    lose_reach(stepped)
    inbox.consumer.acknowledge_through(1)
    session.completion(lambda error: order.append(f"acknowledged {error}"))
    session.send(texts(OTHER, ["transient"], persistent=False))
    session.completion(lambda error: order.append(f"sent transient {error}"))
    stepped.later(10)
    assert (order, stepped.store.asked) == ([], 1), "the store is asked for no more"
    reach(stepped)
    assert order == ["sent None", "acknowledged None", "sent transient None"]
    assert stepped.bodies == ["on its way"]


@pytest.mark.parametrize("ask", ["send", "consume", "commit nothing", "roll back", "nothing"])
def test_what_needs_no_store_is_not_confirmed_either(stepped: Stepped, ask: str) -> None:
    lose_reach(stepped)
    transacted = ask in ("commit nothing", "roll back")
    session, confirmed = stepped.session(Mode.TRANSACTED if transacted else Mode.CLIENT), Told()
    if ask == "send":
        session.send(texts(Q, ["x"], persistent=False))
    elif ask == "consume":
        stepped.consume(session, Q)
    if ask == "commit nothing":
        session.commit(confirmed)
    elif ask == "roll back":
        session.rollback(confirmed)
    else:
        session.completion(confirmed)
    stepped.later(10)
    assert confirmed.results == []
    reach(stepped)
    assert confirmed.well


def test_what_was_asked_just_before_is_not_confirmed_after_it(stepped: Stepped) -> None:
    session = stepped.session()
    session.send(texts(Q, ["x"], persistent=False))
    confirmed = told(session)
    lose_reach(stepped)
    assert confirmed.results == []
    reach(stepped)
    assert confirmed.well


def test_a_send_that_was_settled_before_it_was_written_is_not_confirmed(stepped: Stepped) -> None:
    """Its batch is empty, so nothing would be asked of the store."""
    session = stepped.session()
    inbox = stepped.consume(session, Q)
    for _ in range(PROVEN):
        session.send(texts(Q, ["x"]))
        sent = told(session)
        stepped.run_reactor()
        stepped.acknowledge_through(inbox, inbox.numbers[-1])
        assert sent.well
    session.send(texts(Q, ["y"]))
    sent = told(session)
    stepped.clock.advance(0)
    assert (inbox.texts[-1], stepped.store.asked) == ("y", 0), "it waits to be settled"
    stepped.store.lose_reach()
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    stepped.later(10)
    assert (sent.results, stepped.store.asked) == ([], 0)
    reach(stepped)
    assert (sent.well, stepped.bodies) == (True, [])


def test_where_batches_go_ahead_of_writes_they_wait_too(stepped: Stepped) -> None:
    session = stepped.session()
    for _ in range(PROVEN + 1):
        session.send(texts(Q, ["x"]))
        assert stepped.complete(session).well
    session.send(texts(Q, ["y"]))
    sent = told(session)
    lose_reach(stepped)
    session.send(texts(Q, ["z"]))
    stepped.later(10)
    assert (sent.results, stepped.store.asked) == ([], 0)
    assert not stepped.clock.getDelayedCalls(), "nothing asks again and again"
    reach(stepped)
    assert (sent.well, stepped.bodies[-2:]) == (True, ["y", "z"])


def test_a_transaction_on_its_way_is_committed_then_and_none_is_lost(stepped: Stepped) -> None:
    sender, receiver = stepped.session(Mode.TRANSACTED), stepped.session(Mode.TRANSACTED)
    inbox = stepped.consume(receiver, Q)
    stepped.send(texts(Q, ["taken"]))
    sender.send(texts(OTHER, ["on its way"]))
    first, second = Told(), Told()
    sender.commit(first)
    stepped.run_reactor()
    lose_reach(stepped)
    inbox.consumer.acknowledge_through(1)
    receiver.send(texts(OTHER, ["behind"]))
    receiver.commit(second)
    stepped.later(100)
    assert (first.results, second.results) == ([], [])
    assert stepped.bodies == ["taken"]
    reach(stepped)
    assert (first.well, second.well) == (True, True)
    assert stepped.bodies == ["on its way", "behind"]
    stepped.restart()
    assert (waiting(stepped, OTHER), waiting(stepped, Q)) == (["on its way", "behind"], [])


def test_senders_are_held_back(session: Session, stepped: Stepped) -> None:
    resumed: list[int] = []
    assert session.writable()
    lose_reach(stepped)
    assert not session.writable()
    session.on_writable(lambda: resumed.append(1))
    stepped.later(10)
    assert resumed == []
    reach(stepped)
    assert (session.writable(), resumed) == (True, [1])


def test_a_connection_closes_meanwhile(stepped: Stepped) -> None:
    connection, closed = stepped.connect(), list[None]()
    lose_reach(stepped)
    connection.close().addCallback(closed.append)
    assert closed == [], "not from inside the call"
    stepped.run_until_idle()
    assert closed == [None]


# --- time


def test_no_pause_of_a_redelivery_ends_meanwhile(stepped: Stepped) -> None:
    session = stepped.session(Mode.INDIVIDUAL)
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["x"]))
    stepped.reject(inbox, [1], delay_ms=5_000)
    lose_reach(stepped)
    stepped.later(10)
    assert inbox.texts == ["x"]
    reach(stepped)
    assert inbox.texts == ["x", "x"]


def test_nothing_expires_meanwhile(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0, expiration_interval=60))
    stepped.send(texts(Q, ["x"], expires=stepped.now_ms + 10_000))
    lose_reach(stepped)
    stepped.later(61, times=3)
    assert stepped.broker.queue(Q).count == 1
    reach(stepped)
    assert stepped.broker.queue(Q).count == 0


def test_no_branch_times_out_meanwhile(tmp_path: Path) -> None:
    stepped = branched(tmp_path)
    xa = Branching(stepped)
    xa.sends(xid(1), Q, ["x"])
    lose_reach(stepped)
    stepped.later(30, times=10)
    reach(stepped)
    xa.prepare(xid(1))
    xa.commit(xid(1))
    assert waiting(stepped, Q) == ["x"]


def test_a_branch_is_prepared_and_ended_when_the_database_is_reached(tmp_path: Path) -> None:
    stepped = branched(tmp_path)
    first, second = Branching(stepped), Branching(stepped)
    first.sends(xid(1), Q, ["x"])
    second.prepares(xid(2), Q, ["y"])
    lose_reach(stepped)
    answers: list[object] = []
    first.resource.prepare(xid(1)).addCallback(answers.append)
    second.resource.commit(xid(2), False).addCallback(answers.append)
    stepped.later(10)
    assert answers == []
    reach(stepped)
    assert len(answers) == 2
    assert first.recover() == [xid(1)]
    assert waiting(stepped, Q) == ["y"]


# --- what is told of it


def test_the_log_and_the_administrator_are_told_once_each(stepped: Stepped) -> None:
    def since() -> int:
        return outcome(stepped, administration(stepped).broker()).unreachable_since_ms

    with logged() as events:
        reach(stepped)
        assert (since(), events) == (0, [])
        began = stepped.now_ms
        lose_reach(stepped)
        lose_reach(stepped)
        stepped.later(2.5)
        assert since() == pytest.approx(began, abs=2)
        reach(stepped)
        reach(stepped)
    assert since() == 0
    assert [event["log_level"] for event in events] == [LogLevel.error, LogLevel.info]
    assert events[1]["seconds"] == pytest.approx(2.5, abs=0.1)


# --- the end


def test_closed_meanwhile_the_store_gets_what_is_left_and_closes(stepped: Stepped) -> None:
    session, closed = stepped.session(), list[int]()
    session.send(texts(Q, ["on its way"]))
    sent = told(session)
    stepped.run_reactor()
    lose_reach(stepped)
    session.send(texts(Q, ["gathered"]))
    stepped.run_reactor()
    stepped.broker.close(lambda: closed.append(1))
    assert (closed, sent.results, stepped.store.asked) == ([1], [], 2)
    stepped.store.reachable = True
    stepped.run_until_idle()
    assert (closed, stepped.bodies) == ([1], ["on its way", "gathered"])


def test_a_database_that_goes_while_the_store_is_being_closed_does_not_keep_it(
    stepped: Stepped,
) -> None:
    stepped.session().send(texts(Q, ["x"]))
    closed: list[int] = []
    stepped.broker.close(lambda: closed.append(1))
    stepped.run_reactor()
    assert (closed, stepped.store.asked) == ([], 1)
    lose_reach(stepped)
    assert closed == [1]
    reach(stepped)
    assert (closed, stepped.bodies) == ([1], ["x"])


def test_a_store_that_fails_meanwhile_is_told_of_and_delivers_nothing(stepped: Stepped) -> None:
    session, other = stepped.session(), stepped.session()
    inbox = stepped.consume(stepped.session(), Q)
    stepped.run_until_idle()
    session.send(texts(OTHER, ["on its way"]))
    sent = told(session)
    stepped.run_reactor()
    lose_reach(stepped)
    other.send(texts(Q, ["gathered"]))
    gathered = told(other)
    stepped.run_reactor()
    stepped.store.fail()
    stepped.run_until_idle()
    assert (sent.failed, gathered.failed, inbox.texts) == (True, True, [])
    assert isinstance(gathered.results[0], StorageFailed)
    assert len(stepped.failures) == 1


def test_a_store_that_fails_by_itself_meanwhile_is_told_of(stepped: Stepped) -> None:
    session = stepped.session()
    session.send(texts(Q, ["gathered"]))
    sent = told(session)
    lose_reach(stepped)
    assert stepped.store.on_failed is not None
    stepped.store.on_failed(StoreFailed("another process owns the database"))
    stepped.run_until_idle()
    assert sent.failed
    assert len(stepped.failures) == 1


# --- an owner that may have been replaced


def owned(stepped: Stepped, seconds: float) -> None:
    assert stepped.store.on_owned is not None
    stepped.store.on_owned(seconds)
    stepped.run_until_idle()


def test_an_owner_that_may_have_been_replaced_answers_when_it_knows_that_it_was_not(
    stepped: Stepped,
) -> None:
    inbox = stepped.consume(stepped.session(), Q)
    owned(stepped, 4.5)
    stepped.later(4.4)
    stepped.send(texts(Q, ["in time"]))
    with logged_lines() as lines:
        stepped.later(0.2)
        session = stepped.session()
        session.send(texts(Q, ["late"]))
        sent = told(session)
        stepped.run_until_idle()
        assert (inbox.texts, sent.results) == (["in time"], [])
        assert stepped.broker.reach.since_ms > 0
        owned(stepped, 4.5)
    assert (inbox.texts, sent.well) == (["in time", "late"], True)
    assert stepped.broker.reach.since_ms == 0
    told_of = [line for line in lines if "the database" in line]
    assert ["still owns the broker" in line for line in told_of] == [True, False]
    assert "goes on" in told_of[1]


def test_an_owner_out_of_reach_goes_on_when_it_is_reached_and_still_the_owner(
    stepped: Stepped,
) -> None:
    inbox = stepped.consume(stepped.session(), Q)
    owned(stepped, 4.5)
    stepped.later(5)
    stepped.session().send(texts(Q, ["1"]))
    stepped.run_until_idle()
    lose_reach(stepped)
    owned(stepped, 4.5)
    assert inbox.texts == []
    reach(stepped)
    assert inbox.texts == ["1"]
    lose_reach(stepped)
    stepped.later(5)
    stepped.session().send(texts(Q, ["2"]))
    reach(stepped)
    assert inbox.texts == ["1"], "it is reached, and may belong to another process"
    owned(stepped, 4.5)
    assert inbox.texts == ["1", "2"]


def test_a_sign_of_life_that_comes_too_late_does_not_count(stepped: Stepped) -> None:
    inbox = stepped.consume(stepped.session(), Q)
    owned(stepped, 4.5)
    stepped.later(5)
    stepped.session().send(texts(Q, ["1"]))
    owned(stepped, -0.5)
    assert inbox.texts == []
    owned(stepped, 4.5)
    assert inbox.texts == ["1"]
