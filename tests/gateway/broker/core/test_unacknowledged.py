"""What consumers have and have not acknowledged: how it counts, who gets no more because of it, and
what open transactions hold.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.message import Message
from gateway.messaging.provider import Connection, Credentials, Mode, Vote
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa.xa_branches import Branching, xid

Q, T = Queue("q"), Topic("t")
_BODY = "x" * 50_000


class Rig(Stepped):
    """A broker whose consumers may have so many octets."""

    def __init__(self, folder: Path, most: int = 400_000) -> None:
        window = Memory()
        super().__init__(folder, BrokerOptions(reap_time=0), window)
        window.octets_left = lambda: most - window.unacknowledged
        self.window = window
        self.pressed: list[int] = []
        window.report_excess = lambda: self.pressed.append(window.unacknowledged)

    def fill(self, count: int, body: str = _BODY) -> None:
        session = self.session()
        session.send(texts(Q, [body] * count))
        self.run_until_idle()
        session.close()


def test_a_consumer_that_acknowledges_nothing_gets_half_of_what_there_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.fill(20)
    inbox = rig.consume(rig.session(), Q, octets=100_000)
    rig.run_until_idle()
    while (count := len(inbox.messages)) < 20:
        inbox.consumer.grant(0, 100_000)
        rig.run_until_idle()
        if len(inbox.messages) == count:
            break
    assert 200_000 <= rig.window.unacknowledged < 400_000
    assert len(rig.broker.unacknowledged.held_back) == 1
    late = rig.consume(rig.session(), Q, octets=1)
    rig.run_until_idle()
    assert len(late.messages) == 1, "others get theirs"
    while len(inbox.messages) < 19:
        count = len(inbox.messages)
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
        inbox.consumer.grant(0, 100_000)
        rig.later(0.1)
        assert len(inbox.messages) > count, "it goes on as it acknowledges"
    late.consumer.acknowledge_through(1)
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    rig.later(0.1)
    assert rig.window.unacknowledged == len(rig.broker.unacknowledged.held_back) == 0


def test_who_is_held_back_goes_on_when_others_acknowledge(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 250_000)
    rig.fill(3)
    greedy = rig.consume(rig.session(), Q, octets=150_000)
    rig.run_until_idle()
    assert len(greedy.messages) == 3
    rig.fill(4)
    other = rig.consume(rig.session(), Q, octets=60_000)
    rig.run_until_idle()
    assert len(other.messages) == 2
    other.consumer.grant(0, 100_000)
    rig.later(1)
    assert len(other.messages) == 2
    greedy.consumer.acknowledge_through(3)
    greedy.consumer.stop()
    rig.later(0.1)
    assert len(other.messages) > 2


def test_a_consumer_with_a_selector_is_held_back_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 250_000)
    session = rig.session()
    session.send(texts(Q, [_BODY] * 10, type="red"))
    rig.run_until_idle()
    inbox = rig.consume(rig.session(), Q, octets=1, selector="JMSType = 'red'")
    for _ in range(10):
        rig.run_until_idle()
        inbox.consumer.grant(0, len(_BODY))
    assert 1 < len(inbox.messages) < 5
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    inbox.consumer.grant(0, len(_BODY))
    count = len(inbox.messages)
    rig.run_until_idle()
    assert len(inbox.messages) > count


def test_a_message_that_is_too_large_for_all_is_delivered_and_told_of(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 250_000)
    rig.fill(2, "x" * 300_000)
    inbox = rig.consume(rig.session(), Q)
    rig.run_until_idle()
    assert len(inbox.messages) >= 1
    assert rig.pressed


def test_small_messages_are_never_held_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 0)
    rig.fill(50, "small")
    inbox = rig.consume(rig.session(), Q)
    rig.run_until_idle()
    assert len(inbox.messages) == 50


def test_what_several_subscribers_have_counts_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    inboxes = [rig.consume(rig.session(), T) for _ in range(5)]
    rig.session().send(texts(T, [_BODY]))
    rig.run_until_idle()
    assert all(len(inbox.messages) == 1 for inbox in inboxes)
    assert 50_000 < rig.window.unacknowledged < 60_000
    for inbox in inboxes:
        inbox.consumer.acknowledge_through(1)
    assert rig.window.unacknowledged == 0


@pytest.mark.parametrize("how", ["acknowledge", "reject", "close", "lost", "recover"])
def test_whatever_settles_it_nothing_is_counted_any_more(tmp_path: Path, how: str) -> None:
    rig = Rig(tmp_path)
    rig.fill(3)
    connection = rig.connect()
    session = connection.session(Mode.INDIVIDUAL)
    inbox = rig.consume(session, Q)
    rig.run_until_idle()
    assert rig.window.unacknowledged >= 3 * (50_000 + OVERHEAD)
    inbox.consumer.stop()
    if how == "acknowledge":
        inbox.consumer.acknowledge(inbox.numbers)
    elif how == "reject":
        inbox.consumer.reject(inbox.numbers)
    elif how == "close":
        inbox.consumer.close()
    elif how == "lost":
        connection.close()
    else:
        session.recover()
    assert rig.window.unacknowledged == 0


def test_transactions_of_this_process_count_and_those_of_clients_count_elsewhere(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    made: list[Connection] = []
    rig.provider.connect(
        Credentials("guest", "guest", "127.0.0.1"), None, rig.losses.append
    ).addCallback(made.append)
    for connection, counts in ((made[0], False), (rig.connect(), True)):
        rig.fill(1)
        session = connection.session(Mode.TRANSACTED)
        inbox = rig.consume(session, Q)
        rig.run_until_idle()
        for end in (session.rollback, session.commit):
            session.send(texts(T, [_BODY]))
            inbox.consumer.acknowledge_through(inbox.numbers[-1])
            assert rig.window.transactions == (0 if not counts else _taken(inbox.messages[:1]) * 2)
            end(Told())
            rig.run_until_idle()
            assert rig.window.transactions == 0
        session.close()
        rig.run_until_idle()
    assert rig.window.unacknowledged == 0


def _taken(messages: list[Message]) -> int:
    return sum([message.weight for message in messages])


@pytest.mark.parametrize(
    "end", ["commit", "one phase", "rollback", "rollback unprepared", "closed"]
)
def test_the_work_of_a_branch_counts_until_it_is_over(tmp_path: Path, end: str) -> None:
    rig = Rig(tmp_path)
    rig.fill(1)
    xa = Branching(rig)
    inbox = xa.consume(Q)
    rig.run_until_idle()
    assert rig.window.unacknowledged > 50_000
    one = xid(1)
    xa.start(one)
    xa.session.send(texts(T, [_BODY]))
    inbox.consumer.acknowledge_through(1)
    held = rig.window.transactions
    assert held > 100_000
    assert rig.window.unacknowledged == 0
    if end == "closed":
        xa.connection.close()
        rig.run_until_idle()
        assert rig.window.transactions == 0
        return
    xa.end(one)
    assert rig.window.transactions == held
    if end in ("commit", "rollback"):
        assert xa.prepare(one) is Vote.OK
        assert rig.window.transactions == held
    inbox.consumer.stop()
    if end in ("commit", "one phase"):
        xa.commit(one, one_phase=end == "one phase")
    else:
        xa.rollback(one)
    assert rig.window.transactions == rig.window.unacknowledged == 0
