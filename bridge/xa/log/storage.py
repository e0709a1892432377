"""The file that a transaction log is in: read, replaced, appended to, cut and synced.

Owns descriptors, permissions and the order of syncs. Knows nothing of what is in the file. Blocks:
it is for a thread of its own.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gateway.instance.files import PRIVATE_FILE, sync_directory


class SyncFailed(OSError):
    """The disk did not take what was written before: which of it is there is not known, and trying
    again would not tell.
    """


class Storage(Protocol):
    """Where a log is. Every method raises OSError."""

    @property
    def name(self) -> str:
        """As errors call it."""

    def read(self) -> bytes | None:
        """All there is; None where there is no file."""

    def replace(self, data: bytes) -> None:
        """In one step make this the contents, durably, whatever was there; what is appended later
        goes behind it.

        :raises SyncFailed: it is not known which of the two is there. :raises OSError: nothing has
            changed.
        """

    def append(self, data: bytes) -> None:
        """Write at the end. :raises OSError: a part of it may be there."""

    def truncate(self, length: int) -> None:
        """Cut to that many octets."""

    def sync(self) -> None:
        """Everything written before is on the disk. :raises SyncFailed:"""

    def close(self) -> None:
        """Let go of the file."""


class FileStorage:
    """A file of a file system, for its owner alone, and locked from when it is read or replaced
    until it is closed.

    :param path: in a folder that exists.
    """

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
