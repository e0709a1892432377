"""Draw how the cost of the pipeline's jobs grows with events.

The cells ``pipeline-*`` have measured the costs.

``python -m benchmarks.scale_plot RESULTS.json... docs/pipeline_scale.svg``
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import Gateway
from pipeline.report.page import vendored_scripts
from tests.chromium import browser

_COST = "processor, µs an event"
_CELL = re.compile(r"pipeline-1e(\d+)")
#: Of a drawing that is white on any page.
_CONFIG = {"background": "white", "font": "DejaVu Sans", "aria": False, "view": {"stroke": None}}


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
    reconcile: float
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
                events,
                jobs["ingest s"],
                jobs["journeys s"],
                jobs["reconcile s"],
                _value(cpu),
                _value(memory),
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
    time = [
        {"events": point.events, "value": value, "job": job}
        for point in found
        for job, value in (
            ("ingest", point.ingest),
            ("journeys", point.journeys),
            ("reconcile", point.reconcile),
        )
    ]
    cost = [{"events": point.events, "value": point.cpu} for point in found]
    memory = [{"events": point.events, "value": point.memory} for point in found]
    specification = {
        "config": _CONFIG,
        "hconcat": [
            _curves("seconds", time),
            _curves(_COST, cost, "log"),
            _curves("memory, MiB", memory),
        ],
    }
    drawn = f"new vega.View(vega.parse(vegaLite.compile({json.dumps(specification)}).spec)).toSVG()"
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as page:
        for script in vendored_scripts():
            page.run(f"{script};0")
        path.write_text(page.run(drawn), encoding="utf-8")


def _curves(title: str, values: Sequence[dict[str, Any]], scale: str = "linear") -> dict[str, Any]:
    axis = {"title": None, "labelExpr": "format(datum.value, '~s')", "gridOpacity": 0.5}
    return {
        "title": title,
        "width": 230,
        "height": 180,
        "data": {"values": values},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {
                "field": "events",
                "type": "quantitative",
                "scale": {"type": "log", "nice": False},
                "axis": {**axis, "title": "events", "values": [row["events"] for row in values]},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "scale": {"type": scale},
                "axis": {**axis, "tickCount": 5},
            },
            **(
                {"color": {"field": "job", "title": None, "legend": {"orient": "top-left"}}}
                if "job" in values[0]
                else {}
            ),
        },
    }


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
