"""The measurement of a message's path by stages runs, and counts what arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.micro_stages import reads, stages


@pytest.mark.parametrize("constant", [False, True])
def test_every_stage_takes_time(constant: bool, tmp_path: Path) -> None:
    found = stages(reads(constant, 3), tmp_path)
    assert set(found) == {"parse", "plan", "broker", "encode", "all"}
    assert all(found[name] > 0 for name in ("parse", "encode", "all"))
