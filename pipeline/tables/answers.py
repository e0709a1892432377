"""Answers of jobs: tables that each run writes anew.

Owns that a folder has the old answer until the new one is whole.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.tables.delta import DeltaFolder
from pipeline.tables.storage import Location, literally

#: What Spark writes for an answer, also in parts by columns, and what a table of Delta Lake has.
#: Not all that is hidden: a home's ``.ssh`` is, and the checkpoint of an archive without messages.
_ANSWER: Final = re.compile(
    r"((_delta_log|_change_data|_temporary|\.spark-staging-[^/]*|data/[0-9a-f]{32})/.*|_compacting"
    r"|([^/=]+=[^/]*/)*([_.]?part-[^/]*|[._]*(SUCCESS|(common_)?metadata|(committed|started)_\w+)(\.crc)?))$"
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_answer(frame: DataFrame, folder: str, form: str) -> DataFrame:
    """Write an answer in place of what the folder has.

    A folder that has a Delta Lake table gets a new version, if that is the form; else the folder is
    exchanged for a new one, by two renames: only who looks just between these two finds none.

    :param folder: anything that Spark can write to.
    :param form: ``delta``, or one that Spark knows.
    :returns: what was written, where that can be computed with as well as with the frame, else the
        frame.
    :raises PipelineError: Delta Lake refuses it, or the folder cannot be exchanged.
    """
    spark = frame.sparkSession
    table = DeltaFolder(spark, folder)
    # Where the folder itself is, and not a link to it.
    place = Location(spark, folder).resolved()
    if table.partitioned():
        raise PipelineError(
            f"{folder} is a table that a job keeps: expected another folder for an answer, which would replace it"
        )
    there = [one.name for one in place.files("*", below=True)]
    other = next((name for name in there if not _ANSWER.match(name)), None)
    if other is not None:
        raise PipelineError(
            f"{folder} has {other}, which no answer has, and an answer would replace all: expected another folder"
        )
    filled = bool(there)
    if form == "delta" and (table.exists() or not filled):
        table.replace(table.write(frame))
        # Somebody else may be at it, too; the answer is there.
        with suppress(PipelineError):
            table.vacuum()
        return table.frame()
    if filled and not place.renames:
        raise PipelineError(
            f"{folder} has files, and its storage cannot exchange a folder for another in one step: expected an empty one, or --format delta in a folder that has nothing else"
        )
    new = Location(spark, f"{place.path}.new-{uuid.uuid4().hex[:8]}") if place.renames else place
    try:
        if form == "delta":
            table = DeltaFolder(spark, new.path)
            table.replace(table.write(frame))
        else:
            writer = frame.write.format(form).mode("append")
            if form == "csv":
                writer = writer.option("header", True).option("escape", '"')
            writer.save(new.uri)
        if place.renames:
            _exchange(spark, place, new)
    except BaseException:
        new.remove()
        raise
    if form == "delta":
        return DeltaFolder(spark, folder).frame()
    return (
        spark.read.schema(frame.schema).parquet(literally(place.uri))
        if form == "parquet"
        else frame
    )


def _exchange(spark: SparkSession, old: Location, new: Location) -> None:
    """The new folder takes the name of another, which is removed.

    :raises PipelineError: it cannot; the folder has what it had.
    """
    going = Location(spark, f"{new.path}.before")
    there = old.exists()
    try:
        if there:
            old.rename(going)
        try:
            new.rename(old)
        except BaseException:
            if there:
                going.rename(old)
            raise
    except OSError as error:
        raise PipelineError(
            f"the folder {old.path.removeprefix('file:')} cannot be exchanged for a new one ({error.strerror or error}): expected one that can be renamed"
        ) from error
    if there:
        going.remove()
