"""What need not be waited for: a session's start before it is asked more, and a commit before the
next transaction of the same sessions begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from bridge.xa.coordinator import Committed, Transaction
from bridge.xa.errors import RolledBack
from bridge.xa.status import TransactionState
from gateway.messaging.errors import ProviderUnavailable, XAError
from gateway.messaging.provider import Flags, Xid
from tests.bridge.xa.resource_managers import XA_HEURRB, XAER_DUPID, XAER_RMERR, Session
from tests.bridge.xa.two_managers import Two, begin, done, go, names, result


def moving(two: Two) -> tuple[Transaction, list[Deferred[None]]]:
    """A message is taken and put, and nothing of it is waited for."""
    transaction: Transaction = two.coordinator.begin()
    enlisting = [
        begin(transaction.enlist("source", "rm:a", two.source)),
        begin(transaction.enlist("target", "rm:b", two.target)),
    ]
    two.source.take()
    two.target.put(7).addErrback(lambda failure: None)
    return transaction, enlisting


def test_a_transaction_is_asked_for_at_one_go() -> None:
    two = Two(at_once=False)
    transaction, enlisting = moving(two)
    committing = begin(transaction.commit())
    assert names(two.source) == ["start", "take", "end", "prepare"]
    assert names(two.target) == ["start", "put", "end", "prepare"]
    go(two.source, two.target)
    for each in enlisting:
        result(each)
    assert result(committing) == Committed()
    assert (two.a.messages, two.b.messages) == ([2, 3], [7])


@pytest.mark.parametrize(
    "error", [XAError(XAER_RMERR, "no"), XAError(XAER_DUPID, "no"), ProviderUnavailable("no")]
)
def test_a_start_that_fails_behind_the_commit_is_why_it_is_rolled_back(error: Exception) -> None:
    two = Two(at_once=False)
    two.b.refusals["start"] = [error]
    transaction, enlisting = moving(two)
    committing = begin(transaction.commit())
    go(two.source, two.target)
    result(enlisting[0])
    with pytest.raises(type(error)):
        result(enlisting[1])
    with pytest.raises(RolledBack) as caught:
        result(committing)
    assert (caught.value.cause, caught.value.ref_name) == (error, "target")
    assert (two.a.messages, two.b.messages) == ([1, 2, 3], [])
    assert (two.a.active, two.a.prepared, two.states, two.process.failures()) == ({}, {}, [], [])


def test_of_a_branch_that_could_not_be_started_nothing_more_is_asked() -> None:
    two = Two(at_once=False)
    two.b.refusals["start"] = [XAError(XAER_RMERR, "no")]
    transaction, enlisting = moving(two)
    go(two.source, two.target)
    with pytest.raises(XAError):
        result(enlisting[1])
    rolling = begin(transaction.rollback())
    assert (names(two.source), names(two.target)) == (["end", "rollback"], [])
    go(two.source)
    result(rolling)
    assert two.states == []


def test_who_could_not_take_part_may_try_again_with_a_branch_of_its_own(two: Two) -> None:
    two.a.refusals["start"] = [XAError(XAER_RMERR, "no")]
    transaction = two.coordinator.begin()
    with pytest.raises(XAError):
        done(transaction.enlist("source", "rm:a", two.source))
    done(transaction.enlist("source", "rm:a", two.source))
    assert two.a.calls == ["start", "start"]
    done(transaction.rollback())
    assert not two.a.active


def test_a_start_that_raises_anything_at_once_keeps_the_other_side_from_committing_alone(
    two: Two,
) -> None:

    def start(xid: Xid, flags: Flags) -> Deferred[None]:
        raise ZeroDivisionError("a provider that breaks its word")

    two.target.start = start  # type: ignore[method-assign]
    transaction = two.enlisted(target=None)
    result(two.source.take())
    with pytest.raises(ZeroDivisionError):
        done(transaction.enlist("target", "rm:b", two.target))
    with pytest.raises(RolledBack) as rolled_back:
        done(transaction.commit())
    assert rolled_back.value.ref_name == "target"
    assert "ZeroDivisionError: a provider that breaks its word" in str(rolled_back.value.cause)
    assert (two.a.messages, two.b.messages) == ([1, 2, 3], [])


def test_a_session_that_cannot_join_is_left_out(two: Two) -> None:
    transaction = two.coordinator.begin()
    other = Session(two.a)
    done(transaction.enlist("source", "rm:a", two.source))
    two.a.refusals["start"] = [XAError(XAER_RMERR, "no")]
    with pytest.raises(XAError):
        done(transaction.enlist("target", "rm:a", other))
    done(transaction.rollback())
    assert two.a.calls[-2:] == ["end", "rollback"]
    assert not two.a.active


# --- one behind the other


def until_decided(two: Two) -> tuple[Transaction, Deferred[Committed]]:
    """A transaction that is decided, and whose commits are asked for."""
    transaction, _ = moving(two)
    committing = begin(transaction.commit())
    deciding = begin(transaction.decided())
    for session in (two.source, two.target):
        while session.requests:
            session.go()
            if names(session) == ["commit"]:
                break
    assert result(deciding) is True
    assert transaction.state is TransactionState.COMMITTING
    return transaction, committing


def test_the_next_is_asked_for_behind_the_commits() -> None:
    two = Two(at_once=False)
    first, committing = until_decided(two)
    second, _ = moving(two)
    next_committing = begin(second.commit(after=first))
    assert names(two.source) == ["commit", "start", "take", "end", "prepare"]
    assert names(two.target) == ["commit", "start", "put", "end", "prepare"]
    go(two.source, two.target)
    assert result(committing) == result(next_committing) == Committed()
    assert (two.a.messages, two.b.messages) == ([3], [7, 7])


def test_the_next_is_not_decided_before_the_first_is_committed_everywhere() -> None:
    two = Two(at_once=False)
    first, committing = until_decided(two)
    # As by another session: nothing but the coordinator keeps the two apart.
    held, two.target = two.target, Session(two.b, at_once=False)
    second, _ = moving(two)
    next_committing = begin(second.commit(after=first))
    go(two.source, two.target)
    assert second.state is TransactionState.DECIDING
    assert two.process.passed.count("xa.before-decision") == 1
    go(held)
    go(two.source, two.target)
    assert result(committing) == result(next_committing) == Committed()


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ProviderUnavailable("gone"), "WAITING"),
        (XAError(XA_HEURRB, "its administrator"), "HEURISTIC"),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_where_the_first_is_not_committed_everywhere_the_next_is_rolled_back(
    answer: Exception, state: str, early: bool
) -> None:
    two = Two(at_once=False)
    first, committing = until_decided(two)
    committing.addErrback(lambda failure: None)
    held, two.target = two.target, Session(two.b, at_once=False)
    two.b.refusals["commit"] = [answer]
    sessions: Sequence[Session] = (held, two.source) if early else (two.source, two.target)
    second, _ = moving(two)
    go(*sessions[:1])
    next_committing = begin(second.commit(after=first))
    go(two.source, two.target)
    go(held)
    go(two.source, two.target)
    with pytest.raises(RolledBack) as caught:
        result(next_committing)
    assert isinstance(caught.value.cause, ProviderUnavailable)
    assert f"transaction {first.id}, which comes before, is {state}" in str(caught.value.cause)
    assert (two.a.messages, two.b.messages, two.states) == ([2, 3], [], [state])
    assert two.process.failures() == []


def test_where_nothing_is_decided_the_outcome_is_waited_for(
    two: Two, transaction: Transaction
) -> None:
    two.b.refusals["prepare"] = [XAError(XAER_RMERR, "no")]
    deciding = begin(transaction.decided())
    with pytest.raises(RolledBack):
        done(transaction.commit())
    assert result(deciding) is False


def test_what_is_to_happen_first_happens_before_the_decision(
    two: Two, transaction: Transaction
) -> None:
    first: Deferred[None] = Deferred()
    committing = begin(transaction.commit(first=first))
    two.process.reactor.advance(1)
    assert transaction.state is TransactionState.DECIDING
    assert (len(two.a.prepared), len(two.b.prepared), two.process.file.entries()) == (1, 1, ())
    first.callback(None)
    assert result(committing) == Committed()
    assert (two.a.messages, two.b.messages) == ([2, 3], [1])


def test_what_is_to_happen_first_happens_before_a_commit_by_one_phase(two: Two) -> None:
    transaction = two.enlisted(target=None)
    result(two.source.take())
    first: Deferred[None] = Deferred()
    committing = begin(transaction.commit(first=first))
    two.process.reactor.advance(1)
    assert transaction.state is TransactionState.ACTIVE
    first.callback(None)
    assert result(committing) == Committed()
    assert two.a.messages == [2, 3]
