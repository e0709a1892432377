"""Tables in segments of consecutive seqs, dropped when they are empty.

A queue that is used for days leaves as many dead rows as it had messages. Vacuuming gives their
space back only while no session holds an old snapshot, so nothing here relies on it: rows that come
with messages are kept in a table for each :data:`SHIFT` bits of their seqs, which goes whole. Rows
that stay much longer than their neighbours are moved to a table of such rows.

Owns which segments there are, which table a seq is in, and how many rows each has. Knows nothing of
what a row means, nor when a segment is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeAlias

from gateway.broker.store.postgresql.arrays import BigInts
from gateway.broker.store.postgresql.connecting import Session

#: Seqs of one segment, as bits.
SHIFT: Final = 16

#: What is kept in segments.
KINDS: Final = ("message", "owed", "redelivery", "duplicate")

_NAME: Final = re.compile(rf"({'|'.join(KINDS)})_(\d+)")

#: The number of a segment, or None for the table of those that are left of dropped ones.
Place: TypeAlias = int | None


class Segments:
    """The tables of one kind.

    :param kind: one of :data:`KINDS`.
    :param shift: see :data:`SHIFT`.
    """

    def __init__(self, kind: str, shift: int = SHIFT) -> None:
        self.kind: Final = kind
        self._shift = shift
        #: Rows of each segment, None where they have not been counted.
        self.rows: dict[int, int | None] = {}
        #: Rows that were written to each segment, and their bytes, since its space was last freed.
        #: Only of those that this process has written to.
        self.written: dict[int, tuple[int, int]] = {}
        #: Segments of which rows may have been deleted since then.
        self.deleted: set[int] = set()
        #: Whether the table of what is left may have rows.
        self.old = True
        #: The segment that no other comes behind; it is never dropped.
        self.newest = -1
        #: By segment that was begun anew: the last of its seqs whose rows were moved to those left
        #: of others.
        self.moved: dict[int, int] = {}

    def table(self, place: Place) -> str:
        """The name of its table."""
        return f"{self.kind}_{'old' if place is None else place}"

    def place(self, seq: int) -> Place:
        """Where the rows of this seq are, if there are any."""
        segment = seq >> self._shift
        return segment if segment in self.rows and seq > self.moved.get(segment, -1) else None

    def by_place(self, seqs: Collection[int]) -> Iterator[tuple[Place, Sequence[int]]]:
        """Divide seqs, at least one, by where their rows are."""
        first, last = min(seqs), max(seqs)
        segment = first >> self._shift
        if segment == last >> self._shift and not first <= self.moved.get(segment, -1) < last:
            yield self.place(first), list(seqs)
            return
        divided: dict[Place, list[int]] = {}
        for seq in seqs:
            divided.setdefault(self.place(seq), []).append(seq)
        yield from divided.items()

    def make(self, session: Session, seqs: Collection[int]) -> None:
        """Make the tables that new rows of these seqs, at least one, go to.

        In an open transaction; if that fails, load what there is anew.
        """
        for segment in range(min(seqs) >> self._shift, (max(seqs) >> self._shift) + 1):
            if segment <= self.newest or not any(seq >> self._shift == segment for seq in seqs):
                continue
            name = self.table(segment)
            session.execute(
                f"CREATE TABLE {name} (LIKE {self.table(None)} INCLUDING ALL) WITH (autovacuum_enabled = off)"
            )
            self.rows[segment] = 0
            self.newest = segment

    def places(self) -> list[Place]:
        """All places that may have rows, the table of what is left first."""
        return [*([None] if self.old else []), *sorted(self.rows)]

    def changed(self, place: Place, rows: int) -> None:
        """So many rows came, or went when negative."""
        if place is None:
            self.old = True
        elif (count := self.rows.get(place)) is not None:
            self.rows[place] = count + rows
        if rows < 0 and place is not None:
            self.deleted.add(place)

    def wrote(self, place: Place, rows: int, octets: int) -> None:
        """Rows with that many bytes were written there."""
        if place is not None:
            before = self.written.get(place, (0, 0))
            self.written[place] = before[0] + rows, before[1] + octets

    def freed(self, place: int) -> None:
        """The space of dead rows there was freed."""
        self.written.pop(place, None)
        self.deleted.discard(place)

    def anew(self, place: int, last: int | None) -> None:
        """The newest segment was emptied, and its rows were moved.

        :param last: the highest seq that was moved, None for no rows.
        """
        self.freed(place)
        self.rows[place] = 0
        if last is not None:
            self.moved[place] = last
            self.old = True

    def is_wasted(self, place: int, octets: int) -> bool:
        """Whether most of at least that many bytes written there is dead."""
        rows, (count, written) = self.rows[place], self.written.get(place, (0, 0))
        return rows is not None and written >= octets and 2 * rows < count

    def forget(self, place: int) -> None:
        """The segment was dropped."""
        del self.rows[place]
        self.moved.pop(place, None)
        self.freed(place)

    def empty(self) -> list[int]:
        """Segments that can be dropped."""
        return [
            segment for segment, rows in self.rows.items() if rows == 0 and segment < self.newest
        ]


class Tables:
    """The segments of all kinds.

    :param shift: see :data:`SHIFT`.
    """

    def __init__(self, shift: int = SHIFT) -> None:
        self._shift = shift
        self.forget()

    def forget(self) -> None:
        """Know nothing; :meth:`load` again."""
        self.messages, self.owed, self.redeliveries, self.duplicates = self.all = tuple(
            Segments(kind, self._shift) for kind in KINDS
        )

    def end(self, segment: int) -> int:
        """The first seq that comes behind a segment."""
        return (segment + 1) << self._shift

    def load(self, session: Session) -> None:
        """Find out which segments there are, and forget what was known.

        :raises psycopg.Error: as the database does.
        """
        self.forget()
        by_kind = {segments.kind: segments for segments in self.all}
        found = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema::regnamespace AND relkind = 'r'"
        )
        for (name,) in found.fetchall():
            if match := _NAME.fullmatch(name):
                segments, segment = by_kind[match[1]], int(match[2])
                segments.rows[segment] = None
                segments.deleted.add(segment)
                segments.newest = max(segments.newest, segment)
        for segments in self.all:
            segments.old = bool(
                session.execute(f"SELECT EXISTS (SELECT 1 FROM {segments.table(None)})").fetchall()[
                    0
                ][0]
            )
        messages = self.messages
        moved = session.execute(
            f"SELECT segment, (SELECT max(seq) FROM {messages.table(None)}"
            " WHERE seq >= segment << %b::int4 AND seq < (segment + 1) << %b::int4)"
            " FROM unnest(%b) AS segment",
            (self._shift, self._shift, BigInts(list(messages.rows))),
        ).fetchall()
        messages.moved = {segment: last for segment, last in moved if last is not None}
