"""Percentiles are those of the sorted list, to the accuracy that is promised."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.transforms.latency import ACCURACY, PERCENTILES, latencies

_MANY, _FEW = 120_000, 1_000


def _ms(number: int) -> float:
    """Some latencies of few milliseconds, few of very many, in no order, and the same one for
    many.
    """
    return (number * 48_271 % 65_537) ** 2 // 1000 / 100


def test_percentiles_are_of_the_ranks_of_a_sorted_list(spark: SparkSession) -> None:
    number = sql.col("id")
    residue = number * 48_271 % 65_537
    journeys = spark.range(0, _MANY, 1, 4).select(
        sql.lit("2026-03-01 10:20:30").cast("timestamp").alias("began"),
        sql.when(number < _FEW, "queue:few").otherwise("queue:many").alias("destination"),
        sql.when(number < _FEW, sql.array(sql.lit("b/one"), sql.lit("b/two")))
        .otherwise(sql.array())
        .alias("links"),
        (sql.floor(residue * residue / 1000) / 100).alias("total_ms"),
        sql.when(number % 2 == 0, sql.floor(residue * residue / 1000) / 100).alias("settle_ms"),
    )
    found = {
        (row.destination, row.link, row.latency): row
        for row in latencies(journeys, measures=("total_ms", "settle_ms")).collect()
    }
    few, many = range(_FEW), range(_FEW, _MANY)
    expected = {
        ("queue:few", "b/one", "total"): few,
        ("queue:few", "b/two", "total"): few,
        ("queue:few", "b/one", "settle"): few[::2],
        ("queue:few", "b/two", "settle"): few[::2],
        ("queue:many", None, "total"): many,
        ("queue:many", None, "settle"): many[::2],
    }
    assert found.keys() == expected.keys()
    for key, numbers in expected.items():
        values = sorted(map(_ms, numbers))
        row, count = found[key], len(values)
        off = math.ceil(count / ACCURACY) if count > ACCURACY else 0
        assert (row.messages, row.max_ms, str(row.hour)) == (
            count,
            values[-1],
            "2026-03-01 10:00:00",
        )
        for name, percentile in PERCENTILES.items():
            rank = math.ceil(percentile * count)
            lowest, highest = bisect_left(values, row[name]) + 1, bisect_right(values, row[name])
            assert lowest <= highest, f"{row[name]} is no latency of any message"
            assert lowest - off <= rank <= highest + off, (key, name, row[name])
