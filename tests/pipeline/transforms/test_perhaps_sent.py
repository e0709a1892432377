"""Of which messages it is not known whether they were sent, and the gateway would not know
either.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HERE = "127.0.0.1:7672"
A, B = f"queue:a at {HERE}", f"queue:b at {HERE}"
_RECORDS = "state string, at timestamp, key string, twin string, target string"


def record(
    state: str, key: str, hours: float = 1.0, target: str = A, twin: str = ""
) -> tuple[Any, ...]:
    return state, NOW - timedelta(hours=hours), key, twin or key, target


def doubted(
    spark: SparkSession,
    pending: list[tuple[str, str]],
    records: list[tuple[Any, ...]],
    others: int = 0,
    to_gateway: bool = True,
) -> set[str]:
    """The keys of those in doubt.

    :param pending: key and target, in order.
    :param others: messages that were sent to queue:a half an hour ago.
    """
    from pyspark.sql import functions as sql

    from pipeline.transforms.perhaps_sent import doubtful

    rows = [
        (key, key.partition("/")[0] if "/" in key else key, target, place, NOW - timedelta(hours=9))
        for place, (key, target) in enumerate(pending, 1)
    ]
    frame = spark.createDataFrame(
        rows, "key string, twin string, target string, place bigint, time timestamp"
    )
    told = spark.createDataFrame(records, _RECORDS)
    at = sql.lit(NOW - timedelta(hours=0.5)).alias("at")
    for state in ("intended", "sent"):
        more = spark.range(others).select(
            sql.lit(state).alias("state"),
            at,
            sql.concat(sql.lit("o"), "id").alias("key"),
            sql.lit("o").alias("twin"),
            sql.lit(A).alias("target"),
        )
        told = told.unionByName(more)
    found = doubtful(frame, told, HERE if to_gateway else None, int(NOW.timestamp() * 1_000_000))
    assert found.columns == frame.columns
    return {row.key for row in found.collect()}


def test_the_gateway_knows_for_a_day_what_was_to_be_sent_to_the_same_place(
    spark: SparkSession,
) -> None:
    records = [
        *(record("intended", "sent"), record("sent", "sent")),
        *(
            record("intended", "new"),
            record("intended", "old", 21),
            record("intended", "elsewhere", target=B),
        ),
        *(record("intended", "again", 30), record("intended", "again")),
    ]
    pending = [(key, "queue:a") for key in ("new", "old", "elsewhere", "again", "never")]
    assert doubted(spark, pending, records) == {"old", "elsewhere"}
    assert doubted(spark, pending, records, to_gateway=False) == {
        "new",
        "old",
        "elsewhere",
        "again",
    }
    assert doubted(spark, pending, []) == set()


@pytest.mark.parametrize(
    ("others", "forgotten"), [(0, set()), (19_990, set()), (20_100, {"first"})]
)
def test_what_was_sent_since_has_pushed_an_id_out(
    others: int, forgotten: set[str], spark: SparkSession
) -> None:
    records = [record("intended", "first"), record("intended", "at b", target=B)]
    assert doubted(spark, [("first", "queue:a"), ("at b", "queue:b")], records, others) == forgotten


def test_and_so_will_what_is_sent_before_its_turn_comes(spark: SparkSession) -> None:
    ahead = [(f"n{number}", "queue:a") for number in range(15_000)]
    records = [
        record("intended", "first"),
        record("intended", "last"),
        record("intended", "at b", target=B),
    ]
    pending = [("first", "queue:a"), *ahead, ("last", "queue:a"), ("at b", "queue:b")]
    assert doubted(spark, pending, records) == set()
    assert doubted(spark, pending, records, 6_000) == {"last"}


def test_another_dead_message_of_the_same_death_has_another_id(spark: SparkSession) -> None:
    records = [record("intended", "t/1", twin="t"), record("intended", "u/1", 10, twin="u")]
    # That of u died after the other was to be sent: it died anew.
    assert doubted(
        spark, [("t/2", "queue:a"), ("u/2", "queue:a"), ("t/1", "queue:a")], records
    ) == {"t/2"}
