"""Maintains the tables between commits: drops segments, frees space.

Owns when that is due and how much is done at a time. Everything here is called on the store's
thread and raises what the database raises; what that means is the store's business.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Final

import psycopg

from gateway.broker.store.postgresql.connecting import Session
from gateway.broker.store.postgresql.reserve import Reserve
from gateway.broker.store.postgresql.segments import SHIFT, Segments, Tables
from gateway.broker.store.postgresql.vacuum import Vacuum
from gateway.broker.store.postgresql.writer import Sent, Transactions

#: Seconds between two looks at the segments while there is always something else to do.
_LOOK_SECONDS: Final = 1.0
#: A segment is sparse, and what is left of it is moved, when one of 16 seqs is; and no more octets
#: of messages than this.
_SPARSE: Final = 4
_MOVED_OCTETS: Final = 16 << 20
#: Bytes of the newest segment from which on its few rows are moved instead of another vacuum.
_UNVACUUMED_OCTETS: Final = 256 << 20
#: Bytes written to the newest segment after which the space of its dead rows is freed.
_WASTED_OCTETS: Final = 64 << 20


class Upkeep:
    """The care of the tables of an open store.

    :param vacuum: of these tables.
    :param reserve: for when there is no room.
    :param shift: of the segments.
    """

    def __init__(
        self,
        session: Session,
        transactions: Transactions,
        tables: Tables,
        vacuum: Vacuum,
        reserve: Reserve,
        shift: int = SHIFT,
    ) -> None:
        self._session = session
        self._transactions = transactions
        self._tables = tables
        self._vacuum = vacuum
        #: What it was begun for last.
        self._vacuumed: tuple[Segments, int] | None = None
        self._sparse = 1 << max(shift - _SPARSE, 0)
        self._reserve = reserve
        self._looked = monotonic()

    def busy(self) -> None:
        """After each commit; does a small step now and then."""
        if monotonic() - self._looked >= _LOOK_SECONDS:
            self.step()

    def step(self) -> bool:
        """Do one small piece of what is due. :returns: whether there may be more."""
        self._looked = monotonic()
        self._transactions.turn()
        self._reserve.keep()
        self._look_at_vacuum()
        if self._free_newest(_WASTED_OCTETS):
            return True
        return self._drop_next()

    def _drop_next(self) -> bool:
        for segments in self._tables.all:
            for segment in sorted(segments.rows)[:-1]:
                rows = segments.rows[segment]
                if rows is None:
                    self._count(segments, segment)
                    return True
                if rows == 0 or self._is_sparse(segments, segment):
                    return self._drop(segments, segment)
        return False

    def _count(self, segments: Segments, segment: int) -> None:
        found = self._session.execute(f"SELECT count(*) FROM {segments.table(segment)}")
        segments.rows[segment] = found.fetchall()[0][0]

    def _drop(self, segments: Segments, segment: int) -> bool:
        """Drop a segment, whose rows are moved to those left of others.

        :returns: whether it could be; another session may be reading it.
        """
        name = segments.table(segment)
        moved: list[Sent] = []

        def drop(session: Session) -> None:
            session.execute("SET LOCAL lock_timeout = '50ms'")
            session.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            # Also where there should be no row: the number of rows is not what data depend on.
            moved.append(
                session.execute(f"INSERT INTO {segments.table(None)} SELECT * FROM {name}")
            )
            session.execute(f"DROP TABLE {name}")

        try:
            self._transactions.run(drop)
        except psycopg.errors.LockNotAvailable:
            return False
        segments.forget(segment)
        segments.old = segments.old or moved[0].rowcount > 0
        return True

    def _free_newest(self, octets: int) -> bool:
        """Free the space of dead messages in the newest segment.

        It is not dropped.

        :param octets: unless fewer bytes were written since the last time.
        """
        messages = self._tables.messages
        newest = messages.newest
        if newest not in messages.rows or not messages.is_wasted(newest, octets):
            return False
        if messages.rows[newest] == 0 and self._empty(messages, newest):
            return True
        if self._is_unvacuumed(messages, newest):
            return self._begin_anew(messages, newest)
        self._begin_vacuum(messages, newest)
        return False

    def _is_unvacuumed(self, segments: Segments, segment: int) -> bool:
        """Whether vacuums have freed little of a segment: a snapshot is held.

        And the rows that are left are few.
        """
        name = segments.table(segment)
        ((octets, left),) = self._session.execute(
            f"SELECT pg_table_size(%b::regclass), (SELECT coalesce(sum(size), 0)::int8 FROM {name})",
            (name,),
        ).fetchall()
        return bool(octets >= _UNVACUUMED_OCTETS and left <= _MOVED_OCTETS)

    def _begin_anew(self, segments: Segments, segment: int) -> bool:
        """Truncate the newest segment, after its rows were moved.

        :returns: whether it could be; another session may be reading it.
        """
        name = segments.table(segment)
        try:
            with self._session.transaction():
                self._session.execute("SET LOCAL lock_timeout = '50ms'")
                self._transactions.prove()
                self._session.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
                ((last_moved,),) = self._session.execute(f"SELECT max(seq) FROM {name}").fetchall()
                self._session.execute(f"INSERT INTO {segments.table(None)} SELECT * FROM {name}")
                self._session.execute(f"TRUNCATE {name}")
        except psycopg.errors.LockNotAvailable:
            return False
        segments.anew(segment, last_moved)
        return True

    def _empty(self, segments: Segments, segment: int) -> bool:
        """Truncate a segment without rows. Returns whether it could be."""
        name = segments.table(segment)
        try:
            with self._session.transaction():
                self._session.execute("SET LOCAL lock_timeout = '50ms'")
                self._transactions.prove()
                self._session.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
                found = self._session.execute(f"SELECT EXISTS (SELECT 1 FROM {name})").fetchall()
                if found[0][0]:
                    return False
                self._session.execute(f"TRUNCATE {name}")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DiskFull):
            return False
        segments.freed(segment)
        return True

    def _begin_vacuum(self, segments: Segments, segment: int) -> None:
        """Begin to free the space of dead rows, unless a vacuum runs."""
        if self._vacuum.can_begin:
            # Before: rows that are deleted meanwhile are for the next one.
            segments.freed(segment)
            self._vacuumed = segments, segment
            self._vacuum.begin(segments.table(segment))

    def _look_at_vacuum(self) -> None:
        """Have one that has failed be tried again when there is no room."""
        if self._vacuum.has_failed() and self._vacuumed is not None:
            segments, segment = self._vacuumed
            if segment in segments.rows:
                segments.deleted.add(segment)

    def _is_sparse(self, segments: Segments, segment: int) -> bool:
        """Whether few rows are left of a segment, and moving them is little work."""
        # The one before the newest is still being consumed.
        rows = segments.rows[segment]
        if rows is None or rows > self._sparse or segment >= segments.newest - 1:
            return False
        if segments is not self._tables.messages:
            return True
        found = self._session.execute(f"SELECT sum(size) FROM {segments.table(segment)}")
        return bool((found.fetchall()[0][0] or 0) <= _MOVED_OCTETS)

    def free(self) -> None:
        """Free what can be while there is no room: dropping and reuse need none."""
        with suppress(psycopg.errors.DiskFull):
            self._transactions.turn()
        self._look_at_vacuum()
        for segments in self._tables.all:
            for segment in sorted(segments.rows):
                if segments.rows[segment] is None:
                    self._count(segments, segment)
                if segments.rows[segment] == 0 and segment != segments.newest:
                    self._drop(segments, segment)
                elif segment in segments.deleted and not (
                    segments.rows[segment] == 0 and self._empty(segments, segment)
                ):
                    self._begin_vacuum(segments, segment)
