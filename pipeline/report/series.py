"""A table and its chart as the series that a plot draws.

Owns which rows of a table are points, in which series, and how many series and points a plot can
show. Draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final, Literal

from pipeline.report.text import label
from pipeline.summary import Chart, Table

#: Series that can be told apart in one plot, and names in one below the other.
MOST_SERIES: Final = 8
MOST_NAMES: Final = 20
#: What jobs call the sum of all that is not among the first. It is drawn last.
OTHERS: Final = "others"
#: Of numbers that are drawn, beside 0. Nobody counts or times anything that is near.
_SMALLEST: Final = 1e-200

Along = Literal["time", "number", "name"]
Place = float | str


@dataclass(frozen=True)
class Series:
    """What has one colour.

    :param points: what is along and what is up, in the table's order. Times are seconds since
        1970-01-01 UTC.
    """

    name: str
    points: tuple[tuple[Place, float], ...]

    @property
    def total(self) -> float:
        """The sum of what is up."""
        return math.fsum(y for _, y in self.points)


@dataclass(frozen=True)
class Data:
    """What a plot draws.

    :param along: what the places of the points are.
    :param unit: of what is up.
    :param every: how far places of time are from each other at least, in seconds; 0: as the points
        say.
    :param left_out: what is in the table only, as a sentence; empty where all is drawn.
    """

    along: Along
    series: tuple[Series, ...]
    unit: str = ""
    left_out: str = ""
    every: float = 0.0

    @property
    def places(self) -> list[Place]:
        """Return each place with a point once: sorted, but names in table order."""
        found = dict.fromkeys(x for series in self.series for x, _ in series.points)
        return list(found) if self.along == "name" else sorted(found)

    @property
    def values(self) -> list[float]:
        """All that is up."""
        return [y for series in self.series for _, y in series.points]


def data(table: Table, chart: Chart) -> Data:
    """The points of a table.

    Rows without a number or a place are no points; of several rows for one place of one series the
    numbers are added.

    :raises ValueError: when the chart speaks of a column that the table does not have.
    """
    x, ups = column(table, chart.x), [column(table, name) for name in chart.y]
    by = column(table, chart.by) if chart.by else None
    along = _along([row[x] for row in table.rows])
    found: dict[str, dict[Place, float]] = {}
    for row in table.rows:
        place = _place(row[x], along)
        for name, up in zip(chart.y, ups, strict=True):
            value = number(row[up])
            if place is None or value is None:
                continue
            # The unit is with each number.
            name = name.removesuffix(f"_{chart.unit}") if chart.unit else name
            points = found.setdefault(_name(row, by, name, len(ups) > 1), {})
            points[place] = points.get(place, 0.0) + value
    series = [Series(name, tuple(points.items())) for name, points in found.items()]
    if by is not None:
        series.sort(key=lambda each: (each.name == OTHERS, -each.total))
    sentences = []
    if len(series) > MOST_SERIES:
        sentences.append(
            f"The {MOST_SERIES} largest of {len(series)} series are drawn; all are in the table."
        )
        series = sorted(series, key=lambda each: -each.total)[:MOST_SERIES]
    if along == "name":
        names = list(dict.fromkeys(place for each in series for place, _ in each.points))
        if len(names) > MOST_NAMES:
            sentences.append(
                f"The first {MOST_NAMES} of {len(names)} are drawn; all are in the table."
            )
            kept = set(names[:MOST_NAMES])
            series = [
                Series(each.name, tuple(point for point in each.points if point[0] in kept))
                for each in series
            ]
    return Data(
        along,
        tuple(each for each in series if each.points),
        chart.unit,
        " ".join(sentences),
        chart.every,
    )


def column(table: Table, name: str) -> int:
    """Which column of the table has this name. :raises ValueError: none."""
    if name not in table.columns:
        raise ValueError(
            f"the chart of the table {table.title!r} speaks of a column {name!r}; it has {', '.join(table.columns)}"
        )
    return table.columns.index(name)


def number(value: object) -> float | None:
    """Return the value as a number to draw; tiny values become 0.

    None if it is not a number, is infinite, or is too large to add and to divide.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        found = float(value)
    except (OverflowError, ValueError):  # of a signalling NaN
        return None
    if abs(found) < _SMALLEST:
        return 0.0
    return found if abs(found) < 1 / _SMALLEST else None


def seconds(value: object) -> float | None:
    """Return a time in seconds since 1970-01-01 UTC; None if it is no time.

    A time without a zone is in UTC.
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC).timestamp()
    return None


def _along(values: list[object]) -> Along:
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, date) for value in there):
        return "time"
    if there and all(number(value) is not None for value in there):
        return "number"
    return "name"


def _place(value: object, along: Along) -> Place | None:
    if along == "time":
        return seconds(value)
    return number(value) if along == "number" else label(value)


def _name(row: Sequence[object], by: int | None, name: str, several: bool) -> str:
    name = label(name)
    if by is None:
        return name
    of = label(row[by])
    return f"{of}, {name}" if several else of
