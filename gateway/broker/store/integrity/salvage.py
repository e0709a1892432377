"""Make a store whose log is damaged usable again.

Everything behind the last good commit is given up, knowingly.

Owns what would be lost, the copy of the files before anything is changed, the cut, and the proof
that the rest is whole. Decides nothing by itself: the operator asks for it. Damage in the database
file is not its business; there only a backup helps.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import suppress
from typing import Final, NamedTuple

from gateway.broker.store import reading
from gateway.broker.store.integrity import checks, opening, wal
from gateway.broker.store.integrity.opening import PAGE_SIZE
from gateway.broker.store.integrity.wal import FRAME_HEADER, HEADER, Finding, Survey
from gateway.broker.store.interface import StoreDamaged, StoreError

_FRAME: Final = FRAME_HEADER + PAGE_SIZE
#: The types of a row of numbers in a record
#: (https://www.sqlite.org/fileformat2.html#record_format); 7 is a float.
_NUMBERS: Final = frozenset(range(10)) - {7}


class Loss(NamedTuple):
    """What is given up.

    :param log: the file.
    :param survey: what is wrong with it.
    :param octets: of the log, from the first that is given up on.
    :param arrivals: messages that were stored by what is given up, and
    :param departures: those it had deleted, which come again; both as far as its pages can be read.
    :param all: the whole log is given up: the database has been written with what follows the
        damage, or the log has no header.
    :param missing: there is no log, and there should be: its contents are unknown.
    """

    log: str
    survey: Survey
    octets: int
    arrivals: int
    departures: int
    all: bool
    missing: bool = False


def look(path: str) -> Loss | None:
    """Find what :func:`recover` would give up; changes nothing.

    :returns: None when the log is in order.

    :param path: the database.
    :raises StoreDamaged, StoreVersionUnknown, StoreError: the database itself cannot be used.
        :raises OSError: a file cannot be read.
    """
    opening.check_header(path)
    opening.check_not_held(path)
    log = f"{path}-wal"
    survey = wal.survey(log, PAGE_SIZE)
    try:
        opening.check_log_is_there(path)
    except StoreDamaged as error:
        if error.path != log:
            raise
        return Loss(log, survey, 0, 0, 0, True, missing=True)
    if survey.finding in (Finding.NOTHING, Finding.TORN):
        return None
    if survey.end == 0:
        return Loss(log, survey, survey.size, 0, 0, True)
    with open(path, "rb") as database, open(log, "rb") as frames:
        pages = _Pages(database.fileno(), frames.fileno(), survey)
        arrivals, departures = pages.difference()
        all = pages.database_is_ahead()
    return Loss(log, survey, survey.size - (0 if all else survey.end), arrivals, departures, all)


def recover(path: str, loss: Loss, aside: str) -> int:
    """Copy the files to the folder ``aside``, then give up ``loss``.

    The folder is made. If the rest is not whole, the files are put back.

    :param loss: what :func:`look` gave for the same files.
    :returns: how many persistent messages there are.
    :raises StoreError: the rest is not whole, and nothing has changed.
    :raises OSError: a file cannot be copied or written.
    """
    os.mkdir(aside, 0o700)
    names = (path,) if loss.missing else (path, loss.log)
    for name in names:
        copy = os.path.join(aside, os.path.basename(name))
        shutil.copy2(name, copy)
        opening.sync(copy)
    opening.sync(aside)
    opening.sync(os.path.dirname(aside) or ".")
    if loss.missing:
        os.close(os.open(loss.log, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        opening.sync(os.path.dirname(path) or ".")
    else:
        _cut(loss.log, 0 if loss.all else loss.survey.end)
    try:
        return _check(path)
    except (StoreError, sqlite3.Error) as error:
        for name in (path, loss.log):
            # SQLite removes a log that it has copied back.
            with suppress(FileNotFoundError):
                os.unlink(name)
            if name not in names:
                continue
            shutil.copy2(os.path.join(aside, os.path.basename(name)), name)
            opening.sync(name)
        raise StoreError(
            f"{path} is not whole without it ({error}); the files are as they were. Restore a backup; {opening.EMPTY_STORE}"
        ) from error


def recreate(path: str, aside: str) -> bool:
    """Make an empty store at ``path``.

    The rest of the former store is moved to the folder ``aside``, which is made if there is any.

    Where this is interrupted, the rest is done by doing it again.

    :returns: whether anything was moved.
    :raises StoreError: it cannot be made.
    :raises OSError: a file cannot be moved.
    """
    moved = move_aside(path, aside)
    opening.create(path, os.urandom(8).hex())
    return moved


def move_aside(path: str, aside: str) -> bool:
    """Move the files of the store at ``path`` to the folder ``aside``.

    The folder is made if there is any. Where this is interrupted, the rest is done by doing it
    again.

    :returns: whether there was any.
    :raises OSError: a file cannot be moved.
    """
    # First the database: without it, what is left is refused.
    left = [name for name in (path, f"{path}-wal", f"{path}-journal") if os.path.lexists(name)]
    if left:
        os.mkdir(aside, 0o700)
    for name in left:
        # The store's folder may be another file system.
        shutil.move(name, os.path.join(aside, os.path.basename(name)))
    if left:
        opening.sync(aside)
        opening.sync(os.path.dirname(aside) or ".")
    return bool(left)


def _cut(log: str, end: int) -> None:
    with open(log, "r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())


def _check(path: str) -> int:
    """Read everything in the store.

    :returns: the number of persistent messages.
    :raises StoreError, sqlite3.Error: it is not whole.
    """
    connection = opening.connect(path)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        report = connection.execute("PRAGMA integrity_check(1)").fetchall()[0][0]
        if report != "ok":
            raise StoreDamaged(path, "an unknown page", str(report).replace("\n", " "))
        for place, what in checks.changed(connection):
            raise StoreDamaged(path, place, what)
        count = 0
        for block in reading.scan(connection):
            count += sum(
                [
                    row.persistent
                    for row in reading.fetch(connection, path, [row.seq for row in block])
                ]
            )
        for table in ("owed", "redelivery"):
            text = f"SELECT min(seq) FROM {table} WHERE seq NOT IN (SELECT seq FROM message)"
            seq = connection.execute(text).fetchall()[0][0]
            if seq is not None:
                raise StoreDamaged(
                    path, f"table {table}", f"it names message {seq}, which is missing"
                )
        if opening.has_table(connection, "duplicate"):
            for _ in reading.scan_duplicates(connection, path):
                pass
        if opening.has_table(connection, "branch"):
            for _ in reading.scan_branches(connection, path):
                pass
        return count
    finally:
        opening.close_untouched(connection)


class _Pages:
    """The pages that are given up, beside those that would stand for them."""

    def __init__(self, database: int, log: int, survey: Survey) -> None:
        self._database = database
        self._log = log
        salt = os.pread(log, 8, 16)
        kept: dict[int, int] = {}
        #: Offsets of frames by page: the last kept one, or None; those given up, in order.
        self._given_up: dict[int, list[int]] = {}
        for place in range(HEADER, survey.size - _FRAME + 1, _FRAME):
            head = os.pread(log, FRAME_HEADER, place)
            page = int.from_bytes(head[:4])
            if place < survey.end:
                kept[page] = place
            elif head[8:16] == salt and page:
                self._given_up.setdefault(page, []).append(place)
        self._kept = {page: kept.get(page) for page in self._given_up}

    def difference(self) -> tuple[int, int]:
        """Messages that are only in given-up pages, or only in earlier ones.

        The earlier pages are the versions that the given-up pages replaced.
        """
        before: set[int] = set()
        after: set[int] = set()
        ever: set[int] = set()
        for page, places in self._given_up.items():
            before |= seqs_on(self._former(page))
            for place in places:
                ever |= seqs_on(self._at(place))
            after |= seqs_on(self._at(places[-1]))
        return len(ever - before), len(before - after)

    def database_is_ahead(self) -> bool:
        """Whether the log was copied back beyond the cut.

        The frames before the cut would then undo a part of that.
        """
        for page, places in self._given_up.items():
            stored = os.pread(self._database, PAGE_SIZE, (page - 1) * PAGE_SIZE)
            kept = self._kept[page]
            if any(self._at(place) == stored for place in places) and (
                kept is None or self._at(kept) != stored
            ):
                return True
        return False

    def _former(self, page: int) -> bytes:
        kept = self._kept[page]
        return (
            os.pread(self._database, PAGE_SIZE, (page - 1) * PAGE_SIZE)
            if kept is None
            else self._at(kept)
        )

    def _at(self, place: int) -> bytes:
        return os.pread(self._log, PAGE_SIZE, place + FRAME_HEADER)


def seqs_on(page: bytes) -> set[int]:
    """The seqs on a page, if it is a leaf of the table of messages.

    See https://www.sqlite.org/fileformat2.html#b_tree_pages for the format.

    It is known by its rows: seven columns, the first stands for the row's key, the others are
    numbers. A damaged page gives what can be read.
    """
    found: set[int] = set()
    if len(page) != PAGE_SIZE or page[0] != 13:
        return found
    cells = min(int.from_bytes(page[3:5]), (PAGE_SIZE - 8) // 2)
    for cell in range(cells):
        at = int.from_bytes(page[8 + 2 * cell : 10 + 2 * cell])
        try:
            _, at = _number(page, at)
            seq, at = _number(page, at)
            types = page[at + 1 : at + 8]
            if page[at] == 8 and types[0] == 0 and _NUMBERS.issuperset(types):
                found.add(seq)
        except IndexError:
            continue
    return found


def _number(page: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and where it ends."""
    value = 0
    for count in range(9):
        octet = page[at + count]
        if count == 8:
            return value << 8 | octet, at + 9
        value = value << 7 | octet & 0x7F
        if octet < 0x80:
            return value, at + count + 1
    raise AssertionError("the ninth octet ends it")
