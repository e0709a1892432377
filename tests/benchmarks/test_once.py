"""Transacted links that are measured, and what they are measured beside, move what they are given:
real servers, few messages.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bare, cells, links, once, once_cells
from benchmarks.backlog import fill
from benchmarks.bare import Program
from benchmarks.cell import Timing
from benchmarks.endpoint import Refused
from benchmarks.gateway_links import GatewayWithLinks
from benchmarks.goals import NearTheLimit, NoneLost
from benchmarks.jms_bridge import OpenWireActiveMQ
from benchmarks.measurement import Measurement
from benchmarks.movers import (
    ONCE_BATCHES,
    ONCE_FROM_ACTIVEMQ,
    ONCE_ROUTES,
    ONCE_TO_ACTIVEMQ,
    QUALITIES_TO_ACTIVEMQ,
    QUALITIES_WITHIN,
    QUALITY_BATCHES,
    Mover,
    Route,
    Way,
)
from benchmarks.once_cells import Qualities, Transacted
from benchmarks.peers import ROOT, free_port
from benchmarks.tally import Outcome
from bridge.config.loading import read_path
from bridge.config.model import QualityOfService


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mover]:
    mover = GatewayWithLinks(tmp_path_factory.mktemp("once") / "gateway")
    mover.start()
    yield mover
    mover.kill()


def check(measured: Sequence[Measurement], messages: Sequence[int]) -> None:
    assert [one.messages for one in measured] == messages
    for one in measured:
        assert one.value is not None
        assert one.value > 0
        assert one.outcome == Outcome()


@pytest.mark.parametrize(
    ("route", "counts"),
    [
        pytest.param(ONCE_TO_ACTIVEMQ, {1: 200, 100: 2000}, id="to", marks=pytest.mark.long),
        pytest.param(ONCE_FROM_ACTIVEMQ, {10: 200}, id="from", marks=pytest.mark.long),
    ],
)
def test_transacted_links_move_everything_once_beside_clients_that_do_as_much(
    gateway: Mover, route: Route, counts: Mapping[int, int]
) -> None:
    measured = once.beside_bare(gateway, route, counts, 100, route.name)
    check(measured, list(counts.values()))
    for one in measured:
        assert one.ceiling is not None
        assert one.ceiling > 0
        assert one.extra["bare XA loop msg/s"] == one.ceiling
        assert one.extra["the link's Java alone, two calls a batch, msg/s"] > 0


def test_the_qualities_are_compared_with_the_usual_one(gateway: Mover) -> None:
    measured = once.beside_each_other(gateway, QUALITIES_WITHIN, {100: 2000}, 100)
    check(measured, [2000] * 3)
    assert ["% of DUPLICATES_OK" in one.extra for one in measured] == [True, False, True]


@pytest.mark.parametrize("program", Program, ids=lambda program: program.name)
@pytest.mark.parametrize("way", [Way.OUT, Way.IN], ids=lambda way: way.name)
def test_a_client_that_cannot_is_refused_with_what_it_said(
    gateway: Mover, program: Program, way: Way
) -> None:
    foreign = gateway.foreign(ONCE_TO_ACTIVEMQ)
    assert isinstance(foreign, OpenWireActiveMQ)
    there = foreign.url
    foreign.url = f"tcp://127.0.0.1:{free_port()}"
    try:
        with pytest.raises(
            Refused, match=r"(?s)ActiveMQ: Bare.*\.java could not .*Could not connect to broker URL"
        ):
            bare.rate(foreign, program, way, 100, 10, 100, f"nobody-{program.name}-{way.name}")
    finally:
        foreign.url = there


@pytest.mark.parametrize("program", Program, ids=lambda program: program.name)
def test_a_client_looks_at_each_message(gateway: Mover, program: Program) -> None:
    foreign = gateway.foreign(ONCE_FROM_ACTIVEMQ)
    assert isinstance(foreign, OpenWireActiveMQ)
    name = f"others-{program.name}"
    fill(foreign, name, 100, True, 200, 60.0)
    command = bare.command(program, foreign.url, name, "receive", "100", "10", "90")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60.0
    )
    assert done.returncode
    assert "message 0 of 90 bytes was expected" in done.stderr


def test_each_link_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    class Elsewhere(GatewayWithLinks):
        """Knows where a broker would be, without one."""

        def foreign(self, route: Route) -> Mover | OpenWireActiveMQ:
            return self if route.way is Way.WITHIN else OpenWireActiveMQ(tmp_path / route.name)

    mover = Elsewhere(tmp_path / "gateway")
    qualities = (*QUALITIES_WITHIN, *QUALITIES_TO_ACTIVEMQ)
    asked = [(route, batch) for route in ONCE_ROUTES for batch in ONCE_BATCHES]
    asked += [(route, batch) for route in qualities for batch in QUALITY_BATCHES]
    for route, batch in asked:
        file = tmp_path / "bridge.xml"
        file.write_text(mover.configuration(route, batch))
        file.chmod(0o600)
        (link,) = read_path(file)[0].links
        assert (link.quality_of_service, link.max_batch_size) == (route.quality, batch)
        there = {end.connection_factory.lookup_name for end in (link.source, link.target)} - {None}
        name = "XAConnectionFactory" if route.quality.transacted else "ConnectionFactory"
        assert there == (set() if route.way is Way.WITHIN else {name})
        assert f"imq.bridge.{link.name}.xmlurl" in mover.settings()
    assert all(route.quality is QualityOfService.ONCE_AND_ONLY_ONCE for route in ONCE_ROUTES)
    assert (
        [route.quality for route in QUALITIES_WITHIN]
        == [route.quality for route in QUALITIES_TO_ACTIVEMQ]
        == list(QualityOfService)
    )


def test_every_goal_of_transacted_links_is_measured_by_the_quick_set() -> None:
    to, from_, quality = once_cells.quick()
    assert [cell.name for cell in (to, from_, quality)] == [
        "link-once-to-activemq",
        "link-once-from-activemq",
        "link-quality",
    ]
    assert {to.name, from_.name, quality.name} <= {cell.name for cell in cells.quick()}
    for cell in (to, from_):
        assert isinstance(cell.work, Transacted)
        assert list(cell.work.counts) == [1, 10, 100]
        assert [row.goals for row in cell.rows] == [
            (NoneLost(), NearTheLimit(share, "a bare XA loop")) for share in (0.5, 0.8, 0.8)
        ]
    assert isinstance(quality.work, Qualities)
    assert len(quality.rows) == sum(len(routes) for routes in quality.work.routes) * len(
        quality.work.counts
    )
    assert all(row.goals == (NoneLost(),) for row in quality.rows)


def test_the_rows_say_what_their_figures_are_of(
    gateway: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = once_cells.quick()[2]
    assert isinstance(cell.work, Qualities)
    asked: list[tuple[str, int]] = []

    def move(mover: Mover, route: Route, batch: int, messages: int, body: int) -> Measurement:
        asked.append((route.name, batch))
        return Measurement(1.0)

    monkeypatch.setattr(links, "move", move)
    monkeypatch.setattr(gateway, "warmed", {*QUALITIES_WITHIN, *QUALITIES_TO_ACTIVEMQ})
    cell.work.measure(gateway, cell.name, Timing())
    for row, (route, batch) in zip(cell.rows, asked, strict=True):
        assert route.upper().replace("-", "_").startswith(row.title.split(", ")[-1])
        assert f", {batch} at once, " in row.title
        assert ("ActiveMQ" in row.title) == ("activemq" in route)


def test_the_full_set_moves_more() -> None:
    few, many = once_cells.quick()[0].work, next(once_cells.full()).work
    assert isinstance(few, Transacted)
    assert many == replace(
        few, counts={batch: 5 * messages for batch, messages in few.counts.items()}
    )
