"""The matrix: every cell that can be measured, with its goals.

Knows what each cell means; how it is measured is in :mod:`benchmarks.load`, ``requests``,
``backlog`` and ``idle``, who is measured and when in :mod:`benchmarks.runner`. The cells of links
are declared in :mod:`benchmarks.link_cells`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product

from benchmarks import backlog, idle, link_cells, load, once_cells, pipeline_cells, requests
from benchmarks.cell import Cell, Row, Timing
from benchmarks.goals import AtLeast, AtMost, Below, Goal, NoneLost
from benchmarks.journal import JOURNAL
from benchmarks.lake import STREAM
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


@dataclass(frozen=True)
class RequestReply:
    """Clients that wait for each reply."""

    clients: int
    body: int = 100
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return [requests.run(peer, self.clients, self.body, name, timing.warm_up, timing.seconds)]


@dataclass(frozen=True)
class FillAndDrain:
    """A queue filled without a consumer, then drained."""

    persistent: bool
    body: int = 1024
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return backlog.fill_and_drain(peer, name, self.body, self.persistent, timing.seconds)


@dataclass(frozen=True)
class Waiting:
    """Memory and restarts with this many messages of 1 KiB waiting."""

    messages: int
    bound: float
    alone: bool = True
    tls: bool = False
    once: bool = True

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return backlog.waiting(peer, self.messages, self.bound)


@dataclass(frozen=True)
class Idle:
    """Connections that only beat."""

    connections: int
    seconds: float = 20.0
    tls: bool = False
    alone: bool = True
    once: bool = True

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return idle.run(peer, self.connections, self.seconds)


@dataclass(frozen=True)
class StartUp:
    """From the start of the process to CONNECTED, over an empty folder."""

    alone: bool = True
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        return backlog.start_up(peer)


_SIZES = {"100B": 100, "1KiB": 1024, "64KiB": 65536}
_SHAPES = {"1to1": (1, 1), "4to1": (4, 1), "1to4": (1, 4)}
_PERSISTENCE = {
    "transient": (False, Confirm.NONE),
    "persistent": (True, Confirm.NONE),
    "receipt100": (True, Confirm.EACH_100),
    "receipt1": (True, Confirm.EACH),
    "tx100": (True, Confirm.TRANSACTIONS_OF_100),
}
_COUNTED: tuple[Goal, ...] = (NoneLost(),)


def _steady(
    destination: str, size: str, persistence: str, shape: str, ack: str, headers: str
) -> Cell:
    persistent, confirm = _PERSISTENCE[persistence]
    producers, consumers = _SHAPES[shape]
    return _steady_cell(
        f"{destination}-{size}-{persistence}-{shape}-{ack}-{headers}",
        Load(
            destination == "topic",
            _SIZES[size],
            persistent,
            confirm,
            producers,
            consumers,
            ack,
            headers == "varying",
        ),
        _goals(size, persistence, shape, ack),
    )


def _steady_cell(name: str, declared: Load, goals: tuple[Goal, ...]) -> Cell:
    kind = "topic" if declared.topic else "queue"
    size = f"{declared.body} B" if declared.body < 1024 else f"{declared.body // 1024} KiB"
    stored = f"persistent, {declared.confirm.value}" if declared.persistent else "non-persistent"
    headers = "varying headers" if declared.varying else "constant headers"
    title = f"{kind}, {size}, {stored}, {declared.producers}→{declared.consumers}, ack {declared.ack}, {headers}"
    return Cell(name, Steady(declared), (Row(title, "msg/s", True, goals),))


def _goals(size: str, persistence: str, shape: str, ack: str) -> tuple[Goal, ...]:
    if size == "64KiB":
        return (*_COUNTED, AtLeast(1.0))
    if persistence == "transient":
        return (*_COUNTED, AtLeast(3.0, "ActiveMQ"))
    if persistence == "receipt100":
        return (*_COUNTED, AtLeast(4.0, "ActiveMQ"))
    if persistence == "receipt1":
        return (*_COUNTED, AtLeast(1.0))
    return _COUNTED


def _senders(count: int, size: str) -> Cell:
    declared = Load(body=_SIZES[size], persistent=True, confirm=Confirm.EACH, producers=count)
    return _steady_cell(
        f"queue-{size}-receipt1-{count}to1-auto-constant", declared, (*_COUNTED, AtLeast(1.0))
    )


def _request_reply(clients: int) -> Cell:
    row = Row(
        f"request-reply, 100 B, {clients} client{'s' if clients > 1 else ''}, round trip p99",
        "ms",
        False,
        (*_COUNTED, Below()),
    )
    return Cell(f"request-reply-{clients}", RequestReply(clients), (row,))


def _paced(rate: int, persistent: bool) -> Cell:
    stored = "persistent" if persistent else "non-persistent"
    row = Row(
        f"queue, 1 KiB, {stored}, {rate} msg/s open loop, p99 from due to received",
        "ms",
        False,
        _COUNTED,
    )
    return Cell(
        f"paced-{stored.replace('non-', 'non')}-{rate}",
        Paced(Load(body=1024, persistent=persistent, rate=rate)),
        (row,),
    )


def _backlog(persistent: bool) -> Cell:
    stored = "persistent" if persistent else "non-persistent"
    rows = (
        Row(f"fill a queue, 1 KiB, {stored}, a receipt each 100, no consumer", "msg/s", True),
        Row(f"drain it, ack client, {stored}", "msg/s", True, _COUNTED),
    )
    return Cell(f"backlog-{stored.replace('non-', 'non')}", FillAndDrain(persistent), rows)


def _waiting(messages: int, bound: float) -> Cell:
    count = f"{messages:,}".replace(",", " ")
    rows = (
        Row(
            f"{count} waiting persistent messages of 1 KiB, resident memory",
            "MiB",
            False,
            (AtMost(300, "MB", 1.048576),),
        ),
        Row("orderly restart over them, to the first message", "s", False, (AtMost(10, "s"),)),
        Row("start after SIGKILL over them, to the first message", "s", False, (AtMost(10, "s"),)),
        Row("then draining them, ack client", "msg/s", True, _COUNTED),
    )
    return Cell(f"waiting-{messages}", Waiting(messages, bound), rows)


def _idle(connections: int, tls: bool) -> Cell:
    kind = "TLS" if tls else "TCP"
    memory: tuple[Goal, ...] = (NoneLost(),) if tls else (NoneLost(), AtMost(20, "KiB"))
    # The goal is for 5,000; with fewer, what the server costs without any weighs more.
    processor: tuple[Goal, ...] = (AtMost(10, "%"),) if connections == 5000 and not tls else ()
    rows = (
        Row(
            f"{connections} idle {kind} connections, heart-beats of 10 s: memory of each",
            "KiB",
            False,
            memory,
        ),
        Row("the same: processor, of one core", "%", False, processor),
    )
    return Cell(f"idle-{kind.lower()}-{connections}", Idle(connections, tls=tls), rows)


START_UP = Cell(
    "start-up",
    StartUp(),
    (Row("start-up over an empty folder, to CONNECTED", "s", False, (AtMost(2, "s"),)),),
)


def quick() -> list[Cell]:
    """What ``make bench`` measures: every goal, and one cell for each axis."""
    return [
        START_UP,
        _steady("queue", "100B", "transient", "1to1", "auto", "constant"),
        _steady("queue", "100B", "transient", "1to1", "auto", "varying"),
        _steady("queue", "1KiB", "transient", "1to1", "auto", "constant"),
        _steady("queue", "64KiB", "transient", "1to1", "auto", "constant"),
        _steady("queue", "100B", "transient", "4to1", "auto", "constant"),
        _steady("queue", "100B", "transient", "1to4", "auto", "constant"),
        _steady("queue", "100B", "transient", "1to1", "client", "constant"),
        _steady("queue", "100B", "transient", "1to1", "client-individual", "constant"),
        _steady("topic", "100B", "transient", "1to1", "auto", "constant"),
        _steady("topic", "1KiB", "transient", "1to4", "auto", "constant"),
        _steady("queue", "100B", "persistent", "1to1", "auto", "constant"),
        _steady("queue", "100B", "receipt100", "1to1", "client", "constant"),
        _steady("queue", "1KiB", "receipt100", "1to1", "client", "varying"),
        _steady("queue", "64KiB", "receipt100", "1to1", "client", "constant"),
        _steady("queue", "100B", "tx100", "1to1", "client", "constant"),
        _steady("queue", "1KiB", "receipt1", "1to1", "auto", "constant"),
        _senders(10, "1KiB"),
        _request_reply(1),
        _request_reply(10),
        _backlog(persistent=True),
        _waiting(100_000, 60),
        _idle(1000, tls=False),
        JOURNAL,
        STREAM,
        *link_cells.quick(),
        *once_cells.quick(),
        *pipeline_cells.quick(),
    ]


def full() -> Iterator[Cell]:
    """Return the matrix without the quick set's versions of its largest cells."""
    yield START_UP
    axes = (
        ("queue", "topic"),
        _SIZES,
        _PERSISTENCE,
        _SHAPES,
        ("auto", "client", "client-individual"),
        ("constant", "varying"),
    )
    for values in product(*axes):
        yield _steady(*values)
    for size in ("100B", "1KiB"):
        yield _senders(10, size)
    for clients in (1, 10, 100):
        yield _request_reply(clients)
    for persistent in (False, True):
        yield _paced(2000, persistent)
        yield _backlog(persistent)
    yield _waiting(1_000_000, 300)
    yield _idle(5000, tls=False)
    yield _idle(5000, tls=True)
    yield JOURNAL
    yield STREAM
    yield from link_cells.full()
    yield from once_cells.full()
    yield from pipeline_cells.full()


def select(patterns: Sequence[str]) -> list[Cell]:
    """Return each cell whose name matches or contains a pattern, once.

    :raises ValueError: when a pattern matches none.
    """
    known = {cell.name: cell for cell in [*quick(), *full()]}
    chosen: dict[str, Cell] = {}
    for pattern in patterns:
        found = [cell for name, cell in known.items() if pattern == name]
        found = found or [
            cell for name, cell in known.items() if pattern in name or fnmatchcase(name, pattern)
        ]
        if not found:
            raise ValueError(f"no cell is called {pattern!r}; --list shows all")
        chosen |= {cell.name: cell for cell in found}
    return list(chosen.values())
