"""Who joins a branch, and who has one of his own: sessions whose resource managers are called the same."""

from __future__ import annotations

import pytest

from bridge.xa.coordinator import Committed, Recovered
from gateway.messaging.errors import ProviderUnavailable, XAError
from tests.bridge.xa.resource_managers import XAER_RMERR, ResourceManager, Session
from tests.bridge.xa.two import Two, begin, done, result

SAME = "jms:tcp://there:CF"


def moved(two: Two, target: str = SAME) -> Committed:
    transaction = two.coordinator.begin()
    done(transaction.enlist("source", SAME, two.source))
    done(transaction.enlist("target", target, two.target))
    result(two.target.put(result(two.source.take())))
    committed: Committed = done(transaction.commit())
    return committed


def test_two_resource_managers_of_one_name_have_two_branches() -> None:
    two = Two()
    assert moved(two) == Committed()
    assert moved(two) == Committed()
    assert (two.a.messages, two.b.messages) == ([3], [1, 2])
    assert (two.a.calls.count("prepare"), two.b.calls.count("prepare")) == (2, 2)
    # The pair is asked once.
    assert two.a.calls.count("is_same_rm") + two.b.calls.count("is_same_rm") == 1


def test_two_sessions_of_one_have_one_branch() -> None:
    two = Two()
    two.target = Session(two.a)
    assert moved(two) == Committed()
    assert moved(two) == Committed()
    assert two.a.messages == [3, 1, 2]
    assert (two.a.calls.count("prepare"), two.a.calls.count("is_same_rm")) == (0, 1)
    two.target = Session(two.a)
    moved(two)
    assert two.a.calls.count("is_same_rm") == 2


def test_nobody_is_asked_where_they_are_called_otherwise() -> None:
    two = Two()
    moved(two, "another")
    assert "is_same_rm" not in two.a.calls + two.b.calls


@pytest.mark.parametrize("error", [XAError(XAER_RMERR, "what?"), ProviderUnavailable("not now")])
def test_where_nobody_knows_there_are_two(error: Exception) -> None:
    two = Two()
    two.b.refusals["is_same_rm"] = [error]
    assert moved(two) == Committed()
    assert two.b.messages == [1]


def test_what_is_known_is_not_waited_for() -> None:
    two = Two(at_once=False)
    transaction = two.coordinator.begin()
    other = Session(two.a, at_once=False)
    begin(transaction.enlist("source", SAME, two.source))
    two.source.arrive()
    two.source.answer()
    meeting = begin(transaction.meet(SAME, other))
    other.arrive()
    other.answer()
    result(meeting)
    begin(transaction.enlist("target", SAME, other))
    assert [request.name for request in other.requests] == ["start"]


def test_what_waits_for_one_of_two_by_one_name_is_not_taken_for_committed_by_the_others_word() -> None:
    two = Two()
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert moved(two) == Committed(("target",))
    other = ResourceManager(SAME)
    assert result(two.coordinator.recover("target", SAME, Session(other))) == Recovered()
    assert result(two.coordinator.recover("source", SAME, Session(two.a))) == Recovered()
    assert [one.state for one in two.coordinator.transactions()] == ["WAITING"]
    assert result(two.coordinator.recover("target", SAME, Session(two.b))) == Recovered(committed=1)
    assert two.b.messages == [1]
    assert two.coordinator.transactions() == []


def test_a_third_session_joins_whichever_branch_is_its_own() -> None:
    two = Two()
    transaction = two.coordinator.begin()
    done(transaction.enlist("source", SAME, two.source))
    done(transaction.enlist("target", SAME, two.target))
    third = Session(two.b)
    done(transaction.enlist("target", SAME, third))
    done(transaction.enlist("target", SAME, third))
    [status] = two.coordinator.transactions()
    assert [branch.rm for branch in status.branches] == [SAME, f"{SAME} (branch 2)"]
    result(third.put(result(two.source.take())))
    assert done(transaction.commit()) == Committed()
    assert two.b.messages == [1]
