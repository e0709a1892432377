"""Small files of a Delta Lake table, put together into larger ones.

Owns which files are rewritten, and how that is done in little memory. Needs no Spark, and commits
nothing.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeAlias

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet
from pyspark.sql.types import DataType

from pipeline.columns import UNLIKE
from pipeline.tables.file_statistics import statistics
from pipeline.tables.storage import Location

#: A file as the log has it: ``path``, ``size_bytes``, and for each column ``partition.NAME``.
Logged: TypeAlias = Mapping[str, Any]

#: Bytes of a file that is large enough.
TARGET: Final = 128 << 20
#: Bytes, or rows, after which a group of rows is written. Memory holds two of them: one that is
#: written, and one that is being read.
_GROUP: Final = (32 << 20, 100_000)
#: About how many bytes, and at most how many rows, are read at a time.
_READ: Final = (8 << 20, 8192)
#: Bytes of a column that are read ahead.
_AHEAD: Final = 1 << 20


@dataclass(frozen=True)
class Exchange:
    """Files of one partition, and new ones with the same rows.

    :param old: paths of the files that are to be removed.
    :param actions: of the commit that exchanges them. They say that no data changes, so a reader
        that follows the table's changes does not see the rows again.
    """

    old: frozenset[str]
    actions: Sequence[AddAction | RemoveAction]


def crowded(files: Iterable[Logged]) -> list[list[Logged]]:
    """Return the small files of each partition that has too many files.

    Too many are more than two for each :data:`TARGET` bytes.
    """
    partitions: dict[tuple[Any, ...], list[Logged]] = {}
    for one in files:
        partitions.setdefault(tuple(_values(one).items()), []).append(one)
    return [
        [one for one in found if one["size_bytes"] < TARGET]
        for found in partitions.values()
        if len(found) > 2 * -(-sum(one["size_bytes"] for one in found) // TARGET)
    ]


def put_together(
    place: Location,
    files: Sequence[Logged],
    folder: str,
    schema: pa.Schema,
    counted: Mapping[str, DataType],
) -> Exchange:
    """Write the rows of one partition's files into as few files as hold them.

    :param place: the table's folder.
    :param folder: for the new files, below the table's.
    :param schema: of the table's files. Where a file lacks a column, its rows get null.
    :param counted: columns that have statistics.
    :raises PipelineError: a file cannot be read, or a new one cannot be written.
    """
    values = _values(files[0])
    # For people who look at the folders. Readers take the values from the log.
    parts = [one for one in files[0]["path"].split("/")[:-1] if "=" in one]
    now = int(time.time() * 1000)
    old = [removal(one, False) for one in files]
    new = [
        AddAction(name, octets, values, now, False, json.dumps(statistics(footer, counted)))
        for name, octets, footer in _written(
            place, [str(one["path"]) for one in files], "/".join([folder, *parts]), schema
        )
    ]
    return Exchange(frozenset(one.path for one in old), [*new, *old])


def removal(file: Logged, changing: bool) -> RemoveAction:
    """A file goes. :param changing: its rows go, too."""
    now = int(time.time() * 1000)
    return RemoveAction(str(file["path"]), changing, now, int(file["size_bytes"]), _values(file))


def _values(file: Logged) -> dict[str, str | None]:
    """The partition that a file is in, as the log writes it."""
    return {
        name.removeprefix("partition."): _text(value)
        for name, value in file.items()
        if name.startswith("partition.")
    }


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def _written(
    place: Location, names: Sequence[str], folder: str, schema: pa.Schema
) -> Iterator[tuple[str, int, parquet.FileMetaData]]:
    """Write the rows of files into new ones.

    :returns: name, size and footer of each new one.
    """
    groups = _groups(place, names, schema)
    alike = _alike(schema)
    group = next(groups, None)
    number = 0
    while group is not None:
        name = f"{folder}/part-{number:05}-{uuid.uuid4()}.zstd.parquet"
        footers: list[parquet.FileMetaData] = []
        with place.output(name) as sink:
            with parquet.ParquetWriter(
                sink,
                schema,
                compression="zstd",
                use_dictionary=alike,
                metadata_collector=footers,
            ) as writer:
                while group is not None and sink.tell() < TARGET:
                    writer.write_table(group, group.num_rows)
                    group = next(groups, None)
            octets = sink.tell()
        yield name, octets, footers[0]
        number += 1


def _alike(schema: pa.Schema) -> list[str]:
    """Return the columns that get a dictionary, as Parquet names them."""
    sink = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), sink)
    columns = parquet.read_metadata(pa.BufferReader(sink.getvalue())).schema
    paths = [str(columns.column(place).path) for place in range(len(columns))]
    return [path for path in paths if path.split(".")[0] not in UNLIKE]


def _groups(place: Location, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Return the rows of files, one group of rows at a time."""
    batches: list[pa.RecordBatch] = []
    octets = rows = 0
    for batch in _batches(place, names, schema):
        batches.append(batch)
        octets += batch.nbytes
        rows += batch.num_rows
        if octets >= _GROUP[0] or rows >= _GROUP[1]:
            yield pa.Table.from_batches(batches, schema)
            batches = []
            octets = rows = 0
    if rows:
        yield pa.Table.from_batches(batches, schema)


def _batches(place: Location, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for name in names:
        with place.input(name) as source:
            file = parquet.ParquetFile(
                source, buffer_size=_AHEAD, pre_buffer=False, coerce_int96_timestamp_unit="us"
            )
            there = [one for one in schema.names if one in file.schema_arrow.names]
            for number in range(file.num_row_groups):
                group = file.metadata.row_group(number)
                fitting = _READ[0] * group.num_rows // max(group.total_byte_size, 1)
                for batch in file.iter_batches(
                    min(max(fitting, 1), _READ[1]),
                    row_groups=[number],
                    columns=there,
                    use_threads=False,
                ):
                    yield pa.RecordBatch.from_arrays(
                        [_column(batch, field) for field in schema], schema=schema
                    )


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    return pa.nulls(batch.num_rows, field.type)
