"""The data source ``stomp``: a full queue moves into Parquet.

A streaming query on this machine moves it, with the server beside it.

Run as a program it is that query, which tells its progress as JSON; it is a process of its own,
since a Java machine belongs to one session.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import backlog
from benchmarks.cell import Cell, Row, Timing
from benchmarks.endpoint import Refused
from benchmarks.goals import Reaches
from benchmarks.measurement import Measurement
from benchmarks.meter import Meter
from benchmarks.peers import ROOT, Gateway, Peer, PureGateway

_MESSAGES = 1_000_000
_BODY = 1024
#: Micro-batches that are not counted: a Java machine compiles what it runs often.
_FIRST = 3
_PATIENCE = 300.0


@dataclass(frozen=True)
class IntoParquet:
    """A queue of 1 KiB messages, persistent, into Parquet.

    :param partitions: consumers.
    :param batch: messages of a micro-batch and partition.
    """

    partitions: int = 2
    batch: int = 50_000
    alone: bool = False
    tls: bool = False
    once: bool = True

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        filled = backlog.fill(peer, name, _BODY, True, _MESSAGES, _PATIENCE)
        if filled.messages < _MESSAGES:
            raise Refused(
                f"{peer.name} took {filled.messages} of {_MESSAGES} messages in {_PATIENCE:g} s"
            )
        folder = Path(tempfile.mkdtemp(prefix="lake-"))
        try:
            (folder / "passcode").write_text(peer.passcode)
            options = {
                **{
                    "port": str(peer.port),
                    "login": peer.login,
                    "passcodeFile": str(folder / "passcode"),
                    "destination": f"queue:{name}",
                },
                **{"partitions": str(self.partitions), "batchSize": str(self.batch)},
            }
            meter = Meter(peer.tree)
            told = _run(folder, options)
            cost = meter.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return [
            Measurement(
                value=told["rate"],
                messages=int(told["rows"]),
                server_cpu=cost.server / _MESSAGES * 100_000,
                server_peak=cost.peak,
                extra={f"{what}, s/100k": told[what] for what in ("java", "python")},
            )
        ]


def _run(folder: Path, options: Mapping[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.lake", str(folder), json.dumps(options)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * _PATIENCE,
    )
    if done.returncode:
        raise Refused(f"the query ended with {done.returncode}: {done.stderr[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def _cpu() -> dict[str, float]:
    """Processor seconds of the Java machine and of the Python workers."""
    found = {"java": 0.0, "python": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            found["java" if process.name() == "java" else "python"] += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found


def query(folder: Path, options: Mapping[str, str]) -> dict[str, float]:
    """Move the queue.

    :returns: rows and messages a second after the first micro-batches, and processor seconds for
        each 100,000 of them.
    """
    from pipeline.datasource.source import register
    from pipeline.session import SessionOptions, spark_session

    with spark_session(
        "lake",
        SessionOptions(
            "local[2]", "1g", {"spark.local.dir": str(folder / "local")}, folder / "spark.log"
        ),
    ) as spark:
        register(spark)
        rows = (
            spark.readStream.format("stomp")
            .options(stagingPath=str(folder / "staging"), **options)
            .load()
        )
        writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
        running = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        batches: dict[int, Any] = {}
        before: dict[str, float] = {}
        began = time.monotonic()
        while sum([each["numInputRows"] for each in batches.values()]) < _MESSAGES:
            if (failure := running.exception()) is not None:
                raise failure
            if time.monotonic() > began + _PATIENCE:
                raise TimeoutError(f"not done within {_PATIENCE:g} s: {len(batches)} micro-batches")
            batches |= {each["batchId"]: each for each in running.recentProgress}
            if len(batches) >= _FIRST and not before:
                first = len(batches)
                before = _cpu()
            time.sleep(0.05)
        after = _cpu()
        running.stop()
    counted = [
        each for number, each in sorted(batches.items()) if number >= first and each["numInputRows"]
    ]
    moved = sum([each["numInputRows"] for each in counted])
    seconds = sum([each["durationMs"]["triggerExecution"] for each in counted]) / 1000
    if "LAKE_VERBOSE" in os.environ:
        for each in counted:
            print(each["numInputRows"], each["durationMs"], file=sys.stderr)
    return {
        "rows": moved,
        "rate": moved / seconds,
        **{what: (after[what] - before[what]) / moved * 100_000 for what in after},
    }


_SERVERS: Mapping[str, type[Peer]] = {peer.name: peer for peer in (Gateway, PureGateway)}

STREAM = Cell(
    "pipeline-stream",
    IntoParquet(),
    (
        Row(
            "streaming query from a queue into Parquet, 1 KiB, persistent, Spark on the same cores",
            "msg/s",
            True,
            (Reaches(20_000, "msg/s"),),
            ("without Spark's start and its first micro-batches",),
        ),
    ),
    _SERVERS,
)

if __name__ == "__main__":
    print(json.dumps(query(Path(sys.argv[1]), json.loads(sys.argv[2]))))
