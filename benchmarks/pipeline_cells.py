"""The pipeline's cells: a journal through three jobs.

They are ``ingest``, ``journeys`` and ``reconcile``.

Declares what is measured and what is to be reached, and measures it: the jobs run as an operator
runs them, one after the other, over a journal made from a seed, and their answer is compared with
what the journal was made of.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cell import Cell, Row, Timing
from benchmarks.endpoint import Refused
from benchmarks.goals import AtMost, Goal
from benchmarks.measurement import Measurement
from benchmarks.peers import Gateway, Peer
from benchmarks.process import ProcessTree
from tests.pipeline.generated import write_journal

_CORES = 2
#: Of Spark's heap; what Java has besides, and Python, fit with it into 3 GB.
_MEMORY = "1500m"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 3600


@dataclass(frozen=True)
class Jobs:
    """``ingest``, then ``journeys`` and ``reconcile``, of a generated journal."""

    events: int
    alone: bool = True
    tls: bool = False
    once: bool = True

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        folder = peer.folder.absolute()
        truth = write_journal(folder / "journal", self.events)
        ingest = _run(
            folder, "ingest", "--journal", str(folder / "journal"), "--into", str(folder / "table")
        )
        journeys = _run(
            folder,
            "journeys",
            str(folder / "table"),
            "--output",
            str(folder / "answer"),
            "--format",
            "json",
        )
        answered = sum(
            1 for path in (folder / "answer" / "journeys").glob("part-*") for _ in path.open("rb")
        )
        if answered != truth.journeys:
            raise Refused(f"{answered} journeys, of {truth.journeys}")
        reconcile = _run(folder, "reconcile", str(folder / "table"))
        seconds = ingest.seconds + journeys.seconds
        cpu = ingest.cpu + journeys.cpu
        parts = {
            "ingest s": ingest.seconds,
            "journeys s": journeys.seconds,
            "reconcile s": reconcile.seconds,
            "events/s": truth.events / seconds,
        }
        return [
            Measurement(seconds, extra=parts),
            Measurement(
                cpu / truth.events * 1e6,
                extra={"processor s": cpu, "reconcile processor s": reconcile.cpu},
            ),
            Measurement(
                max(ingest.peak, journeys.peak, reconcile.peak) / 2**20,
                extra={
                    "journal MiB": _mebibytes(folder / "journal"),
                    "table MiB": _mebibytes(folder / "table"),
                },
            ),
        ]


@dataclass(frozen=True)
class _Cost:
    """What a job took: seconds, processor seconds, peak memory in bytes."""

    seconds: float
    cpu: float
    peak: int


def _run(folder: Path, job: str, *arguments: str) -> _Cost:
    log = folder / f"{job}.log"
    command = [
        sys.executable,
        "-m",
        "pipeline",
        job,
        *arguments,
        "--master",
        f"local[{_CORES}]",
        "--memory",
        _MEMORY,
    ]
    began = time.monotonic()
    cpu, peak = 0.0, 0
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    tree = ProcessTree(command, environment, folder, log)
    try:
        while tree.alive():
            cpu, peak = max(cpu, tree.cpu_seconds()), max(peak, tree.resident_bytes())
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise Refused(f"{job} takes longer than {_PATIENCE_SECONDS} s")
            time.sleep(_POLL_SECONDS)
    finally:
        tree.kill()
    said = log.read_text(errors="replace").strip().splitlines()
    if not said or said[-1].startswith("gateway-pipeline:"):
        raise Refused(f"{job}: {said[-1] if said else 'it said nothing'}")
    return _Cost(time.monotonic() - began, cpu, peak)


def _mebibytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _cell(name: str, events: int) -> Cell:
    million = events == 1_000_000
    time_goal: tuple[Goal, ...] = (AtMost(180, "s"),) if million else ()
    memory_goal: tuple[Goal, ...] = (AtMost(3, "GB", 2**20 / 1e9),) if events >= 1_000_000 else ()
    what = f"pipeline on {_CORES} cores, {events:,} events: ingest, then journeys"
    rows = (
        Row(
            what,
            "s",
            False,
            time_goal,
            ("the start of two Spark sessions and the compiling of their plans included",),
        ),
        Row("the same: processor for each event", "µs", False),
        Row("the same: memory", "MiB", False, memory_goal),
    )
    return Cell(name, Jobs(events), rows, {Gateway.name: Gateway})


def quick() -> list[Cell]:
    """What ``make bench`` measures: the goal, and a tenth of it."""
    return [_cell("pipeline-1e5", 100_000), _cell("pipeline-1e6", 1_000_000)]


def full() -> Iterator[Cell]:
    """The same, and ten million events."""
    yield from quick()
    yield _cell("pipeline-1e7", 10_000_000)
