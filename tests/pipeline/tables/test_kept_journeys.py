"""Journeys that go on with each batch are those that one run over all events finds."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pipeline.command import main
from pipeline.errors import PipelineError
from pipeline.jobs import ingest
from pipeline.jobs import journeys as job
from pipeline.output import Output
from pipeline.tables.delta import DeltaFolder
from pipeline.tables.events import read_events
from pipeline.tables.ingested import Ingested
from pipeline.tables.kept_journeys import REMEMBERED, KeptJourneys
from pipeline.transforms.journeys import journeys
from tests.pipeline.conftest import command
from tests.pipeline.generated import write_journal

_RUN = "broker-00000000000000001"
_QUEUE = "queue:q"
_MINUTE = 60


class _Kept:
    """A journal that grows, its table, and the journeys that are kept of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.journal = folder / "journal"
        self.journal.mkdir()
        self.table = folder / "events"
        self.answer = folder / "answer"
        self._lines = count(1)
        self._segments = count(1)

    def ingest(self, segments: Iterable[Path] = ()) -> None:
        for one in segments:
            shutil.copy(one, self.journal)
        ingest.run(self.spark, [str(self.journal)], str(self.table))

    def tell(self, *lines: dict[str, Any], first: int | None = None) -> None:
        """Ingest a segment with these lines. :param first: the number of its first line."""
        if first is not None:
            self._lines = count(first)
        whole = [
            {"v": 1, "run": _RUN, "instance": "i", "line": next(self._lines), **line}
            for line in lines
        ]
        path = self.journal / f"r-{next(self._segments):010d}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in whole))
        self.ingest()

    def go_on(self, remembered: timedelta = REMEMBERED) -> dict[str, object]:
        told = job.go_on(
            self.spark, str(self.table), Output(str(self.answer)), remembered=remembered
        )
        return dict(told.facts)

    def rows(self) -> list[tuple[Any, ...]]:
        return _rows(DeltaFolder(self.spark, str(self.answer / "journeys")).frame())

    def at_once(self) -> list[tuple[Any, ...]]:
        """The journeys of all events in one run."""
        events = read_events(self.spark, [str(self.table)])
        return _rows(journeys(events.frame, events.seen))

    def beside_a_gap(self) -> set[str]:
        frame = DeltaFolder(self.spark, str(self.answer / "journeys")).frame()
        return {row.message_id for row in frame.where("gap").collect()}

    def outcomes(self) -> dict[str, str]:
        frame = DeltaFolder(self.spark, str(self.answer / "journeys")).frame()
        rows = frame.select("message_id", "outcome").collect()
        assert len({row.message_id for row in rows}) == len(rows)
        return {row.message_id: row.outcome for row in rows}


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> _Kept:
    return _Kept(spark, tmp_path)


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    def plain(row: Row) -> tuple[Any, ...]:
        return tuple(sorted(one.items()) if isinstance(one, dict) else one for one in row)

    return sorted((plain(row) for row in frame.collect()), key=repr)


def _line(second: int, message: str, *steps: str, **fields: Any) -> dict[str, Any]:
    return {
        "time": second * 1_000_000,
        "ids": [message],
        "steps": list(steps),
        "destination": _QUEUE,
        **fields,
    }


def test_in_whatever_order_batches_come_they_come_to_what_one_run_finds(
    kept: _Kept, tmp_path: Path
) -> None:
    truth = write_journal(tmp_path / "made", 6_000, seed=11, octets=12_000, hours=2.0)
    segments = list(truth.segments)
    assert len(segments) > 12
    chance = random.Random(5)
    # Some come late: copied from another machine, and between two runs of the gateway.
    for one in range(0, len(segments) - 3, 5):
        segments[one], segments[one + 3] = segments[one + 3], segments[one]
    while segments:
        some = chance.randint(3, 8)
        kept.ingest(segments[:some])
        del segments[:some]
        kept.go_on()
        assert kept.rows() == kept.at_once()
    assert len(kept.rows()) == truth.journeys
    assert kept.go_on() == {}
    assert kept.rows() == kept.at_once()


def test_a_batch_of_nothing_that_matters_is_taken_in_after_a_kill_too(
    kept: _Kept, tmp_path: Path
) -> None:
    kept.tell(_line(0, "a", "produced", "stored", "acknowledged", "deleted"))
    kept.go_on()
    # It says nothing of what becomes of a message, but time goes on: none is open any more.
    kept.tell(_line(10 * _MINUTE, "a", "acknowledgement confirmed"))
    kept.go_on()
    shutil.copytree(kept.answer / "_courses", tmp_path / "before")
    kept.tell(_line(15 * _MINUTE, "b", "acknowledgement confirmed"))
    assert kept.go_on() == {"new batches": 1, "all events read": False, "journeys": 0}
    # The run was killed between its two commits.
    shutil.rmtree(kept.answer / "_courses")
    (tmp_path / "before").rename(kept.answer / "_courses")
    assert kept.go_on()["new batches"] == 1
    assert kept.rows() == kept.at_once()
    assert kept.go_on() == {}


def test_a_message_that_goes_on_after_its_end_has_one_journey(kept: _Kept) -> None:
    kept.tell(
        _line(0, "dead", "produced", "stored"),
        _line(1, "dead", "dead", reason="undeliverable"),
        _line(2, "done", "produced", "stored"),
        _line(3, "done", "acknowledged", "deleted"),
        _line(4, "waits", "produced", "stored"),
    )
    kept.go_on()
    kept.tell(_line(10 * _MINUTE, "later", "produced", "stored"))
    assert kept.go_on()["journeys"] == 4
    kept.tell(_line(20 * _MINUTE, "later", "acknowledged", "deleted"))
    # What is at its end, and long ago, is left alone.
    assert kept.go_on()["journeys"] == 2
    kept.tell(
        _line(30 * _MINUTE, "dead", "produced", "stored"),
        _line(31 * _MINUTE, "dead", "acknowledged", "deleted"),
    )
    kept.go_on()
    assert kept.outcomes() == {
        "dead": "delivered",
        "done": "delivered",
        "later": "delivered",
        "waits": "waiting",
    }
    assert kept.rows() == kept.at_once()


def test_a_run_that_was_killed_between_its_two_commits_is_done_again(
    kept: _Kept, tmp_path: Path
) -> None:
    kept.tell(_line(0, "a", "produced", "stored"), _line(1, "b", "produced", "stored"))
    kept.go_on()
    kept.tell(_line(2, "a", "acknowledged", "deleted"), _line(10 * _MINUTE, "c", "produced"))
    before = tmp_path / "before"
    shutil.copytree(kept.answer / "_courses", before)
    kept.go_on()
    # This is what the disk has when the second commit is not made.
    shutil.rmtree(kept.answer / "_courses")
    before.rename(kept.answer / "_courses")
    kept.tell(_line(11 * _MINUTE, "b", "acknowledged", "deleted"))
    kept.go_on()
    assert kept.rows() == kept.at_once()
    kept.tell(_line(12 * _MINUTE, "c", "acknowledged", "deleted"))
    kept.go_on()
    assert kept.rows() == kept.at_once()


def test_a_first_run_that_was_killed_between_its_two_commits_is_done_again(kept: _Kept) -> None:
    kept.tell(_line(0, "a", "produced", "stored"), _line(1, "a", "acknowledged", "deleted"))
    kept.go_on()
    shutil.rmtree(kept.answer / "_courses")
    kept.go_on()
    assert kept.rows() == kept.at_once()


def test_what_is_beside_a_gap_changes_when_lines_come_late(kept: _Kept) -> None:
    kept.tell(_line(0, "early", "produced", "stored"), _line(1, "early", "acknowledged", "deleted"))
    kept.tell(_line(10 * _MINUTE, "next", "produced", "stored"))
    kept.go_on()
    kept.tell(_line(20 * _MINUTE, "after", "produced", "stored"), first=6)
    kept.go_on()
    assert kept.rows() == kept.at_once()
    assert kept.beside_a_gap() == {"early", "next", "after"}
    kept.tell(
        _line(11 * _MINUTE, "next", "delivered"),
        _line(12 * _MINUTE, "next", "acknowledged", "deleted"),
        first=4,
    )
    kept.go_on()
    assert kept.rows() == kept.at_once()
    assert not kept.beside_a_gap()


def test_what_ended_long_ago_is_forgotten_and_begins_anew(kept: _Kept) -> None:
    kept.tell(_line(0, "old", "produced", "stored"), _line(1, "old", "acknowledged", "deleted"))
    kept.tell(_line(10 * _MINUTE, "waits", "produced", "stored"))
    hour = timedelta(hours=1)
    kept.go_on(hour)
    kept.tell(_line(120 * _MINUTE, "new", "produced", "stored"))
    kept.go_on(hour)
    known = DeltaFolder(kept.spark, str(kept.answer / "_courses")).frame()
    assert {row.message_id for row in known.collect()} == {"waits", "new"}
    assert kept.outcomes() == {"old": "delivered", "waits": "waiting", "new": "waiting"}


def test_where_files_of_a_batch_are_gone_all_events_are_read(kept: _Kept) -> None:
    kept.tell(_line(0, "a", "produced", "stored"))
    assert kept.go_on()["all events read"] is True
    kept.tell(_line(1, "b", "produced", "stored"))
    assert kept.go_on()["all events read"] is False
    for number in range(4):
        kept.tell(_line(2 + number, "b", "delivered"))
    DeltaFolder(kept.spark, str(kept.table)).vacuum(timedelta(0))
    assert kept.go_on()["all events read"] is True
    assert kept.rows() == kept.at_once()


def test_journeys_of_another_table_are_left_as_they_are(kept: _Kept, tmp_path: Path) -> None:
    kept.tell(_line(0, "a", "produced", "stored"))
    kept.go_on()
    rows = kept.rows()
    other = tmp_path / "other"
    ingest.run(kept.spark, [str(kept.journal)], str(other))
    with (
        pytest.raises(PipelineError, match="has journeys that are not kept of"),
        KeptJourneys(kept.spark, str(kept.answer)).gone_on(Ingested(kept.spark, str(other))),
    ):
        pass
    once = tmp_path / "once"
    job.run(kept.spark, [str(kept.table)], Output(str(once)))
    with pytest.raises(PipelineError, match="has journeys that are not kept of"):
        job.go_on(kept.spark, str(kept.table), Output(str(once)))
    with pytest.raises(PipelineError, match="is a table that a job keeps"):
        job.run(kept.spark, [str(kept.table)], Output(str(kept.answer)))
    assert kept.rows() == rows


def test_only_a_table_of_ingest_is_gone_on_with(kept: _Kept) -> None:
    kept.tell(_line(0, "a", "produced", "stored"))
    with pytest.raises(PipelineError, match="is no table of ingest"):
        job.go_on(kept.spark, str(kept.journal), Output(str(kept.answer)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected --output DIR"),
        (("--output", "o", "--format", "csv"), "no --format but delta"),
        (("--output", "o", "other"), "expected one path"),
        (("--output", "o", "--since", "2026-03-01"), "neither --message"),
        (("--output", "o", "--destination", "queue:q"), "neither --message"),
        (("--output", "o", "--message", "m"), "neither --message"),
    ],
)
def test_what_does_not_go_with_it_is_told_before_spark_starts(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["journeys", "/nowhere", "--incremental", *arguments]) == 2
    assert said in capsys.readouterr().err


# --- in a process of its own, killed


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 7))]
)
def test_killed_at_any_time_and_run_again_it_has_each_journey_once(
    kept: _Kept, tmp_path: Path, seed: int
) -> None:
    truth = write_journal(tmp_path / "made", 4_000, seed=seed, octets=20_000, hours=1.0)
    half = len(truth.segments) // 2
    kept.ingest(truth.segments[:half])
    kept.go_on()
    kept.ingest(truth.segments[half:])
    # While its files appear, after they are there, or between the two commits.
    parts = kept.answer / ("journeys" if seed % 2 else "_courses") / "data"
    there = len(list(parts.iterdir()))
    arguments = ("journeys", str(kept.table), "--incremental", "--output", str(kept.answer))
    with command(tmp_path, *arguments) as process:
        while len(list(parts.iterdir())) == there:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        time.sleep(seed * 0.05)
    kept.go_on()
    assert kept.rows() == kept.at_once()
    assert len(kept.rows()) == truth.journeys
