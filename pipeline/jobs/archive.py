"""``gateway-pipeline archive``: messages with their bodies to Parquet.

Owns the job's options, and what may share a folder. By itself it browses: what waits in a queue now
and is not in the folder yet is added to it, and stays where it is. With ``--consume`` messages are
taken from the queue, or from a durable subscription of a topic, by a stream that keeps what it has
received in a staging folder until it is in the archive; so a run that is killed loses none and
repeats none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pipeline.connection import Connection, as_destination, connection_options
from pipeline.errors import PipelineError
from pipeline.output import Output, output_options, progress
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Chart, Summary, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: What Spark's file sink keeps beside the files of a stream; a reader then looks at no others.
_OF_A_STREAM: Final = "_spark_metadata"
_CHECKPOINT: Final = "_checkpoint"
_POLL_SECONDS: Final = 1
#: Days that the summary shows.
_SHOWN: Final = 14


@click.command(
    "archive",
    help="A destination's messages into Parquet, with their bodies: those there now, which stay, or with --consume all that come.",
)
@click.argument("destination")
@click.argument("folder")
@click.option("--selector", metavar="TEXT", help="Only messages that it matches.")
@click.option("--consume", is_flag=True, help="Take the messages from there. Needs --staging.")
@click.option(
    "--continuously",
    is_flag=True,
    help="With --consume: go on until it is stopped. [default: until nothing is left]",
)
@click.option(
    "--staging",
    metavar="DIR",
    help="With --consume: keeps what was received until it is in the archive; this job's alone.",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="With --continuously: write files so often.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    metavar="N",
    help="With --consume: messages of a file, at most.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="With --consume: as many consumers of a queue.",
)
@click.option(
    "--subscription",
    metavar="NAME",
    help="Of a topic: the durable subscription to consume, with --client-id.",
)
@click.option("--client-id", metavar="ID", help="Of a topic: whose durable subscription it is.")
@connection_options()
@output_options
@session_options
def command(session: SessionOptions, **given: Any) -> None:
    """The click command."""
    check(given)
    given["connection"].check()
    with spark_session("archive", session) as spark:
        run(spark, **given)


def check(given: Mapping[str, Any]) -> None:
    """Whether the options go together. :raises PipelineError: they do not."""
    if not given["consume"]:
        of_consuming = [
            name
            for name in (
                "continuously",
                "staging",
                "batch",
                "partitions",
                "subscription",
                "client_id",
            )
            if given[name]
        ]
        if of_consuming:
            raise PipelineError(
                f"--{of_consuming[0].replace('_', '-')} belongs to --consume, by which messages are taken from their destination"
            )
        if as_destination(given["destination"]).startswith(("topic:", "/topic/")):
            raise PipelineError(
                "a topic cannot be browsed: expected --consume, with --subscription and --client-id of a durable subscription"
            )
    elif not given["staging"]:
        raise PipelineError(
            "--consume needs --staging with a folder that keeps what was received until it is in the archive"
        )


def run(
    spark: SparkSession,
    destination: str,
    folder: str,
    *,
    selector: str | None = None,
    consume: bool = False,
    continuously: bool = False,
    staging: str | None = None,
    every: int = 10,
    batch: int | None = None,
    partitions: int | None = None,
    subscription: str | None = None,
    client_id: str | None = None,
    connection: Connection,
    output: Output,
) -> int:
    """Archive. The parameters are the command's; ``output`` gets the days.

    :returns: how many messages were added.
    :raises PipelineError: the folder has another kind of archive, or the broker refuses.
    """
    place = folder.rstrip("/")
    source = as_destination(destination)
    streamed, filled = _holds(spark, place)
    if consume and filled and not streamed:
        raise PipelineError(
            f"{place} has an archive made by browsing: expected another folder for --consume"
        )
    if streamed and not consume:
        raise PipelineError(
            f"{place} has an archive made by --consume: expected another folder to browse into"
        )
    if not consume:
        added = _browse(spark, source, place, filled, selector, connection)
    else:
        assert staging is not None
        options = {
            **connection.options,
            "destination": source,
            "envelope": "true",
            "stagingPath": staging if "://" in staging else str(Path(staging).absolute()),
            **{
                name: str(value)
                for name, value in (
                    ("selector", selector),
                    ("batchSize", batch),
                    ("partitions", partitions),
                )
                if value
            },
            **{
                name: value
                for name, value in (("subscriptionName", subscription), ("clientId", client_id))
                if value
            },
        }
        added = _consume(spark, options, place, every if continuously else None)
    facts = {"messages added": added, "from": f"{source} at {connection.address}", "to": place}
    tables = []
    days = _days(spark, place) if _holds(spark, place)[1] else None
    output.write(
        spark.createDataFrame([], "day string, messages bigint, octets bigint")
        if days is None
        else days
    )
    if days is not None:
        rows = [tuple(row) for row in days.limit(_SHOWN).collect()]
        tables.append(
            Table(
                "The archive",
                tuple(days.columns),
                rows,
                chart=Chart("bar", "day", ("messages",), unit="messages"),
            )
        )
        if output.report is not None:
            tables += _traffic(spark, place)
    output.finish(Summary("Archived", facts, tables))
    return added


def _holds(spark: SparkSession, place: str) -> tuple[bool, bool]:
    """Whether the folder has the files of a stream, and whether it has any."""
    from pipeline.tables.lines import place as file_system

    files, path = file_system(spark, f"{place}/{_OF_A_STREAM}")
    days = files.globStatus(file_system(spark, f"{place}/day=*")[1])
    return bool(files.exists(path)), days is not None and len(days) > 0


def _browse(
    spark: SparkSession,
    source: str,
    place: str,
    filled: bool,
    selector: str | None,
    connection: Connection,
) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    from pipeline.tables.messages import browsed
    from pipeline.transforms.archive import BY, archived, missing

    options = (
        connection.options if selector is None else {**connection.options, "selector": selector}
    )
    rows = archived(browsed(spark, options, source))
    if filled:
        rows = missing(rows, spark.read.parquet(place))
    counted = Observation()
    with progress(spark, "archiving"):
        rows.observe(counted, sql.count("*").alias("messages")).write.mode("append").partitionBy(
            BY
        ).parquet(place)
    return int(counted.get.get("messages") or 0)


def _consume(spark: SparkSession, options: dict[str, str], place: str, every: int | None) -> int:
    from pipeline.datasource.client import Client
    from pipeline.datasource.options import Use, parse
    from pipeline.datasource.source import register
    from pipeline.transforms.archive import BY, archived

    # Here it is told in one line that there is no connection, or that the login is refused.
    Client(replace(parse(options, Use.STREAM), client_id=None)).open().disconnect()
    register(spark)
    rows = archived(spark.readStream.format("stomp").options(**options).load())
    writer = (
        rows.writeStream.format("parquet")
        .partitionBy(BY)
        .option("checkpointLocation", f"{place}/{_CHECKPOINT}")
        .option("path", place)
    )
    query = (
        writer.trigger(availableNow=True)
        if every is None
        else writer.trigger(processingTime=f"{every} seconds")
    ).start()
    try:
        return _followed(query)
    finally:
        query.stop()


def _followed(query: StreamingQuery) -> int:
    """Wait until the query ends or is interrupted.

    :returns: how many messages it has added.
    """
    console = Console(stderr=True)
    added: dict[int, int] = {}

    def look() -> None:
        for each in query.recentProgress:
            added[each.batchId] = max(added.get(each.batchId, 0), each.numInputRows)

    with console.status("archiving") as status:
        try:
            while not query.awaitTermination(_POLL_SECONDS):
                look()
                status.update(f"archived {sum(added.values()):,} messages")
        except KeyboardInterrupt:
            query.stop()
    look()
    return sum(added.values())


def _days(spark: SparkSession, place: str) -> DataFrame:
    """How much of each day there is, the last first."""
    from pyspark.sql import functions as sql

    days = spark.read.parquet(place).groupBy(sql.col("day").cast("string").alias("day"))
    return days.agg(
        sql.count("*").alias("messages"), sql.sum(sql.length("body")).alias("octets")
    ).orderBy(sql.col("day").desc())


def _traffic(spark: SparkSession, place: str) -> list[Table]:
    from pyspark.sql import functions as sql

    from pipeline.charts import traffic

    rows = spark.read.parquet(place).withColumn("time", sql.coalesce("timestamp", "archived"))
    return traffic(rows, "time", {"messages": sql.lit(1), "octets": sql.length("body")}, "Messages")


__all__ = ["command", "run"]
