"""The folder where messages wait between the broker and the sink.

The broker has forgotten them, and the sink does not have them yet.

Owns its files, what is written when, and the proof that a message is given to a query once. Knows
rows and message ids, and neither brokers nor Spark.

A file holds what one partition of one micro-batch has received, or a piece of that where a broker
wants some acknowledged before it sends more. It appears by rename, synced, and before its messages
are acknowledged; from then on it is part of that partition for every reader, however
often. So a message that its broker delivers again, because it was not acknowledged, is known by its
id, and dropped. A partition is over with the piece that says so; who finds one that its task has
left in the middle ends it where it is, and only then reads it. Who publishes does so under one lock
for the whole folder, and only

* if the partition has this piece not yet, and is not over: of two tasks that do the same the first
  counts, and the other gives its messages back;
* if no newer run of the query has begun (``epoch``): a worker that outlives its driver adds nothing
  any more;
* if the micro-batch is not over.

What is in it::

    state.json                  the source, the epoch, the last micro-batch planned, and the last that Spark has committed
    lock                        locked by flock while any of these changes
    B-P-K.arrow                 messages of micro-batch B, partition P, piece K: Arrow's file format
    B-P-K.settled               their broker has confirmed that they are acknowledged
    ids/B-P-K.N.settled         the N ids of a partition whose files are gone, as its sink has its messages, divided by NULs; a rolling number of them.
                                K is its last piece
    ids/B-P-K.N.unsettled       the same of one whose acknowledgement was never confirmed: kept until they cannot come again

The folder must be one file system for all executors, with rename, flock and fsync that do what
POSIX says: a local disk, NFS 4, CephFS and the like.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.datasource import staged
from pipeline.datasource.errors import StagingError
from pipeline.datasource.remembered import Remembered
from pipeline.datasource.staged import End, Staged
from pipeline.durable import sync

_log: Final = logging.getLogger("pipeline.datasource")

#: Ids of messages that were acknowledged and committed; the broker has promised not to send those
#: again.
SETTLED_IDS: Final = 200_000
#: Ids of messages that may come again, and for how long they are remembered, in seconds.
UNSETTLED_IDS: Final = 1_000_000
UNSETTLED_AGE: Final = 7 * 86_400

_VERSION: Final = 2
_IDS: Final = "ids"


@dataclass(frozen=True)
class State:
    """What ``state.json`` says.

    :param source: the destination, and a durable subscription's name: what the folder is of.
    :param planned: the last micro-batch that was begun, and
    :param partitions: how many it has, whenever it is run again.
    :param identity: no other folder has it, not even one of the same path later.
    """

    source: str
    identity: str = ""
    epoch: int = 0
    planned: int = 0
    partitions: int = 0
    committed: int = 0


class Staging:
    """A staging folder.

    :param folder: made if it is missing.
    :param source: what it is to be of.
    """

    def __init__(self, folder: Path, source: str) -> None:
        self.folder: Final = folder
        self.source: Final = source
        self._remembered = Remembered.of(folder)

    # --- the driver

    def begin(self) -> State:
        """A new run of the query: every earlier one can publish no more.

        :raises StagingError: the folder cannot be used, or is of another source.
        """
        self._make()
        with self._locked():
            state = self.state()
            state = replace(state, epoch=state.epoch + 1, identity=state.identity or uuid4().hex)
            self._write_state(state)
        return state

    def skip(self, batch: int) -> None:
        """Go on behind this micro-batch, where the folder does not reach it.

        What it had of the micro-batches before is given up.

        :raises StagingError: as :meth:`begin`.
        """
        if batch <= self.state().planned:
            return
        self._make()
        with self._locked():
            state = self.state()
            if batch > state.planned:
                _log.warning(
                    "the checkpoint is at micro-batch %d, and stagingPath %s at %d; what is missing is skipped, as failOnDataLoss is false",
                    batch,
                    self.folder,
                    state.planned,
                )
                self._write_state(replace(state, planned=batch, committed=batch))

    def state(self) -> State:
        """Return what the folder knows of the query, or a new query's state.

        :raises StagingError: it is of another source, or of another version of this format.
        """
        path = self.folder / "state.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return State(self.source)
        except (OSError, ValueError) as error:
            raise StagingError(f"{path} cannot be read: {error}") from None
        if found.pop("version", None) != _VERSION:
            raise StagingError(f"{path} is of another version of this format, expected {_VERSION}")
        state = State(**found)
        if state.source != self.source:
            raise StagingError(
                f"stagingPath {self.folder} is that of {state.source}, and this query reads {self.source}"
            )
        return state

    def plan(self, epoch: int, batch: int, partitions: int) -> int:
        """A micro-batch is to be run.

        :param partitions: how many are wanted.
        :returns: how many it has: as many as when it was run first, or a sink that knows it would
            miss some.
        :raises StagingError: the checkpoint and this folder are not of one query, or a newer run
            has begun.
        """
        with self._locked():
            state = self.state()
            if state.epoch != epoch:
                raise self._superseded()
            if batch <= state.committed:
                raise StagingError(
                    f"the checkpoint asks for micro-batch {batch}, and stagingPath {self.folder} has it done, as far as {state.committed}: "
                    "the checkpoint is older, or is another query's"
                )
            if batch > state.planned + 1:
                raise self._lost(batch - 1, state)
            if batch == state.planned:
                return state.partitions
            if batch < state.planned:
                # A new checkpoint over an old folder: what its last micro-batches have received is
                # given once more.
                return max(self._partitions(batch), default=partitions - 1) + 1
            self._write_state(replace(state, planned=batch, partitions=partitions))
            return partitions

    def commit(self, batch: int) -> None:
        """Drop the files up to this micro-batch, which the sink has; keep the ids.

        :raises StagingError: as :meth:`plan`.
        """
        if batch > (state := self.state()).planned:
            raise self._lost(batch, state)
        with self._locked():
            state = self.state()
            # Of those before it was interrupted there may be some pieces only, and all ids are
            # kept.
            for over in range(state.committed + 1, batch + 1):
                for pieces in self._partitions(over).values():
                    self._remember(pieces)
            if batch > state.committed:
                self._write_state(replace(state, committed=batch))
            for path in self.folder.iterdir():
                over = (
                    path.suffix in (".arrow", ".settled") and int(path.name.split("-")[0]) <= batch
                )
                # A day old: left behind by a task that was killed.
                if over or (path.suffix == ".tmp" and path.stat().st_mtime < time.time() - 86_400):
                    path.unlink()
            self._forget()

    def counts(self, batch: int) -> list[Staged]:
        """Return what each partition received, without rows; empty if committed."""
        return [self._read(pieces, rows=False) for pieces in self._partitions(batch).values()]

    def octets(self, batch: int) -> int:
        """How large the files of a micro-batch are; 0 if committed."""
        paths = [path for pieces in self._partitions(batch).values() for path in pieces]
        return sum([path.stat().st_size for path in paths])

    def younger(self, batch: int, moment: int) -> bool:
        """Whether most messages of a micro-batch have a later ``timestamp``.

        One message proves nothing: its sender's clock may be wrong.

        :param moment: in microseconds since 1970.
        """
        rows = young = 0
        for path in self.folder.glob(f"{batch:012}-*.arrow"):
            for times in staged.column_of(path, "timestamp"):
                rows += len(times)
                young += pc.sum(pc.greater(times.cast(pa.int64()), moment)).as_py() or 0
        return 2 * young > rows

    # --- tasks

    def find(self, batch: int, partition: int) -> Staged | None:
        """Return a micro-batch's partition if a task has begun to settle it.

        A partition that its task has not ended ends now.
        """
        if not self._path(batch, partition, 0).exists():
            return None
        with self._locked():
            pieces = self._ended(batch, partition)
        return self._read(pieces, rows=True) if pieces else None

    def publish(
        self,
        batch: int,
        partition: int,
        piece: int,
        epoch: int | None,
        received: Staged,
        stable_ids: bool,
    ) -> Staged:
        """Add these messages to a partition, unless another task has ended it.

        They are synced when this returns.

        :param piece: how many this task has published of it before; it publishes more if their
            ``ended`` was ``MORE``.
        :param epoch: of the run that planned it; None where there are no runs.
        :param stable_ids: a message that comes again has the id that it had, so that those known
            already are left out.
        :returns: the piece, as it is; where it is not ``mine``, the whole partition, which is over.
        :raises StagingError: a newer run of the query has begun, or the micro-batch is over.
            Nothing is to be acknowledged then.
        """
        path = self._path(batch, partition, piece)
        made = self._write(path, received)
        try:
            with self._locked():
                state = self.state()
                if epoch is not None and state.epoch != epoch:
                    raise self._superseded()
                if batch <= state.committed:
                    raise StagingError(
                        f"micro-batch {batch} is over; this task of it came too late"
                    )
                there = self._pieces(batch, partition)
                if len(there) < piece:
                    raise StagingError(
                        f"stagingPath {self.folder} has lost files of micro-batch {batch} while it ran"
                    )
                if len(there) > piece or not self._goes_on(there):
                    return self._read(self._ended(batch, partition), rows=True)
                self._remembered.belongs(state.identity)
                if stable_ids:
                    fresh = self._remembered.fresh(received.batches, path.stem)
                    if fresh is not None:
                        received = replace(received, batches=fresh)
                        made.unlink()
                        made = self._write(path, received)
                made.rename(path)
                sync(self.folder)
                self._remembered.add(path.stem, received.batches)
                return replace(received, mine=True)
        finally:
            made.unlink(missing_ok=True)

    def settled(self, batch: int, partition: int, piece: int) -> None:
        """The broker has confirmed the acknowledgement of that piece."""
        # Where the disk is full it is not noted, and the ids are remembered for longer.
        with suppress(OSError):
            self._path(batch, partition, piece).with_suffix(".settled").touch()

    # --- partitions and their pieces

    def _path(self, batch: int, partition: int, piece: int) -> Path:
        return self.folder / f"{batch:012}-{partition:04}-{piece:06}.arrow"

    def _partitions(self, batch: int) -> dict[int, list[Path]]:
        """The pieces of each partition of a micro-batch that has some."""
        found: dict[int, list[Path]] = {}
        for path in sorted(self.folder.glob(f"{batch:012}-*.arrow")):
            found.setdefault(int(path.stem.split("-")[1]), []).append(path)
        return found

    def _pieces(self, batch: int, partition: int) -> list[Path]:
        return sorted(self.folder.glob(f"{batch:012}-{partition:04}-*.arrow"))

    def _goes_on(self, pieces: list[Path]) -> bool:
        """Whether a partition that has these pieces may have another."""
        return not pieces or staged.read(pieces[-1], rows=False).ended is End.MORE

    def _ended(self, batch: int, partition: int) -> list[Path]:
        """Return all pieces of a partition; end one that its task has left.

        The folder is locked.
        """
        pieces = self._pieces(batch, partition)
        if pieces and self._goes_on(pieces):
            last = self._path(batch, partition, len(pieces))
            self._write(last, Staged([], 0, End.LEFT)).rename(last)
            pieces.append(last)
        # Also for a task that ended before it had synced what it has published.
        sync(self.folder)
        return pieces

    def _read(self, pieces: list[Path], rows: bool) -> Staged:
        return staged.whole([staged.read(path, rows) for path in pieces])

    # --- files

    def _make(self) -> None:
        ids = self.folder / _IDS
        try:
            made = [path for path in (ids, *ids.parents) if not path.exists()]
            ids.mkdir(parents=True, exist_ok=True)
            for path in made:
                sync(path.parent)
        except OSError as error:
            raise StagingError(
                f"stagingPath {self.folder} cannot be used: {error.strerror}"
            ) from None

    def _lost(self, batch: int, state: State) -> StagingError:
        return StagingError(
            f"the checkpoint is at micro-batch {batch}, and stagingPath {self.folder} at {state.planned}: "
            "it is not that of this query, or has lost files"
        )

    def _superseded(self) -> StagingError:
        return StagingError(
            f"another run of the query has begun with stagingPath {self.folder}; this one ends"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StagingError(
                f"stagingPath {self.folder} cannot be used here: {error.strerror}; is it shared by all executors?"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise StagingError(
                f"stagingPath {self.folder} cannot be used: {error.strerror or error}"
            ) from None
        finally:
            os.close(lock)

    def _write_state(self, state: State) -> None:
        made = self.folder / f"state.{uuid4().hex}.tmp"
        made.write_text(json.dumps({"version": _VERSION, **asdict(state)}), encoding="utf-8")
        sync(made)
        made.rename(self.folder / "state.json")
        sync(self.folder)

    def _write(self, path: Path, received: Staged) -> Path:
        """A file with these messages beside the one that it is to become, synced.

        :raises StagingError: it cannot be written; nothing is left of it.
        """
        made = path.with_suffix(f".{uuid4().hex}.tmp")
        try:
            staged.write(made, received)
            sync(made)
        except OSError as error:
            with suppress(OSError):
                made.unlink()
            raise StagingError(
                f"stagingPath {self.folder} cannot be written to: {error.strerror or error}"
            ) from None
        return made

    def _remember(self, pieces: list[Path]) -> None:
        """Keep the ids of a partition whose files are to go."""
        end = (
            "settled"
            if all(path.with_suffix(".settled").exists() for path in pieces)
            else "unsettled"
        )
        self._remembered.keep(pieces, self.folder / _IDS, end, sync)

    def _forget(self) -> None:
        """Remove the ids that need not be remembered any more."""
        bounds = {".settled": SETTLED_IDS, ".unsettled": UNSETTLED_IDS}
        for path in sorted((self.folder / _IDS).iterdir(), reverse=True):
            if path.suffix == ".tmp":
                path.unlink()
            elif path.suffix in bounds:
                old = (
                    path.suffix == ".unsettled"
                    and path.stat().st_mtime < time.time() - UNSETTLED_AGE
                )
                # The newest file is kept, however many ids it has.
                if old or bounds[path.suffix] <= 0:
                    path.unlink()
                bounds[path.suffix] -= int(path.stem.rpartition(".")[2])
