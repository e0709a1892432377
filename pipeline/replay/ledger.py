"""The ledger of replays: messages that were to be sent, and were sent.

Owns one SQLite file, to which is only ever appended, and the lock that lets one replay at a time
write it. What :meth:`Ledger.append` has returned from is on the disk, all of it or nothing. Knows
nothing of Spark, nor of how messages are sent: the sender appends ``intended`` before, and ``sent``
once the broker has confirmed. What is intended and not sent, after a crash, may be at the target or
not; sent again under the same duplicate id, it is there once.

The table ``records`` has the columns of :data:`RECORDS`, and ``ledger`` one row with the ledger's
id. A ledger of an earlier version was a file of JSON lines, which :func:`upgraded` takes over.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pipeline.durable import sync
from pipeline.errors import PipelineError

VERSION: Final = 2
FILE: Final = "ledger.sqlite"
#: Of earlier versions.
OLD_FILE: Final = "ledger.jsonl"
#: A record, as Spark SQL writes the type. ``at`` is in microseconds since 1970-01-01 UTC; ``plan``
#: is the digest of the plan that was carried out.
RECORDS: Final = "state string, at bigint, key string, twin string, message_id string, target string, plan string"

_COLUMNS: Final = tuple(column.split()[0] for column in RECORDS.split(","))
_OF_MESSAGES: Final = ("key", "twin", "message_id", "target")
#: ``EXTRA`` syncs the folder, too, where a journal that is gone is the commit.
_SETTINGS: Final = "pragma journal_mode = delete; pragma synchronous = extra;"
_SCHEMA: Final = f"""
    begin;
    create table ledger (id text not null);
    create table records (state text not null, at integer not null, key text not null, twin text, message_id text, target text, plan text);
    pragma user_version = {VERSION};
"""
_INSERT: Final = f"insert into records ({', '.join(_COLUMNS)}) values (?, ?, ?, ?, ?, ?, ?)"
#: Seconds that somebody else may look at the file while it is to be written.
_PATIENCE: Final = 600.0
#: Records that are read at a time.
_ROWS: Final = 50_000
_SCHEMA_OF_ROWS: Final = pa.schema(
    [(name, pa.int64() if name == "at" else pa.string()) for name in _COLUMNS]
)


class State(StrEnum):
    """What a record says of its message."""

    #: It is about to be sent.
    INTENDED = "intended"
    #: The broker has said that it has it.
    SENT = "sent"
    #: The dead message was taken from its queue.
    REMOVED = "removed"


class Ledger:
    """A ledger that only this process writes. Made by :func:`opened`.

    :ivar id: tells it from all other ledgers. :ivar path: of its file.
    """

    def __init__(self, path: Path, id: str, database: sqlite3.Connection) -> None:
        self.path: Final = path
        self.id: Final = id
        self._database: Final = database

    def append(
        self, state: State, at_us: int, plan: str, messages: Iterable[Mapping[str, Any]]
    ) -> None:
        """Write a record for each message, and return when all are on the disk.

        :param at_us: microseconds since the epoch, now.
        :param plan: the plan's digest.
        :param messages: each with ``key``, ``twin``, ``message_id`` and ``target``.
        :raises PipelineError: they cannot be written; none of them is.
        """
        rows = (
            (state.value, at_us, *(each[name] for name in _OF_MESSAGES), plan) for each in messages
        )
        with _written(self.path), self._database:
            self._database.execute("begin")
            self._database.executemany(_INSERT, rows)


@contextmanager
def opened(folder: Path, new_id: str) -> Iterator[Ledger]:
    """Open this folder's ledger, or make it, and lock it against writers.

    :param new_id: becomes the id of a new one.
    :raises PipelineError: it is in use, damaged, of a version that is not known here, or the folder
        cannot be written.
    """
    with _locked(folder) as (path, database):
        id = _id(path, database)
        if not id:
            _refuse_old(folder)
            id = new_id
            _make(path, database, id, ())
        yield Ledger(path, id, database)


def exists(folder: Path) -> bool:
    """Whether there is a ledger.

    :raises PipelineError: as :func:`opened`.
    """
    path = folder / FILE
    try:
        there = path.is_file() and path.stat().st_size > 0
    except OSError as error:
        raise PipelineError(f"--ledger {folder}: {error.strerror}") from None
    if not there:
        _refuse_old(folder)
        return False
    with _database(path) as database:
        return bool(_id(path, database))


def recorded(path: Path, *states: State) -> pa.Table:
    """Return the records of these states, in the order in which they came.

    :param path: of the ledger's file.
    :returns: with the columns of :data:`RECORDS`.
    :raises PipelineError: it cannot be read.
    """
    marks = ", ".join("?" * len(states))
    question = f"""
        select rowid, {", ".join(_COLUMNS)} from records
        where rowid > ? and state in ({marks}) order by rowid limit {_ROWS}
    """
    batches, last = [], 0
    with _database(path) as database, _read(path):
        # A few at a time, so that a replay that writes does not wait long.
        while rows := database.execute(question, [last, *states]).fetchall():
            numbers, *values = zip(*rows, strict=True)
            columns = dict(zip(_COLUMNS, values, strict=True))
            batches.append(pa.RecordBatch.from_pydict(columns, schema=_SCHEMA_OF_ROWS))
            last = numbers[-1]
    return pa.Table.from_batches(batches, schema=_SCHEMA_OF_ROWS)


def upgraded(folder: Path) -> int:
    """Make a ledger of the one of an earlier version, which is removed.

    :returns: how many records it has.
    :raises PipelineError: it is damaged, or a replay uses the folder.
    """
    old = folder / OLD_FILE
    said = _old_records(old)
    with _locked(folder) as (path, database):
        # One that was killed in between has made it, and removed nothing.
        id = _id(path, database)
        if said and not id:
            rows = (tuple(one[name] for name in _COLUMNS) for one in said[1:])
            _make(path, database, said[0]["id"], rows)
        elif said and id != said[0]["id"]:
            raise PipelineError(
                f"--ledger {folder}: {FILE} is of another ledger than {OLD_FILE}, whose records it lacks: expected one of them"
            )
    old.unlink()
    sync(folder)
    return max(0, len(said) - 1)


@contextmanager
def _locked(folder: Path) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """The file, which may be empty, and its database, for one process."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    except OSError as error:
        raise PipelineError(f"--ledger {folder}: {error.strerror}") from None
    # Closed last: SQLite's own locks on the file would go with it.
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"--ledger {folder}: another replay uses it") from None
        except OSError as error:
            raise PipelineError(
                f"--ledger {folder}: it cannot be locked: {error.strerror}"
            ) from None
        with _database(path) as database:
            yield path, database


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with _read(path):
        connection = sqlite3.connect(path, _PATIENCE, isolation_level=None)
    with closing(connection) as database:
        with _read(path):
            database.executescript(_SETTINGS)
        yield database


def _id(path: Path, database: sqlite3.Connection) -> str:
    """The ledger's id; "" if it is empty.

    :raises PipelineError: it cannot be used.
    """
    with _read(path):
        (version,) = database.execute("pragma user_version").fetchone()
        if version not in (0, VERSION):
            raise PipelineError(
                f"the ledger {path} has version {version}; this program knows version {VERSION}"
            )
        (said,) = database.execute("pragma quick_check(1)").fetchone()
        if said != "ok":
            problem = " ".join(said.split())
            raise PipelineError(
                f"the ledger {path} is damaged ({problem}): nothing is replayed by it"
            )
        if version == 0:
            if database.execute("select count(*) from sqlite_master").fetchone() != (0,):
                raise PipelineError(f"{path} is no ledger: expected one, or none")
            return ""
        (id,) = database.execute("select id from ledger").fetchone()
        return str(id)


def _make(
    path: Path, database: sqlite3.Connection, id: str, rows: Iterable[tuple[Any, ...]]
) -> None:
    with _written(path):
        with database:
            database.executescript(_SCHEMA)
            database.execute("insert into ledger values (?)", (id,))
            database.executemany(_INSERT, rows)
        sync(path.parent)


@contextmanager
def _read(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise PipelineError(f"the ledger {path} cannot be read: {error}") from None
    except sqlite3.DatabaseError as error:
        raise PipelineError(
            f"the ledger {path} is damaged ({error}): nothing is replayed by it"
        ) from None


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise PipelineError(f"the ledger {path} cannot be written: {error}") from None


def _refuse_old(folder: Path) -> None:
    if (folder / OLD_FILE).exists():
        raise PipelineError(
            f"--ledger {folder}: it is of an earlier version; gateway-pipeline upgrade makes one of this version of it, once"
        )


def _old_records(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger of an earlier version: the first has its id.

    A last line without its end was cut short by a crash; nothing was done on the strength of it.
    """
    records = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                said = json.loads(line)
                if number == 1:
                    known = said["ledger"] == 1 and bool(said["id"])
                else:
                    known = not ({*_COLUMNS} - {*said}) and bool(State(said["state"]))
            except (ValueError, TypeError, KeyError):
                known = False
            if not known:
                raise PipelineError(
                    f"the ledger {path} is damaged in line {number}: expected a record of version 1"
                )
            records.append(said)
    return records
