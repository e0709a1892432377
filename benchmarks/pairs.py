"""``python -m benchmarks.pairs OLD NEW``: a change's cost in eight cells.

OLD and NEW are folders with the gateway's packages, compiled or pure, such as a checkout or its
``build/compiled``; compare like with like. Both gateways run side by side, one idle while the other
is loaded, and are measured in turn. The figures are processor seconds of the gateway for 100,000
messages, the rate, and how much of one core the load generator used: near 100 % the rate is its
own. Exits with 1 when a cell costs more than the bound, or with ``--by rate`` is slower by more.

``--setting`` is for both gateways, ``--new-setting`` for NEW alone: with one folder twice they say what
a setting costs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import links, results
from benchmarks.cell import Cell, Row, Timing
from benchmarks.cells import request_reply, select
from benchmarks.gateway_links import GatewayWithLinks
from benchmarks.measurement import Measurement
from benchmarks.movers import UNSAID, WITHIN, Mover
from benchmarks.peers import Gateway, Peer
from benchmarks.results import RowResult
from benchmarks.runner import Runner

CELLS: Final = (
    "queue-100B-transient-1to1-auto-constant",
    "queue-100B-transient-1to1-auto-varying",
    "queue-100B-transient-1to1-client-individual-varying",
    "queue-100B-receipt100-1to1-client-varying",
    "queue-1KiB-receipt1-1to1-auto-varying",
    "backlog-persistent",
)
#: Messages of the link, by default as many at once as have come.
_MOVED: Final = 20_000


@dataclass(frozen=True)
class LinkWithin:
    """A link from queue to queue of the gateway itself."""

    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        assert isinstance(peer, Mover)
        peer.prepare(WITHIN)
        return [links.move(peer, WITHIN, UNSAID, _MOVED, 1024)]


def _cells(linked: dict[str, type[Peer]]) -> list[Cell]:
    row = Row("link, queue to queue in one gateway, 1 KiB, persistent", "msg/s", True)
    *steady, backlog = select(CELLS)
    linking = Cell("link-within", LinkWithin(), (row,), linked)
    return [*steady, request_reply(10, ("p99",)), backlog, linking]


def _servers(
    kind: type[Gateway], folders: dict[str, Path], more: Mapping[str, Mapping[str, str]]
) -> dict[str, type[Peer]]:
    """:param more: settings, by the name of the server."""

    def made(name: str, folder: Path) -> type[Peer]:
        def settings(self: Gateway) -> dict[str, str]:
            return kind.settings(self) | dict(more[name])

        said = {"name": name, "path": folder, "settings": settings}
        return type(f"{name.capitalize()}{kind.__name__}", (kind,), said)

    return {name: made(name, folder) for name, folder in folders.items()}


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _rate(run: Measurement) -> float | None:
    return run.extra.get("replies/s", run.value)


def _cost(run: Measurement) -> float | None:
    return run.server_cpu


def _generator(run: Measurement) -> float | None:
    return None if run.generator is None else run.generator * 100


@dataclass(frozen=True)
class Compared:
    """One figure of one row: its medians, and the pairs' ratios, new to old."""

    old: float
    new: float
    ratios: Sequence[float]

    @property
    def ratio(self) -> float:
        """Return the median of the pairs' ratios.

        A slow change of the machine hardly touches it.
        """
        return median(self.ratios)

    def __str__(self) -> str:
        least, most = min(self.ratios), max(self.ratios)
        return f"{self.old:>10,.2f} {self.new:>10,.2f}  {self.ratio:.3f} ({least:.2f}-{most:.2f})"


def compared(result: RowResult, figure: Callable[[Measurement], float | None]) -> Compared | None:
    """Compare one figure of a row; None where a gateway was not measured."""
    both = zip(result.runs["old"], result.runs["new"], strict=True)
    figures = [(figure(old), figure(new)) for old, new in both]
    pairs = [(old, new) for old, new in figures if old and new]
    if not pairs:
        return None
    return Compared(
        median(old for old, _ in pairs),
        median(new for _, new in pairs),
        [new / old for old, new in pairs],
    )


def _lines(measured: Sequence[RowResult]) -> Iterator[str]:
    yield f"{'':<64}{'old':>10} {'new':>10}  ratio (of the pairs)"
    for result in measured:
        for label, figure in (("cpu s/100k", _cost), ("rate/s", _rate)):
            found = compared(result, figure)
            if found is not None:
                yield f"{result.row.title[:52]:<53}{label:<11}{found}"
        found = compared(result, _generator)
        if found is not None:
            yield f"{'':<53}{'gen %':<11}{found.old:>10.0f} {found.new:>10.0f}"
        lost = {name: result.outcome(name).lost for name in ("old", "new")}
        if any(lost.values()):
            yield f"    lost: {lost}"


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=9, help="of each cell (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a measurement (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds (%(default)s)")
    parser.add_argument("--only", action="append", help="cells whose name contains this")
    parser.add_argument("--bound", type=float, default=3.0, help="percent more (%(default)s)")
    parser.add_argument(
        "--by", choices=("cpu", "rate"), default="cpu", help="what the bound is of (%(default)s)"
    )
    parser.add_argument("--data", type=Path, help="a folder on a real disk, for the stores")
    for option, which in (("--setting", "of both"), ("--new-setting", "of NEW")):
        parser.add_argument(
            option, action="append", type=_setting, default=[], help=f"NAME=VALUE {which}"
        )
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args(arguments)
    for folder in (options.old, options.new):
        if not (folder / "gateway").is_dir():
            parser.error(f"{folder} has no package gateway")
    names = [cell.name for cell in _cells({})]
    for part in options.only or ():
        if not any(part in name for name in names):
            parser.error(f"no cell has {part!r} in its name: there are {', '.join(names)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: 0 when no cell costs more than the bound."""
    options = _arguments(arguments)
    folders = {"old": options.old.resolve(), "new": options.new.resolve()}
    more = {"old": dict(options.setting), "new": dict(options.setting + options.new_setting)}
    chosen = [
        cell
        for cell in _cells(_servers(GatewayWithLinks, folders, more))
        if not options.only or any(part in cell.name for part in options.only)
    ]
    folder = Path(tempfile.mkdtemp(prefix="stomp-pairs-", dir=options.data))
    measured: list[RowResult] = []
    try:
        with Runner(
            list(_servers(Gateway, folders, more).values()),
            folder,
            Timing(options.warm_up, options.seconds),
            options.pairs,
            lambda text: print(text, file=sys.stderr, flush=True),
        ) as runner:
            for cell in chosen:
                print(cell.name, file=sys.stderr, flush=True)
                measured += runner.measure(cell)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(_lines(measured)))
    if options.json is not None:
        results.write(options.json, measured, {"pairs": _summary(measured)})
    over = [
        result.row.title
        for result in measured
        if (loss := _loss(result, options.by)) is None or loss > 1 + options.bound / 100
    ]
    for title in over:
        print(f"costs more than {options.bound:g} % more, or was not measured: {title}")
    return 1 if over else 0


def _loss(result: RowResult, by: str) -> float | None:
    """Return how many times more it costs, or the old rate is higher.

    :returns: None where it was not measured.
    """
    found = compared(result, _cost if by == "cpu" else _rate)
    if found is None:
        return None
    return found.ratio if by == "cpu" else 1 / found.ratio


def _summary(measured: Sequence[RowResult]) -> list[dict[str, Any]]:
    return [
        {
            "title": result.row.title,
            **{
                label: {"old": found.old, "new": found.new, "ratio": found.ratio}
                for label, figure in (
                    ("cpu s/100k", _cost),
                    ("rate/s", _rate),
                    ("generator %", _generator),
                )
                if (found := compared(result, figure)) is not None
            },
        }
        for result in measured
    ]


if __name__ == "__main__":
    sys.exit(main())
