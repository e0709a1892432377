"""Check messages that no consumer may have asked for yet.

Owns which were checked. Knows nothing of threads, nor when a step is due.
"""

from __future__ import annotations

from typing import Final

from gateway.broker.store.interface import StoreDamaged
from gateway.broker.store.postgresql.reading import Reader
from gateway.broker.store.postgresql.segments import Tables

#: Bytes of messages, and messages, that are read in one step.
_OCTETS: Final = 1 << 20
_COUNT: Final = 500


class Check:
    """The check of all messages that were there when the store was opened.

    Segments come first and the table of what is left of dropped ones last, so that a message that
    is moved meanwhile is not missed.

    :param below: the first seq that is not looked at; later messages are checked when they are
        read.
    """

    def __init__(self, tables: Tables, below: int) -> None:
        self._tables = tables
        self._below = below
        #: The segment that is read; None for the table of what is left.
        self._segment: int | None = 0
        self._after = -1

    def step(self, reader: Reader) -> list[StoreDamaged] | None:
        """Check some messages.

        :param reader: over the owner's present session.
        :returns: an error for each that is damaged; None when all were checked.
        :raises psycopg.Error: as the database does; the step may be tried again.
        """
        if self._segment is not None:
            self._segment = min(
                (each for each in self._tables.messages.rows if each >= self._segment), default=None
            )
            if self._segment is None:
                self._after = -1
        rows = reader.sizes(self._segment, self._after, self._below, _COUNT)
        octets, seqs = 0, list[int]()
        for seq, size in rows:
            seqs.append(seq)
            octets += size
            if octets >= _OCTETS:
                break
        found = reader.damaged(seqs)
        if seqs:
            self._after = seqs[-1]
        elif self._segment is None:
            return None
        else:
            self._segment += 1
        return found
