"""The calls of XA by the seam: which is in order when, and the answer to one that is not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.messaging.errors import NotSupported, ProviderUnavailable, XAError
from gateway.messaging.provider import Flags, Vote, Xid
from tests.gateway.broker.administration import outcome
from tests.gateway.broker.stepped_broker import Stepped, Told, texts
from tests.gateway.broker.xa_branches import (
    DUPID,
    INVAL,
    NOTA,
    PROTO,
    RBROLLBACK,
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
