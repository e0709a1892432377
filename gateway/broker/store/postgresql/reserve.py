"""Space that is kept for commits while the database's disk is full.

Owns the tables that keep it, and whether there is room again. Everything here is called on the
store's thread and raises what the database raises.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

import psycopg

from gateway.broker.store.postgresql.connecting import Session, words
from gateway.broker.store.postgresql.segments import Tables
from gateway.broker.store.postgresql.vacuum import Vacuum
from gateway.broker.store.postgresql.writer import Transactions

#: Bytes that are kept in tables while there is room.
RESERVE_OCTETS: Final = 8 << 20
#: Those tables. They are given up one by one, so that others on the same disk do not take it all.
NAMES: Final = ("reserve", "reserve_1", "reserve_2", "reserve_3")
#: Bytes that are written beside it to see whether there is room again.
_PROBE_OCTETS: Final = 8 << 20
#: Seconds until rows are said to have room in the newest segment again, after that was said: at
#: first, and at most. While another session holds a snapshot, a vacuum frees nothing.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: Bytes that a stored message takes up besides what it counts for, at most.
_OVERHEAD: Final = 128
#: Seconds between two attempts to have the whole reserve again.
_GROW_SECONDS: Final = 10.0

_Result = TypeVar("_Result")


class Reserve:
    """The reserve of an open store.

    :param vacuum: of these tables.
    :param octets: bytes that are kept; 0 for none.
    """

    def __init__(
        self,
        session: Session,
        transactions: Transactions,
        tables: Tables,
        vacuum: Vacuum,
        octets: int = RESERVE_OCTETS,
    ) -> None:
        self._session = session
        self._transactions = transactions
        self._tables = tables
        self._vacuum = vacuum
        self._octets = octets
        #: The tables that there are not; None: not known.
        self._missing: list[str] | None = None
        #: Some of them may be missing, until the disk has room.
        self._is_short = False
        self._grown_at = 0.0
        #: When the newest segment may be said to have room, and for how long not after that.
        self._within_at = 0.0
        self._pause = _FIRST_PAUSE

    def give(self) -> bool:
        """Give up a part of what is kept for when there is no room.

        :returns: whether there was one.
        """
        given = _give(self._session, self._transactions.prove)
        self._missing = None
        return given

    def lacks_room(self) -> str:
        """Why there is no room, "" if the reserve is there or could be made."""
        if self._missing_now():
            try:
                self._fill()
            except psycopg.errors.DiskFull as error:
                return words(error)
        return ""

    def keep(self) -> None:
        """Make what is missing of the reserve.

        While only the newest segment has room, it is smaller, and is made whole when it can be.

        :raises psycopg.errors.DiskFull: there is no room for it.
        """
        if self._is_short:
            if monotonic() - self._grown_at >= _GROW_SECONDS:
                self._grow()
        else:
            self._make()

    def has_room(self) -> bool:
        """Whether there is room again.

        That is for what is missing of the reserve, which is then kept, and for a probe beside it.
        Or it is in the newest segment, where a vacuum has freed the space of dead rows.
        """
        if self._grow():
            return True
        if not self._has_room_within():
            return False
        self._is_short = True
        with suppress(psycopg.errors.DiskFull):
            self._make()
        return True

    def _grow(self) -> bool:
        """Make what is missing. Returns whether there was room."""
        self._grown_at = monotonic()
        try:
            self._fill()
        except psycopg.errors.DiskFull:
            return False
        self._is_short, self._pause = False, _FIRST_PAUSE
        return True

    def _fill(self) -> None:
        """Make what is missing, if there is room for it and the probe."""
        missing = self._missing_now()

        def fill(session: Session) -> None:
            for name in missing:
                self._write(session, name)
            _write(session, "probe", _PROBE_OCTETS)
            session.execute("DROP TABLE probe")

        self._transactions.run(fill)
        self._missing = []

    def _make(self) -> None:
        for name in list(self._missing_now()):
            self._transactions.run(lambda session, name=name: self._write(session, name))  # type: ignore[misc]
            self._missing_now().remove(name)

    def _write(self, session: Session, name: str) -> None:
        _write(session, name, self._octets // len(NAMES))

    def _missing_now(self) -> list[str]:
        if self._missing is None:
            kept = _kept(self._session)
            self._missing = [name for name in NAMES if name not in kept] if self._octets else []
        return self._missing

    def _has_room_within(self) -> bool:
        """Whether the newest segment has free space for a probe."""
        messages = self._tables.messages
        newest = messages.newest
        if (
            newest not in messages.rows
            or newest in messages.deleted
            or self._vacuum.runs
            or monotonic() < self._within_at
        ):
            return False
        name = messages.table(newest)
        ((octets, used),) = self._session.execute(
            f"SELECT pg_table_size(%b::regclass), (SELECT coalesce(sum(size + {_OVERHEAD}), 0)::int8 FROM {name})",
            (name,),
        ).fetchall()
        if octets - used < _PROBE_OCTETS:
            return False
        self._within_at = monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return True


def with_reserve(session: Session, act: Callable[[], _Result]) -> _Result:
    """Become the owner, in the reserve's room if there is no other.

    :param session: the one of that process.
    :param act: what the new owner does.
    :raises psycopg.errors.DiskFull: there is not even that.
    :raises psycopg.Error: as the database does.
    """
    while True:
        try:
            return act()
        except psycopg.errors.DiskFull:
            if not _give(session):
                raise


def _kept(session: Session) -> list[str]:
    found = session.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema::regnamespace AND relkind = 'r' ORDER BY 1"
    ).fetchall()
    return [name for (name,) in found if name in NAMES]


def _give(session: Session, prove: Callable[[], object] = lambda: None) -> bool:
    for name in _kept(session):
        # Somebody who reads it, such as a backup, must not hold this up.
        with suppress(psycopg.errors.LockNotAvailable), session.transaction():
            session.execute("SET LOCAL lock_timeout = '50ms'")
            prove()
            session.execute(f"DROP TABLE {name}")
            return True
    return False


def _write(session: Session, table: str, octets: int) -> None:
    session.execute(f"CREATE TABLE {table} (octets bytea)")
    session.execute(f"ALTER TABLE {table} ALTER COLUMN octets SET STORAGE EXTERNAL")
    session.execute(
        f"INSERT INTO {table} VALUES (convert_to(repeat('x', %b::int4), 'UTF8'))", (octets,)
    )
