"""The journal for Prometheus.

Owns the names and types of these metrics. Counts nothing itself: what is shown is what the journal
says when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.journal.journal import JournalStanding


class JournalCollector(Collector):
    """The journal as it stands when it is asked for.

    :param standing: says it.
    """

    def __init__(self, standing: Callable[[], JournalStanding]) -> None:
        self._standing = standing

    def collect(self) -> Iterable[Metric]:
        """Every metric."""
        standing = self._standing()
        prefix = "stomp_gateway_journal"
        return [
            CounterMetricFamily(
                f"{prefix}_lines", "Lines that were written since the start.", value=standing.lines
            ),
            CounterMetricFamily(
                f"{prefix}_octets", "Octets of these lines.", value=standing.octets
            ),
            CounterMetricFamily(
                f"{prefix}_lost_lines", "Lines that could not be written.", value=standing.lost
            ),
            GaugeMetricFamily(
                f"{prefix}_stopped",
                "1 while the disk takes no lines, else 0.",
                value=float(standing.stopped),
            ),
        ]
