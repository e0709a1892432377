"""What a link received against what it sent: journals made with a known truth, and the answers
compared with it exactly.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as sql

from pipeline.columns import EVENTS
from tests.pipeline import linked
from tests.pipeline.linked import LATE_US, LinkJournal, Truth, write

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

FLAGS = ("doubled", "possibly_doubled", "repeated", "altered", "transformed", "late")


def judged(spark: SparkSession, folder: Path, **options: Any) -> list[Row]:
    from pipeline.tables.events import read_events
    from pipeline.transforms.reconcile import messages, transfers

    events = read_events(spark, [str(folder)])
    found: list[Row] = messages(transfers(events.frame), events.seen, **options).collect()
    return found


def agree(found: Sequence[Row], truth: Truth) -> None:
    """The answers are the truth, message by message."""
    assert {row.id: row.outcome for row in found} == truth.outcomes
    for flag in FLAGS:
        assert {row.id for row in found if row[flag]} == truth.said.get(flag, set()), flag
    for name, value in (("reordered", "by the link"), ("reordered_by_redelivery", "by redelivery")):
        assert {row.id for row in found if row.reordered == value} == truth.said.get(name, set()), (
            name
        )
    assert {row.id for row in found if row.attempts > 1} == truth.said.get("redelivered", set())
    assert {row.id for row in found if row.transformed and row.changed} == truth.said.get(
        "changed_by_transformer", set()
    )
    for why in ("the gateway ended", "the journal ends"):
        assert {row.id for row in found if row.doubt == why} == truth.said.get(why, set()), why


@pytest.mark.parametrize("seed", range(2))
def test_each_message_is_what_became_of_it(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    truth = write(tmp_path, seed, troubles=80)
    agree(judged(spark, tmp_path, late=LATE_US / 1e6), truth)


def test_each_trouble_on_a_link_of_its_own_is_told_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = LinkJournal(tmp_path, 7)
    for kind in linked.EVENTS:
        journal.link = f"bridge/{kind.__name__}"
        linked.moved(journal)
        kind(journal)
        linked.moved(journal)
    journal.roll()
    agree(judged(spark, tmp_path, late=LATE_US / 1e6), journal.truth)


def test_a_link_is_judged_for_the_messages_that_begin_in_the_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each belongs to the window in which a transfer of it began, with all that became of it,
    whenever that was.
    """
    journal = LinkJournal(tmp_path, 3)
    linked.moved(journal)
    across = journal.fresh().received()
    edge = journal.time + 1
    across.sent().arrived().step("settled")
    linked.moved(journal)
    journal.roll()
    text = f"{_text(edge)}"
    before, behind = judged(spark, tmp_path, until=text), judged(spark, tmp_path, since=text)
    assert {row.outcome for row in (*before, *behind)} == {"arrived"}
    assert set(across.ids) <= {row.id for row in before}
    assert not {row.id for row in before} & {row.id for row in behind}
    assert len(before) + len(behind) == len(journal.truth.outcomes) + len(across.ids)


def test_a_message_that_comes_again_is_judged_with_what_was_before_the_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = LinkJournal(tmp_path, 3)
    again = journal.fresh().received().sent().arrived()
    edge = journal.time + 1
    again.received(2).sent().arrived().step("settled")
    journal.roll()
    assert {row.doubled for row in judged(spark, tmp_path, since=_text(edge))} == {True}


def doubted(found: list[Row], ids: Iterable[str]) -> None:
    assert {row.id for row in found if row.doubt == "lines are missing"} == set(ids)
    assert not [row for row in found if row.outcome == "lost"]


def test_where_lines_are_missing_nothing_is_called_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pipeline.tables.events import read_events
    from pipeline.transforms.reconcile import gaps, transfers

    journal = LinkJournal(tmp_path, 3)
    linked.moved(journal)
    batch = journal.fresh().received().sent()
    journal.lose_line()
    batch.step("settled")
    linked.moved(journal)
    journal.roll()
    doubted(judged(spark, tmp_path), batch.ids)
    events = read_events(spark, [str(tmp_path)])
    assert [row.missing for row in gaps(transfers(events.frame), events.seen).collect()] == [1]


def test_what_began_before_the_journal_does_is_in_no_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = LinkJournal(tmp_path, 3)
    settled, arrived = (journal.fresh().received().sent() for _ in range(2))
    settled.arrived()
    journal.cut()
    settled.step("settled")
    arrived.arrived()
    again = journal.fresh().received().sent()
    arrived.step("settled")
    again.arrived().step("settled")
    journal.truth.note(again.ids, "arrived")
    linked.moved(journal)
    journal.roll()
    agree(judged(spark, tmp_path), journal.truth)


def test_where_the_head_of_a_run_is_missing_nothing_is_called_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = LinkJournal(tmp_path, 3)
    linked.moved(journal)
    journal.start()
    batch = journal.fresh().received().sent().arrived()
    journal.cut()
    batch.step("settled")
    linked.moved(journal)
    journal.roll()
    doubted(judged(spark, tmp_path), batch.ids)


def test_what_a_link_does_wrong_later_is_told_as_well(spark: SparkSession, tmp_path: Path) -> None:
    journal = LinkJournal(tmp_path, 3)
    again = (
        journal.fresh()
        .received()
        .sent()
        .arrived()
        .received(2)
        .sent(altered=True)
        .arrived()
        .step("settled")
    )
    twice = journal.fresh().received().sent().arrived().sent().arrived().step("settled")
    # The first sending may have taken effect: that only the second did not is known.
    half_known = journal.fresh().received().sent().sent().step("rolled back", reason="refused")
    linked.moved(journal)
    journal.roll()
    found = judged(spark, tmp_path)
    assert {row.id for row in found if row.altered} == set(again.ids)
    assert {row.id for row in found if row.doubled} == {*again.ids, *twice.ids}
    assert {row.id for row in found if row.outcome == "in doubt"} == set(half_known.ids)


def test_lines_are_missing_where_they_may_have_been_of_the_window(spark: SparkSession) -> None:
    from pyspark.sql import functions as sql

    from pipeline.transforms.line_bitmaps import seen_in
    from pipeline.transforms.reconcile import gaps

    lines = spark.range(1, 200_001).select(sql.lit("r-1").alias("run"), sql.col("id").alias("line"))
    seen = seen_in(lines.where("line not in (50, 70000, 150000)"))
    for first, last, missing in (
        (1, 200_000, 3),
        (40_000, 60_000, 1),
        (100_000, 110_000, 1),
        (180_000, 200_000, 0),
    ):
        read = lines.where(sql.col("line").between(first, last))
        assert sum(row.missing for row in gaps(read, seen, read).collect()) == missing
    assert sum(row.missing for row in gaps(read, seen).collect()) == 3


def test_links_are_judged_apart(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.events import read_events
    from pipeline.transforms.reconcile import counts, messages, transfers

    journal = LinkJournal(tmp_path, 3)
    linked.lost(journal)
    gone = len(journal.truth.outcomes)
    linked.moved(journal)
    moved = len(journal.truth.outcomes) - gone
    journal.link = "bridge/pond"
    linked.moved(journal)
    journal.roll()
    events = read_events(spark, [str(tmp_path)])
    lake, pond = counts(messages(transfers(events.frame), events.seen)).collect()
    assert (lake.link, pond.link) == ("bridge/lake", "bridge/pond")
    assert (lake.lost, lake.arrived, pond.lost, pond.arrived) == (gone, moved, 0, pond.messages)


def test_what_lies_at_the_target_is_known_by_its_id_its_duplicate_id_or_its_body(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as sql

    from pipeline.columns import MESSAGES
    from pipeline.tables.events import read_events
    from pipeline.transforms.reconcile import compared, messages, transfers

    journal = LinkJournal(tmp_path, 5)
    batch = journal.fresh()
    while len(batch.ids) < 5:
        batch = journal.fresh()
    batch.received().sent().arrived().step("settled")
    journal.roll()
    by_id, by_duplicate, by_body, changed, gone, *rest = batch.ids
    hashes = dict(zip(batch.ids, batch.hashes, strict=True))
    numbers = dict(zip(batch.ids, batch.numbers, strict=True))
    lying = [
        (f"T:{by_id}:{numbers[by_id]}", None, hashes[by_id]),
        ("else:1", {"_AMQ_DUPL_ID": f"queue:harbour/{by_duplicate}"}, hashes[by_duplicate]),
        ("else:2", None, hashes[by_body]),
        (f"T:{changed}:{numbers[changed]}", None, "0" * 32),
        ("else:3", None, "1" * 32),
    ]
    names = [
        column.split()[0] for column in MESSAGES.replace("map<string,string>", "map").split(",")
    ]
    rows = [
        tuple({"message_id": id, "headers": headers}.get(name) for name in names)
        for id, headers, _ in lying
    ]
    frame = spark.createDataFrame(rows, MESSAGES)
    hashed = spark.createDataFrame(
        [(id, [body]) for id, _, body in lying], "message_id string, body_hashes array<string>"
    )
    events = read_events(spark, [str(tmp_path)])
    found = messages(transfers(events.frame), events.seen)
    answer = compared(found, frame.join(hashed, "message_id"), linked.TARGET).select(
        "id", "lies", "known_by", "altered_there"
    )
    assert {
        row.id: tuple(row)[1:] for row in answer.where(~sql.col("id").isin(rest)).collect()
    } == {
        by_id: (1, "id", False),
        by_duplicate: (1, "duplicate id", False),
        by_body: (1, "body", False),
        changed: (1, "id", True),
        gone: (0, None, False),
    }


@pytest.mark.parametrize("seed", range(2))
def test_what_is_overtaken_is_told_however_far_it_is_from_what_overtook_it(
    spark: SparkSession, seed: int
) -> None:
    """Against a comparison of each message with each other."""
    from pipeline.transforms.line_bitmaps import seen_in
    from pipeline.transforms.reconcile import messages, transfers

    chance = random.Random(seed)
    rows = []
    places: dict[tuple[str, int], list[tuple[tuple[str, int], tuple[str, int] | None]]] = {}
    transfer = 0
    for number in range(400):
        link, source, target = chance.choice("xy"), chance.randrange(2), chance.randrange(2)
        for _ in range(chance.choice((1, 1, 2))):
            transfer += 1
            run = chance.choice(("r-1", "r-2"))
            # Most are near each other, as they are on a link, and some are not.
            line = chance.randrange(30_000)
            later = line + 1 + chance.choice((chance.randrange(40), chance.randrange(9_000)))
            came = (run, later) if chance.random() < 0.9 else None
            named = {
                "id": f"{link}{source}{target}/{number}",
                "link": f"b/{link}",
                "transfer": transfer,
            }
            rows.append(
                {
                    **named,
                    **{"run": run, "line": line, "step": "received"},
                    "destination": f"queue:{source}",
                }
            )
            # Where rules of a link say several targets, order is that within each.
            sent = {"run": run, "line": line + 1, "step": "sent", "destination": f"queue:t{target}"}
            rows.append({**named, **sent})
            if came is not None:
                rows.append(
                    {
                        **named,
                        "run": run,
                        "line": later,
                        "step": "arrived",
                        "destination": f"queue:t{target}",
                    }
                )
            places.setdefault((f"{link}{source}{target}", number), []).append(((run, line), came))
    names = ("run", "line", "step", "id", "link", "transfer", "destination")
    frame = spark.createDataFrame(
        [tuple(row[name] for name in names) for row in rows],
        "run string, line bigint, step string, message_id string, link string, transfer bigint, destination string",
    )
    columns = [column.split()[:2] for column in re.split(r",\s*(?![^<]*>)", EVENTS.strip())]
    given = {"instance": sql.lit("i"), "place": sql.col("transfer").cast("int")}
    events = frame.select(
        *[
            sql.col(name)
            if name in frame.columns
            else given.get(name, sql.lit(None).cast(kind)).alias(name)
            for name, kind in columns
        ]
    )
    found = {
        row.id: row.reordered
        for row in messages(transfers(events), seen_in(events)).collect()
        if row.reordered is not None
    }
    assert found == _overtaken(places)
    assert set(found.values()) == {"by the link", "by redelivery"}


def _overtaken(
    places: dict[tuple[str, int], list[tuple[tuple[str, int], tuple[str, int] | None]]],
) -> dict[str, str]:
    """Which messages are behind one that their link got after them, and why.

    :param places: of each message, by what is ordered together and its number: where each transfer
        was received, and where it arrived.
    """
    orders: dict[str, list[Any]] = {}
    for (together, number), each in places.items():
        arrived = [(came, received) for received, came in each if came is not None]
        if arrived:
            came, given = min(arrived)
            first = min(received for received, _ in each)
            orders.setdefault(together, []).append((f"{together}/{number}", given, first, came))
    found = {}
    for order in orders.values():
        for id, given, first, came in order:
            if any(other[1] > given and other[3] < came for other in order):
                found[id] = "by the link"
            elif any(other[2] > first and other[3] < came for other in order):
                found[id] = "by redelivery"
    return found


@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.none() | st.sampled_from("abcde")), max_size=9),
    st.lists(
        st.tuples(
            st.sampled_from(["T0", "T1", "T2", "other"]),
            st.none() | st.sampled_from(["q/0", "q/3", "q/4", "q/5/0"]),
            st.none() | st.lists(st.sampled_from("abcde"), max_size=3),
        ),
        max_size=12,
    ),
)
def test_what_lies_there_is_told_as_a_loop_tells_it(
    spark: SparkSession,
    sent: list[tuple[str, str | None]],
    there: list[tuple[str, str | None, list[str] | None]],
) -> None:
    from pipeline.transforms.reconcile import compared

    judged = spark.createDataFrame(
        [
            ("i", link, f"{at}", "queue:t", "arrived", [f"T{at}"], body)
            for at, (link, body) in enumerate(sent)
        ],
        "instance string, link string, id string, target string, outcome string, target_ids array<string>, body_hash string",
    )
    lying = spark.createDataFrame(
        [
            (id, {"_AMQ_DUPL_ID": duplicate} if duplicate else None, bodies)
            for id, duplicate, bodies in there
        ],
        "message_id string, headers map<string,string>, body_hashes array<string>",
    )
    expected = {}
    for at, (link, body) in enumerate(sent):
        by_id = [bodies for id, _, bodies in there if id == f"T{at}"]
        by_duplicate = [
            bodies for _, other, bodies in there if other and other.partition("/")[2] == f"{at}"
        ]
        by_body = [
            bodies
            for _, _, bodies in there
            for each in bodies or ()
            if each == body and sent.count((link, body)) == 1
        ]
        ways = {"id": by_id, "duplicate id": by_duplicate, "body": by_body}
        name = next((name for name, found in ways.items() if found), None)
        found = ways[name] if name else []
        other = [
            each for each in found if body is not None and each is not None and body not in each
        ]
        expected[f"{at}"] = (len(found), name, bool(other))
    answer = compared(judged, lying, "queue:t")
    assert {
        row.id: (row.lies, row.known_by, row.altered_there) for row in answer.collect()
    } == expected


def test_the_counts_are_those_of_the_messages(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline.tables.events import read_events
    from pipeline.transforms.reconcile import Outcome, counts, messages, transfers

    truth = write(tmp_path, 11, troubles=40)
    events = read_events(spark, [str(tmp_path)])
    (row,) = counts(messages(transfers(events.frame), events.seen, late=LATE_US / 1e6)).collect()
    expected = truth.counted()
    assert Counter({one.value: row[one.value.replace(" ", "_")] for one in Outcome}) == expected
    assert row.messages == len(truth.outcomes)
    for name in (
        *FLAGS,
        "reordered",
        "reordered_by_redelivery",
        "redelivered",
        "changed_by_transformer",
    ):
        assert row[name] == len(truth.said.get(name, ())), name


def _text(us: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
