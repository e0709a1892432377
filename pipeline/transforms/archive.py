"""Messages as an archive keeps them.

Owns the columns that an archive adds, and which messages are in it already. Reads and writes nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

#: What an archive is partitioned by.
BY: Final = "day"


def archived(messages: DataFrame) -> DataFrame:
    """The messages with ``archived``, when that was, and ``day``, the day in UTC of their JMSTimestamp, or where they have none, of that.

    :param messages: rows of :data:`pipeline.columns.MESSAGES`, of a table or a stream.
    """
    stamped = messages.withColumn("archived", sql.current_timestamp())
    return stamped.withColumn(BY, sql.to_date(sql.coalesce("timestamp", "archived")))


def missing(messages: DataFrame, archive: DataFrame) -> DataFrame:
    """Of these messages those that are not in the archive, by id and destination. Those without an id are taken to be new."""
    there = archive.select(sql.col("message_id").alias("_id"), sql.col("destination").alias("_destination")).distinct()
    same = (sql.col("message_id") == sql.col("_id")) & (sql.col("destination") == sql.col("_destination"))
    return messages.join(there, same, "left_anti")
