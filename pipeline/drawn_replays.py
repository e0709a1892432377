"""What only a report shows of a replay: targets, times and outcomes.

Owns which plots there are, and that each is of a bounded number of rows. What becomes of a message
is :mod:`pipeline.transforms.replay`'s.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from pipeline.charts import counted, traffic
from pipeline.summary import Table
from pipeline.transforms.replay import with_status


def looked(rows: DataFrame) -> list[Table]:
    """The tables of a dry run, each with its chart.

    :param rows: of :func:`pipeline.replay.carrying_out.looked_at`; they are read several times.
    """
    # What never died has the time when it was sent.
    told = with_status(rows).withColumn("_died", sql.coalesce("time", "timestamp"))
    one = {"messages": sql.lit(1)}
    return [
        counted(told, "target", "Messages", "messages", "status"),
        counted(told, "reason", "Messages", "messages", "status"),
        *traffic(told, "_died", one, "Deaths of these messages", "status"),
        *traffic(told, "_died", one, "Deaths of these messages", "target"),
    ]


def done(rows: DataFrame) -> list[Table]:
    """The tables of a plan that was carried out, each with its chart.

    :param rows: of :func:`pipeline.transforms.replay.outcomes`; they are read several times.
    """
    return [
        counted(rows, "target", "Messages", "messages", "status"),
        *traffic(rows, "sent", {"messages": sql.lit(1)}, "Messages sent", "target"),
        *traffic(rows, "died", {"messages": sql.lit(1)}, "Deaths of these messages", "status"),
    ]
