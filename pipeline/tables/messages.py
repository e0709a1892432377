"""Messages as a table: browsed from a queue, or from an archive.

Owns what is said where they cannot be had, before Spark begins to read: what fails in one of its
tasks is told with much around it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from pipeline.columns import MESSAGES
from pipeline.datasource.client import Client
from pipeline.datasource.options import Use, parse
from pipeline.datasource.source import register
from pipeline.errors import PipelineError
from pipeline.tables.lines import place

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
    files, path = place(spark, folder)
    if not files.exists(path):
        raise PipelineError(f"--archive {folder}: there is no such folder")
    days = files.globStatus(place(spark, f"{folder.rstrip('/')}/day=*")[1])
    if not days:
        raise PipelineError(f"--archive {folder}: there is nothing of the job archive in it")
    frame = spark.read.parquet(folder)
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise PipelineError(
            f"--archive {folder}: there is no column {', '.join(missing)}: expected what the job archive writes"
        )
    return frame.select(*COLUMNS)
