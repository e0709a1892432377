"""A coordinator on a real file, with a real thread; and ``imq.bridge[.NAME].tm.props``."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from bridge.config.settings import BRIDGE_TM_PROPS, TM_PROPS
from bridge.xa.coordinator import Committed, Coordinator, Recovered
from bridge.xa.errors import LogDamaged, LogFailed, RolledBack
from bridge.xa.log import file as log_file
from bridge.xa.log import opening
from bridge.xa.log.file import FileStorage
from bridge.xa.log.opening import IGNORED, TransactionProperties, open_coordinator
from gateway.configuration import DECLARED
from gateway.instance.settings import SettingsError, Severity, read
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.xa.resource_managers import ResourceManager, Session
from tests.logged import recording


class World:
    """Two resource managers, and coordinators on files between them."""

    def __init__(self, messages: int = 2) -> None:
        self.log, self.events = recording()
        self.a = ResourceManager("rm:a", range(1, messages + 1))
        self.b = ResourceManager("rm:b")

    def opened(self, folder: Path) -> Coordinator:
        return open_coordinator(
            reactor, folder, "bridge", "here", TransactionProperties(), self.log, os.urandom
        )

    async def moved(self, coordinator: Coordinator) -> Committed:
        transaction = coordinator.begin()
        source, target = Session(self.a), Session(self.b)
        await transaction.enlist("source", "rm:a", source)
        await transaction.enlist("target", "rm:b", target)
        message = await source.take()
        assert message is not None
        await target.put(message)
        return await transaction.commit()

    async def left_waiting(self, coordinator: Coordinator) -> None:
        """Move a message; its target is lost before the commit."""
        self.b.refusals["commit"] = [ProviderUnavailable("gone")]
        assert await self.moved(coordinator) == Committed(("target",))

    async def left_undecided(self, coordinator: Coordinator) -> None:
        """Move a message; both are lost before the decision."""
        self.b.refusals["prepare"] = [ProviderUnavailable("gone")]
        self.a.refusals["rollback"] = [ProviderUnavailable("gone")]
        with pytest.raises(RolledBack):
            await self.moved(coordinator)

    def told(self) -> list[str | None]:
        return [formatEvent(event) for event in self.events]


@pytest_twisted.ensureDeferred
async def test_what_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    world = World()
    coordinator = world.opened(tmp_path / "mq")
    assert coordinator.name == "here:bridge"
    assert await world.moved(coordinator) == Committed()
    await world.left_waiting(coordinator)
    await coordinator.close()
    world.events.clear()

    again = world.opened(tmp_path / "mq")
    assert [one.state for one in again.transactions()] == ["WAITING"]
    assert world.told() == ["1 transactions of an earlier run wait for 'target'"]
    assert await again.recover("target", "rm:b", Session(world.b)) == Recovered(committed=1)
    await again.close()
    assert (world.a.messages, world.b.messages) == ([], [1, 2])

    last = world.opened(tmp_path / "mq")
    assert last.transactions() == []
    await last.close()


@pytest_twisted.ensureDeferred
async def test_it_is_not_opened_before_the_run_before_has_let_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that is stopped waits only so long for its log, whose thread may hang in a sync, and
    may be started at once.
    """
    world = World()
    goes_on, sync = threading.Event(), FileStorage.sync

    def slow(storage: FileStorage) -> None:
        goes_on.wait()
        sync(storage)

    coordinator = world.opened(tmp_path)
    monkeypatch.setattr(FileStorage, "sync", slow)
    world.b.refusals["commit"] = [ProviderUnavailable("gone")]
    moving = Deferred.fromCoroutine(world.moved(coordinator))
    closing = coordinator.close()
    for _ in range(2):
        with pytest.raises(LogFailed, match="has not let go of it"):
            world.opened(tmp_path)
    assert not closing.called
    goes_on.set()
    await closing
    assert await moving == Committed(("target",))
    again = world.opened(tmp_path)
    assert [one.state for one in again.transactions()] == ["WAITING"]
    await again.close()


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("machine", [False, True])
async def test_a_copy_takes_an_identity_of_its_own_and_commits_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: bool
) -> None:
    """An instance was cloned with its log, and both run with the same brokers."""
    world = World(messages=4)
    a, b = world.a, world.b
    first = world.opened(tmp_path / "first")
    await world.left_waiting(first)
    await first.close()
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    first = world.opened(tmp_path / "first")
    # What the first has prepared is not for the copy to roll back.
    await world.left_undecided(first)
    [undecided] = a.prepared
    world.events.clear()

    if machine:
        await first.close()
        monkeypatch.setattr(opening, "_MACHINE", tmp_path / "machine")
        (tmp_path / "machine").write_text("another\n")
        copy = world.opened(tmp_path / "first")
    else:
        copy = world.opened(tmp_path / "copy")
    assert "as the original may be in use there" in str(world.told()[0])
    assert [one.state for one in copy.transactions()] == ["WAITING"]
    for _ in range(2):
        await copy.recover("source", "rm:a", Session(a))
    assert list(a.prepared) == [undecided]
    assert sum("imqcmd rollback txn" in str(text) for text in world.told()) == 1
    assert await copy.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
    assert (b.messages, copy.transactions()) == ([1], [])
    assert await world.moved(copy) == Committed()
    # Of its own it rolls back what is not decided.
    await world.left_undecided(copy)
    assert await copy.recover("source", "rm:a", Session(a)) == Recovered(rolled_back=1)
    if not machine:
        assert await first.recover("source", "rm:a", Session(a)) == Recovered(rolled_back=1)
        assert await first.recover("target", "rm:b", Session(b)) == Recovered(committed=1)
        assert a.prepared == {}
        await first.close()
    await copy.close()
    world.events.clear()
    again = world.opened(tmp_path / ("first" if machine else "copy"))
    assert world.events == []
    await again.close()


@pytest_twisted.ensureDeferred
async def test_what_a_moved_log_took_for_committed_is_committed(tmp_path: Path) -> None:
    world = World(messages=1)
    coordinator = world.opened(tmp_path / "first")
    await world.left_waiting(coordinator)
    await coordinator.recover("target", "rm:b", Session(ResourceManager("rm:b")))
    await coordinator.close()
    (tmp_path / "first").rename(tmp_path / "second")
    again = world.opened(tmp_path / "second")
    assert again.transactions() == []
    assert await again.recover("target", "rm:b", Session(world.b)) == Recovered(committed=1)
    assert world.b.messages == [1]
    await again.close()


@pytest_twisted.ensureDeferred
async def test_damage_is_refused_with_its_place(tmp_path: Path) -> None:
    world = World()
    coordinator = world.opened(tmp_path)
    await world.moved(coordinator)
    await world.moved(coordinator)
    await coordinator.close()
    file = tmp_path / "txlog.bridge"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(LogDamaged) as caught:
        world.opened(tmp_path)
    assert str(file) in str(caught.value)
    assert 0 < caught.value.offset <= len(data) // 2
    assert file.read_bytes() == data
    file.unlink()
    await world.opened(tmp_path).close()


@pytest_twisted.ensureDeferred
async def test_a_torn_tail_is_told(tmp_path: Path) -> None:
    world = World()
    await world.opened(tmp_path).close()
    with (tmp_path / "txlog.bridge").open("ab") as file:
        file.write(b"\xa7\xf4\0\0")
    await world.opened(tmp_path).close()
    assert "4 octets" in str(world.told()[-1])


@pytest_twisted.ensureDeferred
async def test_what_waits_is_completed_however_often_the_log_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose machine has another id at each start: so often that its first
    identity is not remembered as such.
    """
    monkeypatch.setattr(log_file, "_MOST_RUNS", 2)
    world = World()
    coordinator = world.opened(tmp_path / "0")
    await world.left_waiting(coordinator)
    assert await world.moved(coordinator) == Committed()
    await coordinator.close()
    for number in range(5):
        (tmp_path / str(number)).rename(tmp_path / str(number + 1))
        coordinator = world.opened(tmp_path / str(number + 1))
        await coordinator.close()
    (tmp_path / "5").rename(tmp_path / "last")
    coordinator = world.opened(tmp_path / "last")
    assert [one.state for one in coordinator.transactions()] == ["WAITING"]
    # By another name than before: only what the broker lists can be committed.
    assert await coordinator.recover("elsewhere", "rm:c", Session(world.b)) == Recovered(
        committed=1
    )
    assert (sorted(world.b.messages), coordinator.transactions()) == ([1, 2], [])
    assert not [
        event for event in world.events if "another installation" in str(event.get("log_format"))
    ]
    await coordinator.close()


# --- its properties


def properties(*given: str, synced: bool = False) -> tuple[TransactionProperties, list[str]]:
    settings, _ = read(DECLARED, None, given)
    found, warnings = TransactionProperties.read(settings, "mq", synced)
    assert all(warning.severity is Severity.WARNING for warning in warnings)
    return found, [str(warning) for warning in warnings]


def test_they_are_declared() -> None:
    assert {TM_PROPS, BRIDGE_TM_PROPS} <= set(DECLARED)


def test_defaults() -> None:
    assert properties() == (TransactionProperties(1_024_000, True), [])
    assert properties("imq.bridge.tm.props=", "imq.bridge.mq.tm.props= , ") == (
        TransactionProperties(),
        [],
    )


def test_the_bridges_own_win() -> None:
    found, _ = properties(
        "imq.bridge.tm.props=txlogSize=2m, txlogSync=false", "imq.bridge.mq.tm.props=txlogSize = 8k"
    )
    assert found == TransactionProperties(8192, False)
    found, _ = properties(
        "imq.bridge.tm.props=txlogSync=false", "imq.bridge.mq.tm.props=txlogSync=true"
    )
    assert found == TransactionProperties()
    found, _ = properties("imq.bridge.other.tm.props=txlogSync=false")
    assert found == TransactionProperties()


def test_without_syncs_there_is_a_warning() -> None:
    for name in ("imq.bridge.tm.props", "imq.bridge.mq.tm.props"):
        (warning,) = properties(f"{name}=txlogSync=false")[1]
        assert name in warning
        assert "lose" in warning
        assert properties(f"{name}=txlogSync=false", synced=True)[1] == []


@pytest.mark.parametrize("key", IGNORED)
def test_the_originals_other_keys_are_ignored_with_a_warning(key: str) -> None:
    found, (warning,) = properties(f"imq.bridge.mq.tm.props={key}=5")
    assert found == TransactionProperties()
    assert key in warning
    assert "no effect" in warning


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("txlogSize", "KEY=VALUE"),
        ("=5", "KEY=VALUE"),
        ("txlogSize=5", "1k"),
        ("txlogSize=many", "txlogSize"),
        ("txlogSync=maybe", "txlogSync"),
        ("txLogSize=5k", "the nearest is txlogSize"),
        ("txlogSize=5k;txlogSync=true", "txlogSize"),
    ],
)
@pytest.mark.parametrize("name", ["imq.bridge.tm.props", "imq.bridge.mq.tm.props"])
def test_what_is_wrong_is_an_error_of_the_bridge(name: str, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        properties(f"{name}={text}")
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert all(problem.severity is Severity.BRIDGE for problem in caught.value.problems)
