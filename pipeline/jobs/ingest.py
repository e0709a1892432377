"""``ingest``: the journal into Parquet by day and destination, once each.

Owns the stream: which segments are a batch, and what is said when one is gone. What a batch is and
when it counts is
:mod:`pipeline.tables.ingested`'s; that is what makes it right to be killed at any time, to run
again, and to find copies of segments.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pipeline.charts import traffic
from pipeline.errors import PipelineError
from pipeline.failures import sentence
from pipeline.output import Output, progress, report_option, top
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Chart, Summary, Table
from pipeline.tables.alone import alone
from pipeline.tables.ingested import Ingested, Written
from pipeline.tables.lines import check_folders, has_segments, line_stream, no_segments
from pipeline.tables.planned import missing_segments

_MIB: Final = 1 << 20
#: Octets of segments in a batch: some seconds of work, and few enough files.
BATCH: Final = 256 * _MIB
#: That a report has a row for.
_BATCHES: Final = 500
#: How long it may take until it is seen that it is over.
_POLL_SECONDS: Final = 1


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
) -> dict[str, Written]:
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
    :returns: what became of each batch, by its name.
    :raises PipelineError: when there is nothing to read and never was, a segment was removed before
        it was read, or somebody else writes the table.
    """
    check_folders(spark, journals)
    kept = Ingested(spark, table)
    if (
        not continuous
        and not kept.exists()
        and not any(has_segments(spark, folder) for folder in journals)
    ):
        raise PipelineError(no_segments(journals))
    with alone(spark, kept.path):
        return _run(
            spark,
            journals,
            kept,
            every if continuous else None,
            octets,
            shared,
            skip_missing,
            over or threading.Event(),
        )


def _run(
    spark: SparkSession,
    journals: Sequence[str],
    kept: Ingested,
    every: int | None,
    octets: int,
    shared: int,
    skip_missing: bool,
    over: threading.Event,
) -> dict[str, Written]:
    done: dict[str, Written] = {}
    failures: list[Exception] = []

    def write(lines: DataFrame, number: int) -> None:
        try:
            of_stream = Ingested(lines.sparkSession, kept.path)
            batch = f"{_stream_name(lines.sparkSession, kept.checkpoint)}-{number:010d}"
            # A stream that was killed between the ledger and its own log of commits gives the batch
            # out again.
            if not of_stream.has(batch):
                gone = (
                    []
                    if skip_missing
                    else missing_segments(lines.sparkSession, kept.checkpoint, number)
                )
                if gone:
                    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
                    raise PipelineError(_removed(f"{gone[0]}{more}: removed before it was read"))
                done[batch] = of_stream.write(lines, batch, shared)
        except Exception as error:
            failures.append(error)
            raise

    stream = line_stream(spark, journals, octets, skip_missing).writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", kept.checkpoint)
    query = (
        stream.trigger(availableNow=True)
        if every is None
        else stream.trigger(processingTime=f"{every} seconds")
    ).start()
    try:
        # Never interrupted while it waits for Java's answer: the next one would be taken for it.
        while not over.is_set() and not query.awaitTermination(_POLL_SECONDS):
            pass
    except PySparkException as error:
        cause = failures[0] if failures else error
        text = sentence(cause)
        if text is not None and "was removed before it was read" in text:
            raise PipelineError(_removed(text)) from cause
        raise cause from None
    finally:
        query.stop()
    return done


def summary(
    spark: SparkSession, table: str, done: dict[str, Written], drawn: bool = False
) -> Summary:
    """Return what was ingested. :param drawn: include what only a report has."""
    facts: dict[str, object] = {
        "events": sum(one.events for one in done.values()),
        "batches": len(done),
        "lines known before": sum(one.doubled for one in done.values()),
        "damaged lines": sum(one.damaged for one in done.values()),
    }
    filled = [name for name, one in done.items() if one.events]
    if not filled:
        return Summary(f"Nothing new for {table}" if not done else f"Ingested into {table}", facts)
    new = Ingested(spark, table).files_of(filled)
    busiest = (
        new.groupBy("destination")
        .agg(sql.count("*").alias("events"), sql.max("time").alias("last"))
        .orderBy(sql.desc("events"))
    )
    tables = [top(busiest, 20, "Events by destination", Chart("bar", "destination", ("events",)))]
    if drawn:
        tables += traffic(new, "time", {"events": sql.lit(1)}, "Events", "destination")
        tables += traffic(new, "time", {"events": sql.lit(1)}, "Events", "step")
        rows = [(name, one.events, one.doubled, one.damaged) for name, one in done.items()]
        note = f"The last {_BATCHES} of {len(rows)}." if len(rows) > _BATCHES else ""
        columns = ("batch", "events", "lines known before", "damaged lines")
        tables.append(Table("Batches", columns, rows[-_BATCHES:], note, long=True))
    return Summary(f"Ingested into {table}", facts, tables)


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
@click.option("--compact", is_flag=True, help="Then put small batches together.")
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
    compact: bool,
    report: Path | None,
    session: SessionOptions,
) -> None:
    """The journal into Parquet, by day and destination, each event once.

    Reads the whole segments in the folders that were not read before, however often it is run and
    whenever it was killed. Copies of segments, by whatever name, and events of days long gone make
    no difference.
    """
    # SIGTERM is how services are ended; a run that ends by itself may as well be killed by it.
    signals = (signal.SIGINT, signal.SIGTERM) if continuous else (signal.SIGINT,)
    over = threading.Event()
    # Spark has a way with SIGINT of its own, from when its session is there.
    with (
        _set_by(over, signals),
        spark_session("gateway-pipeline ingest", session) as spark,
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
        if compact:
            with progress(spark, "Compacting"):
                found = Summary(
                    found.title,
                    {**found.facts, "batches compacted": Ingested(spark, table).compact()},
                    found.tables,
                )
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


def _stream_name(spark: SparkSession, checkpoint: str) -> str:
    """Return a name that no stream with another checkpoint has.

    So a checkpoint that was lost cannot make two batches of one name.
    """
    row = spark.read.json(f"{checkpoint}/metadata").first()
    assert row is not None
    return str(row["id"])[:8]


def _removed(text: str) -> str:
    return f"{text}; is imq.journal.retention too short? --skip-missing goes on without it"
