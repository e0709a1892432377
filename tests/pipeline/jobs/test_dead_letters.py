"""Dead letters of real queues and of a journal, against what was made to die."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from gateway.journal.schema import VERSION, run_name, segment_name
from pipeline.connection import Connection
from pipeline.errors import PipelineError
from pipeline.failures import sentence
from pipeline.output import Output
from tests.documented_blocks import shown
from tests.pages import printed
from tests.pipeline.graveyard import BRIDGE_DMQ, BROKER_DMQ, Graveyard
from tests.pipeline.jobs.replays import order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dead_letters(
    spark: SparkSession,
    folder: Path,
    *journal: str,
    connection: Connection | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    from pipeline.jobs.dead_letters import run

    queue = options.pop("queue", None)
    run(
        spark,
        journal,
        queue,
        connection or Connection({}),
        Output(str(folder / "found"), "json"),
        **options,
    )
    return [
        json.loads(line)
        for path in sorted((folder / "found" / "groups").glob("*.json"))
        for line in path.read_text().splitlines()
    ]


def test_a_bridges_dead_are_grouped_by_their_trouble(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graveyard.buried([order(number) for number in range(4)])
    graveyard.buried([order(number) for number in range(4, 6)], link="again")
    found = dead_letters(
        spark, tmp_path, queue=BRIDGE_DMQ, connection=graveyard.connection(), examples=2
    )
    assert [
        (row["count"], row["reason"], row["destination"], row["link"], row["trend"])
        for row in found
    ] == [
        (
            4,
            "TRANSFORM_FAILURE",
            "queue:broken.in",
            "queue:broken.in --> queue:broken.out",
            "growing",
        ),
        (2, "TRANSFORM_FAILURE", "queue:again.in", "queue:again.in --> queue:again.out", "growing"),
    ]
    assert len({row["exception"] for row in found}) == 1, found
    assert found[0]["exception"].endswith("no price in order <n> of <value>")
    [one, other] = found[0]["examples"]
    assert {one["message_id"], other["message_id"]} < {f"ID:made:{number}" for number in range(4)}
    assert f"customer {one['message_id'][-1]}'" in one["comment"]
    said = capsys.readouterr().out
    assert "dead messages  6" in said
    assert "growing" in said
    _, *page = shown("pipeline_dead_letters", "$ gateway-pipeline dead-letters").splitlines()
    facts = "\n".join(page[: page.index("Troubles") + 1])
    port = str(graveyard.gateway.port)
    assert printed.has(said, facts.replace("7672", port)), said
    for columns in ("count", "in the queue"):
        assert printed.has(said, next(line for line in page if columns in line)), said
    assert len(graveyard.browsed(BRIDGE_DMQ)) == 6


def test_the_brokers_dead_are_grouped_by_why(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    graveyard.refused("shop", [b"1", b"2", b"3"])
    graveyard.expired("till", [b"4"])
    found = dead_letters(spark, tmp_path, queue=BROKER_DMQ, connection=graveyard.connection())
    assert Counter({(row["reason"], row["destination"]): row["count"] for row in found}) == {
        ("UNDELIVERABLE", "queue:shop"): 3,
        ("EXPIRED", "queue:till"): 1,
    }


def test_nothing_dead_is_one_line(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dead_letters(spark, tmp_path, queue=BRIDGE_DMQ, connection=graveyard.connection()) == []
    assert capsys.readouterr().out.startswith(
        f"No dead messages in queue:{BRIDGE_DMQ} at 127.0.0.1:"
    )


def journal(folder: Path, *lines: Mapping[str, Any], version: int = VERSION) -> str:
    run = run_name("abc", 1)
    now = time.time_ns() // 1000
    whole = [
        {"v": version, "run": run, "line": number, "time": now, "instance": "i", **line}
        for number, line in enumerate(lines, 1)
    ]
    folder.mkdir()
    (folder / segment_name(run, 1)).write_text("".join(json.dumps(line) + "\n" for line in whole))
    return str(folder)


def test_the_journals_dead_are_grouped(spark: SparkSession, tmp_path: Path) -> None:
    place = journal(
        tmp_path / "journal",
        {"steps": ["produced"], "prefix": "ID-", "runs": [[1, 50, 1]], "destination": "queue:q"},
        {
            "steps": ["dead"],
            "prefix": "ID-",
            "runs": [[1, 10, 2]],
            "destination": "queue:q",
            "reason": "UNDELIVERABLE",
            "comment": "given back 7 times",
        },
        {"steps": ["expired"], "ids": ["ID-2", "ID-4"], "destination": "queue:q"},
        {
            "steps": ["buried"],
            "ids": ["ID-6"],
            "destination": "queue:q",
            "link": "b/l",
            "reason": "SEND_FAILURE",
            "comment": "10.0.0.1:5672 refused",
        },
        {
            "steps": ["buried"],
            "ids": ["ID-8"],
            "destination": "queue:q",
            "link": "b/l",
            "reason": "SEND_FAILURE",
            "comment": "10.0.0.2:5672 refused",
        },
    )
    found = dead_letters(spark, tmp_path, place)
    assert [(row["count"], row["reason"], row.get("link"), row["exception"]) for row in found] == [
        (10, "UNDELIVERABLE", None, "given back <n> times"),
        (2, "EXPIRED", None, ""),
        (2, "SEND_FAILURE", "b/l", "<address> refused"),
    ]
    assert dead_letters(spark, tmp_path, place, until="2020-01-01") == []


def test_what_cannot_be_read_is_one_line(
    spark: SparkSession, graveyard: Graveyard, tmp_path: Path
) -> None:
    nowhere = Connection({"port": "1", "timeoutSeconds": "1"})
    wrong = Connection({**graveyard.connection().options, "login": "nobody"})
    for options, said in (
        ({}, "expected a journal's folder, or --queue"),
        ({"since": "yesterdayish", "queue": BROKER_DMQ}, "--since yesterdayish: expected a time"),
    ):
        with pytest.raises(PipelineError, match=said):
            dead_letters(spark, tmp_path, **options)  # type: ignore[arg-type]
    old = journal(tmp_path / "old", {"steps": ["dead"], "ids": ["a"]}, version=99)
    refusals: list[tuple[str | None, Connection | None, str]] = [
        (BROKER_DMQ, nowhere, "no connection to the STOMP broker at 127.0.0.1:1: "),
        (BROKER_DMQ, wrong, "refused the login nobody: "),
        ("no?such=queue", graveyard.connection(), "refused to show queue:no?such=queue to admin: "),
        (None, None, "99"),
    ]
    for queue, connection, said in refusals:
        with pytest.raises((PipelineError, PySparkException)) as refused:
            dead_letters(
                spark, tmp_path, *([] if queue else [old]), connection=connection, queue=queue
            )
        line = sentence(refused.value) or str(refused.value)
        assert said in line
        assert "\n" not in line
