"""``gateway-pipeline replay``: sends dead or archived messages once more.

Owns the job's options, which of them go together, and what is shown. By itself the job sends
nothing: it says what it would do. ``--plan`` writes that down, and ``--approve`` does what is
written there. How it is done is :mod:`pipeline.replay.carrying_out`'s.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress

from pipeline.connection import Connection, as_destination, connection_options
from pipeline.errors import PipelineError
from pipeline.output import Output, output_options, progress
from pipeline.replay.ledger import FILE, exists, opened
from pipeline.replay.plan import Plan, read_plan, write_plan
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.summary import Summary, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.replay.carrying_out import Outcome, Request
    from pipeline.replay.target import Target

_SHOWN = 20
_OCTETS = 64 << 20
#: Messages a second.
_SLOWEST = 0.001
_FASTEST = 1_000_000
#: Of a connection, what may be said anew when a plan is carried out: not where it goes.
_ANEW = ("login", "passcodeFile", "passcodeEnv", "caFile", "certFile", "keyFile", "timeoutSeconds")


@click.command(
    "replay",
    help="Send dead or archived messages again, each once. Says what it would do; --plan writes it down, and --approve does it.",
)
@click.option(
    "--queue",
    metavar="NAME",
    help="Messages of this dead message queue, as imq.bridge.jms.dmq; it is browsed.",
)
@click.option(
    "--archive", metavar="DIR", help="Messages of this folder, which the job archive has written."
)
@click.option(
    "--where",
    metavar="SQL",
    help="""Only those, as "reason = 'TRANSFORM_FAILURE' and destination like '%orders%'".""",
)
@click.option(
    "--to", metavar="DESTINATION", help="queue:NAME or topic:NAME. [default: where each was first]"
)
@click.option(
    "--new-ids", is_flag=True, help="Let the gateway give new message ids and timestamps."
)
@click.option(
    "--strict", is_flag=True, help="Refuse if any message cannot be sent, or not as it was."
)
@click.option(
    "--plan",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write down which messages would go where.",
)
@click.option(
    "--approve",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Carry out this plan, exactly.",
)
@click.option(
    "--ledger",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="What was replayed is kept there. [default: replay, beside --journal]",
)
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The gateway's journal, for the place of the ledger.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Messages a second, at most.",
)
@click.option(
    "--remove", is_flag=True, help="Take each dead message from its queue once it was sent."
)
@click.option(
    "--in-doubt",
    type=click.Choice(("send", "skip")),
    help="Messages that an interrupted replay may have sent, to a broker that would not drop a second one.",
)
@click.option(
    "--portion",
    type=click.IntRange(1, 10_000),
    default=5_000,
    show_default=True,
    metavar="N",
    help="Messages between two records in the ledger.",
)
@connection_options()
@connection_options("target", "target-", "Another target")
@output_options
@session_options
def command(session: SessionOptions, **given: Any) -> None:
    """The click command."""
    check(given)
    # A plan says where by itself.
    if given["queue"] is not None:
        given["connection"].check()
    if given["target"].options and given["approve"] is None:
        given["target"].check()
    there = [given["archive"]] if given["archive"] else []
    with spark_session("replay", session, there) as spark:
        run(spark, **given)


def check(given: Mapping[str, Any]) -> None:
    """Whether the options go together. :raises PipelineError: they do not."""
    sources = [name for name in ("queue", "archive") if given[name] is not None]
    if given["where"] is not None and not given["where"].strip():
        raise PipelineError(
            "--where is empty: expected an SQL predicate, or no --where, by which all are chosen"
        )
    if given["rate"] is not None and not _SLOWEST <= given["rate"] <= _FASTEST:
        raise PipelineError(
            f"--rate {given['rate']:g}: expected {_SLOWEST:g} to {_FASTEST:,} messages a second"
        )
    if given["approve"] is not None:
        of_plan = [
            name
            for name in ("queue", "archive", "where", "to", "new_ids", "strict", "plan")
            if given[name]
        ]
        of_plan += [f"target-{name}" for name in given["target"].options if name not in _ANEW]
        of_plan += [name for name in given["connection"].options if name not in _ANEW]
        if of_plan:
            raise PipelineError(
                f"--approve carries out the plan as it is: --{of_plan[0].replace('_', '-')} belongs to making one"
            )
    elif len(sources) != 1:
        raise PipelineError(
            "expected --queue with the name of a dead message queue, or --archive with a folder, or --approve with a plan"
        )
    else:
        of_approval = [name for name in ("rate", "remove", "in_doubt") if given[name]]
        if of_approval:
            raise PipelineError(
                f"--{of_approval[0].replace('_', '-')} belongs to --approve: nothing is sent without a plan"
            )
    if _folder(given["ledger"], given["journal"]) is None and (given["approve"] or given["plan"]):
        raise PipelineError(
            "expected --ledger with the folder of the ledger, or --journal with that of the gateway's journal: without one messages could be sent twice"
        )


def run(
    spark: SparkSession,
    *,
    queue: str | None = None,
    archive: str | None = None,
    where: str | None = None,
    to: str | None = None,
    new_ids: bool = False,
    strict: bool = False,
    plan: Path | None = None,
    approve: Path | None = None,
    ledger: Path | None = None,
    journal: Path | None = None,
    rate: float | None = None,
    remove: bool = False,
    in_doubt: str | None = None,
    portion: int = 5_000,
    connection: Connection,
    target: Connection,
    output: Output,
) -> Outcome | None:
    """Show and plan what would be replayed, or carry out a plan.

    The parameters are those of the command.

    :returns: what was done; None where nothing was to be.
    :raises PipelineError: it cannot be done; the text says why.
    """
    from pipeline.replay.carrying_out import Request
    from pipeline.tables.storage import Location

    # Whole messages go to Python and back, as many at once as fit.
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _OCTETS)
    folder = _folder(ledger, journal)
    if approve is not None:
        assert folder is not None
        return _carry_out(
            spark,
            read_plan(approve),
            folder,
            connection,
            target,
            output,
            rate=rate,
            remove=remove,
            in_doubt=in_doubt,
            portion=portion,
        )
    request = Request(
        None if queue is None else as_destination(queue),
        None if archive is None else Location(spark, archive).uri,
        where,
        None if to is None else as_destination(to),
        new_ids,
        connection.options,
        target.options or connection.options,
    )
    _look(spark, request, folder, plan, strict, output)
    return None


def _look(
    spark: SparkSession,
    request: Request,
    folder: Path | None,
    plan: Path | None,
    strict: bool,
    output: Output,
) -> None:
    from pyspark import StorageLevel

    from pipeline.drawn_replays import looked
    from pipeline.replay.carrying_out import looked_at, plan_rows
    from pipeline.replay.target import look_at
    from pipeline.transforms.replay import once

    target = look_at(request.target)
    path = folder / FILE if folder is not None and exists(folder) else None
    rows = looked_at(spark, request, target, path).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with progress(spark, "looking at messages"):
            wanted = once(rows.where("problem is null and replayed is null"))
            summary, refused = _summary(rows, wanted, request, target, folder)
            if output.report is not None and summary.tables:
                summary = replace(summary, tables=[*looked(rows), *summary.tables])
            if strict and refused:
                raise PipelineError(f"--strict: {refused}")
            output.write(rows)
            if plan is not None:
                written = write_plan(
                    plan,
                    asdict(request),
                    datetime.now(UTC).isoformat(timespec="seconds"),
                    plan_rows(wanted),
                )
                summary = replace(
                    summary, facts={**summary.facts, "plan": f"{plan} ({written.digest[:16]})"}
                )
            else:
                summary = replace(
                    summary,
                    facts={
                        **summary.facts,
                        "sent": "nothing: this is a dry run; --plan FILE writes down what to approve",
                    },
                )
    finally:
        rows.unpersist()
    output.finish(summary)


def _summary(
    rows: DataFrame, wanted: DataFrame, request: Request, target: Target, folder: Path | None
) -> tuple[Summary, str]:
    """What is shown, and why ``--strict`` would refuse it."""
    from pyspark.sql import functions as sql

    source = request.queue or request.archive
    total, before, problems = rows.agg(
        sql.count("*"),
        sql.count("replayed"),
        sql.count_if(sql.expr("problem is not null and replayed is null")),
    ).collect()[0]
    if not total:
        return Summary(
            f"No messages in {source}" + (f" where {request.where}" if request.where else "")
        ), ""
    targets = (
        wanted.groupBy("target", "reason")
        .agg(sql.count("*").alias("messages"), sql.sum("size").alias("octets"))
        .orderBy("target", "reason")
    )
    going = targets.collect()
    sendable = sum(row.messages for row in going)
    facts: dict[str, object] = {
        "chosen": total,
        "to be sent": sendable,
        "replayed before": before if folder is not None else "not known: there is no --ledger",
        "told of twice": total - before - problems - sendable,
        "cannot be sent": problems,
        "target": f"{target.broker}, {_address(request.target)}",
    }
    first = sql.min("message_id").alias("first")
    amiss = (
        rows.where("problem is not null and replayed is null")
        .groupBy("problem")
        .agg(sql.count("*").alias("messages"), first)
    )
    lost = (
        wanted.select(sql.explode("lost").alias("lost"), "message_id")
        .groupBy("lost")
        .agg(sql.count("*").alias("messages"), first)
    )
    shown = wanted.orderBy("timestamp", sql.length("message_id"), "message_id", "key").limit(_SHOWN)
    died = sql.date_format("time", "yyyy-MM-dd HH:mm:ss.SSS").alias("died")
    columns = shown.select(
        sql.col("message_id").alias("message"),
        died,
        "target",
        sql.col("body_type").alias("type"),
        sql.col("size").alias("octets"),
    )
    tables = [
        Table(
            "Where they would go",
            ("target", "reason", "messages", "octets"),
            [tuple(row) for row in going[:_SHOWN]],
            _more(going),
        ),
        _table("Cannot be sent", amiss),
        _table("Cannot be carried to this broker", lost),
        Table(
            "The first messages",
            tuple(columns.columns),
            [tuple(row) for row in columns.collect()],
            f"Of {sendable:,}." if sendable > _SHOWN else "",
        ),
    ]
    refused = f"{problems} of {total} messages cannot be sent" if problems else ""
    if not refused and tables[2].rows:
        refused = f"not everything can be carried: {tables[2].rows[0][0]}"
    return Summary(f"Replay of {source}", facts, tables), refused


def _table(title: str, frame: DataFrame) -> Table:
    rows = frame.orderBy("messages", ascending=False).limit(_SHOWN + 1).collect()
    return Table(title, tuple(frame.columns), [tuple(row) for row in rows[:_SHOWN]], _more(rows))


def _more(rows: list[Any]) -> str:
    return f"The first {_SHOWN}; there are more." if len(rows) > _SHOWN else ""


def _carry_out(
    spark: SparkSession,
    plan: Plan,
    folder: Path,
    connection: Connection,
    target: Connection,
    output: Output,
    *,
    rate: float | None,
    remove: bool,
    in_doubt: str | None,
    portion: int,
) -> Outcome:
    from pipeline.drawn_replays import done as drawn
    from pipeline.replay.carrying_out import Replay, Request
    from pipeline.replay.target import look_at

    request = Request(**plan.request)
    same = request.source == request.target
    request = replace(
        request,
        source=anew(request.source, connection.options),
        target=anew(request.target, target.options or (connection.options if same else {})),
    )
    if remove and request.queue is None:
        raise PipelineError("--remove: the plan is of an archive, and nothing is removed from one")
    found = look_at(request.target)
    tables: list[Table] = []

    def told(rows: DataFrame) -> None:
        output.write(rows)
        if output.report is not None:
            tables.extend(drawn(rows))

    console = Console(stderr=True)
    with (
        opened(folder, secrets.token_hex(4)) as ledger,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("sending", total=plan.messages)
        replay = Replay(spark, plan, request, found, ledger, _now_us, rate=rate, portion=portion)
        done = replay.run(remove, in_doubt, lambda count: bar.advance(task, count), told)
    facts: dict[str, object] = {
        "plan": f"{plan.path} ({plan.digest[:16]})",
        "messages": plan.messages,
        "sent": done.sent,
        "sent before": done.before,
    }
    facts |= {"in doubt, not sent": done.doubtful} if done.doubtful else {}
    facts |= {"removed": done.removed} if remove else {}
    output.finish(Summary("Replayed", {**facts, "ledger": str(folder)}, tables))
    return done


def anew(planned: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the plan's connection options, overridden by those given now.

    A passcode is in one place only.
    """
    kept = dict(planned)
    if "passcodeFile" in given or "passcodeEnv" in given:
        kept.pop("passcodeFile", None)
        kept.pop("passcodeEnv", None)
    return {**kept, **given}


def _now_us() -> int:
    return math.floor(time.time_ns() / 1000)


def _folder(ledger: Path | None, journal: Path | None) -> Path | None:
    return (
        ledger
        if ledger is not None
        else None
        if journal is None
        else journal.absolute().parent / "replay"
    )


def _address(options: Mapping[str, str]) -> str:
    return Connection(dict(options)).address


__all__ = ["command", "run"]
