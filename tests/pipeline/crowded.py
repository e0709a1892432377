"""Any number of events, made by Spark: even ones and crowded ones.

Of crowded ones nine of ten share a link, a body, a queue or a trouble. Owns their shape. What becomes of each follows from its number, so nothing of them is kept.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from gateway.journal.schema import Step
from pipeline.columns import EVENTS
from pipeline.transforms.line_bitmaps import seen_in

#: Links, destinations and reasons where they are even.
EVEN: Final = 20
#: How many messages apart one is overtaken on its link.
OVERTAKEN: Final = 1_000
RUN: Final = "made-00000001772344800"
TARGET: Final = "queue:lake"
_START: Final = 1_772_344_800
_DAY_US: Final = 86_400_000_000


def on_links(spark: SparkSession, count: int, crowded: bool) -> DataFrame:
    """Make events of links.

    Each message is received, sent, has arrived, and is settled. One in :data:`OVERTAKEN` arrives behind those of its link that came a little later.

    :param crowded: one link and one body have nine of ten messages.
    """
    message = sql.floor(sql.col("id") / 4).cast("bigint")
    steps = [Step.RECEIVED, Step.SENT, Step.ARRIVED, Step.SETTLED]
    at_target = sql.col("id") % 4 < 1
    late = (message % OVERTAKEN == 1) & (sql.col("id") % 4 >= 2)
    return _events(
        spark,
        count,
        line=sql.col("id") + 1 + sql.when(late, EVEN * 8).otherwise(0),
        place=late.cast("int"),
        step=sql.element_at(sql.array(*map(sql.lit, steps)), (sql.col("id") % 4 + 1).cast("int")),
        message_id=_named("ID:made-", message),
        destination=sql.when(at_target, "queue:harbour").otherwise(TARGET),
        link=_named("bridge/", _shared(message, crowded)),
        transfer=message,
        body_hash=sql.md5(_shared(message, crowded, count).cast("string")),
        headers_hash=sql.lit("0"),
        target_id=sql.when(sql.col("id") % 4 == 2, _named("T:", message)),
    )


def deaths(spark: SparkSession, count: int, crowded: bool) -> DataFrame:
    """Make events that say that a message is dead.

    :param crowded: one trouble has nine of ten.
    """
    message = sql.col("id")
    kind = _shared(message, crowded)
    return _events(
        spark,
        count,
        step=sql.lit(Step.DEAD.value),
        message_id=_named("ID:made-", message),
        destination=_named("queue:", kind),
        reason=_named("REASON_", kind % 5),
        comment=sql.concat(sql.lit("no order "), message.cast("string")),
    )


def at_queues(spark: SparkSession, count: int, crowded: bool) -> DataFrame:
    """Make events of messages that come to a queue and are consumed.

    :param crowded: one queue has nine of ten messages.
    """
    message = sql.floor(sql.col("id") / 5).cast("bigint")
    return _of_broker(spark, count, message, _shared(message, crowded))


def of_one_message(spark: SparkSession, count: int) -> DataFrame:
    """The same, but nine of ten events are of one message."""
    message = sql.floor(sql.col("id") / 5).cast("bigint")
    return _of_broker(spark, count, _shared(message, True, count), message % EVEN)


def _of_broker(spark: SparkSession, count: int, message: Column, queue: Column) -> DataFrame:
    steps = [Step.PRODUCED, Step.STORED, Step.DELIVERED, Step.ACKNOWLEDGED, Step.DELETED]
    return _events(
        spark,
        count,
        step=sql.element_at(sql.array(*map(sql.lit, steps)), (sql.col("id") % 5 + 1).cast("int")),
        message_id=_named("ID:made-", message),
        destination=_named("queue:", queue),
        connection=sql.lit(1),
        user=sql.lit("guest"),
        size=sql.lit(100),
    )


def seen(spark: SparkSession, count: int) -> DataFrame:
    """All the lines, as :mod:`pipeline.transforms.line_bitmaps` has them."""
    numbers = spark.range(1, count + 1).withColumnRenamed("id", "line")
    return seen_in(numbers.withColumn("run", sql.lit(RUN)))


def lying(judged: DataFrame) -> DataFrame:
    """Return each message as it lies at the target, under another id.

    :param judged: of :func:`pipeline.transforms.reconcile.messages`.
    """
    return judged.select(
        sql.concat(sql.lit("other "), "id").alias("message_id"),
        sql.array("body_hash").alias("body_hashes"),
        sql.lit(None).cast("map<string,string>").alias("headers"),
    )


def _shared(number: Column, crowded: bool, values: int = EVEN) -> Column:
    spread = (number % values).cast("bigint")
    return sql.when(number % 10 != 0, 0).otherwise(spread) if crowded else spread


def _named(prefix: str, number: Column) -> Column:
    return sql.concat(sql.lit(prefix), number.cast("string"))


def _events(spark: SparkSession, count: int, **columns: Column) -> DataFrame:
    microseconds = (sql.col("id") * (_DAY_US / count)).cast("bigint")
    columns = {
        "run": sql.lit(RUN),
        "line": sql.col("id") + 1,
        "place": sql.lit(0),
        "instance": sql.lit("made"),
        "time": sql.timestamp_micros(sql.lit(_START * 1_000_000) + microseconds),
        **columns,
    }
    schema = StructType.fromDDL(EVENTS)
    assert isinstance(schema, StructType)
    return spark.range(count).select(
        *[
            columns.get(field.name, sql.lit(None)).cast(field.dataType).alias(field.name)
            for field in schema.fields
        ]
    )
