"""``ingest``: the table is the journal, each event once, whatever comes twice, late or not at all, and whoever kills it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.errors import PipelineError
from pipeline.jobs.ingest import run
from pipeline.tables.events import read_events
from pipeline.tables.ingested import Ingested
from tests.pipeline.generated import Truth, write_journal

_OCTETS = 60_000


def _check(spark: SparkSession, table: Path, truth: Truth) -> None:
    """The table has the journal's events, each once."""
    frame = read_events(spark, [str(table)]).frame
    row = frame.agg(sql.count("*"), sql.count_distinct("event_id")).collect()[0]
    assert (row[0], row[1]) == (truth.events, truth.events)
    found = frame.groupBy("destination", sql.unix_date("day")).count().collect()
    destinations: Counter[str] = Counter()
    days: Counter[int] = Counter()
    for destination, day, count in found:
        destinations[destination] += count
        days[day] += count
    assert (destinations, days) == (truth.destinations, truth.days)


def test_copies_late_segments_a_lost_checkpoint_and_compaction_make_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    journal, elsewhere, table = tmp_path / "journal", tmp_path / "elsewhere", tmp_path / "table"
    truth = write_journal(journal, 2_000, octets=_OCTETS)
    assert len(truth.segments) > 3
    elsewhere.mkdir()
    late = truth.segments[1].rename(elsewhere / truth.segments[1].name)
    shutil.copy(late, journal / "being-written-0000000001.jsonl.open")
    first = run(spark, [str(journal)], str(table), octets=2 * _OCTETS)
    assert len(first) > 1

    # What is late goes to its own day, though newer ones are there; a copy is known by its lines, and a line in two copies counts once.
    shutil.copy(late, elsewhere / "a-copy-of-it-0000000099.jsonl")
    shutil.copy(truth.segments[0], elsewhere / "another name.jsonl")
    os.utime(late, (0, 0))
    second = run(spark, [str(journal), str(elsewhere)], str(table))
    copied = sum(len(path.read_text().splitlines()) for path in (late, truth.segments[0]))
    assert sum(one.doubled for one in second.values()) == copied
    _check(spark, table, truth)
    assert run(spark, [str(journal), str(elsewhere)], str(table)) == {}

    assert Ingested(spark, str(table)).compact() == len(first) + len(second)
    shutil.rmtree(table / "checkpoint")
    third = run(spark, [str(journal)], str(table))
    assert sum(one.events for one in third.values()) == 0
    _check(spark, table, truth)
    assert Ingested(spark, str(table)).compact() == 0
    assert len(list((table / "events").iterdir())) == 1 + len(third)
    _check(spark, table, truth)


def test_only_folders_that_were_asked_for_are_read_and_only_of_batches_that_are_whole(spark: SparkSession, tmp_path: Path) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    truth = write_journal(journal, 1_000)
    run(spark, [str(journal)], str(table))
    (batch,) = (table / "events").iterdir()
    shutil.copytree(batch, table / "events" / "batch=half-done")
    _check(spark, table, truth)
    asked = read_events(spark, [str(table)], ["queue:orders.0", "topic:prices"], "2026-03-02", "2026-03-02T08:00:00").frame
    plan = asked._jdf.queryExecution().toString()
    filters = next(line for line in plan.splitlines() if "PartitionFilters" in line)
    assert "day" in filters.split("PartitionFilters")[1]
    assert "destination_dir" in filters.split("PartitionFilters")[1].split("PushedFilters")[0]
    read = {
        path.split("destination_dir=")[1].split("/")[0]
        for path in asked.select("_metadata.file_path").distinct().toPandas()["file_path"]
    }
    assert read <= {"queue-orders.0", "topic-prices"}
    assert {row[0] for row in asked.select("destination").distinct().collect()} == {"queue:orders.0", "topic:prices"}


def test_destinations_of_any_name_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    names = [
        "queue:a/b",
        "queue:..",
        "topic:é ü=%2F",
        "queue:" + "x" * 300,
        "queue:new\nline",
        "queue:plain",
        "queue:PLAIN",
        "queue:tmp:1",
    ]
    (tmp_path / "journal").mkdir()
    texts = [sql_line(number, name) for number, name in enumerate([*names, None], 1)]
    (tmp_path / "journal" / "r-0000000001.jsonl").write_text("".join(texts))
    for shared in (0, 3):
        table = str(tmp_path / f"table{shared}")
        run(spark, [str(tmp_path / "journal")], table, shared=shared)
        assert {row[0] for row in read_events(spark, [table]).frame.select("destination").collect()} == {*names, None}
        for name in names:
            assert read_events(spark, [table], [name]).frame.count() == 1


def sql_line(number: int, destination: str | None) -> str:
    import json

    return (
        json.dumps({"v": 1, "run": "r", "line": number, "time": 1, "ids": ["a"], "steps": ["produced"], "destination": destination})
        + "\n"
    )


def test_what_cannot_be_read_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    journal.mkdir()
    with pytest.raises(PipelineError, match="there is no segment"):
        run(spark, [str(journal)], str(table))
    gone, newer = journal / "r-0000000001.jsonl", journal / "r-0000000002.jsonl"
    gone.write_text(sql_line(1, "queue:a"))
    newer.write_text(sql_line(2, "queue:a").replace('"v": 1', '"v": 9'))
    with pytest.raises(Exception, match="is of version 9"):
        run(spark, [str(journal)], str(table))
    # The batch is settled; its segments are gone before it could be done.
    gone.unlink()
    newer.write_text(sql_line(2, "queue:a"))
    with pytest.raises(PipelineError, match=r"r-0000000001\.jsonl.*--skip-missing goes on without it$") as raised:
        run(spark, [str(journal)], str(table))
    assert "\n" not in str(raised.value)
    (written,) = run(spark, [str(journal)], str(table), skip_missing=True).values()
    assert written.events == 1


_KILLED = """
import sys
from pathlib import Path
from pipeline.jobs.ingest import run
from pipeline.session import spark_session
from tests.pipeline.conftest import options
folder = Path(sys.argv[1])
with spark_session("killed", options(folder)) as spark:
    run(spark, [str(folder / "journal")], str(folder / "table"), octets=int(sys.argv[2]))
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_killed_at_any_time_and_run_again_it_has_each_event_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    truth = write_journal(tmp_path / "journal", 3_000, seed=seed, octets=_OCTETS // 4)
    octets = str(_OCTETS)
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path), octets], cwd=Path(__file__).parents[3], start_new_session=True
    )
    try:
        # At one of many places in a batch: while its files appear, between them and the ledger, or after it.
        while len(list(tmp_path.glob("table/events/batch=*/*/*/*"))) < seed * 7 and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    run(spark, [str(tmp_path / "journal")], str(tmp_path / "table"), octets=int(octets))
    _check(spark, tmp_path / "table", truth)
