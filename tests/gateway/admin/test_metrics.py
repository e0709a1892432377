"""What Prometheus is told, read by its own parser: the destinations of a real broker, the journal,
the memory budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from twisted.internet import reactor as global_reactor
from twisted.internet.task import Clock

from gateway.admin.service.metrics import (
    Collected,
    destination_metrics,
    journal_metrics,
    memory_metrics,
)
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import BrokerOptions
from gateway.instance.memory.budget import MemoryBudget, State
from gateway.journal.journal import JournalStanding
from gateway.messaging.destination import Kind, Queue, Topic
from gateway.messaging.provider import Mode
from tests.gateway.broker.administration import destinations
from tests.gateway.broker.brokers import Deployment, completed, text
from tests.on_reactor import on_reactor

reactor = cast(Any, global_reactor)


def parsed(metrics: Iterable[Metric]) -> list[Sample]:
    text = generate_latest(Collected(metrics)).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def told(
    administration: BrokerAdministration, most: int = 1000
) -> dict[tuple[str, str, str], float]:
    """Values by metric, and by type and name of the destination.

    The latter are empty where it has none.
    """
    return {
        (
            sample.name.removeprefix("stomp_gateway_"),
            sample.labels.get("type", ""),
            sample.labels.get("name", ""),
        ): sample.value
        for sample in parsed(await destination_metrics(administration, most))
    }


@on_reactor
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
    values = await told(administration)
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
    await administration.pause("queue", "orders", Pause.PRODUCERS)
    values = await told(administration)
    paused = [f"destination_{whom}_paused" for whom in ("consumers", "producers")]
    assert [values[each, "queue", "orders"] for each in paused] == [0, 1]
    assert [values[each, "topic", "news"] for each in paused] == [0, 0]
    await deployment.close()


@on_reactor
async def test_what_a_last_value_queue_has_replaced(tmp_path: Path) -> None:
    kept = DestinationProperties(last_value_key="symbol")
    options = BrokerOptions(destinations=((Queue("quotes"), kept),))
    deployment = Deployment(reactor, tmp_path, "memory", options)
    administration = BrokerAdministration(deployment.provider, lambda: ())
    session = (await deployment.connect()).session()
    for body in ("1", "2", "3"):
        session.send([text(Queue("quotes"), body, properties={"symbol": "a"})])
        session.send([text(Queue("orders"), body, properties={"symbol": "a"})])
    assert await completed(session) is None
    values = await told(administration)
    names = ("messages", "messages_in_total", "messages_out_total", "messages_replaced_total")
    found = {
        queue: [values[f"destination_{name}", "queue", queue] for name in names]
        for queue in ("quotes", "orders")
    }
    assert found == {"quotes": [1, 3, 2, 2], "orders": [3, 3, 0, 0]}
    await deployment.close()


@on_reactor
async def test_of_many_the_chosen_ones_and_then_the_oldest_are_told(tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, "memory")
    administration = BrokerAdministration(deployment.provider, lambda: ())
    client = await deployment.connect()
    session = client.session(Mode.AUTO)
    session.send([text(Queue(f"q{n}"), "x") for n in range(20)])
    client.connection.temporary(Kind.QUEUE)
    await administration.create("queue", "zebra", {})

    async def names(most: int) -> list[str]:
        return [
            name
            for metric, _, name in await told(administration, most)
            if metric == "destination_messages"
        ]

    assert await names(4) == ["mq.sys.dmq", "zebra", "q0", "q1"]
    assert (await names(0), len(await names(-1))) == ([], 22)
    values = await told(administration, 4)
    assert values["destinations_left_out", "", ""] == 18
    # What waits where nobody looks is in the sum all the same.
    assert (values["broker_messages", "", ""], values["destinations", "", ""]) == (20, 23)
    await deployment.close()


def test_lines_octets_losses_and_whether_it_has_stopped() -> None:
    standing = JournalStanding("all", lines=5, octets=700, lost=2, stopped=True)
    assert {sample.name: sample.value for sample in parsed(journal_metrics(standing))} == {
        "stomp_gateway_journal_lines_total": 5,
        "stomp_gateway_journal_octets_total": 700,
        "stomp_gateway_journal_lost_lines_total": 2,
        "stomp_gateway_journal_stopped": 1,
    }


class Holder:
    """A connection that lets itself be ended."""

    unacknowledged = 0

    def memory_granted(self) -> None:
        pass

    def end_for_memory(self, reason: str) -> bool:
        return True


def test_what_is_used_in_each_state_the_limits_who_waits_and_who_was_ended(clock: Clock) -> None:
    budget = MemoryBudget(clock, 1000, {State.RECEIVING: 75, State.TRANSACTIONS: 50}, patience=1)
    budget.waiting_messages = lambda: 7
    budget.unacknowledged_messages = lambda: 3
    budget.transactions_inside = lambda: 5
    budget.consumers_held_back = lambda: 2
    first, second = budget.account(Holder()), budget.account(Holder())
    assert first.reserve(State.RECEIVING, 700)
    assert first.hold(State.OUTPUT, 20)
    assert not second.reserve(State.RECEIVING, 400)
    clock.pump([0.1] * 15)
    found = {
        (sample.name, sample.labels.get("state")): sample.value
        for sample in parsed(memory_metrics(budget.usage()))
    }
    assert found == {
        ("stomp_gateway_memory_used_bytes", "receiving"): 700,
        ("stomp_gateway_memory_used_bytes", "transactions"): 5,
        ("stomp_gateway_memory_used_bytes", "output"): 20,
        ("stomp_gateway_memory_used_bytes", "waiting"): 7,
        ("stomp_gateway_memory_used_bytes", "unacknowledged"): 3,
        ("stomp_gateway_memory_limit_bytes", "receiving"): 750,
        ("stomp_gateway_memory_limit_bytes", "transactions"): 500,
        ("stomp_gateway_memory_limit_bytes", "output"): 1000,
        ("stomp_gateway_memory_limit_bytes", "waiting"): 1000,
        ("stomp_gateway_memory_limit_bytes", "unacknowledged"): 1000,
        ("stomp_gateway_memory_budget_bytes", None): 1000,
        ("stomp_gateway_memory_waiting_connections", None): 1,
        ("stomp_gateway_memory_held_back_consumers", None): 2,
        ("stomp_gateway_memory_ended_connections_total", None): 1,
    }
