"""``ingest``: the table is the journal, each event once, whatever comes twice, late or not at all,
and if it is killed at any time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.errors import PipelineError
from pipeline.jobs.ingest import run
from pipeline.tables import alone
from pipeline.tables.events import read_events
from pipeline.tables.ingested import Ingested
from tests.gateway_process import ROOT
from tests.pipeline.conftest import brief_arguments
from tests.pipeline.generated import Truth, write_journal

#: Of a segment: so that few events are several.
OCTETS: Final = 4_000
EVENTS: Final = 500
#: So many that each batch has few files.
QUEUES: Final = 2


def check(spark: SparkSession, table: Path, truth: Truth) -> None:
    """The table has the journal's events, each once."""
    frame = read_events(spark, [str(table)]).frame
    by_place = (
        frame.groupBy("destination", sql.unix_date("day"))
        .agg(sql.count("*"), sql.count_distinct("event_id"))
        .collect()
    )
    destinations: Counter[str] = Counter()
    days: Counter[int] = Counter()
    for destination, day, count, once in by_place:
        assert count == once
        destinations[destination] += count
        days[day] += count
    assert (destinations, days) == (truth.destinations, truth.days)


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


# --- in a process of its own, killed or told that it is over


@contextmanager
def _ingest(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, and its Java machine in the same group; at the end
    nothing is left of them.
    """
    places = ("--journal", str(folder / "journal"), "--into", str(folder / "table"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "ingest", *places, *arguments, *brief_arguments(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _until_more(
    count: Callable[[Path], int], than: int, folder: Path, process: subprocess.Popen[str]
) -> None:
    while count(folder) <= than:
        assert process.poll() is None, f"it ended before it should: {process.communicate()[0]}"
        time.sleep(0.01)


def _files(folder: Path) -> int:
    # Unlike a glob it does not mind folders that go while it looks.
    return sum(
        name.endswith(".parquet")
        for _, _, names in os.walk(folder / "table" / "events")
        for name in names
    )


def _batches(folder: Path) -> int:
    found = os.walk(folder / "table" / "ledger")
    return sum(
        name.endswith(".parquet")
        for place, _, names in found
        for name in names
        if "_temporary" not in place
    )


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_killed_at_any_time_and_run_again_it_has_each_event_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    truth = write_journal(tmp_path / "journal", EVENTS, seed=seed, octets=OCTETS, queues=QUEUES)
    with _ingest(tmp_path, "--continuously") as process:
        # At one of many places in a batch: while its files appear, between them and the ledger, or
        # after it.
        _until_more(_files, seed - 1, tmp_path, process)
    run(spark, [str(tmp_path / "journal")], str(tmp_path / "table"))
    check(spark, tmp_path / "table", truth)


def _lives(pid: int) -> bool:
    """Whether there is such a process, other than one that only its parent has not taken note
    of.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_while_the_java_machine_of_one_that_was_killed_lives_nobody_else_writes(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = write_journal(tmp_path / "journal", EVENTS, seed=seed, octets=OCTETS, queues=QUEUES)
    journal, table = str(tmp_path / "journal"), str(tmp_path / "table")
    with _ingest(tmp_path, "--continuously") as process:
        _until_more(_files, seed - 1, tmp_path, process)
        (java,) = map(
            int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        os.kill(java, signal.SIGSTOP)
        process.kill()
        process.wait()
        monkeypatch.setattr(alone, "PATIENCE", 0.0)
        with pytest.raises(PipelineError, match=f"another ingest is at work on {table}"):
            run(spark, [journal], table)
        monkeypatch.undo()
        # It goes on with what it was at, until it sees that it is alone; the run waits for it.
        os.kill(java, signal.SIGCONT)
        run(spark, [journal], table)
        assert not _lives(java)
    check(spark, tmp_path / "table", truth)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_continuously_until_a_signal_says_that_it_is_over(
    spark: SparkSession, tmp_path: Path, number: signal.Signals
) -> None:
    journal = tmp_path / "journal"
    truth = write_journal(tmp_path / "to come", EVENTS, octets=OCTETS, queues=QUEUES)
    journal.mkdir()
    coming = iter(truth.segments)

    def appear() -> None:
        segment = next(coming)
        segment.rename(journal / segment.name)

    with _ingest(tmp_path, "--continuously", "--every", "0", "--compact") as process:
        for done in range(2):
            appear()
            _until_more(_batches, done, tmp_path, process)
        files = _files(tmp_path)
        appear()
        # In the midst of a batch, and to the Java machine as well, as systemd and terminals do.
        _until_more(_files, files, tmp_path, process)
        os.killpg(process.pid, number)
        appear()
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert said.startswith(f"Ingested into {tmp_path / 'table'}\n"), said
    assert re.search(r"^  batches +[2-9]$", said, re.MULTILINE), said
    assert re.search(r"^  batches compacted +[2-9]$", said, re.MULTILINE), said
    assert any("-compacted" in path.name for path in (tmp_path / "table" / "events").iterdir())
    for _ in range(len(truth.segments) - 4):
        appear()
    run(spark, [str(journal)], str(tmp_path / "table"))
    check(spark, tmp_path / "table", truth)
