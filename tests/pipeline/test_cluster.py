"""The jobs on a real Spark cluster: the same command with ``--master``, and the same module by
spark-submit.
"""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.documented_blocks import shown
from tests.gateway_process import ROOT, GatewayProcess
from tests.pipeline.cluster import Cluster
from tests.pipeline.datasource.brokers import Broker
from tests.pipeline.generated import write_journal

pytestmark = pytest.mark.process

_EVENTS = 1_000
_MESSAGES = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The zip file that the documentation tells to make for ``--py-files``."""
    [zipped] = re.findall(r"zip -qr /tmp/stomp-gateway.zip (.*)", shown("pipeline", "cd "))
    packages, _, patterns = zipped.partition(" -i ")
    made = tmp_path / "stomp-gateway.zip"
    with zipfile.ZipFile(made, "w") as archive:
        for package in packages.split():
            for pattern in shlex.split(patterns):
                for path in (ROOT / package).rglob(pattern):
                    archive.write(path, path.relative_to(ROOT))
    return made


@pytest.mark.long
def test_ingest_by_the_command(cluster: Cluster, tmp_path: Path) -> None:
    truth = write_journal(tmp_path / "journal", _EVENTS, octets=20_000, queues=2)
    done = cluster.run("ingest", "--journal", "journal", "--into", "table", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), cluster.log
    assert f"events              {truth.events:,}" in done.stdout
    assert cluster.finished()[-1] == "gateway-pipeline ingest"


@pytest.mark.long
def test_journeys_by_spark_submit(cluster: Cluster, packages: Path, tmp_path: Path) -> None:
    truth = write_journal(tmp_path / "journal", _EVENTS, octets=20_000, queues=2)
    done = cluster.submit(
        "journeys",
        "journal",
        "--output",
        "out",
        "--format",
        "csv",
        folder=tmp_path,
        packages=packages,
    )
    assert done.returncode == 0, done.stderr
    rows = [
        row
        for path in (tmp_path / "out" / "journeys").glob("*.csv")
        for row in csv.DictReader(path.open(newline=""))
    ]
    assert Counter(row["outcome"] for row in rows) == truth.outcomes
    assert cluster.finished()[-1] == "gateway-pipeline journeys"


def test_messages_are_received_by_an_executor_of_a_job_by_spark_submit(
    cluster: Cluster, packages: Path, tmp_path: Path
) -> None:
    passcode = tmp_path / "passcode"
    passcode.write_text("guest\n")
    with GatewayProcess(tmp_path / "var") as gateway:
        broker = Broker(gateway.port, {"login": "guest", "passcodeFile": str(passcode)})
        broker.fill([f"order {number}" for number in range(_MESSAGES)])
        connection = (
            "--port",
            str(gateway.port),
            "--login",
            "guest",
            "--passcode-file",
            str(passcode),
        )
        archive = (
            "archive",
            broker.name,
            "archive",
            "--consume",
            "--staging",
            "staging",
            "--partitions",
            "2",
            *connection,
        )
        done = cluster.submit(*archive, folder=tmp_path, packages=packages)
        assert done.returncode == 0, done.stderr + cluster.log
        assert broker.waiting() == []
    table = DeltaTable(tmp_path / "archive").to_pyarrow_table(columns=["body"])
    assert Counter(table.column("body").to_pylist()) == Counter(
        b"order %d" % number for number in range(_MESSAGES)
    )
    assert cluster.finished()[-1] == "archive"


@pytest.mark.long
def test_what_an_executor_cannot_do_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "var") as gateway:
        broker = Broker(gateway.port, {})
        broker.fill(["one"])
        connection = (
            "--port",
            str(gateway.port),
            "--login",
            "guest",
            "--passcode-env",
            "PASSCODE_OF_THE_DRIVER",
        )
        done = cluster.run(
            "archive",
            broker.name,
            "archive",
            *connection,
            folder=tmp_path,
            PASSCODE_OF_THE_DRIVER="guest",
        )
        assert broker.waiting() == ["one"]
    assert (done.returncode, done.stdout) == (2, "")
    expected = "the environment variable PASSCODE_OF_THE_DRIVER is not set; on a cluster it must be in Spark's Python workers, too\n"
    assert done.stderr.startswith("gateway-pipeline: ")
    assert done.stderr.endswith(expected)
    assert done.stderr.count("\n") == 1


def test_a_master_that_is_not_there_is_one_line_at_once(free_port: Callable[[], int]) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    command = (sys.executable, "-m", "pipeline", "journeys", "/", "--master", master)
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gateway-pipeline: --master {master}: no master answers there (")
    assert done.stderr.count("\n") == 1
