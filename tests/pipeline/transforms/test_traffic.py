"""Traffic over time, against sums by hand."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.transforms.traffic import MOST_STRETCHES, OTHERS, largest, over_time, span, stretch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 3, 1, 6, 0, 30, tzinfo=UTC)


def frame(spark: SparkSession, rows: list[tuple[datetime | None, str | None, int]]) -> DataFrame:
    return spark.createDataFrame(rows, "time timestamp, destination string, size bigint")


@given(st.integers(-(10**9), 10**10), st.integers(0, 10**10))
def test_there_are_never_too_many_stretches(first: int, length: int) -> None:
    seconds = stretch(first, first + length)
    assert (first + length) // seconds - first // seconds + 1 <= MOST_STRETCHES


@pytest.mark.parametrize(
    ("length", "seconds"),
    [
        (0, 1),
        (198, 1),
        (3_600, 60),
        (86_400, 900),
        (7 * 86_400, 3_600),
        (30 * 86_400, 21_600),
        (365 * 86_400, 7 * 86_400),
    ],
)
def test_a_stretch_is_one_that_people_know(length: int, seconds: int) -> None:
    assert stretch(1_772_344_800, 1_772_344_800 + length) == seconds


def test_the_largest_names_are_told_apart(spark: SparkSession) -> None:
    random = Random(1)
    rows: list[tuple[datetime | None, str | None, int]] = [
        (
            START + timedelta(milliseconds=random.randrange(300_000)),
            random.choice("abbccccdddddddd"),
            random.randrange(100),
        )
        for _ in range(500)
    ]
    rows += [(START, None, 5), (None, "d", 1_000)]
    truth: Counter[tuple[int, str]] = Counter()
    octets: Counter[tuple[int, str]] = Counter()
    for time, name, size in rows[:-1]:
        assert time is not None
        key = int(time.timestamp()) // 60 * 60, name if name in ("d", "c") else OTHERS
        truth[key] += 1
        octets[key] += size
    from pyspark.sql import functions as sql

    found = over_time(
        frame(spark, rows),
        "time",
        60,
        {"events": sql.lit(1), "octets": sql.col("size")},
        "destination",
        2,
    ).collect()
    assert {(row["time"], row["destination"]): row["events"] for row in found} == truth
    assert {(row["time"], row["destination"]): row["octets"] for row in found} == octets
    assert found == sorted(found, key=lambda row: (row["time"], row["destination"]))


def test_without_names_it_is_one_sum(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    rows = frame(
        spark,
        [
            (START, "a", 1),
            (START + timedelta(seconds=29), "b", 2),
            (START + timedelta(seconds=30), "a", 4),
        ],
    )
    found = over_time(rows, "time", 60, {"octets": sql.col("size")}).collect()
    first = int(START.timestamp()) - 30
    assert [tuple(row) for row in found] == [(first, 3), (first + 60, 4)]
    assert tuple(span(rows, "time").collect()[0]) == (first + 30, first + 60)
    assert tuple(span(rows.where("false"), "time").collect()[0]) == (None, None)


def test_the_most_frequent_are_counted(spark: SparkSession) -> None:
    rows = frame(
        spark, [(START, f"queue:{number}", 0) for number in range(40) for _ in range(number)]
    )
    found = largest(rows, "destination", "messages", most=3).collect()
    assert [tuple(row) for row in found] == [("queue:39", 39), ("queue:38", 38), ("queue:37", 37)]


def test_what_is_counted_is_told_apart_within(spark: SparkSession) -> None:
    pairs = [("a", reason) for reason in "abcdefghij" for _ in range(ord(reason) - 96)] + [
        ("b", "j"),
        ("c", None),
    ]
    rows = spark.createDataFrame(pairs, "destination string, reason string")
    found = [
        tuple(row) for row in largest(rows, "destination", "messages", "reason", most=2).collect()
    ]
    told = [("a", reason, ord(reason) - 96) for reason in "jihgfed"]
    assert found == [
        *sorted([*told, ("a", OTHERS, 6)], key=lambda row: (-row[2], row[1])),
        ("b", "j", 1),
    ]
