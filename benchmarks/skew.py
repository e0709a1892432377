"""What a job costs where one link, queue or trouble has nearly all.

What each job computes runs over events of :mod:`tests.pipeline.crowded`, even and crowded, and the
answer is thrown away. ::

    python -m benchmarks.skew 5000000 /tmp/skew

prints the seconds of each, those of the processor, and the ratio. Two cores, in a Spark session of
its own.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from pipeline.session import SessionOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_END: Final = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
#: Seconds after which a message is late.
_LATE: Final = 60.0


def _reconciled(events: DataFrame, seen: DataFrame) -> list[DataFrame]:
    from pyspark import StorageLevel

    from pipeline.transforms.reconcile import messages, transfers

    # As the job does it.
    found = transfers(events).persist(StorageLevel.MEMORY_AND_DISK)
    judged = messages(found, seen, late=_LATE)
    return [judged, found]


def _compared(events: DataFrame, seen: DataFrame) -> list[DataFrame]:
    from pyspark import StorageLevel

    from pipeline.transforms.reconcile import compared
    from tests.pipeline import crowded

    judged, found = _reconciled(events, seen)
    judged = judged.persist(StorageLevel.MEMORY_AND_DISK)
    judged.count()
    return [compared(judged, crowded.lying(judged), crowded.TARGET), judged, found]


def _dead(events: DataFrame, _: DataFrame) -> list[DataFrame]:
    from pyspark import StorageLevel

    from pipeline.transforms.dead_letters import groups, of_events

    deaths = of_events(events).persist(StorageLevel.MEMORY_AND_DISK)
    deaths.count()
    return [groups(deaths, _END), deaths]


def _journeys(events: DataFrame, seen: DataFrame) -> list[DataFrame]:
    from pipeline.transforms.journeys import journeys

    return [journeys(events, seen)]


#: By name: what it begins with, which is not counted, and the frames: the answer, and what was kept.
_JOBS: Final[dict[str, Callable[[DataFrame, DataFrame], list[DataFrame]]]] = {
    "reconcile": _reconciled,
    "reconcile --browse-target": _compared,
    "dead-letters": _dead,
    "journeys": _journeys,
    "journeys, one message": _journeys,
}


def _made(spark: SparkSession, job: str, events: int, crowded_ones: bool) -> DataFrame:
    from tests.pipeline import crowded

    if job.startswith("reconcile"):
        return crowded.on_links(spark, events, crowded_ones)
    if job == "dead-letters":
        return crowded.deaths(spark, events, crowded_ones)
    if job == "journeys, one message" and crowded_ones:
        return crowded.of_one_message(spark, events)
    return crowded.at_queues(spark, events, crowded_ones)


def measure(
    spark: SparkSession, job: str, events: int, crowded_ones: bool, folder: Path
) -> tuple[float, float]:
    """Return the seconds of a job's answer, and of the processor.

    :param folder: for the events, which are removed.
    """
    from tests.pipeline import crowded

    path = folder / "events"
    _made(spark, job, events, crowded_ones).write.mode("overwrite").parquet(str(path))
    try:
        read = spark.read.parquet(str(path))
        crowded.seen(spark, events).write.mode("overwrite").parquet(str(folder / "seen"))
        answer, *kept = _JOBS[job](read, spark.read.parquet(str(folder / "seen")))
        before, began = processor(), time.monotonic()
        answer.write.format("noop").mode("overwrite").save()
        took = time.monotonic() - began, processor() - before
        for frame in kept:
            frame.unpersist()
        return took
    finally:
        shutil.rmtree(path)


def processor() -> float:
    """Processor seconds of the Java machine until now."""
    (java,) = [each for each in psutil.Process().children() if each.name() == "java"]
    times = java.cpu_times()
    return float(times.user + times.system)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.skew", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("events", type=int)
    parser.add_argument("folder", type=Path, help="for the events, and what Spark spills")
    parser.add_argument("--only", choices=sorted(_JOBS), action="append")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    session = SessionOptions("local[2]", "2g", {"spark.local.dir": str(options.folder / "local")})
    with spark_session("skew", session) as spark:
        for job in options.only or _JOBS:
            # The first of each compiles, and is not counted.
            measure(spark, job, options.events // 100, False, options.folder)
            even, crowded = (
                measure(spark, job, options.events, one, options.folder) for one in (False, True)
            )
            told = [f"{seconds:.1f} s ({cpu:.1f} s)" for seconds, cpu in (even, crowded)]
            times = crowded[0] / even[0]
            print(f"{job}: even {told[0]}, crowded {told[1]}, {times:.2f} times")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
