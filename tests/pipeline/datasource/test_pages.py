"""Run what the pages about the source show in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from tests.documented_blocks import shown
from tests.pipeline.datasource.brokers import Broker

PAGE = "pipeline_source"
LOGIN = '{"login": "spark", "passcodeFile": "/etc/spark/gateway.passcode"}'


@pytest.mark.long
def test_the_page_of_the_source(
    session: SparkSession, gateway: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offers = f"offers{uuid4().hex[:8]}"
    given = {name: value for name, value in gateway.queue.items() if name != "destination"}
    names: dict[str, Any] = {
        "spark": session,
        "rows": session.createDataFrame([("chair", 5)], "kind string, pieces int"),
    }

    def run(text: str) -> None:
        for there, here in (
            (LOGIN, repr(given)),
            ("queue:orders", f"queue:{gateway.name}"),
            ("queue:offers", f"queue:{offers}"),
            ("/shared/", f"{tmp_path}/shared/"),
            ("/lake/", f"{tmp_path}/lake/"),
        ):
            text = text.replace(there, here)
        exec(compile(text, PAGE, "exec"), names)

    gateway.fill(["five chairs", "a table"])
    running = set(session.streams.active)
    run(shown(PAGE, "from pipeline.datasource"))
    assert "five chairs" in capsys.readouterr().out
    [query] = set(session.streams.active) - running
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    moved = session.read.parquet(str(tmp_path / "lake" / "orders"))
    assert sorted(row.text for row in moved.collect()) == ["a table", "five chairs"]
    assert gateway.waiting() == []
    assert Broker(gateway.port, {}, offers).waiting() == ['{"kind":"chair","pieces":5}']

    properties = {"region": "north", "priority": "5", "amount": "120", "urgent": "true"}
    gateway.fill(["dear"], **properties)
    gateway.fill(["cheap"], **{**properties, "amount": "20"})
    try:
        run(shown(PAGE, "spark.conf.set"))
    finally:
        session.conf.unset("spark.sql.python.filterPushdown.enabled")
    printed = capsys.readouterr().out
    assert "dear" in printed
    assert "cheap" not in printed

    # A part of a program.
    reads = f'read = spark.read.format("stomp").options(**gateway, destination="queue:orders"){shown(PAGE, ".option(")}'
    run(f"{reads}.load()")
    rows = names["read"].select("region", "amount", "pieces", "urgent").where("amount > 100")
    assert [tuple(row) for row in rows.collect()] == [("north", 120.0, None, True)]


def test_the_page_for_those_who_come_from_kafka(session: SparkSession) -> None:
    _, here = shown("from_kafka", "orders = ").split("\n\n")
    names: dict[str, Any] = {"spark": session, "col": sql.col}
    exec(compile(here, "from_kafka", "exec"), names)
    assert names["orders"].isStreaming
    assert names["orders"].columns == ["text", "timestamp"]
