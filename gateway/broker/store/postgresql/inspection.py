"""Check everything in the schema of a broker, as it is at one moment.

Lists what is wrong and changes nothing. The broker may be in use.

Owns what rows must say of each other. What a single row must be is its checksum's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import psycopg

from gateway.broker.store.contents import seqs_in_blocks
from gateway.broker.store.integrity.inspection import Report, Work
from gateway.broker.store.interface import StoreDamaged
from gateway.broker.store.postgresql import copying
from gateway.broker.store.postgresql.connecting import Database, words
from gateway.broker.store.postgresql.copying import Snapshot
from gateway.broker.store.postgresql.decision_tables import StoredLog
from gateway.broker.store.postgresql.segments import SHIFT, Segments

#: Problems of one kind that are told; what follows from one that is lost can be many.
_MOST: Final = 100
#: The plans of a check are for whole tables, those of a store for single rows.
_PLANS: Final = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")


def inspect(database: Database, work: Work, shift: int = SHIFT) -> tuple[Report, list[StoredLog]]:
    """Check all rows of the broker's schema.

    Messages that are not persistent are not looked at.

    :param work: reads branches, whose encoding is the broker's.
    :param shift: seqs of a segment, as bits.
    :returns: what was found, where ``clean`` is whether no process owns the broker, and the last
        closed it in order; and the decision logs, which are read and not looked at.
    :raises StoreError: there are no tables of this broker.
    :raises psycopg.Error: it cannot be read, for a reason that is not damage.
    """
    with copying.read(database, shift) as snapshot:
        inspection = _Inspection(snapshot, work)
        try:
            inspection.run()
        except (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted) as error:
            inspection.add("an unknown page", words(error))
        clean = snapshot.meta.clean
        return Report(inspection.problems, inspection.count, clean), snapshot.logs()


class _Inspection:
    def __init__(self, snapshot: Snapshot, work: Work) -> None:
        self._snapshot = snapshot
        self._work = work
        self.problems: list[str] = []
        #: Messages looked at.
        self.count = 0

    def run(self) -> None:
        for plan in _PLANS:
            self._snapshot.session.execute(f"SET LOCAL {plan} = on")
        sent: set[int] = set()
        taken: set[tuple[int, int]] = set()

        def branches() -> None:
            for block in self._snapshot.branches():
                for row in block:
                    sends, takes = self._work(row)
                    sent.update(sends)
                    taken.update(takes)

        def duplicates() -> None:
            for _ in self._snapshot.duplicates():
                pass

        self._noting(self._snapshot.destinations)
        self._noting(self._snapshot.subscriptions)
        self._noting(duplicates)
        self._noting(branches)
        if self._snapshot.meta.wrong:
            self.add("table meta", self._snapshot.meta.wrong)
        for place, what in self._contradictions(sent, taken):
            self.add(place, what)
        for seqs in seqs_in_blocks(self._snapshot.reader.scan()):
            self.count += len(seqs)
            for error in self._snapshot.reader.damaged(seqs):
                self._note(error)

    def add(self, place: str, what: str) -> None:
        self._note(StoreDamaged(self._snapshot.described, place, what))

    def _note(self, error: StoreDamaged) -> None:
        if str(error) not in self.problems:
            self.problems.append(str(error))

    def _noting(self, read: Callable[[], object]) -> None:
        try:
            read()
        except StoreDamaged as error:
            self._note(error)

    def _contradictions(
        self, sent: Collection[int], taken: Collection[tuple[int, int]]
    ) -> Iterator[tuple[str, str]]:
        """List rows that name what does not exist: each a place and a sentence."""
        tables = self._snapshot.tables
        messages = self._rows(tables.messages, "seq, destination, persistent")
        owed = self._rows(tables.owed, "seq, subscription")
        for seq, destination in self._ask(
            f"SELECT seq, destination FROM {messages} AS message WHERE persistent = 1 "
            "AND NOT EXISTS (SELECT 1 FROM destination WHERE id = message.destination)"
        ):
            yield f"message {seq}", f"its destination, row {destination}, is missing"
        for number, destination, kind in self._ask(
            "SELECT subscription.id, destination, kind FROM subscription LEFT JOIN destination ON destination.id = destination "
            "WHERE kind IS DISTINCT FROM 1"
        ):
            state = "missing" if kind is None else "a queue; a topic was expected"
            yield f"subscription {number}", f"its destination, row {destination}, is {state}"
        for seq, subscription, destination in self._ask(
            f"SELECT owed.seq, subscription, destination FROM {owed} AS owed JOIN {messages} AS message ON message.seq = owed.seq "
            "WHERE destination IN (SELECT id FROM destination WHERE kind = 0)"
        ):
            yield (
                f"owed row of message {seq}",
                f"subscription {subscription} is owed it, and its destination, row {destination}, is a queue",
            )
        for seq, subscription in self._ask(
            f"SELECT seq, subscription FROM {owed} AS owed "
            "WHERE NOT EXISTS (SELECT 1 FROM subscription WHERE id = owed.subscription)",
            most=_MOST + len(taken),
        ):
            if (subscription, seq) not in taken:
                yield (
                    f"owed row of message {seq}",
                    f"its subscription, row {subscription}, is missing",
                )
        for seq, subscription in self._ask(
            f"SELECT seq, subscription FROM {owed} AS owed "
            f"WHERE NOT EXISTS (SELECT 1 FROM {messages} AS message WHERE message.seq = owed.seq)"
        ):
            yield (
                f"owed row of message {seq}",
                f"the message is missing, and subscription {subscription} is owed it",
            )
        for seq in sent:
            if not self._snapshot.reader.fetch([seq]):
                yield f"message {seq}", "it is missing, and a prepared branch has sent it"

    def _ask(self, text: str, most: int = _MOST) -> list[tuple[Any, ...]]:
        return self._snapshot.session.execute(f"{text} LIMIT {most}").fetchall()

    def _rows(self, segments: Segments, columns: str) -> str:
        """The rows of all segments of a kind, as a table."""
        parts = [
            f"SELECT {columns} FROM {segments.table(place)}" for place in {None, *segments.places()}
        ]
        return f"({' UNION ALL '.join(parts)})"
