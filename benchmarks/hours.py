"""What journeys cost hour by hour, beside one run over all of the day.

A journal of a day is ingested in 24 parts. After each of them the journeys that are kept go on, and
at the end one run reads all events; both write their tables, and must say the same. ::

    python -m benchmarks.hours 10000000 /tmp/hours

Two cores, all in one Spark session, so that nothing counts for starting it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.skew import processor
from pipeline.session import SessionOptions, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOURS: Final = 24


def measure(spark: SparkSession, events: int, folder: Path) -> None:
    """Print the seconds of each hour and of the day, and the processor's."""
    from pipeline.jobs import ingest, journeys
    from pipeline.output import Output
    from pipeline.tables.delta import DeltaFolder
    from tests.pipeline.generated import write_journal

    truth = write_journal(
        folder / "made", events, octets=max(events * 32 // (4 * _HOURS), 1000), hours=24.0
    )
    journal, table = folder / "journal", folder / "events"
    journal.mkdir()
    kept, once = Output(str(folder / "kept")), Output(str(folder / "once"))
    hourly = [0.0, 0.0]
    for hour in range(_HOURS):
        for segment in _part(truth.segments, hour):
            segment.rename(journal / segment.name)
        ingest.run(spark, [str(journal)], str(table))
        took = _timed(lambda: journeys.go_on(spark, str(table), kept))
        print(f"hour {hour + 1}: {took[0]:.1f} s ({took[1]:.1f} s)", flush=True)
        hourly = [hourly[0] + took[0], hourly[1] + took[1]]
    day = _timed(lambda: journeys.run(spark, [str(table)], once))
    print(f"{_HOURS} hours: {hourly[0]:.1f} s ({hourly[1]:.1f} s)")
    print(f"the day at once: {day[0]:.1f} s ({day[1]:.1f} s)")
    print(f"{hourly[0] / day[0]:.2f} times, by the processor {hourly[1] / day[1]:.2f} times")
    counts = [
        DeltaFolder(spark, str(folder / name / "journeys"))
        .frame()
        .groupBy("outcome")
        .count()
        .collect()
        for name in ("kept", "once")
    ]
    said = [{row[0]: row[1] for row in rows} for rows in counts]
    if said[0] != said[1] or said[1] != dict(truth.outcomes):
        raise SystemExit(f"they do not say the same: {said[0]}, {said[1]}, {truth.outcomes}")


def _part(segments: Sequence[Path], hour: int) -> Sequence[Path]:
    return segments[len(segments) * hour // _HOURS : len(segments) * (hour + 1) // _HOURS]


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    before, began = processor(), time.monotonic()
    work()
    return time.monotonic() - began, processor() - before


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hours", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("events", type=int)
    parser.add_argument("folder", type=Path, help="for everything; it must be empty")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    session = SessionOptions("local[2]", "2g", {"spark.local.dir": str(options.folder / "local")})
    with spark_session("hours", session) as spark:
        # What compiles is not counted.
        measure(spark, 20_000, options.folder / "first")
        shutil.rmtree(options.folder / "first")
        print()
        measure(spark, options.events, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
