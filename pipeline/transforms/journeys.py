"""Courses into journeys: one row for each message.

A topic has one for each message and subscription.

Owns what became of a message, and by which of its steps that is known. Reads and writes nothing.

``outcome`` is one of :class:`Outcome`. A message that goes over a link has another id at the
target; ``target_ids`` of its journey, and ``source_ids`` of the journey at the target, say which.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from gateway.journal.schema import Step
from pipeline.transforms.courses import (
    CODES,
    COURSE,
    HEARD,
    LANE,
    SETTLED,
    STEPS,
    TWO,
    courses,
    first,
    last,
)
from pipeline.transforms.line_bitmaps import gaps, store


class Outcome(StrEnum):
    """What became of a message; of several the first that holds.

    For one that died and was sent again under its old id only the later course counts.
    """

    #: The broker or a link gave it up.
    DEAD = "dead"
    #: Its time to live was over.
    EXPIRED = "expired"
    #: A transformer wanted it to go nowhere.
    NOT_TRANSFERRED = "not transferred"
    #: Its link's source has forgotten it, and no target has it; or the broker had it in memory
    #: only, and that run of the gateway is over.
    LOST = "lost"
    #: A link handed it to the target, and neither it nor its taking back was ever confirmed.
    IN_DOUBT = "in doubt"
    #: Its consumer has acknowledged it, or its link's target has it.
    DELIVERED = "delivered"
    #: It was purged, went with its destination or subscription, or was refused after it had been
    #: accepted.
    REMOVED = "removed"
    #: On a topic, and no subscription was given it, nor is it stored for one.
    UNCLAIMED = "unclaimed"
    #: None of these: it is still there, with a consumer or without.
    WAITING = "waiting"


#: Latencies in milliseconds: from the first of one step to another.
LATENCIES: Final = {
    "confirm_ms": "from accepted to confirmed to its producer",
    "deliver_ms": "from accepted to handed to a consumer for the first time",
    "acknowledge_ms": "from handed to a consumer for the first time to acknowledged for the last",
    "transfer_ms": "from received by a link to durable at its target",
    "settle_ms": "from received by a link to forgotten by its source",
    "total_ms": "from the first step to the last",
}
#: What a topic's message does before it comes to its subscriptions.
_BEFORE: Final = (Step.PRODUCED, Step.STORED, Step.CONFIRMED)
#: How it may end for a subscription that is not durable, which the journal does not name then.
_ENDS: Final = (Step.EXPIRED, Step.DEAD, Step.DELETED)
#: Columns of :func:`followed` besides those of a journey.
OWN: Final = "own"
AS_FAR: Final = "course"


def journeys(events: DataFrame, seen: DataFrame, *, whole: bool = True) -> DataFrame:
    """The journeys of the messages that the events tell of.

    :param events: of :data:`pipeline.columns.EVENTS`, each once.
    :param seen: which lines of the journal are known: so a gap is, and which run of a gateway is
        over.
    :param whole: false where the events of some destinations were left out; then a link is not
        blamed for a step that is not there.
    """
    found = followed(courses(events), newest_runs(seen), whole=whole)
    return found.where(OWN).drop(OWN, AS_FAR, HEARD)


def followed(known: DataFrame, runs: DataFrame, *, whole: bool = True) -> DataFrame:
    """The journeys that courses come to, and the other courses.

    Besides the columns of a journey a row has :data:`OWN`, whether it is one: what is only known
    from a link's source, or is common to a topic's subscriptions, is not. :data:`AS_FAR` has the
    course itself, and :data:`~pipeline.transforms.courses.HEARD` when the newest of its events
    came.

    :param known: of :func:`~pipeline.transforms.courses.courses`, all of each message.
    :param runs: of :func:`newest_runs`.
    :param whole: as of :func:`journeys`.
    """
    merged = _with_common_steps(_told(known))
    decided = merged.withColumn("_store", store("_last.run")).join(
        sql.broadcast(runs), "_store", "left"
    )
    after = sql.struct(
        sql.col("_last.run").alias("run"), sql.bitmap_bucket_number("_last.line").alias("bucket")
    )
    return decided.select(
        "message_id",
        LANE,
        sql.col("_first.destination").alias("destination"),
        sql.col("_first.instance").alias("instance"),
        _outcome(whole).alias("outcome"),
        sql.coalesce(sql.col("_gap") >= after, sql.lit(False)).alias("gap"),
        sql.col("_first.time").alias("began"),
        sql.col("_last.time").alias("ended"),
        # Of a course that is no journey it is null, which an index must not be.
        sql.get(sql.array(*(sql.lit(step.value) for step in COURSE)), "_last.step").alias(
            "last_step"
        ),
        *(sql.col(first(step)).alias(name) for step, name in STEPS.items()),
        sql.map_filter(sql.create_map(*_named_times()), lambda _, time: time.isNotNull()).alias(
            "last"
        ),
        *_latencies(),
        "attempts",
        "size",
        "producers",
        "consumers",
        "links",
        "target_ids",
        "source_ids",
        "reason",
        "comment",
        OWN,
        AS_FAR,
        HEARD,
    )


def newest_runs(seen: DataFrame) -> DataFrame:
    """Return each gateway's newest run, and where its last line is missing.

    ``_store``, ``_newest`` and ``_gap``, a run and a bucket of lines.
    """
    gap = sql.when(sql.col("missing") > 0, sql.struct("run", "bucket"))
    return (
        gaps(seen)
        .groupBy(store("run").alias("_store"))
        .agg(sql.max("run").alias("_newest"), sql.max(gap).alias("_gap"))
    )


def _told(known: DataFrame) -> DataFrame:
    """Courses with what follows from their counts, and themselves."""
    # Subscriptions of several connections may have one name: each is handed it for the first time.
    handed = sql.when(
        sql.col(LANE).isNull(), sql.col("_delivered") + sql.col("_redelivered")
    ).otherwise(sql.col("_redelivered") + (sql.col("_delivered") > 0).cast("int"))
    # Of a broker that is not ours nothing else says that it was handed out. Several links may take
    # one message of a topic.
    received = sql.col(first(Step.RECEIVED)).isNotNull().cast("int")
    taken = sql.greatest(sql.col("_received_from_queue"), received)
    # Of the first and the last value of some columns it is not told which is which: there may be
    # one.
    ends = {
        name: sql.array_compact(
            sql.array(sql.col(f"_first_of_{name}.value"), sql.col(f"_last_of_{name}.value"))
        )
        for name in TWO
    }
    return known.select(
        "*",
        sql.struct("*").alias(AS_FAR),
        sql.greatest("_attempt", handed, taken).cast("int").alias("attempts"),
        (sql.col("_delivered") > sql.col("_acknowledged")).alias("_owed"),
        *(ends[name].alias(name) for name in TWO),
    ).withColumn("_at_broker", sql.coalesce("_not_buried", "_at_broker"))


def _with_common_steps(told: DataFrame) -> DataFrame:
    """Give each subscription's journey the message's steps before it.

    Subscriptions that have not acknowledged the message are given how it ended, too.

    A link that takes it from there has a journey of its own: the one of no subscription.
    """
    of_message = Window.partitionBy("message_id")
    before = [name(step) for step in _BEFORE for name in (first, last)]
    ends = [name(step) for step in _ENDS for name in (first, last)]
    given = [
        *before,
        *ends,
        "_first",
        "_last",
        "_said",
        "_died",
        "_sent",
        "size",
        "producers",
        "source_ids",
    ]
    common = sql.max(sql.when(sql.col(LANE).isNull(), sql.struct(*given))).over(of_message)
    spread = told.withColumn("_common", common).withColumn(
        "_lanes", sql.count(LANE).over(of_message)
    )
    own = sql.col(LANE).isNotNull() | (sql.col("_lanes") == 0) | (sql.size("links") > 0)

    def common_has(step: Step) -> Column:
        return sql.col(f"_common.{first(step)}").isNotNull()

    open_yet = ~sql.coalesce(
        sql.col("_at_broker.step").isin([CODES[step] for step in SETTLED]), sql.lit(False)
    )
    # One that is stored is owed to a durable subscription, which the journal names.
    gone = common_has(Step.DELETED) & ~common_has(Step.STORED)
    ended = open_yet & (common_has(Step.DEAD) | common_has(Step.EXPIRED) | gone)

    def merged(name: str) -> Column:
        mine = sql.col(name)
        if name in ("consumers", "links", "target_ids"):
            return sql.array_distinct(mine).alias(name)
        if name not in given:
            return mine
        theirs = sql.col(f"_common.{name}")
        if name in ("producers", "source_ids"):
            both = sql.array_distinct(
                sql.concat(mine, sql.coalesce(theirs, sql.array().cast("array<string>")))
            )
        elif name == "_first" or name.startswith("first_"):
            both = sql.least(mine, theirs)
        else:
            both = sql.greatest(mine, theirs)
        return (
            sql.when(ended, both).otherwise(mine)
            if name in (*ends, "_last", "_said", "_died")
            else both
        ).alias(name)

    names = [name for name in told.columns if name not in ("message_id", LANE)]
    return spread.select(
        "message_id", LANE, own.alias("_own"), *(merged(name) for name in names)
    ).select(
        "*",
        (sql.col("_own") & sql.col("_first").isNotNull()).alias(OWN),
        sql.col("_said.reason").alias("reason"),
        sql.col("_said.comment").alias("comment"),
    )


def _outcome(whole: bool) -> Column:
    again = sql.coalesce(sql.col("_sent") > sql.col("_died"), sql.lit(False))

    def there(*steps: Step) -> Column:
        """Whether it took one of these, since it was sent again if it was."""
        times = [sql.col(last(step)) for step in steps]
        newest = sql.greatest(*times) if len(times) > 1 else times[0]
        return newest.isNotNull() & (~again | (newest >= sql.col("_sent.time")))

    def now(step: str) -> Column:
        """The newest of some steps, unless it was sent again since."""
        return sql.when(~again | (sql.col(step) > sql.col("_sent")), sql.col(f"{step}.step"))

    # Of one that was received before the journal begins it is not known what else was.
    known = there(Step.RECEIVED, Step.SENT) if whole else there(Step.SENT)
    forgotten = there(Step.SETTLED) & ~there(Step.ARRIVED) & known
    unknown = now("_on_link") == CODES[Step.SENT]
    # With a subscription of that name of another connection. Only a durable one outlives a run, and
    # may be handed it for the first time again.
    owed = (
        sql.col("_owed")
        & sql.col(LANE).isNotNull()
        & (sql.col("_first.run") == sql.col("_last.run"))
    )
    settled = now("_at_broker").isin([CODES[step] for step in SETTLED]) & (again | ~owed)
    gone = there(Step.DELETED) & (~again | (now("_at_broker") == CODES[Step.DELETED]))
    why = sql.when(gone & ~there(Step.ACKNOWLEDGED), sql.col("reason"))
    removed, unsubscribed = (
        why.isin("removed", "refused", "moved", "replayed", "replaced"),
        why == "unsubscribed",
    )
    taken = there(Step.ARRIVED, Step.SETTLED) | (
        settled & ~sql.coalesce(removed | unsubscribed, sql.lit(False))
    )
    in_memory = (
        there(Step.PRODUCED) & ~there(Step.STORED) & (sql.col("_newest") > sql.col("_last.run"))
    )
    topic = (
        sql.col("_first.destination").startswith("topic:")
        & sql.col(LANE).isNull()
        & (sql.size("links") == 0)
        & there(Step.PRODUCED)
        & ~there(Step.STORED)
    )
    return (
        sql.when(there(Step.DEAD, Step.BURIED), Outcome.DEAD)
        .when(there(Step.EXPIRED), Outcome.EXPIRED)
        .when(there(Step.NOT_TRANSFERRED), Outcome.NOT_TRANSFERRED)
        .when(forgotten, Outcome.LOST)
        .when(unknown, Outcome.IN_DOUBT)
        .when(taken, Outcome.DELIVERED)
        .when(removed, Outcome.REMOVED)
        .when(topic, Outcome.UNCLAIMED)
        .when(in_memory, Outcome.LOST)
        .otherwise(Outcome.WAITING)
    )


def _latencies() -> list[Column]:
    def between(name: str, start: str, end: str) -> Column:
        return ((sql.unix_micros(end) - sql.unix_micros(start)) / 1000).alias(name)

    # Who takes the copy of a dead one from its queue acknowledges that.
    died = sql.coalesce(first(Step.DEAD), first(Step.EXPIRED)).isNotNull()
    acknowledge = between("acknowledge_ms", first(Step.DELIVERED), last(Step.ACKNOWLEDGED))
    return [
        between("confirm_ms", first(Step.PRODUCED), first(Step.CONFIRMED)),
        between("deliver_ms", first(Step.PRODUCED), first(Step.DELIVERED)),
        sql.when(~died, acknowledge).alias("acknowledge_ms"),
        between("transfer_ms", first(Step.RECEIVED), last(Step.ARRIVED)),
        between("settle_ms", first(Step.RECEIVED), last(Step.SETTLED)),
        between("total_ms", "_first.time", "_last.time"),
    ]


def _named_times() -> list[Column]:
    return [part for step, name in STEPS.items() for part in (sql.lit(name), sql.col(last(step)))]
