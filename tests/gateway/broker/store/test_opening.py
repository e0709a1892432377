"""What is opened, what is refused and in which words, and what opening and closing do to the
files.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from gateway.broker.store.checksums import destination_crc
from gateway.broker.store.integrity import opening
from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreVersionUnknown,
    SubscriptionRow,
)
from gateway.broker.store.sqlite import SqliteStore
from gateway.instance import crashpoints
from tests.gateway.broker.store.harness import (
    History,
    QueueReactor,
    batch_of,
    contents,
    insert,
    row,
)

PAGE = opening.PAGE_SIZE
#: Leaves the file as an earlier version closed it.
WITHOUT_SEAL = "UPDATE meta SET value = 1 WHERE key = 'clean'"


@pytest.fixture
def points() -> Iterator[Queue[str]]:
    """The crash points, as they are passed."""
    passed: Queue[str] = Queue()
    crashpoints.arm(crashpoints.STORE_POINTS, passed.put)
    yield passed
    crashpoints.disarm()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "messages.db"


def store_at(
    path: Path, reactor: QueueReactor, *, idle_seconds: float = 600, check_octets: int = 1 << 28
) -> SqliteStore:
    return SqliteStore(
        str(path),
        reactor.reactor,
        reserve_octets=0,
        idle_seconds=idle_seconds,
        check_octets=check_octets,
    )


def opened(path: Path, reactor: QueueReactor, **options: Any) -> SqliteStore:
    """A store at ``path`` that is open; the test's end closes it."""
    store = store_at(path, reactor, **options)
    store.open()
    reactor.close_later(store)
    return store


def stored(path: Path, reactor: QueueReactor, batch: Batch) -> None:
    """A store at ``path`` that has committed this batch, and was closed in order."""
    store = opened(path, reactor)
    assert reactor.commit(store, batch) is None
    reactor.close(store)


@pytest.fixture
def closed(path: Path, reactor: QueueReactor) -> History:
    """A store at ``path`` that was closed in order."""
    store = opened(path, reactor)
    history = History(5)
    for _ in range(20):
        assert reactor.commit(store, history.next()) is None
    reactor.close(store)
    return history


@pytest.fixture
def killed(closed: History, path: Path, reactor: QueueReactor, tmp_path: Path) -> History:
    """The same, but not closed in order; its log is empty."""
    kept = tmp_path / "kept.db"
    store = opened(path, reactor)
    shutil.copy(path, kept)
    reactor.close(store)
    os.replace(kept, path)
    path.with_name("messages.db-wal").touch()
    return closed


def refused(path: Path, reactor: QueueReactor) -> StoreError:
    """Opening fails, and leaves every file as it was."""
    files = {each: each.read_bytes() for each in sorted(path.parent.iterdir())}
    with pytest.raises(StoreError) as error:
        store_at(path, reactor).open()
    assert {each: each.read_bytes() for each in sorted(path.parent.iterdir())} == files
    assert str(path) in str(error.value)
    return error.value


def damaged(path: Path, reactor: QueueReactor) -> StoreDamaged:
    """Opening fails for damage, and leaves every file as it was."""
    error = refused(path, reactor)
    assert isinstance(error, StoreDamaged)
    return error


def alter(path: Path, *statements: str) -> None:
    """Change the database behind the store's back."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def seqs(path: Path, table: str) -> list[int]:
    """The seqs in a table of the closed store."""
    with closing(sqlite3.connect(path)) as connection:
        return [seq for (seq,) in connection.execute(f"SELECT seq FROM {table} ORDER BY seq")]


def change(path: Path, offset: int, octets: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(octets)


# Refused.


def test_a_text_file_is_not_a_store(path: Path, reactor: QueueReactor) -> None:
    path.write_text("not a database at all\n" * 500)
    error = refused(path, reactor)
    assert not isinstance(error, StoreDamaged)
    assert "is not a message store" in str(error)


def test_the_database_of_another_program_is_not_a_store(path: Path, reactor: QueueReactor) -> None:
    alter(path, "CREATE TABLE message(x)")
    assert "application id 0x0, not 0x53476d71" in str(refused(path, reactor))


@pytest.mark.parametrize(
    ("offset", "octets", "place"),
    [(16, b"\x20\x00", "offset 16"), (18, b"\1\1", "offset 18"), (0, bytes(4096), "offset 0")],
)
def test_a_damaged_header_is_named(
    closed: History, path: Path, reactor: QueueReactor, offset: int, octets: bytes, place: str
) -> None:
    change(path, offset, octets)
    error = damaged(path, reactor)
    assert error.place == place


@pytest.mark.parametrize("size", [0, 99, PAGE + 1000])
def test_a_file_cut_off_is_damaged(
    closed: History, path: Path, reactor: QueueReactor, size: int
) -> None:
    os.truncate(path, size)
    error = damaged(path, reactor)
    assert error.place == f"offset {size // PAGE * PAGE}"


def test_whole_pages_cut_off_are_damage(killed: History, path: Path, reactor: QueueReactor) -> None:
    os.truncate(path, path.stat().st_size - PAGE)
    assert isinstance(refused(path, reactor), StoreDamaged)


@pytest.mark.parametrize("version", [0, opening.SCHEMA_VERSION + 1, 4711])
def test_another_schema_is_refused_by_version(
    closed: History, path: Path, reactor: QueueReactor, version: int
) -> None:
    change(path, 60, version.to_bytes(4))
    error = refused(path, reactor)
    assert isinstance(error, StoreVersionUnknown)
    assert (error.found, error.known) == (version, opening.SCHEMA_VERSION)


def test_an_unknown_upgrade_that_is_in_the_log_only_is_refused(
    closed: History, path: Path, reactor: QueueReactor, tmp_path: Path
) -> None:
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {opening.SCHEMA_VERSION + 1}")
    for name in ("messages.db", "messages.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / f"{name}.kept")
    other.close()
    for name in ("messages.db", "messages.db-wal"):
        os.replace(tmp_path / f"{name}.kept", tmp_path / name)
    with pytest.raises(StoreVersionUnknown):
        store_at(path, reactor).open()


def test_a_page_that_makes_no_sense_is_found_after_an_unclean_stop(
    killed: History, path: Path, reactor: QueueReactor
) -> None:
    change(path, PAGE * 9, b"\xff" * 200)
    with pytest.raises(StoreDamaged) as error:
        store_at(path, reactor).open()
    assert (error.value.path, error.value.place) == (str(path), "page 10")


def test_an_old_sqlite_is_refused(
    closed: History, path: Path, reactor: QueueReactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    assert "needs SQLite 3.32.0 or later" in str(refused(path, reactor))


def test_a_large_database_is_not_read_whole(
    killed: History, path: Path, reactor: QueueReactor
) -> None:
    store = store_at(path, reactor, check_octets=PAGE)
    recovered = store.open()
    assert not recovered.clean
    assert contents(reactor, store, recovered) == killed.after_restart(20)
    reactor.close(store)


def test_a_missing_row_of_meta_is_damage(
    closed: History, path: Path, reactor: QueueReactor
) -> None:
    alter(path, "DELETE FROM meta WHERE key = 'next_seq'")
    error = damaged(path, reactor)
    assert error.place == "table meta"


def test_a_log_without_its_database_is_refused(
    closed: History, path: Path, reactor: QueueReactor
) -> None:
    path.rename(path.with_name("messages.db-wal"))
    error = damaged(path, reactor)
    assert "messages.db-wal" in str(error)


def test_a_rollback_journal_is_not_ours(closed: History, path: Path, reactor: QueueReactor) -> None:
    path.with_name("messages.db-journal").write_bytes(b"x" * 512)
    assert "messages.db-journal" in str(refused(path, reactor))


def test_a_missing_folder_is_named(tmp_path: Path, reactor: QueueReactor) -> None:
    path = tmp_path / "none" / "messages.db"
    with pytest.raises(StoreError, match="cannot be made"):
        store_at(path, reactor).open()


# Damage that is found by reading.


def test_a_wrong_checksum_is_named_by_seq(path: Path, reactor: QueueReactor) -> None:
    stored(
        path,
        reactor,
        insert(Batch(1), *(row(seq, body=b"body of %d." % seq) for seq in range(1, 20))),
    )
    change(path, path.read_bytes().index(b"body of 7."), b"B")
    store = opened(path, reactor)
    assert reactor.fetch(store, [6, 8]) == [row(6, body=b"body of 6."), row(8, body=b"body of 8.")]
    error = reactor.fetch(store, range(1, 20))
    assert isinstance(error, StoreDamaged)
    assert (error.path, error.place) == (str(path), "message 7")


@pytest.mark.parametrize("large", [b"", bytes(9000)])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM content WHERE seq = 3",
        "UPDATE content SET body = 'text' WHERE seq = 3",
        "UPDATE content SET body = 5 WHERE seq = 3",
        "UPDATE content SET head = x'' WHERE seq = 3",
        "UPDATE message SET crc = crc + 1 WHERE seq = 3",
        *(
            f"UPDATE message SET {column} = {column} + 1 WHERE seq = 3"
            for column in ("destination", "priority", "expires", "size")
        ),
        "UPDATE message SET destination = 1 << 40 WHERE seq = 3",
    ],
)
def test_content_the_store_never_wrote_is_damage(
    path: Path, reactor: QueueReactor, statement: str, large: bytes
) -> None:
    stored(
        path,
        reactor,
        insert(Batch(1), *(row(seq, body=large + b"%d" % seq) for seq in range(1, 6))),
    )
    # With the seal, most of these are found where the store is opened.
    alter(path, statement, WITHOUT_SEAL)
    store = opened(path, reactor)
    error = reactor.fetch(store, [1, 2, 3])
    assert isinstance(error, StoreDamaged)
    assert error.path == str(path)
    assert "message" in error.place


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("DELETE FROM message WHERE seq = 3", "table message"),
        ("UPDATE message SET persistent = 0 WHERE seq = 3", "table message"),
        ("UPDATE message SET destination = 2 WHERE seq = 3", "table message"),
        ("DELETE FROM owed WHERE seq = 3", "table owed"),
        ("UPDATE owed SET subscription = 2 WHERE seq = 3", "table owed"),
        ("DELETE FROM redelivery", "table redelivery"),
        ("DELETE FROM destination", "table destination"),
        ("UPDATE destination SET name = 'orderz'", "table destination"),
        ("UPDATE destination SET name = CAST(x'6fff' AS TEXT)", "an unknown page"),
        ("DELETE FROM subscription", "table subscription"),
        ("DELETE FROM duplicate", "table duplicate"),
        ("DELETE FROM branch", "table branch"),
        ("UPDATE meta SET value = value - 1 WHERE key = 'next_seq'", "table meta"),
        ("UPDATE meta SET value = 'x' WHERE key = 'next_seq'", "table meta"),
        ("UPDATE meta SET value = 'clean' WHERE key = 'clean'", "table meta"),
        ("UPDATE meta SET value = 7 WHERE key = 'clean'", "table meta"),
        ("CREATE TABLE more(x)", "table sqlite_master"),
    ],
)
def test_what_changed_since_the_store_was_closed_is_refused(
    path: Path, reactor: QueueReactor, statement: str, place: str
) -> None:
    store = opened(path, reactor)
    batch = batch_of(
        1,
        *(row(seq) for seq in range(1, 6)),
        destinations=[DestinationRow(1, 1, "orders", "")],
        subscriptions=[SubscriptionRow(1, 1, "client", "name", "", 0)],
    )
    batch.owed = {(1, seq): None for seq in range(1, 6)}
    batch.redeliveries[1, 2] = RedeliveryRow(1, 2, 3, 0)
    batch.duplicates[2] = DuplicateRow(2, 1, 5, b"id")
    batch.branches[1] = BranchRow(1, 1, b"g", b"b", 0, 1, "guest", bytes(8))
    batch.reserved = 100
    reactor.commit(store, batch)
    reactor.close(store)
    alter(path, statement)
    error = damaged(path, reactor)
    assert (error.path, error.place) == (str(path), place)


def test_a_row_as_it_was_before_its_last_change_is_refused_without_the_seal(
    path: Path, reactor: QueueReactor
) -> None:
    """Its own checksum is right; the sum of all is not.

    So is what an older copy of a page brings back.
    """
    store = opened(path, reactor)
    for number, properties in enumerate(("maxNumMsgs=1", "maxNumMsgs=2")):
        batch = batch_of(number, destinations=[DestinationRow(1, 0, "orders", properties)])
        assert reactor.commit(store, batch) is None
    reactor.close(store)
    before = destination_crc(DestinationRow(1, 0, "orders", "maxNumMsgs=1"))
    alter(
        path,
        f"UPDATE destination SET properties = 'maxNumMsgs=1', crc = {before}",
        WITHOUT_SEAL,
    )
    error = damaged(path, reactor)
    assert error.place == "table destination"


def test_a_message_that_says_it_is_not_persistent_is_believed_only_if_it_is_whole(
    path: Path, reactor: QueueReactor
) -> None:
    stored(path, reactor, insert(Batch(1), *(row(seq) for seq in range(1, 6))))
    alter(path, "UPDATE message SET persistent = 0 WHERE seq = 3", WITHOUT_SEAL)
    error = damaged(path, reactor)
    assert error.place == "message 3"


# A log that is missing.


def leave_killed(path: Path, reactor: QueueReactor) -> None:
    """A store whose process was killed after 108 messages were confirmed; its log has them."""
    kept = path.with_name("kept")
    kept.mkdir()
    store = opened(path, reactor)
    reactor.commit(store, insert(Batch(1), *(row(seq) for seq in range(1, 109))))
    for each in ("messages.db", "messages.db-wal"):
        shutil.copy(path.with_name(each), kept / each)
    reactor.close(store)
    for each in ("messages.db", "messages.db-wal"):
        os.replace(kept / each, path.with_name(each))
    kept.rmdir()


def test_a_missing_log_of_a_store_that_was_not_closed_in_order_is_refused_again_and_again(
    path: Path, reactor: QueueReactor
) -> None:
    leave_killed(path, reactor)
    path.with_name("messages.db-wal").unlink()
    for _ in range(2):
        error = damaged(path, reactor)
        assert (error.path, error.place) == (f"{path}-wal", "the whole file")
        assert "imqdbmgr recover" in str(error)


@pytest.mark.process
def test_a_log_is_not_missed_after_a_failure(path: Path, reactor: QueueReactor) -> None:
    """SQLite removes a log that it could copy back, whoever closes the last connection."""
    leave_killed(path, reactor)
    program = (
        "import sys\n"
        "from gateway.broker.store.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1], None, reserve_octets=0)\n"
        "store.open()\n"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        assert path.with_name("messages.db-wal").exists()
    store = store_at(path, reactor)
    recovered = store.open()
    assert not recovered.clean
    assert len(reactor.fetch(store, range(1, 109))) == 108  # type: ignore[arg-type]
    reactor.close(store)


def test_a_page_that_makes_no_sense_is_found_by_fetching(path: Path, reactor: QueueReactor) -> None:
    stored(
        path,
        reactor,
        insert(
            Batch(1), *(row(seq, body=b"body of %d." % seq + bytes(2000)) for seq in range(1, 100))
        ),
    )
    change(path, path.read_bytes().index(b"body of 50.") // PAGE * PAGE, b"\xff" * 100)
    store = opened(path, reactor, check_octets=PAGE)
    error = reactor.fetch(store, [50])
    assert isinstance(error, StoreDamaged)
    assert (error.path, error.place, error.destination) == (str(path), "message 50", 1)


# Held.


@pytest.fixture
def holder(closed: History, path: Path) -> Iterator[None]:
    """Another process that has the store open."""
    program = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('PRAGMA locking_mode = EXCLUSIVE')\n"
        "connection.execute('UPDATE meta SET value = 0 WHERE key = \"clean\"').connection.commit()\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate()


@pytest.mark.process
def test_a_store_held_by_another_process_is_refused(
    holder: None, path: Path, reactor: QueueReactor
) -> None:
    assert str(refused(path, reactor)) == f"{path} is held by another process"


def test_a_store_held_by_this_process_is_refused(
    closed: History, path: Path, reactor: QueueReactor
) -> None:
    store = opened(path, reactor)
    with pytest.raises(StoreError, match="held by this process"):
        store_at(path, reactor).open()
    reactor.close(store)
    opened(path, reactor)


@pytest.mark.process
def test_another_process_cannot_open_what_we_hold(
    closed: History, path: Path, reactor: QueueReactor
) -> None:
    store = opened(path, reactor)
    program = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM meta')"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert "database is locked" in other.stderr
    assert reactor.commit(store, insert(Batch(1), row(100_000))) is None


# Files.


def test_files_are_for_their_owner_only(tmp_path: Path, path: Path, reactor: QueueReactor) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(str(path), reactor.reactor, reserve_octets=1 << 16)
        store.open()
        reactor.commit(store, insert(Batch(1), row(1)))
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("messages.db", "messages.db-wal", "messages.reserve"), 0o600)
    reactor.close(store)


def test_a_clean_close_leaves_one_file_and_its_reserve(
    tmp_path: Path, path: Path, reactor: QueueReactor
) -> None:
    store = SqliteStore(str(path), reactor.reactor, reserve_octets=1 << 16)
    store.open()
    reactor.commit(store, insert(Batch(1), row(1)))
    reactor.close(store)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["messages.db", "messages.reserve"]


def test_what_an_unfinished_creation_left_is_removed(
    tmp_path: Path, path: Path, reactor: QueueReactor
) -> None:
    for name in ("messages.db.tmp", "messages.db.tmp-wal"):
        (tmp_path / name).write_bytes(b"half a file")
    store = store_at(path, reactor)
    assert store.open().next_seq == 1
    reactor.close(store)
    assert [each.name for each in tmp_path.iterdir()] == ["messages.db"]


def test_the_settings_of_the_database(closed: History, path: Path, reactor: QueueReactor) -> None:
    connection = sqlite3.connect(path)
    values = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "auto_vacuum", "journal_mode", "application_id", "user_version")
    ]
    connection.close()
    assert values == [PAGE, 2, "wal", opening.APPLICATION_ID, opening.SCHEMA_VERSION]


def test_scanning_is_for_the_time_before_the_first_batch(
    closed: History, path: Path, reactor: QueueReactor
) -> None:
    store = store_at(path, reactor)
    with pytest.raises(StoreError):
        next(store.scan())
    store.open()
    assert next(store.scan())
    reactor.commit(store, insert(Batch(1), row(100_000)))
    with pytest.raises(StoreError):
        next(store.scan())
    reactor.close(store)


def test_the_next_seq_is_above_all_that_were_reserved_or_stored(
    path: Path, reactor: QueueReactor
) -> None:
    for batch, expected in (
        (insert(Batch(1), row(41)), 42),
        (batch_of(1, reserved=1000), 1000),
        (batch_of(1, reserved=500), 1000),
        (insert(Batch(1), row(2000)), 2001),
    ):
        store = opened(path, reactor)
        assert reactor.commit(store, batch) is None
        reactor.close(store)
        store = store_at(path, reactor)
        assert store.open().next_seq == expected
        reactor.close(store)


# Messages that are not persistent.


@pytest.mark.parametrize("at_once", [10_000, 100])
def test_what_is_not_persistent_goes_with_all_that_names_it(
    path: Path,
    reactor: QueueReactor,
    points: Queue[str],
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    monkeypatch.setattr(opening, "_DELETED_AT_ONCE", at_once)
    monkeypatch.setattr(opening, "_SWEPT_AT_ONCE", 100)
    store = opened(path, reactor)
    batch = batch_of(
        1,
        *(row(seq, persistent=seq % 3 == 0) for seq in range(1, 1501)),
        row(50_000, persistent=0),
        owed=[(1, 3), (1, 4)],
        redeliveries=[RedeliveryRow(0, 6, 1, 0), RedeliveryRow(0, 7, 1, 0)],
    )
    reactor.commit(store, batch)
    reactor.close(store)

    monkeypatch.setattr("gateway.broker.store.upkeep._TRIVIAL_LOG", 0)
    store = SqliteStore(str(path), reactor.reactor, reserve_octets=0, idle_seconds=0.01)
    recovered = store.open()
    assert [each.seq for block in store.scan() for each in block] == list(range(3, 1501, 3))
    assert list(store.scan_owed()) == [[(1, 3)]]
    assert list(store.scan_redeliveries()) == [[RedeliveryRow(0, 6, 1, 0)]]
    assert recovered.next_seq == 50_001
    later = insert(Batch(2), row(50_001, persistent=0), row(50_002))
    assert reactor.commit(store, later) is None
    # The rest goes in idle moments: the count falls until only contents with a message are left.
    assert reactor.fetch(store, [3, 50_001]) == [row(3), row(50_001, persistent=0)]
    while store._upkeep._swept is not None:
        points.get(timeout=60)
    reactor.close(store)
    left = [*range(3, 1501, 3), 50_001, 50_002]
    assert (seqs(path, "content"), seqs(path, "message")) == (left, left)


def test_one_of_many_that_says_it_is_not_persistent_and_is_damaged_stays(
    path: Path, reactor: QueueReactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_DELETED_AT_ONCE", 10)
    stored(
        path, reactor, insert(Batch(1), *(row(seq, persistent=0) for seq in range(1, 51)), row(51))
    )
    alter(
        path,
        "UPDATE message SET persistent = 0 WHERE seq = 51",
        WITHOUT_SEAL,
    )
    store = store_at(path, reactor, idle_seconds=0.01)
    found: list[StoreDamaged] = []
    store.on_damaged = found.append
    store.open()
    reactor.commit(store, insert(Batch(2), row(60)))
    reactor.until(lambda: bool(found))
    assert (found[0].place, found[0].destination) == ("message 51", 1)
    reactor.close(store)
    assert seqs(path, "content") == [51, 60]


def test_free_pages_are_given_back_when_idle(
    path: Path, reactor: QueueReactor, points: Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.broker.store.upkeep._KEPT_PAGES", 10)
    monkeypatch.setattr("gateway.broker.store.upkeep._TRIVIAL_LOG", 0)
    store = opened(path, reactor, idle_seconds=0.01)
    reactor.commit(store, insert(Batch(1), *(row(seq, body=bytes(3000)) for seq in range(1, 1001))))
    while points.get(timeout=60) != "store.after-checkpoint":
        pass
    full = path.stat().st_size
    assert full > 3_000_000
    batch = batch_of(2, deletes=range(1, 1001))
    reactor.commit(store, batch)
    while path.stat().st_size > full / 10:
        points.get(timeout=60)


def test_a_damaged_duplicate_id_is_named(path: Path, reactor: QueueReactor) -> None:
    store = opened(path, reactor)
    batch = batch_of(
        1, duplicates=[DuplicateRow(seq, 1, 2, b"damaged %d" % seq) for seq in (7, 8, 9)]
    )
    reactor.commit(store, batch)
    reactor.close(store)
    octets = path.read_bytes()
    assert octets.count(b"damaged 8") == 1
    path.write_bytes(octets.replace(b"damaged 8", b"damaged 9"))
    store = opened(path, reactor)
    with pytest.raises(StoreDamaged) as error:
        list(store.scan_duplicates())
    assert (error.value.place, error.value.seq) == ("duplicate id 8", 8)


def test_a_commit_does_not_wait_for_the_reads_that_were_asked_before(
    path: Path, reactor: QueueReactor
) -> None:
    store = opened(path, reactor)
    reactor.commit(store, insert(Batch(1), *map(row, range(1, 400))))
    answered: list[str] = []
    for _ in range(200):
        store.fetch(range(1, 400), lambda rows: answered.append("read"))
    store.submit(insert(Batch(2), row(400)), lambda error: answered.append("committed"))
    reactor.until(lambda: len(answered) == 201)
    # Some may have been read before the thread saw it.
    assert answered.index("committed") < 150


# Lost.


def test_a_store_that_was_made_and_is_missing_is_refused(path: Path, reactor: QueueReactor) -> None:
    marker = path.with_name("made")
    store = SqliteStore(str(path), reactor.reactor, reserve_octets=0, marker=str(marker))
    store.open()
    reactor.close(store)
    assert marker.exists()
    path.unlink()
    with pytest.raises(StoreError, match="is missing, and this instance has had a store"):
        SqliteStore(str(path), reactor.reactor, reserve_octets=0, marker=str(marker)).open()
    assert not path.exists()


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("idle_seconds", [600, 0.01])
def test_a_file_lost_while_in_use_is_a_failure_that_is_told_once(
    path: Path, reactor: QueueReactor, replaced: bool, idle_seconds: float
) -> None:
    """At an idle moment, or at the end where there is none before."""
    store = store_at(path, reactor, idle_seconds=idle_seconds)
    told: list[StoreFailed] = []
    store.on_failed = told.append
    store.open()
    if replaced:
        copy = path.with_name("copy")
        shutil.copy(path, copy)
        copy.rename(path)
    else:
        path.unlink()
    if idle_seconds < 1:
        reactor.commit(store, History(5).next())
        reactor.until(lambda: bool(told))
        assert isinstance(reactor.commit(store, History(5).next()), StoreFailed)
    reactor.close(store)
    assert [str(error).partition(" while")[0] for error in told] == [
        f"{path} was {'replaced' if replaced else 'removed'}"
    ]
