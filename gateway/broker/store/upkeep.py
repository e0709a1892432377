"""Maintains the files between commits.

It copies the log back, gives free pages away and makes room on a full disk.

Owns when that is due and how much is done at a time. Everything here is called on the store's
thread, may raise what SQLite raises, and leaves it to the store what such a failure means. Knows
nothing of callbacks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from time import monotonic
from typing import Final

from gateway.broker.store import failures
from gateway.broker.store.batch_writer import BatchWriter
from gateway.broker.store.integrity import online, opening, wal
from gateway.broker.store.integrity.checks import Contents
from gateway.broker.store.interface import Batch, StoreDamaged, StoreFailed
from gateway.broker.store.reserve import Reserve
from gateway.instance import crashpoints

_MIB: Final = 1 << 20

#: A log shorter than this is left alone in idle moments.
_TRIVIAL_LOG: Final = _MIB
#: How often the log's length is looked at: after that many commits, or octets of messages.
_LOOK_COMMITS: Final = 8
_LOOK_OCTETS: Final = _MIB
#: Free pages that are given back to the file system at a time, and how many are kept for new
#: messages.
_VACUUM_PAGES: Final = 256
_KEPT_PAGES: Final = 4096
#: Seconds between two steps of the check of contents while there is always something else to do.
_CHECK_SECONDS: Final = 0.05
#: How often it is made sure that the files are still there, in seconds, while there are commits.
_NAMES_SECONDS: Final = 1.0
#: While the disk is full: how many slices of pages are given back although a batch waits.
_FULL_SLICES: Final = 16


class Upkeep:
    """The care of an open store's files.

    :param path: the database.
    :param checkpoint_octets: length of the log from which on it is copied back.
    :param waited_for: whether somebody waits for the thread, so that what can wait should.
    :param next_seq: messages with lower seqs were there when the store was opened: their contents
        are checked here.
    :param damaged: called with each that is not whole.
    :raises OSError: the log cannot be opened.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        changes: BatchWriter,
        reserve: Reserve,
        checkpoint_octets: int,
        waited_for: Callable[[], bool],
        next_seq: int,
        damaged: Callable[[StoreDamaged], None],
    ) -> None:
        self._path = path
        self._connection = connection
        self._damaged = damaged
        self._changes = changes
        self._reserve = reserve
        self._checkpoint_octets = checkpoint_octets
        self._waited_for = waited_for
        # Nothing but a look at its length; SQLite has no locks on this file that closing it could
        # lose.
        self._log = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        # An open file goes on without its name, and is lost with this process.
        self._files = {name: _identity(name) for name in (path, f"{path}-wal")}
        self._names_at = monotonic()
        self._unseen_commits = 0
        self._unseen_octets = 0
        #: The log holds what is not in the database.
        self._uncopied = False
        #: Pages may be free.
        self._deleted = False
        #: Up to which seq contents without a message were swept; None when all were.
        self._swept: int | None = 0 if opening.is_to_be_swept(connection) else None
        #: What is left to check; None when all was.
        self._unchecked: Contents | None = (
            Contents(connection, path, next_seq) if opening.has_contents(connection) else None
        )
        self._checked_at = monotonic()

    def close(self) -> None:
        """Let go of the log. :raises OSError: as the system does."""
        os.close(self._log)

    def committed(self, batch: Batch) -> None:
        """After each commit: copy the log back if it is long."""
        if batch.deletes or batch.forgotten:
            self._deleted = True
        self._uncopied = True
        self._unseen_commits += 1
        self._unseen_octets += batch.octets
        if self._unseen_commits >= _LOOK_COMMITS or self._unseen_octets >= _LOOK_OCTETS:
            self._unseen_commits = self._unseen_octets = 0
            self._checkpoint_if_long()

    def idle(self) -> None:
        """Idle maintenance; long work stops as soon as a job is queued.

        :raises StoreFailed: a file was removed or replaced.
        """
        self._check_files_are_there()
        while self._swept is not None and not self._waited_for():
            self._sweep()
        while self._unchecked is not None and not self._waited_for():
            self._check()
        if self._deleted and not self._waited_for():
            self._deleted = False
            self._changes.forget_redeliveries()
            self._give_pages_back(_KEPT_PAGES, slices=0)
        if self._uncopied and wal.passed(self._log, _TRIVIAL_LOG, opening.PAGE_SIZE):
            self._checkpoint_if_not_copied()

    def look(self) -> None:
        """Make sure that the files are still there, once a second.

        Called before each commit.

        :raises StoreFailed: a file was removed or replaced.
        """
        if monotonic() - self._names_at >= _NAMES_SECONDS:
            self._check_files_are_there()

    def check_database_is_there(self) -> None:
        """:raises StoreFailed: it was removed or replaced while it was in use."""
        lost = self._lost(self._path)
        if lost:
            raise StoreFailed(
                f"{lost}. What was stored is in the file that is gone: put that back with its log, or restore a backup. "
                "Nothing more is written until the store is opened anew"
            )

    def _check_files_are_there(self) -> None:
        self._names_at = monotonic()
        self.check_database_is_there()
        lost = self._lost(f"{self._path}-wal")
        if lost:
            # Nobody could read it after this process.
            self.checkpoint()
            raise StoreFailed(
                f"{lost}. What it held was copied into the database: 'imqdbmgr recover' makes the store usable again"
            )

    def _lost(self, name: str) -> str:
        """What happened to a file, or "" when it is the one that was opened."""
        found = _identity(name)
        if found == self._files[name]:
            return ""
        return f"{name} was {'removed' if found is None else 'replaced'} while it was in use"

    def busy(self) -> None:
        """Continue work that should not wait for an idle moment for ever.

        Called after a job; it does one small step now and then.
        """
        if self._unchecked is not None and monotonic() - self._checked_at >= _CHECK_SECONDS:
            self._sweep() if self._swept is not None else self._check()
            self._checked_at = monotonic()

    def _sweep(self) -> None:
        assert self._swept is not None
        self._swept, found = opening.sweep(self._connection, self._path, self._swept)
        for error in found:
            self._damaged(error)
        self._deleted = self._uncopied = True
        self._checkpoint_if_long()

    def _check(self) -> None:
        """Read some messages that no consumer may have asked for yet.

        A sweep comes first: until then there are contents without messages.
        """
        assert self._unchecked is not None
        try:
            found = self._unchecked.step()
        except failures.AT_READING as error:
            # Nobody knows how far this goes.
            found, self._unchecked = (
                [StoreDamaged(self._path, "an unknown page", f"{type(error).__name__}: {error}")],
                None,
            )
        if found is None:
            self._unchecked = None
            return
        for wrong in found:
            self._damaged(wrong)

    def shrink(self) -> None:
        """On a full disk: shorten log and file."""
        self.checkpoint("TRUNCATE")
        self._give_pages_back(0, slices=_FULL_SLICES)
        self.checkpoint("TRUNCATE")

    def make_room(self, margin: int) -> bool:
        """Shorten log and file on a full disk, and restore the reserve.

        The reserve is made again if its margin is then free beside it.

        :param margin: bytes that must be free beside it at least.
        :returns: whether there is room again.
        :raises OSError: the reserve cannot be made, for another reason than lack of space.
        """
        self.shrink()
        return self._reserve.hold(margin=margin)

    def checkpoint(self, mode: str = "PASSIVE") -> None:
        """Copy the log back.

        :param mode: PASSIVE leaves its file as it is, to be written over; TRUNCATE gives its space
            back.
        """
        crashpoints.hit("store.before-checkpoint")
        self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        self._uncopied = False
        crashpoints.hit("store.after-checkpoint")

    def _checkpoint_if_long(self) -> None:
        if wal.passed(self._log, self._checkpoint_octets, opening.PAGE_SIZE):
            self._checkpoint_if_not_copied()

    def _checkpoint_if_not_copied(self) -> None:
        """Copy the log back, unless an operator's command copies the database."""
        with online.put_off(self._path) as copied:
            if not copied:
                self.checkpoint()

    def _give_pages_back(self, kept: int, slices: int) -> None:
        """Return free pages to the file system, in slices.

        :param kept: pages to keep for new messages, and a quarter of a large file; 0: none.
        :param slices: how many there may be while somebody waits.
        """
        connection = self._connection
        while True:
            free = connection.execute("PRAGMA freelist_count").fetchall()[0][0]
            pages = connection.execute("PRAGMA page_count").fetchall()[0][0]
            if free <= (max(kept, pages // 4) if kept else 0):
                return
            if slices <= 0 and self._waited_for():
                self._deleted = True
                return
            # A script, because this gives rows without columns, of which execute() takes the first
            # only.
            connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
            self._uncopied = True
            slices -= 1
            self._checkpoint_if_long()


def _identity(name: str) -> tuple[int, int] | None:
    """Device and number of the file that has this name, or None.

    No other file gets the number while it is open.
    """
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
