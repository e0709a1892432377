"""Sessions: who is told what and in which order, transactions whose commit fails, and senders who
are held back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.core.destinations.purging import purge
from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Kind, Queue
from gateway.messaging.errors import (
    DestinationFull,
    InvalidDestination,
    MessageRejected,
    MessagingError,
    ProviderUnavailable,
    StorageFailed,
    TransactionTooLarge,
    UnknownDelivery,
)
from gateway.messaging.provider import Connection, Mode, Session
from tests.gateway.broker.stepped_broker import Stepped, Told, texts

Q, OUT, LIMITED = Queue("q"), Queue("out"), Queue("limited")


def limited(folder: Path, behavior: LimitBehavior, most: int = 3) -> Stepped:
    properties = DestinationProperties(max_num_msgs=most, limit_behavior=behavior)
    return Stepped(folder, BrokerOptions(reap_time=0, destinations=((LIMITED, properties),)))


# --- transactions


def take_and_send(stepped: Stepped) -> tuple[Session, Session, object]:
    """A transaction that has taken one message of another session's consumer, and sends one."""
    connection = stepped.connect()
    session, transacted = connection.session(Mode.INDIVIDUAL), connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["in", "other"]))
    inbox.consumer.acknowledge([1], within=transacted)
    transacted.send(texts(OUT, ["out"]))
    return session, transacted, inbox


def test_many_arrivals_behind_a_commit_are_not_moved_one_by_one(stepped: Stepped) -> None:
    transacted, plain = stepped.session(Mode.TRANSACTED), stepped.session()
    transacted.send(texts(Q, ["first"]))
    transacted.commit(Told())
    for number in range(3_000):
        plain.send(texts(Q, [number], persistent=False))
    queue = stepped.broker.queue(Q)
    assert (queue.coming, queue.count) == (3_001, 0)
    stepped.run_until_idle()
    assert (queue.coming, queue.coming_octets, queue.count) == (0, 0, 3_001)
    inbox = stepped.receive(plain, Q, credit=4_000)
    assert inbox.texts == ["first", *(str(number) for number in range(3_000))]


def test_a_transaction_takes_no_more_of_others_acknowledgements_than_it_may_have(
    tmp_path: Path,
) -> None:
    """Nothing else bounds them: they make room for other deliveries at once."""
    stepped = Stepped(tmp_path, BrokerOptions(transaction_acknowledgements=2))
    connection = stepped.connect()
    transacted = connection.session(Mode.TRANSACTED)
    session = connection.session(Mode.INDIVIDUAL)
    session.send(texts(Q, range(5)))
    inbox = stepped.receive(session, Q)
    inbox.consumer.acknowledge([1], transacted)
    inbox.consumer.reject([2], within=transacted)
    with pytest.raises(TransactionTooLarge, match=r"imq\.transaction\.consumer\.maxNumMsgs is 2"):
        inbox.consumer.acknowledge([3], transacted)
    stepped.close(connection)
    again = stepped.receive(stepped.session(), Q)
    assert again.texts == ["0", "1", "2", "3", "4"]


def test_a_transaction_that_is_too_large_is_rolled_back(tmp_path: Path) -> None:
    stepped = Stepped(
        tmp_path,
        BrokerOptions(
            transaction_messages=3, transaction_octets=10_000, transaction_acknowledgements=2
        ),
    )
    transacted = stepped.session(Mode.TRANSACTED)
    transacted.send(texts(Q, range(3)))
    for run in (texts(Q, ["4"]), texts(Q, ["x" * 10_000])):
        with pytest.raises(MessageRejected) as refused:
            transacted.send(run)
        assert isinstance(refused.value.cause, TransactionTooLarge)
    assert stepped.commit(transacted).well
    inbox = stepped.receive(transacted, Q)
    inbox.consumer.acknowledge_through(3)
    too_many = stepped.commit(transacted)
    assert isinstance(too_many.results[0], TransactionTooLarge)
    assert inbox.attempts == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("options", "bodies", "first"),
    [
        (BrokerOptions(transaction_messages=3), ["", "", "", "", ""], 2),
        (BrokerOptions(transaction_octets=1_000), ["x" * 600, "x" * 900, ""], 1),
        (BrokerOptions(transaction_messages=3, transaction_octets=1_000), ["", "", "x" * 2_000], 2),
    ],
)
def test_the_first_message_that_is_too_much_for_a_transaction_is_told(
    tmp_path: Path, options: BrokerOptions, bodies: list[str], first: int
) -> None:
    stepped = Stepped(tmp_path, options)
    transacted = stepped.session(Mode.TRANSACTED)
    transacted.send(texts(Q, ["0"]))
    with pytest.raises(MessageRejected) as refused:
        transacted.send(texts(Q, bodies))
    assert isinstance(refused.value.cause, TransactionTooLarge)
    assert refused.value.index == first
    transacted.send(texts(Q, bodies[:first]))
    assert stepped.commit(transacted).well
    assert stepped.receive(stepped.session(), Q).texts == ["0", *bodies[:first]]


def test_rejections_in_a_transaction_take_effect_with_its_commit(
    stepped: Stepped, transacted: Session
) -> None:
    inbox = stepped.consume(transacted, Q)
    stepped.send(texts(Q, ["dead", "again", "taken"]))
    inbox.consumer.reject([1], dead=DeadReason.ERROR)
    inbox.consumer.reject([2], delay_ms=0)
    inbox.consumer.acknowledge_through(3)
    told = Told()
    dead = stepped.broker.queue(Queue("mq.sys.dmq"))
    assert dead.count == 0
    transacted.commit(told)
    stepped.run_until_idle()
    assert (told.well, dead.count) == (True, 1)
    assert (inbox.texts, inbox.attempts) == (["dead", "again", "taken", "again"], [1, 1, 1, 2])
    inbox.consumer.reject([4], dead=DeadReason.ERROR)
    transacted.rollback(Told())
    stepped.run_until_idle()
    assert (dead.count, inbox.attempts[-1]) == (1, 3)


# --- destinations that are removed


def test_a_queue_that_is_removed_takes_everything_with_it(
    stepped: Stepped, connection: Connection
) -> None:
    session, transacted = connection.session(Mode.INDIVIDUAL), connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(session, Q, credit=5)
    stepped.send(texts(Q, range(10)), session)
    inbox.consumer.acknowledge([1], within=transacted)
    inbox.consumer.reject([2], delay_ms=10_000)
    queue = stepped.broker.queue(Q)
    stepped.remove(queue)
    assert [type(error) for error in inbox.failures] == [InvalidDestination]
    assert stepped.bodies == ["0"], "only what a transaction has taken is open"
    with pytest.raises(UnknownDelivery):
        inbox.consumer.acknowledge([3])
    transacted.rollback(Told())
    stepped.later(20)
    assert (stepped.empty, stepped.disk.destinations) == (True, {})
    assert (queue.count, queue.octets, stepped.broker.memory.used) == (0, 0, 0)
    stepped.send(texts(Q, ["new"]), session)
    assert stepped.bodies == ["new"]
    assert stepped.broker.queue(Q) is not queue


def test_a_commit_on_its_way_to_a_queue_that_is_removed_arrives_nowhere(stepped: Stepped) -> None:
    transacted, plain = stepped.session(Mode.TRANSACTED), stepped.session()
    told = Told()
    transacted.send(texts(Q, ["1"]))
    transacted.commit(told)
    plain.send(texts(Q, ["2"]))
    stepped.run_reactor()
    stepped.remove(stepped.broker.queue(Q))
    assert (told.well, stepped.empty, stepped.disk.destinations) == (True, True, {})
    assert stepped.broker.memory.used == 0


def test_a_temporary_queue_is_never_stored_and_goes_with_its_connection(tmp_path: Path) -> None:
    stepped = Stepped(
        tmp_path, memory=Memory(total=20 * OVERHEAD, share=4 * OVERHEAD, least=OVERHEAD)
    )
    connection = stepped.connect()
    temporary = connection.temporary(Kind.QUEUE)
    stepped.send_each(texts(temporary, range(10)))
    assert not any(row.persistent for row in stepped.disk.rows.values())
    inbox = stepped.receive(connection.session(Mode.CLIENT), temporary, credit=8)
    assert len(inbox.messages) == 8
    stepped.close(connection)
    assert (stepped.empty, stepped.disk.destinations) == (True, {})
    assert temporary not in stepped.broker.destinations
    assert stepped.broker.memory.used == 0


# --- senders who are held back


def test_senders_are_let_go_together_and_held_again_if_one_fills_it(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    senders = [stepped.session() for _ in range(3)]
    taker = stepped.session()
    inbox = stepped.consume(taker, LIMITED)
    told = [Told() for _ in senders]
    for number, (sender, one) in enumerate(zip(senders, told, strict=True)):
        sender.send(texts(LIMITED, [f"{number}{index}" for index in range(3)]))
        sender.completion(one)
    stepped.run_until_idle()
    assert not any(sender.writable() for sender in senders)
    resumed: list[int] = []

    def fill_again() -> None:
        resumed.append(0)
        senders[0].send(texts(LIMITED, ["again", "again"]))

    senders[0].on_writable(fill_again)
    senders[1].on_writable(lambda: resumed.append(1))
    stepped.acknowledge_through(inbox, 7)
    # Two are there, and the first who was let go made it four.
    assert told[0].well
    assert 0 in resumed
    assert not senders[0].writable()
    stepped.acknowledge_through(inbox, len(inbox.messages))
    assert ([one.well for one in told], resumed) == ([True] * 3, [0, 1])
    assert all(sender.writable() for sender in senders)
    assert stepped.broker.queue(LIMITED).waiting_senders == []


def test_a_sender_that_closes_while_it_is_held_is_told_and_forgotten(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    sender, other = stepped.session(), stepped.session()
    told, others = Told(), Told()
    resumed: list[int] = []
    for session, one in ((sender, told), (other, others)):
        session.send(texts(LIMITED, range(3)))
        session.completion(one)
    sender.on_writable(lambda: resumed.append(1))
    stepped.run_until_idle()
    stepped.close(sender)
    assert isinstance(told.results[0], ProviderUnavailable)
    inbox = stepped.receive(other, LIMITED)
    stepped.acknowledge_through(inbox, 6)
    assert (others.well, len(told.results), resumed) == (True, 1, [])
    assert stepped.broker.queue(LIMITED).waiting_senders == []


@pytest.mark.parametrize("how", ["purged", "removed"])
def test_senders_are_let_go_whatever_makes_the_room(tmp_path: Path, how: str) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    sender, other = stepped.session(), stepped.session()
    told = Told()
    sender.send(texts(LIMITED, ["a"], persistent=False))
    other.send(texts(LIMITED, ["b", "c"]))
    other.completion(Told())
    sender.send(texts(LIMITED, ["d"], persistent=False))
    sender.completion(told)
    stepped.run_reactor()
    assert not sender.writable()
    if how == "purged":
        purge(stepped.broker.queue(LIMITED), lambda count: None)
    else:
        stepped.broker.remove(stepped.broker.queue(LIMITED))
    stepped.run_until_idle()
    assert (sender.writable(), told.well) == (True, True)


def test_a_transaction_holds_its_sender_back_too(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    transacted = stepped.session(Mode.TRANSACTED)
    told = Told()
    transacted.send(texts(LIMITED, range(5)))
    transacted.commit(told)
    stepped.run_until_idle()
    assert (told.well, transacted.writable()) == (True, False)
    inbox = stepped.receive(stepped.session(), LIMITED)
    stepped.acknowledge_through(inbox, 5)
    assert transacted.writable()


def test_limits_leave_no_room_twice_for_what_is_being_committed(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.REJECT_NEWEST)
    first, second, plain = (
        stepped.session(Mode.TRANSACTED),
        stepped.session(Mode.TRANSACTED),
        stepped.session(),
    )
    told, refused = Told(), Told()
    first.send(texts(LIMITED, range(2)))
    second.send(texts(LIMITED, range(2)))
    first.commit(told)
    second.commit(refused)
    with pytest.raises(MessageRejected):
        plain.send(texts(LIMITED, range(2)))
    stepped.send(texts(LIMITED, ["fits"]), plain)
    assert told.well
    assert isinstance(refused.results[0], DestinationFull)
    assert stepped.broker.queue(LIMITED).count == 3


def test_a_sender_whose_session_is_closed_is_not_called_when_the_disk_has_caught_up(
    stepped: Stepped, session: Session
) -> None:
    resumed: list[int] = []
    for _ in range(6):
        session.send(texts(Q, ["x" * 4_000_000]))
    assert not session.writable()
    session.on_writable(lambda: resumed.append(1))
    stepped.close(session)
    assert resumed == []


# --- consumers


def test_a_consumer_that_is_over_is_forgotten_with_its_last_settlement(
    stepped: Stepped, individual: Session
) -> None:
    individual.send(texts(Q, range(4)))
    inboxes = [stepped.consume(individual, Q, credit=2) for _ in range(2)]
    stepped.run_until_idle()
    for inbox in inboxes:
        inbox.consumer.close(requeue=False)
        assert individual.has(inbox.consumer)  # type: ignore[attr-defined]
        inbox.consumer.acknowledge([1, 2])
        assert not individual.has(inbox.consumer)  # type: ignore[attr-defined]


def test_a_joined_acknowledgement_of_a_consumer_that_is_over_goes_back_to_its_queue(
    stepped: Stepped, connection: Connection
) -> None:
    session, transacted = connection.session(Mode.INDIVIDUAL), connection.session(Mode.TRANSACTED)
    inbox = stepped.consume(session, Q)
    stepped.send(texts(Q, ["a", "b"]), session)
    inbox.consumer.acknowledge([1], within=transacted)
    inbox.consumer.close(requeue=False)
    inbox.consumer.acknowledge([2])
    transacted.rollback(Told())
    again = stepped.receive(session, Q)
    assert (again.texts, again.attempts, stepped.broker.queue(Q).count) == (["a"], [2], 1)


def test_times_are_those_of_the_call_though_the_reactor_slept_before_it(
    stepped: Stepped, individual: Session
) -> None:
    inbox = stepped.receive(individual, Q)
    stepped.clock.rightNow += 1_000
    run = texts(Q, ["x"])
    individual.send(run)
    assert run[0].timestamp == stepped.now_ms
    stepped.run_until_idle()
    stepped.clock.rightNow += 1_000
    stepped.reject(inbox, [1], delay_ms=500)
    assert len(inbox.messages) == 1
    stepped.later(1)
    assert len(inbox.messages) == 2


def test_a_failure_that_is_final_is_told_to_everyone(stepped: Stepped) -> None:
    sender, transacted = stepped.session(), stepped.session(Mode.TRANSACTED)
    told: list[Told] = [Told(), Told(), Told()]
    sender.send(texts(Q, ["x"]))
    sender.completion(told[0])
    transacted.send(texts(Q, ["y"]))
    transacted.commit(told[1])
    stepped.run_reactor()
    sender.send(texts(Q, ["z"]))
    sender.completion(told[2])
    stepped.store.fail()
    stepped.run_reactor()
    assert [isinstance(one.results[0], StorageFailed) for one in told] == [True] * 3
    assert len(stepped.failures) == 1
    with pytest.raises(MessageRejected):
        sender.send(texts(Q, ["more"]))


def test_a_closed_session_takes_nothing(session: Session) -> None:
    session.close()
    with pytest.raises(MessagingError):
        session.send(texts(Q, ["x"]))
    with pytest.raises(MessagingError):
        session.completion(Told())
    with pytest.raises(MessagingError):
        session.recover()


def test_a_queue_that_was_removed_before_its_commit_holds_nobody_back(tmp_path: Path) -> None:
    stepped = limited(tmp_path, LimitBehavior.FLOW_CONTROL)
    receiver, sender = stepped.session(Mode.TRANSACTED), stepped.session(Mode.TRANSACTED)
    stepped.session().send(texts(LIMITED, range(3)))
    inbox = stepped.receive(receiver, LIMITED)
    inbox.consumer.acknowledge_through(3)
    told = Told()
    sender.send(texts(LIMITED, ["late"]))
    sender.commit(told)
    queue = stepped.broker.queue(LIMITED)
    stepped.turn.begin()
    stepped.broker.remove(queue)
    stepped.turn.end()
    stepped.run_until_idle()
    assert told.well
    assert queue.at_limit(), "the other transaction has what was there"
    assert sender.writable()
