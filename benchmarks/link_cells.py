"""The cells of links: the gateway's, RabbitMQ's shovel, ActiveMQ's bridge.

They measure, too, what STOMP clients lose to the links.

Declares what is measured and what is to be reached; how is in :mod:`benchmarks.links` and
:mod:`benchmarks.beside`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import beside, links
from benchmarks.cell import Cell, Row, Timing
from benchmarks.gateway_links import GatewayWithLinks, PureGatewayWithLinks
from benchmarks.goals import AtLeast, AtLeastUnlessLimited, AtMost, Goal, NoneLost, Reaches
from benchmarks.jms_bridge import ActiveMQWithBridge
from benchmarks.measurement import Measurement
from benchmarks.movers import (
    BATCHES,
    BETWEEN,
    FROM_ACTIVEMQ_JMS,
    FROM_ACTIVEMQ_STOMP,
    ROUTES,
    TO_ACTIVEMQ_JMS,
    TO_ACTIVEMQ_STOMP,
    UNSAID,
    WITHIN,
    Mover,
    Route,
    Way,
)
from benchmarks.peers import Peer
from benchmarks.shovel import RabbitMQWithShovel

_MOVERS: Mapping[str, type[Peer]] = {
    mover.name: mover
    for mover in (GatewayWithLinks, PureGatewayWithLinks, ActiveMQWithBridge, RabbitMQWithShovel)
}
_SIZES = {"100B": 100, "1KiB": 1024}

_ROUTES = {
    WITHIN: "link, queue to queue in one gateway",
    BETWEEN: "link, to another gateway by STOMP",
    TO_ACTIVEMQ_JMS: "link, to ActiveMQ by JMS",
    TO_ACTIVEMQ_STOMP: "link, to ActiveMQ by STOMP",
    FROM_ACTIVEMQ_JMS: "link, from ActiveMQ by JMS",
    FROM_ACTIVEMQ_STOMP: "link, from ActiveMQ by STOMP",
}
# What waits for a disk, as configured.
_BATCH = {1: "1 at once", UNSAID: "by default", 1000: "1000 at once"}
_GATEWAY = {
    1: "a sync where it is sent and one where it is acknowledged, for each message; the next message waits for both",
    UNSAID: "a sync where it is sent and one where it is acknowledged, for as many messages as have come, up to 100; the next batch waits for both",
    1000: "a sync where it is sent and one where it is acknowledged, for each 1,000 messages; the next batch waits for both",
}
_ONE_STORE = {
    1: "a sync for each message, which the next one waits for; with it the one before is acknowledged",
    UNSAID: "a sync for as many messages as have come, up to 100, which the next batch waits for; with it the one before is acknowledged",
    1000: "a sync for each 100 messages, which the next 100 wait for; with the first of a batch of 1,000 the one before is acknowledged",
}
_OTHERS = (
    "ActiveMQ's JMS bridge: a sync where it is sent, for each message, which it waits for; its acknowledgement of the source it does not wait for",
    "RabbitMQ's shovel: confirmed after a sync, which it makes for hundreds of messages, 1,000 being under way; acknowledged without one",
)


@dataclass(frozen=True)
class Moving:
    """A queue filled, then moved."""

    route: Route
    body: int
    messages: int
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        assert isinstance(peer, Mover)
        return links.run(peer, self.route, self.messages, self.body, name)


@dataclass(frozen=True)
class Beside:
    """STOMP clients with and without a pump beside them."""

    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        assert isinstance(peer, Mover)
        if not peer.stops:
            return [Measurement(None, error="it cannot be stopped while messages keep coming")] * (
                len(beside.LOADS) + 1
            )
        return beside.run(peer, name, timing.warm_up, timing.seconds)


def _moving(route: Route, size: str, messages: int, suffix: str = "") -> Cell:
    body = f"{_SIZES[size]} B" if _SIZES[size] < 1024 else f"{_SIZES[size] // 1024} KiB"
    rows = tuple(
        Row(
            f"{_ROUTES[route]}, {body}, persistent, {_BATCH[batch]}",
            "msg/s",
            True,
            _goals(route, size, batch),
            (f"gateway: {(_ONE_STORE if route.way is Way.WITHIN else _GATEWAY)[batch]}", *_OTHERS),
        )
        for batch in BATCHES
    )
    return Cell(
        f"link-{size}-{route.name}{suffix}", Moving(route, _SIZES[size], messages), rows, _MOVERS
    )


def _goals(route: Route, size: str, batch: int) -> tuple[Goal, ...]:
    """Compare with the peer that has as many under way at a time."""
    if size != "1KiB":
        return (NoneLost(),)
    factor, peer = (1.0, "ActiveMQ") if batch == 1 else (2.0, "RabbitMQ")
    if route.foreign == "activemq":
        return (NoneLost(), AtLeastUnlessLimited(factor, peer))
    return (NoneLost(), AtLeast(factor, peer))


BESIDE = Cell(
    "link-beside",
    Beside(),
    (
        Row(
            "STOMP clients beside a pump, of their rate without: queue, 100 B, non-persistent, auto, varying headers",
            "%",
            True,
            (NoneLost(), Reaches(80, "%")),
        ),
        Row(
            "the same: queue, 1 KiB, persistent, a receipt each 100, ack client, varying headers",
            "%",
            True,
            (NoneLost(), Reaches(80, "%")),
        ),
        Row(
            "the same, of its p99 without: request-reply, 100 B, 10 clients",
            "%",
            False,
            (NoneLost(), AtMost(150, "%")),
        ),
    ),
    _MOVERS,
)


def readme() -> list[Cell]:
    """The cells of the tables in ``README.rst``."""
    return [
        *(_moving(route, "1KiB", 20_000) for route in (WITHIN, TO_ACTIVEMQ_JMS, FROM_ACTIVEMQ_JMS)),
        BESIDE,
    ]


def quick() -> list[Cell]:
    """What ``make bench`` measures: every goal."""
    return [
        *(_moving(route, "1KiB", 20_000) for route in ROUTES),
        _moving(WITHIN, "100B", 20_000),
        BESIDE,
    ]


def full() -> Iterator[Cell]:
    """Each route and size with more messages."""
    for route in ROUTES:
        for size in _SIZES:
            yield _moving(route, size, 100_000, "-100k")
    yield BESIDE
