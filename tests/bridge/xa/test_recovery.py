"""Recovery: of what, of what not, and beside whom."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from bridge.xa.coordinator import Committed, Recovered, Transaction
from gateway.messaging.errors import ProviderUnavailable, XAError
from gateway.messaging.provider import Flags, Xid
from tests.bridge.xa.coordinator_process import MemoryStorage, Process
from tests.bridge.xa.resource_managers import (
    XA_RETRY,
    ResourceManager,
    Session,
    Work,
)
from tests.bridge.xa.two_managers import Two, begin, done, go, result


def test_others_branches_are_left_alone(two: Two) -> None:
    strangers = [Xid(1, b"x", b"y"), Xid(1246580992, b"\x01x", b"y"), Xid(1246580992, b"", b"")]
    for xid in strangers:
        two.a.prepared[xid] = Work()
    namesake = Process(MemoryStorage(), at_once=True)
    here, two.process = two.process, namesake
    transaction = two.moved()
    two.process = here
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    two.a.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    before = dict(two.a.prepared)
    for _ in range(2):
        assert two.recover() == (Recovered(), Recovered())
    assert two.a.prepared == before
    warned = [
        "another installation" in str(event.get("log_format")) for event in two.process.events
    ]
    assert sum(warned) == 2


def test_a_branch_later_than_the_log_is_left_alone(two: Two) -> None:
    """The log was put back from a copy that is older than the branch: what was decided since is not
    known.
    """
    copy = two.process.storage.crash(0)
    two.restart()
    two.restart()
    two.a.refusals["commit"] = [ProviderUnavailable("gone")]
    done(two.moved().commit())
    older = Process(copy, at_once=True)
    assert result(older.coordinator.recover("source", "rm:a", Session(two.a))) == Recovered()
    assert len(two.a.prepared) == 1
    [told] = [
        formatEvent(event) for event in older.events if "older copy" in str(event.get("log_format"))
    ]
    assert "imqcmd rollback txn" in told


@pytest.mark.parametrize("moment", range(60))
def test_recovery_leaves_a_live_transaction_alone_at_every_moment(moment: int) -> None:
    """Two links share a resource manager; one reconnects while the other is somewhere between begin
    and commit.
    """
    two = Two(at_once=False)
    link = Session(two.b, at_once=False)
    recovering: Deferred[Any] | None = None
    ticks = 0

    def tick() -> None:
        nonlocal ticks, recovering
        ticks += 1
        if ticks == moment:
            recovering = two.coordinator.recover("target", "rm:b", link)
        elif link.answers:
            link.answer()
        elif link.requests and ticks % 2:
            link.arrive()

    def move(session: Session) -> None:
        tick()
        session.arrive()
        tick()
        session.answer()
        tick()

    transaction = two.coordinator.begin()
    for ref_name, rm, session in (("source", "rm:a", two.source), ("target", "rm:b", two.target)):
        begin(transaction.enlist(ref_name, rm, session))
        move(session)
    taken = two.source.take()
    move(two.source)
    two.target.put(result(taken))
    move(two.target)
    committing = begin(transaction.commit())
    while two.source.requests or two.target.requests:
        for session in (two.target, two.source):
            if session.requests:
                move(session)
    assert result(committing) == Committed()
    while link.requests or link.answers:
        tick()
    assert recovering is None or isinstance(result(recovering), Recovered)
    assert (two.a.messages, two.b.messages) == ([2, 3], [1])
    assert two.process.failures() == []


def test_a_transaction_that_begins_during_the_scan_is_left_alone(two: Two) -> None:
    link = Session(two.b, at_once=False)
    recovering = two.coordinator.recover("target", "rm:b", link)
    transaction = two.moved()
    slow = Session(two.a, at_once=False)
    transaction._run.resources[0] = [slow]
    committing = begin(transaction.commit())
    assert two.b.prepared
    link.go()
    assert result(recovering) == Recovered()
    assert two.b.prepared
    two.source.end(next(iter(two.a.active)), Flags.SUCCESS)
    slow.requests.popleft().answer.callback(None)  # type: ignore[union-attr]
    go(slow)
    assert result(committing) == Committed()
    assert two.b.messages == [1]


def test_a_transaction_that_is_decided_during_the_scan(two: Two, transaction: Transaction) -> None:
    """It was prepared when the scan saw it, and waits when the scan is told."""
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    link = Session(two.b, at_once=False)
    slow = Session(two.b, at_once=False)
    transaction._run.resources[1] = [slow]
    committing = begin(transaction.commit())
    two.target.end(next(iter(two.b.active)), Flags.SUCCESS)
    slow.requests.popleft().answer.callback(None)  # type: ignore[union-attr]
    slow.arrive()
    recovering = two.coordinator.recover("target", "rm:b", link)
    link.arrive()
    slow.answer()
    slow.go()
    assert result(committing) == Committed(("target",))
    link.answer()
    link.go()
    assert result(recovering) == Recovered(committed=1)
    assert (two.b.messages, two.states) == ([1], [])


def test_one_recovery_at_a_time_and_each_has_its_own(two: Two) -> None:
    links = [Session(two.a, at_once=False) for _ in range(3)]
    runs = [two.coordinator.recover("source", "rm:a", link) for link in links]
    assert [len(link.requests) for link in links] == [1, 0, 0]
    links[0].snap(0)
    with pytest.raises(ProviderUnavailable):
        result(runs[0])
    for link, run in zip(links[1:], runs[1:], strict=True):
        link.go()
        assert result(run) == Recovered()


def test_recovery_tells_what_it_could_not_complete(two: Two) -> None:
    transactions = []
    for _ in range(2):
        two.b.refusals["commit"] = [XAError(XA_RETRY, "later")]
        transaction = two.moved()
        done(transaction.commit())
        transactions.append(transaction)
    two.b.refusals["commit"] = [XAError(XA_RETRY, "later still")]
    with pytest.raises(XAError, match="later still"):
        two.recover_target()
    assert [one.id for one in two.coordinator.transactions()] == [transactions[0].id]
    assert two.recover_target() == Recovered(committed=1)


def test_a_resource_manager_that_is_another_one_now_is_not_believed(
    two: Two, transaction: Transaction
) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    two.restart(kept=10_000)
    elsewhere = ResourceManager("rm:c")
    assert result(two.coordinator.recover("target", "rm:c", Session(elsewhere))) == Recovered()
    assert elsewhere.calls == ["recover"]
    assert two.states == ["WAITING"]
    # The same by another name.
    assert result(two.coordinator.recover("other", "rm:d", Session(two.b))) == Recovered(
        committed=1
    )
    assert two.b.messages == [1]


def test_padded_ids_are_known(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    (xid,) = two.b.prepared
    padded = Xid(xid.format_id, xid.gtrid.ljust(64, b"\0"), xid.bqual.ljust(64, b"\0"))
    two.b.prepared[padded] = two.b.prepared.pop(xid)
    assert two.recover_target() == Recovered(committed=1)
    assert two.b.messages == [1]
