"""How many transactions ended how, and since when one is what it is."""

from __future__ import annotations

import pytest

from bridge.xa.coordinator import Transaction
from bridge.xa.errors import Heuristic
from bridge.xa.status import TransactionCounts
from gateway.messaging.errors import OutcomeUnknown, ProviderUnavailable, XAError
from tests.bridge.xa.two import Two, done


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
    assert [each.state for each in two.coordinator.transactions()] == ["HEURISTIC"]
    two.coordinator.forget(transaction.id)
    assert two.coordinator.counts == TransactionCounts()


def test_a_lost_answer_is_counted_apart(two: Two) -> None:
    transaction = two.coordinator.begin()
    done(transaction.enlist("source", "rm:a", two.source))
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
    two.process.reactor.advance(1)
    two.restart(kept=10_000)
    assert two.coordinator.transactions()[0].since_ms == waiting.since_ms
