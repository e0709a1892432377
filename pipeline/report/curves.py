"""Plots over time, or over numbers: lines, and stacked columns.

Owns where a line is broken, and how wide a column is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from matplotlib import dates, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from pipeline.report.axes import SIZE, WIDTH, caption, colour_of, is_wide, measure, span
from pipeline.report.series import Data
from pipeline.report.svg import MUTED, PAPER
from pipeline.report.text import FIRST, LAST, moment

_HEIGHT: Final = 3.1
#: By which lines differ besides their colour: lengths of strokes and gaps, as SVG writes them.
DASHES: Final = ("", "6 2", "2 2", "8 2 2 2", "4 1.5", "1.2 1.5", "8 2 2 2 2 2", "10 3")
_MARKED: Final = 60
#: Of the distance between places, how much a column fills.
_FULL: Final = 0.86
#: Places that an axis has room for at least: one alone is no wall.
_FEWEST: Final = 12
#: Seconds from which on no mark is between two of them.
_SECONDS: Final = 10.0
_STEPS: Final = (1.0, 60.0, 3_600.0, 86_400.0)


def lines(found: Data) -> Figure:
    """A line for each series, with marks where there are few points."""
    figure, axes = _figure()
    step = _step(found)
    for number, series in enumerate(found.series):
        points = sorted((float(x), y) for x, y in series.points)
        marked = len(points) <= _MARKED
        xs: list[float] = []
        ys: list[float] = []
        for x, y in points:
            # Gaps between measurements are not drawn.
            if xs and x - xs[-1] > 1.5 * step:
                xs.append(xs[-1] + step)
                ys.append(float("nan"))
            xs.append(x)
            ys.append(y)
        dashes = [float(length) for length in DASHES[number].split()]
        axes.plot(
            [_at(x, found) for x in xs],
            ys,
            color=colour_of(series.name, number),
            linestyle=(0, tuple(dashes)) if dashes else "-",
            marker="o" if marked else "",
            markersize=3.2,
            # Above the line at zero.
            zorder=3,
            clip_on=False,
        )
    _upright(axes, found, logarithmic=is_wide(found))
    _along(axes, found, step, step / 2)
    return figure


def columns(found: Data) -> Figure:
    """Draw stacked columns, as wide as places are apart, first series lowest."""
    figure, axes = _figure()
    step = _step(found)
    heights: dict[float, float] = {}
    for number, series in enumerate(found.series):
        corners: list[tuple[float, float]] = []
        for x, y in ((float(x), y) for x, y in series.points):
            low = heights.get(x, 0.0)
            heights[x] = low + y
            left = x if found.along == "time" else x - step * _FULL / 2
            sides = _at(left, found), _at(left + step * _FULL, found)
            corners += [
                (sides[0], low),
                (sides[0], low + y),
                (sides[1], low + y),
                (sides[1], low),
                (sides[0], low),
            ]
        # One path for all columns of a series: there may be a thousand.
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(
            series.points
        )
        edge = 0.4 if len(series.points) <= 2 * _MARKED else 0
        colour = colour_of(series.name, number)
        axes.add_patch(
            PathPatch(
                Path(corners, codes), facecolor=colour, edgecolor=PAPER, linewidth=edge, zorder=3
            )
        )
    axes.set_ylim(*span(heights.values(), 1.05))
    _upright(axes, found, logarithmic=False)
    _along(
        axes,
        found,
        step,
        step * (0.15 if found.along == "time" else 0.6),
        step if found.along == "time" else 0,
    )
    return figure


def _figure() -> tuple[Figure, Axes]:
    figure = Figure((WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", which="both", length=0)
    axes.grid(axis="y")
    return figure, axes


def _upright(axes: Axes, found: Data, logarithmic: bool) -> None:
    axes.set_title(caption(found, logarithmic), loc="left", fontsize=SIZE, color=MUTED)
    if logarithmic:
        axes.set_yscale("log")
    elif min(found.values) >= 0:
        axes.set_ylim(0, axes.get_ylim()[1] if max(found.values) else 1)
    measure(axes.yaxis, found, logarithmic)


def _along(axes: Axes, found: Data, step: float, margin: float, beyond: float = 0) -> None:
    places = [float(place) for place in found.places]
    margin += max(0.0, _FEWEST * step - (places[-1] + beyond - places[0])) / 2
    first, last = places[0] - margin, places[-1] + beyond + margin
    if found.along == "time":
        # There may be a message of the year 9999, and no date is after it.
        first, last = max(first, FIRST), min(last, LAST)
    axes.set_xlim(_at(first, found), _at(last, found))
    if found.along == "number":
        axes.xaxis.set_major_locator(ticker.MaxNLocator(9))
        return
    locator = dates.AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    shown = dates.ConciseDateFormatter(locator, tz=UTC, show_offset=False)  # type: ignore[no-untyped-call]
    if places[-1] - places[0] + 2 * margin > _SECONDS:
        # A second alone does not say of which minute.
        shown.formats[5] = "%H:%M:%S"
    axes.xaxis.set_major_formatter(shown)
    began, ended = moment(places[0]), moment(places[-1])
    axes.set_xlabel(
        f"{began if began == ended else f'{began} to {ended}'} UTC", loc="right", fontsize=SIZE
    )


def _at(place: float, found: Data) -> float:
    """Where that is on the axis: of times, in matplotlib's days."""
    if found.along != "time":
        return place
    epoch: float = dates.date2num(datetime(1970, 1, 1, tzinfo=UTC))  # type: ignore[no-untyped-call]
    return place / 86_400 + epoch


def _step(found: Data) -> float:
    """Return the smallest distance of places.

    For a single time it is a unit that divides it.
    """
    if found.along == "time" and found.every:
        return found.every
    places = [float(place) for place in found.places]
    between = [later - earlier for earlier, later in pairwise(places)]
    if between:
        return min(between)
    if found.along == "time":
        return max(step for step in (1.0, *_STEPS) if places[0] % step == 0 or step == 1.0)
    return 1.0
