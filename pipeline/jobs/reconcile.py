"""``reconcile``: proves that what links received and sent agree.

Owns what is enough for that, what is read, and what is shown. What *lost*, *doubled* and the other
words mean is :mod:`pipeline.transforms.reconcile`'s.

The answer is no (exit code 1) if any message is lost, doubled, reordered by the link, altered, late
or in doubt, or if lines of the journal are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import click
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from gateway.messaging.digest import digest_of_body
from gateway.messaging.envelope import EnvelopeError, decode
from gateway.messaging.message import BodyType
from pipeline.charts import LATE, LINKED, MESSAGES, links, traffic
from pipeline.connection import Connection, connection_options
from pipeline.cube import counting, cube
from pipeline.errors import PipelineError
from pipeline.output import Output, output_options, progress, top
from pipeline.session import SessionOptions, session_options, spark_session
from pipeline.statement import Source, key_of, sign, source_of
from pipeline.summary import Chart, Summary, Table
from pipeline.tables.events import read_events, unended_runs
from pipeline.transforms.reconcile import (
    Outcome,
    Reordered,
    compared,
    counts,
    gaps,
    messages,
    transfers,
)

#: What a window is read with before and after it, for transfers that begin in it and end behind it,
#: and for those that came before of the same messages.
MARGIN: Final = "1 day"
_SHOWN: Final = 10
_BRIEF: Final = (
    "link",
    "id",
    "source",
    "target",
    "outcome",
    "received",
    "arrived",
    "transfers",
    "arrivals",
)
#: Bodies that a target gives in no other form than the link sent them.
_PLAIN: Final = (BodyType.TEXT, BodyType.BYTES, BodyType.MESSAGE)


@dataclass(frozen=True)
class Wanted:
    """What is to be proved.

    :param links: as BRIDGE/LINK; none: all.
    :param since: a time in UTC, as text; and
    :param until: likewise.
    :param late: seconds that a message may take; None: any time.
    :param duplicates_ok: whether a message may arrive more than once.
    :param browse: the broker whose queues are looked at, too; None: none is.
    """

    links: Sequence[str] = ()
    since: str | None = None
    until: str | None = None
    late: float | None = None
    duplicates_ok: bool = False
    browse: Connection | None = None


def run(
    spark: SparkSession, paths: Sequence[str], output: Output, wanted: Wanted
) -> tuple[bool, Summary]:
    """Judge each message of the window, write the results, and summarise.

    Written are ``messages``, a row for each, ``links``, a row for each link, and with a target
    ``target``, a row for each message that should lie there.

    :param paths: a table of ingest, or folders of a journal.
    :returns: whether all agrees.
    :raises PipelineError: there is nothing to read, or nothing of what was asked for.
    """
    since, until = (
        _around(spark, "--since", wanted.since, -1),
        _around(spark, "--until", wanted.until, 1),
    )
    events = read_events(spark, paths, (), since, until)
    frame = events.frame.where(sql.col("link").isNotNull())
    if wanted.links:
        frame = frame.where(sql.col("link").isin(list(wanted.links)))
    found = transfers(frame).persist(StorageLevel.MEMORY_AND_DISK)
    judged = messages(found, events.seen, wanted.since, wanted.until, wanted.late).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    try:
        by_link = counts(judged).collect()
        _check_links(wanted, paths, by_link)
        unended = unended_runs(spark, paths)
        missing = gaps(found, events.seen, also=unended).collect()
        if missing and (since or until):
            missing = gaps(found, events.seen, events.frame).collect()
        output.write(judged, "messages")
        output.write(counts(judged), "links")
        lying = [] if wanted.browse is None else _at_target(spark, judged, wanted.browse, output)
        agrees, summary = _summary(judged, by_link, missing, lying, wanted)
        if unended:
            summary = _with_unended(summary, unended)
        if output.report is not None:
            summary = replace(summary, tables=[*_drawn(judged), *summary.tables])
        return agrees, summary
    finally:
        judged.unpersist()
        found.unpersist()


def wrong(wanted: Wanted) -> dict[str, Column]:
    """What a message may have that makes the answer no, each by its name."""
    found = {
        "lost": sql.col("outcome") == Outcome.LOST.value,
        "in doubt": sql.col("outcome") == Outcome.IN_DOUBT.value,
        "doubled": sql.col("doubled"),
        "reordered": sql.col("reordered") == Reordered.LINK.value,
        "altered": sql.col("altered"),
        "late": sql.col("late"),
    }
    if wanted.duplicates_ok:
        del found["doubled"]
    return found


def hashed(lying: DataFrame) -> DataFrame:
    """Add ``body_hashes``, the hashes that each body may have.

    A broker may give bytes as text over STOMP, and the other way round.

    Null where the broker gives the body in another form than the link sent it. Spark has no
    BLAKE2b.

    :param lying: of :data:`pipeline.columns.MESSAGES`.
    """

    def body_hashes(
        kind: str | None, body: bytes | None, envelope: bytes | None
    ) -> list[str] | None:
        if envelope is not None:
            try:
                whole = decode(bytes(envelope))
            except EnvelopeError:
                return None
            return [digest_of_body(whole.headers.body_type, whole.body)]
        if kind not in [plain.name for plain in _PLAIN]:
            return None
        return [digest_of_body(plain, bytes(body or b"")) for plain in _PLAIN]

    of_body = sql.udf(body_hashes, "array<string>", useArrow=False)
    return lying.withColumn("body_hashes", of_body("body_type", "body", "envelope"))


@click.command("reconcile")
@click.argument("paths", nargs=-1, required=True, metavar="EVENTS...")
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="BRIDGE/LINK",
    help="Only this link. May be repeated. [default: all]",
)
@click.option("--since", metavar="TIME", help="Only transfers that begin not before; UTC.")
@click.option("--until", metavar="TIME", help="Only transfers that begin before; UTC.")
@click.option(
    "--late",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="A message that takes longer is late. [default: none is]",
)
@click.option(
    "--duplicates-ok",
    is_flag=True,
    help="A message may arrive more than once, as some links' quality of service has it.",
)
@click.option(
    "--browse-target",
    is_flag=True,
    help="Look at what lies in the target's queues, too. Nothing is taken from there.",
)
@connection_options("target", "target-", "The target")
@click.option(
    "--signed",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="KEY FILE",
    help="Write what was proved to FILE, and a signature by the Ed25519 key of the PEM file KEY to FILE.sig.",
)
@output_options
@session_options
def command(
    paths: tuple[str, ...],
    links: tuple[str, ...],
    since: str | None,
    until: str | None,
    late: float | None,
    duplicates_ok: bool,
    browse_target: bool,
    target: Connection,
    signed: tuple[Path, Path] | None,
    output: Output,
    session: SessionOptions,
) -> int:
    """Prove that what a link received and what it sent agree.

    Nothing is lost, doubled, reordered, altered or late.

    EVENTS is the folder that ingest has written, or folders of a journal as they are. The exit code
    is 1 if it cannot be proved.
    """
    if target.options and not browse_target:
        raise PipelineError(
            "--target-... says where the target is, which is looked at only with --browse-target"
        )
    if browse_target:
        target.check()
    wanted = Wanted(links, since, until, late, duplicates_ok, target if browse_target else None)
    key = None if signed is None else key_of(signed[0])
    sources = [source_of(path) for path in paths] if signed is not None else []
    with spark_session("gateway-pipeline reconcile", session, paths) as spark:
        with progress(spark, "Reconciling"):
            agrees, summary = run(spark, paths, output, wanted)
        if signed is not None and key is not None:
            agrees, summary = _with_sources(agrees, summary, sources)
            asked = asdict(replace(wanted, browse=None))
            del asked["browse"]
            sign(key, signed[1], asked, sources, agrees, summary)
        output.finish(summary)
    return 0 if agrees else 1


def _with_sources(
    agrees: bool, summary: Summary, sources: Sequence[Source]
) -> tuple[bool, Summary]:
    """Add what the chains of journals show.

    Where one does not hold, the answer is no.
    """
    problems = [(source.path, problem) for source in sources for problem in source.problems]
    facts = {**summary.facts, "journal segments not as they were chained": len(problems)}
    if not problems:
        return agrees, replace(summary, facts=facts)
    facts["verdict"] = "segments of the journal are not as they were chained, so nothing is proved"
    table = Table("Segments that are not as they were chained", ("journal", "problem"), problems)
    return False, replace(summary, facts=facts, tables=[*summary.tables, table])


# --- what is read


def _around(spark: SparkSession, option: str, text: str | None, sign: int) -> str | None:
    """The time with its margin, as text."""
    if text is None:
        return None
    margin = sql.expr(f"interval {MARGIN}")
    time = sql.try_to_timestamp(sql.lit(text))
    row = (
        spark.range(1).select((time - margin if sign < 0 else time + margin).cast("string")).first()
    )
    if row is None or row[0] is None:
        raise PipelineError(
            f"{option} {text}: expected a time in UTC such as 2026-03-01 or 2026-03-01T14:30:00"
        )
    return str(row[0])


def _check_links(wanted: Wanted, paths: Sequence[str], by_link: Sequence[Row]) -> None:
    known = {row.link for row in by_link}
    unknown = [link for link in wanted.links if link not in known]
    if unknown or not known:
        what = f"link {', '.join(unknown)}" if unknown else "any link"
        raise PipelineError(
            f"there is nothing in {', '.join(paths)} of {what} in that time: expected a link as BRIDGE/LINK, and a journal of level links or all"
        )


def _at_target(
    spark: SparkSession, judged: DataFrame, connection: Connection, output: Output
) -> list[Table]:
    """A table of what lies in each of the target's destinations."""
    from pipeline.datasource.source import register

    register(spark)
    destinations = [
        row.target
        for row in judged.where("target is not null")
        .select("target")
        .distinct()
        .orderBy("target")
        .collect()
    ]
    tables, wrote = [], None
    for destination in destinations:
        if not destination.startswith("queue:"):
            raise PipelineError(
                f"--browse-target: {destination} cannot be browsed: only queues keep messages that no consumer has taken"
            )
        options = {**connection.options, "destination": destination, "browse": "true"}
        there = hashed(spark.read.format("stomp").options(**options).load()).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        lies = compared(judged, there, destination)
        wrote = lies if wrote is None else wrote.unionByName(lies)
        shown = lies.groupBy("outcome", "known_by").agg(
            sql.count("*").alias("messages"),
            sql.count_if(sql.col("lies") > 1).alias("more than once"),
            sql.count_if("altered_there").alias("altered there"),
        )
        rows = shown.orderBy("outcome", "known_by").collect()
        total = there.count()
        tables.append(
            Table(
                f"In {destination} at {connection.address}: {total} messages",
                ("outcome", "lies there, known by", "messages", "more than once", "altered there"),
                [
                    (row.outcome, row.known_by or "not there, or not to be told", *tuple(row)[2:])
                    for row in rows
                ],
            )
        )
    if wrote is not None:
        output.write(wrote, "target")
    return tables


# --- what is shown


def _summary(
    judged: DataFrame,
    by_link: Sequence[Row],
    missing: Sequence[Row],
    lying: Sequence[Table],
    wanted: Wanted,
) -> tuple[bool, Summary]:
    questions = wrong(wanted)
    totals = {name: sum(row[name.replace(" ", "_")] for row in by_link) for name in questions}
    lines = sum(row.missing for row in missing)
    agrees = not lines and not any(totals.values())
    verdict = "agree" if agrees else "do not agree, or it cannot be proved"
    facts: dict[str, object] = {
        "verdict": f"what was received and what was sent {verdict}",
        "messages": sum(row.messages for row in by_link),
        "transfers": sum(row.transfers for row in by_link),
        **totals,
    }
    if wanted.duplicates_ok:
        facts["doubled, as they may be"] = sum(row.doubled for row in by_link)
    facts["journal lines missing"] = lines
    said = Chart("bar", "finding", ("messages",))
    tables = [
        Table(
            "What does not agree",
            ("finding", "messages"),
            list(totals.items()),
            chart=said,
            long=True,
        ),
        _links(by_link),
    ]
    for name, where in questions.items():
        if totals[name]:
            columns = (*_BRIEF, *_MORE.get(name, ()))
            tables.append(
                top(
                    judged.where(where).select(*columns).orderBy("received", "id"),
                    _SHOWN,
                    name.capitalize(),
                )
            )
    if lines:
        tables.append(
            Table(
                "Missing lines of the journal",
                ("run", "missing"),
                [(row.run, row.missing) for row in missing],
            )
        )
    return agrees, Summary("Reconciliation of links", facts, [*tables, *lying])


def _with_unended(summary: Summary, runs: Sequence[str]) -> Summary:
    """Add the runs that did not end in order.

    What is known to be missing of them is among the missing lines.
    """
    table = Table(
        "Runs that did not end in order: lines of their last moment may be missing",
        ("run",),
        [(run,) for run in runs],
    )
    facts = {**summary.facts, "runs that did not end in order": len(runs)}
    return replace(summary, facts=facts, tables=[*summary.tables, table])


_MORE: Final = {
    "in doubt": ("doubt",),
    "doubled": ("transacted",),
    "altered": ("changed",),
    "late": ("seconds",),
}


def _drawn(judged: DataFrame) -> list[Table]:
    """Return what only a report shows: a map of links, and traffic."""
    seconds = sql.unix_micros("arrived") - sql.unix_micros("received")
    found = cube(
        judged,
        "received",
        ("source", "link", "target", "outcome"),
        {
            MESSAGES: counting(sql.lit(True), seconds / 1000),
            LINKED: counting(sql.lit(True)),
            LATE: counting(sql.col("late")),
        },
        few=("outcome",),
    )
    if found is None:
        return []
    outcomes = [
        one.value for one in (Outcome.ARRIVED, Outcome.LOST, Outcome.IN_DOUBT, Outcome.BURIED)
    ]
    one = {"messages": sql.lit(1)}
    return [
        *links(judged, "source", sql.col("late"), outcomes, found),
        *traffic(
            judged, "received", one, "Messages", "outcome", cube=found, also=("link", "target")
        ),
    ]


def _links(by_link: Sequence[Row]) -> Table:
    columns = (
        *(
            "messages",
            "arrived",
            "buried",
            "expired",
            "not_transferred",
            "given_back",
            "lost",
            "in_doubt",
            "doubled",
        ),
        *(
            "possibly_doubled",
            "repeated",
            "reordered",
            "reordered_by_redelivery",
            "altered",
            "transformed",
            "late",
            "redelivered",
        ),
    )
    rows = [
        (row.link, name.replace("_", " "), row[name])
        for row in by_link
        for name in columns
        if name == "messages" or row[name]
    ]
    return Table(
        "Links",
        ("link", "what", "messages"),
        rows,
        "",
        Chart("bar", "what", ("messages",), by="link"),
    )


__all__ = ["Wanted", "command", "hashed", "run", "wrong"]
