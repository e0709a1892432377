"""What the jobs' tests share: one gateway where messages die, for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.graveyard import BRIDGE_DMQ, BROKER_DMQ, Graveyard
from tests.pipeline.jobs.replays import Job


@pytest.fixture(scope="session")
def running_graveyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graveyard]:
    found = Graveyard(tmp_path_factory.mktemp("graveyard"))
    found.start()
    try:
        yield found
    finally:
        found.gateway.kill()


@pytest.fixture
def graveyard(running_graveyard: Graveyard) -> Graveyard:
    """The gateway, with nothing in its dead message queues."""
    running_graveyard.emptied(BRIDGE_DMQ, BROKER_DMQ)
    return running_graveyard


@pytest.fixture
def job(spark: SparkSession, graveyard: Graveyard, tmp_path: Path) -> Job:
    return Job(spark, graveyard, tmp_path)
