"""Which messages are sent again, where to, and as what.

Owns the choice among dead or archived messages, the name of each that outlives a crash, and the
conversion to what is sent. Reads and writes nothing; what a single message becomes is
:mod:`pipeline.originals`'.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from gateway.messaging.envelope import EnvelopeError, encode
from gateway.messaging.message import Message
from pipeline.errors import PipelineError
from pipeline.originals import NotRestorable, Row, enveloped, original_of, spelled_out
from pipeline.transforms.dead_letters import described

_PASSED_TO_PLAN: Final = (
    "key",
    "twin",
    "message_id",
    "original_id",
    "time",
    "timestamp",
    "queue",
    "destination",
    "reason",
    "link",
    "target",
    "nowhere",
)
_PLANNED: Final = "body_type string, size bigint, digest string, cannot string, lost array<string>"
_PLANNED_ARROW: Final = pa.schema(
    [
        ("body_type", pa.string()),
        ("size", pa.int64()),
        ("digest", pa.string()),
        ("cannot", pa.string()),
        ("lost", pa.list_(pa.string())),
    ]
)
_SENT: Final = """
    digest string, body binary, body_type string, headers map<string,string>, persistent boolean, priority int, expires_ms bigint, type string,
    correlation_id string, reply_to string
"""
_SENT_ARROW: Final = pa.schema(
    [
        ("digest", pa.string()),
        ("body", pa.binary()),
        ("body_type", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("persistent", pa.bool_()),
        ("priority", pa.int32()),
        ("expires_ms", pa.int64()),
        ("type", pa.string()),
        ("correlation_id", pa.string()),
        ("reply_to", pa.string()),
    ]
)
#: What restoring a message needs of its row.
_NEEDED: Final = (
    *(
        "message_id",
        "body",
        "body_type",
        "priority",
        "persistent",
        "type",
        "correlation_id",
        "reply_to",
        "headers",
        "envelope",
    ),
    "destination",
)
#: Octets of what is given to Spark at once, where messages are large.
_AT_ONCE: Final = 16 << 20
_LONGEST_KEY: Final = 900


def candidates(messages: DataFrame) -> DataFrame:
    """Return the messages to choose from, with their deaths and ``key``.

    :param messages: rows of :data:`pipeline.columns.MESSAGES`, of a dead message queue, an archive
        or any queue.
    :returns: the columns of :func:`pipeline.transforms.dead_letters.described`, ``key``, and
        ``twin``, which is the same for two dead messages that may tell of one death.
    """
    rows = described(messages)
    died = sql.col("reason").isNotNull() | sql.col("time").isNotNull()
    # A dead message that died again has the id it had; the moment tells the two apart.
    named = sql.when(
        died,
        sql.concat_ws(
            "/", "message_id", sql.coalesce(sql.unix_millis("time"), sql.lit(0)).cast("string")
        ),
    )
    key = named.otherwise(sql.concat_ws("/", "queue", "message_id"))
    rows = rows.withColumn(
        "key", sql.when(sql.octet_length(key) <= _LONGEST_KEY, key).otherwise(sql.sha2(key, 256))
    )
    twin = sql.when(died, sql.to_json(sql.struct("original_id", "destination", "link")))
    return rows.withColumn("twin", twin.otherwise(sql.col("key")))


def choose(rows: DataFrame, where: str | None) -> DataFrame:
    """Return the rows that an SQL predicate wants.

    :raises PipelineError: it is no predicate, or names an unknown column.
    """
    if not where:
        return rows
    # Readers of the line below do not need Spark's own account of it, which is a page long.
    log = logging.getLogger("DataFrameQueryContextLogger")
    quiet, log.disabled = log.disabled, True
    try:
        return rows.where(sql.expr(where))
    except ParseException as error:
        raise PipelineError(f"--where: no SQL predicate: {_first_line(error)}") from None
    except AnalysisException as error:
        unknown = (error.getMessageParameters() or {}).get("objectName")
        if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN") and unknown:
            columns = ", ".join([name for name in rows.columns if name not in ("key", "twin")])
            raise PipelineError(
                f"--where: there is no column {unknown}; there are {columns}"
            ) from None
        raise PipelineError(f"--where: {_first_line(error)}") from None
    finally:
        log.disabled = quiet


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", text).partition(" SQLSTATE:")[0]


def directed(
    rows: DataFrame, to: str | None, to_gateway: bool, lies: str | None = None
) -> DataFrame:
    """Add ``target``, and ``nowhere``, why a row has no target.

    :param lies: the queue that they are in now, at the broker that they are sent to, so that
        nothing is sent there; else None.
    :param to: ``queue:NAME`` or ``topic:NAME``; None is where each was first.
    :param to_gateway: it goes to the broker of a gateway; else to another one.
    """
    if to is not None:
        back = "it is there already" if to == lies else None
        return rows.withColumns({"target": sql.lit(to), "nowhere": sql.lit(back).cast("string")})
    of_a_link, here = sql.col("link").isNotNull(), sql.col("resource").isNotNull()
    name = "name a destination by --to"
    nowhere: Column = sql.when(
        of_a_link & ~here & sql.lit(to_gateway),
        sql.concat(sql.lit("it came from "), _source(), sql.lit(f": {name}")),
    )
    nowhere = nowhere.when(
        of_a_link & here & sql.lit(not to_gateway),
        sql.lit(f"it came from the gateway's own broker: {name}"),
    )
    nowhere = nowhere.when(
        ~sql.col("destination").rlike("^(queue|topic):."),
        sql.lit(f"it came from a temporary destination: {name}"),
    )
    stays = sql.col("destination").eqNullSafe(sql.col("queue")) & (
        sql.col("reason").isNotNull() | sql.lit(lies is not None)
    )
    nowhere = nowhere.when(stays, sql.lit(f"it does not say where it was: {name}"))
    return rows.withColumns({"target": sql.col("destination"), "nowhere": nowhere})


def _source() -> Column:
    return sql.coalesce(
        sql.concat(sql.lit("another provider, "), sql.col("source")), sql.lit("another provider")
    )


def planned(rows: DataFrame, to_gateway: bool) -> DataFrame:
    """What would be sent, without the bodies.

    :param rows: as :func:`directed` gives them.
    :returns: ``key``, which names the message's death, or its place in an archive, for ever;
        ``twin``, ``message_id``, ``original_id``, ``time``, ``timestamp``, ``queue``,
        ``destination``, ``reason``, ``link``, ``target``; of the original ``body_type``, ``size``
        and ``digest``, that of the whole of it; ``problem``, why it cannot be sent, else null;
        ``lost``, what the target cannot be given of it.
    """
    looked = _through(rows, _PASSED_TO_PLAN, _PLANNED_ARROW, _PLANNED, _looking(to_gateway))
    return looked.withColumn("problem", sql.coalesce("nowhere", "cannot")).drop("nowhere", "cannot")


def sends(
    rows: DataFrame, passed: tuple[str, ...], to_gateway: bool, now_ms: int, new_ids: bool
) -> DataFrame:
    """Return what is sent: ``passed``, ``digest`` and the columns to write.

    The data source writes them, except ``expires_ms``, epoch milliseconds, 0 for never.

    What cannot be restored has nulls only.

    :param rows: as :func:`candidates` gives them.
    :param now_ms: epoch milliseconds; what has expired by then is sent to live for ever.
    :param new_ids: have the gateway's broker give new ids and timestamps.
    """
    return _through(rows, passed, _SENT_ARROW, _SENT, _sending(to_gateway, now_ms, new_ids))


def replayed(rows: DataFrame, sent: DataFrame) -> DataFrame:
    """Add ``replayed``, when the message was sent again, else null.

    :param rows: as :func:`candidates` gives them.
    :param sent: ``key`` and ``twin`` of each that was, ``begun``, before it was sent for the first
        time, and ``at``, after it; timestamps.
    """
    by_key = sent.groupBy("key").agg(sql.max("at").alias("_at"))
    # A link that was cut off may have buried a message twice, and that was before. What died after
    # it was begun to be sent again has died anew.
    by_twin = sent.groupBy("twin").agg(
        sql.max("begun").alias("_begun"), sql.max("at").alias("_twin_at")
    )
    before = sql.when(sql.col("time") <= sql.col("_begun"), sql.col("_twin_at"))
    joined = rows.join(by_key, "key", "left").join(by_twin, "twin", "left")
    return joined.withColumn("replayed", sql.coalesce("_at", before)).drop(
        "_at", "_begun", "_twin_at"
    )


def once(rows: DataFrame) -> DataFrame:
    """Of rows that tell of one death, the first."""
    same = Window.partitionBy("twin").orderBy("time", "key", "queue")
    return (
        rows.withColumn("_twins", sql.row_number().over(same))
        .where(sql.col("_twins") == 1)
        .drop("_twins")
    )


def with_status(rows: DataFrame) -> DataFrame:
    """Add ``status``, what would become of each row.

    ``to be sent``, ``replayed before``, ``cannot be sent``, or ``told of twice``.

    :param rows: with ``problem``, ``replayed`` and the columns that :func:`once` looks at.
    """
    wanted = sql.col("problem").isNull() & sql.col("replayed").isNull()
    first = (
        sql.row_number().over(Window.partitionBy("twin", wanted).orderBy("time", "key", "queue"))
        == 1
    )
    status = sql.when(sql.col("replayed").isNotNull(), "replayed before").when(
        sql.col("problem").isNotNull(), "cannot be sent"
    )
    return rows.withColumn("status", status.when(first, "to be sent").otherwise("told of twice"))


def outcomes(rows: DataFrame, sent: DataFrame, began: datetime) -> DataFrame:
    """Return what became of a plan's messages.

    Columns ``place``, ``message_id``, ``queue``, ``target``, ``size``, ``died``, ``sent``, when
    that was, and ``status``: ``sent``, ``sent before`` or ``not sent``.

    :param rows: of :data:`pipeline.replay.plan.ROWS`, with ``time``, when each died.
    :param sent: as for :func:`replayed`.
    :param began: this run.
    """
    at = sql.col("replayed")
    status = (
        sql.when(at.isNull(), "not sent").when(at < sql.lit(began), "sent before").otherwise("sent")
    )
    columns = ("place", "message_id", "queue", "target", "size")
    return replayed(rows, sent).select(
        *columns, sql.col("time").alias("died"), at.alias("sent"), status.alias("status")
    )


Batches = Iterator[pa.RecordBatch]
# An envelope is a binary format of ours, which Spark SQL has no function for, so this is Python.
# Arrow takes whole batches to it and back, and what is only passed through is never looked at.


def _through(
    rows: DataFrame,
    passed: tuple[str, ...],
    added: pa.Schema,
    ddl: str,
    convert: Callable[[Row], dict[str, Any]],
) -> DataFrame:
    """Return the columns ``passed`` and those that ``convert`` makes."""
    needed = [sql.col(name).alias(f"_{name}") for name in _NEEDED]
    needed += [sql.unix_millis(name).alias(f"_{name}") for name in ("timestamp", "expires")]
    schema = StructType(
        [*[rows.schema[name] for name in passed], *cast(StructType, StructType.fromDDL(ddl)).fields]
    )

    def work(batches: Batches) -> Batches:
        for batch in batches:
            made: list[dict[str, Any]] = []
            start = octets = 0
            for at, row in enumerate(
                batch.select(
                    [f"_{name}" for name in (*_NEEDED, "timestamp", "expires")]
                ).to_pylist()
            ):
                made.append(convert({name[1:]: value for name, value in row.items()}))
                octets += len(made[-1].get("body") or b"")
                if octets >= _AT_ONCE or at + 1 == batch.num_rows:
                    new = pa.RecordBatch.from_pylist(made, schema=added)
                    old = batch.slice(start, len(made)).select(list(passed))
                    yield pa.RecordBatch.from_arrays(
                        [*old.columns, *new.columns], names=[*old.schema.names, *new.schema.names]
                    )
                    start, octets, made = at + 1, 0, []

    return rows.select(*passed, *needed).mapInArrow(work, schema)


def _looking(to_gateway: bool) -> Callable[[Row], dict[str, Any]]:
    def look(row: Row) -> dict[str, Any]:
        try:
            original = original_of(row)
            digest = _digest(original)
        except (NotRestorable, EnvelopeError) as error:
            # The latter of what another broker has, such as an id of a hundred thousand characters.
            return {
                "body_type": row["body_type"],
                "size": len(row["body"] or b""),
                "cannot": str(error),
            }
        headers = original.headers
        found: dict[str, Any] = {
            "body_type": headers.body_type.name,
            "size": len(original.body),
            "digest": digest,
        }
        if to_gateway:
            return found
        try:
            return {**found, "lost": list(spelled_out(original, 0).lost)}
        except NotRestorable as error:
            return {**found, "cannot": str(error)}

    return look


def _sending(to_gateway: bool, now_ms: int, new_ids: bool) -> Callable[[Row], dict[str, Any]]:
    def send(row: Row) -> dict[str, Any]:
        try:
            original = original_of(row)
            made = (
                enveloped(original, now_ms, new_ids)
                if to_gateway
                else spelled_out(original, now_ms)
            )
            digest = _digest(original)
        except (NotRestorable, EnvelopeError):
            return {}
        return {
            "digest": digest,
            "body": made.body,
            "body_type": made.body_type,
            "headers": [*made.headers.items()],
            "persistent": made.persistent,
            "priority": made.priority,
            "expires_ms": made.expires,
            "type": made.type,
            "correlation_id": made.correlation_id,
            "reply_to": made.reply_to,
        }

    return send


def _digest(original: Message) -> str:
    return hashlib.sha256(encode(original)).hexdigest()
