"""What open pages of the console cost is measured at a real gateway."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cell import Timing
from benchmarks.console import GatewayWithPages, Pages
from benchmarks.tally import Outcome


def test_pages_follow_while_the_load_runs(tmp_path: Path) -> None:
    peer = GatewayWithPages(tmp_path / "gateway")
    peer.start()
    try:
        found, alone = Pages(turns=1).measure(peer, "pages", Timing(warm_up=0.1, seconds=0.05))
    finally:
        peer.kill()
    assert found.outcome == Outcome()
    assert found.value == found.extra["least %"] == found.extra["most %"]
    assert found.value > 1
    assert alone.value is not None
    assert alone.value < 50
