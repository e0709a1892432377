"""Prometheus is told how much waits where: the metrics of a real broker's destinations, read by
Prometheus' own parser.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet import reactor as global_reactor

from gateway.admin.metrics.destinations import DestinationCollector
from gateway.broker.operator.commands import BrokerAdministration
from gateway.messaging.destination import Kind, Queue, Topic
from gateway.messaging.provider import Mode
from tests.gateway.broker.administering import destinations
from tests.gateway.broker.brokers import Deployment, completed, text

P = ParamSpec("P")

if TYPE_CHECKING:

    def ensureDeferred(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]: ...
else:
    from pytest_twisted import ensureDeferred

reactor = cast(Any, global_reactor)


def told(
    administration: BrokerAdministration, most: int = 1000
) -> dict[tuple[str, str, str], float]:
    """Values by metric, type and name of the destination; the latter are empty where it has
    none.
    """
    registry = CollectorRegistry()
    registry.register(DestinationCollector(administration, most))
    return {
        (
            sample.name.removeprefix("stomp_gateway_"),
            sample.labels.get("type", ""),
            sample.labels.get("name", ""),
        ): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


@ensureDeferred
async def test_what_waits_and_what_consumers_have(tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, "memory")
    administration = BrokerAdministration(deployment.provider, lambda: ())
    client = await deployment.connect(client_id="c")
    session = client.session()
    client.consumer(session, Topic("news"), durable_name="d")
    session.send([text(Queue("orders"), body) for body in ("1", "22", '"\n')])
    session.send([text(Topic("news"), "3")])
    assert await completed(session) is None
    inbox = client.consumer(session, Queue("orders"), credit=2)
    await inbox.count(2)
    inbox.consumer.acknowledge([inbox.numbers[0]])
    assert await completed(session) is None
    values = told(administration)
    queue = {
        name: values[f"destination_{name}", "queue", "orders"]
        for name in ("messages", "unacknowledged_messages", "consumers")
    }
    assert queue == {"messages": 2, "unacknowledged_messages": 1, "consumers": 1}
    [standing] = [each for each in destinations(administration, "queue") if each.name == "orders"]
    assert values["destination_octets", "queue", "orders"] == standing.octets > 0
    assert values["destination_producers", "queue", "orders"] == 1
    assert values["destination_messages_in_total", "queue", "orders"] == 3
    assert values["destination_messages_out_total", "queue", "orders"] == 1
    assert values["destination_octets_in_total", "queue", "orders"] == standing.octets_in
    assert values["destination_octets_out_total", "queue", "orders"] == standing.octets_out
    assert values["destination_messages", "topic", "news"] == 1
    assert values["destination_consumers", "topic", "news"] == 1
    assert (values["broker_messages", "", ""], values["destinations_left_out", "", ""]) == (3, 0)
    await deployment.close()


@ensureDeferred
async def test_of_many_the_chosen_ones_and_then_the_oldest_are_told(tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, "memory")
    administration = BrokerAdministration(deployment.provider, lambda: ())
    client = await deployment.connect()
    session = client.session(Mode.AUTO)
    session.send([text(Queue(f"q{n}"), "x") for n in range(20)])
    client.connection.temporary(Kind.QUEUE)
    await administration.create("queue", "zebra", {})

    def names(most: int) -> list[str]:
        return [
            name
            for metric, _, name in told(administration, most)
            if metric == "destination_messages"
        ]

    assert names(4) == ["mq.sys.dmq", "zebra", "q0", "q1"]
    assert names(0) == []
    assert len(names(-1)) == 22
    values = told(administration, 4)
    assert values["destinations_left_out", "", ""] == 18
    # What waits where nobody looks is in the sum all the same.
    assert (values["broker_messages", "", ""], values["destinations", "", ""]) == (20, 23)
    await deployment.close()
