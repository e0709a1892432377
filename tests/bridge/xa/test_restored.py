"""A transaction log that was put back from an older copy, in its place: what later runs prepared is
theirs, and no id comes twice.
"""

from __future__ import annotations

import json

import pytest
from twisted.logger import formatEvent

from bridge.xa import xids
from bridge.xa.coordinator import Committed, Recovered
from bridge.xa.errors import RolledBack
from bridge.xa.log import file as log_file
from bridge.xa.log import records as log_records
from bridge.xa.log.file import LogFile
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.xa.machines import MemoryStorage, Process, drawn
from tests.bridge.xa.resource_managers import ResourceManager, Session
from tests.bridge.xa.two import Two, done, result


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
    two.process.reactor.advance(1)
    two.restart(kept=10_000)
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
        transaction = earlier.coordinator.begin()
        done(transaction.enlist("source", "rm:a", two.source))
        done(transaction.enlist("target", "rm:b", two.target))
        result(two.target.put(result(two.source.take())))
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
