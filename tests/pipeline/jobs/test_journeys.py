"""``journeys``: every message's outcome is the one that it had."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.errors import PipelineError
from pipeline.jobs.journeys import Limits, run, time_line
from pipeline.output import Output
from pipeline.tables.delta import DeltaFolder
from pipeline.tables.events import read_events
from pipeline.transforms.journeys import journeys
from tests.pipeline.generated import write_journal

_STORE = "broker"
_FIRST, _SECOND = (f"{_STORE}-{number:017d}" for number in (1, 2))
_QUEUE, _TOPIC, _DMQ = "queue:q", "topic:t", "queue:mq.sys.dmq"


def test_generated_traffic_has_the_outcomes_that_it_was_made_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    truth = write_journal(tmp_path / "journal", 4_000, seed=3)
    output = Output(str(tmp_path / "answer"))
    found = run(spark, [str(tmp_path / "journal")], output, limits=Limits(stuck=0.001))
    rows = (
        DeltaFolder(spark, str(tmp_path / "answer" / "journeys"))
        .frame()
        .select("message_id", "outcome", "redelivered", "gap")
        .collect()
    )
    assert Counter(row.outcome for row in rows) == truth.outcomes
    for outcome, ids in truth.ids.items():
        assert {row.message_id for row in rows if row.outcome == outcome} == ids
    assert {row.message_id for row in rows if row.redelivered is not None} == truth.redelivered
    assert not any(row.gap for row in rows)
    assert found.facts["journeys"] == truth.journeys
    assert found.facts["lost"] == truth.outcomes["lost"]
    assert found.facts["redelivered"] == len(truth.redelivered)
    percentiles = DeltaFolder(spark, str(tmp_path / "answer" / "latencies")).frame()
    assert {"destination", "link", "hour", "latency", "messages", "p50_ms", "p99_ms"} <= set(
        percentiles.columns
    )
    assert (
        percentiles.where(
            "latency = 'transfer' and link = 'bridge/lake' and p50_ms <= p99_ms"
        ).count()
        > 0
    )


def _journal(folder: Path, *lines: dict[str, Any]) -> str:
    """A folder with these lines; each a second after the one before, of the first run unless it
    says.
    """
    folder.mkdir()
    numbers: dict[str, Iterator[int]] = {}
    texts = []
    for second, line in enumerate(lines):
        run = line.setdefault("run", _FIRST)
        number = next(numbers.setdefault(run, count(1)))
        texts.append(
            json.dumps(
                {"v": 1, "line": number, "time": second * 1_000_000, "instance": "i", **line}
            )
        )
    (folder / "r-0000000001.jsonl").write_text("\n".join(texts) + "\n")
    return str(folder)


def _line(message: str, *steps: str, destination: str = _QUEUE, **fields: Any) -> dict[str, Any]:
    return {"ids": [message], "steps": list(steps), "destination": destination, **fields}


def _found(spark: SparkSession, journal: str) -> dict[tuple[str, str | None], Row]:
    events = read_events(spark, [journal])
    return {
        (row.message_id, row.subscription): row
        for row in journeys(events.frame, events.seen).collect()
    }


def test_each_outcome_is_known_by_its_steps(spark: SparkSession, tmp_path: Path) -> None:
    link = {"link": "b/l"}
    journal = _journal(
        tmp_path / "journal",
        _line("acknowledged", "produced", "stored", "confirmed"),
        _line("acknowledged", "delivered", connection=4, user="ann"),
        _line("acknowledged", "returned", connection=4, user="ann"),
        _line("acknowledged", "redelivered", connection=5, user="bob", attempts=[2]),
        _line("acknowledged", "acknowledged", "deleted", connection=5, user="bob"),
        _line("with a consumer", "produced", "stored", "delivered"),
        _line("came back", "produced", "stored", "delivered", "acknowledged"),
        _line("came back", "redelivered"),
        _line("in memory", "produced", "confirmed"),
        _line("in the store", "produced", "stored", "confirmed"),
        _line(
            "dead",
            "produced",
            "stored",
            "delivered",
            "dead",
            reason="undeliverable",
            comment="it is poison",
        ),
        _line("expired", "produced", "expired"),
        _line("arrived", "received", destination="queue:s", transfers=[1], **link),
        _line(
            "arrived",
            "sent",
            destination="queue:x",
            target_ids=["at target"],
            transfers=[1],
            **link,
        ),
        _line("arrived", "arrived", "settled", transfers=[1], **link),
        _line("at target", "produced", destination="queue:x"),
        _line("at target", "delivered", "acknowledged", destination="queue:x"),
        _line("forgotten", "received", "sent", "settled", **link),
        _line("in doubt", "received", "sent", **link),
        _line("taken back", "received", "sent", "rolled back", **link),
        _line("buried", "received", "buried", reason="refused", **link),
        _line("not wanted", "received", "not transferred", "settled", **link),
        _line("of two", "produced", destination=_TOPIC, user="ann"),
        _line(
            "of two", "delivered", "acknowledged", "deleted", destination=_TOPIC, subscription="one"
        ),
        _line("of two", "delivered", destination=_TOPIC, subscription="two"),
        _line("of none", "produced", destination=_TOPIC),
        _line("copied", "routed", destination=_TOPIC, target_ids=["a copy"]),
        _line("copied", "produced", "deleted", destination=_TOPIC, reason="copied"),
        _line("of today", "produced", run=_SECOND),
    )
    found = _found(spark, journal)
    assert {key: row.outcome for key, row in found.items()} == {
        ("acknowledged", None): "delivered",
        ("with a consumer", None): "waiting",
        ("came back", None): "waiting",
        ("in memory", None): "lost",
        ("in the store", None): "waiting",
        ("dead", None): "dead",
        ("expired", None): "expired",
        ("arrived", None): "delivered",
        ("at target", None): "delivered",
        ("forgotten", None): "lost",
        ("in doubt", None): "in doubt",
        ("taken back", None): "waiting",
        ("buried", None): "dead",
        ("not wanted", None): "not transferred",
        ("of two", "one"): "delivered",
        ("of two", "two"): "lost",
        ("of none", None): "unclaimed",
        ("copied", None): "delivered",
        ("of today", None): "waiting",
    }
    one = found["acknowledged", None]
    assert (one.attempts, one.consumers, one.confirm_ms, one.deliver_ms, one.acknowledge_ms) == (
        2,
        ["ann@4", "bob@5"],
        0,
        1000,
        3000,
    )
    assert (
        one.last_step,
        one.ended - one.began,
        one.last["redelivered"] > one.last["delivered"],
    ) == (
        "deleted",
        datetime(1, 1, 1, 0, 0, 4) - datetime(1, 1, 1),
        True,
    )
    assert (found["dead", None].reason, found["dead", None].comment) == (
        "undeliverable",
        "it is poison",
    )
    assert (found["arrived", None].target_ids, found["at target", None].source_ids) == (
        ["at target"],
        ["arrived"],
    )
    assert (
        found["arrived", None].links,
        found["arrived", None].destination,
        found["arrived", None].transfer_ms,
    ) == (
        ["b/l"],
        "queue:s",
        2000,
    )
    assert found["of two", "one"].producers == found["of two", "two"].producers == ["ann"]
    assert not any(row.gap for row in found.values())

    summary = time_line(spark, [journal], "at target")
    steps = summary.tables[0]
    assert [row[steps.columns.index("step")] for row in steps.rows] == [
        "received",
        "sent",
        "arrived",
        "settled",
        "produced",
        "delivered",
        "acknowledged",
    ]
    with pytest.raises(PipelineError, match="the journal knows no message nobody"):
        time_line(spark, [journal], "nobody")


def test_what_nobody_acknowledged_is_not_delivered_and_what_was_is_whatever_the_clock_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    link = {"link": "b/l"}
    journal = _journal(
        tmp_path / "journal",
        # The lines before are too old to be kept.
        _line("began before", "settled", **link),
        _line("purged", "produced", "stored"),
        _line("purged", "deleted", reason="removed"),
        _line("replaced", "produced"),
        _line("replaced", "stored"),
        _line("replaced", "deleted", reason="replaced", comment="by another"),
        _line("refused", "produced"),
        _line("refused", "deleted", reason="refused", comment="the disk is full"),
        _line("to nobody", "produced", "deleted", destination=_TOPIC, reason="unsubscribed"),
        _line("came back", "produced", "stored", "delivered"),
        _line("came back", "returned", reason="unsettled"),
        _line("came back", "redelivered", attempts=[2]),
        _line("came back", "acknowledged"),
        _line("came back", "deleted"),
        _line("set back", "produced", "stored", "delivered", time=90_000_000),
        _line("set back", "acknowledged", "deleted", time=80_000_000),
        _line("set back on a link", "received", "sent", time=90_000_000, **link),
        _line("set back on a link", "arrived", "settled", time=80_000_000, **link),
        _line("from the dead", "produced", "stored", "delivered"),
        _line("from the dead", "dead", reason="undeliverable"),
        _line("from the dead", "deleted"),
        _line("from the dead", "stored", "delivered", destination=_DMQ),
        _line("from the dead", "acknowledged", "deleted", destination=_DMQ),
    )
    found = _found(spark, journal)
    assert {key[0]: row.outcome for key, row in found.items()} == {
        "began before": "delivered",
        "purged": "removed",
        "replaced": "removed",
        "refused": "removed",
        "to nobody": "unclaimed",
        "came back": "delivered",
        "set back": "delivered",
        "set back on a link": "delivered",
        "from the dead": "dead",
    }
    # That was who took it from the dead message queue.
    assert found["from the dead", None].acknowledge_ms is None
    assert found["came back", None].acknowledge_ms == 3000


def test_of_one_that_was_sent_again_under_its_old_id_only_what_came_then_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    link, topic = {"link": "b/l"}, {"destination": _TOPIC}
    a, b = {**topic, "subscription": "a"}, {**topic, "subscription": "b"}
    queued = (
        "delivered anew",
        "waits anew",
        "died anew",
        "purged anew",
        "waits, its copy purged",
        "waits, its copy removed",
    )
    linked = ("linked anew", "waits for its link", "buried anew", "sent anew", "came back")
    journal = _journal(
        tmp_path / "journal",
        *(_line(name, "produced", "stored", "delivered") for name in queued),
        *(_line(name, "dead", "deleted", reason="undeliverable") for name in queued),
        *(_line(name, "stored", destination=_DMQ) for name in queued),
        *(_line(name, "produced", "stored", "confirmed") for name in queued),
        *(_line(name, "delivered") for name in queued[:3]),
        _line("delivered anew", "acknowledged", "deleted"),
        _line("delivered anew", "deleted", destination=_DMQ, reason="removed"),
        _line("died anew", "dead", "deleted", reason="undeliverable"),
        _line("died anew", "stored", destination=_DMQ),
        _line("purged anew", "deleted", reason="removed"),
        _line("waits, its copy purged", "deleted", destination=_DMQ, reason="removed"),
        _line("waits, its copy removed", "delivered", "acknowledged", "deleted", destination=_DMQ),
        *(_line(name, "received", "sent", **link) for name in linked),
        *(_line(name, "rolled back", **link) for name in linked),
        *(_line(name, "buried", reason="target", **link) for name in linked),
        *(_line(name, "settled", **link) for name in linked[:-1]),
        *(_line(name, "produced", "stored", "confirmed") for name in linked[:-1]),
        *(
            _line(name, "received", "sent", **link)
            for name in linked
            if name != "waits for its link"
        ),
        *(_line(name, "arrived", "settled", **link) for name in ("linked anew", "came back")),
        _line("buried anew", "buried", "settled", reason="target", **link),
        # A link that empties the dead message queue sends nothing again.
        _line("carried off", "produced", "stored", "delivered"),
        _line("carried off", "dead", "deleted", reason="undeliverable"),
        _line("carried off", "received", destination=_DMQ, **link),
        _line("carried off", "sent", "arrived", "settled", **link),
        # It died for one subscription, and is sent to both.
        _line("for two", "produced", "stored", **topic),
        *(_line("for two", "delivered", **each) for each in (a, b)),
        _line("for two", "acknowledged", "deleted", **b),
        _line("for two", "dead", "deleted", reason="undeliverable", **a),
        _line("for two", "produced", "stored", **topic),
        *(_line("for two", "delivered", **each) for each in (a, b)),
        *(_line("for two", "acknowledged", "deleted", **each) for each in (a, b)),
    )
    found = _found(spark, journal)
    lanes = {
        subscription: row.outcome
        for (name, subscription), row in found.items()
        if name == "for two"
    }
    assert lanes == {"a": "delivered", "b": "delivered"}
    assert {name: row.outcome for (name, _), row in found.items() if name != "for two"} == {
        "delivered anew": "delivered",
        "waits anew": "waiting",
        "died anew": "dead",
        "purged anew": "removed",
        "waits, its copy purged": "waiting",
        "waits, its copy removed": "waiting",
        "linked anew": "delivered",
        "waits for its link": "waiting",
        "buried anew": "dead",
        "sent anew": "in doubt",
        # Its source gave it out again, as it was not told to forget it; its copy lies with the
        # dead.
        "came back": "dead",
        "carried off": "dead",
    }
    assert found["delivered anew", None].dead is not None


def test_what_happens_to_one_subscription_of_a_topic_is_not_told_of_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic: dict[str, Any] = {"destination": _TOPIC}
    one, other = (
        {**topic, "subscription": "1", "connection": 4},
        {**topic, "subscription": "1", "connection": 5},
    )
    a, b = {**topic, "subscription": "a"}, {**topic, "subscription": "b"}
    journal = _journal(
        tmp_path / "journal",
        # Clients like to call their first subscription the same.
        *(_line(name, "produced", **topic) for name in ("one owes", "both have")),
        *(
            _line(name, "delivered", **each)
            for name in ("one owes", "both have")
            for each in (one, other)
        ),
        _line("one owes", "acknowledged", "deleted", **one),
        *(_line("both have", "acknowledged", "deleted", **each) for each in (one, other)),
        _line("again", "produced", "stored", **topic),
        _line("again", "delivered", **a),
        _line("again", "delivered", run=_SECOND, **a),
        _line("again", "acknowledged", "deleted", run=_SECOND, **a),
        # It died for one, and its copy was taken from the dead message queue.
        _line("died once", "produced", "stored", **topic),
        _line("died once", "delivered", **a),
        _line("died once", "delivered", **b),
        _line("died once", "dead", "deleted", reason="undeliverable", **a),
        _line("died once", "stored", "delivered", "acknowledged", "deleted", destination=_DMQ),
        # Of subscriptions that are not durable the journal does not say which it died for.
        _line("died for who has it", "produced", **topic),
        _line("died for who has it", "delivered", **a),
        _line("died for who has it", "delivered", "acknowledged", "deleted", **b),
        _line("died for who has it", "dead", "deleted", reason="undeliverable", **topic),
        # A link took it as well.
        _line("linked", "produced", "stored", **topic),
        _line("linked", "delivered", **a),
        _line("linked", "delivered", **b),
        _line("linked", "received", link="b/l", **topic),
        _line("linked", "sent", destination=_QUEUE, link="b/l"),
        _line("linked", "arrived", destination=_QUEUE, link="b/l"),
        _line("linked", "settled", link="b/l", **topic),
        _line("linked", "acknowledged", "deleted", **b),
    )
    found = _found(spark, journal)
    assert {key: row.outcome for key, row in found.items()} == {
        ("one owes", "1"): "lost",
        ("both have", "1"): "delivered",
        ("again", "a"): "delivered",
        ("died once", "a"): "dead",
        ("died once", "b"): "waiting",
        ("died for who has it", "a"): "dead",
        ("died for who has it", "b"): "delivered",
        ("linked", None): "delivered",
        ("linked", "a"): "waiting",
        ("linked", "b"): "delivered",
    }
    assert {key: row.attempts for key, row in found.items() if key[1] == "1"} == {
        ("one owes", "1"): 1,
        ("both have", "1"): 1,
    }
    assert {key: row.links for key, row in found.items() if key[0] == "linked"} == {
        ("linked", None): ["b/l"],
        ("linked", "a"): [],
        ("linked", "b"): [],
    }
    assert all(row.produced is not None for row in found.values())


def test_steps_that_change_nothing_for_a_message_change_no_journey(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = {"destination": "topic:t", "subscription": "s"}
    with_them = [
        _line("taken", "produced", "stored", "confirmed"),
        _line("taken", "routed", "delivered", selector="n > 1"),
        _line("taken", "acknowledged", "deleted"),
        _line("taken", "acknowledgement confirmed"),
        _line("of topic", "produced", destination="topic:t"),
        _line("of topic", "routed", **topic),
        _line("of topic", "delivered", **topic),
        _line("away", "produced", "stored", destination="topic:t"),
        _line("away", "routed", **topic),
    ]
    of_an_older_gateway = []
    for second, line in enumerate(with_them):
        line["time"] = second * 1_000_000
        steps = [s for s in line["steps"] if s not in ("routed", "acknowledgement confirmed")]
        if steps:
            older = {**line, "steps": steps}
            older.pop("selector", None)
            of_an_older_gateway.append(older)
    new = _found(spark, _journal(tmp_path / "new", *with_them))
    old = _found(spark, _journal(tmp_path / "old", *of_an_older_gateway))
    assert new == old
    assert new["taken", None].last_step == "deleted"


def test_a_message_is_stuck_where_nothing_else_happens(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(
        tmp_path / "journal",
        _line("stuck", "produced", "stored", destination="queue:quiet"),
        _line("of today", "produced", "stored", time=1_000_000_000),
    )
    for destinations in (), ["queue:quiet"]:
        found = run(spark, [journal], Output(), destinations=destinations, limits=Limits(stuck=300))
        assert found.facts["stuck"] == 1
        assert str(found.facts["journal's end"]) == "1970-01-01 00:16:40"


def test_what_may_be_in_a_missing_line_is_beside_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    journal = _journal(
        tmp_path / "journal",
        _line("before", "produced", "stored", line=1),
        _line("between", "produced", "stored", line=40_000),
        _line("after", "produced", "stored", line=100_000),
    )
    found = _found(spark, journal)
    assert {key[0]: row.gap for key, row in found.items()} == {
        "before": True,
        "between": True,
        "after": True,
    }
    whole = _journal(
        tmp_path / "whole",
        *(_line(f"m{number}", "produced", "stored", line=number) for number in (7, 8, 9)),
    )
    assert not any(row.gap for row in _found(spark, whole).values())


def test_the_plan_sorts_once_and_brings_nothing_to_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = read_events(spark, [_journal(tmp_path / "journal", _line("a", "produced"))])
    plan = journeys(events.frame, events.seen)._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange hashpartitioning(message_id") == 1
    for word in ("Python", "ObjectHashAggregate", "CollectLimit"):
        assert word not in plan
