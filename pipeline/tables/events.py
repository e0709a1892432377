"""Events of the table that ``ingest`` keeps, or of the journal itself.

Owns that jobs need not know which of the two they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from gateway.journal import runs
from pipeline.errors import PipelineError
from pipeline.tables.ingested import Ingested, between, is_table
from pipeline.tables.lines import lines, segments, unended
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
    seen, left = seen_in(whole), _left(paths)
    if left:
        # As if they had their end lines already.
        after = [(run, taken + 1) for run, taken in left.items()]
        seen = seen.unionByName(seen_in(spark.createDataFrame(after, "run string, line bigint")))
    return Events(named(between(frame, since, until)), seen)


def unended_runs(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return the runs that did not end in order.

    Lines of their last moment may be missing.

    :param paths: as of :func:`read_events`, which has read them.
    """
    tables = [Ingested(spark, path) for path in paths if is_table(spark, path)]
    if tables:
        return sorted(unended(path for table in tables for path in table.segments()))
    ended = unended(one.path for one in segments(spark, paths))
    return sorted(ended | _left(paths).keys())


def _left(paths: Sequence[str]) -> dict[str, int]:
    """Return the runs whose disk was full when they were killed, or still is.

    They have no end line yet, and neither has one that could not write it when it stopped. Of
    folders elsewhere nothing is known.

    :returns: by run, the last line that it has taken.
    """
    found: dict[str, int] = {}
    for path in paths:
        try:
            for run in runs.unended(Path(path)):
                if run.lost and (run.stopped or run.closed):
                    found[run.run] = max(run.taken, found.get(run.run, 0))
        except OSError as error:
            raise PipelineError(f"{error.filename}: {error.strerror or error}") from error
    return found
