"""Copy a store's files while a gateway has them open, and put a copy back.

The gateway's process has locked the database, so no other can open it by SQLite; but it may be read
as a file. Two things make such a copy whole:

* The database changes only where its log is copied back. Whoever holds a shared lock on the store's
  folder has that put off (:func:`put_off`), so the file stays as it is while it is copied, and the
  log grows.
* The log is copied after it. All that was committed before the copy began is in one of them; what
  is committed meanwhile may be cut off at the end, as a crash would.

A gateway that ends, or whose disk is full, copies its log back nevertheless. This is seen by the
database's time stamp, and the copy is begun anew.

Owns the lock and the order of these steps. Changes nothing of the store that is copied.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gateway.broker.store import failures
from gateway.broker.store.integrity import checks, copying, inspection, opening, salvage, wal
from gateway.broker.store.integrity.inspection import Work
from gateway.broker.store.interface import StoreDamaged, StoreError

#: How often a copy is begun before it is given up.
_ATTEMPTS: Final = 5
#: Seconds before a log is read again that was perhaps being written.
_PAUSE_SECONDS: Final = 0.05


@contextmanager
def put_off(path: str) -> Iterator[bool]:
    """Keep copies from beginning within the block, where none is being made.

    :param path: the database.
    :returns: whether a copy is being made; then the database must stay as it is, if possible.
    :raises OSError: the folder cannot be opened.
    """
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            yield True
        else:
            yield False
    finally:
        os.close(folder)


def backup(path: str, target: str, work: Work) -> int:
    """Copy the store at ``path``, completely or not at all.

    A gateway may have it open. Every row and every checksum of the copy is read. It is as a store that was closed in order.

    :param target: the copy's database; its folder must exist.
    :param work: reads branches, whose encoding is the broker's.
    :returns: how many messages it has.
    :raises StoreError: there is such a file, the store is damaged, or it cannot be copied.
    """
    with copying.alone(os.path.dirname(target) or "."):
        copying.check_free(target)
        part = f"{target}.part"
        try:
            copying.remove(part)
            _copy(path, part)
            count = _finish(part, path, work)
            opening.sync(part)
            os.rename(part, target)
            opening.sync(os.path.dirname(target) or ".")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{target} cannot be made: {error}") from error
        finally:
            copying.remove(part)
    return count


def restore(source: str, path: str, aside: str, work: Work) -> tuple[int, bool]:
    """Replace the store at ``path`` by a copy, completely or not at all.

    The caller has locked the instance. What is there is moved to the folder ``aside``. Numbers of
    messages that were given since the copy was made are not given again, if the store that is
    replaced can be read.

    :param source: the copy's database; no process may have it open.
    :returns: how many messages it has, and whether anything was moved.
    :raises StoreError: the copy is damaged, or cannot be copied. The store is as it was.
    :raises OSError: files cannot be moved.
    """
    part = f"{path}.part"
    try:
        copying.remove(part)
        opening.check_header(source)
        opening.check_not_held(source)
        _copy(source, part)
        count = _finish(part, source, work, _next_seq(path))
        opening.sync(part)
    except (OSError, sqlite3.Error) as error:
        copying.remove(part)
        raise StoreError(f"{source} cannot be copied: {error}") from error
    except BaseException:
        copying.remove(part)
        raise
    moved = salvage.move_aside(path, aside)
    os.rename(part, path)
    opening.sync(os.path.dirname(path) or ".")
    return count, moved


def _copy(path: str, part: str) -> None:
    """Copy database and log as a crash at one moment leaves them.

    :raises StoreError: the store changes all the time, or its log is damaged.
    :raises OSError: a file cannot be read or written.
    """
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The log may be being copied back just now.
        fcntl.flock(folder, fcntl.LOCK_SH)
        for _ in range(_ATTEMPTS):
            before = _state(path)
            _copy_file(path, part)
            _copy_log(path, part)
            if _state(path) == before:
                return
            copying.remove(part)
    finally:
        os.close(folder)
    raise StoreError(
        f"{path} was changed each of the {_ATTEMPTS} times that it was copied: its gateway is started and ended, or its disk is full"
    )


def _state(path: str) -> tuple[int, int, int, int]:
    """What tells whether the database was written."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _copy_file(source: str, target: str) -> None:
    made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(source, "rb") as reading, open(made, "wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)


def _copy_log(path: str, part: str) -> None:
    """Copy the log up to its last commit.

    A commit that is being written looks like damage. It is another one when it is read again;
    damage stays where it is.

    :raises StoreDamaged: the log is damaged.
    """
    source, target = f"{path}-wal", f"{part}-wal"
    places: set[int] = set()
    while True:
        try:
            _copy_file(source, target)
        except FileNotFoundError:
            # A store that was closed in order has none.
            with suppress(FileNotFoundError):
                os.unlink(target)
            return
        found = wal.survey(target, opening.PAGE_SIZE)
        if found.finding in (wal.Finding.NOTHING, wal.Finding.TORN):
            break
        if found.place in places:
            raise StoreDamaged(source, f"offset {found.place}", f"{found.what}; {wal.WAY_OUT}")
        places.add(found.place)
        time.sleep(_PAUSE_SECONDS)
    os.truncate(target, found.end)


def _finish(part: str, source: str, work: Work, next_seq: int = 0) -> int:
    """Close copied files in order, and read all of the store.

    :param source: what was copied, for errors.
    :param next_seq: the next message has at least this number.
    :returns: how many messages it has.
    :raises StoreError: it is damaged.
    """
    try:
        opened = opening.open_existing(part, 0)
    except failures.AT_READING as error:
        raise failures.at_opening(source, error) from error
    except StoreError as error:
        raise StoreError(str(error).replace(part, source)) from error
    connection = opened.connection
    try:
        connection.execute("BEGIN IMMEDIATE")
        opening.upgrade(connection)
        connection.execute(
            "UPDATE meta SET value = max(value, ?) WHERE key = 'next_seq'",
            (max(next_seq, opened.next_seq),),
        )
        seal = checks.seal(connection)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'clean'", (seal,))
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        opening.close_marked(connection)
    except BaseException:
        opening.close_untouched(connection)
        raise
    report = inspection.inspect(part, work)
    if report.problems:
        raise StoreError(
            f"a copy of {source} is damaged, {len(report.problems)} problems, and was not kept; the first: "
            f"{report.problems[0].replace(part, source)}"
        )
    return report.messages


def _next_seq(path: str) -> int:
    """Return the store's next message number; 0 if it cannot be read."""
    if not os.path.exists(path):
        return 0
    try:
        opened = opening.open_existing(path, 0)
    except (StoreError, OSError, *failures.AT_READING):
        return 0
    opening.close_untouched(opened.connection)
    return opened.next_seq
