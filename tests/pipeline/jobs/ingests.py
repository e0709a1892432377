"""What tests of ``ingest`` share: a journal of several segments, and what a table must have of
it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from pipeline.tables.events import read_events
from tests.pipeline.generated import Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of a segment: so that few events are several.
OCTETS: Final = 4_000
EVENTS: Final = 500
#: So many that each batch has few files.
QUEUES: Final = 2


def check(spark: SparkSession, table: Path, truth: Truth) -> None:
    """The table has the journal's events, each once."""
    frame = read_events(spark, [str(table)]).frame
    by_place = (
        frame.groupBy("destination", sql.unix_date("day"))
        .agg(sql.count("*"), sql.count_distinct("event_id"))
        .collect()
    )
    destinations: Counter[str] = Counter()
    days: Counter[int] = Counter()
    for destination, day, count, once in by_place:
        assert count == once
        destinations[destination] += count
        days[day] += count
    assert (destinations, days) == (truth.destinations, truth.days)
