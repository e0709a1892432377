"""What the tests of the pipeline share: one Spark session, as starting one takes ten seconds.

:mod:`tests.conftest` has all tests that ask for it run in one process, whichever files they are in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pipeline.session import SessionOptions, spark_session
from tests.gateway_process import ROOT
from tests.pipeline.class_archive import java_options

#: Less work for Java's compiler than it would save, as no query is long, and room for what it has
#: made: otherwise it throws that away and makes it again.
QUICK: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m " + java_options()
)
#: Small and quick: two tasks at a time, and few partitions after a shuffle.
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.sql.streaming.stopTimeout": "30s",
}
#: Of short queries: Spark makes no Java of each, plans none anew while it runs, and gives the same
#: answers. The jobs on a cluster have both, and all with ``--long``.
SHORT: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
#: What PySpark asks Java for at each expression, and Java looks for in all its archives.
_ASKED_FOR: Final[dict[str, tuple[str, ...]]] = {
    "functions": ("col", "lit", "when"),
    "org.apache.spark.sql.functions": ("col", "lit", "when"),
    "PythonUtils": ("toSeq",),
    "PythonSQLUtils": (),
}


def options(folder: Path, **more: str) -> SessionOptions:
    """A session of tests: 1 GiB, and nothing is written outside of the folder."""
    folders = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return SessionOptions("local[2]", "1g", {**SETTINGS, **folders, **more}, folder / "spark.log")


def brief_arguments(folder: Path) -> list[str]:
    """What a command in a process of its own is given for a session that ends soon."""
    session = options(folder, **SHORT)
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


@contextmanager
def command(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The pipeline's command, and its Java machine, in a group of processes.

    At the end nothing is left of them.

    :param folder: for what Spark writes besides.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *arguments, *brief_arguments(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _asked_once(spark: SparkSession) -> None:
    """Keep what Java says of these names, which stays true as long as the session."""
    names = spark.sparkContext._jvm
    for name, methods in _ASKED_FOR.items():
        found = getattr(names, name)
        for method in methods:
            setattr(found, method, getattr(found, method))
        setattr(names, name, found)


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SparkSession]:
    """The Spark session of this test run: ``local[2]`` on loopback."""
    more = {} if request.config.getoption("--long") else SHORT
    with spark_session("tests", options(tmp_path_factory.mktemp("spark"), **more)) as session:
        _asked_once(session)
        yield session
