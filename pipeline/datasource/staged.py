"""A staged file: rows in Arrow's format, their count, and why it ended.

Owns the format. Where the files lie, and what they mean, is :mod:`pipeline.datasource.staging`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import pyarrow as pa

from pipeline.datasource.errors import StagingError
from pipeline.datasource.rows import SCHEMA, with_text, without_text

_RECEIVED, _ENDED = b"received", b"ended"
_ID: Final = "message_id"
#: What is raised where a file is damaged: also where only what it says of itself is.
_DAMAGE: Final = (OSError, pa.ArrowException, KeyError, TypeError, ValueError)


class End(Enum):
    """Why a task took no more messages."""

    #: It had as many as it was to take.
    FULL = "full"
    #: Its time was over.
    TIME = "time"
    #: It went away, or lost its connection, between two pieces, and somebody else ended it. There
    #: may be more.
    LEFT = "left"
    #: None came.
    QUIET = "quiet"
    #: It goes on: these had to be acknowledged first, as the broker would have sent no more.
    MORE = "more"


@dataclass(frozen=True)
class Staged:
    """The messages of one partition of one micro-batch, or a piece of them.

    :param received: how many came, those dropped included.
    :param ended: why no more were taken.
    :param mine: this call has published them, so that it is to acknowledge them.
    """

    batches: Sequence[pa.RecordBatch]
    received: int
    ended: End
    mine: bool = False


def write(path: Path, staged: Staged) -> None:
    """Make the file. It is not synced.

    :raises OSError: it cannot be written.
    """
    schema = SCHEMA.with_metadata({_RECEIVED: str(staged.received), _ENDED: staged.ended.value})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in staged.batches:
            writer.write_batch(without_text(batch).replace_schema_metadata(schema.metadata))


def read(path: Path, rows: bool = True) -> Staged:
    """What the file has.

    :param rows: False: without them, which is quick.
    :raises StagingError: it cannot be read.
    """
    try:
        # Not mapped: the file may be removed while Spark has its rows still.
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            said = reader.schema.metadata
            found = _batches(reader) if rows else []
        batches = [with_text(batch.replace_schema_metadata(None)) for batch in found]
        return Staged(batches, int(said[_RECEIVED]), End(said[_ENDED].decode()))
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def whole(pieces: Sequence[Staged]) -> Staged:
    """Join the pieces of a partition, in order, into one without an owner."""
    rows = [batch for piece in pieces for batch in piece.batches]
    return Staged(rows, sum([piece.received for piece in pieces]), pieces[-1].ended)


def column_of(path: Path, name: str) -> list[pa.Array]:
    """One column of a file; nothing else of it is read.

    :raises StagingError: it cannot be read.
    """
    options = pa.ipc.IpcReadOptions(included_fields=[SCHEMA.get_field_index(name)])
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file, options=options) as reader:
            return [batch.column(name) for batch in _batches(reader)]
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def ids_of(path: Path) -> list[str]:
    """The message ids in a file; a message without one is left out.

    :raises StagingError: it cannot be read.
    """
    return [one for column in column_of(path, _ID) for one in column.to_pylist() if one is not None]


def _batches(reader: pa.RecordBatchFileReader) -> list[pa.RecordBatch]:
    """The rows, checked.

    What points out of the file would end the whole process where it is looked up.

    :raises ArrowInvalid: they are damaged.
    """
    found = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    for batch in found:
        batch.validate(full=True)
    return found


def _damaged(path: Path, error: Exception) -> StagingError:
    return StagingError(f"{path} cannot be read: {error}")
