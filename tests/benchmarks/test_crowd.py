"""Many connections that send in turn, against the pump."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import crowd
from benchmarks.peers import Pump
from benchmarks.tally import Outcome


def test_each_connection_sends_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "_WARM_UP", 0.1)
    pump = Pump(tmp_path / "pump")
    processor, latency, memory = crowd.run(pump, 200, 100, 1.5)
    assert not pump.running()
    assert processor.outcome == latency.outcome == memory.outcome == Outcome()
    assert processor.messages == pytest.approx(199 * 1.6, rel=0.5)
    assert processor.extra["msg/s"] == pytest.approx(200, rel=0.2)
    assert latency.percentiles is not None
    assert latency.value == latency.percentiles[1]
    assert memory.value is not None


def test_messages_of_one_connection_are_to_come_in_order() -> None:
    order = crowd._Order(10)
    order.arrival([1, 0, 3, 2, 11, 10])
    assert order.disordered == 0
    order.arrival([30, 20])
    assert order.disordered == 1
