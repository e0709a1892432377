"""The calls of XA by the seam: which is in order when, and the answer to one that is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.errors import (
    MessageRejected,
    NotSupported,
    ProviderUnavailable,
    TransactionTooLarge,
    XAError,
)
from gateway.messaging.provider import Flags, Vote, Xid
from tests.gateway.broker.administration import outcome
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa.xa_branches import (
    BLOCKING,
    DUPID,
    INVAL,
    NOTA,
    OTHER,
    PROTO,
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


def test_the_life_of_a_branch_by_its_codes(stepped: Stepped, xa: Branching) -> None:
    one, resource = xid(1), xa.resource
    for ask in (
        resource.prepare,
        resource.rollback,
        resource.forget,
        partial(resource.commit, one_phase=True),
    ):
        unknown: Callable[[Xid], Deferred[Any]] = ask
        assert code(stepped, partial(unknown, one)) == NOTA
    assert code(stepped, lambda: resource.end(one, Flags.SUCCESS)) == NOTA
    assert code(stepped, lambda: resource.start(one, Flags.JOIN)) == NOTA
    xa.start(one)
    assert code(stepped, lambda: resource.start(xid(2), Flags.NOFLAGS)) == PROTO
    assert code(stepped, lambda: Branching(stepped).resource.start(one, Flags.NOFLAGS)) == DUPID
    assert code(stepped, lambda: resource.prepare(one)) == PROTO
    assert code(stepped, lambda: resource.rollback(one)) == PROTO
    assert code(stepped, lambda: resource.commit(one, True)) == PROTO
    xa.session.send(texts(Q, ["x"]))
    xa.end(one)
    assert code(stepped, lambda: resource.end(one, Flags.SUCCESS)) == PROTO
    assert code(stepped, lambda: resource.commit(one, False)) == PROTO
    assert code(stepped, lambda: resource.forget(one)) == PROTO
    assert xa.recover() == []
    assert xa.prepare(one) is Vote.OK
    assert code(stepped, lambda: resource.prepare(one)) == PROTO
    assert code(stepped, lambda: resource.commit(one, True)) == PROTO
    assert code(stepped, lambda: resource.start(one, Flags.JOIN)) == PROTO
    assert code(stepped, lambda: resource.start(one, Flags.NOFLAGS)) == DUPID
    assert code(stepped, lambda: resource.forget(one)) == PROTO
    assert xa.recover() == [one]
    xa.commit(one)
    assert code(stepped, lambda: resource.commit(one, False)) == NOTA
    assert xa.recover() == []


@pytest.mark.parametrize(
    "wrong",
    [
        Xid(-1, b"g", b"b"),
        Xid(1, b"", b"b"),
        Xid(1, b"g", b""),
        Xid(1, bytes(65), b"b"),
        Xid(1, b"g", bytes(65)),
    ],
)
def test_what_no_branch_can_be_called(stepped: Stepped, xa: Branching, wrong: Xid) -> None:
    assert code(stepped, lambda: xa.resource.start(wrong, Flags.NOFLAGS)) == INVAL


def test_flags_that_mean_nothing(stepped: Stepped, xa: Branching) -> None:
    assert code(stepped, lambda: xa.resource.start(xid(1), Flags.SUCCESS)) == INVAL
    assert code(stepped, lambda: xa.resource.start(xid(1), Flags.JOIN | Flags.RESUME)) == INVAL
    xa.start(xid(1))
    assert code(stepped, lambda: xa.resource.end(xid(1), Flags.JOIN)) == INVAL


def test_a_branch_is_suspended_and_resumed_by_its_session(stepped: Stepped, xa: Branching) -> None:
    one, two = xid(1), xid(2)
    xa.start(one)
    xa.session.send(texts(Q, ["one"]))
    xa.end(one, Flags.SUSPEND)
    assert code(stepped, lambda: xa.resource.end(one, Flags.SUSPEND)) == PROTO
    assert code(stepped, lambda: xa.resource.prepare(one)) == PROTO
    assert code(stepped, lambda: xa.resource.start(one, Flags.JOIN)) == PROTO
    assert code(stepped, lambda: Branching(stepped).resource.start(one, Flags.RESUME)) == PROTO
    xa.sends(two, Q, ["two"])
    assert code(stepped, lambda: xa.resource.start(two, Flags.RESUME)) == PROTO
    xa.start(one, Flags.RESUME)
    xa.session.send(texts(Q, ["one again"]))
    xa.end(one)
    xa.commit(two, one_phase=True)
    xa.commit(one, one_phase=True)
    assert waiting(stepped, Q) == ["two", "one", "one again"]


def test_a_suspended_association_may_be_ended(stepped: Stepped, xa: Branching) -> None:
    xa.start(xid(1))
    xa.session.send(texts(Q, ["x"]))
    xa.end(xid(1), Flags.SUSPEND)
    xa.end_and_commit(xid(1))
    assert waiting(stepped, Q) == ["x"]


@pytest.mark.parametrize("how", ["prepare", "commit", "rollback"])
def test_a_branch_that_failed_can_only_be_rolled_back(
    stepped: Stepped, xa: Branching, how: str
) -> None:
    one = xid(1)
    xa.start(one)
    xa.session.send(texts(Q, ["never"]))
    xa.end(one, Flags.FAIL)
    assert code(stepped, lambda: xa.resource.start(one, Flags.JOIN)) == RBROLLBACK
    if how == "rollback":
        xa.rollback(one)
    else:
        assert (
            code(
                stepped,
                lambda: (
                    xa.resource.prepare(one) if how == "prepare" else xa.resource.commit(one, True)
                ),
            )
            == RBROLLBACK
        )
    assert code(stepped, lambda: xa.resource.rollback(one)) == NOTA
    assert waiting(stepped, Q) == []
    assert stepped.empty


@pytest.mark.parametrize("end", [Flags.SUCCESS, Flags.SUSPEND, Flags.FAIL])
def test_work_of_a_failed_branch_does_not_go_into_the_next_of_its_session(
    stepped: Stepped, xa: Branching, end: Flags
) -> None:
    fill(stepped, 1)
    one, two = xid(1), xid(2)
    inbox = xa.consume(Q)
    xa.takes(one, inbox, 1)
    xa.session.send(texts(Q, ["never"]))
    other = Branching(stepped)
    other.start(one, Flags.JOIN)
    other.end(one, Flags.FAIL)
    assert code(stepped, lambda: xa.resource.end(one, end)) == RBROLLBACK
    xa.sends(two, Q, ["second"])
    xa.commit(two, one_phase=True)
    xa.rollback(one)
    inbox.consumer.close()
    assert waiting(stepped, Q) == ["0", "second"]


def test_without_work_there_is_no_second_phase(stepped: Stepped, xa: Branching) -> None:
    xa.start(xid(1))
    xa.end(xid(1))
    assert xa.prepare(xid(1)) is Vote.READ_ONLY
    assert code(stepped, lambda: xa.resource.commit(xid(1), False)) == NOTA
    assert stepped.disk.branches == {}
    xa.start(xid(1))
    xa.end_and_commit(xid(1))
    assert code(stepped, lambda: xa.resource.commit(xid(1), True)) == NOTA


def test_nothing_is_done_outside_of_a_branch(stepped: Stepped, xa: Branching) -> None:
    fill(stepped, 2)
    inbox = xa.consume(Q)
    stepped.run_until_idle()
    assert inbox.texts == ["0", "1"], "deliveries are made all the same"
    with pytest.raises(NotSupported, match="send outside of a branch"):
        xa.session.send(texts(Q, ["x"]))
    with pytest.raises(NotSupported, match="acknowledgement outside of a branch"):
        inbox.consumer.acknowledge_through(2)
    with pytest.raises(NotSupported):
        xa.session.commit(Told())
    with pytest.raises(NotSupported):
        xa.session.rollback(Told())
    xa.start(xid(1))
    with pytest.raises(NotSupported):
        inbox.consumer.reject([1])
    inbox.consumer.acknowledge_through(1)
    xa.end(xid(1))
    with pytest.raises(NotSupported):
        inbox.consumer.acknowledge_through(2)
    xa.commit(xid(1), one_phase=True)
    xa.session.close()
    assert waiting(stepped, Q) == ["1"]


def test_a_closed_session_has_no_resource(stepped: Stepped, xa: Branching) -> None:
    xa.session.close()
    asked: tuple[Callable[[], Deferred[Any]], ...] = (
        lambda: xa.resource.start(xid(1), Flags.NOFLAGS),
        lambda: xa.resource.end(xid(1), Flags.SUCCESS),
        lambda: xa.resource.prepare(xid(1)),
        lambda: xa.resource.commit(xid(1), True),
        lambda: xa.resource.rollback(xid(1)),
        lambda: xa.resource.recover(),
        lambda: xa.resource.forget(xid(1)),
    )
    for ask in asked:
        with pytest.raises(ProviderUnavailable):
            outcome(stepped, ask())


def test_calls_for_one_branch_wait_for_one_another(stepped: Stepped, xa: Branching) -> None:
    xa.sends(xid(1), Q, ["x"])
    prepared, committed, again = Told(), Told(), Told()
    xa.resource.prepare(xid(1)).addCallbacks(
        lambda vote: prepared(None), lambda failure: prepared(failure.value)
    )
    xa.resource.commit(xid(1), False).addCallbacks(
        lambda _: committed(None), lambda failure: committed(failure.value)
    )
    xa.resource.rollback(xid(1)).addCallbacks(
        lambda _: again(None), lambda failure: again(failure.value)
    )
    stepped.run_reactor()
    assert (prepared.results, committed.results, xa.resource.recover().result) == ([], [], [])
    stepped.run_until_idle()
    assert (prepared.well, committed.well) == (True, True)
    (error,) = again.results
    assert isinstance(error, XAError)
    assert error.code == NOTA
    assert waiting(stepped, Q) == ["x"]


def test_what_is_on_its_way_is_not_to_be_recovered(stepped: Stepped, xa: Branching) -> None:
    xa.start(xid(1))
    xa.end(xid(1))
    told = Told()
    xa.resource.commit(xid(1), True).addCallback(told)
    assert xa.resource.recover().result == []
    other = Branching(stepped)
    assert code(stepped, lambda: other.resource.start(xid(1), Flags.JOIN)) in (NOTA, PROTO)
    assert told.well


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
