"""Write a batch in one transaction, its statements in one pipeline.

Every transaction first proves that this process still owns the broker, and leaves its number, so
that one whose answer was lost can be looked up.

Owns the order of the changes and their statements. Knows nothing of threads or callbacks, nor of
what to do when a statement fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import monotonic
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Cursor
from psycopg.rows import TupleRow

from gateway.broker.store.checksums import message_crcs
from gateway.broker.store.interface import Batch
from gateway.broker.store.postgresql.arrays import BigInts, Octets, columns
from gateway.broker.store.postgresql.connecting import Session
from gateway.broker.store.postgresql.rows import (
    branch_values,
    destination_values,
    duplicate_values,
    redelivery_values,
    subscription_values,
)
from gateway.broker.store.postgresql.segments import Place, Segments, Tables
from gateway.instance import crashpoints

#: Commits after which the next are written to the other table, and the first is emptied.
_TURN: Final = 10_000

#: A statement that was sent, whose answer is here at the end of the pipeline.
Sent: TypeAlias = Cursor[TupleRow]


class Transactions:
    """The transactions of an owner, each of which proves that it is one.

    :param epoch: the owner's.
    """

    def __init__(self, session: Session, epoch: int) -> None:
        self.session = session
        self.epoch: Final = epoch
        #: The number of the last transaction that was begun, and of the last that is known to be
        #: durable.
        self.begun = 0
        self.durable = 0
        #: When that one was begun, by the monotonic clock: at that time this process owned the
        #: broker.
        self.owned_at = monotonic()
        #: The node that wants to be the owner, as the last transaction saw it; "" for none.
        self.wanted = ""
        self._table = 0
        self._rows = 0

    def run(self, write: Callable[[Session], None]) -> None:
        """Do what ``write`` sends in one transaction.

        :param write: called in a pipeline: it must not ask for results, which are here afterwards.
        :raises psycopg.Error: as the database does; if the meaning is that the session is lost, the
            transaction may have been committed.
        """
        self.begun += 1
        begun = monotonic()
        session = self.session
        try:
            with session.pipeline():
                session.execute("BEGIN")
                proof = self._prove()
                write(session)
                crashpoints.hit("store.before-commit")
                session.execute("COMMIT")
        except psycopg.Error:
            if not session.closed and not session.broken:
                session.execute("ROLLBACK")
            raise
        ((self.wanted,),) = proof.fetchall()
        self.durable = self.begun
        self.owned_at = begun
        self._rows += 1

    def beat(self) -> None:
        """Commit nothing, as a sign of life. Raises as :meth:`run` does."""
        self.run(lambda session: None)

    def confirm(self) -> None:
        """Commit nothing, without a row: this needs no room.

        What was committed before is durable then, on a synchronous standby, too. It is no sign of
        life that others see. Raises as :meth:`run` does.
        """
        begun = monotonic()
        with self.session.transaction():
            self.prove()
        self.owned_at = begun

    def prove(self) -> Sent:
        """Make sure that this process is the owner, in an open transaction."""
        return self.session.execute("SELECT prove(%b)", (self.epoch,))

    def _prove(self) -> Sent:
        session, parameters = self.session, (self.epoch, self.begun)
        proof = self.prove()
        if self._table:
            session.execute("INSERT INTO commits_1 VALUES (%b, %b, clock_timestamp())", parameters)
        else:
            session.execute("INSERT INTO commits_0 VALUES (%b, %b, clock_timestamp())", parameters)
        return proof

    def turn(self) -> None:
        """Now and then, write to the other table of commits, emptied before.

        :raises psycopg.Error: as the database does.
        """
        if self._rows < _TURN:
            return
        other = 1 - self._table
        try:
            with self.session.transaction():
                # Somebody who reads it, such as a backup, must not hold all this up: it is tried
                # again.
                self.session.execute("SET LOCAL lock_timeout = '50ms'")
                self.prove()
                self.session.execute(f"TRUNCATE commits_{other}")
        except psycopg.errors.LockNotAvailable:
            self._rows = _TURN // 2
            return
        self._table, self._rows = other, 0


class BatchWriter:
    """Writes batches.

    :param tables: kept up to date; not after an error: then they must be loaded anew.
    """

    def __init__(self, transactions: Transactions, tables: Tables) -> None:
        self._transactions = transactions
        self._tables = tables
        self._counted: list[tuple[Segments, Place, Sent, int]] = []

    def write(self, batch: Batch) -> None:
        """Make the batch durable.

        :raises psycopg.Error: as the database does, also where a seq is in the store already.
        """
        self._counted.clear()
        self._transactions.run(lambda session: self._write(session, batch))
        for segments, place, sent, sign in self._counted:
            segments.changed(place, sign * sent.rowcount)

    def _write(self, session: Session, batch: Batch) -> None:
        tables = self._tables
        if batch.destinations:
            self._store(
                session,
                "destination",
                [destination_values(r) for r in batch.destinations.values()],
                "kind = excluded.kind, name = excluded.name, properties = excluded.properties, administered = excluded.administered, crc = excluded.crc",
            )
        if batch.subscriptions:
            self._store(
                session,
                "subscription",
                [subscription_values(r) for r in batch.subscriptions.values()],
                "destination = excluded.destination, client_id = excluded.client_id, name = excluded.name, selector = excluded.selector, no_local = excluded.no_local, crc = excluded.crc",
            )
        if batch.inserts:
            self._insert(session, batch)
        if batch.owed:
            self._add(
                session,
                tables.owed,
                [(seq, subscription) for subscription, seq in batch.owed],
                "ON CONFLICT DO NOTHING",
            )
        if batch.redeliveries:
            self._add(
                session,
                tables.redeliveries,
                [redelivery_values(r) for r in batch.redeliveries.values()],
                "ON CONFLICT (seq, owner) DO UPDATE SET attempts = excluded.attempts, not_before = excluded.not_before",
            )
        if batch.settled:
            self._settle(session, tables.owed, "subscription", batch.settled)
            self._settle(session, tables.redeliveries, "owner", batch.settled)
        if batch.deletes:
            self._delete(session, tables.messages, batch.deletes)
            self._delete(session, tables.redeliveries, batch.deletes)
        if batch.removed_subscriptions:
            gone = BigInts(list(batch.removed_subscriptions))
            for place in tables.owed.places():
                self._count(
                    tables.owed,
                    place,
                    session.execute(
                        f"DELETE FROM {tables.owed.table(place)} WHERE subscription = ANY(%b)",
                        (gone,),
                    ),
                    -1,
                )
            session.execute("DELETE FROM subscription WHERE id = ANY(%b)", (gone,))
        if batch.removed_destinations:
            session.execute(
                "DELETE FROM destination WHERE id = ANY(%b)",
                (BigInts(list(batch.removed_destinations)),),
            )
        if batch.duplicates:
            self._add(
                session,
                tables.duplicates,
                [duplicate_values(r) for r in batch.duplicates.values()],
            )
        if batch.forgotten:
            self._delete(session, tables.duplicates, batch.forgotten)
        if batch.branches:
            self._store(
                session,
                "branch",
                [branch_values(r) for r in batch.branches.values()],
                "state = excluded.state, since = excluded.since, work = excluded.work, crc = excluded.crc",
            )
        if batch.removed_branches:
            session.execute(
                "DELETE FROM branch WHERE id = ANY(%b)", (BigInts(list(batch.removed_branches)),)
            )
        if batch.reserved:
            session.execute(
                "UPDATE meta SET value = greatest(value::bigint, %b)::text WHERE key = 'next_seq'",
                (batch.reserved,),
            )

    def _insert(self, session: Session, batch: Batch) -> None:
        messages, inserts = self._tables.messages, batch.inserts
        messages.make(session, inserts)
        for place, seqs in messages.by_place(inserts):
            rows = inserts.values() if len(seqs) == len(inserts) else [inserts[seq] for seq in seqs]
            keys_, destinations, priorities, expiries, sizes, persistent, heads, bodies = zip(
                *rows, strict=True
            )
            numbers = (keys_, destinations, priorities, expiries, sizes, persistent)
            sums = list(message_crcs(*numbers, heads, bodies))
            narrow = [BigInts(column) for column in (*numbers, sums)]
            values: list[BigInts | Octets] = [*narrow, Octets(heads), Octets(bodies)]
            self._count(messages, place, _insert_into(session, messages.table(place), values), 1)
            messages.wrote(place, len(rows), sum(map(len, heads)) + sum(map(len, bodies)))
            crashpoints.hit("store.mid-batch")

    def _add(
        self,
        session: Session,
        segments: Segments,
        rows: Sequence[tuple[Any, ...]],
        conflict: str = "",
    ) -> None:
        """Insert rows, whose first column is a seq."""
        by_seq: dict[int, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_seq.setdefault(row[0], []).append(row)
        segments.make(session, by_seq)
        for place, seqs in segments.by_place(by_seq):
            some = [row for seq in seqs for row in by_seq[seq]]
            sent = _insert_into(session, segments.table(place), columns(some), conflict)
            if "UPDATE" in conflict and place is not None:
                # How many of them are new is not told.
                segments.rows[place] = None
            else:
                self._count(segments, place, sent, 1)

    def _store(
        self, session: Session, table: str, rows: Sequence[tuple[Any, ...]], update: str
    ) -> None:
        """Insert rows by id, or change them."""
        _insert_into(session, table, columns(rows), f"ON CONFLICT (id) DO UPDATE SET {update}")

    def _delete(self, session: Session, segments: Segments, seqs: Collection[int]) -> None:
        if not segments.rows and not segments.old:
            return
        for place, some in segments.by_place(seqs):
            if place is None and not segments.old:
                continue
            condition, parameters = keys(some)
            self._count(
                segments,
                place,
                session.execute(
                    f"DELETE FROM {segments.table(place)} WHERE seq {condition}", parameters
                ),
                -1,
            )

    def _settle(
        self, session: Session, segments: Segments, column: str, pairs: Collection[tuple[int, int]]
    ) -> None:
        """Delete the rows of these (owner, seq)."""
        if not segments.rows and not segments.old:
            return
        by_owner: dict[int, list[int]] = {}
        for owner, seq in pairs:
            by_owner.setdefault(owner, []).append(seq)
        for owner, seqs in by_owner.items():
            for place, some in segments.by_place(seqs):
                if place is None and not segments.old:
                    continue
                condition, parameters = keys(some)
                self._count(
                    segments,
                    place,
                    session.execute(
                        f"DELETE FROM {segments.table(place)} WHERE seq {condition} AND {column} = %b",
                        (*parameters, owner),
                    ),
                    -1,
                )

    def _count(self, segments: Segments, place: Place, sent: Sent, sign: int) -> None:
        self._counted.append((segments, place, sent, sign))


def delete_passing(session: Session, tables: Tables) -> None:
    """Delete messages that are not persistent, with all rows that name them."""
    for place in tables.messages.places():
        messages = tables.messages.table(place)
        for segments in (tables.owed, tables.redeliveries):
            for other in segments.places():
                # A segment's rows are moved together, those of its messages at another time.
                if place in (None, other) or other is None:
                    session.execute(
                        f"DELETE FROM {segments.table(other)} WHERE seq IN "
                        f"(SELECT seq FROM {messages} WHERE persistent = 0)"
                    )
        session.execute(f"DELETE FROM {messages} WHERE persistent = 0")


def keys(seqs: Sequence[int]) -> tuple[str, tuple[Any, ...]]:
    """A condition for distinct seqs, at least one, and its parameters.

    It is a range when they have no gap.
    """
    first, last = min(seqs), max(seqs)
    if last - first + 1 == len(seqs):
        return "BETWEEN %b AND %b", (first, last)
    return "= ANY(%b)", (BigInts(seqs),)


def _insert_into(
    session: Session, table: str, values: Sequence[BigInts | Octets], conflict: str = ""
) -> Sent:
    arrays = ", ".join(["%b"] * len(values))
    return session.execute(f"INSERT INTO {table} SELECT * FROM unnest({arrays}) {conflict}", values)
