"""A message's journey as a time line, one row for each step.

Owns how many journeys and steps are drawn. A row for each step leaves room for its name however
close in time it is to its neighbours.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pipeline.report.axes import SIZE, WIDTH
from pipeline.report.series import column, seconds
from pipeline.report.svg import GRID, INK, MUTED, series_colour
from pipeline.report.text import label, moment, quantity, round_duration
from pipeline.summary import Chart, Table

#: Steps and headings that one drawing has.
MOST_ROWS: Final = 60
# Inches.
_ROW: Final = 0.23
_AXIS: Final = 0.45
_SIDE: Final = 0.12
_LETTER: Final = 0.078
_NAME: Final = 26
_MARKS: Final = 6
_ABOUT: Final = 46


@dataclass(frozen=True)
class Taken:
    """A step that was taken.

    :param at: seconds since 1970-01-01 UTC.
    :param name: of the step.
    :param about: what else is said of it.
    """

    at: float
    name: str
    about: str = ""


@dataclass(frozen=True)
class Journey:
    """The steps of one message.

    :param name: of the message; empty where there is only one.
    :param steps: by time, at least one.
    """

    name: str
    steps: tuple[Taken, ...]


def journeys(table: Table, chart: Chart) -> tuple[list[Journey], str]:
    """Return a table's journeys, and a sentence on what is left out.

    Rows without a time are not steps.

    :raises ValueError: when the chart speaks of a column that the table does not have.
    """
    x, names = column(table, chart.x), [column(table, name) for name in chart.y]
    by = column(table, chart.by) if chart.by else None
    found: dict[str, list[Taken]] = {}
    for row in table.rows:
        at = seconds(row[x])
        if at is None:
            continue
        about = label(
            " · ".join(str(row[name]) for name in names[1:] if row[name] not in (None, "")), _ABOUT
        )
        step = Taken(
            at, label(row[names[0]], _NAME), about if len(names) > 1 and about != "(empty)" else ""
        )
        found.setdefault("" if by is None else label(row[by], 80), []).append(step)
    drawn: list[Journey] = []
    left = MOST_ROWS
    for name, steps in found.items():
        head = 1 if name else 0
        # A heading without a step says nothing.
        if left <= head:
            break
        drawn.append(Journey(name, tuple(sorted(steps, key=lambda step: step.at)[: left - head])))
        left -= head + len(drawn[-1].steps)
    total, shown = sum(map(len, found.values())), sum(len(one.steps) for one in drawn)
    return (
        drawn,
        ""
        if total == shown
        else f"The first {shown} of {total} steps are drawn; all are in the table.",
    )


def told(found: list[Journey]) -> str:
    """The same in words."""
    each = []
    for journey in found:
        first = journey.steps[0]
        steps = [f"{first.name} at {moment(first.at, 'milliseconds')} UTC"]
        steps += [
            f"{step.name} after {quantity(step.at - first.at, 's')}" for step in journey.steps[1:]
        ]
        each.append(f"{journey.name}{': ' if journey.name else ''}{', '.join(steps)}")
    return f"Time line of {len(found)} {'journey' if len(found) == 1 else 'journeys'}. {'; '.join(each)}."


def draw(found: list[Journey]) -> Figure:
    """Draw journeys, each from the left; the axis is the time since."""
    rows = sum(len(journey.steps) + (1 if journey.name else 0) for journey in found)
    inside = (rows + 0.6) * _ROW
    total = inside + _AXIS
    figure = Figure((WIDTH, total))
    names = [journey.name[:_NAME] for journey in found] + [
        step.name for journey in found for step in journey.steps
    ]
    inset = _SIDE * (2 if found[0].name else 1)
    side = inset + _SIDE + _LETTER * max(map(_width, names))
    wide = WIDTH - side - _SIDE
    axes = figure.add_axes((side / WIDTH, _AXIS / total, wide / WIDTH, inside / total))
    axes.set_ylim(rows - 0.2, -0.8)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x")
    longest = max(journey.steps[-1].at - journey.steps[0].at for journey in found)
    # The words beside the last step need room.
    axes.set_xlim(-0.01 * (longest or 1.0), 1.5 * (longest or 1.0))
    left = axes.get_yaxis_transform()
    row = 0
    for journey in found:
        first = journey.steps[0]
        if journey.name:
            axes.text(
                (_SIDE - side) / wide, row, journey.name, transform=left, va="center", color=INK
            )
            row += 1
        before, about = first.at, ""
        for step in journey.steps:
            at, since = step.at - first.at, step.at - before
            axes.text(
                (inset - side) / wide,
                row,
                step.name,
                transform=left,
                va="center",
                color=MUTED if journey.name else INK,
            )
            if since:
                axes.plot(
                    [at - since, at],
                    [row, row],
                    color=series_colour(0),
                    linewidth=2.4,
                    alpha=0.45,
                    zorder=2,
                )
            if step is not first:
                axes.plot(
                    [at - since, at - since], [row - 1, row], color=GRID, linewidth=1, zorder=1
                )
            axes.plot(
                [at], [row], "o", color=series_colour(0), markersize=4.5, zorder=3, clip_on=False
            )
            said = (
                f"+{quantity(since, 's')}"
                if step is not first
                else f"{moment(first.at, 'milliseconds')} UTC"
            )
            # What is said of several steps in a row is said of the first.
            said = f"{said}   {step.about}" if step.about not in ("", about) else said
            about = step.about
            axes.annotate(
                said,
                (at, row),
                (7, 0),
                textcoords="offset points",
                va="center",
                color=MUTED,
                fontsize=SIZE - 0.5,
            )
            before = step.at
            row += 1
    between = round_duration(longest / _MARKS) if longest else 1.0
    axes.set_xticks([between * mark for mark in range(int(longest / between) + 1)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value, "s")))
    axes.set_xlabel("since the first step", loc="left", fontsize=SIZE)
    return figure


def _width(text: str) -> int:
    """In letters; those of some scripts are two wide."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
