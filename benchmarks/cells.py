"""The matrix: every cell that can be measured, with its goals.

Knows what each cell means; how it is measured is in :mod:`benchmarks.requests`, ``backlog`` and
``idle``, who is measured and when in :mod:`benchmarks.runner`. The cells of steady load are declared
in :mod:`benchmarks.steady_cells`, those of links in :mod:`benchmarks.link_cells`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks import (
    backlog,
    certified,
    crowd,
    front,
    idle,
    link_cells,
    once_cells,
    pipeline_cells,
    requests,
    steady_cells,
    web,
)
from benchmarks.cell import Cell, Row, Timing
from benchmarks.console import CONSOLE
from benchmarks.goals import AtMost, Below, Goal, NoneLost
from benchmarks.journal import JOURNAL
from benchmarks.lake import STREAM
from benchmarks.measurement import Measurement
from benchmarks.peers import Peer


@dataclass(frozen=True)
class RequestReply:
    """Clients that wait for each reply.

    :param shares: p50 or p99, of the round trips, a row each.
    """

    clients: int
    shares: tuple[str, ...]
    body: int = 100
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        measured = requests.run(peer, self.clients, self.body, name, timing.warm_up, timing.seconds)
        assert measured.percentiles is not None
        at = {"p50": 0, "p99": 1}
        return [measured.with_value(measured.percentiles[at[share]], {}) for share in self.shares]


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


_COUNTED: tuple[Goal, ...] = (NoneLost(),)


def request_reply(clients: int, shares: tuple[str, ...] = ("p50", "p99")) -> Cell:
    """Return the cell of this many clients.

    :param shares: of :class:`RequestReply`.
    """
    rows = tuple(
        Row(
            f"request-reply, 100 B, {clients} client{'s' if clients > 1 else ''}, round trip {share}",
            "ms",
            False,
            (*_COUNTED, Below()),
        )
        for share in shares
    )
    return Cell(f"request-reply-{clients}", RequestReply(clients, shares), rows)


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


def readme() -> list[Cell]:
    """The cells of the tables in ``README.rst``."""
    return [
        *steady_cells.readme(),
        *(request_reply(clients) for clients in (1, 10, 100)),
        crowd.crowd(10_000),
        *certified.readme(),
        *web.readme(),
        *front.readme(),
        *link_cells.readme(),
        *once_cells.readme(),
    ]


def quick() -> list[Cell]:
    """What ``make bench`` measures: README's cells first."""
    cells = [
        *readme(),
        START_UP,
        *steady_cells.quick(),
        _backlog(persistent=True),
        _waiting(100_000, 60),
        _idle(1000, tls=False),
        JOURNAL,
        CONSOLE,
        STREAM,
        *link_cells.quick(),
        *once_cells.quick(),
        *pipeline_cells.quick(),
    ]
    return list({cell.name: cell for cell in cells}.values())


def full() -> Iterator[Cell]:
    """Return the matrix without the quick set's versions of its largest cells."""
    yield START_UP
    yield from steady_cells.full()
    for clients in (1, 10, 100):
        yield request_reply(clients)
    for persistent in (False, True):
        yield _backlog(persistent)
    yield _waiting(1_000_000, 300)
    yield _idle(5000, tls=False)
    yield _idle(5000, tls=True)
    yield crowd.crowd(10_000)
    yield from certified.readme()
    yield from web.readme()
    yield JOURNAL
    yield CONSOLE
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
