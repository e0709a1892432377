"""A set of log files, rotated as java.util.logging's FileHandler does.

The newest is written.

Owns the files. Knows nothing of events and levels.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.instance.layout import PRIVATE_FILE, make_directory


class LogFiles:
    """Files by generation: 0 is the newest, and the only one written to.

    May be used from any thread.

    What is there when they are opened is kept, and counts. After a line that reaches the limit,
    each file takes the next older one's name, the oldest of ``count`` is dropped, and generation 0
    begins anew. So a file is longer than the limit by part of a line, and with a count of one the
    only file begins anew.

    :param path: the path of a generation.
    :param limit: octets after which to rotate; 0 for never.
    :param count: how many files there are at most, at least 1.
    :raises OSError: generation 0 cannot be opened, or its directory not made.
    """

    def __init__(self, path: Callable[[int], Path], limit: int = 0, count: int = 1) -> None:
        if limit < 0 or count < 1:
            raise ValueError(
                f"limit is {limit} and count {count}; expected at least 0 and at least 1"
            )
        self._path = path
        self._limit = limit
        self._count = count
        # One thread may come twice: Twisted logs in its signal handlers, and a signal may come
        # while a line is being written.
        self._lock = threading.RLock()
        self._descriptor: int | None = None
        self._size = 0
        self._failing = False
        #: Whether the file ends within a line, so that the next one must begin anew.
        self._torn = False
        make_directory(path(0).parent)
        self._open(0)

    @property
    def current(self) -> Path:
        """The file that is written."""
        return self._path(0)

    def write(self, line: str) -> None:
        """Write ``line`` and a line feed, at once and not synced.

        A log that cannot be written stops nothing: the first failure of a row of them is told on the
        standard error, with the line. What was written of it then stays a line of its own. After
        :meth:`close` nothing is written.
        """
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            if self._descriptor is None:
                return
            try:
                self._write(data)
                if self._limit and self._size >= self._limit:
                    self._rotate()
                self._failing = False
            except OSError as failed:
                if not self._failing:
                    self._failing = True
                    print_error(
                        f"{self.current}: the log cannot be written: {failed.strerror or failed}: {line}"
                    )

    def reopen(self) -> None:
        """Close and open generation 0, after the operator's tool has moved it.

        :raises OSError: it cannot be opened; then nothing is written until the next call.
        """
        with self._lock:
            self._close()
            self._open(0)

    def close(self) -> None:
        """Write no more. Once is enough; again does nothing."""
        with self._lock:
            self._close()

    def _write(self, data: bytes) -> None:
        descriptor = self._descriptor
        assert descriptor is not None
        if self._torn:
            data = b"\n" + data
        while data:
            written = os.write(descriptor, data)
            self._size += written
            self._torn = data[written - 1 : written] != b"\n"
            data = data[written:]

    def _open(self, flags: int) -> None:
        opened = os.open(
            self.current,
            os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | flags,
            PRIVATE_FILE,
        )
        self._descriptor = opened
        self._size = os.fstat(opened).st_size
        self._torn = self._size > 0 and os.pread(opened, 1, self._size - 1) != b"\n"

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _rotate(self) -> None:
        # The open file keeps its descriptor until its successor is there, so a failure on the way
        # loses no line. Where its name is gone, an earlier attempt got as far as that: to shift the
        # names again would drop a file for nothing.
        if self.current.exists():
            for generation in range(self._count - 2, -1, -1):
                younger = self._path(generation)
                if younger.exists():
                    younger.rename(self._path(generation + 1))
        before = self._descriptor
        self._open(os.O_TRUNC)
        if before is not None:
            os.close(before)


def print_error(line: str) -> None:
    """Write ``line`` to the process's standard error, if it has one.

    Never to what took its place, which may be a log.

    A failure is ignored: there is no other place to tell it.
    """
    stream = sys.__stderr__
    if stream is not None and not stream.closed:
        with suppress(OSError):
            print(line, file=stream, flush=True)
