"""``ingest`` in a process of its own that is killed at any time, or told that it is over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from pipeline.jobs.ingest import run
from pipeline.tables import alone
from tests.gateway_process import ROOT
from tests.pipeline.conftest import brief_arguments
from tests.pipeline.generated import write_journal
from tests.pipeline.jobs.ingests import EVENTS, OCTETS, QUEUES, check


@contextmanager
def _ingest(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, and its Java machine in the same group; at the end
    nothing is left of them.
    """
    places = ("--journal", str(folder / "journal"), "--into", str(folder / "table"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "ingest", *places, *arguments, *brief_arguments(folder)],
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


def _until_more(
    count: Callable[[Path], int], than: int, folder: Path, process: subprocess.Popen[str]
) -> None:
    while count(folder) <= than:
        assert process.poll() is None, f"it ended before it should: {process.communicate()[0]}"
        time.sleep(0.01)


def _files(folder: Path) -> int:
    # Unlike a glob it does not mind folders that go while it looks.
    return sum(
        name.endswith(".parquet")
        for _, _, names in os.walk(folder / "table" / "events")
        for name in names
    )


def _batches(folder: Path) -> int:
    found = os.walk(folder / "table" / "ledger")
    return sum(
        name.endswith(".parquet")
        for place, _, names in found
        for name in names
        if "_temporary" not in place
    )


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_killed_at_any_time_and_run_again_it_has_each_event_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    truth = write_journal(tmp_path / "journal", EVENTS, seed=seed, octets=OCTETS, queues=QUEUES)
    with _ingest(tmp_path, "--continuously") as process:
        # At one of many places in a batch: while its files appear, between them and the ledger, or
        # after it.
        _until_more(_files, seed - 1, tmp_path, process)
    run(spark, [str(tmp_path / "journal")], str(tmp_path / "table"))
    check(spark, tmp_path / "table", truth)


def _lives(pid: int) -> bool:
    """Whether there is such a process, other than one that only its parent has not taken note
    of.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_while_the_java_machine_of_one_that_was_killed_lives_nobody_else_writes(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = write_journal(tmp_path / "journal", EVENTS, seed=seed, octets=OCTETS, queues=QUEUES)
    journal, table = str(tmp_path / "journal"), str(tmp_path / "table")
    with _ingest(tmp_path, "--continuously") as process:
        _until_more(_files, seed - 1, tmp_path, process)
        (java,) = map(
            int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        os.kill(java, signal.SIGSTOP)
        process.kill()
        process.wait()
        monkeypatch.setattr(alone, "PATIENCE", 0.0)
        with pytest.raises(PipelineError, match=f"another ingest is at work on {table}"):
            run(spark, [journal], table)
        monkeypatch.undo()
        # It goes on with what it was at, until it sees that it is alone; the run waits for it.
        os.kill(java, signal.SIGCONT)
        run(spark, [journal], table)
        assert not _lives(java)
    check(spark, tmp_path / "table", truth)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_continuously_until_a_signal_says_that_it_is_over(
    spark: SparkSession, tmp_path: Path, number: signal.Signals
) -> None:
    journal = tmp_path / "journal"
    truth = write_journal(tmp_path / "to come", EVENTS, octets=OCTETS, queues=QUEUES)
    journal.mkdir()
    coming = iter(truth.segments)

    def appear() -> None:
        segment = next(coming)
        segment.rename(journal / segment.name)

    with _ingest(tmp_path, "--continuously", "--every", "0", "--compact") as process:
        for done in range(2):
            appear()
            _until_more(_batches, done, tmp_path, process)
        files = _files(tmp_path)
        appear()
        # In the midst of a batch, and to the Java machine as well, as systemd and terminals do.
        _until_more(_files, files, tmp_path, process)
        os.killpg(process.pid, number)
        appear()
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert said.startswith(f"Ingested into {tmp_path / 'table'}\n"), said
    assert re.search(r"^  batches +[2-9]$", said, re.MULTILINE), said
    assert re.search(r"^  batches compacted +[2-9]$", said, re.MULTILINE), said
    assert any("-compacted" in path.name for path in (tmp_path / "table" / "events").iterdir())
    for _ in range(len(truth.segments) - 4):
        appear()
    run(spark, [str(journal)], str(tmp_path / "table"))
    check(spark, tmp_path / "table", truth)
