"""What can keep a branch from its commit: limits, time, the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.errors import MessageRejected, TransactionTooLarge, XAError
from gateway.messaging.provider import Flags
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa_branches import (
    BLOCKING,
    NOTA,
    OTHER,
    RBROLLBACK,
    RBTIMEOUT,
    RMFAIL,
    SMALL,
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


def test_limits_leave_room_for_what_is_prepared(stepped: Stepped, xa: Branching) -> None:
    xa.prepares(xid(1), SMALL, range(2))
    session = stepped.session()
    session.send(texts(SMALL, ["fits"]))
    with pytest.raises(MessageRejected):
        session.send(texts(SMALL, ["does not"]))
    xa.rollback(xid(1))
    stepped.send(texts(SMALL, range(2)), session)
    assert waiting(stepped, SMALL) == ["fits", "0", "1"]


def test_what_no_longer_fits_is_a_rollback(stepped: Stepped, xa: Branching) -> None:
    xa.sends(xid(1), SMALL, range(2))
    xa.sends(xid(2), SMALL, range(2))
    xa.sends(xid(3), SMALL, range(2))
    xa.prepare(xid(1))
    assert code(stepped, lambda: xa.resource.prepare(xid(2))) == RBROLLBACK
    assert code(stepped, lambda: xa.resource.commit(xid(3), True)) == RBROLLBACK
    assert code(stepped, lambda: xa.resource.rollback(xid(2))) == NOTA
    xa.commit(xid(1))
    assert waiting(stepped, SMALL) == ["0", "1"]
    assert stepped.broker.queue(SMALL).coming == 0


def test_two_sessions_cannot_exceed_a_limit_together(stepped: Stepped, xa: Branching) -> None:
    other = Branching(stepped)
    xa.start(xid(1))
    other.start(xid(1), Flags.JOIN)
    xa.session.send(texts(SMALL, range(2)))
    other.session.send(texts(SMALL, range(2)))
    xa.end(xid(1))
    other.end(xid(1))
    assert code(stepped, lambda: xa.resource.commit(xid(1), True)) == RBROLLBACK
    queue = stepped.broker.queue(SMALL)
    assert (queue.count, queue.coming, queue.prepared) == (0, 0, 0)


def test_a_sender_is_held_back_by_what_it_has_prepared(stepped: Stepped, xa: Branching) -> None:
    xa.sends(xid(1), BLOCKING, range(3))
    assert xa.session.writable()
    xa.prepare(xid(1))
    assert not xa.session.writable()
    resumed = Told()
    xa.session.on_writable(lambda: resumed(None))
    stepped.run_until_idle()
    assert resumed.results == []
    xa.rollback(xid(1))
    assert resumed.well


def test_the_limits_of_transactions_are_those_of_branches(stepped: Stepped, xa: Branching) -> None:
    xa.start(xid(1))
    xa.session.send(texts(Q, range(6)))
    with pytest.raises(MessageRejected) as caught:
        xa.session.send(texts(Q, range(5)))
    assert isinstance(caught.value.cause, TransactionTooLarge)
    xa.end(xid(1), Flags.SUSPEND)
    xa.start(xid(1), Flags.RESUME)
    xa.session.send(texts(Q, range(5)))
    xa.end(xid(1))
    assert code(stepped, lambda: xa.resource.prepare(xid(1))) == RBROLLBACK
    fill(stepped, 21)
    inbox = xa.consume(Q)
    xa.acknowledges(xid(2), inbox)
    assert code(stepped, lambda: xa.resource.commit(xid(2), True)) == RBROLLBACK
    assert stepped.broker.queue(Q).count == 21


def pass_time(stepped: Stepped, seconds: int) -> None:
    stepped.later(5, times=seconds // 5)


def test_a_branch_with_work_times_out(stepped: Stepped, xa: Branching) -> None:
    fill(stepped, 1)
    inbox = xa.consume(Q)
    xa.takes(xid(1), inbox, 1)
    xa.session.send(texts(OTHER, ["never"]))
    inbox.clear()
    pass_time(stepped, 95)
    assert inbox.texts == []
    pass_time(stepped, 55)
    assert (inbox.texts, inbox.attempts) == (["0"], [2])
    with pytest.raises(XAError) as caught:
        xa.session.send(texts(OTHER, ["never"]))
    assert caught.value.code == RBTIMEOUT
    assert code(stepped, lambda: xa.resource.end(xid(1), Flags.SUCCESS)) == RBTIMEOUT
    assert code(stepped, lambda: xa.resource.prepare(xid(1))) == RBTIMEOUT
    assert code(stepped, lambda: xa.resource.rollback(xid(1))) == NOTA
    assert waiting(stepped, OTHER) == []


def test_a_branch_that_has_ended_times_out(stepped: Stepped, xa: Branching) -> None:
    xa.sends(xid(1), Q, ["never"])
    pass_time(stepped, 150)
    assert code(stepped, lambda: xa.resource.commit(xid(1), True)) == RBTIMEOUT
    xa.sends(xid(2), Q, ["never"])
    pass_time(stepped, 150)
    xa.rollback(xid(2))
    assert waiting(stepped, Q) == []


def test_a_branch_without_work_waits_for_it_without_end(stepped: Stepped, xa: Branching) -> None:
    xa.start(xid(1))
    pass_time(stepped, 1_000)
    xa.session.send(texts(Q, ["x"]))
    pass_time(stepped, 95)
    xa.end_and_prepare(xid(1))
    pass_time(stepped, 1_000)
    xa.commit(xid(1))
    assert waiting(stepped, Q) == ["x"]


def test_time_outs_can_be_switched_off(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0, xa_timeout=0))
    xa = Branching(stepped)
    xa.sends(xid(1), Q, ["x"])
    pass_time(stepped, 5_000)
    xa.commit(xid(1), one_phase=True)
    assert waiting(stepped, Q) == ["x"]


def test_a_broken_disk_leaves_the_outcome_open(stepped: Stepped, xa: Branching) -> None:
    xa.sends(xid(1), Q, ["x"])
    told = Told()
    xa.resource.prepare(xid(1)).addCallbacks(
        lambda _: told(None), lambda failure: told(failure.value)
    )
    stepped.run_reactor()
    stepped.store.fail()
    stepped.run_reactor()
    (error,) = told.results
    assert isinstance(error, XAError)
    assert (error.code, len(stepped.failures)) == (RMFAIL, 1)
