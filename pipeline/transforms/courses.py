"""Events into courses: what is known of a message, and can be added up.

A course has the first and the last time of each step, counts, and who and what came first and last.
All of it are least and greatest values and sums, so that what was known before and what came later
make the course of all. A topic's message has one for each subscription, and one of
its own. Reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from gateway.journal.schema import BROKER_STEPS, DEAD_STEPS, Step
from gateway.messaging.dead import DMQ

#: Steps that say nothing of what becomes of a message: they are left out.
_ASIDE: Final = (Step.ROUTED, Step.ACKNOWLEDGEMENT_CONFIRMED)
#: The steps, in the order of their numbers in a course.
COURSE: Final = tuple(step for step in Step if step not in _ASIDE)
CODES: Final[Mapping[Step, int]] = {step: code for code, step in enumerate(COURSE)}
#: What these steps are called in columns.
STEPS: Final[Mapping[Step, str]] = {step: step.value.replace(" ", "_") for step in COURSE}
LANE: Final = "subscription"
#: There is one course for each of these.
KEY: Final = ("message_id", LANE)
#: When the newest event came that is in a course, be it told of another message.
HEARD: Final = "heard"
#: What was known before, beside the columns of an event.
_EARLIER: Final = "_earlier"
_CARRIED: Final = (
    "run",
    "line",
    "instance",
    "destination",
    "link",
    "size",
    "attempt",
    "reason",
    "comment",
    "target_id",
    "who",
)
SETTLED: Final = (Step.ACKNOWLEDGED, Step.DELETED)
#: The steps of which the last says whether a message is with a consumer, or on its way to a link's
#: target.
_AT_BROKER: Final = (Step.DELIVERED, Step.REDELIVERED, Step.RETURNED, *SETTLED)
_ON_LINK: Final = (Step.SENT, Step.ARRIVED, Step.SETTLED, Step.ROLLED_BACK)
#: Columns of which a course has the first and the last value.
TWO: Final = ("producers", "consumers", "links", "target_ids", "source_ids")

#: How a column is added up, and what one event adds to it.
_Total: TypeAlias = tuple[Callable[[Column], Column], Column]


def courses(events: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """Return the courses of the messages that the events tell of.

    Those of messages that were known before are among them. A row for each of :data:`KEY`, with columns as :func:`first` and :func:`last` name them, and
    others that :mod:`pipeline.transforms.journeys` makes journeys of.

    :param events: of :data:`pipeline.columns.EVENTS`, each once.
    :param earlier: courses of other events, to which these are added.
    """
    codes = sql.create_map(
        *(sql.lit(part) for step, code in CODES.items() for part in (step.value, code))
    )
    of_topic = sql.col("destination").startswith("topic:") & sql.col("step").isin(
        [step.value for step in BROKER_STEPS]
    )
    told = (
        sql.col("step").isin(Step.SENT.value, Step.ARRIVED.value) & sql.col("target_id").isNotNull()
    )
    # The message at a link's target is told of its source by a row without a step.
    keys = sql.posexplode(
        sql.when(told, sql.array("message_id", "target_id")).otherwise(sql.array("message_id"))
    )
    itself = sql.col("_told") == 0
    rows = (
        events.where(~sql.col("step").isin([step.value for step in _ASIDE]))
        .select(
            keys.alias("_told", "_key"),
            "message_id",
            sql.when(of_topic, sql.col("subscription")).alias(LANE),
            sql.try_element_at(codes, "step").alias("step"),
            "time",
            *(name for name in _CARRIED if name != "who"),
            sql.nullif(sql.concat_ws("@", "user", "connection"), sql.lit("")).alias("who"),
        )
        .select(
            sql.col("_key").alias("message_id"),
            *(sql.when(itself, sql.col(name)).alias(name) for name in (LANE, "step", *_CARRIED)),
            "time",
            sql.when(~itself, sql.col("message_id")).alias("source_id"),
        )
    )
    totals = _totals()
    if earlier is not None:
        # As one more row of its message, so that all is brought together and sorted once.
        before = earlier.select(*KEY, sql.struct(*totals).alias(_EARLIER))
        rows = rows.unionByName(before, allowMissingColumns=True)

    def total(name: str) -> Column:
        add, of = totals[name]
        return add(of if earlier is None else sql.coalesce(f"{_EARLIER}.{name}", of)).alias(name)

    # Spark sorts the events by message once, and keeps one message at a time in memory.
    return rows.repartition("message_id").groupBy(*KEY).agg(*map(total, totals))


def first(step: Step) -> str:
    """The column with the first time of a step."""
    return f"first_{STEPS[step]}"


def last(step: Step) -> str:
    """The column with the last time of a step."""
    return f"last_{STEPS[step]}"


def _totals() -> dict[str, _Total]:
    """What a course has, by column, of rows of events with the steps' numbers."""
    known = sql.col("run").isNotNull()
    delivered, again, produced, acknowledged = (
        _is(step) for step in (Step.DELIVERED, Step.REDELIVERED, Step.PRODUCED, Step.ACKNOWLEDGED)
    )
    at_broker = _is(*_AT_BROKER)
    on_queue = sql.col("destination").startswith("queue:")
    two = {
        "producers": ("who", produced),
        "consumers": ("who", delivered | again),
        "links": ("link", known),
        "target_ids": ("target_id", known),
        "source_ids": ("source_id", ~known),
    }
    assert tuple(two) == TWO

    def newest(where: Column) -> Column:
        """These steps, of which the last by the journal's order counts.

        The clock may be set back.
        """
        return sql.when(where, sql.struct("run", "line", "step", "time"))

    def counted(where: Column) -> _Total:
        return sql.sum, sql.when(where, 1).otherwise(0)

    totals: dict[str, _Total] = {
        # Before all structures: delta-rs tells no bounds of columns that come after one.
        HEARD: (sql.max, sql.col("time")),
        "_first": (
            sql.min,
            sql.when(known, sql.struct("time", "run", "line", "destination", "instance")),
        ),
        "_last": (sql.max, sql.when(known, sql.struct("time", "run", "line", "step"))),
    }
    for step, code in CODES.items():
        time = sql.when(sql.col("step") == code, sql.col("time"))
        totals |= {first(step): (sql.min, time), last(step): (sql.max, time)}
    totals |= {
        "_said": (
            sql.max,
            sql.when(
                sql.col("reason").isNotNull(),
                sql.struct("time", "run", "line", "reason", "comment"),
            ),
        ),
        "_at_broker": (sql.max, newest(at_broker)),
        # The copy of a dead one in its queue has its id.
        "_not_buried": (sql.max, newest(at_broker & (sql.col("destination") != str(DMQ)))),
        "_on_link": (sql.max, newest(_is(*_ON_LINK))),
        "_died": (sql.max, newest(_is(*DEAD_STEPS))),
        # Brokers that are not ours give what is sent again another id.
        "_sent": (sql.max, newest(produced)),
        "_delivered": counted(delivered),
        "_redelivered": counted(again),
        "_acknowledged": counted(acknowledged),
        "_received_from_queue": counted(_is(Step.RECEIVED) & on_queue),
        "_attempt": (sql.max, sql.col("attempt")),
        "size": (sql.max, sql.col("size")),
    }
    for name, (column, where) in two.items():
        value = sql.when(
            where & sql.col(column).isNotNull(),
            sql.struct(sql.col("time"), sql.col(column).alias("value")),
        )
        totals |= {f"_first_of_{name}": (sql.min, value), f"_last_of_{name}": (sql.max, value)}
    return totals


def _is(*steps: Step) -> Column:
    """Whether an event is one of these steps; null if it is not."""
    return sql.col("step").isin([CODES[step] for step in steps])
