"""Transactions of bridges for Prometheus.

Owns the names, labels and types of these metrics. Counts nothing itself: what is shown is what the
coordinators say when they are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from bridge.xa.status import TransactionCounts, TransactionState
from gateway.admin.service.ports import Bridges
from gateway.admin.service.transactions import COUNTED, coordinator_of, transactions_of

_PREFIX: Final = "stomp_gateway_bridge_transactions"
#: Those that are over are not listed.
_STATES: Final = tuple(
    state
    for state in TransactionState
    if state
    not in (TransactionState.COMMITTED, TransactionState.ROLLED_BACK, TransactionState.UNKNOWN)
)
#: Name after the prefix, what it is, and the field of the counts.
_COUNTERS: Final = (
    ("committed", "Transactions that were committed.", "committed"),
    ("rolled_back", "Transactions that were rolled back.", "rolled_back"),
    ("heuristic", "Transactions that became heuristic.", "heuristic"),
    (
        "outcome_unknown",
        "Transactions of one branch whose answer to the commit was lost.",
        "unknown",
    ),
)


class TransactionCollector(Collector):
    """The transactions of each bridge of type JMS, as they are when they are asked for; of one that
    has no coordinator, none.

    :param bridges: the instance's. :param now_ms: the time, in epoch milliseconds.
    """

    def __init__(self, bridges: Bridges, now_ms: Callable[[], int]) -> None:
        self._bridges = bridges
        self._now_ms = now_ms

    def collect(self) -> Iterable[Metric]:
        """Every metric."""
        present = GaugeMetricFamily(
            _PREFIX, "Transactions that are in the state.", labels=("bridge", "state")
        )
        oldest = GaugeMetricFamily(
            f"{_PREFIX}_oldest_waiting_seconds",
            "Age of the oldest transaction that waits; 0 if none does.",
            labels=("bridge",),
        )
        counters = [
            CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=("bridge",))
            for name, text, _ in _COUNTERS
        ]
        for bridge in self._bridges.bridges:
            if bridge.type != "JMS":
                continue
            listed = transactions_of(bridge)
            for state in _STATES:
                present.add_metric(
                    (bridge.name, state.value), float(sum(each.state == state for each in listed))
                )
            waiting = [
                self._now_ms() - each.since_ms
                for each in listed
                if each.state in COUNTED["waiting"]
            ]
            oldest.add_metric((bridge.name,), max([0, *waiting]) / 1000)
            coordinator = coordinator_of(bridge)
            counts = TransactionCounts() if coordinator is None else coordinator.counts
            for counter, (_, _, field) in zip(counters, _COUNTERS, strict=True):
                counter.add_metric((bridge.name,), getattr(counts, field))
        return [present, oldest, *counters]
