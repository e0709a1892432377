"""The table that ``ingest`` keeps: events, and what it knows.

Owns the folder's layout, and what makes a batch appear whole, or not at all. ::

    _delta_log/, data/                                      (of the events: a Delta Lake table)
    _known/_delta_log/, _known/data/                        (of what is known: another one)

A batch has a number. First its events are written to files; then a version of ``_known`` says which
lines of the journal, and which segments, are in these files; then a version of the events' table
has the files. One that was killed before the second step has changed nothing. One that was killed
before the third is completed by the next who looks. Two who are at it at the same time get
different numbers, and the second one asks again which lines are known.

Lines are known as bitmaps: one bit for each line, in buckets as Spark's ``bitmap_bucket_number``
counts them. So a line that comes again, in a copy of its segment by whatever name, is known
exactly, at 4 KiB for 32,768 lines.

A destination has a folder of its own where its name is plain (letters, digits, ``.``, ``_`` and
``-``, at most 100 of them), else it shares one of 16. The column ``destination`` always has the
name itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.errors import PipelineError
from pipeline.tables.delta import DeltaFolder, Files
from pipeline.tables.names import unfit
from pipeline.tables.snapshot import Snapshot
from pipeline.tables.storage import Location, literally
from pipeline.transforms.events import is_damaged, unnamed_events, unnamed_schema, whole_lines
from pipeline.transforms.line_bitmaps import lines_of, seen_in, twice, unseen

#: A row for each bucket of each run of a batch; one for each of its segments; and one without
#: either for the batch itself, with the folder of its files and the number of its events.
KNOWN: Final = """
    number bigint, run string, bucket bigint, lines binary, segment string, folder string, events bigint
"""
SHARED: Final = 16
#: The application whose batches the numbers are.
INGEST: Final = "ingest"
BY: Final = ("day", "destination_dir")
#: Columns of events by which files are passed over.
_INDEXED: Final = ("run", "line", "time", "destination")
_PLAIN: Final = "^(queue|topic):[A-Za-z0-9._-]{1,100}$"


@dataclass(frozen=True)
class Written:
    """What a batch wrote: events, lines known already, damaged lines."""

    events: int = 0
    doubled: int = 0
    damaged: int = 0


@dataclass(frozen=True)
class Batches:
    """Events of batches.

    :param newest: the number of the newest batch that the table had.
    :param empty: there is no event.
    :param events: with the columns of :func:`unnamed_schema`.
    """

    newest: int
    empty: bool
    events: DataFrame


def directory(destination: Column, shared: int = 0) -> Column:
    """The value of ``destination_dir`` for a destination.

    :param shared: in how many folders all destinations are; 0: each plain one has its own.
    """
    bucket = sql.format_string(
        "other-%02d",
        sql.pmod(sql.xxhash64(sql.coalesce(destination, sql.lit(""))), sql.lit(shared or SHARED)),
    )
    if shared:
        return bucket
    return sql.when(destination.rlike(_PLAIN), sql.regexp_replace(destination, ":", "-")).otherwise(
        bucket
    )


class Ingested:
    """The table in one folder.

    :param path: of the folder, anything that Spark reads and writes and delta-rs reaches.
    :raises PipelineError: delta-rs cannot have the path, or would take it for another one.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark: Final = spark
        self.events_table: Final = DeltaFolder(spark, path)
        self.path: Final = self.events_table.path
        self._known: Final = DeltaFolder(spark, f"{self.path}/_known")

    def exists(self) -> bool:
        """Whether anything was ever ingested into this folder."""
        return self._known.exists()

    def lines_seen(self, until: int | None = None) -> DataFrame:
        """Return the journal lines in the table: ``run``, ``bucket``, ``lines``.

        ``lines`` is a bitmap; rows of one bucket have no bit in common.

        :param until: only of batches up to this number; None: of all.
        """
        there = (self.events_table.newest(INGEST) or 0) if until is None else until
        rows = self._rows().where((sql.col("number") <= there) & sql.col("run").isNotNull())
        return rows.select("run", "bucket", "lines")

    def segments(self) -> set[str]:
        """Return the paths of the segments that were read."""
        rows = self._rows().where("segment is not null").select("segment").collect()
        return {str(row.segment) for row in rows}

    def events(
        self, destinations: Sequence[str] = (), since: str | None = None, until: str | None = None
    ) -> DataFrame:
        """Return the events with the columns of :func:`unnamed_schema`.

        :func:`pipeline.transforms.events.named` makes :data:`pipeline.columns.EVENTS` of them.

        :param destinations: only those there; none: all.
        :param since: not before this time, as Spark reads times, in UTC.
        :param until: before this one.
        """
        if not self.events_table.exists():
            # The first batch is not completed yet.
            return self._spark.createDataFrame([], unnamed_schema())
        first, last = (self._day(text) for text in (since, until))

        def keep(file: Mapping[str, Any]) -> bool:
            day = file["partition.day"]
            if first is not None and day is not None and day < first:
                return False
            if last is not None and day is not None and day > last:
                return False
            low, high = file.get("min.destination"), file.get("max.destination")
            if not destinations or low is None or high is None:
                return True
            return any(low <= name <= high for name in destinations)

        frame = _with_day(self.events_table.frame(keep, unnamed_schema()))
        if destinations:
            frame = frame.where(sql.col("destination").isin(list(destinations)))
        return between(frame, since, until)

    @property
    def id(self) -> str:
        """What no other table has, wherever it is moved.

        :raises PipelineError: it has no events yet.
        """
        return self._at_batches().id

    def whole(self) -> Batches:
        """Return the events of all batches.

        :raises PipelineError: it has no events yet.
        """
        snapshot = self._at_batches()
        frame = _with_day(snapshot.frame(known=unnamed_schema()))
        return Batches(snapshot.newest(INGEST) or 0, not snapshot.files, frame)

    def added(self, after: int) -> Batches | None:
        """Return the events of the batches after one.

        :returns: None where files of theirs are gone: those of a batch that was compacted a week
            ago may be.
        :raises PipelineError: it has no events yet.
        """
        snapshot = self._at_batches()
        newest = snapshot.newest(INGEST) or 0
        wanted = (sql.col("number") > after) & (sql.col("number") <= newest)
        rows = self._rows().where(wanted & (sql.col("events") > 0)).collect()
        folders = [row.folder for row in rows]
        counted = sum(self.events_table.files_in(one, _schema(), BY).rows for one in folders)
        if counted != sum(row.events for row in rows):
            return None
        return Batches(newest, not counted, self._in_folders(folders))

    def _at_batches(self) -> Snapshot:
        snapshot = self.events_table.snapshot()
        if snapshot is None:
            raise PipelineError(
                f"{self.path} has no events yet: expected a table of ingest with a batch"
            )
        return snapshot

    def events_of(self, numbers: Sequence[int]) -> DataFrame:
        """Return the events of these batches as :meth:`events` does.

        Those of a batch that was compacted a week ago may be missing.
        """
        rows = self._rows().where(sql.col("number").isin(list(numbers)) & (sql.col("events") > 0))
        return self._in_folders([row.folder for row in rows.select("folder").collect()])

    def _in_folders(self, folders: Sequence[str]) -> DataFrame:
        """The events of the folders that are there."""
        roots = [Location(self._spark, f"{self.path}/{folder}") for folder in folders]
        there = [root.uri for root in roots if root.exists()]
        if not there:
            return self._spark.createDataFrame([], unnamed_schema())
        # By itself, Spark would look for columns in the names of the folders.
        reader = self._spark.read.schema(_schema()).option("recursiveFileLookup", True)
        return _with_day(reader.parquet(*map(literally, there)))

    def write(
        self,
        lines: DataFrame,
        segments: Sequence[str],
        shared: int = 0,
        ends: DataFrame | None = None,
    ) -> tuple[int, Written]:
        """Add the lines' events to the table as a batch, each event once.

        When this returns the batch is in the table; until then nothing of it is.

        :param lines: as :mod:`pipeline.tables.lines` reads them.
        :param segments: the paths of the segments with these lines.
        :param shared: as of :func:`directory`.
        :param ends: those of the lines that are end lines of runs: they are in no event, and are
            known in the table.
        :returns: the batch's number, and what it wrote.
        """
        damaged = Observation()
        counted = lines.observe(damaged, sql.count_if(is_damaged(lines)).alias("damaged"))
        files = self._write_events(unnamed_events(counted), shared)
        doubled = 0
        while True:
            number = self.complete() + 1
            seen = self._rows().where("run is not null").select("run", "bucket", "lines")
            surplus = _number(twice(self._lines_in(files), seen)) if files.rows else 0
            if surplus:
                doubled += surplus
                files = self._write_events(unnamed_events(unseen(whole_lines(lines), seen)), shared)
            told = None if ends is None else seen_in(unseen(whole_lines(ends), seen))
            if self._commit(number, files, segments, told):
                return number, Written(files.rows, doubled, damaged.get["damaged"] or 0)

    def complete(self) -> int:
        """Complete what others have begun, and did not end.

        :returns: the number of the newest batch.
        :raises PipelineError: files of a batch are gone.
        """
        newest, there = (table.newest(INGEST) or 0 for table in (self._known, self.events_table))
        if newest > there:
            rows = self._rows().where((sql.col("number") > there) & sql.col("folder").isNotNull())
            for row in rows.orderBy("number").collect():
                files = Files(row.folder, _schema(), BY, _INDEXED, (), 0)
                if row.events:
                    files = self.events_table.files_in(row.folder, _schema(), BY, _INDEXED)
                if files.rows != row.events:
                    raise PipelineError(
                        f"{self.path}/{row.folder} has {files.rows} events and should have {row.events}: it was removed before it was in the table"
                    )
                self.events_table.append(files, (INGEST, row.number))
        return newest

    def tidy(self) -> None:
        """Put small files together.

        It also removes those that have belonged to no version for a week.
        """
        self.events_table.tidy()
        self._known.tidy()

    def adopt(self, parts: Sequence[str], lines: DataFrame) -> int:
        """Make a first batch of files of an earlier version.

        They are below ``events``.

        :param parts: folders there, in which Spark has put them by :data:`BY`.
        :param lines: those of the journal that are in them: ``run``, ``bucket``, ``lines``.
        :returns: how many events they have.
        """
        files = self.events_table.files_in("events", _schema(), BY, _INDEXED, parts)
        # The events first: a folder without what is known is no table yet.
        self.events_table.append(files, (INGEST, 1))
        self._known.append(self._write_known(1, files, (), lines), (INGEST, 1))
        return files.rows

    def _commit(
        self, number: int, files: Files, segments: Sequence[str], ends: DataFrame | None
    ) -> bool:
        """Make what was written a batch. :returns: whether the number was free."""
        lines = self._lines_in(files).select("run", "bucket", "lines") if files.rows else None
        if ends is not None:
            lines = ends if lines is None else lines.unionByName(ends)
        known = self._write_known(number, files, segments, lines)
        if not self._known.append(known, (INGEST, number)):
            return False
        self.events_table.append(files, (INGEST, number))
        return True

    def _write_known(
        self, number: int, files: Files, segments: Sequence[str], lines: DataFrame | None
    ) -> Files:
        about = [(number, None, None, None, name, None, None) for name in segments]
        rows = self._spark.createDataFrame(
            [*about, (number, None, None, None, None, files.folder, files.rows)], KNOWN
        )
        if lines is not None:
            found = lines.select(sql.lit(number).alias("number"), "run", "bucket", "lines")
            rows = rows.unionByName(found, allowMissingColumns=True)
        return self._known.write(rows.coalesce(1), indexed=("number", "run", "bucket"))

    def _write_events(self, frame: DataFrame, shared: int) -> Files:
        placed = frame.withColumn("destination_dir", directory(sql.col("destination"), shared))
        return self.events_table.write(placed, BY, _INDEXED)

    def _lines_in(self, files: Files) -> DataFrame:
        root = literally(Location(self._spark, f"{self.path}/{files.folder}").uri)
        return lines_of(self._spark.read.schema(_schema()).parquet(root))

    def _rows(self) -> DataFrame:
        if not self.exists():
            return self._spark.createDataFrame([], KNOWN)
        known = StructType.fromDDL(KNOWN)
        assert isinstance(known, StructType)
        return self._known.frame(known=known)

    def _day(self, text: str | None) -> date | None:
        if text is None:
            return None
        row = self._spark.range(1).select(sql.to_date(sql.lit(text).cast("timestamp"))).first()
        assert row is not None
        day = row[0]
        assert isinstance(day, date)
        return day


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether a folder is a table of ``ingest``.

    :raises PipelineError: it is one of an earlier version.
    """
    if unfit(path):
        return False
    if Ingested(spark, path).exists():
        return True
    if is_old_table(spark, path):
        raise PipelineError(
            f"{path} has a table of an earlier version: gateway-pipeline upgrade makes one of Delta Lake of it, once"
        )
    return False


def is_old_table(spark: SparkSession, path: str) -> bool:
    """Whether a folder has a table of an earlier version, with a ledger."""
    return (Location(spark, path) / "ledger").exists()


def between(frame: DataFrame, since: str | None, until: str | None) -> DataFrame:
    """Filter by time, from ``since`` on and before ``until``.

    :param since: as Spark reads times, in UTC.
    :param until: the same.
    """
    if since is not None:
        frame = frame.where(sql.col("time") >= sql.lit(since).cast("timestamp"))
    if until is not None:
        frame = frame.where(sql.col("time") < sql.lit(until).cast("timestamp"))
    return frame


def _schema() -> StructType:
    """The columns of the files, those of their folders included."""
    return StructType([*unnamed_schema().fields, StructField("destination_dir", StringType())])


def _with_day(files: DataFrame) -> DataFrame:
    """What :func:`unnamed_schema` says: files lack the day."""
    return files.withColumn("day", sql.to_date("time")).select(unnamed_schema().names)


def _number(frame: DataFrame) -> int:
    """The one value of a frame of one row and column."""
    row = frame.first()
    assert row is not None
    return int(row[0])
