"""Heuristic outcomes, and what operators order."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from bridge.xa import decision_log
from bridge.xa.coordinator import Committed, Recovered, Transaction
from bridge.xa.decision_log import Presumed
from bridge.xa.errors import Heuristic, NotWritten, RolledBack, UnknownTransaction, WrongState
from gateway.messaging.errors import ProviderUnavailable, XAError
from gateway.messaging.provider import Xid
from tests.bridge.xa.resource_managers import (
    XA_HEURCOM,
    XA_HEURHAZ,
    XA_HEURMIX,
    XA_HEURRB,
    XAER_NOTA,
    XAER_RMERR,
    XAER_RMFAIL,
    ResourceManager,
)
from tests.bridge.xa.two_managers import Two, begin, done, go, result


def test_a_heuristic_commit_is_as_good_as_one(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [XAError(XAER_RMFAIL, "no")]
    done(transaction.commit())
    two.b.decide(next(iter(two.b.prepared)), XA_HEURCOM)
    two.b.refusals["forget"] = [XAError(XAER_RMFAIL, "not yet")]
    with pytest.raises(XAError):
        two.recover()
    assert two.states == ["WAITING"]
    assert two.recover_target() == Recovered(committed=1)
    assert (two.b.heuristics, two.states) == ({}, [])


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (XA_HEURRB, "HEURISTIC_ROLLBACK"),
        (XA_HEURMIX, "HEURISTIC_MIXED"),
        (XA_HEURHAZ, "HEURISTIC_HAZARD"),
        (100, "HEURISTIC_ROLLBACK"),
    ],
)
def test_a_heuristic_outcome_is_kept_until_it_is_forgotten(
    two: Two, transaction: Transaction, code: int, state: str
) -> None:
    two.b.refusals["commit"] = [XAError(code, "on its own")]
    with pytest.raises(Heuristic) as caught:
        done(transaction.commit())
    assert caught.value.outcomes == {"source": "COMMITTED", "target": state}
    xid = next(iter(two.b.prepared))
    two.b.decide(xid, code)
    two.restart()
    two.recover()
    status = two.coordinator.transactions()[0]
    assert (status.id, status.state, status.branches[1].state) == (
        transaction.id,
        "HEURISTIC",
        state,
    )
    assert two.b.heuristics == {xid: code}
    for operation in ("commit", "rollback"):
        with pytest.raises(WrongState):
            result(getattr(two.coordinator, operation)(transaction.id))
    result(two.coordinator.forget(transaction.id))
    assert (two.b.heuristics, two.states) == ({}, [])


def test_forgetting_waits_for_a_resource_manager_and_need_not(
    two: Two, transaction: Transaction
) -> None:
    two.b.refusals["commit"] = [XAError(XA_HEURMIX, "on its own")]
    with pytest.raises(Heuristic):
        done(transaction.commit())
    two.b.decide(next(iter(two.b.prepared)), XA_HEURMIX)
    result(two.coordinator.forget(transaction.id))
    two.restart()
    assert two.states == ["FORGETTING"]
    kept = two.process.storage
    two.recover()
    assert (two.b.heuristics, two.states) == ({}, [])
    two.process.storage = kept.crash(0)
    two.restart()
    assert two.states == ["FORGETTING"]
    result(two.coordinator.forget(transaction.id))
    assert two.states == []
    two.restart()
    assert two.states == []


def test_a_heuristic_commit_of_what_was_rolled_back(two: Two, transaction: Transaction) -> None:
    two.b.refusals["prepare"] = [XAError(100, "no")]
    two.a.refusals["rollback"] = [XAError(XA_HEURCOM, "on its own")]
    with pytest.raises(Heuristic):
        done(transaction.commit())
    two.restart()
    status = two.coordinator.transactions()[0]
    assert (status.state, status.decision, status.branches[0].state) == (
        "HEURISTIC",
        "",
        "HEURISTIC_COMMIT",
    )


def test_a_heuristic_outcome_that_only_recovery_finds(two: Two, transaction: Transaction) -> None:
    two.b.refusals["prepare"] = [XAError(100, "no")]
    two.a.refusals["rollback"] = [ProviderUnavailable("gone")]
    with pytest.raises(RolledBack):
        done(transaction.commit())
    two.a.decide(next(iter(two.a.prepared)), XA_HEURCOM)
    two.restart()
    assert two.recover()[0] == Recovered(heuristic=1)
    assert two.recover()[0] == Recovered()
    two.restart()
    assert two.coordinator.transactions()[0].id == transaction.id
    result(two.coordinator.forget(transaction.id))
    two.recover()
    assert (two.a.heuristics, two.states) == ({}, [])


def test_an_operator_gives_up_waiting(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    with pytest.raises(WrongState):
        result(two.coordinator.forget(transaction.id))
    for unknown in ("77", ""):
        with pytest.raises(UnknownTransaction):
            result(two.coordinator.commit(unknown))
    result(two.coordinator.commit(f"000{transaction.id.upper()} "))
    assert two.states == []
    two.restart()
    assert two.states == []


def test_an_operator_decides_against_it(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    result(two.coordinator.rollback(transaction.id))
    with pytest.raises(WrongState):
        result(two.coordinator.rollback(transaction.id))
    two.restart()
    status = two.coordinator.transactions()[0]
    assert (status.state, status.branches[1].state) == ("WAITING", "ROLLBACK_ORDERED")
    assert two.recover_target() == Recovered(heuristic=1)
    assert (two.b.messages, two.b.prepared) == ([], {})
    two.restart()
    assert two.states == ["HEURISTIC"]
    result(two.coordinator.forget(transaction.id))
    two.recover()
    assert two.states == []


def test_an_order_that_cannot_be_recorded_is_told(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    two.process.storage.room = 0
    with pytest.raises(NotWritten):
        result(two.coordinator.rollback(transaction.id))


def test_a_live_transaction_takes_no_orders(two: Two, transaction: Transaction) -> None:
    assert two.states == ["ACTIVE"]
    for operation in ("commit", "rollback", "forget"):
        with pytest.raises(WrongState, match="ACTIVE"):
            result(getattr(two.coordinator, operation)(transaction.id))
    done(transaction.rollback())


def test_how_a_transaction_is_shown(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    (status,) = two.coordinator.transactions()
    gtrid = next(iter(two.b.prepared)).gtrid.hex()
    branches = [branch.xid.split(":")[2] for branch in status.branches]
    assert status.text == f"{gtrid}(COMMIT)[{branches[0]}(COMMIT), {branches[1]}(WAITING)]"
    assert [(branch.ref_name, branch.rm) for branch in status.branches] == [
        ("source", "rm:a"),
        ("target", "rm:b"),
    ]


def test_a_provider_that_breaks_its_word_is_logged_and_waited_for(
    two: Two, transaction: Transaction
) -> None:

    def commit(xid: Xid, one_phase: bool) -> Deferred[None]:
        raise ZeroDivisionError

    two.target.commit = commit  # type: ignore[method-assign]
    assert done(transaction.commit()) == Committed(("target",))
    assert len(two.process.failures()) == 1
    two.reconnect()
    two.recover()
    assert two.b.messages == [1]


def test_who_waits_may_be_cancelled_and_the_transaction_goes_on() -> None:
    two = Two(at_once=False)
    transaction = two.coordinator.begin()
    enlisting = begin(transaction.enlist("source", "rm:a", two.source))
    two.source.go()
    result(enlisting)
    committing = begin(transaction.commit())
    committing.addErrback(lambda failure: None)
    committing.cancel()
    go(two.source)
    assert (two.a.calls, two.states) == (["start", "end", "commit"], [])


def hazard(two: Two) -> str:
    """A transaction whose source is prepared, while another broker by its name has said that it
    never heard of it. :returns: its id.
    """
    transaction = two.moved()
    two.a.refusals["commit"] = [XAError(XAER_RMERR, "what?")]
    assert done(transaction.commit()) == Committed(("source",))
    assert two.recover_source(ResourceManager("rm:a")) == Recovered(heuristic=1)
    [status] = two.coordinator.transactions()
    assert (status.state, status.branches[0].state) == ("HEURISTIC", "HEURISTIC_HAZARD")
    assert len(two.a.prepared) == 1
    return transaction.id


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("forgetting", [False, True])
def test_a_hazard_that_comes_to_light_is_committed_as_decided(
    two: Two, restarted: bool, forgetting: bool
) -> None:
    id = hazard(two)
    if restarted:
        two.restart(kept=10_000)
    if forgetting:
        # Its resource manager was reachable before, and cannot forget what is prepared.
        two.a.refusals["recover"] = [ProviderUnavailable("not now")]
        with pytest.raises(ProviderUnavailable):
            two.recover()
        result(two.coordinator.forget(id))
        assert two.states == ["FORGETTING"]
    assert two.recover_source() == Recovered(committed=1)
    assert (two.a.messages, two.a.prepared, two.b.messages, two.coordinator.transactions()) == (
        [2, 3],
        {},
        [1],
        [],
    )
    [told] = [
        formatEvent(event)
        for event in two.process.events
        if "holds branch" in str(event.get("log_format"))
    ]
    assert "dead message queue" in told
    two.process.reactor.advance(1)
    assert two.process.file.entries() == ()


@pytest.mark.parametrize("restarts", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("reached", [False, True])
def test_what_is_decided_is_committed_when_it_comes_to_light_though_it_was_forgotten(
    two: Two, restarts: tuple[bool, bool], reached: bool
) -> None:
    """:param reached: the other broker by its name has forgotten it; else the operator ordered it
    twice.
    """
    id = hazard(two)
    if restarts[0]:
        two.restart(kept=10_000)
    result(two.coordinator.forget(id))
    if reached and restarts[0]:
        two.recover_source(ResourceManager("rm:a"))
    elif not reached and two.coordinator.transactions():
        result(two.coordinator.forget(id))
    assert two.states == []
    if restarts[1]:
        two.restart_later()
    assert two.recover_source() == Recovered(committed=1)
    assert (two.a.messages, two.a.prepared, two.b.messages) == ([2, 3], {}, [1])


def test_what_was_taken_for_committed_is_remembered_anew_when_its_transaction_is_forgotten(
    two: Two, transaction: Transaction
) -> None:
    """It was heuristic for longer than anything is remembered."""
    two.a.refusals["commit"] = [XAError(XAER_NOTA, "never heard of it")]
    two.b.refusals["commit"] = [XAError(XA_HEURMIX, "on its own")]
    with pytest.raises(Heuristic):
        done(transaction.commit())
    two.b.decide(next(iter(two.b.prepared)), XA_HEURMIX)
    two.process.coordinator._presumed.add(
        Presumed(b"another", b"b", 2 * decision_log.PRESUMED_KEPT_MS)
    )
    two.process.reactor.advance(2 * decision_log.PRESUMED_KEPT_MS / 1000)
    result(two.coordinator.forget(transaction.id))
    result(two.coordinator.forget(transaction.id))
    assert two.recover_source() == Recovered(committed=1)
    assert (two.a.messages, two.a.prepared) == ([2, 3], {})


def test_a_hazard_of_what_was_ordered_to_be_rolled_back_is_not_committed(
    two: Two, transaction: Transaction
) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    result(two.coordinator.rollback(transaction.id))
    two.recover_target(ResourceManager("rm:b"))
    [status] = two.coordinator.transactions()
    assert (status.state, status.branches[1].state) == ("HEURISTIC", "HEURISTIC_HAZARD")
    assert two.recover_target() == Recovered()
    assert len(two.b.prepared) == 1
    for _ in range(2):
        if two.coordinator.transactions():
            result(two.coordinator.forget(transaction.id))
    assert two.recover_target() == Recovered(rolled_back=1)
    assert two.b.messages == []
