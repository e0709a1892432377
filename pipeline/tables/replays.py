"""The ledger of replays as a table, and the plan that is carried out.

Owns how Spark finds these files, which Python writes: by their names as they are, on the file
system that Python sees.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from pipeline.ledger import RECORDS, State
from pipeline.plan import ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: What Hadoop takes for a pattern.
_PATTERN: Final = re.compile(r"([\\{}\[\]*?,])")


def written(path: Path) -> str:
    """What Spark writes this folder by."""
    return f"file://{path.absolute()}"


def read(path: Path) -> str:
    """What Spark reads this file or folder by."""
    return _PATTERN.sub(r"\\\1", written(path))


def records(spark: SparkSession, path: Path | None, *states: State) -> DataFrame:
    """Return the records of these states, with ``at`` as a timestamp.

    The first line and one that was cut short are left out.

    :param path: of the ledger's file; None before there is a ledger.
    """
    if path is None:
        columns = [column.split() for column in RECORDS.split(",")]
        frame = spark.range(0).select(
            *[sql.lit(None).cast(kind).alias(name) for name, kind in columns]
        )
    else:
        frame = spark.read.schema(RECORDS).json(read(path))
    return frame.where(sql.col("state").isin([state.value for state in states])).withColumn(
        "at", sql.timestamp_micros("at")
    )


def sent(spark: SparkSession, path: Path | None) -> DataFrame:
    """What was sent, as :func:`pipeline.transforms.replay.replayed` wants it."""

    def of(state: State) -> Column:
        return sql.when(sql.col("state") == state.value, sql.col("at"))

    by_key = records(spark, path, State.INTENDED, State.SENT).groupBy("key", "twin")
    return by_key.agg(
        sql.min(of(State.INTENDED)).alias("begun"), sql.max(of(State.SENT)).alias("at")
    ).where("at is not null")


def named(spark: SparkSession, path: Path) -> DataFrame:
    """The messages that a plan names: its rows, and ``time``, when each died."""
    rows = spark.read.schema(ROWS).json(read(path)).where("key is not null")
    return rows.withColumn("time", sql.timestamp_millis("died"))
