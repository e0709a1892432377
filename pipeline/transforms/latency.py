"""How long messages take: percentiles of the journeys' latencies.

Owns which percentiles, and how near they are. Reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from pipeline.transforms.journeys import LATENCIES

PERCENTILES: Final = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
#: A percentile is the value of a rank that is off by at most one in this number, rounded up; of at
#: most this number of values it is exact.
ACCURACY: Final = 10_000
#: By what latencies are told apart: the first destination, the link, and the hour of the first
#: step.
GRAIN: Final = ("destination", "link", "hour")


def latencies(
    journeys: DataFrame, by: Sequence[str] = GRAIN, measures: Sequence[str] = tuple(LATENCIES)
) -> DataFrame:
    """Return percentiles of each latency in milliseconds.

    Columns ``by``, ``latency``, ``messages``, those of :data:`PERCENTILES` and ``max_ms``.

    A message that went over two links counts for both.

    :param journeys: of :func:`pipeline.transforms.journeys.journeys`.
    :param by: of :data:`GRAIN`.
    :param measures: of ``LATENCIES``.
    """
    values: list[Column] = [
        sql.struct(sql.lit(name.removesuffix("_ms")).alias("latency"), sql.col(name).alias("ms"))
        for name in measures
    ]
    frame = journeys.withColumn("hour", sql.date_trunc("hour", "began"))
    if "link" in by:
        frame = frame.withColumn("link", sql.explode_outer("links"))
    measured = frame.select(*by, sql.inline(sql.array(*values))).where("ms is not null")
    ranks = sql.percentile_approx("ms", list(PERCENTILES.values()), ACCURACY)
    grouped = measured.groupBy(*by, "latency").agg(
        sql.count("*").alias("messages"), ranks.alias("_ranks"), sql.max("ms").alias("max_ms")
    )
    named = [sql.col("_ranks")[place].alias(name) for place, name in enumerate(PERCENTILES)]
    return grouped.select(*by, "latency", "messages", *named, "max_ms")
