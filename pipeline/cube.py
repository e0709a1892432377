"""Counts for a page that is filtered where it is read.

They are by time, by names, and by how long it took.

Owns that there is a bounded number of them, whatever the time, the names and the messages are: of
time there are fewer stretches, and of names more are called others, until they fit.

Times are rounded to the next of :data:`PER_DECADE` in each decade. So percentiles can be had of any
part of the messages, within 6 % of the exact ones, and no message comes to the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from pipeline.summary import Cube
from pipeline.transforms.traffic import OTHERS, span, stretch

#: Counts in one page, unless not even the fewest stretches and names are as few.
MOST_COUNTS: Final = 12_000
PER_DECADE: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: What is tried, one after the other: stretches of time, and names of each column.
_SIZES: Final = ((60, 12), (30, 7), (12, 5), (2, 3), (2, 0))


def cube(
    rows: DataFrame,
    at: str,
    names: Sequence[str],
    measures: Mapping[str, Column],
    few: Sequence[str] = (),
) -> Cube | None:
    """Return the counts of a table's rows; None where none has a time.

    The rows are read twice: once for how long the time is.

    :param at: the column with the time.
    :param names: columns that are told apart: the most frequent values, and ``others``. A null is
        written as ``(none)``.
    :param measures: by name, of :func:`counting`.
    :param few: those of ``names`` that have so few values that all are told apart, such as an
        outcome.
    """
    ends = span(rows, at).collect()[0]
    if ends["first"] is None:
        return None
    first, last = ends["first"], ends["last"]
    finest = stretch(first, last, _SIZES[0][0])
    each = sql.array(*(_counted(name, values) for name, values in measures.items()))
    counted = (
        rows.where(sql.col(at).isNotNull())
        .select(
            _beginning(sql.unix_seconds(at), finest),
            *(
                sql.coalesce(sql.col(name).cast("string"), sql.lit("(none)")).alias(name)
                for name in names
            ),
            sql.explode(sql.flatten(each)).alias("_one"),
        )
        .groupBy("time", *names, "_one.measure", "_one.value")
        .agg(sql.count("*").alias("messages"))
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        frequent = {name: _frequent(counted, name) for name in names if name not in few}
        for stretches, most in _SIZES:
            every = max(finest, stretch(first, last, stretches))
            named = [
                sql.when(sql.col(name).isin(frequent[name][:most]), sql.col(name))
                .otherwise(OTHERS)
                .alias(name)
                if name in frequent
                else sql.col(name)
                for name in names
            ]
            found = counted.groupBy(
                _beginning(sql.col("time"), every), *named, "measure", "value"
            ).agg(sql.sum("messages").alias("messages"))
            # The last are as few as there are measures, outcomes and decades, and are never cut.
            kept = (found if most == 0 else found.limit(MOST_COUNTS + 1)).collect()
            if len(kept) <= MOST_COUNTS:
                break
    finally:
        counted.unpersist()
    columns = ("time", *names, "measure", "value", "messages")
    return Cube(
        columns,
        [
            (_EPOCH + timedelta(seconds=row[0]), *tuple(row)[1:])
            for row in sorted(kept, key=lambda row: tuple(map(str, row)))
        ],
        every,
        (first, last),
    )


def counting(where: Column, ms: Column | None = None) -> Column:
    """A measure of a cube: rows that count, and the milliseconds of each.

    :param where: the row counts.
    :param ms: that it took; null where that is not known.
    """
    value = sql.lit(None).cast("double") if ms is None else ms.cast("double")
    return sql.when(sql.coalesce(where, sql.lit(False)), sql.array(value)).otherwise(
        sql.array().cast("array<double>")
    )


def _counted(name: str, values: Column) -> Column:
    """Return values with their measure, rounded so that few differ."""

    def counted(value: Column) -> Column:
        power = sql.round(sql.log10(value) * PER_DECADE) / PER_DECADE
        # Three digits are enough of what is within a few percent.
        rounded = sql.when(value > 0, sql.round(sql.pow(sql.lit(10.0), power), 4))
        known = sql.when(value <= 0, sql.lit(0.0)).otherwise(rounded).cast("double")
        return sql.struct(sql.lit(name).alias("measure"), known.alias("value"))

    return sql.transform(values, counted)


def _beginning(seconds: Column, every: int) -> Column:
    return (sql.floor(seconds / every) * every).cast("bigint").alias("time")


def _frequent(counted: DataFrame, name: str) -> list[str]:
    """The most frequent values, the first first."""
    found = (
        counted.groupBy(name)
        .agg(sql.sum("messages").alias("_sum"))
        .orderBy(sql.desc("_sum"), name)
        .limit(_SIZES[0][1])
        .collect()
    )
    return [str(row[0]) for row in found]
