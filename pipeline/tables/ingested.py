"""The table that ``ingest`` keeps: Parquet files of events, and a ledger.

Owns the folder's layout, and what makes a batch appear whole, or not at all. ::

    events/batch=NAME/day=DATE/destination_dir=DIR/part-....parquet
    ledger/batch=NAME/part-....parquet
    checkpoint/                                             (Spark's own, of the stream)
    _lock                                                   (of :mod:`pipeline.tables.alone`)

A batch is in the table when its file is in the ledger, which is written last, and appears by one
rename; what lies in ``events`` without that is of a batch that was never finished, is not read, and
is replaced when the batch is done again. The ledger has the lines of the journal that each batch
has, as bitmaps: one bit for each line, in buckets as Spark's ``bitmap_bucket_number`` counts them.
So a line that comes again, in a copy of its segment by whatever name, is known exactly, at 4 KiB
for 32,768 lines.

A destination has a folder of its own where its name is plain (letters, digits, ``.``, ``_`` and
``-``, at most 100 of them), else it shares one of 16. The column ``destination`` always has the
name itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StringType, StructField, StructType

from pipeline.errors import PipelineError
from pipeline.tables.alone import alone
from pipeline.tables.lines import place
from pipeline.transforms.events import is_damaged, unnamed_events, unnamed_schema, whole_lines
from pipeline.transforms.seen import lines_of, twice, united, unseen

#: A row for each bucket of each run; and one without a run for the batch itself.
LEDGER: Final = """
    run string, bucket bigint, lines binary, events bigint, doubled bigint, damaged bigint, first_day date, last_day date,
    shared int, replaces array<string>, written timestamp
"""
SHARED: Final = 16
_PLAIN: Final = "^(queue|topic):[A-Za-z0-9._-]{1,100}$"


@dataclass(frozen=True)
class Written:
    """What a batch wrote: events, lines known already, damaged lines."""

    events: int = 0
    doubled: int = 0
    damaged: int = 0


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

    :param path: of the folder, anything that Spark reads and writes.
    :raises PipelineError: when Spark would take the path for a pattern.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if set(path) & set("\\{}[]*?"):
            raise PipelineError(
                f"{path} cannot be the folder of a table: expected a name without \\ {{ }} [ ] * ?"
            )
        self._spark: Final = spark
        self.path: Final = path.rstrip("/") or "/"
        self.checkpoint: Final = f"{self.path}/checkpoint"
        self._events: Final = f"{self.path}/events"
        self._ledger: Final = f"{self.path}/ledger"

    def exists(self) -> bool:
        """Whether anything was ever ingested into this folder."""
        return is_table(self._spark, self.path)

    def has(self, batch: str) -> bool:
        """Whether a batch is in the table, or in what it was compacted into."""
        return (
            self._in_ledger(batch)
            or not self._ledger_rows().where(sql.array_contains("replaces", batch)).isEmpty()
        )

    def ledger(self) -> DataFrame:
        """Return the ledger's rows of all batches that were not replaced.

        ``batch`` is the name.
        """
        rows = self._ledger_rows()
        replaced = rows.where("replaces is not null").select(sql.explode("replaces").alias("batch"))
        return rows.join(sql.broadcast(replaced), "batch", "left_anti")

    def lines_seen(self) -> DataFrame:
        """Return the journal lines in the table: ``run``, ``bucket``, ``lines``.

        ``lines`` is a bitmap; rows of one bucket have no bit in common.
        """
        return self.ledger().where("run is not null").select("run", "bucket", "lines")

    def events(
        self, destinations: Sequence[str] = (), since: str | None = None, until: str | None = None
    ) -> DataFrame:
        """Return the events with the columns of the files.

        :func:`pipeline.transforms.events.named` makes :data:`pipeline.columns.EVENTS` of them.

        :param destinations: only those there; none: all.
        :param since: not before this time, as Spark reads times, in UTC.
        :param until: before this one.
        """
        batches = self.ledger().where("run is null and events > 0")
        if since is not None:
            batches = batches.where(
                sql.col("last_day") >= sql.to_date(sql.lit(since).cast("timestamp"))
            )
        if until is not None:
            batches = batches.where(
                sql.col("first_day") <= sql.to_date(sql.lit(until).cast("timestamp"))
            )
        # As many rows as there are batches; compacting makes them few.
        found = batches.select("batch", "shared").collect()
        if not found:
            return _nothing(self._spark, _files())
        frame = self.files_of([row.batch for row in found])
        if destinations:
            directories = [
                directory(sql.lit(name), shared)
                for name in destinations
                for shared in sorted({row.shared for row in found})
            ]
            frame = frame.where(
                sql.col("destination_dir").isin(directories)
                & sql.col("destination").isin(list(destinations))
            )
        return between(frame, since, until)

    def write(self, lines: DataFrame, batch: str, shared: int = 0) -> Written:
        """Add the lines' events to the table as a batch, each event once.

        When this returns the batch is in the table; until then nothing of it is. Doing it again
        replaces what was left of an earlier try. Only for who is alone.

        :param lines: as :mod:`pipeline.tables.lines` reads them.
        :param batch: a name that no other lines had.
        :param shared: as of :func:`directory`.
        """
        damaged = Observation()
        lines = lines.observe(damaged, sql.count_if(is_damaged(lines)).alias("damaged"))
        counted = self._write_events(unnamed_events(lines), batch, shared)
        doubled = 0
        if counted.events:
            doubled = _number(twice(self._lines_in(batch), self.lines_seen()))
            if doubled:
                counted = self._write_events(
                    unnamed_events(unseen(whole_lines(lines), self.lines_seen())), batch, shared
                )
        written = Written(counted.events, doubled, damaged.get["damaged"] or 0)
        self._commit(
            batch,
            lines_of(self.files_of([batch])) if counted.events else None,
            written,
            counted,
            shared,
            None,
        )
        return written

    def compact(self) -> int:
        """Merge new batches into one, with a file for each day and destination.

        It removes the files that the compaction before has replaced.

        Readers that are at work go on: they find what they began with until the next compaction.

        :returns: how many batches became one; 0: there was nothing to do.
        :raises PipelineError: when somebody else writes the table.
        """
        if not self.exists():
            return 0
        with alone(self._spark, self.path):
            return self._compact()

    def _compact(self) -> int:
        rows = self._ledger_rows()
        for row in (
            rows.where("replaces is not null")
            .select(sql.explode("replaces").alias("batch"))
            .collect()
        ):
            for folder in (self._events, self._ledger):
                files, path = place(self._spark, f"{folder}/batch={row.batch}")
                files.delete(path, True)
        single = self.ledger().where("run is null and replaces is null").orderBy("batch").collect()
        if len(single) < 2:
            return 0
        names = [row.batch for row in single]
        batch = f"{names[-1]}-compacted"
        filled = [row.batch for row in single if row.events]
        shared = max(row.shared for row in single)
        counted = _Counted()
        if filled:
            frame = self.files_of(filled).drop("destination_dir", "batch")
            together = (
                _placed(frame, shared)
                .repartition("day", "destination_dir")
                .sortWithinPartitions("day", "destination_dir", "run", "line", "place")
            )
            counted = self._write_placed(together, batch)
        total = Written(
            counted.events, sum(row.doubled for row in single), sum(row.damaged for row in single)
        )
        seen = united(
            self._ledger_rows().where(sql.col("run").isNotNull() & sql.col("batch").isin(names))
        )
        self._commit(batch, seen, total, counted, shared, names)
        return len(names)

    def _write_events(self, frame: DataFrame, batch: str, shared: int) -> _Counted:
        return self._write_placed(_placed(frame, shared), batch)

    def _write_placed(self, frame: DataFrame, batch: str) -> _Counted:
        observed = Observation()
        days = (sql.min("day").alias("first_day"), sql.max("day").alias("last_day"))
        counted = frame.observe(observed, sql.count("*").alias("events"), *days)
        counted.write.mode("overwrite").partitionBy("day", "destination_dir").parquet(
            f"{self._events}/batch={batch}"
        )
        found = observed.get
        return _Counted(found["events"] or 0, found["first_day"], found["last_day"])

    def files_of(self, batches: Sequence[str]) -> DataFrame:
        """Return these batches' events with the files' columns, finished or not."""
        folders = [f"{self._events}/batch={batch}" for batch in batches]
        return self._spark.read.schema(_files()).option("basePath", self._events).parquet(*folders)

    def _lines_in(self, batch: str) -> DataFrame:
        return lines_of(self.files_of([batch]))

    def _ledger_rows(self) -> DataFrame:
        schema = f"{LEDGER}, batch string"
        if not self.exists():
            return _nothing(self._spark, StructType.fromDDL(schema))
        return self._spark.read.schema(schema).parquet(self._ledger)

    def _commit(
        self,
        batch: str,
        lines: DataFrame | None,
        written: Written,
        counted: _Counted,
        shared: int,
        replaces: Sequence[str] | None,
    ) -> None:
        """Write the batch into the ledger: one file, which is there or is not."""
        own = {
            "events": sql.lit(written.events),
            "doubled": sql.lit(written.doubled),
            "damaged": sql.lit(written.damaged),
            "first_day": sql.lit(counted.first_day),
            "last_day": sql.lit(counted.last_day),
            "shared": sql.lit(shared),
            "replaces": sql.lit(None)
            if replaces is None
            else sql.array(*(sql.lit(name) for name in replaces)),
            "written": sql.current_timestamp(),
        }
        fields = _fields(StructType.fromDDL(LEDGER))
        rows = self._spark.range(1).select(
            *(own.get(one.name, sql.lit(None)).cast(one.dataType).alias(one.name) for one in fields)
        )
        if lines is not None:
            rows = rows.unionByName(
                lines.select("run", "bucket", "lines"), allowMissingColumns=True
            )
        rows.coalesce(1).write.mode("overwrite").parquet(f"{self._ledger}/batch={batch}")

    def _in_ledger(self, batch: str) -> bool:
        files, path = place(self._spark, f"{self._ledger}/batch={batch}")
        return bool(files.exists(path)) and any(
            str(one.getPath().getName()).startswith("part-") for one in files.listStatus(path)
        )


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether a folder is a table of ``ingest``."""
    files, ledger = place(spark, f"{path.rstrip('/')}/ledger")
    return bool(files.exists(ledger))


def between(frame: DataFrame, since: str | None, until: str | None) -> DataFrame:
    """Filter by time, by day first, so that other days' folders are not read.

    The window begins with ``since`` and ends before ``until``.

    :param since: as Spark reads times, in UTC.
    :param until: the same.
    """
    if since is not None:
        start = sql.lit(since).cast("timestamp")
        frame = frame.where((sql.col("day") >= sql.to_date(start)) & (sql.col("time") >= start))
    if until is not None:
        end = sql.lit(until).cast("timestamp")
        frame = frame.where((sql.col("day") <= sql.to_date(end)) & (sql.col("time") < end))
    return frame


@dataclass(frozen=True)
class _Counted:
    """What was written: how many events, of which days."""

    events: int = 0
    first_day: date | None = None
    last_day: date | None = None


def _placed(frame: DataFrame, shared: int) -> DataFrame:
    return frame.withColumn("destination_dir", directory(sql.col("destination"), shared))


def _files() -> StructType:
    """The columns of the files, those of their folders included."""
    return StructType(
        [
            *unnamed_schema().fields,
            StructField("destination_dir", StringType()),
            StructField("batch", StringType()),
        ]
    )


def _fields(schema: DataType) -> list[StructField]:
    assert isinstance(schema, StructType)
    return schema.fields


def _nothing(spark: SparkSession, schema: DataType) -> DataFrame:
    """No rows of these columns."""
    return spark.range(0).select(
        *(sql.lit(None).cast(one.dataType).alias(one.name) for one in _fields(schema))
    )


def _number(frame: DataFrame) -> int:
    """The one value of a frame of one row and column."""
    row = frame.first()
    assert row is not None
    return int(row[0])
