"""Statements of many rows, built once for each of a few sizes.

sqlite3 gives the interpreter lock up around every step of a statement, and waits for a busy reactor
to get it back: what costs time is the number of statements, not of rows. So there is one statement
for a run of rows whatever its length: it has room for the next size of
:data:`SIZES`, and the room that is left is filled with rows of NULLs, which the statement passes
over. Every statement is thus used again and again, and stays compiled in the connection's cache.

Owns the text of statements and their padding, and what the checksum of a row is made of. Knows no
table by name.
"""

from __future__ import annotations

import sqlite3
import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

#: Rows that a statement can have room for. A run is padded by half of its length at most.
SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

#: Compiled statements that a connection should keep: all sizes of the two big inserts, and a few of
#: everything else.
CACHED_STATEMENTS: Final = 256


#: The columns of a message that its checksum begins with, as octets: seq, destination, priority,
#: expires, size, persistent.
NARROW: Final = struct.Struct("<6q").pack
#: Those of a duplicate id: seq, destination, at.
REMEMBERED: Final = struct.Struct("<3q").pack
#: Those of a branch that are numbers: id, format, state, since, and the lengths of gtrid and bqual.
BRANCH: Final = struct.Struct("<6q").pack
#: Those of a destination that are numbers: id, kind, administered, and the lengths of name and
#: properties.
DESTINATION: Final = struct.Struct("<5q").pack
#: Those of a subscription that are numbers: id, destination, no_local, and the lengths of
#: client_id, name and selector.
SUBSCRIPTION: Final = struct.Struct("<6q").pack


class Rows:
    """A statement that takes a run of rows as ``VALUES``.

    :param before: the text up to the rows, e.g. ``INSERT OR IGNORE INTO t VALUES``. It must pass
        over a row of NULLs: by ``OR IGNORE`` and a column that is NOT NULL, or by a comparison.
    :param width: values in a row. :param after: the text after the rows.
    """

    def __init__(self, before: str, width: int, after: str = "") -> None:
        self._width = width
        row = f"({','.join('?' * width)})"
        self._texts = [f"{before} {','.join([row] * size)} {after}" for size in SIZES]

    def run(self, connection: sqlite3.Connection, values: list[Any]) -> int:
        """Execute for the rows in ``values``, which is emptied.

        The values of the rows follow one another.

        :returns: rows changed. :raises sqlite3.Error: as SQLite does.
        """
        width = self._width
        largest = SIZES[-1] * width
        changed = 0
        for start in range(0, len(values), largest):
            part = values[start : start + largest] if len(values) > largest else values
            count = len(part) // width
            place = bisect_left(SIZES, count)
            part.extend([None] * ((SIZES[place] - count) * width))
            changed += connection.execute(self._texts[place], part).rowcount
        return changed


class Keys:
    """A statement about the rows with certain integer keys.

    :param before: the text up to the condition, e.g. ``DELETE FROM t WHERE seq``.
    """

    def __init__(self, before: str) -> None:
        self._range = f"{before} BETWEEN ? AND ?"
        self._list = f"{before} IN (SELECT value FROM json_each(?))"

    def condition(self, keys: Sequence[int]) -> tuple[str, tuple[object, ...]]:
        """The statement for these keys, at least one, and its parameters.

        It uses a range when the keys have no gap.
        """
        first, last = min(keys), max(keys)
        if last - first + 1 == len(keys):
            return self._range, (first, last)
        return self._list, (f"[{','.join(map(str, keys))}]",)

    def run(self, connection: sqlite3.Connection, keys: Sequence[int]) -> int:
        """Execute for these keys, which are distinct.

        :returns: rows changed.
        :raises sqlite3.Error: as SQLite does.
        """
        text, parameters = self.condition(keys)
        return connection.execute(text, parameters).rowcount
