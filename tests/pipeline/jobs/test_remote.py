"""Each job on a Spark Connect server, by the command."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from gateway.messaging.message import BodyType
from tests.crash.waiting import until
from tests.gateway_process import ROOT
from tests.pipeline.connect_server import connect_server
from tests.pipeline.generated import Truth, write_journal
from tests.pipeline.graveyard import BRIDGE_DMQ, Graveyard
from tests.pipeline.jobs.replays import order

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as server:
        yield server.address


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("journal")
    return folder, write_journal(folder, 1_000, octets=20_000, queues=2)


def job(*arguments: object, code: int = 0, folder: Path = ROOT) -> str:
    """What a job prints; on the standard error if it does not end well."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *map(str, arguments)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    if code < 2:
        assert done.stderr == ""
        return done.stdout
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    return done.stderr


def rows(table: Path, *columns: str) -> list[dict[str, Any]]:
    found = DeltaTable(table).to_pyarrow_table(columns=list(columns)).to_pylist()
    assert isinstance(found, list)
    return found


def test_a_journal_is_ingested_and_asked(
    server: str, journal: tuple[Path, Truth], tmp_path: Path
) -> None:
    """By relative names: below the command's folder, not the server's."""
    folder, truth = journal
    ingest = ("ingest", "--journal", folder, "--into", "table", "--remote", server)
    assert f"events              {truth.events:,}" in job(*ingest, folder=tmp_path)
    assert "Nothing new for table" in job(*ingest, folder=tmp_path)
    # A server without tokens takes no notice of one, but over TLS, which it has not.
    asked = ("--output", "answer", "--report", "report", "--remote", f"{server}/;user_id=SECRET")
    assert "Written as delta to answer" in job("journeys", "table", *asked, folder=tmp_path)
    outcomes = Counter(row["outcome"] for row in rows(tmp_path / "answer/journeys", "outcome"))
    assert outcomes == truth.outcomes
    page = (tmp_path / "report" / "journeys.html").read_text()
    assert server in page
    assert "SECRET" not in page
    # Of what is in doubt the answer is no.
    said = job(
        "reconcile", "table", "--output", "links", "--remote", server, code=1, folder=tmp_path
    )
    assert "In doubt" in said
    job(
        "dead-letters",
        folder,
        "--output",
        "dead",
        "--format",
        "csv",
        "--remote",
        server,
        folder=tmp_path,
    )
    assert (tmp_path / "dead").is_dir()


@pytest.mark.long
def test_journeys_go_on(server: str, journal: tuple[Path, Truth], tmp_path: Path) -> None:
    _, truth = journal
    growing = tmp_path / "journal"
    growing.mkdir()
    half = len(truth.segments) // 2
    assert half
    for segments in truth.segments[:half], truth.segments[half:]:
        for one in segments:
            shutil.copy(one, growing)
        job("ingest", "--journal", growing, "--into", "table", "--remote", server, folder=tmp_path)
        asked = ("--incremental", "--output", "answer", "--remote", server)
        said = job("journeys", "table", *asked, folder=tmp_path)
        assert re.search(r"new batches +1\n", said)
    assert "Nothing new" in job("journeys", "table", *asked, folder=tmp_path)
    outcomes = Counter(row["outcome"] for row in rows(tmp_path / "answer/journeys", "outcome"))
    assert outcomes == truth.outcomes


@pytest.mark.long
def test_dead_messages_are_archived_grouped_and_sent_again(
    server: str, graveyard: Graveyard, tmp_path: Path
) -> None:
    graveyard.buried([order(number, BodyType.TEXT) for number in range(3)])
    at = [*graveyard.arguments(), "--remote", server]
    assert "messages added" in job("archive", BRIDGE_DMQ, tmp_path / "archive", *at)
    assert len(rows(tmp_path / "archive", "message_id")) == 3
    assert "Dead" in job("dead-letters", "--queue", BRIDGE_DMQ, *at)
    again = ("--plan", tmp_path / "plan", "--ledger", tmp_path / "ledger", "--to", "queue:again")
    job("replay", "--archive", tmp_path / "archive", *again, *at)
    approve = ("--approve", tmp_path / "plan", "--ledger", tmp_path / "ledger")
    job("replay", *approve, "--remote", server)
    assert len(graveyard.browsed("again")) == 3
    consume = ("--consume", "--staging", tmp_path / "staging", "--batch", "1")
    job("archive", "again", tmp_path / "consumed", *consume, *at)
    assert len(rows(tmp_path / "consumed", "message_id")) == 3
    assert graveyard.browsed("again") == []


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_dies_is_told(
    journal: tuple[Path, Truth], tmp_path: Path, ending: signal.Signals
) -> None:
    folder, _ = journal
    with connect_server(tmp_path) as server:
        gone = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "journeys", str(folder), "--remote", server.address],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = tmp_path / "server.log"
        until(lambda: "ExecuteHolder" in log.read_text(), "it never asked")
        server.process.send_signal(ending)
    said = gone.communicate(timeout=120)[1]
    assert gone.returncode == 2
    assert said.startswith("gateway-pipeline: the Spark Connect server is gone")
    assert said.count("\n") == 1


def test_what_does_not_go_is_one_line(server: str, tmp_path: Path) -> None:
    ask = ("journeys", tmp_path)
    assert "--remote sc://127.0.0.1:1: no server answers there" in job(
        *ask, "--remote", "sc://127.0.0.1:1", code=2
    )
    for address in ("sc://127.0.0.1:1/;token=SECRET", "http://me:SECRET@127.0.0.1:1/"):
        assert "SECRET" not in job(*ask, "--remote", address, code=2)
        assert "SECRET" not in job(*ask, "--master", address.replace("http", "sc"), code=2)
    assert f"--master {server} is a Spark Connect server: expected --remote" in job(
        *ask, "--master", server, code=2
    )
    assert "--memory is for the server of --remote to decide" in job(
        *ask, "--remote", server, "--memory", "2g", code=2
    )
    assert f"--conf spark.driver.memory: it is for the server at {server} to set" in job(
        *ask, "--remote", server, "--conf", "spark.driver.memory=3g", code=2
    )
    assert f"the journal's folder {tmp_path}/none does not exist" in job(
        "journeys", tmp_path / "none", "--remote", server, code=2
    )
    # Told before Java is looked for, which is not on the path.
    assert f"{tmp_path}/none does not exist: expected a folder" in job(
        "journeys", tmp_path / "none", code=2
    )
