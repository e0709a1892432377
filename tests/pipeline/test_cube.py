"""What a page can be filtered by: bounded, exact in number, and near in time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.summary import Cube

START = datetime(2026, 3, 1, 6, tzinfo=UTC)


def messages(spark: SparkSession, count: int, names: int, every: int) -> DataFrame:
    """Messages of which each tenth thousandth is lost, and each took another time.

    :param names: of queues; half of all messages are in the first.
    :param every: seconds from one message to the next.
    """
    from pyspark.sql import functions as sql

    number = sql.col("id")
    return spark.range(count).select(
        sql.timestamp_seconds(sql.lit(int(START.timestamp())) + number * every).alias("at"),
        sql.concat(sql.lit("queue:"), sql.when(number % 2 == 0, 0).otherwise(number % names)).alias(
            "destination"
        ),
        sql.when(number % 10_000 == 9_999, "lost").otherwise("delivered").alias("outcome"),
        sql.pow(sql.lit(10.0), (number % 997) / 150 - 1).alias("ms"),
    )


def counted(rows: DataFrame) -> Cube:
    from pyspark.sql import functions as sql

    from pipeline.cube import counting, cube

    measures = {
        "messages": counting(sql.lit(True), sql.col("ms")),
        "lost": counting(sql.col("outcome") == "lost"),
    }
    found = cube(rows, "at", ("destination", "outcome"), measures, few=("outcome",))
    assert found is not None
    return found


def total(cube: Cube, measure: str, **wanted: str) -> int:
    found = 0
    for row in cube.rows:
        one = dict(zip(cube.columns, row, strict=True))
        if one["measure"] == measure and wanted.items() <= one.items():
            assert isinstance(one["messages"], int)
            found += one["messages"]
    return found


@pytest.mark.parametrize(
    ("count", "names", "every"), [(3_000, 4, 1), (40_000, 5_000, 60), (40_000, 40_000, 86_400)]
)
def test_a_cube_is_bounded_and_loses_nothing(
    count: int, names: int, every: int, spark: SparkSession
) -> None:
    from pipeline.cube import MOST_COUNTS

    cube = counted(messages(spark, count, names, every))
    assert 0 < len(cube.rows) <= MOST_COUNTS
    assert total(cube, "messages") == count
    # Few as they are, what is lost is not among others.
    assert total(cube, "lost") == total(cube, "messages", outcome="lost") == count // 10_000
    assert cube.span == (int(START.timestamp()), int(START.timestamp()) + (count - 1) * every)
    assert all(row[3] == "messages" or row[4] is None for row in cube.rows)
    if names <= 4:
        assert total(cube, "messages", destination="queue:0") >= count // 2
        assert len({row[0] for row in cube.rows}) > 30


def test_percentiles_of_a_cube_are_near(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    rows = messages(spark, 20_000, 4, 60)
    cube = counted(rows)
    values = sorted(
        (float(str(row[4])), int(str(row[5]))) for row in cube.rows if row[3] == "messages"
    )
    exact = rows.agg(sql.percentile("ms", [0.5, 0.9, 0.99])).collect()[0][0]
    for share, value in zip((0.5, 0.9, 0.99), exact, strict=True):
        ranks = accumulate(number for _, number in values)
        place = next(place for place, rank in enumerate(ranks) if rank >= share * 20_000)
        assert values[place][0] == pytest.approx(value, rel=0.06)


def test_rows_without_a_time_are_in_no_cube(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    from pipeline.cube import counting, cube

    rows = messages(spark, 10, 2, 1)
    measures = {"messages": counting(sql.lit(True))}
    untimed = rows.withColumn("at", sql.lit(None).cast("timestamp"))
    assert cube(untimed, "at", ("destination",), measures) is None
    some = cube(rows.unionByName(untimed), "at", ("destination",), measures)
    assert some is not None
    assert total(some, "messages") == 10
