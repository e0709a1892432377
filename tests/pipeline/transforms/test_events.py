"""Lines into events: whatever a line says, Spark's answer is that of a plain loop."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from gateway.journal.schema import VERSION, Step
from pipeline.failures import sentence
from pipeline.tables.lines import lines, schema
from pipeline.transforms.events import events, is_damaged
from tests.pipeline.plain import expand

_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
_NUMBERS = st.integers(0, 2**40)


@st.composite
def _lines(draw: st.DrawFn) -> dict[str, Any]:
    steps = draw(
        st.lists(
            st.sampled_from([step.value for step in Step] + ["unheard of"]),
            min_size=1,
            max_size=4,
            unique=True,
        )
    )
    line: dict[str, Any] = {
        "v": VERSION,
        "run": draw(_NAMES),
        "line": draw(st.integers(1, 2**50)),
        "time": draw(st.integers(0, 2**51)),
        "steps": steps,
    }
    if draw(st.booleans()):
        line["ids"] = draw(st.lists(_NAMES, min_size=1, max_size=5))
        count = len(line["ids"])
    else:
        run = st.tuples(st.integers(0, 2**40), st.integers(1, 3), st.integers(1, 9)).map(list)
        line["prefix"], line["runs"] = draw(_NAMES), draw(st.lists(run, min_size=1, max_size=3))
        count = sum(one[1] for one in line["runs"])
    for name in (
        "instance",
        "destination",
        "subscription",
        "user",
        "link",
        "reason",
        "comment",
        "provider",
    ):
        if draw(st.booleans()):
            line[name] = draw(_NAMES)
    octets = st.binary(max_size=20).map(lambda body: base64.b64encode(body).decode())
    for name, value in {
        "sizes": _NUMBERS,
        "attempts": st.integers(1, 99),
        "transfers": _NUMBERS,
        "bodies_hash": _NAMES,
        "headers_hash": _NAMES,
        "target_ids": st.one_of(st.just(""), _NAMES),
        "headers": st.dictionaries(_NAMES, _NAMES, max_size=3),
        "bodies": octets,
        "body_types": st.sampled_from(["TEXT", "BYTES"]),
        "timestamps": st.integers(0, 2**41),
    }.items():
        if draw(st.integers(0, 3)) == 0:
            line[name] = draw(st.lists(value, min_size=count, max_size=count))
    if draw(st.booleans()):
        line["size"] = draw(_NUMBERS)
    if draw(st.booleans()):
        line["a field of tomorrow"] = {"with": ["anything"]}
    return line


def _read(spark: SparkSession, texts: list[str]) -> DataFrame:
    rows = spark.createDataFrame([(text,) for text in texts], "value string").repartition(1)
    return rows.select(
        sql.from_json("value", schema(), {"columnNameOfCorruptRecord": "_damaged"}).alias("line")
    ).select("line.*")


def _line(**fields: Any) -> dict[str, Any]:
    """A line of one event, with other fields."""
    return {"v": 1, "run": "r", "line": 1, "time": 1, "ids": ["a"], "steps": ["produced"], **fields}


def _found(frame: DataFrame) -> list[dict[str, Any]]:
    plain = (
        frame.withColumn("time", sql.unix_micros("time"))
        .withColumn("timestamp", sql.unix_millis("timestamp"))
        .drop("day")
    )
    rows = [row.asDict() for row in plain.collect()]
    return [{**row, "body": None if row["body"] is None else bytes(row["body"])} for row in rows]


def _key(event: dict[str, Any]) -> str:
    return json.dumps(event, sort_keys=True, default=repr)


@settings(
    max_examples=4,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)
@given(st.lists(_lines(), min_size=10, max_size=40))
def test_any_lines_become_the_events_of_a_plain_loop(
    spark: SparkSession, written: list[dict[str, Any]]
) -> None:
    found = _found(events(_read(spark, [json.dumps(line) for line in written])))
    expected = [event for line in written for event in expand(line)]
    assert sorted(map(_key, found)) == sorted(map(_key, expected))


def test_the_day_is_that_of_utc(spark: SparkSession) -> None:
    line = json.dumps(_line(time=1_772_409_599_999_999))
    assert str(events(_read(spark, [line])).select("day").collect()[0][0]) == "2026-03-01"


def test_a_version_that_is_not_known_is_refused_in_one_line(spark: SparkSession) -> None:
    line = _line(v=2, run="r-1", line=17)
    with pytest.raises(Exception, match="version 2") as raised:
        events(_read(spark, [json.dumps(line)])).count()
    assert sentence(raised.value) == (
        "the journal's line 17 of run r-1 is of version 2, and this pipeline knows version 1 only: use the one that belongs to the gateway that wrote it"
    )


def test_a_body_that_is_damaged_is_none(spark: SparkSession) -> None:
    line = json.dumps(_line(ids=["a", "b"], steps=["received"], bodies=["YWJ[", "YWJj"]))
    found = events(_read(spark, [line])).orderBy("place").collect()
    assert [row.body for row in found] == [None, b"abc"]


def test_a_line_of_another_version_is_refused_whatever_it_has_become(spark: SparkSession) -> None:
    for line in (
        _line(v=2, run="r-1", line=17, time="2026-03-01T06:00:00Z", ids={"a": 1}),
        {"v": 2, "events": []},
    ):
        read = _read(spark, [json.dumps(line)])
        assert read.where(is_damaged(read)).count() == 0
        with pytest.raises(Exception, match="version 2"):
            events(read).count()


def test_a_time_that_no_calendar_has_is_none(spark: SparkSession) -> None:
    stamps = [
        2**63 - 1,
        -(2**63),
        1_795_343_560_120_000_000,
        253_402_300_800_000,
        -62_135_596_800_001,
        0,
        253_402_300_799_999,
        1,
    ]
    line = _line(ids=["a"] * len(stamps), steps=["received"], timestamps=stamps)
    found = (
        events(_read(spark, [json.dumps(line)]))
        .orderBy("place")
        .select(sql.unix_millis("timestamp"))
        .collect()
    )
    assert [row[0] for row in found] == [None] * 6 + stamps[6:]


def test_damaged_lines_are_left_out_and_can_be_counted(spark: SparkSession, tmp_path: Path) -> None:
    good = json.dumps(_line(ids=["a", "b"]))
    cut = [
        good[:40],
        '{"v":1,"run":"r"}',
        '{"v":1,"run":"r","line":"x","time":1,"ids":["a"],"steps":["dead"]}',
        "{}",
        "\0\0",
    ]
    no_objects = ["[]", f"[{good}]", "[1, 2]", "7", "-1.5", '"text"', "null", "true", "not JSON"]
    runs = [
        "[[1,2]]",
        "[null]",
        "[[1,1000000000000,1]]",
        "[[1,-1,1]]",
        "[[1,null,1]]",
        "[[],[1,1,1]]",
    ]
    no_ids = [
        f'{{"v":1,"run":"r","line":2,"time":1,"prefix":"a","runs":{each},"steps":["dead"]}}'
        for each in runs
    ]
    no_ids.append('{"v":1,"run":"r","line":3,"time":1,"runs":[[1,1,1]],"steps":["dead"]}')
    (tmp_path / "r-0000000001.jsonl").write_text(
        "\n".join([good, *cut, *no_objects, *no_ids, "", good[:-1]])
    )
    (tmp_path / "r-0000000002.jsonl.open").write_text(good + "\n")
    read = lines(spark, [str(tmp_path)])
    assert read.where(is_damaged(read)).count() == len(cut) + len(no_objects) + len(no_ids) + 1
    assert events(read).count() == 2


def test_the_plan_has_neither_a_shuffle_nor_python(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "r-0000000001.jsonl").write_text(json.dumps(_line()) + "\n")
    plan = events(lines(spark, [str(tmp_path)]))._jdf.queryExecution().toString()
    assert "Exchange" not in plan
    assert "Python" not in plan
