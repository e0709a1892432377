"""A resource manager is not the one that it was: another broker answers by its name for a while.
And what was taken for committed comes to light.
"""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bridge.xa import decision_log
from bridge.xa.coordinator import Committed, Recovered, Transaction
from bridge.xa.decision_log import Presumed, Presumptions
from bridge.xa.errors import RolledBack
from gateway.messaging.errors import ProviderUnavailable, XAError
from gateway.messaging.provider import Xid
from tests.bridge.xa.resource_managers import (
    XA_HEURCOM,
    XAER_NOTA,
    XAER_RMFAIL,
    ResourceManager,
    Session,
)
from tests.bridge.xa.two import Two, done, result

SEVERAL = "rm:b (target)"


def waiting(two: Two, rm: str = "rm:b") -> Any:
    """A transaction that is decided, and whose target was lost before its commit."""
    transaction = two.coordinator.begin()
    done(transaction.enlist("source", "rm:a", two.source))
    done(transaction.enlist("target", rm, two.target))
    result(two.target.put(result(two.source.take())))
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert done(transaction.commit()) == Committed(("target",))
    return transaction


def recovered(two: Two, manager: ResourceManager, rm: str = "rm:b") -> Recovered:
    found: Recovered = result(two.coordinator.recover("target", rm, Session(manager)))
    return found


def warned(two: Two, words: str) -> int:
    return sum(words in str(event.get("log_format")) for event in two.process.events)


@pytest.mark.parametrize("restarts", [(False, False), (True, False), (False, True), (True, True)])
def test_a_branch_that_another_broker_did_not_know_is_committed_when_it_comes_to_light(
    two: Two,
    restarts: tuple[bool, bool],
) -> None:
    waiting(two)
    if restarts[0]:
        two.process.reactor.advance(1)
        two.restart(kept=10_000)
    assert recovered(two, ResourceManager("rm:b")) == Recovered(committed=1)
    assert two.coordinator.transactions() == []
    if restarts[1]:
        two.process.reactor.advance(1)
        two.restart(kept=10_000)
    assert recovered(two, two.b) == Recovered(committed=1)
    assert (two.a.messages, two.b.messages, two.b.prepared) == ([2, 3], [1], {})
    assert recovered(two, two.b) == Recovered()
    two.process.reactor.advance(1)
    assert two.process.file.entries() == ()


def test_it_is_remembered_when_the_log_is_written_anew_and_when_it_comes_to_light_at_a_bad_moment(
    two: Two,
) -> None:
    waiting(two)
    recovered(two, ResourceManager("rm:b"))
    for _ in range(200):
        two.process.reactor.advance(1)
        two.restart(kept=10_000)
    two.b.refusals["commit"] = [XAError(XAER_RMFAIL, "not yet")]
    with pytest.raises(XAError):
        recovered(two, two.b)
    assert [one.state for one in two.coordinator.transactions()] == ["WAITING"]
    two.process.reactor.advance(1)
    two.restart(kept=10_000)
    assert recovered(two, two.b) == Recovered(committed=1)
    assert two.b.messages == [1]


def test_it_is_remembered_for_a_branch_that_was_committed_on_its_own(two: Two) -> None:
    waiting(two)
    recovered(two, ResourceManager("rm:b"))
    two.b.decide(next(iter(two.b.prepared)), XA_HEURCOM)
    assert recovered(two, two.b) == Recovered(committed=1)
    assert (two.b.messages, two.b.heuristics, two.coordinator.transactions()) == ([1], {}, [])


def test_another_branch_of_such_a_transaction_is_left_alone(two: Two) -> None:
    waiting(two)
    xid = next(iter(two.b.prepared))
    recovered(two, ResourceManager("rm:b"))
    stranger = Xid(xid.format_id, xid.gtrid, b"\x06target\x07")
    two.b.prepared[stranger] = two.b.prepared[xid]
    assert recovered(two, two.b) == Recovered(committed=1)
    assert list(two.b.prepared) == [stranger]
    assert warned(two, "did not have") == 1


def test_the_first_commit_that_is_answered_so_is_warned_of(
    two: Two, transaction: Transaction
) -> None:

    def prepare(xid: Xid) -> Deferred[Any]:
        answer = Session.prepare(two.target, xid)
        two.target.manager = ResourceManager("rm:b")
        return answer

    two.target.prepare = prepare  # type: ignore[method-assign]
    assert done(transaction.commit()) == Committed()
    assert warned(two, "does not know branch") == 1
    [event] = [
        one for one in two.process.events if "does not know branch" in str(one.get("log_format"))
    ]
    assert (event["id"], event["ref_name"]) == (transaction.id, "target")
    [xid] = two.b.prepared
    assert event["xid"] == f"{xid.format_id}:{xid.gtrid.hex()}:{xid.bqual.hex()}"
    assert two.coordinator.transactions() == []
    assert recovered(two, two.b) == Recovered(committed=1)
    assert two.b.messages == [1]


def test_the_second_one_is_not_warned_of(two: Two) -> None:
    waiting(two)
    recovered(two, ResourceManager("rm:b"))
    two.process.reactor.advance(1)
    two.restart(kept=10_000)
    assert warned(two, "does not know branch") == 0


def test_what_may_be_one_of_several_waits_until_it_is_listed(two: Two) -> None:
    transaction = waiting(two, SEVERAL)
    other = ResourceManager("rm:b")
    for _ in range(2):
        # And keeps nobody from going on.
        assert recovered(two, other, SEVERAL) == Recovered()
    assert "commit" not in other.calls
    [status] = two.coordinator.transactions()
    assert (status.id, status.state, status.branches[1].state) == (
        transaction.id,
        "WAITING",
        "WAITING",
    )
    assert "not known" in status.branches[1].reason
    assert warned(two, "may lead to several brokers") == 1
    two.process.reactor.advance(1)
    two.restart(kept=10_000)
    assert "not known" in two.coordinator.transactions()[0].branches[1].reason
    assert recovered(two, two.b, SEVERAL) == Recovered(committed=1)
    assert (two.b.messages, two.coordinator.transactions()) == ([1], [])


def test_what_may_be_one_of_several_waits_though_its_commit_is_answered_so(two: Two) -> None:
    transaction = waiting(two, SEVERAL)
    two.b.refusals["commit"] = [XAError(XAER_NOTA, "it was the other one that listed it")]
    assert recovered(two, two.b, SEVERAL) == Recovered()
    assert [one.state for one in two.coordinator.transactions()] == ["WAITING"]
    result(two.coordinator.commit(transaction.id))
    assert two.coordinator.transactions() == []


@pytest.mark.parametrize("rm", ["rm:b", SEVERAL])
def test_what_an_operator_took_for_committed_is_committed_when_it_comes_to_light(
    two: Two, rm: str
) -> None:
    transaction = waiting(two, rm)
    result(two.coordinator.commit(transaction.id))
    two.restart()
    assert two.coordinator.transactions() == []
    assert recovered(two, two.b, rm) == Recovered(committed=1)
    assert two.b.messages == [1]


def test_so_many_are_remembered_and_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "MOST_PRESUMED", 3)
    known = Presumptions(Presumed(bytes((number,)), b"b", number) for number in range(5))
    assert [one.gtrid for one in known] == [b"\2", b"\3", b"\4"]
    assert (list(known.of(b"\1")), list(known.of(b"\2"))) == ([], [b"b"])
    known.add(Presumed(b"\2", b"b", 5))
    assert [one.gtrid for one in known] == [b"\3", b"\4", b"\2"]
    known.add(Presumed(b"\2", b"c", decision_log.PRESUMED_KEPT_MS + 5))
    assert [(one.gtrid, one.bqual) for one in known] == [(b"\2", b"b"), (b"\2", b"c")]
    known.add(Presumed(b"\5", b"c", 3 * decision_log.PRESUMED_KEPT_MS))
    assert [one.gtrid for one in known] == [b"\5"]


def test_a_branch_that_another_broker_did_not_know_is_rolled_back_when_it_comes_to_light(
    two: Two,
) -> None:
    transaction = two.coordinator.begin()
    done(transaction.enlist("source", "rm:a", two.source))
    done(transaction.enlist("target", "rm:b", two.target))
    result(two.target.put(result(two.source.take())))
    two.b.refusals["prepare"] = [ProviderUnavailable("gone")]
    two.b.refusals["rollback"] = [ProviderUnavailable("gone")]
    two.a.refusals["rollback"] = [XAError(XAER_NOTA, "never heard of it")]
    with pytest.raises(RolledBack):
        done(transaction.commit())
    # The source's branch counts as rolled back, and the target's has not been heard of, so the
    # transaction is listed.
    assert [status.id for status in two.coordinator.transactions()] == [transaction.id]
    assert len(two.a.prepared) == 1
    assert result(two.coordinator.recover("source", "rm:a", Session(two.a))) == Recovered(
        rolled_back=1
    )
    assert (two.a.messages, two.a.prepared) == ([1, 2, 3], {})
