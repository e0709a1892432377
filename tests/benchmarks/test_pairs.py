"""Two builds of the gateway compared in pairs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from benchmarks import costs, load, pairs, processor
from benchmarks.cell import Row
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.process import ProcessTree
from benchmarks.processor import Plan, Slices
from benchmarks.results import RowResult
from benchmarks.switched import SwitchedGateway
from tests.crash.waiting import until
from tests.test_process_tracing import collecting

ROOT = Path(__file__).parents[2]


def test_a_figure_is_compared_pair_by_pair() -> None:
    result = RowResult("cell", Row("a row", "msg/s", True), ("old", "new"))
    for cost in (1.0, 2.0, 3.0, 4.0):
        result.add("old", Measurement(10.0, server_cpu=cost))
        result.add("new", Measurement(None if cost == 4.0 else 10.0, server_cpu=1.5 * cost))
    found = pairs.compared(result, lambda run: run.server_cpu if run.value else None)
    assert found is not None
    assert (found.old, found.new, found.ratio) == (2.0, 3.0, 1.5)
    assert pairs.compared(result, lambda run: None) is None


def test_both_builds_are_measured_in_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    arguments = [str(ROOT), str(ROOT), "--only", "auto-constant", "--pairs", "2", "--seconds"]
    options = ["0.2", "--warm-up", "0.1", "--bound", "100000", "--json", str(figures)]
    assert pairs.main([*arguments, *options]) == 0
    [*_, line] = [each for each in capsys.readouterr().out.splitlines() if "rate/s" in each]
    assert "(" in line
    kept = json.loads(figures.read_text())
    assert {len(runs) for row in kept["rows"] for runs in row["runs"].values()} == {2}
    assert all(pair["cpu s/100k"]["ratio"] > 0 for pair in kept["pairs"])


def test_a_folder_without_a_gateway_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        pairs.main([str(tmp_path), str(ROOT)])


def test_an_unknown_cell_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        pairs.main([str(ROOT), str(ROOT), "--only", "backlog", "--only", "nothing"])
    told = capsys.readouterr().err
    assert "no cell has 'nothing' in its name" in told
    assert "backlog-persistent, link-within" in told.replace("request-reply-10, ", "")


def test_an_interval_holds_what_two_starts_differ_by() -> None:
    """Many pairs of one start make it no narrower than the starts allow."""
    alike = processor.estimate([[(1.0, 1.01)] * 50, [(2.0, 2.02)] * 50])
    assert (alike.ratio, alike.low, alike.high) == pytest.approx((1.01, 1.01, 1.01))
    assert (alike.old, alike.pairs) == (1.5, 100)
    apart = processor.estimate([[(1.0, 1.0)] * 50, [(1.0, 1.04)] * 50, [(1.0, 1.02)] * 50])
    assert (apart.ratio, apart.low, apart.high) == pytest.approx((1.02, 1.0, 1.04))
    noisy = [[(1.0, 1.01 + 0.1 * (-1) ** number) for number in range(101)] for _ in range(8)]
    found = processor.estimate(noisy)
    assert found.low < 1.01 < found.high
    with pytest.raises(ValueError, match="no pair"):
        processor.estimate([[]])


#: It works while it is switched on, and tells when it listens.
_WORKS = """
import signal, sys, time
on = False
def switch(number, frame):
    global on
    on = number == signal.SIGUSR2
signal.signal(signal.SIGUSR1, switch)
signal.signal(signal.SIGUSR2, switch)
print("ready", flush=True)
while True:
    on or time.sleep(0.001)
"""


class _Working(SwitchedGateway):
    def _launch(self) -> ProcessTree:
        arguments = [sys.executable, "-c", _WORKS]
        return ProcessTree(arguments, os.environ, self.folder, self.log)

    def _answers(self) -> bool:
        return "ready" in self.log.read_text()


def test_a_slice_tells_the_side_that_it_is_of(tmp_path: Path) -> None:
    peer = _Working(tmp_path / "working")
    peer.start()
    try:
        slices = Slices(peer, [0, 1, 1, 0, 0, 1], Plan(1, 3, 0.1, 0.2))
        # Messages come steadily, so that a busy machine makes no difference to them.
        while not slices.see(int(1e6 * time.perf_counter())):
            time.sleep(0.001)
    finally:
        peer.kill()
    pairs = slices.pairs()
    assert len(pairs) == 3
    for old, new in pairs:
        assert new > 1.5 * old


class _Traced(SwitchedGateway):
    endpoint = ""

    def settings(self) -> dict[str, str]:
        traces = {"imq.tracing.endpoint": self.endpoint, "imq.tracing.oneIn": "1"}
        return super().settings() | traces | {"imq.journal.level": "all"}


def test_messages_are_traced_while_that_is_switched_on(tmp_path: Path) -> None:
    with collecting() as (collector, port):
        peer = _Traced(tmp_path / "traced")
        peer.endpoint = f"http://127.0.0.1:{port}/v1/traces"
        peer.start()
        try:
            for name, on in (("first", True), ("off", False), ("on", True)):
                peer.switch(on)
                load.run(peer, Load(), name, 0.0, 0.3)
            until(
                lambda: any(span["name"] == "settle queue:on" for span in collector.spans),
                lambda: f"only {len(collector.spans)} spans came",
            )
        finally:
            peer.kill()
        names = {span["name"] for span in collector.spans}
        assert "publish queue:first" in names
        assert not [name for name in names if name.endswith("queue:off")]


@pytest.mark.long
@pytest.mark.parametrize("name", ["tracing", "chain"])
def test_a_setting_is_measured_beside_the_same_without_it(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = [name, "--path", str(ROOT), "--only", "auto-constant", "--pairs", "2"]
    assert costs.main([*arguments, "--starts", "2", "--bound", "100000"]) == 0
    told = capfd.readouterr().out
    assert re.search(r"auto-constant .* µs/msg +[-+][0-9.]+ % \(.* to .* %\), 4 pairs", told)
    requests = re.search(r"(\d+) requests with (\d+) octets came", told)
    assert requests is not None
    assert (int(requests[1]) > 0) == (name == "tracing")
