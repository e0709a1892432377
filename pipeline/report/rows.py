"""Plots by name: bars, and ranges from a low to a high quantile.

Owns that a name stands above what it names, where the whole width is its own.
"""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.report.axes import SIZE, WIDTH, caption, colour_of, is_wide, measure, span
from pipeline.report.series import Data, Series
from pipeline.report.svg import GRID, INK, MUTED, PAPER
from pipeline.report.text import label, quantity

# Inches.
_NAME: Final = 0.19
_BAR: Final = 0.13
_GAP: Final = 0.12
_AXIS: Final = 0.42
_SIDE: Final = 0.12
_MARKS: Final = ("o", "D", "^", "s", "v", "P", "X", "*")


def bars(found: Data, stacked: bool) -> Figure:
    """A bar for each value.

    :param stacked: the bars of one name stand on each other; else they are one below the other.
    """
    names = found.places
    lanes = 1 if stacked else len(found.series)
    figure, axes = _figure(len(names), lanes * _BAR)
    values = [dict(series.points) for series in found.series]
    for row, name in enumerate(names):
        top = _top(row, lanes * _BAR)
        axes.text(0, top, label(name), transform=axes.get_yaxis_transform(), va="bottom", color=INK)
        left, below = 0.0, 0.0
        for number, series in enumerate(found.series):
            value = values[number].get(name)
            if value is None:
                continue
            lane = 0 if stacked else number
            middle = top + 0.02 + (lane + 0.5) * _BAR
            start = 0.0 if not stacked else left if value >= 0 else below
            axes.barh(
                middle,
                value,
                _BAR * (1 if stacked else 0.86),
                start,
                color=colour_of(series.name, number),
                edgecolor=PAPER,
                linewidth=0.5 if stacked else 0,
                zorder=3,
            )
            left, below = left + max(value, 0.0), below + min(value, 0.0)
            if not stacked:
                _at_end(axes, value, middle, found)
        if stacked:
            _at_end(axes, left + below, top + 0.02 + 0.5 * _BAR, found)
    ends = [y for series in found.series for _, y in series.points]
    if stacked:
        ends = [sum(one.get(name, 0.0) for one in values) for name in names]
    axes.set_xlim(*span(ends, 1.1))
    _across(axes, found, False)
    return figure


def ranges(found: Data) -> Figure:
    """Draw for each name a line from lowest to highest, with marks."""
    names = found.places
    figure, axes = _figure(len(names), _BAR)
    values = [dict(series.points) for series in found.series]
    logarithmic = is_wide(found)
    for row, name in enumerate(names):
        top = _top(row, _BAR)
        middle = top + 0.02 + 0.5 * _BAR
        there = [(number, one[name]) for number, one in enumerate(values) if name in one]
        said = "   ".join(
            f"{label(found.series[number].name, 16)} {quantity(value, found.unit)}"
            for number, value in there
        )
        axes.text(
            0, top, label(name, 56), transform=axes.get_yaxis_transform(), va="bottom", color=INK
        )
        axes.text(
            1, top, said, transform=axes.get_yaxis_transform(), va="bottom", ha="right", color=MUTED
        )
        every = [value for _, value in there]
        axes.plot(
            [min(every), max(every)],
            [middle, middle],
            color=GRID,
            linewidth=3,
            zorder=2,
            solid_capstyle="round",
        )
        for number, value in there:
            axes.plot(
                [value],
                [middle],
                _MARKS[number],
                color=_colour(found.series, number),
                markersize=4.5,
                zorder=3,
                clip_on=False,
            )
    low, high = min(found.values), max(found.values)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.3, high * 1.3)
    else:
        axes.set_xlim(*span((low, high), 1.05))
    _across(axes, found, logarithmic)
    return figure


def _figure(names: int, height: float) -> tuple[Figure, Axes]:
    inside = names * (_NAME + height + _GAP) + _GAP
    total = inside + _AXIS
    figure = Figure((WIDTH, total))
    axes = figure.add_axes((_SIDE / WIDTH, _AXIS / total, 1 - 2 * _SIDE / WIDTH, inside / total))
    axes.set_ylim(inside, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.tick_params(axis="x", length=0)
    return figure, axes


def _top(row: int, height: float) -> float:
    """Where the name of a row ends, and what it names begins."""
    return _GAP / 2 + row * (_NAME + height + _GAP) + _NAME


def _at_end(axes: Axes, value: float, middle: float, found: Data) -> None:
    text = (
        f"{int(value):,}"
        if value == int(value) and abs(value) < 1e9 and not found.unit
        else quantity(value, found.unit)
    )
    away = 4 if value >= 0 else -4
    axes.annotate(
        text,
        (value, middle),
        (away, 0),
        textcoords="offset points",
        va="center",
        ha="left" if value >= 0 else "right",
        color=MUTED,
        fontsize=SIZE - 1,
    )


def _colour(series: tuple[Series, ...], number: int) -> str:
    return colour_of(series[number].name, number)


def _across(axes: Axes, found: Data, logarithmic: bool) -> None:
    measure(axes.xaxis, found, logarithmic)
    axes.set_xlabel(caption(found, logarithmic), loc="right", fontsize=SIZE)
