"""What comes before each row, against a loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sql

from pipeline.transforms.running import STRETCH, number, running

_NUMBERS = st.one_of(
    st.integers(0, 30), st.integers(STRETCH - 3, STRETCH + 3), st.integers(0, 9 * STRETCH)
)
#: Sequence, number and value, each number once.
_ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), _NUMBERS, st.none() | st.integers(-9, 9)),
    max_size=60,
    unique_by=lambda row: row[:2],
)


def _least(values: list[int]) -> int | None:
    return min(values, default=None)


def _summed(values: list[int]) -> int | None:
    return sum(values) if values else None


@settings(
    max_examples=6,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_ROWS, st.booleans(), st.sampled_from([(sql.min, _least), (sql.sum, _summed)]))
def test_it_is_the_total_of_all_that_comes_before(
    spark: SparkSession,
    rows: list[tuple[str | None, int, int | None]],
    backwards: bool,
    totals: tuple[Callable[[str], Column], Callable[[list[int]], int | None]],
) -> None:
    total, plain = totals
    frame = spark.createDataFrame(rows, "name string, line bigint, value bigint").withColumns(
        {"stretch": number(sql.col("line")), "other": -sql.col("value")}
    )
    answer = running(
        frame,
        total,
        ["value", "other"],
        of=["name"],
        stretch="stretch",
        order=["line"],
        backwards=backwards,
    )
    found = {(row.name, row.line): (row.value_before, row.other_before) for row in answer.collect()}
    expected = _by_a_loop(rows, plain, backwards)
    negative = _by_a_loop(
        [(name, line, value and -value) for name, line, value in rows], plain, backwards
    )
    assert found == {key: (expected[key], negative[key]) for key in expected}
    assert answer.columns == [*frame.columns, "value_before", "other_before"]


def _by_a_loop(
    rows: list[tuple[str | None, int, int | None]],
    plain: Callable[[list[int]], int | None],
    backwards: bool,
) -> dict[tuple[str | None, int], int | None]:
    before: dict[str | None, list[int]] = defaultdict(list)
    found = {}
    for name, line, value in sorted(rows, key=lambda row: row[1], reverse=backwards):
        found[name, line] = plain(before[name])
        if value is not None:
            before[name].append(value)
    return found
