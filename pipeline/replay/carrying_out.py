"""A replay, from the choice to the last record of the ledger.

Owns the order of the steps, on which it depends that no message is replayed twice: *intended* is on
the disk before a message is sent, *sent* once the broker has confirmed it, and only then the dead
message may be taken away. Between intended and sent a crash leaves a doubt; to the gateway it is
resolved by sending again under the same duplicate id, which the gateway drops if it has it. What is
asked for, and what is shown, is :mod:`pipeline.jobs.replay`'s.

Messages are sent by Spark's tasks through the data source, a portion at a time; the driver sees no
more of them than the names of one portion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sql

from pipeline.datasource.options import Use, parse
from pipeline.datasource.source import register
from pipeline.errors import PipelineError
from pipeline.replay.ledger import Ledger, State
from pipeline.replay.plan import Plan, copy_plan
from pipeline.replay.removing import DEAD, removing
from pipeline.replay.target import Target
from pipeline.tables.messages import archived, browsed
from pipeline.tables.replays import named, read, records, sent, written
from pipeline.transforms.perhaps_sent import doubtful
from pipeline.transforms.replay import (
    candidates,
    choose,
    directed,
    outcomes,
    planned,
    replayed,
    sends,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: Messages between two records on the disk. The gateway remembers 20,000 duplicate ids of a ledger
#: for each destination: what is in doubt must be well among them.
PORTION: Final = 5_000
#: What a run keeps beside the ledger while it is at work.
_STAGE: Final = "staged-"
_PASSED: Final = ("key", "twin", "message_id", "queue", "time", "target", "place", "planned")
_SHOWN: Final = 3


@dataclass(frozen=True)
class Request:
    """What an operator asked for; what a plan keeps.

    :param queue: where the dead messages are, ``queue:NAME``; None with an archive.
    :param archive: the folder of an archive.
    :param where: an SQL predicate.
    :param to: ``queue:NAME`` or ``topic:NAME``; None is where each was first.
    :param new_ids: have the gateway give new message ids.
    :param source: options of the data source, for the queue; and
    :param target: for sending.
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
    """How many messages a replay sent, found sent, left in doubt and removed."""

    sent: int = 0
    before: int = 0
    doubtful: int = 0
    removed: int = 0


def looked_at(
    spark: SparkSession, request: Request, target: Target, ledger: Path | None
) -> DataFrame:
    """Return the requested messages with ``replayed``, ``problem`` and more.

    The other columns are those of :func:`pipeline.transforms.replay.planned`.

    :param ledger: the file; None before there is a ledger.
    :raises PipelineError: the predicate is not valid, or the messages cannot be read.
    """
    lies = request.queue if request.source == request.target else None
    rows = directed(
        choose(candidates(_messages(spark, request)), request.where),
        request.to,
        target.gateway,
        lies,
    )
    known = records(spark, ledger, State.INTENDED, State.SENT)
    return replayed(planned(rows, target.gateway), sent(known))


def _messages(spark: SparkSession, request: Request) -> DataFrame:
    if request.queue is not None:
        return browsed(spark, request.source, request.queue)
    assert request.archive is not None
    return archived(spark, request.archive)


class Replay:
    """The carrying out of one plan.

    :param ledger: opened, so that no other replay uses it.
    :param rate: messages a second.
    :param portion: messages between two records in the ledger.
    :param now_us: the clock, microseconds since the epoch.
    :param reached: called with ``intended``, ``sending``, ``sent`` and ``removed``; the one that
        tests end the process by.
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
        self._portion: Final = (
            portion if rate is None else max(1, min(portion, math.ceil(rate * 10)))
        )
        self._reached: Final = reached
        self._address: Final = parse(request.target, Use.WRITE).address
        # Another one for each run: Spark's Java machine may go on for a moment when the process
        # that drove it was killed.
        self._stage: Final = ledger.path.parent / f"{_STAGE}{token_hex(8)}"

    def run(
        self,
        remove: bool,
        in_doubt: str | None,
        advanced: Callable[[int], None] = lambda count: None,
        told: Callable[[DataFrame], None] = lambda rows: None,
    ) -> Outcome:
        """Send what was not sent yet, each message once.

        :param remove: take the dead messages that were sent from their queue.
        :param in_doubt: ``send`` or ``skip`` messages that an earlier replay may or may not have
            sent; None refuses the plan if there are any.
        :param advanced: told of messages that were sent.
        :param told: at the end, of all messages of the plan, as
            :func:`pipeline.transforms.replay.outcomes` has them.
        :raises PipelineError: a message that the plan names is gone or not what it was; there are
            doubts; the broker cannot be reached or refuses. What was sent until then is in the
            ledger.
        """
        began = datetime.fromtimestamp(self._now_us() / 1_000_000, UTC)
        known = self._known()
        with self._named(known) as rows:
            pending = rows.where("replayed is null")
            doubted = self._doubted(pending, known)
            doubts = doubted.count()
            if doubts and in_doubt is None:
                first = doubted.select("message_id").limit(1).collect()[0][0]
                raise PipelineError(
                    f"it is not known whether {_messages_of(doubts)}, the first {first}, were sent by a replay that was interrupted, and the broker would "
                    "not drop a second one: say --in-doubt send or --in-doubt skip"
                )
            if doubts and in_doubt == "skip":
                pending = pending.join(doubted.select("key"), "key", "left_anti")
            before = rows.where("replayed is not null").count()
            removed = self._remove_rest(rows) if remove else 0
            count = 0
            for part in self._staged(pending):
                more, gone = self._send(part, remove)
                count, removed = count + more, removed + gone
                advanced(more)
            told(outcomes(rows.drop("replayed"), sent(self._known()), began))
        return Outcome(count, before, doubts if in_doubt == "skip" else 0, removed)

    @contextmanager
    def _named(self, known: DataFrame) -> Iterator[DataFrame]:
        """Yield the plan's rows, counted and read once, with ``replayed``.

        What is kept for this run is removed at the end.
        """
        for left in self._ledger.path.parent.glob(f"{_STAGE}*"):
            # Of a run that was killed: this one has the ledger.
            rmtree(left, ignore_errors=True)
        found = None
        try:
            # What was approved, whatever becomes of the file meanwhile.
            copy = copy_plan(self._plan, self._stage)
            found = replayed(named(self._spark, copy), sent(known)).persist()
            if found.count() != self._plan.messages:
                raise PipelineError(
                    f"--approve {self._plan.path}: Spark does not find its messages in {self._stage}: nothing was sent"
                )
            yield found
        finally:
            if found is not None:
                found.unpersist()
            rmtree(self._stage, ignore_errors=True)

    def _known(self) -> DataFrame:
        """The ledger's records of what was to be sent, and was, until now."""
        return records(self._spark, self._ledger.path, State.INTENDED, State.SENT)

    def _doubted(self, pending: DataFrame, known: DataFrame) -> DataFrame:
        """Return what was intended, not sent, and unknown to the broker's memory."""
        return doubtful(
            pending, known, self._address if self._target.gateway else None, self._now_us()
        )

    def _staged(self, pending: DataFrame) -> Iterator[DataFrame]:
        """Yield what is to be sent, in portions, in order.

        All of it is checked first: nothing is sent if anything is wrong.
        """
        wanted = pending.select("key", "target", "place", sql.col("digest").alias("planned"))
        rows = candidates(_messages(self._spark, self._request)).join(wanted, "key")
        now_ms = self._now_us() // 1000
        made = sends(rows, _PASSED, self._target.gateway, now_ms, self._request.new_ids)
        # An archive may hold one by this name that is not what was approved, beside the one that
        # is.
        made = made.where("digest = planned").dropDuplicates(["key"])
        made = made.withColumn(
            "portion", sql.floor((sql.col("place") - 1) / self._portion).cast("int")
        )
        stage = self._stage / "messages"
        made.repartition("portion").sortWithinPartitions("portion", "place").write.mode(
            "overwrite"
        ).partitionBy("portion").parquet(written(stage))
        whole = self._spark.read.schema(made.schema).parquet(read(stage))
        amiss = pending.join(whole.select("key"), "key", "left_anti").orderBy("place")
        first = [row[0] for row in amiss.select("message_id").limit(_SHOWN).collect()]
        if first:
            raise PipelineError(
                f"{_messages_of(amiss.count())} that the plan names are gone, or not what they were: {', '.join(first)}; nothing was sent: make a new plan"
            )
        schema = made.drop("portion").schema
        for row in whole.select("portion").distinct().orderBy("portion").collect():
            part = self._spark.read.schema(schema).parquet(read(stage / f"portion={row[0]}"))
            yield part.coalesce(1).sortWithinPartitions("place")

    def _send(self, part: DataFrame, remove: bool) -> tuple[int, int]:
        """Send one portion. :returns: how many were sent, how many dead removed."""
        names = part.select(
            "key", "twin", "message_id", "queue", "target", sql.unix_millis("time").alias("died")
        ).collect()
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
            options |= {
                "ratePerSecond": f"{self._rate:.3f}",
                "batchSize": str(max(1, min(1000, math.floor(self._rate)))),
            }
        if self._target.gateway:
            options["idColumn"] = "id"
            name = sql.concat(sql.lit(f"replay-{self._ledger.id}/"), "key").alias("id")
            frame = part.select(
                sql.col("target").alias("destination"), sql.col("body").alias("envelope"), name
            )
        else:
            expires = sql.when(sql.col("expires_ms") > 0, sql.timestamp_millis("expires_ms")).alias(
                "expires"
            )
            same = (
                "body",
                "body_type",
                "headers",
                "persistent",
                "priority",
                "type",
                "correlation_id",
                "reply_to",
            )
            frame = part.select(sql.col("target").alias("destination"), *same, expires)
        register(self._spark)
        frame.write.format("stomp").mode("append").options(**options).save()

    def _record(self, state: State, names: list[Row]) -> None:
        records = [{**row.asDict(), "target": f"{row.target} at {self._address}"} for row in names]
        self._ledger.append(state, self._now_us(), self._plan.digest, records)

    def _remove(self, names: list[Row]) -> int:
        """Take a portion's dead messages from their queue.

        :returns: how many were there.
        """
        options = parse({**self._request.source, "destination": names[0].queue}, Use.BROWSE)
        rows = self._spark.createDataFrame(
            [(row.message_id, row.died or 0) for row in names], DEAD
        ).coalesce(1)
        gone = {
            (row.message_id, row.died)
            for row in rows.mapInArrow(removing(options, names[0].queue), DEAD).collect()
        }
        taken = [row for row in names if (row.message_id, row.died or 0) in gone]
        self._record(State.REMOVED, taken)
        self._reached("removed")
        return len(taken)

    def _remove_rest(self, rows: DataFrame) -> int:
        """Remove what an earlier run of this plan sent but did not remove.

        :param rows: of the plan.
        """
        of_plan = sql.col("plan") == self._plan.digest
        sent = (
            records(self._spark, self._ledger.path, State.SENT)
            .where(of_plan)
            .select("key")
            .distinct()
        )
        gone = records(self._spark, self._ledger.path, State.REMOVED).select("key")
        left = rows.join(sent, "key", "left_semi").join(gone, "key", "left_anti")
        removed, portion = 0, []
        for row in left.toLocalIterator():
            portion.append(row)
            if len(portion) == self._portion:
                removed, portion = removed + self._remove(portion), []
        return removed + (self._remove(portion) if portion else 0)


def _messages_of(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def plan_rows(rows: DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a plan, in the order of sending, one by one.

    :param rows: those of :func:`looked_at` that are to be sent.
    """
    # The gateway's ids end with a number that rises, so a longer one is a later one.
    ordered = rows.orderBy("timestamp", sql.length("message_id"), "message_id", "key")
    columns = ordered.select(
        "key",
        "twin",
        "message_id",
        "queue",
        "target",
        "digest",
        "size",
        sql.unix_millis("time").alias("died"),
    )
    for place, row in enumerate(columns.toLocalIterator(), 1):
        yield {"place": place, **row.asDict()}
