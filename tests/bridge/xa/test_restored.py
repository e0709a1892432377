"""A bridge is not what it was: another broker answers by the name of its resource manager, or its
log was put back from an older copy.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from bridge.xa import decision_log, xids
from bridge.xa.coordinator import Committed, Recovered, Transaction
from bridge.xa.decision_log import Presumed, Presumptions
from bridge.xa.errors import RolledBack
from bridge.xa.log import file as log_file
from bridge.xa.log import records as log_records
from bridge.xa.log.file import LogFile
from gateway.messaging.errors import ProviderUnavailable, XAError
from gateway.messaging.provider import Xid
from tests.bridge.xa.coordinator_process import MemoryStorage, Process, drawn
from tests.bridge.xa.resource_managers import (
    XA_HEURCOM,
    XAER_NOTA,
    XAER_RMFAIL,
    ResourceManager,
    Session,
)
from tests.bridge.xa.two_managers import Two, done, result

# --- another broker answers by its name for a while


SEVERAL = "rm:b (target)"


def waiting(two: Two, rm: str = "rm:b") -> Any:
    """A transaction that is decided, and whose target was lost before its commit."""
    transaction = two.moved(target=rm)
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert done(transaction.commit()) == Committed(("target",))
    return transaction


def warned(two: Two, words: str) -> int:
    return sum(words in str(event.get("log_format")) for event in two.process.events)


@pytest.mark.parametrize("restarts", [(False, False), (True, False), (False, True), (True, True)])
def test_a_branch_that_another_broker_did_not_know_is_committed_when_it_comes_to_light(
    two: Two,
    restarts: tuple[bool, bool],
) -> None:
    waiting(two)
    if restarts[0]:
        two.restart_later()
    assert two.recover_target(ResourceManager("rm:b")) == Recovered(committed=1)
    assert two.states == []
    if restarts[1]:
        two.restart_later()
    assert two.recover_target() == Recovered(committed=1)
    assert (two.a.messages, two.b.messages, two.b.prepared) == ([2, 3], [1], {})
    assert two.recover_target() == Recovered()
    two.process.reactor.advance(1)
    assert two.process.file.entries() == ()


def test_it_is_remembered_when_the_log_is_written_anew_and_when_it_comes_to_light_at_a_bad_moment(
    two: Two,
) -> None:
    waiting(two)
    two.recover_target(ResourceManager("rm:b"))
    for _ in range(200):
        two.restart_later()
    two.b.refusals["commit"] = [XAError(XAER_RMFAIL, "not yet")]
    with pytest.raises(XAError):
        two.recover_target()
    assert two.states == ["WAITING"]
    two.restart_later()
    assert two.recover_target() == Recovered(committed=1)
    assert two.b.messages == [1]


def test_it_is_remembered_for_a_branch_that_was_committed_on_its_own(two: Two) -> None:
    waiting(two)
    two.recover_target(ResourceManager("rm:b"))
    two.b.decide(next(iter(two.b.prepared)), XA_HEURCOM)
    assert two.recover_target() == Recovered(committed=1)
    assert (two.b.messages, two.b.heuristics, two.coordinator.transactions()) == ([1], {}, [])


def test_another_branch_of_such_a_transaction_is_left_alone(two: Two) -> None:
    waiting(two)
    xid = next(iter(two.b.prepared))
    two.recover_target(ResourceManager("rm:b"))
    stranger = Xid(xid.format_id, xid.gtrid, b"\x06target\x07")
    two.b.prepared[stranger] = two.b.prepared[xid]
    assert two.recover_target() == Recovered(committed=1)
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
    [event] = [
        one for one in two.process.events if "does not know branch" in str(one.get("log_format"))
    ]
    [xid] = two.b.prepared
    told = f"{xid.format_id}:{xid.gtrid.hex()}:{xid.bqual.hex()}"
    assert (event["id"], event["ref_name"], event["xid"]) == (transaction.id, "target", told)
    assert two.states == []
    assert two.recover_target() == Recovered(committed=1)
    assert two.b.messages == [1]


def test_the_second_one_is_not_warned_of(two: Two) -> None:
    waiting(two)
    two.recover_target(ResourceManager("rm:b"))
    two.restart_later()
    assert warned(two, "does not know branch") == 0


def test_what_may_be_one_of_several_waits_until_it_is_listed(two: Two) -> None:
    transaction = waiting(two, SEVERAL)
    other = ResourceManager("rm:b")
    for _ in range(2):
        # And other transactions go on.
        assert two.recover_target(other, SEVERAL) == Recovered()
    assert "commit" not in other.calls
    [status] = two.coordinator.transactions()
    assert (status.id, status.state, status.branches[1].state) == (
        transaction.id,
        "WAITING",
        "WAITING",
    )
    assert "not known" in status.branches[1].reason
    assert warned(two, "may lead to several brokers") == 1
    two.restart_later()
    assert "not known" in two.coordinator.transactions()[0].branches[1].reason
    assert two.recover_target(rm=SEVERAL) == Recovered(committed=1)
    assert (two.b.messages, two.coordinator.transactions()) == ([1], [])


def test_what_may_be_one_of_several_waits_though_its_commit_is_answered_so(two: Two) -> None:
    transaction = waiting(two, SEVERAL)
    two.b.refusals["commit"] = [XAError(XAER_NOTA, "it was the other one that listed it")]
    assert two.recover_target(rm=SEVERAL) == Recovered()
    assert two.states == ["WAITING"]
    result(two.coordinator.commit(transaction.id))
    assert two.states == []


@pytest.mark.parametrize("rm", ["rm:b", SEVERAL])
def test_what_an_operator_took_for_committed_is_committed_when_it_comes_to_light(
    two: Two, rm: str
) -> None:
    transaction = waiting(two, rm)
    result(two.coordinator.commit(transaction.id))
    two.restart()
    assert two.states == []
    assert two.recover_target(rm=rm) == Recovered(committed=1)
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
    transaction = two.moved()
    two.b.refusals["prepare"] = [ProviderUnavailable("gone")]
    two.b.refusals["rollback"] = [ProviderUnavailable("gone")]
    two.a.refusals["rollback"] = [XAError(XAER_NOTA, "never heard of it")]
    with pytest.raises(RolledBack):
        done(transaction.commit())
    # The source's branch counts as rolled back, and the target's has not been heard of, so the
    # transaction is listed.
    assert [status.id for status in two.coordinator.transactions()] == [transaction.id]
    assert len(two.a.prepared) == 1
    assert two.recover_source() == Recovered(rolled_back=1)
    assert (two.a.messages, two.a.prepared) == ([1, 2, 3], {})


# --- a log that was put back: what later runs prepared is theirs, and no id comes twice


def put_back(two: Two, transactions: int) -> bytes:
    """A copy is made, the bridge is started again, and of its transactions the last waits for its
    target; then the copy is put back. :returns: the id of that transaction.
    """
    two.a.messages = list(range(1, 30))
    two.restart()
    copy = two.process.storage.crash(10_000)
    two.restart()
    for _ in range(transactions - 1):
        assert done(two.moved().commit()) == Committed()
    two.b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert done(two.moved().commit()) == Committed(("target",))
    two.process = Process(copy, at_once=True)
    two.reconnect()
    [xid] = two.b.prepared
    return xid.gtrid


@pytest.mark.parametrize("transactions", [1, 5])
def test_what_a_later_run_prepared_is_left_alone_for_ever_and_no_id_comes_twice(
    two: Two,
    transactions: int,
) -> None:
    decided = put_back(two, transactions)
    before = dict(two.b.prepared)
    for _ in range(8):
        assert two.recover() == (Recovered(), Recovered())
        transaction = two.moved()
        assert transaction._run.gtrid != decided
        assert done(transaction.commit()) == Committed()
    assert two.b.prepared == before
    [told] = [
        text
        for text in map(formatEvent, two.process.events)
        if text is not None and "older copy" in text
    ]
    assert "imqcmd rollback txn" in told
    two.restart_later()
    assert two.recover() == (Recovered(), Recovered())
    assert two.b.prepared == before


def test_transactions_of_an_unrelated_link_do_not_give_it_away(two: Two) -> None:
    put_back(two, 1)
    before = dict(two.b.prepared)
    c, d = ResourceManager("rm:c", [100]), ResourceManager("rm:d")
    source, target = Session(c), Session(d)
    transaction = two.coordinator.begin()
    done(transaction.enlist("c", "rm:c", source))
    done(transaction.enlist("d", "rm:d", target))
    result(target.put(result(source.take())))
    assert done(transaction.commit()) == Committed()
    assert two.recover() == (Recovered(), Recovered())
    assert two.b.prepared == before


def test_what_earlier_runs_of_one_log_did_not_decide_is_rolled_back_by_each_later_one(
    two: Two,
) -> None:
    for _ in range(3):
        two.a.refusals["rollback"] = [ProviderUnavailable("gone")]
        two.b.refusals["prepare"] = [ProviderUnavailable("gone")]
        with pytest.raises(RolledBack):
            done(two.moved().commit())
        two.restart(kept=10_000)
    assert len(two.a.prepared) == 3
    two.restart()
    assert two.recover()[0] == Recovered(rolled_back=3)
    assert sorted(two.a.messages) == [1, 2, 3]


def log_from_before(identity: bytes, generation: int) -> MemoryStorage:
    """As it was written when all runs of a log had one identity."""
    said = {
        "identity": identity.hex(),
        "generation": generation,
        "name": "here:bridge",
        "place": "",
        "former": [],
    }
    storage = MemoryStorage()
    storage.replace(
        log_records.MAGIC
        + log_records._framed(json.dumps(said).encode(), 0, len(log_records.MAGIC), 0)
    )
    return storage


def test_ids_of_logs_whose_runs_had_one_identity_are_known() -> None:
    identity = drawn(8)
    two = Two()
    prepared = []
    for generation in (2, 5, 6):
        earlier = Process(log_from_before(identity, generation), at_once=True)
        earlier.coordinator._ids = xids.Xids("here:bridge", identity, generation)  # type: ignore[misc]
        two.process = earlier
        transaction = two.moved()
        two.a.refusals["rollback"] = [ProviderUnavailable("gone")]
        two.b.refusals["prepare"] = [ProviderUnavailable("gone")]
        with pytest.raises(RolledBack):
            done(transaction.commit())
        two.reconnect()
        prepared.append(transaction._run.gtrid)
    two.process = Process(log_from_before(identity, 5), at_once=True)
    two.restart()
    assert two.process.file.header.generation == 7
    assert two.recover()[0] == Recovered(rolled_back=2)
    # That one is of a run that this log does not know.
    assert [xid.gtrid for xid in two.a.prepared] == prepared[2:]


def test_so_many_runs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "_MOST_RUNS", 3)
    storage = MemoryStorage()
    identities = []
    for _ in range(6):
        header = LogFile(storage, "here:bridge", 100_000, True, drawn).header
        identities.append(header.identity)
    assert [(run.identity, run.generation) for run in header.earlier] == [
        (identities[4], 5),
        (identities[3], 4),
        (identities[2], 3),
    ]
    moved = LogFile(storage, "here:bridge", 100_000, True, drawn, "there")
    assert moved.header.earlier[0].generation == 6
    moved = LogFile(storage, "here:bridge", 100_000, True, drawn, "elsewhere")
    assert (moved.header.earlier, moved.header.former[1]) == ((), identities[5])
    assert len(moved.header.former) == 3
