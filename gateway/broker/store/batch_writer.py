"""Write a batch: one statement per kind of change, in one transaction.

sqlite3 gives the interpreter lock up around every step of a statement, and waits for a busy reactor
to get it back: what costs time is the number of statements, not of rows. So there is one statement
for a run of rows whatever its length: it has room for the next size of
:data:`SIZES`, and the room that is left is filled with rows of NULLs, which the statement passes
over. Every statement is thus used again and again, and stays compiled in the connection's cache.

Owns the order of the changes and their statements with the padding. Knows nothing of threads, callbacks or what to do when a statement fails.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Final

from gateway.broker.store.checksums import (
    branch_crc,
    destination_crc,
    duplicate_crc,
    message_crcs,
    subscription_crc,
)
from gateway.broker.store.interface import Batch
from gateway.instance import crashpoints

#: Rows that a statement can have room for. A run is padded by half of its length at most.
SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

#: Compiled statements that a connection should keep: all sizes of the two big inserts, and a few of
#: everything else.
CACHED_STATEMENTS: Final = 256


class RowsStatement:
    """A statement that takes a run of rows as ``VALUES``.

    :param before: the text up to the rows, e.g. ``INSERT OR IGNORE INTO t VALUES``. It must pass
        over a row of NULLs: by ``OR IGNORE`` and a column that is NOT NULL, or by a comparison.
    :param width: values in a row.
    :param after: the text after the rows.
    """

    def __init__(self, before: str, width: int, after: str = "") -> None:
        self._width = width
        row = f"({','.join('?' * width)})"
        self._texts = [f"{before} {','.join([row] * size)} {after}" for size in SIZES]

    def run(self, connection: sqlite3.Connection, values: list[Any]) -> int:
        """Execute for the rows in ``values``, which is emptied.

        The values of the rows follow one another.

        :returns: rows changed.
        :raises sqlite3.Error: as SQLite does.
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


class KeysStatement:
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


class _Summed:
    """A table that seldom changes, with checksums of its rows.

    Each row has a checksum; their sum is in the table ``meta``.

    :param key: the sum's, in ``meta``.
    :param columns: all columns, first ``id`` and last ``crc``.
    """

    def __init__(self, table: str, key: str, columns: tuple[str, ...]) -> None:
        self._key = key
        self._sum = KeysStatement(f"SELECT coalesce(sum(crc), 0) FROM {table} WHERE id")
        self._removed = KeysStatement(f"DELETE FROM {table} WHERE id")
        self._rows = RowsStatement(
            f"INSERT OR IGNORE INTO {table}({', '.join(columns)}) VALUES",
            len(columns),
            f"ON CONFLICT(id) DO UPDATE SET {', '.join([f'{column} = excluded.{column}' for column in columns[1:]])}",
        )

    def write(
        self,
        connection: sqlite3.Connection,
        rows: Sequence[tuple[int, *tuple[int | str, ...]]],
        removed: Collection[int],
    ) -> None:
        """Write rows, then remove rows by id, and correct the sum.

        :param rows: with their checksums.
        :raises sqlite3.Error: as SQLite does.
        """
        keys = list(dict.fromkeys([*[row[0] for row in rows], *removed]))
        text, parameters = self._sum.condition(keys)
        before = connection.execute(text, parameters).fetchall()[0][0]
        if rows:
            self._rows.run(connection, list(chain.from_iterable(rows)))
        if removed:
            self._removed.run(connection, list(removed))
        after = connection.execute(text, parameters).fetchall()[0][0]
        connection.execute(
            "UPDATE meta SET value = value + ? WHERE key = ?", (after - before, self._key)
        )


_DESTINATIONS: Final = _Summed(
    "destination", "destinations", ("id", "kind", "name", "properties", "administered", "crc")
)
_SUBSCRIPTIONS: Final = _Summed(
    "subscription",
    "subscriptions",
    ("id", "destination", "client_id", "name", "selector", "no_local", "crc"),
)
_MESSAGES: Final = RowsStatement(
    "INSERT OR IGNORE INTO message(seq, destination, priority, expires, size, persistent, crc) VALUES",
    7,
)
_CONTENTS: Final = RowsStatement("INSERT OR IGNORE INTO content(seq, head, body) VALUES", 3)
_OWED: Final = RowsStatement("INSERT OR IGNORE INTO owed(subscription, seq) VALUES", 2)
# Columns are selected from the rows, because with bare VALUES on the right of IN SQLite reads the
# whole table.
_SETTLED: Final = RowsStatement(
    "DELETE FROM owed WHERE (subscription, seq) IN (SELECT column1, column2 FROM (VALUES", 2, "))"
)
_SETTLED_REDELIVERIES: Final = RowsStatement(
    "DELETE FROM redelivery WHERE (owner, seq) IN (SELECT column1, column2 FROM (VALUES", 2, "))"
)
_REDELIVERIES: Final = RowsStatement(
    "INSERT OR IGNORE INTO redelivery(owner, seq, attempts, not_before) VALUES",
    4,
    "ON CONFLICT(seq, owner) DO UPDATE SET attempts = excluded.attempts, not_before = excluded.not_before",
)
_DELETED_MESSAGES: Final = KeysStatement("DELETE FROM message WHERE seq")
_DELETED_CONTENTS: Final = KeysStatement("DELETE FROM content WHERE seq")
_DELETED_REDELIVERIES: Final = KeysStatement("DELETE FROM redelivery WHERE seq")
# What transactions still held of a subscription when it was removed. This reads the whole table,
# and is rare.
_REMOVED_OWED: Final = KeysStatement("DELETE FROM owed WHERE subscription")
_DUPLICATES: Final = RowsStatement(
    "INSERT OR IGNORE INTO duplicate(seq, destination, at, crc, id) VALUES", 5
)
_FORGOTTEN: Final = KeysStatement("DELETE FROM duplicate WHERE seq")
_BRANCHES: Final = RowsStatement(
    "INSERT OR IGNORE INTO branch(id, format, gtrid, bqual, state, since, user, work, crc) VALUES",
    9,
    "ON CONFLICT(id) DO UPDATE SET state = excluded.state, since = excluded.since, work = excluded.work, crc = excluded.crc",
)
_REMOVED_BRANCHES: Final = KeysStatement("DELETE FROM branch WHERE id")


class SeqUsedTwice(Exception):
    """An insert names a message that the store already has.

    The caller is at fault; nothing of the batch may stay.
    """


class BatchWriter:
    """Writes batches over one connection, which must be in autocommit mode."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # Redelivery counts are rare: without any, settling and deleting need not
        # look for them.
        self._redeliveries: bool = (
            connection.execute("SELECT EXISTS (SELECT 1 FROM redelivery)").fetchall()[0][0] != 0
        )

    def write(self, batch: Batch) -> None:
        """Make the batch durable.

        When this raises, the transaction may still be open.

        :raises sqlite3.Error: as SQLite does.
        :raises SeqUsedTwice: see there.
        """
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        if batch.destinations or batch.removed_destinations:
            destinations = [(*row, destination_crc(row)) for row in batch.destinations.values()]
            _DESTINATIONS.write(connection, destinations, batch.removed_destinations)
        if batch.subscriptions or batch.removed_subscriptions:
            subscriptions = [(*row, subscription_crc(row)) for row in batch.subscriptions.values()]
            _SUBSCRIPTIONS.write(connection, subscriptions, batch.removed_subscriptions)
        if batch.inserts:
            self._insert(batch)
        if batch.owed:
            _OWED.run(connection, list(chain.from_iterable(batch.owed)))
        if batch.redeliveries:
            self._redeliveries = True
            _REDELIVERIES.run(connection, list(chain.from_iterable(batch.redeliveries.values())))
        if batch.settled:
            _SETTLED.run(connection, list(chain.from_iterable(batch.settled)))
            if self._redeliveries:
                _SETTLED_REDELIVERIES.run(connection, list(chain.from_iterable(batch.settled)))
        if batch.deletes:
            keys = list(batch.deletes)
            _DELETED_MESSAGES.run(connection, keys)
            _DELETED_CONTENTS.run(connection, keys)
            if self._redeliveries:
                _DELETED_REDELIVERIES.run(connection, keys)
        if batch.removed_subscriptions:
            _REMOVED_OWED.run(connection, list(batch.removed_subscriptions))
        if batch.duplicates:
            self._remember(batch)
        if batch.forgotten:
            _FORGOTTEN.run(connection, list(batch.forgotten))
        if batch.branches:
            _BRANCHES.run(
                connection,
                list(
                    chain.from_iterable(
                        [(*row, branch_crc(row)) for row in batch.branches.values()]
                    )
                ),
            )
        if batch.removed_branches:
            _REMOVED_BRANCHES.run(connection, list(batch.removed_branches))
        if batch.reserved:
            connection.execute(
                "UPDATE meta SET value = max(value, ?) WHERE key = 'next_seq'", (batch.reserved,)
            )
        crashpoints.hit("store.before-commit")
        connection.execute("COMMIT")

    def forget_redeliveries(self) -> None:
        """Look again whether there are redelivery counts.

        Call it in idle moments, after counts were deleted.
        """
        if self._redeliveries:
            found = self._connection.execute("SELECT EXISTS (SELECT 1 FROM redelivery)").fetchall()
            self._redeliveries = found[0][0] != 0

    def _remember(self, batch: Batch) -> None:
        values: list[int | bytes] = []
        for row in batch.duplicates.values():
            values += (row.seq, row.destination, row.at, duplicate_crc(row), row.id)
        if _DUPLICATES.run(self._connection, values) != len(batch.duplicates):
            raise SeqUsedTwice(
                f"of {len(batch.duplicates)} duplicate ids from seq {min(batch.duplicates)} on some are in the store already"
            )

    def _insert(self, batch: Batch) -> None:
        # Transposed twice, because everything here then runs in C: the reactor wants the
        # interpreter lock.
        seqs, destinations, priorities, expiries, sizes, persistent, heads, bodies = zip(
            *batch.inserts.values(), strict=True
        )
        sums = message_crcs(
            seqs, destinations, priorities, expiries, sizes, persistent, heads, bodies
        )
        narrow = zip(seqs, destinations, priorities, expiries, sizes, persistent, sums, strict=True)
        count = len(seqs)
        messages = _MESSAGES.run(self._connection, list(chain.from_iterable(narrow)))
        crashpoints.hit("store.mid-batch")
        contents = _CONTENTS.run(
            self._connection, list(chain.from_iterable(zip(seqs, heads, bodies, strict=True)))
        )
        # OR IGNORE is there for the padding; a message passed over for any other reason must not go
        # unnoticed.
        if messages != count or contents != count:
            raise SeqUsedTwice(
                f"of {count} messages from seq {seqs[0]} to {seqs[-1]} some are in the store already"
            )
