"""Message ids that a staging folder has had, to recognise redeliveries.

Owns how they are kept in memory and in files. A Python worker of Spark serves many tasks one after
the other, so what one of them has read is kept for the next, and only files that are new are
opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self
from uuid import uuid4

import pyarrow as pa

from pipeline.datasource.staged import ids_of

#: Ids in memory that are in no file any more, and as many again as were in files, from which on
#: those are dropped.
_MANY: Final = 500_000
_COLUMN: Final = "message_id"


class Remembered:
    """The ids of one staging folder, as far as its files have them."""

    _all: ClassVar[dict[Path, Remembered]] = {}

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._ids: set[str] = set()
        #: Files whose ids are in memory: pieces by their stem, others by their name.
        self._known: set[str] = set()
        self._most = _MANY
        self._identity = ""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Those of this folder, the same object for all who ask in this process."""
        found = cls._all.get(folder)
        if not isinstance(found, cls):
            found = cls._all[folder] = cls(folder)
        return found

    def belongs(self, identity: str) -> None:
        """Remember that the path has this folder; forget an earlier one's ids."""
        if identity != self._identity:
            self._identity = identity
            self._ids, self._known = set(), set()

    def fresh(self, batches: Sequence[pa.RecordBatch], own: str) -> list[pa.RecordBatch] | None:
        """Return the rows with unknown ids, each id once; None if that is all.

        Call it while the folder is locked, since others publish.

        :param own: the piece that they are to be, which has no file.
        :raises StagingError: a file cannot be read.
        """
        self._refresh(own)
        seen: set[str] = set()
        found: list[pa.RecordBatch] = []
        dropped = False
        for batch in batches:
            ids = batch.column(_COLUMN).to_pylist()
            if len(set(ids)) == len(ids) and seen.isdisjoint(ids) and self._ids.isdisjoint(ids):
                found.append(batch)
                seen.update(ids)
                continue
            kept: list[bool] = []
            for one in ids:
                # A message without an id cannot be known again.
                kept.append(one is None or (one not in seen and one not in self._ids))
                if one is not None:
                    seen.add(one)
            if not all(kept):
                dropped = True
                batch = batch.filter(pa.array(kept, pa.bool_()))
            if batch.num_rows:
                found.append(batch)
        return found if dropped else None

    def add(self, name: str, batches: Sequence[pa.RecordBatch]) -> None:
        """That piece has been published with these rows."""
        for batch in batches:
            self._ids.update(batch.column(_COLUMN).to_pylist())
        self._known.add(name)

    def keep(
        self, pieces: Sequence[Path], folder: Path, end: str, sync: Callable[[Path], None]
    ) -> None:
        """Write the ids of a partition's staged files into one file.

        It appears by rename, and is synced where that matters.
        """
        ids = [one for path in pieces for one in ids_of(path)]
        if not ids:
            return
        name = pieces[-1].stem
        made = folder / f"{name}.{uuid4().hex}.tmp"
        made.write_text("\0".join(ids), encoding="utf-8")
        if end == "unsettled":
            sync(made)
        made.rename(folder / f"{name}.{len(ids)}.{end}")
        if end == "unsettled":
            sync(folder)

    def _refresh(self, own: str) -> None:
        """Read what has come into the folder since."""
        full = len(self._ids) > self._most
        if full:
            self._ids, self._known = set(), set()
        for path in self._folder.glob("*.arrow"):
            if path.stem not in self._known and path.stem != own:
                self._ids.update(ids_of(path))
                self._known.add(path.stem)
        for path in (self._folder / "ids").iterdir():
            if path.name not in self._known and path.suffix in (".settled", ".unsettled"):
                if not self._knows_all(path.name.split(".")[0]):
                    self._ids.update(path.read_text(encoding="utf-8").split("\0"))
                self._known.add(path.name)
        if full:
            self._most = 2 * len(self._ids) + _MANY

    def _knows_all(self, last: str) -> bool:
        """Whether all pieces of a partition are known, up to this one.

        One alone proves nothing: the driver may have ended while it removed them.
        """
        partition, _, number = last.rpartition("-")
        return all(f"{partition}-{piece:06}" in self._known for piece in range(int(number) + 1))
