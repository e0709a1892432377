"""Space on the disk kept for the day it is full.

Acknowledgements must go on when nothing more can be stored, and deleting needs space too, in the
write-ahead log. A file that was filled in advance is given up then, and made again when there is
room.

Owns that file. Knows nothing of the store beside it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from gateway.broker.store.interface import StoreError

#: Bytes that an empty store has, generously.
_EMPTY = 1 << 20


class Reserve:
    """A file of allocated, unused octets.

    :param path: the file.
    :param size: octets; 0 for no reserve.
    """

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self.size = size

    @property
    def margin(self) -> int:
        """Bytes that must be free before the reserve file is made again.

        They must be free beside it; else a disk that is nearly full would be full again at once.
        """
        return max(self.size // 4, 1 << 20)

    @property
    def held(self) -> bool:
        """Whether the file is there with all its octets."""
        if not self.size:
            return True
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(
                f"{self._path} is not a file. One that keeps space for a full disk is made there, with nothing in it: remove it"
            )
        # Blocks are units of 512 octets whatever the file system's own are (POSIX, sys/stat.h
        # leaves it open; Linux and the BSDs agree).
        return found.st_size == self.size and found.st_blocks * 512 >= self.size

    def hold(self, *, margin: int = 0) -> bool:
        """Make the file if it is not there whole.

        :param margin: octets that must be free beside it, or it is not made.
        :returns: whether it is there now, and the margin is free.
        :raises OSError: something else than lack of space was in the way.
        :raises StoreError: something else than a file is there.
        """
        held = self.held
        if self.free() < margin + (0 if held else self.size):
            return False
        if held:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _allocate(file, self.size)
            os.fsync(file)
        except OSError as error:
            if not is_lack_of_space(error):
                raise
        finally:
            os.close(file)
        if self.held:
            return True
        self.release()
        return False

    def release(self) -> None:
        """Give the space up. :raises OSError: the file cannot be removed."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def largest(self) -> int:
        """Bytes that an empty store on this file system could take at once.

        They are written twice, to its log and to the database.

        :raises OSError: the folder cannot be examined.
        """
        total = self._file_system()
        return max(0, min(total - self.size - self.margin, (total - _EMPTY) // 2))

    def most_margin(self) -> int:
        """Bytes that are free beside the reserve when the store is empty.

        :raises OSError: the folder cannot be examined.
        """
        return max(self.margin, self._file_system() - self.size - _EMPTY)

    def _file_system(self) -> int:
        """Bytes of the file system that its folder is on."""
        found = os.statvfs(os.path.dirname(self._path) or ".")
        return found.f_blocks * found.f_frsize

    def free(self) -> int:
        """Bytes that are free in its folder.

        :raises OSError: the folder cannot be examined.
        """
        found = os.statvfs(os.path.dirname(self._path) or ".")
        return found.f_bavail * found.f_frsize


def is_lack_of_space(error: OSError) -> bool:
    """Whether it says that the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def lacks_space(path: str) -> bool:
    """Try to write 64 KiB to a new file at ``path``, which is then removed.

    Use it for a failure that does not say why.

    :returns: True when that failed for lack of space, False when it succeeded or failed otherwise.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _fill(file, 65536)
            os.fsync(file)
        finally:
            os.close(file)
            os.unlink(path)
    except OSError as error:
        return is_lack_of_space(error)
    return False


def _allocate(file: int, size: int) -> None:
    # Not everywhere: macOS has no posix_fallocate, and some file systems refuse it.
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
    _fill(file, size)


def _fill(file: int, size: int) -> None:
    # Not zeros: a file system may store those as a hole.
    block = b"\xa5" * 65536
    left = size
    while left:
        left -= os.write(file, block[:left])
