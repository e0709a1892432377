"""Prometheus is told how much memory clients make the gateway hold, read by Prometheus' own
parser.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.task import Clock

from gateway.admin.metrics.memory import MemoryCollector
from gateway.instance.memory_budget import MemoryBudget, State


class Holder:
    """A connection that lets itself be ended."""

    unacknowledged = 0

    def memory_granted(self) -> None:
        pass

    def end_for_memory(self, reason: str) -> bool:
        return True


def test_what_is_used_in_each_state_the_limits_who_waits_and_who_was_ended() -> None:
    clock = Clock()
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
    registry = CollectorRegistry()
    registry.register(MemoryCollector(budget.usage))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    found = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in families
        for sample in family.samples
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
