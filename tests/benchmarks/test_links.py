"""Links that are measured move what they are given, whoever moves it: real servers, few
messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import beside, link_cells, links, raw
from benchmarks.cell import Timing
from benchmarks.endpoint import Refused
from benchmarks.gateway_links import GatewayWithLinks
from benchmarks.jms_bridge import ActiveMQWithBridge, OpenWireActiveMQ
from benchmarks.link_cells import BESIDE
from benchmarks.movers import (
    BATCHES,
    BETWEEN,
    FROM_ACTIVEMQ_STOMP,
    ROUND,
    ROUTES,
    TO_ACTIVEMQ_JMS,
    WITHIN,
    Mover,
    Route,
    Way,
)
from benchmarks.shovel import RabbitMQWithShovel
from benchmarks.tally import Outcome
from bridge.config.loading import read_path
from bridge.config.model import QualityOfService


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mover]:
    mover = GatewayWithLinks(tmp_path_factory.mktemp("links") / "gateway")
    mover.start()
    yield mover
    mover.kill()


def check_moves(mover: Mover, route: Route, messages: int) -> None:
    """:param messages: more than come in one look at the socket, so that there is a rate."""
    measured = links.run(mover, route, messages, 100, f"{route.name}-alone")
    assert len(measured) == len(BATCHES)
    for each in measured:
        assert each.value is not None
        assert each.value > 0
        assert each.outcome == Outcome()
        assert each.server_cpu is not None
    fewer = messages // 4
    expected = {0: [fewer, messages, messages], 1: [fewer] * 3, 1000: [messages] * 3}
    assert [each.messages for each in measured] == expected[mover.many]


@pytest.mark.parametrize(
    "route", [WITHIN, pytest.param(BETWEEN, marks=pytest.mark.long)], ids=lambda route: route.name
)
def test_the_gateways_links_move_everything_once_and_in_order(gateway: Mover, route: Route) -> None:
    check_moves(gateway, route, 2000)


def test_messages_that_come_all_at_once_have_no_rate(gateway: Mover) -> None:
    with pytest.raises(Refused, match="gateway, within: 100 messages came at once"):
        links.move(gateway, WITHIN, 1000, 100, 100)


def test_a_link_that_does_not_start_is_refused_by_its_name(
    gateway: Mover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gateway,
        "configuration",
        lambda route, batch: '<jmsbridge name="within-1000"><link/></jmsbridge>',
    )
    with pytest.raises(
        Refused, match=r"(?s)gateway: POST /v1/bridges/within-1000/start.*within-1000\.xml:1"
    ):
        gateway.begin(WITHIN, 1000)


def test_clients_are_measured_beside_a_pump_that_never_runs_dry(gateway: Mover) -> None:
    measured = BESIDE.work.measure(gateway, "beside", Timing(0.0, 0.1, 0.0))
    assert len(measured) == len(BESIDE.rows) == len(beside.LOADS) + 1
    for each in measured:
        assert each.value is not None
        assert each.value > 0
        assert each.outcome == Outcome()
        assert each.extra["without"] > 0
        assert each.extra["beside"] > 0
        assert each.extra["moved msg/s"] > 0


def test_each_link_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    class Elsewhere(GatewayWithLinks):
        """Knows where a broker would be, without one."""

        def foreign(self, route: Route) -> Mover | OpenWireActiveMQ:
            return self if route.way is Way.WITHIN else OpenWireActiveMQ(tmp_path / route.name)

    mover = Elsewhere(tmp_path / "gateway")
    for route in (*ROUTES, ROUND):
        for batch in BATCHES:
            file = tmp_path / "bridge.xml"
            file.write_text(mover.configuration(route, batch))
            file.chmod(0o600)
            (link,) = read_path(file)[0].links
            assert link.quality_of_service is QualityOfService.DUPLICATES_OK
            assert link.max_batch_size == (batch or None)
            here = [end.connection_factory.embedded for end in (link.source, link.target)]
            assert (
                here
                == {Way.WITHIN: [True, True], Way.OUT: [True, False], Way.IN: [False, True]}[
                    route.way
                ]
            )
            assert link.target.destination is not None
            assert (link.source.destination.name, link.target.destination.name) == mover.queues(
                route, batch
            )


@pytest.mark.long
def test_activemqs_own_bridge_moves_both_ways_and_by_itself_it_is_measured(tmp_path: Path) -> None:
    mover = ActiveMQWithBridge(tmp_path / "activemq")
    mover.start()
    try:
        for route in (WITHIN, TO_ACTIVEMQ_JMS, FROM_ACTIVEMQ_STOMP):
            check_moves(mover, route, 400)
        foreign = mover.foreign(TO_ACTIVEMQ_JMS)
        for protocol, batches in (("stomp", (1, 1000)), ("jms", (1000,))):
            for way in (Way.OUT, Way.IN):
                for batch in batches:
                    assert (
                        raw.rate(
                            foreign,
                            protocol,
                            way,
                            200,
                            batch,
                            100,
                            f"{protocol}-{way.name}-{batch}",
                        )
                        > 0
                    )
    finally:
        mover.kill()
    assert not foreign.running()


@pytest.mark.long
def test_rabbitmqs_shovel_moves_both_ways(tmp_path: Path) -> None:
    mover = RabbitMQWithShovel(tmp_path / "rabbitmq")
    mover.start()
    try:
        for route in (WITHIN, TO_ACTIVEMQ_JMS, FROM_ACTIVEMQ_STOMP):
            check_moves(mover, route, 2000)
    finally:
        mover.kill()


def test_every_goal_of_links_is_measured_by_the_quick_set() -> None:
    cells = link_cells.quick()
    assert {cell.name for cell in cells} == {
        *(f"link-1KiB-{route.name}" for route in ROUTES),
        "link-100B-within",
        "link-beside",
    }
    for cell in cells:
        assert all(row.goals for row in cell.rows)
        assert set(cell.servers) == {"gateway", "pure", "ActiveMQ", "RabbitMQ"}
