"""The contents of a store, in blocks, for a copy to another kind.

Owns what belongs to a copy, and how large a block may be. Knows no kind of store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from gateway.broker.store.interface import (
    BranchRow,
    DestinationRow,
    DuplicateRow,
    IndexRow,
    RedeliveryRow,
    Row,
    SubscriptionRow,
)

#: Bytes of messages in one block, and messages.
BLOCK_OCTETS: Final = 4 << 20
BLOCK: Final = 500


class Contents(Protocol):
    """What a store held at one moment.

    Messages that are not persistent are left out, with the rows that say to whom they are owed and
    how often they were tried.

    Everything that is read is checked. :raises StoreDamaged: a row is not what was written; it
    names the row.
    """

    @property
    def store_id(self) -> str:
        """The store's id, which is in every message id."""

    @property
    def next_seq(self) -> int:
        """The first seq never used."""

    def destinations(self) -> Sequence[DestinationRow]:
        """Every destination by id."""

    def subscriptions(self) -> Sequence[SubscriptionRow]:
        """Every durable subscription by id."""

    def messages(self) -> Iterator[Sequence[Row]]:
        """Every message by rising seq, in blocks."""

    def owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        """(subscription id, seq) of everything owed, by rising seq, in blocks."""

    def redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        """Redelivery counts by rising seq, in blocks."""

    def duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        """Remembered duplicate ids by rising seq, in blocks."""

    def branches(self) -> Iterator[Sequence[BranchRow]]:
        """Transaction branches by rising id, in blocks."""


def seqs_in_blocks(index: Iterable[Sequence[IndexRow]]) -> Iterator[list[int]]:
    """Divide messages into runs that may be read at once.

    :param index: as a store scans it.
    """
    for rows in index:
        octets, seqs = 0, list[int]()
        for row in rows:
            if seqs and (octets + row.size > BLOCK_OCTETS or len(seqs) == BLOCK):
                yield seqs
                octets, seqs = 0, []
            seqs.append(row.seq)
            octets += row.size
        if seqs:
            yield seqs
