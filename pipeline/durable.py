"""Having the disk hold what was written: a file's contents, or the names in a folder."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when what is at ``path``, a file or a folder, is on the disk. :raises OSError: it
    cannot be.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
