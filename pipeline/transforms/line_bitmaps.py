"""Which lines of a journal somebody has: as bitmaps, a bit for each line.

Owns their making and what can be asked of them: whether a line is there twice, whether one was
there before, which are missing. Reads and writes nothing.

A run's lines are in buckets of 32,768, as Spark's ``bitmap_bucket_number`` counts them, each with a
bitmap of 4 KiB: the columns ``run``, ``bucket`` and ``lines``.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from pipeline.transforms.events import POSITION

#: Lines of a bucket.
BUCKET: Final = 32768
_STARTED: Final = r"-\d{17}$"


def store(run: str) -> Column:
    """Return a run's store: equal for a gateway's runs, which sort by age.

    :param run: the column with its name.
    """
    return sql.regexp_replace(run, _STARTED, "")


def lines_of(events: DataFrame) -> DataFrame:
    """Return the events' lines with ``count``, how often each line is there.

    :param events: whole lines, as :func:`pipeline.transforms.events.unnamed_events` has them.
    """
    first = events.where(f"place = 0 and {POSITION} = 0")
    buckets = first.groupBy("run", sql.bitmap_bucket_number("line").alias("bucket"))
    return buckets.agg(
        sql.bitmap_construct_agg(sql.bitmap_bit_position("line")).alias("lines"),
        sql.count("*").alias("count"),
    )


def seen_in(lines: DataFrame) -> DataFrame:
    """The bitmaps of whole lines, whatever is in them."""
    buckets = lines.groupBy("run", sql.bitmap_bucket_number("line").alias("bucket"))
    return buckets.agg(sql.bitmap_construct_agg(sql.bitmap_bit_position("line")).alias("lines"))


def united(seen: DataFrame) -> DataFrame:
    """One row for each bucket."""
    return seen.groupBy("run", "bucket").agg(sql.bitmap_or_agg("lines").alias("lines"))


def twice(new: DataFrame, seen: DataFrame) -> DataFrame:
    """Count the surplus lines: one row, with the column ``doubled``.

    :param new: of :func:`lines_of`.
    :param seen: what was there before, each line once.
    """
    wanted = seen.join(sql.broadcast(new.select("run", "bucket")), ["run", "bucket"], "left_semi")
    all_of_them = new.select("run", "bucket", "lines", "count").unionByName(
        wanted.withColumn("count", sql.bitmap_count("lines"))
    )
    buckets = all_of_them.groupBy("run", "bucket").agg(
        (sql.sum("count") - sql.bitmap_count(sql.bitmap_or_agg("lines"))).alias("doubled")
    )
    return buckets.agg(sql.coalesce(sql.sum("doubled"), sql.lit(0)).alias("doubled"))


def unseen(lines: DataFrame, seen: DataFrame) -> DataFrame:
    """The lines that were not there before, each once."""
    before = sql.broadcast(
        united(seen).withColumnsRenamed({"bucket": "_bucket", "lines": "_lines"})
    )
    numbered = lines.dropDuplicates(["run", "line"]).withColumn(
        "_bucket", sql.bitmap_bucket_number("line")
    )
    found = numbered.join(before, ["run", "_bucket"], "left")
    return found.where(
        sql.col("_lines").isNull() | ~_has(sql.col("_lines"), sql.col("line"))
    ).select(*lines.columns)


def gaps(seen: DataFrame) -> DataFrame:
    """Count the lines missing between a run's first and last.

    Columns ``run``, ``bucket`` and ``missing``.

    There is a row for each bucket of which a line was seen; what is missing is counted at the next
    line after it. Lines before the first are not missed in the oldest run of a gateway, since they
    may be too old to be kept, and are in the others, since what is older was kept; those after
    the last are not counted.
    """
    buckets = united(seen).select(
        "run", "bucket", sql.bitmap_count("lines").alias("count"), *_ends()
    )
    before = sql.lag("last_line").over(Window.partitionBy("run").orderBy("bucket"))
    oldest = sql.min("run").over(Window.partitionBy(store("run"))) == sql.col("run")
    first = sql.when(oldest, sql.col("first_line") - 1).otherwise(0)
    missing = sql.col("last_line") - sql.coalesce(before, first) - sql.col("count")
    return buckets.select("run", "bucket", missing.alias("missing"))


def _has(bitmap: Column, line: Column) -> Column:
    """Whether a line's bit is set."""
    position = sql.bitmap_bit_position(line)
    octet = sql.conv(
        sql.hex(sql.substring(bitmap, (position / 8).cast("int") + 1, sql.lit(1))), 16, 10
    ).cast("bigint")
    return sql.getbit(octet, (position % 8).cast("int")) == 1


def _ends() -> tuple[Column, Column]:
    """The first and the last line of a bucket's bitmap."""
    digits = sql.hex("lines")
    front = sql.length(digits) - sql.length(sql.ltrim(digits, sql.lit("0")))
    back = sql.length(sql.rtrim(digits, sql.lit("0")))
    base = (sql.col("bucket") - 1) * BUCKET

    def octet(number: Column) -> Column:
        return sql.conv(sql.substring(digits, number * 2 + 1, sql.lit(2)), 16, 10).cast("bigint")

    low, high = (front / 2).cast("int"), ((back - 1) / 2).cast("int")
    # The lowest bit of a number n is n & -n; how many bits it takes says the highest one.
    lowest = sql.log2(octet(low).bitwiseAND(-octet(low)).cast("double")).cast("int")
    highest = sql.length(sql.bin(octet(high))) - 1
    return (base + low * 8 + lowest + 1).alias("first_line"), (base + high * 8 + highest + 1).alias(
        "last_line"
    )
