"""Prepared branches over a restart of the broker: what they hold is nobody's, until they are ended
by whoever asks.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.store.interface import StoreDamaged, StoreError
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.provider import ConsumerSpec, Flags, Vote
from tests.gateway.broker.brokers import Deployment
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa.xa_branches import (
    NOTA,
    OTHER,
    TOPIC,
    Branching,
    Q,
    branched,
    code,
    fill,
    waiting,
    xid,
)


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return branched(tmp_path)


def prepared(stepped: Stepped, client_id: str | None = None) -> None:
    """Branch 1 has acknowledged 0 to 2 of five, and sent ``held`` and ``held, too``."""
    fill(stepped, 5)
    xa = Branching(stepped, client_id)
    inbox = xa.consume(Q, credit=3)
    xa.takes(xid(1), inbox, 3)
    xa.session.send(texts(OTHER, ["held", "held, too"]))
    xa.end_and_prepare(xid(1))


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_branch_is_there_again_and_ends_as_it_is_told(
    stepped: Stepped, commit: bool
) -> None:
    prepared(stepped)
    for _ in range(2):
        stepped.restart()
        assert waiting(stepped, Q) == ["3", "4"]
        assert waiting(stepped, OTHER) == []
    queue, other = stepped.broker.queue(Q), stepped.broker.queue(OTHER)
    assert (queue.count, queue.dispatch.locked, other.count, other.coming, other.prepared) == (
        5,
        3,
        0,
        2,
        2,
    )
    xa = Branching(stepped)
    assert xa.recover() == [xid(1)]
    session = stepped.session()
    session.send(texts(OTHER, ["later"]))
    if commit:
        xa.commit(xid(1))
    else:
        xa.rollback(xid(1))
    assert xa.recover() == []
    assert waiting(stepped, Q) == (["3", "4"] if commit else ["0", "1", "2", "3", "4"])
    assert waiting(stepped, OTHER) == (["held", "held, too", "later"] if commit else ["later"])
    assert (queue.dispatch.locked, other.coming, other.coming_octets, other.prepared) == (
        0,
        0,
        0,
        0,
    )
    assert (queue.count, other.count) == ((2, 3) if commit else (5, 1))
    stepped.restart()
    assert waiting(stepped, OTHER) == (["held", "held, too", "later"] if commit else ["later"])
    assert code(stepped, lambda: Branching(stepped).resource.rollback(xid(1))) == NOTA


def test_what_is_rolled_back_after_a_restart_was_tried_once_more(stepped: Stepped) -> None:
    prepared(stepped)
    stepped.restart()
    Branching(stepped).rollback(xid(1))
    inbox = stepped.receive(stepped.session(), Q)
    assert (inbox.texts, inbox.attempts) == (["0", "1", "2", "3", "4"], [2, 2, 2, 1, 1])


def test_a_new_branch_is_not_taken_for_an_old_one(stepped: Stepped) -> None:
    prepared(stepped)
    stepped.restart()
    xa = Branching(stepped)
    assert code(stepped, lambda: xa.resource.start(xid(1), Flags.NOFLAGS)) == -8
    xa.prepares(xid(2), OTHER, ["two"])
    assert len(stepped.disk.branches) == 2
    stepped.restart()
    xa = Branching(stepped)
    assert xa.recover() == [xid(1), xid(2)]
    xa.commit(xid(2))
    xa.rollback(xid(1))
    assert waiting(stepped, OTHER) == ["two"]


def test_the_topics_of_a_branch_after_a_restart(stepped: Stepped) -> None:
    for name, topic in (("named", TOPIC), ("wild", Topic("*"))):
        stepped.session(client_id=name).consumer(
            ConsumerSpec(topic, durable_name=name), lambda *args: None, lambda error: None
        )
    fill(stepped, 2, TOPIC)
    stepped.restart()
    xa = Branching(stepped, "wild")
    inbox = xa.consume(Topic("*"), durable_name="wild", credit=1)
    xa.takes(xid(1), inbox, 1)
    xa.session.send(texts(TOPIC, ["held"]))
    xa.end_and_prepare(xid(1))
    stepped.restart()
    named = stepped.consume(stepped.session(client_id="named"), TOPIC, durable_name="named")
    wild = stepped.consume(stepped.session(client_id="wild"), Topic("*"), durable_name="wild")
    plain = stepped.receive(stepped.session(), TOPIC)
    assert (named.texts, wild.texts, plain.texts) == (["0", "1"], ["1"], [])
    assert stepped.broker.topic(TOPIC).count == 4
    Branching(stepped).commit(xid(1))
    assert (named.texts, wild.texts, plain.texts) == (["0", "1", "held"], ["1", "held"], ["held"])
    for inbox in (named, wild, plain):
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
    stepped.run_until_idle()
    assert (stepped.empty, stepped.broker.topic(TOPIC).count) == (True, 0)


def test_a_subscription_that_is_removed_takes_what_is_locked_with_it(stepped: Stepped) -> None:
    client = stepped.connect("c")
    client.xa_session().consumer(
        ConsumerSpec(TOPIC, durable_name="d"), lambda *args: None, lambda error: None
    )
    client.close()
    fill(stepped, 2, TOPIC)
    for number, commit in ((1, True), (2, False)):
        xa = Branching(stepped, "c")
        inbox = xa.consume(TOPIC, durable_name="d", credit=1)
        xa.acknowledges(xid(number), inbox)
        xa.prepare(xid(number))
        xa.connection.close()
        if commit:
            continue
        told = Told()
        again = stepped.connect("c")
        again.unsubscribe("d").addCallback(told)
        stepped.run_until_idle()
        assert told.well
    xa = Branching(stepped)
    xa.commit(xid(1))
    stepped.restart()
    xa = Branching(stepped)
    assert xa.recover() == [xid(2)]
    xa.rollback(xid(2))
    stepped.run_until_idle()
    assert (stepped.empty, stepped.disk.branches) == (True, {})


def test_what_was_not_persistent_ends_with_the_process_and_the_branch_does_not(
    stepped: Stepped,
) -> None:
    xa = Branching(stepped)
    xa.prepares(xid(1), Q, ["fleeting"], persistent=False)
    stepped.restart()
    xa = Branching(stepped)
    assert xa.recover() == [xid(1)]
    xa.commit(xid(1))
    assert waiting(stepped, Q) == []


def test_a_destination_of_a_prepared_branch_is_not_reaped(tmp_path: Path) -> None:
    stepped = branched(tmp_path)
    stepped.options = type(stepped.options)(reap_time=10)
    stepped.restart()
    xa = Branching(stepped)
    xa.prepares(xid(1), Q, ["x"])
    stepped.restart()
    stepped.later(11, times=5)
    assert stepped.broker.find(Q) is not None
    Branching(stepped).rollback(xid(1))
    stepped.later(11, times=5)
    assert stepped.broker.find(Q) is None


def test_memory_that_is_full_holds_what_comes_late(stepped: Stepped) -> None:
    stepped.restart(Memory(total=4 * OVERHEAD, share=2 * OVERHEAD, least=OVERHEAD))
    xa = Branching(stepped)
    fill(stepped, 10)
    xa.prepares(xid(1), Q, ["a", "b", "c"])
    fill(stepped, 10)
    xa.commit(xid(1))
    expected = [*map(str, range(10)), "a", "b", "c", *map(str, range(10))]
    assert waiting(stepped, Q) == expected
    stepped.restart(Memory(total=4 * OVERHEAD, share=2 * OVERHEAD, least=OVERHEAD))
    assert waiting(stepped, Q) == expected


def test_what_cannot_be_read_is_not_committed_and_can_be_rolled_back(stepped: Stepped) -> None:
    prepared(stepped)
    stepped.restart()
    gone = [seq for seq, row in stepped.disk.rows.items() if row.body == b"held"]
    lost = {seq: stepped.disk.rows.pop(seq) for seq in gone}
    xa = Branching(stepped)
    assert code(stepped, lambda: xa.resource.commit(xid(1), False)) == -3
    assert xa.recover() == [xid(1)], "it may be mended"
    stepped.disk.rows |= lost
    xa.commit(xid(1))
    assert waiting(stepped, OTHER) == ["held", "held, too"]


def test_acknowledged_messages_that_cannot_be_read_keep_no_branch_from_its_end(
    stepped: Stepped,
) -> None:
    prepared(stepped)
    stepped.restart()
    first = min(stepped.disk.rows)
    del stepped.disk.rows[first]
    Branching(stepped).commit(xid(1))
    assert waiting(stepped, Q) == ["3", "4"]
    assert stepped.broker.queue(Q).count == 2


def test_a_message_that_is_missing_is_named(stepped: Stepped) -> None:
    prepared(stepped)
    (seq, *_) = [seq for seq, row in stepped.disk.rows.items() if row.body == b"held"]
    del stepped.disk.rows[seq]
    with pytest.raises(
        StoreError,
        match=rf"branch 5354\.[0-9a-f]+\.[0-9a-f]+ \(row 1\) that has sent message {seq}, which is missing",
    ):
        stepped.restart()


@pytest_twisted.ensureDeferred
async def test_damage_of_a_branch_is_refused_with_its_place(tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, "sqlite")
    resource = (await deployment.connect()).connection.xa_session()
    session, xa = resource, resource.resource()
    await xa.start(xid(1), Flags.NOFLAGS)
    session.send(texts(Queue("q"), ["x"]))
    await xa.end(xid(1), Flags.SUCCESS)
    assert await xa.prepare(xid(1)) is Vote.OK
    await deployment.close()
    path = tmp_path / "messages.db"
    for column in ("format", "state", "since", "gtrid", "bqual", "user", "work"):
        connection = sqlite3.connect(path, isolation_level=None)
        ((was,),) = connection.execute(f"SELECT {column} FROM branch")
        wrong = (
            was + 1
            if isinstance(was, int)
            else was + type(was)(b"x" if isinstance(was, bytes) else "x")
        )
        connection.execute(f"UPDATE branch SET {column} = ?", (wrong,))
        connection.close()
        with pytest.raises(
            StoreDamaged, match=r"messages\.db is damaged at branch 1: its checksum is wrong"
        ):
            deployment.open()
        closed: Deferred[None] = Deferred()
        deployment.store.close(partial(closed.callback, None))
        await closed
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"UPDATE branch SET {column} = ?", (was,))
        connection.close()
    deployment.open()
    again = (await deployment.connect()).connection.xa_session().resource()
    assert await again.recover() == [xid(1)]
    await again.commit(xid(1), False)
    await deployment.close()
