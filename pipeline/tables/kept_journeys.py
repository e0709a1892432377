"""Journeys that are kept, and go on with each batch of events.

Owns the two tables of a folder, and what a run must read of them. ::

    journeys/      (a row for each journey; partitioned by ``open``)
    _courses/      (what is known of each message, which can be added to; also by ``open``)

A run reads the events of the batches that came since, the courses of messages that are open, and of
the others those that the new events tell of. What it finds takes the place of what both tables had
of these messages; no other file is touched. The journeys are committed first, with the number of
the newest batch, and then the courses with the same. A run that was killed between the two is done
again, from the courses before, and what it had written of these messages is replaced.

A message is open while it waits or is in doubt, and for :data:`SETTLES` after its newest event. The
courses of the others are forgotten after a time without an event. A message that goes on after that
begins a second journey.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sql

from pipeline.errors import PipelineError
from pipeline.tables.delta import TIDY, Batch, DeltaFolder
from pipeline.tables.ingested import Ingested
from pipeline.tables.snapshot import Keep, Snapshot
from pipeline.transforms.courses import HEARD, courses
from pipeline.transforms.events import named
from pipeline.transforms.journeys import AS_FAR, OWN, Outcome, followed, newest_runs

#: How long nothing must have happened to a message before it is left alone: steps that belong
#: together may be in two batches.
SETTLES: Final = timedelta(minutes=1)
#: How long the course of a message is kept that is not open.
REMEMBERED: Final = timedelta(days=7)
_OPEN: Final = "open"
_NEWEST: Final = "newest"
#: No run's name begins with it.
_BEFORE: Final = "before:"
_UNSETTLED: Final = (Outcome.WAITING, Outcome.IN_DOUBT)
#: Columns by which other programs pass files over.
_INDEXED: Final = ("message_id", "destination", "began", "ended", HEARD)


@dataclass(frozen=True)
class Run:
    """What a run found.

    :param batches: how many were new.
    :param anew: all events were read, not only the new ones.
    :param events: those that were read, of :data:`pipeline.columns.EVENTS`.
    :param journeys: those that are open, or that the run has changed.
    """

    batches: int
    anew: bool
    events: DataFrame
    journeys: DataFrame


class KeptJourneys:
    """The journeys in one folder.

    :param path: of the folder, anything that Spark reads and writes and delta-rs reaches.
    :param remembered: for how long the course of a message is kept that is not open.
    :raises PipelineError: delta-rs would take the path for another one.
    """

    def __init__(self, spark: SparkSession, path: str, remembered: timedelta = REMEMBERED) -> None:
        self._path: Final = path
        self._remembered: Final = remembered
        folder = path.rstrip("/")
        self._journeys: Final = DeltaFolder(spark, f"{folder}/journeys")
        self._courses: Final = DeltaFolder(spark, f"{folder}/_courses")

    @contextmanager
    def gone_on(self, table: Ingested) -> Iterator[Run | None]:
        """Bring the journeys up to the newest batch of a table.

        Both tables have it when the body begins. Spark keeps what was found until it ends.

        :returns: None: there is no new event, and nothing was done.
        :raises PipelineError: the journeys are of another table, or somebody else has brought them
            up meanwhile.
        """
        application = f"journeys of {table.id}"
        journeys_then, courses_then = self._journeys.snapshot(), self._courses.snapshot()
        for then in (journeys_then, courses_then):
            if then is not None and then.newest(application) is None:
                raise PipelineError(
                    f"{self._path} has journeys that are not kept of {table.path}: expected an empty folder, or the one that the run before had"
                )
        before = (courses_then and courses_then.newest(application)) or 0
        new = table.added(before) if before else None
        anew = new is None
        new = new or table.whole()
        if new.newest == before:
            yield None
            return
        if new.empty and anew:
            yield None
            return
        batch = (application, new.newest)
        with ExitStack() as ending:
            events = named(new.events)
            ids = _kept(_told_of(events), ending)
            earlier = None
            runs, others_missing = _runs(table, before, new.newest, ending)
            holding: Collection[str] = ()
            if courses_then is not None and not anew:
                # Any message may be beside a gap now, or beside none any more.
                holding = _holding(courses_then, None if others_missing else ids)
                again = courses_then.frame(_among(holding))
                ids = _kept(again if others_missing else _of(again, ids), ending)
                earlier = courses_then.frame(_is_open).unionByName(ids)
            newest = Observation()
            found = _kept(_found(courses(events, earlier), runs, events), ending)
            journeys = found.where(OWN).drop(OWN, AS_FAR, HEARD)
            # Above what is kept, and in what is written: what a query does not need of an empty
            # frame it leaves out, with what was to be observed.
            observed = found.observe(newest, sql.max(HEARD).alias(HEARD))
            written = observed.where(OWN).drop(OWN, AS_FAR, HEARD)
            in_journeys: Collection[str] = ()
            if journeys_then is not None and not anew:
                # Of a run that was killed the journeys may have what the courses have not.
                half = journeys_then.newest(application) != before
                if half or holding:
                    in_journeys = _holding(journeys_then, found if half else ids)
            self._exchange(self._journeys, journeys_then, written, found, in_journeys, batch, anew)
            rows = found.select(f"{AS_FAR}.*", _OPEN)
            end = newest.get[HEARD]
            self._exchange(self._courses, courses_then, rows, ids, holding, batch, anew, end)
            yield Run(new.newest - before, anew, events, journeys.drop(_OPEN))
        if new.newest // TIDY != before // TIDY:
            for each in (self._journeys, self._courses):
                each.compact()
                # Each run leaves files that only versions before it have.
                each.vacuum()

    def _exchange(
        self,
        table: DeltaFolder,
        then: Snapshot | None,
        rows: DataFrame,
        told: DataFrame,
        holding: Collection[str],
        batch: Batch,
        anew: bool,
        end: datetime | None = None,
    ) -> None:
        """Rows take the place of all open ones, and of those of some messages.

        :param told: has the ids of these.
        :param holding: the files with those of them that were not open.
        :param anew: instead they take the place of all.
        :param end: when files are old that are not needed any more; None: none is.
        """
        gone: Collection[str] = ()
        if then is not None:
            if holding:
                others = then.frame(_among(holding)).join(_ids(told), "message_id", "left_anti")
                rows = rows.unionByName(others.withColumn(_OPEN, sql.lit(False)))
            gone = {
                one["path"]
                for one in then.files
                if anew or _is_open(one) or one["path"] in holding or self._forgotten(one, end)
            }
        indexed = [name for name in _INDEXED if name in rows.columns]
        table.exchange(then, gone, table.write(rows, (_OPEN,), indexed), batch)

    def _forgotten(self, file: Mapping[str, Any], end: datetime | None) -> bool:
        """Whether nothing happened for long to any message of a file."""
        latest = file.get(f"max.{HEARD}")
        # What Spark returns is this machine's time, and does not say so.
        return bool(latest and end and latest < end.astimezone(UTC) - self._remembered)


def _found(known: DataFrame, runs: DataFrame, events: DataFrame) -> DataFrame:
    """What courses come to, and whether the message is open.

    All rows of a message are open, or none is.

    :param events: the new ones.
    """
    unsettled = sql.col(OWN) & sql.col("outcome").isin(list(_UNSETTLED))
    # Not as a literal: Spark compiles what has another one anew.
    newest = sql.broadcast(events.agg(sql.max("time").alias(_NEWEST)))
    since = sql.col(_NEWEST) - sql.expr(f"interval {SETTLES.seconds} seconds")
    recent = sql.coalesce(sql.col(HEARD) >= since, sql.col(_NEWEST).isNull())
    of_message = Window.partitionBy("message_id")
    return (
        followed(known, runs)
        .crossJoin(newest)
        .withColumn(_OPEN, sql.max(unsettled | recent).over(of_message))
        .drop(_NEWEST)
    )


def _runs(table: Ingested, before: int, now: int, ending: ExitStack) -> tuple[DataFrame, bool]:
    """Return what :func:`newest_runs` says, and if other lines are missing.

    :param before: the number of the batch before.
    :param now: the number of the newest one.
    """
    # As runs of another name, in one frame: most of what it costs is the planning.
    earlier = table.lines_seen(before).withColumn("run", sql.concat(sql.lit(_BEFORE), "run"))
    both = _kept(newest_runs(table.lines_seen(now).unionByName(earlier)), ending)
    gaps = {
        row["_store"]: row["_gap"] and (row["_gap"].run.removeprefix(_BEFORE), row["_gap"].bucket)
        for row in both.collect()
    }
    differ = any(
        gap != gaps[name.removeprefix(_BEFORE)]
        for name, gap in gaps.items()
        if name.startswith(_BEFORE)
    )
    return both.where(~sql.col("_store").startswith(_BEFORE)), differ


def _holding(then: Snapshot, told: DataFrame | None) -> Collection[str]:
    """The files with rows of messages that are not open.

    :param told: has their ids; None: all.
    """
    closed = [one["path"] for one in then.files if not _is_open(one)]
    if told is None or not closed:
        return closed
    rows = then.frame(lambda file: not _is_open(file)).select("message_id", "_metadata.file_path")
    found = rows.join(_ids(told), "message_id", "left_semi").select("file_path").distinct()
    names = {unquote(row.file_path).rpartition("/")[2] for row in found.collect()}
    return {path for path in closed if path.rpartition("/")[2] in names}


def _of(rows: DataFrame, told: DataFrame) -> DataFrame:
    return rows.join(_ids(told), "message_id", "left_semi")


def _ids(told: DataFrame) -> DataFrame:
    return told.select("message_id")


def _among(files: Collection[str]) -> Keep:
    return lambda file: file["path"] in files


def _is_open(file: Mapping[str, Any]) -> bool:
    return bool(file[f"partition.{_OPEN}"])


def _told_of(events: DataFrame) -> DataFrame:
    """The ids of the messages that events tell of, at a link's target, too."""
    ids = sql.explode(sql.array("message_id", "target_id")).alias("message_id")
    return events.select(ids).where("message_id is not null").distinct()


def _kept(frame: DataFrame, ending: ExitStack) -> DataFrame:
    """The frame, computed once until the end."""
    kept = frame.persist(StorageLevel.DISK_ONLY)
    ending.callback(kept.unpersist)
    return kept
