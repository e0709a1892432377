"""``ingest``: the journal into a table, each event once.

Owns which segments are a batch, when it looks for more, and what is said when one is gone. What a
batch is and when it counts is :mod:`pipeline.tables.ingested`'s; that is what makes it right to be
killed at any time, to run again, and to find copies of segments.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.charts import MESSAGES, traffic
from pipeline.cube import counting, cube
from pipeline.errors import PipelineError
from pipeline.output import Output, progress, report_option, top
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Chart, Summary, Table
from pipeline.tables.delta import TIDY
from pipeline.tables.ingested import Ingested, Written, is_table
from pipeline.tables.lines import (
    Segment,
    check_folders,
    check_segments,
    ends_in,
    lines_in,
    segments,
)
from pipeline.tables.names import check_name

_MIB: Final = 1 << 20
#: Octets of segments in a batch: some seconds of work, and few enough files.
BATCH: Final = 256 * _MIB
#: That a summary tells of.
_BATCHES: Final = 500
#: What Spark raises: what it knows of, and all else that its Java machine does.
_OF_SPARK: Final = (PySparkException, Py4JJavaError)
#: Seconds until what Spark does is cancelled once more.
_POLL_SECONDS: Final = 0.5


def run(
    spark: SparkSession,
    journals: Sequence[str],
    table: str,
    *,
    continuous: bool = False,
    every: int = 10,
    octets: int = BATCH,
    shared: int = 0,
    skip_missing: bool = False,
    over: threading.Event | None = None,
) -> dict[int, Written]:
    """Ingest what is in the folders and was not ingested before.

    :param journals: folders with segments.
    :param table: the table's folder; made where it is not there.
    :param continuous: go on until it is over.
    :param every: how often it looks then, in seconds.
    :param octets: about how much of segments is a batch.
    :param shared: as of :func:`pipeline.tables.ingested.directory`.
    :param skip_missing: go on without segments that were there, and are gone before they were read.
    :param over: may be set from elsewhere: end now; what is under way is done again by the next
        run.
    :returns: what became of each batch, by its number.
    :raises PipelineError: when there is nothing to read and never was, a segment was removed before
        it was read, or the table is of an earlier version.
    """
    check_folders(spark, journals)
    if not is_table(spark, table) and not continuous:
        check_segments(spark, journals)
    over = over or threading.Event()
    ingest = _Ingest(spark, journals, Ingested(spark, table), octets, shared, skip_missing, over)
    # Beside this thread, so that Spark can be told to stop: what waits for Java's answer must not be
    # interrupted, as the next one would be taken for it.
    with ThreadPoolExecutor(1) as beside:
        going = beside.submit(ingest.go, every if continuous else None)
        try:
            while not wait([going], _POLL_SECONDS).done:
                if over.is_set():
                    spark.interruptAll()
        except BaseException:
            over.set()
            spark.interruptAll()
            raise
    try:
        going.result()
    except _OF_SPARK:
        # What was cancelled has failed, and that is no failure of the run.
        if not over.is_set():
            raise
    return ingest.done


class _Ingest:
    """One run. :ivar done: what became of each batch, by its number."""

    def __init__(
        self,
        spark: SparkSession,
        journals: Sequence[str],
        kept: Ingested,
        octets: int,
        shared: int,
        skip_missing: bool,
        over: threading.Event,
    ) -> None:
        self._spark = spark
        self._journals = journals
        self._kept = kept
        self._octets = octets
        self._shared = shared
        self._skip_missing = skip_missing
        self._over = over
        self.done: dict[int, Written] = {}

    def go(self, every: int | None) -> None:
        """Ingest until nothing is left; with ``every`` seconds until it is over."""
        while not self._over.is_set():
            self._all()
            if every is None:
                self._kept.tidy()
                return
            self._over.wait(every)

    def _all(self) -> None:
        self._kept.complete()
        known = self._kept.segments()
        new = [one for one in segments(self._spark, self._journals) if one.path not in known]
        for batch in _batches(new, self._octets):
            if self._over.is_set():
                return
            self._ingest(batch)
            if len(self.done) % TIDY == 0:
                self._kept.tidy()

    def _ingest(self, batch: Sequence[Segment]) -> None:
        while batch:
            try:
                lines = lines_in(self._spark, batch)
                ends = ends_in(self._spark, batch)
                number, written = self._kept.write(
                    lines, [one.path for one in batch], self._shared, ends
                )
            except _OF_SPARK as error:
                if self._over.is_set():
                    raise
                there = {one.path for one in segments(self._spark, self._journals)}
                gone = [one.path for one in batch if one.path not in there]
                if not gone:
                    raise
                if not self._skip_missing:
                    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
                    raise PipelineError(
                        f"{gone[0].removeprefix('file:')}{more}: removed before it was read; is imq.journal.retention too short? --skip-missing goes on without it"
                    ) from error
                batch = [one for one in batch if one.path in there]
            else:
                self.done[number] = written
                return


def _batches(found: Iterable[Segment], octets: int) -> Iterator[list[Segment]]:
    """Segments in their order, as many as a batch has."""
    batch: list[Segment] = []
    size = 0
    for one in found:
        if batch and size + one.octets > octets:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.octets
    if batch:
        yield batch


def summary(
    spark: SparkSession, table: str, done: dict[int, Written], drawn: bool = False
) -> Summary:
    """Return what was ingested. :param drawn: include what only a report has."""
    facts: dict[str, object] = {
        "events": sum(one.events for one in done.values()),
        "batches": len(done),
        "lines known before": sum(one.doubled for one in done.values()),
        "damaged lines": sum(one.damaged for one in done.values()),
    }
    filled = [number for number, one in done.items() if one.events][-_BATCHES:]
    if not filled:
        return Summary(f"Nothing new for {table}" if not done else f"Ingested into {table}", facts)
    new = Ingested(spark, table).events_of(filled)
    busiest = (
        new.groupBy("destination")
        .agg(sql.count("*").alias("events"), sql.max("time").alias("last"))
        .orderBy(sql.desc("events"))
    )
    tables = [top(busiest, 20, "Events by destination", Chart("bar", "destination", ("events",)))]
    if drawn:
        one = {"events": sql.lit(1)}
        of = cube(new, "time", ("destination", "step"), {MESSAGES: counting(sql.lit(True))})
        for by in ("destination", "step"):
            tables += traffic(new, "time", one, "Events", by, cube=of)
        rows = [(number, one.events, one.doubled, one.damaged) for number, one in done.items()]
        note = f"The last {_BATCHES} of {len(rows)}." if len(rows) > _BATCHES else ""
        columns = ("batch", "events", "lines known before", "damaged lines")
        tables.append(Table("Batches", columns, rows[-_BATCHES:], note, long=True))
    return Summary(f"Ingested into {table}", facts, tables)


def _withdrawn(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        raise PipelineError(
            "--compact is withdrawn: other programs that read the table's Parquet files would count all events twice; run ingest without it"
        )


@click.command("ingest")
@click.option(
    "--journal",
    "journals",
    multiple=True,
    required=True,
    metavar="DIR",
    help="A journal's folder. May be repeated.",
)
@click.option(
    "--into",
    "table",
    required=True,
    metavar="DIR",
    help="The table's folder; made where it is not there.",
)
@click.option(
    "--continuously",
    "continuous",
    is_flag=True,
    help="Go on, until interrupted, with what is still to come.",
)
@click.option(
    "--every",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="With --continuously: look so often.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=BATCH // _MIB,
    show_default=True,
    metavar="MIB",
    help="Of segments, about.",
)
@click.option(
    "--destination-folders",
    "shared",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="All destinations in this many folders a day.",
)
@click.option(
    "--skip-missing",
    is_flag=True,
    help="Go on without segments that are gone before they were read.",
)
@click.option("--compact", is_flag=True, hidden=True, callback=_withdrawn, expose_value=False)
@report_option
@session_options
def command(
    journals: tuple[str, ...],
    table: str,
    continuous: bool,
    every: int,
    batch_size: int,
    shared: int,
    skip_missing: bool,
    report: Path | None,
    session: SessionOptions,
) -> None:
    """The journal into a table, by day and destination, each event once.

    Reads the whole segments in the folders that were not read before, however often it is run and
    whenever it was killed. Copies of segments, by whatever name, and events of days long gone make
    no difference.
    """
    check_name(table)
    # SIGTERM is how services are ended; a run that ends by itself may as well be killed by it.
    signals = (signal.SIGINT, signal.SIGTERM) if continuous else (signal.SIGINT,)
    over = threading.Event()
    # Spark has a way with SIGINT of its own, from when its session is there.
    with (
        _set_by(over, signals),
        spark_session("gateway-pipeline ingest", session, journals) as spark,
        _set_by(over, signals),
    ):
        with progress(spark, "Ingesting"):
            done = run(
                spark,
                journals,
                table,
                continuous=continuous,
                every=every,
                octets=batch_size * _MIB,
                shared=shared,
                skip_missing=skip_missing,
                over=over,
            )
        if over.is_set() and not continuous:
            raise KeyboardInterrupt
        found = summary(spark, table, done, drawn=report is not None)
        Output(report=report).finish(found)


@contextmanager
def _set_by(over: threading.Event, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """While the body runs these signals set the event, and do nothing else."""
    before = {one: signal.signal(one, lambda number, frame: over.set()) for one in signals}
    try:
        yield
    finally:
        for one, what in before.items():
            signal.signal(one, what)
