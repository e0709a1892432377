"""The branches that were taken for committed without their resource manager's word: the last
:data:`MOST`, each for :data:`KEPT_MS`.

Owns which of them are remembered. What is done with one that comes to light is
:mod:`bridge.xa.recovery`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from bridge.xa.log.records import Presumed

#: As many as these are remembered; of more, the last.
MOST: Final = 2000
#: One is remembered as long as no other is so much younger.
KEPT_MS: Final = 30 * 24 * 3600 * 1000


class Presumptions:
    """What is remembered. :param known: from earlier, in the order in which they came."""

    def __init__(self, known: Iterable[Presumed] = ()) -> None:
        self._known: Final[dict[tuple[bytes, bytes], Presumed]] = {}
        self._branches: Final[dict[bytes, set[bytes]]] = {}
        for one in known:
            self.add(one)

    def __iter__(self) -> Iterator[Presumed]:
        return iter(self._known.values())

    def add(self, one: Presumed) -> None:
        """Remember one, and forget those that are too many or too old."""
        self._drop(one)
        self._known[one.gtrid, one.bqual] = one
        self._branches.setdefault(one.gtrid, set()).add(one.bqual)
        first = next(iter(self))
        while len(self._known) > MOST or first.at_ms < one.at_ms - KEPT_MS:
            self._drop(first)
            first = next(iter(self))

    def of(self, gtrid: bytes) -> Collection[bytes]:
        """The qualifiers of a transaction's branches that were taken for committed; if there is
        one, the transaction was decided.
        """
        return self._branches.get(gtrid, ())

    def _drop(self, one: Presumed) -> None:
        if self._known.pop((one.gtrid, one.bqual), None) is not None:
            branches = self._branches[one.gtrid]
            branches.discard(one.bqual)
            if not branches:
                del self._branches[one.gtrid]
