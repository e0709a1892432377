"""A full disk delays, and undoes nothing: sends wait, acknowledgements go ahead, and everything goes
on when there is room.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.commit import MOST_WAITING, RETRY
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import MessageRejected, StorageFailed, XAError
from gateway.messaging.message import OVERHEAD
from gateway.messaging.provider import Connection, Mode, Session
from tests.gateway.broker.administration import administration
from tests.gateway.broker.arrivals.duplicate_ids import bearing, committed, told
from tests.gateway.broker.brokers import Inbox
from tests.gateway.broker.journal.test_journey import each, record
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa.xa_branches import RBROLLBACK, Branching, waiting, xid

Q, OUT, T = Queue("q"), Queue("out"), Topic("t")


def fill(stepped: Stepped) -> None:
    """The batch on its way to the disk does not fit; what needs no room is done."""
    stepped.run_reactor()
    stepped.store.step(full=True)
    stepped.run_until_idle()


def make_room(stepped: Stepped) -> None:
    stepped.store.make_room()
    stepped.run_until_idle()


def outstanding(
    stepped: Stepped, session: Session, *bodies: str, destination: Destination = Q, **spec: Any
) -> Inbox:
    """A consumer that has these messages, which are stored."""
    inbox = stepped.consume(session, destination, **spec)
    stepped.send(texts(destination, bodies))
    assert inbox.texts == list(bodies)
    return inbox


def send(stepped: Stepped, *bodies: str, destination: Destination = OUT) -> Told:
    """Somebody sends something. :returns: what the sender is told."""
    session = stepped.session()
    session.send(texts(destination, bodies))
    return told(session)


# --- senders


def test_a_send_waits_for_room_and_is_confirmed_then(stepped: Stepped) -> None:
    session, resumed = stepped.session(), list[int]()
    session.send(texts(Q, ["x"]))
    sent = told(session)
    fill(stepped)
    session.on_writable(lambda: resumed.append(1))
    stepped.later(100)
    assert (sent.results, session.writable(), resumed, stepped.bodies) == ([], False, [], [])
    assert stepped.session().writable(), "it sends something else, maybe nothing persistent"
    make_room(stepped)
    assert (sent.well, session.writable(), resumed, stepped.bodies) == (True, True, [1], ["x"])
    stepped.restart()
    assert waiting(stepped, Q) == ["x"]


def test_what_waits_in_line_is_stored_in_order_and_later_sends_behind_it(stepped: Stepped) -> None:
    sent = []
    for number in range(3):
        sent.append(send(stepped, f"{number}", destination=Q))
        stepped.run_reactor()
    fill(stepped)
    sent.append(send(stepped, "3", destination=Q))
    stepped.run_until_idle()
    assert [one.results for one in sent] == [[]] * 4
    stepped.store.make_room()
    sent.append(send(stepped, "4", destination=Q))
    stepped.run_until_idle()
    assert all(one.well for one in sent)
    assert stepped.bodies == ["0", "1", "2", "3", "4"]


def test_the_disk_is_full_again_before_all_is_stored(stepped: Stepped) -> None:
    sent = [send(stepped, "0", destination=Q)]
    fill(stepped)
    for number in range(1, 4):
        stepped.store.make_room()
        stepped.run_reactor()
        sent.append(send(stepped, f"{number}", destination=Q))
        fill(stepped)
    assert (stepped.bodies, [one.results for one in sent]) == ([], [[]] * 4)
    make_room(stepped)
    assert all(one.well for one in sent)
    assert stepped.bodies == ["0", "1", "2", "3"]


def test_a_message_that_is_taken_while_it_waits_needs_no_room(stepped: Stepped) -> None:
    inbox = stepped.consume(stepped.session(Mode.INDIVIDUAL), OUT)
    sent = send(stepped, "x")
    fill(stepped)
    assert inbox.texts == ["x"], "it is delivered all the same"
    stepped.acknowledge(inbox, [1])
    assert (sent.well, stepped.empty) == (True, True)


def test_what_waits_is_bounded_by_holding_all_back_who_may_send_to_the_disk(
    stepped: Stepped,
) -> None:
    send(stepped, "x")
    fill(stepped)
    other = stepped.session()
    stepped.session().send(texts(Q, ["x" * MOST_WAITING]))
    assert not other.writable()
    resumed: list[int] = []
    other.on_writable(lambda: resumed.append(1))
    stepped.run_until_idle()
    assert resumed == []
    inbox = stepped.receive(stepped.session(Mode.AUTO), Q)
    assert (len(inbox.messages), other.writable(), resumed) == (1, True, [1])


def test_who_sends_nothing_to_the_disk_is_not_held_back_by_what_waits_for_it(
    stepped: Stepped,
) -> None:
    stepped.session().send(texts(OUT, ["x" * (MOST_WAITING + 1)]))
    other = stepped.session()
    other.send(texts(Q, ["passing"], persistent=False))
    assert other.writable()
    resumed: list[int] = []
    other.on_writable(lambda: resumed.append(1))
    stepped.run_reactor()
    assert resumed == [1]
    other.send(texts(Q, ["kept"]))
    assert not other.writable()
    stepped.run_until_idle()
    assert other.writable()


def test_what_could_never_fit_is_refused_before_it_is_taken(stepped: Stepped) -> None:
    stepped.store.largest = 1_000
    session, transacted = stepped.session(), stepped.session(Mode.TRANSACTED)
    with pytest.raises(MessageRejected) as refused:
        session.send(texts(Q, ["small", "x" * 1_000]))
    assert refused.value.index == 1
    assert isinstance(refused.value.cause, StorageFailed)
    assert "more than the disk can hold, which is 1000" in refused.value.cause.told(str)
    session.send(texts(Q, ["x" * 1_000], persistent=False))
    transacted.send(texts(Q, ["x" * 400] * 3))
    over = stepped.commit(transacted)
    assert isinstance(over.results[0], StorageFailed)
    assert stepped.broker.queue(Q).count == 1


def test_messages_that_memory_has_no_room_for_wait_in_order_with_the_others(
    tmp_path: Path,
) -> None:
    memory = Memory(total=20 * OVERHEAD, share=4 * OVERHEAD, least=OVERHEAD)
    stepped = Stepped(tmp_path, memory=memory)
    session = stepped.session()
    for number in range(10):
        session.send(texts(Q, [number], persistent=number % 3 == 0))
    fill(stepped)
    for number in range(10, 15):
        session.send(texts(Q, [number], persistent=number % 3 == 0))
    inbox = stepped.receive(stepped.session(), Q)
    assert inbox.texts == [str(number) for number in range(15)]
    inbox.consumer.acknowledge_through(15)
    make_room(stepped)
    assert (stepped.empty, memory.used) == (True, 0)


def test_only_what_could_be_spilled_holds_senders_back_when_memory_is_full(tmp_path: Path) -> None:
    memory = Memory(total=4 * OVERHEAD, share=2 * OVERHEAD, least=OVERHEAD, most=8 * OVERHEAD)
    stepped = Stepped(tmp_path, memory=memory)
    stepped.store.fill()
    session = stepped.session()
    sent = 0
    while session.writable():
        session.send(texts(Q, [sent], persistent=False))
        sent += 1
        assert sent < 100, "memory is not bounded"
    stepped.store.make_room()
    assert session.writable()


# --- acknowledgements


def test_acknowledgements_in_a_batch_that_does_not_fit_go_ahead(
    stepped: Stepped, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "a", "b", "c")
    inbox.consumer.acknowledge([1])
    first = told(individual)
    sent = send(stepped, "too much")
    stepped.run_reactor()
    inbox.consumer.acknowledge([2])
    second, later = told(individual), send(stepped, "more")
    fill(stepped)
    inbox.consumer.acknowledge([3])
    third = stepped.complete(individual)
    assert [one.well for one in (first, second, third)] == [True] * 3
    assert (stepped.bodies, sent.results, later.results) == ([], [], [])
    make_room(stepped)
    assert (stepped.bodies, sent.well, later.well) == (["too much", "more"], True, True)


def test_one_session_is_told_in_order_although_its_acknowledgement_is_done(
    stepped: Stepped, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "in")
    individual.send(texts(OUT, ["out"]))
    fill(stepped)
    inbox.consumer.acknowledge([1])
    both = stepped.complete(individual)
    assert (stepped.bodies, both.results) == ([], [])
    make_room(stepped)
    assert (stepped.bodies, both.well) == (["out"], True)


def test_without_any_room_acknowledgements_are_tried_again_once_a_second(
    stepped: Stepped, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "a")
    inbox.consumer.acknowledge([1])
    done, tries = told(individual), 0
    stepped.run_reactor()
    for _ in range(10):
        while stepped.store.busy:
            stepped.store.step(no_room=True)
            stepped.run_reactor()
            tries += 1
        stepped.clock.advance(RETRY)
        stepped.run_reactor()
    assert (done.results, tries) == ([], 10)
    stepped.run_until_idle()
    assert (done.well, stepped.empty) == (True, True)


@pytest.mark.parametrize("no_room", [False, True])
def test_what_was_acknowledged_is_written_before_the_end_or_the_exit_tells(
    stepped: Stepped, no_room: bool, session: Session
) -> None:
    inbox = outstanding(stepped, session, "a", "b")
    inbox.consumer.acknowledge_through(2)
    send(stepped, "never confirmed")
    fill_now = stepped.store.step
    ended: list[bool] = []
    stepped.broker.close(lambda: ended.append(True))
    stepped.run_reactor()
    fill_now(full=True)
    for _ in range(20):
        stepped.run_reactor()
        if not stepped.store.busy:
            break
        assert not ended
        stepped.store.step(no_room=no_room)
    assert ended == [True]
    assert stepped.bodies == (["a", "b"] if no_room else [])
    assert ["is delivered again after the next start" in str(one) for one in stepped.failures] == (
        [True] if no_room else []
    ), "a send that was not confirmed is no failure"


# --- what belongs together


@pytest.mark.parametrize("then", ["crash", "room", "close"])
def test_a_transaction_waits_as_a_whole(
    stepped: Stepped, then: str, connection: Connection
) -> None:
    session, transacted = connection.session(Mode.INDIVIDUAL), connection.session(Mode.TRANSACTED)
    inbox = outstanding(stepped, session, "in", "other")
    inbox.consumer.acknowledge([1], within=transacted)
    transacted.send(texts(OUT, ["out"]))
    done = committed(transacted)
    stepped.run_reactor()
    if then == "close":
        session.close()
        transacted.close()
    fill(stepped)
    assert (stepped.bodies, done.results) == (["in", "other"], [])
    assert stepped.broker.queue(OUT).count == 0, "delivered after the commit"
    if then == "crash":
        stepped.restart()
    else:
        make_room(stepped)
        assert (done.well, stepped.bodies) == (True, ["other", "out"])
    if then != "room":
        assert waiting(stepped, Q) == (["in", "other"] if then == "crash" else ["other"])
    assert waiting(stepped, OUT) == ([] if then == "crash" else ["out"])


def test_a_transaction_that_only_acknowledges_goes_ahead(
    stepped: Stepped, transacted: Session
) -> None:
    inbox = outstanding(stepped, transacted, "in", "more")
    inbox.consumer.acknowledge_through(1)
    done = [committed(transacted)]
    sent = send(stepped, "too much")
    fill(stepped)
    inbox.consumer.acknowledge_through(2)
    done.append(committed(transacted))
    stepped.run_until_idle()
    assert ([one.well for one in done], stepped.bodies, sent.results) == ([True, True], [], [])


@pytest.mark.parametrize("then", ["crash", "room"])
def test_a_transaction_that_takes_what_waits_for_room(
    stepped: Stepped, then: str, transacted: Session
) -> None:
    inbox = stepped.consume(transacted, Q)
    sent = send(stepped, "in", destination=Q)
    fill(stepped)
    inbox.consumer.acknowledge_through(1)
    transacted.send(texts(OUT, ["out"]))
    done = stepped.commit(transacted)
    assert (done.results, sent.results) == ([], [])
    if then == "crash":
        stepped.restart()
        assert (waiting(stepped, Q), waiting(stepped, OUT)) == ([], [])
    else:
        make_room(stepped)
        assert (done.well, sent.well, stepped.bodies) == (True, True, ["out"])


def test_one_durable_subscription_takes_in_a_transaction_what_another_takes_without(
    stepped: Stepped,
) -> None:
    connection = stepped.connect("me")
    transacted, session = connection.session(Mode.TRANSACTED), connection.session(Mode.INDIVIDUAL)
    one = stepped.consume(session, T, durable_name="one")
    two = outstanding(stepped, session, "x", destination=T, durable_name="two")
    one.consumer.acknowledge([1], within=transacted)
    transacted.send(texts(OUT, ["out"]))
    done = committed(transacted)
    stepped.run_reactor()
    two.consumer.acknowledge([1])
    fill(stepped)
    assert (stepped.bodies, len(stepped.disk.owed), done.results) == (["x"], 1, [])
    make_room(stepped)
    assert (stepped.bodies, stepped.disk.owed, done.well) == (["out"], set(), True)


def test_new_places_go_ahead_of_the_messages_that_wait(stepped: Stepped) -> None:
    told_of: list[object] = []
    sent = send(stepped, "x", destination=T)
    session = stepped.connect("a").session(Mode.CLIENT)
    stepped.consume(session, T, durable_name="d")
    subscribed = told(session)
    more = send(stepped, "owed", destination=T)
    administration(stepped).create("queue", "made", {"maxNumMsgs": "3"}).addCallback(told_of.append)
    fill(stepped)
    assert (subscribed.well, told_of, sent.well, more.results) == (True, [[]], True, [])
    stepped.restart()
    assert administration(stepped).destination("queue", "made").properties["maxNumMsgs"] == 3
    assert len(stepped.broker.durables) == 1


# --- the dead


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("then", ["taken", "crash", "room"])
def test_a_dead_message_stays_until_its_copy_is_stored(
    stepped: Stepped, durable: bool, then: str
) -> None:
    place, name = (T, "d") if durable else (Q, None)
    session = stepped.connect("me").session(Mode.INDIVIDUAL)
    inbox = outstanding(stepped, session, "x", destination=place, durable_name=name)
    inbox.consumer.reject([1], dead=DeadReason.ERROR)
    rejected = told(session)
    fill(stepped)
    assert stepped.bodies == ["x"]
    if then == "crash":
        stepped.restart()
        again = stepped.receive(
            stepped.connect("me").session(Mode.CLIENT), place, durable_name=name
        )
        assert again.texts == ["x"]
        return
    if then == "room":
        make_room(stepped)
    dead = stepped.receive(stepped.session(Mode.INDIVIDUAL), DMQ)
    assert (dead.texts, stepped.bodies) == (["x"], ["x"])
    stepped.acknowledge(dead, [1])
    assert (rejected.well, stepped.empty) == (True, True)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_how_often_a_dead_message_was_tried_is_known_until_its_copy_is_stored(
    stepped: Stepped, durable: bool, before: bool
) -> None:
    place, name = (T, "d") if durable else (Q, None)
    session = stepped.connect("me").session(Mode.INDIVIDUAL)
    inbox = outstanding(stepped, session, "x", destination=place, durable_name=name)
    if before:
        stepped.store.fill()
        send(stepped, "finds no room")
        stepped.run_until_idle()
    inbox.consumer.reject([1], 0)
    for _ in range(5):
        stepped.clock.advance(0)
    assert inbox.attempts == [1, 2]
    inbox.consumer.reject([2], dead=DeadReason.ERROR)
    told(session)
    fill(stepped)
    stepped.restart()
    again = stepped.receive(stepped.connect("me").session(Mode.CLIENT), place, durable_name=name)
    assert again.attempts == [2]


def test_no_count_of_tries_stays_of_what_one_subscriber_took_while_it_had_no_room(
    stepped: Stepped,
) -> None:
    sessions = [stepped.connect(client).session(Mode.INDIVIDUAL) for client in ("a", "b")]
    first, _ = [stepped.consume(session, T, durable_name="d") for session in sessions]
    stepped.run_until_idle()
    send(stepped, "x", destination=T)
    stepped.run_reactor()
    first.consumer.reject([1], 0)
    for _ in range(5):
        stepped.clock.advance(0)
    assert first.attempts == [1, 2]
    first.consumer.acknowledge([2])
    fill(stepped)
    make_room(stepped)
    assert (len(stepped.disk.owed), stepped.disk.redeliveries) == (1, {})


@pytest.mark.parametrize("use_dmq", [False, True])
@pytest.mark.parametrize("then", ["crash", "room"])
def test_a_queue_that_is_destroyed_stays_until_its_dead_are_stored(
    stepped: Stepped, use_dmq: bool, then: str, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "dead", *(["waits"] if use_dmq else []))
    if use_dmq:
        individual.close()
        stepped.store.fill()
    else:
        inbox.consumer.reject([1], dead=DeadReason.ERROR)
        fill(stepped)
    answers: list[object] = []
    administration(stepped).destroy("queue", "q", use_dmq=use_dmq).addBoth(answers.append)
    stepped.later(1, times=5)
    assert (len(stepped.bodies), answers) == (2 if use_dmq else 1, [])
    if then == "crash":
        stepped.restart()
        assert stepped.broker.queue(Q).count == (2 if use_dmq else 1)
        return
    for _ in range(5):
        make_room(stepped)
        stepped.later(1)
    assert answers == [None]
    assert [row.name for row in stepped.disk.destinations.values()] == [DMQ.name]
    stepped.restart()
    assert stepped.broker.queue(DMQ).count == (2 if use_dmq else 1)


@pytest.mark.parametrize("pattern", ["t", "*"])
def test_a_durable_subscription_that_goes_stays_until_its_dead_are_stored(
    stepped: Stepped, pattern: str
) -> None:
    connection = stepped.connect("me")
    stepped.consume(
        connection.session(Mode.CLIENT), Topic(pattern), durable_name="d"
    ).consumer.close()
    stepped.send(texts(T, ["x"]))
    stepped.store.fill()
    answers: list[object] = []
    connection.unsubscribe("d").addBoth(answers.append)
    stepped.later(1)
    assert (stepped.bodies, answers) == (["x"], [])
    assert (len(stepped.disk.subscriptions), len(stepped.disk.owed)) == (1, 1)
    make_room(stepped)
    assert (answers, stepped.disk.subscriptions) == ([None], {})
    stepped.restart()
    assert stepped.broker.queue(DMQ).count == 1


def test_a_queue_is_reaped_once_its_dead_are_stored(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=120))
    inbox = outstanding(stepped, stepped.session(Mode.INDIVIDUAL), "x")
    inbox.consumer.reject([1], dead=DeadReason.ERROR)
    inbox.consumer.close()
    fill(stepped)
    stepped.later(1, times=130)
    assert (stepped.bodies, len(stepped.disk.destinations)) == (["x"], 2)
    make_room(stepped)
    assert [row.name for row in stepped.disk.destinations.values()] == [DMQ.name]
    stepped.restart()
    assert stepped.broker.queue(DMQ).count == 1


# --- duplicate ids


@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.TRANSACTED])
@pytest.mark.parametrize("known", [False, True])
def test_who_repeats_what_waits_for_room_waits_too(
    stepped: Stepped, mode: Mode, known: bool
) -> None:
    first, second = stepped.session(), stepped.session(mode)
    first.send([bearing("a")])
    outcomes = [told(first)]
    if known:
        fill(stepped)
    second.send([bearing("a")])
    outcomes.append(committed(second) if mode is Mode.TRANSACTED else told(second))
    if not known:
        fill(stepped)
    stepped.run_until_idle()
    assert [one.results for one in outcomes] == [[], []]
    make_room(stepped)
    assert all(one.well for one in outcomes)
    assert stepped.bodies == ["a"]
    third = stepped.session()
    third.send([bearing("a")])
    stepped.run_until_idle()
    assert stepped.bodies == ["a"]


# --- branches


def ask(asked: Any) -> Told:
    outcome = Told()
    asked.addCallbacks(lambda _: outcome(None), lambda failure: outcome(failure.value))
    return outcome


@pytest.mark.parametrize("how", ["prepare", "commit"])
def test_a_branch_that_was_asked_for_before_waits(
    stepped: Stepped, how: str, xa: Branching
) -> None:
    outstanding(stepped, stepped.session(), "elsewhere", destination=OUT)
    xa.sends(xid(1), Q, ["x"])
    asked = ask(
        xa.resource.prepare(xid(1)) if how == "prepare" else xa.resource.commit(xid(1), True)
    )
    fill(stepped)
    assert (asked.results, stepped.disk.branches, waiting(stepped, Q)) == ([], {}, [])
    make_room(stepped)
    assert asked.well
    if how == "prepare":
        assert len(stepped.disk.branches) == 1
        xa.commit(xid(1))
    assert waiting(stepped, Q) == ["x"]


def test_while_the_disk_is_full_a_branch_that_sends_is_not_prepared(
    stepped: Stepped, xa: Branching
) -> None:
    stepped.store.fill()
    xa.sends(xid(1), Q, ["x"])
    refused = ask(xa.resource.prepare(xid(1)))
    stepped.run_until_idle()
    (error,) = refused.results
    assert isinstance(error, XAError)
    assert error.code == RBROLLBACK
    assert "the disk is full" in str(error)
    assert xa.recover() == []
    xa.sends(xid(2), Q, ["y"])
    at_once = ask(xa.resource.commit(xid(2), True))
    stepped.run_until_idle()
    assert at_once.results == []
    make_room(stepped)
    assert at_once.well
    assert waiting(stepped, Q) == ["y"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_branch_ends_although_the_disk_is_full(stepped: Stepped, commit: bool) -> None:
    durable = stepped.consume(stepped.session(client_id="c"), T, durable_name="d")
    xa = Branching(stepped)
    stepped.session().send(texts(OUT, ["0", "1"]))
    inbox = xa.consume(OUT)
    xa.takes(xid(1), inbox, 2)
    xa.session.send(texts(Q, ["held"]) + texts(T, ["owed"]))
    xa.end_and_prepare(xid(1))
    asked = ask(xa.resource.commit(xid(1), False) if commit else xa.resource.rollback(xid(1)))
    sent = send(stepped, "too much", destination=Queue("elsewhere"))
    fill(stepped)
    assert (asked.well, sent.results, stepped.disk.branches) == (True, [], {})
    assert len(stepped.disk.owed) == commit
    assert durable.texts == (["owed"] if commit else [])
    stepped.restart()
    assert waiting(stepped, Q) == (["held"] if commit else [])
    assert waiting(stepped, OUT) == ([] if commit else ["0", "1"])


# --- the journal


def test_the_journal_is_told_when_it_is_durable(stepped: Stepped) -> None:
    journal = record(stepped)
    session = stepped.session()
    messages = texts(Q, "ab")
    session.send(messages)
    session.completion(Told())
    fill(stepped)
    assert journal.steps == each(messages, "produced")
    make_room(stepped)
    assert journal.steps == each(messages, "produced", "stored", "confirmed")


def test_the_journal_is_told_that_the_dead_are_gone_when_their_copies_are_stored(
    stepped: Stepped, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "x")
    stepped.store.fill()
    journal = record(stepped)
    stepped.reject(inbox, [1], dead=DeadReason.ERROR)
    assert journal.steps == each(inbox.messages, "returned", "dead")
    make_room(stepped)
    assert journal.steps == each(inbox.messages, "returned", "dead", "stored", "deleted")


def test_a_receipt_after_an_acknowledgement_waits_for_what_was_sent_before_it(
    stepped: Stepped, individual: Session
) -> None:
    """SEND without a receipt is on its way to the disk, ACK gathers, and a receipt is asked for."""
    inbox = outstanding(stepped, individual, "in")
    individual.send(texts(OUT, ["out"]))
    stepped.run_reactor()
    inbox.consumer.acknowledge([1])
    both = told(individual)
    fill(stepped)
    assert (stepped.bodies, both.results) == ([], [])
    stepped.restart()
    assert waiting(stepped, OUT) == []


def test_an_acknowledgement_in_a_batch_without_room_is_not_confirmed_before_it_is_durable(
    stepped: Stepped, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "in")
    inbox.consumer.acknowledge([1])
    send(stepped, "too much")
    stepped.run_reactor()
    stepped.store.step(full=True)
    later = told(individual)
    stepped.run_reactor()
    assert (stepped.bodies, later.results) == (["in"], [])
    stepped.run_until_idle()
    assert (stepped.bodies, later.well) == ([], True)


def test_a_branch_that_repeats_what_waits_for_room_does_not_become_prepared(
    stepped: Stepped,
) -> None:
    first = stepped.session()
    first.send([bearing("a")])
    original = told(first)
    fill(stepped)
    xa = Branching(stepped)
    xa.start(xid(1))
    xa.session.send([bearing("a")])
    xa.end(xid(1))
    asked = ask(xa.resource.prepare(xid(1)))
    stepped.run_until_idle()
    assert original.results == []
    assert not asked.well, "its message is nowhere"


def test_who_takes_the_copy_of_a_dead_message_is_told_when_the_original_is_gone(
    stepped: Stepped, individual: Session
) -> None:
    inbox = outstanding(stepped, individual, "x")
    send(stepped, "too much")
    fill(stepped)
    inbox.consumer.reject([1], dead=DeadReason.ERROR)
    dead_session = stepped.session(Mode.INDIVIDUAL)
    dead = stepped.receive(dead_session, DMQ)
    assert dead.texts == ["x"]
    dead.consumer.acknowledge([1])
    taken = stepped.complete(dead_session)
    confirmed = taken.well
    stepped.restart()
    assert not (confirmed and waiting(stepped, Q)), "it is delivered again, and will die again"


def test_a_branch_that_sends_to_a_temporary_queue_needs_no_room(
    stepped: Stepped, xa: Branching
) -> None:
    reply = xa.connection.temporary(Kind.QUEUE)
    stepped.store.fill()
    xa.sends(xid(1), reply, ["x"])
    asked = ask(xa.resource.prepare(xid(1)))
    stepped.run_until_idle()
    assert asked.well
