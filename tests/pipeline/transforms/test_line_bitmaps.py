"""Which lines are there: bitmaps against sets."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pipeline.transforms.line_bitmaps import gaps, lines_of, seen_in, twice, unseen

_LINES = st.sets(
    st.one_of(st.integers(1, 40), st.integers(32_760, 32_780), st.integers(1, 200_000)),
    min_size=1,
    max_size=30,
)


def _frame(spark: SparkSession, lines: list[int]) -> DataFrame:
    return spark.createDataFrame([("r", line) for line in lines], "run string, line bigint")


@settings(
    max_examples=3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_LINES, _LINES, st.integers(1, 3))
def test_bitmaps_know_what_sets_know(
    spark: SparkSession, before: set[int], new: set[int], copies: int
) -> None:
    seen = seen_in(_frame(spark, sorted(before)))
    lines = _frame(spark, sorted(new) * copies)
    counted = lines.selectExpr("run", "line", "0 as place", "0 as position")
    assert twice(lines_of(counted), seen).collect()[0][0] == len(new) * copies - len(new - before)
    assert sorted(row.line for row in unseen(lines, seen).collect()) == sorted(new - before)
    missing = sum(row.missing for row in gaps(seen).collect())
    assert missing == max(before) - min(before) + 1 - len(before)


def test_the_head_of_a_run_is_missed_where_an_older_one_of_its_gateway_is_known(
    spark: SparkSession,
) -> None:
    first, second = (f"broker-{number:017d}" for number in (1, 2))
    lines = [(first, 7), (first, 8), (second, 3), (second, 4), (f"other-{2:017d}", 5)]
    seen = seen_in(spark.createDataFrame(lines, "run string, line bigint"))
    assert {row.run: row.missing for row in gaps(seen).collect() if row.missing} == {second: 2}
