"""The journal's files: segments that grow, roll, and are removed.

They appear by a rename, and are removed when they are too old.

Owns names, permissions, syncs and renames. Knows nothing of what a line says, and of no thread: its
methods block, and one thread calls them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from errno import ENOENT
from hashlib import sha256
from pathlib import Path
from typing import Final

from gateway.journal.chain import Chain
from gateway.journal.schema import OPEN, SEGMENT, segment_name, segment_of

#: Octets looked at in one step, from the end of a file on, for the end of its last whole line.
_BLOCK: Final = 64 * 1024
_OPEN: Final = re.compile(r"(?P<whole>.+-\d{10}\.jsonl)\.open")


class CutShort(OSError):
    """A write has failed in the middle.

    :param kept: how many of its octets are in the segment, as whole lines.
    """

    def __init__(self, error: OSError, kept: int) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a segment is rolled, and how long it is kept.

    :param size: octets from which on a segment is rolled.
    :param age: seconds after which one is.
    :param kept_seconds: for which whole segments are kept; 0 is for ever.
    :param kept_octets: of whole segments that are kept; negative is no bound.
    """

    size: int
    age: float
    kept_seconds: float = 0
    kept_octets: int = -1


class Segments:
    """The segments of one run, and the whole ones of those before it.

    :param folder: the journal's, which must be there.
    :param monotonic: the clock for ages of open segments, in seconds.
    :param chain: is told of each segment that becomes whole; None for no chain.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        bounds: Bounds,
        monotonic: Callable[[], float] = time.monotonic,
        chain: Chain | None = None,
    ) -> None:
        #: Is told of each segment that becomes whole, where there is one.
        self.chain: Final = chain
        #: Of what is in the segment that is open, where there is a chain.
        self._digest = sha256()
        self._folder: Final = folder
        self._run: Final = run
        self._bounds: Final = bounds
        self._monotonic: Final = monotonic
        #: Of the newest segment, 0 before the first.
        self.number = 0
        self._descriptor = -1
        self._path = folder
        self._since = 0.0
        #: Octets in the segment that is open.
        self._size = 0

    # --- writing

    def write(self, data: bytes) -> None:
        """Hand whole lines to the kernel, in the open segment.

        The segment is made if it is missing. It is rolled afterwards if it is large or old.

        :raises CutShort: as much as its ``kept`` says is there, and nothing is open any more.
        :raises OSError: nothing of it is.
        """
        if self._descriptor < 0:
            self._open()
        elif not os.fstat(self._descriptor).st_nlink:
            # No reader would find what is written there.
            self._let_go()
            raise FileNotFoundError(ENOENT, "the open segment was removed", str(self._path))
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:] if done else data)
        except OSError as error:
            raise self._cut(error, data, done) from error
        self._wrote(data)
        try:
            if self._size >= self._bounds.size:
                self.roll()
            else:
                self.roll_if_old()
        except OSError as error:
            raise CutShort(error, done) from error

    def _open(self) -> None:
        self._path = self._folder / (
            segment_name(self._run, self.number + 1) + OPEN.removeprefix(SEGMENT)
        )
        descriptor = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self.number += 1
        os.fchmod(descriptor, 0o600)
        self._descriptor = descriptor
        self._since = self._monotonic()
        self._size = 0
        self._digest = sha256()

    def _wrote(self, data: bytes) -> None:
        self._size += len(data)
        if self.chain is not None:
            self._digest.update(data)

    def _cut(self, error: OSError, data: bytes, done: int) -> CutShort:
        """Leave whole lines after a write that failed.

        They become a whole segment if that is possible.

        :param done: bytes that were written.
        """
        kept = data.rfind(b"\n", 0, done) + 1
        try:
            os.ftruncate(self._descriptor, self._size + kept)
            self._wrote(data[:kept])
            self.roll()
        except OSError:
            # It stays open, and is completed later; what was torn is cut then.
            if self._descriptor >= 0:
                self._let_go()
        return CutShort(error, kept)

    def due_in(self) -> float | None:
        """Return the seconds until :meth:`roll_if_old` has something to do.

        None when nothing is open.
        """
        return (
            None
            if self._descriptor < 0
            else max(0.0, self._since + self._bounds.age - self._monotonic())
        )

    def roll_if_old(self) -> None:
        """Roll the open segment if it is old enough.

        :raises OSError: as :meth:`roll`.
        """
        if self._descriptor >= 0 and self.due_in() == 0:
            self.roll()

    def roll(self) -> None:
        """Make the open segment whole, if there is one.

        It is synced and renamed, and the name is synced.

        :raises OSError: it could not be, and stays as it is for :meth:`complete`.
        """
        if self._descriptor < 0:
            return
        try:
            if self._size:
                os.fsync(self._descriptor)
                whole = _whole(self._path)
                if self.chain is not None:
                    self.chain.add(whole.name, self._digest.hexdigest(), self._size)
                self._path.rename(whole)
            else:
                self._path.unlink()
                # The next takes it: a number that is not there was removed.
                self.number -= 1
        finally:
            self._let_go()
        _sync(self._folder)

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    # --- what others have left

    def complete(self) -> list[str]:
        """Complete the segments that this run or an earlier one left open.

        It cuts off a line that is not whole, syncs and renames.

        Not while one is open. One without a whole line is removed.

        :returns: the names they have now.
        :raises OSError: one could not be completed.
        """
        completed = complete_left(self._folder, self.chain)
        if self.chain is not None:
            self.chain.complete()
        return completed

    def remove_old(self, now: float) -> list[str]:
        """Remove whole segments that are too old, and the oldest of too many.

        :param now: seconds since the epoch.
        :returns: their names.
        :raises OSError: one could not be removed.
        """
        bounds = self._bounds
        whole = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if segment_of(entry.name) is not None:
                    status = entry.stat()
                    whole.append((status.st_mtime, entry.name, status.st_size))
        octets = sum([size for _, _, size in whole])
        removed: list[str] = []
        for changed, name, size in sorted(whole):
            too_many = 0 <= bounds.kept_octets < octets
            too_old = bounds.kept_seconds and changed + bounds.kept_seconds < now
            if not too_many and not too_old:
                break
            octets -= size
            removed.append(name)
        noted: OSError | None = None
        if self.chain is not None:
            # First, so that none is missing to who verifies meanwhile.
            try:
                self.chain.forget(removed)
            except OSError as error:
                # The disk may be full, and have room when they are gone.
                noted = error
        for name in removed:
            (self._folder / name).unlink()
        if self.chain is not None and noted is not None:
            self.chain.forget(removed)
        return removed


def complete_left(folder: Path, chain: Chain | None = None) -> list[str]:
    """Complete what earlier runs left open, while there is no run.

    :param chain: is told of each.
    :returns: the names they have now.
    :raises OSError: one could not be completed.
    """
    found = sorted(path for path in folder.iterdir() if _OPEN.fullmatch(path.name))
    completed = [_whole(path).name for path in found if _complete(path, chain)]
    if found:
        _sync(folder)
    return completed


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _whole(path: Path) -> Path:
    found = _OPEN.fullmatch(path.name)
    assert found is not None
    return path.with_name(found["whole"])


def _complete(path: Path, chain: Chain | None) -> bool:
    """Make it whole. :returns: False when nothing is left of it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = _end_of_lines(descriptor)
        if size:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if size:
        if chain is not None:
            chain.add_found(path, _whole(path).name)
        path.rename(_whole(path))
    else:
        path.unlink()
    return bool(size)


def _end_of_lines(descriptor: int) -> int:
    """Return the place after the last line feed of a file; else 0."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - _BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
