"""Events of the table that ``ingest`` keeps, or of the journal itself.

Owns that jobs need not know which of the two they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from pipeline.errors import PipelineError
from pipeline.tables.ingested import Ingested, between, is_table
from pipeline.tables.lines import lines
from pipeline.transforms import events as of_lines
from pipeline.transforms.events import named, whole_lines
from pipeline.transforms.line_bitmaps import seen_in


@dataclass(frozen=True)
class Events:
    """What is known of a journal.

    :param frame: of :data:`pipeline.columns.EVENTS`, each event once.
    :param seen: which lines of the journal are known, whatever was asked for: ``run``, ``bucket``,
        ``lines`` as :mod:`pipeline.transforms.line_bitmaps` has them.
    """

    frame: DataFrame
    seen: DataFrame


def read_events(
    spark: SparkSession,
    paths: Sequence[str],
    destinations: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
) -> Events:
    """Read the events of a table of ``ingest``, or of folders of a journal.

    Of a table only the folders of the days and destinations that were asked for are read.

    :param paths: one table, or any number of folders with segments, which may have copies of each
        other's.
    :param destinations: as ``queue:NAME`` or ``topic:NAME``; none: all.
    :param since: not before this time, as Spark reads times, in UTC.
    :param until: before this time.
    :raises PipelineError: there is nothing to read, or a time is not valid.
    """
    for option, text in (("--since", since), ("--until", until)):
        if (
            text is not None
            and spark.range(1).select(sql.try_to_timestamp(sql.lit(text))).first()[0] is None  # type: ignore[index]
        ):
            raise PipelineError(
                f"{option} {text}: expected a time in UTC such as 2026-03-01 or 2026-03-01T14:30:00"
            )
    tables = [path for path in paths if is_table(spark, path)]
    if tables and len(paths) > 1:
        raise PipelineError(
            f"{tables[0]} is a table of ingest: expected it alone, or only folders of a journal"
        )
    if tables:
        table = Ingested(spark, tables[0])
        return Events(named(table.events(destinations, since, until)), table.lines_seen())
    whole = whole_lines(lines(spark, paths))
    frame = of_lines.unnamed_events(whole.dropDuplicates(["run", "line"]))
    if destinations:
        frame = frame.where(sql.col("destination").isin(list(destinations)))
    return Events(named(between(frame, since, until)), seen_in(whole))
