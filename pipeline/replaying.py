"""A replay, from the choice to the last record of the ledger.

Owns the order of the steps, on which it depends that no message is replayed twice: *intended* is on the disk before a message is sent, *sent* once the broker has
confirmed it, and only then the dead message may be taken away. Between intended and sent a crash leaves a doubt; to the gateway it is resolved by sending
again under the same duplicate id, which the gateway drops if it has it. What is asked for, and what is shown, is :mod:`pipeline.jobs.replay`'s.

Messages are sent by Spark's tasks through the data source, a portion at a time; the driver sees no more of them than the names of one portion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sql

from pipeline.datasource.options import Use, parse
from pipeline.datasource.source import register
from pipeline.errors import PipelineError
from pipeline.ledger import RECORDS, Ledger, State
from pipeline.plan import ROWS, Plan
from pipeline.removing import DEAD, removing
from pipeline.tables.messages import archived, browsed
from pipeline.target import Target
from pipeline.transforms.replay import candidates, choose, directed, planned, replayed, sends

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

#: Messages between two records on the disk. The gateway remembers 20,000 duplicate ids of a ledger for each destination: what is in doubt must be well among them.
PORTION: Final = 5_000
MOST_IN_A_PORTION: Final = 10_000
#: How long the gateway is trusted to remember a duplicate id, in microseconds: it does for a day.
_REMEMBERED_US: Final = 20 * 3600 * 1_000_000
_PASSED: Final = ("key", "twin", "message_id", "queue", "time", "target", "place", "planned")
_SHOWN: Final = 3


@dataclass(frozen=True)
class Request:
    """What an operator asked for; what a plan keeps.

    :param queue: where the dead messages are, ``queue:NAME``; None with an archive. :param archive: a folder of Parquet files with messages.
    :param where: an SQL predicate. :param to: ``queue:NAME`` or ``topic:NAME``; None is where each was first.
    :param new_ids: have the gateway give new message ids. :param source: options of the data source, for the queue; and :param target: for sending.
    """

    queue: str | None
    archive: str | None
    where: str | None = None
    to: str | None = None
    new_ids: bool = False
    source: Mapping[str, str] = field(default_factory=dict)
    target: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a replay has done: messages sent now, sent before it, left alone because nobody knows whether they were sent, and dead messages removed."""

    sent: int = 0
    before: int = 0
    doubtful: int = 0
    removed: int = 0


def looked_at(spark: SparkSession, request: Request, target: Target, ledger: Path | None) -> DataFrame:
    """All messages that the request wants, with ``replayed``, ``problem`` and the other columns of :func:`pipeline.transforms.replay.planned`.

    :param ledger: the file; None where there is none yet.
    :raises PipelineError: the predicate is none, or the messages cannot be had.
    """
    lies = request.queue if request.source == request.target else None
    rows = directed(choose(candidates(_messages(spark, request)), request.where), request.to, target.gateway, lies)
    return replayed(planned(rows, target.gateway), _sent(spark, ledger))


def _messages(spark: SparkSession, request: Request) -> DataFrame:
    if request.queue is not None:
        return browsed(spark, request.source, request.queue)
    assert request.archive is not None
    return archived(spark, request.archive)


class Replay:
    """The carrying out of one plan.

    :param ledger: opened, so that nobody else replays by it. :param rate: messages a second. :param portion: messages between two records in the ledger.
    :param now_us: the clock, microseconds since the epoch.
    :param reached: called with ``intended``, ``sending``, ``sent`` and ``removed``; the one that tests end the process by.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        request: Request,
        target: Target,
        ledger: Ledger,
        now_us: Callable[[], int],
        *,
        rate: float | None = None,
        portion: int = PORTION,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._spark: Final = spark
        self._plan: Final = plan
        self._request: Final = request
        self._target: Final = target
        self._ledger: Final = ledger
        self._now_us: Final = now_us
        self._rate: Final = rate
        # So that little is in doubt, and something is seen to happen, at a slow pace, too.
        self._portion: Final = portion if rate is None else max(1, min(portion, math.ceil(rate * 10)))
        self._reached: Final = reached
        self._address: Final = parse(request.target, Use.WRITE).address
        self._stage: Final = ledger.path.parent / f"staged-{plan.digest[:16]}"

    def run(self, remove: bool, in_doubt: str | None, advanced: Callable[[int], None] = lambda count: None) -> Outcome:
        """Send what was not sent yet, each message once.

        :param remove: take the dead messages that were sent from their queue.
        :param in_doubt: ``send`` or ``skip`` messages of which nobody knows whether an earlier replay has sent them; None refuses the plan if there are any.
        :param advanced: told of messages that were sent.
        :raises PipelineError: a message that the plan names is gone or not what it was; there are doubts; the broker cannot be reached or refuses. What was
            sent until then is in the ledger.
        """
        with self._named() as named:
            pending = named.where("replayed is null")
            doubtful = self._doubtful(pending)
            doubts = doubtful.count()
            if doubts and in_doubt is None:
                first = doubtful.select("message_id").limit(1).collect()[0][0]
                raise PipelineError(
                    f"nobody knows whether {_messages_of(doubts)}, the first {first}, were sent by a replay that was interrupted, and the broker would "
                    "not drop a second one: say --in-doubt send or --in-doubt skip"
                )
            if doubts and in_doubt == "skip":
                pending = pending.join(doubtful.select("key"), "key", "left_anti")
            before = named.where("replayed is not null").count()
            removed = self._remove_rest() if remove else 0
            sent = 0
            try:
                for part in self._staged(pending):
                    count, gone = self._send(part, remove)
                    sent, removed = sent + count, removed + gone
                    advanced(count)
            finally:
                rmtree(self._stage, ignore_errors=True)
        return Outcome(sent, before, doubts if in_doubt == "skip" else 0, removed)

    @contextmanager
    def _named(self) -> Iterator[DataFrame]:
        """The rows of the plan, with the columns of the messages that they name, and ``replayed``."""
        wanted = self._spark.read.schema(ROWS).json(str(self._plan.path)).where("key is not null")
        wanted = wanted.withColumn("time", sql.timestamp_millis("died"))
        found = replayed(wanted, _sent(self._spark, self._ledger.path)).persist()
        try:
            yield found
        finally:
            found.unpersist()

    def _doubtful(self, pending: DataFrame) -> DataFrame:
        """Those that were intended and not sent, and that the broker would not know again."""
        intended = _records(self._spark, self._ledger.path, State.INTENDED).groupBy("key")
        latest = intended.agg(sql.max("at").alias("at"), sql.collect_set("target").alias("targets"))
        rows = pending.join(latest, "key")
        if not self._target.gateway:
            return rows
        elsewhere = sql.exists("targets", lambda each: each != sql.concat(sql.col("target"), sql.lit(f" at {self._address}")))
        return rows.where(elsewhere | (sql.unix_micros("at") < self._now_us() - _REMEMBERED_US))

    def _staged(self, pending: DataFrame) -> Iterator[DataFrame]:
        """What is to be sent, in portions, in order, as it is when all of it was looked at: nothing is sent as long as anything is amiss."""
        wanted = pending.select("key", "target", "place", sql.col("digest").alias("planned"))
        rows = candidates(_messages(self._spark, self._request)).dropDuplicates(["key"]).join(wanted, "key")
        now_ms = self._now_us() // 1000
        made = sends(rows, _PASSED, self._target.gateway, now_ms, self._request.new_ids)
        made = made.withColumn("portion", sql.floor((sql.col("place") - 1) / self._portion).cast("int"))
        stage = str(self._stage)
        made.repartition("portion").sortWithinPartitions("portion", "place").write.mode("overwrite").partitionBy("portion").parquet(
            stage
        )
        whole = self._spark.read.schema(made.schema).parquet(stage)
        same = whole.where("digest = planned").select("key", "portion")
        amiss = pending.join(same, "key", "left_anti").orderBy("place")
        first = [row[0] for row in amiss.select("message_id").limit(_SHOWN).collect()]
        if first:
            raise PipelineError(
                f"{_messages_of(amiss.count())} that the plan names are gone, or not what they were: {', '.join(first)}; nothing was sent: make a new plan"
            )
        schema = made.drop("portion").schema
        for row in whole.select("portion").distinct().orderBy("portion").collect():
            part = self._spark.read.schema(schema).parquet(f"{stage}/portion={row[0]}")
            yield part.coalesce(1).sortWithinPartitions("place")

    def _send(self, part: DataFrame, remove: bool) -> tuple[int, int]:
        """Send one portion. :returns: how many messages that were, and how many dead ones were removed."""
        names = part.select("key", "twin", "message_id", "queue", "target", sql.unix_millis("time").alias("died")).collect()
        self._record(State.INTENDED, names)
        self._reached("intended")
        self._written(part)
        self._reached("sending")
        self._record(State.SENT, names)
        self._reached("sent")
        return len(names), self._remove(names) if remove else 0

    def _written(self, part: DataFrame) -> None:
        """:raises PipelineError: not all of it is at the broker."""
        options = {**self._request.target}
        if self._rate is not None:
            options |= {"ratePerSecond": f"{self._rate:.3f}", "batchSize": str(max(1, min(1000, math.floor(self._rate))))}
        if self._target.gateway:
            options["idColumn"] = "id"
            name = sql.concat(sql.lit(f"replay-{self._ledger.id}/"), "key").alias("id")
            frame = part.select(sql.col("target").alias("destination"), sql.col("body").alias("envelope"), name)
        else:
            expires = sql.when(sql.col("expires_ms") > 0, sql.timestamp_millis("expires_ms")).alias("expires")
            same = ("body", "body_type", "headers", "persistent", "priority", "type", "correlation_id", "reply_to")
            frame = part.select(sql.col("target").alias("destination"), *same, expires)
        register(self._spark)
        frame.write.format("stomp").mode("append").options(**options).save()

    def _record(self, state: State, names: list[Row]) -> None:
        records = [{**row.asDict(), "target": f"{row.target} at {self._address}"} for row in names]
        self._ledger.append(state, self._now_us(), self._plan.digest, records)

    def _remove(self, names: list[Row]) -> int:
        """Take the dead messages of one portion from their queue. :returns: how many were there."""
        options = parse({**self._request.source, "destination": names[0].queue}, Use.BROWSE)
        rows = self._spark.createDataFrame([(row.message_id, row.died or 0) for row in names], DEAD).coalesce(1)
        gone = {(row.message_id, row.died) for row in rows.mapInArrow(removing(options, names[0].queue), DEAD).collect()}
        taken = [row for row in names if (row.message_id, row.died or 0) in gone]
        self._record(State.REMOVED, taken)
        self._reached("removed")
        return len(taken)

    def _remove_rest(self) -> int:
        """What an earlier run of this plan has sent, and did not come to remove."""
        wanted = self._spark.read.schema(ROWS).json(str(self._plan.path)).where("key is not null")
        of_plan = sql.col("plan") == self._plan.digest
        sent = _records(self._spark, self._ledger.path, State.SENT).where(of_plan).select("key").distinct()
        gone = _records(self._spark, self._ledger.path, State.REMOVED).select("key")
        left = wanted.join(sent, "key", "left_semi").join(gone, "key", "left_anti")
        removed, portion = 0, []
        for row in left.toLocalIterator():
            portion.append(row)
            if len(portion) == self._portion:
                removed, portion = removed + self._remove(portion), []
        return removed + (self._remove(portion) if portion else 0)


def _sent(spark: SparkSession, path: Path | None) -> DataFrame:
    """What was sent, as :func:`pipeline.transforms.replay.replayed` wants it."""

    def of(state: State) -> Column:
        return sql.when(sql.col("state") == state.value, sql.col("at"))

    by_key = _records(spark, path, State.INTENDED, State.SENT).groupBy("key", "twin")
    return by_key.agg(sql.min(of(State.INTENDED)).alias("begun"), sql.max(of(State.SENT)).alias("at")).where("at is not null")


def _records(spark: SparkSession, path: Path | None, *states: State) -> DataFrame:
    """The records of these states, with ``at`` as a timestamp. A line that was cut short, and the first one, are none."""
    if path is None:
        frame = spark.range(0).select(*[sql.lit(None).cast(kind).alias(name) for name, kind in _columns(RECORDS)])
    else:
        frame = spark.read.schema(RECORDS).json(str(path))
    return frame.where(sql.col("state").isin([state.value for state in states])).withColumn("at", sql.timestamp_micros("at"))


def _messages_of(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _columns(ddl: str) -> list[list[str]]:
    return [column.split() for column in ddl.split(",")]


def plan_rows(rows: DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a plan, in the order of sending, one by one.

    :param rows: those of :func:`looked_at` that are to be sent.
    """
    # The gateway's ids end with a number that rises, so a longer one is a later one.
    ordered = rows.orderBy("timestamp", sql.length("message_id"), "message_id", "key")
    columns = ordered.select(
        "key", "twin", "message_id", "queue", "target", "digest", "size", sql.unix_millis("time").alias("died")
    )
    for place, row in enumerate(columns.toLocalIterator(), 1):
        yield {"place": place, **row.asDict()}
