"""What StreamingQueryProgress shows of a broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.datasource.looking import MOST, Look
from pipeline.datasource.options import Use, parse
from tests.documented_blocks import shown
from tests.pipeline.datasource.brokers import Broker
from tests.pipeline.datasource.crashing import into_parquet
from tests.servers import activemq

pytestmark = pytest.mark.brokers


def numbers(start: int, end: int) -> list[str]:
    return [f"m{number:06}" for number in range(start, end)]


def told(query: StreamingQuery) -> list[dict[str, Any]]:
    """What the progress of each micro-batch shows of the broker."""
    found = [json.loads(each.sources[0].latestOffset) for each in query.recentProgress]
    assert found
    return found


def test_progress_shows_what_waits(session: SparkSession, gateway: Broker, tmp_path: Path) -> None:
    before = time.time_ns()
    gateway.fill(numbers(0, 30))
    options = gateway.reads(batchSize=10)
    query = into_parquet(session, "stomp", options, tmp_path)
    query.awaitTermination()
    first, second = told(query)[:2]
    assert first.pop("oldestMillis") in range((time.time_ns() - before) // 1_000_000 + 1)
    assert first == {"batch": 1, "waiting": 30, "waitingAtLeast": False}
    assert second["batch"] == 2
    assert second["rowsPerSecond"] > 0
    # The bodies alone have 7 octets each.
    assert second["octetsPerSecond"] > 7 * second["rowsPerSecond"]
    _, page = shown("pipeline_source", ">>> query.lastProgress").splitlines()
    assert set(json.loads(page.strip("'"))) == {"oldestMillis", *first, *second}


def test_a_long_queue_is_not_counted_to_its_end(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    gateway.fill(numbers(0, MOST + 5000))
    query = into_parquet(session, "stomp", gateway.reads(), tmp_path)
    query.awaitTermination()
    first = told(query)[0]
    assert (first["waiting"] >= MOST, first["waitingAtLeast"]) == (True, True)
    assert session.read.parquet(str(tmp_path / "sink")).count() == MOST + 5000


def test_progress_of_a_queue_that_the_user_may_not_browse(
    session: SparkSession, gateway: Broker, tmp_path: Path
) -> None:
    unseen = Broker(gateway.port, gateway.options, "unseen")
    unseen.fill(numbers(0, 5))
    query = into_parquet(session, "stomp", unseen.reads(), tmp_path)
    query.awaitTermination()
    assert told(query)[0] == {"batch": 1}
    assert session.read.parquet(str(tmp_path / "sink")).count() == 5


@pytest.mark.parametrize("peer", ["gateway", "activemq"])
def test_what_waits_is_counted_and_stays(peer: str, gateway: Broker, tmp_path: Path) -> None:
    broker = gateway if peer == "gateway" else Broker(activemq().port, {})
    options = parse(broker.reads(stagingPath=tmp_path), Use.STREAM)
    look = Look(options)
    found = look.waiting()
    assert found is not None
    assert (found.messages, found.all_seen, found.oldest) == (0, True, None)
    broker.fill(numbers(0, 40))
    found = look.waiting()
    assert found is not None
    assert (found.messages, found.all_seen) == (40, True)
    assert not look.empty(0, 1)
    assert broker.waiting() == numbers(0, 40)
    large = Broker(broker.port, broker.options)
    with large.client() as client:
        for _ in range(8):
            client.ask("SEND", {"destination": f"/queue/{large.name}"}, b"x" * 1_000_000)
    found = Look(parse(large.reads(stagingPath=tmp_path), Use.STREAM)).waiting()
    assert found is not None
    assert (found.messages < 8, found.all_seen) == (True, False)
