"""``journeys``: every message's outcome is the one that it had."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.errors import PipelineError
from pipeline.jobs.journeys import Limits, run, time_line
from pipeline.output import Output
from pipeline.tables.events import read_events
from pipeline.transforms.journeys import journeys
from tests.pipeline.generated import write_journal

_STORE = "broker"
_FIRST, _SECOND = (f"{_STORE}-{number:017d}" for number in (1, 2))
_QUEUE, _TOPIC = "queue:q", "topic:t"


def test_generated_traffic_has_the_outcomes_that_it_was_made_with(spark: SparkSession, tmp_path: Path) -> None:
    truth = write_journal(tmp_path / "journal", 4_000, seed=3)
    output = Output(str(tmp_path / "answer"))
    found = run(spark, [str(tmp_path / "journal")], output, limits=Limits(stuck=0.001))
    rows = spark.read.parquet(str(tmp_path / "answer" / "journeys")).select("message_id", "outcome", "redelivered", "gap").collect()
    assert Counter(row.outcome for row in rows) == truth.outcomes
    for outcome, ids in truth.ids.items():
        assert {row.message_id for row in rows if row.outcome == outcome} == ids
    assert {row.message_id for row in rows if row.redelivered is not None} == truth.redelivered
    assert not any(row.gap for row in rows)
    assert found.facts["journeys"] == truth.journeys
    assert found.facts["lost"] == truth.outcomes["lost"]
    assert found.facts["redelivered"] == len(truth.redelivered)
    percentiles = spark.read.parquet(str(tmp_path / "answer" / "latencies"))
    assert {"destination", "link", "hour", "latency", "messages", "p50_ms", "p99_ms"} <= set(percentiles.columns)
    assert percentiles.where("latency = 'transfer' and link = 'bridge/lake' and p50_ms <= p99_ms").count() > 0


def _journal(folder: Path, *lines: dict[str, Any]) -> str:
    """A folder with these lines; each a second after the one before, of the first run unless it says."""
    folder.mkdir()
    numbers: dict[str, Iterator[int]] = {}
    texts = []
    for second, line in enumerate(lines):
        run = line.setdefault("run", _FIRST)
        number = next(numbers.setdefault(run, count(1)))
        texts.append(json.dumps({"v": 1, "line": number, "time": second * 1_000_000, "instance": "i", **line}))
    (folder / "r-0000000001.jsonl").write_text("\n".join(texts) + "\n")
    return str(folder)


def _line(message: str, *steps: str, destination: str = _QUEUE, **fields: Any) -> dict[str, Any]:
    return {"ids": [message], "steps": list(steps), "destination": destination, **fields}


def _found(spark: SparkSession, journal: str) -> dict[tuple[str, str | None], Row]:
    events = read_events(spark, [journal])
    return {(row.message_id, row.subscription): row for row in journeys(events.frame, events.seen).collect()}


def test_each_outcome_is_known_by_its_steps(spark: SparkSession, tmp_path: Path) -> None:
    link = {"link": "b/l"}
    journal = _journal(
        tmp_path / "journal",
        _line("acknowledged", "produced", "stored", "confirmed"),
        _line("acknowledged", "delivered", connection=4, user="ann"),
        _line("acknowledged", "returned", connection=4, user="ann"),
        _line("acknowledged", "redelivered", connection=5, user="bob", attempts=[2]),
        _line("acknowledged", "acknowledged", "deleted", connection=5, user="bob"),
        _line("with a consumer", "produced", "stored", "delivered"),
        _line("came back", "produced", "stored", "delivered", "acknowledged"),
        _line("came back", "redelivered"),
        _line("in memory", "produced", "confirmed"),
        _line("in the store", "produced", "stored", "confirmed"),
        _line("dead", "produced", "stored", "delivered", "dead", reason="undeliverable", comment="it is poison"),
        _line("expired", "produced", "expired"),
        _line("arrived", "received", destination="queue:s", transfers=[1], **link),
        _line("arrived", "sent", destination="queue:x", target_ids=["at target"], transfers=[1], **link),
        _line("arrived", "arrived", "settled", transfers=[1], **link),
        _line("at target", "produced", destination="queue:x"),
        _line("at target", "delivered", "acknowledged", destination="queue:x"),
        _line("forgotten", "received", "sent", "settled", **link),
        _line("in doubt", "received", "sent", **link),
        _line("taken back", "received", "sent", "rolled back", **link),
        _line("buried", "received", "buried", reason="refused", **link),
        _line("not wanted", "received", "not transferred", "settled", **link),
        _line("of two", "produced", destination=_TOPIC, user="ann"),
        _line("of two", "delivered", "acknowledged", "deleted", destination=_TOPIC, subscription="one"),
        _line("of two", "delivered", destination=_TOPIC, subscription="two"),
        _line("of none", "produced", destination=_TOPIC),
        _line("of today", "produced", run=_SECOND),
    )
    found = _found(spark, journal)
    assert {key: row.outcome for key, row in found.items()} == {
        ("acknowledged", None): "delivered",
        ("with a consumer", None): "waiting",
        ("came back", None): "waiting",
        ("in memory", None): "lost",
        ("in the store", None): "waiting",
        ("dead", None): "dead",
        ("expired", None): "expired",
        ("arrived", None): "delivered",
        ("at target", None): "delivered",
        ("forgotten", None): "lost",
        ("in doubt", None): "in doubt",
        ("taken back", None): "waiting",
        ("buried", None): "dead",
        ("not wanted", None): "not transferred",
        ("of two", "one"): "delivered",
        ("of two", "two"): "lost",
        ("of none", None): "unclaimed",
        ("of today", None): "waiting",
    }
    one = found["acknowledged", None]
    assert (one.attempts, one.consumers, one.confirm_ms, one.deliver_ms, one.acknowledge_ms) == (
        2,
        ["ann@4", "bob@5"],
        0,
        1000,
        3000,
    )
    assert (one.last_step, one.ended - one.began, one.last["redelivered"] > one.last["delivered"]) == (
        "deleted",
        datetime(1, 1, 1, 0, 0, 4) - datetime(1, 1, 1),
        True,
    )
    assert (found["dead", None].reason, found["dead", None].comment) == ("undeliverable", "it is poison")
    assert (found["arrived", None].target_ids, found["at target", None].source_ids) == (["at target"], ["arrived"])
    assert (found["arrived", None].links, found["arrived", None].destination, found["arrived", None].transfer_ms) == (
        ["b/l"],
        "queue:s",
        2000,
    )
    assert found["of two", "one"].producers == found["of two", "two"].producers == ["ann"]
    assert not any(row.gap for row in found.values())

    summary = time_line(spark, [journal], "at target")
    steps = summary.tables[0]
    assert [row[steps.columns.index("step")] for row in steps.rows] == [
        "received",
        "sent",
        "arrived",
        "settled",
        "produced",
        "delivered",
        "acknowledged",
    ]
    with pytest.raises(PipelineError, match="the journal knows no message nobody"):
        time_line(spark, [journal], "nobody")


def test_what_may_be_in_a_missing_line_is_beside_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(
        tmp_path / "journal",
        _line("before", "produced", "stored", line=1),
        _line("between", "produced", "stored", line=40_000),
        _line("after", "produced", "stored", line=100_000),
    )
    found = _found(spark, journal)
    assert {key[0]: row.gap for key, row in found.items()} == {"before": True, "between": True, "after": True}
    whole = _journal(tmp_path / "whole", *(_line(f"m{number}", "produced", "stored", line=number) for number in (7, 8, 9)))
    assert not any(row.gap for row in _found(spark, whole).values())


def test_the_plan_sorts_once_and_brings_nothing_to_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    events = read_events(spark, [_journal(tmp_path / "journal", _line("a", "produced"))])
    plan = journeys(events.frame, events.seen)._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange hashpartitioning(message_id") == 1
    for word in ("Python", "ObjectHashAggregate", "CollectLimit"):
        assert word not in plan
