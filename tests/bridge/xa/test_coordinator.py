"""The coordinator over resource managers that keep X/Open's rules: what links ask of it, its log's
failures, and what it counts.
"""

from __future__ import annotations

import pytest

from bridge.xa.coordinator import Committed, Recovered, Transaction
from bridge.xa.errors import Heuristic, LogFailed, Misuse, NotWritten, RolledBack, WrongState
from bridge.xa.status import TransactionCounts
from gateway.messaging.errors import OutcomeUnknown, ProviderUnavailable, XAError
from tests.bridge.xa.resource_managers import (
    XA_HEURRB,
    XA_RETRY,
    XAER_NOTA,
    XAER_RMERR,
    XAER_RMFAIL,
    Session,
)
from tests.bridge.xa.two_managers import Two, begin, done, go, names, result

POINTS = [
    "xa.after-start-1",
    "xa.after-start-2",
    "xa.after-end",
    "xa.after-prepare-1",
    "xa.after-prepare-2",
    "xa.before-decision",
    "xa.after-decision",
    "xa.after-commit-1",
    "xa.after-commit-2",
    "xa.after-forget",
]


def test_a_message_is_moved(two: Two) -> None:
    assert done(two.moved().commit()) == Committed()
    assert (two.a.messages, two.b.messages, two.states) == ([2, 3], [1], [])
    two.process.reactor.advance(1)
    assert (two.process.passed, two.process.file.entries()) == (POINTS, ())


def test_nothing_is_logged_for_one_resource_manager(two: Two) -> None:
    transaction = two.coordinator.begin()
    other = Session(two.a)
    done(transaction.enlist("source", "rm:a", two.source))
    done(transaction.enlist("target", "rm:a", other))
    result(other.put(result(two.source.take())))
    syncs = two.process.storage.syncs
    assert done(transaction.commit()) == Committed()
    assert (two.a.messages, two.process.storage.syncs) == ([2, 3, 1], syncs)
    assert ("prepare" in two.a.calls, two.a.calls.count("end")) == (False, 2)


def test_a_session_takes_part_once(two: Two) -> None:
    transaction = two.enlisted(target=None)
    done(transaction.enlist("target", "rm:a", two.source))
    assert two.a.calls == ["start"]
    done(transaction.rollback())


def test_nobody_without_work_is_asked_to_commit(two: Two) -> None:
    transaction = two.enlisted()
    result(two.target.put(7))
    assert done(transaction.commit()) == Committed()
    assert (two.a.calls.count("commit"), two.b.calls.count("commit")) == (0, 1)


def test_nothing_at_all_is_committed_without_the_log(two: Two) -> None:
    transaction = two.enlisted()
    assert done(transaction.commit()) == Committed()
    assert done(two.coordinator.begin().commit()) == Committed()
    assert two.process.storage.syncs == 0


def test_end_and_prepare_are_asked_without_waiting_and_of_both_at_once() -> None:
    two = Two(at_once=False)
    transaction = two.coordinator.begin()
    for ref_name, rm, session in (("source", "rm:a", two.source), ("target", "rm:b", two.target)):
        enlisting = begin(transaction.enlist(ref_name, rm, session))
        session.go()
        result(enlisting)
        session.ask("put", 5)
        session.go()
    committing = begin(transaction.commit())
    assert names(two.source) == names(two.target) == ["end", "prepare"]
    for session in (two.source, two.source, two.target, two.target):
        session.go()
    assert names(two.source) == names(two.target) == ["commit"]
    go(two.source, two.target)
    assert result(committing) == Committed()


def test_a_branch_is_joined_while_it_is_being_started() -> None:
    two = Two(at_once=False)
    transaction = two.coordinator.begin()
    other = Session(two.a, at_once=False)
    first = begin(transaction.enlist("source", "rm:a", two.source))
    second = begin(transaction.enlist("target", "rm:a", other))
    assert not other.requests
    with pytest.raises(Misuse):
        done(transaction.commit())
    rolling = begin(transaction.rollback())
    for session in (two.source, other, other):
        session.go()
    result(first), result(second)
    for session in (two.source, other, two.source):
        session.go()
    result(rolling)
    assert not two.a.active


@pytest.mark.parametrize("call", ["end", "prepare"])
@pytest.mark.parametrize("at", ["a", "b"])
@pytest.mark.parametrize(
    "error",
    [
        XAError(100, "no"),
        XAError(XAER_RMERR, "no"),
        XAError(XAER_NOTA, "no"),
        ProviderUnavailable("no"),
    ],
)
def test_what_is_refused_before_the_decision_is_rolled_back(
    two: Two, transaction: Transaction, call: str, at: str, error: Exception
) -> None:
    getattr(two, at).refusals[call] = [error]
    with pytest.raises(RolledBack) as caught:
        done(transaction.commit())
    refused_by = {"a": "source", "b": "target"}[at]
    assert (caught.value.cause, caught.value.ref_name) == (error, refused_by)
    for session in (two.source, two.target):
        session.snap(0)
        session.hang_up()
    two.recover()
    assert (two.a.messages, two.a.prepared) == ([1, 2, 3], {})
    assert (two.b.messages, two.b.prepared) == ([], {})
    assert (two.states, two.process.storage.syncs, two.process.failures()) == ([], 0, [])


@pytest.mark.parametrize("at", ["a", "b"])
@pytest.mark.parametrize(
    "error",
    [
        XAError(XA_RETRY, "no"),
        XAError(XAER_RMFAIL, "no"),
        ProviderUnavailable("no"),
        XAError(-6, "no"),
    ],
)
def test_after_the_decision_it_is_waited_for(
    two: Two, transaction: Transaction, at: str, error: Exception
) -> None:
    getattr(two, at).refusals["commit"] = [error]
    ref_name = {"a": "source", "b": "target"}[at]
    assert done(transaction.commit()) == Committed((ref_name,))
    status = two.coordinator.transactions()[0]
    assert (status.id, status.state, status.decision) == (transaction.id, "WAITING", "COMMIT")
    assert [branch.state for branch in status.branches if branch.ref_name == ref_name] == [
        "WAITING"
    ]
    two.restart_later()
    assert [one.id for one in two.coordinator.transactions()] == [transaction.id]
    assert two.coordinator.waits_for() == {ref_name: 1}
    two.recover()
    assert (two.a.messages, two.b.messages, two.states) == ([2, 3], [1], [])


def test_what_was_committed_before_is_known_by_nota(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("the answer is lost")]
    done(transaction.commit())
    two.b.call(two.target, "commit", (next(iter(two.b.prepared)), False))
    assert two.recover() == (Recovered(), Recovered(committed=1))
    assert (two.b.messages, two.states) == ([1], [])


def test_a_resource_manager_that_failed_and_forgot_is_a_hazard(
    two: Two, transaction: Transaction
) -> None:
    two.b.refusals["commit"] = [XAError(XAER_RMERR, "it cannot"), XAError(XAER_NOTA, "what?")]
    assert done(transaction.commit()) == Committed(("target",))
    assert two.recover()[1] == Recovered(heuristic=1)
    assert two.coordinator.transactions()[0].branches[1].state == "HEURISTIC_HAZARD"


@pytest.mark.parametrize(
    "error", [XAError(100, "no"), XAError(XAER_RMERR, "no"), XAError(XA_HEURRB, "no")]
)
def test_one_phase_refused_is_rolled_back(two: Two, error: Exception) -> None:
    transaction = two.enlisted(target=None)
    result(two.source.take())
    two.a.refusals["commit"] = [error]
    with pytest.raises(RolledBack) as caught:
        done(transaction.commit())
    assert caught.value.cause is error
    two.source.snap(0)
    two.source.hang_up()
    two.recover()
    assert two.states == []


@pytest.mark.parametrize(
    "error",
    [ProviderUnavailable("gone"), XAError(XAER_RMFAIL, "gone"), XAError(XAER_NOTA, "what?")],
)
def test_one_phase_without_an_answer_is_unknown(two: Two, error: Exception) -> None:
    transaction = two.enlisted(target=None)
    two.a.refusals["commit"] = [error]
    with pytest.raises(OutcomeUnknown):
        done(transaction.commit())
    assert two.states == []


def test_a_session_that_cannot_take_part_leaves_nothing(two: Two) -> None:
    transaction = two.enlisted(target=None)
    result(two.source.take())
    two.b.refusals["start"] = [XAError(XAER_RMERR, "no")]
    with pytest.raises(XAError):
        done(transaction.enlist("target", "rm:b", two.target))
    with pytest.raises(RolledBack) as caught:
        done(transaction.commit())
    assert caught.value.ref_name == "target"
    assert two.a.messages == [1, 2, 3]


def test_rollback_never_fails(two: Two, transaction: Transaction) -> None:
    two.a.refusals["rollback"] = [ProviderUnavailable("gone")]
    two.b.refusals["end"] = [ProviderUnavailable("gone")]
    done(transaction.rollback())
    done(transaction.rollback())
    with pytest.raises(Misuse):
        done(transaction.commit())
    with pytest.raises(Misuse):
        done(transaction.enlist("source", "rm:a", two.source))
    assert two.process.failures() == []


def test_a_full_disk_rolls_back_and_harms_nobody_else(two: Two, transaction: Transaction) -> None:
    two.process.storage.room = 5
    with pytest.raises(RolledBack) as caught:
        done(transaction.commit())
    assert isinstance(caught.value.cause, NotWritten)
    assert two.a.messages == [1, 2, 3]
    two.process.storage.room = None
    assert done(two.moved().commit()) == Committed()
    assert two.b.messages == [1]


def test_a_failed_sync_is_final_and_nobody_is_told_anything(two: Two) -> None:
    other = two.moved()
    two.process.storage.sync_fails = True
    with pytest.raises(LogFailed) as caught:
        done(other.commit())
    assert not isinstance(caught.value, NotWritten)
    assert (len(two.a.prepared), len(two.b.prepared), two.states) == (1, 1, ["IN_DOUBT"])
    assert two.recover() == (Recovered(), Recovered())
    with pytest.raises(LogFailed):
        two.coordinator.begin()
    for operation in ("commit", "rollback", "forget"):
        with pytest.raises(WrongState):
            result(getattr(two.coordinator, operation)(other.id))


@pytest.mark.parametrize("kept", [0, 10, 10_000])
def test_after_a_failed_sync_the_disk_decides(
    two: Two, transaction: Transaction, kept: int
) -> None:
    two.process.storage.sync_fails = True
    with pytest.raises(LogFailed):
        done(transaction.commit())
    two.restart(kept)
    two.recover()
    assert (two.a.messages, two.b.messages) == (
        ([2, 3], [1]) if kept == 10_000 else ([1, 2, 3], [])
    )
    assert two.states == []


def test_after_the_end_nothing_begins(two: Two) -> None:
    result(two.coordinator.close())
    result(two.coordinator.close())
    with pytest.raises(LogFailed):
        two.coordinator.begin()
    assert two.process.storage.closed


# --- how many ended how, and since when one is what it is


def test_each_is_counted_once_by_its_end(two: Two) -> None:
    counts = two.coordinator.counts
    assert counts == TransactionCounts()
    done(two.moved().commit())
    assert counts == TransactionCounts(committed=1)
    done(two.moved().rollback())
    assert counts == TransactionCounts(committed=1, rolled_back=1)
    # One without a branch is nothing to anybody.
    done(two.coordinator.begin().rollback())
    assert counts == TransactionCounts(committed=1, rolled_back=1)


def test_one_that_waits_is_counted_when_it_is_complete(two: Two) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(two.moved().commit())
    assert two.coordinator.counts == TransactionCounts()
    two.recover()
    assert two.coordinator.counts == TransactionCounts(committed=1)


def test_a_heuristic_one_stays_so_whatever_becomes_of_it(
    two: Two, transaction: Transaction
) -> None:
    two.b.refusals["commit"] = [XAError(6, "on its own")]
    with pytest.raises(Heuristic):
        done(transaction.commit())
    assert two.coordinator.counts == TransactionCounts(heuristic=1)
    two.coordinator.forget(transaction.id)
    two.coordinator.forget(transaction.id)
    assert two.coordinator.counts == TransactionCounts(heuristic=1)


def test_one_of_an_earlier_run_was_counted_there(two: Two, transaction: Transaction) -> None:
    two.b.refusals["commit"] = [XAError(6, "on its own")]
    with pytest.raises(Heuristic):
        done(transaction.commit())
    two.restart()
    assert two.states == ["HEURISTIC"]
    two.coordinator.forget(transaction.id)
    assert two.coordinator.counts == TransactionCounts()


def test_a_lost_answer_is_counted_apart(two: Two) -> None:
    transaction = two.enlisted(target=None)
    two.a.refusals["commit"] = [ProviderUnavailable("gone")]
    with pytest.raises(OutcomeUnknown):
        done(transaction.commit())
    assert two.coordinator.counts == TransactionCounts(unknown=1)


def test_its_age_counts_from_the_commit_and_not_from_the_wait_for_messages(two: Two) -> None:
    began = two.process.reactor.seconds()
    transaction = two.moved()
    [active] = two.coordinator.transactions()
    assert active.since_ms == round(began * 1000)
    two.process.reactor.advance(3600)
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    done(transaction.commit())
    [waiting] = two.coordinator.transactions()
    assert (waiting.state, waiting.since_ms) == ("WAITING", round((began + 3600) * 1000))
    two.restart_later()
    assert two.coordinator.transactions()[0].since_ms == waiting.since_ms
