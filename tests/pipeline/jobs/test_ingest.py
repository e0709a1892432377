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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from pipeline.errors import PipelineError
from pipeline.jobs import ingest
from pipeline.jobs.ingest import run
from pipeline.jobs.upgrade import run as upgrade
from pipeline.tables import ingested
from pipeline.tables.delta import TIDY, DeltaFolder, Files
from pipeline.tables.events import read_events
from pipeline.tables.ingested import BY, Ingested, directory
from pipeline.tables.lines import Segment, lines, lines_in
from pipeline.transforms.events import unnamed_events, unnamed_schema
from pipeline.transforms.line_bitmaps import lines_of
from tests.pipeline.conftest import command
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


def as_before(spark: SparkSession, journal: Path, table: Path) -> None:
    """Write a table as earlier versions did: two batches, and what was compacted of them.

    One more was never finished.
    """
    events = unnamed_events(lines(spark, [str(journal)]))
    placed = events.withColumn("destination_dir", directory(sql.col("destination")))
    halves = [placed.where(f"line % 2 = {number}") for number in range(2)]
    for name, frame in {
        "0": halves[0],
        "1": halves[1],
        "both": placed,
        "half-done": placed,
    }.items():
        frame.write.partitionBy("day", "destination_dir").parquet(f"{table}/events/batch={name}")
        if name == "half-done":
            continue
        replaces = sql.lit(["0", "1"]) if name == "both" else sql.lit(None).cast("array<string>")
        about = frame.agg(sql.count("*").alias("events")).withColumn("replaces", replaces)
        rows = lines_of(frame).drop("count").unionByName(about, allowMissingColumns=True)
        rows.coalesce(1).write.parquet(f"{table}/ledger/batch={name}")
    (table / "checkpoint").mkdir()


def test_copies_late_segments_and_lost_names_of_segments_make_no_difference(
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

    journal.rename(tmp_path / "moved")
    third = run(spark, [str(tmp_path / "moved")], str(table), octets=OCTETS)
    assert sum(one.events for one in third.values()) == 0
    again = [path.read_text().splitlines() for path in (tmp_path / "moved").glob("*.jsonl")]
    assert sum(one.doubled for one in third.values()) == sum(map(len, again))
    check(spark, table, truth)


def test_a_table_of_an_earlier_version_is_refused_and_upgraded(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    truth = write_journal(journal, EVENTS, octets=OCTETS, queues=QUEUES)
    as_before(spark, journal, table)
    for job in (lambda: run(spark, [str(journal)], str(table)), lambda: check(spark, table, truth)):
        with pytest.raises(PipelineError, match="earlier version: gateway-pipeline upgrade makes"):
            job()
    assert upgrade(spark, str(table)) == {"events": truth.events}
    check(spark, table, truth)
    assert sorted(path.name for path in table.iterdir()) == [
        "_delta_log",
        "_known",
        "events",
    ]
    again = run(spark, [str(journal)], str(table))
    assert sum(one.events for one in again.values()) == 0
    check(spark, table, truth)
    with pytest.raises(PipelineError, match="is a table of Delta Lake already"):
        upgrade(spark, str(table))


def test_a_column_that_a_later_version_knows_is_null_in_what_was_ingested_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, late, table = tmp_path / "journal", tmp_path / "late", tmp_path / "table"
    truth = write_journal(journal, EVENTS, octets=OCTETS, queues=QUEUES)
    late.mkdir()
    for segment in truth.segments[2:]:
        segment.rename(late / segment.name)
    with monkeypatch.context() as before:
        schema = StructType([one for one in unnamed_schema().fields if one.name != "size"])
        before.setattr(ingested, "unnamed_schema", lambda: schema)
        before.setattr(ingested, "unnamed_events", lambda found: unnamed_events(found).drop("size"))
        run(spark, [str(journal)], str(table), octets=1)
    assert "size" not in DeltaTable(table).to_pyarrow_dataset().schema.names
    old = read_events(spark, [str(table)]).frame
    number = old.count()
    assert number > 0
    assert old.where("size is not null").count() == 0

    run(spark, [str(late)], str(table), octets=1)
    check(spark, table, truth)
    given = read_events(spark, [str(late)]).frame.where("size is not null").count()
    assert given > 0

    def sizes() -> list[int]:
        found = DeltaTable(table)
        rows = duckdb.from_arrow(found.to_pyarrow_dataset()).aggregate("count(*), count(size)")
        lazy = polars.scan_delta(str(table)).select(polars.len(), polars.col("size").count())
        ours = read_events(spark, [str(table)]).frame.agg(sql.count("*"), sql.count("size"))
        counted = {*rows.fetchall(), *lazy.collect().rows(), *map(tuple, ours.collect())}
        assert len(counted) == 1
        return list(counted.pop())

    assert sizes() == [truth.events, given]
    Ingested(spark, str(table)).tidy()
    assert sizes() == [truth.events, given]


def test_only_folders_that_were_asked_for_are_read_and_only_of_batches_that_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    truth = write_journal(journal, EVENTS, queues=QUEUES)
    run(spark, [str(journal)], str(table))
    # Of a batch that was never finished.
    kept = Ingested(spark, str(table))
    kept.events_table.write(kept.events().withColumn("destination_dir", sql.lit("x")), BY)
    check(spark, table, truth)
    asked = read_events(
        spark, [str(table)], ["queue:orders.0", "topic:prices"], "2026-03-02", "2026-03-02T08:00:00"
    ).frame
    read = {tuple(path.split("/")[-3:-1]) for path in asked.inputFiles()}
    assert read
    assert read <= {
        ("day=2026-03-02", f"destination_dir={name}") for name in ("queue-orders.0", "topic-prices")
    }
    assert {row[0] for row in asked.select("destination").distinct().collect()} == {
        "queue:orders.0",
        "topic:prices",
    }


def test_one_that_ended_between_its_two_commits_is_completed_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    truth = write_journal(journal, EVENTS, octets=8 * OCTETS, queues=QUEUES)
    append = DeltaFolder.append
    last = 1

    def ends(folder: DeltaFolder, files: Files, batch: tuple[str, int]) -> bool:
        if not folder.path.endswith("_known") and batch[1] == last:
            raise OSError("it ends here")
        return append(folder, files, batch)

    for last in (1, 2):
        with monkeypatch.context() as faulty:
            faulty.setattr(DeltaFolder, "append", ends)
            with pytest.raises(OSError, match="it ends here"):
                run(spark, [str(journal)], str(table), octets=1)
        if last == 1:
            assert read_events(spark, [str(table)]).frame.count() == 0
    # Of the second batch nothing is seen, neither its events nor its lines.
    found = read_events(spark, [str(table)])
    first = found.frame.count()
    assert 0 < first < truth.events
    lines_there = found.seen.agg(sql.sum(sql.bitmap_count("lines"))).collect()[0][0]
    assert lines_there == found.frame.select("run", "line").distinct().count()
    done = run(spark, [str(journal)], str(table))
    assert all(one.doubled == 0 for one in done.values())
    check(spark, table, truth)


def test_two_at_the_same_time_have_each_event_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    truth = write_journal(journal, EVENTS, octets=8 * OCTETS, queues=QUEUES)
    with ThreadPoolExecutor(2) as both:
        running = [both.submit(run, spark, [str(journal)], str(table), octets=1) for _ in range(2)]
    written = [one for each in running for one in each.result().values()]
    assert sum(one.events for one in written) == truth.events
    check(spark, table, truth)


@pytest.mark.parametrize(
    ("events", "batches"), [(EVENTS, 17), pytest.param(22_000, 500, marks=pytest.mark.long)]
)
def test_small_files_are_put_together_while_there_is_more_to_ingest(
    spark: SparkSession, tmp_path: Path, events: int, batches: int
) -> None:
    """All readers count the same, at any moment."""
    table = tmp_path / "table"
    journal = tmp_path / "journal"
    truth = write_journal(journal, events, octets=OCTETS // 4, queues=QUEUES)
    most: list[int] = []
    counted: list[set[int]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            if (table / "_delta_log").exists():
                found = DeltaTable(table)
                most.append(max(Counter(partitions(found)).values()))
                counted.append(set(counts(spark, table, found)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        done = run(spark, [str(journal)], str(table), octets=1)
    finally:
        over.set()
        looking.join()
    assert len(done) == len(truth.segments) >= batches
    # At any moment: what was put together, and that since.
    assert max(most) <= 2 + TIDY
    assert [len(one) for one in counted] == [1] * len(counted)
    assert len({min(one) for one in counted}) > 1
    check(spark, table, truth)
    found = DeltaTable(table)
    assert max(Counter(partitions(found)).values()) <= 2
    assert len(DeltaTable(table / "_known").file_uris()) <= 2
    assert counts(spark, table, found) == [truth.events] * 4


def counts(spark: SparkSession, folder: Path, table: DeltaTable) -> list[int]:
    """How many rows a version of a table has, as four readers see it."""
    rows = table.to_pyarrow_dataset()
    (found,) = duckdb.from_arrow(rows).aggregate("count(*)").fetchall()
    lazy = polars.scan_delta(str(folder), version=table.version()).select(polars.len())
    return [
        rows.count_rows(),
        int(found[0]),
        lazy.collect().item(),
        spark.read.parquet(*table.file_uris()).count(),
    ]


def partitions(table: DeltaTable) -> list[str]:
    """The partition of each file."""
    return [path.rpartition("/")[0][path.index("day=") :] for path in table.file_uris()]


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


def test_what_cannot_be_read_is_said_in_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, table = tmp_path / "journal", tmp_path / "table"
    journal.mkdir()
    with pytest.raises(PipelineError, match="there is no segment"):
        run(spark, [str(journal)], str(table))
    gone, newer = journal / "r-0000000001.jsonl", journal / "r-0000000002.jsonl"
    gone.write_text(_line(1, "queue:a"))
    newer.write_text(_line(2, "queue:a").replace('"v": 1', '"v": 9'))
    with pytest.raises(Exception, match="is of version 9"):
        run(spark, [str(journal)], str(table))
    newer.write_text(_line(2, "queue:a"))

    def removed(session: SparkSession, found: Sequence[Segment]) -> DataFrame:
        gone.unlink(missing_ok=True)
        return lines_in(session, found)

    monkeypatch.setattr(ingest, "lines_in", removed)
    with pytest.raises(
        PipelineError, match=r"r-0000000001\.jsonl.*--skip-missing goes on without it$"
    ) as raised:
        run(spark, [str(journal)], str(table))
    assert "\n" not in str(raised.value)
    gone.write_text(_line(1, "queue:a"))
    (written,) = run(spark, [str(journal)], str(table), skip_missing=True).values()
    assert written.events == 1


# --- in a process of its own, killed or told that it is over


@contextmanager
def _ingest(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    places = ("--journal", str(folder / "journal"), "--into", str(folder / "table"))
    with command(folder, "ingest", *places, *arguments) as process:
        yield process


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
        for _, _, names in os.walk(folder / "table" / "data")
        for name in names
    )


def _batches(folder: Path) -> int:
    with suppress(TableNotFoundError):
        return DeltaTable(folder / "table").transaction_version("ingest") or 0
    return 0


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

    with _ingest(tmp_path, "--continuously", "--every", "0") as process:
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
    for _ in range(len(truth.segments) - 4):
        appear()
    run(spark, [str(journal)], str(tmp_path / "table"))
    check(spark, tmp_path / "table", truth)
