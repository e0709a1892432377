"""What jobs do with their answers."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sql
from rich.console import Console

from pipeline.errors import PipelineError
from pipeline.output import Output, show, top
from pipeline.summary import Summary, Table, shown
from pipeline.tables.delta import DeltaFolder
from pipeline.tables.storage import literally

FORMS = ("delta", "parquet", "csv", "json")


def rows_of(spark: SparkSession, folder: Path, form: str) -> list[Row]:
    """What a reader of that format finds in the folder."""
    if form == "delta":
        return DeltaFolder(spark, str(folder)).frame().collect()
    reader = spark.read.option("header", True).option("escape", '"')
    return reader.format(form).load(literally(str(folder))).collect()


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_written_in_each_format(spark: SparkSession, tmp_path: Path, form: str) -> None:
    frame = spark.sql(
        "select 'a \"quoted\", name' as name, map('k', 'v') as headers, array(1, 2) as numbers, X'00FF' as body"
    )
    for _ in range(2):
        written = Output(str(tmp_path), form).write(frame, "table")
        assert written.collect() == frame.collect()
    if form in ("delta", "parquet"):
        assert rows_of(spark, tmp_path / "table", form) == frame.collect()
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
    assert Output(None, form).write(frame) is frame


@pytest.mark.parametrize("before", FORMS)
@pytest.mark.parametrize("form", FORMS)
def test_a_failing_job_leaves_the_last_answer_and_the_next_replaces_it_whatever_it_was(
    spark: SparkSession, tmp_path: Path, before: str, form: str
) -> None:
    # Patterns, and addresses, would read this name otherwise.
    place = tmp_path / "an [an]swer, 100%" / "all"
    good = spark.range(3).select(sql.col("id").cast("string").alias("number"))
    Output(str(place), before).write(good)
    failing = spark.range(0, 10, 1, 2).select(
        sql.when(sql.col("id") == 7, sql.raise_error(sql.lit("no answer")))
        .otherwise("x")
        .alias("x")
    )
    with pytest.raises(PySparkException, match="no answer"):
        Output(str(place), form).write(failing)
    assert sorted(rows_of(spark, place, before)) == good.collect()
    better = spark.range(2).select((sql.col("id") + 5).cast("string").alias("better"))
    Output(str(place), form).write(better)
    assert sorted(rows_of(spark, place, form)) == better.collect()
    assert [one.name for one in place.parent.iterdir()] == ["all"]


def test_an_answer_takes_the_place_of_no_table_that_a_job_keeps_and_of_no_link(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaFolder(spark, str(tmp_path / "archive"))
    table.append(table.write(spark.range(3).withColumn("day", sql.current_date()), ["day"]))
    place, link = tmp_path / "place", tmp_path / "link"
    Output(str(place), "csv").write(spark.range(1))
    link.symlink_to(place)
    for form in FORMS:
        with pytest.raises(PipelineError, match="is a table that a job keeps"):
            Output(str(tmp_path / "archive"), form).write(spark.range(1))
        Output(str(link), form).write(spark.range(2))
        assert link.is_symlink()
        assert len(rows_of(spark, place, form)) == 2
    assert table.frame().count() == 3
    assert sorted(one.name for one in tmp_path.iterdir()) == ["archive", "link", "place"]


@pytest.mark.parametrize(
    "name",
    [
        *("thesis.docx", "sub/part-0.parquet", "a-1.jsonl", "data/mine"),
        *(".bashrc", ".ssh/id_ed25519", "_checkpoint/metadata", "_known/_delta_log/0.json"),
    ],
)
@pytest.mark.parametrize("form", ["delta", "csv"])
def test_a_folder_with_anything_else_is_left_as_it_is(
    spark: SparkSession, tmp_path: Path, name: str, form: str
) -> None:
    other = tmp_path / "answer" / name
    other.parent.mkdir(parents=True)
    other.write_text("kept")
    with pytest.raises(PipelineError, match=f"has {name}, which no answer has"):
        Output(str(tmp_path / "answer"), form).write(spark.range(1))
    assert other.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["answer"]


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


def test_what_a_terminal_would_obey_is_written_out() -> None:
    """Senders choose the names of destinations and what is in comments."""
    text, hostile = StringIO(), "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe"
    table = Table(hostile, ("destination", "messages"), [(hostile, 1)])
    show(Summary(hostile, {"from": hostile}, [table]), Console(file=text, width=200))
    said = text.getvalue()
    assert said.count("\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\u202egnp.exe") == 4
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)


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
