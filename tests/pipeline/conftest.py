"""What the tests of the pipeline share: one Spark session, as starting one takes ten seconds.

:mod:`tests.conftest` has all tests that ask for it run in one process, whichever files they are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pipeline.session import SessionOptions, spark_session
from tests.pipeline.class_archive import java_options

#: Each method is compiled thoroughly ten times as late as by default: most are never worth it here,
#: where no query is long.
_COMPILED_LATE: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
#: Small and quick: two tasks at a time, and few partitions after a shuffle.
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {_COMPILED_LATE} {java_options()}",
    "spark.sql.streaming.stopTimeout": "30s",
}
#: Of short queries: Spark makes no Java of each, plans none anew while it runs, and gives the same
#: answers. The jobs on a cluster have both, and all with ``--long``.
_SHORT: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
#: Of a Java machine that ends soon: less work for the compiler than it would save.
QUICK: Final = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {java_options()}"
#: Of a session that ends soon.
BRIEF: Final = {**_SHORT, "spark.driver.extraJavaOptions": QUICK}


def options(folder: Path, **more: str) -> SessionOptions:
    """A session of tests: 1 GiB, and nothing is written outside of the folder."""
    folders = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return SessionOptions("local[2]", "1g", {**SETTINGS, **folders, **more}, folder / "spark.log")


def brief_arguments(folder: Path) -> list[str]:
    """What a command in a process of its own is given for a session that ends soon."""
    session = options(folder, **BRIEF)
    assert session.master
    assert session.memory
    settings = [
        word for name, value in session.settings.items() for word in ("--conf", f"{name}={value}")
    ]
    return [
        "--master",
        session.master,
        "--memory",
        session.memory,
        "--spark-log",
        str(session.log),
        *settings,
    ]


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SparkSession]:
    """The Spark session of this test run: ``local[2]`` on loopback."""
    more = {} if request.config.getoption("--long") else _SHORT
    with spark_session("tests", options(tmp_path_factory.mktemp("spark"), **more)) as session:
        yield session
