"""What a broker finds in its store when it is opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.broker.arrivals.numbering import RESERVE
from gateway.broker.core.destinations.purging import purge
from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.durability.batch import REMOVED
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.store.interface import (
    DestinationRow,
    RedeliveryRow,
    StoreDamaged,
    StoreError,
    SubscriptionRow,
)
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.provider import Connection, Mode, Session
from gateway.messaging.redelivery import RedeliveryChanges
from tests.gateway.broker.brokers import text
from tests.gateway.broker.step_store import Disk
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

Q = Queue("q")


def test_order_and_priorities_are_as_they_were(stepped: Stepped) -> None:
    stepped.send_each(
        [text(Q, str(number), priority=(4, 9, 0)[number % 3]) for number in range(30)]
    )
    stepped.restart(Memory(total=20 * OVERHEAD, share=5 * OVERHEAD, least=OVERHEAD))
    queue = stepped.broker.queue(Q)
    assert (queue.count, queue.dispatch.backlog.waiting, stepped.broker.memory.used) == (
        30,
        30,
        0,
    ), "nothing is read before it is wanted"
    inbox = stepped.receive(stepped.session(), Q)
    expected = [
        number for remainder in (1, 0, 2) for number in range(30) if number % 3 == remainder
    ]
    assert [int(body) for body in inbox.texts] == expected
    assert queue.octets == sum(message.size for message in inbox.messages)


def test_messages_are_what_they_were(stepped: Stepped, session: Session) -> None:
    sent = texts(
        Q,
        ["body"],
        properties={"x": "y"},
        correlation_id="c",
        type="t",
        reply_to=Topic("a"),
        extras=(("x-e", "1"),),
        priority=6,
    )
    sent[0].expires = stepped.now_ms + 10**6
    stepped.send(sent, session)
    stepped.restart()
    inbox = stepped.receive(stepped.session(), Q)
    (found,) = inbox.messages
    assert found.headers == sent[0].headers
    for name in ("body", "expires", "timestamp", "message_id", "seq", "size", "user"):
        assert getattr(found, name) == getattr(sent[0], name)


def test_what_was_not_persistent_is_gone_and_so_are_its_destinations_numbers_not(
    stepped: Stepped,
) -> None:
    small = Memory(total=4 * OVERHEAD, share=2 * OVERHEAD, least=OVERHEAD)
    stepped.restart(small)
    session = stepped.session()
    session.send(texts(Q, range(20), persistent=False))
    stepped.send(texts(Q, range(20, 40), persistent=False), session)
    assert stepped.disk.rows
    stepped.restart()
    assert stepped.broker.queue(Q).count == 0
    stepped.run_until_idle()
    assert stepped.disk.rows == {}


def test_tries_and_pauses_go_on(stepped: Stepped, individual: Session) -> None:
    policy = RedeliveryChanges(initial_redelivery_delay=50_000, back_off_multiplier=1.0)
    inbox = stepped.consume(individual, Q, redelivery=policy)
    stepped.send(texts(Q, ["paused", "given back", "fresh"]), individual)
    inbox.consumer.reject([1])
    stepped.reject(inbox, [2], delay_ms=0)
    assert inbox.texts[-1] == "given back"
    stepped.later(20)
    stepped.restart()
    inbox = stepped.receive(stepped.session(), Q)
    assert inbox.texts == ["given back", "fresh"]
    assert inbox.attempts == [2, 1], "what was outstanding when the process died was not counted"
    queue = stepped.broker.queue(Q)
    assert (queue.count, len(queue.dispatch.backlog.resting)) == (3, 1)
    stepped.later(29)
    assert len(inbox.messages) == 2
    stepped.later(2)
    assert (inbox.texts, inbox.attempts) == (["given back", "fresh", "paused"], [2, 1, 2])
    stepped.acknowledge_through(inbox, 3)
    assert stepped.empty


def test_a_purge_during_a_pause_from_before_the_restart_is_the_end_of_it(
    stepped: Stepped, individual: Session
) -> None:
    inbox = stepped.consume(individual, Q)
    stepped.send(texts(Q, ["paused"]), individual)
    stepped.reject(inbox, [1], delay_ms=50_000)
    stepped.restart()
    assert purge(stepped.broker.queue(Q), lambda count: None) == 1
    inbox = stepped.consume(stepped.session(), Q)
    stepped.later(60)
    assert (inbox.messages, stepped.empty) == ([], True)
    assert (stepped.broker.queue(Q).count, stepped.broker.queue(Q).octets) == (0, 0)


def test_a_paused_message_that_cannot_be_read_does_not_count_any_more(
    stepped: Stepped, individual: Session
) -> None:
    inbox = stepped.consume(individual, Q)
    stepped.send(texts(Q, ["paused"]), individual)
    stepped.reject(inbox, [1], delay_ms=50_000)
    stepped.restart()
    stepped.disk.rows.clear()
    stepped.later(60)
    assert (stepped.broker.queue(Q).count, stepped.broker.queue(Q).octets) == (0, 0)


def test_what_expires_in_the_store_only_is_given_up(stepped: Stepped, session: Session) -> None:
    session.send(texts(Q, range(0, 1_000), expires=stepped.now_ms + 30_000))
    session.send(texts(Q, range(1_000, 1_010)))
    stepped.send(texts(Q, range(1_010, 1_020), expires=stepped.now_ms + 10**7), session)
    stepped.restart()
    stepped.later(61)
    queue = stepped.broker.queue(Q)
    assert (
        queue.count,
        queue.dispatch.backlog.waiting,
        queue.dispatch.backlog.expiring,
        queue.dispatch.being_buried,
    ) == (
        20,
        20,
        10,
        0,
    )
    dead = stepped.receive(stepped.session(), Queue("mq.sys.dmq"), credit=2_000)
    assert sorted(int(body) for body in dead.texts) == list(range(1_000))
    assert {
        message.headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"] for message in dead.messages
    } == {"EXPIRED"}


def test_a_seq_is_never_used_again(stepped: Stepped) -> None:
    used: set[int] = set()
    for _ in range(3):
        session = stepped.session()
        inbox = stepped.consume(session, Q)
        stepped.send(texts(Q, range(3), persistent=False) + texts(Q, range(3)), session)
        seqs = {message.seq for message in inbox.messages if message.seq not in used}
        assert len(seqs) >= 6
        used |= seqs
        assert stepped.disk.next_seq > max(used)
        stepped.acknowledge_through(inbox, len(inbox.messages))
        stepped.restart()


def test_seqs_are_reserved_ahead_of_their_use(stepped: Stepped, session: Session) -> None:
    stepped.run_until_idle()
    stepped.broker.numbering.last = stepped.disk.next_seq - RESERVE // 2
    stepped.send(texts(Q, ["x"]), session)
    assert stepped.disk.next_seq > stepped.broker.numbering.last + RESERVE // 2


def test_what_belongs_to_nothing_is_removed(stepped: Stepped, session: Session) -> None:
    connection = stepped.connect("me")
    stepped.consume(connection.session(Mode.CLIENT), Topic("t"), durable_name="d")
    stepped.send(texts(Topic("t"), ["owed"]) + texts(Q, ["waits"]), session)
    disk = stepped.disk
    (owed_seq,) = {seq for _, seq in disk.owed}
    (queue_seq,) = disk.rows.keys() - {owed_seq}
    (number,) = disk.subscriptions
    # A message of a destination that was being removed, one that nobody is owed, and counts about
    # what is not there.
    disk.destinations[99] = DestinationRow(99, 0, "q", "", REMOVED)
    disk.rows[101] = disk.rows[queue_seq]._replace(seq=101, destination=99)
    disk.rows[102] = disk.rows[owed_seq]._replace(seq=102)
    disk.redeliveries = {
        (0, 104): RedeliveryRow(0, 104, 1, 0),
        (77, owed_seq): RedeliveryRow(77, owed_seq, 1, 0),
        (0, queue_seq): RedeliveryRow(0, queue_seq, 4, 0),
    }
    disk.next_seq = 1_000
    stepped.restart()
    stepped.run_until_idle()
    assert disk.rows.keys() == {owed_seq, queue_seq}
    assert 99 not in disk.destinations
    assert (disk.owed, set(disk.redeliveries)) == ({(number, owed_seq)}, {(0, queue_seq)})
    inbox = stepped.receive(stepped.session(), Q)
    assert (inbox.texts, inbox.attempts) == (["waits"], [5])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda disk: disk.destinations.pop(1), "message 2: its destination, row 1, is missing"),
        (lambda disk: disk.destinations.pop(2), "subscription 3: its topic, row 2, is missing"),
        (
            lambda disk: disk.subscriptions.clear(),
            "owed row of message 1: its subscription, row 3, is missing",
        ),
        (
            lambda disk: disk.rows.pop(1),
            "owed row of message 1: subscription 3 is owed it, and no topic has it",
        ),
        (
            lambda disk: disk.owed.add((3, 2)),
            "owed row of message 2: subscription 3 is owed it, and no topic has it",
        ),
    ],
)
def test_rows_that_name_what_is_missing_are_refused_and_stay(
    stepped: Stepped, spoil: Callable[[Disk], object], sentence: str
) -> None:
    stepped.broker.queue(Q)
    connection = stepped.connect("me")
    stepped.consume(connection.session(Mode.CLIENT), Topic("t"), durable_name="d")
    stepped.send(texts(Topic("t"), ["owed"]) + texts(Q, ["waits"]))
    spoil(stepped.disk)
    rows = dict(stepped.disk.rows)
    with pytest.raises(StoreDamaged, match=sentence):
        stepped.restart()
    assert stepped.disk.rows == rows


def test_a_queue_that_was_being_removed_is_removed_after_a_crash(stepped: Stepped) -> None:
    """Its messages are deleted slice by slice, so a crash leaves some of them."""
    stepped.send(texts(Q, range(2_000)))
    stepped.broker.remove(stepped.broker.queue(Q))
    stepped.run_reactor()
    stepped.store.step()
    assert len(stepped.disk.rows) > 0
    stepped.restart()
    stepped.run_until_idle()
    assert (stepped.disk.rows, stepped.disk.destinations) == ({}, {})
    assert stepped.broker.find(Q) is None


def test_the_properties_that_a_destination_was_given_outlive_the_settings(tmp_path: Path) -> None:
    given = DestinationProperties(max_num_msgs=7, limit_behavior=LimitBehavior.REMOVE_OLDEST)
    stepped = Stepped(tmp_path, BrokerOptions(destinations=((Q, given),)))
    stepped.send(texts(Q, ["x"]))
    stepped.options = BrokerOptions()
    stepped.restart()
    assert stepped.broker.queue(Q).properties == given
    assert not stepped.broker.queue(Q).auto_created
    changed = DestinationProperties(max_num_msgs=8)
    stepped.options = BrokerOptions(destinations=((Q, changed),))
    stepped.restart()
    assert stepped.broker.queue(Q).properties == changed


def test_an_empty_auto_created_destination_is_reaped_after_a_restart(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    session = stepped.session()
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["x"]), session)
    stepped.acknowledge_through(inbox, 1)
    stepped.restart()
    assert Q in stepped.broker.destinations
    stepped.later(11)
    assert Q not in stepped.broker.destinations
    assert stepped.disk.destinations == {}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            DestinationRow(1, 0, "q", "maxNumMsgs=many"),
            "queue:q with properties that cannot be read: 'maxNumMsgs=many'",
        ),
        (
            SubscriptionRow(9, 1234, "me", "d", "", 0),
            "subscription 9: its topic, row 1234, is missing: 'd' of client-id 'me'",
        ),
        (
            SubscriptionRow(9, 1, "me", "d", "x =", 0),
            "durable subscription 'd' of client-id 'me'.*selector 'x =' is invalid",
        ),
    ],
)
def test_rows_that_make_no_sense_are_refused_by_name(
    stepped: Stepped, spoil: DestinationRow | SubscriptionRow, sentence: str
) -> None:
    stepped.disk.destinations[1] = DestinationRow(1, 1, "t", "")
    if isinstance(spoil, DestinationRow):
        stepped.disk.destinations[1] = spoil
    else:
        stepped.disk.subscriptions[9] = spoil
    with pytest.raises(StoreError, match=sentence):
        stepped.restart()


def test_what_was_being_committed_when_the_process_died_is_there_whole_or_not_at_all(
    stepped: Stepped, connection: Connection
) -> None:
    session, transacted = connection.session(Mode.CLIENT), connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["taken"]), session)
    told = Told()
    inbox.consumer.acknowledge([1], within=transacted)
    transacted.send(texts(Queue("out"), ["made"]))
    transacted.commit(told)
    stepped.run_reactor()
    before = stepped.bodies
    stepped.store.step()
    assert (before, stepped.bodies) == (["taken"], ["made"])
