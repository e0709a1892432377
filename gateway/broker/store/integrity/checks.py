"""Check whether the rows of a store are what the store wrote.

The checks cover the seal of a closed store, values, checksums, orphans and contents.

The *seal* is written when a store is closed in order, as the value of ``clean``: for each table a
sum over all its rows. It is compared when the store is opened, so that a row that was changed or
lost since then is noticed at once, without reading any content.

Owns what a sound row is, and the seal. Knows nothing of pages and of SQLite's log, and changes
nothing.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeVar
from zlib import crc32

from gateway.broker.store import failures, reading
from gateway.broker.store.checksums import destination_crc, subscription_crc
from gateway.broker.store.interface import DestinationRow, StoreDamaged, SubscriptionRow

#: Sums are modulo the largest prime below 2**32, so that SQLite's integers hold them.
_PRIME: Final = 4294967291
#: The factor of a table's first column; those of the others follow from it.
_FACTOR: Final = 1540483477

#: Tables that may be large, and their columns that are numbers: SQLite sums them up. Their other
#: columns have checksums among these.
_NUMBERS: Final = {
    "message": ("seq", "destination", "priority", "expires", "size", "persistent", "crc"),
    "owed": ("seq", "subscription"),
    "redelivery": ("seq", "owner", "attempts", "not_before"),
    "duplicate": ("seq", "destination", "at", "crc"),
    "branch": ("id", "crc"),
}
#: Small tables, of which every value is read.
_VALUES: Final = {
    "sqlite_master": "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name",
    "meta": "SELECT key, value FROM meta WHERE key <> 'clean' ORDER BY key",
    "destination": "SELECT id, kind, name, properties, administered FROM destination ORDER BY id",
    "subscription": "SELECT id, destination, client_id, name, selector, no_local FROM subscription ORDER BY id",
}

_REMEDY: Final = "Restore a backup"

_Checked = TypeVar("_Checked", DestinationRow, SubscriptionRow)

#: The first version of the schema in which destinations and subscriptions have checksums.
CHECKSUMS_SINCE: Final = 4

_MOST: Final = (1 << 63) - 1


def _integers(*columns: str, low: int = 0, high: int = _MOST) -> str:
    return " AND ".join(
        [
            f"typeof({column}) = 'integer' AND {column} BETWEEN {low} AND {high}"
            for column in columns
        ]
    )


def _texts(*columns: str) -> str:
    return " AND ".join([f"typeof({column}) = 'text'" for column in columns])


#: By table: what a row is called, its key, and what is true of every row that the store has
#: written.
_SOUND: Final = {
    "destination": (
        "destination",
        "id",
        f"{_integers('id')} AND {_integers('kind', high=1)} AND {_texts('name', 'properties')} AND {_integers('administered', high=2)}",
    ),
    "subscription": (
        "subscription",
        "id",
        f"{_integers('id', 'destination')} AND {_texts('client_id', 'name', 'selector')} AND {_integers('no_local', high=1)}",
    ),
    "message": (
        "message",
        "seq",
        f"{_integers('seq', 'destination', 'expires', 'size', 'crc')} AND {_integers('priority', high=9)} "
        f"AND {_integers('persistent', high=1)}",
    ),
    "owed": ("owed row of message", "seq", _integers("seq", "subscription")),
    "redelivery": (
        "redelivery row of message",
        "seq",
        _integers("seq", "owner", "attempts", "not_before"),
    ),
}


def seal(connection: sqlite3.Connection) -> str:
    """A sum for each table over its rows, ``table=sum`` with blanks between.

    :raises sqlite3.Error: as SQLite does; also where a text is not UTF-8.
    """
    parts = []
    for table, text in _VALUES.items():
        rows = connection.execute(text).fetchall()
        parts.append(f"{table}={crc32(repr(rows).encode('utf-8', 'surrogatepass')):08x}")
    for table, columns in _NUMBERS.items():
        terms = [
            f"(({column} % {_PRIME}) * {(_FACTOR * 7**place) % (1 << 30)} % {_PRIME})"
            for place, column in enumerate(columns)
        ]
        count, total = connection.execute(
            f"SELECT count(*), sum({' + '.join(terms)}) FROM {table}"
        ).fetchall()[0]
        parts.append(f"{table}={count}:{total}")
    return " ".join(parts)


def check_seal(connection: sqlite3.Connection, path: str, sealed: str) -> None:
    """Compare the tables with the seal from when the store was closed.

    :raises StoreDamaged: names a table that has changed since.
    :raises sqlite3.Error: as SQLite does.
    """
    written = dict(part.partition("=")[::2] for part in sealed.split(" "))
    found = dict(part.partition("=")[::2] for part in seal(connection).split(" "))
    if written.keys() != found.keys():
        raise StoreDamaged(path, "table meta", "what it has of 'clean' is not what a store writes")
    for table, total in found.items():
        if written[table] != total:
            raise StoreDamaged(
                path,
                f"table {table}",
                "its rows are not those that were there when the store was closed",
            )


def check_values(connection: sqlite3.Connection, path: str) -> None:
    """Check the type and range of every number and text, not contents.

    :raises StoreDamaged: names a row.
    :raises sqlite3.Error: as SQLite does.
    """
    administered = connection.execute(
        "SELECT 1 FROM pragma_table_info('destination') WHERE name = 'administered'"
    ).fetchall()
    for table, (what, key, condition) in _SOUND.items():
        if not administered:
            # A store of the first version.
            condition = condition.replace("administered", "0")
        for found in connection.execute(
            f"SELECT {key} FROM {table} WHERE NOT ({condition}) LIMIT 1"
        ).fetchall():
            raise StoreDamaged(
                path,
                f"{what} {found[0]}",
                f"a column of table {table} has a value that the store never writes",
            )


def changed(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """List destinations and subscriptions that the store did not write so.

    Each is a place and a sentence.

    A row's checksum tells that it was changed. The sum of all checksums, in the table ``meta``,
    tells that a row was lost. A store of an earlier version has neither.

    :raises sqlite3.Error: as SQLite does; also where a text is not UTF-8.
    """
    if connection.execute("PRAGMA user_version").fetchall()[0][0] < CHECKSUMS_SINCE:
        return
    yield from _changed(
        connection, "destination", reading.destinations(connection), destination_crc
    )
    yield from _changed(
        connection, "subscription", reading.subscriptions(connection), subscription_crc
    )


def _changed(
    connection: sqlite3.Connection,
    table: str,
    rows: list[_Checked],
    checksum: Callable[[_Checked], int],
) -> Iterator[tuple[str, str]]:
    written = dict(connection.execute(f"SELECT id, crc FROM {table}").fetchall())
    for row in rows:
        try:
            whole = checksum(row) == written[row.id]
        except (AttributeError, TypeError, struct.error):
            # Columns of another type than the store writes.
            whole = False
        if not whole:
            yield (
                f"{table} {row.id}",
                f"its checksum is wrong: this row of table {table} is not as the store wrote it. {_REMEDY}",
            )
    expected = dict(
        connection.execute("SELECT key, value FROM meta WHERE key = ?", (f"{table}s",)).fetchall()
    ).get(f"{table}s")
    total = sum([crc for crc in written.values() if isinstance(crc, int)])
    if not isinstance(expected, int):
        yield "table meta", f"it has no '{table}s' that a store writes. {_REMEDY}"
    elif total != expected:
        yield (
            f"table {table}",
            f"rows are missing, or are not those written last: their checksums add up to {total}, expected {expected}. {_REMEDY}",
        )


def orphans(
    connection: sqlite3.Connection,
    sent: Collection[int] = (),
    taken: Collection[tuple[int, int]] = (),
) -> Iterator[tuple[str, str]]:
    """List rows that refer to missing rows, the first 100 of each kind.

    Each is a place and a sentence.

    :param sent: seqs of messages that prepared branches have sent, and
    :param taken: owner and seq of those they have acknowledged.
    :raises sqlite3.Error: as SQLite does.
    """
    for seq, destination in connection.execute(
        "SELECT seq, destination FROM message WHERE persistent = 1 AND destination NOT IN (SELECT id FROM destination) LIMIT 100"
    ):
        yield f"message {seq}", f"its destination, row {destination}, is missing"
    for number, destination in connection.execute(
        "SELECT id, destination FROM subscription WHERE destination NOT IN (SELECT id FROM destination) LIMIT 100"
    ):
        yield f"subscription {number}", f"its destination, row {destination}, is missing"
    for number, destination in connection.execute(
        "SELECT id, destination FROM subscription WHERE destination IN (SELECT id FROM destination WHERE kind = 0) LIMIT 100"
    ):
        yield (
            f"subscription {number}",
            f"its destination, row {destination}, is a queue; a topic was expected",
        )
    for seq, subscription, destination in connection.execute(
        "SELECT owed.seq, subscription, destination FROM owed JOIN message ON message.seq = owed.seq "
        "WHERE destination IN (SELECT id FROM destination WHERE kind = 0) LIMIT 100"
    ):
        yield (
            f"owed row of message {seq}",
            f"subscription {subscription} is owed it, and its destination, row {destination}, is a queue",
        )
    for seq, subscription in connection.execute(
        "SELECT seq, subscription FROM owed WHERE subscription NOT IN (SELECT id FROM subscription) LIMIT 100"
    ):
        if (subscription, seq) not in taken:
            yield f"owed row of message {seq}", f"its subscription, row {subscription}, is missing"
    for seq, subscription in connection.execute(
        "SELECT seq, subscription FROM owed WHERE NOT EXISTS (SELECT 1 FROM message WHERE message.seq = owed.seq) LIMIT 100"
    ):
        yield (
            f"owed row of message {seq}",
            f"the message is missing, and subscription {subscription} is owed it",
        )
    for (seq,) in connection.execute(
        "SELECT seq FROM content WHERE seq >= (SELECT value FROM meta WHERE key = 'sweep') "
        "AND NOT EXISTS (SELECT 1 FROM message WHERE message.seq = content.seq) LIMIT 100"
    ):
        yield f"content {seq}", "the message it belongs to is missing"
    for seq in sent:
        if not connection.execute("SELECT 1 FROM message WHERE seq = ?", (seq,)).fetchall():
            yield f"message {seq}", "it is missing, and a prepared branch has sent it"


class Contents:
    """Reads all contents, a few at a time, and checks them.

    Contents are compared with their checksums, and with their messages in both directions.

    :param path: the database, for errors.
    :param below: the first seq that is not looked at; contents that come later are checked when
        they are read.

    :param path: the database, for errors.
    :param below: the first seq that is not looked at; contents that come later are checked when
        they are read.
    """

    #: Octets of messages, and messages, in one step.
    _OCTETS: Final = 1 << 20
    _COUNT: Final = 500

    def __init__(self, connection: sqlite3.Connection, path: str, below: int) -> None:
        self._connection = connection
        self._path = path
        self._below = below
        self._after = -1
        #: Messages looked at.
        self.count = 0

    def step(self) -> list[StoreDamaged] | None:
        """Look at some.

        :returns: what is wrong with them, each with its seq and, where it is known, its
            destination; None when all were looked at.
        :raises sqlite3.Error: as SQLite does, where it is not about one row.
        """
        connection, after = self._connection, self._after
        if after >= self._below - 1:
            return None
        rows = connection.execute(
            "SELECT seq, size FROM message WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?",
            (after, self._below, self._COUNT),
        ).fetchall()
        octets, seqs = 0, []
        for seq, size in rows:
            seqs.append(seq)
            octets += size
            if octets > self._OCTETS:
                break
        last = (
            seqs[-1]
            if seqs and (len(seqs) < len(rows) or len(rows) == self._COUNT)
            else self._below - 1
        )
        self._after = last
        self.count += len(seqs)
        found = damaged(connection, self._path, seqs)
        try:
            alone = connection.execute(
                "SELECT seq FROM content WHERE seq > ? AND seq <= ? "
                "AND NOT EXISTS (SELECT 1 FROM message WHERE message.seq = content.seq)",
                (after, last),
            ).fetchall()
        except failures.AT_READING:
            if not found:
                raise
            # That is known already, by its messages.
            alone = []
        for (seq,) in alone:
            found.append(
                StoreDamaged(
                    self._path, f"content {seq}", "the message it belongs to is missing", seq=seq
                )
            )
        return found


def damaged(connection: sqlite3.Connection, path: str, seqs: list[int]) -> list[StoreDamaged]:
    """Read these messages and collect what is wrong.

    :returns: one error for each message that is not whole.
    """
    if not seqs:
        return []
    try:
        reading.fetch(connection, path, seqs)
        return []
    except (StoreDamaged, *failures.AT_READING) as error:
        if len(seqs) > 1:
            middle = len(seqs) // 2
            return damaged(connection, path, seqs[:middle]) + damaged(
                connection, path, seqs[middle:]
            )
        return [reading.about(connection, path, seqs[0], error)]
