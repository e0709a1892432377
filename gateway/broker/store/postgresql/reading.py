"""Reads rows back.

Owns the statements that read, and the check of every row's checksum. Knows nothing of threads or
callbacks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar
from zlib import crc32

from gateway.broker.store.checksums import (
    NARROW,
    branch_crc,
    destination_crc,
    duplicate_crc,
    subscription_crc,
)
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
from gateway.broker.store.postgresql.connecting import Session
from gateway.broker.store.postgresql.segments import Place, Segments, Tables
from gateway.broker.store.postgresql.writer import keys

#: Rows in a block.
BLOCK: Final = 500
_HIGHEST_PRIORITY: Final = 9

_Row = TypeVar("_Row", bound=tuple[Any, ...])


class Reader:
    """Reads what is committed.

    :param tables: the segments there are.
    :param described: where the database is, for errors.
    """

    def __init__(self, session: Session, tables: Tables, described: str) -> None:
        self._session = session
        self._tables = tables
        self._described = described

    def fetch(self, seqs: Sequence[int]) -> list[Row]:
        """These messages in the order asked, without those that are gone.

        :raises StoreDamaged: a message's checksum is wrong; names its seq.
        :raises psycopg.Error: as the database does.
        """
        rows: dict[int, Row] = {}
        messages = self._tables.messages
        for place, some in messages.by_place(seqs) if seqs else ():
            condition, parameters = keys(list(dict.fromkeys(some)))
            found = self._ask(
                "SELECT seq, destination, priority, expires, size, persistent, head, body, crc "
                f"FROM {messages.table(place)} WHERE seq {condition}",
                parameters,
            )
            for *values, crc in found:
                row = Row._make(values)
                if crc32(row.body, crc32(row.head, crc32(NARROW(*values[:6])))) != crc:
                    raise StoreDamaged(
                        self._described,
                        f"message {row.seq}",
                        "its checksum is wrong",
                        seq=row.seq,
                        destination=row.destination,
                    )
                rows[row.seq] = row
        return [rows[seq] for seq in seqs if seq in rows]

    def damaged(self, seqs: Sequence[int]) -> list[StoreDamaged]:
        """Read these messages and return an error for each that is damaged.

        :raises psycopg.Error: as the database does.
        """
        try:
            self.fetch(seqs)
        except StoreDamaged as error:
            if len(seqs) == 1:
                return [error]
            middle = len(seqs) // 2
            return self.damaged(seqs[:middle]) + self.damaged(seqs[middle:])
        return []

    def sizes(self, place: Place, after: int, below: int, most: int) -> list[tuple[int, int]]:
        """(seq, size) of the next messages of one table, by rising seq.

        :param after: the last seq before them.
        :param below: the first seq that is too high.
        :param most: how many at most.
        :raises psycopg.Error: as the database does.
        """
        found = self._ask(
            f"SELECT seq, size FROM {self._tables.messages.table(place)} "
            "WHERE seq > %b AND seq < %b ORDER BY seq LIMIT %b",
            (after, below, most),
        )
        return [(seq, size) for seq, size in found]

    def sound(self, block: list[IndexRow]) -> list[IndexRow]:
        """Return the block if each value is one that a store writes.

        The checksum is over head and body, too, which a scan does not read.

        :raises StoreDamaged: names the seq.
        """
        _, destinations, priorities, expiries, sizes = zip(*block, strict=True)
        if (
            min(destinations) < 0
            or min(priorities) < 0
            or max(priorities) > _HIGHEST_PRIORITY
            or min(expiries) < 0
            or min(sizes) < 0
        ):
            row = next(row for row in block if min(row[1:]) < 0 or row.priority > _HIGHEST_PRIORITY)
            raise StoreDamaged(
                self._described,
                f"message {row.seq}",
                "a column has a value that the store never writes",
                seq=row.seq,
                destination=row.destination,
            )
        return block

    def scan(self) -> Iterator[list[IndexRow]]:
        """The narrow part of every message by rising seq, in blocks."""
        text = "SELECT seq, destination, priority, expires, size FROM {} ORDER BY seq"
        return _blocks(map(IndexRow._make, self._by_seq(self._tables.messages, text)))

    def scan_owed(self) -> Iterator[list[tuple[int, int]]]:
        """(subscription id, seq) by rising seq, in blocks."""
        found = self._by_seq(
            self._tables.owed, "SELECT seq, subscription FROM {} ORDER BY seq, subscription"
        )
        return _blocks((subscription, seq) for seq, subscription in found)

    def scan_redeliveries(self) -> Iterator[list[RedeliveryRow]]:
        """Redelivery counts by rising seq, in blocks."""
        text = "SELECT seq, owner, attempts, not_before FROM {} ORDER BY seq, owner"
        found = self._by_seq(self._tables.redeliveries, text)
        return _blocks(
            RedeliveryRow(owner, seq, attempts, not_before)
            for seq, owner, attempts, not_before in found
        )

    def scan_duplicates(self) -> Iterator[list[DuplicateRow]]:
        """Remembered duplicate ids by rising seq, in blocks.

        :raises StoreDamaged: a checksum is wrong; names the seq.
        """
        text = "SELECT seq, destination, at, id, crc FROM {} ORDER BY seq"
        found = self._by_seq(self._tables.duplicates, text)
        return _blocks(self._checked(found, DuplicateRow._make, duplicate_crc, "duplicate id"))

    def scan_branches(self) -> Iterator[list[BranchRow]]:
        """Transaction branches by rising id, in blocks.

        :raises StoreDamaged: a checksum is wrong; names the id.
        """
        found = self._ask(
            "SELECT id, format, gtrid, bqual, state, since, username, work, crc FROM branch ORDER BY id"
        )

        def made(values: Sequence[Any]) -> BranchRow:
            id, format_id, gtrid, bqual, state, since, user, work = values
            return BranchRow(id, format_id, gtrid, bqual, state, since, user.decode(), work)

        return _blocks(self._checked(found, made, branch_crc, "branch"))

    def destinations(self) -> list[DestinationRow]:
        """Every destination by id.

        :raises StoreDamaged: a checksum is wrong; names the id.
        """
        found = self._ask(
            "SELECT id, kind, name, properties, administered, crc FROM destination ORDER BY id"
        )

        def made(values: Sequence[Any]) -> DestinationRow:
            id, kind, name, properties, administered = values
            return DestinationRow(id, kind, name.decode(), properties.decode(), administered)

        return list(self._checked(found, made, destination_crc, "destination"))

    def subscriptions(self) -> list[SubscriptionRow]:
        """Every durable subscription by id.

        :raises StoreDamaged: a checksum is wrong; names the id.
        """
        found = self._ask(
            "SELECT id, destination, client_id, name, selector, no_local, crc FROM subscription ORDER BY id"
        )

        def made(values: Sequence[Any]) -> SubscriptionRow:
            id, destination, client_id, name, selector, no_local = values
            return SubscriptionRow(
                id, destination, client_id.decode(), name.decode(), selector.decode(), no_local
            )

        return list(self._checked(found, made, subscription_crc, "subscription"))

    def _ask(self, text: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._session.execute(text, parameters, binary=True).fetchall()

    def _source(self, segments: Segments, place: Place) -> str:
        """What the rows of a segment are selected from."""
        return segments.table(place)

    def _all(self, text: str) -> Iterable[tuple[Any, ...]]:
        """What may be many rows: a whole segment."""
        return self._ask(text)

    def _by_seq(self, segments: Segments, text: str) -> Iterator[tuple[Any, ...]]:
        """The rows of all segments, in order."""

        def of(place: Place) -> Iterable[tuple[Any, ...]]:
            return self._all(text.format(self._source(segments, place)))

        left = iter(of(None)) if segments.old else iter(())
        rows = (row for place in sorted(segments.rows) for row in of(place))
        return heapq.merge(left, rows)

    def _checked(
        self,
        found: Iterable[tuple[Any, ...]],
        made: Callable[[Sequence[Any]], _Row],
        sum_of: Callable[[_Row], int],
        what: str,
    ) -> Iterator[_Row]:
        for *values, crc in found:
            try:
                row = made(values)
            except UnicodeDecodeError as error:
                raise StoreDamaged(self._described, f"{what} {values[0]}", str(error)) from error
            if sum_of(row) != crc:
                raise StoreDamaged(
                    self._described,
                    f"{what} {values[0]}",
                    "its checksum is wrong",
                    seq=row.seq if isinstance(row, DuplicateRow) else None,
                )
            yield row


def _blocks(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    rows = iter(rows)
    while block := list(islice(rows, BLOCK)):
        yield block
