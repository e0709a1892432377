"""Traffic: how much there was in each stretch of time, and of each name.

Owns how long a stretch is, so that a plot has as many as it can show however long the time is, and
which names are told apart. Reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

#: Stretches of time that a plot shows at most, and names that it tells apart.
MOST_STRETCHES: Final = 200
MOST_NAMES: Final = 7
#: Bars below each other.
MOST_BARS: Final = 20
#: The name of all that is not told apart.
OTHERS: Final = "others"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STRETCHES: Final = (
    1,
    5,
    15,
    _MINUTE,
    5 * _MINUTE,
    15 * _MINUTE,
    _HOUR,
    6 * _HOUR,
    _DAY,
    7 * _DAY,
    30 * _DAY,
)


def span(rows: DataFrame, at: str) -> DataFrame:
    """Return one row: the time of the first and of the last of the rows.

    ``first`` and ``last`` in seconds since 1970-01-01 UTC; null without rows.

    :param at: the column with the time.
    """
    return rows.agg(
        sql.min(sql.unix_seconds(at)).alias("first"), sql.max(sql.unix_seconds(at)).alias("last")
    )


def stretch(first: int, last: int, most: int = MOST_STRETCHES) -> int:
    """Return how many seconds a stretch has, for a bounded number of them.

    A number that people count time in, or days: :func:`over_time` begins each stretch at a whole
    multiple of it since 1970-01-01 UTC.

    :param first: and
    :param last: in seconds.
    """
    for seconds in _STRETCHES:
        if last // seconds - first // seconds < most:
            return seconds
    # One more, since a span of that many stretches may touch one more of them.
    return _DAY * (1 + (last - first) // _DAY // (most - 1))


def over_time(
    rows: DataFrame,
    at: str,
    seconds: int,
    amounts: Mapping[str, Column],
    by: str | None = None,
    most: int = MOST_NAMES,
) -> DataFrame:
    """Sum the amounts by stretch of time, in order.

    Columns ``time``, its beginning in seconds since 1970-01-01 UTC; ``by``, where there is one; and
    the amounts.

    Stretches without a row are left out, and rows without a time are in none. The rows are read
    once.

    :param at: the column with the time.
    :param seconds: of a stretch.
    :param amounts: what is summed up, by the name that it gets.
    :param by: the column whose values are told apart: the ``most`` with the largest first amount,
        and :data:`OTHERS`.
    """
    beginning = (sql.floor(sql.unix_seconds(at) / seconds) * seconds).cast("bigint").alias("time")
    sums = [sql.sum(amount).alias(name) for name, amount in amounts.items()]
    timed = rows.where(sql.col(at).isNotNull())
    if by is None:
        return timed.groupBy(beginning).agg(*sums).orderBy("time")
    # From here on there are as many rows as stretches and names, not as messages.
    each = timed.groupBy(
        beginning, sql.coalesce(sql.col(by).cast("string"), sql.lit("(none)")).alias("_name")
    ).agg(*sums)
    largest = next(iter(amounts))
    ranked = each.withColumn(
        "_total", sql.sum(largest).over(Window.partitionBy("_name"))
    ).withColumn("_rank", sql.dense_rank().over(Window.orderBy(sql.col("_total").desc(), "_name")))
    named = sql.when(sql.col("_rank") <= most, sql.col("_name")).otherwise(OTHERS).alias(by)
    return (
        ranked.groupBy("time", named)
        .agg(*(sql.sum(name).alias(name) for name in amounts))
        .orderBy("time", by)
    )


def largest(
    rows: DataFrame, by: str, count: str, within: str | None = None, most: int = MOST_BARS
) -> DataFrame:
    """Count the rows of the most frequent values, largest first.

    Columns ``by``, maybe ``within``, and ``count``.

    The rows are read once.

    :param by: the column; a null is written as ``(none)``.
    :param count: the name of the number.
    :param within: a column whose values are told apart: the most frequent of all, and
        :data:`OTHERS`.
    :param most: values of ``by``.
    """
    names = [by] if within is None else [by, within]
    texts = [
        sql.coalesce(sql.col(name).cast("string"), sql.lit("(none)")).alias(name) for name in names
    ]
    found = rows.groupBy(*texts).agg(sql.count("*").alias(count))
    if within is not None:
        found = found.withColumn("_all", sql.sum(count).over(Window.partitionBy(within)))
        ranks = sql.dense_rank().over(Window.orderBy(sql.col("_all").desc(), within))
        # First the ranks, then the names: the latter are what the ranks are of.
        found = found.withColumn("_place", ranks).withColumn(
            within, sql.when(sql.col("_place") <= MOST_NAMES, sql.col(within)).otherwise(OTHERS)
        )
        found = found.groupBy(by, within).agg(sql.sum(count).alias(count))
    found = found.withColumn("_total", sql.sum(count).over(Window.partitionBy(by)))
    found = found.withColumn(
        "_place", sql.dense_rank().over(Window.orderBy(sql.col("_total").desc(), by))
    )
    return (
        found.where(sql.col("_place") <= most)
        .orderBy("_place", sql.col(count).desc(), *names)
        .select(*names, count)
    )
