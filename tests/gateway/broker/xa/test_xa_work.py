"""What becomes of the messages of a branch: sent, acknowledged, held, locked, given back,
expired.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import DuplicateInDoubt, MessageRejected, XAError
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, ConsumerSpec, Flags, Mode, Session, Vote
from tests.gateway.broker.stepped_broker import Stepped, Told, all_of, texts
from tests.gateway.broker.xa.xa_branches import (
    NOTA,
    OTHER,
    PROTO,
    RBROLLBACK,
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


def joined(stepped: Stepped, xa: Branching) -> Branching:
    """Another session in branch 1, which the first begins."""
    other = Branching(stepped)
    xa.start(xid(1))
    other.start(xid(1), Flags.JOIN)
    return other


def test_one_phase_is_one_batch(stepped: Stepped, xa: Branching) -> None:
    fill(stepped, 2)
    inbox = xa.consume(Q)
    other = joined(stepped, xa)
    stepped.run_until_idle()
    inbox.consumer.acknowledge_through(2)
    other.session.send(texts(OTHER, inbox.texts))
    other.end(xid(1))
    xa.end(xid(1))
    assert stepped.bodies == ["0", "1"]
    told = Told()
    other.resource.commit(xid(1), True).addCallback(told)
    stepped.run_reactor()
    assert stepped.bodies == ["0", "1"]
    stepped.store.step()
    assert [row.body.decode() for row in stepped.disk.rows.values()] == ["0", "1"]
    names = {number: row.name for number, row in stepped.disk.destinations.items()}
    assert {names[row.destination] for row in stepped.disk.rows.values()} == {"other"}, (
        "both or none"
    )
    stepped.run_until_idle()
    assert told.well
    assert waiting(stepped, OTHER) == ["0", "1"]


def test_everyone_who_took_part_must_end_first(stepped: Stepped, xa: Branching) -> None:
    other = joined(stepped, xa)
    xa.end(xid(1))
    assert code(stepped, lambda: xa.resource.prepare(xid(1))) == PROTO
    other.end(xid(1))
    assert xa.prepare(xid(1)) is Vote.READ_ONLY


def test_a_prepared_branch_holds_what_it_sent_and_locks_what_it_acknowledged(
    stepped: Stepped, xa: Branching
) -> None:
    fill(stepped, 3)
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 2)
    xa.session.send(texts(OTHER, ["held"]))
    xa.end_and_prepare(xid(1))
    xa.session.close()
    assert waiting(stepped, Q) == ["2"]
    assert waiting(stepped, OTHER) == []
    queue, other = stepped.broker.queue(Q), stepped.broker.queue(OTHER)
    assert (queue.count, queue.dispatch.locked, other.count, other.coming) == (3, 2, 0, 1)
    again = Branching(stepped)
    again.commit(xid(1))
    assert waiting(stepped, Q) == ["2"]
    assert waiting(stepped, OTHER) == ["held"]
    assert (queue.count, queue.dispatch.locked, other.count, other.coming, other.coming_octets) == (
        1,
        0,
        1,
        0,
        0,
    )
    assert (stepped.bodies, stepped.disk.branches) == (["2", "held"], {})


def test_a_prepared_branch_rolled_back_gives_back_in_order_and_counts(
    stepped: Stepped, xa: Branching
) -> None:
    fill(stepped, 5)
    inbox = xa.consume(Q, credit=3)
    xa.acknowledges(xid(1), inbox)
    xa.prepare(xid(1))
    inbox.clear()
    xa.rollback(xid(1))
    stepped.grant(inbox, 5)
    assert (inbox.texts, inbox.attempts) == (["0", "1", "2", "3", "4"], [2, 2, 2, 1, 1])
    assert stepped.broker.queue(Q).dispatch.locked == 0


def test_a_rollback_gives_back_what_was_only_received_too(stepped: Stepped, xa: Branching) -> None:
    fill(stepped, 4)
    inbox = xa.consume(Q)
    xa.acknowledges(xid(1), inbox, 2)
    inbox.clear()
    xa.rollback(xid(1))
    stepped.run_until_idle()
    assert (inbox.texts, inbox.attempts) == (["0", "1", "2", "3"], [2, 2, 2, 2])


def test_a_rollback_leaves_alone_what_a_session_does_in_another_branch(
    stepped: Stepped, xa: Branching
) -> None:
    fill(stepped, 4)
    inbox = xa.consume(Q, credit=2)
    xa.acknowledges(xid(1), inbox)
    xa.start(xid(2))
    stepped.grant(inbox, 2)
    xa.rollback(xid(1))
    inbox.consumer.acknowledge_through(4)
    xa.end_and_commit(xid(2))
    xa.session.close()
    assert waiting(stepped, Q) == ["0", "1"]


def test_recover_of_the_session_leaves_what_is_acknowledged(
    stepped: Stepped, xa: Branching
) -> None:
    fill(stepped, 3)
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 1)
    inbox.clear()
    xa.session.recover()
    stepped.run_until_idle()
    assert (inbox.texts, inbox.attempts) == (["1", "2"], [2, 2])
    xa.end_and_commit(xid(1))
    xa.session.close()
    assert waiting(stepped, Q) == ["1", "2"]


def test_what_was_sent_takes_its_place_by_when_it_was_prepared(
    stepped: Stepped, xa: Branching
) -> None:
    fill(stepped, 1)
    xa.prepares(xid(1), Q, ["prepared first"])
    xa.sends(xid(2), Q, ["at once"])
    xa.commit(xid(2), one_phase=True)
    stepped.send(texts(Q, ["later"]))
    assert waiting(stepped, Q) == ["0", "at once", "later"]
    xa.commit(xid(1))
    assert waiting(stepped, Q) == ["0", "prepared first", "at once", "later"]


def test_a_consumer_with_a_selector_sees_what_took_its_place_behind_where_it_looked(
    stepped: Stepped, xa: Branching
) -> None:
    xa.prepares(xid(1), Q, ["red"], properties={"colour": "red"})
    inbox = stepped.consume(stepped.session(), Q, selector="colour = 'red'")
    fill(stepped, 2)
    stepped.run_until_idle()
    assert inbox.texts == []
    xa.commit(xid(1))
    assert inbox.texts == ["red"]


def test_a_topic_has_its_subscribers_at_the_commit(stepped: Stepped, xa: Branching) -> None:
    before = stepped.session(client_id="before").consumer(
        ConsumerSpec(TOPIC, durable_name="d"), lambda *delivery: None, lambda error: None
    )
    leaving = stepped.session()
    left = stepped.consume(leaving, TOPIC)
    xa.prepares(xid(1), TOPIC, ["x"])
    leaving.close()
    plain = stepped.consume(stepped.session(), TOPIC)
    durable = stepped.receive(stepped.session(client_id="c"), TOPIC, durable_name="d")
    assert (plain.texts, durable.texts) == ([], [])
    xa.commit(xid(1))
    assert (plain.texts, durable.texts, left.texts, len(stepped.disk.owed)) == (["x"], ["x"], [], 2)
    assert len(stepped.disk.rows) == 1
    durable.consumer.acknowledge_through(1)
    plain.consumer.acknowledge_through(1)
    before.grant(1)
    before.start()
    stepped.run_until_idle()
    before.acknowledge_through(1)
    stepped.run_until_idle()
    assert (stepped.empty, stepped.broker.topic(TOPIC).count) == (True, 0)


def test_a_topic_that_nobody_subscribes_to_keeps_nothing(stepped: Stepped, xa: Branching) -> None:
    xa.prepares(xid(1), TOPIC, ["x"])
    assert stepped.bodies == ["x"]
    xa.commit(xid(1))
    assert stepped.empty
    xa.prepares(xid(2), TOPIC, ["y"])
    xa.rollback(xid(2))
    assert stepped.empty


def test_what_is_not_persistent_is_the_branch_s_as_long_as_the_process_lives(
    stepped: Stepped, xa: Branching, session: Session
) -> None:
    session.send(texts(Q, ["fleeting"], persistent=False))
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 1)
    xa.session.send(texts(OTHER, ["sent"], persistent=False))
    xa.end_and_prepare(xid(1))
    assert stepped.bodies == []
    assert xa.recover() == [xid(1)]
    xa.commit(xid(1))
    assert waiting(stepped, OTHER) == ["sent"]
    assert stepped.broker.queue(Q).count == 0


def test_temporary_destinations(stepped: Stepped, xa: Branching) -> None:
    owner = stepped.connect()
    temporary = owner.temporary(Kind.QUEUE)
    inbox = stepped.consume(owner.session(Mode.CLIENT), temporary)
    xa.prepares(xid(1), temporary, ["x"])
    xa.commit(xid(1))
    assert all_of(inbox) == ["x"]
    xa.prepares(xid(2), temporary, ["y"])
    owner.close()
    xa.commit(xid(2))
    assert stepped.empty


def test_a_branch_without_preparation_ends_with_its_session(
    stepped: Stepped, xa: Branching
) -> None:
    fill(stepped, 2)
    inbox = xa.consume(Q)
    other = joined(stepped, xa)
    other.session.send(texts(OTHER, ["never"]))
    stepped.run_until_idle()
    inbox.consumer.acknowledge_through(2)
    xa.end(xid(1))
    xa.session.close()
    assert waiting(stepped, Q) == ["0", "1"]
    with pytest.raises(XAError) as caught:
        other.session.send(texts(OTHER, ["never, too"]))
    assert caught.value.code == RBROLLBACK
    assert code(stepped, lambda: other.resource.end(xid(1), Flags.SUCCESS)) == RBROLLBACK
    assert code(stepped, lambda: other.resource.commit(xid(1), True)) == RBROLLBACK
    assert code(stepped, lambda: other.resource.rollback(xid(1))) == NOTA
    assert waiting(stepped, OTHER) == []


def test_a_preparation_under_way_does_not_end_with_its_session(
    stepped: Stepped, xa: Branching
) -> None:
    xa.sends(xid(1), Q, ["x"])
    votes: list[Vote] = []
    xa.resource.prepare(xid(1)).addCallback(votes.append)
    xa.connection.close()
    stepped.run_until_idle()
    assert votes == [Vote.OK]
    other = Branching(stepped)
    assert other.recover() == [xid(1)]
    other.commit(xid(1))
    assert waiting(stepped, Q) == ["x"]


def test_what_is_locked_expires_when_it_is_given_back(
    stepped: Stepped, xa: Branching, session: Session
) -> None:
    mortal = texts(Q, ["mortal"])
    mortal[0].expires = stepped.now_ms + 30_000
    session.send(mortal)
    inbox = xa.consume(Q)
    xa.acknowledges(xid(1), inbox)
    xa.prepare(xid(1))
    inbox.clear()
    stepped.later(200)
    dead = stepped.receive(stepped.session(), Queue("mq.sys.dmq"))
    assert (dead.texts, stepped.broker.queue(Q).count) == ([], 1), (
        "nobody knows yet whether it was taken"
    )
    xa.rollback(xid(1))
    assert (inbox.texts, dead.texts) == ([], ["mortal"])
    assert (
        dead.messages[0].headers.properties["JMS_SUN_DMQ_UNDELIVERED_REASON"]
        == DeadReason.EXPIRED.value
    )


def test_what_is_held_expires_when_it_comes(stepped: Stepped, xa: Branching) -> None:
    xa.start(xid(1))
    mortal = texts(Q, ["mortal"])
    mortal[0].expires = stepped.now_ms + 30_000
    xa.session.send(mortal)
    xa.end_and_prepare(xid(1))
    stepped.later(200)
    xa.commit(xid(1))
    assert waiting(stepped, Q) == []
    assert waiting(stepped, Queue("mq.sys.dmq")) == ["mortal"]


def identified(destination: Destination, body: str, id: str) -> list[Message]:
    return texts(destination, [body], properties={DUPLICATE_ID: id})


def prepared(stepped: Stepped, body: str, id: str, restart: bool) -> Branching:
    """Of a branch that has sent this, and is prepared.

    :param restart: whether the broker was started again since.
    """
    xa = Branching(stepped)
    xa.prepares(xid(1), Q, [body], properties={DUPLICATE_ID: id})
    if not restart:
        return xa
    stepped.restart()
    return Branching(stepped)


def test_a_message_that_came_before_is_left_out_of_a_branch(
    stepped: Stepped, xa: Branching, session: Session
) -> None:
    stepped.send(identified(Q, "first", "one"), session)
    for number, one_phase in ((1, True), (2, False)):
        xa.start(xid(number))
        xa.session.send(
            identified(Q, "repeat", "one") + identified(Q, f"new {number}", f"new {number}")
        )
        xa.session.send(identified(Q, "repeat", f"new {number}"))
        xa.end(xid(number))
        if not one_phase:
            assert xa.prepare(xid(number)) is Vote.OK
        xa.commit(xid(number), one_phase=one_phase)
    xa.start(xid(3))
    xa.session.send(identified(Q, "repeat", "one"))
    xa.end_and_commit(xid(3))
    stepped.send(identified(Q, "repeat", "new 2"), session)
    assert waiting(stepped, Q) == ["first", "new 1", "new 2"]
    queue = stepped.broker.queue(Q)
    assert (queue.count, queue.coming, queue.prepared) == (3, 0, 0)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_what_a_prepared_branch_has_sent_nobody_may_repeat_until_its_outcome_is_known(
    stepped: Stepped, restart: bool, commit: bool
) -> None:
    xa = prepared(stepped, "held", "one", restart)
    session = stepped.session()
    for sender in (session, stepped.session(Mode.TRANSACTED)):
        with pytest.raises(MessageRejected, match="whose outcome is not known yet") as caught:
            sender.send(identified(Q, "new", "new") + identified(Q, "repeat", "one"))
        assert caught.value.index == 1
    (xa.commit if commit else xa.rollback)(xid(1))
    stepped.send(identified(Q, "repeat", "one"), session)
    assert waiting(stepped, Q) == ["held" if commit else "repeat"]


@pytest.mark.parametrize("one_phase", [True, False])
def test_of_two_connections_in_one_branch_the_second_repeats_the_first(
    stepped: Stepped, xa: Branching, one_phase: bool
) -> None:
    other = joined(stepped, xa)
    xa.session.send(identified(Q, "first", "one"))
    other.session.send(identified(Q, "repeat", "one") + identified(OTHER, "elsewhere", "one"))
    xa.end(xid(1))
    other.end(xid(1))
    if not one_phase:
        assert xa.prepare(xid(1)) is Vote.OK
    xa.commit(xid(1), one_phase=one_phase)
    assert (waiting(stepped, Q), waiting(stepped, OTHER)) == (["first"], ["elsewhere"])
    assert stepped.broker.duplicates.count == 2


def test_what_was_sent_before_a_branch_was_prepared_that_has_it_too_is_refused_at_its_end(
    stepped: Stepped, xa: Branching
) -> None:
    other, transacted = Branching(stepped), stepped.session(Mode.TRANSACTED)
    for number, branching in enumerate((xa, other)):
        branching.start(xid(number))
        branching.session.send(identified(Q, str(number), "one"))
        branching.end(xid(number))
    transacted.send(identified(Q, "repeat", "one"))
    assert xa.prepare(xid(0)) is Vote.OK
    refused = Told()
    transacted.commit(refused)
    assert code(stepped, lambda: other.resource.prepare(xid(1))) == RBROLLBACK
    assert refused.failed
    assert isinstance(refused.results[0], DuplicateInDoubt)
    xa.commit(xid(0))
    assert waiting(stepped, Q) == ["0"]


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_rolled_back_may_come_again(stepped: Stepped, restart: bool) -> None:
    xa = prepared(stepped, "rolled back", "one", restart)
    xa.rollback(xid(1))
    assert stepped.disk.duplicates == {}
    xa.start(xid(2))
    xa.session.send(identified(Q, "again", "one"))
    xa.end_and_commit(xid(2))
    assert waiting(stepped, Q) == ["again"]
