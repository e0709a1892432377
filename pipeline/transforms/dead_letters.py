"""Dead messages as rows, grouped by what they died of.

Owns the table of deaths, made of the journal's events or of messages of a dead message queue, and
how deaths are grouped. Reads and writes nothing.
"""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from gateway.journal.schema import DEAD_STEPS, Step
from gateway.messaging import dead

#: Where the broker found what it gave up; of the embedded broker, beside the properties that Open
#: MQ has.
DEAD_DESTINATION: Final = "JMS_SUN_DMQ_DESTINATION"
#: A death: one message that was given up once. ``found`` is the id of what lies in the dead message
#: queue, null of the journal's; ``attempt`` is how often it was delivered.
DEATHS: Final = """
    message_id string, found string, time timestamp, destination string, link string, reason string, comment string, exception string, size bigint, attempt int
"""
#: What deaths of one trouble have in common.
KEYS: Final = ("reason", "destination", "link", "exception")
#: Where nothing says why.
UNKNOWN: Final = "UNKNOWN"
#: Octets of a comment that are looked at; what follows is a stack.
_LOOKED_AT: Final = 2_000
_KEPT: Final = 300
#: Milliseconds to the year 3000: what says that it died later does not say when it died.
_LATEST: Final = 32_503_680_000_000

#: What tells one death of a trouble from the next, and what is put in its place, in order. Patterns
#: are Java's.
_FOLDED: Final = (
    (r"\s+", " "),
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
    (r"\bID:[^\s,;'\")\]]*[^\s,;'\")\].:]", "<id>"),
    (r"(?<![\p{L}\p{N}])'[^']*'(?![\p{L}\p{N}])", "<value>"),
    (r'"[^"]*"', "<value>"),
    (
        r"\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[-+]\d{2}:?\d{2})?(?![\p{L}\p{N}])",
        "<n>",
    ),
    (r"(?i)\b[a-z][a-z0-9+.-]*://[^\s,;)\]]*[^\s,;)\].:]", "<address>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", "<address>"),
    (
        r"(?i)(?<![\p{L}\p{N}:])\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}\]?(?::\d{1,5})?(?![\p{L}\p{N}:])",
        "<address>",
    ),
    (r"(?i)\b(?:[a-z0-9-]+\.)*[a-z][a-z0-9-]*:\d{2,5}\b", "<address>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<hex>"),
    (r"(?i)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<hex>"),
    (r"(?<![\p{L}\p{N}_])[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?", "<n>"),
    # The 8 of UTF8 is a name's; an order's number behind its letters is not.
    (r"\d{4,}", "<n>"),
)


def normalised(comment: Column) -> Column:
    """Return an exception's text without what varies by message.

    Numbers, ids, addresses, hexadecimal and quoted values. Null becomes empty.
    """
    text = sql.substring(sql.coalesce(comment, sql.lit("")), 1, _LOOKED_AT)
    for pattern, replacement in _FOLDED:
        text = sql.regexp_replace(text, pattern, replacement)
    return sql.substring(sql.trim(text), 1, _KEPT)


def of_events(events: DataFrame) -> DataFrame:
    """The deaths that a journal tells of.

    :param events: rows of :data:`pipeline.columns.EVENTS`.
    :returns: rows of :data:`DEATHS`. A message that expired and was put to the dead for it has died
        once.
    """
    steps = events.where(sql.col("step").isin([step.value for step in DEAD_STEPS]))
    # The broker may say both of one message: that its time was over, and where it went for it.
    same = Window.partitionBy(
        "instance", "message_id", "destination", "subscription", "link"
    ).orderBy("time", "line", "place", "step")

    def expiry(step: Column, reason: Column, time: Column) -> Column:
        near = sql.abs(sql.unix_millis(time) - sql.unix_millis("time")) <= 1_000
        given_up = (step == Step.DEAD.value) & (reason == dead.DeadReason.EXPIRED.value)
        # The same of a link.
        buried = (step == Step.BURIED.value) & (
            reason == dead.BridgeDeadReason.MESSAGE_EXPIRED.value
        )
        return sql.coalesce((given_up | buried) & near, sql.lit(False))

    told = [
        expiry(*[side(name).over(same) for name in ("step", "reason", "time")])
        for side in (sql.lead, sql.lag)
    ]
    twice = (sql.col("step") == Step.EXPIRED.value) & (told[0] | told[1])
    expired = sql.when(
        sql.col("step") == Step.EXPIRED.value, sql.lit(dead.DeadReason.EXPIRED.value)
    )
    return _deaths(
        steps.withColumn("_twice", twice).where(~sql.col("_twice")),
        message_id=sql.col("message_id"),
        found=sql.lit(None),
        time=sql.col("time"),
        destination=sql.col("destination"),
        link=sql.col("link"),
        reason=sql.coalesce(sql.nullif("reason", sql.lit("")), expired),
        comment=sql.col("comment"),
        size=sql.col("size"),
        attempt=sql.col("attempt"),
    )


def of_messages(messages: DataFrame) -> DataFrame:
    """Return the deaths that messages of a dead message queue describe.

    It may be a bridge's, the embedded broker's or, as far as it says anything, another's.

    :param messages: rows of :data:`pipeline.columns.MESSAGES`.
    :returns: rows of :data:`DEATHS`. A dead message of a bridge does not name its link: there
        ``link`` says from where to where it goes.
    """
    found = described(messages)
    return _deaths(
        found,
        message_id=sql.col("original_id"),
        found=sql.col("message_id"),
        **{
            name: sql.col(name)
            for name in ("time", "destination", "link", "reason", "comment", "size", "attempt")
        },
    )


def described(messages: DataFrame) -> DataFrame:
    """Add what the messages' properties say of their death.

    :param messages: rows of :data:`pipeline.columns.MESSAGES`.
    :returns: the same rows. ``destination`` is now where the message was before it died, and
        ``queue`` where it is. Added are ``original_id``, its id then; ``time``, when it died;
        ``link``, ``reason``, ``comment``, ``exception``, ``attempt``; ``size``, bytes of its body;
        ``source``, the provider that a link had it from, and ``resource``, what says that this was
        the broker of the bridge's instance. All of them are null where nothing says so, except
        ``destination``, ``original_id``, ``exception`` and ``size``.
    """

    def said(*names: str) -> Column:
        return sql.coalesce(
            *[
                sql.nullif(sql.try_element_at("headers", sql.lit(name)), sql.lit(""))
                for name in names
            ]
        )

    to = sql.coalesce(
        said(dead.BRIDGE_TARGET_CURRENT_DESTINATION), said(dead.BRIDGE_TARGET_DESTINATION)
    )
    sides = sql.concat(
        sql.coalesce(said(dead.BRIDGE_SOURCE_DESTINATION), sql.lit("?")),
        sql.lit(" --> "),
        sql.coalesce(to, sql.lit("?")),
    )
    when = said(dead.BRIDGE_TIMESTAMP, dead.UNDELIVERED_TIMESTAMP).try_cast("bigint")
    # Anybody may send a message with such a property: one that is no time must not be the end of
    # all the others.
    died = sql.timestamp_millis(sql.when(when.between(0, _LATEST), when))
    own = sql.regexp_replace(
        sql.regexp_replace("destination", "^/queue/", "queue:"), "^/topic/", "topic:"
    )
    return messages.withColumns(
        {
            "queue": own,
            "original_id": sql.coalesce(said(dead.BRIDGE_SOURCE_MESSAGE_ID), sql.col("message_id")),
            "destination": sql.coalesce(
                said(dead.BRIDGE_SOURCE_DESTINATION, DEAD_DESTINATION), own
            ),
            "time": died,
            "link": sql.when(said(dead.BRIDGE_REASON).isNotNull(), sides),
            "reason": said(dead.BRIDGE_REASON, dead.UNDELIVERED_REASON),
            "comment": said(
                dead.BRIDGE_EXCEPTION,
                dead.UNDELIVERED_COMMENT,
                dead.UNDELIVERED_EXCEPTION,
                "dlqDeliveryFailureCause",
            ),
            "attempt": said(dead.DELIVERY_COUNT).try_cast("int"),
            "size": sql.length("body").cast("bigint"),
            "source": said(dead.BRIDGE_SOURCE_PROVIDER),
            "resource": said(dead.BRIDGE_SOURCE_RESOURCE),
        }
    ).withColumn("exception", normalised(sql.col("comment")))


def _deaths(rows: DataFrame, **columns: Column) -> DataFrame:
    columns["reason"] = sql.coalesce(columns["reason"], sql.lit(UNKNOWN))
    columns["exception"] = normalised(columns["comment"])
    wanted = [column.strip().rsplit(" ", 1) for column in DEATHS.split(",")]
    return rows.select(*[columns[name].cast(kind).alias(name) for name, kind in wanted])


def groups(
    deaths: DataFrame, until: datetime, period_hours: int = 1, examples: int = 3
) -> DataFrame:
    """One row for each trouble, the one with most deaths first.

    :param deaths: rows of :data:`DEATHS`; they are read twice.
    :param until: the end of the last period, with a time zone.
    :param period_hours: how long a period is.
    :param examples: messages to show of each, the latest ones.
    :returns: :data:`KEYS`; ``count``, ``first``, ``last``; ``per_hour``, deaths an hour between the
        first one and ``until``; ``in_period`` and ``before``, deaths in the last period and in the
        one before; ``trend``: ``growing``, ``falling``, ``steady`` or, where both are 0, ``over``;
        ``examples``, an array of ``message_id``, ``found``, ``time``, ``comment``.
    """
    end, seconds = sql.lit(until), period_hours * 3600
    age = sql.unix_micros(end) - sql.unix_micros("time")
    grouped = deaths.groupBy(*KEYS).agg(
        sql.count("*").alias("count"),
        sql.min("time").alias("first"),
        sql.max("time").alias("last"),
        sql.count_if((age >= 0) & (age < seconds * 1_000_000)).alias("in_period"),
        sql.count_if((age >= seconds * 1_000_000) & (age < 2 * seconds * 1_000_000)).alias(
            "before"
        ),
    )
    shown = _latest(deaths, examples).withColumnsRenamed({name: f"_{name}" for name in KEYS})
    same = [sql.col(name).eqNullSafe(sql.col(f"_{name}")) for name in KEYS]
    grouped = grouped.join(shown, reduce(and_, same), "left")
    hours = sql.greatest(
        (sql.unix_micros(end) - sql.unix_micros("first")) / 3_600_000_000, sql.lit(1.0)
    )
    trend = (
        sql.when(sql.col("in_period") > sql.col("before"), "growing")
        .when(sql.col("in_period") < sql.col("before"), "falling")
        .when(sql.col("in_period") == 0, "over")
        .otherwise("steady")
    )
    return grouped.select(
        *KEYS,
        "count",
        "first",
        "last",
        sql.round(sql.col("count") / hours, 2).alias("per_hour"),
        "in_period",
        "before",
        trend.alias("trend"),
        sql.coalesce(sql.transform("_shown", lambda each: each["shown"]), sql.array()).alias(
            "examples"
        ),
    ).orderBy(sql.col("count").desc(), *KEYS)


def _latest(deaths: DataFrame, most: int) -> DataFrame:
    """The latest deaths of each trouble, at most ``most``, as ``_shown``."""
    # Where nothing is asked of a row number but that it is small, each of Spark's tasks hands on no
    # more rows of a trouble than that.
    latest = Window.partitionBy(*KEYS).orderBy(
        sql.col("time").desc_nulls_last(), "message_id", "found"
    )
    shown = sql.struct("message_id", "found", "time", "comment").alias("shown")
    placed = deaths.withColumn("_place", sql.row_number().over(latest)).where(
        sql.col("_place") <= most
    )
    return placed.groupBy(*KEYS).agg(
        sql.array_sort(sql.collect_list(sql.struct("_place", shown))).alias("_shown")
    )


def hours(deaths: DataFrame) -> DataFrame:
    """Count deaths by hour and reason: ``hour``, ``reason``, ``count``.

    Ordered. Hours without a death have no row, and deaths without a time are in none.
    """
    at = sql.date_trunc("hour", sql.col("time")).alias("hour")
    return (
        deaths.where(sql.col("time").isNotNull())
        .groupBy(at, "reason")
        .agg(sql.count("*").alias("count"))
        .orderBy("hour", "reason")
    )
