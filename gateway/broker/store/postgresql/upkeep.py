"""Maintains the tables between commits: drops empty and sparse segments.

Owns when that is due and how much is done at a time. Everything here is called on the store's
thread and raises what the database raises; what that means is the store's business.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

import psycopg

from gateway.broker.store.postgresql.connecting import Session
from gateway.broker.store.postgresql.segments import SHIFT, Segments, Tables
from gateway.broker.store.postgresql.writer import Transactions

#: Seconds between two looks at the segments while there is always something else to do.
_LOOK_SECONDS: Final = 1.0
#: A segment is sparse, and what is left of it is moved, when one of 16 seqs is; and no more octets
#: of messages than this.
_SPARSE: Final = 4
_MOVED_OCTETS: Final = 16 << 20
#: Octets that are written to see whether there is room again.
_PROBE: Final = 8 << 20


class Upkeep:
    """The care of the tables of an open store.

    :param shift: of the segments.
    """

    def __init__(
        self, session: Session, transactions: Transactions, tables: Tables, shift: int = SHIFT
    ) -> None:
        self._session = session
        self._transactions = transactions
        self._tables = tables
        self._sparse = 1 << max(shift - _SPARSE, 0)
        self._looked = monotonic()

    def busy(self) -> None:
        """After each commit; does a small step now and then."""
        if monotonic() - self._looked >= _LOOK_SECONDS:
            self.step()

    def step(self) -> bool:
        """Do one small piece of what is due. :returns: whether there may be more."""
        self._looked = monotonic()
        self._transactions.turn()
        for segments in self._tables.all:
            for segment in sorted(segments.rows)[:-1]:
                rows = segments.rows[segment]
                if rows is None:
                    self._count(segments, segment)
                    return True
                if rows == 0 or self._is_sparse(segments, segment):
                    return self._drop(segments, segment, left=rows > 0)
        return False

    def _count(self, segments: Segments, segment: int) -> None:
        found = self._session.execute(f"SELECT count(*) FROM {segments.table(segment)}")
        segments.rows[segment] = found.fetchall()[0][0]

    def _drop(self, segments: Segments, segment: int, *, left: bool) -> bool:
        """Drop a segment.

        :param left: it has rows, which are moved to those that are left of others.
        :returns: whether it could be; somebody may be reading it.
        """
        name = segments.table(segment)

        def drop(session: Session) -> None:
            session.execute("SET LOCAL lock_timeout = '50ms'")
            session.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            if left:
                session.execute(f"INSERT INTO {segments.table(None)} SELECT * FROM {name}")
            session.execute(f"DROP TABLE {name}")

        try:
            self._transactions.run(drop)
        except psycopg.errors.LockNotAvailable:
            return False
        del segments.rows[segment]
        segments.old = segments.old or left
        return True

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

    def has_room(self) -> bool:
        """Whether the database has room again for what it had none for.

        A table that is made and undone shows it, and leaves nothing behind.
        """

        def fill(session: Session) -> None:
            session.execute("CREATE TABLE probe (octets bytea)")
            session.execute("ALTER TABLE probe ALTER COLUMN octets SET STORAGE EXTERNAL")
            session.execute("INSERT INTO probe VALUES (%b)", (bytes(_PROBE),))
            session.execute("DROP TABLE probe")

        try:
            self._transactions.run(fill)
        except psycopg.errors.DiskFull:
            return False
        return True
