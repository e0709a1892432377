"""``gateway-pipeline archive``: messages with bodies into a table.

Owns the job's options, and that a batch of the stream is in the table once. By itself it browses:
what waits in a queue now and is not in the folder yet is added to it, and stays where it is. With
``--consume`` messages are taken from the queue, or from a durable subscription of a topic, by a
stream that keeps what it has received in a staging folder until it is in the archive; so a run that
is killed loses none and repeats none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from pipeline.connection import Connection, as_destination, connection_options
from pipeline.errors import PipelineError
from pipeline.output import Output, output_options, progress
from pipeline.session import SessionOptions, is_remote, session_options, spark_session
from pipeline.summary import Chart, Summary, Table
from pipeline.tables.names import check_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.tables.delta import DeltaFolder

#: Of the stream that consumes, in the table's folder.
CHECKPOINT: Final = "_checkpoint"
_POLL_SECONDS: Final = 1
#: Days that the summary shows.
_SHOWN: Final = 14


@click.command(
    "archive",
    help="A destination's messages into a table, with their bodies: those there now, which stay, or with --consume all that come.",
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
    """Check the arguments, before Spark starts.

    :raises PipelineError: they do not go together, or no table can be in the folder.
    """
    check_name(given["folder"])
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
    :raises PipelineError: the folder has an archive of an earlier version, or the broker refuses.
    """
    from pipeline.tables.messages import archive_in
    from pipeline.tables.storage import Location

    table = archive_in(spark, folder)
    source = as_destination(destination)
    if not consume:
        added = _browse(spark, source, table, selector, connection)
    else:
        assert staging is not None
        options = {
            **connection.options,
            "destination": source,
            "envelope": "true",
            "stagingPath": Location(spark, staging).address,
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
        added = _consume(spark, options, table, every if continuously else None)
    facts = {"messages added": added, "from": f"{source} at {connection.address}", "to": table.path}
    tables = []
    days = _days(table) if table.exists() else None
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
            tables += _traffic(table)
    output.finish(Summary("Archived", facts, tables))
    return added


def _browse(
    spark: SparkSession,
    source: str,
    table: DeltaFolder,
    selector: str | None,
    connection: Connection,
) -> int:
    from pipeline.tables.messages import browsed
    from pipeline.transforms.archive import BY, archived, missing

    options = (
        connection.options if selector is None else {**connection.options, "selector": selector}
    )
    rows = archived(browsed(spark, options, source))
    if table.exists():
        rows = missing(rows, table.frame())
    with progress(spark, "archiving"):
        files = table.write(rows, [BY])
        if files.rows:
            table.append(files)
    return files.rows


def _consume(
    spark: SparkSession, options: dict[str, str], table: DeltaFolder, every: int | None
) -> int:
    from pyspark.errors import PySparkException

    from pipeline.datasource.client import Client
    from pipeline.datasource.options import Use, parse
    from pipeline.datasource.source import register
    from pipeline.tables.storage import Location
    from pipeline.transforms.archive import archived

    # Here it is told in one line that there is no connection, or that the login is refused.
    Client(replace(parse(options, Use.STREAM), client_id=None)).open().disconnect()
    register(spark)
    rows = archived(spark.readStream.format("stomp").options(**options).load())
    checkpoint = Location(spark, f"{table.path}/{CHECKPOINT}")
    failures: list[Exception] = []
    adding = _Adding(table.uri, checkpoint.uri)

    def add(messages: DataFrame, number: int) -> None:
        try:
            adding(messages, number)
        except Exception as error:
            failures.append(error)
            raise

    writer = (
        # A server runs it in a process of its own.
        rows.writeStream.foreachBatch(adding if is_remote(spark) else add).option(
            "checkpointLocation", checkpoint.uri
        )
    )
    query = (
        writer.trigger(availableNow=True)
        if every is None
        else writer.trigger(processingTime=f"{every} seconds")
    ).start()
    try:
        added = _followed(query)
        table.tidy()
        return added
    except PySparkException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        query.stop()


@dataclass(frozen=True)
class _Adding:
    """Adds the batches of a stream to a table, each once.

    :param table: of its folder, as Spark has it.
    :param checkpoint: of the stream, which is its application.
    """

    table: str
    checkpoint: str

    def __call__(self, messages: DataFrame, number: int) -> None:
        from pipeline.tables.delta import TIDY, DeltaFolder
        from pipeline.transforms.archive import BY

        spark = messages.sparkSession
        table = DeltaFolder(spark, self.table)
        batch = (stream_id(spark, self.checkpoint), number)
        # One that was killed between the table and the stream's own log of commits gives the batch
        # out again.
        if not table.has(batch):
            table.append(table.write(messages, [BY]), batch)
        if number % TIDY == TIDY - 1:
            table.tidy()


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


def _days(table: DeltaFolder) -> DataFrame:
    """How much of each day there is, the last first."""
    from pyspark.sql import functions as sql

    from pipeline.transforms.archive import by_day

    days = by_day(table.frame()).groupBy(sql.col("day").cast("string").alias("day"))
    return days.agg(
        sql.count("*").alias("messages"), sql.sum(sql.length("body")).alias("octets")
    ).orderBy(sql.col("day").desc())


def _traffic(table: DeltaFolder) -> list[Table]:
    from pyspark.sql import functions as sql

    from pipeline.charts import traffic

    rows = table.frame().withColumn("time", sql.coalesce("timestamp", "archived"))
    return traffic(rows, "time", {"messages": sql.lit(1), "octets": sql.length("body")}, "Messages")


def stream_id(spark: SparkSession, checkpoint: str) -> str:
    """The name of a stream, which no stream with another checkpoint has."""
    from pipeline.tables.storage import Location

    return str(json.loads((Location(spark, checkpoint) / "metadata").read())["id"])


__all__ = ["command", "run"]
