"""A coordinator whose log moves between a file and the database.

By ``imqdbmgr``, and by the gateway when the bridge starts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from bridge.xa.coordinator import Coordinator, Recovered
from bridge.xa.errors import LogDamaged, LogFailed
from bridge.xa.log.opening import TransactionProperties
from gateway.broker.store.postgresql import copying
from gateway.instance.layout import Layout
from gateway.transaction_log import DatabaseLog, PlainLog
from tests.bridge.xa.resource_managers import Session
from tests.bridge.xa.test_opening import World
from tests.gateway.decision_logs import BRIDGE, rows_of
from tests.gateway.test_dbmgr_tables import Tool

pytestmark = pytest.mark.process


class Instance:
    """One whose store is exchanged for another."""

    def __init__(self, tool: Tool, messages: int) -> None:
        self.tool = tool
        self.world = World(messages)
        self.plain = PlainLog(tool.layout, BRIDGE)
        self.file = tool.layout.transaction_log(BRIDGE)
        self.beside = tool.layout.store / self.file.name

    @asynccontextmanager
    async def in_file(self) -> AsyncIterator[Coordinator]:
        coordinator = self.plain.open(reactor, TransactionProperties(), self.world.log, os.urandom)
        yield coordinator
        await coordinator.close()

    @asynccontextmanager
    async def in_database(self, layout: Layout | None = None) -> AsyncIterator[Coordinator]:
        """Open it. :param layout: of the instance on another machine."""
        store = self.tool.store()
        try:
            log = DatabaseLog(
                lambda: rows_of(store, BRIDGE), layout or self.tool.layout, "one", BRIDGE
            )
            coordinator = await log.open(
                reactor, TransactionProperties(), self.world.log, os.urandom
            )
            yield coordinator
            await coordinator.close()
        finally:
            self.tool.reactor.close(store)

    async def rolled_back(self, coordinator: Coordinator) -> int:
        """Complete what the source has; return how many branches were not decided."""
        recovered = await coordinator.recover("source", "rm:a", Session(self.world.a))
        assert recovered == Recovered(rolled_back=recovered.rolled_back)
        return recovered.rolled_back


@pytest.fixture
def instance(
    postgresql_database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Instance]:
    monkeypatch.delenv("IMQ_VARHOME", raising=False)
    tool = Tool(Layout(tmp_path / "var", "one"), postgresql_database, capsys)
    assert tool("create", "tbl")[0] == 0
    yield Instance(tool, messages=5)
    tool.reactor.close_all()


@pytest_twisted.ensureDeferred
async def test_a_coordinator_stays_the_same_wherever_its_log_is(instance: Instance) -> None:
    world, tool = instance.world, instance.tool
    async with instance.in_file() as coordinator:
        await world.left_waiting(coordinator)
        await world.left_undecided(coordinator)
    for _ in range(2):
        async with instance.in_database() as coordinator:
            assert [one.state for one in coordinator.transactions()] == ["WAITING"]
            assert await instance.rolled_back(coordinator) == 1
            await world.left_undecided(coordinator)
        assert not instance.file.exists()
        shutil.rmtree(tool.layout.store)
        assert tool("backup", "tbl", "-dir", str(tool.layout.store))[0] == 0
        assert instance.plain.files()
        async with instance.in_file() as coordinator:
            assert [one.state for one in coordinator.transactions()] == ["WAITING"]
            assert await instance.rolled_back(coordinator) == 1
            await world.left_undecided(coordinator)
        assert not instance.beside.exists()
    async with instance.in_file() as coordinator:
        assert await coordinator.recover("target", "rm:b", Session(world.b)) == Recovered(
            committed=1
        )
    assert (world.b.messages, world.b.prepared) == ([1], {})
    assert not [text for text in world.told() if "another machine" in str(text)]


@pytest_twisted.ensureDeferred
async def test_a_log_that_went_on_in_both_places_is_not_opened(instance: Instance) -> None:
    tool = instance.tool
    async with instance.in_database():
        pass
    assert tool("backup", "tbl", "-dir", str(tool.layout.store))[0] == 0
    async with instance.in_database():
        pass
    async with instance.in_file():
        pass
    for _ in range(2):
        with pytest.raises(LogFailed) as caught:
            async with instance.in_database():
                pass
        said = str(caught.value)
        assert str(instance.file) in said
        assert f"of {BRIDGE} in the database" in said
        assert f"'imqdbmgr remove jmsbridge -n {BRIDGE}'" in said
    assert instance.file.exists()


@pytest_twisted.ensureDeferred
async def test_a_log_is_not_put_over_another(instance: Instance) -> None:
    tool = instance.tool
    async with instance.in_database():
        pass
    assert tool("backup", "tbl", "-dir", str(tool.layout.store))[0] == 0
    kept = instance.beside.read_bytes()
    async with instance.in_file():
        pass
    # One that was copied by hand is no other.
    instance.beside.write_bytes(kept)
    async with instance.in_file():
        pass
    assert instance.beside.exists()
    instance.file.unlink()
    instance.beside.unlink()
    async with instance.in_file():
        pass
    instance.beside.write_bytes(kept)
    other = instance.file.read_bytes()
    with pytest.raises(LogFailed, match="there is another log of this bridge") as caught:
        async with instance.in_file():
            pass
    assert str(instance.file) in str(caught.value)
    assert str(instance.beside) in str(caught.value)
    assert (instance.file.read_bytes(), instance.beside.read_bytes()) == (other, kept)
    instance.file.write_bytes(b"something else")
    with pytest.raises(LogDamaged):
        async with instance.in_file():
            pass


@pytest_twisted.ensureDeferred
async def test_the_logs_of_an_instance_come_with_its_store(
    instance: Instance, tmp_path: Path
) -> None:
    """Whichever machine is the first to run the bridge."""
    world, tool, file = instance.world, instance.tool, instance.file
    assert tool("backup", "tbl", "-dir", str(tool.layout.store))[0] == 0
    assert not instance.plain.files()
    async with instance.in_file() as coordinator:
        await world.left_waiting(coordinator)
        await world.left_undecided(coordinator)
    (tool.layout.bridges / "lost+found").mkdir()
    code, said, error = tool("restore", "tbl", "-f", "-dir", str(tool.layout.store))
    assert (code, error) == (0, "")
    assert said.splitlines()[1:] == [
        f"The transaction logs of these bridges go on there: {BRIDGE} (1 unfinished).",
        f"{file} is called {file}.in-database now.",
    ]
    async with instance.in_database(Layout(tmp_path / "another", "one")) as coordinator:
        assert [one.state for one in coordinator.transactions()] == ["WAITING"]
        assert await instance.rolled_back(coordinator) == 1
    assert not instance.plain.files()
    # As an end between the two leaves it.
    Path(f"{file}.in-database").rename(file)
    async with instance.in_database():
        assert not file.exists()


@pytest_twisted.ensureDeferred
async def test_logs_of_an_instance_are_not_lost_for_others(instance: Instance) -> None:
    tool, file = instance.tool, instance.file
    async with instance.in_database():
        pass
    assert tool("backup", "tbl", "-dir", str(tool.layout.store))[0] == 0
    kept = instance.beside.read_bytes()
    instance.beside.unlink()
    async with instance.in_file():
        pass
    before = file.read_bytes()
    restore = ("restore", "tbl", "-f", "-dir", str(tool.layout.store))
    instance.beside.write_bytes(before)
    code, said, error = tool(*restore)
    assert (code, said) == (1, "")
    assert (
        f"has two transaction logs, and each may have decided what the other does not know: {file} and {instance.beside}."
        in error
    )
    instance.beside.unlink()
    code, said, error = tool(*restore)
    assert (code, said) == (1, "")
    assert (
        f"has two transaction logs, and each may have decided what the other does not know: {file}, and that in"
        in error
    )
    assert file.read_bytes() == before
    with tool.layout.lock():
        assert "the instance is in use" in tool(*restore)[2]
    # One that went on from the copy beside it, which the database still has.
    file.unlink()
    instance.beside.write_bytes(kept)
    async with instance.in_file():
        pass
    instance.beside.write_bytes(kept)
    code, said, error = tool(*restore)
    assert (code, error) == (0, "")
    assert f"go on there: {BRIDGE}." in said
    assert not file.exists()


# --- what operators paused goes along


def test_what_operators_paused_goes_along_with_the_store(instance: Instance) -> None:
    tool = instance.tool
    store = tool.layout.store
    paused, stopped = '{"a": "PAUSED"}', '{"": "STOPPED"}'
    with tool.database.connect("the test") as session:
        session.execute(
            "INSERT INTO bridge_orders VALUES ('shop', %s), ('other', %s)", (paused, "{}")
        )
    stale = tool.layout.bridge_orders("stale")
    stale.parent.mkdir(parents=True)
    stale.write_text(stopped)
    # A backup that is for any place has no orders.
    assert tool("backup", "tbl", "-dir", str(tool.layout.varhome / "copy"))[0] == 0
    assert stale.exists()
    assert tool("backup", "tbl", "-dir", str(store))[0] == 0
    file = tool.layout.bridge_orders("shop")
    assert file.read_text() == paused
    assert not stale.exists()
    # They change there, and one is forgotten.
    file.write_text(stopped)
    tool.layout.bridge_orders("other").unlink()
    copy = ("restore", "tbl", "-f", "-dir", str(tool.layout.varhome / "copy"))
    for words, there in (
        (copy, {"shop": paused, "other": "{}"}),
        ((*copy[:4], str(store)), {"shop": stopped}),
        (("recreate", "-f"), {"shop": stopped}),
    ):
        assert tool(*words)[0] == 0
        with tool.database.connect("the test") as session:
            assert copying.bridge_orders(session) == there


def test_a_schema_without_any_tables_is_made_anew(instance: Instance) -> None:
    tool = instance.tool
    with tool.database.connect("the test") as session:
        session.execute("DROP SCHEMA mq_one CASCADE")
        session.execute("CREATE SCHEMA mq_one")
    assert tool("recreate", "-f")[0] == 0
    assert tool("check")[0] == 0
