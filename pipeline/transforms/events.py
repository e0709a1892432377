"""Lines of the journal into events: one row for each step of each message.

Owns what a line means, as :mod:`gateway.journal.schema` has it, in Spark's own functions. Reads and
writes nothing.

A line's messages are counted out first and its steps last, so that what a line has for each message
is looked up once for each message, and no array goes beyond the line that it came with.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import IntegerType, StructField, StructType

from gateway.journal.schema import VERSION
from pipeline.columns import EVENTS, LATEST

#: Columns that every event of a line has from the line as it is.
_OF_LINE: Final = (
    "run",
    "line",
    "instance",
    "destination",
    "provider",
    "connection",
    "subscription",
    "selector",
    "user",
    "link",
    "reason",
    "comment",
)
#: Where a line was cut short or is no JSON: what was read of it (of Spark's readers), else null.
DAMAGED: Final = "_damaged"
#: More messages than a line has.
_MOST: Final = 10_000_000
#: Milliseconds since 1970 of the years 1 to 9999. A broker that is not ours hands on what a
#: producer may have written.
_TIMESTAMPS: Final = (-62_135_596_800_000, LATEST)
#: Which of its line's steps an event is, from 0 on: with ``place`` 0 it is the first event of its
#: line.
POSITION: Final = "position"


def whole_lines(lines: DataFrame) -> DataFrame:
    """Return the lines that are not damaged, also those of other versions.

    :param lines: of :data:`pipeline.columns.LINES`, maybe with :data:`DAMAGED`.
    """
    return lines.where(~is_damaged(lines)).drop(DAMAGED)


def is_damaged(lines: DataFrame) -> Column:
    """Whether a line is damaged; never null.

    A line of another version is not judged.
    """
    lacking = sql.col("run").isNull() | sql.col("line").isNull() | _numbers_nothing()
    wrong = (lacking | sql.col(DAMAGED).isNotNull()) if DAMAGED in lines.columns else lacking
    return sql.col("v").isNull() | ((sql.col("v") == VERSION) & wrong)


def events(lines: DataFrame) -> DataFrame:
    """Return each step of each message: :data:`pipeline.columns.EVENTS`.

    The frame fails, when it is computed, on a line of a version that is not known; the error's text
    is one line. Damaged lines are left out.

    :param lines: of :data:`pipeline.columns.LINES`, in any order.
    """
    return named(unnamed_events(lines))


def unnamed_events(lines: DataFrame) -> DataFrame:
    """Return the events without ``event_id``, and with :data:`POSITION`.

    A file keeps these, since the name can be made of the other columns at any time.
    """
    expanded = whole_lines(lines).withColumn("steps", _known_version())
    expanded = expanded.where(sql.size("steps") > 0).withColumn("_ids", _ids())
    kept = [name for name in expanded.columns if name not in ("_ids", "ids", "runs", "prefix", "v")]
    messages = expanded.select(*kept, sql.posexplode("_ids").alias("place", "message_id"))
    place = sql.col("place")

    def each(array: str, one: str) -> Column:
        """Return the message's own element of an array, else the common value.

        A line may lack the array, or have too few elements.
        """
        own = sql.get(sql.col(array), place)
        return sql.coalesce(own, sql.col(one)) if one in kept else own

    narrow = messages.select(
        *_OF_LINE,
        "steps",
        "place",
        sql.timestamp_micros("time").alias("time"),
        "message_id",
        each("sizes", "size").alias("size"),
        each("attempts", "attempt").alias("attempt"),
        each("transfers", "transfer").alias("transfer"),
        each("bodies_hash", "body_hash").alias("body_hash"),
        each("headers_hash", "").alias("headers_hash"),
        sql.nullif(each("target_ids", ""), sql.lit("")).alias("target_id"),
        each("headers", "").alias("headers"),
        # A damaged body is null, and does not keep readers from the other events.
        sql.try_to_binary(each("bodies", ""), sql.lit("base64")).alias("body"),
        each("body_types", "body_type").alias("body_type"),
        _timestamp(each("timestamps", "timestamp")).alias("timestamp"),
    )
    kept = [name for name in narrow.columns if name != "steps"]
    stepped = narrow.select(*kept, sql.posexplode("steps").alias(POSITION, "step"))
    return stepped.withColumn("day", sql.to_date("time")).select(*_columns(), POSITION)


def named(frame: DataFrame) -> DataFrame:
    """Return events, maybe from a file, as :data:`pipeline.columns.EVENTS`.

    They are those of :func:`unnamed_events`.
    """
    return frame.withColumn("event_id", sql.concat_ws("/", "run", "line", "place", "step")).select(
        "event_id", *_columns()
    )


def unnamed_schema() -> StructType:
    """The columns of :func:`unnamed_events`."""
    return StructType(
        [
            *[field for field in _schema().fields if field.name != "event_id"],
            StructField(POSITION, IntegerType()),
        ]
    )


def _schema() -> StructType:
    found = StructType.fromDDL(EVENTS)
    assert isinstance(found, StructType)
    return found


def _columns() -> list[str]:
    return [name for name in _schema().names if name != "event_id"]


def _known_version() -> Column:
    """Return the steps; fails on a line of another version.

    The check is on the steps, since every reader needs them.
    """
    text = sql.concat(
        sql.lit("the journal's line "),
        sql.coalesce(sql.col("line").cast("string"), sql.lit("without a number")),
        sql.lit(" of run "),
        sql.coalesce("run", sql.lit("without a name")),
        sql.lit(" is of version "),
        sql.col("v").cast("string"),
        sql.lit(
            f", and this pipeline knows version {VERSION} only: use the one that belongs to the gateway that wrote it"
        ),
    )
    return sql.when(sql.col("v") == VERSION, sql.col("steps")).otherwise(
        sql.raise_error(text).cast("array<string>")
    )


def _numbers_nothing() -> Column:
    """Whether ``runs`` cannot be counted out."""

    def wrong(run: Column) -> Column:
        count = sql.get(run, sql.lit(1))
        right = (
            (sql.size(run) == 3)
            & sql.get(run, sql.lit(0)).isNotNull()
            & sql.get(run, sql.lit(2)).isNotNull()
        )
        return ~sql.coalesce(right & count.between(0, _MOST), sql.lit(False))

    counted = sql.col("ids").isNull() & sql.col("runs").isNotNull()
    return counted & (sql.col("prefix").isNull() | sql.exists("runs", wrong))


def _timestamp(milliseconds: Column) -> Column:
    """The time; null where it is not known, or no calendar has it."""
    return sql.timestamp_millis(
        sql.when((milliseconds != 0) & milliseconds.between(*_TIMESTAMPS), milliseconds)
    )


def _ids() -> Column:
    """The ids of a line's messages, in order."""

    def progression(run: Column) -> Column:
        first, count, step = run[0], run[1], run[2]
        numbers = sql.transform(
            sql.sequence(sql.lit(0).cast("bigint"), count - 1), lambda number: first + number * step
        )
        return sql.when(count > 0, numbers).otherwise(sql.array().cast("array<bigint>"))

    counted = sql.transform(
        sql.flatten(sql.transform("runs", progression)),
        lambda number: sql.concat("prefix", number.cast("string")),
    )
    # What is of another version has one, so that it is not left out before somebody sees that.
    return sql.when(sql.col("v") == VERSION, sql.coalesce(sql.col("ids"), counted)).otherwise(
        sql.array(sql.lit(""))
    )
