"""Open the database file, or make it.

A file that is damaged, foreign or of another version is refused before anything is changed.

Owns the file's identity, its settings and the order of the checks. Knows nothing of batches,
threads or callbacks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.broker.store import failures, reading
from gateway.broker.store.batch_writer import CACHED_STATEMENTS, KeysStatement
from gateway.broker.store.checksums import destination_crc, subscription_crc
from gateway.broker.store.integrity import checks, wal
from gateway.broker.store.interface import StoreDamaged, StoreError, StoreVersionUnknown
from gateway.broker.store.reserve import is_lack_of_space
from gateway.instance import crashpoints

#: "SGmq": SQLite's application_id, by which a file is known as ours.
APPLICATION_ID: Final = 0x53476D71
SCHEMA_VERSION: Final = 5
#: What makes a store of the version before one of this version, besides the tables that are new;
#: done where it is opened. In version 5 heads of messages may have version 2.
_UPGRADES: Final[dict[int, tuple[str, ...]]] = {
    2: ("ALTER TABLE destination ADD COLUMN administered INTEGER NOT NULL DEFAULT 0",),
    4: (
        "ALTER TABLE destination ADD COLUMN crc INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE subscription ADD COLUMN crc INTEGER NOT NULL DEFAULT 0",
    ),
}
#: What systems write at once, so that each of their pages that a power failure kept from the disk
#: is known by a frame's head.
PAGE_SIZE: Final = 4096

#: The way out when nothing else is left.
EMPTY_STORE: Final = (
    "'imqdbmgr recreate' makes an empty store, and keeps what is left of the old one"
)

_MAGIC: Final = b"SQLite format 3\0"

#: The first that takes as many parameters as the longest statements have.
_OLDEST_SQLITE: Final = (3, 32, 0)

#: Messages that are deleted where the store is opened; and in one step of sweeping.
_DELETED_AT_ONCE: Final = 10_000
_SWEPT_AT_ONCE: Final = 1_000

#: The octets of the file that SQLite's locks are on, whatever their kind
#: (https://www.sqlite.org/src/file?name=src/os.h, PENDING_BYTE).
_LOCKED: Final = 0x40000000
_LOCKED_OCTETS: Final = 512


class Opened(NamedTuple):
    """An open store.

    :param next_seq: the first seq never used.
    :param clean: whether it had been closed in order.
    :param log: what its log had, a sentence.
    """

    connection: sqlite3.Connection
    store_id: str
    next_seq: int
    clean: bool
    notes: list[str]
    log: str = ""


def create(path: str, store_id: str) -> None:
    """Make an empty store at ``path``, completely or not at all.

    There must be no store yet.

    :raises StoreError: the folder is missing or cannot be written.
    """
    folder = os.path.dirname(path) or "."
    unfinished = f"{path}.tmp"
    try:
        for name in (unfinished, f"{unfinished}-wal", f"{unfinished}-shm", f"{unfinished}-journal"):
            with suppress(FileNotFoundError):
                os.unlink(name)
        # SQLite gives its log the mode of the database.
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            for pragma in (
                f"page_size = {PAGE_SIZE}",
                "auto_vacuum = INCREMENTAL",
                "locking_mode = EXCLUSIVE",
                "journal_mode = WAL",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN; {_schema()}; COMMIT;")
            connection.execute(
                "INSERT INTO meta(key, value) VALUES ('id', ?), ('clean', 1), ('next_seq', 1), ('sweep', 0), "
                "('destinations', 0), ('subscriptions', 0)",
                (store_id,),
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        finally:
            # The only connection: SQLite copies its log back and removes it.
            connection.close()
        sync(unfinished)
        crashpoints.hit("store.before-rename")
        os.rename(unfinished, path)
        crashpoints.hit("store.after-rename")
        sync(folder)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be made: {error}") from error


def missing(path: str) -> StoreError:
    """For a store that should be at ``path`` and is not."""
    return StoreError(
        f"{path} is missing, and this instance has had a store. Look for it and put it back, or restore a backup; {EMPTY_STORE}"
    )


def mark_as_made(marker: str) -> None:
    """Make the file ``marker``, which says that there has been a store.

    It tells a store that is missing later from one that was never made. The store must be durable
    before.

    Without room for it, the next start makes it. :raises OSError: it cannot be made for another
    reason.
    """
    if os.path.exists(marker):
        return
    try:
        os.close(os.open(marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync(os.path.dirname(marker) or ".")
    except OSError as error:
        if not is_lack_of_space(error):
            raise


def sync(path: str) -> None:
    """fsync a file or a folder. :raises OSError: it failed."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def open_existing(path: str, check_octets: int) -> Opened:
    """Check the files, open them and lock out every other process.

    Messages that are not persistent are not yet deleted.

    :param check_octets: size up to which a store that was not closed in order is checked page by
        page.
    :raises StoreDamaged, StoreVersionUnknown, StoreError, sqlite3.Error: the store is not open.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreError(
            f"{path} needs SQLite {'.'.join(map(str, _OLDEST_SQLITE))} or later; this Python has {sqlite3.sqlite_version}"
        )
    check_header(path)
    check_not_held(path)
    check_log_is_there(path)
    notes = []
    if os.path.exists(f"{path}-journal"):
        raise StoreError(
            f"{path}-journal lies beside the store, which never writes one: another program had it open"
        )
    try:
        log = wal.examine(f"{path}-wal", PAGE_SIZE)
        size = os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0
    except OSError as error:
        raise StoreError(f"{path}-wal cannot be read: {error}") from error
    if log.note:
        notes.append(log.note)
    connection = connect(path)
    try:
        opened = _settle(path, connection, log, notes, check_octets)
    except BaseException:
        close_untouched(connection)
        raise
    return opened._replace(
        log=f"{path}-wal has {log.frames} frames up to its last commit, in {size} bytes"
    )


def check_log_is_there(path: str) -> None:
    """Check that a store that was not closed in order has a log.

    The log may be empty. Without it, commits that were reported as durable are lost.

    :raises StoreDamaged: the log is missing.
    :raises StoreError: the database cannot be read.
    """
    if os.path.exists(f"{path}-wal"):
        return
    # Nothing is looked for beside the file, and nothing made there.
    connection = sqlite3.connect(
        f"{Path(os.path.abspath(path)).as_uri()}?immutable=1", uri=True, isolation_level=None
    )
    try:
        found = connection.execute("SELECT value FROM meta WHERE key = 'clean'").fetchall()
    except failures.AT_READING as error:
        raise failures.at_opening(path, error) from error
    finally:
        connection.close()
    if found and found[0][0] == 0:
        raise StoreDamaged(
            f"{path}-wal",
            "the whole file",
            "it is missing, and the store was not closed in order: what had been committed since its last checkpoint was in it. "
            f"Put it back, or restore a backup; {wal.WAY_OUT}",
        )


class _Connection(sqlite3.Connection):
    """A connection that leaves the log of an open store in place.

    A store that was not closed in order keeps its log, even if the process ends without closing
    the connection.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: The log, of a store that is not marked as closed in order.
        self.log = ""

    def __del__(self) -> None:
        # The process ends without having closed it, after a failure. SQLite copies the log back
        # then, and removes it.
        if self.log:
            close_untouched(self)


def connect(path: str) -> sqlite3.Connection:
    """Let SQLite have the database, which it has not looked at yet.

    :raises sqlite3.Error: as SQLite does.
    """
    log = f"{os.path.abspath(path)}-wal"
    there = os.path.exists(log)
    # psow=0: the last frame of each commit is written twice, by which a torn commit is known (see
    # wal).
    connection = sqlite3.connect(
        f"{Path(os.path.abspath(path)).as_uri()}?psow=0",
        factory=_Connection,
        uri=True,
        isolation_level=None,
        timeout=0,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
    assert isinstance(connection, _Connection)
    if there:
        connection.log = log
    return connection


def begin(connection: sqlite3.Connection, path: str, next_seq: int) -> None:
    """Upgrade a store of an earlier version and mark it as in use.

    It deletes messages that are not persistent, and starts with an empty log.

    That a message is not persistent is believed only when its checksum is right. Reading and
    deleting a million contents takes ten seconds; so where they are many only what points at them
    is deleted here, and :func:`sweep` does the rest in idle moments.

    :raises StoreDamaged: a checksum is wrong.
    :raises sqlite3.Error: as SQLite does. A transaction may still be open.
    """
    connection.execute("BEGIN IMMEDIATE")
    upgrade(connection)
    count = connection.execute("SELECT count(*) FROM message WHERE persistent = 0").fetchall()[0][0]
    if count:
        forget_passing(connection)
        if count <= _DELETED_AT_ONCE:
            passing = connection.execute("SELECT seq FROM message WHERE persistent = 0").fetchall()
            reading.fetch(connection, path, [seq for (seq,) in passing])
            connection.execute(
                "DELETE FROM content WHERE seq IN (SELECT seq FROM message WHERE persistent = 0)"
            )
            connection.execute("DELETE FROM message WHERE persistent = 0")
        else:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'sweep'", (next_seq,))
    connection.execute("UPDATE meta SET value = 0 WHERE key = 'clean'")
    connection.execute("COMMIT")
    connection.log = f"{os.path.abspath(path)}-wal"  # type: ignore[attr-defined]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def forget_passing(connection: sqlite3.Connection) -> None:
    """Delete what is owed and counted of messages that are not persistent."""
    for table in ("owed", "redelivery"):
        connection.execute(
            f"DELETE FROM {table} WHERE (SELECT persistent FROM message WHERE message.seq = {table}.seq) = 0"
        )


def upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade a store of an earlier version, within a transaction."""
    found = connection.execute("PRAGMA user_version").fetchall()[0][0]
    if found == SCHEMA_VERSION:
        return
    for version in range(found + 1, SCHEMA_VERSION + 1):
        for statement in _UPGRADES.get(version, ()):
            connection.execute(statement)
    for table, statement in _tables():
        if not has_table(connection, table):
            connection.execute(statement)
    if found < checks.CHECKSUMS_SINCE:
        _add_checksums(connection)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Add checksums to the rows of destinations and subscriptions.

    The checksums are those of what the rows are now.
    """
    sums = {
        "destination": [(destination_crc(row), row.id) for row in reading.destinations(connection)],
        "subscription": [
            (subscription_crc(row), row.id) for row in reading.subscriptions(connection)
        ],
    }
    for table, rows in sums.items():
        connection.executemany(f"UPDATE {table} SET crc = ? WHERE id = ?", rows)
        connection.execute(
            "INSERT INTO meta(key, value) VALUES (?, ?)",
            (f"{table}s", sum([crc for crc, _ in rows])),
        )


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the file has this table.

    Files of earlier versions lack some.

    :raises sqlite3.Error: as SQLite does.
    """
    return bool(
        connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
        ).fetchall()
    )


def is_to_be_swept(connection: sqlite3.Connection) -> bool:
    """Whether :func:`sweep` has something to do.

    :raises sqlite3.Error: as SQLite does.
    """
    return bool(connection.execute("SELECT value FROM meta WHERE key = 'sweep'").fetchall()[0][0])


def has_contents(connection: sqlite3.Connection) -> bool:
    """Whether the store has any message, whole or not.

    :raises sqlite3.Error: as SQLite does.
    """
    found = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM message) OR EXISTS (SELECT 1 FROM content)"
    ).fetchall()
    return bool(found[0][0])


def sweep(
    connection: sqlite3.Connection, path: str, after: int
) -> tuple[int | None, list[StoreDamaged]]:
    """Delete some messages that are not persistent.

    Only messages that were there when the store was opened, of seqs above ``after``.

    :returns: what to go on after, or None when none are left; and what is wrong with messages
        that therefore stay.
    :raises sqlite3.Error: as SQLite does.
    """
    below = connection.execute("SELECT value FROM meta WHERE key = 'sweep'").fetchall()[0][0]
    found = connection.execute(
        "SELECT min(seq) FROM content WHERE seq > ? AND seq < ?", (after, below)
    ).fetchall()[0][0]
    if found is None:
        if below:
            connection.execute("UPDATE meta SET value = 0 WHERE key = 'sweep'")
        return None, []
    last = min(found + _SWEPT_AT_ONCE, below) - 1
    rows = connection.execute(
        "SELECT seq FROM message WHERE seq BETWEEN ? AND ? AND persistent = 0", (found, last)
    ).fetchall()
    wrong = checks.damaged(connection, path, [seq for (seq,) in rows])
    kept = {error.seq for error in wrong}
    gone = KeysStatement("DELETE FROM message WHERE seq")
    seqs = [seq for (seq,) in rows if seq not in kept]
    if seqs:
        gone.run(connection, seqs)
    # Those without a message were left by an earlier version, which deleted messages first.
    connection.execute(
        "DELETE FROM content WHERE seq BETWEEN ? AND ? AND seq NOT IN (SELECT seq FROM message WHERE seq BETWEEN ? AND ?)",
        (found, last, found, last),
    )
    return int(last), wrong


def check_header(path: str) -> None:
    """Read and check the first 100 bytes of the database.

    They change only with the version of the schema (https://www.sqlite.org/fileformat2.html,
    section 1.3).

    :raises StoreDamaged, StoreVersionUnknown, StoreError: it is not a store that this program can
        read.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if len(header) < 100:
        raise StoreDamaged(path, "offset 0", f"it has {size} octets, and its header 100")
    if header[:16] != _MAGIC:
        if header.count(0) == len(header):
            raise StoreDamaged(path, "offset 0", "its header is all zeros")
        raise StoreError(
            f"{path} is not a message store: it does not begin as an SQLite database does"
        )
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise StoreError(
            f"{path} is not a message store: it is an SQLite database with application id {int.from_bytes(header[68:72]):#x}, "
            f"not {APPLICATION_ID:#x}"
        )
    version = int.from_bytes(header[60:64])
    if not _readable(version):
        raise StoreVersionUnknown(path, version, SCHEMA_VERSION)
    page_size = int.from_bytes(header[16:18])
    if page_size != PAGE_SIZE:
        raise StoreDamaged(path, "offset 16", f"its page size is {page_size}, not {PAGE_SIZE}")
    if header[18:20] != b"\2\2":
        raise StoreDamaged(path, "offset 18", "it is not in write-ahead log mode")
    if size % PAGE_SIZE:
        raise StoreDamaged(
            path,
            f"offset {size // PAGE_SIZE * PAGE_SIZE}",
            f"its last page has {size % PAGE_SIZE} octets of {PAGE_SIZE}",
        )


def check_not_held(path: str) -> None:
    """Check that no other process has the store open.

    This comes before the log is read: another process that is writing the log would make it look
    torn.

    :raises StoreError: another process has the store open, or the file cannot be written.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCKED_OCTETS, _LOCKED)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise StoreError(f"{path} is held by another process") from error
        raise StoreError(f"{path} cannot be locked: {error}") from error
    finally:
        os.close(file)


def close_untouched(connection: sqlite3.Connection) -> None:
    """Close without marking the store.

    Python 3.12 can keep SQLite from copying the log back. In earlier versions an empty log replaces
    the one that was copied.
    """
    log = getattr(connection, "log", "")
    if log:
        connection.log = ""  # type: ignore[attr-defined]
    with suppress(sqlite3.Error):
        there = bool(log) and os.path.exists(log)
        if hasattr(connection, "setconfig"):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)  # type: ignore[attr-defined]
        connection.close()
        if there and not os.path.exists(log):
            os.close(os.open(log, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def close_marked(connection: sqlite3.Connection) -> None:
    """Close a store that is marked as closed in order.

    SQLite removes its log.

    :raises sqlite3.Error: as SQLite does.
    """
    connection.close()
    connection.log = ""  # type: ignore[attr-defined]


def _readable(version: object) -> bool:
    return isinstance(version, int) and min(_UPGRADES) - 1 <= version <= SCHEMA_VERSION


def _schema() -> str:
    return (
        resources.files("gateway.broker.store")
        .joinpath("schema", f"version-{SCHEMA_VERSION}.sql")
        .read_text("utf-8")
    )


def _tables() -> Iterator[tuple[str, str]]:
    """Every table of the schema by name, and the statement that makes it."""
    statement = ""
    for line in _schema().splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            table = re.search(r"^CREATE TABLE (\w+)", statement, re.MULTILINE)
            assert table is not None, "the schema makes nothing but tables"
            yield table[1], statement
            statement = ""


def _settle(
    path: str, connection: sqlite3.Connection, log: wal.Log, notes: list[str], check_octets: int
) -> Opened:
    # EXCLUSIVE before the first read: no shared memory file, and the lock is taken with that read
    # and kept.
    _pragma(connection, "locking_mode = EXCLUSIVE")
    version = _pragma(connection, "user_version")
    if not _readable(version):
        raise StoreVersionUnknown(path, version, SCHEMA_VERSION)
    for pragma in (
        "synchronous = FULL",
        "fullfsync = ON",
        "checkpoint_fullfsync = ON",
        "wal_autocheckpoint = 0",
        f"journal_size_limit = {128 << 20}",
        # Octets of deleted messages stay in free pages, as in any log; overwriting them would cost
        # a write per deleted page.
        "secure_delete = OFF",
        f"cache_size = {-(16 << 10)}",
        # A commit is written in one go, each page once and in order; else a process killed while it
        # commits could leave frames whose checksums are still to be made.
        "cache_spill = OFF",
        "temp_store = MEMORY",
    ):
        _pragma(connection, pragma)
    mode = _pragma(connection, "journal_mode")
    if mode != "wal":
        raise StoreError(f"{path} is in journal mode {mode}, not wal")
    found = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    missing = {"id", "clean", "next_seq", "sweep"} - found.keys()
    if missing:
        raise StoreDamaged(path, "table meta", f"it has no {' and no '.join(sorted(missing))}")
    sealed = found["clean"]
    if (
        not isinstance(found["id"], str)
        or not isinstance(sealed, str | int)
        or (isinstance(sealed, int) and sealed not in (0, 1))
        or any(not isinstance(found[key], int) or found[key] < 0 for key in ("next_seq", "sweep"))
    ):
        raise StoreDamaged(path, "table meta", "it has a value that the store never writes")
    clean = sealed != 0 and log.frames == 0
    if os.path.getsize(path) <= check_octets:
        report = connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
        if report != "ok":
            page = re.search(r"\bpage (\d+)", report, re.IGNORECASE)
            raise StoreDamaged(
                path, f"page {page[1]}" if page else "an unknown page", report.replace("\n", " ")
            )
    if isinstance(sealed, str):
        checks.check_seal(connection, path, sealed)
    checks.check_values(connection, path)
    for place, what in checks.changed(connection):
        raise StoreDamaged(path, place, what)
    last = connection.execute("SELECT coalesce(max(seq), 0) FROM message").fetchall()[0][0]
    return Opened(connection, str(found["id"]), max(found["next_seq"], last + 1), clean, notes)


def _pragma(connection: sqlite3.Connection, text: str) -> object:
    rows = connection.execute(f"PRAGMA {text}").fetchall()
    return rows[0][0] if rows else None
