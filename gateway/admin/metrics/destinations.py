"""Depths and counts of the embedded broker's destinations for Prometheus, at ``/metrics`` of the
admin service.

Owns the names, labels and types of these metrics. What a destination holds the broker says, and
which ones are shown where there are many.

Temporary destinations are none of these: their names are random, and each would be a series of its
own for ever. Counters begin at 0 when the broker starts, or when the destination was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.admin.service.broker_port import BrokerAdministration

_DESTINATION: Final = "stomp_gateway_destination"
_LABELS: Final = ("type", "name")
#: Name after ``stomp_gateway_destination_``, what it is, and the field of the standing.
_GAUGES: Final = (
    (
        "messages",
        "Messages accepted and not settled; on a topic once for each subscription.",
        "messages",
    ),
    ("octets", "Octets of these messages.", "octets"),
    (
        "unacknowledged_messages",
        "Messages of these that consumers have and have not settled.",
        "unacknowledged",
    ),
    (
        "consumers",
        "Consumers; of a topic those of its subscriptions, and inactive durable subscriptions.",
        "consumers",
    ),
    ("producers", "Connections that have sent to it.", "producers"),
)
_COUNTERS: Final = (
    ("messages_in", "Messages that have come.", "messages_in"),
    ("messages_out", "Messages that have gone, by whatever way.", "messages_out"),
    ("octets_in", "Octets of messages that have come.", "octets_in"),
    ("octets_out", "Octets of messages that have gone.", "octets_out"),
)


class DestinationCollector(Collector):
    """The destinations as they are when they are asked for, and the sums over all of them.

    :param most: how many destinations have metrics of their own; -1 is all of them, 0 none.
    """

    def __init__(self, administration: BrokerAdministration, most: int) -> None:
        self._broker = administration
        self._most = most

    def collect(self) -> Iterable[Metric]:
        """Every metric."""
        shown, left_out = self._broker.measured(self._most)
        labels = [(each.type, each.name) for each in shown]
        for name, text, field in _GAUGES:
            gauge = GaugeMetricFamily(f"{_DESTINATION}_{name}", text, labels=_LABELS)
            for values, each in zip(labels, shown, strict=True):
                gauge.add_metric(values, getattr(each, field))
            yield gauge
        for name, text, field in _COUNTERS:
            counter = CounterMetricFamily(f"{_DESTINATION}_{name}", text, labels=_LABELS)
            for values, each in zip(labels, shown, strict=True):
                counter.add_metric(values, getattr(each, field))
            yield counter
        text = "Destinations that have no metrics of their own, because there are more than imq.bridge.admin.metrics.destinations."
        yield GaugeMetricFamily("stomp_gateway_destinations_left_out", text, value=left_out)
        whole = self._broker.broker()
        for name, text, value in (
            ("destinations", "Destinations, temporary ones too.", whole.destinations),
            (
                "broker_messages",
                "Messages of all destinations, temporary ones too.",
                whole.messages,
            ),
            ("broker_octets", "Octets of all messages.", whole.octets),
        ):
            yield GaugeMetricFamily(f"stomp_gateway_{name}", text, value=value)
