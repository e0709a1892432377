"""Reads rows back.

Owns the statements that read, and the check of every message's checksum. Knows nothing of threads
or callbacks.

A read of many rows is one step of one statement where it can be (see
:mod:`gateway.broker.store.batch_writer` for why): SQLite joins the columns into one text each, octets
in hexadecimal. Against a busy reactor this reads 80,000 rows of 1 KiB a second where one step a row
reads 600. Large ones would cost more to spell out than a step does, and are read as they are.
"""

from __future__ import annotations

import sqlite3
import struct
from binascii import unhexlify
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from zlib import crc32

from gateway.broker.store.batch_writer import KeysStatement
from gateway.broker.store.checksums import NARROW, branch_crc, duplicate_crc
from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    IndexRow,
    RedeliveryRow,
    Row,
    StoreDamaged,
    SubscriptionRow,
)

_Row = TypeVar("_Row")

#: Rows that are read at once.
BLOCK: Final = 500

#: Octets of head and body above which a message is read by itself.
_LARGE: Final = 4096

_NARROW: Final = (
    "m.seq",
    "m.destination",
    "m.priority",
    "m.expires",
    "m.size",
    "m.persistent",
    "m.crc",
    # -1: the message has no content at all.
    "coalesce(length(c.head), -1)",
    "coalesce(length(c.body), -1)",
)
_ROWS: Final = KeysStatement(
    f"SELECT {', '.join(f'group_concat({column})' for column in _NARROW)}, "
    f"group_concat(CASE WHEN length(c.head) + length(c.body) <= {_LARGE} THEN hex(c.head) || hex(c.body) ELSE '' END, '') "
    "FROM message m LEFT JOIN content c ON c.seq = m.seq WHERE m.seq"
)
_LARGE_ROWS: Final = KeysStatement("SELECT seq, head, body FROM content WHERE seq")


def fetch(connection: sqlite3.Connection, path: str, seqs: Sequence[int]) -> list[Row]:
    """These messages in the order asked, without those that are gone.

    :raises StoreDamaged: a message's checksum is wrong, or its content is missing; names ``path``
        and the seq.
    :raises sqlite3.Error: as SQLite does.
    """
    rows: dict[int, Row] = {}
    for start in range(0, len(seqs), BLOCK):
        _fetch_block(connection, path, list(dict.fromkeys(seqs[start : start + BLOCK])), rows)
    return [rows[seq] for seq in seqs if seq in rows]


def _fetch_block(
    connection: sqlite3.Connection, path: str, seqs: list[int], rows: dict[int, Row]
) -> None:
    text, parameters = _ROWS.condition(seqs)
    found = connection.execute(text, parameters).fetchall()[0]
    if found[0] is None:
        return
    try:
        columns = [list(map(int, column.split(","))) for column in found[:-1]]
        octets = unhexlify(found[-1])
        large = _fetch_large(connection, columns)
        at = 0
        for seq, destination, priority, expires, size, persistent, crc, head_size, body_size in zip(
            *columns, strict=True
        ):
            if head_size < 0:
                raise StoreDamaged(path, f"message {seq}", "its content is missing")
            if head_size + body_size > _LARGE:
                head, body = large[seq]
            else:
                middle, end = at + head_size, at + head_size + body_size
                head, body, at = octets[at:middle], octets[middle:end], end
            if (
                crc32(
                    body,
                    crc32(
                        head, crc32(NARROW(seq, destination, priority, expires, size, persistent))
                    ),
                )
                != crc
            ):
                raise StoreDamaged(path, f"message {seq}", "its checksum is wrong")
            rows[seq] = Row(seq, destination, priority, expires, size, persistent, head, body)
    except (ValueError, KeyError, TypeError, OverflowError, struct.error) as error:
        # Columns of another type than the store writes.
        raise StoreDamaged(
            path, f"messages {min(seqs)} to {max(seqs)}", f"their content cannot be read ({error})"
        ) from error


def about(connection: sqlite3.Connection, path: str, seq: int, error: Exception) -> StoreDamaged:
    """Describe what is wrong with one message.

    Names its destination if that can be read.

    :param error: what reading it has raised.
    """
    place, what = f"message {seq}", f"it cannot be read ({error})"
    if isinstance(error, StoreDamaged):
        what = (
            error.what if error.place == place else f"{error.place} cannot be read ({error.what})"
        )
    destination = None
    with suppress(sqlite3.Error, ValueError, TypeError):
        found = connection.execute(
            "SELECT destination FROM message WHERE seq = ?", (seq,)
        ).fetchall()
        if found and isinstance(found[0][0], int):
            destination = found[0][0]
    return StoreDamaged(path, place, what, seq=seq, destination=destination)


def _fetch_large(
    connection: sqlite3.Connection, columns: list[list[int]]
) -> dict[int, tuple[bytes, bytes]]:
    """Head and body of messages whose bytes are not in the joined column."""
    seqs = [
        seq
        for seq, head_size, body_size in zip(columns[0], columns[-2], columns[-1], strict=True)
        if head_size + body_size > _LARGE
    ]
    if not seqs:
        return {}
    text, parameters = _LARGE_ROWS.condition(seqs)
    return {
        seq: (head, body) for seq, head, body in connection.execute(text, parameters).fetchall()
    }


def _blocks(connection: sqlite3.Connection, text: str, *places: int) -> Iterator[list[Any]]:
    """Rows in blocks. No statement stays open between two of them.

    :param places: of the columns that rows are ordered by, and that parameters come after.
    """
    after = [-1] * len(places)
    while rows := connection.execute(text, (*after, BLOCK)).fetchall():
        yield rows
        after = [rows[-1][place] for place in places]


def scan(connection: sqlite3.Connection) -> Iterator[list[IndexRow]]:
    """The narrow part of every message by rising seq, in blocks.

    Those that are not persistent are left out: they are still to be swept.
    """
    text = "SELECT seq, destination, priority, expires, size FROM message WHERE seq > ? AND persistent = 1 ORDER BY seq LIMIT ?"
    for rows in _blocks(connection, text, 0):
        yield list(map(IndexRow._make, rows))


def scan_owed(connection: sqlite3.Connection) -> Iterator[list[tuple[int, int]]]:
    """(subscription id, seq) by rising seq, in blocks."""
    text = "SELECT subscription, seq FROM owed WHERE (seq, subscription) > (?, ?) ORDER BY seq, subscription LIMIT ?"
    return _blocks(connection, text, 1, 0)


def scan_redeliveries(connection: sqlite3.Connection) -> Iterator[list[RedeliveryRow]]:
    """Redelivery counts by rising seq, in blocks."""
    text = "SELECT owner, seq, attempts, not_before FROM redelivery WHERE (seq, owner) > (?, ?) ORDER BY seq, owner LIMIT ?"
    for rows in _blocks(connection, text, 1, 0):
        yield list(map(RedeliveryRow._make, rows))


def scan_duplicates(connection: sqlite3.Connection, path: str) -> Iterator[list[DuplicateRow]]:
    """Remembered duplicate ids by rising seq, in blocks.

    :raises StoreDamaged: a checksum is wrong; names ``path`` and the seq.
    """
    text = "SELECT seq, destination, at, id, crc FROM duplicate WHERE seq > ? ORDER BY seq LIMIT ?"
    for found in _blocks(connection, text, 0):
        rows = []
        for *columns, crc in found:
            row = DuplicateRow._make(columns)
            if not _is_whole(duplicate_crc, row, crc):
                raise StoreDamaged(
                    path, f"duplicate id {row.seq}", "its checksum is wrong", seq=row.seq
                )
            rows.append(row)
        yield rows


def scan_branches(connection: sqlite3.Connection, path: str) -> Iterator[list[BranchRow]]:
    """Transaction branches by rising id, in blocks.

    :raises StoreDamaged: a checksum is wrong; names ``path`` and the id.
    """
    text = "SELECT id, format, gtrid, bqual, state, since, user, work, crc FROM branch WHERE id > ? ORDER BY id LIMIT ?"
    for found in _blocks(connection, text, 0):
        rows = []
        for *columns, crc in found:
            row = BranchRow._make(columns)
            if not _is_whole(branch_crc, row, crc):
                raise StoreDamaged(path, f"branch {row.id}", "its checksum is wrong")
            rows.append(row)
        yield rows


def _is_whole(sum_of: Callable[[_Row], int], row: _Row, crc: int) -> bool:
    try:
        return sum_of(row) == crc
    except (AttributeError, TypeError, struct.error):
        # Columns of another type than the store writes.
        return False


def destinations(connection: sqlite3.Connection) -> list[DestinationRow]:
    """Every destination by id."""
    rows = connection.execute(
        "SELECT id, kind, name, properties, administered FROM destination ORDER BY id"
    ).fetchall()
    return list(map(DestinationRow._make, rows))


def subscriptions(connection: sqlite3.Connection) -> list[SubscriptionRow]:
    """Every durable subscription by id."""
    rows = connection.execute(
        "SELECT id, destination, client_id, name, selector, no_local FROM subscription ORDER BY id"
    ).fetchall()
    return list(map(SubscriptionRow._make, rows))
