"""A transaction log's file: opened, appended to, synced and written anew.

:class:`Storage` is the port for where the octets of a log are, and :class:`FileStorage` that of a
file: descriptors, permissions and the order of syncs. :class:`LogFile` has what the log holds now,
the bounds of its growth, and what its failures mean, wherever it is. All of it blocks, and is
called from one thread at a time.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from bridge.xa.decision_log import Change, Entry, Presumed
from bridge.xa.errors import LogDamaged, LogFailed, NotWritten
from bridge.xa.log.contents import LogContents, decoded
from bridge.xa.log.records import COPY, Header, frame
from bridge.xa.xids import IDENTITY_OCTETS, Run
from gateway.instance.layout import PRIVATE_FILE, sync_directory


class SyncFailed(OSError):
    """The disk did not take what was written before.

    How much of it is there is unknown, and a retry would not tell.
    """


class Storage(Protocol):
    """Where a log is. Every method raises OSError.

    A write that finds no room, of which nothing is kept, raises one with ENOSPC, EDQUOT or EFBIG.
    """

    @property
    def name(self) -> str:
        """As errors call it."""

    @property
    def whole(self) -> bool:
        """Whether what is appended is durable at once, or is not there at all.

        Such a storage has no torn tail, and nothing to sync.
        """

    def read(self) -> bytes | None:
        """Return the contents; None where there is no file."""

    def replace(self, data: bytes) -> None:
        """Replace the contents in one step, durably.

        What is appended later goes behind it.

        :raises SyncFailed: the contents may be the old or the new.
        :raises OSError: nothing has changed.
        """

    def append(self, data: bytes) -> None:
        """Append. :raises OSError: a part of it may be written."""

    def truncate(self, length: int) -> None:
        """Cut to that many bytes."""

    def sync(self) -> None:
        """Make everything written before durable. :raises SyncFailed:"""

    def hurry(self) -> None:
        """The log is to be closed: wait for nothing that may take long.

        May be called from any thread.
        """

    def close(self) -> None:
        """Close the file, and release its lock."""


class FileStorage:
    """A file for its owner alone, locked while it is open.

    Reading or replacing it opens it; it stays open until :meth:`close`.

    :param path: in a folder that exists.
    """

    whole: Final = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def name(self) -> str:
        return str(self._path)

    def read(self) -> bytes | None:
        if self._descriptor is not None:
            return self._path.read_bytes()
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            _lock(descriptor)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data = file.read()
        except BaseException:
            os.close(descriptor)
            raise
        # Keeps the lock until there is a file to write to.
        self._descriptor = descriptor
        return data

    def replace(self, data: bytes) -> None:
        beside = self._path.with_name(f"{self._path.name}.tmp")
        beside.unlink(missing_ok=True)  # of a process that was killed
        descriptor = os.open(
            beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE
        )
        try:
            _lock(descriptor)
            os.fchmod(descriptor, PRIVATE_FILE)
            _write(descriptor, data)
            _sync(descriptor)
            os.rename(beside, self._path)
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                beside.unlink()
            raise
        before, self._descriptor = self._descriptor, descriptor
        if before is not None:
            os.close(before)
        try:
            sync_directory(self._path.parent)
        except OSError as failed:
            raise SyncFailed(*failed.args) from failed

    def append(self, data: bytes) -> None:
        _write(self._open(), data)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._open(), length)

    def sync(self) -> None:
        _sync(self._open())

    def hurry(self) -> None:
        """A disk answers in its own time."""

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            raise OSError(f"{self._path} is not open")
        return self._descriptor


def _lock(descriptor: int) -> None:
    """:raises OSError: somebody else has it open."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as locked:
        raise OSError(
            locked.errno,
            "the run before this, or another process, has not let go of it; start the bridge again when it has",
        ) from locked


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    except OSError as failed:
        raise SyncFailed(*failed.args) from failed


#: Earlier runs that are remembered, and as many at other places. Decisions of forgotten runs are
#: known nevertheless, as long as the log has them.
_MOST_RUNS: Final = 1000
_LACK_OF_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LogFile:
    """The log, open.

    Opening writes it anew: so what was read is on the disk before anyone acts on it, a torn tail is
    cut, and the identity and generation of the run that begins are as durable as the rest, in one
    step. A log that is damaged is not touched.

    :param storage: where it is; closed where this raises.
    :param name: of the coordinator, for a new log.
    :param size: bytes above which the log is written anew without what is complete.
    :param sync: whether decisions are synced.
    :param random_bytes: gives that many random bytes.
    :param place: where the log is, "" if it is not known. One that was written at another place may
        be a copy, of which the original goes on: so the runs before this are not this log's alone.
    :raises LogDamaged: with the place.
    :raises LogFailed: it cannot be read or written.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        size: int,
        sync: bool,
        random_bytes: Callable[[int], bytes],
        place: str = "",
    ) -> None:
        self._storage: Final = storage
        self._size: Final = size
        self._sync: Final = sync
        #: Why nothing can be written any more.
        self.failed: LogFailed | None = None
        #: Octets of a torn tail that was cut at opening.
        self.cut = 0
        self._contents = LogContents()
        self._length = 0
        self._synced = 0
        self._rewrite_at = 0
        try:
            before = self._read(name)
            runs: tuple[Run, ...] = (
                (Run(before.identity, before.generation), *before.earlier)
                if before.generation
                else ()
            )
            former = before.former
            #: Whether the log was written at another place before.
            self.moved = before.place == COPY or (
                bool(place and before.place) and place != before.place
            )
            if self.moved:
                former = (*[run.identity for run in runs], *former)
                runs = ()
            #: With the identity and generation of the run that begins.
            self.header: Final = Header(
                random_bytes(IDENTITY_OCTETS),
                before.generation + 1,
                name,
                place or ("" if self.moved else before.place),
                former[:_MOST_RUNS],
                runs[:_MOST_RUNS],
            )
            self._rewrite()
        except OSError as failed:
            storage.close()
            raise LogFailed(storage.name, f"it cannot be opened: {_words(failed)}") from failed
        except LogDamaged:
            storage.close()
            raise

    @property
    def path(self) -> str:
        return self._storage.name

    def entries(self) -> Sequence[Entry]:
        """What the log holds, in the order in which it came."""
        return self._contents.entries

    def presumed(self) -> Sequence[Presumed]:
        """The branches taken for committed, in the order in which they came."""
        return self._contents.presumed

    def write(self, changes: Sequence[Change], sync: bool) -> None:
        """Append changes, all or none.

        :param sync: they are on the disk when this returns; else some time.
        :raises NotWritten: none of them is in the log, and the next may fare better.
        :raises LogFailed: it is not known.
        """
        if self.failed is not None:
            raise NotWritten(self.failed.file, self.failed.reason)
        data = frame(changes, self.header, self._length, self._synced)
        self._append(data)
        for change in changes:
            self._contents.apply(change)
        if self._storage.whole:
            self._synced = self._length
        elif sync and self._sync:
            try:
                self._storage.sync()
            except OSError as failed:
                raise self._fail(failed) from failed
            self._synced = self._length
            # Says that all before it was on the disk: without it a damage of the last frame could
            # not be told from a torn one. If it cannot be written, the next sync says it.
            with suppress(LogFailed):
                self._append(frame((), self.header, self._length, self._synced))
        if self._length > self._rewrite_at:
            self._shrink()

    def copy_to(self, storage: Storage, place: str) -> None:
        """Have another storage hold what this one does, durably.

        The copy is this log, and goes on at its place as the run that is here now.

        :param place: where the copy is, see the class.
        :raises OSError: it cannot be written.
        """
        storage.replace(self._contents.encoded(replace(self.header, place=place)))

    def hurry(self) -> None:
        """The log is to be closed. May be called from any thread."""
        self._storage.hurry()

    def close(self) -> None:
        """Close the file. :raises OSError: it failed."""
        self._storage.close()

    def _read(self, name: str) -> Header:
        data = self._storage.read()
        if data is None:
            return Header(b"", 0, name)
        before, self._contents, self.cut = decoded(data, self._storage.name, self._storage.whole)
        return before

    def _append(self, data: bytes) -> None:
        try:
            self._storage.append(data)
        except OSError as failed:
            try:
                self._storage.truncate(self._length)
            except OSError as worse:
                raise self._fail(worse) from failed
            if failed.errno in _LACK_OF_SPACE:
                raise NotWritten(self._storage.name, _words(failed)) from failed
            raise self._fail(failed) from failed
        self._length += len(data)

    def _shrink(self) -> None:
        try:
            self._rewrite()
        except SyncFailed as failed:
            self._fail(failed)
        except OSError:
            # The log is as it was, and goes on growing for a while; the disk may have room then.
            self._rewrite_at = self._length + self._size

    def _rewrite(self) -> None:
        data = self._contents.encoded(self.header)
        self._storage.replace(data)
        self._length = self._synced = len(data)
        # Where what is not complete fills it, to write it anew each time would not make it smaller.
        self._rewrite_at = max(self._size, 2 * self._length)

    def _fail(self, failed: OSError) -> LogFailed:
        self.failed = LogFailed(
            self._storage.name,
            f"{_words(failed)}; nothing is decided any more until the bridge is started anew",
        )
        return self.failed


def _words(error: OSError) -> str:
    return error.strerror or str(error)
