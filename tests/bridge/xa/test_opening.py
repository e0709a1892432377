"""A coordinator on a real file, with a real thread."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, Logger, formatEvent

from bridge.xa import opening
from bridge.xa.coordinator import Committed, Coordinator, Recovered
from bridge.xa.errors import LogDamaged, LogFailed, RolledBack
from bridge.xa.log import file as log_file
from bridge.xa.log.file import FileStorage
from bridge.xa.opening import TransactionProperties, open_coordinator
from gateway.instance import crashpoints
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.xa.resource_managers import ResourceManager, Session


def opened(folder: Path, events: list[LogEvent], points: list[str] | None = None) -> Coordinator:
    log = Logger(namespace="test", observer=cast(ILogObserver, events.append))
    if points is not None:
        crashpoints.arm(crashpoints.POINTS[crashpoints.LINK_VARIABLE], points.append)
    return open_coordinator(
        reactor, folder, "bridge", "here", TransactionProperties(), log, os.urandom
    )


async def moved(coordinator: Coordinator, a: ResourceManager, b: ResourceManager) -> Committed:
    transaction = coordinator.begin()
    source, target = Session(a), Session(b)
    await transaction.enlist("source", "rm:a", source)
    await transaction.enlist("target", "rm:b", target)
    message = await source.take()
    assert message is not None
    await target.put(message)
    return await transaction.commit()


@pytest_twisted.ensureDeferred
async def test_what_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2]), ResourceManager("rm:b")
    coordinator = opened(tmp_path / "mq", events)
    assert coordinator.name == "here:bridge"
    assert await moved(coordinator, a, b) == Committed()
    b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert await moved(coordinator, a, b) == Committed(("target",))
    await coordinator.close()
    events.clear()

    again = opened(tmp_path / "mq", events)
    assert [one.state for one in again.transactions()] == ["WAITING"]
    assert [formatEvent(event) for event in events] == [
        "1 transactions of an earlier run wait for 'target'"
    ]
    assert await again.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
    await again.close()
    assert (a.messages, b.messages) == ([], [1, 2])

    last = opened(tmp_path / "mq", events)
    assert last.transactions() == []
    await last.close()


@pytest_twisted.ensureDeferred
async def test_it_is_not_opened_before_the_run_before_has_let_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that is stopped waits only so long for its log, whose thread may hang in a sync, and
    may be started at once.
    """
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2]), ResourceManager("rm:b")
    goes_on, sync = threading.Event(), FileStorage.sync

    def slow(storage: FileStorage) -> None:
        goes_on.wait()
        sync(storage)

    coordinator = opened(tmp_path, events)
    monkeypatch.setattr(FileStorage, "sync", slow)
    b.refusals["commit"] = [ProviderUnavailable("gone")]
    moving = Deferred.fromCoroutine(moved(coordinator, a, b))
    closing = coordinator.close()
    for _ in range(2):
        with pytest.raises(LogFailed, match="has not let go of it"):
            opened(tmp_path, events)
    assert not closing.called
    goes_on.set()
    await closing
    assert await moving == Committed(("target",))
    again = opened(tmp_path, events)
    assert [one.state for one in again.transactions()] == ["WAITING"]
    await again.close()


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("machine", [False, True])
async def test_a_copy_takes_an_identity_of_its_own_and_commits_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: bool
) -> None:
    """An instance was cloned with its log, and both run with the same brokers."""
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2, 3, 4]), ResourceManager("rm:b")
    first = opened(tmp_path / "first", events)
    b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert await moved(first, a, b) == Committed(("target",))
    await first.close()
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    first = opened(tmp_path / "first", events)
    # What the first has prepared is not for the copy to roll back.
    b.refusals["prepare"] = [ProviderUnavailable("gone")]
    a.refusals["rollback"] = [ProviderUnavailable("gone")]
    with pytest.raises(RolledBack):
        await moved(first, a, b)
    [undecided] = a.prepared
    events.clear()

    if machine:
        await first.close()
        monkeypatch.setattr(opening, "_MACHINE", tmp_path / "machine")
        (tmp_path / "machine").write_text("another\n")
        copy = opened(tmp_path / "first", events)
    else:
        copy = opened(tmp_path / "copy", events)
    assert "as the original may be in use there" in formatEvent(events[0])
    assert [one.state for one in copy.transactions()] == ["WAITING"]
    for _ in range(2):
        await copy.recover("source", "rm:a", Session(a))
    assert list(a.prepared) == [undecided]
    assert sum("imqcmd rollback txn" in formatEvent(event) for event in events) == 1
    assert await copy.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
    assert (b.messages, copy.transactions()) == ([1], [])
    assert await moved(copy, a, b) == Committed()
    # Of its own it rolls back what is not decided.
    b.refusals["prepare"] = [ProviderUnavailable("gone")]
    a.refusals["rollback"] = [ProviderUnavailable("gone")]
    with pytest.raises(RolledBack):
        await moved(copy, a, b)
    assert await copy.recover("source", "rm:a", Session(a)) == Recovered(rolled_back=1)
    if not machine:
        assert await first.recover("source", "rm:a", Session(a)) == Recovered(rolled_back=1)
        assert await first.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
        assert a.prepared == {}
        await first.close()
    await copy.close()
    events.clear()
    again = opened(tmp_path / ("first" if machine else "copy"), events)
    assert events == []
    await again.close()


@pytest_twisted.ensureDeferred
async def test_what_a_moved_log_took_for_committed_is_committed(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1]), ResourceManager("rm:b")
    coordinator = opened(tmp_path / "first", events)
    b.refusals["commit"] = [ProviderUnavailable("gone")]
    await moved(coordinator, a, b)
    await coordinator.recover("target", "rm:b", Session(ResourceManager("rm:b")))
    await coordinator.close()
    (tmp_path / "first").rename(tmp_path / "second")
    again = opened(tmp_path / "second", events)
    assert again.transactions() == []
    assert await again.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
    assert b.messages == [1]
    await again.close()


@pytest_twisted.ensureDeferred
async def test_damage_is_refused_with_its_place(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2]), ResourceManager("rm:b")
    coordinator = opened(tmp_path, events)
    await moved(coordinator, a, b)
    await moved(coordinator, a, b)
    await coordinator.close()
    file = tmp_path / "txlog.bridge"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(LogDamaged) as caught:
        opened(tmp_path, events)
    assert str(file) in str(caught.value)
    assert 0 < caught.value.offset <= len(data) // 2
    assert file.read_bytes() == data
    file.unlink()
    await opened(tmp_path, events).close()


@pytest_twisted.ensureDeferred
async def test_a_torn_tail_is_told(tmp_path: Path) -> None:
    events: list[LogEvent] = []
    await opened(tmp_path, events).close()
    with (tmp_path / "txlog.bridge").open("ab") as file:
        file.write(b"\xa7\xf4\0\0")
    await opened(tmp_path, events).close()
    assert "4 octets" in formatEvent(events[-1])


@pytest_twisted.ensureDeferred
async def test_what_waits_is_completed_however_often_the_log_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose machine has another id at each start: so often that its first
    identity is not remembered as such.
    """
    monkeypatch.setattr(log_file, "_MOST_RUNS", 2)
    events: list[LogEvent] = []
    a, b = ResourceManager("rm:a", [1, 2]), ResourceManager("rm:b")
    coordinator = opened(tmp_path / "0", events)
    b.refusals["commit"] = [ProviderUnavailable("gone")]
    assert await moved(coordinator, a, b) == Committed(("target",))
    taken = await moved(coordinator, a, b)
    assert taken == Committed()
    await coordinator.close()
    for number in range(5):
        (tmp_path / str(number)).rename(tmp_path / str(number + 1))
        coordinator = opened(tmp_path / str(number + 1), events)
        await coordinator.close()
    (tmp_path / "5").rename(tmp_path / "last")
    coordinator = opened(tmp_path / "last", events)
    assert [one.state for one in coordinator.transactions()] == ["WAITING"]
    # By another name than before: only what the broker lists can be committed.
    assert await coordinator.recover("elsewhere", "rm:c", Session(b)) == Recovered(committed=1)
    assert (sorted(b.messages), coordinator.transactions()) == ([1, 2], [])
    assert not [event for event in events if "another installation" in str(event.get("log_format"))]
    await coordinator.close()
