"""What went wrong in SQLite, in the words of the store's interface.

Owns the meaning of SQLite's result codes (https://www.sqlite.org/rescode.html). Decides nothing
about what to do then.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from gateway.broker.store.interface import StoreDamaged, StoreError, StoreFailed, StoreFull
from gateway.broker.store.reserve import is_lack_of_space, lacks_space

#: The system's or the process's trouble. What else SQLite says when it only reads is about what is
#: in the file: pages, tables, texts.
_NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_ABORT,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
    }
)
#: What reading a damaged file can raise. The sqlite3 module gives the last three for texts, and
#: error messages, that are not UTF-8, and columns of another type than the store writes give them.
AT_READING: Final = (sqlite3.Error, ValueError, TypeError, OverflowError)
_HELD: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def primary_code(error: BaseException) -> int:
    """The primary result code, or 0 when the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def at_opening(path: str, error: Exception) -> StoreError:
    """For an error while the store was opened, or read before the first batch."""
    if primary_code(error) in _HELD:
        return StoreError(f"{path} is held by another process")
    return at_reading(path, error, "opened")


def at_reading(path: str, error: Exception, what: str = "read") -> StoreError:
    """For an error while messages were read."""
    if isinstance(error, StoreError):
        return error
    if _is_damage(error):
        return StoreDamaged(path, "an unknown page", _words(error))
    return StoreError(f"{path} cannot be {what}: {_words(error)}")


def at_writing(path: str, error: Exception) -> StoreFull | StoreFailed:
    """For an error while a batch was written or the log was copied back."""
    if isinstance(error, StoreFull | StoreFailed):
        return error
    if _is_full(path, error):
        return StoreFull(f"{path}: the disk is full ({_words(error)})")
    return StoreFailed(
        f"{path} cannot be written: {_words(error)}; nothing more is written until the store is opened anew"
    )


def _is_damage(error: Exception) -> bool:
    """Whether an error at reading is about the contents of the file.

    The sqlite3 module's own errors have no code: a text is not UTF-8.
    """
    return not isinstance(error, OSError) and primary_code(error) not in _NO_DAMAGE


def _is_full(path: str, error: Exception) -> bool:
    if isinstance(error, OSError):
        return is_lack_of_space(error)
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF == sqlite3.SQLITE_FULL:
        return True
    # A quota that is used up comes as a plain failed write: SQLite looks for ENOSPC only. An fsync
    # that failed is never taken for this.
    return code == sqlite3.SQLITE_IOERR_WRITE and lacks_space(f"{path}.probe")


def _words(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", None)
    return f"{name}: {error}" if name else f"{type(error).__name__}: {error}"
