"""Messages as a table: browsed from a queue, or from an archive.

Owns what is said where they cannot be had, before Spark begins to read: what fails in one of its
tasks is told with much around it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipeline.columns import MESSAGES
from pipeline.datasource.client import Client
from pipeline.datasource.options import Use, parse
from pipeline.datasource.source import register
from pipeline.errors import PipelineError
from pipeline.tables.delta import DeltaFolder
from pipeline.tables.storage import Location

#: Columns of an archive of any version; another may have been added by a later one.
_OF_EACH = ("message_id", "destination", "headers", "body", "envelope")
COLUMNS = tuple(
    column.split()[0] for column in MESSAGES.replace("map<string,string>", "map").split(",")
)


def browsed(spark: SparkSession, options: Mapping[str, str], queue: str) -> DataFrame:
    """Browse a queue's messages; each action looks anew.

    Rows of :data:`pipeline.columns.MESSAGES`, of the gateway with ``envelope``.

    :param options: of the data source, about the connection.
    :param queue: ``queue:NAME``, or as the broker spells it.
    :raises PipelineError: there is no connection, the login is refused, or the queue may not be
        browsed.
    """
    given = {**options, "destination": queue, "browse": "true", "envelope": "true"}
    parsed = parse(given, Use.BROWSE)
    assert parsed.destination is not None
    with Client(parsed).open() as client:
        if client.dialect.browse:
            client.subscribe(parsed.destination, 1, browse=True)
        # What it shows is not waited for.
        client.close()
    register(spark)
    return spark.read.format("stomp").options(**given).load()


def archived(spark: SparkSession, folder: str) -> DataFrame:
    """Return an archive's messages: :data:`pipeline.columns.MESSAGES`.

    :raises PipelineError: the folder is missing, or holds no archive.
    """
    if not Location(spark, folder).exists():
        raise PipelineError(f"--archive {folder}: there is no such folder")
    table = archive_in(spark, folder)
    if not table.exists():
        raise PipelineError(f"--archive {folder}: there is nothing of the job archive in it")
    known = StructType.fromDDL(MESSAGES)
    assert isinstance(known, StructType)
    return table.frame(known=known).select(*COLUMNS)


def archive_in(spark: SparkSession, folder: str) -> DeltaFolder:
    """Return the table of an archive, which may be one that is to be made.

    :raises PipelineError: there is an archive of an earlier version, or a table of other rows.
    """
    table = DeltaFolder(spark, folder)
    if table.exists():
        there = table.frame().columns
        missing = [name for name in _OF_EACH if name not in there]
        if missing:
            raise PipelineError(
                f"{folder} has a table without the column {', '.join(missing)}: expected what the job archive writes"
            )
    elif is_old_archive(spark, folder):
        raise PipelineError(
            f"{folder} has an archive of an earlier version: gateway-pipeline upgrade makes a table of Delta Lake of it, once"
        )
    return table


def is_old_archive(spark: SparkSession, folder: str) -> bool:
    """Whether a folder has an archive of an earlier version.

    It has Parquet files by day, and no table.
    """
    return any(one.name.startswith("day=") for one in Location(spark, folder).folders())
