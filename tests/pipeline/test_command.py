"""The command: quick help, exit codes, one line for each failure."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from pipeline.command import JOBS, main
from pipeline.datasource.errors import BrokerError
from pipeline.failures import sentence
from pipeline.session import SessionOptions, settings

_ROOT = Path(__file__).parents[2]


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=env,
        check=False,
        timeout=120,
    )


@pytest.mark.process
def test_help_names_all_jobs_and_needs_no_spark() -> None:
    done = _run(
        "-c",
        "import sys; from pipeline.command import main; main(['--help']); sys.exit('pyspark' in sys.modules)",
    )
    assert done.returncode == 0
    assert all(f"  {job}" in done.stdout for job in JOBS)


@pytest.mark.parametrize("job", JOBS)
def test_each_job_says_what_it_can_do(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([job, "--help"]) == 0
    said = capsys.readouterr().out
    assert "--master URL" in said
    assert ("--report DIR" in said) == (job != "upgrade")


@pytest.mark.process
def test_without_java_it_says_so_in_one_line() -> None:
    done = _run("-m", "pipeline", "journeys", "/", JAVA_HOME="/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gateway-pipeline: /nowhere/bin/java cannot be run")
    assert done.stderr.endswith(
        "Spark needs Java 17 or later: install it, or set JAVA_HOME to where it is\n"
    )
    done = _run("-m", "pipeline", "journeys", "/", JAVA_HOME="", PATH="/nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there is no java on the path" in done.stderr


@pytest.mark.process
def test_without_pyspark_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from pipeline.command import main; sys.exit(main(['ingest', '--help']))"
    done = _run("-c", program)
    assert done.returncode == 2
    assert done.stderr == (
        "gateway-pipeline: the Python package pyspark is not installed: the pipeline needs pip install 'stomp-gateway[pipeline]'\n"
    )


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("gateway-pipeline: ")
    assert said.count("\n") == 1
    return said


def test_what_is_wrong_is_one_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(tmp_path / "table")
    assert "/nowhere does not exist: expected a folder with a journal or a table" in _refused(
        capsys, "journeys", "/nowhere"
    )
    assert "there is no segment" in _refused(
        capsys, "ingest", "--journal", str(tmp_path), "--into", table
    )
    assert "/no\\x1b[2J where does not exist" in _refused(capsys, "journeys", "/no\x1b[2J\nwhere")
    line = {"v": 7, "run": "r", "line": 1, "time": 1, "ids": ["a"], "steps": ["produced"]}
    (tmp_path / "r-0000000001.jsonl").write_text(json.dumps(line) + "\n")
    assert "is of version 7, and this pipeline knows version 1" in _refused(
        capsys, "journeys", str(tmp_path)
    )
    assert "--since soon: expected a time" in _refused(
        capsys, "journeys", str(tmp_path), "--since", "soon"
    )
    assert main(["journeys", str(tmp_path), "--conf", "nonsense"]) == 2
    assert "expected NAME=VALUE" in capsys.readouterr().err


def test_what_spark_says_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="UNRESOLVED") as raised:
        spark.range(1).where("colour = 'red'").count()
    said = sentence(raised.value)
    assert (
        said
        == "A column, variable, or function parameter with name `colour` cannot be resolved. Did you mean one of the following? [`id`]."
    )
    with pytest.raises(Exception, match="USER_RAISED") as raised:
        spark.range(1).select(sql.raise_error(sql.lit("said by us"))).collect()
    assert sentence(raised.value) == "said by us"
    assert sentence(ValueError("somebody else's")) is None


class _OfJava:
    """What Java raises where a disk is full."""

    def __init__(self, name: str, message: str | None, cause: _OfJava | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getSimpleName(self) -> str:
        return self._name

    def getClass(self) -> _OfJava:
        return self

    def getMessage(self) -> str | None:
        return self._message

    def getCause(self) -> _OfJava | None:
        return self._cause


def test_a_full_disk_is_one_line_that_says_where_to_look() -> None:
    cause = _OfJava("IOException", "No space left on device")
    error = PySparkException("Job aborted.")
    error._origin = _OfJava("SparkException", "Job aborted.", cause)  # type: ignore[attr-defined]
    said = sentence(error)
    assert said is not None
    assert said.startswith("a disk is full (No space left on device): the one that is written to,")
    assert "spark.local.dir" in said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "s3a://bucket/x",
            "Spark lacks the package for s3a://: expected --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, of the version of hadoop-client-api among Spark's jars",
        ),
        (
            "abfss://some@where.dfs.core.windows.net/x",
            "Spark lacks the package for abfss://: expected --conf spark.jars.packages=org.apache.hadoop:hadoop-azure:VERSION, of the version of hadoop-client-api among Spark's jars",
        ),
        (
            "s3://bucket/x",
            "Spark has no storage s3://: expected s3a://, which is the same, and its package hadoop-aws",
        ),
        (
            "other://bucket/x",
            "Spark has no storage other://: expected one that it knows, or a package with it by --conf spark.jars.packages=GROUP:NAME:VERSION",
        ),
    ],
)
def test_storage_that_spark_does_not_know_is_one_line(
    spark: SparkSession, path: str, said: str
) -> None:
    with pytest.raises(Exception, match="FileSystem") as raised:
        spark.read.text(path).count()
    assert sentence(raised.value) == said


@pytest.mark.parametrize(
    "arguments",
    [
        ["ingest", "--journal", "journal", "--into", "a\nb"],
        ["archive", "orders", "a\nb"],
        ["journeys", "journal", "--output", "a\nb"],
    ],
)
def test_a_name_that_no_table_can_have_is_refused_before_spark_starts(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    # There is no such master.
    assert main([*arguments, "--master", "spark://none.invalid:1"]) == 2
    assert capfd.readouterr().err == (
        "gateway-pipeline: a\\nb cannot be the folder of a table: expected a name without the character \\n, which delta-rs does not read as it is written\n"
    )


def _refusing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        try:
            raise OSError("before that")
        except OSError:
            raise BrokerError("the broker refused: [colour] is red") from None
    yield from batches


def _failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise KeyError("colour")
    yield from batches


def test_what_a_worker_raises_is_its_own_sentence(spark: SparkSession) -> None:
    for work, said in (
        (_refusing, "the broker refused: [colour] is red"),
        (_failing, "KeyError: 'colour'"),
    ):
        with pytest.raises(PySparkException) as raised:
            spark.range(1).mapInArrow(work, "id bigint").collect()
        assert sentence(raised.value) == said


@pytest.mark.process
def test_a_java_machine_that_is_gone_is_one_line() -> None:
    there = ClientServer(JavaParameters(port=1, auto_convert=False), PythonParameters(port=0))
    try:
        with pytest.raises(ConnectionRefusedError) as refused:
            there.jvm.System.currentTimeMillis()
    finally:
        there.shutdown_callback_server()
    said = sentence(refused.value)
    assert said is not None
    assert said.startswith(
        "Spark's Java machine ended, or cannot be reached any more; --spark-log FILE keeps what it says"
    )
    assert sentence(ConnectionRefusedError("somebody else's")) is None


def test_the_operator_s_settings_win_and_this_machine_s_stay_on_loopback() -> None:
    here = settings(SessionOptions())
    assert here["spark.master"] == "local[*]"
    assert here["spark.driver.bindAddress"] == here["spark.driver.host"] == "127.0.0.1"
    assert here["spark.ui.enabled"] == "false"
    there = settings(
        SessionOptions("spark://host:7077", settings={"spark.sql.session.timeZone": "Asia/Tokyo"})
    )
    assert there["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert "spark.driver.host" not in there
    submitted = settings(SessionOptions(), submitted=True, master="yarn")
    assert not {"spark.master", "spark.driver.memory", "spark.driver.host"} & set(submitted)


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "orders", "{folder}/archive"),
        ("dead-letters", "--queue", "mq.sys.dmq"),
        ("replay", "--queue", "mq.sys.dmq"),
        ("replay", "--archive", "{folder}/archive", "target"),
        ("reconcile", "{folder}", "--browse-target", "target"),
    ],
)
def test_a_wrong_connection_is_told_before_spark_starts(
    arguments: tuple[str, ...],
    free_port: Callable[[], int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(name: str, options: SessionOptions) -> None:
        pytest.fail(f"Spark is started for {name}")

    job = importlib.import_module(f"pipeline.jobs.{arguments[0].replace('-', '_')}")
    monkeypatch.setattr(job, "spark_session", started)
    words = [word.format(folder=tmp_path) for word in arguments if word != "target"]
    prefix = "--target-" if "target" in arguments else "--"
    port = free_port()
    login = [f"{prefix}login", "ann"]
    for given, said in (
        (
            [f"{prefix}port", str(port)],
            f"no connection to the STOMP broker at 127.0.0.1:{port}: Connection refused",
        ),
        (
            [f"{prefix}port", "none"],
            f"{prefix}port: is 'none', expected a whole number from 1 to 65535",
        ),
        (
            [*login, f"{prefix}passcode-file", "/none"],
            f"{prefix}passcode-file: /none cannot be read: No such file or directory",
        ),
        (
            [*login, f"{prefix}passcode-env", "NONE"],
            f"{prefix}passcode-env: the environment variable NONE is not set",
        ),
    ):
        assert main([*words, *given]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"gateway-pipeline: {said}")
        assert told.count("\n") == 1
