"""What a link received against what it sent, and what is wrong.

Owns what *lost*, *doubled*, *reordered*, *altered*, *late* and *in doubt* mean. Reads and writes
nothing. ::

    events  --transfers-->  one row for each time that the link took a message from its source
            --messages-->   one row for each message
            --compared-->   the same, with what lies at the target

A link may take a message more than once: what it has not settled comes again. So a message is lost
only if no transfer of it came to a good end.

No step is one task for a link, a run or an instance, as a link may have most of what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from gateway.journal.schema import LINK_STEPS, Step
from gateway.messaging.provider import DUPLICATE_ID
from pipeline.transforms import line_bitmaps
from pipeline.transforms.running import BEFORE, number, running

#: What the journal says of an arrival at a target that keeps one of several with one duplicate id.
REMEMBERED: Final = "duplicate id"
#: What names a message.
KEY: Final = ("instance", "link", "id")


class Outcome(StrEnum):
    """What became of a message: the first that holds of all its transfers."""

    ARRIVED = "arrived"
    BURIED = "buried"
    EXPIRED = "expired"
    NOT_TRANSFERRED = "not transferred"
    #: The source has forgotten it, and it is nowhere.
    LOST = "lost"
    #: The journal does not say.
    IN_DOUBT = "in doubt"
    #: All that was begun was rolled back, so that it is at its source, or has gone another way.
    GIVEN_BACK = "given back"


class Doubt(StrEnum):
    """Why the journal does not say."""

    GAP = "lines are missing"
    END_OF_RUN = "the gateway ended"
    END_OF_JOURNAL = "the journal ends"


class Reordered(StrEnum):
    """Whose doing it is that a message arrived behind one that came after it."""

    LINK = "by the link"
    #: The link kept the order in which it got them last; the source gave this one again behind the
    #: other.
    REDELIVERY = "by redelivery"


def transfers(events: DataFrame) -> DataFrame:
    """Each transfer of the links' messages, with what is known of it.

    :param events: of :data:`pipeline.columns.EVENTS`; those of brokers are left out.
    """
    steps = events.where(
        sql.col("step").isin([step.value for step in LINK_STEPS] + [Step.EXPIRED.value])
    )
    steps = steps.where(sql.col("link").isNotNull() & sql.col("transfer").isNotNull())

    def of(step: Step, value: str = "line") -> Column:
        return sql.when(sql.col("step") == step.value, sql.col(value))

    def at(step: Step) -> Column:
        return sql.when(sql.col("step") == step.value, sql.struct("run", "line", "place"))

    def last(step: Step, value: str) -> Column:
        return sql.max_by(of(step, value), of(step))

    def has(step: Step) -> Column:
        return sql.count(of(step)) > 0

    grouped = steps.groupBy("instance", "run", "link", "transfer").agg(
        sql.max("message_id").alias("message_id"),
        sql.min("time").alias("began"),
        sql.min("line").alias("first_line"),
        sql.max("line").alias("last_line"),
        last(Step.RECEIVED, "destination").alias("source"),
        sql.min(at(Step.RECEIVED)).alias("received_at"),
        sql.coalesce(sql.max(of(Step.RECEIVED, "attempt")), sql.lit(1)).alias("attempt"),
        last(Step.RECEIVED, "body_hash").alias("body_received"),
        last(Step.RECEIVED, "headers_hash").alias("headers_received"),
        last(Step.SENT, "body_hash").alias("body_sent"),
        last(Step.SENT, "headers_hash").alias("headers_sent"),
        last(Step.SENT, "destination").alias("target"),
        sql.count(of(Step.SENT)).alias("sends"),
        sql.max(of(Step.SENT)).alias("_sent"),
        sql.count(of(Step.ARRIVED)).alias("arrivals"),
        sql.min(of(Step.ARRIVED, "time")).alias("arrived"),
        sql.min(at(Step.ARRIVED)).alias("arrived_at"),
        last(Step.ARRIVED, "target_id").alias("target_id"),
        (last(Step.ARRIVED, "reason") == REMEMBERED).alias("remembered"),
        sql.count(of(Step.ROLLED_BACK)).alias("rolled_back"),
        sql.max(of(Step.ROLLED_BACK)).alias("_rolled_back"),
        has(Step.SETTLED).alias("settled"),
        has(Step.BURIED).alias("buried"),
        has(Step.EXPIRED).alias("expired"),
        has(Step.TRANSFORMED).alias("transformed"),
        has(Step.NOT_TRANSFERRED).alias("not_transferred"),
        sql.max(of(Step.SETTLED)).alias("_settled"),
        sql.max(of(Step.ARRIVED)).alias("_arrived"),
    )
    return grouped.withColumns(
        {
            "id": sql.coalesce(
                sql.nullif("message_id", sql.lit("")), sql.concat_ws("/", "run", "transfer")
            ),
            "remembered": sql.coalesce("remembered", sql.lit(False)),
            # Nothing was handed over since that may have taken effect.
            "given_back": (sql.col("arrivals") == 0)
            & ~sql.col("settled")
            & (sql.col("sends") <= sql.col("rolled_back"))
            & sql.coalesce(
                sql.col("_rolled_back") > sql.coalesce("_sent", sql.lit(0)), sql.lit(False)
            ),
            "doubtful_sends": sql.greatest(
                sql.col("sends") - sql.col("rolled_back") - sql.col("arrivals"), sql.lit(0)
            ),
            "transacted": sql.coalesce(sql.col("_settled") == sql.col("_arrived"), sql.lit(False)),
        }
    ).drop("_sent", "_rolled_back", "_settled", "_arrived")


def messages(
    found: DataFrame,
    seen: DataFrame,
    since: str | None = None,
    until: str | None = None,
    late: float | None = None,
) -> DataFrame:
    """Each message of the window, with what is wrong with it.

    A message is in the window if one of its transfers has begun in it; then all its transfers
    count, whenever they were. One of which the journal has the end only, as it was begun before the
    first line, has begun in none.

    :param found: of :func:`transfers`; it is read several times.
    :param seen: which lines are known, as :mod:`pipeline.transforms.line_bitmaps` has them.
    :param since: a time, as Spark reads it.
    :param until: likewise; the window ends before it.
    :param late: seconds.
    """
    known = _with_doubt(found, seen)
    in_window = sql.col("begins")
    if since is not None:
        in_window &= sql.col("began") >= sql.lit(since).cast("timestamp")
    if until is not None:
        in_window &= sql.col("began") < sql.lit(until).cast("timestamp")
    came = sql.col("arrivals") > 0
    grouped = known.groupBy(*KEY).agg(
        sql.bool_or(in_window).alias("_in_window"),
        sql.min_by("source", "received_at").alias("source"),
        sql.coalesce(sql.min_by("target", "arrived_at"), sql.max("target")).alias("target"),
        sql.min("began").alias("received"),
        sql.min("arrived").alias("arrived"),
        sql.count("*").alias("transfers"),
        sql.sum("arrivals").alias("arrivals"),
        sql.count_if(came & ~sql.col("remembered")).alias("_kept"),
        sql.max("attempt").alias("attempts"),
        sql.sum("doubtful_sends").alias("doubtful_sends"),
        sql.bool_or("settled").alias("settled"),
        sql.bool_or(came & sql.col("transacted")).alias("transacted"),
        sql.bool_or("buried").alias("_buried"),
        sql.bool_or("expired").alias("_expired"),
        sql.bool_or("not_transferred").alias("_not_transferred"),
        sql.bool_and("given_back").alias("_given_back"),
        sql.bool_or("transformed").alias("transformed"),
        sql.max("doubt").alias("_doubt"),
        sql.min("received_at").alias("_first"),
        sql.min_by("received_at", "arrived_at").alias("_given"),
        sql.min("arrived_at").alias("_came"),
        *[sql.min_by(name, "arrived_at").alias(name) for name in ("body_sent", "target_id")],
        *[
            sql.bool_or(came & (sql.col(f"{part}_received") != sql.col(f"{part}_sent"))).alias(
                f"_{part}_changed"
            )
            for part in ("body", "headers")
        ],
        sql.collect_set("target_id").alias("target_ids"),
        sql.max_by("body_sent", "received_at").alias("_last_body"),
    )
    accounted = sql.col("arrivals") > 0
    outcome = (
        sql.when(
            accounted & ~sql.col("settled") & sql.col("_doubt").isNotNull(), Outcome.IN_DOUBT.value
        )
        .when(accounted, Outcome.ARRIVED.value)
        .when(sql.col("_expired"), Outcome.EXPIRED.value)
        .when(sql.col("_buried"), Outcome.BURIED.value)
        .when(sql.col("_not_transferred"), Outcome.NOT_TRANSFERRED.value)
        .when(sql.col("_doubt").isNotNull(), Outcome.IN_DOUBT.value)
        .when(sql.col("settled"), Outcome.LOST.value)
        .otherwise(Outcome.GIVEN_BACK.value)
    )
    seconds = (sql.unix_micros("arrived") - sql.unix_micros("received")) / 1e6
    changed = sql.array_compact(
        sql.array(
            *[sql.when(sql.col(f"_{part}_changed"), sql.lit(part)) for part in ("body", "headers")]
        )
    )
    judged = grouped.withColumns(
        {
            "outcome": outcome,
            "doubt": sql.when(outcome == Outcome.IN_DOUBT.value, sql.col("_doubt")),
            "seconds": seconds,
            "late": sql.lit(False)
            if late is None
            else sql.coalesce(seconds > late, sql.lit(False)),
            "doubled": (sql.col("arrivals") > 1) & (sql.col("_kept") > 0),
            "repeated": (sql.col("arrivals") > 1) & (sql.col("_kept") == 0),
            # A transaction that was not committed took no effect.
            "possibly_doubled": (sql.col("_kept") > 0)
            & (sql.col("doubtful_sends") > 0)
            & ~sql.col("transacted"),
            "changed": changed,
            "altered": (sql.size(changed) > 0) & ~sql.col("transformed"),
            "body_hash": sql.coalesce("body_sent", "_last_body"),
        }
    )
    return (
        _with_order(judged)
        .where("_in_window")
        .select(
            *KEY,
            *(
                "source",
                "target",
                "outcome",
                "doubt",
                "received",
                "arrived",
                "seconds",
                "transfers",
                "arrivals",
                "attempts",
            ),
            *(
                "doubled",
                "possibly_doubled",
                "repeated",
                "reordered",
                "altered",
                "changed",
                "transformed",
                "late",
            ),
            *("settled", "transacted", "target_id", "target_ids", "body_hash"),
        )
    )


def gaps(
    found: DataFrame, seen: DataFrame, events: DataFrame | None = None, also: Sequence[str] = ()
) -> DataFrame:
    """Return which lines are missing in these transfers' runs.

    Columns ``run`` and ``missing``.

    :param events: all that was read, where that is not the whole journal: only lines that may have
        been among it are missing then.
    :param also: more runs: all that one of a link's may have told may be lost.
    """
    runs = found.select("run")
    if also:
        named = sql.explode(sql.array(*map(sql.lit, also))).alias("run")
        runs = runs.union(found.sparkSession.range(1).select(named))
    missing = line_bitmaps.gaps(seen).join(sql.broadcast(runs.distinct()), "run", "left_semi")
    if events is not None:
        spans = events.groupBy("run").agg(
            sql.min("line").alias("_first"), sql.max("line").alias("_last")
        )
        # What is missing is counted at the next line, which may be in a later bucket than that of
        # the last that was read.
        before = sql.coalesce(
            sql.lag("bucket").over(Window.partitionBy("run").orderBy("bucket")), sql.lit(0)
        )
        placed = missing.withColumn("_before", before).join(sql.broadcast(spans), "run")
        missing = placed.where(
            "bucket >= bitmap_bucket_number(_first) and _before <= bitmap_bucket_number(_last)"
        )
    return (
        missing.where("missing > 0")
        .groupBy("run")
        .agg(sql.sum("missing").alias("missing"))
        .orderBy("run")
    )


def counts(judged: DataFrame) -> DataFrame:
    """For each link how many messages are what: one row."""
    outcome = sql.col("outcome")
    return (
        judged.groupBy("instance", "link")
        .agg(
            sql.count("*").alias("messages"),
            *[
                sql.count_if(outcome == one.value).alias(one.value.replace(" ", "_"))
                for one in Outcome
            ],
            *[
                sql.count_if(sql.col(name)).alias(name)
                for name in ("doubled", "possibly_doubled", "repeated", "altered", "late")
            ],
            sql.count_if(sql.col("reordered") == Reordered.LINK.value).alias("reordered"),
            sql.count_if(sql.col("reordered") == Reordered.REDELIVERY.value).alias(
                "reordered_by_redelivery"
            ),
            sql.count_if("transformed").alias("transformed"),
            sql.count_if(sql.col("transformed") & (sql.size("changed") > 0)).alias(
                "changed_by_transformer"
            ),
            sql.count_if(sql.col("attempts") > 1).alias("redelivered"),
            sql.sum("transfers").alias("transfers"),
            sql.bool_or("transacted").alias("transacted"),
        )
        .orderBy("instance", "link")
    )


def compared(judged: DataFrame, lying: DataFrame, destination: str) -> DataFrame:
    """Compare messages sent to a destination with what lies there.

    Of :func:`messages` those that went there, or may have.

    :param lying: of :data:`pipeline.columns.MESSAGES`, with ``body_hashes``: those that the body
        may have, as a broker may give octets as text; null where they cannot be computed.
    :param destination: where they lie.
    :returns: the same columns, and ``lies``, how often it lies there; ``known_by``: ``id``,
        ``duplicate id`` or ``body``, the first by which it was found; and ``altered_there``,
        whether its body is another. A body tells a message only if the link sent no other with that
        body.
    """
    named = lying.select(
        sql.col("message_id").alias("_id"),
        # What is before the first slash says where it is from.
        sql.regexp_replace(
            sql.try_element_at("headers", sql.lit(DUPLICATE_ID)), "^[^/]*/", ""
        ).alias("_duplicate_id"),
        sql.col("body_hashes").alias("_bodies"),
    )
    wanted = judged.where(
        (sql.col("target") == destination) & (sql.col("outcome") != Outcome.NOT_TRANSFERRED.value)
    )
    mine = (*KEY, "body_hash")
    # Alike ones that lie there are counted first: a message's may be any number.
    by_id = wanted.select(*mine, sql.explode("target_ids").alias("_id")).join(
        _alike(named, "_id"), "_id"
    )
    by_duplicate = wanted.select(*mine, sql.col("id").alias("_duplicate_id")).join(
        _alike(named, "_duplicate_id"), "_duplicate_id"
    )
    alone = wanted.groupBy("instance", "link", "body_hash").agg(
        sql.min("id").alias("id"), sql.count("*").alias("_sent")
    )
    bodies = named.select(sql.explode("_bodies").alias("body_hash"), "_bodies")
    by_body = alone.where("_sent = 1").join(_alike(bodies, "body_hash"), "body_hash")
    ways = (
        _lying(by_id, "id")
        .unionByName(_lying(by_duplicate, "duplicate id"))
        .unionByName(_lying(by_body, "body"))
    )
    first = ways.groupBy(*KEY).agg(
        sql.min(sql.struct("rank", "known_by", "lies", "altered")).alias("_found")
    )
    return (
        wanted.join(first, [*KEY], "left")
        .withColumns(
            {
                "lies": sql.coalesce("_found.lies", sql.lit(0)),
                "known_by": sql.col("_found.known_by"),
                "altered_there": sql.coalesce("_found.altered", sql.lit(False)),
            }
        )
        .drop("_found")
    )


_RANKS: Final = {"id": 1, "duplicate id": 2, "body": 3}


def _alike(named: DataFrame, by: str) -> DataFrame:
    """Count what lies there, as ``_lies``, where name and bodies are alike."""
    return named.groupBy(by, "_bodies").agg(sql.count("*").alias("_lies"))


def _lying(found: DataFrame, known_by: str) -> DataFrame:
    other = sql.coalesce(~sql.array_contains("_bodies", sql.col("body_hash")), sql.lit(False))
    grouped = found.groupBy(*KEY).agg(
        sql.sum("_lies").alias("lies"), sql.bool_or(other).alias("altered")
    )
    return grouped.select(
        *KEY,
        sql.lit(_RANKS[known_by]).alias("rank"),
        sql.lit(known_by).alias("known_by"),
        "lies",
        "altered",
    )


def _with_doubt(found: DataFrame, seen: DataFrame) -> DataFrame:
    """Add ``doubt``, why the journal lacks a transfer's end, else null.

    ``begins``: whether it says how one began, or would if no line were missing.
    """
    missing = (
        line_bitmaps.gaps(seen)
        .where("missing > 0")
        .groupBy("run")
        .agg(sql.collect_list("bucket").alias("_missing"))
    )
    ends = found.groupBy("instance", "run", "link").agg(sql.max("last_line").alias("_last_of_link"))
    newest = ends.groupBy("instance").agg(sql.max("run").alias("_last_run"))
    ended = sql.col("settled") | sql.col("given_back")
    told = (
        (sql.col("arrivals") > 0)
        | sql.col("buried")
        | sql.col("expired")
        | sql.col("not_transferred")
    )
    begin, end = sql.bitmap_bucket_number("first_line"), sql.bitmap_bucket_number("last_line")
    headless = sql.col("received_at").isNull()
    beside = sql.exists(
        "_missing", lambda bucket: (headless | (bucket >= begin)) & (~ended | (bucket <= end))
    )
    begins = ~headless | sql.coalesce(
        sql.exists("_missing", lambda bucket: bucket <= end), sql.lit(False)
    )
    end_of = sql.when(sql.col("run") == sql.col("_last_run"), Doubt.END_OF_JOURNAL.value).otherwise(
        Doubt.END_OF_RUN.value
    )
    doubt = (
        sql.when(sql.col("given_back") | (sql.col("settled") & told), None)
        .when(sql.coalesce(beside, sql.lit(False)), Doubt.GAP.value)
        .when(~sql.col("settled"), end_of)
        # What is settled first is sent afterwards: only if something followed it is known that it
        # was not.
        .when(sql.col("last_line") == sql.col("_last_of_link"), end_of)
    )
    return (
        found.join(sql.broadcast(missing), "run", "left")
        .join(sql.broadcast(ends), ["instance", "run", "link"], "left")
        .join(sql.broadcast(newest), "instance", "left")
        .withColumns({"doubt": doubt, "begins": begins})
        .drop("_missing", "_last_of_link", "_last_run")
    )


def _with_order(judged: DataFrame) -> DataFrame:
    """Add ``reordered``, whether a later message overtook it, and why.

    Order is that of a link within each of its targets.
    """
    to = sql.coalesce("target", sql.lit("")).alias("_to")
    # In the order in which the link got the messages last, and in that in which it got each first:
    # one place, or a place in each. Where a place is not known, nothing is known to come after it.
    came, twice = sql.col("_came"), ~sql.col("_given").eqNullSafe(sql.col("_first"))
    places = sql.array(
        _place("_given", last=came, first=sql.when(~twice, came)),
        _place("_first", last=sql.lit(None), first=came, where=twice),
    )
    placed = judged.where("_came is not null").select(*KEY, "source", to, sql.inline(places))
    numbered = placed.where("_at is not null").select(
        *(*KEY, "source", "_to", "_last", "_first", "_at.line", "_at.place"),
        sql.struct("_at.run", number(sql.col("_at.line")).alias("number")).alias("_stretch"),
    )
    # From the end to the beginning: what came after a message and has arrived before it.
    placed = running(
        numbered,
        sql.min,
        ("_last", "_first"),
        of=("instance", "link", "source", "_to"),
        stretch="_stretch",
        order=("line", "place"),
        backwards=True,
    )
    by_link, at_all = (
        sql.coalesce(sql.col(name + BEFORE) < sql.col(name), sql.lit(False))
        for name in ("_last", "_first")
    )
    overtaken = (
        placed.where(by_link | at_all).groupBy(*KEY).agg(sql.bool_or(by_link).alias("_by_link"))
    )
    reordered = sql.when(sql.col("_by_link"), Reordered.LINK.value).when(
        ~sql.col("_by_link"), Reordered.REDELIVERY.value
    )
    return judged.join(overtaken, [*KEY], "left").withColumn("reordered", reordered)


def _place(at: str, last: Column, first: Column, where: Column | None = None) -> Column:
    place = sql.col(at) if where is None else sql.when(where, sql.col(at))
    kind = "struct<run:string,line:bigint,place:int>"
    return sql.struct(
        place.alias("_at"), last.cast(kind).alias("_last"), first.cast(kind).alias("_first")
    )
