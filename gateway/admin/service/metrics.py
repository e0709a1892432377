"""Metrics for Prometheus, at ``/metrics`` of the admin service.

Owns the names, labels and types of the metrics. Counts nothing itself: what is shown is what the
parts say when they are asked.

Counters begin at 0 when the gateway starts; those of a link when it was made, at a start of its
bridge or by a reload that changed it, those of a destination when it was made. Temporary
destinations have no metrics: their names are random, and each would be a series of its own for
ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from twisted.internet.threads import deferToThreadPool

from bridge.link.status import BridgeState, LinkState, LinkStatus
from bridge.manager import BridgeServiceManager
from bridge.xa.status import TransactionCounts, TransactionState
from gateway.admin.service.bridge_resources import COUNTED, as_jms, looked, transactions_of
from gateway.admin.service.requests import AdminRequest, Plain, Routes
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.operator.views import BrokerView, DestinationView
from gateway.broker.properties.pause import Pause
from gateway.front.reach import Behind
from gateway.instance.memory.budget import Usage
from gateway.journal.journal import JournalStanding
from gateway.journal.tracer import Tracer
from gateway.stomp.counters import Counters

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Metrics of one kind: the name after a prefix, the help text, and the attribute that has the value
#: or a function that returns it; None leaves a sample out.
Rows = Sequence[tuple[str, str, str | Callable[[Any], float | None]]]
#: What the metrics are of, by the values of their labels.
Samples = Iterable[tuple[Sequence[str], object]]


class MetricsResource:
    """``GET /metrics``.

    Prometheus gives the administrator's name and password by ``basic_auth``.

    :param reactor: whose threads make the text, which takes a while where there are many
        destinations.
    :param bridges: whose links look at what waits at their sources before metrics are collected.
    :param sources: collect the metrics, on the reactor's thread.
    :param destinations: collects those of destinations, in short steps; what it gives may be gone
        through on any thread.
    """

    def __init__(
        self,
        reactor: Any,
        bridges: BridgeServiceManager,
        sources: Sequence[Callable[[], Iterable[Metric]]],
        destinations: Callable[[], Awaitable[Iterable[Metric]]],
    ) -> None:
        self._reactor = reactor
        self._bridges = bridges
        self._sources = sources
        self._destinations = destinations

    def __call__(self, routes: Routes) -> None:
        """Add it."""
        routes.add("GET", "/metrics", self._metrics)

    async def _metrics(self, request: AdminRequest) -> Plain:
        await looked([link for bridge in self._bridges.bridges for link in bridge.links()])
        destinations = await self._destinations()
        collected = Collected(
            chain([metric for source in self._sources for metric in source()], destinations)
        )
        text = await deferToThreadPool(
            self._reactor, self._reactor.getThreadPool(), generate_latest, collected
        )
        return Plain(text, CONTENT_TYPE)


class Collected(CollectorRegistry):
    """Metrics as they were at one moment."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _families(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    prefix: str,
    rows: Rows,
    samples: Samples,
    labels: Sequence[str] = (),
) -> Iterator[Metric]:
    every = list(samples)
    for name, text, value in rows:
        family = kind(f"{prefix}_{name}", text, labels=labels)
        value_of = attrgetter(value) if isinstance(value, str) else value
        for values, each in every:
            number = value_of(each)
            if number is not None:
                family.add_metric(values, number)
        yield family


# --- bridges and links

#: Name after ``stomp_gateway_link_``, what it is, and the attribute of the counters.
_LINK_COUNTERS: Final[Rows] = (
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
    (
        "messages_not_transferred",
        "Messages that a rule or a transformer dropped.",
        "not_transferred",
    ),
    ("transform_failures", "Messages on which the transformer failed.", "transform_failures"),
    ("messages_refused", "Messages that the target refused.", "refused"),
    ("reconnects", "How often a provider was lost after it had been there.", "reconnects"),
    ("possible_duplicates", "Messages that the target may have twice.", "possible_duplicates"),
)
_LINK_GAUGES: Final[Rows] = (
    ("in_flight_messages", "Messages received and not yet acknowledged.", "in_flight"),
    ("failed_attempts", "Attempts in a row that have failed.", "attempt"),
    (
        "last_transfer_timestamp_seconds",
        "When the last message was moved; 0 where none was since the link was loaded.",
        lambda status: status.last_transfer_ms / 1000,
    ),
    (
        "lag_seconds",
        "Age of the oldest message that waits at the source; 0 when none waits, absent when unknown.",
        lambda status: None if status.lag_ms < 0 else status.lag_ms / 1000,
    ),
    (
        "waiting_messages",
        "Messages that wait at the source, those under way included; absent when unknown.",
        lambda status: None if status.waiting < 0 else status.waiting,
    ),
    (
        "max_messages_per_second",
        "The rate that the link's file allows; absent without one.",
        lambda status: status.max_rate or None,
    ),
    (
        "max_bytes_per_second",
        "The octets of bodies a second that the link's file allows; absent without a rate.",
        lambda status: status.max_bytes_rate or None,
    ),
    ("paced", "1 while a rate holds the link back, else 0.", lambda status: int(status.paced)),
)
_PACED: Final[Rows] = (
    ("paced_seconds", "Seconds that the link has waited for its rates.", "paced_s"),
)
#: Name after ``stomp_gateway_link_balance_``. They go on from one process to the next.
_BALANCE_GAUGES: Final[Rows] = (
    ("taken_messages", "Messages taken from the source and not given back.", "balance.taken"),
    ("out_messages", "Of these, those that the target has for good.", "balance.out"),
    ("dead_messages", "Of these, those that a dead message queue has.", "balance.dead"),
    (
        "not_transferred_messages",
        "Of these, those that a rule or a transformer dropped.",
        "balance.not_transferred",
    ),
    (
        "in_doubt_messages",
        "Of these, those of transactions decided and not committed everywhere.",
        "balance.in_doubt",
    ),
    ("held_messages", "Of these, those under way.", "balance.held"),
    ("difference_messages", "Of these, those that are nowhere: an alarm.", "difference"),
    (
        "possibly_twice_messages",
        "Messages that the target may have twice.",
        "balance.possibly_twice",
    ),
)
_DMQ_COUNTERS: Final[Rows] = (
    ("messages_sent", "Dead messages that the queue has taken.", "sent"),
    ("messages_not_taken", "Dead messages that the queue did not take.", "not_taken"),
    ("failed_attempts", "Attempts to send to the queue that failed.", "failed_attempts"),
)


def bridge_metrics(bridges: BridgeServiceManager) -> Iterator[Metric]:
    """Collect bridges, links and dead message queues of bridges."""
    state = GaugeMetricFamily(
        "stomp_gateway_bridge_state",
        "1 for the state that the bridge is in, else 0.",
        labels=("bridge", "type", "state"),
    )
    links: list[tuple[tuple[str, str], LinkStatus]] = []
    queues: list[tuple[tuple[str, str], object]] = []
    for bridge in bridges.bridges:
        for each in BridgeState:
            state.add_metric((bridge.name, bridge.type, each.value), float(bridge.state is each))
        statuses = [link.status() for link in bridge.links()]
        links += [((bridge.name, status.name), status) for status in statuses]
        jms = as_jms(bridge)
        queues += [((bridge.name, each.name), each) for each in (() if jms is None else jms.dmqs())]
    yield state
    yield from _link_metrics(links)
    yield from _families(
        CounterMetricFamily, "stomp_gateway_dmq", _DMQ_COUNTERS, queues, ("bridge", "queue")
    )


def _link_metrics(links: Sequence[tuple[tuple[str, str], LinkStatus]]) -> Iterator[Metric]:
    prefix, labels = "stomp_gateway_link", ("bridge", "link")
    counters = [(names, status.counters) for names, status in links]
    yield from _families(CounterMetricFamily, prefix, _LINK_COUNTERS, counters, labels)
    dead = CounterMetricFamily(
        f"{prefix}_messages_dead",
        "Messages that went to a dead message queue.",
        labels=(*labels, "reason"),
    )
    state = GaugeMetricFamily(
        f"{prefix}_state", "1 for the state that the link is in, else 0.", labels=(*labels, "state")
    )
    for names, status in links:
        for reason, count in status.counters.dead.items():
            dead.add_metric((*names, reason.value), count)
        for each in LinkState:
            state.add_metric((*names, each.value), float(status.state is each))
    yield dead
    yield state
    yield from _families(CounterMetricFamily, prefix, _PACED, links, labels)
    yield from _families(GaugeMetricFamily, prefix, _LINK_GAUGES, links, labels)
    yield from _families(GaugeMetricFamily, f"{prefix}_balance", _BALANCE_GAUGES, links, labels)


# --- transactions of bridges

#: Those that are over are not listed.
_STATES: Final = tuple(
    state
    for state in TransactionState
    if state
    not in (TransactionState.COMMITTED, TransactionState.ROLLED_BACK, TransactionState.UNKNOWN)
)
_TRANSACTION_COUNTERS: Final[Rows] = (
    ("committed", "Transactions that were committed.", "committed"),
    ("rolled_back", "Transactions that were rolled back.", "rolled_back"),
    ("heuristic", "Transactions that became heuristic.", "heuristic"),
    (
        "outcome_unknown",
        "Transactions of one branch whose answer to the commit was lost.",
        "unknown",
    ),
)


def transaction_metrics(bridges: BridgeServiceManager, now_ms: int) -> Iterator[Metric]:
    """Collect the transactions of each bridge of type JMS.

    A bridge without a coordinator has none.

    :param now_ms: the time, in epoch milliseconds.
    """
    prefix = "stomp_gateway_bridge_transactions"
    present = GaugeMetricFamily(
        prefix, "Transactions that are in the state.", labels=("bridge", "state")
    )
    oldest = GaugeMetricFamily(
        f"{prefix}_oldest_waiting_seconds",
        "Age of the oldest transaction that waits; 0 if none does.",
        labels=("bridge",),
    )
    counts: list[tuple[tuple[str], TransactionCounts]] = []
    for bridge in bridges.bridges:
        if bridge.type != "JMS":
            continue
        listed = transactions_of(bridge)
        for state in _STATES:
            present.add_metric(
                (bridge.name, state.value), float(sum(each.state == state for each in listed))
            )
        ages = [now_ms - each.since_ms for each in listed if each.state in COUNTED["waiting"]]
        oldest.add_metric((bridge.name,), max([0, *ages]) / 1000)
        jms = as_jms(bridge)
        coordinator = None if jms is None else jms.coordinator
        counts.append(
            ((bridge.name,), TransactionCounts() if coordinator is None else coordinator.counts)
        )
    yield present
    yield oldest
    yield from _families(CounterMetricFamily, prefix, _TRANSACTION_COUNTERS, counts, ("bridge",))


# --- the STOMP bridge


def stomp_metrics(counters: Counters) -> Iterator[Metric]:
    """Collect the counters of the STOMP bridge.

    Only ``connections`` may fall.
    """
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


def behind_metrics(behind: Sequence[Behind]) -> Iterator[Metric]:
    """Collect which of the brokers behind the STOMP bridge can be reached."""
    if behind:
        family = GaugeMetricFamily(
            "stomp_gateway_provider_up",
            "Whether a broker behind the STOMP bridge can be reached, as far as is known.",
            labels=["provider"],
        )
        for each in behind:
            family.add_metric([each.name], float(each.away is None))
        yield family


# --- the broker

_DESTINATION_GAUGES: Final[Rows] = (
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
    ("scheduled_messages", "Messages of these that are to be delivered later.", "scheduled"),
    (
        "oldest_message_age_seconds",
        "Age of the oldest message, unacknowledged ones included; 0 without one, absent when unknown.",
        lambda each: None if each.oldest_age_ms < 0 else each.oldest_age_ms / 1000,
    ),
    (
        "consumers_paused",
        "1 while an administrator has paused it for consumers, else 0.",
        lambda each: each.state in (Pause.CONSUMERS.state, Pause.ALL.state),
    ),
    (
        "producers_paused",
        "1 while an administrator has paused it for producers, else 0.",
        lambda each: each.state in (Pause.PRODUCERS.state, Pause.ALL.state),
    ),
)
_DESTINATION_COUNTERS: Final[Rows] = (
    ("messages_in", "Messages that have come.", "messages_in"),
    ("messages_out", "Messages that have gone, by whatever way.", "messages_out"),
    (
        "messages_replaced",
        "Messages in place of which newer ones of their keys came.",
        "replaced",
    ),
    ("octets_in", "Octets of messages that have come.", "octets_in"),
    ("octets_out", "Octets of messages that have gone.", "octets_out"),
)
_DEAD_GAUGES: Final[Rows] = (("messages", "Messages of a dead message queue.", "messages"),)
_DEAD_COUNTERS: Final[Rows] = (
    ("messages_in", "Messages that have come to a dead message queue.", "messages_in"),
)
_BROKER_GAUGES: Final[Rows] = (
    ("destinations", "Destinations, temporary ones too.", "destinations"),
    ("broker_messages", "Messages of all destinations, temporary ones too.", "messages"),
    ("broker_octets", "Octets of all messages.", "octets"),
)


async def destination_metrics(broker: BrokerAdministration, most: int) -> Iterable[Metric]:
    """Look at the destinations, and the sums over all of them.

    Each dead message queue has two metrics more, however many destinations there are.

    :param most: how many destinations have metrics of their own; -1 is all of them, 0 none.
    :returns: their metrics, which are made when they are gone through.
    """
    shown, left_out = await broker.measured(most)
    dead_queues = await broker.dead_queues()
    return _of_destinations(shown, left_out, dead_queues, await broker.broker())


def _of_destinations(
    shown: Sequence[DestinationView],
    left_out: int,
    dead_queues: Sequence[DestinationView],
    broker: BrokerView,
) -> Iterator[Metric]:
    samples = [((each.type, each.name), each) for each in shown]
    prefix, labels = "stomp_gateway_destination", ("type", "name")
    yield from _families(GaugeMetricFamily, prefix, _DESTINATION_GAUGES, samples, labels)
    yield from _families(CounterMetricFamily, prefix, _DESTINATION_COUNTERS, samples, labels)
    text = "Destinations that have no metrics of their own, because there are more than imq.bridge.admin.metrics.destinations."
    yield GaugeMetricFamily("stomp_gateway_destinations_left_out", text, value=left_out)
    prefix, dead = "stomp_gateway_dead_queue", [((each.name,), each) for each in dead_queues]
    yield from _families(GaugeMetricFamily, prefix, _DEAD_GAUGES, dead, ("name",))
    yield from _families(CounterMetricFamily, prefix, _DEAD_COUNTERS, dead, ("name",))
    whole = [((), broker)]
    yield from _families(GaugeMetricFamily, "stomp_gateway", _BROKER_GAUGES, whole)


# --- the journal and the memory budget

_JOURNAL_COUNTERS: Final[Rows] = (
    ("lines", "Lines that were written since the start.", "lines"),
    ("octets", "Octets of these lines.", "octets"),
    ("lost_lines", "Lines that could not be written.", "lost"),
)
_JOURNAL_GAUGES: Final[Rows] = (("stopped", "1 while the disk takes no lines, else 0.", "stopped"),)
_MEMORY_GAUGES: Final[Rows] = (
    ("budget_bytes", "The most that it may be in all states together.", "total"),
    ("waiting_connections", "Connections that wait for memory.", "waiting"),
    (
        "held_back_consumers",
        "Consumers that get no more messages before some are acknowledged.",
        "held_back",
    ),
)
_MEMORY_COUNTERS: Final[Rows] = (
    ("ended_connections", "Connections ended for the memory that they held.", "ended"),
)


def journal_metrics(standing: JournalStanding) -> Iterator[Metric]:
    samples, prefix = [((), standing)], "stomp_gateway_journal"
    yield from _families(CounterMetricFamily, prefix, _JOURNAL_COUNTERS, samples)
    yield from _families(GaugeMetricFamily, prefix, _JOURNAL_GAUGES, samples)


_TRACING_COUNTERS: Final[Rows] = (
    ("spans_exported", "Spans that the collector has taken.", "exported"),
    ("spans_dropped", "Spans given up: too many waited, or the collector refused them.", "dropped"),
    ("failures", "Requests to the collector that failed.", "failures"),
)
_TRACING_GAUGES: Final[Rows] = (("spans_waiting", "Spans that wait for the collector.", "waiting"),)


def tracing_metrics(tracer: Tracer | None) -> Iterator[Metric]:
    """Collect the export of spans, if spans are exported."""
    if tracer is not None:
        samples, prefix = [((), tracer.standing())], "stomp_gateway_tracing"
        yield from _families(CounterMetricFamily, prefix, _TRACING_COUNTERS, samples)
        yield from _families(GaugeMetricFamily, prefix, _TRACING_GAUGES, samples)


def certificate_metrics(ends: Mapping[str, datetime]) -> Iterator[Metric]:
    """Collect when certificates end, by the service that shows them."""
    family = GaugeMetricFamily(
        "stomp_gateway_certificate_end_timestamp_seconds",
        "When the certificate ends that clients of the service are shown.",
        labels=("service",),
    )
    for service, end in ends.items():
        family.add_metric((service,), end.timestamp())
    yield family


def memory_metrics(usage: Usage) -> Iterator[Metric]:
    by_state: Rows = (
        ("used_bytes", "Memory that clients make the gateway hold.", usage.used.__getitem__),
        ("limit_bytes", "The most that it may be in that state.", usage.limits.__getitem__),
    )
    states = [((state.word,), state) for state in usage.used]
    samples, prefix = [((), usage)], "stomp_gateway_memory"
    yield from _families(GaugeMetricFamily, prefix, by_state, states, ("state",))
    yield from _families(GaugeMetricFamily, prefix, _MEMORY_GAUGES, samples)
    yield from _families(CounterMetricFamily, prefix, _MEMORY_COUNTERS, samples)
