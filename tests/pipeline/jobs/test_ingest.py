"""``ingest``: the table is the journal, each event once, whatever comes twice, late or not at all,
and whoever kills it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from pipeline.jobs.ingest import run
from pipeline.tables.events import read_events
from pipeline.tables.ingested import Ingested
from tests.pipeline.generated import write_journal
from tests.pipeline.jobs.ingests import EVENTS, OCTETS, QUEUES, check

_ROOT = Path(__file__).parents[3]


def test_copies_late_segments_a_lost_checkpoint_and_compaction_make_no_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, elsewhere, table = tmp_path / "journal", tmp_path / "elsewhere", tmp_path / "table"
    truth = write_journal(journal, EVENTS, octets=OCTETS, queues=QUEUES)
    assert len(truth.segments) > 3, "one is late, and the others are several batches"
    elsewhere.mkdir()
    late = truth.segments[1].rename(elsewhere / truth.segments[1].name)
    shutil.copy(late, journal / "being-written-0000000001.jsonl.open")
    first = run(spark, [str(journal)], str(table), octets=4 * OCTETS)
    assert len(first) > 1

    # What is late goes to its own day, though newer ones are there; a copy is known by its lines,
    # and a line in two copies counts once.
    shutil.copy(late, elsewhere / "a-copy-of-it-0000000099.jsonl")
    shutil.copy(truth.segments[0], elsewhere / "another name.jsonl")
    os.utime(late, (0, 0))
    second = run(spark, [str(journal), str(elsewhere)], str(table))
    copied = sum(len(path.read_text().splitlines()) for path in (late, truth.segments[0]))
    assert sum(one.doubled for one in second.values()) == copied
    check(spark, table, truth)
    assert run(spark, [str(journal), str(elsewhere)], str(table)) == {}

    assert Ingested(spark, str(table)).compact() == len(first) + len(second)
    shutil.rmtree(table / "checkpoint")
    third = run(spark, [str(journal)], str(table))
    assert sum(one.events for one in third.values()) == 0
    assert Ingested(spark, str(table)).compact() == 0
    assert len(list((table / "events").iterdir())) == 1 + len(third)
    check(spark, table, truth)


def test_only_folders_that_were_asked_for_are_read_and_only_of_batches_that_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    truth = write_journal(journal, EVENTS, queues=QUEUES)
    run(spark, [str(journal)], str(table))
    (batch,) = (table / "events").iterdir()
    shutil.copytree(batch, table / "events" / "batch=half-done")
    check(spark, table, truth)
    asked = read_events(
        spark, [str(table)], ["queue:orders.0", "topic:prices"], "2026-03-02", "2026-03-02T08:00:00"
    ).frame
    plan = asked._jdf.queryExecution().toString()
    filters = next(line for line in plan.splitlines() if "PartitionFilters" in line)
    assert "day" in filters.split("PartitionFilters")[1]
    assert "destination_dir" in filters.split("PartitionFilters")[1].split("PushedFilters")[0]
    read = {
        path.split("destination_dir=")[1].split("/")[0]
        for (path,) in asked.select("_metadata.file_path").distinct().collect()
    }
    assert read <= {"queue-orders.0", "topic-prices"}
    assert {row[0] for row in asked.select("destination").distinct().collect()} == {
        "queue:orders.0",
        "topic:prices",
    }


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
    texts = [_line(number, name) for number, name in enumerate([*names, None], 1)]
    (tmp_path / "journal" / "r-0000000001.jsonl").write_text("".join(texts))
    for shared in (0, 3):
        table = str(tmp_path / f"table{shared}")
        run(spark, [str(tmp_path / "journal")], table, shared=shared)
        assert {
            row[0] for row in read_events(spark, [table]).frame.select("destination").collect()
        } == {*names, None}
        assert read_events(spark, [table], names).frame.count() == len(names)


def _line(number: int, destination: str | None) -> str:
    return (
        json.dumps(
            {
                "v": 1,
                "run": "r",
                "line": number,
                "time": 1,
                "ids": ["a"],
                "steps": ["produced"],
                "destination": destination,
            }
        )
        + "\n"
    )


def test_what_cannot_be_read_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    journal.mkdir()
    with pytest.raises(PipelineError, match="there is no segment"):
        run(spark, [str(journal)], str(table))
    gone, newer = journal / "r-0000000001.jsonl", journal / "r-0000000002.jsonl"
    gone.write_text(_line(1, "queue:a"))
    newer.write_text(_line(2, "queue:a").replace('"v": 1', '"v": 9'))
    with pytest.raises(Exception, match="is of version 9"):
        run(spark, [str(journal)], str(table))
    # The batch is settled; its segments are gone before it could be done.
    gone.unlink()
    newer.write_text(_line(2, "queue:a"))
    with pytest.raises(
        PipelineError, match=r"r-0000000001\.jsonl.*--skip-missing goes on without it$"
    ) as raised:
        run(spark, [str(journal)], str(table))
    assert "\n" not in str(raised.value)
    (written,) = run(spark, [str(journal)], str(table), skip_missing=True).values()
    assert written.events == 1
