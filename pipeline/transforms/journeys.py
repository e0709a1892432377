"""Events into journeys: one row for each message.

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

from gateway.journal.schema import BROKER_STEPS, DEAD_STEPS, Step
from gateway.messaging.dead import DMQ
from pipeline.transforms.seen import gaps, store


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


#: Steps that say nothing of what becomes of a message: they are left out.
_ASIDE: Final = (Step.ROUTED, Step.ACKNOWLEDGEMENT_CONFIRMED)
_COURSE: Final = tuple(step for step in Step if step not in _ASIDE)
#: The columns with the first time of each step.
STEPS: Final[dict[Step, str]] = {step: step.value.replace(" ", "_") for step in _COURSE}
#: Latencies in milliseconds: from the first of one step to another.
LATENCIES: Final = {
    "confirm_ms": "from accepted to confirmed to its producer",
    "deliver_ms": "from accepted to handed to a consumer for the first time",
    "acknowledge_ms": "from handed to a consumer for the first time to acknowledged for the last",
    "transfer_ms": "from received by a link to durable at its target",
    "settle_ms": "from received by a link to forgotten by its source",
    "total_ms": "from the first step to the last",
}
_LANE: Final = "subscription"
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
_CODES: Final[dict[Step, int]] = {step: code for code, step in enumerate(_COURSE)}
#: What a topic's message does before it comes to its subscriptions.
_BEFORE: Final = (Step.PRODUCED, Step.STORED, Step.CONFIRMED)
#: How it may end for a subscription that is not durable, which the journal does not name then.
_ENDS: Final = (Step.EXPIRED, Step.DEAD, Step.DELETED)
_SETTLED: Final = (Step.ACKNOWLEDGED, Step.DELETED)
#: The steps of which the last says whether a message is with a consumer, or on its way to a link's
#: target.
_AT_BROKER: Final = (Step.DELIVERED, Step.REDELIVERED, Step.RETURNED, *_SETTLED)
_ON_LINK: Final = (Step.SENT, Step.ARRIVED, Step.SETTLED, Step.ROLLED_BACK)


def journeys(events: DataFrame, seen: DataFrame, *, whole: bool = True) -> DataFrame:
    """The journeys of the messages that the events tell of.

    :param events: of :data:`pipeline.columns.EVENTS`, each once.
    :param seen: which lines of the journal are known: so a gap is, and which run of a gateway is
        over.
    :param whole: false where the events of some destinations were left out; then a link is not
        blamed for a step that is not there.
    """
    course = events.where(~sql.col("step").isin([step.value for step in _ASIDE]))
    merged = _with_common_steps(_collected(course))
    decided = merged.withColumn("_store", store("_last.run")).join(
        sql.broadcast(_runs(seen)), "_store", "left"
    )
    after = sql.struct(
        sql.col("_last.run").alias("run"), sql.bitmap_bucket_number("_last.line").alias("bucket")
    )
    return decided.select(
        "message_id",
        _LANE,
        sql.col("_first.destination").alias("destination"),
        sql.col("_first.instance").alias("instance"),
        _outcome(whole).alias("outcome"),
        sql.coalesce(sql.col("_gap") >= after, sql.lit(False)).alias("gap"),
        sql.col("_first.time").alias("began"),
        sql.col("_last.time").alias("ended"),
        sql.array(*(sql.lit(step.value) for step in _COURSE))[sql.col("_last.step")].alias(
            "last_step"
        ),
        *(sql.col(_first(step)).alias(name) for step, name in STEPS.items()),
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
    )


def _collected(events: DataFrame) -> DataFrame:
    """Return one row for each message and subscription of a topic.

    Steps without a subscription have a row of their own.

    All columns are least and greatest values, so that Spark sorts the events by message once and
    keeps one message at a time in memory.
    """
    codes = sql.create_map(
        *(sql.lit(part) for step, code in _CODES.items() for part in (step.value, code))
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
    rows = events.select(
        keys.alias("_told", "_key"),
        "message_id",
        sql.when(of_topic, sql.col("subscription")).alias(_LANE),
        sql.try_element_at(codes, "step").alias("step"),
        *(
            "time",
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
        ),
        sql.nullif(sql.concat_ws("@", "user", "connection"), sql.lit("")).alias("who"),
    ).select(
        sql.col("_key").alias("message_id"),
        *(sql.when(itself, sql.col(name)).alias(name) for name in (_LANE, "step", *_CARRIED)),
        "time",
        sql.when(~itself, sql.col("message_id")).alias("source_id"),
    )
    times: list[Column] = []
    for step, code in _CODES.items():
        time = sql.when(sql.col("step") == code, sql.col("time"))
        times += [sql.min(time).alias(_first(step)), sql.max(time).alias(_last(step))]
    delivered, again, produced, acknowledged = (
        _is(step) for step in (Step.DELIVERED, Step.REDELIVERED, Step.PRODUCED, Step.ACKNOWLEDGED)
    )
    handed = delivered | again
    # Subscriptions of several connections may have one name: each is handed it for the first time.
    of_lane = sql.count_if(again) + sql.max(delivered.cast("int"))
    attempts = (
        sql.when(sql.col(_LANE).isNull(), sql.count_if(handed)).otherwise(of_lane).cast("int")
    )
    # Of a broker that is not ours nothing else says that it was handed out. Several links may take
    # one message of a topic.
    received = _is(Step.RECEIVED)
    of_queue = sql.count_if(received & sql.col("destination").startswith("queue:"))
    taken = sql.greatest(of_queue, sql.max(received.cast("int"))).cast("int")
    known = sql.col("run").isNotNull()

    def two(column: str, where: Column) -> Column:
        """The first and the last value, or the only one."""
        value = sql.when(
            where & sql.col(column).isNotNull(),
            sql.struct(sql.col("time"), sql.col(column).alias("value")),
        )
        return sql.array_compact(sql.array(sql.min(value)["value"], sql.max(value)["value"]))

    def newest(where: Column) -> Column:
        """Return the last of these steps by the journal's order.

        The clock may be set back.
        """
        return sql.max(sql.when(where, sql.struct("run", "line", "step", "time")))

    at_broker = _is(*_AT_BROKER)
    in_dead_queue = sql.col("destination") == str(DMQ)
    return (
        rows.repartition("message_id")
        .groupBy("message_id", _LANE)
        .agg(
            sql.min(
                sql.when(known, sql.struct("time", "run", "line", "destination", "instance"))
            ).alias("_first"),
            sql.max(sql.when(known, sql.struct("time", "run", "line", "step"))).alias("_last"),
            *times,
            sql.max(
                sql.when(
                    sql.col("reason").isNotNull(),
                    sql.struct("time", "run", "line", "reason", "comment"),
                )
            ).alias("_said"),
            # The copy of a dead one in its queue has its id.
            sql.coalesce(newest(at_broker & ~in_dead_queue), newest(at_broker)).alias("_at_broker"),
            newest(_is(*_ON_LINK)).alias("_on_link"),
            newest(_is(*DEAD_STEPS)).alias("_died"),
            # Brokers that are not ours give what is sent again another id.
            newest(produced).alias("_sent"),
            (sql.count_if(delivered) > sql.count_if(acknowledged)).alias("_owed"),
            sql.greatest(sql.max("attempt"), attempts, taken).alias("attempts"),
            sql.max("size").alias("size"),
            two("who", produced).alias("producers"),
            two("who", handed).alias("consumers"),
            two("link", known).alias("links"),
            two("target_id", known).alias("target_ids"),
            two("source_id", ~known).alias("source_ids"),
        )
    )


def _with_common_steps(collected: DataFrame) -> DataFrame:
    """Give each subscription's journey the message's steps before it.

    Subscriptions that have not acknowledged the message are given how it ended, too.

    A link that takes it from there has a journey of its own: the one of no subscription.
    """
    of_message = Window.partitionBy("message_id")
    before = [name(step) for step in _BEFORE for name in (_first, _last)]
    ends = [name(step) for step in _ENDS for name in (_first, _last)]
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
    common = sql.max(sql.when(sql.col(_LANE).isNull(), sql.struct(*given))).over(of_message)
    spread = collected.withColumn("_common", common).withColumn(
        "_lanes", sql.count(_LANE).over(of_message)
    )
    own = spread.where(
        sql.col(_LANE).isNotNull() | (sql.col("_lanes") == 0) | (sql.size("links") > 0)
    )

    def common_has(step: Step) -> Column:
        return sql.col(f"_common.{_first(step)}").isNotNull()

    open_yet = ~sql.coalesce(
        sql.col("_at_broker.step").isin([_CODES[step] for step in _SETTLED]), sql.lit(False)
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

    names = [name for name in collected.columns if name not in ("message_id", _LANE)]
    return (
        own.select("message_id", _LANE, *(merged(name) for name in names))
        .select(
            "*", sql.col("_said.reason").alias("reason"), sql.col("_said.comment").alias("comment")
        )
        .where("_first is not null")
    )


def _outcome(whole: bool) -> Column:
    again = sql.coalesce(sql.col("_sent") > sql.col("_died"), sql.lit(False))

    def there(*steps: Step) -> Column:
        """Whether it took one of these, since it was sent again if it was."""
        last = (
            sql.greatest(*(sql.col(_last(step)) for step in steps))
            if len(steps) > 1
            else sql.col(_last(steps[0]))
        )
        return last.isNotNull() & (~again | (last >= sql.col("_sent.time")))

    def now(step: str) -> Column:
        """The newest of some steps, unless it was sent again since."""
        return sql.when(~again | (sql.col(step) > sql.col("_sent")), sql.col(f"{step}.step"))

    # Of one that was received before the journal begins it is not known what else was.
    known = there(Step.RECEIVED, Step.SENT) if whole else there(Step.SENT)
    forgotten = there(Step.SETTLED) & ~there(Step.ARRIVED) & known
    unknown = now("_on_link") == _CODES[Step.SENT]
    # With a subscription of that name of another connection. Only a durable one outlives a run, and
    # may be handed it for the first time again.
    owed = (
        sql.col("_owed")
        & sql.col(_LANE).isNotNull()
        & (sql.col("_first.run") == sql.col("_last.run"))
    )
    settled = now("_at_broker").isin([_CODES[step] for step in _SETTLED]) & (again | ~owed)
    gone = there(Step.DELETED) & (~again | (now("_at_broker") == _CODES[Step.DELETED]))
    why = sql.when(gone & ~there(Step.ACKNOWLEDGED), sql.col("reason"))
    removed, unsubscribed = why.isin("removed", "refused"), why == "unsubscribed"
    taken = there(Step.ARRIVED, Step.SETTLED) | (
        settled & ~sql.coalesce(removed | unsubscribed, sql.lit(False))
    )
    in_memory = (
        there(Step.PRODUCED) & ~there(Step.STORED) & (sql.col("_newest") > sql.col("_last.run"))
    )
    topic = (
        sql.col("_first.destination").startswith("topic:")
        & sql.col(_LANE).isNull()
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
    died = sql.coalesce(_first(Step.DEAD), _first(Step.EXPIRED)).isNotNull()
    acknowledge = between("acknowledge_ms", _first(Step.DELIVERED), _last(Step.ACKNOWLEDGED))
    return [
        between("confirm_ms", _first(Step.PRODUCED), _first(Step.CONFIRMED)),
        between("deliver_ms", _first(Step.PRODUCED), _first(Step.DELIVERED)),
        sql.when(~died, acknowledge).alias("acknowledge_ms"),
        between("transfer_ms", _first(Step.RECEIVED), _last(Step.ARRIVED)),
        between("settle_ms", _first(Step.RECEIVED), _last(Step.SETTLED)),
        between("total_ms", "_first.time", "_last.time"),
    ]


def _runs(seen: DataFrame) -> DataFrame:
    """Return each gateway's newest run, and where its last line is missing.

    ``_store``, ``_newest`` and ``_gap``, a run and a bucket of lines.
    """
    gap = sql.when(sql.col("missing") > 0, sql.struct("run", "bucket"))
    return (
        gaps(seen)
        .groupBy(store("run").alias("_store"))
        .agg(sql.max("run").alias("_newest"), sql.max(gap).alias("_gap"))
    )


def _is(*steps: Step) -> Column:
    """Whether an event is one of these steps; null if it is not."""
    return sql.col("step").isin([_CODES[step] for step in steps])


def _named_times() -> list[Column]:
    return [part for step, name in STEPS.items() for part in (sql.lit(name), sql.col(_last(step)))]


def _first(step: Step) -> str:
    return f"first_{STEPS[step]}"


def _last(step: Step) -> str:
    return f"last_{STEPS[step]}"
