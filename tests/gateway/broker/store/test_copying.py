"""Copies from a file to a database, and back.

A copy has everything, is of one moment, and is made completely or not at all.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from gateway.broker.store.integrity import copying as files
from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    StoreDamaged,
    StoreError,
    StoreHeld,
    SubscriptionRow,
)
from gateway.broker.store.postgresql import administration, ownership
from gateway.broker.store.postgresql import copying as databases
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.postgresql.store import PostgresqlStore
from gateway.broker.store.sqlite import SqliteStore
from gateway.instance import crashpoints
from tests.crash.waiting import until
from tests.gateway.broker.store.harness import (
    Model,
    QueueReactor,
    batch_of,
    contents,
    insert,
    row,
)
from tests.gateway.broker.store.test_upgrade import write_as
from tests.postgresql import Cluster

pytestmark = pytest.mark.process

#: Small segments, so that there are many.
SHIFT: Final = 4
TABLES: Final = (
    "meta",
    "destination",
    "subscription",
    "message",
    "content",
    "owed",
    "redelivery",
    "duplicate",
    "branch",
)
texts: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
octets: Final = st.binary(max_size=30) | st.integers(3000, 6000).map(bytes)
_numbers: Final = count(1)


def no_work(row: BranchRow) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The branches of these tests hold no messages."""
    return (), ()


@pytest.fixture(scope="module")
def url(postgresql: Cluster) -> Iterator[str]:
    """A database for this file, in which each test has its own schema."""
    url = postgresql.database()
    yield url
    postgresql.drop(url)


@pytest.fixture
def database(url: str) -> Database:
    return another(url)


def another(url: str) -> Database:
    keywords = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    return Database(keywords, "the test's", f"mq_{next(_numbers)}")


@st.composite
def histories(draw: st.DrawFn) -> list[Batch]:
    """Batches as a broker writes them: rows name rows that exist."""
    model, seq = Model(), 0
    batches = [
        batch_of(
            1,
            destinations=[
                DestinationRow(1, 0, draw(texts), draw(texts), draw(st.integers(0, 2))),
                DestinationRow(2, 1, draw(texts), draw(texts), 0),
            ],
            subscriptions=[
                SubscriptionRow(id, 2, draw(texts), draw(texts), draw(texts), id % 2)
                for id in draw(st.sets(st.integers(1, 3)))
            ],
        )
    ]
    model.apply(batches[0])
    for number in range(2, draw(st.integers(2, 6))):
        batch = Batch(number)
        for _ in range(draw(st.integers(0, 12))):
            seq += draw(st.sampled_from([1, 1, 1, 5, 90]))
            destination = draw(st.sampled_from([1, 2]))
            insert(
                batch,
                row(
                    seq,
                    destination=destination,
                    persistent=draw(st.integers(0, 3)) and 1,
                    head=draw(octets),
                    body=draw(octets),
                ),
            )
            if destination == 2:
                owed = [(id, seq) for id in model.subscriptions if draw(st.booleans())]
                batch.owed.update(dict.fromkeys(owed))
            if draw(st.integers(0, 3)) == 0:
                batch.redeliveries[0, seq] = RedeliveryRow(0, seq, draw(st.integers(1, 9)), 7)
            if draw(st.integers(0, 3)) == 0:
                batch.duplicates[seq] = DuplicateRow(seq, destination, number, draw(octets))
        if model.rows:
            batch.deletes.update(
                dict.fromkeys(sorted(draw(st.sets(st.sampled_from(sorted(model.rows))))))
            )
            batch.settled.update(
                dict.fromkeys(pair for pair in model.owed if pair[1] in batch.deletes)
            )
        if model.duplicates:
            gone = draw(st.sets(st.sampled_from(sorted(model.duplicates))))
            batch.forgotten.update(dict.fromkeys(sorted(gone)))
        if draw(st.booleans()):
            batch.branches[number] = BranchRow(
                number, 1, draw(octets), b"branch", 0, number, draw(texts), draw(octets)
            )
        batch.reserved = seq + draw(st.integers(1, 100))
        model.apply(batch)
        batches.append(batch)
    return batches


def file_store(path: Path, reactor: QueueReactor) -> SqliteStore:
    return SqliteStore(str(path), reactor.reactor, reserve_octets=0, idle_seconds=600)


def database_store(database: Database, reactor: QueueReactor, **options: Any) -> PostgresqlStore:
    return PostgresqlStore(
        database, "node 1", reactor.reactor, shift=SHIFT, taking_seconds=0.0, **options
    )


def written(path: Path, reactor: QueueReactor, batches: list[Batch]) -> Model:
    """Write a store's file, closed in order."""
    store, model = file_store(path, reactor), Model()
    store.open()
    for batch in batches:
        assert reactor.commit(store, batch) is None
        model.apply(batch)
    reactor.close(store)
    return model


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a store's file that survive a restart, with their checksums."""
    kept = "seq NOT IN (SELECT seq FROM message WHERE persistent = 0)"
    conditions = dict.fromkeys(("message", "content", "owed", "redelivery"), kept)
    # This is a sum of all rows, those that are not persistent included.
    conditions["meta"] = "key <> 'clean'"
    connection = sqlite3.connect(path)
    try:
        return {
            table: connection.execute(
                f"SELECT * FROM {table} WHERE {conditions.get(table, 'true')} ORDER BY 1, 2"
            ).fetchall()
            for table in TABLES
        }
    finally:
        connection.close()


def restored(database: Database, path: Path) -> int:
    with files.read(str(path), no_work) as copy, administration.held(database, 0.0) as held:
        return held.restore(copy, SHIFT)


def backed_up(database: Database, path: Path) -> int:
    with databases.read(database, SHIFT) as copy:
        return files.write(str(path), copy)


def schemas(database: Database) -> list[str]:
    with database.connect("the test") as session:
        found = session.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname = %s", (database.schema,)
        )
        return [name for (name,) in found.fetchall()]


def of_database(database: Database, reactor: QueueReactor) -> dict[str, object]:
    """What a gateway finds in the database."""
    store = database_store(database, reactor)
    found = contents(reactor, store, store.open())
    reactor.close(store)
    return found


# Each makes the tables of a broker three times, and so takes a second.
@settings(max_examples=settings().max_examples // 4)
@given(histories())
def test_a_store_comes_back_as_it_was(url: str, batches: list[Batch]) -> None:
    database, reactor = another(url), QueueReactor()
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "messages.db"), Path(folder, "copy.db")
        model = written(first, reactor, batches)
        model.restart()
        assert restored(database, first) == len(model.rows)
        assert backed_up(database, second) == len(model.rows)
        assert rows_of(second) == rows_of(first)
        assert of_database(database, reactor) == model.contents()
        store = file_store(second, reactor)
        assert contents(reactor, store, store.open()) == model.contents()
        reactor.close(store)
    with administration.held(database) as held:
        held.delete()


def test_a_store_that_was_not_closed_in_order(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    store = file_store(tmp_path / "open.db", reactor)
    store.open()
    reactor.close_later(store)
    assert reactor.commit(store, batch_of(1, row(1), row(2), destinations=[QUEUE])) is None
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"open.db{end}", tmp_path / f"messages.db{end}")
    assert restored(database, tmp_path / "messages.db") == 2
    assert of_database(database, reactor)["rows"] == [row(1), row(2)]
    # It is still one that was not closed in order.
    again = file_store(tmp_path / "messages.db", reactor)
    recovered = again.open()
    reactor.close_later(again)
    assert not recovered.clean
    assert contents(reactor, again, recovered)["rows"] == [row(1), row(2)]


QUEUE: Final = DestinationRow(1, 0, "q", "", 0)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_file_of_an_earlier_version(
    database: Database, reactor: QueueReactor, tmp_path: Path, version: int
) -> None:
    path = tmp_path / "messages.db"
    batch = batch_of(
        1,
        *[row(seq, destination=2, persistent=seq % 2) for seq in range(1, 41)],
        destinations=[QUEUE, DestinationRow(2, 1, "t", "maxNumMsgs=5", int(version > 1))],
        subscriptions=[SubscriptionRow(1, 2, "c", "d", "", 0)],
        owed=[(1, seq) for seq in range(1, 41)],
        redeliveries=[RedeliveryRow(1, seq, 2, 0) for seq in range(1, 10)],
        duplicates=[DuplicateRow(7, 1, 1, b"id")] if version > 2 else [],
        reserved=100,
    )
    model = written(tmp_path / "new.db", reactor, [batch])
    model.restart()
    write_as(version, tmp_path / "new.db", path)
    assert restored(database, path) == 20
    # The file is as it was.
    assert int.from_bytes(path.read_bytes()[60:64]) == version
    assert of_database(database, reactor) == model.contents()


def test_copies_while_the_owner_makes_and_drops_tables(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    administration.create(database)
    store = database_store(database, reactor)
    store.open()
    reactor.close_later(store)
    first = [row(seq) for seq in range(1, 101)]
    assert reactor.commit(store, batch_of(1, *first, destinations=[QUEUE], reserved=101)) is None

    def copied() -> list[int]:
        return [backed_up(database, tmp_path / f"{number}.db") for number in range(5)]

    with ThreadPoolExecutor(1) as others:
        copying = others.submit(copied)
        last = 100
        while not copying.done():
            last += 1
            batch = batch_of(last, row(last), deletes=[last - 100], reserved=last + 1)
            assert reactor.commit(store, batch) is None
        assert copying.result() == [100] * 5
    lasts = set()
    for number in range(5):
        seqs = [row[0] for row in rows_of(tmp_path / f"{number}.db")["message"]]
        lasts.add(seqs[-1])
        assert seqs == [*range(seqs[-1] - 99, seqs[-1] + 1)]
    assert len(lasts) > 1, "the owner stood still"


def test_a_copy_is_of_one_moment(database: Database, reactor: QueueReactor, tmp_path: Path) -> None:
    administration.create(database)
    store = database_store(database, reactor, idle_seconds=0.01)
    store.open()
    reactor.close_later(store)
    rows = [row(seq) for seq in range(1, 101)]
    batch = batch_of(1, *rows, destinations=[QUEUE], duplicates=[DuplicateRow(1, 1, 1, b"id")])
    batch.reserved = 101
    assert reactor.commit(store, batch) is None
    with databases.read(database, SHIFT) as copy, database.connect("the test") as session:
        # Not even a table that has not been read yet can be dropped.
        for name in ("message_0", "duplicate_0", "owed_old", "branch"):
            with pytest.raises(psycopg.errors.LockNotAvailable), session.transaction():
                session.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE NOWAIT")
        # Segments become empty, and new ones are made, while they are read.
        for seq in range(1, 101):
            batch = batch_of(seq + 1, row(100 + seq), deletes=[seq], reserved=101 + seq)
            assert reactor.commit(store, batch) is None
        assert files.write(str(tmp_path / "messages.db"), copy) == 100
    found = file_store(tmp_path / "messages.db", reactor)
    recovered = found.open()
    assert contents(reactor, found, recovered)["rows"] == rows
    assert recovered.next_seq == 101
    reactor.close(found)
    # The owner drops what it could not meanwhile.
    with database.connect("the test") as session:
        text = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema::regnamespace AND relname ~ '^message_[0-9]+$'"
        until(lambda: session.execute(text).fetchall()[0][0] <= 8, "segments that are empty stay")


def test_what_is_not_persistent_is_left_out(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    administration.create(database)
    store = database_store(database, reactor)
    store.open()
    reactor.close_later(store)
    rows = [row(seq, destination=2, persistent=seq % 2) for seq in range(1, 61)]
    batch = batch_of(
        1,
        *rows,
        destinations=[DestinationRow(2, 1, "t", "", 0)],
        subscriptions=[SubscriptionRow(1, 2, "c", "d", "", 0)],
        owed=[(1, each.seq) for each in rows],
        redeliveries=[RedeliveryRow(1, each.seq, 2, 0) for each in rows],
    )
    assert reactor.commit(store, batch) is None
    assert backed_up(database, tmp_path / "messages.db") == 30
    model = Model()
    model.apply(batch)
    model.restart()
    copy = file_store(tmp_path / "messages.db", reactor)
    assert contents(reactor, copy, copy.open()) == model.contents()
    reactor.close(copy)


def test_segments_with_few_rows_get_no_table(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    sparse = [row(seq) for seq in range(1, 4000, 40)]
    written(tmp_path / "messages.db", reactor, [batch_of(1, *sparse, destinations=[QUEUE])])
    assert restored(database, tmp_path / "messages.db") == len(sparse)
    sizes = {size.kind: size for size in administration.describe(database).tables}
    # The table of what is left, and that of the last seq.
    assert sizes["message"].count == 2
    assert sizes["message"].rows == len(sparse)
    store = database_store(database, reactor)
    recovered = store.open()
    reactor.close_later(store)
    assert recovered.next_seq == sparse[-1].seq + 1
    more = [row(seq) for seq in range(recovered.next_seq, recovered.next_seq + 100)]
    assert reactor.commit(store, batch_of(1, *more, deletes=[1])) is None
    assert reactor.fetch(store, [each.seq for each in (*sparse, *more)]) == [*sparse[1:], *more]


def test_refused_while_a_process_owns_the_broker(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    administration.create(database)
    written(tmp_path / "messages.db", reactor, [batch_of(1, row(1), destinations=[QUEUE])])
    store = database_store(database, reactor)
    store.open()
    with pytest.raises(StoreHeld, match="node 1 owns this broker"):
        restored(database, tmp_path / "messages.db")
    assert reactor.commit(store, batch_of(1, row(1), destinations=[QUEUE])) is None
    reactor.close(store)
    assert restored(database, tmp_path / "messages.db") == 1


def test_no_process_becomes_the_owner_meanwhile(database: Database, reactor: QueueReactor) -> None:
    administration.create(database)
    with administration.held(database) as held:
        held.recreate()
        store = database_store(database, reactor)
        with pytest.raises(StoreHeld, match="'imqdbmgr' holds this broker"):
            store.open()
        with (
            pytest.raises(StoreHeld, match="'imqdbmgr' holds this broker"),
            administration.held(database, 0.0),
        ):
            pass


def test_sessions_without_a_name_are_not_ended(database: Database) -> None:
    administration.create(database)
    with database.connect("") as other, database.connect("the test") as session:
        owner = ownership.look(session)
        ownership.end(session, owner.session)
        assert other.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("at_once", [False, True])
def test_an_owner_of_the_former_tables_cannot_write(
    database: Database, reactor: QueueReactor, at_once: bool
) -> None:
    administration.create(database)
    store = database_store(database, reactor, idle_seconds=600)
    store.open()
    assert reactor.commit(store, batch_of(1, row(1), destinations=[QUEUE])) is None
    with ExitStack() as ending:
        found: list[administration.Held] = []

        def taken() -> bool:
            with database.connect("the test") as session:
                # The process is alive, and has lost its session without knowing it.
                session.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted "
                    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            # It may have seen that at once, and be the owner again.
            with suppress(StoreHeld):
                found.append(ending.enter_context(administration.held(database)))
            return bool(found)

        until(taken, "the owner kept its lock")
        (held,) = found
        if at_once:
            held.recreate()
        else:
            held.delete()
    if not at_once:
        administration.create(database)
    # Another owner has come and gone, with as many commits.
    other = database_store(database, reactor)
    other.open()
    assert reactor.commit(other, batch_of(1, row(7), destinations=[QUEUE])) is None
    reactor.close(other)
    failed = reactor.commit(store, batch_of(2, row(2)))
    assert isinstance(failed, StoreError)
    reactor.close(store)
    assert of_database(database, reactor)["rows"] == [row(7)]


def test_other_sessions_of_an_owner_that_died_are_ended(database: Database) -> None:
    administration.create(database)
    with database.connect("the test") as session:
        session.execute("UPDATE owner SET released = false, node = 'node 1', session = 'owner'")
    with (
        database.connect("owner") as left,
        administration.held(database),
        pytest.raises(psycopg.OperationalError),
    ):
        left.execute("SELECT 1")


def test_a_damaged_row_of_the_database_is_told(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    rows = [row(seq) for seq in range(1, 101)]
    written(tmp_path / "messages.db", reactor, [batch_of(1, *rows, destinations=[QUEUE])])
    restored(database, tmp_path / "messages.db")
    with database.connect("the test") as session:
        session.execute("UPDATE message_3 SET body = 'other' WHERE seq = 50")
    with pytest.raises(StoreDamaged, match="message 50: its checksum is wrong"):
        backed_up(database, tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["messages.db"]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE content SET body = 'other' WHERE seq = 50", "message 50: its checksum is wrong"),
        ("DELETE FROM content WHERE seq = 50", "message 50"),
        ("DELETE FROM message WHERE seq = 50", "content 50: the message it belongs to is missing"),
        ("UPDATE duplicate SET at = at + 1 WHERE seq = 7", "duplicate id 7: its checksum is wrong"),
        ("UPDATE branch SET since = since + 1", "branch 3: its checksum is wrong"),
        ("UPDATE destination SET name = 'r'", "destination 1: its checksum is wrong"),
        ("DELETE FROM subscription", "table subscription: rows are missing"),
    ],
)
def test_a_damaged_row_of_the_file_is_told(
    database: Database, reactor: QueueReactor, tmp_path: Path, damage: str, told: str
) -> None:
    path = tmp_path / "messages.db"
    administration.create(database)
    before = administration.describe(database)
    written(
        path,
        reactor,
        [
            batch_of(
                1,
                *[row(seq) for seq in range(1, 101)],
                destinations=[QUEUE, DestinationRow(2, 1, "t", "", 0)],
                subscriptions=[SubscriptionRow(1, 2, "c", "d", "", 0)],
                duplicates=[DuplicateRow(7, 1, 1, b"id")],
                branches=[BranchRow(3, 1, b"g", b"b", 0, 1, "u", b"w")],
            )
        ],
    )
    connection = sqlite3.connect(path)
    connection.execute(damage)
    # As after a crash, when there is no sum of all rows.
    connection.execute("UPDATE meta SET value = 1 WHERE key = 'clean'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreDamaged, match=told):
        restored(database, path)
    assert administration.describe(database).store_id == before.store_id


#: Restores a file, and kills itself when it has written that many parts of it.
_KILLED: Final = """
import json, os, signal, sys
from gateway.broker.store.postgresql import administration
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.integrity import copying
from gateway.instance import crashpoints

path, database, left = json.loads(sys.argv[1])

def passed(name):
    global left
    left -= name == "store.mid-batch"
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

crashpoints.arm(crashpoints.STORE_POINTS, passed)
with copying.read(path, lambda row: ((), ())) as copy:
    with administration.held(Database(*database)) as held:
        held.restore(copy, 4)
"""


#: Makes a backup, and kills itself at this point; the file is made empty first, by another rename.
_KILLED_BACKUP: Final = """
import json, os, signal, sys
from gateway.broker.store.postgresql import copying
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.integrity import copying as files
from gateway.instance import crashpoints

path, database, point = json.loads(sys.argv[1])
left = 2 if point == "store.before-rename" else 1

def passed(name):
    global left
    left -= name == point
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

crashpoints.arm(crashpoints.STORE_POINTS, passed)
with copying.read(Database(*database), 4) as copy:
    files.write(path, copy)
"""


@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("there", [False, True], ids=["no tables", "others"])
def test_a_restore_that_is_killed_leaves_nothing(
    database: Database, reactor: QueueReactor, tmp_path: Path, parts: int, there: bool
) -> None:
    path = tmp_path / "messages.db"
    rows = [row(seq) for seq in range(1, 101)]
    written(path, reactor, [batch_of(1, *rows, destinations=[QUEUE])])
    if there:
        administration.create(database)
        store = database_store(database, reactor)
        store.open()
        assert reactor.commit(store, batch_of(1, row(5), destinations=[QUEUE])) is None
        reactor.close(store)
    before = of_database(database, reactor) if there else None
    arguments = [str(path), [dict(database.conninfo), "the test's", database.schema], parts]
    child = subprocess.run(
        [sys.executable, "-c", _KILLED, json.dumps(arguments)], timeout=60, check=False
    )
    assert child.returncode == -signal.SIGKILL
    if there:
        with administration.held(database):
            # Its session has ended.
            pass
        assert of_database(database, reactor) == before
    else:
        with administration.held(database) as held:
            assert not held.exists
    assert restored(database, path) == 100
    assert of_database(database, reactor)["rows"] == rows


@pytest.mark.parametrize("point", ["store.mid-batch", "store.before-rename"])
def test_a_backup_that_is_killed_leaves_no_store(
    database: Database, reactor: QueueReactor, tmp_path: Path, point: str
) -> None:
    path, copy = tmp_path / "messages.db", tmp_path / "copy" / "messages.db"
    copy.parent.mkdir()
    rows = map(row, range(1, 101))
    written(path, reactor, [batch_of(1, *rows, destinations=[QUEUE], reserved=101)])
    restored(database, path)
    arguments = [str(copy), [dict(database.conninfo), "the test's", database.schema], point]
    child = subprocess.run(
        [sys.executable, "-c", _KILLED_BACKUP, json.dumps(arguments)], timeout=60, check=False
    )
    assert child.returncode == -signal.SIGKILL
    assert not copy.exists()
    assert backed_up(database, copy) == 100
    assert rows_of(copy) == rows_of(path)


def test_a_backup_replaces_no_file(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    administration.create(database)
    path = tmp_path / "messages.db"
    path.write_bytes(b"something")
    with pytest.raises(StoreError, match="is there already"):
        backed_up(database, path)
    assert path.read_bytes() == b"something"
    with pytest.raises(StoreError, match="cannot be opened"):
        backed_up(database, tmp_path / "nowhere" / "messages.db")


def test_what_a_backup_that_was_killed_has_left_does_not_matter(
    database: Database, reactor: QueueReactor, tmp_path: Path
) -> None:
    administration.create(database)
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"messages.db.part{end}").write_bytes(b"torn")
    assert backed_up(database, tmp_path / "messages.db") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["messages.db"]


def test_the_schema_is_made_and_removed(database: Database) -> None:
    with administration.held(database) as held:
        assert not held.exists
        with pytest.raises(StoreError, match=f"no schema {database.schema}"):
            held.delete()
    administration.create(database)
    with pytest.raises(StoreError, match="has a schema"):
        administration.create(database)
    first = administration.describe(database)
    assert (first.version, first.next_seq, first.clean) == ("1", 1, True)
    assert not administration.upgrade(database)
    with administration.held(database) as held:
        held.recreate()
    assert administration.describe(database).store_id != first.store_id
    with administration.held(database) as held:
        held.delete()
    assert schemas(database) == []
    with pytest.raises(StoreError, match="imqdbmgr create tbl"):
        administration.describe(database)


@pytest.mark.parametrize("how", ["killed server", "interrupt"])
def test_a_restore_that_fails_leaves_what_was_there(
    postgresql_cluster: Cluster, reactor: QueueReactor, tmp_path: Path, how: str
) -> None:
    database = another(postgresql_cluster.database())
    for name, last in (("former", 10), ("newer", 100)):
        (tmp_path / name).mkdir()
        rows = [row(seq) for seq in range(1, last + 1)]
        written(
            tmp_path / name / "messages.db",
            reactor,
            [batch_of(1, *rows, destinations=[QUEUE], reserved=last + 1)],
        )
    restored(database, tmp_path / "former" / "messages.db")
    before = administration.describe(database)

    def fail(point: str) -> None:
        if point == "store.mid-batch":
            crashpoints.disarm()
            if how == "interrupt":
                raise KeyboardInterrupt
            postgresql_cluster.kill()

    crashpoints.arm(crashpoints.STORE_POINTS, fail)
    error = KeyboardInterrupt if how == "interrupt" else psycopg.OperationalError
    with pytest.raises(error):
        restored(database, tmp_path / "newer" / "messages.db")
    if how == "killed server":
        postgresql_cluster.start()
    found = administration.describe(database)
    assert (found.store_id, found.tables) == (before.store_id, before.tables)
    assert restored(database, tmp_path / "newer" / "messages.db") == 100
