"""Copy all that a schema holds out of it, and into it.

Owns the reading at one moment, while the broker's owner goes on, and the writing in one
transaction. The other end of a copy is :class:`~gateway.broker.store.contents.Contents`, whatever
keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel
from psycopg.sql import SQL, Composed, Identifier

from gateway.broker.store.checksums import message_crcs
from gateway.broker.store.contents import Contents, seqs_in_blocks
from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    RedeliveryRow,
    Row,
    StoreError,
    SubscriptionRow,
)
from gateway.broker.store.postgresql import decision_tables, meta, ownership, reserve
from gateway.broker.store.postgresql.connecting import NAME, Database, Session
from gateway.broker.store.postgresql.decision_tables import StoredLog
from gateway.broker.store.postgresql.reading import Reader
from gateway.broker.store.postgresql.rows import (
    branch_values,
    destination_values,
    duplicate_values,
    redelivery_values,
    subscription_values,
)
from gateway.broker.store.postgresql.segments import SHIFT, Place, Segments, Tables
from gateway.instance import crashpoints

#: Seconds for which a statement of a copy may work.
WORKING_SECONDS: Final = 3600.0
#: Rows that are asked for at once where they are read in order.
_FETCHED: Final = 5_000
#: Attempts to lock all tables, of which the owner makes and drops some meanwhile.
_ATTEMPTS: Final = 20
#: A segment with fewer rows and bytes than these gets no table of its own. That is what the upkeep
#: would make of it.
_SPARSE_BITS: Final = 4
_SPARSE_OCTETS: Final = 16 << 20
#: Tables of which a copy has rows, besides those in segments; and those that are about the schema,
#: its owner and operators.
ROWS: Final = ("destination", "subscription", "branch")
_OF_THE_OWNER: Final = (
    "meta",
    "owner",
    "commits_0",
    "commits_1",
    "bridge_orders",
    "shared_file",
    *reserve.NAMES,
)


class SnapshotReader(Reader):
    """Reads within one transaction, few rows at a time however many there are.

    Messages that are not persistent are left out of scans, with the rows that say to whom they are
    owed and how often they were tried.
    """

    _numbers = count()

    def __init__(self, session: Session, tables: Tables, described: str) -> None:
        super().__init__(session, tables, described)
        messages = tables.messages
        #: Where there are messages that are not persistent.
        self._passing: set[Place] = {
            place
            for place in messages.places()
            if session.execute(
                f"SELECT EXISTS (SELECT 1 FROM {messages.table(place)} WHERE persistent = 0)"
            ).fetchall()[0][0]
        }

    def _source(self, segments: Segments, place: Place) -> str:
        name, messages = segments.table(place), self._tables.messages
        if segments is messages:
            return f"(SELECT * FROM {name} WHERE persistent = 1) AS kept"
        if segments is self._tables.duplicates:
            return name
        # Of a message that is left of a segment the others may still be in theirs, and vice versa.
        passing = self._passing if place is None else self._passing & {place, None}
        conditions = [
            f"NOT EXISTS (SELECT 1 FROM {messages.table(other)} AS passing WHERE passing.seq = each.seq AND persistent = 0)"
            for other in passing
        ]
        return (
            f"(SELECT * FROM {name} AS each WHERE {' AND '.join(conditions or ['true'])}) AS kept"
        )

    def _all(self, text: str) -> Iterator[tuple[Any, ...]]:
        with self._session.cursor(name=f"read_{next(self._numbers)}") as cursor:
            cursor.itersize = _FETCHED
            cursor.execute(text, binary=True)
            yield from cursor


class Snapshot:
    """The contents of a schema at one moment.

    Implements :class:`~gateway.broker.store.contents.Contents`.

    :ivar session: within a transaction that sees that moment.
    """

    def __init__(self, database: Database, session: Session, tables: Tables) -> None:
        self.session = session
        self.tables = tables
        self.described = f"the database {database.described}, schema {database.schema}"
        self.reader = SnapshotReader(session, tables, self.described)
        self.meta = meta.read(session, tables, self.described)
        self.store_id = self.meta.store_id
        self.next_seq = self.meta.next_seq

    def others(self) -> list[str]:
        """The names of unknown tables, of which a copy has no rows."""
        segments = {
            each.table(place) for each in self.tables.all for place in (None, *each.places())
        }
        known = {*ROWS, *_OF_THE_OWNER, *segments}
        return [
            name
            for name in _listed(self.session)
            if name not in known and not decision_tables.is_name(name)
        ]

    def check_complete(self) -> None:
        """Make sure that a copy has everything.

        :raises StoreError: there are rows that a copy has no place for.
        """
        for name in self.others():
            found = self.session.execute(
                SQL("SELECT EXISTS (SELECT 1 FROM {})").format(Identifier(name))
            ).fetchall()
            if found[0][0]:
                raise StoreError(
                    f"{self.described}: table {name} has rows, which a file has no place for"
                )

    def logs(self) -> list[StoredLog]:
        """Return the decision logs of bridges by the names of those."""
        return decision_tables.stored(self.session)

    def orders(self) -> Mapping[str, str]:
        """Return what operators said last of bridges, in JSON."""
        return bridge_orders(self.session)

    def destinations(self) -> Sequence[DestinationRow]:
        return self.reader.destinations()

    def subscriptions(self) -> Sequence[SubscriptionRow]:
        return self.reader.subscriptions()

    def messages(self) -> Iterator[Sequence[Row]]:
        return map(self.reader.fetch, seqs_in_blocks(self.reader.scan()))

    def owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        return self.reader.scan_owed()

    def redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        return self.reader.scan_redeliveries()

    def duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        return self.reader.scan_duplicates()

    def branches(self) -> Iterator[Sequence[BranchRow]]:
        return self.reader.scan_branches()


@contextmanager
def read(database: Database, shift: int = SHIFT) -> Iterator[Snapshot]:
    """Read the schema as it is now. A process may own the broker.

    While this is open its owner goes on, but drops no table.

    :param shift: seqs of a segment, as bits.
    :raises StoreError: there are no tables of this broker, or the owner makes and drops them faster
        than they are locked.
    :raises psycopg.Error: as the database does.
    """
    with database.connect(f"{NAME} copy") as session:
        session.answer_seconds = WORKING_SECONDS
        session.execute("SET idle_in_transaction_session_timeout = '1h'")
        ownership.check_version(database, session)
        session.isolation_level = IsolationLevel.REPEATABLE_READ
        session.read_only = True
        for _ in range(_ATTEMPTS):
            names = _listed(session)
            with session.transaction():
                if not _lock(session, names):
                    raise psycopg.Rollback
                tables = Tables(shift)
                tables.load(session)
                yield Snapshot(database, session, tables)
                return
    raise StoreError(
        f"the database {database.described}, schema {database.schema}: its tables change faster than they can be locked; try again"
    )


def bridge_orders(session: Session) -> Mapping[str, str]:
    """Return what operators said last of bridges, in JSON.

    :raises psycopg.Error: as the database does.
    """
    if session.execute("SELECT to_regclass('bridge_orders')").fetchall()[0][0] is None:
        return {}
    rows = session.execute("SELECT bridge, orders FROM bridge_orders", binary=True).fetchall()
    return {bridge.decode(): orders for bridge, orders in rows}


def _listed(session: Session) -> list[str]:
    found = session.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema::regnamespace AND relkind = 'r' ORDER BY 1"
    )
    return [name for (name,) in found.fetchall()]


def _lock(session: Session, names: Sequence[str]) -> bool:
    """Keep these tables from being dropped.

    :returns: whether there are these and no others.
    """
    try:
        session.execute(
            SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(SQL(", ").join(map(Identifier, names)))
        )
    except psycopg.errors.UndefinedTable:
        return False
    # Only now the transaction takes its snapshot.
    return _listed(session) == list(names)


def write(
    database: Database,
    session: Session,
    contents: Contents,
    epoch: int = 0,
    shift: int = SHIFT,
) -> int:
    """Make a broker's tables with these contents, in an open transaction.

    They are those of a store that was closed in order and has no owner.

    :param epoch: see :func:`ownership.create`.
    :param shift: seqs of a segment, as bits.
    :returns: how many messages were written.
    :raises StoreError: there are such tables; and whatever ``contents`` raises.
    :raises psycopg.Error: as the database does.
    """
    ownership.create(database, session, contents.store_id, epoch)
    session.execute("UPDATE meta SET value = %s WHERE key = 'next_seq'", (str(contents.next_seq),))
    tables = Tables(shift)
    _copy(
        session,
        "destination",
        _DESTINATION,
        [destination_values(r) for r in contents.destinations()],
    )
    _copy(
        session,
        "subscription",
        _SUBSCRIPTION,
        [subscription_values(r) for r in contents.subscriptions()],
    )
    filling = _Filling(session, shift)
    messages = filling.fill(tables.messages, _MESSAGE, map(_with_sums, contents.messages()))
    filling.fill(
        tables.owed,
        _OWED,
        ([(seq, subscription) for subscription, seq in rows] for rows in contents.owed()),
    )
    filling.fill(
        tables.redeliveries,
        _REDELIVERY,
        ([redelivery_values(r) for r in rows] for rows in contents.redeliveries()),
    )
    filling.fill(
        tables.duplicates,
        _DUPLICATE,
        ([duplicate_values(r) for r in rows] for rows in contents.duplicates()),
    )
    for branches in contents.branches():
        _copy(
            session,
            "branch",
            _BRANCH,
            [branch_values(r) for r in branches],
        )
    return messages


def _with_sums(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    seqs, destinations, priorities, expiries, sizes, persistent, heads, bodies = zip(
        *rows, strict=True
    )
    narrow = (seqs, destinations, priorities, expiries, sizes, persistent)
    return list(zip(*narrow, message_crcs(*narrow, heads, bodies), heads, bodies, strict=True))


#: The columns of the tables: i for a number, b for bytes.
_DESTINATION: Final = "iibbii"
_SUBSCRIPTION: Final = "iibbbii"
_BRANCH: Final = "iibbiibbi"
_MESSAGE: Final = "iiiiiiibb"
_OWED: Final = "ii"
_REDELIVERY: Final = "iiii"
_DUPLICATE: Final = "iiiib"
_TYPES: Final = {"i": "int8", "b": "bytea"}


def _copy(session: Session, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
    with session.cursor().copy(_copy_text(table)) as copy:
        copy.set_types([_TYPES[column] for column in columns])
        for row in rows:
            copy.write_row(row)


def _copy_text(table: str) -> Composed:
    return SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(Identifier(table))


class _Filling:
    """Writes rows to the segments that they belong to.

    A segment with few rows gets no table of its own, unless it is the last: their number would have
    no bound otherwise.
    """

    def __init__(self, session: Session, shift: int) -> None:
        self._session = session
        self._shift = shift
        self._sparse = 1 << max(shift - _SPARSE_BITS, 0)

    def fill(
        self, segments: Segments, columns: str, blocks: Iterable[Sequence[tuple[Any, ...]]]
    ) -> int:
        """Write blocks of rows by rising seq, which is their first column.

        :returns: how many rows.
        """
        written = 0
        # Of the segment that is read: its number, and rows that wait until it is known to be sparse
        # or not.
        segment, waiting, octets, made = -1, list[tuple[Any, ...]](), 0, False
        for rows in blocks:
            written += len(rows)
            for number, some in self._divided(rows):
                if number != segment:
                    self._write(segments, columns, None, waiting)
                    segment, waiting, octets, made = number, [], 0, False
                waiting += some
                octets += sum(map(_octets, some))
                if made or len(waiting) > self._sparse or octets > _SPARSE_OCTETS:
                    made = True
                    self._write(segments, columns, segment, waiting)
                    waiting = []
        # The last must be a table: rows of a seq beyond the last table are not looked for elsewhere.
        self._write(segments, columns, segment, waiting)
        return written

    def _divided(
        self, rows: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Sequence[tuple[Any, ...]]]]:
        start = 0
        while start < len(rows):
            segment = rows[start][0] >> self._shift
            end = len(rows)
            if rows[-1][0] >> self._shift != segment:
                end = next(i for i in range(start, end) if rows[i][0] >> self._shift != segment)
            yield segment, rows[start:end]
            start = end

    def _write(
        self,
        segments: Segments,
        columns: str,
        place: Place,
        rows: Sequence[tuple[Any, ...]],
    ) -> None:
        if not rows:
            return
        if place is not None:
            segments.make(self._session, [rows[0][0]])
        _copy(self._session, segments.table(place), columns, rows)
        crashpoints.hit("store.mid-batch")


def _octets(row: Sequence[Any]) -> int:
    return sum(len(value) for value in row if isinstance(value, bytes))
