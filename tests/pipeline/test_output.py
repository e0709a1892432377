"""What jobs do with their answers."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.output import Output, show, top
from pipeline.summary import Summary, Table, shown


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_a_table_is_written_in_each_format(spark: SparkSession, tmp_path: Path, form: str) -> None:
    frame = spark.sql(
        "select 'a \"quoted\", name' as name, map('k', 'v') as headers, array(1, 2) as numbers, X'00FF' as body"
    )
    for _ in range(2):
        assert Output(str(tmp_path), form).write(frame, "table") == f"{tmp_path}/table"
    if form == "parquet":
        assert spark.read.parquet(str(tmp_path / "table")).collect() == frame.collect()
        return
    (part,) = (tmp_path / "table").glob("part-*")
    if form == "csv":
        (row,) = csv.DictReader(StringIO(part.read_text()))
        assert row == {
            "name": 'a "quoted", name',
            "headers": '{"k":"v"}',
            "numbers": "[1,2]",
            "body": "AP8=",
        }
    else:
        assert json.loads(part.read_text()) == {
            "name": 'a "quoted", name',
            "headers": {"k": "v"},
            "numbers": [1, 2],
            "body": "AP8=",
        }
    assert Output().write(frame) is None


def test_a_summary_has_facts_and_tables_but_not_the_long_ones(spark: SparkSession) -> None:
    text = StringIO()
    tables = [
        top(spark.range(5), 3, "Some numbers"),
        Table("Too much", ("x",), [[1]], long=True),
        Table("Nothing", ("x",), []),
    ]
    show(Summary("Found", {"events": 1234567, "none": None}, tables), Console(file=text, width=100))
    said = text.getvalue()
    assert "events  1,234,567" in said
    assert "Some numbers" in said
    assert "The first 3; there are more." in said
    assert "Too much" not in said
    assert "Nothing" not in said


def test_values_are_shown_as_people_read_them() -> None:
    values = [None, True, 1234, 1234.5, 0.0001, datetime(2026, 3, 1, 12, 0, 0, 5000, UTC), "[bold]"]
    assert [shown(value) for value in values] == [
        "",
        "yes",
        "1,234",
        "1,234.5",
        "0",
        "2026-03-01 12:00:00.005",
        "[bold]",
    ]
