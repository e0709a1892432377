"""``journeys``: each message's course and duration, and which need a look.

Owns which journeys are called stuck, slow, redelivered and lost, and what is shown of them. What a
journey is, is :mod:`pipeline.transforms.journeys`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import click
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from pipeline import drawn_journeys
from pipeline.errors import PipelineError
from pipeline.output import Output, first_rows, output_options, progress, top
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Chart, Summary, Table
from pipeline.tables.events import read_events
from pipeline.tables.ingested import Ingested, is_table
from pipeline.tables.kept_journeys import REMEMBERED, KeptJourneys
from pipeline.transforms.journeys import Outcome, journeys
from pipeline.transforms.latency import latencies

#: How far a message is followed over links, from one id to the next.
HOPS: Final = 10
_SHOWN: Final = 10
_STEPS_SHOWN: Final = 500
_END: Final = "_end"
_KIND: Final = "_kind"
_BRIEF: Final = (
    "message_id",
    "destination",
    "outcome",
    "gap",
    "began",
    "ended",
    "last_step",
    "attempts",
)


@dataclass(frozen=True)
class Limits:
    """When a message needs a look.

    :param stuck: seconds that it has waited at the journal's end.
    :param slow: seconds that its journey took.
    """

    stuck: float = 300.0
    slow: float = 60.0


def run(
    spark: SparkSession,
    paths: Sequence[str],
    output: Output,
    *,
    destinations: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    limits: Limits | None = None,
) -> Summary:
    """Compute journeys and latencies, write them, and summarise them.

    :param paths: a table of ingest, or folders of a journal.
    :param destinations: only what happened there.
    :param since: only what happened not before.
    :param until: only what happened before.
    :raises PipelineError: when there is nothing to read.
    """
    limits = limits or Limits()
    events = read_events(spark, paths, destinations, since, until)
    found = journeys(events.frame, events.seen, whole=not (destinations or since or until))
    # Computed once, whatever is asked of them: what is written is read again where that is as good,
    # else Spark keeps them.
    kept = output.write(found if output.kept else found.persist(StorageLevel.DISK_ONLY), "journeys")
    try:
        end = _newest(kept, "ended")
        if end is None:
            raise PipelineError(f"there is no event in {', '.join(paths)} of what was asked for")
        if destinations:
            # Where nothing happens any more something may be stuck: the journal goes on elsewhere.
            end = _newest(read_events(spark, paths, (), since, until).frame, "time") or end
        output.write(latencies(kept), "latencies")
        return summary(kept, end, limits, None if output.report is None else events.frame)
    finally:
        kept.unpersist()


def go_on(
    spark: SparkSession,
    path: str,
    output: Output,
    *,
    limits: Limits | None = None,
    remembered: timedelta = REMEMBERED,
) -> Summary:
    """Go on with the journeys of the run before, and summarise.

    The summary is of journeys that are open, or that the run has changed.

    :param path: a table of ingest.
    :param output: where the journeys are.
    :param remembered: as of :class:`pipeline.tables.kept_journeys.KeptJourneys`.
    :raises PipelineError: the path is no table of ingest, or the journeys there are of another one.
    """
    if not is_table(spark, path):
        raise PipelineError(
            f"{path} is no table of ingest: expected one with --incremental, which reads the batches that came since"
        )
    assert output.path is not None
    with KeptJourneys(spark, output.path, remembered).gone_on(Ingested(spark, path)) as found:
        if found is None:
            return Summary(f"Nothing new for {output.path}", {})
        facts = {"new batches": found.batches, "all events read": found.anew}
        end = _newest(found.journeys, "ended")
        if end is None:
            return Summary("Journeys", {**facts, "journeys": 0})
        events = None if output.report is None else found.events
        # These are the latencies of what is new, which is little each time.
        told = summary(found.journeys, end, limits or Limits(), events, brief=events is None)
        return replace(told, facts={**facts, **told.facts})


def summary(
    found: DataFrame,
    end: datetime,
    limits: Limits,
    events: DataFrame | None = None,
    *,
    brief: bool = False,
) -> Summary:
    """What there is to say of journeys.

    :param end: the journal's, until when a message waits.
    :param events: that they are of, for what only a report has room for; None without a report.
    :param brief: no latencies.
    """
    questions = needing_a_look(limits)
    # Not as a literal: Spark compiles what has another one anew.
    at_end = found.sparkSession.createDataFrame([(end,)], f"{_END} timestamp")
    asked = found.crossJoin(sql.broadcast(at_end))
    rows = (
        asked.groupBy("outcome")
        .agg(
            sql.count("*").alias("messages"),
            sql.count_if("gap").alias("beside a gap"),
            *(sql.count_if(where).alias(name) for name, where in questions.items()),
        )
        .orderBy(sql.desc("messages"), "outcome")
        .collect()
    )
    columns = ("outcome", "messages", "beside a gap")
    outcomes = first_rows([row[: len(columns)] for row in rows], columns, len(Outcome), "Outcomes")
    by_outcome = replace(outcomes, chart=Chart("bar", "outcome", ("messages",)))
    first = (
        [by_outcome]
        if events is None
        else drawn_journeys.drawn(found, events, by_outcome, limits.slow)
    )
    tables = [*first, *([] if brief else _latencies(found))]
    counts = {name: sum(row[name] for row in rows) for name in questions}
    tables += _looked_at(asked, {name: questions[name] for name in counts if counts[name]})
    facts = {"journeys": sum(row["messages"] for row in rows), **counts, "journal's end": end}
    return Summary("Journeys", facts, tables)


def _looked_at(asked: DataFrame, questions: Mapping[str, Column]) -> list[Table]:
    """The first journeys of each kind."""
    if not questions:
        return []
    kinds = sql.array(*(sql.when(where, sql.lit(name)) for name, where in questions.items()))
    # The longest first, else those that ended first.
    order = sql.when(sql.col(_KIND) == "slow", -sql.col("total_ms")).otherwise(
        sql.unix_micros("ended")
    )
    first = Window.partitionBy(_KIND).orderBy(order, "message_id")
    rows = (
        asked.select(*_BRIEF, "total_ms", sql.explode(sql.array_compact(kinds)).alias(_KIND))
        .withColumn("_place", sql.row_number().over(first))
        .where(sql.col("_place") <= _SHOWN + 1)
        .orderBy("_place")
        .collect()
    )
    return [
        first_rows(
            [row[: len(_BRIEF)] for row in rows if row[_KIND] == name],
            _BRIEF,
            _SHOWN,
            name.capitalize(),
        )
        for name in questions
    ]


def needing_a_look(limits: Limits) -> dict[str, Column]:
    """The journeys that somebody should look at, each kind by its name.

    They know the journal's end by a column.
    """
    waited = (sql.unix_micros(_END) - sql.unix_micros("ended")) / 1e6
    outcome = sql.col("outcome")
    return {
        "stuck": (outcome == Outcome.WAITING) & (waited > limits.stuck),
        "slow": sql.col("total_ms") > limits.slow * 1000,
        "redelivered": sql.col("redelivered").isNotNull(),
        "lost": outcome == Outcome.LOST,
        "in doubt": outcome == Outcome.IN_DOUBT,
        "dead": outcome == Outcome.DEAD,
    }


def time_line(spark: SparkSession, paths: Sequence[str], message: str) -> Summary:
    """Return the journey of one message step by step.

    Over links it follows the message by the ids that it has there.

    :raises PipelineError: when nothing is known of it.
    """
    frame = read_events(spark, paths).frame
    ids, met = {message}, set[str]()
    for _ in range(HOPS):
        new = ids - met
        if not new:
            break
        met |= new
        linked = frame.where(
            sql.col("target_id").isNotNull()
            & (sql.col("message_id").isin(list(new)) | sql.col("target_id").isin(list(new)))
        )
        pairs = linked.select("message_id", "target_id").distinct().limit(_STEPS_SHOWN).collect()
        ids |= {one for pair in pairs for one in pair}
    steps = frame.where(sql.col("message_id").isin(sorted(ids)))
    columns = (
        "time",
        "step",
        "message_id",
        "destination",
        "subscription",
        "link",
        "connection",
        "user",
        "attempt",
        "target_id",
        "reason",
        "comment",
    )
    said = Chart("timeline", "time", ("step", "destination", "subscription", "link", "reason"))
    table = top(
        steps.orderBy("time", "run", "line", "place").select(*columns), _STEPS_SHOWN, "Steps", said
    )
    if not table.rows:
        raise PipelineError(f"the journal knows no message {message}")
    return Summary(
        f"Journey of {message}",
        {"steps": len(table.rows), "ids": len(ids)},
        [_without_empty_columns(table)],
    )


@click.command("journeys")
@click.argument("paths", nargs=-1, required=True, metavar="EVENTS...")
@click.option(
    "--destination",
    "destinations",
    multiple=True,
    metavar="queue:NAME",
    help="Only what happened there. May be repeated.",
)
@click.option("--since", metavar="TIME", help="Only what happened not before; UTC.")
@click.option("--until", metavar="TIME", help="Only what happened before; UTC.")
@click.option(
    "--stuck",
    type=click.FloatRange(0),
    default=Limits.stuck,
    show_default=True,
    metavar="SECONDS",
    help="Waiting for longer, by the journal's end.",
)
@click.option(
    "--slow",
    type=click.FloatRange(0),
    default=Limits.slow,
    show_default=True,
    metavar="SECONDS",
    help="A journey that took longer.",
)
@click.option(
    "--incremental",
    is_flag=True,
    help="Read the batches that came since the run before, and go on with its journeys in --output.",
)
@click.option(
    "--remember",
    type=click.IntRange(1),
    default=REMEMBERED.days,
    show_default=True,
    metavar="DAYS",
    help="With --incremental: know a message for so long after its end.",
)
@click.option(
    "--message",
    metavar="ID",
    help="Show the journey of this message as a time line, and nothing else.",
)
@output_options
@session_options
def command(
    paths: tuple[str, ...],
    destinations: tuple[str, ...],
    since: str | None,
    until: str | None,
    stuck: float,
    slow: float,
    incremental: bool,
    remember: int,
    message: str | None,
    output: Output,
    session: SessionOptions,
) -> None:
    """Show each message's journey, and what is stuck, slow or lost.

    Also latencies, and what was redelivered.

    EVENTS is the folder that ingest has written, or folders of a journal as they are. With --output
    there are two tables: journeys, a row for each message, and latencies, percentiles by
    destination, link and hour.
    """
    if incremental:
        _check_incremental(paths, output, message or since or until or destinations)
    with spark_session("gateway-pipeline journeys", session, paths) as spark:
        with progress(spark, "Following messages"):
            if incremental:
                known = timedelta(days=remember)
                limits = Limits(stuck, slow)
                found = go_on(spark, paths[0], output, limits=limits, remembered=known)
            elif message is not None:
                found = time_line(spark, paths, message)
                output = Output(report=output.report)
            else:
                found = run(
                    spark,
                    paths,
                    output,
                    destinations=destinations,
                    since=since,
                    until=until,
                    limits=Limits(stuck, slow),
                )
        output.finish(found)


def _latencies(found: DataFrame) -> list[Table]:
    wanted = ("deliver", "acknowledge", "transfer", "total")
    by_destination = latencies(found, ("destination",)).where(sql.col("latency").isin(list(wanted)))
    by_link = latencies(found.where("size(links) > 0"), ("link",), ("transfer_ms", "settle_ms"))
    percentiles = ("p50_ms", "p99_ms")
    shown = ("latency", "messages", *percentiles, "max_ms")
    return [
        top(
            by_destination.orderBy(sql.desc("messages"), "destination", "latency").select(
                "destination", *shown
            ),
            2 * _SHOWN,
            "Latency by destination",
        ),
        top(
            by_link.orderBy(sql.desc("messages"), "link", "latency").select("link", *shown),
            2 * _SHOWN,
            "Latency by link",
        ),
    ]


def _check_incremental(paths: Sequence[str], output: Output, part: object) -> None:
    """Check what is given with ``--incremental``.

    :param part: options that leave events out.
    :raises PipelineError: something is lacking, or does not go with it.
    """
    if output.path is None or output.format != "delta":
        raise PipelineError(
            "--incremental goes on with the journeys in a folder: expected --output DIR, and no --format but delta"
        )
    if len(paths) > 1 or part:
        raise PipelineError(
            "--incremental follows all messages of one table of ingest: expected one path, and neither --message, --destination, --since nor --until"
        )


def _newest(rows: DataFrame, time: str) -> datetime | None:
    """Return the latest time; None without any. :param time: the column."""
    row = rows.agg(sql.max(time)).first()
    assert row is not None
    end = row[0]
    assert end is None or isinstance(end, datetime)
    return end


def _without_empty_columns(table: Table) -> Table:
    """The table without columns that say nothing."""
    used = [
        place
        for place in range(len(table.columns))
        if any(row[place] is not None for row in table.rows)
    ]
    rows = [[row[place] for place in used] for row in table.rows]
    columns = tuple(table.columns[place] for place in used)
    chart = table.chart and replace(
        table.chart, y=tuple(name for name in table.chart.y if name in columns)
    )
    return Table(table.title, columns, rows, table.note, chart)
