"""What went wrong in SQLite, in the words of the store's interface.

Owns the meaning of SQLite's result codes (https://www.sqlite.org/rescode.html). Decides nothing about what to do then.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from gateway.broker.store.interface import StoreDamaged, StoreError, StoreFailed, StoreFull
from gateway.broker.store.reserve import is_lack_of_space, lacks_space

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_HELD: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def primary_code(error: BaseException) -> int:
    """The primary result code, or 0 when the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def at_opening(path: str, error: Exception) -> StoreError:
    """For an error while the store was opened, or read before the first batch."""
    if isinstance(error, StoreError):
        return error
    code = primary_code(error)
    if code in _DAMAGE:
        return StoreDamaged(path, "an unknown page", _words(error))
    if code in _HELD:
        return StoreError(f"{path} is held by another process")
    return StoreError(f"{path} cannot be opened: {_words(error)}")


def at_reading(path: str, error: Exception) -> StoreError:
    """For an error while messages were read."""
    if isinstance(error, StoreError):
        return error
    if primary_code(error) in _DAMAGE:
        return StoreDamaged(path, "an unknown page", _words(error))
    return StoreError(f"{path} cannot be read: {_words(error)}")


def at_writing(path: str, error: Exception) -> StoreFull | StoreFailed:
    """For an error while a batch was written or the log was copied back."""
    if _is_full(path, error):
        return StoreFull(f"{path}: the disk is full ({_words(error)})")
    return StoreFailed(f"{path} cannot be written: {_words(error)}; nothing more is written until the store is opened anew")


def _is_full(path: str, error: Exception) -> bool:
    if isinstance(error, OSError):
        return is_lack_of_space(error)
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    # A quota that is used up comes as a plain failed write: SQLite looks for ENOSPC only. An fsync that failed is never taken for this.
    return code == sqlite3.SQLITE_IOERR_WRITE and lacks_space(f"{path}.probe")


def _words(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", None)
    return f"{name}: {error}" if name else f"{type(error).__name__}: {error}"
