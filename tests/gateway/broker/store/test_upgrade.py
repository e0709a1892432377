"""A store that an earlier version wrote: upgraded where it is opened, and not before it is known to be whole."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.store import opening, salvage
from gateway.broker.store.interface import Batch, BranchRow, DestinationRow, DuplicateRow, StoreDamaged
from gateway.broker.store.opening import PAGE_SIZE
from gateway.broker.store.sqlite import SqliteStore
from tests.gateway.broker.store.harness import History, Model, QueueReactor, contents

#: The tables of earlier versions.
TABLES = ("meta", "destination", "subscription", "message", "content", "owed", "redelivery")


@pytest.fixture
def reactor() -> QueueReactor:
    return QueueReactor()


def store_at(path: Path, reactor: QueueReactor) -> SqliteStore:
    return SqliteStore(str(path), reactor.reactor, reserve_octets=0, idle_seconds=600)


@pytest.fixture(params=[1, 2])
def earlier(request: pytest.FixtureRequest) -> int:
    """A version before this one."""
    number: int = request.param
    return number


@pytest.fixture
def old(earlier: int, tmp_path: Path, reactor: QueueReactor) -> tuple[Path, Model]:
    """A store of an earlier version, closed in order, and what it holds: written anew with that version's tables."""
    new, path = tmp_path / "new.db", tmp_path / "messages.db"
    store = store_at(new, reactor)
    store.open()
    history = History(7)
    for _ in range(20):
        assert reactor.commit(store, history.next()) is None
    reactor.close(store)
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"page_size = {PAGE_SIZE}", "auto_vacuum = INCREMENTAL", "journal_mode = WAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.executescript(Path(__file__).with_name(f"version-{earlier}.sql").read_text())
    connection.execute("ATTACH ? AS new", (str(new),))
    for table in TABLES:
        columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table})"))
        connection.execute(f"INSERT INTO main.{table}({columns}) SELECT {columns} FROM new.{table}")
    # Those versions had no seal.
    connection.execute("UPDATE meta SET value = 1 WHERE key = 'clean'")
    connection.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {earlier}")
    connection.execute("DETACH new")
    connection.close()
    new.unlink()
    model = history.states[-1].copy()
    model.duplicates.clear()
    model.branches.clear()
    return path, model


def version(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64])


def test_all_that_was_there_is_there(old: tuple[Path, Model], earlier: int, reactor: QueueReactor) -> None:
    path, model = old
    assert version(path) == earlier
    store = store_at(path, reactor)
    recovered = store.open()
    assert (recovered.clean, recovered.notes) == (True, [])
    model.restart()
    assert contents(reactor, store, recovered) == model.contents()
    assert {row.administered for row in recovered.destinations} == {0}
    assert version(path) == opening.SCHEMA_VERSION
    batch = Batch(1)
    row = DestinationRow(4711, 0, "made", "maxNumMsgs=1", 1)
    batch.destinations[row.id] = row
    batch.duplicates[4711] = DuplicateRow(4711, row.id, 1, b"id")
    batch.branches[4711] = BranchRow(4711, 1, b"g", b"b", 0, 1, "guest", b"work")
    assert reactor.commit(store, batch) is None
    reactor.close(store)
    again = store_at(path, reactor)
    assert row in again.open().destinations
    assert list(again.scan_duplicates()) == [[batch.duplicates[4711]]]
    assert list(again.scan_branches()) == [[batch.branches[4711]]]
    reactor.close(again)


def test_a_crash_after_the_upgrade_leaves_it_upgraded_or_as_it_was(
    old: tuple[Path, Model], earlier: int, reactor: QueueReactor, tmp_path: Path
) -> None:
    """Every state of the files between, as a crash would leave it, opens."""
    path, model = old
    model.restart()
    states: list[dict[str, bytes]] = []
    connection = opening.connect(str(path))
    connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    opening._upgrade(connection)
    states.append(_files(path))
    connection.execute("COMMIT")
    states.append(_files(path))
    assert version(path) == earlier, "the upgrade is in the log only"
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    states.append(_files(path))
    opening.close_untouched(connection)
    for number, files in enumerate(states):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, octets in files.items():
            (folder / name).write_bytes(octets)
        store = store_at(folder / path.name, reactor)
        assert contents(reactor, store, store.open()) == model.contents()
        assert version(folder / path.name) == opening.SCHEMA_VERSION
        reactor.close(store)


def test_a_damaged_one_is_refused_and_not_touched(old: tuple[Path, Model], reactor: QueueReactor) -> None:
    path, _ = old
    os.truncate(path, path.stat().st_size - PAGE_SIZE // 2)
    before = path.read_bytes()
    with pytest.raises(StoreDamaged):
        store_at(path, reactor).open()
    assert path.read_bytes() == before


def test_the_tables_are_those_of_a_new_store(old: tuple[Path, Model], reactor: QueueReactor, tmp_path: Path) -> None:
    path, _ = old
    new = tmp_path / "new.db"
    for each in (path, new):
        store = store_at(each, reactor)
        store.open()
        reactor.close(store)
    assert _columns(path) == _columns(new)


def test_the_database_command_looks_at_it_as_it_is(old: tuple[Path, Model], earlier: int, tmp_path: Path) -> None:
    path, model = old
    assert salvage.look(str(path)) is None
    connection = sqlite3.connect(f"{path.as_uri()}?psow=0", uri=True, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    for number in range(3):
        connection.execute("INSERT INTO destination(id, kind, name, properties) VALUES (?, 0, 'q', '')", (9000 + number,))
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.with_name(name), tmp_path / f"kept.{name}")
    connection.close()
    for name in (path.name, f"{path.name}-wal"):
        os.replace(tmp_path / f"kept.{name}", path.with_name(name))
    log = path.with_name(f"{path.name}-wal")
    octets = bytearray(log.read_bytes())
    # The first of three commits is damaged: what follows proves it.
    octets[32 + 24 + 100] ^= 0xFF
    log.write_bytes(octets)
    loss = salvage.look(str(path))
    assert loss is not None
    rows: Any = [row for row in model.rows.values() if row.persistent]
    assert salvage.recover(str(path), loss, str(tmp_path / "aside")) == len(rows)
    assert version(path) == earlier
    assert salvage.look(str(path)) is None


def _columns(path: Path) -> dict[str, list[Any]]:
    """Of every table: the columns, with all that is said of them but in which order tables and columns came."""
    connection = sqlite3.connect(path)
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    finally:
        connection.close()


def _files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.glob(f"{path.name}*") if not each.name.endswith("-shm")}
