"""Replacing a small file so that a crash leaves the old one or the new one, whole.

Owns nothing but that.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def replace(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Make ``path`` a file with these contents, in one step: written beside it, synced, renamed
    over it, the directory synced.

    :param mode: the permissions it gets, whatever the umask and whatever those of a file it
        replaces.
    :raises OSError: it could not be written; then ``path`` is as it was.
    """
    # A name of its own: two processes that write at once must not write into one temporary file.
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.rename(beside, path)
        except OSError as error:
            # By the name that is known, of the two that the error has.
            raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable.

    :raises OSError: it could not be.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
