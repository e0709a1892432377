"""The cells of links that transfer once, and of the qualities of service.

Beside a bare loop of the same XA work, and the three qualities beside each other.

Declares what is measured and what is to be reached; how is in :mod:`benchmarks.once`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import once
from benchmarks.cell import Cell, Row, Timing
from benchmarks.gateway_links import GatewayWithLinks, PureGatewayWithLinks
from benchmarks.goals import NearTheLimit, NoneLost
from benchmarks.measurement import Measurement
from benchmarks.movers import (
    ONCE_BATCHES,
    ONCE_FROM_ACTIVEMQ,
    ONCE_ROUTES,
    ONCE_TO_ACTIVEMQ,
    QUALITIES_TO_ACTIVEMQ,
    QUALITIES_WITHIN,
    QUALITY_BATCHES,
    Mover,
    Route,
)
from benchmarks.peers import Peer

_MOVERS: Mapping[str, type[Peer]] = {
    mover.name: mover for mover in (GatewayWithLinks, PureGatewayWithLinks)
}
_BODY = 1024
# By the messages of a transaction; small ones take as long as their syncs do.
_MESSAGES = {1: 2_000, 10: 8_000, 100: 20_000}
# Of a bare loop's rate, which a link is to reach: with one message in a transaction it waits for its
# own store and its coordinator as well.
_SHARES = {1: 0.5, 10: 0.8, 100: 0.8}
_WAYS = {ONCE_TO_ACTIVEMQ: ("to", "sends"), ONCE_FROM_ACTIVEMQ: ("from", "receives")}
_SYNCS = (
    "gateway: for each transaction its store and ActiveMQ's journal each sync the vote and the commit, both at the same time, and between these the "
    "coordinator's log the decision",
    "bare XA loop: {0} that many messages, ends, prepares and commits at ActiveMQ alone, which syncs the vote and the commit",
)


@dataclass(frozen=True)
class Transacted:
    """Transactions of several sizes, beside the least that they take."""

    route: Route
    counts: Mapping[int, int]
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        assert isinstance(peer, Mover)
        return once.beside_bare(peer, self.route, self.counts, _BODY, name)


@dataclass(frozen=True)
class Qualities:
    """The same ways with each quality of service."""

    routes: Sequence[Sequence[Route]]
    counts: Mapping[int, int]
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        assert isinstance(peer, Mover)
        return [
            one
            for routes in self.routes
            for one in once.beside_each_other(peer, routes, self.counts, _BODY)
        ]


def _transacted(route: Route, times: int = 1, suffix: str = "") -> Cell:
    preposition, does = _WAYS[route]
    rows = tuple(
        Row(
            f"link, ONCE_AND_ONLY_ONCE by XA, {preposition} ActiveMQ by JMS, 1 KiB, persistent, {batch} in a transaction",
            "msg/s",
            True,
            (NoneLost(), NearTheLimit(_SHARES[batch], "a bare XA loop")),
            tuple(note.format(does) for note in _SYNCS),
        )
        for batch in ONCE_BATCHES
    )
    counts = {batch: _MESSAGES[batch] * times for batch in ONCE_BATCHES}
    return Cell(f"link-{route.name}{suffix}", Transacted(route, counts), rows, _MOVERS)


def _qualities() -> Cell:
    ways = {
        "queue to queue in one gateway": QUALITIES_WITHIN,
        "to ActiveMQ by JMS": QUALITIES_TO_ACTIVEMQ,
    }
    rows = tuple(
        Row(
            f"link, {way}, 1 KiB, persistent, {batch} at once, {route.quality.value}",
            "msg/s",
            True,
            (NoneLost(),),
        )
        for way, routes in ways.items()
        for batch in QUALITY_BATCHES
        for route in routes
    )
    return Cell(
        "link-quality",
        Qualities(tuple(ways.values()), {batch: _MESSAGES[batch] for batch in QUALITY_BATCHES}),
        rows,
        _MOVERS,
    )


def readme() -> list[Cell]:
    """The cells of the tables in ``README.rst``."""
    return [_transacted(route) for route in ONCE_ROUTES]


def quick() -> list[Cell]:
    """What ``make bench`` measures: every goal."""
    return [*readme(), _qualities()]


def full() -> Iterator[Cell]:
    """The same with five times as many messages where there is a goal."""
    for route in ONCE_ROUTES:
        yield _transacted(route, 5, "-5x")
    yield _qualities()
