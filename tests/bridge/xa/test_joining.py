"""Sessions whose resource managers are called the same: they join one branch, or have two."""

from __future__ import annotations

import pytest

from bridge.xa.coordinator import Committed, Recovered
from gateway.messaging.errors import ProviderUnavailable, XAError
from tests.bridge.xa.resource_managers import XAER_RMERR, ResourceManager, Session
from tests.bridge.xa.two_managers import Two, begin, done, go, names, result

SAME = "jms:tcp://there:CF"


def moved(two: Two, target: str = SAME) -> Committed:
    committed: Committed = done(two.moved(SAME, target).commit())
    return committed


def test_two_resource_managers_of_one_name_have_two_branches(two: Two) -> None:
    assert [moved(two), moved(two)] == [Committed(), Committed()]
    assert (two.a.messages, two.b.messages) == ([3], [1, 2])
    assert (two.a.calls.count("prepare"), two.b.calls.count("prepare")) == (2, 2)
    # Each time, as a connection may lead to another broker meanwhile.
    assert two.a.calls.count("is_same_rm") + two.b.calls.count("is_same_rm") == 2


def test_two_sessions_of_one_have_one_branch(two: Two) -> None:
    two.target = Session(two.a)
    assert [moved(two), moved(two)] == [Committed(), Committed()]
    assert (two.a.messages, two.a.calls.count("prepare")) == ([3, 1, 2], 0)


def test_nobody_is_asked_where_they_are_called_otherwise(two: Two) -> None:
    moved(two, "another")
    assert "is_same_rm" not in two.a.calls + two.b.calls


@pytest.mark.parametrize("error", [XAError(XAER_RMERR, "what?"), ProviderUnavailable("not now")])
def test_where_nobody_knows_there_are_two(two: Two, error: Exception) -> None:
    two.b.refusals["is_same_rm"] = [error]
    assert moved(two) == Committed()
    assert two.b.messages == [1]


def test_what_is_known_is_not_waited_for() -> None:
    two = Two(at_once=False)
    transaction = two.coordinator.begin()
    other = Session(two.a, at_once=False)
    begin(transaction.enlist("source", SAME, two.source))
    two.source.go()
    meeting = begin(transaction.meet(SAME, other))
    other.go()
    result(meeting)
    begin(transaction.enlist("target", SAME, other))
    assert names(other) == ["start"]


def test_what_waits_for_one_of_two_by_one_name_is_not_taken_for_committed_by_the_others_word(
    two: Two,
) -> None:
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert moved(two) == Committed(("target",))
    other = ResourceManager(SAME)
    assert two.recover_target(other, SAME) == Recovered()
    assert two.recover_source(rm=SAME) == Recovered()
    assert two.states == ["WAITING"]
    assert two.recover_target(rm=SAME) == Recovered(committed=1)
    assert (two.b.messages, two.states) == ([1], [])


def test_a_third_session_joins_whichever_branch_is_its_own(two: Two) -> None:
    transaction = two.enlisted(SAME, SAME)
    third = Session(two.b)
    done(transaction.enlist("target", SAME, third))
    done(transaction.enlist("target", SAME, third))
    [status] = two.coordinator.transactions()
    assert [branch.rm for branch in status.branches] == [f"{SAME} (branch 1)", f"{SAME} (branch 2)"]
    result(third.put(result(two.source.take())))
    assert done(transaction.commit()) == Committed()
    assert two.b.messages == [1]


@pytest.mark.parametrize(
    "answer",
    [True, False, XAError(XAER_RMERR, "isSameRM is not supported"), ProviderUnavailable("not now")],
)
def test_a_late_answer_is_good_for_the_enlisting_whatever_it_is(
    two: Two, answer: bool | Exception
) -> None:
    """JMS answers on a thread of its own: what is sent behind an enlisting that would ask again
    would be sent into no branch.
    """
    other = Session(two.a if answer is True else two.b, at_once=False)
    for _ in range(2):
        if isinstance(answer, Exception):
            two.b.refusals["is_same_rm"] = [answer]
        transaction = two.enlisted(SAME, None)
        meeting = begin(transaction.meet(SAME, other))
        other.go()
        assert result(meeting) == (0 if answer is True else None)
        enlisting = begin(transaction.enlist("target", SAME, other))
        assert names(other) == ["start"]
        putting = other.put(result(two.source.take()))
        committing = begin(transaction.commit())
        go(other)
        result(enlisting)
        result(putting)
        assert result(committing) == Committed()
    assert (two.a.messages, two.b.messages) == (
        ([3, 1, 2], []) if answer is True else ([3], [1, 2])
    )


def test_one_that_goes_to_another_broker_between_two_transactions_does_not_join_again(
    two: Two,
) -> None:
    """As behind a failover URL: the session stays, and what answers it is another."""
    two.target = Session(two.a)
    assert moved(two) == Committed()
    assert two.a.messages == [2, 3, 1]
    two.target.manager = two.b
    assert moved(two) == Committed()
    assert (two.a.messages, two.b.messages) == ([3, 1], [2])


def test_of_two_by_one_name_neither_is_taken_for_committed_by_the_others_word() -> None:
    for error in (ProviderUnavailable("gone"), XAError(XAER_RMERR, "what?")):
        two = Two()
        two.a.refusals["commit"] = [error]
        assert moved(two) == Committed(("source",))
        [status] = two.coordinator.transactions()
        assert [branch.rm for branch in status.branches] == [
            f"{SAME} (branch 1)",
            f"{SAME} (branch 2)",
        ]
        for _ in range(2):
            assert two.recover_target(rm=SAME) == Recovered()
        assert "commit" not in two.b.calls[two.b.calls.index("recover") :]
        assert two.states == ["WAITING"]
        two.restart_later()
        assert two.recover_source(rm=SAME) == Recovered(committed=1)
        assert (two.a.messages, two.a.prepared, two.b.messages, two.coordinator.transactions()) == (
            [2, 3],
            {},
            [1],
            [],
        )
