"""A store that an earlier version wrote: upgraded where it is opened, and not before it is known to
be whole.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.store.checksums import destination_crc
from gateway.broker.store.integrity import inspection, opening, salvage
from gateway.broker.store.integrity.opening import PAGE_SIZE
from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    DestinationRow,
    DuplicateRow,
    StoreDamaged,
    SubscriptionRow,
)
from gateway.broker.store.sqlite import SqliteStore
from gateway.broker.xa.branch import restored
from tests.gateway.broker.store.harness import History, Model, QueueReactor, batch_of, contents

#: The tables of earlier versions.
TABLES = ("meta", "destination", "subscription", "message", "content", "owed", "redelivery")
#: Those that are there since version 3.
NEWER = ("duplicate", "branch")


def store_at(path: Path, reactor: QueueReactor) -> SqliteStore:
    return SqliteStore(str(path), reactor.reactor, reserve_octets=0, idle_seconds=600)


@pytest.fixture(params=[1, 2, 3, 4])
def earlier(request: pytest.FixtureRequest) -> int:
    """A version before this one."""
    number: int = request.param
    return number


@pytest.fixture
def old(earlier: int, tmp_path: Path, reactor: QueueReactor) -> tuple[Path, Model]:
    """A store of an earlier version, closed in order, and what it holds: written anew with that
    version's tables.
    """
    new, path = tmp_path / "new.db", tmp_path / "messages.db"
    store = store_at(new, reactor)
    store.open()
    history = History(7)
    for _ in range(20):
        assert reactor.commit(store, history.next()) is None
    reactor.close(store)
    write_as(earlier, new, path)
    new.unlink()
    model = history.states[-1].copy()
    if earlier < 3:
        model.duplicates.clear()
        model.branches.clear()
    return path, model


def write_as(earlier: int, new: Path, path: Path) -> None:
    """Write the store ``new`` as that version would have closed it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"page_size = {PAGE_SIZE}", "auto_vacuum = INCREMENTAL", "journal_mode = WAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.executescript(Path(__file__).with_name(f"version-{earlier}.sql").read_text())
    connection.execute("ATTACH ? AS new", (str(new),))
    for table in TABLES if earlier < 3 else TABLES + NEWER:
        columns = ", ".join(
            row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")
        )
        connection.execute(f"INSERT INTO main.{table}({columns}) SELECT {columns} FROM new.{table}")
    if earlier < 4:
        connection.execute("DELETE FROM meta WHERE key IN ('destinations', 'subscriptions')")
    # The first two versions had no seal; that of the third has a test of its own.
    connection.execute("UPDATE meta SET value = 1 WHERE key = 'clean'")
    connection.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {earlier}")
    connection.execute("DETACH new")
    connection.close()


def version(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64])


def test_all_that_was_there_is_there(
    old: tuple[Path, Model], earlier: int, reactor: QueueReactor
) -> None:
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
    assert [each for block in again.scan_duplicates() for each in block][-1] == batch.duplicates[
        4711
    ]
    assert [each for block in again.scan_branches() for each in block][-1] == batch.branches[4711]
    reactor.close(again)


def closed_by_version_3(path: Path) -> None:
    """A store with the seal that the program of version 3 gave it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"page_size = {PAGE_SIZE}", "auto_vacuum = INCREMENTAL", "journal_mode = WAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    for name in ("version-3.sql", "version-3-closed.sql"):
        connection.executescript(Path(__file__).with_name(name).read_text("utf-8"))
    connection.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 3")
    connection.close()


def test_the_seal_of_version_3_is_compared_before_the_upgrade(
    tmp_path: Path, reactor: QueueReactor
) -> None:
    path = tmp_path / "messages.db"
    closed_by_version_3(path)
    shutil.copy(path, tmp_path / "kept.db")
    assert inspection.inspect(str(path), work) == inspection.Report([], 6, True)
    store = store_at(path, reactor)
    recovered = store.open()
    assert (recovered.clean, recovered.notes, version(path)) == (True, [], opening.SCHEMA_VERSION)
    assert recovered.destinations[2] == DestinationRow(3, 0, "Gr\u00fc\u00dfe", "maxNumMsgs=7\n", 1)
    assert recovered.subscriptions[0] == SubscriptionRow(
        7, 2, "client", "one", "colour = 'gr\u00fcn'", 1
    )
    reactor.close(store)
    assert inspection.inspect(str(path), work) == inspection.Report([], 6, True)
    os.replace(tmp_path / "kept.db", path)
    _change(path, "UPDATE destination SET kind = 1 WHERE id = 1")
    with pytest.raises(
        StoreDamaged,
        match="table destination: its rows are not those that were there when the store was closed",
    ):
        store_at(path, reactor).open()
    assert version(path) == 3


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("UPDATE destination SET name = 'others' WHERE id = 4711", "destination 4711"),
        ("UPDATE subscription SET no_local = 1 - no_local WHERE id = 1", "subscription 1"),
        ("DELETE FROM subscription", "table subscription"),
        ("PRAGMA user_version = 3", "an unknown page"),
    ],
)
def test_rows_are_checked_after_the_upgrade_and_a_crash(
    old: tuple[Path, Model], reactor: QueueReactor, change: str, place: str
) -> None:
    """RowsStatement that were upgraded, one that was written later, and the version, of a store that was not
    closed in order.
    """
    path, _ = old
    store = store_at(path, reactor)
    store.open()
    batch = batch_of(1, destinations=[DestinationRow(4711, 0, "made", "", 0)])
    assert reactor.commit(store, batch) is None
    reactor.close(store)
    _change(path, "UPDATE meta SET value = 0 WHERE key = 'clean'")
    _change(path, change)
    path.with_name(f"{path.name}-wal").touch()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged) as error:
        store_at(path, reactor).open()
    assert (error.value.place, path.read_bytes()) == (place, before)


def test_one_that_was_killed_is_upgraded(
    old: tuple[Path, Model], earlier: int, reactor: QueueReactor, tmp_path: Path
) -> None:
    """What is still in its log gets checksums, too."""
    path, model = old
    connection = opening.connect(str(path))
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute("UPDATE meta SET value = 0 WHERE key = 'clean'")
    made = DestinationRow(9000, 0, "q", "")
    if earlier == 4:
        # It has a checksum, and is in the sum of all.
        row = (9000, 0, "q", "", 0, destination_crc(made))
        connection.execute("INSERT INTO destination VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute(
            "UPDATE meta SET value = value + ? WHERE key = 'destinations'", (row[-1],)
        )
    else:
        connection.execute(
            "INSERT INTO destination(id, kind, name, properties) VALUES (9000, 0, 'q', '')"
        )
    (tmp_path / "killed").mkdir()
    for name, octets in _files(path).items():
        (tmp_path / "killed" / name).write_bytes(octets)
    connection.close()
    model.restart()
    model.destinations[9000] = made
    for _ in range(2):
        store = store_at(tmp_path / "killed" / path.name, reactor)
        assert contents(reactor, store, store.open()) == model.contents()
        reactor.close(store)


def _change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def work(row: BranchRow) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    return restored(row)[1:]


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
    opening.upgrade(connection)
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


def test_a_damaged_one_is_refused_and_not_touched(
    old: tuple[Path, Model], reactor: QueueReactor
) -> None:
    path, _ = old
    os.truncate(path, path.stat().st_size - PAGE_SIZE // 2)
    before = path.read_bytes()
    with pytest.raises(StoreDamaged):
        store_at(path, reactor).open()
    assert path.read_bytes() == before


def test_the_tables_are_those_of_a_new_store(
    old: tuple[Path, Model], reactor: QueueReactor, tmp_path: Path
) -> None:
    path, _ = old
    new = tmp_path / "new.db"
    for each in (path, new):
        store = store_at(each, reactor)
        store.open()
        reactor.close(store)
    assert _columns(path) == _columns(new)


def test_the_database_command_looks_at_it_as_it_is(
    old: tuple[Path, Model], earlier: int, tmp_path: Path
) -> None:
    path, model = old
    assert salvage.look(str(path)) is None
    connection = sqlite3.connect(f"{path.as_uri()}?psow=0", uri=True, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    for number in range(3):
        connection.execute(
            "INSERT INTO destination(id, kind, name, properties) VALUES (?, 0, 'q', '')",
            (9000 + number,),
        )
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
    """Of every table: the columns, with all that is said of them but in which order tables and
    columns came.
    """
    connection = sqlite3.connect(path)
    try:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        return {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    finally:
        connection.close()


def _files(path: Path) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes()
        for each in path.parent.glob(f"{path.name}*")
        if not each.name.endswith("-shm")
    }
