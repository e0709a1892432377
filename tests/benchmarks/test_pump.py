"""The load generator against the pump, a real process over real sockets: what is measured is what
was carried, and nothing stays behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.cell import Cell, Row, Timing
from benchmarks.cells import START_UP
from benchmarks.endpoint import Refused
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.peers import NotReady, Peer, Pump
from benchmarks.process import ProcessTree
from benchmarks.runner import Runner
from benchmarks.steady_cells import Steady
from benchmarks.tally import Outcome
from benchmarks.wire import Confirm


@pytest.fixture
def pump(tmp_path: Path) -> Iterator[Peer]:
    peer = Pump(tmp_path / "pump")
    peer.start()
    yield peer
    peer.kill()


LOADS = {
    "auto": Load(),
    "varying": Load(varying=True),
    "large": Load(body=65536),
    "fan in": Load(producers=4, ack="client"),
    "fan out": Load(topic=True, consumers=4, ack="client-individual"),
    "receipts": Load(persistent=True, confirm=Confirm.EACH_100),
    "a receipt each": Load(persistent=True, confirm=Confirm.EACH, producers=3),
    "transactions": Load(persistent=True, confirm=Confirm.TRANSACTIONS_OF_100),
    "open loop": Load(rate=1000.0),
}


@pytest.mark.parametrize("cell", LOADS)
def test_everything_sent_is_counted_once(pump: Peer, cell: str) -> None:
    measured = load.run(pump, LOADS[cell], "a", 0.02, 0.1)
    assert measured.value is not None
    assert measured.value > 0
    assert measured.messages >= 4
    assert measured.outcome == Outcome()
    timed = LOADS[cell].rate is not None or LOADS[cell].confirm is not Confirm.NONE
    assert (measured.percentiles is not None) == timed


@pytest.mark.parametrize("cell", LOADS)
def test_a_measurement_lasts_until_something_got_through(pump: Peer, cell: str) -> None:
    measured = load.run(pump, LOADS[cell], "a", 0.0, 0.0)
    assert measured.value is not None
    assert measured.value > 0
    assert measured.outcome == Outcome()


def test_a_server_that_dies_is_refused_by_name(pump: Peer) -> None:
    pump.tree.kill()
    with pytest.raises(Refused, match="pump takes no connection"):
        load.run(pump, Load(), "a", 0.0, 0.1)


def test_a_server_that_ends_at_once_is_not_ready(tmp_path: Path) -> None:
    class Ending(Pump):
        def _launch(self) -> ProcessTree:
            return ProcessTree(
                ["sh", "-c", "echo no room; exit 3"], os.environ, self.folder, self.log
            )

    with pytest.raises(NotReady, match=r"(?s)ended before it answered.*no room"):
        Ending(tmp_path).start()


def test_a_tree_is_ended_with_its_descendants(tmp_path: Path) -> None:
    tree = ProcessTree(
        ["sh", "-c", "sleep 600 & exec sleep 600"], os.environ, tmp_path, tmp_path / "log"
    )
    while len(tree.pids()) < 2:
        assert tree.alive()
    assert tree.resident_bytes() > 0
    tree.kill()
    assert tree.pids() == []
    assert not tree.alive()


@dataclass(frozen=True)
class Interrupted:
    """Work that is interrupted as Ctrl-C does, with the server running."""

    alone: bool
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        if self.alone:
            peer.start()
        assert peer.running()
        raise KeyboardInterrupt


@pytest.mark.parametrize("alone", [False, True])
def test_an_interrupted_run_leaves_no_server(tmp_path: Path, alone: bool) -> None:
    trees: list[ProcessTree] = []

    class Watched(Pump):
        def _launch(self) -> ProcessTree:
            trees.append(super()._launch())
            return trees[-1]

    row = Row("a row", "s", higher=False)
    cells = [
        START_UP,
        Cell("steady", Steady(Load()), (row,)),
        Cell("interrupted", Interrupted(alone), (row,)),
    ]

    def run() -> None:
        with Runner([Watched], tmp_path, Timing(0.0, 0.5, 0.02), 2, lambda text: None) as runner:
            for cell in cells:
                (result,) = runner.measure(cell)
                assert len(result.values("pump")) == 2

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(trees) == 3 + alone
    assert [tree.pids() for tree in trees] == [[]] * len(trees)


def test_a_cell_that_fails_says_why_and_the_next_one_has_a_new_server(tmp_path: Path) -> None:
    said: list[str] = []
    row = Row("a row", "s", higher=False)

    @dataclass(frozen=True)
    class Failing(Interrupted):
        def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
            raise Refused("it says no")

    with Runner([Pump], tmp_path, Timing(0.0, 0.05, 0.02), 1, said.append) as runner:
        (result,) = runner.measure(Cell("failing", Failing(alone=False), (row,)))
        assert result.values("pump") == []
        assert [run.error for run in result.runs["pump"]] == ["Refused: it says no"]
        (result,) = runner.measure(Cell("steady", Steady(Load()), (row,)))
        assert len(result.values("pump")) == 1
    assert [line for line in said if "says no" in line] == ["failing: it says no"]
    assert sum("pump started" in line for line in said) == 2


def test_stand_ins_are_started_for_the_cells_that_want_them(tmp_path: Path) -> None:
    started: list[str] = []

    class StandIn(Pump):
        def _launch(self) -> ProcessTree:
            started.append("stand-in")
            return super()._launch()

    class Plain(Pump):
        def _launch(self) -> ProcessTree:
            started.append("plain")
            return super()._launch()

    row = Row("a row", "msg/s", higher=True)
    plain = Cell("plain", Steady(Load()), (row,))
    stood_in = Cell("stood in", Steady(Load()), (row,), {"pump": StandIn})
    nobody = Cell("nobody", Steady(Load()), (row,), {"gateway": StandIn})
    with Runner([Plain], tmp_path, Timing(0.0, 0.05, 0.02), 1, lambda text: None) as runner:
        for cell in (plain, stood_in, stood_in, plain):
            (result,) = runner.measure(cell)
            assert len(result.values("pump")) == 1
        assert started == ["plain", "stand-in", "plain"]
        (result,) = runner.measure(nobody)
        assert result.values("pump") == []
