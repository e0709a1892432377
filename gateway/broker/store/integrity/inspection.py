"""Check everything in a store that no process has open.

Lists what is wrong and changes no file.

Owns the order of the checks, from the files to the contents. What is wrong with a row is
:mod:`gateway.broker.store.integrity.checks`'s.
"""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from gateway.broker.store import failures, reading
from gateway.broker.store.integrity import checks, opening, wal
from gateway.broker.store.interface import BranchRow, StoreDamaged, StoreError

_Found = TypeVar("_Found")

#: Problems of the pages that are told; what follows from a damaged page can be many.
_MOST: Final = 100


class Report(NamedTuple):
    """What was found.

    :param problems: sentences with file and place; none when the store is whole.
    :param messages: how many there are, as far as they can be read.
    :param clean: whether it was closed in order.
    """

    problems: list[str]
    messages: int
    clean: bool
    frames: int = 0


class Work(Protocol):
    """Reads what a prepared branch holds.

    :raises StoreError: it cannot be read.
    """

    def __call__(self, row: BranchRow) -> tuple[Collection[int], Collection[tuple[int, int]]]:
        """Read the work of a branch.

        :returns: seqs of what it has sent, and owner and seq of what it has acknowledged.
        """


def inspect(path: str, work: Work) -> Report:
    """Check all files, pages and rows of the store at ``path``.

    :param work: reads branches, whose encoding is the broker's.
    :raises StoreError: it is no store, of another version, or held by another process.
    :raises OSError: a file cannot be read.
    """
    try:
        opening.check_header(path)
        opening.check_not_held(path)
        opening.check_log_is_there(path)
        frames = wal.examine(f"{path}-wal", opening.PAGE_SIZE).frames
    except StoreDamaged as error:
        return Report([str(error)], 0, False)
    if os.path.exists(f"{path}-wal"):
        return _in_child(path, work)._replace(frames=frames)
    uri = f"{Path(os.path.abspath(path)).as_uri()}?immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        return _inspect(connection, path, work)
    finally:
        connection.close()


def _in_child(path: str, work: Work) -> Report:
    """Inspect in a child process, which ends without closing the store.

    Closing would let SQLite copy the log back.
    """
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            connection = opening.connect(path)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            with os.fdopen(sending, "wb") as pipe:
                pickle.dump(_inspect(connection, path, work), pipe)
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise StoreError(
            f"{path} could not be checked: the process that read it has ended without an answer"
        )
    report = pickle.loads(answer)
    assert isinstance(report, Report)
    return report


def _inspect(connection: sqlite3.Connection, path: str, work: Work) -> Report:
    found = _Findings(path)
    meta: dict[str, object] = {}
    for problem in found.of(_pages(connection)):
        found.add("pages", problem)
    try:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        sealed = meta.get("clean")
        if isinstance(sealed, str):
            checks.check_seal(connection, path, sealed)
        elif sealed not in (0, 1):
            raise StoreDamaged(path, "table meta", "it has no 'clean' that a store writes")
    except (StoreError, *failures.AT_READING) as error:
        found.fail(error)
    try:
        checks.check_values(connection, path)
    except (StoreError, *failures.AT_READING) as error:
        found.fail(error)
    for place, what in found.of(checks.changed(connection)):
        found.add(place, what)
    sent: set[int] = set()
    taken: set[tuple[int, int]] = set()
    try:
        if opening.has_table(connection, "duplicate"):
            for _ in reading.scan_duplicates(connection, path):
                pass
        if opening.has_table(connection, "branch"):
            for block in reading.scan_branches(connection, path):
                for row in block:
                    sends, takes = work(row)
                    sent.update(sends)
                    taken.update(takes)
    except (StoreError, *failures.AT_READING) as error:
        found.fail(error)
    for place, what in found.of(checks.orphans(connection, sent, taken)):
        found.add(place, what)
    below = meta.get("next_seq")
    contents = checks.Contents(
        connection,
        path,
        1 << 62 if not isinstance(below, int) else max(below, _last(connection) + 1),
    )
    for wrong in found.of(_steps(contents)):
        # Contents without a message are among the orphans.
        if not wrong.place.startswith("content "):
            found.fail(wrong)
    return Report(found.problems, contents.count, bool(meta.get("clean")))


def _pages(connection: sqlite3.Connection) -> Iterator[str]:
    for (text,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
        for line in str(text).splitlines():
            if line != "ok" and not re.match(r"\*\*\* in database", line):
                yield line


def _steps(contents: checks.Contents) -> Iterator[StoreDamaged]:
    while (wrong := contents.step()) is not None:
        yield from wrong


def _last(connection: sqlite3.Connection) -> int:
    try:
        last = connection.execute("SELECT max(seq) FROM message").fetchall()[0][0]
    except failures.AT_READING:
        last = None
    return last if isinstance(last, int) else 0


class _Findings:
    """Problems, each said once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.problems: list[str] = []

    def add(self, place: str, what: str) -> None:
        self.fail(StoreDamaged(self._path, place, what))

    def fail(self, error: Exception) -> None:
        said = str(failures.at_reading(self._path, error))
        if said not in self.problems:
            self.problems.append(said)

    def of(self, found: Iterator[_Found]) -> Iterator[_Found]:
        """The same as long as it can be read; what ends it is a problem, too."""
        try:
            yield from found
        except (StoreError, *failures.AT_READING) as error:
            self.fail(error)
