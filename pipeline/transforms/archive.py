"""Messages as an archive keeps them.

Owns the columns that an archive adds, and which messages are in it already. Reads and writes
nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from gateway.messaging import dead

#: What an archive is partitioned by.
BY: Final = "day"


def archived(messages: DataFrame) -> DataFrame:
    """Add ``archived``, the time, and ``day``, that of JMSTimestamp in UTC.

    A message without a JMSTimestamp has the day of ``archived``.

    :param messages: rows of :data:`pipeline.columns.MESSAGES`, of a table or a stream.
    """
    return by_day(messages.withColumn("archived", sql.current_timestamp()))


def by_day(archive: DataFrame) -> DataFrame:
    """Add ``day`` to an archive's messages, of which its files have none."""
    return archive.withColumn(BY, sql.to_date(sql.coalesce("timestamp", "archived")))


def missing(messages: DataFrame, archive: DataFrame) -> DataFrame:
    """Return those that the archive lacks, by id, destination, time of death.

    Those without an id are taken to be new.

    A message that the broker gives up again, after it was sent again, has the id that it had.
    """
    died = sql.coalesce(
        sql.try_element_at("headers", sql.lit(dead.UNDELIVERED_TIMESTAMP)), sql.lit("")
    )
    names = {"_id": sql.col("message_id"), "_destination": sql.col("destination"), "_died": died}
    there = archive.select([column.alias(name) for name, column in names.items()]).distinct()
    same = [column == there[name] for name, column in names.items()]
    return messages.join(there, same, "left_anti")
