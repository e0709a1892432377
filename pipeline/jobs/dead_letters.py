"""``gateway-pipeline dead-letters``: which messages died, why, how often.

Owns the job's options and its summary. Deaths come from a journal, from what ``ingest`` has made of
one, or from a dead message queue, which is browsed: nothing is taken from it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pipeline.connection import Connection, as_destination, connection_options
from pipeline.errors import PipelineError
from pipeline.output import Output, in_utc, output_options, progress
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Chart, Summary, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: Troubles, and hours, that the summary shows.
_SHOWN = 20
_HOURS = 48


@click.command(
    "dead-letters",
    help="Dead messages by reason, destination, link and exception, of a journal, a table of ingest, or a dead message queue.",
)
@click.argument("journal", nargs=-1)
@click.option(
    "--queue",
    metavar="NAME",
    help="Instead of a journal: browse this dead message queue, as mq.sys.dmq or imq.bridge.jms.dmq.",
)
@click.option("--since", metavar="TIME", help="Only what died at this time, in UTC, or later.")
@click.option("--until", metavar="TIME", help="Only what died before this time. [default: now]")
@click.option(
    "--period",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="HOURS",
    help="The trend is of this time against as much before it.",
)
@click.option(
    "--examples",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    metavar="N",
    help="Messages to show of each trouble.",
)
@connection_options()
@output_options
@session_options
def command(
    journal: tuple[str, ...],
    queue: str | None,
    since: str | None,
    until: str | None,
    period: int,
    examples: int,
    connection: Connection,
    output: Output,
    session: SessionOptions,
) -> None:
    """The click command."""
    if queue is not None:
        connection.check()
    with spark_session("dead-letters", session, journal) as spark:
        run(
            spark,
            journal,
            queue,
            connection,
            output,
            since=since,
            until=until,
            period=period,
            examples=examples,
        )


def run(
    spark: SparkSession,
    journal: tuple[str, ...],
    queue: str | None,
    connection: Connection,
    output: Output,
    *,
    since: str | None = None,
    until: str | None = None,
    period: int = 1,
    examples: int = 3,
) -> None:
    """Group the deaths, write ``groups`` and ``hours``, and show the first.

    :param journal: folders of a journal, or one table of ``ingest``; none with ``queue``.
    :param queue: a dead message queue, by name.
    :param since: not before this time, in UTC; and
    :param until: before this one.
    :param period: hours, of the trend.
    :param examples: of each trouble.
    :raises PipelineError: there is nothing to read, or it cannot be read.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as sql

    from pipeline.transforms.dead_letters import groups, hours

    end = _time(spark, "--until", until) or datetime.now(UTC)
    _time(spark, "--since", since)
    deaths, where = _deaths(spark, journal, queue, connection, since, until)
    # Read once: it is grouped twice, and a queue changes meanwhile.
    deaths = deaths.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = groups(deaths, end, period, examples)
        with progress(spark, "dead letters"):
            total = deaths.agg(sql.count("*"), sql.min("time"), sql.max("time")).collect()[0]
            output.write(found, "groups")
            output.write(hours(deaths), "hours")
            first = found.limit(_SHOWN + 1).collect()
            # The latest are what a trend is seen by.
            latest = (
                hours(deaths)
                .orderBy(sql.col("hour").desc(), sql.col("reason").desc())
                .limit(_HOURS)
                .collect()
            )
            drawn: list[Table] = []
            if output.report is not None:
                drawn = _drawn(deaths)
    finally:
        deaths.unpersist()
    if not total[0]:
        output.finish(Summary(f"No dead messages in {where}"))
        return
    facts = {
        "dead messages": total[0],
        "first": in_utc(total[1]),
        "last": in_utc(total[2]),
        "period": f"{period} h",
    }
    output.finish(
        Summary(
            f"Dead messages of {where}",
            facts,
            [*drawn, _troubles(first), _examples(first), _by_hour(latest)],
        )
    )


def _drawn(deaths: DataFrame) -> list[Table]:
    """Return what only a report shows: by reason, time and destination."""
    from pyspark.sql import functions as sql

    from pipeline.charts import MESSAGES, counted, traffic
    from pipeline.cube import counting, cube

    names = ("destination", "link", "reason")
    of = cube(deaths, "time", names, {MESSAGES: counting(sql.lit(True))})
    # What does not say when it died is not in a cube.
    whole = None if deaths.where("time is null").limit(1).count() else of
    one = {"messages": sql.lit(1)}
    also = ("destination", "link")
    return [
        counted(deaths, "reason", "Dead messages", "messages", cube=whole),
        *traffic(deaths, "time", one, "Dead messages", "reason", cube=of, also=also if of else ()),
        counted(deaths, "destination", "Dead messages", "messages", "reason", whole),
    ]


def _deaths(
    spark: SparkSession,
    journal: tuple[str, ...],
    queue: str | None,
    connection: Connection,
    since: str | None,
    until: str | None,
) -> tuple[DataFrame, str]:
    from pyspark.sql import functions as sql

    from pipeline.tables.events import read_events
    from pipeline.tables.messages import browsed
    from pipeline.transforms.dead_letters import of_events, of_messages

    if bool(journal) == (queue is not None):
        raise PipelineError(
            "expected a journal's folder, or --queue with the name of a dead message queue, and not both"
        )
    if queue is None:
        return of_events(read_events(spark, journal, since=since, until=until).frame), ", ".join(
            journal
        )
    deaths = of_messages(browsed(spark, connection.options, as_destination(queue)))
    # What does not say when it died is not left out.
    if since is not None:
        deaths = deaths.where(
            sql.coalesce(sql.col("time") >= sql.lit(since).cast("timestamp"), sql.lit(True))
        )
    if until is not None:
        deaths = deaths.where(
            sql.coalesce(sql.col("time") < sql.lit(until).cast("timestamp"), sql.lit(True))
        )
    return deaths, f"{as_destination(queue)} at {connection.address}"


def _time(spark: SparkSession, option: str, text: str | None) -> datetime | None:
    from pyspark.sql import functions as sql

    if text is None:
        return None
    row = spark.range(1).select(sql.unix_micros(sql.try_to_timestamp(sql.lit(text)))).collect()[0]
    if row[0] is None:
        raise PipelineError(
            f"{option} {text}: expected a time in UTC such as 2026-03-01 or 2026-03-01T14:30:00"
        )
    return datetime.fromtimestamp(row[0] / 1_000_000, UTC)


def _troubles(rows: list[Row]) -> Table:
    columns = (
        "",
        "count",
        "an hour",
        "trend",
        "last",
        "reason",
        "destination",
        "link",
        "exception",
    )
    shown = [
        (
            number,
            row["count"],
            row.per_hour,
            f"{row.trend}: {row.before}, then {row.in_period}",
            in_utc(row.last),
            row.reason,
            row.destination,
            row.link,
            row.exception,
        )
        for number, row in enumerate(rows[:_SHOWN], 1)
    ]
    note = f"The first {_SHOWN}; there are more." if len(rows) > _SHOWN else ""
    return Table("Troubles", columns, shown, note)


def _examples(rows: list[Row]) -> Table:
    shown = [
        (
            number,
            each.message_id,
            each.found if each.found != each.message_id else None,
            in_utc(each.time),
            each.comment,
        )
        for number, row in enumerate(rows[:_SHOWN], 1)
        for each in row.examples
    ]
    return Table("Examples", ("of", "message", "in the queue", "died", "comment"), shown)


def _by_hour(rows: list[Row]) -> Table:
    shown = [(in_utc(row.hour), row.reason, row["count"]) for row in reversed(rows)]
    return Table(
        "Dead messages by hour and reason",
        ("hour", "reason", "count"),
        shown,
        "",
        Chart("bar", "hour", ("count",), by="reason", unit="messages", every=3_600),
    )


__all__ = ["command", "run"]
