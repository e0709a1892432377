"""The tables that jobs have drawn of their frames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pipeline.output import top
from pipeline.summary import Chart, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 3, 1, 6, tzinfo=UTC)


def test_traffic_is_bounded_whatever_the_names_and_the_time_are(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    from pipeline.charts import traffic

    rows = spark.range(20_000).select(
        sql.timestamp_seconds(sql.lit(int(START.timestamp())) + sql.col("id") * 97).alias("time"),
        sql.concat(
            sql.lit("queue:"), sql.least(sql.col("id") % 500, sql.col("id") % 11).cast("string")
        ).alias("destination"),
    )
    [table] = traffic(rows, "time", {"events": sql.lit(1)}, "Events", "destination")
    assert table.title == "Events per 6 hours by destination"
    assert table.columns == ("time", "destination", "events")
    assert table.long
    assert table.chart == Chart(
        "bar", "time", ("events",), by="destination", unit="events", every=6 * 3_600
    )
    assert len({row[0] for row in table.rows}) <= 200
    assert len({row[1] for row in table.rows}) == 8
    assert sum(row[2] for row in table.rows if isinstance(row[2], int)) == 20_000
    assert table.rows[0][0] == START


def test_several_amounts_are_several_plots(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    from pipeline.charts import traffic

    rows = spark.createDataFrame(
        [(START + timedelta(hours=hour), b"x" * hour) for hour in range(150)],
        "at timestamp, body binary",
    )
    tables = traffic(rows, "at", {"messages": sql.lit(1), "octets": sql.length("body")}, "Archived")
    assert [table.title for table in tables] == ["Messages per hour", "Octets per hour"]
    assert [table.rows[3] for table in tables] == [
        (START + timedelta(hours=3), 1),
        (START + timedelta(hours=3), 3),
    ]
    assert traffic(rows.where("false"), "at", {"messages": sql.lit(1)}, "Archived") == []


def test_the_first_rows_of_a_frame_have_times_in_utc(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(START, "a"), (None, "b")], "time timestamp, name string")
    assert top(rows.orderBy("name"), 5, "Times") == Table(
        "Times", ("time", "name"), [(START, "a"), (None, "b")]
    )
