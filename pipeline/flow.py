"""The way of messages step by step, to their consumers and over links.

The ten delivery steps are those of the figure in the documentation of Message Queue.

Owns which events of the journal are which step, and what a step's time is. Two pairs of steps are
one event each: the broker sees a message no earlier than when it has read and placed it (1, 2), and
that a consumer's client has it (7) no earlier than when it was written out (6).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from gateway.journal.schema import BROKER_STEPS, Step
from pipeline.charts import LATE, LINKED, MESSAGES
from pipeline.cube import counting, cube
from pipeline.summary import Chart, Cube, Stage, Table
from pipeline.transforms.courses import STEPS
from pipeline.transforms.journeys import Outcome
from pipeline.transforms.latency import ACCURACY

_PRODUCTION: Final = "Message production"
_ROUTING: Final = "Message handling and routing"
_CONSUMPTION: Final = "Message consumption"
_END: Final = "Message end of life"
_LINK: Final = "Over links"
_ASIDE: Final = "Aside"
_BEFORE: Final = "the clock begins here"
#: The steps, in their order.
STAGES: Final = (
    Stage("1", _PRODUCTION, "producer → broker", "A client sends the message", "produced", _BEFORE),
    Stage(
        "2",
        _ROUTING,
        "broker",
        "It is read and placed in its destination",
        "produced",
        "one event with step 1",
    ),
    Stage("3", _ROUTING, "broker → store", "It is stored", "stored"),
    Stage("4", _ROUTING, "broker → producer", "Its receipt is confirmed", "confirmed"),
    Stage("5", _ROUTING, "broker", "Its routing is decided", "routed"),
    Stage("6", _ROUTING, "broker → consumer", "It is written out to a consumer", "delivered"),
    Stage(
        "7",
        _CONSUMPTION,
        "client → consumer",
        "The client hands it to the consumer",
        "delivered once",
        "one event with step 6",
    ),
    Stage("8", _CONSUMPTION, "consumer → broker", "It is acknowledged", "acknowledged"),
    Stage("9", _END, "broker → store", "It is deleted", "deleted"),
    Stage(
        "10",
        _END,
        "broker → consumer",
        "The acknowledgement is confirmed",
        "acknowledgement confirmed",
    ),
    Stage("a", _LINK, "source → link", "A link receives it", "received", _BEFORE),
    Stage("b", _LINK, "link → target", "It is sent to the target", "sent"),
    Stage("c", _LINK, "target → link", "The target has it", "arrived"),
    Stage("d", _LINK, "link → source", "The source forgets it", "settled"),
    Stage("e", _ASIDE, "consumer → broker", "It is given back", "returned", ""),
    Stage("f", _ASIDE, "broker → consumer", "It is written out again", "redelivered", ""),
    Stage("g", _ASIDE, "target → source", "A link rolls it back", "rolled back", ""),
    Stage("h", _ASIDE, "broker", "It expires", "expired", ""),
    Stage("i", _ASIDE, "broker → dead queue", "It is given up", "dead", ""),
)
#: Whether anything of a phase is shown where nothing of it happened.
_ALWAYS: Final = frozenset({_PRODUCTION, _ROUTING, _CONSUMPTION, _END})
#: The measure of what links take until the target has it.
TRANSFER: Final = "transfer"


def detailed(journeys: DataFrame, events: DataFrame) -> DataFrame:
    """Add the columns that journeys leave out.

    ``routed``, ``acknowledgement_confirmed`` and ``target``: the first time that it was routed, the last that its acknowledgement was confirmed, and where
    its link has sent it.

    :param journeys: of :func:`pipeline.transforms.journeys.journeys`.
    :param events: that they are of.
    """
    aside = (Step.ROUTED, Step.ACKNOWLEDGEMENT_CONFIRMED, Step.SENT, Step.ARRIVED)
    of_topic = sql.col("destination").startswith("topic:") & sql.col("step").isin(
        [step.value for step in BROKER_STEPS]
    )

    def at(*steps: Step) -> Column:
        return sql.col("step").isin([step.value for step in steps])

    more = (
        events.where(at(*aside))
        .withColumn("_lane", sql.when(of_topic, sql.col("subscription")))
        .groupBy(sql.col("message_id").alias("_id"), "_lane")
        .agg(
            sql.min(sql.when(at(Step.ROUTED), sql.col("time"))).alias("routed"),
            sql.max(sql.when(at(Step.ACKNOWLEDGEMENT_CONFIRMED), sql.col("time"))).alias(
                "acknowledgement_confirmed"
            ),
            sql.max_by(
                sql.when(at(Step.SENT, Step.ARRIVED), sql.col("destination")),
                sql.when(at(Step.SENT, Step.ARRIVED), sql.col("time")),
            ).alias("target"),
        )
    )
    same = (sql.col("message_id") == sql.col("_id")) & sql.col("subscription").eqNullSafe(
        sql.col("_lane")
    )
    return (
        journeys.join(more, same, "left")
        .drop("_id", "_lane")
        .withColumn("link", sql.try_element_at("links", sql.lit(1)))
    )


def measures(slow: float) -> dict[str, Column]:
    """Return the measures that the cube of detailed journeys has.

    :param slow: seconds from which on a transfer is late.
    """

    def last(step: Step) -> Column:
        return sql.try_element_at("last", sql.lit(STEPS[step]))

    def first(step: Step) -> Column:
        return sql.col(STEPS[step])

    produced, delivered = first(Step.PRODUCED), first(Step.DELIVERED)
    acknowledged = last(Step.ACKNOWLEDGED)
    routed, confirmed = sql.col("routed"), sql.col("acknowledgement_confirmed")
    linked = sql.size("links") > 0
    found = {
        MESSAGES: counting(sql.lit(True), sql.col("total_ms")),
        LINKED: counting(linked),
        TRANSFER: counting(sql.col("transfer_ms").isNotNull(), sql.col("transfer_ms")),
        LATE: counting(late(slow)),
        "produced": counting(produced.isNotNull()),
        "stored": _since(first(Step.STORED), produced),
        "confirmed": _since(first(Step.CONFIRMED), produced),
        "routed": _since(routed, produced),
        "delivered": _since(delivered, sql.coalesce(routed, produced)),
        "delivered once": counting(delivered.isNotNull()),
        "acknowledged": _since(acknowledged, delivered),
        "deleted": _since(last(Step.DELETED), acknowledged),
        "acknowledgement confirmed": _since(confirmed, acknowledged),
        "received": counting(first(Step.RECEIVED).isNotNull()),
        "sent": _since(first(Step.SENT), first(Step.RECEIVED)),
        "arrived": _since(last(Step.ARRIVED), first(Step.SENT)),
        "settled": _since(last(Step.SETTLED), last(Step.ARRIVED)),
    }
    for step in (Step.RETURNED, Step.REDELIVERED, Step.ROLLED_BACK, Step.EXPIRED):
        found[step.value] = counting(first(step).isNotNull())
    died = first(Step.DEAD).isNotNull() | first(Step.BURIED).isNotNull()
    found["dead"] = counting(died)
    return found


def counts(found: DataFrame, slow: float) -> Cube | None:
    """The cube of detailed journeys. :param slow: as in :func:`measures`."""
    names = ("destination", "link", "target", "outcome")
    return cube(found, "began", names, measures(slow), few=("outcome",))


def flow(found: DataFrame, of: Cube, slow: float) -> Table:
    """The table of the steps, exact, and the chart that is drawn of the cube.

    :param found: of :func:`detailed`; it is read once.
    """
    each = sql.array(*(_named(name, values) for name, values in measures(slow).items()))
    counted = (
        found.select(sql.explode(sql.flatten(each)).alias("_one"))
        .groupBy("_one.measure")
        .agg(
            sql.count("*").alias("messages"),
            sql.percentile_approx("_one.ms", [0.5, 0.99], ACCURACY).alias("_ranks"),
            sql.max("_one.ms").alias("max_ms"),
        )
        .collect()
    )
    known = {row["measure"]: row for row in counted}
    seconds = max(1, of.span[1] - of.span[0])
    happened = {stage.phase for stage in STAGES if stage.measure in known}
    stages = tuple(
        stage
        for stage in STAGES
        if stage.phase in happened | _ALWAYS and (stage.phase != _ASIDE or stage.measure in known)
    )
    rows = []
    for stage in stages:
        row = known.get(stage.measure)
        half, high = row["_ranks"] if row and row["_ranks"] else (None, None)
        count = row["messages"] if row else 0
        longest = row["max_ms"] if row else None
        rows.append(
            (stage.number, stage.what, stage.way, count, count / seconds, half, high, longest)
        )
    columns = ("step", "what", "way", "messages", "a second", "p50_ms", "p99_ms", "max_ms")
    chart = Chart(
        "flow", "time", ("messages",), cube=of, measure=MESSAGES, unit="ms", stages=stages
    )
    return Table("The flow of messages", columns, rows, chart=chart, long=True)


def _named(name: str, values: Column) -> Column:
    return sql.transform(
        values, lambda value: sql.struct(sql.lit(name).alias("measure"), value.alias("ms"))
    )


def _since(at: Column, before: Column) -> Column:
    """The time from one step to another; at least 0."""
    ms = (sql.unix_micros(at) - sql.unix_micros(before)) / 1000
    return counting(at.isNotNull(), sql.greatest(ms, sql.when(ms.isNotNull(), sql.lit(0.0))))


def late(slow: float) -> Column:
    """Whether a transfer was late. :param slow: as in :func:`measures`."""
    return (sql.col("transfer_ms") > slow * 1000) & (sql.col("outcome") == Outcome.DELIVERED.value)
