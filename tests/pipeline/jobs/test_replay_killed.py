"""Replays that are killed by SIGKILL and carried on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gateway_process import ROOT
from tests.pipeline.graveyard import BRIDGE_DMQ, Graveyard
from tests.pipeline.jobs.replays import Job, order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def job(spark: SparkSession, graveyard: Graveyard, tmp_path: Path) -> Job:
    return Job(spark, graveyard, tmp_path)


@pytest.mark.parametrize(
    ("point", "times", "sent", "there"),
    [
        # The second of two portions is at the broker, and the ledger does not say so yet.
        ("sending", 2, 3, 6),
        # It is to be sent.
        pytest.param("intended", 2, 3, 3, marks=pytest.mark.long),
        # It was sent, and the dead messages are still there.
        pytest.param("sent", 2, 6, 6, marks=pytest.mark.long),
        # Those of the first are gone.
        pytest.param("removed", 1, 3, 3, marks=pytest.mark.long),
    ],
)
def test_a_replay_that_is_killed_at_any_moment_sends_each_message_once(
    point: str, times: int, sent: int, there: int, job: Job
) -> None:
    job.graveyard.buried([order(number) for number in range(6)])
    plan = job.make(to="queue:revived")
    killed_at(point, times, job)
    assert job.states() == {
        "": 1,
        "intended": 3 if point == "removed" else 6,
        "sent": sent,
        "removed": 3,
    }
    assert len(job.graveyard.browsed("revived")) == there
    done = job.run(approve=plan, remove=True)
    assert (done.sent, done.before, done.removed) == (6 - sent, sent, 3)
    found = Counter(frame.headers["message-id"] for frame in job.graveyard.browsed("revived"))
    assert found == {f"ID:made:{number}": 1 for number in range(6)}
    assert job.graveyard.browsed(BRIDGE_DMQ) == []
    job.graveyard.emptied("revived")


def killed_at(point: str, times: int, job: Job) -> None:
    """Carry out the plan in a process of its own, which is killed when it comes to this point for
    the N-th time.
    """
    words = [
        sys.executable,
        "-m",
        "tests.pipeline.jobs.replaying",
        point,
        str(times),
        str(job.plan),
        str(job.ledger),
        "3",
    ]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
