"""Counters and states of bridges and links for Prometheus, at ``/metrics`` of the admin service.

Owns the names, labels and types of the metrics. Counts nothing itself: what is shown is what the
parts say when they are asked.

Counters begin at 0 when the gateway starts, or when the link was made: at a start of its bridge, or
by a reload that changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from twisted.internet.threads import deferToThreadPool

from bridge.manager import Bridge
from bridge.status import BridgeState, LinkState, LinkStatus
from gateway.admin.service.bridges import looked
from gateway.admin.service.ports import Bridges
from gateway.admin.service.requests import AdminRequest, Plain, Routes

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LINK: Final = "stomp_gateway_link"
_LABELS: Final = ("bridge", "link")
#: Name after ``stomp_gateway_link_``, what it is, and the field of the counters.
_LINK_COUNTERS: Final = (
    (
        "messages_received",
        "Messages taken from the source, redelivered ones each time.",
        "received",
    ),
    ("messages_sent", "Messages that the target has made its own.", "sent"),
    ("body_octets", "Octets of the bodies of messages sent.", "octets"),
    (
        "messages_acknowledged",
        "Messages that the source has confirmed are done with.",
        "acknowledged",
    ),
    ("batches", "Rounds of sending and acknowledging.", "batches"),
    ("messages_expired", "Messages that were too old to be sent.", "expired"),
    ("messages_not_transferred", "Messages that a transformer dropped.", "not_transferred"),
    ("transform_failures", "Messages on which the transformer failed.", "transform_failures"),
    ("messages_refused", "Messages that the target refused.", "refused"),
    ("reconnects", "How often a provider was lost after it had been there.", "reconnects"),
    ("possible_duplicates", "Messages that the target may have twice.", "possible_duplicates"),
)


class BridgeCollector(Collector):
    """Bridges, links, dead message queues and STOMP's counters, as they are when they are asked
    for.

    :param bridges: the instance's. :param stomp: gives the STOMP bridge's counters, a dataclass of
        whole numbers of which only ``connections`` may fall; None where there is no such bridge.
    """

    def __init__(self, bridges: Bridges, stomp: Callable[[], Any] | None = None) -> None:
        self._bridges = bridges
        self._stomp = stomp

    async def look(self) -> None:
        """Have the links look at what waits at their sources."""
        await looked([link for bridge in self._bridges.bridges for link in bridge.links()])

    def collect(self) -> Iterable[Metric]:
        """Every metric."""
        bridges = self._bridges.bridges
        yield from _of_bridges(bridges)
        yield from _of_links(
            [(bridge.name, link.status()) for bridge in bridges for link in bridge.links()]
        )
        yield from _of_dmqs(bridges)
        if self._stomp is not None:
            counters = self._stomp()
            if counters is not None:
                yield from _of_stomp(counters)


class MetricsResource:
    """``GET /metrics``. Prometheus gives the administrator's name and password by ``basic_auth``.

    :param reactor: whose threads make the text, which takes a while where there are many
        destinations.
    """

    def __init__(self, reactor: Any, *collectors: Collector) -> None:
        self._reactor = reactor
        self._collectors = collectors
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)

    def __call__(self, routes: Routes) -> None:
        """Add it."""
        routes.add("GET", "/metrics", self._metrics)

    async def _metrics(self, request: AdminRequest) -> Plain:
        for each in self._collectors:
            if isinstance(each, BridgeCollector):
                await each.look()
        collected = _Collected(list(self._registry.collect()))
        text = await deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), generate_latest, collected
        )
        return Plain(text, CONTENT_TYPE)


class _Collected(CollectorRegistry):
    """Metrics as they were at one moment."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _of_bridges(bridges: Iterable[Bridge]) -> Iterator[Metric]:
    state = GaugeMetricFamily(
        "stomp_gateway_bridge_state",
        "1 for the state that the bridge is in, else 0.",
        labels=("bridge", "type", "state"),
    )
    for bridge in bridges:
        for each in BridgeState:
            state.add_metric((bridge.name, bridge.type, each.value), float(bridge.state is each))
    yield state


def _of_links(links: list[tuple[str, LinkStatus]]) -> Iterator[Metric]:
    for name, text, field in _LINK_COUNTERS:
        counter = CounterMetricFamily(f"{_LINK}_{name}", text, labels=_LABELS)
        for bridge, status in links:
            counter.add_metric((bridge, status.name), getattr(status.counters, field))
        yield counter
    dead = CounterMetricFamily(
        f"{_LINK}_messages_dead",
        "Messages that went to a dead message queue.",
        labels=(*_LABELS, "reason"),
    )
    state = GaugeMetricFamily(
        f"{_LINK}_state", "1 for the state that the link is in, else 0.", labels=(*_LABELS, "state")
    )
    gauges = [
        (
            GaugeMetricFamily(
                f"{_LINK}_in_flight_messages",
                "Messages received and not yet acknowledged.",
                labels=_LABELS,
            ),
            _in_flight,
        ),
        (
            GaugeMetricFamily(
                f"{_LINK}_failed_attempts", "Attempts in a row that have failed.", labels=_LABELS
            ),
            _attempt,
        ),
        (
            GaugeMetricFamily(
                f"{_LINK}_last_transfer_timestamp_seconds",
                "When the last message was moved; 0 for never.",
                labels=_LABELS,
            ),
            _last_transfer,
        ),
        (
            GaugeMetricFamily(
                f"{_LINK}_lag_seconds",
                "Age of the oldest message that waits at the source; 0 when none waits, absent when unknown.",
                labels=_LABELS,
            ),
            _lag,
        ),
        (
            GaugeMetricFamily(
                f"{_LINK}_waiting_messages",
                "Messages that wait at the source, those under way included; absent when unknown.",
                labels=_LABELS,
            ),
            _waiting,
        ),
    ]
    for bridge, status in links:
        labels = (bridge, status.name)
        for reason, count in status.counters.dead.items():
            dead.add_metric((*labels, reason.value), count)
        for each in LinkState:
            state.add_metric((*labels, each.value), float(status.state is each))
        for gauge, value_of in gauges:
            value = value_of(status)
            if value is not None:
                gauge.add_metric(labels, value)
    yield dead
    yield state
    for gauge, _ in gauges:
        yield gauge


def _in_flight(status: LinkStatus) -> float | None:
    return status.in_flight


def _attempt(status: LinkStatus) -> float | None:
    return status.attempt


def _last_transfer(status: LinkStatus) -> float | None:
    return status.last_transfer_ms / 1000


def _lag(status: LinkStatus) -> float | None:
    return None if status.lag_ms < 0 else status.lag_ms / 1000


def _waiting(status: LinkStatus) -> float | None:
    return None if status.waiting < 0 else status.waiting


def _of_dmqs(bridges: Iterable[Bridge]) -> Iterator[Metric]:
    labels = ("bridge", "queue")
    taken = CounterMetricFamily(
        "stomp_gateway_dmq_messages_sent", "Dead messages that the queue has taken.", labels=labels
    )
    given_up = CounterMetricFamily(
        "stomp_gateway_dmq_messages_not_taken",
        "Dead messages that the queue did not take.",
        labels=labels,
    )
    failed = CounterMetricFamily(
        "stomp_gateway_dmq_failed_attempts",
        "Attempts to send to the queue that failed.",
        labels=labels,
    )
    for bridge in bridges:
        dmqs = getattr(bridge, "dmqs", None)
        for queue in () if dmqs is None else dmqs():
            taken.add_metric((bridge.name, queue.name), queue.sent)
            given_up.add_metric((bridge.name, queue.name), queue.not_taken)
            failed.add_metric((bridge.name, queue.name), queue.failed_attempts)
    yield taken
    yield given_up
    yield failed


def _of_stomp(counters: Any) -> Iterator[Metric]:
    for field in fields(counters):
        value = getattr(counters, field.name)
        if field.name == "connections":
            yield GaugeMetricFamily(
                "stomp_gateway_stomp_connections", "Connections that there are.", value=value
            )
        else:
            name = field.name.removesuffix("_total")
            # "connections" itself is the gauge's name.
            name = "accepted_connections" if name == "connections" else name
            yield CounterMetricFamily(
                f"stomp_gateway_stomp_{name}",
                f"{name.replace('_', ' ')} of the STOMP bridge since the start.",
                value=value,
            )
