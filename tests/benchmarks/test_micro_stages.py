"""The measurement of a message's path by stages runs, and counts what arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.micro_stages import reads, stages


@pytest.mark.parametrize(("constant", "queues"), [(False, 1), (True, 1), (False, 7)])
def test_every_stage_takes_time(constant: bool, queues: int, tmp_path: Path) -> None:
    found = stages(reads(constant, queues, 3), queues, tmp_path)
    assert set(found) == {"parse", "plan", "broker", "encode", "all"}
    assert all(found[name] > 0 for name in ("parse", "encode", "all"))
