"""Sync to disk: a file's contents, or the names in a folder."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when the file or folder ``path`` is on the disk.

    :raises OSError: it cannot be synced.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
