"""The memory budget for Prometheus.

Owns the names and types of these metrics. Counts nothing itself: what is shown is what the budget
says when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.instance.memory_budget import Usage


class MemoryCollector(Collector):
    """The budget as it is when it is asked for.

    :param usage: says it.
    """

    def __init__(self, usage: Callable[[], Usage]) -> None:
        self._usage = usage

    def collect(self) -> Iterable[Metric]:
        """Every metric."""
        usage = self._usage()
        prefix = "stomp_gateway_memory"
        used = GaugeMetricFamily(
            f"{prefix}_used_bytes", "Memory that clients make the gateway hold.", labels=("state",)
        )
        limit = GaugeMetricFamily(
            f"{prefix}_limit_bytes", "The most that it may be in that state.", labels=("state",)
        )
        for state, octets in usage.used.items():
            used.add_metric((state.word,), octets)
            limit.add_metric((state.word,), usage.limits[state])
        return [
            used,
            limit,
            GaugeMetricFamily(
                f"{prefix}_budget_bytes",
                "The most that it may be in all states together.",
                value=usage.total,
            ),
            GaugeMetricFamily(
                f"{prefix}_waiting_connections",
                "Connections that wait for memory.",
                value=usage.waiting,
            ),
            GaugeMetricFamily(
                f"{prefix}_held_back_consumers",
                "Consumers that get no more messages before some are acknowledged.",
                value=usage.held_back,
            ),
            CounterMetricFamily(
                f"{prefix}_ended_connections",
                "Connections ended for the memory that they held.",
                value=usage.ended,
            ),
        ]
