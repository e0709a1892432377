"""Which messages an earlier replay may have sent without a record.

Only those that the broker could not recognise as duplicates.

Owns what the gateway is trusted to remember of its duplicate ids. Reads and writes nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from pipeline.replay.ledger import State
from pipeline.transforms.running import BEFORE, number, running

#: How long the gateway is trusted to remember a duplicate id, in microseconds: it does for a day,
#: as it comes.
REMEMBERED_US: Final = 20 * 3600 * 1_000_000
#: How many ids of one ledger it remembers for each destination.
REMEMBERED_IDS: Final = 20_000


def doubtful(pending: DataFrame, records: DataFrame, gateway: str | None, now_us: int) -> DataFrame:
    """Return messages that might be sent a second time.

    An earlier replay was to send them, and it is not confirmed.

    :param pending: rows of :data:`pipeline.replay.plan.ROWS` with ``time``, when each died. They are sent
        by their ``place``.
    :param records: all of the ledger that say ``intended`` and ``sent``, with ``at`` as a
        timestamp.
    :param gateway: the address of the gateway that they go to, which drops what has an id that it
        remembers; None is another broker, which drops nothing.
    :param now_us: the clock, microseconds since the epoch.
    """
    intended = sql.when(sql.col("state") == State.INTENDED.value, sql.col("at"))
    to = sql.when(sql.col("state") == State.INTENDED.value, sql.col("target"))
    opened = (
        records.groupBy("key")
        .agg(
            sql.first("twin").alias("_twin"),
            sql.max(intended).alias("_at"),
            sql.max_by(to, intended).alias("_to"),
            sql.collect_set(to).alias("_all_to"),
            sql.count_if(sql.col("state") == State.SENT.value).alias("_sent"),
        )
        .where("_sent = 0 and _at is not null")
        .drop("_sent")
    )
    # The same death, told of by another dead message: that one has another id.
    other = opened.groupBy(sql.col("_twin").alias("twin")).agg(
        sql.max("_at").alias("_twin_at"), sql.collect_set("key").alias("_keys")
    )
    rows = pending.join(opened.drop("_twin"), "key", "left").join(other, "twin", "left")
    by_twin = (sql.col("time") <= sql.col("_twin_at")) & (
        sql.size(sql.array_remove("_keys", sql.col("key"))) > 0
    )
    own = sql.col("_at").isNotNull()
    if gateway is not None:
        # Ids that came to the same destination after it, and those that will before it is its turn.
        since = running(
            records.where(sql.col("state") == State.INTENDED.value)
            .groupBy(sql.col("target").alias("_to"), sql.col("at").alias("_at"))
            .agg(sql.count("*").alias("_ids"))
            .withColumn("_second", sql.date_trunc("second", "_at")),
            sql.sum,
            ["_ids"],
            of=["_to"],
            stretch="_second",
            order=["_at"],
            backwards=True,
        ).select(
            "_to",
            "_at",
            (sql.col("_ids") + sql.coalesce("_ids" + BEFORE, sql.lit(0))).alias("_after"),
        )
        rows = running(
            rows.join(since, ["_to", "_at"], "left").withColumns(
                {
                    "_new": sql.col("_at").isNull().cast("int"),
                    "_stretch": number(sql.col("place")),
                }
            ),
            sql.sum,
            ["_new"],
            of=["target"],
            stretch="_stretch",
            order=["place"],
        )
        ahead = sql.coalesce("_new" + BEFORE, sql.lit(0))
        here = sql.concat(sql.col("target"), sql.lit(f" at {gateway}"))
        elsewhere = sql.exists("_all_to", lambda each: each != here)
        old = sql.unix_micros("_at") < now_us - REMEMBERED_US
        own = own & (elsewhere | old | (sql.col("_after") + ahead > REMEMBERED_IDS))
    return rows.where(
        sql.coalesce(own, sql.lit(False)) | sql.coalesce(by_twin, sql.lit(False))
    ).select(*pending.columns)
