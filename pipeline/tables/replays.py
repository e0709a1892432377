"""The ledger of replays as a table, and the plan that is carried out.

Owns how Spark gets what is in these files, which Python writes: the ledger's records from this
process, and the others by their names as they are, on the file system that Python sees.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from pipeline.replay.ledger import RECORDS, State, recorded
from pipeline.replay.plan import ROWS
from pipeline.tables.storage import literally

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def written(path: Path) -> str:
    """What Spark writes this folder by."""
    return f"file://{path.absolute()}"


def read(path: Path) -> str:
    """What Spark reads this file or folder by."""
    return literally(written(path))


def records(spark: SparkSession, path: Path | None, *states: State) -> DataFrame:
    """Return the records of these states, with ``at`` as a timestamp.

    They are those of this moment, and come through this process.

    :param path: of the ledger's file; None before there is a ledger.
    :raises PipelineError: it cannot be read.
    """
    rows = None if path is None else recorded(path, *states)
    frame = (
        spark.createDataFrame(rows, RECORDS)
        if rows is not None and rows.num_rows
        else spark.createDataFrame([], RECORDS)
    )
    return frame.withColumn("at", sql.timestamp_micros("at"))


def sent(known: DataFrame) -> DataFrame:
    """What was sent, as :func:`pipeline.transforms.replay.replayed` wants it.

    :param known: the :func:`records` that say ``intended`` and ``sent``.
    """

    def of(state: State) -> Column:
        return sql.when(sql.col("state") == state.value, sql.col("at"))

    return (
        known.groupBy("key", "twin")
        .agg(sql.min(of(State.INTENDED)).alias("begun"), sql.max(of(State.SENT)).alias("at"))
        .where("at is not null")
    )


def named(spark: SparkSession, path: Path) -> DataFrame:
    """The messages that a plan names: its rows, and ``time``, when each died."""
    rows = spark.read.schema(ROWS).json(read(path)).where("key is not null")
    return rows.withColumn("time", sql.timestamp_millis("died"))
