"""Draw how the cost of the pipeline's jobs grows with events.

The cells ``pipeline-*`` have measured the costs.

``python -m benchmarks.scale_plot RESULTS.json... docs/pipeline_scale.svg``
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peers import Gateway

_COST = "processor, µs an event"
_CELL = re.compile(r"pipeline-1e(\d+)")
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "stomp-gateway",
}


@dataclass(frozen=True)
class Point:
    """What one cell has measured.

    :param seconds: of each job.
    :param cpu: microseconds of processor for each event.
    :param memory: MiB, the most.
    """

    events: int
    ingest: float
    journeys: float
    cpu: float
    memory: float


def points(results: Sequence[Path]) -> list[Point]:
    """Return the pipeline's figures in these files, by events.

    The last file wins where one was measured twice.

    :raises ValueError: there is nothing of it.
    """
    found: dict[int, Point] = {}
    for path in results:
        cells: dict[int, list[dict[str, object]]] = {}
        for row in json.loads(path.read_text())["rows"]:
            cell = _CELL.fullmatch(row["cell"])
            runs = row["runs"].get(Gateway.name)
            if cell and runs:
                cells.setdefault(10 ** int(cell[1]), []).append(runs[-1])
        for events, (time, cpu, memory) in cells.items():
            jobs = time["extra"]
            assert isinstance(jobs, dict)
            found[events] = Point(
                events, jobs["ingest s"], jobs["journeys s"], _value(cpu), _value(memory)
            )
    if not found:
        raise ValueError(
            f"there is nothing of the cells pipeline-* in {', '.join(map(str, results))}"
        )
    return [found[events] for events in sorted(found)]


def _value(run: dict[str, object]) -> float:
    value = run["value"]
    assert isinstance(value, float | int)
    return value


def draw(found: Sequence[Point], path: Path) -> None:
    """Draw time, cost of an event, and memory over the number of events."""
    events = [point.events for point in found]
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure((9, 2.8), layout="constrained")
        time, cost, memory = figure.subplots(1, 3)
        _curves(
            time,
            "seconds",
            events,
            {"ingest": [p.ingest for p in found], "journeys": [p.journeys for p in found]},
        )
        _curves(cost, _COST, events, {"": [p.cpu for p in found]})
        _curves(memory, "memory, MiB", events, {"": [p.memory for p in found]})
        figure.savefig(path, metadata={"Date": None})


def _curves(axes: Axes, what: str, events: Sequence[int], curves: dict[str, list[float]]) -> None:
    for name, values in curves.items():
        axes.plot(events, values, marker="o", label=name or None)
    axes.set(title=what, xlabel="events", xscale="log")
    if what != _COST:
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    if len(curves) > 1:
        axes.legend()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. :returns: 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale_plot", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument("drawing", type=Path, metavar="DRAWING.svg")
    options = parser.parse_args(arguments)
    try:
        draw(points(options.results), options.drawing)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
