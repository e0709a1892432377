"""``gateway-pipeline upgrade``: what earlier versions kept.

Owns what earlier versions wrote: archives of Parquet files by day, with the log of a stream where
they were consumed, and the tables of ``ingest``, with a ledger of batches. Their files stay as they
are, and where they are. Ledgers of ``replay`` were lines of JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pipeline.errors import PipelineError
from pipeline.output import Output, progress
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.tables.delta import DeltaFolder

#: What Spark's file sink kept beside the files of a stream: which of them count.
_OF_A_STREAM: Final = "_spark_metadata"
#: Of what a ledger had. What had compacted others ``replaces`` them.
_LEDGER: Final = (
    "batch string, run string, bucket bigint, lines binary, events bigint, replaces array<string>"
)


@click.command(
    "upgrade",
    help="Archives, tables of ingest and ledgers of replay of earlier versions into those of this one, in place.",
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
@session_options
def command(folders: tuple[str, ...], session: SessionOptions) -> None:
    """The click command."""
    with spark_session("gateway-pipeline upgrade", session, folders) as spark:
        for folder in folders:
            with progress(spark, "Upgrading"):
                found = run(spark, folder)
            Output().finish(Summary(f"Upgraded {folder}", found))


def run(spark: SparkSession, folder: str) -> dict[str, int]:
    """Make a table of what is in a folder, while no job writes it.

    That is an archive, what ``ingest`` has kept, or a ledger of ``replay``.

    Killed at any time, it can be run again.

    :returns: how many ``messages``, ``events`` or ``records`` it has.
    :raises PipelineError: the folder has nothing of an earlier version, or is a table already.
    """
    from pipeline.replay.ledger import OLD_FILE, upgraded
    from pipeline.tables.delta import DeltaFolder
    from pipeline.tables.ingested import is_old_table
    from pipeline.tables.messages import is_old_archive
    from pipeline.tables.storage import Location

    local = Location(spark, folder).local
    if local is not None and (local / OLD_FILE).exists():
        return {"records": upgraded(local)}
    if is_old_table(spark, folder):
        return {"events": _upgrade_events(spark, folder)}
    table = DeltaFolder(spark, folder)
    if (table.exists() and _log_of_a_stream(spark, folder)) or (
        not table.exists() and is_old_archive(spark, folder)
    ):
        return {"messages": _upgrade_archive(spark, table)}
    if table.exists():
        raise PipelineError(f"{folder} is a table of Delta Lake already")
    raise PipelineError(f"{folder} has no archive, table or ledger of an earlier version")


def _log_of_a_stream(spark: SparkSession, folder: str) -> bool:
    from pipeline.tables.storage import Location

    return (Location(spark, folder) / _OF_A_STREAM).exists()


def _upgrade_archive(spark: SparkSession, table: DeltaFolder) -> int:
    from pyspark.sql.types import DateType, StructField, StructType

    from pipeline.jobs.archive import CHECKPOINT, stream_id
    from pipeline.tables.storage import Location, literally
    from pipeline.transforms.archive import BY

    place = Location(spark, table.path)
    if not table.exists():
        batch = None
        if _log_of_a_stream(spark, table.path):
            log = place / _OF_A_STREAM
            numbers = [one.name.partition(".")[0] for one in log.files()]
            last = max((int(number) for number in numbers if number.isdigit()), default=None)
            if last is None:
                raise PipelineError(
                    f"{table.path} has no archive: its stream was stopped before the first batch; remove the folder"
                )
            if literally(table.path) != table.path:
                raise PipelineError(
                    f"{table.path}: expected a name without \\ {{ }} [ ] * ? and comma; rename the folder first"
                )
            batch = (stream_id(spark, f"{table.path}/{CHECKPOINT}"), last)
        found = spark.read.option("mergeSchema", True).parquet(literally(place.uri)).schema
        schema = StructType(
            [*(one for one in found.fields if one.name != BY), StructField(BY, DateType())]
        )
        table.adopt(schema, [BY], batch)
    # From now on the table says which files count.
    (place / _OF_A_STREAM).remove()
    return table.frame().count()


def _upgrade_events(spark: SparkSession, folder: str) -> int:
    from pyspark.sql import functions as sql

    from pipeline.tables.ingested import Ingested
    from pipeline.tables.storage import Location, literally
    from pipeline.transforms.line_bitmaps import united

    table = Ingested(spark, folder)
    place = Location(spark, table.path)
    if not table.exists():
        ledger = spark.read.schema(_LEDGER).parquet(literally((place / "ledger").uri))
        replaced = ledger.where("replaces is not null").select(
            sql.explode("replaces").alias("batch")
        )
        counted = ledger.join(sql.broadcast(replaced), "batch", "left_anti")
        filled = counted.where("run is null and events > 0").orderBy("batch").collect()
        lines = united(counted.where("run is not null"))
        if filled:
            table.adopt([f"batch={row.batch}" for row in filled], lines)
    for name in ("checkpoint", "_lock", "ledger"):
        (place / name).remove()
    return table.events().count() if table.exists() else 0
