"""What only a report shows of journeys.

Their way step by step, their links, their number over time, their latencies, and the slowest as
time lines.

Owns which figures there are, and that each is of a bounded number of rows. What a journey is, is
:mod:`pipeline.transforms.journeys`'s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from pipeline import flow
from pipeline.charts import MESSAGES, links, traffic
from pipeline.output import top
from pipeline.summary import Chart, Cube, Table
from pipeline.transforms.courses import STEPS
from pipeline.transforms.journeys import LATENCIES, Outcome
from pipeline.transforms.latency import latencies

_PERCENTILES: Final = ("p50_ms", "p90_ms", "p99_ms")
_WRONG: Final = tuple(
    one.value for one in (Outcome.DELIVERED, Outcome.LOST, Outcome.IN_DOUBT, Outcome.DEAD)
)
_NAMES: Final = 20
_HOURS: Final = 14 * 24
#: Journeys that are drawn step by step; none has more steps than there are.
_SLOWEST: Final = 4


def drawn(found: DataFrame, events: DataFrame, outcomes: Table, slow: float) -> list[Table]:
    """The tables, each with its chart.

    :param found: of :func:`pipeline.transforms.journeys.journeys`; it is read several times.
    :param events: that they are of.
    :param outcomes: of these journeys, which is among the tables.
    :param slow: seconds from which on a transfer is late.
    """
    detailed = flow.detailed(found, events).persist(StorageLevel.DISK_ONLY)
    try:
        cube = flow.counts(detailed, slow)
        if cube is None:
            return [outcomes]
        way = flow.flow(detailed, cube, slow)
        routes = links(detailed, "destination", flow.late(slow), _WRONG, cube)
    finally:
        detailed.unpersist()
    one = {"messages": sql.lit(1)}
    hours = (
        latencies(found, ("hour",), ("total_ms",))
        .orderBy(sql.desc("hour"))
        .select("hour", "messages", *_PERCENTILES)
    )
    by_outcome = Chart(
        "bar", "outcome", ("messages",), unit="messages", cube=cube, measure=MESSAGES
    )
    by_time = Chart("line", "time", _PERCENTILES, unit="ms", cube=cube, measure=MESSAGES)
    also = ("destination", "link")
    return [
        way,
        *routes,
        replace(outcomes, chart=by_outcome),
        *traffic(found, "began", one, "Messages", "outcome", cube=cube, also=also),
        *traffic(found, "began", one, "Messages", "destination", cube=cube),
        _ranges(found, "destination", "total_ms", cube, MESSAGES),
        _ranges(found.where("size(links) > 0"), "link", "transfer_ms", cube, flow.TRANSFER),
        top(
            hours,
            _HOURS,
            f"Latency by hour, {LATENCIES['total_ms']}",
            by_time,
            long=True,
        ),
        slowest(found),
    ]


def slowest(found: DataFrame, count: int = _SLOWEST) -> Table:
    """Return the slowest journey of each destination, step by step.

    Each step has its first and its last time.

    :param found: of :func:`pipeline.transforms.journeys.journeys`.
    :param count: of journeys.
    """
    whole = sql.struct("message_id", "subscription", "total_ms", "last", *STEPS.values())
    slow = sql.max_by(whole, sql.struct("total_ms", "message_id", "subscription"))
    longest = (
        found.where("total_ms is not null")
        .groupBy("destination")
        .agg(slow.alias("_slow"))
        .select("destination", "_slow.*")
        .orderBy(sql.desc("total_ms"), "message_id", "subscription")
        .limit(count)
    )
    # Step by step, not name by name: steps of one time stay in their order.
    times = [
        sql.when(time.isNotNull(), sql.struct(sql.lit(str(step)).alias("step"), time.alias("time")))
        for step, name in STEPS.items()
        for time in (sql.col(name), sql.try_element_at("last", sql.lit(name)))
    ]
    steps = longest.select(
        sql.concat_ws(" to ", "message_id", "subscription").alias("message"),
        "destination",
        "total_ms",
        sql.posexplode(sql.array_distinct(sql.array_compact(sql.array(*times)))).alias(
            "place", "taken"
        ),
    )
    in_order = steps.orderBy(sql.desc("total_ms"), "message", "taken.time", "place")
    return top(
        in_order.select("message", "taken.time", "taken.step", "destination"),
        count * 2 * len(STEPS),
        "The slowest journeys, one of each destination",
        Chart("timeline", "time", ("step", "destination"), by="message"),
        long=True,
    )


def _ranges(found: DataFrame, by: str, measure: str, cube: Cube, counted: str) -> Table:
    rows = latencies(found, (by,), (measure,)).orderBy(sql.desc("messages"), by)
    return top(
        rows.select(by, "messages", *_PERCENTILES, "max_ms"),
        _NAMES,
        f"Latency by {by}, {LATENCIES[measure]}",
        Chart("range", by, _PERCENTILES, unit="ms", cube=cube, measure=counted),
        long=True,
    )
