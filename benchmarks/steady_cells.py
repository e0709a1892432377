"""The cells of steady load: producers and consumers together.

Declares what is measured and what is to be reached; how is in :mod:`benchmarks.load`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from benchmarks import load
from benchmarks.cell import Cell, Row, Timing
from benchmarks.goals import AtLeast, CostsAtMost, Goal, NoneLost
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer
from benchmarks.wire import Confirm


@dataclass(frozen=True)
class Steady:
    """Producers and consumers together."""

    load: Load
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return [load.run(peer, self.load, name, timing.warm_up, timing.seconds)]


@dataclass(frozen=True)
class Paced:
    """The same at a fixed rate, open loop; what counts is the latency."""

    load: Load
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        measured = load.run(peer, self.load, name, timing.warm_up, timing.seconds)
        assert measured.percentiles is not None
        return [measured.with_value(measured.percentiles[1], {"msg/s": measured.value or 0.0})]


_SIZES = {"20B": 20, "100B": 100, "1KiB": 1024, "64KiB": 65536}
_SHAPES = {
    "1to1": (1, 1),
    "4to1": (4, 1),
    "10to1": (10, 1),
    "1to4": (1, 4),
    "1to10": (1, 10),
}
_PERSISTENCE = {
    "transient": (False, Confirm.NONE),
    "persistent": (True, Confirm.NONE),
    "receipt100": (True, Confirm.EACH_100),
    "receipt1": (True, Confirm.EACH),
    "tx100": (True, Confirm.TRANSACTIONS_OF_100),
}
_AXES = (
    ("queue", "topic"),
    ("100B", "1KiB", "64KiB"),
    _PERSISTENCE,
    ("1to1", "4to1", "1to4"),
    ("auto", "client", "client-individual"),
    ("constant", "varying"),
)


def steady(name: str) -> Cell:
    """Return the cell of a name.

    :param name: such as ``queue-100B-transient-1to1-auto-varying``.
    """
    words = name.replace("client-individual", "individual").split("-")
    kind, size, stored, shape, ack, headers = words
    persistent, confirm = _PERSISTENCE[stored]
    producers, consumers = _SHAPES[shape]
    ack = ack.replace("individual", "client-individual")
    declared = Load(
        kind == "topic",
        _SIZES[size],
        persistent,
        confirm,
        producers,
        consumers,
        ack,
        headers == "varying",
    )
    return Cell(name, Steady(declared), (Row(title(declared), "msg/s", True, goals(declared)),))


def elsewhere(
    cell: Cell, prefix: str, said: str, goal: Goal, servers: Mapping[str, type[Peer]]
) -> Cell:
    """Return a cell at other servers, as which it has another name and goal.

    :param prefix: of its name, and
    :param said: of its title.
    """
    row = Row(f"{said}: {cell.rows[0].title}", "msg/s", True, (NoneLost(), goal))
    return replace(cell, name=f"{prefix}-{cell.name}", rows=(row,), servers=servers)


def title(declared: Load) -> str:
    """What is said of a load in a table."""
    kind = "topic" if declared.topic else "queue"
    size = f"{declared.body} B" if declared.body < 1024 else f"{declared.body // 1024} KiB"
    stored = f"persistent, {declared.confirm.value}" if declared.persistent else "non-persistent"
    headers = "varying headers" if declared.varying else "constant headers"
    return f"{kind}, {size}, {stored}, {declared.producers}→{declared.consumers}, ack {declared.ack}, {headers}"


def goals(declared: Load) -> tuple[Goal, ...]:
    """What a load is to reach, whether its headers vary or not."""
    return (NoneLost(), *(_durable(declared) if declared.persistent else _transient(declared)))


def _transient(declared: Load) -> tuple[Goal, ...]:
    if declared.body > 1024:
        return (AtLeast(1.0),)
    if declared.topic or (declared.producers, declared.consumers) != (1, 1):
        return (AtLeast(3.0, "ActiveMQ"),)
    if declared.body == 1024:
        return (AtLeast(4.0, "ActiveMQ"),)
    return {
        "auto": (AtLeast(5.0, "ActiveMQ"), CostsAtMost(3.5)),
        "client": (AtLeast(5.0, "ActiveMQ"),),
        "client-individual": (AtLeast(4.0, "ActiveMQ"), CostsAtMost(7.0)),
    }[declared.ack]


def _durable(declared: Load) -> tuple[Goal, ...]:
    if declared.confirm is Confirm.EACH:
        return (AtLeast(1.5, "RabbitMQ"),)
    if declared.confirm is not Confirm.EACH_100:
        return ()
    if declared.body > 1024:
        # Ahead: the medians of two that are level differ by less.
        return (AtLeast(1.05, "RabbitMQ"),)
    if (
        declared.body == 1024
        or declared.topic
        or (declared.producers, declared.consumers) != (1, 1)
    ):
        return (AtLeast(4.0, "ActiveMQ"),)
    return (AtLeast(7.0, "ActiveMQ"), AtLeast(3.0, "RabbitMQ"), CostsAtMost(10.0))


def readme() -> list[Cell]:
    """The cells of the table in ``README.rst``."""
    return [
        steady("queue-100B-transient-1to1-auto-varying"),
        steady("queue-100B-transient-1to1-auto-constant"),
        steady("queue-100B-transient-1to1-client-varying"),
        steady("queue-100B-transient-1to1-client-individual-varying"),
        steady("queue-1KiB-transient-1to1-auto-varying"),
        steady("queue-20B-transient-1to1-auto-varying"),
        steady("queue-100B-receipt100-1to1-client-varying"),
        steady("queue-100B-receipt1-1to1-auto-varying"),
        steady("queue-100B-receipt1-10to1-auto-varying"),
        steady("queue-64KiB-receipt100-1to1-client-varying"),
        steady("topic-100B-transient-1to10-auto-varying"),
    ]


def quick() -> list[Cell]:
    """One cell for each axis."""
    return [
        steady("queue-1KiB-transient-1to1-auto-constant"),
        steady("queue-64KiB-transient-1to1-auto-constant"),
        steady("queue-100B-transient-4to1-auto-constant"),
        steady("queue-100B-transient-1to4-auto-constant"),
        steady("queue-100B-transient-1to1-client-individual-constant"),
        steady("topic-100B-transient-1to1-auto-constant"),
        steady("topic-1KiB-transient-1to4-auto-constant"),
        steady("queue-100B-persistent-1to1-auto-constant"),
        steady("queue-1KiB-receipt100-1to1-client-varying"),
        steady("queue-100B-tx100-1to1-client-constant"),
        steady("queue-1KiB-receipt1-1to1-auto-constant"),
        steady("queue-1KiB-receipt1-10to1-auto-constant"),
    ]


def full() -> Iterator[Cell]:
    """Every combination, and senders that wait for the same disk."""
    for words in product(*_AXES):
        yield steady("-".join(words))
    for size in ("100B", "1KiB"):
        yield steady(f"queue-{size}-receipt1-10to1-auto-constant")
    for persistent in (False, True):
        yield _paced(2000, persistent)


def _paced(rate: int, persistent: bool) -> Cell:
    stored = "persistent" if persistent else "non-persistent"
    row = Row(
        f"queue, 1 KiB, {stored}, {rate} msg/s open loop, p99 from due to received",
        "ms",
        False,
        (NoneLost(),),
    )
    return Cell(
        f"paced-{stored.replace('non-', 'non')}-{rate}",
        Paced(Load(body=1024, persistent=persistent, rate=rate)),
        (row,),
    )
