"""What a full disk has cost before a kill is missing to ``reconcile``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.journal.runs import RUNS, Runs, end_left
from pipeline.jobs import ingest
from pipeline.jobs.reconcile import Wanted, run
from pipeline.output import Output
from tests.pipeline import linked
from tests.pipeline.linked import LinkJournal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def told(spark: SparkSession, folder: Path, paths: Sequence[Path]) -> tuple[bool, object, object]:
    """Whether all agrees, the missing lines, and the runs without an end."""
    output = Output(str(folder / "reconciled"))
    agrees, summary = run(spark, [str(path) for path in paths], output, Wanted())
    facts = summary.facts
    return agrees, facts["journal lines missing"], facts.get("runs that did not end in order")


def test_what_a_full_disk_has_cost_before_a_kill_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, table = tmp_path / "journal", tmp_path / "table"
    journal = LinkJournal(folder, 5)
    for _ in range(3):
        linked.moved(journal)
    journal.roll()
    assert told(spark, tmp_path, [folder]) == (True, 0, None)
    last = sum(len(path.read_bytes().splitlines()) for path in folder.iterdir())
    Runs(folder, journal.run, "i").note(last + 7, last, 7, stopped=True)
    assert told(spark, tmp_path, [folder]) == (False, 7, 1), "before the next start"
    before = {path.name for path in folder.iterdir()}
    assert len(list(end_left(folder))) == 1
    assert told(spark, tmp_path, [folder]) == (False, 7, 1), "by the end line"
    # A table has the end line with a batch of events, or with one that has none.
    [end] = {path.name for path in folder.iterdir()} - before
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / end, elsewhere / end)
    ingest.run(spark, [str(folder)], str(table))
    assert told(spark, tmp_path, [table]) == (True, 0, None)
    for _ in range(2):
        ingest.run(spark, [str(elsewhere)], str(table))
        assert told(spark, tmp_path, [table]) == (False, 7, 1)
        elsewhere = elsewhere.rename(tmp_path / "moved")
    both = tmp_path / "both"
    shutil.copy(elsewhere / end, folder / end)
    ingest.run(spark, [str(folder)], str(both))
    assert told(spark, tmp_path, [both]) == (False, 7, 1)


def test_a_run_of_which_all_is_lost_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    journal = LinkJournal(folder, 7)
    linked.moved(journal)
    journal.roll()
    later = journal.run[:-1] + str((int(journal.run[-1]) + 1) % 10)
    Runs(folder, later, "i").note(9, 0, 9, stopped=True)
    assert told(spark, tmp_path, [folder]) == (False, 9, 1)
    assert len(list(end_left(folder))) == 1
    assert told(spark, tmp_path, [folder]) == (False, 9, 1)
    ingest.run(spark, [str(folder)], str(tmp_path / "table"))
    assert told(spark, tmp_path, [tmp_path / "table"]) == (False, 9, 1)


def test_a_run_that_was_killed_is_told_though_nothing_is_known_to_be_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = LinkJournal(tmp_path / "journal", 6)
    linked.moved(journal)
    journal.roll()
    Runs(tmp_path / "journal", journal.run, "i").note(0, 0, 0)
    assert (tmp_path / "journal" / RUNS).exists()
    assert len(list(end_left(tmp_path / "journal"))) == 1
    assert told(spark, tmp_path, [tmp_path / "journal"]) == (True, 0, 1)
