"""One version of a Delta Lake table, and how its rows are read.

Owns that a reader has the files of just one version, whatever becomes of the table meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipeline.tables.storage import Location, literally

#: Says whether a file is to be read, by what the log says of it: ``partition.NAME``, and where that
#: is known ``min.NAME`` and ``max.NAME``.
Keep: TypeAlias = Callable[[Mapping[str, Any]], bool]


class Snapshot:
    """One version of a table, as it was when it was looked at.

    :ivar table: delta-rs' own.
    :ivar files: what the log says of each file: ``path``, ``partition.NAME``, and where that is known
        ``min.NAME`` and ``max.NAME``.
    """

    def __init__(self, spark: SparkSession, folder: Location, table: DeltaTable) -> None:
        self._spark: Final = spark
        self._folder: Final = folder
        self.table: Final = table
        self.files: Final[Sequence[Mapping[str, Any]]] = logged(table)

    @property
    def id(self) -> str:
        """Of the table: what no other has, wherever it is moved."""
        return str(self.table.metadata().id)

    def newest(self, application: str) -> int | None:
        """The number of the newest batch of an application; None before the first."""
        return self.table.transaction_version(application)

    def frame(self, keep: Keep | None = None, known: StructType | None = None) -> DataFrame:
        """Return the rows, as :meth:`DeltaFolder.frame` does with these arguments."""
        by = self.table.metadata().partition_columns
        schema = schema_of(self.table)
        later = without(known or StructType(), schema.names)
        schema = StructType([*without(schema, by).fields, *later.fields])
        names = [str(one["path"]) for one in self.files if keep is None or keep(one)]
        if not names:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(
            *(literally(f"{self._folder.uri}/{name}") for name in names)
        )


def logged(table: DeltaTable) -> list[dict[str, Any]]:
    """What the log says of each file, by names such as ``min.NAME``."""
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for one in rows:
        one["path"] = unquote(one["path"])
    return rows


def schema_of(table: DeltaTable) -> StructType:
    return StructType.fromJson(json.loads(table.schema().to_json()))


def without(schema: StructType, names: Iterable[str]) -> StructType:
    gone = set(names)
    return StructType([one for one in schema.fields if one.name not in gone])
