"""A child process that carries out a plan, and kills itself on the way.

``python -m tests.pipeline.jobs.replaying POINT TIMES PLAN LEDGER PORTION``: when it comes to this
point of :class:`pipeline.replay.carrying_out.Replay` for the N-th time.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

import pipeline.replay.carrying_out
from pipeline.command import main
from pipeline.replay.carrying_out import Replay
from tests.pipeline.conftest import brief_arguments


def killing(point: str, times: int) -> partial[Replay]:
    left = [times]

    def reached(where: str) -> None:
        if where == point:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    return partial(Replay, reached=reached)


if __name__ == "__main__":
    point, times, plan, ledger, portion = sys.argv[1:]
    pipeline.replay.carrying_out.Replay = killing(point, int(times))  # type: ignore[assignment,misc]
    with tempfile.TemporaryDirectory() as folder:
        given = ["--approve", plan, "--ledger", ledger, "--remove", "--portion", portion]
        sys.exit(main(["replay", *given, *brief_arguments(Path(folder))]))
